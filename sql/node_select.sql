-- node_select.sql - LLM Batch in the SELECT list
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, 'b' || i, i % 5 FROM generate_series(1, 300) i;
ANALYZE docs;

SELECT explain_of($$SELECT id, llm_generate(body) FROM docs$$, true);
SELECT count(*), count(*) FILTER (WHERE g = body) AS right FROM (SELECT body, llm_generate(body) g FROM docs OFFSET 0) s;
SELECT string_agg(g, ',' ORDER BY n) = string_agg(body, ',' ORDER BY id) AS in_input_order
FROM (SELECT id, body, g, row_number() OVER () n FROM (SELECT id, body, llm_generate(body) g FROM docs ORDER BY id OFFSET 0) a) b;

-- inside expressions, twice, beside other columns and whole rows
SELECT id, 'p:' || llm_generate('Q ' || body) || id::text AS a, upper(llm_generate(body)) AS b FROM docs WHERE id <= 3;
SELECT explain_of($$SELECT id, 'p:' || llm_generate('Q ' || body) || id::text, upper(llm_generate(body)) FROM docs WHERE id <= 3$$);
SELECT docs, llm_generate(docs::text) FROM docs WHERE id <= 2;
SELECT ctid, tableoid::regclass::text LIKE '%docs' AS mine, llm_generate(ctid::text) FROM docs WHERE id <= 2;
SELECT llm_generate(body, max_tokens => grp + 1), llm_generate(body, 'echo', NULL, 2) FROM docs WHERE id BETWEEN 100 AND 102;

-- constant, NULL and no columns at all
SELECT llm_generate('const') FROM docs WHERE id <= 2;
SELECT explain_of($$SELECT llm_generate('const') FROM docs WHERE id <= 2$$);
SELECT id, llm_generate(NULLIF(body, 'b2')) IS NULL AS is_null FROM docs WHERE id <= 3;
SELECT explain_of($$SELECT id, llm_generate(NULLIF(body, 'b2')) FROM docs WHERE id <= 3$$);
SELECT llm_generate(body) FROM docs WHERE false;
SELECT llm_generate(body) FROM docs WHERE id < 0;

-- the other functions are batched too; (f(x)).* is one call per row
SELECT explain_of($$SELECT (llm_generate_result(body)).* FROM docs WHERE id <= 4$$);
SELECT (r).text, (r).finish_reason FROM (SELECT llm_generate_result(body) r FROM docs WHERE id <= 2 OFFSET 0) s;
SELECT (llm_generate_result(body)).text, (llm_generate_result(body)).completion_tokens FROM docs WHERE id <= 2;
SELECT explain_of($$SELECT llm_generate(ARRAY[body, NULL, 'x']), llm_count_tokens(body), llm_tokenize(body) FROM docs WHERE id <= 4$$);
SELECT (llm_generate(ARRAY[body, 'x']))[1] FROM docs WHERE id <= 2;

-- ORDER BY, DISTINCT, GROUP BY
SELECT id, llm_generate(body) FROM docs ORDER BY id DESC LIMIT 3;
SELECT id, llm_generate(body) AS g FROM docs WHERE id <= 12 ORDER BY g LIMIT 3;
SELECT explain_of($$SELECT id, llm_generate(body) AS g FROM docs WHERE id <= 12 ORDER BY g$$);
SELECT DISTINCT llm_generate('g' || grp) FROM docs ORDER BY 1;
SELECT llm_generate('g' || grp) AS g, count(*) FROM docs GROUP BY 1 ORDER BY 1;
SELECT line FROM explain_of($$SELECT llm_generate('g' || grp) AS g, count(*) FROM docs GROUP BY 1$$) line WHERE line NOT LIKE '%LLM Calls:%';
SELECT explain_of($$SELECT b, llm_generate(b) FROM (SELECT DISTINCT grp::text AS b FROM docs OFFSET 0) s$$);
SELECT id, rank() OVER (ORDER BY llm_generate(body)) FROM docs WHERE id <= 3;

