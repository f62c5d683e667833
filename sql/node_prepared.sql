-- node_prepared.sql - prepared statements, PL/pgSQL, SQL functions
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text);
INSERT INTO docs SELECT i, 'b' || i FROM generate_series(1, 50) i;
ANALYZE docs;

PREPARE p(int, text) AS SELECT id, llm_generate($2 || body, max_tokens => $1) FROM docs WHERE id < 3;
EXECUTE p(4, 'x');
SET plan_cache_mode = force_generic_plan;
EXECUTE p(2, 'y');
SELECT explain_of($$EXECUTE p(3, 'z')$$);
SET plan_cache_mode = force_custom_plan;
EXECUTE p(3, 'z');
RESET plan_cache_mode;
DO $$
BEGIN
	FOR i IN 1..8 LOOP
		EXECUTE 'EXECUTE p(4, ''loop'')';
	END LOOP;
END
$$;
EXECUTE p(NULL, NULL);
EXECUTE p(-1, 'x');
EXECUTE p(1, 'x');
-- parameters without types, seven times in each mode: the sixth may be generic
PREPARE u AS SELECT count(*) FILTER (WHERE llm_generate($1 || body) = $2 || body) AS same FROM docs WHERE id <= $3 AND llm_generate(body, max_tokens => $4) LIKE $5;
PREPARE v AS SELECT llm_generate($1) || llm_generate($2, max_tokens => 1);
CREATE FUNCTION pg_temp.times(query text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r text;
	seen text[] := '{}';
BEGIN
	FOR i IN 1..n LOOP
		EXECUTE query INTO r;
		seen := seen || r;
	END LOOP;
	RETURN (SELECT string_agg(DISTINCT s, ' ') FROM unnest(seen) s) || ' ' || cardinality(seen);
END
$$;
SET plan_cache_mode = auto;
SELECT requests_of($$SELECT pg_temp.times('EXECUTE u(''x'', ''x'', 20, 3, ''b1%'')', 7)$$), pg_temp.times('EXECUTE v(''one'', ''two'')', 7);
SET plan_cache_mode = force_custom_plan;
SELECT requests_of($$SELECT pg_temp.times('EXECUTE u(''x'', ''x'', 20, 3, ''b1%'')', 7)$$), pg_temp.times('EXECUTE v(''one'', ''two'')', 7);
SET plan_cache_mode = force_generic_plan;
SELECT requests_of($$SELECT pg_temp.times('EXECUTE u(''x'', ''x'', 20, 3, ''b1%'')', 7)$$), pg_temp.times('EXECUTE u(''x'', ''y'', 20, 3, ''b1%'')', 7);
SELECT name, generic_plans > 0 AS generic, custom_plans > 0 AS custom, parameter_types FROM pg_prepared_statements WHERE name IN ('u', 'v') ORDER BY name;
RESET plan_cache_mode;
-- a plan that outlives its table's shape, and its model
ALTER TABLE docs ADD extra text DEFAULT 'e';
EXECUTE p(4, 'x');
PREPARE w(text) AS SELECT id FROM docs WHERE llm_generate(body) = $1;
EXECUTE w('b9');
SELECT llm_model_register('second', 'echo:', '{"context_length": 99}');
EXECUTE w('b9');
SELECT llm_model_drop('second');
EXECUTE w('b9');
DEALLOCATE ALL;

-- loops
DO $$
DECLARE
	r record;
	n int := 0;
	t text;
BEGIN
	FOR r IN SELECT id, llm_generate(body) g FROM docs ORDER BY id LOOP
		n := n + 1;
		EXIT WHEN n = 20;
		t := r.g;
	END LOOP;
	RAISE WARNING 'left at % after %', n, t;
	-- errors in blocks inside the loop leave the loop's own requests alone
	n := 0;
	FOR r IN SELECT id, llm_generate(body) g FROM docs ORDER BY id LOOP
		BEGIN
			IF r.id % 10 = 0 THEN
				PERFORM llm_generate('@error=every tenth');
			ELSIF r.id % 7 = 0 THEN
				RAISE division_by_zero;
			END IF;
			IF r.g <> 'b' || r.id THEN
				RAISE WARNING 'wrong: % %', r.id, r.g;
			END IF;
		EXCEPTION WHEN OTHERS THEN
			n := n + 1;
		END;
	END LOOP;
	RAISE WARNING 'handled %', n;
	-- a node that is opened inside the block and fails there
	FOR i IN 1..3 LOOP
		BEGIN
			PERFORM llm_generate(CASE WHEN id = 40 THEN '@error=late' ELSE body END) FROM docs;
		EXCEPTION WHEN internal_error THEN
			RAISE WARNING 'handled: %', SQLERRM;
		END;
	END LOOP;
	SELECT count(*) INTO n FROM (SELECT llm_generate(body) FROM docs OFFSET 0) s;
	RAISE WARNING 'then %', n;
END
$$;

-- expressions of PL/pgSQL
CREATE FUNCTION ask(x text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	t text := llm_generate('1' || x);
BEGIN
	IF llm_generate(x) = x THEN
		t := t || llm_generate('2' || x);
	END IF;
	RETURN llm_generate(t);
END
$$;
SELECT ask('a'), ask('b');
SELECT id, ask(body), llm_generate(body) FROM docs WHERE id <= 3;
CREATE FUNCTION ask_all(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT llm_generate(body) FROM docs WHERE id <= n ORDER BY id;
END
$$;
SELECT * FROM ask_all(3);
SELECT count(*) FROM ask_all(50);
-- SQL functions, inlined and not
CREATE FUNCTION inlined(x text) RETURNS text LANGUAGE sql AS $$SELECT llm_generate('in ' || x)$$;
CREATE FUNCTION called(x text) RETURNS text LANGUAGE sql SET work_mem = '1MB' AS $$SELECT llm_generate('out ' || x)$$;
SELECT explain_of($$SELECT inlined(body), called(body) FROM docs WHERE id <= 3$$);
SELECT inlined(body), called(body) FROM docs WHERE id <= 2;
CREATE FUNCTION in_table(n int) RETURNS TABLE (id int, g text) LANGUAGE sql AS $$SELECT id, llm_generate(body) FROM docs WHERE id <= n$$;
SELECT explain_of($$SELECT * FROM in_table(3)$$);
SELECT * FROM in_table(2);
-- procedures that commit in the middle
CREATE TABLE results (id int, g text);
CREATE PROCEDURE fill_results() LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT id, llm_generate(body) g FROM docs ORDER BY id LOOP
		INSERT INTO results VALUES (r.id, r.g);
		IF r.id % 20 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
END
$$;
CALL fill_results();
SELECT count(*), bool_and(g = 'b' || id) FROM results;
DROP PROCEDURE fill_results();
DROP TABLE results;
DROP FUNCTION ask(text), ask_all(int), inlined(text), called(text), in_table(int);
SELECT engine_idle();
