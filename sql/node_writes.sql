-- node_writes.sql - LLM Batch below statements that write: the same rows and as many requests as row by row
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE words (id int, t text);
INSERT INTO words SELECT i, CASE WHEN i % 4 = 0 THEN 'x' ELSE i::text END FROM generate_series(1, 20) i;
CREATE TABLE docs (id int PRIMARY KEY, a text, b text, n int DEFAULT 0);
INSERT INTO docs SELECT i, 't' || i, NULL, i FROM generate_series(1, 20) i;
CREATE TABLE parts (id int PRIMARY KEY, a text, b text) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_high (b text, gone int, id int NOT NULL, a text);
ALTER TABLE parts_high DROP gone;
ALTER TABLE parts ATTACH PARTITION parts_high FOR VALUES FROM (10) TO (100);
INSERT INTO parts SELECT id, a, b FROM docs;
ANALYZE words, docs, parts;
CREATE VIEW checked AS SELECT id, a, b FROM docs WHERE llm_generate(a) <> 't3' WITH CHECK OPTION;
CREATE VIEW ruled AS SELECT id, a FROM docs;
CREATE RULE also AS ON UPDATE TO ruled DO ALSO INSERT INTO docs VALUES (OLD.id + 500, llm_generate('rule ' || NEW.a));

CREATE TABLE shapes (n serial, query text);
INSERT INTO shapes (query) VALUES
	-- UPDATE: lists, conditions, sources, rows that move, views
	('UPDATE docs SET a = llm_generate(''u'' || a), b = llm_generate(''v'' || a) WHERE llm_generate(a) < ''t2'''),
	('UPDATE docs SET a = b, b = llm_generate(a) WHERE id % 2 = 0'),
	('UPDATE docs SET (a, b) = (llm_generate(''p'' || a), llm_generate(''q'' || a))'),
	('UPDATE docs SET (a, n) = ROW (llm_generate(''p'' || a), DEFAULT)'),
	('UPDATE docs SET a = CASE WHEN id < 5 THEN llm_generate(a) ELSE a END, b = coalesce(b, llm_generate(''c'' || a))'),
	('UPDATE docs SET a = (SELECT llm_generate(docs.a || max(w.t)) FROM words w WHERE w.id <= docs.id) WHERE id < 6'),
	('UPDATE docs d SET a = llm_generate(d.a || w.t) FROM words w WHERE w.id = d.id AND llm_generate(w.t) <> ''x'''),
	('UPDATE docs d SET a = s.g FROM (SELECT id, llm_generate(t) g FROM words) s WHERE s.id = d.id'),
	('UPDATE parts SET b = llm_generate(w.t || parts.a) FROM words w WHERE w.id = parts.id'),
	('UPDATE parts SET id = CASE WHEN id < 10 THEN id + 20 + 0 * llm_count_tokens(a) ELSE id END WHERE id <> 10 AND llm_generate(a) < ''t6'''),
	('UPDATE parts SET id = id + 40 WHERE id = 1 OR llm_generate(a) = ''t2'''),
	('UPDATE checked SET b = llm_generate(''view '' || a) WHERE id < 6'),
	('UPDATE checked SET a = llm_generate(''t3'') WHERE id = 1'),
	('UPDATE ruled SET a = llm_generate(''w'' || a) WHERE id < 4'),
	-- DELETE
	('DELETE FROM docs WHERE llm_generate(a) < ''t2'''),
	('DELETE FROM docs USING words w WHERE w.id = docs.id AND llm_generate(docs.a || w.t) LIKE ''%x'''),
	('DELETE FROM docs WHERE EXISTS (SELECT FROM words w WHERE w.id = docs.id AND llm_generate(w.t) = ''x'')'),
	('DELETE FROM docs WHERE id IN (SELECT id FROM words WHERE llm_generate(t) = ''x'')'),
	('DELETE FROM parts WHERE llm_generate(a) < ''t2'''),
	-- INSERT
	('INSERT INTO docs SELECT id + 100, llm_generate(a), llm_generate(llm_generate(a) || 2) FROM docs'),
	('INSERT INTO docs (id, a) SELECT id + 100, a FROM docs WHERE llm_generate(a) < ''t2'''),
	('INSERT INTO docs (id, a) SELECT id, llm_generate(a || ''!'') FROM docs WHERE id < 4 ON CONFLICT (id) DO UPDATE SET a = EXCLUDED.a, b = llm_generate(docs.a)'),
	('INSERT INTO docs (id, a) SELECT id, llm_generate(a || ''!'') FROM docs ON CONFLICT (id) DO UPDATE SET a = EXCLUDED.a WHERE llm_generate(docs.a || EXCLUDED.a) < ''t2'''),
	('INSERT INTO docs (id, a) SELECT id, llm_generate(a || ''!'') FROM docs ON CONFLICT DO NOTHING'),
	('INSERT INTO parts SELECT id + 40, llm_generate(a) FROM docs'),
	-- MERGE: its source and its condition are batched, WHEN and actions are row by row
	('MERGE INTO docs d USING words w ON w.id = d.id WHEN MATCHED AND llm_generate(d.a || w.t) LIKE ''%x'' THEN DELETE WHEN MATCHED AND llm_generate(w.t) < ''3'' THEN UPDATE SET a = llm_generate(''m'' || d.a), b = w.t WHEN NOT MATCHED THEN INSERT VALUES (w.id, llm_generate(w.t))'),
	('MERGE INTO docs d USING (SELECT id + 10 id, llm_generate(t) g FROM words) s ON s.id = d.id WHEN MATCHED AND g = ''x'' THEN DO NOTHING WHEN MATCHED THEN UPDATE SET a = g WHEN NOT MATCHED AND llm_generate(g) <> ''x'' THEN INSERT (id, a) VALUES (s.id, g)'),
	('MERGE INTO docs d USING words w ON w.id = d.id AND llm_generate(w.t) <> ''x'' WHEN MATCHED THEN UPDATE SET a = ''hit'' WHEN NOT MATCHED THEN INSERT VALUES (w.id + 1000, ''miss'')'),
	('MERGE INTO docs d USING words w ON w.id = d.id AND llm_generate(w.t) <> ''x'' WHEN MATCHED THEN UPDATE SET a = ''hit'''),
	('MERGE INTO parts p USING words w ON w.id = p.id WHEN MATCHED AND llm_generate(p.a) < ''t2'' THEN UPDATE SET a = llm_generate(p.a || w.t) WHEN MATCHED THEN DELETE'),
	-- WITH
	('WITH s AS (SELECT id, llm_generate(t) g FROM words), u AS (UPDATE docs SET a = g FROM s WHERE s.id = docs.id RETURNING docs.id, llm_generate(a) r), i AS (INSERT INTO docs SELECT id + 200, r FROM u WHERE llm_generate(r) <> ''x'' RETURNING id) SELECT count(*) FROM i'),
	('WITH d AS (DELETE FROM docs WHERE llm_generate(a) < ''t2'' RETURNING *) INSERT INTO docs SELECT id + 100, llm_generate(''back '' || a) FROM d');
SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query, 'SELECT id, a, b FROM docs UNION ALL SELECT id, a, b FROM parts ORDER BY 1, 2, 3') w ORDER BY s.n;

-- locking: a LIMIT looks through FOR UPDATE, unless it skips rows
SELECT * FROM both_ways('SELECT id, llm_generate(a) FROM docs ORDER BY id LIMIT 3 FOR UPDATE');
SELECT same, n, nodes, batched BETWEEN row_by_row AND 20 AS few FROM both_ways('SELECT id, llm_generate(a) FROM docs ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED');
SELECT * FROM both_ways('SELECT llm_generate(d.a || w.t) FROM docs d JOIN words w USING (id) WHERE llm_generate(d.a) < ''t2'' FOR SHARE OF d NOWAIT');

-- what calls the model by itself: CHECK, DEFAULT and domains do, indexes, partition keys and generated columns cannot
CREATE DOMAIN polite AS text CHECK (llm_generate(VALUE) <> 'rude');
CREATE TABLE own (id int, note polite, d text DEFAULT llm_generate('default'), CHECK (llm_generate(d) <> 'bad'));
SELECT * FROM both_ways('INSERT INTO own SELECT id, t FROM words WHERE id < 4', 'SELECT * FROM own ORDER BY id');
SELECT * FROM both_ways('SELECT llm_generate(t)::polite FROM words WHERE id < 4');
SELECT error_of($$INSERT INTO own VALUES (1, 'rude')$$), error_of($$INSERT INTO own VALUES (1, 'x', llm_generate('bad'))$$);
INSERT INTO own VALUES (1, 'x');
ALTER TABLE own ADD e text DEFAULT llm_generate('added');
ALTER TABLE own ALTER d TYPE text USING llm_generate('new ' || d);
SELECT * FROM own;
CREATE INDEX ON own (llm_generate(d));
CREATE INDEX ON own (id) WHERE llm_generate(d) = 'x';
CREATE TABLE keyed (d text) PARTITION BY LIST (llm_generate(d));
ALTER TABLE own ADD g text GENERATED ALWAYS AS (llm_generate(d)) STORED;
SELECT engine_idle();
DROP TABLE docs, words, parts, shapes, own CASCADE;
DROP DOMAIN polite;
