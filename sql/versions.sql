-- versions.sql - a catalogue that the library was not built for: refused by name, never believed
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

-- What a statement says after others that are undone with it.
CREATE FUNCTION said_after(changes text, statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE changes;
	EXECUTE statement;
	RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || regexp_replace(SQLERRM, 'aged\(.*\)', 'aged');
END $$;
CREATE TEMP VIEW functions AS SELECT p.*, p.prosrc AS symbol, ARRAY(SELECT format('OUT c%s %s', i, format_type(t, NULL))
		FROM unnest(p.proallargtypes) WITH ORDINALITY AS a(t, i)) AS columns
	FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'llm_infer' JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'c';
CREATE FUNCTION declared(symbol text, rest text) RETURNS text LANGUAGE sql
	AS $$SELECT format('CREATE FUNCTION aged(%s LANGUAGE C AS %L, %L', $2, '$libdir/llm_infer', $1)$$;

-- every C function with other arguments, another result, as a set, and with other columns
SELECT said_after(declared(symbol, ') RETURNS bytea'), 'SELECT aged()') AS no_arguments, count(*) FROM functions GROUP BY 1;
SELECT said_after(declared(symbol, 'a int, b int, c int, d int) RETURNS bytea'), 'SELECT aged(1, 2, 3, 4)') AS four, count(*)
	FROM functions GROUP BY 1;
SELECT said_after(declared(symbol, ') RETURNS SETOF bytea'), 'SELECT aged()') AS a_set, count(*) FROM functions GROUP BY 1;
SELECT said_after(declared(symbol, format('%s) RETURNS bytea', args)), format('SELECT aged(%s)', nulls)) AS result, count(*)
	FROM functions, pg_get_function_identity_arguments(oid) AS args,
		LATERAL (SELECT string_agg('NULL::' || format_type(t, NULL), ', ') AS nulls FROM unnest(proargtypes) t) n
	WHERE proallargtypes IS NULL AND 'internal'::regtype <> ALL (proargtypes) GROUP BY 1;
SELECT said_after(declared(symbol, format('%s) RETURNS SETOF record', array_to_string(columns[2:], ', '))), 'SELECT aged()') AS fewer, count(*)
	FROM functions WHERE columns <> '{}' GROUP BY 1;
SELECT said_after(declared(symbol, format('%s, OUT z int) RETURNS SETOF record', array_to_string(columns, ', '))), 'SELECT aged()') AS more, count(*)
	FROM functions WHERE columns <> '{}' GROUP BY 1;
SELECT said_after(declared(symbol, format('OUT c1 bytea, %s) RETURNS SETOF record', array_to_string(columns[2:], ', '))), 'SELECT aged()') AS changed, count(*)
	FROM functions WHERE columns <> '{}' GROUP BY 1;

-- a plan does not take such a function for ours, nor does its cost
SELECT said_after(declared('llm_count_tokens', 'a text) RETURNS int') || '; ALTER EXTENSION llm_infer ADD FUNCTION aged;
	ALTER FUNCTION aged SUPPORT llm.call_support', $$SELECT aged('row ' || i) FROM generate_series(1, 3) i WHERE aged('x' || i) > 0$$);
SELECT said_after(declared('llm_generate_text', 'a int, b int, c int, d int, e int, f int, g int, h int, i int, j int) RETURNS text') ||
	'; ALTER EXTENSION llm_infer ADD FUNCTION aged; ALTER FUNCTION aged SUPPORT llm.call_support',
	$$SELECT aged(1, 2, 3, 4, 5, 6, 7, 8, 9, i) FROM generate_series(1, 3) i$$);
-- one that is declared as it should be is no worse for another name
SELECT said_after(declared('llm_count_tokens', 'a text, b text) RETURNS int'), $$SELECT aged('x', NULL)$$);

-- the type and the tables
CREATE TABLE said (key int PRIMARY KEY, of text);
INSERT INTO said VALUES (1);
SELECT said_after('ALTER TYPE llm.result ADD ATTRIBUTE z int', $$SELECT llm_generate_result('x')$$) AS more,
	said_after('ALTER TYPE llm.result DROP ATTRIBUTE error', $$SELECT llm_generate_result('x')$$) AS fewer,
	said_after('ALTER TYPE llm.result ALTER ATTRIBUTE prompt_tokens TYPE text', $$SELECT llm_generate_result('x')$$) AS changed;
SELECT said_after('ALTER TYPE llm.result ADD ATTRIBUTE z int', $$SELECT llm_generate_result('x' || i) FROM generate_series(1, 3) i$$) AS rows;
SELECT said_after('ALTER TABLE llm.quotas ADD COLUMN z int', $$SELECT llm_generate('x')$$) AS more,
	said_after('ALTER EXTENSION llm_infer DROP VIEW llm.stat_users; DROP VIEW llm.stat_users; ' ||
		'ALTER TABLE llm.quotas DROP COLUMN max_in_flight', $$SELECT llm_generate('x')$$) AS fewer;
SELECT said_after('ALTER EXTENSION llm_infer DROP TABLE llm.quotas; ALTER TABLE llm.quotas RENAME TO old; ' ||
		'CREATE VIEW llm.quotas AS SELECT * FROM llm.old', $$SELECT llm_generate('x')$$) AS view,
	said_after('ALTER TABLE llm.quotas RENAME TO old; CREATE TYPE llm.quotas AS (role int)', $$SELECT llm_generate('x')$$) AS type;
SELECT said_after(change, statement), count(*) FROM unnest(ARRAY['ALTER TABLE llm.job_queue ADD COLUMN z int', 'ALTER TABLE llm.job_queue RENAME due TO z',
		'ALTER TABLE llm.job_queue ALTER max_tokens TYPE bigint', 'ALTER TABLE llm.job_queue DROP COLUMN seed']) change,
	unnest(ARRAY[$$SELECT llm_job_submit('x')$$, $$SELECT llm_job_submit(ARRAY['x'])$$, 'SELECT llm_job_status(1)', 'SELECT llm_job_result(1)', 'SELECT llm_job_cancel(1)', 'SELECT llm_job_wait(1)']) statement
	GROUP BY 1;
SELECT said_after('ALTER TABLE llm.' || name || ' ADD COLUMN z int', $$SELECT llm_job_submit('x')$$) FROM unnest(ARRAY['enrich_failures', 'enrichment_defs', 'enrich_queue']) name;
ALTER TABLE llm.enrich_failures ADD COLUMN z int;
CALL llm_enrich('said', 'of', prompt => '{key}');
ALTER TABLE llm.enrich_failures DROP COLUMN z;
CALL llm_enrich('said', 'of', prompt => '{key}');
TABLE said;
SELECT said_after('ALTER INDEX llm.job_queue_open RENAME TO old; INSERT INTO llm.quotas VALUES (''-'', NULL, NULL, NULL, 10)', $$SELECT llm_job_submit('x')$$) AS index;
-- without it, as before it came, nothing is limited
SELECT said_after('ALTER TABLE llm.quotas RENAME TO old', $$SELECT llm_generate('x')$$) AS none;
SELECT said_after('ALTER SCHEMA llm RENAME TO other', $$SELECT llm_generate_result('x')$$) AS renamed;
BEGIN;
ALTER TABLE llm.quotas ADD COLUMN z int;
SELECT llm_generate('x');
ROLLBACK;
SELECT llm_generate('as before');
DROP TABLE said;
DROP FUNCTION said_after, declared;
