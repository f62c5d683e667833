-- unread.sql - columns that nobody reads are not asked for, and every other one is
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, 'b' || i, i % 3 FROM generate_series(1, 20) i;
ANALYZE docs;
CREATE VIEW v AS SELECT id, grp, llm_generate(body) AS summary, llm_generate('Tags of ' || body) AS tags FROM docs;
CREATE VIEW outer_v AS SELECT id, summary || '!' AS loud, tags FROM v;
CREATE VIEW barrier WITH (security_barrier) AS SELECT id, llm_generate(body) AS summary FROM docs WHERE grp = 1;

EXPLAIN (COSTS OFF) SELECT id FROM v;
EXPLAIN (COSTS OFF) SELECT count(*) FROM v WHERE grp = 1;
SELECT requests_of('SELECT id FROM v'), requests_of('SELECT count(*) FROM v'), requests_of('SELECT id, tags FROM v') AS one_of_two, requests_of('SELECT id FROM outer_v'), requests_of('SELECT id FROM barrier');
SELECT requests_of('SELECT id, loud FROM outer_v') AS inner_one;
SELECT requests_of('SELECT id FROM (SELECT id, x FROM (SELECT id, llm_generate(body) AS x FROM docs OFFSET 0) s OFFSET 0) t') AS two_levels;
SELECT requests_of('WITH c AS (SELECT id FROM v) SELECT * FROM c') AS in_with, requests_of('SELECT 1 FROM docs d WHERE EXISTS (SELECT FROM v WHERE v.id = d.id)') AS in_exists, requests_of('SELECT (SELECT max(id) FROM v)') AS in_sublink;
SELECT requests_of('SELECT d.id FROM docs d JOIN v USING (id)') AS joined, requests_of('SELECT d.id FROM docs d LEFT JOIN LATERAL (SELECT d.id, llm_generate(d.body) x OFFSET 0) s ON true') AS lateral;
SELECT requests_of('SELECT n FROM (SELECT grp, count(*) n, llm_generate(min(body)) FROM docs GROUP BY grp) s') AS grouped, requests_of('SELECT 1 FROM (SELECT llm_generate(min(body)) FROM docs) s') AS aggregate;
SELECT count(*) FROM (SELECT llm_generate(min(body)) FROM docs) s;
UPDATE docs SET grp = v.grp FROM v WHERE v.id = docs.id;

-- read: by name, as a row, by a sub-select, by a join, by a condition or an order, also where it is not shown
SELECT requests_of('SELECT v FROM v') AS whole, requests_of('SELECT * FROM v') AS star, requests_of('SELECT id FROM v WHERE summary = ''b1''') AS condition, requests_of('SELECT id FROM v ORDER BY tags') AS ordered;
SELECT requests_of('SELECT id, (SELECT count(*) FROM docs d WHERE d.body = v.summary) FROM v') AS outer_reference, requests_of('SELECT v.id, x FROM v, LATERAL (SELECT v.tags AS x OFFSET 0) s') AS lateral;
SELECT requests_of('SELECT a.id FROM v a FULL JOIN v b USING (id, summary)') AS both_sides, requests_of('SELECT count(summary) FROM v NATURAL FULL JOIN (SELECT id, ''x'' AS summary FROM docs) w') >= 20 AS full_join;
SELECT requests_of('SELECT to_json(v) FROM v') AS to_json, requests_of('SELECT (v).tags FROM v') AS field;

-- what counts without being read: set operations, DISTINCT, grouping, sets, and volatile functions of others
SELECT requests_of('SELECT id FROM (SELECT id, llm_generate(body) FROM docs UNION SELECT 0, ''x'') s') AS united, requests_of('SELECT id FROM (SELECT DISTINCT grp AS id, llm_generate(body) FROM docs) s') AS distinct_ones,
	requests_of('SELECT n FROM (SELECT llm_generate(body), count(*) n FROM docs GROUP BY 1) s') AS grouped, requests_of('SELECT id FROM (SELECT id, llm_generate(body) FROM docs ORDER BY 2 LIMIT 3) s') AS sorted,
	requests_of('SELECT id FROM (SELECT id, llm_generate_stream(body) FROM docs) s') AS streamed;
CREATE SEQUENCE seq;
SELECT requests_of($$SELECT id FROM (SELECT id, llm_generate(body || nextval('seq')) FROM docs) s$$) AS of_others, nextval('seq');
CREATE FUNCTION noted(t text) RETURNS text LANGUAGE plpgsql AS $$BEGIN PERFORM nextval('seq'); RETURN t; END$$;
SELECT requests_of($$SELECT id FROM (SELECT id, noted(llm_generate(body)) FROM docs) s$$) AS of_others, nextval('seq');

-- off, and the same rows
SET llm_infer.skip_unread_columns = off;
SELECT requests_of('SELECT id FROM v'), requests_of('SELECT id FROM outer_v');
SELECT array_agg(loud ORDER BY id) = (SELECT array_agg(body || '!' ORDER BY id) FROM docs) AS same FROM outer_v;
RESET llm_infer.skip_unread_columns;
SELECT array_agg(loud ORDER BY id) = (SELECT array_agg(body || '!' ORDER BY id) FROM docs) AS same FROM outer_v;

-- a plan that is kept
PREPARE p AS SELECT id FROM v WHERE id = $1;
SELECT requests_of('EXECUTE p(1)') AS custom;
SET plan_cache_mode = force_generic_plan;
SELECT requests_of('EXECUTE p(1)') AS generic;
RESET plan_cache_mode;

DROP VIEW v, outer_v, barrier CASCADE;
DROP FUNCTION noted(text);
DROP SEQUENCE seq;
DROP TABLE docs;
