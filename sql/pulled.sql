-- pulled.sql - filters that call the model wait for joins and cheap conditions when that is cheaper, and the rows stay the same
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE p (id int PRIMARY KEY, price int, name text);
INSERT INTO p SELECT i, i, 'p' || i FROM generate_series(1, 50) i;
CREATE TABLE r (id int PRIMARY KEY, pid int, body text);
INSERT INTO r SELECT i, 1 + i % 50, 'b' || i FROM generate_series(1, 200) i;
ANALYZE p, r;
CREATE VIEW v AS SELECT r.id, r.body, p.price, p.name FROM r JOIN p ON p.id = r.pid;
CREATE SEQUENCE seq;

-- Requests with the setting on, with it off and row by row; are the rows the same?
CREATE FUNCTION three_ways(query text, OUT pulled bigint, OUT plain bigint, OUT row_by_row bigint, OUT same boolean, OUT n int) LANGUAGE plpgsql AS $$
DECLARE
	rows text[];
	first text[];
	asked bigint[];
	before bigint;
	r record;
BEGIN
	same := true;
	FOR i IN 1..3 LOOP
		PERFORM set_config('llm_infer.enable_pullup', (i = 1)::text, true), set_config('llm_infer.enable_batch', (i < 3)::text, true);
		before := engine_requests();
		rows := '{}';
		FOR r IN EXECUTE query LOOP
			rows := rows || r::text;
		END LOOP;
		SELECT array_agg(x ORDER BY x) INTO rows FROM unnest(rows) x;
		asked[i] := engine_requests() - before;
		first := CASE i WHEN 1 THEN rows ELSE first END;
		n := coalesce(cardinality(first), 0);
		same := same AND first IS NOT DISTINCT FROM rows;
	END LOOP;
	pulled := asked[1]; plain := asked[2]; row_by_row := asked[3];
	PERFORM set_config('llm_infer.enable_pullup', 'on', true), set_config('llm_infer.enable_batch', 'on', true);
END
$$;

SELECT explain_of($$SELECT p.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45$$);
SET llm_infer.enable_pullup = off;
EXPLAIN (COSTS OFF) SELECT p.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45;
RESET llm_infer.enable_pullup;

-- joins of each kind, ON, sub-selects in WHERE, views, WITH
SELECT * FROM three_ways($$SELECT p.id, r.id FROM p JOIN r ON r.pid = p.id AND llm_generate(r.body) > 'b2' WHERE p.price > 45$$);
SELECT * FROM three_ways($$SELECT p.id, r.id FROM p, r WHERE r.pid = p.id AND p.price > 45 AND (llm_generate(r.body) > 'b2' OR r.id = 4)$$);
SELECT * FROM three_ways($$SELECT r.id, q.name FROM r LEFT JOIN p q ON q.id = r.id AND llm_generate(q.name) > 'p2' JOIN p ON r.pid = p.id WHERE p.price > 45$$) AS "ON of an outer join";
SELECT * FROM three_ways($$SELECT r.id, q.name FROM r LEFT JOIN p q ON q.id = r.id JOIN p ON r.pid = p.id WHERE p.price > 45 AND llm_generate(r.body) > 'b2'$$) AS "outer side";
SELECT * FROM three_ways($$SELECT r.id, q.name FROM (r JOIN p ON r.pid = p.id AND llm_generate(r.body) > 'b2' AND p.price > 45) LEFT JOIN p q ON q.id = r.id$$) AS "below an outer join";
SELECT * FROM three_ways($$SELECT q.id, r.id FROM p q LEFT JOIN (r JOIN p ON r.pid = p.id AND llm_generate(r.body) > 'b2' AND p.price > 45) ON q.id = r.id$$) AS "nullable side";
SELECT * FROM three_ways($$SELECT r.id FROM r WHERE llm_generate(body) > 'b2' AND EXISTS (SELECT FROM p WHERE p.id = r.pid AND price > 45)$$);
SELECT * FROM three_ways($$SELECT r.id FROM r WHERE llm_generate(body) > 'b2' AND NOT EXISTS (SELECT FROM p WHERE p.id = r.pid AND price <= 45)$$);
SELECT * FROM three_ways($$SELECT id FROM r WHERE llm_generate(body) > 'b2' AND pid IN (SELECT id FROM p WHERE price > 45)$$);
SELECT * FROM three_ways($$SELECT id, name FROM v WHERE llm_generate(body) > 'b2' AND price > 45$$);
SELECT * FROM three_ways($$SELECT v.id, x.name FROM v JOIN p x ON x.id = v.id WHERE llm_generate(v.body) > 'b2' AND v.price > 45$$);
SELECT * FROM three_ways($$WITH c AS MATERIALIZED (SELECT * FROM p WHERE price > 45) SELECT c, (SELECT count(*) FROM c d WHERE d.id < r.id) FROM r JOIN c ON c.id = r.pid WHERE llm_generate(r.body) > 'b2' AND r.id > (SELECT min(id) FROM c WHERE c.id > r.pid - 10)$$);
SELECT * FROM three_ways($$WITH RECURSIVE c AS (SELECT 50 AS id UNION SELECT c.id - 1 FROM c JOIN p ON p.id = c.id JOIN r ON r.pid = p.id AND llm_generate(r.body) > 'b2' WHERE c.id > 47) SELECT * FROM c$$);

