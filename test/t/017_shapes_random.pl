# Random queries with calls everywhere - below CASE, COALESCE, AND, OR, in joins, LATERAL, sets, partitions,
# aggregates, windows, sub-selects, WITH - give the same rows through LLM Batch nodes as row by row, and ask no more; so do those whose
# filters are pulled above joins. With the memo - empty, half full, of all queries before - they give these rows too, ask no
# more, and the second time nothing. And calls of a model with random options get from it what the model answers.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $n_queries = $ENV{LLM_TEST_FULL} ? 5000 : 400;
my $seed = $ENV{LLM_TEST_SEED} // 1;
srand($seed);
note "seed $seed";

sub one_of { return $_[ rand @_ ] }

# Each takes the columns that it may use, { t => [texts], n => [numbers] }, and how deep it may go.
sub text
{
	my ($c, $depth) = @_;
	my ($t, $b) = map { my $fn = $_; sub { $fn->($c, $depth - 1) } } \&text, \&truth;
	return one_of(@{ $c->{t} }) if $depth <= 0;
	return one_of(
		sub { one_of(@{ $c->{t} }) },
		sub { 'llm_generate(' . $t->() . ')' },
		sub { 'llm_generate(' . $t->() . ')' },
		sub { 'coalesce(' . $t->() . ', ' . $t->() . ')' },
		sub { 'CASE WHEN ' . $b->() . ' THEN ' . $t->() . ' WHEN ' . $b->() . ' THEN ' . $t->() . ' ELSE ' . $t->() . ' END' },
		sub { 'CASE ' . one_of(@{ $c->{n} }) . ' WHEN 1 THEN ' . $t->() . ' WHEN 2 THEN ' . $t->() . ' END' },
		sub { 'CASE ' . $t->() . q{ WHEN 'b1' THEN } . $t->() . q{ WHEN 'b2' THEN 'two' ELSE } . $t->() . ' END' },
		sub { '(' . $t->() . q{ || '.' || } . one_of(@{ $c->{n} }) . ')' },
		sub { 'nullif(' . $t->() . ', ' . $t->() . ')' },
		sub { 'greatest(' . $t->() . ', ' . $t->() . ')' })->();
}

sub truth
{
	my ($c, $depth) = @_;
	my ($t, $b) = map { my $fn = $_; sub { $fn->($c, $depth - 1) } } \&text, \&truth;
	my $plain = sub {
		one_of(one_of(@{ $c->{n} }) . ' > ' . int(rand 6), one_of(@{ $c->{t} }) . ' IS NULL', one_of(@{ $c->{n} }) . ' % 2 = 0');
	};
	return $plain->() if $depth <= 0;
	return one_of(
		$plain,
		sub { '(' . $t->() . ' < ' . one_of(qw('b3' 'b5' 'l1' 'g')) . ')' },
		sub { '(' . $t->() . ' < ' . one_of(qw('b3' 'b5' 'l1' 'g')) . ')' },
		sub { '(' . $b->() . ' AND ' . $b->() . ')' },
		sub { '(' . $b->() . ' OR ' . $b->() . ')' },
		sub { '(NOT ' . $b->() . ')' },
		sub { '((' . $b->() . ') IS NOT TRUE)' })->();
}

