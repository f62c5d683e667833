# Model files that cannot be used are refused by name, and the engine lives on; files that are replaced
# are noticed; several models beside each other or in turns, and every row is answered by its own.
use strict;
use warnings;
use LlmCluster;
use File::Copy qw(copy);
use PostgreSQL::Test::Utils;
use POSIX qw(mkfifo);
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('model', start => 0);
my $dir = $node->basedir . '/models';
my $golden = "$ENV{LLM_TEST_DIR}/golden/models";
mkdir $dir or die;
mkdir "$dir/deep" or die;
$node->append_conf('postgresql.conf', <<"CONF");
llm_infer.model_dir = '$dir'
llm_infer.devices = 'echo, cpu'
llm_infer.threads = 1
CONF
$node->start;
llm_extension($node);

sub write_file
{
	my ($name, $bytes) = @_;
	unlink "$dir/$name";
	PostgreSQL::Test::Utils::append_to_file("$dir/$name", $bytes);
	return;
}

my $good = slurp_file("$golden/llama256-q8_0/model.gguf");
write_file('good.gguf', $good);
write_file('deep/good.gguf', $good);
write_file('cut_head.gguf', substr($good, 0, 20));
write_file('cut_keys.gguf', substr($good, 0, 2000));
write_file('cut_data.gguf', substr($good, 0, length($good) - 1));
write_file('garbage.gguf', join '', map { chr(($_ * 7919 + 13) % 251) } 1 .. 100_000);
write_file('empty.gguf', '');
write_file('text.gguf', "GGUF is what this file says it is\n" x 50);
write_file('unreadable.gguf', $good);
chmod 0, "$dir/unreadable.gguf" or die;
mkdir "$dir/folder.gguf" or die;
symlink 'good.gguf', "$dir/link.gguf" or die;
symlink '/etc/passwd', "$dir/link_out.gguf" or die;
symlink '/', "$dir/link_root" or die;
mkfifo("$dir/pipe.gguf", 0600) or die;

# ---- files that cannot be used ----

my $engine = llm_engine_pid($node);
foreach my $case (
	[ 'missing.gguf', 'No such file or directory' ],
	[ 'good.gguf/below.gguf', 'Not a directory' ],
	[ 'cut_head.gguf' ],
	[ 'cut_keys.gguf' ],
	[ 'cut_data.gguf' ],
	[ 'garbage.gguf' ],
	[ 'empty.gguf' ],
	[ 'text.gguf' ],
	[ 'unreadable.gguf', 'Permission denied' ],
	[ 'folder.gguf', 'not a regular file' ],
	[ 'pipe.gguf', 'not a regular file' ],
	[ 'link.gguf', 'symbolic links are not followed' ],
	[ 'link_out.gguf', 'symbolic links are not followed' ],
	[ 'link_root/etc/passwd', 'symbolic links are not followed' ])
{
	my ($path, $reason) = @$case;
	$reason //= '';
	$node->safe_psql('postgres', "SELECT llm_model_register('bad', '$path')");
	my $begin = time();
	my $err = llm_error($node, q{SELECT llm_generate('x', 'bad')});
	my $took = time() - $begin;
	like($err, qr/^\S+ ERROR:  55000: /, "$path: 55000");
	like($err, qr/\Q$path\E/, "$path: the error names the file");
	like($err, qr/$reason/, "$path: and says why");
	cmp_ok($took, '<', 8, "$path: before any timeout");
	like(llm_error($node, q{SELECT llm_model_load('bad')}), qr/ERROR:  55000: .*\Q$path\E/s, "$path: llm_model_load");
	is(llm_engine_pid($node), $engine, "$path: the engine lives on");
	$node->safe_psql('postgres', q{SELECT llm_model_drop('bad')});
}
llm_is_well($node, 'files that cannot be used');

foreach my $path ('../models/good.gguf', 'deep/../../models/good.gguf', '..', "$dir/good.gguf", '/etc/passwd', '')
{
	like(llm_error($node, "SELECT llm_model_register('bad', '$path')"), qr/ERROR:  22023: .*"path"/,
		"path '$path' is refused when it is registered");
}
like(llm_error($node, q{SELECT llm_generate('x', 'nowhere')}),
	qr/ERROR:  42704: model "nowhere" does not exist\nHINT:  /, 'a model that does not exist');

# ---- good ones, and files that change ----

my $greedy = q{SELECT llm_generate('a b', 'tiny', max_tokens => 8, temperature => 0, options => '{"raw": true}')};
$node->safe_psql('postgres', q{SELECT llm_model_register('tiny', 'good.gguf');
	SELECT llm_model_register('deep', 'deep/good.gguf')});
my $tiny = $node->safe_psql('postgres', $greedy);
is($node->safe_psql('postgres', $greedy =~ s/tiny/deep/r), $tiny, 'the same file in a folder: the same answer');
is($node->safe_psql('postgres', q{SELECT name, architecture, state FROM llm.models ORDER BY name}),
	"deep|llama|resident\necho|echo|resident\ntiny|llama|resident", 'llm.models shows that all are resident');
is($node->safe_psql('postgres', q{SELECT name, path, length(digest), bytes > 0, kv_pages > 0, memory_bytes > bytes
	FROM llm.stat_models ORDER BY name}),
	"deep|deep/good.gguf|32|t|t|t\necho|echo:||f|t|t\ntiny|good.gguf|32|t|t|t", 'and llm.stat_models what they take');
like(slurp_file($node->logfile), qr/KV cache of model "good.gguf": \d+ pages of 64 tokens, \d+ bytes each: two whole contexts/,
	'the log tells the size of the KV cache and its rule');

