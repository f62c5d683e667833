-- documented.sql - docs/reference.md and the catalogue tell the same: functions, settings and views, none forgotten or made up.
-- Each query gives what only one of them has.
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare
CREATE TEMP TABLE doc AS SELECT file, pg_read_file(:'srcdir' || '/' || file) AS body FROM unnest(ARRAY['docs/reference.md', 'docs/calls.md', 'docs/enrichment.md', 'README.md']) file;
CREATE TEMP VIEW reference AS SELECT body FROM doc WHERE file = 'docs/reference.md';
CREATE TEMP VIEW line AS SELECT line FROM reference, regexp_split_to_table(body, '\n') line;

-- functions: name, arguments and result; "..." in the text stands for anything
CREATE TEMP VIEW function AS SELECT proname, prokind, format('%s(%s) → %s%s', proname,
		regexp_replace(pg_get_function_arguments(p.oid), ' DEFAULT NULL::[a-z ]+(\[\])?|::jsonb', '', 'g'),
		CASE WHEN proretset THEN 'setof ' END, prorettype::regtype) AS signature
	FROM pg_proc p JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e'
	JOIN pg_extension e ON refclassid = 'pg_extension'::regclass AND refobjid = e.oid AND extname = 'llm_infer' WHERE pronamespace <> 'llm'::regnamespace;
CREATE TEMP VIEW documented AS SELECT s[1] AS text, regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
		s[1], '\s+', ' ', 'g'), '\mint\M', 'integer', 'g'), '\mfloat8\M', 'double precision', 'g'), ' DEFAULT NULL', ''), '_', '\\_', 'g'), '\.\.\.[^)]*', '%') AS pattern
	FROM reference, regexp_matches(body, '\m(llm_\w+\([^()]*\) → (?:setof )?[\w.]+(?:\[\])?)', 'g') s;
SELECT signature FROM function WHERE prokind = 'f' AND NOT EXISTS (SELECT FROM documented WHERE signature LIKE pattern);
SELECT signature AS procedure FROM function, reference WHERE prokind = 'p' AND body !~ ('CALL ' || proname || '\(');
SELECT text FROM documented WHERE NOT EXISTS (SELECT FROM function WHERE signature LIKE pattern);
SELECT file, s[1] AS called FROM doc, regexp_matches(body, '\m(llm_\w+)\(', 'g') s EXCEPT SELECT file, proname FROM doc, function;

-- settings: default and level
CREATE TEMP VIEW setting AS SELECT name, CASE WHEN unit IN ('s', 'ms') AND boot_val > '0' THEN date_part('epoch', (boot_val || unit)::interval)::text ELSE boot_val END AS value,
		CASE context WHEN 'postmaster' THEN 'start' WHEN 'sighup' THEN 'reload' ELSE context END AS level
	FROM pg_settings WHERE name LIKE 'llm\_infer.%';
CREATE TEMP VIEW setting_row AS SELECT c[1] AS name,
		CASE WHEN c[2] ~ ' (s|d)$' THEN date_part('epoch', c[2]::interval)::text WHEN c[2] <> 'beside the library' THEN btrim(c[2], '`''') ELSE '' END AS value, c[3] AS level
	FROM line, regexp_match(line, '^\| `(llm_infer\.\w+)` \| ([^|]*) \| ([^|]*) \|') c WHERE c IS NOT NULL;
SELECT 'catalogue' AS only_in, d.* FROM (TABLE setting EXCEPT TABLE setting_row) d UNION ALL SELECT 'reference', d.* FROM (TABLE setting_row EXCEPT TABLE setting) d;
SELECT file, s[1] AS named FROM doc, regexp_matches(body, '\m(llm_infer\.\w+)', 'g') s EXCEPT SELECT file, name FROM doc, setting;

-- views, and their columns in the view's row; those of tables and types anywhere
CREATE TEMP VIEW view_row AS SELECT c[1] AS name, c[2] AS columns FROM line, regexp_match(line, '^\| `llm\.(\w+)` \| (.*) \|$') c WHERE c IS NOT NULL;
CREATE TEMP VIEW relation AS SELECT * FROM pg_class WHERE relnamespace = 'llm'::regnamespace AND relkind IN ('v', 'r', 'c');
SELECT relname, attname FROM relation r CROSS JOIN reference JOIN pg_attribute a ON attrelid = r.oid AND attnum > 0 AND NOT attisdropped LEFT JOIN view_row ON name = relname
	WHERE relname NOT IN ('job_queue', 'enrich_failures', 'enrich_queue', 'enrichment_defs', 'memo_entries', 'memo_sizes') AND CASE relkind WHEN 'v' THEN coalesce(columns, '') ELSE body END !~ ('\m' || attname || '\M');
SELECT file, s[1] AS named FROM doc, regexp_matches(body, '\mllm\.(\w+)', 'g') s EXCEPT SELECT file, relname FROM doc, relation;

-- each of the queries above had something to compare
SELECT (SELECT count(*) > 15 FROM function) AS functions, (SELECT count(*) > 20 FROM setting) AS settings, (SELECT count(*) > 5 FROM relation WHERE relkind = 'v') AS views;
