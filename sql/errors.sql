-- errors.sql - what goes wrong with a row, and when it is raised
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE prompts (id int, body text);
INSERT INTO prompts VALUES (1, 'one'), (2, '@error=broken'), (3, 'three'), (4, '@nan'), (5, NULL);

SELECT error_of($$SELECT llm_generate('@error=broken')$$);
SELECT error_of($$SELECT llm_generate('@nan')$$);
SELECT error_of($$SELECT llm_generate('@colour=blue')$$);
SELECT error_of($$SELECT llm_generate(body) FROM prompts$$);

-- a row's error is raised at that row, not when it is read ahead
BEGIN;
DECLARE c CURSOR FOR SELECT id, llm_generate(body) FROM prompts ORDER BY id;
FETCH 1 FROM c;
FETCH 1 FROM c;
ROLLBACK;
SELECT id, llm_generate(body) FROM prompts ORDER BY id LIMIT 1;

-- on_error => 'null': NULL and one WARNING per statement
SELECT id, llm_generate(body, on_error => 'null') FROM prompts ORDER BY id;
SELECT id, (r).text, (r).finish_reason, (r).error FROM (SELECT id, llm_generate_result(body, on_error => 'null') r FROM prompts ORDER BY id OFFSET 0) s;
SELECT id FROM prompts WHERE llm_generate(body, on_error => 'null') IS NULL ORDER BY id;
SELECT id, llm_generate(body, on_error => 'null') FROM prompts WHERE llm_generate(body, on_error => 'null') IS NULL ORDER BY id;
SELECT count(llm_generate(body, on_error => 'null')) FROM prompts;
SET llm_infer.on_error = 'null';
SELECT id, llm_generate(body) FROM prompts ORDER BY id;
SELECT error_of($$SELECT llm_generate('@nan', on_error => 'error')$$);
UPDATE prompts SET body = llm_generate(body) WHERE id = 4;
DO $$
DECLARE
	t text;
BEGIN
	t := llm_generate('@nan');
	RAISE WARNING 'in PL/pgSQL: %', coalesce(t, 'NULL');
END
$$;
-- what is wrong with the call itself is not hidden
SELECT error_of($$SELECT llm_generate('x', max_tokens => -1)$$);
SELECT error_of($$SELECT llm_generate('x', 'nobody')$$);
SELECT error_of($$SELECT llm_generate('x', options => '{"adapter": "a"}')$$);
RESET llm_infer.on_error;

-- context: both numbers
SELECT error_of($$SELECT llm_generate(repeat('x', 5000))$$);
SELECT error_of($$SELECT llm_generate(repeat('x', 5000), options => '{"raw": true}')$$);
SELECT length(llm_generate(repeat('x', 4000), max_tokens => 2147483647)) AS room;
SELECT r.finish_reason, r.prompt_tokens + r.completion_tokens AS total
FROM llm_generate_result(repeat('x', 4000), max_tokens => 1000) r;
SELECT llm_generate(repeat('x', 5000), on_error => 'null');

-- a prompt of the context less one token, of exactly the context, of one token more, of ten times as many: each way
CREATE FUNCTION fits(n int, way text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	SELECT * INTO r FROM llm_generate_result('b' || repeat('-', n - 2) || 'e', temperature => 0, options => jsonb_build_object('raw', true, 'truncate', way, 'max_tokens', 9));
	RETURN concat_ws(' ', r.prompt_tokens, r.completion_tokens, r.finish_reason, r.text);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END
$$;
SELECT n, way, fits(n, way) FROM unnest(ARRAY['error', 'left', 'right']) WITH ORDINALITY AS w(way, i), unnest(ARRAY[4093, 4094, 4095, 4096, 4097, 40960]) n ORDER BY i, n;
DROP FUNCTION fits(int, text);

-- truncate keeps one end of the user's text and leaves the template whole
SELECT left(r.text, 8), r.finish_reason, r.prompt_tokens FROM llm_generate_result('begin' || repeat('-', 5000) || 'end', max_tokens => 8, options => '{"truncate": "right"}') r;
SELECT left(r.text, 8), r.finish_reason, r.prompt_tokens FROM llm_generate_result('begin' || repeat('-', 5000) || 'end', max_tokens => 8, options => '{"truncate": "left"}') r;
SELECT right(r.text, 8) FROM llm_generate_result('begin' || repeat('-', 5000) || 'end', max_tokens => 2000, options => '{"truncate": "left"}') r;
SELECT llm_generate('short', options => '{"truncate": "left"}');
SELECT left(llm_generate(repeat('三', 2000), max_tokens => 6, options => '{"truncate": "left"}'), 2);
SELECT error_of($$SELECT llm_generate('x', system_prompt => repeat('s', 5000), options => '{"truncate": "left"}')$$);

-- time of the call
SELECT error_of($$SELECT llm_generate('@delay=400 x', options => '{"timeout": 150}')$$);
SET llm_infer.timeout = '150ms';
SELECT error_of($$SELECT llm_generate('@delay=400 x')$$);
SELECT llm_generate('@delay=400 x', on_error => 'null');
SELECT llm_generate('fast');
RESET llm_infer.timeout;
SET statement_timeout = '100ms';
SELECT llm_generate('@delay=300 x');
RESET statement_timeout;
SELECT llm_generate('alive');

-- no room in the queue: bytes in flight are bounded, and a request of more than the rest waits
BEGIN;
DECLARE c CURSOR FOR SELECT llm_generate(CASE WHEN i > 1 THEN '@slow=50 ' ELSE '' END || repeat('x', i * 100 - 99)) FROM generate_series(1, 3) i;
FETCH 1 FROM c;
SELECT error_of($$SELECT llm_generate(repeat('x', 9000000), options => '{"timeout": 150}')$$);
-- that is no fault of the row
SELECT left(error_of($$SELECT llm_generate(repeat('x', 9000000), on_error => 'null', options => '{"timeout": 50}')$$), 6);
ROLLBACK;

-- an exception block handles a row and the session goes on
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT id, body FROM prompts WHERE id < 4 ORDER BY id LOOP
		BEGIN
			RAISE WARNING '%: %', r.id, llm_generate(r.body);
		EXCEPTION WHEN internal_error THEN
			RAISE WARNING '%: handled %', r.id, SQLERRM;
		END;
	END LOOP;
END
$$;
BEGIN;
SAVEPOINT a;
SELECT llm_generate('@error=broken');
ROLLBACK TO a;
SELECT llm_generate('after the savepoint');
COMMIT;
