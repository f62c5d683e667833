-- prefix_cache.sql - what prompts share is computed once, within a role
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE ROLE regress_llm_prefix;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_prefix;
CREATE TEMP TABLE docs (id int PRIMARY KEY, body text);
INSERT INTO docs SELECT i, repeat('shared between rows. ', 20) || i FROM generate_series(1, 9) i;
GRANT SELECT ON docs TO regress_llm_prefix;
ANALYZE docs;
SHOW llm_infer.prefix_cache;

-- tokens of the echo are bytes, with some around them that other tests' prompts have too; all but the last
-- token of a known prompt are read
CREATE FUNCTION part_of(cached int, prompt int) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN cached < 64 THEN 'little' WHEN cached = prompt - 1 THEN 'all' WHEN cached >= 420 THEN 'shared' ELSE cached::text END
$$;
SELECT prompt_tokens, part_of(cached_tokens, prompt_tokens) AS cached, text = body AS same FROM docs, llm_generate_result(body, max_tokens => 500) WHERE id = 1;
SELECT prompt_tokens, part_of(cached_tokens, prompt_tokens) AS cached, text = body AS same FROM docs, llm_generate_result(body, max_tokens => 500) WHERE id = 2;
SELECT prompt_tokens, part_of(cached_tokens, prompt_tokens) AS cached, text = body AS same FROM docs, llm_generate_result(body, max_tokens => 500) WHERE id = 1;
SELECT explain_of($$SELECT llm_generate(body, max_tokens => 2) FROM docs WHERE id = 3$$, true);
SELECT explain_of($$SELECT llm_generate(body, max_tokens => 2) FROM docs WHERE id > 3$$, true);

-- another role finds nothing of it, and then its own
SET ROLE regress_llm_prefix;
SELECT prompt_tokens, part_of(cached_tokens, prompt_tokens) AS cached, text = body AS same FROM docs, llm_generate_result(body, max_tokens => 500) WHERE id = 1;
SELECT prompt_tokens, part_of(cached_tokens, prompt_tokens) AS cached, text = body AS same FROM docs, llm_generate_result(body, max_tokens => 500) WHERE id = 1;
RESET ROLE;

-- a text that begins otherwise shares nothing but the template
SELECT prompt_tokens, part_of(cached_tokens, prompt_tokens) AS cached, text = 'x' || body AS same FROM docs, llm_generate_result('x' || body, max_tokens => 500) WHERE id = 1;
SELECT cached_tokens > 0 AS counted, kv_pages_cached > 0 AS kept FROM llm.stat_engine;

-- only a reload changes it
SELECT error_of($$SET llm_infer.prefix_cache = off$$);
SELECT engine_idle();
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_llm_prefix;
DROP TABLE docs;
DROP FUNCTION part_of(int, int);
DROP ROLE regress_llm_prefix;
