-- node_memory.sql - what a batch holds in memory: work_mem and one row
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- kB that requests, answers and rows read ahead take in this backend now, beside its connection
CREATE FUNCTION held() RETURNS numeric LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT round(sum(total_bytes) / 1024) FROM pg_backend_memory_contexts
		WHERE name IN ('LLM Batch rows', 'llm_infer call', 'llm_infer request', 'llm_infer requests', 'llm_infer statement'));
END
$$;
CREATE TEMP TABLE wide (id int, body text, tokens int[], talk jsonb);
ALTER TABLE wide ALTER body SET STORAGE EXTERNAL;
INSERT INTO wide SELECT i, repeat(chr(64 + i), 1000000) || i, array_fill(64 + i, ARRAY[4000]),
	jsonb_build_array(jsonb_build_object('role', 'user', 'content', repeat(chr(64 + i), 3000))) FROM generate_series(1, 20) i;

-- prompts of 1 MB: one at a time where memory is short
SET work_mem = '64kB';
SELECT count(g), max(length(g)), max(held) < 64 + 1100 AS bounded FROM
	(SELECT llm_generate(body, max_tokens => 3, options => '{"truncate": "left"}') g, held() FROM wide OFFSET 0) s;
SELECT count(g), max(held) < 64 + 1100 AS bounded FROM
	(SELECT llm_generate(body, max_tokens => 3, temperature => 0, options => '{"truncate": "left"}') g, held() FROM wide OFFSET 0) s;
SELECT count(g), max(held) < 64 + 1100 AS bounded FROM
	(SELECT llm_generate(ARRAY[body], max_tokens => 3, options => '{"truncate": "left"}') g, held() FROM wide OFFSET 0) s;
SET work_mem = '16MB';
SELECT count(g), max(held) < 16384 + 1100 AS bounded FROM
	(SELECT llm_generate(body, max_tokens => 3, options => '{"truncate": "left"}') g, held() FROM wide OFFSET 0) s;

-- answers that are far larger than their prompts, from the first row on: they may be as large as they are allowed to
SET work_mem = '64kB';
SELECT count(g), max(held) < 64 + 40 AS bounded FROM
	(SELECT i, llm_generate(ARRAY['@tokens=4000 ' || i, '@tokens=4000 x' || i], max_tokens => 4000) g, held() FROM generate_series(1, 28) i OFFSET 0) s;
-- rows that wait, answered, behind a slow one
SELECT count(g), max(held) < 64 + 40 AS bounded FROM
	(SELECT i, llm_generate(CASE WHEN i % 20 = 0 THEN '@slow=20 slow' ELSE '@tokens=4000 ' || i END, max_tokens => 4000) g, held() FROM generate_series(1, 45) i OFFSET 0) s;
-- answers that are remembered: as much again
SELECT count(DISTINCT g), max(held) < 2 * 64 + 40 AS bounded FROM
	(SELECT i, llm_generate('@tokens=4000 ' || 100 + i % 25, max_tokens => 4000, temperature => 0) g, held() FROM generate_series(1, 75) i OFFSET 0) s;
-- token ids and conversations
SELECT count(g), max(held) < 64 + 40 AS bounded FROM (SELECT id, llm_detokenize(tokens) g, held() FROM wide OFFSET 0) s;
SELECT count(g), max(held) < 64 + 40 AS bounded FROM (SELECT id, llm_chat(talk) g, held() FROM wide OFFSET 0) s;
-- a wide window costs nothing before it is used
SET llm_infer.max_lookahead_rows = 65536;
CREATE FUNCTION query_kb() RETURNS numeric LANGUAGE sql VOLATILE AS $$ SELECT round(sum(total_bytes) / 1024) FROM pg_backend_memory_contexts WHERE name IN ('ExecutorState', 'ExprContext') $$;
SELECT count(g), max(kb) < 1024 AS small FROM (SELECT llm_generate('x' || i) g, CASE WHEN i % 500 = 0 THEN query_kb() END kb FROM generate_series(1, 5000) i OFFSET 0) s;
RESET llm_infer.max_lookahead_rows;
-- two layers have a window each
SELECT count(g), max(held) < 2 * (64 + 40) AS bounded FROM
	(SELECT i, llm_generate('@tokens=2000 ' || s.h, max_tokens => 2000) g, held() FROM
		(SELECT i, llm_generate('@tokens=2000 ' || i, max_tokens => 2000) h FROM generate_series(1, 30) i OFFSET 0) s OFFSET 0) t;
RESET work_mem;

-- models that take turns leave nothing behind
SELECT llm_model_register('echo_too', 'echo:');
SELECT count(g), max(kb) FILTER (WHERE i > 4000) - max(kb) FILTER (WHERE i < 1000) < 64 AS flat FROM
	(SELECT i, llm_generate('x' || i, CASE i % 2 WHEN 0 THEN 'echo' ELSE 'echo_too' END) g, CASE WHEN i % 500 = 0 THEN query_kb() END kb FROM generate_series(1, 5000) i OFFSET 0) s;
SELECT llm_model_drop('echo_too');
-- nor do errors that are hidden in a statement and in others inside it
CREATE FUNCTION fails() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT llm_generate('@error=inner', on_error => 'null') FROM generate_series(1, 1)); END $$;
SET client_min_messages = error;
SELECT count(g), max(kb) FILTER (WHERE i > 2400) - max(kb) FILTER (WHERE i < 700) < 64 AS flat FROM
	(SELECT i, llm_generate('@error=outer', on_error => 'null') g, fails(), CASE WHEN i % 300 = 0 THEN query_kb() END kb FROM generate_series(1, 3000) i OFFSET 0) s;
RESET client_min_messages;
DROP FUNCTION fails();
DROP FUNCTION held(), query_kb();
SELECT engine_idle();
