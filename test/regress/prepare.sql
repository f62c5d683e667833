-- prepare.sql - what every regression test starts with: the extension, one model, small helpers.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS llm_infer;

DO $$
BEGIN
	PERFORM llm_model_drop(name) FROM llm.models WHERE name <> 'echo';
	PERFORM llm_model_register('echo', 'echo:')
	WHERE NOT EXISTS (SELECT FROM llm.models WHERE name = 'echo');
END
$$;

-- SQLSTATE, message, detail and hint of a statement's error, or what it did.
CREATE OR REPLACE FUNCTION error_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
	n bigint;
BEGIN
	EXECUTE query;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN 'no error, ' || n || ' rows';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
		detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	detail := regexp_replace(detail, 'directory: .*', 'directory: ...');
	RETURN state || ': ' || message || coalesce(' | ' || nullif(detail, ''), '')
		|| coalesce(' | ' || nullif(hint, ''), '');
END
$$;

-- EXPLAIN ANALYZE without what depends on time, on former prompts, on versions of PostgreSQL or, unless they are asked for,
-- on how many of the rows that were read ahead had been answered.
CREATE OR REPLACE FUNCTION explain_of(query text, tokens boolean DEFAULT false)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS OFF, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		CONTINUE WHEN line LIKE '%LLM Tokens:%' AND NOT tokens OR line LIKE '%  Storage: %';
		line := regexp_replace(line, 'Peak In Flight: \d+', 'Peak In Flight: N');
		line := regexp_replace(line, ' cached=\d+', ' cached=N');
		line := regexp_replace(line, 'Memory( Usage)?: \d+kB', 'Memory\1: NkB');
		line := regexp_replace(line, ' \(returns \$\d+\)', '');
		RETURN NEXT regexp_replace(line, '(rows=\d+)\.00', '\1');
	END LOOP;
END
$$;

-- Requests that the engine has had. It counts those that are cancelled when it comes to them, which is told to nobody: what is asked
-- of its prefix caches is answered after all that this session has sent before.
CREATE OR REPLACE FUNCTION engine_requests() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM llm.prefix_cache;
	RETURN requests FROM llm.stat_engine;
END
$$;

-- Requests that the engine has had from a statement, whichever way they were made.
CREATE OR REPLACE FUNCTION requests_of(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint := engine_requests();
	r record;
BEGIN
	FOR r IN EXECUTE query LOOP
		NULL;
	END LOOP;
	RETURN engine_requests() - before;
END
$$;

-- A query by the batch node and row by row: are the rows and their order equal, how many are they, how many LLM Batch nodes
-- does the plan have, how many requests does each way make? An error counts as a row. A query that writes is undone each time;
-- the rows are then those of the second query.
CREATE OR REPLACE FUNCTION both_ways(query text, wrote text DEFAULT NULL) RETURNS TABLE (same boolean, n int, nodes int, batched bigint, row_by_row bigint)
LANGUAGE plpgsql AS $$
DECLARE
	way boolean;
	line text;
	r record;
	lines text[];
	a text;
	before bigint;
	after bigint;
BEGIN
	nodes := 0;
	FOREACH way IN ARRAY ARRAY[true, false] LOOP
		PERFORM set_config('llm_infer.enable_batch', way::text, true);
		before := engine_requests();
		lines := '{}';
		after := NULL;
		BEGIN
			IF wrote IS NOT NULL THEN
				EXECUTE query;
				after := engine_requests();
			END IF;
			FOR r IN EXECUTE coalesce(wrote, query) LOOP
				lines := lines || r::text;
			END LOOP;
			IF wrote IS NOT NULL THEN
				RAISE SQLSTATE 'RB001';
			END IF;
		EXCEPTION WHEN SQLSTATE 'RB001' THEN
			NULL;
		WHEN OTHERS THEN
			lines := ARRAY[SQLSTATE || ': ' || SQLERRM];
		END;
		IF after IS NULL THEN
			after := engine_requests();
		END IF;
		IF way THEN
			a := lines::text; n := cardinality(lines); batched := after - before;
			FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
				nodes := nodes + (line LIKE '%(LLM Batch)%')::int;
			END LOOP;
		ELSE
			same := a = lines::text; row_by_row := after - before;
		END IF;
	END LOOP;
	PERFORM set_config('llm_infer.enable_batch', 'on', true);
	RETURN NEXT;
END
$$;

-- True when the engine is through with everything, cancelled requests too, and every page is free.
CREATE OR REPLACE FUNCTION engine_idle() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	idle boolean;
BEGIN
	FOR i IN 1..500 LOOP
		SELECT running = 0 AND waiting = 0 AND kv_pages_free + kv_pages_cached = kv_pages_total INTO idle FROM llm.stat_engine;
		EXIT WHEN idle;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN idle;
END
$$;

\set ECHO all
