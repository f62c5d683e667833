-- models.sql - a model is a foreign server: registering, options, rights, the default
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- the view; the engine knows a model after its first use
SELECT llm_generate('warm up');
SELECT name, owner = current_user::regrole AS mine, path, architecture, quantization, context_length, state
FROM llm.models;

-- what the validator refuses
SELECT error_of($$SELECT llm_model_register('m', '/etc/passwd')$$);
SELECT error_of($$SELECT llm_model_register('m', '../m.gguf')$$);
SELECT error_of($$SELECT llm_model_register('m', 'a/../../m.gguf')$$);
SELECT error_of($$SELECT llm_model_register('m', '')$$);
SELECT error_of($$SELECT llm_model_register('m', NULL)$$);
SELECT error_of($$SELECT llm_model_register(NULL, 'm.gguf')$$);
SELECT error_of($$SELECT llm_model_register('m', 'm.gguf', '{"colour": "blue"}')$$);
SELECT error_of($$SELECT llm_model_register('m', 'm.gguf', '{"context_length": 15}')$$);
SELECT error_of($$SELECT llm_model_register('m', 'm.gguf', '{"context_length": "many"}')$$);
SELECT error_of($$SELECT llm_model_register('m', 'm.gguf', '{"context_length": [1]}')$$);
SELECT error_of($$SELECT llm_model_register('m', 'm.gguf', '{"kv_type": "q8"}')$$);
SELECT error_of($$SELECT llm_model_register('m', 'm.gguf', '{"draft_model": "d"}')$$);
SELECT error_of($$SELECT llm_model_register('m', 'm.gguf', '[]')$$);
SELECT error_of($$SELECT llm_model_register('m', 'm.gguf', '{"path": "other.gguf"}')$$);
SELECT error_of($$CREATE SERVER m FOREIGN DATA WRAPPER llm_infer$$);
SELECT error_of($$CREATE SERVER m FOREIGN DATA WRAPPER llm_infer OPTIONS (path 'm.gguf', colour 'blue')$$);
SELECT error_of($$CREATE USER MAPPING FOR CURRENT_USER SERVER echo OPTIONS (secret 'x')$$);
SELECT error_of($$ALTER SERVER echo OPTIONS (DROP path)$$);
SELECT error_of($$ALTER SERVER echo OPTIONS (ADD kv_type 'f64')$$);
SELECT name FROM llm.models ORDER BY 1;

-- a file that is not there fails at first use, with its name
SET client_min_messages = notice;
SELECT llm_model_register('absent', 'absent.gguf');
SET client_min_messages = warning;
SELECT error_of($$SELECT llm_generate('x', 'absent')$$);
SELECT error_of($$SELECT llm_model_load('absent')$$);
SELECT state FROM llm.models WHERE name = 'absent';

-- two models: the call, the setting or an error
SELECT error_of($$SELECT llm_generate('x')$$);
SET llm_infer.default_model = 'echo';
SELECT llm_generate('the default');
SELECT error_of($$SELECT llm_generate('x', model => 'absent')$$);
SET llm_infer.default_model = 'nobody';
SELECT error_of($$SELECT llm_generate('x')$$);
SELECT llm_generate('named', 'echo');
RESET llm_infer.default_model;
SELECT error_of($$SELECT llm_generate('x', 'Echo')$$);
SELECT llm_model_drop('absent');
SELECT llm_generate('the only one again');
BEGIN;
SELECT llm_model_register('other', 'echo:');
SELECT error_of($$SELECT llm_generate('x')$$);
ROLLBACK;
SELECT llm_generate('the only one after all');

-- options change the model: with its own context
SELECT llm_model_register('short', 'echo:', '{"context_length": 64}');
SELECT error_of(format($$SELECT llm_generate('%s', 'short')$$, repeat('x', 100)));
ALTER SERVER short OPTIONS (SET context_length '256');
SELECT length(llm_generate(repeat('x', 100), 'short'));
SELECT context_length FROM llm.models WHERE name = 'short';
BEGIN;
ALTER SERVER short OPTIONS (SET context_length '32');
SELECT error_of(format($$SELECT llm_generate('%s', 'short')$$, repeat('x', 100)));
ROLLBACK;
SELECT length(llm_generate(repeat('x', 100), 'short'));

-- a name is an identifier like any other; the engine does not know names
ALTER SERVER short RENAME TO "Odd ""name""";
SELECT llm_generate('renamed', 'Odd "name"');
SELECT error_of($$SELECT llm_generate('x', 'short')$$);
SELECT name, context_length FROM llm.models ORDER BY 1;
DROP SERVER "Odd ""name""";
SELECT error_of($$SELECT llm_model_register('echo', 'echo:')$$);
SELECT error_of($$SELECT llm_model_drop('nobody')$$);
CREATE FOREIGN DATA WRAPPER other;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER other;
SELECT error_of($$SELECT llm_generate('x', 'elsewhere')$$);
SELECT error_of($$SELECT llm_model_drop('elsewhere')$$);
DROP FOREIGN DATA WRAPPER other CASCADE;

-- load and unload
SELECT llm_model_load('echo');
SELECT state FROM llm.models;
SELECT llm_model_unload('echo');
SELECT state FROM llm.models;
SELECT llm_generate('comes back by itself');
SELECT state FROM llm.models;

-- a model in a transaction that rolls back
BEGIN;
SELECT llm_model_register('brief', 'echo:', '{"context_length": 512}');
SELECT llm_generate('inside', 'brief');
ROLLBACK;
SELECT error_of($$SELECT llm_generate('x', 'brief')$$);
DROP SERVER echo;
SELECT error_of($$SELECT llm_generate('x')$$);
SELECT count(*) FROM llm.models;
