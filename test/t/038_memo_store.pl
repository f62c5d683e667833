# The memo's store: answers outlive statements that fail, are cancelled or rolled back, the server's crash, a full ring, locked tables; the
# limit, removal of the least recently used, forgetting, several databases, dumps, and a standby that keeps in memory only.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('memo', allows_streaming => 1, fault => 'slow_step=1', conf => <<'CONF');
llm_infer.memo = on
llm_infer.memo_memory = 1MB
llm_infer.memo_size = 4MB
llm_infer.default_model = echo
llm_infer.max_tokens = 1000
llm_infer.temperature = 0
CONF

sub one { return scalar $node->safe_psql($_[1] // 'postgres', $_[0]); }
sub memo { return one("SELECT $_[0] FROM llm.stat_memo", $_[1]); }

# What the engine is asked while the code runs.
sub asked
{
	my ($code, $on) = @_;
	my $before = llm_requests($on // $node);
	$code->();
	return llm_requests($on // $node) - $before;
}

sub written { return llm_wait_for(sub { memo('pending', $_[0]) eq '0' }); }

# The next launcher begins with what the last one may have put off.
sub no_launcher { return llm_wait_for(sub { one(q{SELECT count(*) FROM llm.job_workers}) eq '0' }); }

sub rows { my ($n, $what) = @_; return "SELECT count(llm_generate('$what ' || i)) FROM generate_series(1, $n) i"; }

# ---- whatever becomes of the statement ----

{
	$node->safe_psql('postgres', q{CREATE TABLE docs AS SELECT i, 'row ' || i AS body FROM generate_series(1, 1000) i;
		UPDATE docs SET body = '@error=internal x' WHERE i = 901; CREATE TABLE done (i int, text text)});
	my $insert = 'INSERT INTO done SELECT i, llm_generate(body) FROM (SELECT * FROM docs ORDER BY i) d';
	like(llm_error($node, $insert), qr/ERROR: /, 'a statement fails at row 901 of 1000');
	one(q{UPDATE docs SET body = 'row 901' WHERE i = 901});
	my $n = asked(sub { one($insert) });
	cmp_ok($n, '>=', 1, 'again, it asks for the row that failed');
	cmp_ok($n, '<=', 100, "and for none of the 900 before it: $n");
	is(one(q{SELECT count(*) FILTER (WHERE text = 'row ' || i), count(*) FROM done}), '1000|1000', 'and has all answers');

	is(asked(sub { $node->psql('postgres', 'BEGIN; ' . rows(50, 'undone') . '; ROLLBACK') }), 50, 'a transaction that is rolled back asks');
	is(asked(sub { one(rows(50, 'undone')) }), 0, 'again, it does not');

	my $kept = memo('kept');
	my $slow = 'SELECT llm_generate(\'@slow=3 slow \' || i) FROM generate_series(1, 600) i';
	my $s = llm_session($node, $slow);
	ok(llm_wait_for(sub { memo('kept') > $kept + 100 }), 'answers are kept while a statement runs');
	one('SELECT pg_cancel_backend(' . llm_backend($node, $s) . ')');
	like((llm_session_end($s))[1], qr/57014: /, 'it is cancelled');
	$kept = memo('kept') - $kept;
	is(asked(sub { one($slow) }), 600 - $kept, "again, it asks for the rest: 600 - $kept");
}

# ---- a crash ----

{
	ok(written(), 'all is written');
	is(memo('lost'), 0, 'nothing was lost');
	is(memo('entries = (SELECT count(*) FROM llm.memo_entries) AND bytes = (SELECT sum(bytes) FROM llm.memo)'), 't', 'the sizes are right');
	my $s = llm_session($node, q{SELECT llm_generate('@slow=50 @tokens=200 x', max_tokens => 200)});
	kill 'KILL', llm_active($node);
	llm_session_end($s);
	ok(llm_wait_for(sub { one('SELECT 1') }), 'SIGKILL of a backend: the server is back');
	my $n;
	ok(llm_wait_for(sub { llm_engine_pid($node) }), 'and the engine');
	is(asked(sub { $n = one('SELECT count(*) FROM docs WHERE llm_generate(body) = body') }), 0, 'answers from before are there');
	is("$n|" . memo('hits, misses'), '1000|1000|0', 'of every row, from the table');
	llm_is_well($node, 'SIGKILL of a backend', resets => 1);
}

# ---- locks and a full ring: nobody waits ----

{
	my $other = 'other';
	one("CREATE DATABASE $other");
	llm_extension($node, $other);
	ok(written(), 'written');
	my $s = llm_session($node, 'BEGIN; LOCK TABLE llm.memo_entries; SELECT pg_sleep(60)');
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM pg_locks WHERE relation = 'llm.memo_entries'::regclass AND mode = 'AccessExclusiveLock' AND granted}) }),
		'the table is locked');
	is(asked(sub { one(rows(6000, 'many')) }), 6000, 'statements go on beside it');
	cmp_ok(memo('lost'), '>', 0, 'what the ring has no room for is lost: ' . memo('lost'));
	cmp_ok(memo('pending'), '>', 1000, 'half of it waits: ' . memo('pending'));
	one(rows(300, 'elsewhere'), $other);
	ok(llm_wait_for(sub { memo('entries', $other) eq '300' && memo('lost', $other) eq '0' }), 'another database has the other half, and writes');
	is(asked(sub { one(rows(300, 'elsewhere'), $other) }), 0, 'and finds it');
	one('SELECT pg_cancel_backend(' . llm_backend($node, $s) . ')');
	llm_session_end($s);
	ok(written(), 'when the lock is gone all is written');
	is(memo('entries = (SELECT count(*) FROM llm.memo_entries)'), 't', 'the sizes are right');

	# A transaction that has removed rows, and does not end, holds up no writer.
	$s = llm_session($node, q{BEGIN; SELECT llm_memo_forget(); SELECT pg_sleep(60)});
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) }), 'entries are being removed');
	is(asked(sub { one(rows(50, 'undone')) }), 0, 'what is not committed is still found');
	one(rows(50, 'new') . '; ' . rows(50, 'undone'));
	ok(written(), 'new ones are written');
	one('SELECT pg_terminate_backend(' . llm_backend($node, $s) . ')');
	llm_session_end($s);
	is(memo('entries = (SELECT count(*) FROM llm.memo_entries)'), 't', 'the sizes are right');
}

