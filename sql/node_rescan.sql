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

-- every place that scans again, goes back, or stops in the middle: rows and requests of both ways
CREATE TABLE c (k int, id int, body text);
INSERT INTO c SELECT i % 4, i, 'c' || i FROM generate_series(1, 24) i;
CREATE INDEX ON c (k);
ANALYZE c;
-- a node that is scanned again: from its end, from the middle (read ahead is read again), never read, with other parameters
SELECT both_ways($$SELECT a.id, (SELECT string_agg(g, ',') FROM (SELECT llm_generate(body || a.id) g FROM c WHERE k = a.id ORDER BY id) s) FROM a ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, (SELECT llm_generate(body || a.id) FROM c WHERE k = a.id ORDER BY id LIMIT 1) FROM a ORDER BY 1$$);
SELECT (both_ways($$SELECT a.id, (SELECT id FROM c WHERE k <= a.id AND llm_generate(body) LIKE '%1%' ORDER BY id LIMIT 1) FROM a ORDER BY 1$$)).same;
SELECT both_ways($$SELECT a.id, l.* FROM a, LATERAL (SELECT c.id, llm_generate(c.body || a.body) FROM c WHERE c.k = a.id ORDER BY c.id LIMIT a.id) l ORDER BY 1, 2$$);
SELECT both_ways($$SELECT a.id, l.* FROM a LEFT JOIN LATERAL (SELECT count(llm_generate(c.body)), max(llm_generate(c.body || a.body)) FROM c WHERE c.k = a.id) l ON a.id <> 3 ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, (SELECT count(*) FROM generate_series(1, a.id) i WHERE llm_generate('x' || i) <> 'x2') FROM a ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, ARRAY(SELECT unnest(ARRAY[llm_generate(body), 'and']) FROM c WHERE k = a.id ORDER BY id) FROM a ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, ARRAY(SELECT llm_generate(v || a.id) FROM (VALUES ('p'), ('q'), (a.body)) v (v)) FROM a ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, ARRAY(SELECT llm_generate(body) FROM (SELECT body FROM b WHERE aid = a.id UNION ALL SELECT body FROM c WHERE k = a.id) s ORDER BY 1) FROM a ORDER BY 1$$);
SELECT both_ways($$SELECT a.id FROM a WHERE a.body IN (SELECT 'a' || llm_generate(k::text) FROM c) ORDER BY 1$$);
-- run for each row of a, and stopped at its first match: nothing is read ahead there
SELECT both_ways($$SELECT a.id FROM a WHERE a.body NOT IN (SELECT 'a' || llm_generate(k::text) FROM c WHERE c.id > a.id) ORDER BY 1$$);
SELECT both_ways($$SELECT a.id FROM a WHERE NOT EXISTS (SELECT FROM c WHERE c.k = a.id AND llm_generate(c.body || a.id) LIKE 'c1%') ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, EXISTS (SELECT FROM c WHERE c.id > a.id AND llm_generate(c.body) > 'c') FROM a ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, a.body > ALL (SELECT llm_generate(body) FROM c WHERE c.id > a.id) FROM a ORDER BY 1$$);
SELECT both_ways($$UPDATE a SET id = id WHERE id = 1 RETURNING EXISTS (SELECT FROM c WHERE c.id > a.id AND llm_generate(c.body) > 'c')$$, 'SELECT 1');
SELECT both_ways($$SELECT a.id, l.id FROM a, LATERAL (SELECT c.id FROM c WHERE c.id > a.id AND llm_generate(c.body) > 'c' LIMIT 1) l ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, (SELECT body FROM (SELECT c.body FROM c WHERE c.id > a.id AND llm_generate(c.body) > 'c' LIMIT 2) s OFFSET 1) FROM a ORDER BY 1$$);
-- but for what takes in all rows each time, or so many as are known
SELECT both_ways($$SELECT a.id, l.g FROM a, LATERAL (SELECT llm_generate(c.body) g FROM c WHERE c.id > a.id ORDER BY id LIMIT 2) l ORDER BY 1, 2$$);
SELECT both_ways($$SELECT a.id, a.body > ANY (SELECT llm_generate(body) FROM c WHERE c.id > a.id ORDER BY 1) FROM a ORDER BY 1$$);
-- a recursive term in a sub-select, one that stops early, one with its own sub-select
SELECT both_ways($$SELECT a.id, (WITH RECURSIVE r (n, t) AS (SELECT 1, a.body UNION ALL SELECT n + 1, llm_generate(t || n) FROM r WHERE n < a.id) SELECT string_agg(t, ' ' ORDER BY n) FROM r) FROM a ORDER BY 1$$);
SELECT both_ways($$WITH RECURSIVE r (n, t) AS (SELECT 1, 'r' UNION ALL SELECT n + 1, llm_generate(t || n) FROM r) SELECT * FROM (SELECT * FROM r LIMIT 5) s$$);
SELECT both_ways($$WITH RECURSIVE r (n, t) AS (SELECT 1, 'r' UNION ALL SELECT n + 1, (SELECT max(llm_generate(body || t)) FROM c WHERE k = n) FROM r WHERE n < 4) SELECT * FROM r$$);
SELECT both_ways($$WITH s AS MATERIALIZED (SELECT k, llm_generate(body) g FROM c) SELECT a.id, (SELECT min(g) FROM s WHERE k = a.id) FROM a ORDER BY 1$$);
-- equal keys on both sides of a merge join: its inner side goes back to the mark
CREATE FUNCTION merged(query text) RETURNS SETOF text LANGUAGE plpgsql SET enable_nestloop = off SET enable_hashjoin = off AS $$
DECLARE
	line text;
