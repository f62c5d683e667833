-- options.sql - every key of options: what is good, out of range, unknown or not built
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE OR REPLACE FUNCTION try(options jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT error_of(format('SELECT llm_generate(%L, options => %L)', 'hello', options));
$$;

-- how far a call may go ahead is a superuser's to say
CREATE ROLE llm_regress_hasty;
SELECT try('{"priority": 0}'), try('{"priority": 1}');
SET ROLE llm_regress_hasty;
SET llm_infer.max_priority = 5;
RESET ROLE;
SET llm_infer.max_priority = 5;
SELECT try('{"priority": 5}'), try('{"priority": 6}');
SET llm_infer.max_priority = 100;
DROP ROLE llm_regress_hasty;

-- good values, at both ends of each range
SELECT o, try(o::jsonb) FROM unnest(ARRAY[
	'{}', '{"top_p": 1}', '{"top_p": 0.000001}', '{"top_k": 0}', '{"top_k": 2147483647}', '{"min_p": 0}',
	'{"min_p": 1}', '{"repetition_penalty": 1.1}', '{"presence_penalty": -2}', '{"presence_penalty": 2}',
	'{"frequency_penalty": -2}', '{"frequency_penalty": 2}', '{"ignore_eos": false}', '{"raw": true}',
	'{"truncate": "error"}', '{"truncate": "left"}', '{"truncate": "right"}', '{"priority": -100}',
	'{"priority": 100}', '{"timeout": 60000}', '{"timeout": "1min"}', '{"timeout": 0}', '{"n": 1}',
	'{"reasoning": "off"}', '{"logprobs": false}', '{"temperature": 0}', '{"temperature": 100}',
	'{"temperature": 1e-30}', '{"seed": -9223372036854775808}', '{"seed": 9223372036854775807}',
	'{"max_tokens": 2147483647}', '{"max_tokens": 2.0}', '{"stop": "x"}', '{"stop": ["x", "y"]}', '{"stop": []}',
	'{"on_error": "error"}', '{"model": "echo"}', '{"system_prompt": "s"}', '{"top_p": null}', '{"logprobs": null}',
	'{"logprobs": true}', '{"top_logprobs": 0}', '{"top_logprobs": 20}', '{"prompt_logprobs": true}',
	'{"logit_bias": {}}', '{"logit_bias": {"0": -100, "1": 100, "2": 0.5}}', '{"allowed_tokens": [0, 1]}',
	'{"forbidden_tokens": []}', '{"forbidden_tokens": [1]}', '{"stop_token_ids": [1, 2.0]}', '{"min_tokens": 0}',
	'{"min_tokens": 3}', '{"reasoning": "on"}', '{"reasoning": "low"}', '{"reasoning": "medium"}', '{"reasoning": "high"}',
	'{"template_kwargs": {}}', '{"template_kwargs": {"a": [1, {"b": null}]}}'
]) o;

-- out of range or of another type: 22023, and the key is named
SELECT o, try(o::jsonb) FROM unnest(ARRAY[
	'{"top_p": 0}', '{"top_p": 1.01}', '{"top_p": -1}', '{"top_p": "high"}', '{"top_p": 1e400}', '{"top_p": 1e-60}',
	'{"top_k": -1}', '{"top_k": 1.5}', '{"top_k": 2147483648}', '{"top_k": 1e30}', '{"top_k": true}',
	'{"min_p": -0.1}', '{"min_p": 1.1}', '{"repetition_penalty": 0}', '{"repetition_penalty": -1}',
	'{"presence_penalty": 2.1}', '{"frequency_penalty": -2.1}', '{"frequency_penalty": [1]}',
	'{"ignore_eos": 1}', '{"raw": "yes"}', '{"truncate": "middle"}', '{"truncate": true}', '{"priority": 101}',
	'{"timeout": -1}', '{"timeout": "soon"}', '{"timeout": 1.5}', '{"n": 0}', '{"n": 129}',
	'{"temperature": -0.1}', '{"temperature": 101}', '{"temperature": "warm"}', '{"seed": 9223372036854775808}',
	'{"seed": 1.5}', '{"max_tokens": -1}', '{"max_tokens": 2147483648}', '{"max_tokens": "many"}', '{"stop": [1]}',
	'{"stop": {"a": 1}}', '{"stop": ""}', '{"stop": 1}', '{"on_error": "ignore"}', '{"on_error": 1}', '{"model": 1}',
	'{"system_prompt": []}', '{"logprobs": 1}', '{"prompt_logprobs": "all"}', '{"top_logprobs": -1}', '{"top_logprobs": 21}',
	'{"top_logprobs": true}', '{"logit_bias": [1]}', '{"logit_bias": {"a": 1}}', '{"logit_bias": {"-1": 1}}',
	'{"logit_bias": {"01": 1}}', '{"logit_bias": {"2147483648": 1}}', '{"logit_bias": {"1": 100.1}}', '{"logit_bias": {"1": "up"}}',
	'{"logit_bias": {"1": null}}', '{"allowed_tokens": []}', '{"allowed_tokens": 1}', '{"allowed_tokens": ["a"]}',
	'{"allowed_tokens": [-1]}', '{"forbidden_tokens": [1.5]}', '{"forbidden_tokens": {"1": 1}}', '{"stop_token_ids": [null]}',
	'{"stop_token_ids": [2147483648]}', '{"min_tokens": -1}', '{"min_tokens": 1.5}', '{"reasoning": "hard"}', '{"reasoning": true}',
	'{"template_kwargs": []}', '{"template_kwargs": "x"}', '[]', '"x"', '1', 'null'
]) o;
-- long lists
SELECT try(jsonb_build_object(k, (SELECT jsonb_agg(i) FROM generate_series(1, 4097) i)))
FROM unnest(ARRAY['allowed_tokens', 'forbidden_tokens', 'stop_token_ids']) k;
SELECT try(jsonb_build_object('logit_bias', (SELECT jsonb_object_agg(i, 1) FROM generate_series(1, 4097) i)));

-- unknown: 22023
SELECT try('{"topp": 1}'), try('{"": 1}'), try('{"Top_p": 1}'), try('{"top_p": 1, "colour": null}');

-- known, but not built: 0A000
SELECT o, try(o::jsonb) FROM unnest(ARRAY[
	'{"adapter": "a"}', '{"tools": []}', '{"tool_choice": "auto"}', '{"response_format": {"type": "json_object"}}'
]) o;

-- an argument goes before its key
SELECT llm_generate('abcdef', max_tokens => 2, options => '{"max_tokens": 4}'),
	llm_generate('abcdef', options => '{"max_tokens": 4}');
SELECT llm_generate('@seed', seed => 1, options => '{"seed": 2}'), llm_generate('@seed', options => '{"seed": 2}');
SELECT llm_generate('abcdef', stop => ARRAY['c'], options => '{"stop": "b"}'), llm_generate('abcdef', options => '{"stop": "b"}');
SELECT llm_generate('x', model => 'echo', options => '{"model": "nobody"}'), error_of($$SELECT llm_generate('x', options => '{"model": "nobody"}')$$);
SELECT llm_generate('@error=no', on_error => 'null', options => '{"on_error": "error"}') IS NULL AS hidden;
SELECT error_of($$SELECT llm_generate('x', max_tokens => 2, options => '{"max_tokens": -4}')$$);
SELECT error_of($$SELECT llm_generate('x', max_tokens => -2)$$), error_of($$SELECT llm_generate('x', temperature => -2)$$),
	error_of($$SELECT llm_generate('x', temperature => 'NaN')$$), error_of($$SELECT llm_generate('x', temperature => 'Infinity')$$),
	error_of($$SELECT llm_generate('x', on_error => 'ignore')$$);

-- what options do
SELECT llm_generate('abc', max_tokens => 8, options => '{"ignore_eos": true}');
SELECT r.finish_reason FROM llm_generate_result('abc', max_tokens => 8, options => '{"ignore_eos": true}') r;
SELECT error_of($$SELECT llm_generate('@delay=400 x', options => '{"timeout": 150}')$$);
SELECT llm_generate('@delay=20 x', options => '{"timeout": "30s"}');
SELECT llm_generate_result('x', options => '{"colour": 1}') FROM generate_series(1, 0);
SELECT error_of($$SELECT llm_generate_result('x', options => '{"colour": 1}')$$);
SELECT error_of($$SELECT llm_generate(ARRAY['x'], options => '{"colour": 1}')$$);
-- options may differ by row
SELECT n, llm_generate('abcdef', options => jsonb_build_object('max_tokens', n)) FROM generate_series(1, 3) n;
