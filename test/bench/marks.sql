-- marks.sql - CPU time per row of backend, engine and supervisor; what rows.sql and enrich.sql start with.
-- psql variable: rows. Between two calls of mark a statement works on so many rows. The time on a CPU is exact,
-- from /proc/PID/task/TID/schedstat; user and system time come in steps of 10 ms.
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

CREATE VIEW rounds AS
SELECT b.what, a.who, a.number, extract(epoch FROM b.at - a.at) AS seconds, (b.cpu - a.cpu) / :rows AS cpu,
	(b.usr - a.usr) / :rows AS usr, (b.sys - a.sys) / :rows AS sys
FROM marks AS a JOIN marks AS b ON b.number = a.number + (SELECT count(*) FROM processes) AND b.who = a.who
WHERE a.what = 'begin';

-- of all processes together
CREATE VIEW sums AS
SELECT what, sum(cpu) AS cpu, min(seconds) AS seconds FROM rounds GROUP BY what, (number - 1) / (SELECT count(*) FROM processes);

CREATE FUNCTION us(float8) RETURNS numeric LANGUAGE sql AS 'SELECT $1::numeric(12,1)';
