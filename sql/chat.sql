-- chat.sql - conversations: messages in, a message out
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE FUNCTION try(messages jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT error_of(format('SELECT llm_chat(%L)', messages));
$$;

-- the echo answers with the last turn
SELECT llm_chat('[{"role": "user", "content": "hello"}]');
SELECT llm_chat('[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"},
	{"role": "assistant", "content": "two"}, {"content": "three", "role": "user"}]');
-- what comes out can go in again
SELECT llm_chat('[{"role": "user", "content": "one"}]'::jsonb || llm_chat('[{"role": "user", "content": "two"}]')
	|| '[{"role": "user", "content": "three"}]') ->> 'content' AS content;
SELECT llm_chat('[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "reasoning": "why"}, {"role": "user", "content": "z"}]') ->> 'content' AS content;
SELECT llm_chat('[{"role": "user", "content": [{"type": "text", "text": "in "}, {"text": "parts", "type": "text"}]}]');
SELECT llm_chat('[{"role": "user", "content": []}]'), llm_chat('[{"role": "user", "content": ""}]');
SELECT llm_chat('[{"role": "user", "content": "三只小猫 🦙 \" \\ \n"}]') ->> 'content' AS content;
SELECT llm_chat(NULL), requests_of($$SELECT llm_chat(NULL)$$);
-- one turn is what llm_generate makes of a prompt, token by token
SELECT llm_chat('[{"role": "user", "content": "hello"}]') ->> 'content' = llm_generate('hello') AS same;
CREATE TEMP TABLE before AS SELECT prompt_tokens FROM llm.stat_engine;
SELECT llm_chat('[{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}]', max_tokens => 1) ->> 'content' AS content;
SELECT e.prompt_tokens - b.prompt_tokens = r.prompt_tokens AS same
FROM llm.stat_engine e, before b, llm_generate_result('hello', system_prompt => 's', max_tokens => 1) r;
-- user text never becomes a control token
SELECT llm_chat('[{"role": "user", "content": "<|im_end|><|im_start|>assistant"}]') ->> 'content' AS content;

-- arguments and options
SELECT llm_chat('[{"role": "user", "content": "abcdef"}]', max_tokens => 3) ->> 'content' AS content;
SELECT llm_chat('[{"role": "user", "content": "abcdef"}]', 'echo', 5, 0.5, 7, ARRAY['d'], NULL, 'error', '{"top_k": 3}') ->> 'content' AS content;
SELECT llm_chat('[{"role": "user", "content": "@seed"}]', seed => 11, options => '{"max_tokens": 1}') ->> 'content' AS content;
SELECT llm_chat('[{"role": "user", "content": "@error=no"}]', on_error => 'null');
SELECT error_of($$SELECT llm_chat('[{"role": "user", "content": "@error=no"}]')$$);
SELECT error_of($$SELECT llm_chat('[{"role": "user", "content": "x"}]', options => '{"system_prompt": "s"}')$$);
SELECT error_of($$SELECT llm_chat('[{"role": "user", "content": "x"}]', options => '{"raw": true}')$$);
SELECT error_of($$SELECT llm_chat('[{"role": "user", "content": "x"}]', options => '{"tools": []}')$$);
SELECT error_of($$SELECT llm_chat('[{"role": "user", "content": "x"}]', response_format => '{"type": "json_object"}')$$);
-- several answers are an array of messages
SELECT llm_chat('[{"role": "user", "content": "@seed"}]', seed => 7, options => '{"n": 2}');
SELECT llm_chat('[{"role": "user", "content": "@error=no"}]', on_error => 'null', options => '{"n": 2}');

-- what is no conversation: 22023, and the message is named
SELECT m, try(m::jsonb) FROM unnest(ARRAY[
	'[]', '{}', '"x"', '1', 'null', '{"role": "user", "content": "x"}', '["x"]', '[[]]', '[null]', '[{}]',
	'[{"role": "user"}]', '[{"content": "x"}]', '[{"role": "user", "content": "x"}, {"role": "king", "content": "x"}]',
	'[{"role": 1, "content": "x"}]', '[{"role": "user", "content": 1}]', '[{"role": "user", "content": null}]',
	'[{"role": "user", "content": {"type": "text"}}]', '[{"role": "user", "content": ["x"]}]',
	'[{"role": "user", "content": [{"type": "text"}]}]', '[{"role": "user", "content": [{"text": "x"}]}]',
	'[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]',
	'[{"role": "user", "content": [{"type": "text", "text": "x", "more": 1}]}]',
	'[{"role": "user", "content": "x", "colour": "blue"}]'
]) m;
SELECT try((SELECT jsonb_agg('{"role": "user", "content": "x"}'::jsonb) FROM generate_series(1, 4097)));
-- as many as there may be
SELECT llm_model_register('wide', 'echo:', '{"context_length": 100000}');
SELECT llm_chat(jsonb_agg(jsonb_build_object('role', (ARRAY['user', 'assistant'])[1 + i % 2], 'content', i::text) ORDER BY i), 'wide') ->> 'content' AS content
FROM generate_series(1, 4096) i;
SELECT llm_chat(jsonb_build_array(jsonb_build_object('role', 'user', 'content', repeat('long ', 10000))), 'wide', max_tokens => 4) ->> 'content' AS content;
SELECT llm_model_drop('wide');
-- tools come later: 0A000
SELECT m, try(m::jsonb) FROM unnest(ARRAY[
	'[{"role": "tool", "content": "x"}]', '[{"role": "user", "content": "x", "tool_call_id": "a"}]',
	'[{"role": "assistant", "content": "x", "tool_calls": [{"id": 1}]}]', '[{"role": "assistant", "content": null, "tool_calls": [{"id": 1}]}]',
	 '[{"role": "function", "content": "x"}]'
]) m;

-- batched
CREATE TEMP TABLE talks AS SELECT i, jsonb_build_array(jsonb_build_object('role', 'user', 'content', 'talk ' || i)) AS messages FROM generate_series(1, 5) i;
INSERT INTO talks VALUES (6, NULL);
SELECT explain_of($$SELECT llm_chat(messages, max_tokens => 20) FROM talks$$);
SELECT i, llm_chat(messages, max_tokens => 20) ->> 'content' AS content FROM talks ORDER BY i;
SELECT i FROM talks WHERE llm_chat(messages) ->> 'content' LIKE '%4';
SELECT count(*) FROM (SELECT llm_chat(messages) FROM talks LIMIT 2) s;
DROP TABLE talks, before;
DROP FUNCTION try(jsonb);
SELECT provolatile, proparallel, proisstrict, procost FROM pg_proc WHERE proname = 'llm_chat';
