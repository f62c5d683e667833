-- sessions.sql - calls in transactions of each kind, procedures that commit, and sessions that are reset
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, answer text);
INSERT INTO docs SELECT i, 'b' || i FROM generate_series(1, 12) i;
ANALYZE docs;

-- read only
BEGIN READ ONLY;
SELECT count(llm_generate(body)) FROM docs;
SELECT llm_generate('one');
ROLLBACK;
SET default_transaction_read_only = on;
SELECT count(*) FROM docs WHERE llm_generate(body) LIKE 'b1%';
RESET default_transaction_read_only;
-- serializable, repeatable read
BEGIN ISOLATION LEVEL SERIALIZABLE;
UPDATE docs SET answer = llm_generate(body) WHERE id <= 3;
SELECT string_agg(llm_generate(answer || '!'), ' ' ORDER BY id) FROM docs WHERE id <= 3;
COMMIT;
-- a row's own savepoint, and what is rolled back is asked again
BEGIN;
SAVEPOINT a;
UPDATE docs SET answer = llm_generate('lost' || id) WHERE id = 4;
ROLLBACK TO a;
SELECT answer FROM docs WHERE id = 4;
UPDATE docs SET answer = llm_generate('kept' || id) WHERE id = 4;
COMMIT;
SELECT answer FROM docs WHERE id = 4;
-- a procedure that commits as it goes, by rows and by batches
CREATE PROCEDURE enrich(step int) LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int;
BEGIN
	FOR r IN SELECT id, llm_generate('p' || body) AS g FROM docs WHERE answer IS NULL ORDER BY id LIMIT 2 LOOP
		UPDATE docs SET answer = r.g WHERE id = r.id;
		COMMIT;
	END LOOP;
	LOOP
		UPDATE docs SET answer = llm_generate('q' || body)
		WHERE id IN (SELECT id FROM docs WHERE answer IS NULL ORDER BY id LIMIT step FOR UPDATE SKIP LOCKED);
		GET DIAGNOSTICS n = ROW_COUNT;
		EXIT WHEN n = 0;
		COMMIT;
	END LOOP;
END
$$;
CALL enrich(4);
SELECT string_agg(answer, ' ' ORDER BY id) FROM docs;
-- a role that changes inside the transaction
CREATE ROLE regress_llm_session;
BEGIN;
SELECT llm_generate('before');
SET LOCAL ROLE regress_llm_session;
SELECT error_of($$SELECT llm_generate('without the right')$$);
RESET ROLE;
SELECT llm_generate('after');
COMMIT;
DROP ROLE regress_llm_session;
-- a session that is reset goes on
PREPARE p AS SELECT llm_generate('prepared');
SET llm_infer.max_tokens = 2;
SELECT llm_generate('short');
DISCARD ALL;
SELECT llm_generate('whole again');
EXECUTE p;
-- the same with compiled expressions, where the server can
SET jit = on;
SET jit_above_cost = 0;
SET jit_inline_above_cost = 0;
SELECT string_agg(llm_generate(coalesce(answer, body)), ' ' ORDER BY id) FROM docs WHERE llm_generate(body) > 'b4';
RESET jit;
RESET jit_above_cost;
RESET jit_inline_above_cost;
-- files: what COPY writes it reads
CREATE TEMP TABLE odd AS SELECT i, llm_generate(t) AS g FROM (VALUES (1, E'tab\there'), (2, E'line\nbreak'), (3, E'back\\slash \\. "quoted", ''single'''), (4, ''), (5, NULL)) v (i, t);
CREATE TEMP TABLE again (i int, g text);
\copy odd TO PROGRAM 'cat > "${TMPDIR:-/tmp}/llm_infer_sessions.copy"'
\copy again FROM PROGRAM 'cat "${TMPDIR:-/tmp}/llm_infer_sessions.copy"'
\copy odd TO PROGRAM 'cat > "${TMPDIR:-/tmp}/llm_infer_sessions.copy"' (FORMAT csv, NULL 'none')
\copy again FROM PROGRAM 'cat "${TMPDIR:-/tmp}/llm_infer_sessions.copy"' (FORMAT csv, NULL 'none')
\copy odd TO PROGRAM 'cat > "${TMPDIR:-/tmp}/llm_infer_sessions.copy"' (FORMAT binary)
\copy again FROM PROGRAM 'cd "${TMPDIR:-/tmp}"; cat llm_infer_sessions.copy; rm llm_infer_sessions.copy' (FORMAT binary)
SELECT i, count(*), count(DISTINCT odd.g), bool_and(again.g IS NOT DISTINCT FROM odd.g) AS equal FROM again JOIN odd USING (i) GROUP BY i ORDER BY i;
DROP TABLE docs;
DROP PROCEDURE enrich(int);
SELECT engine_idle();