# A FROM clause, the columns to use, what orders its rows, and perhaps a condition that is worth pulling: '' when it is in
# FROM, which then has no other beside it.
sub source
{
	my $docs = { t => [ 'd.body', 'd.label' ], n => [ 'd.id', 'd.grp' ] };
	my $both = { t => [ 'd.body', 'g.name', 'd.label' ], n => [ 'd.id', 'g.grp' ] };
	my $inner = { t => [ 'body', 'label' ], n => [ 'id', 'grp' ] };
	my $call = '(llm_generate(' . text($docs, 1) . q{) > 'b3')};
	return @{ one_of(
		[ 'docs d', $docs, 'd.id' ],
		[ 'docs d JOIN groups g ON d.grp = g.grp AND ' . truth($both, 2), $both, 'd.id, g.grp' ],
		[ 'docs d JOIN groups g ON d.grp = g.grp AND g.grp = ' . int(rand 4) . one_of('', ' AND ' . truth($docs, 2)), $both, 'd.id, g.grp', $call ],
		[ 'docs d LEFT JOIN parts p ON p.id = d.id + 5 AND ' . truth($docs, 1) . ' JOIN groups g ON d.grp = g.grp AND g.grp < 2',
			{ t => [ 'd.body', 'g.name', 'p.body' ], n => [ 'd.id', 'g.grp' ] }, 'd.id, g.grp', $call ],
		[ "(SELECT e.*, g.name FROM docs e JOIN groups g USING (grp) WHERE llm_generate(e.body) < 'b5' AND g.grp = " . int(rand 4) . ') d',
			{ t => [ 'd.body', 'd.name' ], n => [ 'd.id', 'd.grp' ] }, 'd.id', '' ],
		[ 'docs d', $docs, 'd.id', "$call AND " . one_of('EXISTS (SELECT FROM parts x WHERE x.id = d.id AND x.id < 9)', 'id IN (SELECT id FROM few)', 'grp NOT IN (SELECT grp FROM groups LIMIT 3)') ],
		[ 'docs d ' . one_of(qw(LEFT RIGHT FULL)) . ' JOIN groups g ON d.grp = g.grp', $both, 'd.id, g.grp' ],
		[ 'docs d, LATERAL (SELECT ' . text($docs, 2) . ' AS x, ' . text($docs, 2) . ' AS y) l',
			{ t => [ 'd.body', 'l.x', 'l.y' ], n => [ 'd.id', 'd.grp' ] }, 'd.id' ],
		[ 'docs d LEFT JOIN LATERAL (SELECT ' . text($docs, 2) . ' AS x) l ON true',
			{ t => [ 'd.body', 'l.x' ], n => [ 'd.id', 'd.grp' ] }, 'd.id' ],
		[ 'docs d, LATERAL llm_generate_result(d.body) l',
			{ t => [ 'd.label', 'l.text', 'l.finish_reason' ], n => [ 'd.id', 'l.completion_tokens' ] }, 'd.id' ],
		[ 'docs d, LATERAL string_to_table(' . text($docs, 2) . q{, '1') WITH ORDINALITY e (x, o)},
			{ t => [ 'd.body', 'e.x' ], n => [ 'd.id', 'e.o' ] }, 'd.id, e.o' ],
		[ 'docs d LEFT JOIN LATERAL (SELECT min(x) AS x FROM unnest(ARRAY[' . text($docs, 2) . ', ' . text($docs, 1) . ']) x) l ON true',
			{ t => [ 'd.label', 'l.x' ], n => [ 'd.id', 'd.grp' ] }, 'd.id' ],
		[ 'docs d, LATERAL (SELECT g.grp, ' . text($both, 2) . ' AS x FROM groups g WHERE g.grp < d.grp AND ' . truth($both, 1) . ') l',
			{ t => [ 'd.body', 'l.x' ], n => [ 'd.id', 'l.grp' ] }, 'd.id, l.grp' ],
		[ 'docs d JOIN (SELECT grp AS k, ' . text({ t => ['name'], n => ['grp'] }, 2) . ' AS x FROM groups) l ON l.k = d.grp',
			{ t => [ 'd.body', 'l.x' ], n => [ 'd.id', 'l.k' ] }, 'd.id' ],
		[ 'parts d', { t => [ 'd.body', q{d.body || '!'} ], n => ['d.id'] }, 'd.id' ],
		[ '(SELECT id, grp, body, ' . text($inner, 2) . ' AS x FROM docs WHERE ' . truth($inner, 1) . ' OFFSET 0) d',
			{ t => [ 'd.body', 'd.x' ], n => [ 'd.id', 'd.grp' ] }, 'd.id' ]) };
}

