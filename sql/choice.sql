-- choice.sql - which tokens are picked and which end the answer
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE FUNCTION try(options jsonb, max_tokens int DEFAULT 6) RETURNS text LANGUAGE sql AS $$
	SELECT error_of(format('SELECT llm_generate(%L, max_tokens => %s, options => %L)', 'hello', max_tokens, options));
$$;

-- tokens are bytes; the echo's next one has the logit 100, all others 0, and of equals the lowest wins
SELECT llm_tokenize('abcx');
SELECT llm_generate('abcabc', max_tokens => 6, options => '{"logit_bias": {"97": 100}}') AS up,
	llm_generate('abcabc', max_tokens => 6, options => '{"logit_bias": {"97": 99.5}}') AS not_enough,
	llm_generate('abcabc', max_tokens => 6, options => '{"logit_bias": {"99": -100, "120": 0.5}}') AS down;
SELECT llm_generate('abcabc', max_tokens => 6, options => '{"allowed_tokens": [97, 98]}') AS allowed,
	llm_generate('abcabc', max_tokens => 6, options => '{"forbidden_tokens": [99], "logit_bias": {"120": 1}}') AS forbidden,
	llm_generate('abcabc', max_tokens => 6, options => '{"allowed_tokens": [97, 98, 99], "forbidden_tokens": [97]}') AS both;
-- an answer of allowed tokens ends when the end token is one of them
SELECT r.text, r.finish_reason FROM llm_generate_result('ab', max_tokens => 4, options => '{"allowed_tokens": [97, 98]}') r;
SELECT r.text, r.finish_reason FROM llm_generate_result('ab', max_tokens => 4, options => '{"allowed_tokens": [97, 98, 257]}') r;

-- stop tokens end the answer and are no part of it
SELECT r.text, r.finish_reason, r.completion_tokens FROM llm_generate_result('abcabc', options => '{"stop_token_ids": [99]}') r;
SELECT r.text, r.finish_reason FROM llm_generate_result('abcabc', options => '{"stop_token_ids": [120, 98]}') r;
-- not before min_tokens
SELECT n, r.text, r.finish_reason, r.completion_tokens
FROM generate_series(0, 6, 2) n, llm_generate_result('ab', max_tokens => 6, options => jsonb_build_object('min_tokens', n)) r;
SELECT r.text, r.finish_reason FROM llm_generate_result('abcabc', max_tokens => 9, stop => ARRAY['b'], options => '{"min_tokens": 3}') r;
SELECT r.text, r.finish_reason FROM llm_generate_result('ab', max_tokens => 5, options => '{"ignore_eos": true}') r;

-- every row its own lists, in one batch
SELECT i, llm_generate('abcabc', max_tokens => 6, options => jsonb_build_object('allowed_tokens', jsonb_build_array(96 + i, 97 + i))) FROM generate_series(1, 3) i;
SELECT llm_generate(ARRAY['abc', 'cba'], max_tokens => 3, options => '{"allowed_tokens": [97, 98], "n": 2}');

-- what the model has not: 22023, with the numbers
SELECT try('{"logit_bias": {"320": 1}}'), try('{"allowed_tokens": [97, 320]}');
SELECT try('{"forbidden_tokens": [320]}'), try('{"stop_token_ids": [2147483647]}');
SELECT try('{"allowed_tokens": [97], "forbidden_tokens": [97]}');
SELECT try('{"min_tokens": 7}'), try('{"min_tokens": 6}');
DROP FUNCTION try(jsonb, int);
SELECT engine_idle();
