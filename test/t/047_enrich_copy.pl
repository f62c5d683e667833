# An enrichment travels: its table is read on a standby, where calls are refused, and the promoted one goes on, by itself with a
# standing one; dumps by whoever may make them, in every form, give a copy that goes on as well.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = llm_cluster('primary', allows_streaming => 1, fault => 'slow_step=2', conf => 'max_connections = 40');
my $rows = 400;
my $how = q{'a', prompt => '@slow=3 {body}', batch_size => 20, concurrency => 20};
my $call = "CALL llm_enrich('docs', $how)";

sub one { return scalar $_[0]->safe_psql($_[2] // 'postgres', $_[1]); }

$primary->safe_psql('postgres', qq{
	CREATE ROLE plain LOGIN; CREATE ROLE owner LOGIN;
	GRANT USAGE ON FOREIGN SERVER echo TO owner; GRANT CREATE ON SCHEMA public TO owner; GRANT CREATE ON DATABASE postgres TO plain;
	SET ROLE owner;
	CREATE TABLE docs (id int PRIMARY KEY, body text, a text);
	INSERT INTO docs SELECT i, CASE i WHEN 7 THEN '\@error=seven' ELSE 'row ' || i END FROM generate_series(1, $rows) i;
	GRANT SELECT ON docs TO plain});

# Every row but the seventh, which fails, has its own answer.
sub all_done
{
	my ($node, $name, $dbname) = @_;
	is(one($node, 'SELECT count(*) FILTER (WHERE a = body), count(a) FROM docs', $dbname), join('|', ($rows - 1) x 2), "$name: every row has its answer");
	return;
}

# ---- dumps, while a call is at work ----

{
	my $s = llm_session($primary, "SET ROLE owner; $call");
	ok(llm_wait_for(sub { one($primary, 'SELECT count(a) BETWEEN 20 AND 300 FROM docs') eq 't' }), 'a call has begun');
	my $dir = $primary->basedir;
	my %dumps = (
		plain => [ 'psql', '-f', 'pg_dump' ],
		custom => [ 'pg_restore', '-1', 'pg_dump', '-Fc' ],
		parallel => [ 'pg_restore', '-j2', 'pg_dump', '-Fd', '-j2' ],
		inserts => [ 'psql', '-f', 'pg_dump', '--serializable-deferrable', '--inserts' ],
	);
	foreach my $form (sort keys %dumps)
	{
		my ($restore, $how, @dump) = @{ $dumps{$form} };
		my $file = "$dir/$form";
		$primary->command_ok([ @dump, '-f', $file, $primary->connstr('postgres') ], "$form: a dump");
		$primary->safe_psql('postgres', "CREATE DATABASE $form");
		my @restore = $restore eq 'psql' ? ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $file) : ($restore, '-e', $how);
		$primary->command_ok([ @restore, '-d', $primary->connstr($form), $restore eq 'psql' ? () : $file ], "$form: is restored");
	}
	# by nobody in particular: the schema, and what is his own
	$primary->command_ok([ 'pg_dump', '-s', '-U', 'plain', '-f', "$dir/schema", $primary->connstr('postgres') ], 'the schema, by anybody');
	$primary->command_ok([ 'pg_dump', '-t', 'docs', '-U', 'owner', '-f', "$dir/table", $primary->connstr('postgres') ], 'the table, by its owner');
	$primary->command_fails_like([ 'pg_dump', '-U', 'plain', $primary->connstr('postgres') ], qr/permission denied for table/, 'all data by anybody: no');
	my ($out, $err) = llm_session_end($s);
	like($err, qr/wrote @{[ $rows - 1 ]} rows of "docs", 1 failed/, 'the call goes on meanwhile');
	foreach my $form (sort keys %dumps)
	{
		my $done = one($primary, 'SELECT count(a) FROM docs', $form);
		is(one($primary, 'SELECT count(*) FROM llm.failed_rows', $form), '0', "$form: failures are left out");
		$primary->psql($form, "SET ROLE owner; $call", stdout => \$out, stderr => \$err);
		like($err, qr/wrote @{[ $rows - 1 - $done ]} rows of "docs", 1 failed/, 'the copy goes on where it was');
		all_done($primary, $form, $form);
		$primary->safe_psql('postgres', "DROP DATABASE $form");
	}
	$primary->safe_psql('postgres', 'CREATE DATABASE parts');
	$primary->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/schema", '-d', $primary->connstr('parts') ], 'the schema alone');
	$primary->safe_psql('parts', 'DROP TABLE docs');
	$primary->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/table", '-d', $primary->connstr('parts') ], 'and the table alone');
	$primary->safe_psql('parts', $call);
	all_done($primary, 'parts', 'parts');
	$primary->safe_psql('postgres', 'DROP DATABASE parts');
	all_done($primary, 'where they come from');
}

# ---- a standby ----

$primary->safe_psql('postgres', 'UPDATE docs SET a = NULL; SET ROLE owner; CREATE TABLE kept (LIKE docs INCLUDING ALL); INSERT INTO kept SELECT * FROM docs WHERE id <> 7');
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;
my $s = llm_session($primary, "SET ROLE owner; SELECT llm_enrich_create('kept', 'kept', $how); $call");
ok(llm_wait_for(sub { one($standby, 'SELECT (SELECT count(a) FROM docs) BETWEEN 20 AND 300 AND count(a) BETWEEN 20 AND 300 FROM kept') eq 't' }), 'a standby shows what is done');
like(llm_error($standby, $call), qr/ERROR:  25006: cannot execute CALL llm_enrich\(\) during recovery/, 'a call there is refused');
like(llm_error($standby, q{SELECT llm_enrich_pause('kept')}), qr/ERROR:  25006: /, 'and so is pausing a standing one');
is(one($standby, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'llm_infer %' AND backend_type <> 'llm_infer supervisor'}), '0', 'nobody works there');
$primary->stop('immediate');
llm_session_end($s);
$standby->promote;
my $kept = one($standby, 'SELECT count(a) FROM kept');
my $done = one($standby, 'SELECT count(a) FROM docs');
cmp_ok($done, '<', $rows - 1, "promoted after $done rows");
my ($out, $err);
$standby->psql('postgres', "SET ROLE owner; $call", stdout => \$out, stderr => \$err);
like($err, qr/wrote @{[ $rows - 1 - $done ]} rows of "docs", 1 failed/, 'the next call does the others there');
all_done($standby, 'promotion');
ok(llm_wait_for(sub { one($standby, q{SELECT state = 'active' AND pending = 0 FROM llm.enrichments}) eq 't' }), "the standing one goes on by itself, after $kept rows");
is(one($standby, q{SELECT count(*) FILTER (WHERE a = body) FROM kept; UPDATE kept SET body = 'new' WHERE id = 1}), $rows - 1, 'to its end');
ok(llm_wait_for(sub { one($standby, 'SELECT a FROM kept WHERE id = 1') eq 'new' }), 'and with what changes there');
is(one($standby, q{SELECT key, attempts, message FROM llm.failed_rows}), '{"id": 7}|2|seven', 'and what fails is kept');
llm_is_well($standby, 'promotion');

$standby->stop;
is_deeply([ llm_processes($standby), llm_processes($primary) ], [], 'no process is left');
done_testing();
