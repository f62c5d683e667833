-- schemas.sql - the extension in any schema, on or off search_path, among objects that take the names of others
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

DROP EXTENSION llm_infer CASCADE;
CREATE TABLE words AS SELECT i, 'word ' || i AS word FROM generate_series(1, 3) i;

-- every function and view with the extension in a schema: which did not give what they should, and the plan nodes of a query over rows
CREATE FUNCTION tried_in(schema text, OUT wrong text[], OUT views int, OUT nodes int, OUT answers text[]) LANGUAGE plpgsql AS $$
DECLARE
	line text;
	f text;
BEGIN
	EXECUTE format('CREATE EXTENSION llm_infer SCHEMA %I', schema);
	EXECUTE format('SELECT %I.llm_model_register(''echo'', ''echo:'')', schema);
	views := 0;
	nodes := 0;
	FOREACH f IN ARRAY ARRAY['generate(''x'') = ''x''', 'generate(ARRAY[''x'', NULL]) = ARRAY[''x'', NULL]', 'generate_result(''x'') IS DISTINCT FROM NULL',
			'generate_stream(''x'') = ''x''', 'chat(''[{"role": "user", "content": "x"}]'') ->> ''content'' = ''x''', 'tokenize(''x'') = ''{120}''',
			'detokenize(''{120}'') = ''x''', 'count_tokens(''x'') = 1', 'pin_prefix(''x'') > 0', 'unpin_prefix(''x'')::text = ''''',
			'model_load(''echo'')::text = ''''', 'model_unload(''echo'')::text = ''''', 'model_register(''m'', ''echo:'')::text = ''''',
			'model_drop(''m'')::text = '''''] LOOP
		EXECUTE format('SELECT %I.llm_', schema) || f INTO line;
		wrong := CASE WHEN line::boolean THEN wrong ELSE wrong || f END;
	END LOOP;
	FOREACH f IN ARRAY ARRAY['models', 'stat_engine', 'stat_models', 'stat_activity', 'stat_users', 'prefix_cache', 'quotas'] LOOP
		EXECUTE format('SELECT count(*) >= 0 FROM llm.%I', f) INTO line;
		views := views + line::boolean::int;
	END LOOP;
	FOR line IN EXECUTE format('EXPLAIN SELECT %I.llm_generate(word) FROM public.words WHERE %1$I.llm_count_tokens(word) > 1', schema) LOOP
		nodes := nodes + (line LIKE '%LLM Batch%')::int;
	END LOOP;
	EXECUTE format('SELECT array_agg(%I.llm_generate(word) ORDER BY i) FROM public.words', schema) INTO answers;
	DROP EXTENSION llm_infer CASCADE;
END $$;
CREATE TABLE odd (name text);
INSERT INTO odd VALUES ('public'), ('Odd schema'), ('double"quote'), ('it''s'), ('$1 \ $$'), ('été 日本語'), ('select'), (repeat('x', 63)),
	('@extschema@'), ('a.b, c');
SELECT format('CREATE SCHEMA IF NOT EXISTS %I', name) FROM odd \gexec
SET client_min_messages = error;
SELECT name, t.* FROM odd, tried_in(name) t;
SET search_path = '';
SELECT name, t.* FROM public.odd, public.tried_in(name) t WHERE name IN ('public', 'it''s');
RESET search_path;

-- a schema full of traps: where the extension goes, and first in the path of who installs and who calls
CREATE SCHEMA evil;
CREATE FUNCTION evil.boom() RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'hijacked'; END$$;
CREATE TYPE evil.result AS (text int);
CREATE TYPE evil.text AS (x int);
CREATE TYPE evil.regrole AS (x int);
CREATE TYPE evil.jsonb AS ENUM ('x');
CREATE TABLE evil.quotas (role oid);
CREATE TABLE evil.pg_roles (oid oid);
CREATE TABLE evil.pg_foreign_server (srvname name);
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT evil.boom()::timestamptz$$;
CREATE FUNCTION evil.to_regnamespace(text) RETURNS regnamespace LANGUAGE sql AS $$SELECT evil.boom()::regnamespace$$;
CREATE FUNCTION evil.pg_extension_config_dump(regclass, text) RETURNS void LANGUAGE sql AS $$SELECT evil.boom()$$;
CREATE FUNCTION evil.pg_options_to_table(text[], OUT option_name text, OUT option_value text) RETURNS SETOF record
	LANGUAGE sql AS $$SELECT evil.boom(), ''$$;
DO $$
DECLARE
	o text;
	t text;
BEGIN
	FOREACH t IN ARRAY ARRAY['text', 'name', 'oid', 'int8', 'int4', 'bool', 'timestamptz', 'interval', 'regrole'] LOOP
		EXECUTE format('CREATE FUNCTION evil.trap(pg_catalog.%s, pg_catalog.%1$s) RETURNS bool LANGUAGE sql AS %L', t, 'SELECT evil.boom() IS NULL');
		FOREACH o IN ARRAY ARRAY['=', '>', '<=', '+', '||', '<>'] LOOP
			EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%2$s, FUNCTION = evil.trap)', o, t);
		END LOOP;
	END LOOP;
END $$;
CREATE FUNCTION trapped() RETURNS text LANGUAGE sql SET search_path = evil, pg_catalog AS $$SELECT 'x' || 'y'$$;
SELECT error_of('SELECT trapped()') AS the_traps_work;
SELECT * FROM tried_in('evil');
SET search_path = evil, pg_catalog;
CREATE EXTENSION llm_infer SCHEMA evil;
SELECT llm_model_register('echo', 'echo:');
INSERT INTO llm.quotas VALUES ('-', 1000000000000, '1 day', 10);
SELECT llm_generate('safe'), (llm_generate_result('safe')).finish_reason;
SELECT count(*) OPERATOR(pg_catalog.>) 0 FROM llm.models UNION ALL SELECT count(*) OPERATOR(pg_catalog.>) 0 FROM llm.stat_engine UNION ALL SELECT count(*) OPERATOR(pg_catalog.>) 0 FROM llm.stat_models
	UNION ALL SELECT count(*) OPERATOR(pg_catalog.>) 0 FROM llm.stat_activity UNION ALL SELECT count(*) OPERATOR(pg_catalog.>) 0 FROM llm.prefix_cache WHERE blocks IS NULL;
SELECT role, max_in_flight, tokens_per_period, period_tokens OPERATOR(pg_catalog.>) 0 AS counted FROM llm.stat_users WHERE role OPERATOR(pg_catalog.=) 'postgres'::pg_catalog.regrole;
DROP EXTENSION llm_infer CASCADE;

-- a function of the same name and arguments, earlier in the path: SQL's rules, and ours is still ours
RESET search_path;
CREATE EXTENSION llm_infer;
SELECT llm_model_register('echo', 'echo:');
CREATE VIEW asked AS SELECT i, llm_generate(word) AS answer FROM words;
CREATE FUNCTION evil.llm_generate(text, text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$SELECT 'evil ' OPERATOR(pg_catalog.||) $1$$;
SET search_path = evil, public;
SELECT llm_generate(word), public.llm_generate(word) FROM public.words WHERE i OPERATOR(pg_catalog.=) 1;
SELECT answer FROM asked ORDER BY i;
EXPLAIN (COSTS OFF) SELECT llm_generate(word) FROM words;
RESET search_path;
DROP SCHEMA evil CASCADE;
SELECT format('DROP SCHEMA IF EXISTS %I CASCADE', name) FROM odd WHERE name <> 'public' \gexec
DROP VIEW asked;
DROP TABLE words, odd;
DROP FUNCTION tried_in, trapped;
