-- quotas.sql - llm.quotas and llm.stat_users: what roles may ask for, and have asked for
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE ROLE regress_llm_quota;
CREATE ROLE regress_llm_other;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_quota, regress_llm_other;

-- An error without the time at which a period ends, and without waiting times.
CREATE FUNCTION refusal_of(query text) RETURNS text LANGUAGE sql AS $$
	SELECT regexp_replace(regexp_replace(error_of(query), 'ends at [^|]*\.', 'ends at T.'), 'waited for \d+ ms', 'waited for N ms')
$$;
-- 40 + n tokens
CREATE FUNCTION ask(n int) RETURNS text LANGUAGE sql AS $$
	SELECT llm_generate(repeat('x', 40), max_tokens => n, options => '{"raw": true, "ignore_eos": true}')
$$;
CREATE FUNCTION rows_until_refused(OUT n int, OUT refused text) LANGUAGE plpgsql AS $$
DECLARE
	t text;
BEGIN
	n := 0;
	FOR t IN SELECT llm_generate(repeat('x', 40) || i, options => '{"raw": true}') FROM generate_series(1, 1000) i LOOP
		n := n + 1;
	END LOOP;
EXCEPTION WHEN configuration_limit_exceeded THEN
	refused := SQLERRM;
END
$$;
CREATE FUNCTION peak_of(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	doc json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) ' || query INTO doc;
	RETURN doc->0->'Plan'->>'LLM Peak In Flight';
END
$$;

-- rows that mean nothing are refused
INSERT INTO llm.quotas VALUES ('regress_llm_quota', 0, '1 hour', NULL);
INSERT INTO llm.quotas VALUES ('regress_llm_quota', 10, NULL, NULL);
INSERT INTO llm.quotas VALUES ('regress_llm_quota', 10, '-1 hour', NULL);
INSERT INTO llm.quotas VALUES ('regress_llm_quota', 10, '300000 years', NULL);
INSERT INTO llm.quotas VALUES ('regress_llm_quota', NULL, NULL, 0);
INSERT INTO llm.quotas VALUES ('no_such_role', NULL, NULL, 1);
INSERT INTO llm.quotas VALUES ('regress_llm_quota', NULL, NULL, NULL, -1);

-- tokens of prompt and answer; a call may begin until they are spent
INSERT INTO llm.quotas VALUES ('regress_llm_quota', 100, '1 day', NULL);
SET ROLE regress_llm_quota;
SELECT length(ask(20)), length(ask(20));
SELECT role, requests, prompt_tokens, generated_tokens, in_flight, max_in_flight, period_tokens, tokens_per_period,
	period_end - now() BETWEEN '23 h' AND '1 day' AS ends FROM llm.stat_users;
SELECT refusal_of('SELECT ask(1)');
SELECT llm_generate('x') FROM generate_series(1, 0);
-- a spent quota fails every row: it is not hidden
SELECT left(error_of($$SELECT llm_generate('x', on_error => 'null')$$), 70);
SELECT left(error_of($$SELECT llm_generate('x' || i, on_error => 'null') FROM generate_series(1, 3) i$$), 70);
SELECT left(error_of(q), 60) FROM unnest(ARRAY[$$SELECT llm_generate(ARRAY['x', 'y'])$$, $$SELECT llm_generate_result('x', on_error => 'null')$$,
	$$SELECT llm_generate_stream('x')$$, $$SELECT llm_chat('[{"role": "user", "content": "x"}]')$$, $$SELECT llm_pin_prefix('x')$$]) q;
-- counting costs nothing, and other roles have their own
SELECT llm_count_tokens('abc');
SET ROLE regress_llm_other;
SELECT length(ask(20));
SELECT role, requests, period_tokens, tokens_per_period, period_end FROM llm.stat_users;
RESET ROLE;
SELECT role, requests, prompt_tokens, generated_tokens, period_tokens, tokens_per_period FROM llm.stat_users WHERE role::text LIKE 'regress%' ORDER BY role::text;

-- a change counts at once
UPDATE llm.quotas SET tokens_per_period = 130;
SET ROLE regress_llm_quota;
SELECT length(ask(1));
SELECT refusal_of('SELECT ask(1)');
RESET ROLE;
-- a change that is rolled back as well
BEGIN;
DELETE FROM llm.quotas;
SET LOCAL ROLE regress_llm_quota;
SELECT length(ask(1));
ROLLBACK;
SET ROLE regress_llm_quota;
SELECT refusal_of('SELECT ask(1)');
RESET ROLE;

-- the next period begins anew
UPDATE llm.quotas SET period = '50 ms';
SELECT pg_sleep(0.1);
SELECT role, period_tokens, period_end FROM llm.stat_users WHERE role = 'regress_llm_quota'::regrole;
SET ROLE regress_llm_quota;
SELECT length(ask(20));
SELECT requests, prompt_tokens, generated_tokens FROM llm.stat_users;
RESET ROLE;

-- rows of a statement: those that were sent in time are answered
UPDATE llm.quotas SET tokens_per_period = 3000, period = '1 day';
SET ROLE regress_llm_quota;
-- a row costs 82 to 86 tokens, the loop fetches 10 rows, then 50; what is in flight when the last token is spent still ends
SELECT n BETWEEN 10 AND 300 AS some, refused LIKE 'token quota of role "regress_llm_quota" is spent: % of 3000 tokens used' AS refused FROM rows_until_refused();
RESET ROLE;

