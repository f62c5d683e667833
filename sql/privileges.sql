-- privileges.sql - who may do what, and what a hostile search_path can do
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE ROLE regress_llm_user;
CREATE ROLE regress_llm_owner;
CREATE ROLE regress_llm_monitor IN ROLE pg_monitor;

-- everyone may execute; a model needs USAGE
SET ROLE regress_llm_user;
SELECT error_of($$SELECT llm_generate('x')$$);
SELECT error_of($$SELECT llm_generate(ARRAY['x'])$$);
SELECT error_of($$SELECT llm_generate_result('x')$$);
SELECT error_of($$SELECT llm_generate_stream('x')$$);
SELECT error_of($$SELECT llm_chat('[{"role": "user", "content": "x"}]')$$);
SELECT error_of($$SELECT llm_pin_prefix('x')$$), error_of($$SELECT llm_unpin_prefix('x')$$);
SELECT error_of($$SELECT llm_tokenize('x')$$);
SELECT error_of($$SELECT llm_detokenize(ARRAY[97])$$);
SELECT error_of($$SELECT llm_count_tokens('x')$$);
SELECT llm_generate(NULL::text) IS NULL AS no_request;
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_user;
SET ROLE regress_llm_user;
SELECT llm_generate('granted'), llm_count_tokens('granted');
-- registering needs USAGE on the wrapper, loading and dropping the ownership, restarting a grant
SELECT error_of($$SELECT llm_model_register('mine', 'echo:')$$);
SELECT error_of($$SELECT llm_model_load('echo')$$);
SELECT error_of($$SELECT llm_model_unload('echo')$$);
SELECT error_of($$SELECT llm_model_drop('echo')$$);
SELECT error_of($$ALTER SERVER echo OPTIONS (SET path 'other.gguf')$$);
SELECT error_of($$SELECT llm_engine_restart()$$);
SELECT error_of($$SET llm_infer.model_dir = '/etc'$$);
SELECT left(error_of($$SHOW llm_infer.model_dir$$), 5) AS sqlstate;
RESET ROLE;
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_llm_user;
SET ROLE regress_llm_user;
SELECT error_of($$SELECT llm_generate('x')$$);
RESET ROLE;

-- an owner of models who is not a superuser
GRANT USAGE ON FOREIGN DATA WRAPPER llm_infer TO regress_llm_owner;
SET ROLE regress_llm_owner;
SELECT llm_model_register('mine', 'echo:', '{"context_length": 200}');
SELECT llm_model_load('mine');
SELECT llm_generate('my own', 'mine');
SELECT llm_model_unload('mine');
SELECT error_of($$SELECT llm_generate('x', 'echo')$$);
SELECT name, owner FROM llm.models WHERE name = 'mine';
-- the file lies below the model directory, whoever asks
SELECT error_of($$ALTER SERVER mine OPTIONS (SET path '/etc/passwd')$$);
SELECT error_of($$ALTER SERVER mine OPTIONS (SET path 'a/../../etc/passwd')$$);
RESET ROLE;
REASSIGN OWNED BY regress_llm_owner TO CURRENT_USER;
SELECT owner = current_user::regrole AS reassigned FROM llm.models WHERE name = 'mine';
SELECT llm_model_drop('mine');

