# A model file that becomes shorter while it is read, or after: the engine lives on, whoever asked is told, and
# the file is good again when it is whole.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('cut', start => 0);
my $dir = $node->basedir . '/models';
my $good = slurp_file("$ENV{LLM_TEST_DIR}/golden/models/llama256-q8_0/model.gguf");
mkdir $dir or die;
# what follows the model is a hole, and counts as memory
$node->append_conf('postgresql.conf', <<"CONF");
llm_infer.model_dir = '$dir'
llm_infer.devices = 'echo, cpu'
llm_infer.threads = 2
llm_infer.memory_limit = '100GB'
CONF
$node->start;
llm_extension($node);

# The file with a hole behind it, which takes seconds to read.
sub write_file
{
	my ($hole) = @_;
	unlink "$dir/model.gguf";
	append_to_file("$dir/model.gguf", $good);
	truncate "$dir/model.gguf", length($good) + $hole or die;
	return;
}

my $ask = q{SELECT llm_generate('a b', 'big', max_tokens => 8, temperature => 0, options => '{"raw": true}')};
$node->safe_psql('postgres', q{SELECT llm_model_register('big', 'model.gguf')});
my $engine = llm_engine_pid($node);

foreach my $sql ($ask, q{SELECT llm_model_load('big')},
	q{SELECT count(llm_generate('row ' || i, 'big', max_tokens => 1)) FROM generate_series(1, 20) i})
{
	write_file(16 << 30);
	my $s = llm_session($node, $sql);
	ok(llm_wait_for(sub { $node->safe_psql('postgres', q{SELECT state FROM llm.models WHERE name = 'big'}) eq 'loading' }),
		'the file is being read');
	truncate "$dir/model.gguf", length($good) - 1000 or die;
	my ($out, $err) = llm_session_end($s);
	is($out, '', 'no row comes of a file that is cut short');
	like($err, qr/ERROR:  55000: model file "model.gguf" was cut short while it was read/, 'and the error tells why');
	is(llm_engine_pid($node), $engine, 'the engine lives on');
	llm_is_well($node, 'a file that is cut short');
}

write_file(0);
my $text = $node->safe_psql('postgres', $ask);
isnt($text, '', 'the file is whole again, and answers');
# what was loaded does not need the file, and that it has changed is noticed
truncate "$dir/model.gguf", 4096 or die;
my ($err, $other) = ('', '');
ok(llm_wait_for(sub {
	my ($rc, $out, $errors) = $node->psql('postgres', $ask, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	$other = $out if $rc == 0 && $out ne $text;
	$err = $errors;
	return $rc != 0;
}), 'a file that is cut short later answers as before until that is noticed');
is($other, '', 'and never otherwise');
like($err, qr/ERROR:  55000: .*model\.gguf/s, 'and then the error is about the file');
write_file(0);
is($node->safe_psql('postgres', $ask), $text, 'until it is whole again');
is(llm_engine_pid($node), $engine, 'all that with one engine');
$node->stop;
done_testing();
