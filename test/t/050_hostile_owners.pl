# Owners who mean no good: what they hold locked, and what their SQL does, keeps no other owner's work from being done. Rows, definitions
# and jobs that they keep locked are waited for by no launcher and keep no worker; SQL that does not end loses its place to others;
# settings and locks that it leaves behind do not put the worker out. Then odd keys and tables: none is lost or in the way of others.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('hostile', conf => "llm_infer.engine_timeout = '30s'");
my $db = 'postgres';
$node->safe_psql($db, q{CREATE ROLE hostile LOGIN; CREATE ROLE fair LOGIN; GRANT CREATE ON SCHEMA public TO hostile;
	GRANT USAGE ON FOREIGN SERVER echo TO hostile, fair});

sub one { return scalar $node->safe_psql($db, $_[0]); }
sub hostile { return scalar $node->safe_psql($db, "SET SESSION AUTHORIZATION hostile; $_[0]"); }

# Somebody else's job is done within the seconds.
sub fair_job
{
	my ($seconds, $name) = @_;
	my $id = one(q{SET SESSION AUTHORIZATION fair; SELECT llm_job_submit('fair')});
	my $begun = time();
	llm_wait_for(sub { one("SELECT state FROM llm.jobs WHERE id = $id") eq 'done' }, $seconds + 20);
	my $took = time() - $begun;
	cmp_ok($took, '<', $seconds, sprintf '%s: a job of another owner is done (%.1f s)', $name, $took)
	  or diag(one('TABLE llm.job_workers'));
	return;
}

# A session of the hostile role in a transaction that stays open, from when it has run the SQL until it is ended.
sub hold
{
	my ($sql) = @_;
	my $s = llm_session($node, "SET SESSION AUTHORIZATION hostile; BEGIN; $sql; SET application_name = 'holds'; SELECT pg_sleep(60)");
	llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holds'}) eq '1' }) or die 'the session did not come so far';
	return $s;
}

sub let_go
{
	my ($s) = @_;
	one(q{SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'holds'});
	return llm_session_end($s);
}

# ---- locks ----

# A definition whose table is gone, and which is locked, is removed another time.
hostile(q{CREATE TABLE docs (id int PRIMARY KEY, body text, v text); SELECT llm_enrich_create('docs', 'docs', 'v', prompt => '{body}', backfill => false)});
my $s = hold(q{SELECT llm_enrich_pause('docs')});
hostile('DROP TABLE docs');
fair_job(4, 'a locked definition');
let_go($s);
one(q{SELECT llm_job_submit('wakes the launcher')});
ok(llm_wait_for(sub { one('SELECT count(*) FROM llm.enrichment_defs') eq '0' }), 'the definition goes');

# A job that has lost its worker, and is locked, is queued another time.
my $id = hostile(q{SELECT llm_job_submit('@slow=50 @tokens=60 x', max_tokens => 60)});
llm_wait_for(sub { one("SELECT llm_job_status($id)") eq 'running' }) or die;
$s = hold("SELECT llm_job_cancel($id)");
hostile(q{SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'hostile' AND backend_type = 'llm_infer worker'});
fair_job(4, 'a locked job without a worker');
let_go($s);
ok(llm_wait_for(sub { one("SELECT llm_job_status($id)") eq 'done' }, 30), 'and is done when it is let go');