$node->safe_psql('postgres', q{SELECT llm_model_register('late', 'late.gguf')});
like(llm_error($node, q{SELECT llm_generate('x', 'late', max_tokens => 1)}), qr/ERROR:  55000/, 'a file that is not there yet');
write_file('late.gguf', $good);
is($node->safe_psql('postgres', $greedy =~ s/tiny/late/r), $tiny, 'it works when the file has come');
unlink "$dir/late.gguf";
my $err = '';
ok(llm_wait_for(sub { $err = llm_error($node, $greedy =~ s/tiny/late/r); $err ne '' }), 'that it has gone is noticed');
like($err, qr/ERROR:  55000: .*late\.gguf/, 'and the error names it');
is(llm_engine_pid($node), $engine, 'all that with one engine');
llm_is_well($node, 'files that change');

# ---- a file that is replaced while rows are answered ----

{
	my $two = slurp_file("$golden/llama256-q4_0/model.gguf");
	my $ask = q{SELECT llm_generate('a b ' || i % 3, 'moving', max_tokens => 8, temperature => 0, options => '{"raw": true}') FROM};
	$node->safe_psql('postgres', q{SELECT llm_model_register('moving', 'moving.gguf')});
	write_file('moving.gguf', $two);
	my @after = split /\n/, $node->safe_psql('postgres', "$ask generate_series(0, 2) i");
	$node->safe_psql('postgres', q{SELECT llm_model_unload('moving')});
	write_file('moving.gguf', $good);
	my @before = split /\n/, $node->safe_psql('postgres', "$ask generate_series(0, 2) i");
	isnt("@before", "@after", 'two models that answer otherwise');
	my $offset = -s $node->logfile;
	# one row at a time, each asked for, until the answers have been the second model's for a while
	my $s = llm_session($node, q{SET llm_infer.enable_batch = off; SET llm_infer.enable_distinct = off; } . "$ask generate_series(0, 2999) i");
	llm_active($node);
	write_file('moving.new', $two);
	rename "$dir/moving.new", "$dir/moving.gguf" or die;
	my ($out, $errors) = llm_session_end($s);
	my @rows = split /\n/, $out;
	is(scalar(@rows), 3000, 'every row is answered');
	is($errors, '', 'without an error');
	my ($which, @mixed) = (\@before);
	foreach my $i (0 .. $#rows)
	{
		$which = \@after if $rows[$i] ne $which->[ $i % 3 ];
		push @mixed, $i if $rows[$i] ne $which->[ $i % 3 ];
	}
	is("@mixed", '', "each by the one model or, from some row on, by the other");
	ok(llm_wait_for(sub { $node->safe_psql('postgres', "$ask generate_series(0, 2) i") eq join "\n", @after }),
		'in the end by the new one');
	like(llm_log_since($node, $offset),
		qr/model file "moving.gguf": digest [0-9a-f]{32} takes the place of [0-9a-f]{32}/, 'the log names both digests');
	is(llm_engine_pid($node), $engine, 'all that with one engine');
}

# ---- models beside each other, then in turns ----

$node->safe_psql('postgres', q{
	SELECT llm_model_register('a', 'echo:', '{"context_length": 2048}');
	SELECT llm_model_register('b', 'echo:', '{"context_length": 1024}');
	SELECT llm_model_register('broken', 'garbage.gguf')});
# the memory of 'a' is 1 MiB, that of 'b' half of it; 'tiny' needs 9 MB by itself
foreach my $limit (0, '9.6MB')
{
	$node->append_conf('postgresql.conf', "llm_infer.memory_limit = '$limit'");
	$node->reload;
	my @s = map { my $m = $_; map { llm_session($node,
		"SELECT llm_generate('row ' || i, '$m') FROM generate_series(1, 200) i") } 1 .. 2 } qw(a b);
	my $t = llm_session($node, q{SET llm_infer.enable_batch = off;
		SELECT llm_generate('a b', 'tiny', max_tokens => 8, temperature => 0, options => '{"raw": true}')
		FROM generate_series(1, 10)});
	my $broken = llm_session($node, q{SELECT llm_generate('x', 'broken')} . q{; SELECT llm_generate('x', 'broken')} x 9);
	foreach my $s (@s)
	{
		my ($out, $err) = llm_session_end($s);
		is("$out$err", llm_answers(200), 'two models, two sessions each: every row is answered by its own');
	}
	my ($out, $err) = llm_session_end($t);
	is("$out$err", join("\n", ($tiny) x 10), "memory_limit = $limit: and a third model between them: the same text as alone");
	($out, $err) = llm_session_end($broken);
	is(scalar(() = $err =~ /ERROR:  55000: /g), 10, 'and one that cannot be loaded: refused every time');
	is($out, '', 'and nothing else');
	llm_is_well($node, "models beside each other, memory_limit = $limit");
}
is($node->safe_psql('postgres', 'SELECT memory_bytes <= memory_limit, memory_limit FROM llm.stat_engine'),
	't|' . 9830 * 1024, 'the limit holds');
$node->append_conf('postgresql.conf', 'llm_infer.memory_limit = 4MB');
$node->reload;
llm_wait_for(sub { $node->safe_psql('postgres', 'SELECT memory_limit FROM llm.stat_engine') eq 4 << 20 });
like(llm_error($node, $greedy), qr/ERROR:  55000: the model needs \d+ bytes of memory, but llm_infer.memory_limit is 4194304\n.*weights.*KV cache/s,
	'a model larger than the limit is refused with the numbers');

is($node->safe_psql('postgres', q{SELECT string_agg(llm_generate('row ' || i, CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END),
	',' ORDER BY i) FROM generate_series(1, 12) i}), join(',', map { "row $_" } 1 .. 12), 'row by row in one session');
is(llm_engine_pid($node), $engine, 'all that with one engine');
llm_is_well($node, 'models in turns row by row');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