# ---- whose, and which ----

{
	$node->safe_psql('postgres', q{CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO ann, bob;
		SELECT llm_model_register('second', 'echo:', '{"context_length": 512}'); GRANT USAGE ON FOREIGN SERVER second TO ann});
	one(q{SELECT llm_memo_forget()});
	is(one('SELECT count(*) FROM llm.memo'), '0', 'all is forgotten');
	my @n = map { (split /\n/, one(rows(300, "once $_") . '; SELECT llm_memo_forget()'))[1] } 1 .. 20;
	is("@n", join(' ', (300) x 20), 'each is counted once, wherever it is while it is written');
	my $as = sub { my ($role, $sql) = @_; return one("SET ROLE $role; $sql"); };
	$as->('ann', rows(10, 'hers') . q{; SELECT llm_generate('her second', 'second')});
	$as->('bob', rows(5, 'his'));
	ok(written(), 'written');
	is($as->('ann', q{SELECT count(*), min(role::text), max(model), min(finish_reason), sum(bytes) > 0 FROM llm.memo}), '11|ann|second|stop|t', 'one sees one\'s own');
	is($as->('ann', 'SELECT hits IS NULL AND entries IS NULL FROM llm.stat_memo'), 't', 'and no counters');
	like(llm_error($node, 'SET ROLE bob; TABLE llm.memo_entries'), qr/42501/, 'nor the table');
	is($as->('bob', 'SELECT llm_memo_forget()'), '5', 'bob forgets his');
	is($as->('ann', q{SELECT llm_memo_forget('second')}), '1', 'ann those of a model');
	like(llm_error($node, q{SELECT llm_memo_forget('none')}), qr/42704: model "none" does not exist/, 'which there is');
	is(asked(sub { $as->('ann', rows(10, 'hers')) }), 0, 'the others stay');
	is(asked(sub { $as->('bob', rows(5, 'his')) }), 5, 'what is forgotten is asked again, also from the ring');
	$as->('ann', q{SELECT llm_generate('her second', 'second')});
	ok(written(), 'written');
	ok(no_launcher(), 'the launcher ends when there is nothing to write');
	$node->safe_psql('postgres', 'DROP SERVER second CASCADE; DROP OWNED BY bob; DROP ROLE bob');
	one(rows(1, 'wake'));
	ok(llm_wait_for(sub { one('SELECT count(*) FROM llm.memo_entries') eq '11' }), 'entries of a model and a role that are gone are removed');
	ok(written() && llm_wait_for(sub { memo('entries') eq '11' }), 'and not counted');
	my ($dump) = run_command([ 'pg_dump', '-d', $node->connstr('postgres') ]);
	ok($dump =~ /^CREATE EXTENSION.* llm_infer /m && $dump !~ /memo/, 'a dump has no entries');
}

# ---- the limit ----

