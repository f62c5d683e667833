-- encodings.sql - databases that are not UTF-8
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE DATABASE regress_llm_latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE regress_llm_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';

-- LATIN1: converted both ways; what it cannot hold becomes a question mark, never an error
\c regress_llm_latin1
SET client_encoding = 'UTF8';
CREATE EXTENSION llm_infer;
SELECT llm_model_register('écho', 'echo:');
SELECT llm_generate('déjà vu'), octet_length(llm_generate('déjà vu'));
SELECT llm_tokenize('é'), llm_count_tokens('é'), llm_detokenize(ARRAY[195, 169]);
SELECT llm_detokenize(ARRAY[97, 226, 130, 172, 98]) AS euro, llm_detokenize(ARRAY[240, 159, 166, 153]) AS llama;
SELECT n, llm_generate('aé', max_tokens => n), octet_length(llm_generate('aé', max_tokens => n)) FROM generate_series(1, 3) n;
SELECT llm_generate('un, é, deux', stop => ARRAY['é']);
SELECT llm_generate('x', system_prompt => 'é'), (llm_generate_result('é', 'écho')).model;
CREATE TEMP TABLE t AS SELECT 'é' || i AS body FROM generate_series(1, 20) i;
SELECT count(*), bool_and(g = body) FROM (SELECT body, llm_generate(body) g FROM t OFFSET 0) s;
SELECT llm_generate('@error=échec');
SELECT llm_generate_stream('éa'), llm_chat('[{"role": "user", "content": "déjà vu"}]');
SELECT llm_chat('[{"role": "user", "content": [{"type": "text", "text": "dé"}, {"type": "text", "text": "jà"}]}]') ->> 'content' AS content;
SELECT jsonb_path_query_array(logprobs, '$.content[*].token') AS tokens FROM llm_generate_result('aé', options => '{"logprobs": true}');
SELECT llm_generate('x', options => '{"template_kwargs": {"é": "à"}}'), llm_pin_prefix('déjà') = llm_pin_prefix('déjà') AS pinned;
SELECT llm_unpin_prefix('déjà');
SELECT name FROM llm.models;

-- SQL_ASCII: nobody knows what its bytes mean
\c regress_llm_ascii
CREATE EXTENSION llm_infer;
SELECT llm_model_register('echo', 'echo:');
SELECT llm_generate('x');
SELECT llm_generate(NULL::text) IS NULL AS is_null;
\c contrib_regression
DROP DATABASE regress_llm_latin1;
DROP DATABASE regress_llm_ascii;
