-- rows.sql - CPU time per row of backend, engine and supervisor, and rows/s, on the echo device.
-- psql variables: rows, rounds. The time on a CPU is exact, from /proc/PID/task/TID/schedstat; user and
-- system time come in steps of 10 ms. Every prompt is another one, of 20 to 60 bytes.
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

CREATE TABLE processes AS
SELECT 'backend' AS who, pg_backend_pid() AS pid
UNION ALL SELECT 'engine', pid FROM llm.stat_engine
UNION ALL SELECT 'supervisor', pid FROM pg_stat_activity WHERE backend_type = 'llm_infer supervisor';

CREATE TABLE marks (
	number int GENERATED ALWAYS AS IDENTITY, what text, at timestamptz, who text, cpu float8, usr float8,
	sys float8);

-- all in microseconds; fields 14 and 15 of stat, where the name in field 2 may hold spaces
CREATE FUNCTION mark(what text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO marks (what, at, who, cpu, usr, sys)
	SELECT $1, at, who,
		(SELECT sum(split_part(pg_read_file(format('/proc/%s/task/%s/schedstat', pid, tid)), ' ', 1)::float8) / 1000
		 FROM pg_ls_dir(format('/proc/%s/task', pid)) AS tid),
		f[12]::int * 10000, f[13]::int * 10000
	FROM (SELECT clock_timestamp() AS at OFFSET 0) AS now, processes,
		string_to_array(split_part(pg_read_file(format('/proc/%s/stat', pid)), ') ', 2), ' ') AS f
$$;

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

CREATE VIEW rounds AS
SELECT b.what, a.who, a.number, extract(epoch FROM b.at - a.at) AS seconds, (b.cpu - a.cpu) / :rows AS cpu,
	(b.usr - a.usr) / :rows AS usr, (b.sys - a.sys) / :rows AS sys
FROM marks AS a JOIN marks AS b ON b.number = a.number + (SELECT count(*) FROM processes) AND b.who = a.who
WHERE a.what = 'begin';

CREATE FUNCTION us(float8) RETURNS numeric LANGUAGE sql AS 'SELECT $1::numeric(8,1)';

\echo CPU time per row in microseconds, medians
SELECT what, who, us(percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu)) AS cpu,
	us(percentile_cont(0.5) WITHIN GROUP (ORDER BY usr)) AS "user",
	us(percentile_cont(0.5) WITHIN GROUP (ORDER BY sys)) AS sys
FROM rounds JOIN cases USING (what) GROUP BY what, place, who ORDER BY place, who;
\echo Of all processes together, and rows per second, medians
SELECT what, us(percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu)) AS cpu,
	percentile_disc(0.5) WITHIN GROUP (ORDER BY :rows / seconds)::int AS rows_per_s,
	max(:rows / seconds)::int AS most_rows_per_s
FROM (SELECT what, sum(cpu) AS cpu, min(seconds) AS seconds FROM rounds
	  GROUP BY what, (number - 1) / (SELECT count(*) FROM processes)) AS r
	JOIN cases USING (what) GROUP BY what, place ORDER BY place;
