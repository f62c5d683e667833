-- stream.sql - a row per piece, as they come
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- a token of this model is a byte: a piece is a character
SELECT llm_generate_stream('hello');
SELECT llm_generate_stream('🦙三é');
SELECT * FROM llm_generate_stream('FROM works, all at once') WITH ORDINALITY AS t(piece, n) WHERE n <= 3;
SELECT count(*), string_agg(p, '') = llm_generate(body) AS same
FROM (SELECT 'a longer text, ' || i AS body, llm_generate_stream('a longer text, ' || i) p FROM generate_series(1, 3) i) s GROUP BY body;
-- nothing to say, nothing asked
SELECT count(*) FROM llm_generate_stream('');
SELECT count(*) FROM llm_generate_stream(NULL);
SELECT count(*) FROM llm_generate_stream('x', max_tokens => 0);
SELECT requests_of($$SELECT llm_generate_stream(NULL)$$);
SELECT pg_typeof(llm_generate_stream('x'));

-- what may begin a stop string waits for what follows
SELECT llm_generate_stream('one, two; three', stop => ARRAY[', two;']);
SELECT llm_generate_stream('one, too', stop => ARRAY[', two;']);
SELECT llm_generate_stream('abcdef', max_tokens => 3);
SELECT llm_generate_stream('@seed', seed => 42) LIMIT 2;

-- two at once, in step
SELECT llm_generate_stream('abc') a, llm_generate_stream('vwxyz') b;
SELECT i, llm_generate_stream(repeat('x', i)) FROM generate_series(0, 3) i;

-- who wants no more gets no more: the request is cancelled
SELECT llm_generate_stream('@slow=5 @tokens=5000 abcdef', max_tokens => 5000) LIMIT 3;
SELECT engine_idle();
BEGIN;
DECLARE c CURSOR FOR SELECT llm_generate_stream('@slow=5 @tokens=5000 abcdef', max_tokens => 5000);
FETCH 1 FROM c;
FETCH 2 FROM c;
SELECT llm_generate('between');
FETCH 1 FROM c;
MOVE 10 IN c;
FETCH 1 FROM c;
CLOSE c;
SELECT engine_idle();
-- also with the transaction, or a part of it
DECLARE c CURSOR FOR SELECT llm_generate_stream('@slow=5 @tokens=5000 abcdef', max_tokens => 5000);
FETCH 1 FROM c;
ROLLBACK;
SELECT engine_idle();
BEGIN;
DECLARE c CURSOR FOR SELECT llm_generate_stream('@slow=1 abcdefgh');
FETCH 2 FROM c;
SAVEPOINT s;
FETCH 1 FROM c;
SELECT 1 / 0;
ROLLBACK TO s;
FETCH 2 FROM c;
COMMIT;
SELECT engine_idle();
-- a cursor that outlives its transaction has everything
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT llm_generate_stream('@slow=1 abcd');
FETCH 1 FROM c;
COMMIT;
FETCH ALL FROM c;
CLOSE c;

-- an error comes at its place
SELECT error_of($$SELECT llm_generate_stream('@error=no')$$);
SELECT llm_generate_stream('@error=no', on_error => 'null');
SELECT i, llm_generate_stream(CASE i WHEN 2 THEN '@error=no' ELSE 'ab' END, on_error => 'null') FROM generate_series(1, 3) i;
SELECT error_of($$SELECT llm_generate_stream('x', options => '{"colour": 1}')$$);
SELECT error_of($$SELECT llm_generate_stream('x', 'nobody')$$);
SELECT error_of($$SELECT llm_generate_stream('@delay=400 x', options => '{"timeout": 150}')$$);
-- a loop sees the pieces one by one
DO $$
DECLARE
	p text;
	n int := 0;
BEGIN
	FOR p IN SELECT llm_generate_stream('@slow=5 @tokens=5000 abcdef', max_tokens => 5000) LOOP
		n := n + 1;
		EXIT WHEN p = 'd';
	END LOOP;
	RAISE WARNING '% pieces', n;
END
$$;
SELECT engine_idle();
SELECT proretset, provolatile, proparallel, proisstrict, procost, prorows FROM pg_proc WHERE proname = 'llm_generate_stream';
