# Standing enrichments while processes die: worker, launcher, engine, server, at random instants while rows come and change. At the
# end each row has the answer to what it says, and was written once for each time that its text was set.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = llm_cluster('standing', fault => 'slow_step=2', conf => "llm_infer.databases = 'postgres'");
my $resets = 0;
my $rows = 400;

sub one { return scalar $node->safe_psql('postgres', $_[0]); }
sub pid_of { return llm_wait_for(sub { one("SELECT pid FROM llm.job_workers WHERE state = 'running' AND enrichment IS " . ($_[0] eq 'worker' ? 'NOT NULL' : 'NULL AND owner IS NULL')) }); }

# A trigger counts the writes that were committed, by what they answer.
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int PRIMARY KEY, body text, a text);
	CREATE TABLE writes (id int, body text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO writes VALUES (NEW.id, NEW.body); RETURN NULL; END';
	CREATE TRIGGER note AFTER UPDATE ON docs FOR EACH ROW WHEN (NEW.a IS DISTINCT FROM OLD.a) EXECUTE FUNCTION note();
	SELECT llm_enrich_create('e', 'docs', 'a', prompt => '@slow=4 {body}', batch_size => 32, concurrency => 64)});

sub kill_worker { my ($name) = @_; kill 'KILL', pid_of($name); $resets++; sleep 0.3; return; }
my %deaths = (
	'kill -9 of the worker' => sub { kill_worker('worker') },
	'kill -9 of the launcher' => sub { kill_worker('launcher') },
	'kill -9 of the engine' => sub { kill 'KILL', llm_engine_pid($node) },
	'termination of the worker' => sub { my $pid = pid_of('worker'); one("SELECT pg_terminate_backend($pid, 5000)") },
	'immediate stop' => sub { $node->stop('immediate'); $node->start },
	'fast stop' => sub { $node->restart });

foreach my $how (sort keys %deaths)
{
	$node->safe_psql('postgres', qq{
		TRUNCATE docs, writes;
		INSERT INTO docs SELECT i, '$how ' || i FROM generate_series(1, $rows) i});
	llm_wait_for(sub { one('SELECT count(*) > 40 FROM writes') eq 't' });
	my $engine = llm_engine_pid($node);
	$deaths{$how}->();
	my $done = llm_wait_for(sub { one('SELECT count(*) FROM writes') });
	cmp_ok($done, '<', $rows, "$how: after $done rows");
	# a row that changes now, before or after it is done
	ok(llm_wait_for(sub { defined eval { $node->safe_psql('postgres', q{UPDATE docs SET body = body || ' more' WHERE id % 40 = 0}) } }), "$how: rows change");
	ok(llm_wait_for(sub { one('SELECT count(*) = count(*) FILTER (WHERE a = body) AND count(*) > 0 FROM docs') eq 't' }, 40), "$how: all rows are done")
	  or diag(one('TABLE llm.enrichments'), "\n", one('TABLE llm.job_workers'));
	is(one(q{SELECT count(*) FROM (SELECT id, body FROM writes GROUP BY id, body HAVING count(*) > 1) x}), '0', "$how: none twice");
	ok(llm_wait_for(sub { one('SELECT count(*) FROM llm.enrich_queue') eq '0' }), "$how: the queue is empty");
	is(one('SELECT count(*) FROM llm.failed_rows'), '0', "$how: none failed");
	llm_is_well($node, $how, resets => $resets);
}

$node->stop;
done_testing();
