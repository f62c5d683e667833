-- enrich.sql - CALL llm_enrich beside one UPDATE through the node, and from the memo: CPU time per row and rows/s, in turns.
-- psql variables: rows, rounds, path (of the model), tokens (of an answer), prefix (of the prompts).
\set ON_ERROR_STOP on
\pset footer off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS llm_infer;
SELECT llm_model_register('bench', :'path') \g /dev/null
SELECT llm_generate('warm', max_tokens => 1) \g /dev/null

-- every round asks otherwise, so that it does not find its prompts computed
CREATE TABLE docs AS SELECT i AS id, format('row %s says %s', i, repeat('x', i % 41)) AS body, NULL::text AS a FROM generate_series(1, :rows) AS i;
ALTER TABLE docs ADD PRIMARY KEY (id);
VACUUM ANALYZE docs;

\ir marks.sql

CREATE TABLE cases (place int, what text, memo text, query text);
INSERT INTO cases VALUES
	(1, 'UPDATE', 'off', $$UPDATE docs SET a = llm_generate('Run %s.%s' || body, max_tokens => %s, temperature => 0)$$),
	(2, 'CALL llm_enrich', 'off', $$CALL llm_enrich('docs', 'a', prompt => 'Run %s.%s{body}', max_tokens => %s, temperature => 0)$$),
	(3, 'the same, from the memo', 'on', $$CALL llm_enrich('docs', 'a', prompt => 'Run 000%2$s{body}', max_tokens => %3$s, temperature => 0)$$);

\o /dev/null
SET llm_infer.memo = on;
SELECT format(query, 0, :'prefix', :tokens) FROM cases WHERE memo = 'on' \gexec
SELECT pg_sleep(3); -- until it is in the table
SELECT 'UPDATE docs SET a = NULL', 'VACUUM docs', 'CHECKPOINT', format('SET llm_infer.memo = %s', memo), 'SELECT mark(''begin'')',
	format(query, 100 + 3 * round + place, :'prefix', :tokens), format('SELECT mark(%L)', what)
FROM cases, generate_series(1, :rounds) AS round
ORDER BY round, place * (-1) ^ round \gexec
\o

\echo CPU time per row in microseconds, medians
SELECT what, who, us(percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu)) AS cpu, us(min(cpu)) AS least, us(max(cpu)) AS most
FROM rounds JOIN cases USING (what) GROUP BY what, place, who ORDER BY place, who;
\echo Of all processes together, and rows per second, medians
SELECT what, us(percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu)) AS cpu,
	percentile_cont(0.5) WITHIN GROUP (ORDER BY :rows / seconds)::numeric(10,1) AS rows_per_s,
	us(percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds * 1e6 / :rows)) AS us_per_row
FROM sums JOIN cases USING (what) GROUP BY what, place ORDER BY place;
SELECT entries, hits, misses, lost FROM llm.stat_memo;
\echo CPU time of CALL beside that of UPDATE, of all processes, per cent
SELECT (100 * (percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu) FILTER (WHERE what = 'CALL llm_enrich')
	/ percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu) FILTER (WHERE what = 'UPDATE') - 1))::numeric(6,1) AS more,
	(SELECT count(*) FROM docs WHERE a IS NULL) AS not_done
FROM sums;
