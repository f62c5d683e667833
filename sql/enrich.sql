-- enrich.sql - CALL llm_enrich: which rows, which tables, which types, whose rights, whose errors
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare
SET client_min_messages = notice;

CREATE ROLE regress_llm_enrich;
CREATE ROLE regress_llm_other;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_enrich, regress_llm_other;
CREATE SCHEMA "Other place";

-- what is done: the target is NULL, the filter lets through, there is a prompt
CREATE TABLE docs (id int PRIMARY KEY, body text, lang text, summary text);
INSERT INTO docs SELECT i, 'body ' || i, CASE WHEN i % 2 = 0 THEN 'en' END, CASE WHEN i = 1 THEN 'kept' END FROM generate_series(1, 8) i;
CALL llm_enrich('docs', 'summary', prompt => 'In {lang}: {body} {{x} }}y}', filter => 'id > 3');
SELECT id, summary FROM docs WHERE summary IS NOT NULL ORDER BY id;
CALL llm_enrich('docs', 'summary', expr => $$'E ' || docs.id || coalesce(lang, '-') -- the row's$$, filter => $$docs.body LIKE 'body%' -- all$$);
CALL llm_enrich('docs', 'summary', expr => $$'E ' || id$$);
SELECT id, summary FROM docs ORDER BY id;
-- most rows of a call
UPDATE docs SET summary = NULL;
CALL llm_enrich('docs', 'summary', prompt => '{body}', max_rows => 3);
CALL llm_enrich('docs', 'summary', prompt => '{body}', max_rows => 100, batch_size => 1, concurrency => 1);
SELECT count(*), count(summary), count(*) FILTER (WHERE summary = body) FROM docs;
-- arguments of the call
UPDATE docs SET summary = NULL WHERE id = 1;
CALL llm_enrich('docs', 'summary', prompt => '{body}', max_tokens => 3, model => 'echo', seed => 1, temperature => 0, options => '{"system_prompt": "s"}');
SELECT summary FROM docs WHERE id = 1;

-- rows that fail keep their errors and do not hold up others; they are tried three times, a changed row afresh
UPDATE docs SET summary = NULL, body = CASE WHEN id % 4 = 0 THEN '@error=boo' ELSE body END WHERE id > 1;
CALL llm_enrich('docs', 'summary', prompt => '{body}', batch_size => 2);
SELECT relation, target, key, attempts, role = current_user AS own, sqlstate, message FROM llm.failed_rows ORDER BY key;
CALL llm_enrich('docs', 'summary', prompt => '{body}');
CALL llm_enrich('docs', 'summary', prompt => '{body}');
CALL llm_enrich('docs', 'summary', prompt => '{body}');
CALL llm_enrich('docs', 'summary', prompt => '{body}', options => '{"max_attempts": 4}');
UPDATE docs SET body = 'better' WHERE id = 4;
UPDATE docs SET body = body WHERE id = 8;
CALL llm_enrich('docs', 'summary', prompt => '{body}');
SELECT key, attempts FROM llm.failed_rows;
-- the first that fails ends the call; what is done is done
UPDATE docs SET summary = NULL WHERE id < 4;
CALL llm_enrich('docs', 'summary', prompt => '{body}', on_error => 'error');
SELECT count(summary) FROM docs;
DROP TABLE docs;
SELECT count(*) FROM llm.failed_rows;

-- types: the input function's rules, blanks around all but strings
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE DOMAIN grade AS int CHECK (VALUE BETWEEN 1 AND 6);
CREATE TABLE typed (id uuid PRIMARY KEY, body text, v varchar(5), b boolean, i int, n numeric(6,2), m mood, g grade, j jsonb, a text[], t text);
INSERT INTO typed SELECT ('00000000-0000-0000-0000-00000000000' || i)::uuid, body FROM unnest(ARRAY[' yes ', ' 5', '12.345', 'good'||E'\n', '{"a": [1]}', '{a,"b c"}', '9', '']) WITH ORDINALITY AS u (body, i);
SELECT format($$CALL llm_enrich('typed', %L, prompt => '{body}')$$, c) FROM unnest(ARRAY['v', 'b', 'i', 'n', 'm', 'g', 'j', 'a', 't']) c \gexec
SELECT body, v, b, i, n, m, g, j, a, t FROM typed ORDER BY id;
SELECT target, sqlstate, count(*), min(message) FROM llm.failed_rows GROUP BY 1, 2 ORDER BY 1, 2;
DROP TABLE typed;

-- keys, names, partitions, children, temporary and unlogged tables
CREATE TABLE "Other place"."Big ""T"" {x}" ("Key 1" text COLLATE "C", k2 numeric, "Body {x}" text, "the Target" text, PRIMARY KEY (k2, "Key 1")) PARTITION BY RANGE (k2);
CREATE TABLE "Other place".p1 PARTITION OF "Other place"."Big ""T"" {x}" FOR VALUES FROM (0) TO (10);
CREATE TABLE "Other place".p2 PARTITION OF "Other place"."Big ""T"" {x}" FOR VALUES FROM (10) TO (20);
INSERT INTO "Other place"."Big ""T"" {x}" SELECT 'k' || i % 3, i * 1.5, E'it''s \\ ' || i FROM generate_series(0, 12) i;
CALL llm_enrich('"Other place"."Big ""T"" {x}"', 'the Target', prompt => 'o''{Key 1}\n', max_rows => 10);
CALL llm_enrich('"Other place"."Big ""T"" {x}"', 'the Target', expr => $$"Big ""T"" {x}"."Body {x}"$$);
SELECT tableoid::regclass, "the Target", count(*) FROM "Other place"."Big ""T"" {x}" GROUP BY 1, 2 ORDER BY 1, 2;
CREATE TABLE parent (id int PRIMARY KEY, body text, a text);
CREATE TABLE child () INHERITS (parent);
INSERT INTO parent SELECT i, 'p' || i FROM generate_series(1, 3) i;
INSERT INTO child SELECT 1, 'c' || i FROM generate_series(1, 3) i;
CALL llm_enrich('parent', 'a', prompt => '{body}');
SELECT tableoid::regclass, id, a FROM parent ORDER BY a;
CREATE TEMPORARY TABLE brief (id bigserial PRIMARY KEY, a text);
CREATE UNLOGGED TABLE hasty (id int, a text, PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED);
INSERT INTO brief DEFAULT VALUES;
INSERT INTO hasty VALUES (1), (2);
CALL llm_enrich('brief', 'a', prompt => 'row {id}');
CALL llm_enrich('hasty', 'a', prompt => 'row {id}');
SELECT a FROM brief UNION ALL SELECT a FROM hasty;

-- a write that fails is its row's: constraints, deferred ones too, triggers that refuse, that keep the value out
CREATE TABLE strict (id int PRIMARY KEY, a text UNIQUE CHECK (a <> 'row 3'), r int, FOREIGN KEY (a) REFERENCES strict (a) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE words (word text PRIMARY KEY);
INSERT INTO words SELECT 'row ' || i FROM generate_series(1, 40) i WHERE i <> 17;
ALTER TABLE strict ADD FOREIGN KEY (a) REFERENCES words DEFERRABLE INITIALLY DEFERRED;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	IF NEW.id = 5 THEN RAISE 'not five'; END IF;
	IF NEW.id = 6 THEN RETURN NULL; END IF;
	IF NEW.id = 7 THEN NEW.a := NULL; END IF;
	IF NEW.id = 8 THEN NEW.a := 'row 39'; END IF;
	RETURN NEW;
END$$;
CREATE TRIGGER refuse BEFORE UPDATE ON strict FOR EACH ROW EXECUTE FUNCTION refuse();
INSERT INTO strict SELECT i FROM generate_series(1, 38) i;
INSERT INTO strict VALUES (100);
CALL llm_enrich('strict', 'a', expr => $$'row ' || CASE id WHEN 100 THEN 2 ELSE id END$$);
SELECT count(*), count(a), string_agg(a, ' ' ORDER BY id) FILTER (WHERE a <> 'row ' || id) AS other FROM strict;
SELECT key, sqlstate, message FROM llm.failed_rows ORDER BY key;
-- attempts are counted although each write is rolled back, and end
CALL llm_enrich('strict', 'a', expr => $$'row ' || CASE id WHEN 100 THEN 2 ELSE id END$$);
CALL llm_enrich('strict', 'a', expr => $$'row ' || CASE id WHEN 100 THEN 2 ELSE id END$$);
CALL llm_enrich('strict', 'a', expr => $$'row ' || CASE id WHEN 100 THEN 2 ELSE id END$$);
SELECT attempts, count(*), count(DISTINCT sqlstate) FROM llm.failed_rows GROUP BY 1;

-- SQL that raises an error for a row is that row's failure, whether it is the prompt's or the filter's
CREATE TABLE odd (id int, n text, a text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE odd_low PARTITION OF odd FOR VALUES FROM (0) TO (25);
CREATE TABLE odd_high PARTITION OF odd FOR VALUES FROM (25) TO (100);
INSERT INTO odd SELECT i, CASE WHEN i % 10 = 3 THEN 'x' || i ELSE i::text END FROM generate_series(1, 40) i;
CREATE FUNCTION picky(int) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN IF $1 = 20 THEN RAISE 'not twenty'; END IF; RETURN $1 <= 35; END$$;
CALL llm_enrich('odd', 'a', expr => $$'n ' || 100 / (n::int - 7)$$, filter => 'picky(id)', batch_size => 2, concurrency => 6, max_rows => 30);
CALL llm_enrich('odd', 'a', expr => $$'n ' || 100 / (n::int - 7)$$, filter => 'picky(id)', batch_size => 2, concurrency => 6, max_rows => 30);
SELECT count(a), bool_and(a = 'n ' || 100 / (n::int - 7)) FILTER (WHERE n ~ '^\d' AND id <> 7 AND id <> 20), string_agg(id::text, ' ') FILTER (WHERE a IS NULL) FROM odd WHERE id <= 35;
CALL llm_enrich('odd', 'a', expr => $$'n ' || 100 / (n::int - 7)$$, filter => 'picky(id)');
SELECT key, attempts, sqlstate, message FROM llm.failed_rows WHERE relation = 'odd'::regclass ORDER BY key;
UPDATE odd SET n = 3 WHERE id = 3;
CALL llm_enrich('odd', 'a', expr => $$'n ' || 100 / (n::int - 7)$$, filter => 'picky(id)');
-- many of them, in other calls' prompts and with an order; the first ends a call that says so
CREATE TABLE halves (id int PRIMARY KEY, n int, b text, a text);
INSERT INTO halves SELECT i, i % 2, 'b' FROM generate_series(1, 1500) i;
CALL llm_enrich('halves', 'a', expr => $$1 / n || ' of ' || id$$, on_error => 'error');
SET client_min_messages = warning;
CALL llm_enrich('halves', 'a', expr => $$1 / n || ' of ' || id$$);
SET client_min_messages = notice;
SELECT count(a), count(*) FILTER (WHERE a = '1 of ' || id), (SELECT count(*) FROM llm.failed_rows WHERE relation = 'halves'::regclass) FROM halves;
-- what is wrong for all rows ends the call
CREATE FUNCTION broken(int) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN no_such_function($1); END';
\set VERBOSITY terse
CALL llm_enrich('halves', 'a', expr => 'broken(id)');
\set VERBOSITY default
DROP TABLE odd, halves;

-- as the caller: rights to columns, policies, and what others see of failures
CREATE TABLE guarded (id int PRIMARY KEY, owner text DEFAULT 'regress_llm_enrich', body text, a text, hidden text);
INSERT INTO guarded (id, body) VALUES (1, 'one'), (2, '@error=no');
INSERT INTO guarded (id, owner, body) VALUES (3, 'regress_llm_other', 'three'), (4, 'nobody', 'four');
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON guarded FOR SELECT USING (owner <> 'nobody');
CREATE POLICY changed ON guarded FOR UPDATE USING (owner = current_user);
SET ROLE regress_llm_enrich;
CALL llm_enrich('guarded', 'a', prompt => '{body}');
RESET ROLE;
GRANT SELECT (id, body, a, owner, ctid, xmin, tableoid), UPDATE (a) ON guarded TO regress_llm_enrich;
SET ROLE regress_llm_enrich;
CALL llm_enrich('guarded', 'hidden', prompt => '{body}');
\set VERBOSITY terse
CALL llm_enrich('guarded', 'a', prompt => '{hidden}');
\set VERBOSITY default
CALL llm_enrich('guarded', 'a', prompt => '{body}');
SELECT key FROM llm.failed_rows;
SELECT count(*) FROM llm.enrich_failures;
SET ROLE regress_llm_other;
SELECT key FROM llm.failed_rows;
RESET ROLE;
SELECT id, a FROM guarded ORDER BY id;
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_llm_enrich;
SET ROLE regress_llm_enrich;
CALL llm_enrich('guarded', 'a', prompt => '{body}');
RESET ROLE;

-- where it cannot commit: said before anything is done
CREATE TABLE todo (id int PRIMARY KEY, body text, a text, g text GENERATED ALWAYS AS (body) STORED, n text NOT NULL DEFAULT '');
INSERT INTO todo VALUES (1, 'x');
BEGIN;
CALL llm_enrich('todo', 'a', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT 1 \; CALL llm_enrich('todo', 'a', prompt => '{body}');
SELECT error_of($$CALL llm_enrich('todo', 'a', prompt => '{body}')$$);
CREATE PROCEDURE with_setting() LANGUAGE plpgsql SET work_mem = '1MB' AS $$BEGIN CALL llm_enrich('todo', 'a', prompt => '{body}'); END$$;
CALL with_setting();
SET default_transaction_read_only = on;
CALL llm_enrich('todo', 'a', prompt => '{body}');
RESET default_transaction_read_only;
SELECT a FROM todo;
-- where it can: in a block that can
SET default_transaction_isolation = serializable;
DO $$BEGIN CALL llm_enrich('todo', 'a', prompt => '{body}'); END$$;
RESET default_transaction_isolation;
SELECT a FROM todo;

-- what is wrong
CREATE VIEW seen AS SELECT * FROM todo;
CREATE TABLE keyless (body text, a text);
CALL llm_enrich('seen', 'a', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('keyless', 'a', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'g', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'n', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'none', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'ctid', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{Body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{"a": 1}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => 'x {body');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{a}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', expr => 'body');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich(NULL, 'a', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', filter => 'nothing');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', filter => $$'ü' || body$$);
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => 'body}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', expr => '*');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', expr => 'body FROM todo');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', expr => $$'ü' || todos.body$$);
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', filter => 'true) OR (true');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', expr => 'generate_series(1, 2)');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', batch_size => 0);
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', concurrency => 1001);
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', max_rows => 0);
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', model => 'none');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', temperature => -2);
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', on_error => 'skip');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', options => '{"max_attempts": 0}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('todo', 'a', prompt => '{body}', options => '{"colour": 1}');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('no_table', 'a', prompt => '{body}');
\echo :LAST_ERROR_SQLSTATE

-- nothing is left behind
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory';
SELECT engine_idle();
DROP TABLE todo, keyless, guarded, strict, words, brief, hasty, parent, child CASCADE;
DROP SCHEMA "Other place" CASCADE;
DROP PROCEDURE with_setting;
DROP FUNCTION refuse;
DROP TYPE mood;
DROP DOMAIN grade;
REVOKE ALL ON FOREIGN SERVER echo FROM regress_llm_enrich, regress_llm_other;
DROP ROLE regress_llm_enrich, regress_llm_other;
