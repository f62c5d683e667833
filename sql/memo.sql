-- memo.sql - what was answered once is not asked again, whatever became of the statement; and what is never kept
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, answer text);
INSERT INTO docs SELECT i, 'b' || i % 7, NULL FROM generate_series(1, 100) i;
ANALYZE docs;
SET llm_infer.temperature = 0;
CREATE TEMP TABLE rows_off AS SELECT id, llm_generate(body) AS text, to_jsonb(llm_generate_result(body, 'echo', 's', 2)) AS result FROM docs;
\set rows 'SELECT id, llm_generate(body) AS text, to_jsonb(llm_generate_result(body, ''echo'', ''s'', 2)) AS result FROM docs'

-- off: nothing is looked up, nothing is kept
SELECT requests_of($$SELECT llm_generate('off')$$), requests_of($$SELECT llm_generate('off')$$);
SET llm_infer.memo = on;
SELECT requests_of($$SELECT llm_generate('off')$$);
SET llm_infer.memo = off;
SELECT requests_of($$SELECT llm_generate('off')$$);
SELECT explain_of($$SELECT llm_generate(body) FROM docs$$);
SET llm_infer.memo = on;

-- cold, warm, half warm: the same rows
CREATE TEMP TABLE rows_cold AS :rows;
CREATE TEMP TABLE rows_warm AS :rows;
SELECT requests_of($$SELECT llm_generate(body), llm_generate_result(body, 'echo', 's', 2) FROM docs$$);
SELECT requests_of($$SELECT llm_generate(body || CASE WHEN id % 2 = 0 THEN 'x' ELSE '' END) FROM docs$$) AS of_7_and_7;
-- but for times and the cache, which nothing was computed with
SELECT t, bool_and(r.text = o.text AND r.result - '{cached_tokens,queue_ms,first_token_ms,total_ms}'::text[] = o.result - '{cached_tokens,queue_ms,first_token_ms,total_ms}'::text[]) AS same
FROM (SELECT 'cold' AS t, * FROM rows_cold UNION ALL SELECT 'warm', * FROM rows_warm) r JOIN rows_off o USING (id) GROUP BY t ORDER BY t;
SELECT (r).text, (r).finish_reason, (r).prompt_tokens = (r).cached_tokens AS all_cached, (r).completion_tokens, (r).queue_ms, (r).first_token_ms, (r).total_ms, (r).error
FROM (SELECT llm_generate_result('b1', 'echo', 's', 2) r OFFSET 0) s;

-- EXPLAIN: hits are among the distinct ones, and cost nothing
SELECT explain_of($$SELECT id, llm_generate(body) FROM docs$$, true);
SELECT explain_of($$SELECT id, llm_generate(body || id % 2) FROM docs WHERE id <= 28$$);
SELECT explain_of($$SELECT id, llm_generate('b' || id % 9) FROM docs$$);
CREATE FUNCTION node_of(format text) RETURNS TABLE (line text) LANGUAGE plpgsql AS $$
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT %s) SELECT id, llm_generate(body) FROM docs', format) LOOP
		RETURN QUERY SELECT trim(l) FROM regexp_split_to_table(line, E'\n') l WHERE l ~ 'LLM.(Requests|Distinct|Memo|Prompt|Generated)';
	END LOOP;
END
$$;
SELECT node_of('json');
SELECT node_of('yaml');
SELECT node_of('xml');

-- every way to ask; llm_generate_result gives what llm_generate got
SELECT requests_of($$SELECT (llm_generate_result('b1')).text$$), requests_of($$SELECT llm_generate(ARRAY['b1', NULL, 'b2'])$$),
	requests_of($$SELECT CASE WHEN id > 0 THEN llm_generate(body) END FROM docs$$), requests_of($$SELECT llm_generate('b1')$$);
SELECT requests_of($$SELECT llm_chat('[{"role": "user", "content": "hello"}]')$$), requests_of($$SELECT llm_chat('[{"role": "user", "content": "hello"}]')$$),
	llm_chat('[{"role": "user", "content": "hello"}]'), requests_of($$SELECT llm_generate('hello')$$) AS messages_are_not_a_prompt;
