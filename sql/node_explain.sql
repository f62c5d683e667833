-- node_explain.sql - what EXPLAIN shows
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text);
INSERT INTO docs SELECT i, 'b' || i FROM generate_series(1, 20) i;
ANALYZE docs;

-- without ANALYZE nothing is asked
EXPLAIN (COSTS OFF) SELECT id, llm_generate('Classify: ' || body, max_tokens => 8) FROM docs WHERE llm_generate('Spam? ' || body) = 'no' AND id < 100;
EXPLAIN (COSTS OFF, VERBOSE) SELECT id, llm_generate('Classify: ' || body, max_tokens => 8) FROM docs WHERE llm_generate('Spam? ' || body) = 'no' AND id < 100;
SELECT requests_of($$EXPLAIN SELECT llm_generate(body) FROM docs WHERE llm_generate(body) = 'x'$$);
SELECT requests_of($$EXPLAIN SELECT id FROM docs WHERE body = llm_generate('const')$$);
EXPLAIN (COSTS OFF) SELECT llm_generate(body, 'no such model') FROM docs;

-- with it: counts; tokens of the echo are bytes
SELECT explain_of($$SELECT id, llm_generate(body, max_tokens => 2) FROM docs WHERE id <= 9$$, true);
SELECT explain_of($$SELECT llm_generate(NULLIF(body, body)) FROM docs$$, true);
SELECT explain_of($$SELECT llm_generate(body) FROM docs WHERE id < 0$$, true);
SELECT explain_of($$SELECT llm_generate(body, model => 'echo', options => '{"seed": 1}') FROM docs WHERE id = 1$$, true);

-- times, where they are wanted
CREATE FUNCTION timed(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS OFF, COSTS OFF, SUMMARY OFF) ' || query LOOP
		line := regexp_replace(line, 'Peak In Flight: \d+', 'Peak In Flight: N');
		line := regexp_replace(line, ' cached=\d+', ' cached=N');
		line := regexp_replace(line, '(rows=\d+)\.00', '\1');
		RETURN NEXT regexp_replace(line, '\d+\.\d+', 'N', 'g');
	END LOOP;
END
$$;
SELECT timed($$SELECT id, llm_generate(body) FROM docs$$);
DROP FUNCTION timed(text);

-- other formats
CREATE FUNCTION formatted(form text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	doc text;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT %s) %s', form, query) INTO doc;
	RETURN doc;
END
$$;
SELECT key, value FROM jsonb_each(jsonb_path_query_first(formatted('json', $$SELECT llm_generate(body), llm_count_tokens(body) FROM docs$$)::jsonb, '$[0].Plan'))
WHERE key LIKE '%LLM%' AND key NOT IN ('LLM Peak In Flight', 'LLM Cached Tokens') OR key LIKE 'Custom%' ORDER BY key COLLATE "C";
SELECT jsonb_path_exists(doc, '$[0].Plan."LLM Queue Wait"'), jsonb_path_exists(doc, '$[0].Plan."LLM First Token"')
FROM (SELECT formatted('json, TIMING ON', $$SELECT llm_generate(body) FROM docs$$)::jsonb doc) s;
SELECT line FROM regexp_split_to_table(formatted('xml', $$SELECT llm_generate(body) FROM docs$$), E'\n') line WHERE line LIKE '%LLM-%' AND line !~ 'Peak|Cached';
SELECT line FROM regexp_split_to_table(formatted('yaml', $$SELECT llm_generate(body) FROM docs$$), E'\n') line WHERE line LIKE '%LLM%' AND line !~ 'Peak|Cached';
SELECT formatted('json, VERBOSE', $$SELECT llm_generate(body) FROM docs$$) LIKE '%"LLM Numerics Key": "%' AS numerics_key;
DROP FUNCTION formatted(text, text);

-- calls are shown as they could be written
EXPLAIN (COSTS OFF) SELECT llm_generate(body, 'echo', 'sys', 5, 0.5, 42, ARRAY['x'], NULL, 'null', '{"top_k": 1}') FROM docs;
EXPLAIN (COSTS OFF) SELECT llm_generate(ARRAY[body], seed => id) FROM docs;
EXPLAIN (COSTS OFF) SELECT llm_generate_result(body), llm_tokenize(body, 'echo'), llm_detokenize(ARRAY[id]), llm_count_tokens(body) FROM docs;
EXPLAIN (COSTS OFF) SELECT d.id, llm_generate(d.body) FROM docs d ORDER BY d.body;
SET llm_infer.enable_batch = off;
EXPLAIN (COSTS OFF) SELECT id, llm_generate(body) FROM docs WHERE llm_generate(body) = 'x';
RESET llm_infer.enable_batch;

-- every format, every option on and off
CREATE FUNCTION requests_shown(form text, options text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	doc text := '';
	line text;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (ANALYZE, FORMAT %s, %s) SELECT id, upper(llm_generate(body)) FROM docs WHERE llm_generate(%L || body) LIKE %L', form, options, 'x', 'x%1') LOOP
		doc := doc || line || E'\n';
	END LOOP;
	RETURN QUERY SELECT m[1] FROM regexp_matches(doc, '(?:LLM[- ]|   )Requests(?:>|": |: )(\d+)', 'g') m;
	IF form = 'json' AND (doc::json->0->'Plan'->'Plans'->0->>'LLM Requests')::int <> 20 THEN
		RAISE EXCEPTION '%', doc;
	END IF;
END
$$;
SELECT form, setting, ARRAY(SELECT requests_shown(form, format('TIMING %1$s, BUFFERS %1$s, WAL %1$s, SETTINGS %1$s, VERBOSE %1$s, SUMMARY %1$s, COSTS %1$s', setting)))
FROM unnest(ARRAY['text', 'json', 'xml', 'yaml']) form, unnest(ARRAY['on', 'off']) setting;
DROP FUNCTION requests_shown(text, text);

-- expressions that are compiled, where the server can
SET jit = on; SET jit_above_cost = 0; SET jit_inline_above_cost = 0; SET jit_optimize_above_cost = 0;
SELECT both_ways($$SELECT id, upper(llm_generate(body)) || llm_generate(body, max_tokens => 1) FROM docs WHERE llm_generate('x' || body) LIKE 'x%1' ORDER BY id$$);
SELECT both_ways($$SELECT id % 3, string_agg(llm_generate(body), ',' ORDER BY id), count(*) FILTER (WHERE llm_count_tokens(body) > 5) FROM docs GROUP BY 1 HAVING llm_generate(max(body)) > 'b' ORDER BY 1$$);
SELECT both_ways($$SELECT a.id, CASE WHEN a.id < 9 THEN llm_generate(a.body || b.id) ELSE b.body END FROM docs a JOIN docs b ON a.id = b.id + 1 AND llm_generate(a.body) <> b.body ORDER BY 1$$);
RESET jit; RESET jit_above_cost; RESET jit_inline_above_cost; RESET jit_optimize_above_cost;
SELECT engine_idle();
