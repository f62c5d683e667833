# A publication FOR ALL TABLES beside jobs and enrichments on both ends: nothing of ours is carried over or in the way,
# and rows of the user's tables are enriched where they arrive.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @ends = map { llm_cluster($_, allows_streaming => 'logical', conf => "max_worker_processes = 20") } qw(publisher subscriber);
my ($from, $to) = @ends;

sub one { return scalar $_[0]->safe_psql('postgres', $_[1]); }
sub jobs { return one($_[0], q{SELECT string_agg(id || ' ' || owner || ' ' || state || ' ' || attempts, ', ' ORDER BY id) FROM llm.jobs}); }
sub answered { my $id = one($_[0], "SELECT llm_job_submit('$_[1]')"); return one($_[0], "SELECT llm_job_wait($id, '20 s')"); }
sub caught_up { $from->wait_for_catchup('s'); return; }

foreach (@ends)
{
	$_->safe_psql('postgres', q{CREATE ROLE a LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO a;
		CREATE TABLE docs (id int PRIMARY KEY, body text, summary text); CREATE TABLE notes (id int PRIMARY KEY, body text, answer text)});
}

is(one($from, q{SELECT string_agg(relname, ' ') FROM pg_class c WHERE relnamespace = 'llm'::regnamespace AND relkind = 'r' AND (
	NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgfoid = 'llm.skip_replicated'::regproc AND tgenabled = 'R')
	OR relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary))}), '', 'each table keeps replicated rows away, and can be published');

# Both have jobs of the same numbers, and quotas.
my $never = q{options => '{"not_before": "2100-01-01"}'};
is(answered($_, 'first'), 'done', 'a job') foreach @ends;
one($to, qq{SELECT llm_job_submit(ARRAY['mine', 'mine too'], $never); INSERT INTO llm.quotas VALUES ('a', NULL, NULL, 7)});
one($from, qq{SET ROLE a; SELECT llm_job_submit(ARRAY['theirs', 'theirs too', 'theirs as well'], $never)});
one($from, q{INSERT INTO llm.quotas VALUES ('a', NULL, NULL, 3); INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 100) i;
	UPDATE docs SET body = '@error=bad' WHERE id = 50});
my $before = jobs($to);

