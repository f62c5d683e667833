-- answers.sql - n answers to each prompt
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- the answers of a prompt side by side; NULL stays NULL, n times
SELECT llm_generate(ARRAY['a', NULL, 'c'], options => '{"n": 2}');
SELECT llm_generate(ARRAY['a', 'b'], options => '{"n": 1}'), llm_generate('[2:3]={a,b}'::text[], options => '{"n": 1}');
-- of whatever shape, the result has one dimension
SELECT llm_generate('[2:3][0:1]={{a,b},{c,NULL}}'::text[], options => '{"n": 2}');
SELECT llm_generate(array_fill(NULL::text, ARRAY[15626]), options => '{"n": 64}');
SELECT llm_generate('{}'::text[], options => '{"n": 3}'), llm_generate(ARRAY[NULL]::text[], options => '{"n": 3}'),
	llm_generate(NULL::text[], options => '{"n": 3}');
SELECT array_length(llm_generate(ARRAY['x'], options => '{"n": 64}'), 1);
SELECT requests_of($$SELECT llm_generate(ARRAY['a', NULL, 'c'], options => '{"n": 5}')$$);

-- each answer has its own noise; with a seed the first has that very seed, and all are reproducible
SELECT count(DISTINCT s) FROM unnest(llm_generate(ARRAY['@seed', '@seed'], options => '{"n": 8}')) s;
SELECT llm_generate(ARRAY['@seed', '@seed'], seed => 7, options => '{"n": 3}');
SELECT (llm_generate(ARRAY['@seed'], seed => 7, options => '{"n": 64}'))[1:3];
SELECT count(DISTINCT s) FROM generate_series(-100, 100) i, unnest(llm_generate(ARRAY['@seed'], seed => i, options => '{"n": 16}')) s;
SELECT llm_generate('@seed', seed => 7);

-- their prompt is computed once: all but the last token of the others' comes from the cache
CREATE TEMP TABLE before AS SELECT prompt_tokens, cached_tokens FROM llm.stat_engine;
SELECT array_length(llm_generate(ARRAY[repeat('a long prompt. ', 40)], max_tokens => 1, options => '{"n": 8}'), 1);
SELECT (e.prompt_tokens - b.prompt_tokens) / 8 AS prompt,
	(e.prompt_tokens - b.prompt_tokens) - (e.cached_tokens - b.cached_tokens) <= (e.prompt_tokens - b.prompt_tokens) / 8 + 7 AS computed_once
FROM llm.stat_engine e, before b;
DROP TABLE before;

-- a row's error is raised, or hidden for that answer
SELECT error_of($$SELECT llm_generate(ARRAY['fine', '@error=no'], options => '{"n": 2}')$$);
SELECT llm_generate(ARRAY['fine', '@error=no'], on_error => 'null', options => '{"n": 2}');

-- batched like everything else
SELECT explain_of($$SELECT llm_generate(ARRAY['a' || i, 'b'], options => '{"n": 4}') FROM generate_series(1, 3) i$$);
CREATE TEMP TABLE t AS SELECT i FROM generate_series(1, 5) i;
SELECT explain_of($$SELECT llm_generate(ARRAY['a' || i, 'b'], options => '{"n": 4}') FROM t$$);
SELECT i, llm_generate(ARRAY['a' || i, 'b'], options => jsonb_build_object('n', i)) FROM t WHERE i < 4;
DROP TABLE t;

-- one answer where there is room for one
SELECT error_of($$SELECT llm_generate('x', options => '{"n": 2}')$$);
SELECT error_of($$SELECT llm_generate_result('x', options => '{"n": 2}')$$);
SELECT error_of($$SELECT llm_generate_stream('x', options => '{"n": 2}')$$);
SELECT llm_generate('x', options => '{"n": 1}');
SELECT engine_idle();
