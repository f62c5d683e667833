-- node_ctes.sql - LLM Batch in WITH, set operations, views and inherited tables
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, CASE WHEN i % 10 > 0 THEN 'b' || i END, i % 4 FROM generate_series(1, 40) i;
CREATE TABLE groups (grp int PRIMARY KEY, name text);
INSERT INTO groups SELECT i, 'g' || i FROM generate_series(0, 6) i;
CREATE TABLE base (id int, body text);
CREATE TABLE child (extra int) INHERITS (base);
CREATE TABLE other (body text, gone int, id int, more text);
ALTER TABLE other DROP gone;
ALTER TABLE other INHERIT base;
INSERT INTO base SELECT i, 'p' || i FROM generate_series(1, 5) i;
INSERT INTO child SELECT i, 'q' || i, i FROM generate_series(6, 10) i;
INSERT INTO other SELECT 'r' || i, i, 'm' FROM generate_series(11, 15) i;
ANALYZE docs, groups, base, child, other;
CREATE VIEW v AS SELECT id, llm_generate(body) g, grp FROM docs;
CREATE VIEW above AS SELECT v.id, v.g || '!' h, llm_generate(v.g) k FROM v WHERE v.g IS NOT NULL;
CREATE VIEW grouped AS SELECT grp, max(llm_generate(body)) m FROM docs GROUP BY grp;
CREATE VIEW invoker WITH (security_invoker) AS SELECT id, llm_generate(body) g FROM docs WHERE llm_generate(body) < 'b3';
CREATE VIEW barrier WITH (security_barrier) AS SELECT id, body, grp FROM docs WHERE llm_generate(body) < 'b3';