sub query
{
	my ($from, $c, $order, $pulled) = source();
	my @quals = defined $pulled && $pulled eq '' ? () : map { truth($c, 2) } 1 .. int rand 3;
	push @quals, $pulled if $pulled;
	my $with = '';
	$with = 'WITH few AS MATERIALIZED (SELECT id FROM docs WHERE id % 3 = 0) ' if grep { /\bfew\b/ } @quals;
	my $rest = "FROM $from" . (@quals ? ' WHERE ' . join(' AND ', @quals) : '');
	my $groups = { t => [ q{'k' || count(*)}, 'min(d.id)::text' ], n => [ 'count(*)', 'min(d.id)' ] };
	my $filter = one_of('', ' FILTER (WHERE ' . truth($c, 1) . ')');
	my $having = one_of('', ' HAVING ' . truth($groups, 2));
	my ($key) = split /,/, $order;
	return $with . one_of(
		'SELECT ' . text($c, 3) . ', ' . text($c, 2) . " $rest ORDER BY $order",
		'SELECT ' . text($c, 3) . ", $key $rest ORDER BY $order",
		'SELECT ' . text($c, 2) . ', unnest(ARRAY[' . text($c, 2) . ', ' . text($c, 1) . "]) $rest ORDER BY $order",
		'SELECT ' . text($c, 1) . ', (SELECT count(*) FROM groups s WHERE ' . truth({ t => [ 's.name', @{ $c->{t} } ], n => [ 's.grp', @{ $c->{n} } ] }, 2) . ") $rest ORDER BY $order",
		'SELECT y.* FROM (WITH w AS MATERIALIZED (SELECT ' . text($c, 2) . " AS x, $key AS k $rest)
			SELECT a.x, llm_generate(b.x) AS z, k FROM w a JOIN w b USING (k)) y ORDER BY k, 1, 2",
		'SELECT DISTINCT ' . text($c, 2) . " $rest ORDER BY 1",
		"SELECT $key, max(" . text($c, 2) . ") OVER (PARTITION BY $c->{n}[0] % 3 ORDER BY $order) $rest ORDER BY $order",
		"SELECT $c->{n}[0] % 3, max(" . text($c, 2) . ")$filter, count(" . text($c, 1) . '), ' . text($groups, 2)
		  . " $rest GROUP BY 1$having ORDER BY 1");
}

# of a ring that is soon full, so that much is found in the table
my $node = llm_cluster('shapes', conf => "llm_infer.memo_memory = '256kB'\nllm_infer.devices = 'echo, cpu'\nllm_infer.threads = 1\nllm_infer.model_dir = '$ENV{LLM_TEST_DIR}/golden/models'");
my $checks = join "\n", map {
	my $q = query();
	my $memo = one_of(qw(off off off cold half kept kept));
	qq{SELECT verdict(\$\$$q\$\$, '$memo');}
} 1 .. $n_queries;
# without merge joins, which stop at the end of the shorter side, and kept inner sides that are left at the first match: a
# node there has read ahead
my ($rc, $out, $err) = $node->psql('postgres', <<"SQL");
\\i $ENV{LLM_TEST_DIR}/regress/prepare.sql
\\set ECHO none
SET enable_mergejoin = off;
SET enable_material = off;
CREATE TABLE docs (id int PRIMARY KEY, body text, label text, grp int);
INSERT INTO docs SELECT i, CASE WHEN i % 7 > 0 THEN 'b' || i END, CASE WHEN i % 3 = 0 THEN 'l' || i END, i % 4 FROM generate_series(1, 25) i;
CREATE TABLE groups (grp int PRIMARY KEY, name text);
INSERT INTO groups SELECT i, 'g' || i FROM generate_series(0, 5) i;
CREATE TABLE parts (id int, body text) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parts SELECT id, body FROM docs;
ANALYZE;
-- Rows of a query, and how often the engine was asked.
CREATE FUNCTION answered(query text, memo boolean, batch boolean, OUT lines text, OUT requests bigint) LANGUAGE plpgsql AS \$answered\$
DECLARE
	r record;
	all_lines text[] := '{}';
	before bigint;
BEGIN
	PERFORM set_config('llm_infer.memo', memo::text, true), set_config('llm_infer.enable_batch', batch::text, true);
	before := engine_requests();
	BEGIN
		FOR r IN EXECUTE query LOOP
			all_lines := all_lines || r::text;
		END LOOP;
	EXCEPTION WHEN OTHERS THEN
		all_lines := ARRAY[SQLSTATE || ': ' || SQLERRM];
	END;
	requests := engine_requests() - before;
	PERFORM set_config('llm_infer.memo', 'off', true), set_config('llm_infer.enable_batch', 'on', true);
	lines := all_lines::text;
END
\$answered\$;
-- What is wrong with a query when the memo is on, or NULL.
CREATE FUNCTION remembered(query text, memo text) RETURNS text LANGUAGE plpgsql AS \$remembered\$
DECLARE
	off record;
	r record;
	asked bigint[] := '{}';
	lost bigint;
