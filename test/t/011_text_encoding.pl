# Databases of other encodings beside a UTF8 one: texts convert both ways, what has no equivalent becomes
# '?', what cannot be understood is refused, and their names harm nobody's views.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('encoding', fault => 'slow_step=4');
sub create
{
	my ($name, $encoding) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE template0 ENCODING '$encoding'
		LC_COLLATE 'C' LC_CTYPE 'C'");
	llm_extension($node, $name);
	return;
}
create('latin1', 'LATIN1');
create('latin9', 'LATIN9');
create('win1252', 'WIN1252');
create('euc', 'EUC_JP');
create('ascii', 'SQL_ASCII');

# chr(233) is e with an acute accent, chr(164) is the euro sign of LATIN9.
is($node->safe_psql('latin1', q{SELECT llm_generate('caf' || chr(233)) = 'caf' || chr(233)}), 't', 'LATIN1: there and back');
is($node->safe_psql('latin1', q{SELECT llm_tokenize(chr(233))}), '{195,169}', 'LATIN1: the engine sees UTF-8');
is($node->safe_psql('latin1', q{SELECT llm_detokenize(ARRAY[195, 169]) = chr(233)}), 't', 'LATIN1: and so back');
is($node->safe_psql('latin1', q{SELECT llm_detokenize(ARRAY[97, 226, 130, 172, 98, 240, 159, 153, 130, 99])}),
	'a?b?c', q{LATIN1: what it does not have becomes '?'});
is($node->safe_psql('latin9', q{SELECT llm_detokenize(ARRAY[226, 130, 172]) = chr(164), llm_tokenize(chr(164))}),
	't|{226,130,172}', 'LATIN9: has the euro sign');
is($node->safe_psql('latin1', q{SELECT count(*) FILTER (WHERE t = chr(i) || ' row ' || i) FROM (SELECT i,
	llm_generate(chr(i) || ' row ' || i) AS t FROM generate_series(161, 255) i) s}), '95', 'LATIN1: all of its letters');
like(llm_error($node, q{SELECT llm_generate('x' || chr(129))}, 'win1252'), qr/ERROR:  22P05: .*byte 2/,
	'WIN1252: a byte without a meaning');
is($node->safe_psql('euc', q{SELECT llm_tokenize(convert_from('\xa4a2', 'EUC_JP')),
	llm_detokenize(ARRAY[227, 129, 130]) = convert_from('\xa4a2', 'EUC_JP')}), '{227,129,130}|t', 'EUC_JP: two bytes');
like(llm_error($node, q{SELECT llm_generate('x' || chr(233), on_error => 'null', options => '{"stop": "y"}')}, 'latin1'),
	qr/^$/, 'LATIN1: options convert too');

foreach my $sql (q{SELECT llm_generate('x')}, q{SELECT llm_tokenize('x')},
	q{SELECT llm_generate('row ' || i) FROM generate_series(1, 3) i})
{
	like(llm_error($node, $sql, 'ascii'), qr/ERROR:  0A000: .*"SQL_ASCII"\nHINT:  .*UTF8/, "SQL_ASCII: $sql is refused");
}
is($node->safe_psql('ascii', q{SELECT llm_generate(NULL) IS NULL, (SELECT state FROM llm.stat_engine)}), 't|ready',
	'SQL_ASCII: views work');

# A name in one encoding is shown in a database of another.
$node->safe_psql('latin1', q{DO $$ BEGIN PERFORM llm_model_register('mod' || chr(232) || 'le', 'echo:'); END $$});
{
	my $s = llm_session($node, q{SELECT llm_generate('@tokens=3900 x', 'mod' || chr(232) || 'le', max_tokens => 4000)},
		dbname => 'latin1');
	my ($pid) = llm_active($node);
	is($node->safe_psql($_, 'SELECT datname, model FROM llm.stat_activity'), 'latin1|mod?le', "its model, seen from $_")
	  foreach qw(postgres euc);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	llm_session_end($s);
}
like(llm_error($node, q{SET client_encoding = 'UTF8'; DO $$ BEGIN PERFORM llm_generate('@error=' || chr(233) || ' x', 'echo'); END $$},
	'latin1'), qr/ERROR:  XX000: \xc3\xa9/, 'LATIN1: an error text comes back as it went');
llm_is_well($node, 'databases of many encodings');

# ---- locales ----

# Turkish, where i and I are letters of their own: keys, names and numbers are ours. A collation may call texts
# equal that are not: they are asked about apart.
$node->safe_psql('postgres', q{CREATE DATABASE turkish TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LOCALE 'C.UTF-8'});
llm_extension($node, 'turkish');
is($node->safe_psql('turkish', q{SET lc_numeric = 'C.UTF-8'; SET llm_infer.on_error = 'NULL'; SELECT llm_model_register('TITIZ', 'echo:');
	SELECT llm_generate('ISIK iyi', 'TITIZ', temperature => 0.5, options => '{"min_p": 0.25, "truncate": "right", "ignore_eos": false}')}) =~ s/^\n//r, 'ISIK iyi',
	'tr-TR: keys, keywords and numbers are the same');
like(llm_error($node, q{SELECT llm_generate('x', 'titiz')}, 'turkish'), qr/ERROR:  42704: /, 'tr-TR: names are compared byte by byte');
is($node->safe_psql('turkish', q{CREATE COLLATION careless (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false);
	CREATE TABLE cases (i int, b text COLLATE careless); INSERT INTO cases VALUES (1, 'Word'), (2, 'word'), (3, 'WORD');
	SELECT string_agg(llm_generate(b, 'TITIZ', temperature => 0), ' ' ORDER BY i) FROM cases;
	SELECT string_agg(x.g, ' ' ORDER BY i) FROM cases, LATERAL (SELECT llm_generate(b, 'TITIZ', temperature => 0) AS g) x;
	SELECT string_agg((SELECT llm_generate(c.b, 'TITIZ', temperature => 0)), ' ' ORDER BY i) FROM cases c;
	SELECT string_agg(x.g, ' ' ORDER BY c.i) FROM cases c JOIN LATERAL (SELECT llm_generate(b, 'TITIZ', temperature => 0) AS g FROM cases d WHERE d.b = c.b LIMIT 1) x ON true}),
	"Word word WORD\nWord word WORD\nWord word WORD\nWord Word Word", 'equal under a collation is not the same prompt');
llm_is_well($node, 'locales');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