{
	$node->append_conf('postgresql.conf', 'llm_infer.memo_size = 1MB');
	my $long = q{SELECT count(llm_generate(repeat('x', 800) || i)) FROM generate_series(%d, %d) i};
	one(sprintf $long, 1, 200);
	ok(written(), 'written');
	one(q{UPDATE llm.memo_entries SET used = used - INTERVAL '2 hours'});
	$node->restart;
	llm_engine_pid($node);
	is(asked(sub { one(sprintf $long, 101, 200) }), 0, 'some are used');
	ok(written() && llm_wait_for(sub { one(q{SELECT count(*) FROM llm.memo_entries WHERE used > now() - INTERVAL '1 hour'}) eq '100' }), 'which is written down');
	for (my $i = 201; $i < 1140; $i += 235)
	{
		one(sprintf $long, $i, $i + 234);
		ok(written(), 'written');
	}
	ok(llm_wait_for(sub { memo('bytes <= size_limit') eq 't' }), 'the limit holds');
	cmp_ok(memo('evicted'), '>=', 90, 'by removing some: ' . memo('evicted'));
	is(memo('entries = (SELECT count(*) FROM llm.memo_entries) AND bytes = (SELECT sum(bytes) FROM llm.memo)'), 't', 'the sizes are right');
	$node->restart;
	llm_engine_pid($node);
	is(asked(sub { one(sprintf $long, 101, 200) }), 0, 'those that were used are there');
	is(asked(sub { one(sprintf $long, 1, 20) }), 20, 'those that were not are gone');
	one('TRUNCATE llm.memo_entries, llm.memo_sizes');
	one(rows(3, 'after'));
	ok(written() && memo('entries') eq '3', 'after TRUNCATE it counts again');
}

# ---- a standby ----

{
	ok(written(), 'written');
	$node->backup('b');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'b', has_streaming => 1);
	$standby->start;
	one(rows(20, 'primary'));
	ok(written(), 'written');
	$node->wait_for_catchup($standby);
	llm_engine_pid($standby);
	my $there = sub { return $standby->safe_psql('postgres', $_[0]); };
	is(asked(sub { $there->(rows(20, 'primary')) }, $standby), 0, 'a standby finds what the primary has written');
	is(asked(sub { $there->(rows(20, 'standby')) }, $standby), 20, 'asks for the rest');
	is(asked(sub { $there->(rows(20, 'standby')) }, $standby), 0, 'once');
	is($there->('SELECT kept, pending, lost FROM llm.stat_memo'), '20|0|0', 'and writes nothing');
	like(llm_error($standby, 'SELECT llm_memo_forget()'), qr/25006: /, 'nor removes');
	$there->(rows(8000, 'ring'));
	is($there->('SELECT lost FROM llm.stat_memo'), '0', 'the oldest make room');
	$standby->promote;
	$there->(rows(20, 'promoted'));
	ok(llm_wait_for(sub { $there->(q{SELECT count(*) >= 20 AND (SELECT pending FROM llm.stat_memo) = 0 FROM llm.memo_entries WHERE created > now() - INTERVAL '1 minute'}) eq 't' }),
		'after a promotion it writes');
	llm_is_well($standby, 'a promotion');
	$standby->stop;
}

# ---- the extension ----

{
	$node->safe_psql('postgres', rows(100, 'last') . '; DROP EXTENSION llm_infer CASCADE');
	llm_extension($node);
	is(one(rows(100, 'last') . '; ' . rows(100, 'last')), "100\n100", 'DROP and CREATE EXTENSION beside the launcher');
	ok(written(), 'written, though the last wake may have met the launcher which went with the extension');
	$node->safe_psql('postgres', 'DROP EXTENSION llm_infer CASCADE');
	$node->safe_psql('postgres', q{BEGIN; CREATE EXTENSION llm_infer; SELECT llm_model_register('echo', 'echo:'); } . rows(10, 'uncommitted') . '; SELECT pg_sleep(1); COMMIT');
	ok(written(), 'so are answers for which a launcher looked before the extension was committed');

	# The launcher has more to do than the memo.
	one('ALTER TABLE llm.memo_entries ADD CONSTRAINT broken CHECK (prompt_tokens < 0) NOT VALID');
	my $log = -s $node->logfile;
	one(rows(1, "broken $_")) for 1 .. 10;
	is(one('SELECT llm_job_submit(\'x\')') && one('SELECT llm_job_wait(max(id), \'10 s\') FROM llm.jobs'), 'done', 'a table that takes nothing holds up no job');
	is(scalar(() = llm_log_since($node, $log) =~ /violates check constraint "broken"/g), 1, 'and is tried again later');
	sleep 6; # a launcher that has nothing to do ends sooner
	is(one(q{SELECT count(pid) FROM llm.job_workers WHERE owner IS NULL}), '1', 'by a launcher that stays for it');
	llm_is_well($node, 'all of this', resets => 1);
}

done_testing();
