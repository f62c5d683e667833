-- node_memoize.sql - rows with equal inputs have answers of their own, wherever the call hides from the planner
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, grp int);
INSERT INTO docs SELECT i, i % 5 FROM generate_series(1, 200) i;
CREATE TEMP TABLE groups (grp int PRIMARY KEY, name text);
INSERT INTO groups SELECT i, 'g' || i FROM generate_series(0, 4) i;
ANALYZE docs, groups;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET llm_infer.temperature = 1;

-- the planner puts a Memoize over each inner side, and takes ours away
CREATE FUNCTION memoizes(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	line text;
	found boolean := false;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		found := found OR line LIKE '%Memoize%';
	END LOOP;
	RETURN found;
END
$$;
CREATE TEMP TABLE shapes (n serial, place text, query text);
INSERT INTO shapes (place, query) VALUES
	('sub-select in the list', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT name || (SELECT ?(g.name)) AS a FROM groups g WHERE g.grp = d.grp OFFSET 0) l'),
	('scan in a sub-select', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT (SELECT ?(name) FROM groups g WHERE g.grp = d.grp) AS a OFFSET 0) l'),
	('two sub-selects deep', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT (SELECT max((SELECT ?(g.name))) FROM groups g WHERE g.grp = d.grp) AS a OFFSET 0) l'),
	('sub-select in WHERE', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT name AS a FROM groups g WHERE g.grp = d.grp AND name <> (SELECT ?(g.name || d.grp)) OFFSET 0) l'),
	('CTE', 'SELECT d.id, l.a FROM docs d, LATERAL (WITH c AS MATERIALIZED (SELECT ?(name) AS a FROM groups g WHERE g.grp = d.grp) SELECT a FROM c OFFSET 0) l'),
	('VALUES', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT x AS a FROM (VALUES (?(d.grp::text)), (NULL)) v(x) OFFSET 0) l'),
	('argument of a function in FROM', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT x AS a FROM generate_series(1, (SELECT length(?(d.grp::text)))) x OFFSET 0) l'),
	('LIMIT', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT name AS a FROM groups g LIMIT (SELECT length(?(d.grp::text)))) l'),
	('condition of an index', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT name AS a FROM groups g WHERE g.grp = (SELECT length(?(d.grp::text))) OFFSET 0) l'),
	('member of UNION ALL', 'SELECT d.id, l.a FROM docs d, LATERAL (SELECT a FROM (SELECT ?(name) AS a FROM groups g WHERE g.grp = d.grp UNION ALL SELECT NULL) u OFFSET 0) l');
SELECT place, memoizes(replace(query, '?', 'upper')) AS without_call, memoizes(replace(query, '?', 'llm_generate')) AS with_call,
	requests_of(replace(query, '?', 'llm_generate')) AS requests FROM shapes ORDER BY n;
SET llm_infer.enable_batch = off;
SELECT place, memoizes(replace(query, '?', 'llm_generate')) AS with_call, requests_of(replace(query, '?', 'llm_generate')) AS requests FROM shapes ORDER BY n;
RESET llm_infer.enable_batch;
-- a CTE that is made once for all rows is no reason to do without
SELECT memoizes($$WITH c AS MATERIALIZED (SELECT grp, llm_generate(name) AS a FROM groups) SELECT d.id, l.a FROM docs d, LATERAL (SELECT a FROM c WHERE c.grp = d.grp OFFSET 0) l$$),
	requests_of($$WITH c AS MATERIALIZED (SELECT grp, llm_generate(name) AS a FROM groups) SELECT d.id, l.a FROM docs d, LATERAL (SELECT a FROM c WHERE c.grp = d.grp OFFSET 0) l$$);

DROP FUNCTION memoizes(text);