BEGIN
	PERFORM set_config('llm_infer.temperature', '0', true);
	SELECT * INTO off FROM answered(query, false, true);
	IF memo <> 'kept' THEN
		PERFORM llm_memo_forget();
	END IF;
	IF memo = 'half' THEN
		PERFORM answered('SELECT llm_generate(body), llm_generate(label) FROM docs WHERE id % 2 = 0', true, true);
	END IF;
	SELECT s.lost INTO lost FROM llm.stat_memo s;
	-- twice in batches, twice row by row, where what is not read may be asked
	FOR i IN 1 .. 4 LOOP
		SELECT * INTO r FROM answered(query, true, i <= 2);
		asked := asked || r.requests;
		IF r.lines <> off.lines THEN
			RETURN '(' || memo || ', other rows in run ' || i || ': ' || r.lines || ')';
		END IF;
	END LOOP;
	RETURN CASE WHEN asked[1] > off.requests OR asked[2] + asked[4] > 0 AND lost = (SELECT s.lost FROM llm.stat_memo s) THEN '(' || memo || ', requests: ' || off.requests || ', ' || asked::text || ')' END;
END
\$remembered\$;
-- Whatever is pulled is compared once more. Where rows are estimated badly it may ask for more of them, but for no other
-- input, so it is done greedily. A join with an empty side has ended before some calls.
CREATE FUNCTION verdict(query text, memo text) RETURNS text LANGUAGE plpgsql AS \$verdict\$
DECLARE
	w record;
	line text;
	pulled boolean := false;
BEGIN
	PERFORM set_config('llm_infer.enable_pullup', 'off', true), set_config('llm_infer.temperature', '-1', true);
	SELECT * INTO w FROM both_ways(query);
	PERFORM set_config('llm_infer.enable_pullup', 'on', true);
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		pulled := pulled OR line LIKE '%Subquery Scan on joined%';
	END LOOP;
	IF pulled AND w.same AND w.batched <= w.row_by_row THEN
		PERFORM set_config('llm_infer.temperature', '0', true);
		SELECT * INTO w FROM both_ways(query);
	END IF;
	IF w.same AND (w.batched <= w.row_by_row OR w.n = 0) THEN
		line := CASE WHEN memo <> 'off' THEN remembered(query, memo) END;
		IF line IS NOT NULL THEN
			RETURN line || CASE WHEN pulled THEN ' pulled: ' ELSE ' ' END || query;
		END IF;
		RETURN CASE WHEN pulled THEN 2 ELSE sign(w.nodes) END;
	END IF;
	RETURN w::text || CASE WHEN pulled THEN ' pulled: ' ELSE ' ' END || query;
