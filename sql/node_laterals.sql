-- node_laterals.sql - LLM Batch for calls in LATERAL: one row for each row of the outer side
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, CASE WHEN i % 10 > 0 THEN 'b' || i END, i % 4 FROM generate_series(1, 40) i;
ANALYZE docs;

EXPLAIN (COSTS OFF) SELECT d.id, x.g, x.g || 1 FROM docs d, LATERAL (SELECT llm_generate(d.body) AS g) x;
EXPLAIN (COSTS OFF) SELECT d.id, x.text FROM docs d, LATERAL llm_generate_result(d.body) x WHERE x.text LIKE '%1' AND x.completion_tokens > 2;

CREATE TEMP TABLE shapes (n serial, query text);
INSERT INTO shapes (query) VALUES
	('SELECT d.id, x.g, x.g || 1, upper(x.g) FROM docs d, LATERAL (SELECT llm_generate(d.body) AS g) x ORDER BY 1'),
	('SELECT d.id, x.* FROM docs d, LATERAL (SELECT llm_generate(d.body), d.grp + 1 AS up, llm_generate(d.grp || d.body), random() * 0) x ORDER BY 1'),
	('SELECT d.id, x.a = x.b FROM docs d, LATERAL (SELECT r AS a, r AS b FROM (SELECT random() + length(llm_generate(d.body)) AS r OFFSET 0) s) x ORDER BY 1'),
	('SELECT d.id FROM docs d, LATERAL (SELECT llm_generate(d.body) AS g) x WHERE x.g LIKE ''%1'' AND x.g > d.body || ''!'' OR x.g = ''b7'' ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g) x ON true ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g) x ON x.g LIKE ''%1'' ORDER BY 1'),
	('SELECT d.id, x FROM docs d, LATERAL llm_generate(d.body) x ORDER BY 1'),
	('SELECT d.id, x FROM docs d LEFT JOIN LATERAL llm_generate(d.body) x ON d.grp = 1 ORDER BY 1'),
	('SELECT d.id, x.text, x.finish_reason, x.completion_tokens FROM docs d, LATERAL llm_generate_result(d.body) x WHERE x.text LIKE ''%1'' ORDER BY 1'),
	('SELECT d.id, x.text FROM docs d CROSS JOIN LATERAL llm_generate_result(d.body) x WHERE d.grp = 2 ORDER BY 1'),
	('SELECT d.id, y.g FROM docs d, LATERAL (SELECT llm_generate(d.body) AS g) x, LATERAL (SELECT llm_generate(x.g || d.grp) AS g) y ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d, LATERAL (SELECT CASE WHEN d.grp = 1 THEN llm_generate(d.body) END AS g) x ORDER BY 1'),
	('SELECT x.g FROM docs d JOIN docs e ON e.id = d.id + 20, LATERAL (SELECT llm_generate(d.body || e.body) AS g) x ORDER BY d.id LIMIT 5'),
	('SELECT grp, max(x.g) FROM docs d, LATERAL (SELECT llm_generate(d.body) AS g) x GROUP BY grp ORDER BY 1'),
	('SELECT (SELECT string_agg(x.g, '' '' ORDER BY d.id) FROM docs d, LATERAL (SELECT llm_generate(d.body || v) AS g) x WHERE d.grp = v) FROM generate_series(1, 3) v'),
	('SELECT d.id, x.g FROM docs d, LATERAL (SELECT upper(llm_generate(d.body)) AS g) x WHERE x.g LIKE ''%1'' AND llm_generate(''w'' || x.g) <> ''wB11'' AND x.g <> ''B21'' ORDER BY 1'),
	('SELECT d.id FROM docs d, LATERAL (SELECT llm_generate(d.body) || random() * 0 AS g) x WHERE x.g LIKE ''%10'' ORDER BY 1'),
	-- conditions of a left join, and of the inner side
	('SELECT d.id, x.* FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g, d.grp AS n, 7 AS k) x ON x.g > ''b2'' AND d.grp <> 1 ORDER BY 1'),
	('SELECT d.id, x.* FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g, d.grp AS n WHERE d.grp > 1) x ON x.n = 3 ORDER BY 1'),
	('SELECT d.id, x.* FROM docs d LEFT JOIN LATERAL (SELECT llm_generate((10 / d.grp) || d.body) AS g, 10 / d.grp AS n WHERE d.grp <> 0) x ON true ORDER BY 1'),
	('SELECT d.id, x.* FROM docs d, LATERAL (SELECT llm_generate((10 / d.grp) || d.body) AS g, 10 / d.grp AS n WHERE d.grp <> 0) x WHERE x.g > ''5'' ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g) x ON llm_generate(''on '' || d.grp || x.g) < ''on 2'' ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g WHERE llm_generate(''w'' || d.grp) = ''w1'') x ON true ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d, LATERAL (SELECT llm_generate(d.body) AS g WHERE llm_generate(''w'' || d.grp) = ''w1'') x ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g OFFSET 0) x ON x.g LIKE ''%1'' WHERE x.g IS NULL AND d.id < 20 ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g) x ON random() >= 0 ORDER BY 1'),
	-- ON is evaluated where the inner side gives a row, and each of its conditions where those before it are true
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g) x ON x.g > ''b2'' AND llm_generate(''on '' || d.id) < ''on 2'' ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g) x ON x.g > ''b2'' AND llm_generate(''on '' || coalesce(x.g, ''none'')) < ''on b3'' ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d LEFT JOIN LATERAL (SELECT llm_generate(d.body) AS g WHERE d.grp <> 0) x ON 10 / d.grp > 4 AND llm_generate(''on '' || d.id) < ''on 2'' ORDER BY 1'),
	-- what reads nothing of the outer row is asked once: its answer is kept
	('SELECT d.id, x FROM docs d LEFT JOIN llm_generate(''b3'') x ON x > d.body ORDER BY 1'),
	-- the inner side may give no row, or several: row by row, in the scans of it, or as a parameter
	('SELECT d.id, x.g FROM docs d, LATERAL (SELECT llm_generate(d.body) AS g WHERE d.grp = 1) x ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d, LATERAL (SELECT llm_generate(d.body || e.id) AS g FROM docs e WHERE e.id < 3) x ORDER BY 1, 2'),
	('SELECT d.id, x.n FROM docs d, LATERAL llm_generate(d.body) WITH ORDINALITY x (g, n) ORDER BY 1'),
	('SELECT d.id, x FROM docs d, LATERAL llm_generate(d.body) x WHERE d.id IN (SELECT e.id FROM docs e WHERE e.grp = 1) ORDER BY 1'),
	('SELECT d.id, x.g FROM docs d, LATERAL (SELECT llm_generate((SELECT max(e.body) FROM docs e WHERE e.id <= d.id)) AS g) x ORDER BY 1');

SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w ORDER BY s.n;
-- as the source of an UPDATE
CREATE TABLE targets AS SELECT id, body AS answer FROM docs WHERE id < 6;
UPDATE targets t SET answer = x.g FROM docs d, LATERAL (SELECT llm_generate('u' || d.body) AS g) x WHERE d.id = t.id;
SELECT * FROM targets ORDER BY id;
DROP TABLE targets;
-- an error of a row
SELECT same, n FROM both_ways('SELECT d.id, x FROM docs d, LATERAL llm_generate(CASE WHEN id = 4 THEN ''@error=four'' ELSE body END) x ORDER BY 1 LIMIT 3');
SELECT same, n FROM both_ways('SELECT d.id, x FROM docs d, LATERAL llm_generate(CASE WHEN id = 4 THEN ''@error=four'' ELSE body END) x ORDER BY 1 LIMIT 4');
SELECT engine_idle();
