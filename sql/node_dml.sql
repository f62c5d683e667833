-- node_dml.sql - UPDATE, INSERT, DELETE, MERGE and what makes tables
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, answer text, n int DEFAULT 0);
INSERT INTO docs (id, body) SELECT i, 'b' || i FROM generate_series(1, 200) i;
ANALYZE docs;

EXPLAIN (COSTS OFF, VERBOSE) UPDATE docs SET answer = llm_generate(body) WHERE id <= 100;
UPDATE docs SET answer = llm_generate(body) WHERE id <= 100;
SELECT count(*), count(answer), count(*) FILTER (WHERE answer = body) AS right FROM docs;
SELECT explain_of($$UPDATE docs SET answer = llm_generate(body), n = length(llm_generate('x' || body)) WHERE id > 100$$);
SELECT count(*) FILTER (WHERE answer = body) AS right, count(*) FILTER (WHERE n = length(body) + 1) AS lengths FROM docs;
-- the answer depends on the old row; RETURNING sees the new one, by the scalar path
WITH u AS (UPDATE docs SET answer = llm_generate(answer || '!'), n = n + 1 WHERE id IN (1, 101) RETURNING id, answer, n, llm_generate('r' || id) AS r)
SELECT * FROM u ORDER BY id;
-- a call in WHERE and in SET
UPDATE docs SET answer = llm_generate('again ' || body) WHERE llm_generate(body) IN ('b5', 'b6');
SELECT id, answer FROM docs WHERE answer LIKE 'again%' ORDER BY id;
-- from a sub-select, from a CTE
UPDATE docs d SET answer = s.g FROM (SELECT id, llm_generate('s' || body) g FROM docs WHERE id <= 3 OFFSET 0) s WHERE s.id = d.id;
SELECT id, answer FROM docs WHERE id <= 3 ORDER BY id;
WITH w AS (SELECT id, llm_generate('w' || body) g FROM docs WHERE id <= 3), u AS (UPDATE docs SET answer = g FROM w WHERE w.id = docs.id RETURNING docs.id)
SELECT count(*) FROM u;
SELECT id, answer FROM docs WHERE id <= 3 ORDER BY id;
-- columns set by a sub-select of several: left alone
SELECT count(*) AS nodes FROM explain_of($$UPDATE docs SET (answer, n) = (SELECT llm_generate(docs.body), 7) WHERE id = 1$$) line WHERE line LIKE '%LLM Batch%';
UPDATE docs SET (answer, n) = (SELECT llm_generate(docs.body), 7) WHERE id = 1 RETURNING answer, n;
-- part of a column
ALTER TABLE docs ADD parts text[];
UPDATE docs SET parts[2] = llm_generate(body) WHERE id = 2 RETURNING parts;

-- DELETE
EXPLAIN (COSTS OFF) DELETE FROM docs WHERE llm_generate(body) = 'b200';
DELETE FROM docs WHERE llm_generate(body) IN ('b200', 'b199');
SELECT max(id) FROM docs;

-- INSERT
CREATE TABLE copies (id int, answer text, UNIQUE (id));
EXPLAIN (COSTS OFF) INSERT INTO copies SELECT id, llm_generate(body) FROM docs WHERE id <= 10;
INSERT INTO copies SELECT id, llm_generate(body) FROM docs WHERE id <= 10;
INSERT INTO copies VALUES (11, llm_generate('eleven')), (12, llm_generate('twelve'));
INSERT INTO copies SELECT id, llm_generate('new ' || body) FROM docs WHERE id IN (10, 13)
	ON CONFLICT (id) DO UPDATE SET answer = llm_generate('old ' || copies.answer);
SELECT * FROM copies WHERE id >= 9 ORDER BY id;
INSERT INTO copies SELECT id + 1000, llm_generate(answer) FROM copies;
SELECT count(*), count(*) FILTER (WHERE id > 1000) FROM copies;

-- MERGE
MERGE INTO copies c USING (SELECT id, llm_generate('m' || body) g FROM docs WHERE id BETWEEN 9 AND 15) s ON s.id = c.id
	WHEN MATCHED THEN UPDATE SET answer = g WHEN NOT MATCHED THEN INSERT VALUES (s.id, llm_generate('i' || s.g));
SELECT * FROM copies WHERE id BETWEEN 8 AND 16 ORDER BY id;

-- CREATE TABLE AS, SELECT INTO, COPY, materialized views
CREATE TABLE made AS SELECT id, llm_generate(body) g FROM docs WHERE id <= 50;
SELECT count(*), bool_and(g = 'b' || id) FROM made;
CREATE TABLE none AS SELECT id, llm_generate('@error=never asked') g FROM docs WITH NO DATA;
SELECT count(*) FROM none;
COPY (SELECT id, llm_generate(body) FROM docs WHERE id <= 2 ORDER BY id) TO STDOUT;
COPY (SELECT llm_generate(E'a\tb\\n"c"\n')) TO STDOUT;
CREATE MATERIALIZED VIEW mv AS SELECT id, llm_generate(body) g FROM docs WHERE id <= 20 WITH NO DATA;
REFRESH MATERIALIZED VIEW mv;
SELECT count(*), bool_and(g = 'b' || id) FROM mv;
CREATE UNIQUE INDEX ON mv (id);
REFRESH MATERIALIZED VIEW CONCURRENTLY mv;
SELECT count(*) FROM mv;

-- partitions: one node above them, rows move
CREATE TABLE parts (id int, body text) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (50);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (50) TO (100);
INSERT INTO parts SELECT i, 'x' || i FROM generate_series(1, 99) i;
EXPLAIN (COSTS OFF) UPDATE parts SET body = llm_generate(body);
UPDATE parts SET body = llm_generate(body || '!');
SELECT count(*), bool_and(body = 'x' || id || '!') FROM parts;
UPDATE parts SET id = id + 50 + length(llm_generate('')) WHERE llm_generate(body) = 'x7!' RETURNING id, tableoid::regclass;
EXPLAIN (COSTS OFF) SELECT llm_generate(body) FROM parts WHERE id < 10;
DELETE FROM parts WHERE llm_generate(body) LIKE 'x9%';
SELECT count(*) FROM parts;

-- triggers and defaults call row by row
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.answer := llm_generate('t' || NEW.id); RETURN NEW; END$$;
CREATE TRIGGER fill BEFORE INSERT ON copies FOR EACH ROW EXECUTE FUNCTION fill();
INSERT INTO copies (id) VALUES (5000), (5001) RETURNING answer;
ALTER TABLE made ALTER g SET DEFAULT llm_generate('default');
INSERT INTO made (id) VALUES (0) RETURNING g;
-- never in an index or a generated column
CREATE INDEX ON docs (llm_generate(body));
ALTER TABLE docs ADD c text GENERATED ALWAYS AS (llm_generate(body)) STORED;

-- locking and scrolling through the rows that are updated
BEGIN;
SELECT id, llm_generate(body) FROM docs WHERE id = 5 FOR UPDATE;
DECLARE c CURSOR FOR SELECT id, llm_generate(body) FROM docs WHERE id <= 30 FOR UPDATE;
MOVE 2 FROM c;
UPDATE docs SET answer = 'by cursor' WHERE CURRENT OF c RETURNING answer;
ROLLBACK;
-- an error leaves nothing
UPDATE docs SET answer = llm_generate(CASE WHEN id = 90 THEN '@error=no' ELSE 'changed' END);
SELECT count(*) FROM docs WHERE answer = 'changed';
DROP TABLE docs, copies, made, none, parts CASCADE;
DROP FUNCTION fill();
