-- call_counts.sql - how often each shape of a query calls the model, beside a plain function of PostgreSQL; docs/calls.md shows it
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare
\set ECHO none

-- 1,000 rows of 50 texts, 100 products
CREATE TABLE products (id int PRIMARY KEY, price int);
INSERT INTO products SELECT i, i FROM generate_series(1, 100) i;
CREATE TABLE reviews (id int PRIMARY KEY, product int, body text, label text);
INSERT INTO reviews SELECT i, 1 + i % 100, 'b' || i % 50 FROM generate_series(1, 1000) i;
ANALYZE products, reviews;

-- ?_ stands for mock_ and llm_; the mock is what such functions are written as: expensive and volatile
CREATE SEQUENCE mock_calls;
CREATE FUNCTION mock_generate(prompt text) RETURNS text LANGUAGE plpgsql VOLATILE STRICT COST 1000000
AS $$BEGIN PERFORM nextval('public.mock_calls'); RETURN prompt; END$$;
CREATE FUNCTION join_texts(a text, b text) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT coalesce(a || ' ', '') || b$$;
SELECT format('CREATE VIEW %1$s_labels AS SELECT id, %1$s_generate(body) AS label FROM reviews', kind),
	format('CREATE FUNCTION %1$s_finish(text) RETURNS text LANGUAGE plpgsql AS $f$BEGIN RETURN %1$s_generate(coalesce($1, %2$L)); END$f$', kind, ''),
	format('CREATE AGGREGATE %1$s_digest(text) (sfunc = join_texts, stype = text, finalfunc = %1$s_finish)', kind)
FROM (VALUES ('mock'), ('llm')) k(kind) \gexec

CREATE ROLE regress_reader;
GRANT SELECT ON reviews TO regress_reader;
GRANT ALL ON SEQUENCE mock_calls TO regress_reader;
GRANT USAGE ON FOREIGN SERVER echo TO regress_reader;
ALTER TABLE reviews ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_product_7 ON reviews TO regress_reader USING (product = 7);

CREATE TABLE ways (no serial, name text, kind text, temperature text);
INSERT INTO ways (name, kind, temperature) VALUES ('plain', 'mock', '0'), ('sampled', 'llm', '1'), ('greedy', 'llm', '0');
CREATE TABLE counts (no int, shape text, way text, calls bigint);

