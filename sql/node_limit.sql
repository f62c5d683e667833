-- node_limit.sql - LIMIT, cursors: how far rows are read ahead
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, 'b' || i, i % 5 FROM generate_series(1, 1000) i;
ANALYZE docs;

-- a constant LIMIT above a projection is known: not one row more
SELECT explain_of($$SELECT id, llm_generate(body) FROM docs LIMIT 10$$);
SELECT explain_of($$SELECT id, llm_generate(body) FROM docs ORDER BY grp, id LIMIT 3$$);
SELECT explain_of($$SELECT llm_generate(llm_generate(body)) FROM docs LIMIT 3 OFFSET 2$$);
SELECT explain_of($$SELECT upper(g) FROM (SELECT llm_generate(body) g FROM docs OFFSET 0) s LIMIT 4$$);
SELECT count(*) FROM (SELECT llm_generate(body) FROM docs LIMIT 0) s;
SELECT requests_of($$SELECT llm_generate(body) FROM docs LIMIT 0$$);

-- a filter reads ahead: at most a window, which starts at 8 and doubles
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(body) <> '' LIMIT 1$$);
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(body) <> '' LIMIT 5$$);
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(body) LIKE '%7' LIMIT 5$$);
-- the projection above it is still exact
SELECT explain_of($$SELECT id, llm_generate('again ' || body) FROM docs WHERE llm_generate(body) LIKE '%7' LIMIT 2$$);
SET llm_infer.max_lookahead_rows = 1;
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(body) LIKE '%7' LIMIT 2$$);
SET llm_infer.max_lookahead_rows = 4;
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(body) LIKE '%7' LIMIT 2$$);
RESET llm_infer.max_lookahead_rows;
SELECT id FROM docs WHERE llm_generate(body) LIKE '%7' LIMIT 5;
-- a LIMIT that is no constant, or that may return more
PREPARE few(int) AS SELECT id, llm_generate(body) FROM docs LIMIT $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE few(2);
SELECT explain_of('EXECUTE few(2)');
RESET plan_cache_mode;
SELECT explain_of($$SELECT id, llm_generate(body) FROM docs ORDER BY grp FETCH FIRST 2 ROWS WITH TIES$$) LIMIT 4;
-- the window is not wider than memory or the setting
CREATE FUNCTION peak_of(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	doc json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) ' || query INTO doc;
	RETURN doc->0->'Plan'->>'LLM Peak In Flight';
END
$$;
SELECT peak_of($$SELECT llm_generate('@delay=1 ' || body) FROM docs WHERE id < 60$$) BETWEEN 2 AND 60 AS several;
SET llm_infer.max_lookahead_rows = 16;
SELECT peak_of($$SELECT llm_generate('@delay=1 ' || body) FROM docs WHERE id < 60$$) BETWEEN 2 AND 16 AS by_setting;
RESET llm_infer.max_lookahead_rows;
SET work_mem = '64kB';
SELECT peak_of($$SELECT llm_generate('@delay=1 ' || repeat(body, 500), max_tokens => 1) FROM docs WHERE id < 60$$) BETWEEN 2 AND 40 AS by_memory;
RESET work_mem;
DROP FUNCTION peak_of(text);

-- EXISTS and the first row of a sub-select
SELECT requests_of($$SELECT EXISTS (SELECT 1 FROM docs WHERE llm_generate(body) <> '')$$) <= 8 AS few;
SELECT requests_of($$SELECT (SELECT llm_generate(body) FROM docs LIMIT 1)$$);

-- cursors
BEGIN;
DECLARE c CURSOR FOR SELECT id, llm_generate(body) FROM docs;
FETCH 3 FROM c;
MOVE 10 FROM c;
FETCH 2 FROM c;
FETCH BACKWARD 1 FROM c;
ROLLBACK;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, llm_generate(body) FROM docs;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH 1 FROM c;
FETCH ABSOLUTE 5 FROM c;
CLOSE c;
DECLARE h CURSOR WITH HOLD FOR SELECT id, llm_generate(body) FROM docs WHERE id <= 20;
FETCH 1 FROM h;
COMMIT;
FETCH 2 FROM h;
CLOSE h;
-- two at once, interleaved; one is closed early
BEGIN;
DECLARE a CURSOR FOR SELECT llm_generate('a' || id) FROM docs;
DECLARE b CURSOR FOR SELECT llm_generate('b' || id) FROM docs WHERE llm_generate(body) <> 'b2';
FETCH 2 FROM a;
FETCH 2 FROM b;
FETCH 1 FROM a;
CLOSE a;
FETCH 1 FROM b;
SELECT llm_generate('between');
FETCH 1 FROM b;
COMMIT;
-- a cursor that was left alone keeps its answers through a rolled back savepoint
BEGIN;
DECLARE c CURSOR FOR SELECT id, llm_generate(body) FROM docs;
FETCH 1 FROM c;
SAVEPOINT s;
FETCH 9 FROM c;
SELECT llm_generate('@error=no');
ROLLBACK TO s;
FETCH 2 FROM c;
COMMIT;
-- the same, and what was read ahead there is still unanswered: it is asked again
BEGIN;
DECLARE c CURSOR FOR SELECT id, llm_generate('@delay=2 ' || body) FROM docs;
FETCH 1 FROM c;
SAVEPOINT s;
MOVE 9 FROM c;
ROLLBACK TO s;
FETCH 3 FROM c;
COMMIT;
SELECT engine_idle();