$from->safe_psql('postgres', 'CREATE PUBLICATION p FOR ALL TABLES');
my $connstr = $from->connstr('postgres');
$to->safe_psql('postgres', qq{CREATE SUBSCRIPTION s CONNECTION \$\$$connstr\$\$ PUBLICATION p});
ok(llm_wait_for(sub { one($to, q{SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'}) eq '0' }), 'all tables are copied');
is(one($to, 'SELECT count(*) FROM docs'), '100', 'the rows of users');
is(jobs($to), $before, 'no job among them');

# What the publisher does is not done here, and works there.
is(answered($from, 'published'), 'done', 'a job of the publisher');
one($from, q{SELECT llm_job_cancel(id) FROM llm.jobs WHERE finished IS NULL AND id = 2; UPDATE llm.job_queue SET due = now() WHERE id = 3});
is(one($from, q{SELECT llm_job_wait(3, '20 s')}), 'done', 'one that was queued');
$from->safe_psql('postgres', q{SET client_min_messages = error; CALL llm_enrich('docs', 'summary', prompt => '{body}', filter => 'id <= 60')});
is(one($from, q{SELECT count(summary) || ' ' || (SELECT count(*) FROM llm.failed_rows) FROM docs}), '59 1', 'an enrichment there');
one($from, q{SELECT llm_enrich_create('notes', 'notes', 'answer', prompt => 'to {body}'); INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 30) i});
ok(llm_wait_for(sub { one($from, q{SELECT count(*) || ' ' || (SELECT count(*) FROM llm.enrich_queue) FROM notes WHERE answer = 'to ' || body}) eq '30 0' }), 'a standing one too');
one($from, q{UPDATE llm.quotas SET max_in_flight = 4; DELETE FROM llm.job_queue WHERE id = 1; DELETE FROM llm.enrich_failures});
caught_up();
is(jobs($to), $before, 'jobs here are what they were');
is(one($to, q{SELECT max_in_flight || ' ' || (SELECT count(*) FROM llm.enrich_failures) FROM llm.quotas}), '7 0', 'so is the rest');
is(one($to, q{SELECT requests FROM llm.stat_users}), '1', 'and nothing was asked');
is(one($to, 'SELECT count(summary) || chr(32) || (SELECT count(answer) FROM notes) || chr(32) || (SELECT count(*) FROM llm.enrichments) FROM docs'), '59 30 0', 'values have come, definitions have not');

# Rows that arrive are enriched here, those that change again.
my $here = q{SET client_min_messages = error; CALL llm_enrich('docs', 'summary', prompt => 'here {body}', filter => 'body !~ ''^@''')};
$to->safe_psql('postgres', $here);
is(one($to, q{SELECT count(summary) || ' ' || count(*) FILTER (WHERE summary = 'here ' || body) FROM docs}), '99 40', 'those that were without');
one($from, q{INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(101, 400) i});
{
	my $s = llm_session($to, "$here;" x 3);
	one($from, q{UPDATE docs SET body = 'changed ' || id, summary = NULL WHERE id BETWEEN 1 AND 300 AND id <> 50; DELETE FROM docs WHERE id > 390});
	caught_up();
	is((llm_session_end($s))[1], '', 'enrichment beside the apply worker');
	$to->safe_psql('postgres', $here);
	is(one($to, q{SELECT count(*) || ' ' || count(*) FILTER (WHERE summary = 'here ' || body) FROM docs WHERE id <> 50}), '389 389', 'each row is done as it is now');
}

# A trigger that fires for rows which arrive submits jobs. A standing enrichment does what is there, and what is written here.
one($to, q{CREATE TABLE asked (id int, job bigint);
	CREATE FUNCTION ask() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO public.asked VALUES (NEW.id, public.llm_job_submit('about ' || NEW.body)); RETURN NULL; END$$;
	CREATE TRIGGER ask AFTER INSERT ON docs FOR EACH ROW EXECUTE FUNCTION ask(); ALTER TABLE docs ENABLE ALWAYS TRIGGER ask;
	DELETE FROM docs WHERE id = 50;
	ALTER TABLE docs ADD standing text;
	SELECT llm_enrich_create('standing', 'docs', 'standing', prompt => 'standing {body}')});
ok(llm_wait_for(sub { one($to, q{SELECT count(*) FROM docs WHERE standing = 'standing ' || body}) eq '389' }), 'a standing enrichment of a subscriber');
one($from, q{INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(401, 420) i});
caught_up();
ok(llm_wait_for(sub { one($to, q{SELECT count(*) FROM asked WHERE (llm_job_result(job)).text = 'about body ' || id}) eq '20' }), 'jobs of a trigger in the apply worker');
one($to, q{UPDATE docs SET body = 'written here' WHERE id <= 10});
ok(llm_wait_for(sub { one($to, q{SELECT count(*) FROM docs WHERE standing = 'standing ' || body}) eq '389' }), 'rows that are written here are done again');
one($to, q{SET client_min_messages = error; CALL llm_enrich('docs', 'standing', prompt => 'standing {body}')});
is(one($to, q{SELECT count(*) FROM docs WHERE standing = 'standing ' || body}), '409', 'a call does those that have arrived');

# Who restores with triggers off loses nothing.
one($to, q{SET session_replication_role = replica; INSERT INTO llm.quotas VALUES ('-', NULL, NULL, 9); UPDATE llm.quotas SET max_in_flight = 8 WHERE role = 'a'::regrole});
is(one($to, q{SELECT string_agg(max_in_flight::text, ' ' ORDER BY max_in_flight) FROM llm.quotas}), '8 9', 'session_replication_role = replica is no subscription');

unlike(slurp_file($_->logfile), qr/ERROR/, 'no error of ' . $_->name) foreach @ends;
llm_is_well($_, $_->name) foreach @ends;
$to->safe_psql('postgres', 'DROP SUBSCRIPTION s');
$_->stop foreach @ends;
is_deeply([ map { llm_processes($_) } @ends ], [], 'no process is left');
done_testing();