-- the statements are run one after the other and undone; calls are what the sequence counted, or what was sent to the engine
CREATE FUNCTION total(way ways) RETURNS bigint LANGUAGE sql
AS $$SELECT CASE WHEN (way).kind = 'mock' THEN (SELECT last_value FROM mock_calls) ELSE (SELECT coalesce(sum(requests), 0)::bigint FROM llm.stat_users) END$$;
CREATE FUNCTION calls_of(way ways, statements text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint := total(way);
	statement text;
BEGIN
	BEGIN
		PERFORM set_config('llm_infer.temperature', way.temperature, true);
		FOREACH statement IN ARRAY statements LOOP
			EXECUTE replace(statement, '?_', way.kind || '_');
		END LOOP;
		RAISE EXCEPTION USING ERRCODE = 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
		NULL;
	END;
	RETURN total(way) - before;
END
$$;

CREATE TABLE shapes (no serial, shape text, statements text[]);
SELECT setval('mock_calls', 1) \g /dev/null
INSERT INTO shapes (shape, statements) SELECT shape, string_to_array(statements, ';') FROM (VALUES
	('LIMIT 10', 'SELECT id, ?_generate(body) FROM reviews LIMIT 10'),
	('ORDER BY id LIMIT 10', 'SELECT id, ?_generate(body) FROM reviews ORDER BY id LIMIT 10'),
	('ORDER BY body LIMIT 10', 'SELECT id, ?_generate(body) FROM reviews ORDER BY body LIMIT 10'),
	('ORDER BY body', 'SELECT id, ?_generate(body) FROM reviews ORDER BY body'),
	('OFFSET 100 LIMIT 10', 'SELECT id, ?_generate(body) FROM reviews ORDER BY id OFFSET 100 LIMIT 10'),
	('WHERE call LIMIT 5', $$SELECT id FROM reviews WHERE ?_generate(body) <> '' LIMIT 5$$),
	('EXISTS (WHERE call)', $$SELECT EXISTS (SELECT FROM reviews WHERE ?_generate(body) <> '')$$),
	('WHERE call AND cheap, 200 left', $$SELECT id FROM reviews WHERE ?_generate(body) <> '' AND product <= 20$$),
	('join, cheap condition on the other table', $$SELECT p.id FROM products p JOIN reviews r ON r.product = p.id WHERE ?_generate(r.body) <> '' AND p.price > 90$$),
	('... the join in a MATERIALIZED CTE', $$WITH c AS MATERIALIZED (SELECT r.* FROM products p JOIN reviews r ON r.product = p.id WHERE p.price > 90) SELECT id FROM c WHERE ?_generate(body) <> ''$$),
	('... the join in a sub-select OFFSET 0', $$SELECT id FROM (SELECT r.* FROM products p JOIN reviews r ON r.product = p.id WHERE p.price > 90 OFFSET 0) c WHERE ?_generate(body) <> ''$$),
	('... the call over both tables in ON', $$SELECT FROM products p JOIN reviews r ON r.product = p.id AND ?_generate(r.body || p.price) <> '' WHERE p.price > 90$$),
	('NOT EXISTS (10 products left) AND call', $$SELECT id FROM reviews r WHERE NOT EXISTS (SELECT FROM products p WHERE p.id = r.product AND p.price <= 90) AND ?_generate(body) <> ''$$),
	('left join, call in ON', $$SELECT r.id FROM reviews r LEFT JOIN products p ON p.id = r.product AND ?_generate(r.body) <> '' AND p.price > 90$$),
	('view, its column is not read', 'SELECT id FROM ?_labels'),
	('count(*) over the view', 'SELECT count(*) FROM ?_labels'),
	('value of a sub-select read 3 times', 'SELECT l, length(l), upper(l) FROM (SELECT ?_generate(body) AS l FROM reviews) s'),
	('... of its first 100 rows', 'SELECT l, length(l), upper(l) FROM (SELECT ?_generate(body) AS l FROM reviews LIMIT 100) s'),
	('value of a CTE read 3 times', 'WITH s AS (SELECT ?_generate(body) AS l FROM reviews) SELECT l, length(l), upper(l) FROM s'),
	('CTE that is joined with itself', 'WITH s AS (SELECT id, ?_generate(body) AS l FROM reviews) SELECT FROM s a JOIN s b USING (id)'),
	('LATERAL, value read twice', 'SELECT r.id, x.l, x.l || 1 FROM reviews r, LATERAL (SELECT ?_generate(r.body) AS l) x'),
	('LATERAL OFFSET 0', 'SELECT r.id, x.l, x.l || 1 FROM reviews r, LATERAL (SELECT ?_generate(r.body) AS l OFFSET 0) x'),
	('GROUP BY call', 'SELECT ?_generate(body), count(*) FROM reviews GROUP BY 1'),
	('DISTINCT call', 'SELECT DISTINCT ?_generate(body) FROM reviews'),
	('call over DISTINCT', 'SELECT b, ?_generate(b) FROM (SELECT DISTINCT body AS b FROM reviews) s'),
	('DISTINCT ON, 100 groups', 'SELECT DISTINCT ON (product) product, ?_generate(body) FROM reviews ORDER BY product, id'),
	('ORDER BY call DESC LIMIT 5', 'SELECT id, ?_generate(body) AS s FROM reviews ORDER BY s DESC, id LIMIT 5'),
	('ORDER BY call LIMIT 3, not in the list', 'SELECT id FROM reviews ORDER BY ?_generate(body) LIMIT 3'),
	('first 50 by id, ORDER BY call', 'SELECT id, ?_generate(body) FROM (SELECT * FROM reviews ORDER BY id LIMIT 50) s ORDER BY 2'),
	('the same call twice in the list, LIMIT 10', 'SELECT id, ?_generate(body), length(?_generate(body)) FROM reviews ORDER BY id LIMIT 10'),
	('the same call in list and WHERE', $$SELECT id, ?_generate(body) FROM reviews WHERE ?_generate(body) <> 'zz'$$),
	('constant prompt in the list', $$SELECT id, ?_generate('const') FROM reviews$$),
	('constant prompt in WHERE', $$SELECT id FROM reviews WHERE body < ?_generate('const')$$),
	('constant prompt beside an index', $$SELECT id FROM reviews WHERE id = length(?_generate('c'))$$),
	('constant prompt in a scalar sub-select', $$SELECT id FROM reviews WHERE body < (SELECT ?_generate('const'))$$),
	('... in a prepared statement, custom plan', $$SET LOCAL plan_cache_mode = force_custom_plan;PREPARE custom(text) AS SELECT id FROM reviews WHERE id = length(?_generate($1));EXECUTE custom('c');DEALLOCATE custom$$),
	('... in a prepared statement, generic plan', $$SET LOCAL plan_cache_mode = force_generic_plan;PREPARE generic(text) AS SELECT id FROM reviews WHERE id = length(?_generate($1));EXECUTE generic('c');DEALLOCATE generic$$),
	('aggregate over calls, HAVING drops all', $$SELECT product, string_agg(?_generate(body), ',') FROM reviews GROUP BY product HAVING count(*) > 20$$),
	('call over an aggregate, HAVING drops all', $$SELECT product, ?_generate(string_agg(body, ',')) FROM reviews GROUP BY product HAVING count(*) > 20$$),
	('call over an aggregate, LIMIT 5', $$SELECT product, ?_generate(string_agg(body, ',')) FROM reviews GROUP BY product LIMIT 5$$),
	('final function that calls, HAVING drops all', 'SELECT product, ?_digest(body) FROM reviews GROUP BY product HAVING count(*) > 20'),
	('... HAVING in a sub-select of the groups', 'SELECT product, ?_digest(body) FROM reviews WHERE product IN (SELECT product FROM reviews GROUP BY product HAVING count(*) > 20) GROUP BY product'),
	('... LIMIT 5', 'SELECT product, ?_digest(body) FROM reviews GROUP BY product LIMIT 5'),
	('... twice in the list', 'SELECT product, ?_digest(body), length(?_digest(body)) FROM reviews GROUP BY product'),
	('... without rows', 'SELECT ?_digest(body) FROM reviews WHERE false'),
	('... over a growing window, 100 rows', 'SELECT ?_digest(body) OVER (ORDER BY id) FROM reviews WHERE id <= 100'),
	('... over a whole partition, 100 rows', 'SELECT ?_digest(body) OVER (PARTITION BY 1) FROM reviews WHERE id <= 100'),
	('... over grouping sets (100 + 1)', 'SELECT product, ?_digest(body) FROM reviews GROUP BY GROUPING SETS ((product), ())'),
	('row_number() <= 3 by a call', 'SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY product ORDER BY s) AS k FROM (SELECT id, product, ?_generate(body) AS s FROM reviews) q) w WHERE k <= 3'),
	('CASE, 10 rows reach the call', 'SELECT CASE WHEN product = 5 THEN ?_generate(body) END FROM reviews'),
	('coalesce(label, call)', 'SELECT coalesce(label, ?_generate(body)) FROM reviews'),
	('cheap OR call, 500 rows reach it', $$SELECT id FROM reviews WHERE product <= 50 OR ?_generate(body) <> ''$$),
	('call OR cheap', $$SELECT id FROM reviews WHERE ?_generate(body) <> '' OR product <= 50$$),
	('UNION ALL LIMIT 5', '(SELECT ?_generate(body) FROM reviews) UNION ALL (SELECT ?_generate(body) FROM reviews) LIMIT 5'),
	('UNION LIMIT 5', '(SELECT ?_generate(body) FROM reviews) UNION (SELECT ?_generate(body) FROM reviews) LIMIT 5'),
	('row level security, 10 rows visible', $$SET LOCAL ROLE regress_reader;SELECT count(*) FROM reviews WHERE ?_generate(body) <> ''$$),
	('UPDATE of 100 rows', 'UPDATE reviews SET label = ?_generate(body) WHERE id <= 100'),
	('INSERT .. SELECT ON CONFLICT DO NOTHING', 'INSERT INTO reviews SELECT id, product, ?_generate(body), NULL FROM reviews ON CONFLICT DO NOTHING'),
	('MERGE, value read 3 times, 100 groups', $$MERGE INTO products p USING (SELECT product, ?_generate(string_agg(body, ',')) AS x FROM reviews GROUP BY product) s ON p.id = s.product WHEN MATCHED AND s.x IS DISTINCT FROM 'x' THEN UPDATE SET price = length(s.x) WHEN NOT MATCHED THEN INSERT VALUES (0, length(s.x))$$),
	('EXPLAIN', 'EXPLAIN SELECT id, ?_generate(body) FROM reviews'),
	('CREATE TABLE AS .. WITH NO DATA', 'CREATE TABLE made AS SELECT ?_generate(body) AS l FROM reviews WITH NO DATA'),
	('CREATE MATERIALIZED VIEW .. WITH NO DATA', 'CREATE MATERIALIZED VIEW made AS SELECT id, ?_generate(body) AS l FROM reviews WITH NO DATA'),
	('CREATE MATERIALIZED VIEW', 'CREATE MATERIALIZED VIEW made AS SELECT id, ?_generate(body) AS l FROM reviews'),
	('... and REFRESH', 'CREATE MATERIALIZED VIEW made AS SELECT id, ?_generate(body) AS l FROM reviews;REFRESH MATERIALIZED VIEW made'),
	('... and REFRESH CONCURRENTLY', 'CREATE MATERIALIZED VIEW made AS SELECT id, ?_generate(body) AS l FROM reviews;CREATE UNIQUE INDEX ON made (id);REFRESH MATERIALIZED VIEW CONCURRENTLY made'),
	('cursor, 10 rows', 'DECLARE few CURSOR FOR SELECT id, ?_generate(body) FROM reviews;MOVE 10 FROM few;CLOSE few'),
	('SCROLL cursor: 5, back 4, 3', 'DECLARE few SCROLL CURSOR FOR SELECT id, ?_generate(body) FROM reviews;MOVE 5 FROM few;MOVE BACKWARD 4 FROM few;MOVE 3 FROM few;CLOSE few')) s(shape, statements);
INSERT INTO shapes (shape, statements) VALUES ('two aborted subtransactions with a call', ARRAY[$q$DO $do$BEGIN
	FOR i IN 1..2 LOOP BEGIN PERFORM ?_generate('a'); RAISE EXCEPTION 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP;
END $do$$q$]);

INSERT INTO counts SELECT shapes.no, shape, ways.name, calls_of(ways, statements) FROM shapes, ways ORDER BY shapes.no, ways.no;
-- WITH HOLD runs at the end of its transaction
SELECT unnest(ARRAY['BEGIN', format('SET LOCAL llm_infer.temperature = %s', temperature),
	format('CREATE TEMP TABLE start AS SELECT total(w) AS n FROM ways w WHERE no = %s', no),
	format('DECLARE held CURSOR WITH HOLD FOR SELECT id, %s_generate(body) FROM reviews', kind), 'COMMIT', 'CLOSE held',
	format('INSERT INTO counts SELECT 1000, %L, name, total(w) - n FROM ways w, start WHERE no = %s', 'cursor WITH HOLD, at COMMIT', no), 'DROP TABLE start'])
FROM ways ORDER BY no \gexec
SELECT shape, max(calls) FILTER (WHERE way = 'plain') AS plain, max(calls) FILTER (WHERE way = 'sampled') AS sampled,
	max(calls) FILTER (WHERE way = 'greedy') AS greedy FROM counts GROUP BY no, shape ORDER BY no;
-- where the batch node and plain PostgreSQL differ, and batching off: rows are read ahead, columns not read are not computed, a row
-- has its own answer where Memoize would give rows one
SET llm_infer.enable_batch = off;
SELECT shape, plain, sampled AS batched, calls_of(w, statements) AS "row by row"
FROM (SELECT no, shape, max(calls) FILTER (WHERE way = 'plain') AS plain, max(calls) FILTER (WHERE way = 'sampled') AS sampled FROM counts GROUP BY no, shape) c
	JOIN shapes USING (no, shape), ways w WHERE plain <> sampled AND w.name = 'sampled' ORDER BY c.no;
RESET llm_infer.enable_batch;
DROP TABLE products, reviews, shapes, counts CASCADE;
DROP FUNCTION calls_of(ways, text[]), total(ways), mock_generate(text) CASCADE;
DROP AGGREGATE mock_digest(text);
DROP AGGREGATE llm_digest(text);
DROP FUNCTION join_texts(text, text), mock_finish(text), llm_finish(text);
DROP TABLE ways;
DROP SEQUENCE mock_calls;
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_reader;
DROP ROLE regress_reader;
