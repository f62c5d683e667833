-- node_joins.sql - LLM Batch above joins: target lists of every kind of join, conditions of inner joins
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, 'b' || i, i % 8 FROM generate_series(1, 60) i;
CREATE TEMP TABLE groups (grp int PRIMARY KEY, name text, low int);
INSERT INTO groups SELECT i, 'g' || i, i * 10 FROM generate_series(0, 9) i;
ANALYZE docs;
ANALYZE groups;

-- what it looks like
EXPLAIN (COSTS OFF) SELECT d.id, llm_generate(d.body || g.name) FROM docs d JOIN groups g USING (grp);
EXPLAIN (COSTS OFF) SELECT d.id, upper(g.name) FROM docs d JOIN groups g ON g.grp = d.grp AND llm_generate(d.body || g.name) = 'b4g4' AND d.id <= 40;
EXPLAIN (COSTS OFF) SELECT d.id FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body || g.name) LIKE '%4' AND llm_generate(g.name || d.id) LIKE 'g4%';
EXPLAIN (COSTS OFF) SELECT g.name, llm_generate(d.body || g.name) FROM groups g LEFT JOIN docs d ON d.grp = g.grp AND llm_generate(d.body || g.name) = 'b4g4';

CREATE TEMP TABLE shapes (n serial, query text);
INSERT INTO shapes (query) VALUES
	-- target lists: NULL on the side that has no match
	('SELECT d.id, llm_generate(d.body || g.name) FROM docs d JOIN groups g USING (grp) ORDER BY 1'),
	('SELECT d.id, llm_generate(d.body), llm_generate(g.name) FROM groups g LEFT JOIN docs d ON d.grp = g.grp AND d.id < 20 ORDER BY g.grp, 1'),
	('SELECT d.id, llm_generate(coalesce(d.body, ''none'')) FROM docs d RIGHT JOIN groups g ON d.grp = g.grp AND d.id < 20 ORDER BY g.grp, 1'),
	('SELECT d.id, g.grp, llm_generate(concat(d.body, g.name)), llm_generate(d.body || g.name) FROM docs d FULL JOIN groups g ON d.grp = g.grp + 3 ORDER BY 1, 2'),
	('SELECT llm_generate(d.body || g.name || x.grp) FROM docs d JOIN groups g USING (grp) LEFT JOIN groups x ON x.low = d.id ORDER BY d.id'),
	('SELECT d.id, llm_generate(llm_generate(d.body) || g.name) FROM docs d CROSS JOIN groups g WHERE d.id < 4 ORDER BY 1, g.grp'),
	('SELECT d.id, (d.id + g.low) / 2 + llm_count_tokens(d.body || g.name) FROM docs d JOIN groups g USING (grp) ORDER BY 1'),
	('SELECT d.id, s.g FROM docs d LEFT JOIN (SELECT grp, llm_generate(name) g FROM groups WHERE grp < 4 OFFSET 0) s USING (grp) ORDER BY 1'),
	('SELECT d.id, s.g FROM docs d LEFT JOIN (SELECT grp, llm_generate(name) g FROM groups WHERE grp < 4) s USING (grp) ORDER BY 1'),
	-- above a join: sort, limit, distinct, set operations
	('SELECT d.id, llm_generate(d.body || g.name) FROM docs d JOIN groups g USING (grp) ORDER BY d.id LIMIT 5 OFFSET 2'),
	('SELECT llm_generate(d.body || g.name) FROM docs d JOIN groups g USING (grp) ORDER BY 1 DESC LIMIT 5'),
	('SELECT DISTINCT llm_generate(g.name) FROM docs d JOIN groups g USING (grp) ORDER BY 1'),
	('SELECT llm_generate(d.body || g.name) FROM docs d JOIN groups g USING (grp) EXCEPT SELECT llm_generate(''b1g1'') ORDER BY 1'),
	-- conditions of an inner join, in their order, before the target list
	('SELECT d.id FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body || g.name) LIKE ''%4'' ORDER BY 1'),
	('SELECT d.id FROM docs d JOIN groups g ON llm_generate(d.body || g.name) = ''b4g3'' AND g.low > 20 ORDER BY 1'),
	('SELECT d.id FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body || g.name) LIKE ''%4'' AND llm_generate(g.name || d.id) LIKE ''%2'' ORDER BY 1'),
	('SELECT d.id, 100 / (g.low - 40) FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body || g.name) NOT LIKE ''%g4'' ORDER BY 1'),
	('SELECT d.id, llm_generate(g.name || d.body) FROM docs d, groups g WHERE d.grp = g.grp AND llm_generate(d.body || g.low) > ''b3'' ORDER BY 1'),
	('SELECT a.id, b.id FROM docs a JOIN docs b ON llm_generate(a.body) = b.body AND b.id <= 4 ORDER BY 1'),
	('SELECT d.id FROM docs d JOIN groups g ON g.grp = llm_count_tokens(d.body) ORDER BY 1'),
	-- WHERE above an outer join
	('SELECT d.id FROM groups g LEFT JOIN docs d ON d.grp = g.grp WHERE llm_generate(coalesce(d.body, g.name)) LIKE ''g%'' ORDER BY 1'),
	('SELECT d.id, llm_generate(g.name) FROM docs d LEFT JOIN groups g ON g.grp = d.grp + 5 WHERE llm_generate(d.body || coalesce(g.name, ''?'')) LIKE ''%?'' ORDER BY 1'),
	-- conditions of outer joins stay in the join
	('SELECT g.grp, d.id FROM groups g LEFT JOIN docs d ON d.grp = g.grp AND llm_generate(d.body || g.name) LIKE ''%5g5'' ORDER BY 1, 2'),
	('SELECT d.id, g.grp FROM docs d FULL JOIN groups g ON d.grp = g.grp AND d.id + g.low > 60 ORDER BY 1, 2, llm_generate(d.body)'),
	('SELECT g.grp, llm_generate(g.name) FROM groups g WHERE g.grp IN (SELECT grp FROM docs WHERE id < 6) ORDER BY 1');

SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w ORDER BY s.n;
-- the same with each way of joining
SET enable_hashjoin = off;
SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w WHERE s.n NOT IN (15, 19) ORDER BY s.n;
SET enable_mergejoin = off;
SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w WHERE query NOT LIKE '%FULL JOIN%' ORDER BY s.n;
RESET enable_hashjoin;
RESET enable_mergejoin;

-- a condition over both sides, in an inner side that is scanned by a key
BEGIN;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT d.id FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body || g.name) LIKE '%4' AND g.low > 10;
COMMIT;
-- a sub-select that is run for each row and stops at its first one reads nothing ahead
SELECT * FROM both_ways('SELECT g.grp FROM groups g WHERE EXISTS (SELECT 1 FROM docs d WHERE d.grp = g.grp AND llm_generate(d.body || g.name) = ''b12g4'') ORDER BY 1');
SELECT * FROM both_ways('SELECT g.grp, llm_generate(g.name) FROM groups g WHERE NOT EXISTS (SELECT 1 FROM docs d WHERE d.grp = g.grp AND llm_generate(d.body || g.name) = ''b12g4'') ORDER BY 1');
-- errors come at their row
SELECT same, n FROM both_ways('SELECT d.id, llm_generate(CASE WHEN d.id = 7 THEN ''@error=seven'' ELSE d.body || g.name END) FROM docs d JOIN groups g USING (grp) ORDER BY d.id LIMIT 5');
SELECT same, n FROM both_ways('SELECT d.id, llm_generate(CASE WHEN d.id = 7 THEN ''@error=seven'' ELSE d.body || g.name END) FROM docs d JOIN groups g USING (grp) ORDER BY d.id LIMIT 9');

-- writing through a join
CREATE TABLE targets (id int PRIMARY KEY, answer text);
INSERT INTO targets SELECT i, 't' || i FROM generate_series(1, 20) i;
EXPLAIN (COSTS OFF) UPDATE targets t SET answer = llm_generate(t.answer || d.body) FROM docs d WHERE d.id = t.id;
UPDATE targets t SET answer = llm_generate(t.answer || d.body) FROM docs d WHERE d.id = t.id AND llm_generate(t.answer || d.grp) LIKE '%2';
SELECT * FROM targets WHERE length(answer) > 3 ORDER BY id;
DELETE FROM targets t USING docs d WHERE d.id = t.id AND llm_generate(t.answer || d.grp) LIKE '%3';
SELECT count(*) FROM targets;
MERGE INTO targets t USING docs d ON d.id = t.id WHEN MATCHED AND t.id < 3 THEN UPDATE SET answer = llm_generate('m' || d.body) WHEN NOT MATCHED AND d.id < 23 THEN INSERT VALUES (d.id, llm_generate('n' || d.body));
SELECT * FROM targets WHERE answer ~ '^[mn]' ORDER BY id;
DROP TABLE targets;
SELECT engine_idle();
