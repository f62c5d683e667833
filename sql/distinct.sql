-- distinct.sql - once per distinct input in a statement, and never for what is sampled without a seed
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, 'b' || i % 7, i % 3 FROM generate_series(1, 100) i;
ANALYZE docs;
SET llm_infer.temperature = 0;

-- greedy: 7 inputs
SELECT explain_of($$SELECT id, llm_generate(body) FROM docs$$);
SELECT requests_of($$SELECT id, llm_generate(body) FROM docs$$), requests_of($$SELECT id, llm_generate(body, seed => id) FROM docs$$) AS seeds_mean_nothing;
-- SELECT list and WHERE share, also where the function is another
SELECT explain_of($$SELECT id, llm_generate(body) FROM docs WHERE llm_generate(body) <> 'b1'$$);
SELECT requests_of($$SELECT id, (llm_generate_result(body)).text FROM docs WHERE llm_generate(body) <> 'b1'$$);
-- guarded calls, aggregates, joins: row by row, and each input once
SELECT requests_of($$SELECT CASE WHEN grp = 1 THEN llm_generate(body) END FROM docs$$);
SELECT requests_of($$SELECT grp, string_agg(llm_generate(body), ',') FROM docs GROUP BY grp$$);
SELECT requests_of($$SELECT llm_generate(a.body) FROM docs a JOIN docs b ON a.id = b.grp$$);
SELECT requests_of($$SELECT (SELECT llm_generate(d.body) OFFSET 0) FROM docs d$$);
SELECT requests_of($$SELECT x FROM docs, LATERAL (SELECT llm_generate(body) OFFSET 0) s(x)$$);
CREATE TEMP TABLE written AS SELECT * FROM docs;
SELECT requests_of($$UPDATE written SET body = llm_generate(body) WHERE id <= 50 RETURNING llm_generate(body)$$);
-- constants once
SELECT requests_of($$SELECT id, llm_generate('const') FROM docs$$), requests_of($$SELECT id FROM docs WHERE body < llm_generate('const')$$);
-- arrays: by element
SELECT requests_of($$SELECT llm_generate(ARRAY['x', 'y', 'x', NULL]) FROM docs$$);
SELECT requests_of($$SELECT llm_generate(ARRAY['x'], seed => 1, temperature => 0.5, options => '{"n": 3}') FROM docs$$) AS three_seeds;
SELECT requests_of($$SELECT llm_chat(jsonb_build_array(jsonb_build_object('role', 'user', 'content', body))) FROM docs$$);
SELECT requests_of($$SELECT llm_count_tokens(body) FROM docs$$) AS too_cheap_to_remember;

-- all that an answer depends on is compared
SELECT requests_of($$SELECT llm_generate(body, max_tokens => grp + 1) FROM docs WHERE id <= 42$$) AS of_7_by_3;
SELECT requests_of($$SELECT llm_generate('x', system_prompt => body), llm_generate('x', stop => ARRAY[body]), llm_generate('x', options => jsonb_build_object('timeout', 60000 + grp)) FROM docs WHERE id <= 42$$) AS of_7_and_7_and_3;
SELECT llm_model_register('other', 'echo:', '{"context_length": 512}');
SELECT requests_of($$SELECT llm_generate('x', model => CASE WHEN grp = 1 THEN 'other' ELSE 'echo' END) FROM docs$$) AS of_2_models;
SELECT (r).model, count(*) FROM (SELECT llm_generate_result('x', model => CASE WHEN grp = 1 THEN 'other' ELSE 'echo' END) r FROM docs OFFSET 0) s GROUP BY 1 ORDER BY 1;
SELECT llm_model_drop('other');

-- sampled: with a seed once, without one row by row
RESET llm_infer.temperature;
SELECT requests_of($$SELECT id, llm_generate(body) FROM docs$$) AS unseeded, requests_of($$SELECT id, llm_generate(body, seed => 1) FROM docs$$) AS seeded, requests_of($$SELECT id, llm_generate(body, seed => grp) FROM docs WHERE id <= 42$$) AS of_7_by_3;
SELECT requests_of($$SELECT llm_generate('const') FROM docs$$) AS unseeded, requests_of($$SELECT llm_generate('const', temperature => 0) FROM docs$$) AS greedy, requests_of($$SELECT llm_generate('const', temperature => 0.1) FROM docs$$) AS sampled;
SELECT requests_of($$SELECT llm_generate_stream('const', temperature => 0) FROM docs WHERE id <= 10$$) AS streams_are_their_own;
SET llm_infer.temperature = 0;

