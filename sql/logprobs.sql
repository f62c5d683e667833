-- logprobs.sql - log-probabilities of answers and prompts
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- the echo is sure of its token: its logarithm is 0, that of each of the others -100
SELECT jsonb_pretty(logprobs) FROM llm_generate_result('ab', options => '{"logprobs": true}');
SELECT logprobs #> '{content,0}' AS first, jsonb_array_length(logprobs -> 'content') = completion_tokens AS all_of_them
FROM llm_generate_result('ab', options => '{"top_logprobs": 3}');
-- what was picked need not be the likeliest
SELECT logprobs #> '{content,0}' AS first FROM llm_generate_result('b', max_tokens => 1, options => '{"top_logprobs": 1, "logit_bias": {"97": 100}}');
-- part of a character, bytes that are no text, control tokens
SELECT jsonb_path_query_array(logprobs, '$.content[*].token') AS tokens, text FROM llm_generate_result('🦙é', options => '{"logprobs": true}');
SELECT jsonb_path_query_array(logprobs, '$.content[*].top[1].token') AS nul FROM llm_generate_result('x', max_tokens => 1, options => '{"top_logprobs": 2}');
SELECT convert_from(convert_to(logprobs::text, 'UTF8'), 'UTF8') = logprobs::text AS valid FROM llm_generate_result('🦙', options => '{"top_logprobs": 20}');
SELECT jsonb_array_length(logprobs #> '{content,0,top}') AS twenty FROM llm_generate_result('x', max_tokens => 1, options => '{"top_logprobs": 20}');

-- of a prompt: nothing precedes its first token; no cached page is read
SELECT logprobs, prompt_tokens, cached_tokens FROM llm_generate_result('ab', max_tokens => 1, options => '{"raw": true, "prompt_logprobs": true}');
SELECT jsonb_path_query_array(logprobs, '$.prompt[*].logprob') AS repeated FROM llm_generate_result('abba', max_tokens => 1, options => '{"raw": true, "prompt_logprobs": true}');
SELECT jsonb_array_length(logprobs -> 'prompt') = prompt_tokens AS all_of_them, cached_tokens, logprobs ? 'content' AS content
FROM llm_generate_result(repeat('long enough for pages ', 20), max_tokens => 1, options => '{"prompt_logprobs": true}');
SELECT logprobs #> '{prompt,0}' AS first, logprobs #> '{prompt,1,top}' AS second, logprobs -> 'content' AS content
FROM llm_generate_result('aab', max_tokens => 0, options => '{"raw": true, "prompt_logprobs": true, "top_logprobs": 1}');
SELECT logprobs ? 'content' AS content, logprobs #> '{prompt,1,top,0,id}' AS prompt
FROM llm_generate_result('aab', max_tokens => 1, options => '{"raw": true, "prompt_logprobs": true, "top_logprobs": 1, "logprobs": false}');

-- not asked for
SELECT logprobs FROM llm_generate_result('ab');
SELECT logprobs FROM llm_generate_result('ab', options => '{"logprobs": false, "top_logprobs": 3}');
SELECT logprobs FROM llm_generate_result('ab', max_tokens => 0, options => '{"logprobs": true}');
SELECT logprobs, error FROM llm_generate_result('@error=no', on_error => 'null', options => '{"logprobs": true}');
SELECT llm_generate('ab', options => '{"top_logprobs": 3, "prompt_logprobs": true}');
-- rows of a batch
SELECT i, jsonb_path_query_array((r).logprobs, '$.content[*].id') AS ids
FROM (SELECT i, llm_generate_result(repeat(chr(96 + i), i), options => '{"logprobs": true}') AS r FROM generate_series(1, 3) i OFFSET 0) s;
SELECT engine_idle();
