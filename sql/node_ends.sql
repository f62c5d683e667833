-- node_ends.sql - batches that end before their rows do: each leaves no request in the engine
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- the first row is answered at once, the others would take half a minute
CREATE FUNCTION slow(i int, quick int DEFAULT 1) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN i <= quick THEN 'row ' || i ELSE '@slow=10 @tokens=3000 x' END $$;
SET llm_infer.max_tokens = 3000;

-- errors of others while rows are in flight: above the node, below it, beside it
SELECT 1 / (i - 1), llm_generate(slow(i)) FROM generate_series(1, 50) i;
SELECT engine_idle();
SELECT llm_generate(slow(i)), d FROM (SELECT i, 1 / (5 - i) AS d FROM generate_series(1, 50) i OFFSET 0) s;
SELECT engine_idle();
SELECT llm_generate(slow(i) || CASE WHEN i = 7 THEN (1 / (i - 7))::text ELSE '' END) FROM generate_series(1, 50) i;
SELECT engine_idle();
SELECT llm_generate(CASE i WHEN 2 THEN '@error=no' ELSE slow(i) END) FROM generate_series(1, 50) i;
SELECT engine_idle();
EXPLAIN (ANALYZE) SELECT llm_generate(CASE i WHEN 2 THEN '@error=no' ELSE slow(i) END) FROM generate_series(1, 50) i;
SELECT engine_idle();
CREATE TEMP TABLE t (i int PRIMARY KEY, body text CHECK (body <> 'row 1'));
INSERT INTO t SELECT i, llm_generate(slow(i)) FROM generate_series(1, 50) i;
SELECT engine_idle();
COPY (SELECT llm_generate(slow(i)), 1 / (i - 1) FROM generate_series(1, 50) i) TO STDOUT;
SELECT engine_idle();

-- portals that are open at the end of a transaction, of either kind
BEGIN;
DECLARE a CURSOR FOR SELECT llm_generate(slow(i)) FROM generate_series(1, 50) i;
DECLARE b CURSOR FOR SELECT i FROM generate_series(1, 50) i WHERE llm_generate(slow(i)) <> '';
FETCH 1 FROM a;
FETCH 1 FROM b;
COMMIT;
SELECT engine_idle();
BEGIN;
DECLARE a CURSOR FOR SELECT llm_generate(slow(i)) FROM generate_series(1, 50) i;
FETCH 1 FROM a;
SELECT 1 / 0;
FETCH 1 FROM a;
SELECT engine_idle();
ROLLBACK;
SELECT engine_idle();
-- closed early, alone and with all others
BEGIN;
DECLARE a CURSOR FOR SELECT llm_generate(slow(i)) FROM generate_series(1, 50) i;
FETCH 1 FROM a;
CLOSE a;
SELECT engine_idle();
DECLARE b CURSOR FOR SELECT llm_generate(slow(i)) FROM generate_series(1, 50) i;
FETCH 1 FROM b;
CLOSE ALL;
SELECT engine_idle();
COMMIT;
-- held beyond the transaction: read to its end there, or its error is the COMMIT's
BEGIN;
DECLARE a CURSOR WITH HOLD FOR SELECT llm_generate(slow(i, 100)) FROM generate_series(1, 20) i;
FETCH 2 FROM a;
COMMIT;
FETCH 2 FROM a;
MOVE 100 FROM a;
FETCH BACKWARD 1 FROM a;
CLOSE a;
BEGIN;
DECLARE a CURSOR WITH HOLD FOR SELECT llm_generate(CASE i WHEN 5 THEN '@error=no' ELSE slow(i, 4) END) FROM generate_series(1, 50) i;
FETCH 1 FROM a;
COMMIT;
FETCH 1 FROM a;
SELECT engine_idle();
BEGIN;
DECLARE a CURSOR WITH HOLD FOR SELECT llm_generate(slow(i)) FROM generate_series(1, 50) i;
FETCH 1 FROM a;
ROLLBACK;
SELECT engine_idle();

-- savepoints: what began inside is cancelled, what was there before goes on
BEGIN;
DECLARE outside CURSOR FOR SELECT llm_generate(slow(i, 40)) FROM generate_series(1, 40) i;
FETCH 1 FROM outside;
SAVEPOINT s;
DECLARE inside CURSOR FOR SELECT llm_generate(slow(i)) FROM generate_series(1, 50) i;
FETCH 1 FROM inside;
SELECT 1 / 0;
ROLLBACK TO s;
FETCH 1 FROM inside;
ROLLBACK TO s;
FETCH 1 FROM outside;
SELECT engine_idle();
DECLARE inside CURSOR FOR SELECT llm_generate(slow(i)) FROM generate_series(1, 50) i;
FETCH 1 FROM inside;
RELEASE s;
FETCH 1 FROM outside;
CLOSE inside;
SELECT engine_idle();
MOVE ALL FROM outside;
COMMIT;

-- loops, which fetch ten rows at first: left by an error that is caught, by EXIT, by RETURN, by an error of another statement
CREATE FUNCTION loops(way text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int := 0;
	idle boolean;
BEGIN
	BEGIN
		FOR r IN SELECT i, llm_generate(slow(i, 12)) g FROM generate_series(1, 50) i LOOP
			n := n + 1;
			CASE way
				WHEN 'raise' THEN RAISE EXCEPTION 'enough of %', r.g;
				WHEN 'query' THEN PERFORM 1 / (r.i - 2);
				WHEN 'call' THEN PERFORM llm_generate(CASE r.i WHEN 2 THEN '@error=inner' ELSE 'x' END);
				WHEN 'exit' THEN EXIT WHEN r.i = 2;
				WHEN 'return' THEN RETURN r.g;
				ELSE PERFORM 1;
			END CASE;
		END LOOP;
	EXCEPTION WHEN OTHERS THEN
		idle := engine_idle();
		RETURN format('%s after %s rows, idle %s', SQLERRM, n, idle);
	END;
	idle := engine_idle();
	RETURN format('%s rows, idle %s', n, idle);
END
$$;
SELECT way, loops(way) FROM unnest(ARRAY['raise', 'query', 'call', 'exit', 'return']) way;
SELECT engine_idle();
-- a row that fails inside the loop's query
SET client_min_messages = notice;
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT llm_generate(CASE i WHEN 3 THEN '@error=third' ELSE slow(i, 2) END) g FROM generate_series(1, 50) i LOOP
		RAISE NOTICE '%', r.g;
	END LOOP;
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE 'caught: %, idle %', SQLERRM, engine_idle();
END
$$;

-- a procedure that commits in its loop keeps the rows it has read; one that rolls back too
CREATE PROCEDURE commits(back boolean) LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int := 0;
BEGIN
	FOR r IN SELECT llm_generate(slow(i, 20)) g FROM generate_series(1, 20) i LOOP
		n := n + 1;
		IF back THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
	RAISE NOTICE '% rows', n;
END
$$;
CALL commits(false);
CALL commits(true);
-- what a session forgets
DECLARE held CURSOR WITH HOLD FOR SELECT llm_generate(slow(i, 9)) FROM generate_series(1, 9) i;
FETCH 1 FROM held;
DISCARD ALL;
FETCH 1 FROM held;
DROP FUNCTION loops(text), slow(int, int);
DROP PROCEDURE commits(boolean);
SELECT engine_idle();
