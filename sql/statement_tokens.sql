-- statement_tokens.sql - llm_infer.max_statement_tokens: what one statement may cost
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- 40 + n tokens: that of the beginning counts too
CREATE FUNCTION ask(n int) RETURNS text LANGUAGE sql AS $$
	SELECT llm_generate(repeat('x', 39), max_tokens => n, options => '{"raw": true, "ignore_eos": true}')
$$;
CREATE FUNCTION ask_twice() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RETURN length(ask(10)) + length(ask(10));
END
$$;
CREATE TABLE docs (id int, body text);
INSERT INTO docs SELECT i, repeat('x', 39) FROM generate_series(1, 30) i;
ANALYZE docs;

-- none by default; a whole statement that fits, and one that does not
SHOW llm_infer.max_statement_tokens;
SET llm_infer.max_statement_tokens = 100;
SELECT length(ask(10)), length(ask(10));
SELECT ask(10), ask(11);
\errverbose
SELECT length(ask(60));
SELECT ask(61);
-- each statement has its own
SELECT length(ask(50));
SELECT length(ask(50));

-- nothing begins any more when all is used up; what is stopped has been paid for
SELECT error_of('SELECT ask(60), ask(0)');
SELECT left(error_of('SELECT length(ask(10)) FROM generate_series(1, 3)'), 48);
SET llm_infer.enable_batch = off;
SELECT error_of('SELECT length(ask(10)) FROM generate_series(1, 3)');
RESET llm_infer.enable_batch;

-- functions count for the statement that calls them; a block that catches the error goes on without calls
SELECT ask_twice();
SELECT error_of('SELECT ask_twice(), ask_twice()');
DO $$ BEGIN PERFORM ask_twice(); PERFORM ask(0); END $$;
DO $$
DECLARE
	refused int := 0;
BEGIN
	PERFORM ask_twice();
	FOR i IN 1..3 LOOP
		BEGIN
			PERFORM ask(1);
		EXCEPTION WHEN configuration_limit_exceeded THEN
			refused := refused + 1;
		END;
	END LOOP;
	RAISE WARNING 'refused: %', refused;
END
$$;

-- batched, over many rows; not hidden by on_error
SET llm_infer.max_statement_tokens = 1000;
SELECT count(a) FROM (SELECT llm_generate(body, max_tokens => 10, options => '{"raw": true, "ignore_eos": true}') a FROM docs LIMIT 20) s;
SELECT left(error_of($$SELECT llm_generate(body, max_tokens => 10, options => '{"raw": true, "ignore_eos": true}') FROM docs$$), 48);
SELECT left(error_of($$SELECT llm_generate(body, max_tokens => 10, on_error => 'null', options => '{"raw": true, "ignore_eos": true}') FROM docs$$), 48);
SELECT engine_idle();
-- every input once: 50 tokens
SELECT count(a) FROM (SELECT llm_generate(body, max_tokens => 10, seed => 1, options => '{"raw": true, "ignore_eos": true}') a FROM docs OFFSET 0) s;
SELECT left(error_of($$SELECT llm_generate(ARRAY[repeat('x', 900), repeat('y', 90)])$$), 48);
SELECT left(error_of($$SELECT llm_generate_result(repeat('x', 1000))$$), 48);
SELECT left(error_of($$SELECT llm_chat('[{"role": "user", "content": "x"}]', max_tokens => 3000, options => '{"ignore_eos": true}')$$), 48);
-- counting costs nothing
SELECT llm_count_tokens(repeat('x', 2000));

-- a stream: piece by piece
SET llm_infer.max_statement_tokens = 20;
SELECT left(error_of($$SELECT llm_generate_stream('xxxxx', max_tokens => 500, options => '{"raw": true, "ignore_eos": true}')$$), 48);
SELECT engine_idle();

-- lower or off in the middle
SET llm_infer.max_statement_tokens = 100;
DO $$
BEGIN
	PERFORM ask_twice();
	PERFORM set_config('llm_infer.max_statement_tokens', '0', true);
	PERFORM ask_twice();
END
$$;
RESET llm_infer.max_statement_tokens;
DROP TABLE docs;
DROP FUNCTION ask(int), ask_twice();
