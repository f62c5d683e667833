-- node_sets.sql - LLM Batch around set-returning functions, in target lists and in FROM
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, CASE WHEN i % 10 > 0 THEN 'b' || i || ',c' END, i % 4 FROM generate_series(1, 40) i;
ANALYZE docs;

-- arguments below, calls beside the set above; in FROM as a parameter from the outer side
EXPLAIN (COSTS OFF, VERBOSE) SELECT id, string_to_table(llm_generate(body), ','), llm_generate('beside ' || id) FROM docs;
EXPLAIN (COSTS OFF, VERBOSE) SELECT d.id, e FROM docs d, string_to_table(llm_generate(d.body), ',') e;

CREATE TEMP TABLE shapes (n serial, query text);
INSERT INTO shapes (query) VALUES
	-- target lists
	('SELECT id, string_to_table(llm_generate(body), '','') FROM docs ORDER BY id'),
	('SELECT id, string_to_table(llm_generate(body), '',''), generate_series(1, llm_count_tokens(body)) FROM docs WHERE id < 4 ORDER BY id'),
	('SELECT id, unnest(ARRAY[llm_generate(body), CASE WHEN grp = 1 THEN llm_generate(''one'') END]) FROM docs ORDER BY id'),
	('SELECT llm_generate(string_to_table(llm_generate(body), '','')) FROM docs ORDER BY id'),
	('SELECT id FROM (SELECT id, string_to_table(body, '','') p FROM docs) s WHERE llm_generate(p) LIKE ''%1'' ORDER BY id'),
	('SELECT p, count(*) FROM (SELECT string_to_table(llm_generate(body), '','') p FROM docs) s GROUP BY 1 HAVING llm_generate(p) < ''b2'' ORDER BY 1'),
	('SELECT grp, string_to_table(llm_generate(string_agg(body, '','' ORDER BY id)), '','') FROM docs GROUP BY grp ORDER BY 1, 2'),
	('SELECT unnest(ARRAY[llm_generate(''a''), llm_generate(''b'')])'),
	-- FROM
	('SELECT d.id, e FROM docs d, string_to_table(llm_generate(d.body), '','') e ORDER BY 1, 2'),
	('SELECT d.id, e, o FROM docs d LEFT JOIN LATERAL string_to_table(llm_generate(d.body), '','') WITH ORDINALITY e (e, o) ON e <> ''c'' AND d.grp = 1 ORDER BY 1, 3'),
	('SELECT d.id, x.* FROM docs d, jsonb_to_record(jsonb_build_object(''a'', llm_generate(d.body), ''b'', llm_count_tokens(d.body))) x (a text, b int) ORDER BY 1'),
	('SELECT d.id, x.* FROM docs d, ROWS FROM (llm_generate(d.body), generate_series(1, 2), string_to_table(llm_generate(''r'' || d.body), '','')) x ORDER BY 1, 3'),
	-- a function is evaluated again, and with it its arguments, for what it reads of the outer row alone
	('SELECT d.id, e FROM docs d LEFT JOIN string_to_table(llm_generate(''b3,b5''), '','') e ON e > d.body ORDER BY 1, 2'),
	('SELECT d.id, x.* FROM docs d LEFT JOIN LATERAL ROWS FROM (string_to_table(llm_generate(''a,b''), '',''), string_to_table(llm_generate(d.body), '','')) x ON true ORDER BY 1, 2'),
	('SELECT d.id, s.n FROM docs d, LATERAL (SELECT count(*) n FROM string_to_table(llm_generate(d.body), '','') e WHERE e LIKE ''b%'') s ORDER BY 1'),
	('SELECT d.id, s.e FROM docs d LEFT JOIN LATERAL (SELECT e FROM string_to_table(llm_generate(d.body), '','') e ORDER BY e DESC LIMIT 1) s ON true ORDER BY 1'),
	('SELECT d.id, s.g FROM docs d, LATERAL (SELECT llm_generate(e || d.id) g FROM string_to_table(llm_generate(d.body), '','') e) s ORDER BY 1, 2'),
	('SELECT d.id, f FROM docs d, string_to_table(llm_generate(d.body), '','') e, string_to_table(llm_generate(e || '','' || d.id), '','') f ORDER BY 1, 2'),
	('SELECT d.id FROM docs d WHERE EXISTS (SELECT FROM string_to_table(llm_generate(d.body), '','') e WHERE e = ''b7'')'),
	('SELECT d.id FROM docs d WHERE ''b7'' IN (SELECT string_to_table(llm_generate(d.body), '',''))'),
	('SELECT (SELECT string_agg(e, ''+'') FROM docs x, string_to_table(llm_generate(x.body || d.id), '','') e WHERE x.grp = d.id) FROM docs d WHERE d.id < 4 ORDER BY d.id'),
	('SELECT d.id, e FROM docs d, string_to_table(CASE WHEN d.grp = 1 THEN llm_generate(d.body) WHEN d.grp = 2 THEN ''x,y'' END, '','') e ORDER BY 1, 2'),
	-- row by row: once for a statement, a stream, sub-selects, none of the outer columns
	('SELECT * FROM string_to_table(llm_generate(''a,b''), '','')'),
	('SELECT id, llm_generate_stream(''x'' || grp) FROM docs WHERE id < 5 ORDER BY 1, 2'),
	('SELECT d.id, e FROM docs d, string_to_table((SELECT llm_generate(d.body)), '','') e ORDER BY 1, 2'),
	-- the argument of a stream is an argument like others
	('SELECT d.id, s FROM docs d, llm_generate_stream(llm_generate(d.grp::text)) s ORDER BY 1, 2');

SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w ORDER BY s.n;

-- which sets a LIMIT lets through is not known before
SELECT same, n, nodes, batched BETWEEN row_by_row AND 16 AS few FROM both_ways('SELECT id, string_to_table(llm_generate(body), '','') FROM docs ORDER BY id LIMIT 5');

-- a plan that is kept; an error of a row; rows to write
PREPARE parts(text) AS SELECT d.id, e FROM docs d, string_to_table(llm_generate(d.body || $1), ',') e WHERE d.id < 3;
SET plan_cache_mode = force_generic_plan;
EXECUTE parts('1');
EXECUTE parts('2');
RESET plan_cache_mode;
SELECT same, n FROM both_ways('SELECT d.id, e FROM docs d, string_to_table(llm_generate(CASE WHEN id = 4 THEN ''@error=four'' ELSE body END), '','') e LIMIT 4');
SELECT error_of('SELECT string_to_table(llm_generate(CASE WHEN id = 4 THEN ''@error=four'' ELSE body END), '','') FROM docs');
CREATE TEMP TABLE pieces AS SELECT d.id, e FROM docs d, string_to_table(llm_generate(d.body), ',') e;
UPDATE pieces p SET e = s.e || '!' FROM docs d, string_to_table(llm_generate(d.body), ',') s (e) WHERE d.id = p.id AND s.e = p.e AND d.id < 3;
SELECT count(*), string_agg(e, ' ' ORDER BY id, e) FILTER (WHERE id < 4) FROM pieces;
SELECT engine_idle();