SELECT requests FROM llm.stat_engine \gset
CALL llm_enrich('docs', 'answer', prompt => '{body}', filter => 'id <= 50', temperature => 0);
SELECT count(answer), bool_and(answer = body), (SELECT requests - :requests FROM llm.stat_engine) AS requests FROM docs;
SET llm_infer.enable_distinct = off;
SELECT requests_of($$SELECT llm_generate(body) FROM docs$$);
SET llm_infer.enable_batch = off;
SELECT requests_of($$SELECT llm_generate(body) FROM docs$$);
RESET llm_infer.enable_batch;
RESET llm_infer.enable_distinct;

-- each option that an answer depends on makes another key; what changes no answer does not
CREATE FUNCTION asked(args text) RETURNS text LANGUAGE sql AS $$
	SELECT requests_of(format('SELECT llm_generate(''key'', %s)', args)) || ', then ' || requests_of(format('SELECT llm_generate(''key'', %s)', args));
$$;
SELECT a, asked(a) FROM unnest(ARRAY['model => NULL', 'system_prompt => ''s''', 'system_prompt => ''''', 'max_tokens => 1', 'max_tokens => 2', 'stop => ARRAY[''x'']',
	'stop => ARRAY[''x'', ''y'']', 'stop => ARRAY[''y'', ''x'']', 'temperature => 0.5, seed => 1', 'temperature => 0.5, seed => 2', 'temperature => 0.6, seed => 1']) a;
SELECT o, asked(format('options => %L', o)) FROM unnest(ARRAY[
	'{"top_p": 0.5}', '{"top_k": 3}', '{"min_p": 0.1}', '{"repetition_penalty": 1.1}', '{"presence_penalty": 1}', '{"frequency_penalty": 1}', '{"ignore_eos": true, "max_tokens": 9}',
	'{"raw": true}', '{"truncate": "left"}', '{"truncate": "right"}', '{"reasoning": "off"}', '{"reasoning": "low"}', '{"logit_bias": {"70": 1}}', '{"logit_bias": {"70": 2}}',
	'{"logit_bias": {"71": 1}}', '{"allowed_tokens": [100, 101, 120]}', '{"forbidden_tokens": [70]}', '{"forbidden_tokens": [71]}', '{"stop_token_ids": [70]}', '{"min_tokens": 1}',
	'{"template_kwargs": {"a": 1}}', '{"template_kwargs": {"a": 2}}']) o;
SET llm_infer.max_priority = 5;
SELECT o, asked(format('options => %L', o)) FROM unnest(ARRAY['{"priority": 5}', '{"timeout": "1min"}', '{"on_error": "null"}', '{"seed": 7}', '{"model": "echo"}']) o;
RESET llm_infer.max_priority;
SELECT llm_model_register('short', 'echo:', '{"context_length": 512}'), llm_model_register('twin', 'echo:');
SELECT a, asked(a) FROM unnest(ARRAY['model => ''short''', 'model => ''twin''']) a;
SELECT (llm_generate_result('key', model => 'twin')).model;
SELECT llm_model_drop('short'), llm_model_drop('twin');
SET llm_infer.max_tokens = 1;
SELECT asked('system_prompt => NULL') AS settings_are_options;
RESET llm_infer.max_tokens;

-- sampled without a seed: never. With one, each answer of many
RESET llm_infer.temperature;
SELECT asked('model => NULL') AS unseeded, asked('temperature => 0.5') AS sampled, asked('seed => 9') AS seeded;
SELECT requests_of($$SELECT llm_generate(ARRAY['@seed'], seed => 1, temperature => 0.5, options => '{"n": 3}')$$), requests_of($$SELECT llm_generate(ARRAY['@seed'], seed => 1, temperature => 0.5, options => '{"n": 4}')$$) AS one_more;
SELECT llm_generate(ARRAY['@seed'], seed => 1, temperature => 0.5, options => '{"n": 3}') = (llm_generate(ARRAY['@seed'], seed => 1, temperature => 0.5, options => '{"n": 4}'))[:3] AS same;
SET llm_infer.temperature = 0;
-- log-probabilities, pieces, errors, tokens: never. An open end: only where it stops by itself
SELECT requests_of($$SELECT llm_generate_result('key', options => '{"logprobs": true}')$$), requests_of($$SELECT llm_generate_result('key', options => '{"prompt_logprobs": true}')$$);
SELECT requests_of($$SELECT llm_generate_stream('pieces')$$), requests_of($$SELECT llm_generate_stream('pieces')$$), requests_of($$SELECT llm_generate('pieces')$$), requests_of($$SELECT llm_generate_stream('pieces')$$);
SELECT error_of($$SELECT llm_generate('@error=no')$$), requests_of($$SELECT llm_generate('@error=no', on_error => 'null')$$), requests_of($$SELECT llm_generate('@error=no', on_error => 'null')$$);
SELECT requests_of($$SELECT llm_count_tokens('key')$$), requests_of($$SELECT llm_tokenize('key')$$);
SET llm_infer.max_tokens = -1;
SELECT asked('system_prompt => ''open''') AS stops;
SELECT asked('options => ''{"ignore_eos": true}''') AS ends_with_the_context;
RESET llm_infer.max_tokens;

