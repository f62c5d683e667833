-- node_policies.sql - LLM Batch under row security: whose rows the model is asked about, and what a user's function may see
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE notes (id int PRIMARY KEY, owner name, body text, answer text);
INSERT INTO notes SELECT i, CASE WHEN i % 2 = 0 THEN 'regress_llm_one' ELSE 'regress_llm_two' END, CASE WHEN i % 2 = 0 THEN 'b' ELSE 'secret' END || i FROM generate_series(1, 20) i;
ANALYZE notes;
CREATE ROLE regress_llm_one;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_one;
GRANT ALL ON notes TO regress_llm_one;
ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON notes USING (owner = current_user);
-- tells what it sees; so cheap that it would run first, were it let
CREATE FUNCTION leak(t text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$BEGIN RAISE NOTICE 'saw %', t; RETURN true; END$$;
CREATE VIEW mine WITH (security_barrier) AS SELECT id, body FROM notes WHERE llm_generate(body) < 'b2';
CREATE VIEW theirs WITH (security_invoker) AS SELECT id, llm_generate(body) AS g FROM notes;
GRANT SELECT ON mine, theirs TO regress_llm_one;
CREATE FUNCTION requests() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$SELECT requests FROM llm.stat_engine$$;
CREATE TABLE results (name text, batched boolean, n bigint);
GRANT INSERT ON results TO regress_llm_one;
CREATE FUNCTION count_of(what text, query text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
BEGIN
	FOR i IN 0..1 LOOP
		PERFORM set_config('llm_infer.enable_batch', (i = 0)::text, true);
		before := requests();
		EXECUTE query;
		INSERT INTO results VALUES (what, i = 0, requests() - before);
	END LOOP;
	PERFORM set_config('llm_infer.enable_batch', 'on', true);
END
$$;

SET ROLE regress_llm_one;
SET client_min_messages = notice;
-- the policy comes first, whatever is cheaper; then the user's own function and the model, by cost
EXPLAIN (COSTS OFF) SELECT id FROM notes WHERE llm_generate(body) < 'b2' AND leak(body);
SELECT id FROM notes WHERE llm_generate(body) < 'b2' AND leak(body) ORDER BY id;
SELECT id FROM notes WHERE leak(llm_generate(body)) AND id < 5 ORDER BY id;
SELECT id, llm_generate(body) FROM notes WHERE leak(body) AND id < 5 ORDER BY id;
-- a barrier's own call comes before any function of the reader
EXPLAIN (COSTS OFF) SELECT id FROM mine WHERE leak(body) AND llm_generate('u' || body) <> 'ub12';
SELECT id FROM mine WHERE leak(body) AND llm_generate('u' || body) <> 'ub12' ORDER BY id;
SELECT g FROM theirs WHERE leak(g) AND id < 5 ORDER BY 1;
SET client_min_messages = warning;
SELECT count_of('rows that are seen', 'SELECT llm_generate(body) FROM notes'), count_of('filtered', 'SELECT id FROM notes WHERE llm_generate(body) <> ''b2'' AND owner <> ''x'''),
	count_of('view of the invoker', 'SELECT * FROM theirs'), count_of('written', 'UPDATE notes SET answer = llm_generate(body)');
RESET ROLE;

-- policies that ask the model: for reading, for the new row, for one command
CREATE POLICY by_model ON notes AS RESTRICTIVE FOR SELECT USING (llm_generate(body) <> 'b4');
CREATE POLICY polite ON notes AS RESTRICTIVE FOR INSERT WITH CHECK (llm_generate(body) <> 'rude');
CREATE POLICY changed ON notes AS RESTRICTIVE FOR UPDATE USING (llm_generate('old ' || body) <> 'old b6') WITH CHECK (llm_generate('new ' || body) <> 'new rude');
SET ROLE regress_llm_one;
EXPLAIN (COSTS OFF) SELECT id FROM notes WHERE leak(body) AND llm_generate('u' || body) < 'ub2';
SET client_min_messages = notice;
SELECT id FROM notes WHERE leak(body) AND llm_generate('u' || body) < 'ub2' ORDER BY id;
SET client_min_messages = warning;
SELECT error_of($$INSERT INTO notes VALUES (100, current_user, 'rude')$$), error_of($$INSERT INTO notes VALUES (100, current_user, 'kind')$$);
SELECT error_of($$UPDATE notes SET body = 'rude' WHERE id = 8$$), error_of($$UPDATE notes SET body = 'kind' WHERE id IN (4, 6, 8)$$);
SELECT id, body FROM notes WHERE id < 10 ORDER BY id;
SELECT count_of('policy for reading', 'SELECT count(*) FROM notes'), count_of('and a condition', 'SELECT id FROM notes WHERE llm_generate(body) < ''b2''');
RESET ROLE;
SELECT name, max(n) FILTER (WHERE batched) AS batched, max(n) FILTER (WHERE NOT batched) AS row_by_row FROM results GROUP BY name ORDER BY min(ctid);
-- no right to the model
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_llm_one;
SET ROLE regress_llm_one;
SELECT error_of('SELECT llm_generate(body) FROM notes');
RESET ROLE;
SELECT engine_idle();
DROP TABLE notes, results CASCADE;
DROP FUNCTION leak(text), count_of(text, text), requests();
DROP ROLE regress_llm_one;
