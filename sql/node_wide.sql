-- node_wide.sql - LLM Batch with many calls, many columns, deep nesting, and columns of every kind
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- n of pattern, with # as their number
CREATE FUNCTION many(pattern text, n int, separator text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(replace(pattern, '#', i::text), separator ORDER BY i) FROM generate_series(1, n) i
$$;
SELECT w.* FROM both_ways('SELECT id, ' || many('llm_generate(''c#'' || id)', 50, ', ') || ' FROM generate_series(1, 10) id') w;
SELECT w.* FROM both_ways('SELECT id, ' || many('id + #', 1600, ', ') || ', llm_generate(id::text) FROM generate_series(1, 5) id') w;
SELECT w.* FROM both_ways('SELECT id FROM generate_series(1, 10) id WHERE ' || many('llm_generate(''c#'' || id) <> ''c#5''', 50, ' AND ')) w;
SELECT w.* FROM both_ways('SELECT count(*), ' || many('max(llm_generate(''c#'' || id))', 50, ', ') || ' FROM generate_series(1, 5) id') w;
SELECT w.* FROM both_ways('SELECT id, ' || repeat('llm_generate(', 40) || 'id::text' || repeat(')', 40) || ' FROM generate_series(1, 5) id') w;
SELECT w.* FROM both_ways('SELECT id, ' || repeat('CASE WHEN id > 1 THEN llm_generate(', 25) || 'id::text' || repeat(') END', 25) || ' FROM generate_series(1, 5) id') w;
-- each decides about those after it
SELECT w.* FROM both_ways('SELECT id, coalesce(' || many('nullif(llm_generate(''c#'' || id), ''c#'' || id)', 30, ', ') || ') FROM generate_series(1, 5) id') w;
SELECT w.* FROM both_ways('SELECT id, CASE ' || many('WHEN llm_generate(''c#'' || id) = ''c48'' THEN llm_generate(''r#'')', 10, ' ') || ' END FROM generate_series(1, 10) id') w;
SELECT w.* FROM both_ways('SELECT id FROM generate_series(1, 10) id WHERE ' || many('llm_generate(''c#'' || id) = ''c44''', 10, ' OR ')) w;
SET statement_timeout = '20s';
SELECT count(*) > 40 AS planned FROM explain_of('SELECT CASE ' || many('WHEN llm_generate(''c#'' || id) = ''x'' THEN llm_generate(''r#'')', 40, ' ') || ' END FROM generate_series(1, 2) id WHERE id < 0');
RESET statement_timeout;

-- columns: domains, composites, arrays, dropped, generated, of the system, whole rows
CREATE DOMAIN short AS text CHECK (length(VALUE) < 10);
CREATE TYPE pair AS (x int, y text);
CREATE TABLE typed (id int, gone int, s short, p pair, arr text[], n numeric(8, 2), ts timestamptz, j jsonb, v varchar(20), c char(5), twice text GENERATED ALWAYS AS (id || 'g') STORED);
ALTER TABLE typed DROP gone;
INSERT INTO typed SELECT i, 's' || i, (i, 'y' || i)::pair, ARRAY['a' || i, 'b'], i * 1.5, '2020-01-01'::timestamptz + i * interval '1 day', jsonb_build_object('k', 'v' || i), 'v' || i, 'c' FROM generate_series(1, 12) i;
ALTER TABLE typed ADD late text DEFAULT 'zz';
CREATE TABLE parts (id int, body text) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (5);
CREATE TABLE parts_high (body text, gone int, id int);
ALTER TABLE parts_high DROP gone;
ALTER TABLE parts ATTACH PARTITION parts_high FOR VALUES FROM (5) TO (100);
INSERT INTO parts SELECT i, 'p' || i FROM generate_series(1, 12) i;
ANALYZE typed, parts;
CREATE FUNCTION asks(x text) RETURNS text LANGUAGE sql AS $$SELECT llm_generate('a' || x) || llm_generate('b' || x)$$;
CREATE FUNCTION strictly(x text) RETURNS text LANGUAGE sql STRICT AS $$SELECT llm_generate('s' || x)$$;
CREATE FUNCTION any_of(a anyarray) RETURNS text LANGUAGE sql AS $$SELECT llm_generate(a[1]::text)$$;
CREATE FUNCTION wrapped(a anyelement) RETURNS anyelement LANGUAGE plpgsql AS $$BEGIN RETURN llm_generate(a::text); END$$;
CREATE TEMP TABLE shapes (n serial, query text);
-- XML where the server can
SELECT error_of('SELECT xmlelement(name e)') LIKE 'no error%' AS has_xml \gset
\if :has_xml
\set element 'xmlelement(name e, llm_generate(s))::text'
\else
\set element 'upper(llm_generate(s))'
\endif
INSERT INTO shapes (query) VALUES
	('SELECT id, llm_generate(s), llm_generate(v), llm_generate(c), llm_generate(late), llm_generate(twice) FROM typed ORDER BY id'),
	('SELECT id, llm_generate((p).y), llm_generate((p).x::text), (p).x, llm_generate(arr), llm_generate(arr[1]), arr[1:1] FROM typed ORDER BY id'),
	('SELECT id, llm_generate(n::text), llm_generate(ts::date::text), llm_generate(j ->> ''k'') FROM typed WHERE llm_generate(s) < ''s4'' ORDER BY id'),
	('SELECT t, (t.p).y || llm_generate(to_json(t)::text), llm_generate(t::text) FROM typed t WHERE llm_generate(t::text) <> '''' ORDER BY id'),
	('SELECT id, llm_generate(id::text)::numeric(5, 1), llm_generate(s)::short, llm_generate(v)::varchar(2), llm_generate(s) COLLATE "C" FROM typed WHERE llm_generate(s) COLLATE "C" < ''s3'' ORDER BY id'),
	('SELECT ctid, xmin IS NOT NULL, tableoid::regclass, llm_generate(ctid::text) FROM typed WHERE llm_generate(tableoid::regclass::text) = ''typed'' ORDER BY id'),
	('SELECT tableoid::regclass, ctid, p, llm_generate(p::text), llm_generate(tableoid::regclass || body) FROM parts p WHERE llm_generate(p::text) > ''(2'' ORDER BY id'),
	('SELECT a.id, b, llm_generate(b::text) FROM typed a LEFT JOIN parts b ON b.id = a.id + 6 WHERE llm_generate(coalesce(b::text, ''none'')) <> ''x'' ORDER BY 1'),
	-- in constructors, comparisons, conversions, functions of others
	('SELECT ARRAY[llm_generate(s), llm_generate(v)], ROW (llm_generate(s), id), jsonb_build_object(''a'', llm_generate(s), ''b'', jsonb_build_array(llm_generate(v))), (ARRAY[llm_generate(s), ''x''])[1], (ROW (llm_generate(s), id)).f1 FROM typed ORDER BY id'),
	('SELECT ROW (llm_generate(s), 1) = ROW (''s1'', 1), ROW (llm_generate(s), 1) IS NULL, (llm_generate(s), id) IN ((''s1'', 1), (''s2'', 2)), llm_generate(s) IS DISTINCT FROM ''s1'', llm_generate(s) BETWEEN ''s1'' AND ''s2'' FROM typed ORDER BY id'),
	('SELECT ' || :'element' || ', nullif(llm_generate(s), ''s1''), least(llm_generate(s), v), llm_generate(s) ~ ''1'', llm_generate(s) = ANY (ARRAY[''s1'', llm_generate(v)]) FROM typed ORDER BY id'),
	('SELECT asks(s), asks(asks(v)), strictly(s), strictly(NULL), any_of(arr), any_of(ARRAY[id]) FROM typed WHERE asks(s) > ''a'' ORDER BY id'),
	('SELECT wrapped(s::text), wrapped(id), wrapped(ARRAY[s::text])::text FROM typed ORDER BY id'),
	('SELECT llm_generate(s, max_tokens => length(llm_generate(''ab'')), stop => ARRAY[llm_generate(''1'')], options => jsonb_build_object(''temperature'', llm_generate(''0'')::int)) FROM typed ORDER BY id'),
	-- rows of VALUES, and a table of them
	('SELECT i, llm_generate(g) FROM (VALUES (1, llm_generate(''a'')), (2, llm_generate(''b''))) v (i, g) ORDER BY 1'),
	('SELECT id FROM typed TABLESAMPLE SYSTEM (100) WHERE llm_generate(s) < ''s2'' ORDER BY 1'),
	('SELECT id FROM typed WHERE ctid IN (SELECT ctid FROM typed WHERE llm_generate(s) < ''s2'') AND llm_generate(v) <> ''v1'' ORDER BY 1');
SELECT s.n, w.* FROM shapes s, LATERAL both_ways(query) w ORDER BY s.n;
DROP TABLE typed, parts;
DROP FUNCTION many(text, int, text), asks(text), strictly(text), any_of(anyarray), wrapped(anyelement);
DROP DOMAIN short;
DROP TYPE pair;
