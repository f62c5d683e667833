-- jobs.sql - llm_job_submit and what becomes of a job
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE ROLE regress_llm_jobs LOGIN;
CREATE ROLE regress_llm_other LOGIN;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_jobs;

-- a job is done after COMMIT
SELECT llm_job_submit('hello') AS id \gset
SELECT llm_job_wait(:id), llm_job_status(:id), (llm_job_result(:id)).text;
SELECT (r).text, (r).finish_reason, (r).completion_tokens, (r).model, (r).error FROM llm_job_result(:id) r;
SELECT owner, state, model, priority, attempts, max_attempts, not_before, finished > started AND started > submitted AS times, sqlstate, message
FROM llm.jobs WHERE id = :id;
-- many, in order; NULL is no job
SELECT count(id), count(*), bool_and(id > before) AS ordered FROM
	(SELECT id, lag(id, 1, 0::bigint) OVER () AS before FROM llm_job_submit(ARRAY['a', 'b', 'c']) id) s;
SELECT id IS NULL AS none FROM llm_job_submit(ARRAY['d', NULL, 'e']) WITH ORDINALITY AS s (id, n) ORDER BY n;
SELECT DISTINCT llm_job_wait(id) FROM llm.jobs;
SELECT string_agg((llm_job_result(id)).text, ' ' ORDER BY id) FROM llm.jobs WHERE id > :id;
SELECT llm_job_submit(NULL::text), (SELECT count(*) FROM llm_job_submit(NULL::text[])), (SELECT count(*) FROM llm_job_submit('{}'::text[]));

-- gone with ROLLBACK, also of a part
BEGIN;
SELECT llm_job_submit('kept') AS kept \gset
SAVEPOINT s;
SELECT llm_job_submit('gone') AS gone \gset
SELECT llm_job_status(:kept), llm_job_status(:gone), llm_job_result(:kept);
ROLLBACK TO s;
-- what waits for itself is told
SELECT error_of('SELECT llm_job_wait(' || :kept || ')');
COMMIT;
SELECT llm_job_wait(:kept), error_of('SELECT llm_job_status(' || :gone || ')');
SELECT error_of('SELECT llm_job_result(0)'), error_of('SELECT llm_job_cancel(-1)');
SELECT llm_job_status(NULL), llm_job_wait(NULL);

-- waiting sees the end in a transaction whose snapshot is older; a cancel too
SELECT llm_job_submit('@slow=50 repeatable') AS id \gset
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT state IN ('queued', 'running') AS open FROM llm.jobs WHERE id = :id;
SELECT llm_job_wait(:id), llm_job_status(:id);
SELECT state IN ('queued', 'running') AS open FROM llm.jobs WHERE id = :id;
COMMIT;
SELECT llm_job_submit('@slow=50 serializable') AS id \gset
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) > 0 AS some FROM llm.jobs;
SELECT llm_job_wait(:id), (llm_job_result(:id)).text, llm_job_submit('within') > :id AS later, llm_job_cancel(:id);
COMMIT;
SELECT llm_job_wait(:id + 1);
SELECT llm_job_wait(:id, '0 s'), llm_job_wait(:id, '-1 s');

-- the settings are those at submission; a seed is drawn then
SET llm_infer.max_tokens = 3;
SELECT llm_job_submit('abcdef') AS three, llm_job_submit('abcdef', max_tokens => 4) AS four, llm_job_submit('@seed', seed => 7, max_tokens => 9) AS seed \gset
RESET llm_infer.max_tokens;
SELECT llm_job_wait(:three), llm_job_wait(:four), llm_job_wait(:seed), (llm_job_result(:three)).text, (llm_job_result(:three)).finish_reason, (llm_job_result(:four)).text, (llm_job_result(:seed)).text;

