-- node_guards.sql - LLM Batch for calls below CASE, COALESCE, AND, OR and FILTER: made for the rows that reach them
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, label text, grp int, ok boolean);
INSERT INTO docs SELECT i, CASE WHEN i % 10 > 0 THEN 'b' || i END, CASE WHEN i % 3 = 0 THEN 'l' || i END, i % 4,
	CASE i % 3 WHEN 0 THEN true WHEN 1 THEN false END FROM generate_series(1, 60) i;
ANALYZE docs;

-- the prompt under its conditions, the expression above
EXPLAIN (COSTS OFF, VERBOSE) SELECT coalesce(label, llm_generate(body)) FROM docs;
EXPLAIN (COSTS OFF, VERBOSE) SELECT id FROM docs WHERE grp = 1 OR llm_generate(body) = 'b2';
EXPLAIN (COSTS OFF) SELECT CASE WHEN llm_generate('a' || body) < 'ab3' THEN llm_generate('b' || body) END FROM docs;
EXPLAIN (COSTS OFF) SELECT count(llm_generate(body)) FILTER (WHERE grp = 1) FROM docs;

CREATE TEMP TABLE shapes (n serial, query text);
INSERT INTO shapes (query) VALUES
	-- CASE
	('SELECT CASE WHEN grp = 1 THEN llm_generate(body) END FROM docs'),
	('SELECT CASE WHEN grp = 1 THEN ''one'' WHEN ok THEN llm_generate(''x'' || body) ELSE llm_generate(''y'' || body) END FROM docs'),
	('SELECT CASE grp WHEN 1 THEN llm_generate(body) WHEN 1 THEN llm_generate(''never'') WHEN 2 THEN body ELSE llm_generate(''z'' || id) END FROM docs'),
	('SELECT CASE llm_generate(grp::text) WHEN ''1'' THEN llm_generate(body) WHEN ''2'' THEN ''two'' ELSE llm_generate(''e'' || id) END FROM docs'),
	('SELECT CASE grp::text WHEN llm_generate(''1'') THEN llm_generate(body) ELSE ''no'' END FROM docs'),
	('SELECT CASE WHEN llm_generate(body) < ''b3'' THEN ''low'' WHEN llm_generate(''c'' || body) < ''cb5'' THEN ''mid'' ELSE ''high'' END FROM docs'),
	('SELECT CASE WHEN llm_generate(body) < ''b3'' THEN llm_generate(''low'' || body) ELSE llm_generate(''high'' || body) END FROM docs'),
	('SELECT CASE WHEN grp > 0 THEN CASE WHEN ok THEN llm_generate(body) ELSE coalesce(label, llm_generate(''n'' || id)) END END FROM docs'),
	('SELECT CASE WHEN grp = 1 THEN llm_generate(''const'') END FROM docs'),
	('SELECT CASE WHEN id <> 30 THEN llm_generate((100 / (id - 30))::text, max_tokens => 90 / abs(id - 30)) END FROM docs'),
	-- COALESCE
	('SELECT coalesce(label, llm_generate(body)) FROM docs'),
	('SELECT coalesce(label, llm_generate(body), llm_generate(''last '' || id)) FROM docs'),
	('SELECT coalesce(llm_generate(body), label, ''none'') FROM docs'),
	('SELECT llm_generate(coalesce(label, llm_generate(body)) || ''!'') FROM docs'),
	('SELECT coalesce(llm_generate(label), llm_generate(llm_generate(body) || 2), llm_generate(''x'' || id)) FROM docs'),
	('SELECT upper(coalesce(label, (llm_generate_result(body)).text)) FROM docs'),
	-- AND, OR with their unknown
	('SELECT ok AND llm_generate(body) < ''b4'', ok OR llm_generate(body) < ''b4'', NOT (ok AND llm_generate(body) < ''b4'') FROM docs'),
	('SELECT id FROM docs WHERE ok OR llm_generate(body) < ''b4'''),
	('SELECT id FROM docs WHERE llm_generate(body) < ''b3'' OR llm_generate(''x'' || body) > ''xb5'''),
	('SELECT id FROM docs WHERE (ok OR llm_generate(body) < ''b4'') AND (grp = 2 OR llm_generate(''y'' || id) <> ''y7'') AND llm_generate(label) > ''l2'''),
	('SELECT id FROM docs WHERE (ok AND llm_generate(body) < ''b4'') IS UNKNOWN'),
	('SELECT id FROM docs WHERE llm_generate(body) < ''b3'' AND grp > 0 OR grp = 0 AND llm_generate(''g'' || id) LIKE ''%2'' OR id = 5'),
	('SELECT ok AND (llm_generate(body) < ''b3'' OR llm_generate(''x'' || body) > ''xb5'') FROM docs'),
	-- three in a row: each decides about the next
	('SELECT CASE WHEN llm_generate(body) < ''b5'' THEN CASE WHEN llm_generate(''p'' || body) > ''pb2'' THEN llm_generate(''q'' || body) END END FROM docs'),
	('SELECT CASE WHEN coalesce(label, llm_generate(body)) < ''b4'' AND llm_generate(''a'' || id) > ''a2'' THEN llm_generate(''t'' || id) ELSE ''e'' END FROM docs'),
	-- beside free calls, all arguments of which are evaluated
	('SELECT llm_generate(body), CASE WHEN grp = 1 THEN llm_generate(body) END, nullif(llm_generate(''n'' || grp), ''n1''), greatest(llm_generate(body), label) FROM docs'),
	('SELECT CASE WHEN grp = 1 THEN llm_generate(body) END FROM docs WHERE llm_generate(''w'' || id) < ''w4'' ORDER BY id'),
	-- aggregates
	('SELECT count(llm_generate(body)) FILTER (WHERE grp = 1) FROM docs'),
	('SELECT grp, string_agg(id::text, '','' ORDER BY id) FILTER (WHERE llm_generate(body) < ''b3'') FROM docs GROUP BY grp ORDER BY grp'),
	('SELECT string_agg(llm_generate(''v'' || body), '','' ORDER BY id) FILTER (WHERE llm_generate(body) < ''b3'') FROM docs'),
	('SELECT max(CASE WHEN ok THEN llm_generate(body) END), max(coalesce(label, llm_generate(body))) FROM docs'),
	('SELECT grp, CASE WHEN count(*) > 14 AND min(id) > 1 THEN llm_generate(string_agg(body, '' '' ORDER BY id)) END FROM docs GROUP BY grp ORDER BY grp'),
	('SELECT grp FROM docs GROUP BY grp HAVING min(id) > 2 OR llm_generate(min(body)) = ''b1'' ORDER BY grp'),
	('SELECT id, max(llm_generate(body)) FILTER (WHERE ok) OVER (PARTITION BY grp) FROM docs ORDER BY id'),
	-- joins
	('SELECT a.id, CASE WHEN b.id IS NULL THEN ''alone'' ELSE llm_generate(a.body || b.body) END FROM docs a LEFT JOIN docs b ON b.id = a.id + 30 ORDER BY 1'),
	('SELECT a.id FROM docs a JOIN docs b ON b.id = a.id + 30 WHERE a.grp = 1 OR llm_generate(a.body || b.body) < ''b2'' ORDER BY 1'),
	-- conditions that may not be evaluated twice: row by row
	('SELECT CASE WHEN random() >= 0 THEN llm_generate(body) END FROM docs'),
	('SELECT CASE WHEN EXISTS (SELECT 1 FROM docs x WHERE x.id = d.id + 50) THEN llm_generate(body) END FROM docs d'),
	('SELECT CASE WHEN (grp, llm_generate(body)) > (2, ''b3'') THEN llm_generate(''r'' || id) END FROM docs'),
	('SELECT string_agg(llm_generate(body), '','' ORDER BY id) FILTER (WHERE random() >= 0) FROM docs');

SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w ORDER BY s.n;

-- writing
UPDATE docs SET label = coalesce(label, llm_generate(body)) WHERE ok OR llm_generate('u' || body) LIKE 'ub5%';
SELECT count(label), string_agg(label, ' ' ORDER BY id) FILTER (WHERE label LIKE 'b%') FROM docs;
-- an error of a call that no row reaches is none; of one that a row reaches, it is raised at that row
SELECT id, CASE WHEN id < 0 THEN llm_generate('@error=no') ELSE body END FROM docs WHERE id = 1;
SELECT same, n FROM both_ways('SELECT CASE WHEN id > 4 THEN llm_generate(''@error=five'') ELSE body END FROM docs ORDER BY id LIMIT 4');
SELECT same, n FROM both_ways('SELECT CASE WHEN id > 4 THEN llm_generate(''@error=five'') ELSE body END FROM docs ORDER BY id LIMIT 5');
SELECT error_of('SELECT CASE WHEN id > 4 THEN llm_generate(''@error=five'') ELSE body END FROM docs ORDER BY id LIMIT 5');
-- prepared, with a parameter as the condition
PREPARE chosen(int) AS SELECT id, CASE WHEN grp = $1 THEN llm_generate(body) END AS g FROM docs WHERE id < 6 ORDER BY id;
SET plan_cache_mode = force_generic_plan;
EXECUTE chosen(1);
RESET plan_cache_mode;
EXECUTE chosen(2);
SELECT engine_idle();
-- a chain of conditions that call the model: as many layers, whose columns are shown and evaluated once each
CREATE FUNCTION shown_in(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	line text;
	sum int := 0;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
		sum := sum + length(ltrim(line));
	END LOOP;
	RETURN sum;
END
$$;
SELECT s.source, c.n, shown_in(query) / c.n / c.n AS characters, w.same, w.nodes, w.batched, w.row_by_row
FROM (VALUES ('docs'), ('docs JOIN (SELECT id FROM docs OFFSET 0) b USING (id)')) s (source), (VALUES (10), (60)) c (n),
	LATERAL (SELECT format('SELECT CASE %s END FROM %s WHERE id < 6', string_agg(format('WHEN llm_generate(body || id || %s) = ''b33%1$s'' THEN %1$s', i), ' '), s.source)
		FROM generate_series(1, c.n) i) q (query),
	LATERAL both_ways(query) w ORDER BY s.source, c.n;
