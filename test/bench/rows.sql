-- rows.sql - CPU time per row of backend, engine and supervisor, and rows/s, on the echo device.
-- psql variables: rows, rounds. Every prompt is another one, of 20 to 60 bytes.
\set ON_ERROR_STOP on
\pset footer off
SET client_min_messages = warning;
SET max_parallel_workers_per_gather = 0;
CREATE EXTENSION IF NOT EXISTS llm_infer;
SELECT llm_model_register('echo', 'echo:') \g /dev/null
SELECT llm_generate('warm') \g /dev/null

CREATE TABLE bodies AS
SELECT i AS id, format('row %s says %s', i, repeat('x', i % 41)) AS body
FROM generate_series(1, :rows) AS i;
VACUUM ANALYZE bodies;

\ir marks.sql

CREATE TABLE cases (place int, what text, distinct_on text, query text);
INSERT INTO cases VALUES
	(1, 'one token, counted', 'off',
	 'SELECT count(llm_generate(body, max_tokens => 1, temperature => 0)) FROM bodies'),
	(2, 'one token, counted, enable_distinct', 'on',
	 'SELECT count(llm_generate(body, max_tokens => 1, temperature => 0)) FROM bodies'),
	(3, 'one token, returned', 'off',
	 'SELECT llm_generate(body, max_tokens => 1, temperature => 0) FROM bodies'),
	(4, 'whole prompt said again, counted', 'off',
	 'SELECT count(llm_generate(body, temperature => 0)) FROM bodies');

\o /dev/null
SELECT format('SET llm_infer.enable_distinct = %s', distinct_on), 'SELECT mark(''begin'')', query,
	format('SELECT mark(%L)', what)
FROM cases, generate_series(1, :rounds) AS round
ORDER BY round, place \gexec
\o

\echo CPU time per row in microseconds, medians
SELECT what, who, us(percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu)) AS cpu,
	us(percentile_cont(0.5) WITHIN GROUP (ORDER BY usr)) AS "user",
	us(percentile_cont(0.5) WITHIN GROUP (ORDER BY sys)) AS sys
FROM rounds JOIN cases USING (what) GROUP BY what, place, who ORDER BY place, who;
\echo Of all processes together, and rows per second, medians
SELECT what, us(percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu)) AS cpu,
	percentile_disc(0.5) WITHIN GROUP (ORDER BY :rows / seconds)::int AS rows_per_s,
	max(:rows / seconds)::int AS most_rows_per_s
FROM sums JOIN cases USING (what) GROUP BY what, place ORDER BY place;
