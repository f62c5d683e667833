-- node_nested.sql - calls in calls, beside calls, and below what may not be evaluated
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, label text);
INSERT INTO docs SELECT i, 'b' || i, CASE WHEN i % 2 = 0 THEN 'known' || i END FROM generate_series(1, 40) i;
ANALYZE docs;

SELECT explain_of($$SELECT llm_generate(llm_generate(body)) FROM docs$$);
SELECT llm_generate('3' || llm_generate('2' || llm_generate('1' || body))) FROM docs WHERE id <= 2;
SELECT explain_of($$SELECT llm_generate('3' || llm_generate('2' || llm_generate('1' || body))) FROM docs$$);
SELECT explain_of($$SELECT llm_generate(llm_generate(body)), llm_generate(body || 'x'), body FROM docs$$);
SELECT llm_generate(llm_generate(body)), llm_generate(body || 'x'), body FROM docs WHERE id <= 2;
SELECT llm_generate(body, system_prompt => llm_generate('s' || id), max_tokens => length(llm_generate('ab'))) FROM docs WHERE id IN (10, 20);
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(llm_generate(body)) = 'b3'$$);
SELECT id FROM docs WHERE llm_generate(llm_generate(body)) = 'b3';
SELECT llm_detokenize(llm_tokenize(llm_generate(body))), llm_count_tokens(llm_generate(body)) FROM docs WHERE id = 12;
SELECT llm_generate(ARRAY[llm_generate(body), llm_generate('x')]) FROM docs WHERE id = 1;

-- equal calls are calls of their own: each row and call has its own noise
SELECT bool_or(a = b) AS some_equal, count(DISTINCT a) AS rows FROM (SELECT llm_generate('@seed') a, llm_generate('@seed') b FROM docs OFFSET 0) s;
SELECT explain_of($$SELECT llm_generate(body), llm_generate(body) FROM docs$$);
-- so are volatile arguments
SELECT bool_or(a = b) AS some_equal FROM (SELECT llm_generate(random()::text) a, llm_generate(random()::text) b FROM docs OFFSET 0) s;
SELECT bool_or(a = b) AS some_equal, bool_or(a = c) FROM (SELECT random()::text a, llm_generate(random()::text) b, llm_generate(llm_generate(random()::text)) c FROM docs OFFSET 0) s;
CREATE TEMP SEQUENCE seq;
SELECT count(DISTINCT g), min(g::int), max(g::int) FROM (SELECT llm_generate(nextval('seq')::text) g FROM docs OFFSET 0) s;
SELECT id, llm_generate(nextval('seq')::text) FROM docs WHERE id <= 2 ORDER BY id;

-- guarded calls are made for the rows that reach them, and no others
SELECT id, CASE WHEN id = 3 THEN llm_generate(body) ELSE 'no' END FROM docs WHERE id <= 4;
SELECT requests_of($$SELECT CASE WHEN id <= 7 THEN llm_generate(body) END FROM docs$$);
SELECT requests_of($$SELECT coalesce(label, llm_generate(body)) FROM docs$$);
SELECT string_agg(coalesce(label, llm_generate(body)), ' ' ORDER BY id) FROM docs WHERE id <= 6;
SELECT requests_of($$SELECT id > 30 OR llm_generate(body) = 'b1', id > 30 AND llm_generate(body) = 'b31' FROM docs$$);
SELECT requests_of($$SELECT CASE WHEN id < 0 THEN llm_generate('@error=no') END FROM docs$$);
SELECT requests_of($$SELECT NULLIF(llm_generate(body), 'b1'), greatest(llm_generate(body), 'b') FROM docs WHERE id <= 3$$);
-- a guarded one beside a free one
SELECT explain_of($$SELECT llm_generate(body), CASE WHEN id <= 3 THEN llm_generate('c' || body) END FROM docs$$);
SELECT id, llm_generate(body), CASE WHEN id <= 1 THEN llm_generate('c' || body) END FROM docs WHERE id <= 2;
-- a guarded one as an argument of a free one
SELECT id, llm_generate(coalesce(label, llm_generate(body))) FROM docs WHERE id <= 2;
SELECT requests_of($$SELECT llm_generate(coalesce(label, llm_generate(body))) FROM docs$$);
-- a free one below a guard
SELECT id, coalesce(NULLIF(llm_generate(body), 'b1'), 'was b1') FROM docs WHERE id <= 2;

-- sub-selects as arguments
SELECT id, llm_generate((SELECT 'sub ' || d.body)) FROM docs d WHERE id <= 2;
SELECT id, llm_generate((SELECT max(x.body) FROM docs x WHERE x.id <= d.id)) FROM docs d WHERE id <= 2;
SELECT id, llm_generate(body || (SELECT count(*) FROM docs)) FROM docs WHERE id <= 2;
SELECT explain_of($$SELECT id, llm_generate(body || (SELECT count(*) FROM docs)) FROM docs WHERE id <= 2$$);
SELECT id, llm_generate(ARRAY(SELECT x.body FROM docs x WHERE x.id <= d.id ORDER BY id)) FROM docs d WHERE id <= 2;
-- in ROW, ARRAY, IS NULL, casts
SELECT ROW(id, llm_generate(body)), ARRAY[llm_generate(body), 'x'], llm_generate(body) IS NOT NULL, llm_generate(id::text)::int + 1 FROM docs WHERE id <= 2;
CREATE DOMAIN short AS text CHECK (length(VALUE) < 3);
SELECT llm_generate(body)::short FROM docs WHERE id = 9;
SELECT llm_generate(body)::short FROM docs WHERE id = 10;
DROP DOMAIN short;
SELECT format('%s-%s', llm_generate(body), id), llm_generate(body) COLLATE "C" < 'b2' FROM docs WHERE id <= 2;
