-- settings.sql - the settings llm_infer.*: defaults, levels, bounds
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

SELECT name, setting, unit, context, vartype, min_val, max_val, enumvals FROM pg_settings
WHERE name LIKE 'llm\_infer.%' AND name NOT IN ('llm_infer.engine_path', 'llm_infer.model_dir') ORDER BY name;
SELECT name FROM pg_settings WHERE name LIKE 'llm\_infer.%' AND (short_desc IS NULL OR short_desc !~ '\.$');

-- levels
SET llm_infer.devices = 'cpu';
SET llm_infer.threads = 2;
SET llm_infer.model_dir = '/';
-- bounds
SET llm_infer.temperature = -0.5;
SET llm_infer.temperature = 101;
SET llm_infer.max_tokens = -2;
SET llm_infer.max_lookahead_rows = 0;
SET llm_infer.max_lookahead_rows = 65537;
SELECT left(error_of('SET llm_infer.timeout = -1'), 5) AS sqlstate;
SET llm_infer.on_error = 'ignore';
-- the prefix is ours
SET llm_infer.colour = 'blue';
SELECT set_config('llm_infer.colour', 'blue', false);

-- what they do
SET llm_infer.timeout = '2s';
SHOW llm_infer.timeout;
RESET llm_infer.timeout;
SET llm_infer.max_tokens = -1;
SELECT length(llm_generate('@tokens=3000 x'));
SET llm_infer.max_tokens = 3;
SELECT llm_generate('abcdef'), llm_generate('abcdef', max_tokens => 4);
BEGIN;
SET LOCAL llm_infer.max_tokens = 1;
SELECT llm_generate('abcdef');
COMMIT;
SELECT llm_generate('abcdef');
RESET llm_infer.max_tokens;
SET llm_infer.temperature = 0;
SELECT llm_generate('greedy');
RESET llm_infer.temperature;

-- for a role, a database, a function
CREATE FUNCTION brief(text) RETURNS text LANGUAGE sql SET llm_infer.max_tokens = 2 AS $$SELECT llm_generate($1)$$;
SELECT brief('abcdef'), llm_generate('abcdef');
DROP FUNCTION brief(text);
CREATE ROLE regress_llm_settings LOGIN;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_settings;
SELECT current_user AS me, current_database() AS here
\gset
ALTER DATABASE :"here" SET llm_infer.max_tokens = 2;
ALTER DATABASE :"here" SET llm_infer.temperature = 0;
ALTER ROLE regress_llm_settings SET llm_infer.max_tokens = 4;
ALTER ROLE regress_llm_settings SET llm_infer.max_priority = 9;
ALTER ROLE regress_llm_settings SET llm_infer.max_tokens = -9;
ALTER ROLE regress_llm_settings SET llm_infer.max_batch_tokens = 9;
ALTER ROLE regress_llm_settings SET llm_infer.colour = 'blue';
\c - regress_llm_settings
SET client_min_messages = warning;
SELECT llm_generate('abcdef', options => '{"priority": 9}');
SELECT name, setting, source FROM pg_settings WHERE name ~ '^llm_infer' AND source IN ('database', 'user') ORDER BY name;
ALTER ROLE CURRENT_USER SET llm_infer.max_priority = 99;
ALTER ROLE CURRENT_USER SET llm_infer.max_tokens = 5;
ALTER ROLE CURRENT_USER RESET llm_infer.max_priority;
\c - :me
SET client_min_messages = warning;
SELECT llm_generate('abcdef');
SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'regress_llm_settings'::regrole;
ALTER DATABASE :"here" RESET ALL;
DROP OWNED BY regress_llm_settings;
DROP ROLE regress_llm_settings;
\c
SET client_min_messages = warning;
-- the batch node is a setting away
CREATE TEMP TABLE t AS SELECT id, 'b' || id AS body FROM generate_series(1, 10) id;
EXPLAIN (COSTS OFF) SELECT llm_generate(body) FROM t;
SET llm_infer.enable_batch = off;
EXPLAIN (COSTS OFF) SELECT llm_generate(body) FROM t;
SELECT string_agg(g, ',') FROM (SELECT llm_generate(body) g FROM t OFFSET 0) s;
RESET llm_infer.enable_batch;
SET llm_infer.max_lookahead_rows = 1;
SELECT string_agg(g, ',') FROM (SELECT llm_generate(body) g FROM t OFFSET 0) s;
SELECT explain_of('SELECT llm_generate(body) FROM t WHERE llm_generate(body) = ''b3'' LIMIT 1');
RESET llm_infer.max_lookahead_rows;
DISCARD ALL;
SELECT llm_generate('after discard');
