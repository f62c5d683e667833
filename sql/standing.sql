-- standing.sql - standing enrichments from the user's side: who may create them, what is queued, what follows the table
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare
SET client_min_messages = notice;

-- No worker in this test: what is queued stays. Keys since the last look, with the enrichment's name; ? = only while the target is NULL.
SELECT llm_enrich_pause(name) FROM llm.enrichments;
CREATE FUNCTION queued() RETURNS TABLE (name name, keys text) LANGUAGE sql AS $$
	WITH taken AS (DELETE FROM llm.enrich_queue RETURNING enrichment, key, id, only_null, hash = jsonb_hash_extended(key, 0) AND due <= clock_timestamp() AS fine)
	SELECT d.name, string_agg(t.key::text || CASE WHEN only_null THEN '?' ELSE '' END || CASE WHEN fine THEN '' ELSE ' wrong' END, ' ' ORDER BY t.key, t.id)
	FROM taken t LEFT JOIN llm.enrichment_defs d ON d.id = t.enrichment GROUP BY 1 ORDER BY 1
$$;
CREATE FUNCTION paused(name name, relation regclass, target name, prompt text DEFAULT NULL, expr text DEFAULT NULL, filter text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
	SELECT llm_enrich_create($1, $2, $3, $4, $5, $6, backfill => false);
	SELECT llm_enrich_pause($1);
$$;

CREATE ROLE regress_llm_standing;
CREATE ROLE regress_llm_other;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_standing, regress_llm_other;
CREATE SCHEMA "Other place";

-- what is queued: new rows without a value, changed sources, a value made NULL; nothing else
CREATE TABLE docs (id int PRIMARY KEY, body text, lang text, n int DEFAULT 0, summary text, "Head" text);
SELECT llm_enrich_create('docs_summary', 'docs', 'summary', prompt => 'In {lang}: {body}', filter => $$body <> ''$$, max_tokens => 5, options => '{"max_attempts": 2}'), llm_enrich_pause('docs_summary');
SELECT name, owner = current_user::regrole AS own, relation, target, state, reason, pending, failed, created <= now() AS dated, prompt, expr, filter, batch_size, concurrency, model, max_tokens, options FROM llm.enrichments;
SELECT sources, backfill, search_path FROM llm.enrichment_defs;
SELECT pg_get_triggerdef(oid), deptype FROM pg_trigger JOIN pg_depend ON objid = oid AND classid = 'pg_trigger'::regclass AND refclassid = 'pg_extension'::regclass WHERE tgrelid = 'docs'::regclass ORDER BY 1;
INSERT INTO docs VALUES (1, 'one', 'en', 0, NULL), (2, 'two', 'en', 0, NULL), (3, 'three', 'de', 0, 'kept');
INSERT INTO docs (id) SELECT 4 WHERE false;
INSERT INTO docs (id) VALUES (4);
SELECT * FROM queued();
UPDATE docs SET n = n + 1, "Head" = 'x';
UPDATE docs SET body = body, lang = lang;
UPDATE docs SET summary = 'done';
UPDATE docs SET body = 'none' WHERE false;
DELETE FROM docs WHERE id = 4;
SELECT * FROM queued();
UPDATE docs SET body = body || CASE id WHEN 2 THEN '!' ELSE '' END;
SELECT * FROM queued();
UPDATE docs SET lang = NULL WHERE id = 1;
UPDATE docs SET summary = NULL WHERE id = 3;
UPDATE docs SET summary = NULL, lang = 'fr' WHERE id = 3;
UPDATE docs SET id = 20 WHERE id = 2;
SELECT * FROM queued();
COPY docs (id, body, lang) FROM STDIN;
5	five	en
6	six	en
\.
INSERT INTO docs (id, body) VALUES (5, 'cinq'), (7, 'sept') ON CONFLICT (id) DO UPDATE SET body = excluded.body;
INSERT INTO docs (id, body) VALUES (5, 'cinq') ON CONFLICT (id) DO UPDATE SET body = excluded.body;
INSERT INTO docs (id, body) VALUES (6, 'new') ON CONFLICT DO NOTHING;
SELECT * FROM queued();
MERGE INTO docs USING (VALUES (5, 'five'), (6, 'six'), (8, 'eight'), (7, NULL)) AS v (id, body) ON docs.id = v.id
	WHEN MATCHED AND v.body IS NULL THEN DELETE
	WHEN MATCHED THEN UPDATE SET body = v.body
	WHEN NOT MATCHED THEN INSERT (id, body) VALUES (v.id, v.body);
SELECT * FROM queued();
BEGIN;
UPDATE docs SET body = '';
ROLLBACK;
TRUNCATE docs;
SELECT * FROM queued();
-- a row trigger may change what the statement does not name
CREATE FUNCTION restamp() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.lang := NEW.n; RETURN NEW; END$$;
CREATE TRIGGER restamp BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION restamp();
INSERT INTO docs VALUES (1, 'one', 'en', 0, 'v'), (2, 'two', '0', 0, 'v');
UPDATE docs SET n = n;
SELECT * FROM queued();
DROP TRIGGER restamp ON docs;

-- what an enrichment reads: by expression, in sub-selects too; a whole row is all but the target
CREATE TABLE read (id int PRIMARY KEY, a text, b text, c text, g text GENERATED ALWAYS AS (a || b) STORED, t1 text, t2 text, t3 text, t4 text);
CREATE FUNCTION of_row(read) RETURNS text LANGUAGE sql AS 'SELECT $1.a';
SELECT paused('r1', 'read', 't1', expr => $$upper(a) || read.id || coalesce(t1, '')$$, filter => 'c IS NOT NULL');
SELECT paused('r2', 'read', 't2', expr => 'of_row(read)');
SELECT paused('r3', 'read', 't3', expr => $$(WITH x AS (SELECT read.a || (SELECT c FROM docs WHERE docs.id = read.id AND lang = docs.body)) SELECT * FROM x)$$);
SELECT paused('r4', 'read', 't4', prompt => '{g}');
SELECT paused('r5', 'read', 'a', expr => '''nothing''');
SELECT name, sources FROM llm.enrichment_defs WHERE relation = 'read'::regclass ORDER BY name;
INSERT INTO read VALUES (1, 'a', 'b', 'c', DEFAULT, 't', 't', 't', 't');
UPDATE read SET b = 'other';
SELECT * FROM queued();
UPDATE read SET t1 = 't', t2 = 'u';
SELECT * FROM queued();
UPDATE read SET c = 'd';
SELECT * FROM queued();
-- none may follow from itself
SELECT error_of($$SELECT llm_enrich_create('r6', 'read', 'b', prompt => '{t4}')$$);
SELECT error_of($$SELECT llm_enrich_alter('r5', prompt => '{c}{t3}')$$);
SELECT llm_enrich_alter('r5', prompt => '{t2}');
SELECT name, llm_enrich_drop(name) FROM llm.enrichment_defs WHERE name LIKE 'r_' ORDER BY name;
DROP TABLE read CASCADE;

-- keys: of all types, the same whatever the session's settings
CREATE TABLE keys (a timestamptz, b interval, c bytea, d float8, e numeric, "F ""x""" text, g uuid, body text, v text, PRIMARY KEY (a, b, c, d, e, "F ""x""", g));
SELECT paused('keys', 'keys', 'v', prompt => '{body}');
SET timezone = 'Asia/Tokyo'; SET datestyle = 'SQL, DMY'; SET intervalstyle = 'iso_8601'; SET bytea_output = 'escape'; SET extra_float_digits = -10;
INSERT INTO keys VALUES ('2026-01-31 12:00:00+00', '1 day 2 hours', '\x00ff', 0.1::float8 + 0.2::float8, 1.50, 'it''s \', '00000000-0000-0000-0000-000000000001', 'x');
SELECT a, b, c, d FROM keys;
RESET timezone; RESET datestyle; RESET intervalstyle; RESET bytea_output; RESET extra_float_digits;
UPDATE keys SET body = 'y', v = 'z';
SELECT * FROM queued();
SELECT llm_enrich_drop('keys');

-- partitions, children, names; a table below has triggers of its own, and loses them when it is taken away
CREATE TABLE "Other place"."Big ""T""" ("Key 1" int, k2 int, "Body" text, "the Target" text, PRIMARY KEY ("Key 1", k2)) PARTITION BY RANGE ("Key 1");
CREATE TABLE "Other place".p1 PARTITION OF "Other place"."Big ""T""" FOR VALUES FROM (0) TO (10);
CREATE TABLE "Other place".p2 (extra int, "Body" text, k2 int NOT NULL, "the Target" text, "Key 1" int NOT NULL);
ALTER TABLE "Other place".p2 DROP COLUMN extra;
ALTER TABLE "Other place"."Big ""T""" ATTACH PARTITION "Other place".p2 FOR VALUES FROM (10) TO (20);
SELECT paused('big', '"Other place"."Big ""T"""', 'the Target', prompt => '{Body}');
CREATE TABLE "Other place".p3 PARTITION OF "Other place"."Big ""T""" FOR VALUES FROM (20) TO (40) PARTITION BY LIST (k2);
CREATE TABLE "Other place".p4 PARTITION OF "Other place".p3 FOR VALUES IN (1, 2);
CREATE TABLE late (LIKE "Other place".p4 INCLUDING ALL);
ALTER TABLE "Other place".p3 ATTACH PARTITION late DEFAULT;
SELECT tgrelid::regclass, count(*), count(DISTINCT tgargs) FROM pg_trigger WHERE tgname LIKE 'llm_enrich%' AND tgrelid <> 'docs'::regclass GROUP BY 1 ORDER BY 1;
INSERT INTO "Other place"."Big ""T""" SELECT i, i % 3, 'b' FROM generate_series(8, 22) i;
INSERT INTO "Other place".p1 VALUES (1, 1);
INSERT INTO late VALUES (39, 9);
SELECT name, (regexp_matches(keys, '"Key 1": (\d+)', 'g'))[1]::int AS key FROM queued() ORDER BY 2;
UPDATE "Other place"."Big ""T""" SET "the Target" = 'done';
UPDATE "Other place"."Big ""T""" SET k2 = k2;
SELECT * FROM queued();
-- a row that moves: its key changes; or not, and only its place does
UPDATE "Other place"."Big ""T""" SET "Key 1" = 19, k2 = 7 WHERE "Key 1" = 9;
UPDATE "Other place".p2 SET "Body" = 'c' WHERE "Key 1" = 10;
UPDATE "Other place"."Big ""T""" SET "Body" = 'd' WHERE "Key 1" = 8;
SELECT * FROM queued();
CREATE TABLE moving (id int, place int, body text, n int, v text, PRIMARY KEY (id, place)) PARTITION BY LIST (place);
CREATE TABLE moving1 PARTITION OF moving FOR VALUES IN (1);
CREATE TABLE moving2 PARTITION OF moving FOR VALUES IN (2);
SELECT paused('moving', 'moving', 'v', prompt => '{body}');
CREATE TEMPORARY TABLE moving3 (id int);
CREATE TABLE moving3 PARTITION OF moving FOR VALUES IN (3);
CREATE TABLE stranger (id int);
CREATE TABLE IF NOT EXISTS stranger PARTITION OF moving FOR VALUES IN (4);
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'stranger'::regclass;
INSERT INTO public.moving3 VALUES (3, 3);
SELECT * FROM queued();
DROP TABLE moving3, public.moving3;
INSERT INTO moving VALUES (1, 1, 'x', 0, 'v'), (2, 1, 'x', 0, 'v'), (2, 2, 'y', 0, 'v');
UPDATE moving SET place = 2, n = 1 WHERE id = 1;
SELECT * FROM queued();
ALTER TABLE moving DETACH PARTITION moving2;
ALTER TABLE "Other place".p3 DETACH PARTITION late;
ALTER TABLE "Other place"."Big ""T""" DETACH PARTITION "Other place".p3;
SELECT tgrelid::regclass, count(*) FROM pg_trigger WHERE tgname LIKE 'llm_enrich%' AND tgrelid <> 'docs'::regclass GROUP BY 1 ORDER BY 1;
INSERT INTO "Other place".p4 VALUES (33, 1), (34, 1);
SELECT * FROM queued();
CREATE TABLE parent (id int PRIMARY KEY, body text, v text);
CREATE TABLE child (more text) INHERITS (parent);
SELECT paused('parent', 'parent', 'v', prompt => '{body}');
CREATE TABLE grandchild () INHERITS (child);
CREATE TABLE stepchild (id int NOT NULL, body text, v text);
ALTER TABLE stepchild INHERIT parent;
CREATE TEMPORARY TABLE temporary_child () INHERITS (parent);
INSERT INTO parent VALUES (1);
INSERT INTO child VALUES (2);
INSERT INTO grandchild VALUES (3);
INSERT INTO stepchild VALUES (4);
INSERT INTO temporary_child VALUES (5);
SELECT * FROM queued();
UPDATE parent SET body = 'x';
UPDATE child SET body = 'y', more = 'z' WHERE id = 3;
SELECT * FROM queued();
ALTER TABLE stepchild NO INHERIT parent;
INSERT INTO stepchild VALUES (6);
SELECT * FROM queued();
DROP TABLE temporary_child;
SELECT llm_enrich_drop('parent'), llm_enrich_drop('moving'), llm_enrich_drop('big');
SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'llm_enrich%' AND tgrelid <> 'docs'::regclass;

-- renames are followed; what is read and not there any more is queued without comparing; dropped triggers come again
ALTER TABLE docs RENAME TO papers;
ALTER TABLE papers SET SCHEMA "Other place";
SELECT name, relation FROM llm.enrichments;
INSERT INTO "Other place".papers VALUES (3, 'three', 'en');
SELECT * FROM queued();
ALTER TABLE "Other place".papers RENAME body TO contents;
UPDATE "Other place".papers SET n = 5 WHERE id = 1;
INSERT INTO "Other place".papers (id) VALUES (11);
SELECT * FROM queued();
SELECT error_of($$SELECT llm_enrich_resume('docs_summary')$$);
SELECT llm_enrich_alter('docs_summary', prompt => '{contents}', filter => '', new_name => 'papers');
ALTER TABLE "Other place".papers RENAME summary TO abstract;
UPDATE "Other place".papers SET abstract = 'x', n = 6, contents = 'z' WHERE id = 1;
INSERT INTO "Other place".papers VALUES (12, 'x', 'y', 1, 'given');
SELECT * FROM queued();
SELECT error_of($$SELECT llm_enrich_resume('papers')$$);
SELECT llm_enrich_alter('papers', 'abstract');
SELECT name, target, state, prompt, filter FROM llm.enrichments;
ALTER TABLE "Other place".papers DROP CONSTRAINT docs_pkey;
UPDATE "Other place".papers SET contents = 'y';
INSERT INTO "Other place".papers VALUES (13);
SELECT * FROM queued();
SELECT error_of($$SELECT llm_enrich_resume('papers')$$);
ALTER TABLE "Other place".papers RENAME id TO number;
ALTER TABLE "Other place".papers ADD PRIMARY KEY (number);
UPDATE "Other place".papers SET contents = 'z' WHERE number = 1;
SELECT * FROM queued();
UPDATE llm.enrichment_defs SET backfill = false;
DROP TRIGGER llm_enrich_1_update ON "Other place".papers;
SELECT llm_enrich_resume('papers', backfill => false), llm_enrich_pause('papers');
SELECT backfill FROM llm.enrichment_defs;
DROP TRIGGER llm_enrich_1_update ON "Other place".papers;
SELECT llm_enrich_resume('papers'), llm_enrich_pause('papers');
SELECT backfill, active, reason FROM llm.enrichment_defs;
UPDATE "Other place".papers SET contents = 'a' WHERE number = 1;
SELECT * FROM queued();

-- rows that failed are queued again
INSERT INTO llm.enrich_failures SELECT '"Other place".papers'::regclass, c, 1, '{"number": 1}', '1', 10, 1, now(), 'XX000', 'm' FROM unnest(ARRAY['abstract', 'other']) c;
SELECT failed, pending FROM llm.enrichments;
SELECT llm_enrich_retry_failed('papers'), llm_enrich_retry_failed('papers');
SELECT failed, pending FROM llm.enrichments;
SELECT * FROM queued();

-- alter: what is given changes
SELECT llm_enrich_alter('papers', expr => 'contents', batch_size => 3, concurrency => 4, model => 'echo', max_tokens => 6, temperature => 0, seed => 7, options => '{"top_k": 3}');
SELECT prompt, expr, filter, batch_size, concurrency, model, max_tokens, temperature, seed, options FROM llm.enrichments;
SELECT llm_enrich_alter('papers', model => '', options => '{}', filter => 'true', backfill => true);
SELECT prompt, expr, filter, batch_size, model, max_tokens, options FROM llm.enrichments;
SELECT llm_enrich_alter('papers');
-- settings at its creation are kept, for the worker has none
BEGIN;
CREATE TABLE brief (id int PRIMARY KEY, a text);
SET LOCAL llm_infer.max_tokens = 9;
SET LOCAL llm_infer.temperature = 0.5;
SELECT llm_enrich_create('brief', 'brief', 'a', expr => 'id');
SELECT model, max_tokens, temperature, seed FROM llm.enrichments WHERE name = 'brief';
ROLLBACK;

-- whose: rights to create, to change, to see; the trigger runs for everyone who may write
CREATE TABLE shared (id int PRIMARY KEY, body text, a text, b text, secret text);
GRANT CREATE ON SCHEMA public TO regress_llm_other;
SET ROLE regress_llm_standing;
SELECT error_of($$SELECT llm_enrich_create('mine', 'shared', 'a', prompt => '{body}')$$);
RESET ROLE;
GRANT SELECT (id, body, a, b, ctid, xmin, tableoid), UPDATE (a, b) ON shared TO regress_llm_standing;
SET ROLE regress_llm_standing;
SELECT error_of($$SELECT llm_enrich_create('mine', 'shared', 'a', prompt => '{body}')$$);
RESET ROLE;
GRANT TRIGGER ON shared TO regress_llm_standing;
GRANT INSERT, UPDATE, SELECT ON shared TO regress_llm_other;
SET ROLE regress_llm_standing;
SELECT error_of($$SELECT llm_enrich_create('mine', 'shared', 'a', prompt => '{secret}')$$);
SELECT llm_enrich_create('mine', 'shared', 'a', prompt => '{body}'), llm_enrich_pause('mine');
SELECT name, owner, prompt FROM llm.enrichments;
SELECT error_of($$SELECT llm_enrich_drop('papers')$$);
SELECT error_of($$SELECT * FROM llm.enrichment_defs$$), error_of($$SELECT * FROM llm.enrich_queue$$);
SET ROLE regress_llm_other;
INSERT INTO shared VALUES (1, 'one');
SELECT name FROM llm.enrichments;
SELECT error_of($$SELECT llm_enrich_pause('mine')$$), error_of($$SELECT llm_enrich_resume('mine')$$);
RESET ROLE;
SELECT * FROM queued();
GRANT pg_read_all_stats TO regress_llm_other;
SET ROLE regress_llm_other;
SELECT name, pending, prompt, options FROM llm.enrichments ORDER BY 1;
RESET ROLE;
ALTER TABLE shared OWNER TO regress_llm_other;
REVOKE pg_read_all_stats FROM regress_llm_other;
SET ROLE regress_llm_other;
SELECT name, prompt FROM llm.enrichments ORDER BY 1;
SELECT llm_enrich_pause('mine'), error_of($$SELECT llm_enrich_alter('mine', batch_size => 2)$$), error_of($$SELECT llm_enrich_retry_failed('mine')$$);
-- planning runs functions: as the owner, whoever looks at the definition
RESET ROLE;
CREATE FUNCTION planned() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$BEGIN IF current_user <> 'regress_llm_standing' THEN RAISE 'planned as %', current_user; END IF; RETURN 'x'; END$$;
SET ROLE regress_llm_standing;
SELECT llm_enrich_alter('mine', expr => 'planned() || body');
RESET ROLE;
SELECT llm_enrich_resume('mine'), llm_enrich_pause('mine');
SET ROLE regress_llm_other;
-- a trigger that somebody else makes with the number of another's enrichment does nothing
CREATE TABLE foreign_rows (id int PRIMARY KEY, a text);
SELECT format('CREATE TRIGGER t AFTER INSERT ON foreign_rows REFERENCING NEW TABLE AS llm_new FOR EACH STATEMENT EXECUTE FUNCTION llm.enrich_changed(%L)', id) FROM (SELECT 1 AS id) d \gexec
INSERT INTO foreign_rows VALUES (1);
CREATE TRIGGER u AFTER INSERT ON foreign_rows FOR EACH ROW EXECUTE FUNCTION llm.enrich_changed('1');
INSERT INTO foreign_rows VALUES (2);
SELECT error_of($$SELECT llm.enrich_changed()$$);
SELECT llm_enrich_drop('mine');
RESET ROLE;
REVOKE CREATE ON SCHEMA public FROM regress_llm_other;
SELECT * FROM queued();
-- what a hostile search_path has is not called, nor are casts of the key's type
CREATE SCHEMA evil;
CREATE FUNCTION evil.boo(jsonb, jsonb) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$;
CREATE OPERATOR evil.= (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = evil.boo);
CREATE TABLE evil.llm_new (id int, body text, v text);
CREATE TABLE evil.llm_old (id int, body text, v text);
CREATE TYPE evil.mood AS ENUM ('good', 'bad');
CREATE FUNCTION evil.whoami(evil.mood) RETURNS json LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$;
CREATE CAST (evil.mood AS json) WITH FUNCTION evil.whoami(evil.mood);
CREATE TABLE typed (k evil.mood PRIMARY KEY, body text, v text);
SELECT paused('typed', 'typed', 'v', prompt => '{body}');
GRANT ALL ON typed TO regress_llm_other;
GRANT USAGE ON SCHEMA evil TO regress_llm_other;
SET ROLE regress_llm_other;
SET search_path = evil, pg_catalog, public;
INSERT INTO typed VALUES ('good', 'b', 'v');
INSERT INTO typed VALUES ('bad', 'b', NULL);
UPDATE typed SET body = 'c' WHERE v = 'v';
RESET search_path;
RESET ROLE;
SELECT * FROM queued();
SELECT llm_enrich_drop('typed');

-- what is wrong
CREATE TABLE todo (id int PRIMARY KEY, body text, a text, g text GENERATED ALWAYS AS (body) STORED, n text NOT NULL DEFAULT '');
CREATE VIEW seen AS SELECT * FROM todo;
CREATE TABLE keyless (body text, a text);
CREATE TEMPORARY TABLE brief (id int PRIMARY KEY, body text, a text);
SELECT error_of($$SELECT llm_enrich_create('e', 'seen', 'a', prompt => '{body}')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'keyless', 'a', prompt => '{body}')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'brief', 'a', prompt => '{body}')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'g', prompt => '{body}')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'n', prompt => '{body}')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', prompt => '{body}', expr => 'body')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', prompt => '{nobody}')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', expr => 'nobody')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', expr => 'body', filter => 'id')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', expr => 'body', filter => 'true) OR (true')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', expr => 'body', batch_size => 0)$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', expr => 'body', concurrency => 1001)$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', expr => 'body', model => 'none')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', expr => 'body', options => '{"max_attempts": 0}')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', expr => 'body', temperature => -3)$$);
SELECT error_of($$SELECT llm_enrich_create('papers', 'todo', 'a', expr => 'body')$$);
SELECT error_of($$SELECT llm_enrich_create('e', '"Other place".papers', 'abstract', expr => 'contents')$$);
SELECT error_of($$SELECT llm_enrich_create(NULL, 'todo', 'a', expr => 'body')$$);
SELECT error_of($$SELECT llm_enrich_create('e', NULL, 'a', expr => 'body')$$);
SELECT error_of($$SELECT llm_enrich_create('', 'todo', 'a', expr => 'body')$$), error_of($$SELECT llm_enrich_alter('papers', new_name => '')$$);
SELECT error_of($$SELECT llm_enrich_create('e', 'todo', 'a', prompt => 'body')$$);
SELECT error_of($$SELECT llm_enrich_drop('none')$$), error_of($$SELECT llm_enrich_drop(NULL)$$);
SELECT paused('e', 'todo', 'a', expr => 'body');
SELECT error_of($$SELECT llm_enrich_alter('e', new_name => 'papers')$$), error_of($$SELECT llm_enrich_alter('e', prompt => '')$$);
BEGIN;
SELECT llm_enrich_drop('e');
SELECT llm_enrich_create('e', 'todo', 'n', expr => 'body', filter => 'false');
ROLLBACK;
SELECT name, target FROM llm.enrichments ORDER BY 1;
-- a table that is gone, before the launcher looks
BEGIN;
DROP TABLE todo CASCADE;
SELECT name FROM llm.enrichments;
SELECT error_of($$SELECT llm_enrich_resume('e')$$);
SELECT llm_enrich_drop('e');
COMMIT;

-- between an upgrade of the library and that of the extension nothing is queued, and said so; writers go on
BEGIN;
ALTER TABLE llm.job_queue ADD COLUMN z int;
INSERT INTO "Other place".papers VALUES (99);
ROLLBACK;

-- what it has written stays when it is dropped
SELECT llm_enrich_drop('papers');
DROP TABLE "Other place".papers, "Other place"."Big ""T""", "Other place".p3, late, moving, moving2, parent, child, grandchild, stepchild, keys, shared, foreign_rows, keyless, brief, typed;
DROP SCHEMA evil CASCADE;
DROP SCHEMA "Other place" CASCADE;
DROP FUNCTION queued, paused, restamp, planned;
REVOKE ALL ON FOREIGN SERVER echo FROM regress_llm_standing, regress_llm_other;
DROP ROLE regress_llm_standing, regress_llm_other;
SELECT count(*) FROM llm.enrichment_defs, llm.enrich_queue;