-- what a template with the date in it has asked is another question tomorrow; the date of an option is the same
SELECT llm_model_register('dated', 'echo:', '{"chat_template": "{{ date is defined and date or strftime_now(''%d %b'') }}{{ messages[0].content }}"}');
SELECT asked('model => ''dated''') AS dated, asked('model => ''dated'', options => ''{"raw": true}''') AS raw, asked('model => ''dated'', options => ''{"template_kwargs": {"date": "1 May"}}''') AS given;
SELECT llm_model_drop('dated');

-- whatever becomes of the statement: rolled back, or an error of one row
BEGIN;
SELECT requests_of($$SELECT llm_generate('rolled back ' || id) FROM docs WHERE id <= 10$$);
SAVEPOINT s;
SELECT requests_of($$SELECT llm_generate('and inside ' || id) FROM docs WHERE id <= 10$$);
ROLLBACK TO s;
ROLLBACK;
SELECT requests_of($$SELECT llm_generate('rolled back ' || id), llm_generate('and inside ' || id) FROM docs WHERE id <= 10$$);
SELECT error_of($$SELECT llm_generate(CASE id WHEN 90 THEN '@error=this' ELSE 'row ' || id END) FROM docs ORDER BY id$$);
SELECT requests_of($$SELECT llm_generate('row ' || id) FROM docs ORDER BY id$$) <= 11 AS only_the_rest;

-- what nothing is computed for costs nothing
SELECT requests, prompt_tokens FROM llm.stat_users WHERE role = current_user::regrole \gset before_
SET llm_infer.max_statement_tokens = 10;
SELECT count(llm_generate(body)) FROM docs;
RESET llm_infer.max_statement_tokens;
INSERT INTO llm.quotas (role, tokens_per_period, period) VALUES (current_user::regrole, 1, '1 day');
SELECT count(llm_generate(body)) FROM docs;
SELECT error_of($$SELECT llm_generate('new')$$) LIKE '53400%' AS new_ones_do;
DELETE FROM llm.quotas;
SELECT requests - :before_requests AS requests, prompt_tokens - :before_prompt_tokens AS tokens FROM llm.stat_users WHERE role = current_user::regrole;

-- the right to use the model comes first, and by default no other role is told what was asked
CREATE ROLE regress_llm_memo;
GRANT SELECT ON docs TO regress_llm_memo;
SET ROLE regress_llm_memo;
SELECT error_of($$SELECT llm_generate('b1')$$);
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_memo;
SET ROLE regress_llm_memo;
SELECT explain_of($$SELECT llm_generate(body) FROM docs$$);
SELECT explain_of($$SELECT llm_generate(body) FROM docs$$);
RESET ROLE;
REVOKE ALL ON FOREIGN SERVER echo FROM regress_llm_memo;
DROP OWNED BY regress_llm_memo;
DROP ROLE regress_llm_memo;

-- forgetting a model: whichever of its names was asked for
SELECT llm_model_register('twin', 'echo:');
SELECT requests_of($$SELECT llm_generate('b1', 'twin')$$) AS asked_of_echo, llm_memo_forget('twin') > 0 AS forgotten, requests_of($$SELECT llm_generate('b1', 'twin')$$) AS asked_again;
SELECT llm_model_drop('twin');

DROP FUNCTION asked(text), node_of(text);
DROP TABLE docs;
RESET llm_infer.memo;