# Workers whose rows are locked end for others, and do them when they are let go.
hostile(join ';', map {
	"CREATE TABLE t$_ (id int PRIMARY KEY, body text, v text); INSERT INTO t$_ VALUES (1, '\@delay=1500 x');
	SELECT llm_enrich_create('t$_', 't$_', 'v', prompt => '{body}')" } 1 .. 4);
llm_wait_for(sub { one('SELECT count(*) FROM llm.stat_progress_enrich') eq '4' }) or die;
$s = hold(join ';', map { "SELECT FROM t$_ FOR UPDATE" } 1 .. 4);
fair_job(12, 'locked rows of four enrichments');
let_go($s);
ok(llm_wait_for(sub { one('SELECT ' . join ' + ', map { "(SELECT count(v) FROM t$_)" } 1 .. 4) eq '4' }, 30), 'these are done when they are let go');
hostile('SELECT llm_enrich_drop(name) FROM llm.enrichments');

# ---- SQL ----

hostile(q{
	CREATE FUNCTION does_read_only(t text) RETURNS text LANGUAGE sql VOLATILE AS $$SELECT set_config('default_transaction_read_only', 'on', false); SELECT t$$;
	CREATE FUNCTION does_serialize(t text) RETURNS text LANGUAGE sql VOLATILE AS $$SELECT set_config('default_transaction_isolation', 'serializable', false); SELECT t$$;
	CREATE FUNCTION does_unlock(t text) RETURNS text LANGUAGE sql VOLATILE AS $$SELECT pg_advisory_unlock_all(); SELECT t$$;
	CREATE FUNCTION does_hang(t text) RETURNS text LANGUAGE sql VOLATILE AS $$SELECT pg_sleep(600); SELECT t$$});
my $offset = -s $node->logfile;
foreach my $f (qw(read_only serialize unlock))
{
	hostile("CREATE TABLE does_$f (id int PRIMARY KEY, body text, v text); INSERT INTO does_$f SELECT i, 'row ' || i FROM generate_series(1, 200) i;
		SELECT llm_enrich_create('$f', 'does_$f', 'v', expr => 'does_$f(body)')");
	ok(llm_wait_for(sub { one("SELECT count(*) FROM does_$f WHERE v = body") eq '200' }), "all is done when the SQL does $f") or diag(one('TABLE llm.enrichments'));
}
is((() = llm_log_since($node, $offset) =~ /(WARNING|ERROR|FATAL|PANIC)/g), 0, 'and the log says nothing about it');
hostile('SELECT llm_enrich_drop(name) FROM llm.enrichments');

hostile(join ';', map { "UPDATE t$_ SET v = NULL; SELECT llm_enrich_create('t$_', 't$_', 'v', expr => 'does_hang(body)')" } 1 .. 4);
llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'llm_infer enrichment' AND wait_event = 'PgSleep'}) eq '4' }) or die;
fair_job(25, 'SQL that does not end');
like(one('SELECT reason FROM llm.enrichments WHERE reason IS NOT NULL'), qr/did not end while others waited/, 'the reason is told');
hostile(q{SELECT llm_enrich_pause(name) FROM llm.enrichments});
one(q{SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE backend_type = 'llm_infer enrichment'});
hostile('SELECT llm_enrich_drop(name) FROM llm.enrichments');

# ---- keys ----

# Of all types, also such as jsonb has no own form of, or a cast makes something else of.
one(q{CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE TYPE pair AS (x int, y text); CREATE TYPE mood AS ENUM ('low', 'high');
	CREATE DOMAIN list AS int[]; CREATE SCHEMA aside; CREATE TABLE aside.t ()});
my %keys = ('int[]' => [ '{1,2}', '[0:1]={1,2}', '{}', '{NULL}', '{{1},{2}}' ], list => ['[3:4]={1,2}'], jsonb => [ 'null', '"x"', '{"a": null}', '1.50' ],
	hstore => [ 'a=>1', 'a=>NULL' ], citext => ['AbC'], pair => [ '(1,x)', '(2,)' ], mood => ['low'], regclass => [ 'aside.t', 'pg_class' ], int4range => [ '[1,5)', 'empty', '(,)' ],
	float8 => [ 'NaN', '-0', '-infinity', '1e-310' ], numeric => [ 'NaN', 'Infinity', '1e100', '1.000' ], timestamptz => [ 'infinity', '0044-03-15 BC', '294276-12-31' ],
	'"char"' => [ 'a', '' ], varbit => [ '101', '' ], 'char(5)' => ['ab'], timetz => ['10:00+05:30'], money => ['12.5'], bytea => ['\\x00ff']);
