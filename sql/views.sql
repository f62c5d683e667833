-- views.sql - llm.models, llm.stat_engine, llm.stat_models and llm.stat_activity
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

SELECT llm_generate('warm up');
SELECT state, generation >= 1 AS generation, pid > 0 AS pid, started < now() AS started, restarts >= 0 AS restarts, device, isa, threads, threads_used,
	kv_pages_total > 0 AS pages, kv_pages_free <= kv_pages_total AS free, kv_pages_cached <= kv_pages_total AS cached, stats_reset <= now() AS reset
FROM llm.stat_engine;
SELECT column_name FROM (SELECT (json_each_text(row_to_json(e))).* FROM llm.stat_engine e) AS j(column_name, v) WHERE v IS NULL;
SELECT column_name FROM (SELECT (json_each_text(row_to_json(m))).* FROM llm.models m) AS j(column_name, v) WHERE v IS NULL;
-- the models in memory; an echo model has no weights and no file
SELECT name, path, state, digest, bytes, kv_page_bytes, kv_rule,
	memory_bytes = bytes + kv_pages * kv_page_bytes AS memory, clock_timestamp() - last_used < interval '1 minute' AS used
FROM llm.stat_models WHERE name = 'echo';
SELECT e.kv_bytes = sum(m.kv_pages * m.kv_page_bytes) AS kv, e.kv_pages_total = sum(m.kv_pages) AS pages, e.memory_bytes = sum(m.memory_bytes) AS memory,
	e.memory_limit > e.memory_bytes AS within, e.kv_rule = min(m.kv_rule) AS rule
FROM llm.stat_engine e, llm.stat_models m GROUP BY e.kv_bytes, e.kv_pages_total, e.memory_bytes, e.memory_limit, e.kv_rule;

-- counters move by what was asked
CREATE TEMP TABLE before AS SELECT * FROM llm.stat_engine;
SELECT prompt_tokens, completion_tokens FROM llm_generate_result('abc');
SELECT llm_generate(x::text, max_tokens => 1) FROM generate_series(1, 5) x;
SELECT error_of($$SELECT llm_generate('@error=no')$$);
SELECT a.requests - b.requests AS requests, a.errors - b.errors AS errors,
	a.generated_tokens - b.generated_tokens AS generated, a.prompt_tokens - b.prompt_tokens AS prompt,
	a.steps > b.steps AS steps, a.preemptions - b.preemptions AS preemptions,
	a.generation - b.generation AS generations, a.pid = b.pid AS same_engine
FROM llm.stat_engine a, before b;
-- no page is left behind
SELECT engine_idle();

-- activity: a row for each backend that has called
SELECT datname = current_database() AS here, usename = current_user AS me, model, state, query_start <= now() AS q, state_change >= query_start AS s
FROM llm.stat_activity WHERE pid = pg_backend_pid();
CREATE TEMP TABLE mine AS SELECT * FROM llm.stat_activity WHERE pid = pg_backend_pid();
SELECT llm_generate('abc');
SELECT a.prompt_tokens - b.prompt_tokens AS prompt, a.generated_tokens - b.generated_tokens AS generated,
	a.query_start > b.query_start AS later
FROM llm.stat_activity a, mine b WHERE a.pid = b.pid;

-- the engine can be restarted: a new process, requests answered as before
SELECT llm_engine_restart();
SELECT a.generation - b.generation AS generations, a.pid <> b.pid AS other_process, a.state, a.requests FROM llm.stat_engine a, before b;
SELECT llm_generate('after the restart');

-- every object of the extension is described
SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'llm_infer' AND d.deptype = 'e' AND d.classid <> 'pg_type'::regclass AND obj_description(d.objid, d.classid::regclass::text) IS NULL
	AND NOT (d.classid = 'pg_class'::regclass AND d.objid IN (SELECT oid FROM pg_class WHERE relkind = 'c'));