-- the current user counts: SECURITY DEFINER and SET ROLE
CREATE FUNCTION lend(text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
	AS $$SELECT llm_generate($1)$$;
SET ROLE regress_llm_user;
SELECT lend('lent'), error_of($$SELECT llm_generate('not lent')$$);
RESET ROLE;
DROP FUNCTION lend(text);

-- the right to execute counts in batches too, and so does what ALTER FUNCTION says
CREATE TABLE words AS SELECT 'word ' || i AS word FROM generate_series(1, 2) i;
GRANT SELECT ON words TO regress_llm_user;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_user;
REVOKE EXECUTE ON FUNCTION llm_count_tokens FROM PUBLIC;
SET ROLE regress_llm_user;
SELECT error_of($$SELECT llm_count_tokens('x')$$);
SELECT error_of($$SELECT llm_count_tokens(word) FROM words$$);
SELECT error_of($$SELECT word FROM words WHERE llm_count_tokens(word) > 1$$);
RESET ROLE;
GRANT EXECUTE ON FUNCTION llm_count_tokens TO PUBLIC;
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_llm_user;
ALTER FUNCTION llm_count_tokens SECURITY DEFINER;
ALTER FUNCTION llm_tokenize SET llm_infer.default_model = 'nowhere';
ALTER FUNCTION llm_detokenize STRICT;
SET ROLE regress_llm_user;
SELECT llm_count_tokens(word) FROM words;
RESET ROLE;
SELECT error_of($$SELECT llm_tokenize(word) FROM words$$);
SELECT llm_detokenize(ARRAY[ascii(word)]) FROM words;
ALTER FUNCTION llm_count_tokens SECURITY INVOKER;
ALTER FUNCTION llm_tokenize RESET ALL;
ALTER FUNCTION llm_detokenize CALLED ON NULL INPUT;
DROP TABLE words;

-- counters of the engine are for monitors; own backends for everyone
SET ROLE regress_llm_user;
SELECT state, device, requests IS NULL AS hidden, prompt_tokens IS NULL AS hidden_too FROM llm.stat_engine;
SELECT count(*) FROM llm.stat_activity WHERE usename <> 'regress_llm_user';
SET ROLE regress_llm_monitor;
SELECT requests > 0 AS shown, prompt_tokens > 0 AS shown_too FROM llm.stat_engine;
RESET ROLE;

-- rights as the install script leaves them
SELECT p.proname AS not_for_public FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'llm_infer'
WHERE NOT has_function_privilege('regress_llm_user', p.oid, 'EXECUTE');
SELECT count(*) FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'llm_infer' WHERE p.prosecdef;

-- hostile objects in front of ours
CREATE SCHEMA evil;
CREATE FUNCTION evil.boom() RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'hijacked'; END$$;
CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE sql AS $$SELECT evil.boom() IS NULL$$;
CREATE FUNCTION evil.eq(name, text) RETURNS boolean LANGUAGE sql AS $$SELECT evil.boom() IS NULL$$;
CREATE FUNCTION evil.eq(oid, oid) RETURNS boolean LANGUAGE sql AS $$SELECT evil.boom() IS NULL$$;
CREATE FUNCTION evil.format(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS $$SELECT evil.boom()$$;
CREATE FUNCTION evil.pg_options_to_table(text[], OUT option_name text, OUT option_value text) RETURNS SETOF record
	LANGUAGE sql AS $$SELECT evil.boom(), ''$$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = text, FUNCTION = evil.eq);
CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.eq);
CREATE FUNCTION evil.cat(text, text) RETURNS text LANGUAGE sql AS $$SELECT evil.boom()$$;
CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.cat);
CREATE TYPE evil.jsonb AS (x int);
CREATE TYPE evil.result AS (text int);
CREATE TABLE evil.pg_foreign_server (srvname name);
CREATE TABLE evil.models (name text);
SET search_path = evil, pg_catalog, public;
SELECT public.llm_model_register('hostile', 'echo:', '{"context_length": 100}'::pg_catalog.jsonb);
SELECT public.llm_generate('safe', 'hostile'), (public.llm_generate_result('safe', 'hostile')).finish_reason;
SELECT count(*) FROM llm.models;
SELECT state FROM llm.stat_engine;
SELECT count(*) >= 0 AS fine FROM llm.stat_activity;
SELECT public.llm_model_drop('hostile');
-- a function of our name is not ours: it is neither batched nor called
CREATE FUNCTION evil.llm_generate(text) RETURNS text LANGUAGE sql AS $$SELECT 'evil'::pg_catalog.text$$;
EXPLAIN (COSTS OFF, VERBOSE) SELECT evil.llm_generate(x::text), public.llm_generate(x::text) FROM generate_series(1, 2) x;
SELECT evil.llm_generate(x::text), public.llm_generate(x::text) FROM generate_series(1, 2) x;
-- the extension in a schema of another name
RESET search_path;
DROP EXTENSION llm_infer CASCADE;
SET search_path = evil, pg_catalog;
CREATE SCHEMA "Odd schema";
CREATE EXTENSION llm_infer SCHEMA "Odd schema";
SELECT "Odd schema".llm_model_register('echo', 'echo:');
SELECT "Odd schema".llm_generate('from afar');
EXPLAIN (COSTS OFF) SELECT "Odd schema".llm_generate(x::text) FROM generate_series(1, 2) x;
SELECT name FROM llm.models;
RESET search_path;
SET client_min_messages = warning;
DROP EXTENSION llm_infer CASCADE;
DROP SCHEMA evil, "Odd schema" CASCADE;
-- a schema llm of somebody else
CREATE SCHEMA llm;
\set VERBOSITY terse
CREATE EXTENSION llm_infer;
\set VERBOSITY default
DROP SCHEMA llm;
CREATE EXTENSION llm_infer;
SELECT llm_model_register('echo', 'echo:');
SELECT llm_generate('installed again');
DROP ROLE regress_llm_user, regress_llm_owner, regress_llm_monitor;