END
\$verdict\$;
$checks
SQL
is($rc, 0, 'every query runs') or diag $err;
my @lines = grep { /^[012(]/ } split /\n/, $out;
my @wrong = grep { /^\(/ } @lines;
is(scalar(@lines), $n_queries, 'every query is compared');
is(scalar(@wrong), 0, 'both ways give the same rows, and batches ask no more') or diag join "\n", @wrong[ 0 .. ($#wrong > 4 ? 4 : $#wrong) ];
cmp_ok(scalar(grep { /^[12]/ } @lines), '>', $n_queries / 2, 'most of them were batched');
cmp_ok(scalar(grep { /^2/ } @lines), '>', $n_queries / 20, 'and some were pulled');
note $node->safe_psql('postgres', q{SELECT format('memo: hits %s, misses %s, kept %s, lost %s, entries %s', hits, misses, kept, lost, entries) FROM llm.stat_memo});
llm_is_well($node, 'random shapes');

# ---- options: calls that differ in one of them differ in their answers, or might ----

my %options = (raw => [qw(true false)], top_k => [ 1, 4 ], top_p => [ 0.3, 0.9 ], min_p => [ 0.05, 0.3 ], repetition_penalty => [ 1.3, 5 ], presence_penalty => [ -1, 2 ], frequency_penalty => [ 0.5, -2 ],
	ignore_eos => ['true'], min_tokens => [ 2, 4 ], stop_token_ids => [ '[40]', '[40, 50, 60]' ], logit_bias => [ '{"70": 9}', '{"70": 9, "71": 9}' ], forbidden_tokens => [ '[70]', '[71, 72]' ],
	allowed_tokens => [ '[70, 71, 72, 73]' ], seed => [ 5, 6 ], temperature => [ 0, 0.5 ], truncate => ['"left"'], timeout => [20000], priority => [ 0, -1 ], template_kwargs => ['{"a": 1}']);
sub some_options
{
	return '{' . join(', ', @_, map { qq{"$_": } . one_of(@{ $options{$_} }) } grep { rand() < 0.12 } sort keys %options) . '}';
}
sub call
{
	my $many = rand() < 0.3;
	my @args = ($many ? one_of(q{ARRAY['a b', NULL, 'a bc']}, q{ARRAY['a b', 'abc abc']}) : one_of(q{'a b'}, q{'a bc'}, q{'abc abc'}), one_of(qw('tiny' 'tiny' 'other')), 'max_tokens => ' . one_of(8, 12),
		'temperature => ' . one_of(0, 0, 0.8), 'seed => ' . one_of(qw(NULL 1 2)));
	push @args, q{stop => '{t,e}'} if rand() < 0.2;
	push @args, q{options => '} . some_options($many && rand() < 0.5 ? '"n": 2' : ()) . q{'};
	return 'SELECT llm_generate(' . join(', ', @args) . ')' if $many;
	my $talk = join ', ', qq('[{"role": "user", "content": ") . ($args[0] =~ s/'//gr) . q("}]'), @args[ 1 .. $#args ];
	push @args, 'system_prompt => ' . one_of(q{'a'}, q{'b'}) if rand() < 0.2;
	my $call = join ', ', @args;
	return one_of("SELECT llm_generate($call)", "SELECT r.text, r.finish_reason, r.prompt_tokens, r.completion_tokens FROM llm_generate_result($call) r", "SELECT llm_chat($talk)");
}
# what is neither greedy nor seeded has no answer that could be compared
my @calls = grep { /temperature => 0,|seed => \d|"seed"/ } map { call() } 1 .. $n_queries;
($rc, $out, $err) = $node->psql('postgres', q{
	SELECT llm_model_register(name, path || '/model.gguf', '{"chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}{{ a }}"}'), llm_memo_forget()
		FROM (VALUES ('tiny', 'llama256-q8_0'), ('other', 'llama256-q4_0')) m (name, path);
	CREATE TABLE runs (run int, i int, rows text, requests bigint);
	CREATE TABLE calls (i int, q text);
	CREATE FUNCTION run(run int, memo boolean, backwards boolean) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		c record;
		a record;
	BEGIN
		FOR c IN SELECT * FROM calls ORDER BY CASE WHEN backwards THEN - i ELSE i END LOOP
			SELECT * INTO a FROM answered(c.q, memo, true);
			INSERT INTO runs VALUES (run, c.i, a.lines, a.requests);
		END LOOP;
	END $$;
	} . join("\n", map { "INSERT INTO calls VALUES ($_, \$\$$calls[$_]\$\$);" } 0 .. $#calls) . q{
	SELECT run(0, false, false), run(1, true, false), run(2, true, true);
	SELECT 'other', q, a.rows, b.run, b.rows FROM calls JOIN runs a USING (i) JOIN runs b USING (i) WHERE a.run = 0 AND a.rows <> b.rows;
	SELECT 'distinct', count(*), count(DISTINCT rows), count(*) FILTER (WHERE rows ~ '^..[0-9A-Z]{5}: ') FROM runs WHERE run = 0;
	SELECT 'requests', sum(requests) FILTER (WHERE run = 0), sum(requests) FILTER (WHERE run = 1), sum(requests) FILTER (WHERE run = 2 AND rows !~ '^..[0-9A-Z]{5}: ') FROM runs});
is($rc, 0, 'every call runs') or diag $err;
is(join("\n", grep { /^other/ } split /\n/, $out), '', 'answers from the memo are those of the model');
my ($all, $cold, $warm) = $out =~ /^requests\|(\d+)\|(\d+)\|(\d+)$/m;
cmp_ok($cold, '<', $all, 'some calls are the same');
is($warm, 0, 'and all the second time');
note $out =~ /^distinct.*/mg;
llm_is_well($node, 'random options');
$node->stop;
done_testing();