-- requests in flight: flow control, no error
UPDATE llm.quotas SET tokens_per_period = NULL, period = NULL, max_in_flight = 1;
SET ROLE regress_llm_quota;
SELECT string_agg(t, ' ') FROM (SELECT llm_generate('r' || i) t FROM generate_series(1, 30) i OFFSET 0) s;
SELECT peak_of($$SELECT llm_generate('@delay=1 r' || i) t FROM generate_series(1, 30) i$$);
SELECT llm_generate(ARRAY['a', 'b', 'c', 'd']);
SELECT string_agg(t, ' ') FROM (SELECT llm_generate(llm_generate('r' || i) || 's') t FROM generate_series(1, 5) i OFFSET 0) s;
SELECT in_flight, max_in_flight, period_tokens, period_end FROM llm.stat_users;
-- a cursor that is left alone keeps what it has sent: another call waits for it
BEGIN;
DECLARE c CURSOR FOR SELECT llm_generate('@slow=30 ' || repeat('y', 100 * i - 99)) FROM generate_series(1, 3) i;
FETCH 1 FROM c;
SELECT in_flight FROM llm.stat_users;
SELECT refusal_of($$SELECT llm_generate('x', options => '{"timeout": 100}')$$);
CLOSE c;
SELECT llm_generate('x', options => '{"timeout": 5000}');
COMMIT;
RESET ROLE;

-- a stream is charged as its pieces come, once
UPDATE llm.quotas SET max_in_flight = NULL;
SELECT generated_tokens AS before FROM llm.stat_users WHERE role = 'regress_llm_quota'::regrole \gset
SET ROLE regress_llm_quota;
SELECT count(*) > 1 AS pieces FROM (SELECT llm_generate_stream(repeat('z', 50)) OFFSET 0) s;
SELECT generated_tokens - :before AS charged FROM llm.stat_users;
BEGIN;
DECLARE c CURSOR FOR SELECT llm_generate_stream('@slow=10 ' || repeat('z', 200));
MOVE 5 FROM c;
CLOSE c;
SELECT generated_tokens - :before - 51 BETWEEN 5 AND 150 AS charged FROM llm.stat_users;
COMMIT;
RESET ROLE;

-- '-' is every role without a row
INSERT INTO llm.quotas VALUES ('-', 70, '1 day', NULL);
SET ROLE regress_llm_other;
SELECT refusal_of('SELECT ask(20)');
SELECT refusal_of('SELECT ask(20)');
SELECT period_tokens, tokens_per_period FROM llm.stat_users;
SET ROLE regress_llm_quota;
SELECT length(ask(20));
RESET ROLE;
DELETE FROM llm.quotas WHERE role = '-'::regrole;

-- unfinished jobs: those that are rolled back do not count, nor do those that have ended
INSERT INTO llm.quotas VALUES ('-', NULL, NULL, NULL, 1000000) ON CONFLICT (role) DO UPDATE SET max_queued_jobs = 1000000;
UPDATE llm.quotas SET tokens_per_period = NULL, period = NULL, max_queued_jobs = 5 WHERE role = 'regress_llm_quota'::regrole;
CREATE FUNCTION submit(n int) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM llm_job_submit(array_fill('x'::text, ARRAY[n]) || NULL::text, options => '{"not_before": "2100-01-01"}') i WHERE i IS NOT NULL
$$;
SET ROLE regress_llm_quota;
SELECT submit(3);
SELECT error_of('SELECT submit(3)');
BEGIN;
SELECT submit(1);
SAVEPOINT s;
SELECT submit(1);
SELECT error_of($$SELECT llm_job_submit('x')$$);
ROLLBACK TO s;
SELECT submit(1);
SELECT error_of('SELECT submit(1)'), submit(0), llm_job_submit(NULL::text);
ROLLBACK;
SELECT submit(2);
SELECT max_queued_jobs FROM llm.stat_users;
SELECT error_of($$SELECT llm_job_submit('x' || i) FROM generate_series(1, 3) i$$);
BEGIN;
SELECT llm_job_cancel(min(id)) FROM llm.jobs WHERE finished IS NULL;
SELECT submit(1);
ROLLBACK;
SELECT left(error_of('SELECT submit(1)'), 70);
SELECT llm_job_cancel(min(id)) FROM llm.jobs WHERE finished IS NULL;
SELECT submit(1);
-- others have their own
SET ROLE regress_llm_other;
SELECT submit(7), (SELECT count(*) FROM llm.jobs);
RESET ROLE;
UPDATE llm.quotas SET max_queued_jobs = NULL;
SET ROLE regress_llm_quota;
SELECT submit(10), count(llm_job_cancel(id)) FROM llm.jobs WHERE finished IS NULL;
RESET ROLE;
DELETE FROM llm.quotas WHERE role = '-'::regrole;
DELETE FROM llm.job_queue;

-- rights
SET ROLE regress_llm_quota;
SELECT error_of('TABLE llm.quotas');
SELECT error_of('DELETE FROM llm.quotas');
RESET ROLE;
GRANT pg_monitor TO regress_llm_other;
SET ROLE regress_llm_other;
SELECT role FROM llm.quotas;
SELECT count(*) >= 2 AS sees_all FROM llm.stat_users;
SELECT error_of('DELETE FROM llm.quotas');
RESET ROLE;

DELETE FROM llm.quotas;
DROP FUNCTION submit(int), ask(int), refusal_of(text), rows_until_refused(), peak_of(text);
DROP OWNED BY regress_llm_quota, regress_llm_other;
DROP ROLE regress_llm_quota, regress_llm_other;
SELECT engine_idle();
