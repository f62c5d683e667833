-- node_aggs.sql - LLM Batch below and above aggregates and window functions
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, CASE WHEN i % 10 > 0 THEN 'b' || i END, i % 4 FROM generate_series(1, 60) i;
ANALYZE docs;

-- arguments below, results above, conditions on groups in between
EXPLAIN (COSTS OFF) SELECT string_agg(llm_generate(body), ',') FROM docs;
SELECT line FROM explain_of($$SELECT grp, max(llm_generate('m' || body)), llm_generate('of ' || count(*)) FROM docs GROUP BY grp HAVING llm_generate('h' || min(body)) LIKE 'h%' AND count(*) > 2$$) line
WHERE line NOT LIKE '%LLM Calls:%' AND line NOT LIKE '%Sort Method:%';
SELECT line FROM explain_of($$SELECT id, count(llm_generate(body)) OVER (PARTITION BY grp ORDER BY id), llm_generate('r' || rank() OVER (ORDER BY body)) FROM docs$$) line
WHERE line NOT LIKE '%LLM Calls:%' AND line NOT LIKE '% Window:%' AND line NOT LIKE '%Sort Method:%';

CREATE TEMP TABLE shapes (n serial, query text);
INSERT INTO shapes (query) VALUES
	-- arguments
	('SELECT string_agg(llm_generate(body), '','' ORDER BY id) FROM docs'),
	('SELECT grp, count(llm_generate(body)), max(length(llm_generate(''x'' || body))), min(id) FROM docs GROUP BY grp ORDER BY grp'),
	('SELECT grp, string_agg(llm_generate(body), '','' ORDER BY llm_generate(''k'' || body) DESC) FROM docs GROUP BY grp ORDER BY grp'),
	('SELECT count(DISTINCT llm_generate(''d'' || grp)), array_agg(DISTINCT llm_generate(''e'' || grp)) FROM docs'),
	('SELECT max(llm_generate(llm_generate(body) || 1)) FROM docs'),
	('SELECT sum(llm_count_tokens(body)), avg(id) FROM docs WHERE llm_generate(body) > ''b2'''),
	('SELECT count(llm_generate(body)) FROM docs WHERE false'),
	('SELECT max(llm_generate(''const'')) FROM docs'),
	('SELECT grp, jsonb_object_agg(id, llm_generate(body)) FROM docs WHERE id < 20 GROUP BY grp ORDER BY grp'),
	('SELECT grp, id % 2, max(llm_generate(body)) FROM docs GROUP BY GROUPING SETS ((grp, id % 2), (grp), ()) ORDER BY 1, 2, 3'),
	('SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY llm_generate(body)) FROM docs'),
	('SELECT string_agg(llm_generate(a.body || b.body), '','' ORDER BY a.id) FROM docs a JOIN docs b ON b.id = a.id + 30'),
	('SELECT (SELECT string_agg(llm_generate(d.body), '','' ORDER BY d.id) FROM docs d WHERE d.grp = g.grp) FROM (VALUES (1), (2), (9)) g (grp)'),
	('SELECT max(m), min(m) FROM (SELECT max(llm_generate(body)) m FROM docs GROUP BY grp) s'),
	('SELECT max(llm_generate(body)) || ''!'', max(llm_generate(body)) FROM docs HAVING max(llm_generate(body)) > ''a'''),
	-- results
	('SELECT grp, llm_generate(string_agg(body, '' '' ORDER BY id)) FROM docs GROUP BY grp ORDER BY grp'),
	('SELECT llm_generate(string_agg(llm_generate(body), '' '' ORDER BY id)) FROM docs WHERE id < 9'),
	('SELECT grp, llm_generate(''cube '' || count(*) || grouping(grp)) FROM docs GROUP BY CUBE (grp) ORDER BY grp'),
	('SELECT llm_generate(''n'' || grp) FROM docs GROUP BY grp ORDER BY 1'),
	-- keys
	('SELECT llm_generate(''k'' || grp), count(*) FROM docs GROUP BY 1 ORDER BY 1'),
	('SELECT llm_generate(''k'' || a.grp), max(llm_generate(b.body)) FROM docs a JOIN docs b USING (id) GROUP BY 1 ORDER BY 1'),
	('SELECT DISTINCT llm_generate(''k'' || grp) FROM docs ORDER BY 1'),
	('SELECT grp FROM docs GROUP BY grp ORDER BY llm_generate((9 - grp)::text) LIMIT 2'),
	('SELECT id FROM docs ORDER BY llm_generate(body) DESC NULLS LAST, id LIMIT 4'),
	-- conditions on groups
	('SELECT grp FROM docs GROUP BY grp HAVING llm_generate(min(body)) LIKE ''b1%'' ORDER BY grp'),
	('SELECT grp, count(*) FROM docs GROUP BY grp HAVING llm_generate(''h'' || grp) <> ''h2'' AND count(*) > 2 ORDER BY grp'),
	('SELECT grp, 1 / (grp - 1) FROM docs GROUP BY grp HAVING llm_generate(''h'' || grp) <> ''h1'' AND max(id) > 57 ORDER BY grp'),
	('SELECT count(*) FROM docs HAVING llm_generate(count(*)::text) = ''59'''),
	-- windows
	('SELECT id, rank() OVER (ORDER BY llm_generate(body) NULLS FIRST) FROM docs ORDER BY id'),
	('SELECT id, max(llm_generate(body)) OVER (PARTITION BY grp) FROM docs ORDER BY id'),
	('SELECT id, count(llm_generate(body)) OVER (PARTITION BY grp ORDER BY id) FROM docs ORDER BY id'),
	('SELECT id, llm_generate(''r'' || row_number() OVER (ORDER BY id DESC)) FROM docs ORDER BY id LIMIT 5'),
	('SELECT id, llm_generate(''r'' || sum(id) OVER w), sum(grp) OVER (PARTITION BY llm_generate(''g'' || grp) ORDER BY id) FROM docs WINDOW w AS (PARTITION BY grp ORDER BY id) ORDER BY id'),
	('SELECT id, lag(llm_generate(body)) OVER (ORDER BY id) FROM docs ORDER BY id'),
	('SELECT * FROM (SELECT id, s, row_number() OVER (PARTITION BY grp ORDER BY s DESC, id) k FROM (SELECT id, grp, llm_generate(body) s FROM docs) q) w WHERE k <= 3 ORDER BY id'),
	('SELECT * FROM (SELECT id, llm_generate(''r'' || row_number() OVER (ORDER BY id)) g, row_number() OVER (ORDER BY id) k FROM docs) w WHERE k <= 3 ORDER BY id');

SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w ORDER BY s.n;
-- sorted groups
SET enable_hashagg = off;
SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w WHERE query LIKE '%GROUP BY%' ORDER BY s.n;
RESET enable_hashagg;

-- a frame that starts again takes its rows in again: row by row that is a call each time
SELECT same, nodes, batched, row_by_row > batched AS fewer FROM both_ways('SELECT id, max(llm_generate(body)) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM docs WHERE id < 10 ORDER BY id');
-- a frame without its own row: row by row
SELECT same, nodes, batched = row_by_row AS equal FROM both_ways('SELECT id, count(llm_generate(body)) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) FROM docs WHERE id < 10 ORDER BY id');
-- partial aggregates of partitions
CREATE TABLE parts (id int, body text) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parts SELECT id, body FROM docs;
ANALYZE parts;
SET enable_partitionwise_aggregate = on;
EXPLAIN (COSTS OFF) SELECT max(llm_generate(body)), count(*) FROM parts;
SELECT * FROM both_ways('SELECT max(llm_generate(body)), count(*) FROM parts');
RESET enable_partitionwise_aggregate;
DROP TABLE parts;
-- an error of an argument
SELECT error_of($$SELECT max(llm_generate(CASE WHEN id = 30 THEN '@error=no' ELSE body END)) FROM docs$$);
SELECT max(llm_generate(CASE WHEN id = 30 THEN '@error=no' ELSE body END, on_error => 'null')) FROM docs;
SELECT engine_idle();
