-- node_rescan.sql - nodes that are scanned again: sub-selects, LATERAL, loops
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE a (id int PRIMARY KEY, body text);
CREATE TEMP TABLE b (id int PRIMARY KEY, aid int, body text);
INSERT INTO a SELECT i, 'a' || i FROM generate_series(1, 5) i;
INSERT INTO b SELECT i, 1 + i % 5, 'b' || i FROM generate_series(1, 40) i;
ANALYZE a;
ANALYZE b;

-- correlated sub-selects
SELECT id, (SELECT llm_generate(b.body || a.body) FROM b WHERE b.id = a.id) FROM a ORDER BY id;
SELECT id, (SELECT string_agg(g, ' ') FROM (SELECT llm_generate(b.body) g FROM b WHERE b.aid = a.id ORDER BY b.id LIMIT 3) s) FROM a ORDER BY id;
SELECT id, ARRAY(SELECT llm_generate(b.body) FROM b WHERE b.aid = a.id ORDER BY b.id LIMIT 2) FROM a ORDER BY id;
SELECT id, EXISTS (SELECT 1 FROM b WHERE b.aid = a.id AND llm_generate(b.body) = 'b8') FROM a ORDER BY id;
SELECT id FROM a WHERE 'b8' IN (SELECT llm_generate(b.body) FROM b WHERE b.aid = a.id);
EXPLAIN (COSTS OFF) SELECT id, (SELECT llm_generate(b.body || a.body) FROM b WHERE b.id = a.id) FROM a;
SELECT explain_of($$SELECT id, ARRAY(SELECT llm_generate(b.body || a.id) FROM b WHERE b.aid = a.id) FROM a$$);
-- an outer value inside the layer itself
SELECT id, (SELECT max(llm || a.body) FROM (SELECT llm_generate(b.body) AS llm FROM b WHERE b.aid = a.id OFFSET 0) s) FROM a ORDER BY id;
SELECT id, (SELECT count(*) FROM b WHERE llm_generate(b.body) = 'b' || a.id) FROM a ORDER BY id;
-- an inner error after some rows, and the next scan is clean
SELECT id, (SELECT count(g) FROM (SELECT llm_generate(CASE WHEN b.id = 7 THEN '@error=no' ELSE b.body END, on_error => 'null') g FROM b WHERE b.aid = a.id OFFSET 0) s) FROM a ORDER BY id;

-- LATERAL
SELECT a.id, l.g FROM a, LATERAL (SELECT llm_generate(b.body || a.id) g FROM b WHERE b.aid = a.id ORDER BY b.id LIMIT 1) l ORDER BY a.id;
SELECT a.id, l.g FROM a, LATERAL (SELECT llm_generate(a.body) g) l ORDER BY a.id;
SELECT a.id, l.* FROM a, LATERAL llm_generate(a.body) l ORDER BY a.id;
SELECT a.id, r.text, r.finish_reason FROM a, LATERAL llm_generate_result(a.body) r ORDER BY a.id;
SELECT a.id, l.g FROM a LEFT JOIN LATERAL (SELECT llm_generate(b.body) g FROM b WHERE b.id = a.id * 20) l ON true ORDER BY a.id;

-- PostgreSQL would remember one answer for equal inputs: each row makes its own call, batched or not
CREATE TEMP TABLE many AS SELECT i, i % 5 AS k FROM generate_series(1, 1000) i;
ANALYZE many;
EXPLAIN (COSTS OFF) SELECT l.s FROM many, LATERAL (SELECT llm_generate('@seed ' || k) AS s OFFSET 0) l;
SELECT count(*), count(DISTINCT l.s) FROM many, LATERAL (SELECT llm_generate('@seed ' || k) AS s OFFSET 0) l;
SET llm_infer.enable_batch = off;
SELECT count(*), count(DISTINCT l.s) FROM many, LATERAL (SELECT llm_generate('@seed ' || k) AS s OFFSET 0) l;
RESET llm_infer.enable_batch;
EXPLAIN (COSTS OFF) SELECT l.s FROM many, LATERAL (SELECT 'no call ' || k AS s OFFSET 0) l;

-- on the inner side of each kind of join
BEGIN;
SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_memoize = off; SET LOCAL enable_material = off;
EXPLAIN (COSTS OFF) SELECT a.id, s.g FROM a LEFT JOIN (SELECT aid, llm_generate(body) g FROM b OFFSET 0) s ON s.aid = a.id;
SELECT count(*), count(DISTINCT s.g) FROM a LEFT JOIN (SELECT aid, llm_generate(body) g FROM b OFFSET 0) s ON s.aid = a.id;
COMMIT;
BEGIN;
SET LOCAL enable_nestloop = off; SET LOCAL enable_hashjoin = off;
EXPLAIN (COSTS OFF) SELECT a.id, s.g FROM a LEFT JOIN (SELECT aid, llm_generate(body) g FROM b OFFSET 0) s ON s.aid = a.id;
SELECT count(*), count(DISTINCT s.g) FROM a LEFT JOIN (SELECT aid, llm_generate(body) g FROM b OFFSET 0) s ON s.aid = a.id;
COMMIT;
BEGIN;
SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT a.id, s.g FROM a LEFT JOIN (SELECT aid, llm_generate(body) g FROM b OFFSET 0) s ON s.aid = a.id;
SELECT count(*), count(DISTINCT s.g) FROM a LEFT JOIN (SELECT aid, llm_generate(body) g FROM b OFFSET 0) s ON s.aid = a.id;
COMMIT;

-- a recursive term, a CTE read twice and at different speeds
WITH RECURSIVE r AS (SELECT id, body, 1 AS n FROM a UNION ALL SELECT id, llm_generate(body || n), n + 1 FROM r WHERE n < 4)
SELECT * FROM r WHERE n = 4 ORDER BY id;
WITH s AS MATERIALIZED (SELECT id, llm_generate(body) g FROM b) SELECT x.g, (SELECT count(*) FROM s WHERE s.g <= x.g) FROM s x WHERE x.id IN (1, 20, 40) ORDER BY 1;
-- a nested statement in the middle of a scan
CREATE FUNCTION inner_call(x int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT string_agg(llm_generate(body), '+' ORDER BY id) FROM b WHERE aid = x AND id < 12);
END
$$;
SELECT id, llm_generate(body), inner_call(id) FROM a ORDER BY id;
SELECT id, llm_generate(inner_call(id)) FROM a ORDER BY id LIMIT 2;
DROP FUNCTION inner_call(int);
