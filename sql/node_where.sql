-- node_where.sql - LLM Batch in WHERE: one filter per qual, in their order, nothing for rows that are out
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int, body text, grp int);
INSERT INTO docs SELECT i, 'b' || i, i % 5 FROM generate_series(1, 100) i;
ANALYZE docs;

-- cheap quals first and below
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(body) LIKE 'b1%' AND grp = 1$$, true);
SELECT id FROM docs WHERE llm_generate(body) LIKE 'b1%' AND grp = 1 ORDER BY id;

-- an index is used as ever
CREATE TEMP TABLE indexed (id int PRIMARY KEY, body text);
INSERT INTO indexed SELECT i, 'b' || i FROM generate_series(1, 1000) i;
ANALYZE indexed;
EXPLAIN (COSTS OFF) SELECT llm_generate(body) FROM indexed WHERE llm_generate(body) = 'b7' AND id = 7;
SELECT llm_generate(body) FROM indexed WHERE llm_generate(body) = 'b7' AND id = 7;

-- two calls: two filters, the second only for rows that pass the first
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(body) LIKE 'b1%' AND llm_generate(body || 'x') LIKE '%5x'$$);
SELECT id FROM docs WHERE llm_generate(body) LIKE 'b1%' AND llm_generate(body || 'x') LIKE '%5x';
-- one qual with two calls: one filter
SELECT explain_of($$SELECT id FROM docs WHERE llm_generate(body) = llm_generate('b' || id) AND id < 4$$);

-- the SELECT list runs for rows that passed, and only for them
SELECT explain_of($$SELECT id, llm_generate(body) FROM docs WHERE llm_generate(body) = 'b7'$$);
CREATE TEMP TABLE mixed (id int, body text);
INSERT INTO mixed VALUES (1, '10'), (2, 'ten'), (3, '30'), (4, NULL);
SELECT id, body::int FROM mixed WHERE llm_generate(body) <> 'ten';
SELECT id, body::int + 1, llm_generate('n' || body::int) FROM mixed WHERE llm_generate(body) <> 'ten';
SELECT id, body::int FROM mixed WHERE llm_generate(body) <> 'ten' AND llm_generate((body::int + 1)::text) = '31';
SELECT id, 10 / (id - 2) AS q FROM mixed WHERE llm_generate(body) <> 'ten';
SELECT error_of($$SELECT id, body::int FROM mixed WHERE llm_generate(body) <> 'x'$$);
SELECT sum(body::int) FROM mixed WHERE llm_generate(body) <> 'ten';
-- NULL answers do not pass
SELECT id FROM mixed WHERE llm_generate(body) IS NULL;
SELECT id FROM mixed WHERE NOT (llm_generate(body) = 'ten');

-- an error of a row that a qual removes is not raised; of one that a qual reaches, it is
SELECT id FROM docs WHERE grp = 1 AND llm_generate(CASE WHEN grp = 1 THEN body ELSE '@error=no' END) = 'b1';
SELECT error_of($$SELECT id FROM docs WHERE llm_generate(CASE WHEN id = 50 THEN '@error=no' ELSE body END) = 'b1'$$);
SELECT id FROM docs WHERE llm_generate(CASE WHEN id = 50 THEN '@error=no' ELSE body END) = 'b1' LIMIT 1;

-- guarded calls stay guarded
SELECT explain_of($$SELECT id FROM docs WHERE grp <> 1 OR llm_generate(body) = 'b1'$$);
SELECT requests_of($$SELECT id FROM docs WHERE grp <> 1 OR llm_generate(body) = 'b1'$$);
SELECT requests_of($$SELECT id FROM docs WHERE CASE WHEN grp = 2 THEN llm_generate(body) = 'b2' END$$);
SELECT explain_of($$SELECT id FROM docs WHERE (grp = 2 OR llm_generate(body) = 'b1') AND llm_generate('y' || body) = 'yb2'$$);

-- security: quals of a barrier view and of row security stay below
CREATE TEMP VIEW barrier WITH (security_barrier) AS SELECT * FROM docs WHERE grp = 1;
EXPLAIN (COSTS OFF) SELECT id FROM barrier WHERE llm_generate(body) = 'b6';
CREATE ROLE regress_llm_reader;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_reader;
CREATE TABLE secrets (id int, owner text, body text);
INSERT INTO secrets VALUES (1, 'regress_llm_reader', 'mine'), (2, 'other', 'secret');
ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON secrets USING (owner = current_user);
GRANT SELECT ON secrets TO regress_llm_reader;
SET ROLE regress_llm_reader;
EXPLAIN (COSTS OFF) SELECT id, llm_generate(body) FROM secrets WHERE llm_generate(body) <> '';
SELECT id, llm_generate(body) FROM secrets WHERE llm_generate(body) <> '';
SELECT requests_of($$SELECT id, llm_generate(body) FROM secrets WHERE llm_generate(body) <> ''$$) IS NULL AS hidden_counter;
RESET ROLE;
-- a policy that calls the model
CREATE POLICY by_model ON secrets AS RESTRICTIVE USING (llm_generate(body) = 'mine');
SET ROLE regress_llm_reader;
SELECT id FROM secrets;
RESET ROLE;
DROP TABLE secrets;
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_llm_reader;
DROP ROLE regress_llm_reader;

-- EXISTS, IN, row comparison, subscripts
SELECT EXISTS (SELECT 1 FROM docs WHERE llm_generate(body) = 'b3'), EXISTS (SELECT 1 FROM docs WHERE llm_generate(body) = 'none');
SELECT id FROM docs WHERE llm_generate(body) IN ('b3', 'b5') ORDER BY id;
SELECT id FROM docs WHERE id IN (SELECT id FROM docs WHERE llm_generate(body) = 'b3');
SELECT requests_of($$SELECT id FROM docs WHERE (grp, llm_generate(body)) > (3, 'b9')$$) AS where_grp_is_3;
SELECT requests_of($$SELECT (NULL::text[])[llm_count_tokens(body)] FROM docs WHERE id < 4$$) AS of_null;
SELECT explain_of($$SELECT id FROM docs WHERE llm_count_tokens(body) > 3$$);
