-- node_cursors.sql - LLM Batch below cursors: how far they ask, where they end, and loops over them
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text);
INSERT INTO docs SELECT i, 'b' || i FROM generate_series(1, 100) i;
ANALYZE docs;
-- requests since the last time; a sequence, for what is rolled back
CREATE TEMP SEQUENCE mark;
CREATE FUNCTION asked() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	old bigint := last_value FROM mark;
BEGIN
	RETURN setval('mark', engine_requests() + 1) - old;
END
$$;
SELECT asked() IS NOT NULL;

-- by and by: what is asked stays within the window
BEGIN;
DECLARE c CURSOR FOR SELECT id, llm_generate(body) FROM docs ORDER BY id;
SELECT asked() AS nothing_yet;
FETCH 1 FROM c;
SELECT asked() BETWEEN 1 AND 8 AS one_window;
MOVE 29 FROM c;
SELECT llm_generate('between');
FETCH FORWARD 2 FROM c;
FETCH ABSOLUTE 40 FROM c;
FETCH RELATIVE 10 FROM c;
SELECT asked() BETWEEN 43 AND 100 AS not_more;
-- not back, nor the same row again
FETCH 0 FROM c;
ROLLBACK;
SELECT engine_idle();
SELECT asked() <= 57 AS cancelled; -- those that were read ahead and had no answer yet
-- the end, and past it
BEGIN;
DECLARE c CURSOR FOR SELECT id, llm_generate(body) FROM docs WHERE id <= 3;
FETCH ALL FROM c;
FETCH NEXT FROM c;
FETCH ALL FROM c;
CLOSE c;
DECLARE n NO SCROLL CURSOR FOR SELECT count(llm_generate(body)) FROM docs;
FETCH 2 FROM n;
COMMIT;
SELECT asked() AS once_each;
-- CLOSE and the end of a transaction leave nothing behind
BEGIN;
DECLARE c CURSOR FOR SELECT llm_generate('@delay=5 ' || body) FROM docs;
FETCH 1 FROM c;
CLOSE c;
SELECT engine_idle();
DECLARE c CURSOR FOR SELECT llm_generate('@delay=5 ' || body) FROM docs;
FETCH 1 FROM c;
COMMIT;
SELECT engine_idle(), asked() < 100 AS few;
-- SCROLL goes back and asks again, row by row; held cursors ask for everything at the end of the transaction, once
BEGIN;
DECLARE s SCROLL CURSOR FOR SELECT id, llm_generate(body) FROM docs ORDER BY id;
FETCH 3 FROM s;
FETCH BACKWARD 2 FROM s;
FETCH LAST FROM s;
SELECT asked();
COMMIT;
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT id, llm_generate(body) FROM docs WHERE id <= 20 ORDER BY id;
FETCH 2 FROM h;
DECLARE hs SCROLL CURSOR WITH HOLD FOR SELECT id, llm_generate(body) FROM docs WHERE id <= 4 ORDER BY id;
COMMIT;
SELECT asked();
FETCH 1 FROM h;
FETCH LAST FROM hs;
FETCH PRIOR FROM hs;
SELECT asked() AS stored;
CLOSE ALL;
-- an error: at its row, and the cursor is no more
BEGIN;
DECLARE c CURSOR FOR SELECT id, llm_generate(CASE WHEN id = 3 THEN '@error=three' ELSE body END) FROM docs ORDER BY id;
FETCH 2 FROM c;
SAVEPOINT s;
FETCH 1 FROM c;
ROLLBACK TO s;
FETCH 1 FROM c;
ROLLBACK;
-- opened in a subtransaction that is given up, or is kept
BEGIN;
SAVEPOINT s;
DECLARE c CURSOR FOR SELECT id, llm_generate(body) FROM docs ORDER BY id;
FETCH 1 FROM c;
ROLLBACK TO s;
FETCH 1 FROM c;
ROLLBACK;
BEGIN;
SAVEPOINT s;
DECLARE c CURSOR FOR SELECT id, llm_generate('@delay=2 ' || body) FROM docs ORDER BY id;
FETCH 1 FROM c;
RELEASE s;
FETCH 1 FROM c;
COMMIT;
-- what a cursor sees is what was there when it was opened
BEGIN;
DECLARE c CURSOR FOR SELECT id, llm_generate(body) FROM docs WHERE id <= 20 ORDER BY id;
FETCH 1 FROM c;
UPDATE docs SET body = 'changed';
MOVE 18 FROM c;
FETCH 1 FROM c;
ROLLBACK;

-- PL/pgSQL: cursors by name, with parameters, handed out; loops that are left
CREATE FUNCTION opened(n int) RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'handed';
BEGIN
	OPEN c FOR SELECT id, llm_generate(body) FROM docs WHERE id <= n ORDER BY id;
	RETURN c;
END
$$;
BEGIN;
SELECT opened(30);
FETCH 2 FROM handed;
SELECT asked() IS NOT NULL;
MOVE ALL FROM handed;
COMMIT;
CREATE FUNCTION looped(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c CURSOR (low int) FOR SELECT id, llm_generate(body) g FROM docs WHERE id >= low ORDER BY id;
	r record;
	t text := '';
BEGIN
	FOR r IN c (n) LOOP
		t := t || r.g || ' ';
		EXIT WHEN r.id >= n + 2;
	END LOOP;
	OPEN c (n + 10);
	FETCH c INTO r;
	MOVE FORWARD 2 FROM c;
	FETCH c INTO r;
	CLOSE c;
	RETURN t || r.g;
END
$$;
SELECT looped(5), looped(6);
CREATE FUNCTION tried(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
	t text := '';
BEGIN
	FOR r IN SELECT id, llm_generate(body) g FROM docs WHERE id <= 30 ORDER BY id LOOP
		BEGIN
			IF r.id % n = 0 THEN
				t := t || llm_generate('@error=no');
			END IF;
		EXCEPTION WHEN OTHERS THEN
			t := t || r.g || ' ';
		END;
	END LOOP;
	RETURN t;
END
$$;
SELECT asked() IS NOT NULL;
SELECT tried(7), tried(10);
SELECT asked() = 60 + 4 + 3 AS once_each;
-- SKIP LOCKED in a loop, one row at a time with a subtransaction each
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT id, body FROM docs WHERE id <= 10 ORDER BY id FOR UPDATE SKIP LOCKED LOOP
		BEGIN
			UPDATE docs SET body = llm_generate(CASE WHEN r.id % 4 = 0 THEN '@error=four' ELSE 'done ' || r.body END) WHERE id = r.id;
		EXCEPTION WHEN OTHERS THEN
			UPDATE docs SET body = SQLERRM WHERE id = r.id;
		END;
	END LOOP;
END
$$;
SELECT string_agg(body, ', ' ORDER BY id) FROM docs WHERE id <= 10;
SELECT engine_idle();
DROP TABLE docs;
DROP FUNCTION asked(), opened(int), looped(int), tried(int);
