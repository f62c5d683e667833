# What users ask is nobody else's: not in the server's log, even with everything logged that the server
# logs by itself, nor in views and messages that others see - however a call ends, crashes of the engine included.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('private', fault => 'slow_step=2', conf => <<'CONF');
log_min_messages = debug2
log_error_verbosity = verbose
log_lock_waits = on
llm_infer.default_model = 'echo'
CONF
# The word to look for is in rows, so that no statement has it.
my $word = 'sesame';
$node->safe_psql('postgres', qq{
	CREATE ROLE asker LOGIN; CREATE ROLE other LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	GRANT USAGE ON FOREIGN SERVER echo TO asker, other;
	CREATE TABLE said AS SELECT 'se' || 'same ' || i AS p FROM generate_series(1, 5) i;
	ALTER TABLE said OWNER TO asker;
	SELECT llm_model_register('small', 'echo:', '{"context_length": 40}');
	SELECT llm_model_register('strict', 'echo:', '{"chat_template": "{{ raise_exception(\\"no \\" ~ messages|length) }}"}');
	GRANT USAGE ON FOREIGN SERVER small, strict TO asker});
my $begin = -s $node->logfile;

my @statements = (
	q{SELECT llm_generate(p) FROM said}, q{SELECT llm_generate('@error=odd ' || p) FROM said},
	q{SELECT llm_generate('@error=odd ' || p, on_error => 'null') FROM said}, q{SELECT llm_generate('@nan ' || p) FROM said},
	q{SELECT llm_generate('@slow=20 ' || p, options => '{"timeout": 30}') FROM said}, q{SELECT llm_generate(repeat(p, 20), 'small') FROM said},
	q{SELECT llm_generate(p, 'strict') FROM said}, q{SELECT llm_generate(p, 'echo', stop => array_fill(p, ARRAY[17])) FROM said},
	q{SELECT llm_generate(p, 'none') FROM said}, q{SELECT llm_chat(jsonb_build_array(jsonb_build_object('role', 'user', 'content', p))) FROM said},
	q{SELECT llm_chat(jsonb_build_array(jsonb_build_object('role', 'user', 'text', p))) FROM said},
	q{SELECT llm_generate('x', options => jsonb_build_object('top_p', p)) FROM said}, q{SELECT llm_pin_prefix(p) FROM said},
	q{SELECT llm_unpin_prefix('not ' || p) FROM said}, q{SELECT llm_generate_stream('@error=late ' || p) FROM said},
	q{SELECT (llm_generate_result(p, options => '{"prompt_logprobs": true, "top_logprobs": 3}')).text FROM said},
	q{SELECT llm_generate('@crash ' || p) FROM said LIMIT 1},
	q{SET statement_timeout = '50ms'; SELECT llm_generate('@slow=50 ' || p) FROM said; RESET statement_timeout},
	q{DO $$ BEGIN PERFORM llm_generate('@error=within ' || p) FROM said; END $$},
	q{SELECT x.t FROM said, LATERAL (SELECT llm_generate('@error=there ' || p) AS t) x},
	q{PREPARE a(text) AS SELECT llm_generate($1 || p) FROM said; EXECUTE a('@error=prepared ')},
	q{UPDATE said SET p = llm_generate('@error=changed ' || p)});
my $s = llm_session($node, join(";\n", @statements), user => 'asker');
my ($out, $err) = llm_session_end($s, 120);
like($out, qr/^$word 1\n/, 'the word is asked and answered');
my @errors = $err =~ /ERROR:  (\w{5}):/g;
cmp_ok(scalar(@errors), '>', 15, 'statements fail in many ways: ' . join ' ', @errors);

my @lines = split /\n/, llm_log_since($node, $begin);
cmp_ok(scalar(grep { /ERROR: / } @lines), '>', 15, 'and the log tells so');
cmp_ok(scalar(grep { /engine process \d+ was terminated/ } @lines), '>', 0, 'and of engines that crashed');
my @told = grep { /$word/ } @lines;
is(scalar(@told), 0, 'but not what was asked') or diag join "\n", @told;

# ---- while a request runs ----

$node->safe_psql('postgres', 'SELECT llm_engine_restart()'); # the next start is not put off
$s = llm_session($node, q{SELECT llm_generate('@slow=20 @tokens=2000 ' || p, max_tokens => 2000) FROM said}, user => 'asker');
llm_active($node);
foreach my $role (qw(other watcher))
{
	my $seen = $node->safe_psql('postgres', join '; ', map { "SET ROLE $role; SELECT v::text FROM $_ v" }
		qw(llm.stat_engine llm.stat_activity llm.stat_users llm.stat_models llm.prefix_cache llm.models pg_stat_activity));
	unlike($seen, qr/$word/, "$role does not see it in views");
}
like($node->safe_psql('postgres', 'SET ROLE watcher; SELECT usename FROM llm.stat_activity'), qr/asker/, 'though a monitor sees who asks');
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM llm.stat_activity WHERE usename = 'asker'});
llm_session_end($s);
{
	my @of_other = map { llm_error($node, "SET ROLE other; $_") } q{SELECT llm_generate('@crash x')}, q{SELECT llm_generate('@error=mine x')};
	unlike("@of_other", qr/$word/, q{nor in another one's errors});
}
opendir my $dir, $node->data_dir or die $!;
my @files = grep { /llm/ } readdir $dir;
is("@files", 'pgsql_tmp.llm_infer.sock', 'nothing is written beside the socket');
llm_is_well($node, 'what nobody else saw', model => 'echo');

$node->stop;
done_testing();