BEGIN
	RETURN QUERY SELECT both_ways(query)::text;
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'Merge Join|Batch|Sort$|Materialize|Scan' THEN
			RETURN NEXT line;
		END IF;
	END LOOP;
END
$$;
SELECT merged($$SELECT x.id, y.id, y.g FROM c x JOIN (SELECT k, id, llm_generate(body) g FROM c ORDER BY k, id OFFSET 0) y USING (k) WHERE x.id < 9 ORDER BY 1, 2$$);
SELECT merged($$SELECT x.id, y.id, llm_generate(y.body) g FROM c x JOIN c y USING (k) WHERE x.id < 9 AND llm_generate(x.body) <> 'c4' ORDER BY 1, 2$$);
SELECT merged($$SELECT x.id, y.g FROM c x LEFT JOIN (SELECT llm_generate(k::text) g, id FROM c OFFSET 0) y ON y.g = x.k::text WHERE x.id < 9 ORDER BY 1, 2, y.id$$);
SELECT merged($$SELECT x.id, y.id FROM c x FULL JOIN (SELECT k, id FROM c WHERE llm_generate(body) LIKE 'c1%' OFFSET 0) y USING (k) ORDER BY 1, 2$$);
DROP FUNCTION merged(text);
-- kept in memory on the inner side, and scanned again from there
BEGIN;
SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_memoize = off;
SELECT both_ways($$SELECT a.id, s.g FROM a LEFT JOIN (SELECT id, llm_generate(body) g FROM c OFFSET 0) s ON s.id > a.id * 4 AND s.id < 20 ORDER BY 1, 2$$);
COMMIT;

-- cursors that go back
BEGIN;
DECLARE s SCROLL CURSOR FOR SELECT id, llm_generate(body) FROM c ORDER BY id;
FETCH LAST FROM s;
FETCH FIRST FROM s;
FETCH RELATIVE 3 FROM s;
FETCH PRIOR FROM s;
FETCH ABSOLUTE -2 FROM s;
MOVE BACKWARD 5 FROM s;
FETCH 1 FROM s;
MOVE BACKWARD ALL FROM s;
FETCH 1 FROM s;
-- without SCROLL: from its beginning, or not at all
DECLARE n CURSOR FOR SELECT id, llm_generate(body) FROM c;
MOVE ABSOLUTE 0 FROM n;
FETCH ABSOLUTE 3 FROM n;
SAVEPOINT s;
FETCH ABSOLUTE 2 FROM n;
ROLLBACK TO s;
FETCH FIRST FROM n;
ROLLBACK;
BEGIN;
DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT id, llm_generate(body) FROM c ORDER BY id;
FETCH 2 FROM h;
FETCH BACKWARD 1 FROM h;
COMMIT;
FETCH FORWARD 2 FROM h;
FETCH LAST FROM h;
FETCH PRIOR FROM h;
FETCH FIRST FROM h;
CLOSE h;
DROP TABLE c;
SELECT engine_idle();
