-- node_row_by_row.sql - what no LLM Batch node takes part in, by its nature: the same answers, one call after the other
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, grp int, note text);
INSERT INTO docs SELECT i, 'b' || i, i % 4 FROM generate_series(1, 24) i;
CREATE TABLE groups (grp int PRIMARY KEY, name text);
INSERT INTO groups SELECT i, 'g' || i FROM generate_series(0, 3) i;
CREATE TABLE log (id int, answer text DEFAULT llm_generate('default'));
ANALYZE docs, groups, log;
CREATE FUNCTION ask(x text) RETURNS text LANGUAGE plpgsql AS $$BEGIN RETURN llm_generate(x); END$$;
CREATE FUNCTION pair(x text) RETURNS SETOF text LANGUAGE sql AS $$SELECT llm_generate(x || i) FROM (VALUES (1), (2)) v (i)$$;
CREATE FUNCTION answered() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.note := llm_generate('t' || NEW.id); RETURN NEW; END$$;

CREATE TEMP TABLE shapes (n serial, what text, query text, wrote text);
INSERT INTO shapes (what, query) VALUES
	('outer join: ON decides whether a row has a match', 'SELECT g.grp, d.id FROM groups g LEFT JOIN docs d ON d.grp = g.grp AND llm_generate(d.body || g.name) < ''b2'' ORDER BY 1, 2'),
	('full join', 'SELECT g.grp, d.id FROM groups g FULL JOIN docs d ON d.grp = g.grp AND llm_generate(d.body || g.name) < ''b2'' ORDER BY 1, 2'),
	('guard: volatile', 'SELECT CASE WHEN random() >= 0 THEN llm_generate(body) END FROM docs ORDER BY id'),
	('guard: sub-select', 'SELECT coalesce((SELECT NULL::text FROM groups g WHERE g.grp = d.grp), llm_generate(body)) FROM docs d ORDER BY id'),
	('row comparison', 'SELECT id FROM docs WHERE (grp, llm_generate(body)) > (2, ''b2'') ORDER BY id'),
	('subscript', 'SELECT (ARRAY[1, 2, 3])[llm_count_tokens(body)] FROM docs ORDER BY id'),
	('CASE x WHEN call', 'SELECT CASE body WHEN llm_generate(''b1'') THEN 1 WHEN llm_generate(''b2'') THEN 2 END FROM docs ORDER BY id'),
	('window function that chooses rows', 'SELECT id, first_value(llm_generate(body)) OVER (PARTITION BY grp ORDER BY id), lag(llm_generate(body), 1) OVER (ORDER BY id) FROM docs ORDER BY id'),
	('frame without its own row', 'SELECT id, count(llm_generate(body)) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) FROM docs WHERE id < 7 ORDER BY id'),
	('direct argument', 'SELECT grp, percentile_disc(length(llm_generate(''ab'')) / 4.0) WITHIN GROUP (ORDER BY id) FROM docs GROUP BY grp ORDER BY grp'),
	('one row: SELECT', 'SELECT llm_generate(''a''), llm_generate(llm_generate(''b''))'),
	('one row: FROM', 'SELECT * FROM llm_generate(''a'') WITH ORDINALITY'),
	('rows of VALUES', 'SELECT * FROM (VALUES (1, llm_generate(''a'')), (2, llm_generate(''b''))) v ORDER BY 1'),
	('LIMIT, OFFSET', 'SELECT id FROM docs ORDER BY id LIMIT llm_count_tokens(''abc'') OFFSET llm_count_tokens(''a'')'),
	('sub-select of one row', 'SELECT (SELECT llm_generate(d.body)) FROM docs d ORDER BY id'),
	('sub-select over a function', 'SELECT id FROM docs d WHERE ''x'' IN (SELECT unnest(ARRAY[llm_generate(d.body), ''x''])) ORDER BY id'),
	('LATERAL of a union', 'SELECT d.id, x.g FROM docs d, LATERAL (SELECT llm_generate(d.body) AS g UNION ALL SELECT ''z'') x ORDER BY 1, 2'),
	('function: its own statement each time', 'SELECT ask(body), pair(body) FROM docs ORDER BY id'),
	('stream', 'SELECT id, llm_generate_stream(body) FROM docs ORDER BY id');