-- sub-selects, CTEs, set operations, views
SELECT explain_of($$WITH s AS MATERIALIZED (SELECT id, llm_generate(body) g FROM docs WHERE id <= 5) SELECT a.id, a.g, b.g FROM s a JOIN s b USING (id)$$);
SELECT l, length(l), upper(l) FROM (SELECT llm_generate(body) AS l FROM docs WHERE id <= 2) s;
SELECT requests_of($$SELECT l, length(l), upper(l) FROM (SELECT llm_generate(body) AS l FROM docs WHERE id <= 50) s$$);
SELECT explain_of($$SELECT llm_generate(body) FROM docs WHERE id <= 2 UNION ALL SELECT llm_generate(body) FROM docs WHERE id >= 299$$);
SELECT * FROM both_ways($$SELECT llm_generate(body) FROM docs UNION ALL SELECT llm_generate(body) FROM docs LIMIT 5$$);
SELECT same, n, nodes, batched = row_by_row AS equal FROM both_ways($$SELECT id FROM docs WHERE llm_generate(body) LIKE '%9' UNION ALL SELECT id FROM docs WHERE llm_generate(body) LIKE '%9'$$);
-- members that differ keep their own nodes
SELECT * FROM both_ways($$SELECT llm_generate(body) FROM docs WHERE id < 5 UNION ALL SELECT llm_generate('2' || llm_generate(body)) FROM docs WHERE id < 3 UNION ALL SELECT body FROM docs WHERE id = 1$$);
CREATE TEMP VIEW answers AS SELECT id, llm_generate(body) AS g FROM docs;
SELECT g FROM answers WHERE id = 7;
SELECT explain_of($$SELECT g FROM answers WHERE id = 7$$);
WITH RECURSIVE r AS (SELECT 1 AS n, llm_generate('a') AS g UNION ALL SELECT n + 1, llm_generate(g || 'a') FROM r WHERE n < 4)
SELECT * FROM r;
-- scans that are not of tables
SELECT explain_of($$SELECT llm_generate(x::text) FROM generate_series(1, 3) x$$);
SELECT explain_of($$SELECT llm_generate(x) FROM (VALUES ('a'), ('b')) v(x)$$);
SELECT llm_generate(x::text) FROM generate_series(1, 3) WITH ORDINALITY AS x;

-- set-returning beside it: once for each row that comes out, where PostgreSQL asks once more at the end (node_sets has more)
SELECT llm_generate(body), generate_series(1, 2) FROM docs WHERE id <= 2;
SELECT requests_of($$SELECT llm_generate(body), generate_series(1, 2) FROM docs WHERE id <= 2$$);

-- parallel plans: the scan stays parallel, the calls are in the leader
CREATE TABLE many AS SELECT i AS id, 'b' || i AS body FROM generate_series(1, 3000) i;
ANALYZE many;
BEGIN;
SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT id, llm_generate(body) FROM many WHERE id % 100 = 0;
SELECT count(*), min(id), max(id), bool_and(g = 'b' || id) FROM (SELECT id, llm_generate(body) g FROM many WHERE id % 100 = 0 OFFSET 0) s;
SELECT set_config(name, 'on', true) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT count(*), bool_and(g = 'b' || id) FROM (SELECT id, llm_generate(body) g FROM many WHERE id <= 50 OFFSET 0) s;
COMMIT;
DROP TABLE many;

-- long prompts and little memory: the window is bounded by bytes
SET work_mem = '64kB';
SELECT count(*), bool_and(g = repeat(body, 300)) FROM (SELECT body, llm_generate(repeat(body, 300), max_tokens => 3000) g FROM docs WHERE id <= 100 OFFSET 0) s;
RESET work_mem;
SELECT error_of($$SELECT llm_generate(repeat(body, 500000)) FROM docs WHERE id = 1$$);