-- what stands above WHERE stays there
SELECT * FROM three_ways($$SELECT p.name, count(*), max(r.body) FILTER (WHERE r.id > 100), grouping(p.name) FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45 GROUP BY ROLLUP (p.name) HAVING count(*) > 1$$);
SELECT * FROM three_ways($$SELECT DISTINCT ON (p.name) p, r.id, r.ctid, r.tableoid::regclass, row_number() OVER w FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45 WINDOW w AS (PARTITION BY p.name ORDER BY r.id) ORDER BY p.name, r.id DESC$$);
SELECT * FROM three_ways($$SELECT p.id, generate_series(1, 2), nextval('seq') > 0, llm_generate(p.name) FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45$$);
SELECT pulled, same, n FROM three_ways($$SELECT p.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45 ORDER BY r.id LIMIT 3$$);
SELECT * FROM three_ways($$SELECT id FROM r WHERE id = 1 UNION ALL SELECT p.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45$$);
SELECT * FROM three_ways($$SELECT id, (SELECT count(*) FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body || o.id) > 'b2' AND p.price > 45 AND r.id > o.id) FROM p o WHERE id <= 2$$) AS correlated;
SELECT * FROM three_ways($$SELECT r.id, j, j.id, j.x FROM r JOIN (p FULL JOIN (SELECT 50 AS id, 1 AS x) z USING (id)) j ON j.id = r.pid AND j.price > 45 WHERE llm_generate(r.body) > 'b2'$$) AS merged_columns;