-- what llm_generate refuses is refused at once
SELECT error_of(q) FROM unnest(ARRAY[$$SELECT llm_job_submit('x', model => 'none')$$, $$SELECT llm_job_submit('x', temperature => -2)$$,
	$$SELECT llm_job_submit('x', options => '{"colour": 1}')$$, $$SELECT llm_job_submit('x', options => '[]')$$,
	$$SELECT llm_job_submit('x', options => '{"n": 2}')$$, $$SELECT llm_job_submit('x', options => '{"priority": 1}')$$,
	$$SELECT llm_job_submit('x', options => '{"max_attempts": 0}')$$, $$SELECT llm_job_submit('x', options => '{"max_attempts": "2"}')$$, $$SELECT llm_job_submit('x', options => '{"max_attempts": 1e99}')$$, $$SELECT llm_job_submit('x', options => '{"max_attempts": 2.5}')$$,
	$$SELECT llm_job_submit('x', options => '{"not_before": 5}')$$, $$SELECT llm_job_submit('x', options => '{"not_before": "infinity"}')$$,
	$$SELECT llm_job_submit('x', options => '{"not_before": "some day"}')$$, $$SELECT llm_generate('x', options => '{"not_before": "now"}')$$]) q;
SELECT error_of($$SELECT llm_job_submit(ARRAY['x'], model => 'none')$$);
BEGIN READ ONLY;
SELECT error_of($$SELECT llm_job_submit('x')$$);
ROLLBACK;

-- an error belongs to its job; what may pass is tried again
SELECT count(*) FROM llm_job_submit(array(SELECT CASE i WHEN 50 THEN '@error=bad ' ELSE '' END || 'row ' || i FROM generate_series(1, 100) i));
SELECT count(llm_job_wait(id)) FROM llm.jobs;
SELECT state, count(*), min(sqlstate), min(message), max(attempts) FROM llm.jobs WHERE id > :seed GROUP BY state ORDER BY state;
SELECT (llm_job_result(id)).finish_reason, (llm_job_result(id)).error FROM llm.jobs WHERE state = 'failed';
SELECT llm_job_submit('@delay=500 late', options => '{"timeout": 20, "max_attempts": 2}') AS id \gset
SELECT llm_job_wait(:id);
SELECT state, attempts, sqlstate, message, finished - submitted > '0.5 s' AS backed_off FROM llm.jobs WHERE id = :id;

-- not before a time; higher priorities first, then those that have waited longest
SELECT llm_job_submit('later', options => jsonb_build_object('not_before', clock_timestamp() + interval '1 s')) AS id \gset
SELECT llm_job_wait(:id, '0.1 s'), not_before > clock_timestamp() AS future FROM llm.jobs WHERE id = :id;
SELECT llm_job_wait(:id);
SELECT started - submitted > '0.9 s' AS waited FROM llm.jobs WHERE id = :id;
SET llm_infer.max_priority = 5;
SELECT min(i) AS first FROM (SELECT llm_job_submit('p' || p, options => jsonb_build_object('priority', p)) AS i FROM unnest(ARRAY[-3, 0, 5, 0]) p OFFSET 0) s \gset
SELECT llm_job_wait(:first);
SELECT count(llm_job_wait(id)) FROM llm.jobs WHERE id >= :first;
SELECT priority, id - :first AS nth FROM llm.jobs WHERE id >= :first ORDER BY started;
RESET llm_infer.max_priority;

-- cancel: queued, running, ended
SELECT llm_job_submit('never', options => '{"not_before": "2100-01-01"}') AS queued, llm_job_submit('@slow=20 @tokens=4000 x', max_tokens => 4000) AS running \gset
SELECT llm_job_wait(:running, '0.2 s');
BEGIN;
SELECT llm_job_cancel(:running), llm_job_status(:running);
ROLLBACK;
SELECT llm_job_status(:running);
SELECT llm_job_cancel(:queued), llm_job_cancel(:running), llm_job_cancel(:first), llm_job_cancel(:queued);
SELECT llm_job_wait(:queued), llm_job_wait(:running), (llm_job_result(:queued)).finish_reason, (llm_job_result(:queued)).error;
SELECT engine_idle();
SELECT llm_job_status(:running), attempts, sqlstate FROM llm.jobs WHERE id IN (:queued, :running) ORDER BY id;

