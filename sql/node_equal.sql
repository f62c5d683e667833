-- node_equal.sql - the batch node and the scalar path give the same rows
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, grp int, label text);
INSERT INTO docs SELECT i, CASE WHEN i % 17 = 0 THEN NULL ELSE 'b' || i END, i % 5, CASE WHEN i % 3 = 0 THEN 'l' || i END FROM generate_series(1, 120) i;
CREATE TABLE groups (grp int PRIMARY KEY, name text);
INSERT INTO groups SELECT i, 'g' || i FROM generate_series(0, 6) i;
CREATE TABLE parts (id int, body text) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parts SELECT id, body FROM docs;
CREATE VIEW answers AS SELECT id, llm_generate(body) AS g FROM docs;
CREATE FUNCTION two(x text) RETURNS text LANGUAGE sql AS $$SELECT llm_generate(x) || llm_generate('2' || x)$$;
ANALYZE docs, groups, parts;

-- Rows of a query as one text, in order, by one of the two ways.
CREATE FUNCTION rows_of(query text, batch boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
	lines text[];
BEGIN
	PERFORM set_config('llm_infer.enable_batch', batch::text, true);
	FOR r IN EXECUTE query LOOP
		lines := lines || r::text;
	END LOOP;
	RETURN array_to_string(lines, E'\n');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || SQLERRM;
END
$$;

-- LLM Batch nodes in a query's plan.
CREATE FUNCTION nodes_of(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	line text;
	n int := 0;
BEGIN
	PERFORM set_config('llm_infer.enable_batch', 'on', true);
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		n := n + (line LIKE '%(LLM Batch)%')::int;
	END LOOP;
	RETURN n;
END
$$;

CREATE TABLE shapes (n serial, query text);
INSERT INTO shapes (query) VALUES
	('SELECT id, llm_generate(body) FROM docs'),
	('SELECT id, llm_generate(body) FROM docs ORDER BY id DESC LIMIT 7 OFFSET 3'),
	('SELECT id FROM docs WHERE llm_generate(body) LIKE ''b1%'' AND grp <> 2'),
	('SELECT id FROM docs WHERE llm_generate(body) LIKE ''b1%'' LIMIT 4'),
	('SELECT id, llm_generate(label) FROM docs WHERE llm_generate(body) > ''b5'' AND llm_generate(label) < ''l7'' ORDER BY id'),
	('SELECT id, substr(body, 2)::int FROM docs WHERE llm_generate(body) <> ''x'''),
	('SELECT id FROM docs WHERE llm_generate(body) IS NULL'),
	('SELECT llm_generate(llm_generate(body) || id), llm_generate(''const'') FROM docs'),
	('SELECT coalesce(label, llm_generate(body)), CASE WHEN grp = 1 THEN llm_generate(body) END FROM docs'),
	('SELECT grp, count(*), max(llm_generate(body)) FROM docs GROUP BY grp ORDER BY grp'),
	('SELECT llm_generate(''g'' || grp) g, count(*) FROM docs GROUP BY 1 HAVING count(*) > 1 ORDER BY 1'),
	('SELECT DISTINCT llm_generate(grp::text) FROM docs ORDER BY 1'),
	('SELECT DISTINCT ON (grp) grp, llm_generate(body) FROM docs ORDER BY grp, id'),
	('SELECT d.id, llm_generate(d.body || g.name) FROM docs d JOIN groups g USING (grp) ORDER BY 1'),
	('SELECT d.id, g.name FROM docs d LEFT JOIN groups g ON g.grp = d.grp AND llm_generate(d.body) = ''b7'' ORDER BY 1'),
	('SELECT d.id, s.g FROM docs d JOIN (SELECT grp, llm_generate(name) g FROM groups) s USING (grp) ORDER BY 1'),
	('SELECT d.id FROM docs d WHERE EXISTS (SELECT 1 FROM groups g WHERE g.grp = d.grp AND llm_generate(g.name) = ''g3'') ORDER BY 1'),
	('SELECT grp, (SELECT string_agg(llm_generate(body), '' '' ORDER BY id) FROM docs d WHERE d.grp = g.grp) FROM groups g ORDER BY 1'),
	('SELECT g.grp, l.* FROM groups g, LATERAL (SELECT llm_generate(d.body || g.name) FROM docs d WHERE d.grp = g.grp ORDER BY d.id LIMIT 2) l ORDER BY 1, 2'),
	('SELECT a.id, a.g, b.g FROM answers a JOIN answers b USING (id) ORDER BY 1 LIMIT 10'),
	('WITH w AS MATERIALIZED (SELECT id, llm_generate(body) g FROM docs) SELECT * FROM w x JOIN w y USING (g) ORDER BY 1'),
	('SELECT llm_generate(body) FROM docs WHERE id < 5 UNION SELECT llm_generate(label) FROM docs WHERE id < 5 ORDER BY 1'),
	('(SELECT llm_generate(body) FROM docs) EXCEPT (SELECT llm_generate(body) FROM docs WHERE id > 9) ORDER BY 1'),
	('SELECT id, llm_generate(body) FROM parts ORDER BY id'),
	('SELECT id, row_number() OVER (ORDER BY llm_generate(body)), lag(llm_generate(body)) OVER (ORDER BY id) FROM docs ORDER BY id'),
	('SELECT llm_generate(body), generate_series(1, 2) FROM docs WHERE id < 9'),
	('SELECT (llm_generate_result(body)).text, (llm_generate_result(body)).finish_reason, (llm_generate_result(body)).completion_tokens FROM docs'),
	('SELECT llm_generate(ARRAY[body, label, ''x'']) FROM docs'),
	('SELECT llm_tokenize(body), llm_count_tokens(label), llm_detokenize(llm_tokenize(body)) FROM docs'),
	('SELECT two(body), two(llm_generate(label)) FROM docs'),
	('SELECT d, llm_generate(d::text), d.ctid FROM docs d'),
	('SELECT llm_generate(body, max_tokens => grp, stop => ARRAY[''7'']), llm_generate(body, options => jsonb_build_object(''max_tokens'', grp)) FROM docs'),
	('SELECT llm_generate(''@seed'', seed => id) FROM docs'),
	('SELECT id, llm_generate(CASE WHEN id = 60 THEN ''@error=sixty'' ELSE body END) FROM docs ORDER BY id'),
	('SELECT id, llm_generate(CASE WHEN id = 60 THEN ''@error=sixty'' ELSE body END) FROM docs ORDER BY id LIMIT 5'),
	('SELECT id, llm_generate(CASE WHEN grp = 3 THEN ''@error=three'' ELSE body END, on_error => ''null'') FROM docs ORDER BY id'),
	('SELECT llm_generate(body, max_tokens => id - 5) FROM docs ORDER BY id'),
	('WITH u AS (UPDATE docs SET label = llm_generate(body || ''!'') WHERE llm_generate(body) LIKE ''b2%'' RETURNING id, label) SELECT * FROM u ORDER BY 1'),
	('WITH d AS (DELETE FROM parts WHERE llm_generate(body) LIKE ''b3%'' RETURNING id) SELECT * FROM d ORDER BY 1'),
	('WITH i AS (INSERT INTO groups SELECT id + 100, llm_generate(label) FROM docs RETURNING *) SELECT * FROM i ORDER BY 1');

SET client_min_messages = error;
-- one row per shape: both ways give the same, there is something to compare, and so many nodes took part
SELECT n, b IS NOT DISTINCT FROM s AS same, length(b) > 0 AS some, nodes_of(query) AS nodes, CASE WHEN b IS DISTINCT FROM s THEN query END AS query
FROM shapes, LATERAL (SELECT rows_of(query, true) b OFFSET 0) x, LATERAL (SELECT rows_of(query, false) s OFFSET 0) y
WHERE query NOT LIKE 'WITH _ AS (%' ORDER BY n;
-- those that write, each from the same state
DO $$
DECLARE
	q record;
	a text;
	b text;
BEGIN
	FOR q IN SELECT * FROM shapes WHERE query LIKE 'WITH _ AS (%' ORDER BY n LOOP
		BEGIN
			a := rows_of(q.query, true);
			RAISE SQLSTATE 'RB001';
		EXCEPTION WHEN SQLSTATE 'RB001' THEN
			NULL;
		END;
		BEGIN
			b := rows_of(q.query, false);
			RAISE SQLSTATE 'RB001';
		EXCEPTION WHEN SQLSTATE 'RB001' THEN
			NULL;
		END;
		IF a IS DISTINCT FROM b OR length(a) < 10 THEN
			RAISE EXCEPTION '%: % instead of %', q.query, a, b;
		END IF;
	END LOOP;
END
$$;
SELECT n, nodes_of(query) AS nodes FROM shapes WHERE query LIKE 'WITH _ AS (%' ORDER BY n;
DROP TABLE docs, groups, parts, shapes CASCADE;
DROP FUNCTION rows_of(text, boolean), nodes_of(text), two(text);
SELECT engine_idle();
