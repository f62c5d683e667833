-- node_whole.sql - the whole window from the first row on: only where all rows are sure to be read
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

SET llm_infer.max_tokens = 1;
CREATE TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, '@slow=30 b' || i, i % 3 FROM generate_series(1, 60) i;
CREATE TABLE empty (id int, body text);
ANALYZE docs, empty;

CREATE FUNCTION asked() RETURNS bigint LANGUAGE sql AS $$SELECT coalesce(sum(requests), 0)::bigint FROM llm.stat_users$$;
-- how many requests had gone out when row 1 came back: looked at by a statement, shown after it
CREATE SEQUENCE mark MINVALUE 0;
CREATE SEQUENCE ahead MINVALUE 0;
CREATE FUNCTION look(id int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF id = 1 THEN
		PERFORM setval('public.ahead', public.asked() - last_value) FROM public.mark;
	END IF;
	RETURN id;
END
$$;
-- of the last statement; then the next one begins
CREATE FUNCTION first_lot() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint := last_value FROM ahead;
BEGIN
	PERFORM engine_idle(), setval('ahead', 0), setval('mark', asked());
	RETURN n;
END
$$;
SELECT first_lot();

-- run to the end: by the client, also with a plan that was kept, as what is stored, and in functions
SELECT look(id), llm_generate(body) FROM docs \g /dev/null
SELECT first_lot();
PREPARE kept AS SELECT look(id), llm_generate(body) FROM docs;
SET plan_cache_mode = force_generic_plan;
EXECUTE kept \g /dev/null
SELECT first_lot();
CREATE TABLE made AS EXECUTE kept;
SELECT first_lot();
RESET plan_cache_mode;
COPY (SELECT look(id), llm_generate(body) FROM docs) TO '/dev/null';
SELECT first_lot();
INSERT INTO empty SELECT look(id), llm_generate(body) FROM docs;
SELECT first_lot();
TRUNCATE empty;
INSERT INTO empty SELECT id, llm_generate(body) FROM docs RETURNING look(id) \g /dev/null
SELECT first_lot();
TRUNCATE empty;
CREATE MATERIALIZED VIEW stored AS SELECT look(id), llm_generate(body) FROM docs;
SELECT first_lot();
DROP MATERIALIZED VIEW stored;
DROP TABLE made;
DO $$ BEGIN PERFORM look(id), llm_generate(body) FROM docs; END $$;
SELECT first_lot();
DO $$ BEGIN EXECUTE 'SELECT look(id), llm_generate(body) FROM docs'; END $$;
SELECT first_lot();
CREATE FUNCTION returned() RETURNS SETOF int LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT look(id) FROM docs WHERE llm_generate(body) <> ''; END $$;
SELECT count(*) FROM returned();
SELECT first_lot();
CREATE FUNCTION selected() RETURNS SETOF text LANGUAGE sql VOLATILE SET work_mem = '4MB' AS $$SELECT look(id) || llm_generate(body) FROM docs$$;
SELECT count(*) FROM selected();
SELECT first_lot();
BEGIN;
DECLARE held CURSOR WITH HOLD FOR SELECT look(id), llm_generate(body) FROM docs;
COMMIT;
CLOSE held;
SELECT first_lot();
BEGIN;
DECLARE c CURSOR FOR SELECT look(id), llm_generate(body) FROM docs;
MOVE ALL FROM c;
COMMIT;
SELECT first_lot();

-- some rows, and perhaps no more: the same statements
BEGIN;
DECLARE c CURSOR FOR SELECT look(id), llm_generate(body) FROM docs;
MOVE 1 FROM c;
SELECT first_lot();
-- then all that is left
MOVE ALL FROM c;
SELECT asked() - last_value AS others FROM mark;
COMMIT;
SELECT first_lot() IS NOT NULL;
DO $$ DECLARE r record; BEGIN FOR r IN SELECT look(id), llm_generate(body) FROM docs LOOP NULL; END LOOP; END $$;
SELECT first_lot();
DO $$ DECLARE i int; t text; BEGIN SELECT look(id), llm_generate(body) INTO i, t FROM docs; END $$;
SELECT first_lot(), asked() - last_value AS more FROM mark;
CREATE FUNCTION first_one() RETURNS text LANGUAGE sql VOLATILE SET work_mem = '4MB' AS $$SELECT look(id) || llm_generate(body) FROM docs$$;
SELECT first_one() IS NOT NULL;
SELECT first_lot();
SELECT selected() IS NOT NULL LIMIT 1;
SELECT first_lot();
DO $$ DECLARE i int; BEGIN INSERT INTO empty SELECT id, llm_generate(body) FROM docs RETURNING look(id) INTO i; EXCEPTION WHEN too_many_rows THEN NULL; END $$;
SELECT first_lot();

-- shapes: the first lot of each node, from the top down. All that are read to the end, whoever reads them ...
CREATE FUNCTION peaks_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	doc jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) ' || query INTO doc;
	RETURN (SELECT string_agg(p #>> '{}', ' ') FROM jsonb_path_query(doc, 'strict $.**."LLM Peak In Flight"') p);
END
$$;
SET enable_hashagg = on;
SELECT shape, peaks_of(query) FROM (VALUES
	('list', 'SELECT id, llm_generate(body) FROM docs'),
	('where', $$SELECT id FROM docs WHERE llm_generate(body) <> ''$$),
	('order', 'SELECT id, llm_generate(body) AS l FROM docs ORDER BY l'),
	('above a sort', 'SELECT id, llm_generate(body) FROM docs ORDER BY grp'),
	('group', 'SELECT llm_generate(body), count(*) FROM docs GROUP BY 1'),
	('count', 'SELECT count(llm_generate(body)) FROM docs'),
	('distinct', 'SELECT DISTINCT llm_generate(body) FROM docs'),
	('union all', 'SELECT llm_generate(body) FROM docs WHERE id <= 30 UNION ALL SELECT llm_generate(body) FROM docs WHERE id > 30'),
	('except', 'SELECT llm_generate(body) FROM docs EXCEPT SELECT body FROM docs'),
	('window', 'SELECT id, row_number() OVER (ORDER BY llm_generate(body)) FROM docs'),
	('lateral', 'SELECT l FROM docs, LATERAL (SELECT llm_generate(body) AS l) x'),
	('set', $$SELECT regexp_split_to_table(llm_generate(body), ' ') FROM docs$$),
	('limit', 'SELECT id, llm_generate(body) FROM docs LIMIT 50'),
	('limit, offset', 'SELECT id, llm_generate(body) FROM docs LIMIT 40 OFFSET 10'),
	('offset', 'SELECT id, llm_generate(body) FROM docs OFFSET 10'),
	('below a sort, limit', 'SELECT id, llm_generate(body) AS l FROM docs ORDER BY l LIMIT 1'),
	('array', 'SELECT ARRAY(SELECT llm_generate(body) FROM docs)'),
	('hashed sub-select', 'SELECT id FROM docs WHERE body IN (SELECT llm_generate(body) FROM docs OFFSET 0) OR id = 0'),
	('value of all', 'SELECT (SELECT max(llm_generate(body)) FROM docs)'),
	('with', 'WITH l AS (SELECT llm_generate(body) AS l FROM docs) SELECT * FROM l'),
	('with, read twice', 'WITH l AS (SELECT id, llm_generate(body) AS l FROM docs) SELECT count(*) FROM l UNION ALL SELECT count(*) FROM l'),
	('for update', 'SELECT id, llm_generate(body) FROM docs FOR UPDATE'),
	('update', 'UPDATE docs SET body = body WHERE llm_generate(body) IS NULL'),
	('insert', 'INSERT INTO empty SELECT id, llm_generate(body) FROM docs WHERE id <= 50'),
	('with, insert, limit', 'WITH i AS (INSERT INTO empty SELECT id, llm_generate(body) FROM docs RETURNING id) SELECT * FROM i LIMIT 1'),
	('merge', 'MERGE INTO empty e USING (SELECT id, llm_generate(body) AS l FROM docs) d ON e.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id + 100, d.l)')) s(shape, query);
-- ... and what the planner could do otherwise
BEGIN;
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_nestloop = off;
SELECT shape, peaks_of(query) FROM (VALUES
	('left join', 'SELECT d.l, e.id FROM (SELECT id, llm_generate(body) AS l FROM docs OFFSET 0) d LEFT JOIN empty e ON e.id = d.id'),
	('left join, hashed', 'SELECT d.l, o.id FROM docs o LEFT JOIN (SELECT id, llm_generate(body) AS l FROM docs WHERE id <= 40 OFFSET 0) d ON o.id = d.id')) s(shape, query);
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_nestloop = on;
SET LOCAL enable_material = off;
SELECT shape, peaks_of(query) FROM (VALUES
	('outer side', 'SELECT d.l, o.id FROM (SELECT id, llm_generate(body) AS l FROM docs OFFSET 0) d LEFT JOIN docs o ON o.id = d.id + 100'),
	('inner side', 'SELECT d.l, o.n FROM (VALUES (1), (2)) o(n) LEFT JOIN (SELECT id, llm_generate(body) AS l FROM docs WHERE id <= 40 OFFSET 0) d ON o.n <> d.id')) s(shape, query);
ROLLBACK;
-- not a row more than the window, than memory or than the setting allows
SET llm_infer.max_lookahead_rows = 20;
SELECT peaks_of('SELECT id, llm_generate(body) FROM docs');
RESET llm_infer.max_lookahead_rows;
SET work_mem = '64kB';
SELECT peaks_of('SELECT id, llm_generate(body) FROM docs')::int BETWEEN 4 AND 40 AS by_memory;
-- an answer may be as long as it may be: 16 kB each, until some have come
SELECT first_lot() IS NOT NULL;
SELECT look(id), llm_generate(body, max_tokens => 4000) FROM docs \g /dev/null
SELECT n BETWEEN 2 AND 6 AS by_answers FROM first_lot() n;
RESET work_mem;
-- who wants no end gives any number, and gets answers as long as others'
SELECT look(id), llm_generate(body, max_tokens => 2147483647) FROM docs \g /dev/null
SELECT first_lot();

-- what may stop: no more requests than with a window that grows
CREATE FUNCTION asked_by(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint := asked();
BEGIN
	BEGIN
		EXECUTE query;
		RAISE SQLSTATE 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
		NULL;
	END;
	RETURN asked() - before;
END
$$;
UPDATE docs SET body = 'b' || id;
VACUUM ANALYZE docs;
SELECT shape, asked_by(query) FROM (VALUES
	('where, limit', $$SELECT id FROM docs WHERE llm_generate(body) <> '' LIMIT 1$$),
	('limit that is no constant', 'SELECT id, llm_generate(body) FROM docs LIMIT (SELECT 1)'),
	('limit above a window', 'SELECT llm_generate(body), row_number() OVER (ORDER BY id) FROM docs LIMIT 1'),
	('limit above groups in order', 'SELECT DISTINCT ON (id) id, l FROM (SELECT id, llm_generate(body) AS l FROM docs ORDER BY id OFFSET 0) s LIMIT 1'),
	('limit above union all', 'SELECT llm_generate(body) FROM docs UNION ALL (SELECT upper(llm_generate(body)) FROM docs) LIMIT 1'),
	('limit above a left join', 'SELECT d.l FROM (SELECT id, llm_generate(body) AS l FROM docs OFFSET 0) d LEFT JOIN empty e ON e.id = d.id LIMIT 1'),
	('limit above with', 'WITH l AS (SELECT llm_generate(body) AS l FROM docs) SELECT * FROM l LIMIT 1'),
	('with, one reader stops', 'WITH l AS (SELECT llm_generate(body) AS l FROM docs) SELECT (SELECT l FROM l LIMIT 1) FROM docs WHERE id = 0 OR EXISTS (SELECT FROM l) LIMIT 1'),
	('with, the other never begins', 'WITH l AS (SELECT llm_generate(body) AS l FROM docs), o AS (SELECT max(l) AS l FROM l) (SELECT l FROM l LIMIT 1) UNION ALL SELECT l FROM o LIMIT 1'),
	('exists', $$SELECT EXISTS (SELECT FROM docs WHERE llm_generate(body) <> '')$$),
	('first value', 'SELECT (SELECT l FROM (SELECT llm_generate(body) AS l FROM docs OFFSET 0) s LIMIT 1)')) s(shape, query);
SELECT asked_by('SELECT * FROM (SELECT l, row_number() OVER (ORDER BY id) AS n FROM (SELECT id, llm_generate(body) AS l FROM docs ORDER BY id OFFSET 0) d) s WHERE n <= 1') <= 10 AS "top rows of a window";
BEGIN;
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_nestloop = off;
-- nothing to join with, found after the first row
SELECT asked_by('SELECT d.l FROM (SELECT id, llm_generate(body) AS l FROM docs OFFSET 0) d JOIN (SELECT id FROM docs WHERE random() < 0 OFFSET 0) e ON e.id = d.id') AS "empty hash";
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = on;
SELECT asked_by('SELECT d.l FROM (SELECT id, llm_generate(body) AS l FROM docs ORDER BY id OFFSET 0) d JOIN (SELECT id FROM docs WHERE id = 1 ORDER BY id OFFSET 0) e ON e.id = d.id') <= 16 AS "merge ends";
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_nestloop = on;
SELECT asked_by('SELECT o.n FROM (VALUES (1), (2)) o(n) WHERE EXISTS (SELECT FROM (SELECT id, llm_generate(body) AS l FROM docs OFFSET 0) d WHERE d.id >= o.n AND d.l IS NOT NULL)') <= 16 AS "semi join";
ROLLBACK;

-- a condition and what is asked of its rows: an error of the second shows while the first goes on
TRUNCATE docs;
INSERT INTO docs SELECT i, CASE WHEN i % 10 = 0 THEN '@error=first' ELSE '@slow=5 b' || i END FROM generate_series(1, 4000) i;
SET client_min_messages = error;
SELECT asked_by($q$DO $$ BEGIN
	PERFORM llm_generate('@error=second') FROM docs WHERE llm_generate(body, on_error => 'null') IS NULL;
EXCEPTION WHEN OTHERS THEN NULL; END $$$q$) < 1000 AS early;
RESET client_min_messages;
SELECT engine_idle();
DROP TABLE docs, empty;
DROP SEQUENCE mark, ahead;
DROP FUNCTION asked_by(text), peaks_of(text), first_lot(), first_one(), selected(), returned(), look(int), asked();