-- one statement: not the next one
SELECT requests_of($$SELECT llm_generate('again')$$), requests_of($$SELECT llm_generate('again')$$);
CREATE FUNCTION ask(prompt text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN llm_generate(prompt);
END
$$;
CREATE FUNCTION ask_by_query(prompt text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	SELECT llm_generate(prompt) INTO answer;
	RETURN answer;
END
$$;
SELECT requests_of($$SELECT ask(body) FROM docs$$) AS expression_of_the_statement, requests_of($$SELECT ask_by_query(body) FROM docs$$) AS statements_of_their_own;
CREATE TEMP TABLE counted AS SELECT requests FROM llm.stat_engine;
DO $$
BEGIN
	PERFORM ask('x') FROM docs;
	PERFORM ask('x') FROM docs;
END
$$;
SELECT s.requests - c.requests AS two FROM llm.stat_engine s, counted c;
BEGIN;
UPDATE counted SET requests = s.requests FROM llm.stat_engine s;
DECLARE c CURSOR FOR SELECT llm_generate('const') FROM docs;
FETCH 3 FROM c;
FETCH 2 FROM c;
MOVE ALL FROM c;
SELECT s.requests - c.requests AS one FROM llm.stat_engine s, counted c;
COMMIT;

-- off
SET llm_infer.enable_distinct = off;
SELECT explain_of($$SELECT id, llm_generate(body) FROM docs WHERE id <= 20$$);
SELECT requests_of($$SELECT CASE WHEN grp = 1 THEN llm_generate(body) END FROM docs$$);
RESET llm_infer.enable_distinct;

-- the same rows, on and off, batched and not
CREATE FUNCTION same_rows(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	rows text[];
	first text[];
BEGIN
	FOR i IN 0..3 LOOP
		PERFORM set_config('llm_infer.enable_distinct', (i % 2 = 0)::text, true), set_config('llm_infer.enable_batch', (i < 2)::text, true);
		EXECUTE 'SELECT array_agg(r::text) FROM (' || query || ') r' INTO rows;
		first := coalesce(first, rows);
		IF rows IS DISTINCT FROM first THEN
			RETURN false;
		END IF;
	END LOOP;
	RETURN true;
END
$$;
SELECT same_rows($$SELECT id, llm_generate(body) FROM docs$$), same_rows($$SELECT id, llm_generate(NULLIF(body, 'b2')), llm_generate('') FROM docs WHERE llm_generate(body) <> 'b1'$$),
	same_rows($$SELECT llm_generate(ARRAY[body, NULL, 'x', body], seed => grp, temperature => 1, options => '{"n": 2}') FROM docs$$),
	same_rows($$SELECT (r).text, (r).finish_reason, (r).prompt_tokens, (r).completion_tokens, (r).logprobs FROM (SELECT llm_generate_result(body, max_tokens => grp, options => CASE WHEN id > 50 THEN '{"logprobs": true}'::jsonb END) r FROM docs OFFSET 0) s$$),
	 same_rows($$SELECT llm_chat(jsonb_build_array(jsonb_build_object('role', 'user', 'content', body))) FROM docs$$);

-- errors: at their row, each of them
SELECT error_of($$SELECT llm_generate(CASE WHEN id > 50 THEN '@error=no' ELSE body END) FROM docs$$);
SELECT count(*), count(a) FROM (SELECT llm_generate(CASE WHEN id > 90 THEN '@error=no' ELSE body END) a FROM docs LIMIT 50) s;
SET client_min_messages = notice;
SELECT count(*), count(a) FROM (SELECT llm_generate(CASE WHEN id % 10 = 0 THEN '@error=no' ELSE body END, on_error => 'null') a FROM docs OFFSET 0) s;
SET llm_infer.enable_batch = off;
SELECT count(*), count(a) FROM (SELECT llm_generate(CASE WHEN id % 10 = 0 THEN '@error=no' ELSE body END, on_error => 'null') a FROM docs OFFSET 0) s;
SET client_min_messages = warning;
-- a failure is not remembered: later rows ask again
SELECT requests_of($$SELECT llm_generate('@error=no', on_error => 'null') FROM docs WHERE id <= 5$$) AS of_5;
RESET llm_infer.enable_batch;
-- in a block that catches it
DO $$
DECLARE
	caught int := 0;
	r record;
BEGIN
	FOR r IN SELECT id, llm_generate(body) FROM docs WHERE id <= 20 LOOP
		BEGIN
			PERFORM llm_generate('@error=no');
		EXCEPTION WHEN OTHERS THEN
			caught := caught + 1;
		END;
	END LOOP;
	RAISE WARNING 'caught %', caught;
END
$$;
CREATE FUNCTION try(prompt text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN llm_generate(prompt);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLERRM;
END
$$;
SELECT DISTINCT try(CASE WHEN grp = 1 THEN '@error=no' ELSE 'fine' END), llm_generate('fine') FROM docs ORDER BY 1;

-- a scan that is done again
SELECT requests_of($$SELECT d.id FROM docs d WHERE d.id IN (SELECT length(llm_generate(e.body)) FROM docs e WHERE e.grp = d.grp)$$);
-- little memory: what was used longest ago is asked for again
SET work_mem = '64kB';
SELECT requests_of($$SELECT llm_generate(repeat('x', 3000) || i % 2) FROM generate_series(1, 100) i$$) AS fits, requests_of($$SELECT llm_generate(repeat('x', 3000) || i % 50) FROM generate_series(1, 100) i$$) > 50 AS does_not;
RESET work_mem;
SELECT engine_idle();

DROP TABLE docs, written, counted;
DROP FUNCTION ask(text), ask_by_query(text), same_rows(text), try(text);