CREATE TEMP TABLE shapes (n serial, query text);
INSERT INTO shapes (query) VALUES
	-- WITH: inlined or not, read once or twice
	('WITH c AS (SELECT id, llm_generate(body) g FROM docs) SELECT g, g || 1, length(g) FROM c ORDER BY id'),
	('WITH c AS NOT MATERIALIZED (SELECT id, llm_generate(body) g FROM docs) SELECT a.g, b.g FROM c a JOIN c b USING (id) ORDER BY id'),
	('WITH c AS MATERIALIZED (SELECT id, llm_generate(body) g FROM docs) SELECT a.g, b.g FROM c a JOIN c b USING (id) ORDER BY id'),
	('WITH c AS (SELECT id, body FROM docs WHERE llm_generate(body) < ''b3''), l AS (SELECT id, body, llm_generate(''area '' || body) a FROM c) SELECT a, count(*), jsonb_agg(llm_generate(''x'' || body) ORDER BY id) FROM l GROUP BY a ORDER BY a'),
	('WITH c AS (SELECT id, llm_generate(body) g FROM docs LIMIT 5) SELECT * FROM c UNION ALL SELECT * FROM c ORDER BY 1, 2'),
	-- recursive: a step's rows are batched
	('WITH RECURSIVE r AS (SELECT id, body, 1 n FROM docs WHERE id < 4 UNION ALL SELECT id, llm_generate(body || n), n + 1 FROM r WHERE n < 3) SELECT * FROM r ORDER BY 1, 3'),
	('WITH RECURSIVE r AS (SELECT id, body, 1 n FROM docs WHERE id < 4 UNION SELECT id, body, n + 1 FROM r WHERE n < 5 AND llm_generate(body || n) <> ''b22'') SELECT * FROM r ORDER BY 1, 3'),
	('WITH RECURSIVE r AS (SELECT id, llm_generate(body) g FROM docs WHERE id = 1 UNION ALL SELECT d.id, llm_generate(r.g || d.body) FROM r JOIN docs d ON d.id = r.id + 1 AND r.id < 6) SELECT * FROM r ORDER BY 1'),
	('WITH RECURSIVE r AS (SELECT 1 n, llm_generate(''a'') g UNION ALL SELECT n + 1, llm_generate(g || n) FROM r WHERE n < 5) SEARCH DEPTH FIRST BY n SET o CYCLE n SET c USING p SELECT n, g FROM r ORDER BY o'),
	-- set operations
	('SELECT llm_generate(body) FROM docs WHERE id < 5 UNION SELECT llm_generate(name) FROM groups ORDER BY 1'),
	('SELECT llm_generate(body) FROM docs WHERE id < 5 INTERSECT ALL SELECT llm_generate(body) FROM docs ORDER BY 1'),
	('SELECT llm_generate(body) FROM docs EXCEPT ALL SELECT llm_generate(body) FROM docs WHERE id > 5 ORDER BY 1'),
	('SELECT * FROM (SELECT id, llm_generate(body) g FROM docs UNION ALL SELECT grp, llm_generate(name) FROM groups) u WHERE g > ''b3'' ORDER BY 1, 2'),
	('SELECT id, body FROM docs UNION ALL SELECT grp, llm_generate(name) FROM groups ORDER BY 1, 2'),
	('SELECT x FROM (SELECT llm_generate(body) x FROM docs UNION ALL SELECT llm_generate(body) FROM docs) u ORDER BY llm_generate(x) NULLS FIRST'),
	('(SELECT id, llm_generate(body) g FROM docs ORDER BY id LIMIT 3) UNION ALL (SELECT id, llm_generate(body) FROM docs ORDER BY id DESC LIMIT 3) ORDER BY 1'),
	-- inherited tables: columns at other places
	('SELECT tableoid::regclass, id, llm_generate(body) FROM base ORDER BY id'),
	('SELECT b, llm_generate(b::text) FROM base b WHERE llm_generate(body) > ''p4'' AND llm_generate(''z'' || body) < ''zr13'' ORDER BY id'),
	('SELECT id, llm_generate(body) FROM base LIMIT 7'),
	('SELECT id, llm_generate(body) FROM ONLY base ORDER BY id'),
	-- views
	('SELECT * FROM v WHERE g > ''b2'' ORDER BY id'),
	('SELECT * FROM above ORDER BY id'),
	('SELECT h FROM above WHERE id < 5 ORDER BY id'),
	('SELECT a.id, b.h FROM v a JOIN above b USING (id) WHERE a.grp = 1 ORDER BY 1'),
	('SELECT * FROM grouped ORDER BY grp'),
	('SELECT * FROM invoker ORDER BY id'),
	('SELECT id FROM barrier WHERE llm_generate(''u'' || body) <> ''ub11'' AND grp > 0 ORDER BY id'),
	-- sub-selects of each kind
	('SELECT id FROM docs WHERE llm_generate(body) IN (SELECT llm_generate(''b'' || grp) FROM groups) ORDER BY 1'),
	('SELECT id FROM docs WHERE llm_generate(body) NOT IN (SELECT llm_generate(''b'' || grp) FROM groups) ORDER BY 1'),
	('SELECT id FROM docs WHERE body > ALL (SELECT llm_generate(''b'' || grp) FROM groups) ORDER BY 1'),
	('SELECT id FROM docs WHERE llm_generate(body) = ANY (ARRAY[llm_generate(''b1''), ''b2'']) ORDER BY 1'),
	('SELECT id FROM docs WHERE grp IN (SELECT grp FROM groups WHERE llm_generate(name) = ''g2'') ORDER BY 1'),
	('SELECT id FROM docs d WHERE llm_generate(body) = (SELECT llm_generate(''b'' || max(grp)) FROM groups g WHERE g.grp <= d.id) ORDER BY 1'),
	('SELECT id FROM docs d WHERE EXISTS (SELECT FROM groups g WHERE g.grp = d.grp AND llm_generate(g.name) = llm_generate(''g'' || d.grp)) ORDER BY id'),
	('SELECT id, (SELECT count(*) FROM groups g WHERE llm_generate(g.name || d.grp) > ''g3'') FROM docs d ORDER BY id'),
	('SELECT id, EXISTS (SELECT FROM groups g WHERE g.grp = d.grp AND llm_generate(g.name) = ''g1''), ''g1'' IN (SELECT llm_generate(name) FROM groups) FROM docs d ORDER BY id'),
	('SELECT a.k, a.g, b.h FROM (SELECT llm_generate(''k'' || grp) k, grp g FROM docs WHERE id < 8) a FULL JOIN (SELECT llm_generate(''k'' || grp) k, llm_generate(name) h FROM groups) b USING (k) ORDER BY 1, 2, 3'),
	('SELECT a.id FROM docs a NATURAL JOIN (SELECT id, llm_generate(body) body FROM docs) b ORDER BY 1'),
	('SELECT DISTINCT ON (llm_generate(''k'' || grp)) id, grp FROM docs ORDER BY llm_generate(''k'' || grp), id'),
	('SELECT id FROM docs ORDER BY id LIMIT llm_count_tokens(''abc'') OFFSET llm_count_tokens(''a'')');
SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w ORDER BY s.n;

-- one that is read to its third row
SELECT same, n, nodes, batched BETWEEN 3 AND 16 AS few FROM both_ways('WITH c AS MATERIALIZED (SELECT id, llm_generate(body) g FROM docs) SELECT * FROM c LIMIT 3');
-- a materialized view over a view, again after rows changed
CREATE MATERIALIZED VIEW m AS SELECT id, h FROM above;
CREATE UNIQUE INDEX ON m (id);
UPDATE docs SET body = 'new' || id WHERE id IN (3, 10);
SELECT requests_of('SELECT * FROM m') AS stored;
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
SELECT count(*), string_agg(h, ' ' ORDER BY id) FILTER (WHERE id IN (2, 3, 10)) FROM m;
DROP TABLE docs, groups, base, child, other CASCADE;