my @types = sort keys %keys;
foreach my $i (0 .. $#types)
{
	one("CREATE TABLE k$i (k $types[$i] PRIMARY KEY, body text, v text); SELECT llm_enrich_create('k$i', 'k$i', 'v', prompt => '{body}', backfill => false);
		SET search_path = aside, public, pg_catalog; " . join '; ', map { "INSERT INTO k$i VALUES (\$\$$_\$\$, 'x')" } @{ $keys{ $types[$i] } });
}
my $not_done = join ' UNION ALL ', map { "SELECT k::text, '$types[$_]' FROM k$_ WHERE v IS DISTINCT FROM 'x'" } 0 .. $#types;
ok(llm_wait_for(sub { one($not_done) eq '' }, 60), 'rows with keys of all types are done') or diag(one("$not_done; SELECT name, reason FROM llm.enrichments WHERE reason IS NOT NULL"));
one('SELECT llm_enrich_drop(name) FROM llm.enrichments');

# As long as an index takes them.
one(q{CREATE TABLE long (k text PRIMARY KEY, body text, v int); SELECT llm_enrich_create('long', 'long', 'v', prompt => '{body}', options => '{"max_attempts": 1}');
	INSERT INTO long SELECT i || repeat('a', 150000), i FROM generate_series(1, 10) i;
	INSERT INTO long SELECT left(string_agg(md5(i || 'x'), ''), 2690), 'no number' FROM generate_series(1, 90) i});
ok(llm_wait_for(sub { one('SELECT pending = 0 AND failed = 1 AND (SELECT count(v) FROM long) = 10 FROM llm.enrichments') eq 't' }, 30), 'a row with the longest key fails by itself') or diag(one('TABLE llm.enrichments'));
one('SELECT llm_enrich_drop(name) FROM llm.enrichments');

# That are none any more.
one(q{CREATE TABLE turned (k text PRIMARY KEY, body text, v text); SELECT llm_enrich_create('turned', 'turned', 'v', prompt => '{body}', backfill => false), llm_enrich_pause('turned');
	INSERT INTO turned VALUES ('a1', 'one'), ('2', 'two'); ALTER TABLE turned ALTER k TYPE int USING replace(k, 'a', '')::int; SELECT llm_enrich_resume('turned')});
ok(llm_wait_for(sub { one(q{SELECT pending = 0 AND state = 'active' FROM llm.enrichments}) eq 't' }), 'keys that cannot be read stop no others');
is(one('SELECT k, v FROM turned ORDER BY k'), "1|\n2|two", 'these are done');

# ---- tables above the enriched one ----

one(q{CREATE TABLE whole (k int PRIMARY KEY, body text, v text) PARTITION BY RANGE (k); CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (10);
	CREATE TABLE single (k int PRIMARY KEY, body text, v text); SELECT llm_enrich_create('single', 'single', 'v', prompt => '{body}')});
like(llm_error($node, q{SELECT llm_enrich_create('part', 'part', 'v', prompt => '{body}')}), qr/0A000: the table is a partition/, 'a partition is refused');
one('ALTER TABLE whole ATTACH PARTITION single FOR VALUES FROM (10) TO (20)');
is(one(q{SELECT state FROM llm.enrichments WHERE name = 'single'}), 'paused', 'what becomes one is paused');
like(llm_error($node, q{SELECT llm_enrich_resume('single')}), qr/0A000/, 'and stays so');
one(q{ALTER TABLE whole DETACH PARTITION single; SELECT llm_enrich_resume('single')});

# Two at the same time do not make a circle that each of them alone is not.
one(q{CREATE TABLE circle (k int PRIMARY KEY, a text, b text)});
$s = llm_session($node, q{BEGIN; SELECT llm_enrich_create('ab', 'circle', 'b', prompt => '{a}'); SET application_name = 'holds'; SELECT pg_sleep(1); COMMIT});
llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holds'}) eq '1' }) or die;
like(llm_error($node, q{SELECT llm_enrich_create('ba', 'circle', 'a', prompt => '{b}')}), qr/22023.*follows from its own values/s, 'a circle of two that are created at once is refused');
llm_session_end($s);
one('SELECT llm_enrich_drop(name) FROM llm.enrichments');
llm_is_well($node, 'hostile owners');

done_testing();
