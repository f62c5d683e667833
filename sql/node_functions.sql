-- node_functions.sql - every function of ours in the commonest places
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TABLE docs (id int PRIMARY KEY, body text, note text);
INSERT INTO docs SELECT i, CASE WHEN i % 10 > 0 THEN 'b' || i END FROM generate_series(1, 30) i;
ANALYZE docs;

-- a call, and a text of its answer
CREATE TEMP TABLE calls (n serial, batched boolean, call text);
INSERT INTO calls (batched, call) VALUES
	(true, 'llm_generate(d.body)'),
	(true, 'llm_generate(ARRAY[d.body, NULL, ''x''])::text'),
	(true, '(llm_generate_result(d.body)).text'),
	(true, '(llm_generate_result(d.body, max_tokens => 2)).finish_reason'),
	(true, 'llm_chat((''[{"role": "user", "content": "'' || d.body || ''"}]'')::jsonb) ->> ''content'''),
	(true, 'llm_tokenize(d.body)::text'),
	(true, 'llm_detokenize(llm_tokenize(d.body))'),
	(true, 'llm_count_tokens(d.body)::text'),
	(false, '(SELECT string_agg(s, '''') FROM llm_generate_stream(d.body) s)');
CREATE TEMP TABLE places (place text, query text, wrote text);
INSERT INTO places VALUES
	('list', 'SELECT id, %s FROM docs d ORDER BY id', NULL),
	('list and limit', 'SELECT id, %s FROM docs d ORDER BY id LIMIT 3', NULL),
	('where', 'SELECT id FROM docs d WHERE %s > ''4'' ORDER BY id', NULL),
	('case', 'SELECT id, CASE WHEN id < 9 THEN %s END FROM docs d ORDER BY id', NULL),
	('group by', 'SELECT %s, count(*) FROM docs d GROUP BY 1 ORDER BY 1', NULL),
	('aggregate', 'SELECT max(%s), count(DISTINCT %1$s) FROM docs d', NULL),
	('having', 'SELECT body FROM docs d GROUP BY d.body HAVING %s > ''4'' ORDER BY 1', NULL),
	('order by', 'SELECT id FROM docs d ORDER BY %s NULLS FIRST, id', NULL),
	('window', 'SELECT id, rank() OVER (ORDER BY %s), max(%1$s) OVER (PARTITION BY id %% 3) FROM docs d ORDER BY id', NULL),
	('join', 'SELECT d.id, %s FROM docs d JOIN docs e ON e.id = d.id + 20 ORDER BY 1', NULL),
	('lateral', 'SELECT d.id, x FROM docs d, LATERAL (SELECT %s AS x) s ORDER BY 1', NULL),
	('sub-select', 'SELECT id, (SELECT max(%s) FROM docs d WHERE d.id < e.id) FROM docs e WHERE id < 5 ORDER BY 1', NULL),
	('set', 'SELECT id, unnest(ARRAY[%s, ''x'']) FROM docs d ORDER BY 1, 2', NULL),
	('insert', 'INSERT INTO docs SELECT id + 100, body, %s FROM docs d', 'SELECT * FROM docs ORDER BY id'),
	('update', 'UPDATE docs d SET note = %s WHERE %1$s > ''4''', 'SELECT * FROM docs ORDER BY id'),
	('delete', 'DELETE FROM docs d WHERE %s > ''4''', 'SELECT * FROM docs ORDER BY id');
-- every pair: the same rows, no more requests, and a node for all but streams
SELECT p.place, count(*) AS calls, bool_and(w.same) AS same, bool_and(w.batched > 0) AS some, bool_and(w.batched <= w.row_by_row) AS no_more, count(*) FILTER (WHERE w.nodes > 0) AS by_nodes,
	string_agg(c.n::text, ' ' ORDER BY c.n) FILTER (WHERE c.batched <> (w.nodes > 0)) AS unexpected, sum(w.batched) AS requests
FROM calls c, places p, LATERAL both_ways(format(p.query, c.call), p.wrote) w GROUP BY p.place ORDER BY p.place;
SELECT engine_idle();
DROP TABLE docs;
