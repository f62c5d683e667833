-- reasoning.sql - what a model thinks is no part of its answer
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- asked to think, the echo's template opens a thought
SELECT text, reasoning, finish_reason FROM llm_generate_result(E'because\n</think>\n\nso', options => '{"reasoning": "on"}');
SELECT text, reasoning FROM llm_generate_result('no thought', options => '{"reasoning": "off"}');
SELECT text, reasoning FROM llm_generate_result('no thought');
SELECT level, llm_generate('why</think>so', options => jsonb_build_object('reasoning', level)) FROM unnest(ARRAY['on', 'low', 'medium', 'high']) level;
-- a thought without an end is all there is
SELECT text, reasoning, finish_reason FROM llm_generate_result('on and on', options => '{"reasoning": "on"}');
SELECT text, reasoning, finish_reason FROM llm_generate_result('on and on</think>so', max_tokens => 5, options => '{"reasoning": "on"}');
-- stop strings are for the answer
SELECT text, reasoning FROM llm_generate_result('a.b</think>c.d', stop => ARRAY['.'], options => '{"reasoning": "on"}');

-- elsewhere
SELECT llm_generate(ARRAY['a</think>b', 'c</think>d'], options => '{"reasoning": "on"}');
SELECT llm_chat('[{"role": "user", "content": "why</think>so"}]', options => '{"reasoning": "on"}');
SELECT llm_chat(jsonb_build_array('{"role": "user", "content": "x"}'::jsonb,
	llm_chat('[{"role": "user", "content": "why</think>so"}]', options => '{"reasoning": "on"}'), '{"role": "user", "content": "and"}'::jsonb));
SELECT string_agg(p, '|') FROM llm_generate_stream('why</think>so', options => '{"reasoning": "on"}') p;

-- variables of the template; the model's own words for what a request says otherwise are refused
SELECT llm_model_register('talker', 'echo:', jsonb_build_object('chat_template',
	'{% for m in messages %}<|im_start|>user' || E'\n' || '{{ tone | default("plain") }}: {{ m.content }}<|im_end|>{% endfor %}<|im_start|>assistant' || E'\n'));
SELECT llm_generate('x', 'talker'), llm_generate('x', 'talker', options => '{"template_kwargs": {"tone": "kind"}}');
SELECT error_of($$SELECT llm_generate('x', 'talker', options => '{"template_kwargs": {"messages": []}}')$$);
SELECT error_of($$SELECT llm_generate('x', 'echo', options => '{"raw": true, "template_kwargs": {"a": 1}}')$$);
SELECT error_of($$SELECT llm_generate('x', 'echo', options => '{"raw": true, "reasoning": "on"}')$$);
SELECT llm_model_drop('talker');
SELECT engine_idle();