SELECT * FROM three_ways($$SELECT d.id, l.n FROM p d, LATERAL (SELECT r.id + d.id AS n FROM r JOIN p ON p.id = r.pid WHERE r.id > d.id * 3 AND llm_generate(r.body) > 'b2' AND p.price > 45) l WHERE d.id <= 2$$) AS in_lateral;
-- several: of one table each in their order, of both tables after them
SELECT explain_of($$SELECT r.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(p.name || r.body) > 'p' AND llm_generate(r.body) > 'b2' AND llm_generate(p.name) < 'p49' AND p.price > 45$$);
SELECT * FROM three_ways($$SELECT r.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(p.name || r.body) > 'p' AND llm_generate(r.body) > 'b2' AND llm_generate(p.name) < 'p49' AND p.price > 45$$);
-- levels by themselves
SELECT * FROM three_ways($$SELECT a.id FROM (SELECT r.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45 OFFSET 0) a JOIN (SELECT r.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' OFFSET 0) b USING (id)$$);

-- the cost says no: joins that drop nothing, or make more rows; one table; what needs few rows
SELECT * FROM three_ways($$SELECT r.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2'$$);
SELECT * FROM three_ways($$SELECT r.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(p.name) > 'p2'$$);
SELECT * FROM three_ways($$SELECT id FROM r WHERE llm_generate(body) > 'b2' AND id <= 20$$);
SELECT * FROM three_ways($$SELECT EXISTS (SELECT FROM p JOIN r ON r.pid = p.id AND r.id = 7 WHERE llm_generate(p.name) > 'b2')$$);

-- not pulled: locked rows, volatile functions of others beside it, calls in FROM, UPDATE and DELETE
SELECT * FROM three_ways($$SELECT p.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45 FOR UPDATE OF r$$);
SELECT * FROM three_ways($$SELECT p.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45 AND nextval('seq') > 0$$);
SELECT * FROM three_ways($$SELECT p.id, s FROM p JOIN r ON r.pid = p.id, LATERAL generate_series(r.id, r.id + nextval('seq') * 0) s WHERE llm_generate(r.body) > 'b2' AND p.price > 45$$);
-- nor columns of FROM that may fail for rows that do not pass, unless the condition reads them
SELECT * FROM three_ways($$SELECT s.x FROM (SELECT *, 1 / (id - 45) AS x FROM r) s JOIN p ON p.id = s.pid WHERE llm_generate(s.body) <> 'b45' AND p.price > 45$$);
SELECT * FROM three_ways($$SELECT s.x FROM (SELECT *, id AS x FROM r UNION ALL SELECT *, 1 / (id - 45) FROM r) s JOIN p ON p.id = s.pid WHERE llm_generate(s.body) <> 'b45' AND p.price > 45$$);
SELECT * FROM three_ways($$SELECT j.x FROM ((SELECT *, 1 / (id - 45) AS x FROM r) s JOIN p ON p.id = s.pid) j (rid, pid, body, x) WHERE llm_generate(j.body) <> 'b45' AND j.price > 45$$);
SELECT * FROM three_ways($$SELECT s.id FROM (SELECT *, 1 / (id - 45) AS x FROM r) s JOIN p ON p.id = s.pid WHERE llm_generate(s.body) <> 'b45' AND p.price > 45$$);
SELECT * FROM three_ways($$SELECT s.x FROM (SELECT *, 'x' || body AS x FROM r) s JOIN p ON p.id = s.pid WHERE llm_generate(s.x) > 'xb2' AND p.price > 45$$);
SELECT * FROM three_ways($$SELECT p.id, one FROM p JOIN (SELECT *, llm_generate(body, max_tokens => 1) AS one FROM r OFFSET 0) r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45$$);
SELECT requests_of($$DELETE FROM r USING p WHERE r.pid = p.id AND p.price > 45 AND llm_generate(r.body) = 'x' RETURNING 1$$);
SELECT requests_of($$WITH u AS (UPDATE r SET body = 'x' FROM (SELECT r.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) = 'x' AND p.price > 45) s WHERE s.id = r.id RETURNING 1) SELECT * FROM u$$) AS its_source;

SELECT requests_of($$WITH i AS (INSERT INTO r SELECT 1000 + r.id, 0, body FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) = 'x' AND p.price > 45 RETURNING 1) SELECT * FROM i$$) AS inserted_from;
-- greedy: list and WHERE share above the join too
SET llm_infer.temperature = 0;
SELECT * FROM three_ways($$SELECT r.id, llm_generate(r.body), llm_generate('const') FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45$$);
RESET llm_infer.temperature;

-- policies and security barriers: nothing is seen earlier
CREATE ROLE llm_pulled_reader;
GRANT SELECT ON p, r TO llm_pulled_reader;
GRANT USAGE ON FOREIGN SERVER echo TO llm_pulled_reader;
ALTER TABLE r ENABLE ROW LEVEL SECURITY;
CREATE POLICY first ON r TO llm_pulled_reader USING (id <= 100);
CREATE VIEW barrier WITH (security_barrier) AS SELECT r.*, p.price FROM r JOIN p ON p.id = r.pid WHERE p.price > 48;
GRANT SELECT ON barrier TO llm_pulled_reader;
CREATE FUNCTION noted(t text) RETURNS boolean LANGUAGE plpgsql COST 0.001 AS $$BEGIN RAISE WARNING 'seen %', t; RETURN true; END$$;
SET ROLE llm_pulled_reader;
EXPLAIN (COSTS OFF) SELECT r.id FROM r JOIN p ON p.id = r.pid WHERE llm_generate(r.body) > 'b2' AND p.price > 45;
SELECT r.id FROM r JOIN p ON p.id = r.pid WHERE llm_generate(r.body) > 'b94' AND p.price > 48 ORDER BY 1;
SELECT b.id FROM barrier b JOIN p ON p.id = b.id AND p.price = 49 WHERE llm_generate(b.body) > 'b2' AND noted(b.body);
SELECT error_of('SELECT r.id FROM r JOIN p ON p.id = r.pid JOIN pg_authid a ON a.oid = r.id::oid WHERE llm_generate(r.body) > ''b2'' AND p.price > 45') AS rights;
RESET ROLE;
DROP VIEW barrier;
DROP POLICY first ON r;
ALTER TABLE r DISABLE ROW LEVEL SECURITY;
REVOKE USAGE ON FOREIGN SERVER echo FROM llm_pulled_reader;
REVOKE ALL ON p, r FROM llm_pulled_reader;
DROP ROLE llm_pulled_reader;

-- kept plans, cursors, functions
PREPARE q AS SELECT r.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > $1;
SELECT requests_of('EXECUTE q(45)') AS custom;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE q(45);
RESET plan_cache_mode;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT p.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b93' AND p.price > 45 ORDER BY r.id;
FETCH ALL FROM c;
FETCH BACKWARD 2 FROM c;
COMMIT;

-- HAVING and the SELECT list of groups: after what is cheap, once for a group that is left
SELECT * FROM three_ways($$SELECT pid, llm_generate('Sum up: ' || string_agg(body, ' ')) FROM r GROUP BY pid HAVING pid > 45$$);
SELECT * FROM three_ways($$SELECT pid FROM r GROUP BY pid HAVING llm_generate(string_agg(body, ' ')) > 'b2' AND count(*) > 20$$) AS none;
SELECT * FROM three_ways($$SELECT pid, llm_generate(min(body)) FROM r GROUP BY pid HAVING llm_generate(max(body)) > 'b9' AND max(id) > 195$$);
SELECT * FROM three_ways($$SELECT name, count(*) FROM v GROUP BY name HAVING llm_generate(name) > 'p2' AND min(price) > 45$$);
SELECT * FROM three_ways($$SELECT p.name FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) > 'b2' AND p.price > 45 GROUP BY p.name HAVING llm_generate(p.name || count(*)) > 'p' AND count(*) > 1$$);

-- ORDER BY and LIMIT: all rows to order by an answer, the first ones only where that does not matter
SELECT * FROM three_ways($$SELECT id FROM r ORDER BY llm_generate(body) DESC, id LIMIT 3$$);
SELECT * FROM three_ways($$SELECT id, llm_generate(body) FROM r ORDER BY id DESC LIMIT 3$$);
SELECT * FROM three_ways($$SELECT id FROM (SELECT id, llm_generate(body) AS x FROM r ORDER BY id LIMIT 7) s ORDER BY x DESC LIMIT 3$$);

SELECT engine_idle();
DROP FUNCTION three_ways(text), noted(text);
DROP SEQUENCE seq;
DROP VIEW v;
DROP TABLE p, r;