INSERT INTO shapes (what, query, wrote) VALUES
	('RETURNING', 'WITH u AS (UPDATE docs SET note = body RETURNING id, llm_generate(note) g) INSERT INTO log SELECT * FROM u', 'SELECT * FROM log ORDER BY id'),
	('VALUES', 'INSERT INTO log VALUES (1, llm_generate(''a'')), (2, llm_generate(''b''))', 'SELECT * FROM log ORDER BY id'),
	('DEFAULT of one row', 'INSERT INTO log (id) VALUES (1)', 'SELECT * FROM log ORDER BY id'),
	('ON CONFLICT', 'INSERT INTO docs SELECT id FROM docs WHERE id < 4 ON CONFLICT (id) DO UPDATE SET note = llm_generate(docs.body)', 'SELECT * FROM docs ORDER BY id'),
	('MERGE: conditions and actions', 'MERGE INTO docs d USING groups g ON g.grp = d.grp WHEN MATCHED AND llm_generate(d.body) < ''b2'' THEN UPDATE SET note = llm_generate(g.name) WHEN MATCHED THEN DELETE', 'SELECT * FROM docs ORDER BY id'),
	('SET from a sub-select of several', 'UPDATE docs SET (body, note) = (SELECT llm_generate(docs.body), ''x'')', 'SELECT * FROM docs ORDER BY id');
SELECT s.n, s.what, w.* FROM shapes s, LATERAL both_ways(query, wrote) w ORDER BY s.n;

-- a merge join goes back on its inner side; PostgreSQL 18 puts b on the outer one
BEGIN;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_nestloop = off;
SET LOCAL enable_sort = off;
SELECT same, n, nodes = (current_setting('server_version_num')::int >= 180000)::int AS row_by_row, batched, row_by_row AS asked FROM both_ways('SELECT a.id FROM docs a JOIN docs b ON b.id = a.id AND llm_generate(b.body) > ''b2'' ORDER BY 1');
COMMIT;
-- 200 calls that each decide on the next are as many nodes; one more is none
SELECT c.n, w.same, w.nodes, w.batched, w.row_by_row FROM (VALUES (200), (201)) c (n),
	LATERAL (SELECT format('SELECT coalesce(%s) FROM docs WHERE id = 1', string_agg(format('nullif(llm_generate(%s::text), %1$L)', i), ', ')) FROM generate_series(1, c.n) i) q (query),
	LATERAL both_ways(query) w ORDER BY c.n;
-- triggers: row by row before and after rows; over a whole statement's rows they have a table to read
CREATE TRIGGER before BEFORE INSERT ON docs FOR EACH ROW WHEN (llm_generate(NEW.body) <> 'no') EXECUTE FUNCTION answered();
SELECT * FROM both_ways('INSERT INTO docs SELECT id + 100, CASE id WHEN 1 THEN ''no'' ELSE body END FROM docs WHERE id < 6', 'SELECT * FROM docs ORDER BY id');
DROP TRIGGER before ON docs;
CREATE FUNCTION all_answered() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXPLAIN (COSTS OFF) SELECT id, llm_generate(body) FROM fresh LOOP
		RAISE WARNING '%', line;
	END LOOP;
	INSERT INTO log SELECT id, llm_generate(body) FROM fresh;
	RETURN NULL;
END
$$;
CREATE TRIGGER after AFTER INSERT ON docs REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION all_answered();
INSERT INTO docs SELECT id + 100, 'n' || id FROM docs WHERE id < 6;
SELECT string_agg(answer, ' ' ORDER BY id) FROM log;
SELECT engine_idle();
DROP TABLE docs, groups, log;
DROP FUNCTION ask(text), pair(text), answered(), all_answered();
