-- planning.sql - what the planner is told about calls: cost, rows and the order of quals, with no engine asked
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, long text, grp int);
INSERT INTO docs SELECT i, 'b' || i, repeat('x', 1600), i % 5 FROM generate_series(1, 100) i;
ANALYZE docs;
CREATE TEMP TABLE groups (grp int PRIMARY KEY, name text);
INSERT INTO groups SELECT i, 'g' || i FROM generate_series(0, 4) i;
ANALYZE groups;

-- cost per row of an expression over docs, and rows of the topmost node
CREATE FUNCTION cost_of(expression text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	bare json;
	called json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id FROM docs' INTO bare;
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id, ' || expression || ' FROM docs' INTO called;
	RETURN round(((called -> 0 -> 'Plan' ->> 'Total Cost')::numeric - (bare -> 0 -> 'Plan' ->> 'Total Cost')::numeric) / 100, 1);
END
$$;
CREATE FUNCTION rows_of(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END
$$;

SET llm_infer.enable_batch = off;
SELECT requests_of($$EXPLAIN SELECT llm_generate(body), llm_generate_stream(body) FROM docs$$);
-- by length of the answer: argument, key, setting
SELECT cost_of('llm_count_tokens(body)') AS tokens, cost_of('llm_generate(body, max_tokens => 1)') AS one, cost_of('llm_generate(body)') AS usual, cost_of('llm_generate(body, max_tokens => 1000)') AS long;
SELECT cost_of('llm_generate(body, max_tokens => 8)') = cost_of($$llm_generate(body, options => '{"max_tokens": 8}')$$) AS key, cost_of('llm_generate(body, max_tokens => grp)') = cost_of('llm_generate(body)') AS unknown_is_the_setting;
SET llm_infer.max_tokens = 8;
SELECT cost_of('llm_generate(body)') = cost_of('llm_generate(body, max_tokens => 8)') AS setting;
SET llm_infer.max_tokens = -1;
SELECT cost_of('llm_generate(body)') = cost_of('llm_generate(body, max_tokens => 1024)') AS room_left;
RESET llm_infer.max_tokens;
-- by width of the prompt: statistics, constants
SELECT cost_of('llm_count_tokens(long)') - cost_of('llm_count_tokens(body)') AS column, cost_of($$llm_count_tokens(repeat('x', 4000))$$) - cost_of($$llm_count_tokens('x')$$) AS constant;
SELECT cost_of($$llm_generate(body, system_prompt => repeat('x', 400))$$) - cost_of('llm_generate(body)') AS system;
-- by number of answers
SELECT cost_of($$llm_generate(ARRAY[body, 'b'], max_tokens => 100)$$) AS two, cost_of($$llm_generate(ARRAY[body, 'b'], max_tokens => 100, options => '{"n": 3}')$$) AS six, cost_of($$llm_generate('{a,b,c}'::text[], max_tokens => 100)$$) AS three;
SELECT cost_of($$llm_chat('[{"role": "user", "content": "hi"}]', max_tokens => 1)$$) AS chat, cost_of($$llm_generate_result(body, max_tokens => 1)$$) AS result;
-- options that are wrong are the call's error, not the plan's
SELECT cost_of($$llm_generate(body, max_tokens => -5)$$) = cost_of($$llm_generate(body, max_tokens => 1024)$$) AS negative, cost_of($$llm_generate(body, options => '[1]')$$) = cost_of('llm_generate(body)') AS not_an_object,
	cost_of($$llm_generate(body, options => '{"max_tokens": "x", "n": 1e40}')$$) = cost_of('llm_generate(body)') AS not_numbers;

-- a stream's rows
SELECT rows_of($$SELECT * FROM llm_generate_stream('x', max_tokens => 7)$$), rows_of($$SELECT * FROM llm_generate_stream('x')$$), rows_of($$SELECT * FROM llm_generate_stream('x', max_tokens => 0)$$);
SELECT rows_of($$SELECT llm_generate_stream(body, max_tokens => 3) FROM docs$$);

-- cheap quals, then token counts, then short generations, then long ones, whatever the order in which they are written
EXPLAIN (COSTS OFF) SELECT id FROM docs
WHERE llm_generate('a' || body, max_tokens => 200) = 'a' AND llm_generate('b' || body, max_tokens => 2) = 'b' AND llm_count_tokens(body) > 2 AND grp = 1;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE llm_generate(body) = 'a' AND llm_generate('b' || body, options => '{"max_tokens": 2}') = 'b';
RESET llm_infer.enable_batch;
EXPLAIN (COSTS OFF) SELECT id FROM docs
WHERE llm_generate('a' || body, max_tokens => 200) = 'a' AND llm_generate('b' || body, max_tokens => 2) = 'b' AND llm_count_tokens(body) > 2 AND grp = 1;
SELECT requests_of($$SELECT id FROM docs WHERE llm_generate('a' || body, max_tokens => 200) = 'ab7' AND llm_count_tokens(body) = 2 AND grp = 2$$) AS of_2_and_7;
-- a join: the side with the calls is scanned once
SET enable_nestloop = off;
SET llm_infer.enable_pullup = off;
EXPLAIN (COSTS OFF) SELECT d.id, g.name FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body) = 'x' AND g.name = 'g1';

RESET enable_nestloop;
RESET llm_infer.enable_pullup;

-- rows, requests and tokens of each layer, bottom first: what a filter removes is not read above it
CREATE FUNCTION layers_of(query text) RETURNS TABLE (node text, n_rows int, requests int, prompt int, generated int) LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN QUERY SELECT coalesce(p ->> 'Custom Plan Provider', p ->> 'Node Type'), (p ->> 'Plan Rows')::int, (p ->> 'LLM Estimated Requests')::int,
		(p ->> 'LLM Estimated Prompt Tokens')::int, (p ->> 'LLM Estimated Generated Tokens')::int
	FROM jsonb_path_query(plan, 'strict $.**?(exists(@."Node Type"))') WITH ORDINALITY AS n(p, level) ORDER BY level DESC;
END
$$;
SELECT * FROM layers_of($$SELECT llm_generate('c' || body, max_tokens => 8) FROM docs WHERE llm_generate('a' || body, max_tokens => 4) > 'a' AND llm_generate(long, max_tokens => 40) > 'a'$$);
SELECT * FROM layers_of($$SELECT id FROM docs WHERE llm_generate(body) = 'a' AND grp = 1$$);
SELECT * FROM layers_of($$SELECT id, llm_generate(llm_generate(body, max_tokens => 2)), llm_count_tokens(long) FROM docs ORDER BY id LIMIT 10$$);
SELECT * FROM layers_of($$SELECT grp, string_agg(llm_generate(body), ',') FROM docs GROUP BY grp HAVING llm_generate(grp::text) > 'x'$$);
SELECT * FROM layers_of($$SELECT llm_generate(s.body || g.name) FROM (SELECT body, grp FROM docs OFFSET 0) s JOIN groups g USING (grp) WHERE llm_generate(s.body) > 'a'$$);
SELECT * FROM layers_of($$SELECT llm_generate(body) FROM docs UNION ALL SELECT llm_generate(name) FROM groups$$);
SELECT * FROM layers_of($$SELECT id FROM docs WHERE llm_generate(body) = 'a' OR (grp = 2 AND llm_generate(body || 'x') IS NULL)$$);
SELECT * FROM layers_of($$SELECT g.name, d.id FROM groups g JOIN docs d ON d.id = g.grp AND llm_generate(d.body || g.name) = 'x'$$);
SELECT * FROM layers_of($$SELECT g.name, l.x FROM docs g(id, name), LATERAL (SELECT llm_generate(g.name, max_tokens => 1) AS x) l$$);

-- as text; not with COSTS OFF
CREATE FUNCTION estimate_in(explain text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE explain LOOP
		IF line LIKE '%Estimate%' THEN RETURN NEXT trim(line); END IF;
	END LOOP;
END
$$;
SELECT estimate_in('EXPLAIN SELECT llm_generate(body) FROM docs'), estimate_in('EXPLAIN (COSTS OFF) SELECT llm_generate(body) FROM docs') AS off;
SELECT estimate_in('EXPLAIN (ANALYZE) SELECT llm_generate(body, max_tokens => 2) FROM docs WHERE id < 9');

-- costs: a layer costs its calls and more than what is below it, the whole no more than the planner thought
CREATE FUNCTION sane(query text) RETURNS TABLE (layers int, dearer_than_below boolean, per_layer_cost boolean, whole boolean) LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
	bare jsonb;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	PERFORM set_config('llm_infer.enable_batch', 'off', true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO bare;
	PERFORM set_config('llm_infer.enable_batch', 'on', true);
	RETURN QUERY SELECT count(*)::int, bool_and((p ->> 'Total Cost')::numeric > (p #>> '{Plans,0,Total Cost}')::numeric AND (p ->> 'Startup Cost')::numeric <= (p ->> 'Total Cost')::numeric),
		bool_and((p ->> 'Total Cost')::numeric - (p #>> '{Plans,0,Total Cost}')::numeric
			<= (p ->> 'LLM Estimated Requests')::int * 2.5 + ((p ->> 'LLM Estimated Prompt Tokens')::int + 35 * (p ->> 'LLM Estimated Generated Tokens')::int) * 0.0025 + 1),
		(plan #>> '{0,Plan,Total Cost}')::numeric <= (bare #>> '{0,Plan,Total Cost}')::numeric
	FROM jsonb_path_query(plan, 'strict $.**?(exists(@."LLM Calls"))') p;
END
$$;
SELECT (sane(query)).*, query FROM (VALUES
	($$SELECT llm_generate('c' || body) FROM docs WHERE llm_generate('a' || body) > 'a' AND llm_generate(long) > 'a' AND grp = 1$$),
	($$SELECT llm_generate(d.body) FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body || g.name) > 'a'$$),
	($$SELECT sum(llm_count_tokens(body)) FROM docs GROUP BY grp HAVING llm_generate(grp::text) > 'a'$$),
	($$SELECT llm_generate(body) FROM docs UNION ALL SELECT llm_generate(body) FROM docs WHERE llm_generate(body) LIKE '%b%'$$),
	($$SELECT id, x FROM docs, LATERAL (SELECT llm_generate(body) AS x) l WHERE x <> 'a'$$)) q(query);

-- a call may come with an SQL function, or with the function of an operator
CREATE FUNCTION ask(text) RETURNS text LANGUAGE sql AS $$SELECT llm_generate($1)$$;
CREATE OPERATOR ?> (RIGHTARG = text, FUNCTION = ask);
EXPLAIN (COSTS OFF) SELECT ask(body) FROM docs;
EXPLAIN (COSTS OFF) SELECT ?> body FROM docs;
EXPLAIN (COSTS OFF) SELECT n FROM (SELECT ?> name AS n FROM groups OFFSET 0) s WHERE n > $$a$$;
DROP FUNCTION ask(text) CASCADE;
-- columns that each level of forty names twice are looked into so far and no farther
DO $$
DECLARE
	query text := 'SELECT body AS x FROM docs';
BEGIN
	FOR i IN 1..40 LOOP
		query := 'SELECT x || x AS x FROM (' || query || ' OFFSET 0) s';
	END LOOP;
	EXECUTE 'EXPLAIN SELECT llm_generate(x) FROM (' || query || ') s WHERE llm_generate(x) > ''a''';
END
$$;

DROP FUNCTION estimate_in(text);
DROP FUNCTION layers_of(text);
DROP FUNCTION sane(text);
DROP FUNCTION cost_of(text);
DROP FUNCTION rows_of(text);
