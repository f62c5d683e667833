-- node_plain_scalar.sql - aggregates, joins, single rows
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE TEMP TABLE docs (id int PRIMARY KEY, body text, grp int);
INSERT INTO docs SELECT i, 'b' || i, i % 3 FROM generate_series(1, 30) i;
CREATE TEMP TABLE groups (grp int PRIMARY KEY, name text);
INSERT INTO groups SELECT i, 'g' || i FROM generate_series(0, 3) i;
ANALYZE docs;
ANALYZE groups;

-- aggregates
SELECT string_agg(llm_generate(body), ',' ORDER BY id) FROM docs WHERE id <= 4;
SELECT grp, count(llm_generate(NULLIF(body, 'b3'))), max(length(llm_generate(body))) FROM docs GROUP BY grp ORDER BY grp;
SELECT llm_generate(string_agg(body, ' ' ORDER BY id)) FROM docs WHERE id <= 4;
SELECT grp, llm_generate('sum ' || sum(id)) FROM docs GROUP BY grp ORDER BY grp;
SELECT grp FROM docs GROUP BY grp HAVING llm_generate(min(body)) = 'b1';
SELECT count(*) FILTER (WHERE llm_generate(body) LIKE '%1') FROM docs;
SELECT array_agg(DISTINCT llm_generate('d' || grp)) FROM docs;
SELECT grp, llm_generate('cube ' || count(*)) FROM docs GROUP BY ROLLUP (grp) ORDER BY grp;
SELECT requests_of($$SELECT string_agg(llm_generate(body), ',') FROM docs$$);
SELECT id, first_value(llm_generate(body)) OVER (PARTITION BY grp ORDER BY id) FROM docs WHERE id <= 4 ORDER BY id;
-- the same, written out
SELECT explain_of($$SELECT string_agg(g, ',') FROM (SELECT llm_generate(body) g FROM docs OFFSET 0) s$$);

-- joins
SELECT d.id, llm_generate(d.body || g.name) FROM docs d JOIN groups g USING (grp) WHERE d.id <= 3 ORDER BY d.id;
SELECT d.id FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body || g.name) = 'b4g1';
SELECT d.id, g.name FROM docs d JOIN groups g ON llm_generate(g.name) = 'g' || d.grp WHERE d.id <= 3 ORDER BY d.id, g.name;
SELECT g.grp, d.id FROM groups g LEFT JOIN docs d ON d.grp = g.grp AND llm_generate(d.body) = 'b2' ORDER BY g.grp;
SELECT g.grp, llm_generate(d.body) FROM groups g LEFT JOIN docs d ON d.grp = g.grp AND d.id <= 3 ORDER BY g.grp;
SELECT d.id FROM docs d LEFT JOIN groups g ON g.grp = d.grp + 3 WHERE llm_generate(g.name) IS NULL ORDER BY d.id LIMIT 3;
SELECT a.id, b.id FROM docs a JOIN docs b ON llm_generate(a.body) = b.body AND b.id <= 2;
SELECT d.id FROM docs d WHERE NOT EXISTS (SELECT 1 FROM groups g WHERE g.grp = d.grp AND g.grp < 2) AND llm_generate(d.body) < 'b2' ORDER BY 1;
-- a filter of one side goes below the join and is batched there
SELECT line FROM explain_of($$SELECT d.id FROM docs d JOIN groups g USING (grp) WHERE llm_generate(d.body) = 'b4'$$) line
WHERE line NOT LIKE '% Cond%' AND line NOT LIKE '%Join Filter%';
-- ... unless that side is asked again and again
SELECT d.id, llm_generate(x.name) FROM docs d CROSS JOIN LATERAL (SELECT name FROM groups g WHERE g.grp = d.grp AND llm_generate(g.name) <> '' LIMIT 1) x WHERE d.id <= 2 ORDER BY 1;

-- single rows
SELECT llm_generate('one'), llm_generate(llm_generate('two'));
VALUES (llm_generate('a'), llm_generate('b')), ('c', llm_generate('d'));
SELECT * FROM llm_generate('from'), llm_generate('clause') WITH ORDINALITY AS t(g, n);
SELECT (llm_generate_result('x')).finish_reason;
SELECT llm_generate('x') WHERE llm_generate('y') = 'y';
SELECT llm_generate('x') WHERE llm_generate('y') = 'z';
EXPLAIN (COSTS OFF) SELECT llm_generate('x') WHERE llm_generate('y') = 'y';
SELECT id FROM docs WHERE body = (SELECT llm_generate('b7'));
SELECT requests_of($$SELECT id FROM docs WHERE body = (SELECT llm_generate('b7'))$$) AS once,
	requests_of($$SELECT id FROM docs WHERE body = llm_generate('b7')$$) AS per_row;
SELECT id FROM docs WHERE id = length(llm_generate('1234567'));
SELECT id FROM docs ORDER BY llm_generate(body) DESC LIMIT 2;
SELECT id FROM docs LIMIT length(llm_generate('12')) OFFSET length(llm_generate('1'));
DO $$
BEGIN
	IF llm_generate('yes') = 'yes' THEN
		RAISE WARNING 'said %', llm_generate('yes');
	END IF;
END
$$;
