-- node_prefix.sql - what the rows of a statement share comes from the prefix cache, whatever their order
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\set shared :srcdir '/test/regress/shared_tokens.sql'
\i :prepare
\set ECHO none
\i :shared
\set ECHO all

-- 256 rows of an enrichment: 354 tokens of instructions, then about 68 of each row's own
CREATE TEMP TABLE reviews AS SELECT i AS id,
	(SELECT substr(string_agg('Rule ' || r || ': ' || md5(r::text), '. '), 1, 354) FROM generate_series(1, 9) r)
	|| (SELECT substr(string_agg(md5((i * 100 + k)::text), ' '), 1, 40 + (i * 7) % 56) FROM generate_series(1, 3) k) AS prompt
FROM generate_series(1, 256) i;
ANALYZE reviews;

SELECT part >= 0.95 AS enough, part <= 1.01 AS possible FROM cached_part(
	$$SELECT llm_generate(prompt, max_tokens => 16, options => '{"raw": true}') FROM reviews$$,
	$$SELECT prompt FROM reviews$$) part;

-- several beginnings, in turns: rows leave in their order all the same
CREATE TEMP TABLE turns AS SELECT i AS id, repeat(chr(97 + i % 7), 200 + i % 7) || repeat(chr(65 + i % 3), 100) || i AS prompt FROM generate_series(1, 150) i;
SELECT part >= 0.95 AS enough, part <= 1.01 AS possible FROM cached_part(
	$$SELECT llm_generate(prompt, max_tokens => 1, options => '{"raw": true}') FROM turns$$,
	$$SELECT prompt FROM turns$$) part;
SELECT count(*), count(*) FILTER (WHERE n = id AND answer = prompt) AS in_order FROM
	(SELECT row_number() OVER () AS n, id, prompt, answer FROM (SELECT id, prompt, llm_generate(prompt, max_tokens => 400) AS answer FROM turns OFFSET 0) s) s;
SELECT count(*), count(*) FILTER (WHERE n = id AND answer = prompt) AS in_order FROM
	(SELECT row_number() OVER () AS n, id, prompt, answer FROM (SELECT id, prompt, llm_generate(prompt, max_tokens => 400) AS answer
	FROM turns WHERE llm_generate('x' || prompt, system_prompt => repeat('s', id % 5 * 100), max_tokens => 400) = 'x' || prompt OFFSET 0) s) s;
DROP TABLE reviews, turns;
DROP FUNCTION cached_part(text, text), common_tokens(int[], int[]);