-- rights: jobs are their owner's, and of the members of that role
SET ROLE regress_llm_jobs;
SELECT llm_job_submit('mine') AS id \gset
SELECT llm_job_wait(:id), (llm_job_result(:id)).text;
SELECT owner, state FROM llm.jobs;
SELECT error_of('SELECT llm_job_status(' || :first || ')');
SELECT error_of('TABLE llm.job_queue'), error_of('SELECT nextval(''llm.job_ids'')');
SELECT DISTINCT owner FROM llm.job_workers WHERE owner IS NOT NULL;
SET ROLE regress_llm_other;
SELECT count(*) FROM llm.jobs;
SELECT replace(error_of(format(q, :id)), :'id', 'N') FROM unnest(ARRAY['SELECT llm_job_result(%s)', 'SELECT llm_job_cancel(%s)', 'SELECT llm_job_wait(%s)']) q;
SELECT error_of($$SELECT llm_job_submit('x', 'echo')$$);
RESET ROLE;
GRANT regress_llm_jobs TO regress_llm_other;
SET ROLE regress_llm_other;
SELECT owner, state FROM llm.jobs;
SELECT (llm_job_result(:id)).text, llm_job_cancel(:id);
RESET ROLE;
REVOKE regress_llm_jobs FROM regress_llm_other;
GRANT pg_monitor TO regress_llm_other;
SET ROLE regress_llm_other;
SELECT count(*) > 100 AS all_jobs FROM llm.jobs;
RESET ROLE;

-- settings of a role and odd objects do not lead the worker astray
CREATE SCHEMA odd;
CREATE FUNCTION odd.never(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'user code as %', current_user; END$$;
CREATE OPERATOR odd.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = odd.never);
GRANT USAGE ON SCHEMA odd TO regress_llm_jobs;
ALTER ROLE regress_llm_jobs SET search_path = odd, pg_catalog, public;
ALTER ROLE regress_llm_jobs SET default_transaction_read_only = on;
ALTER ROLE regress_llm_jobs SET default_transaction_isolation = 'serializable';
ALTER ROLE regress_llm_jobs SET llm_infer.max_tokens = 1;
ALTER ROLE regress_llm_jobs SET llm_infer.max_statement_tokens = 1;
SELECT pg_terminate_backend(pid, 5000) FROM llm.job_workers WHERE owner = 'regress_llm_jobs'::regrole;
SET ROLE regress_llm_jobs;
SET search_path = odd, pg_catalog, public;
SELECT llm_job_submit('astray') AS id \gset
SELECT llm_job_wait(:id), (llm_job_result(:id)).text;
RESET search_path;
RESET ROLE;

-- a role that goes takes its queued jobs with it
SET ROLE regress_llm_jobs;
SELECT llm_job_submit('never', options => '{"not_before": "2100-01-01"}') AS id \gset
RESET ROLE;
DROP SCHEMA odd CASCADE;
SELECT pg_terminate_backend(pid, 5000) FROM llm.job_workers WHERE owner = 'regress_llm_jobs'::regrole;
DROP OWNED BY regress_llm_jobs, regress_llm_other;
DROP ROLE regress_llm_jobs, regress_llm_other;
SELECT llm_job_submit('wake') AS wake \gset
SELECT llm_job_wait(:wake), llm_job_wait(:id);
SELECT state, sqlstate, regexp_replace(message, '\d+', 'N') AS message FROM llm.jobs WHERE id = :id;

-- a table that is emptied while a job runs
SELECT llm_job_submit('@slow=20 @tokens=4000 x', max_tokens => 4000) AS running \gset
SELECT llm_job_wait(:running, '0.2 s');
TRUNCATE llm.job_queue;
SELECT llm_job_submit('next') AS next \gset
SELECT llm_job_wait(:next), error_of('SELECT llm_job_status(' || :running || ')') LIKE '42704: %' AS unknown;
SELECT engine_idle();
DELETE FROM llm.job_queue;
