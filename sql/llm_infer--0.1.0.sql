-- llm_infer 0.1.0: schema, types, functions, wrapper, views, rights, comments.
--
-- Functions go to the schema that CREATE EXTENSION names, everything else to schema llm. While this
-- runs, search_path is pg_catalog and then that schema, so its functions are named without it: a name
-- with quotes in it could not be put into the text. All other names are written with their schema, so
-- that nothing depends on search_path later; no function is SECURITY DEFINER.

\echo Use "CREATE EXTENSION llm_infer" to load this file. \quit

DO $llm$
BEGIN
	IF pg_catalog.to_regnamespace('llm') IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_schema',
			MESSAGE = 'schema "llm" already exists',
			DETAIL = 'llm_infer keeps its types and views in a schema of this name, which it owns.',
			HINT = 'Rename the schema with ALTER SCHEMA, or drop it, and create the extension again.';
	END IF;
END
$llm$;

CREATE SCHEMA llm;

-- ---- types ----

CREATE TYPE llm.result AS (
	text text,
	reasoning text,
	finish_reason text,
	prompt_tokens int,
	cached_tokens int,
	completion_tokens int,
	logprobs jsonb,
	queue_ms float8,
	first_token_ms float8,
	total_ms float8,
	model text,
	error text
);

-- ---- what the planner asks about calls: their cost, and the rows of a stream ----

CREATE FUNCTION llm.call_support(internal)
RETURNS internal
LANGUAGE C STRICT VOLATILE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'llm_call_support';

-- ---- generation: not strict (NULL means the default), once per row ----

CREATE FUNCTION llm_generate(
	prompt text,
	model text DEFAULT NULL,
	system_prompt text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	stop text[] DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	on_error text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS text
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_generate_text';

CREATE FUNCTION llm_generate(
	prompts text[],
	model text DEFAULT NULL,
	system_prompt text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	stop text[] DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	on_error text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS text[]
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_generate_array';

CREATE FUNCTION llm_generate_result(
	prompt text,
	model text DEFAULT NULL,
	system_prompt text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	stop text[] DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	on_error text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS llm.result
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_generate_result';

CREATE FUNCTION llm_generate_stream(
	prompt text,
	model text DEFAULT NULL,
	system_prompt text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	stop text[] DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	on_error text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS SETOF text
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 10000 ROWS 100 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_generate_stream';

CREATE FUNCTION llm_chat(
	messages jsonb,
	model text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	stop text[] DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	on_error text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_chat';

-- ---- tokens ----

CREATE FUNCTION llm_tokenize(input text, model text DEFAULT NULL)
RETURNS int[]
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_tokenize';

CREATE FUNCTION llm_detokenize(tokens int[], model text DEFAULT NULL)
RETURNS text
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_detokenize';

CREATE FUNCTION llm_count_tokens(input text, model text DEFAULT NULL)
RETURNS int
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_count_tokens';

-- ---- prefixes ----

CREATE FUNCTION llm_pin_prefix(text text, model text DEFAULT NULL)
RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_pin_prefix';

CREATE FUNCTION llm_unpin_prefix(text text, model text DEFAULT NULL)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000 SUPPORT llm.call_support
AS 'MODULE_PATHNAME', 'llm_unpin_prefix';

-- ---- models: foreign servers of one wrapper ----

CREATE FUNCTION llm.llm_infer_validator(options text[], catalog oid)
RETURNS void
LANGUAGE C STRICT VOLATILE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'llm_infer_validator';

CREATE FOREIGN DATA WRAPPER llm_infer NO HANDLER VALIDATOR llm.llm_infer_validator;

CREATE FUNCTION llm_model_register(name text, path text, options jsonb DEFAULT '{}')
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_model_register';

CREATE FUNCTION llm_model_drop(name text)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_model_drop';

CREATE FUNCTION llm_model_load(name text)
RETURNS void
LANGUAGE C VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'llm_model_load';

CREATE FUNCTION llm_model_unload(name text)
RETURNS void
LANGUAGE C VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'llm_model_unload';

CREATE FUNCTION llm_engine_restart()
RETURNS void
LANGUAGE C VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'llm_engine_restart';

-- ---- quotas: rows of superusers, read by every backend; '-' stands for roles without a row ----

CREATE TABLE llm.quotas (
	role regrole PRIMARY KEY,
	tokens_per_period bigint,
	period interval,
	max_in_flight int,
	max_queued_jobs int,
	CONSTRAINT quotas_tokens_per_period_check CHECK (tokens_per_period OPERATOR(pg_catalog.>) 0),
	CONSTRAINT quotas_period_check CHECK (period OPERATOR(pg_catalog.>) INTERVAL '0'
		AND period OPERATOR(pg_catalog.<=) INTERVAL '1000 years'), -- its end is a timestamp
	CONSTRAINT quotas_max_in_flight_check CHECK (max_in_flight OPERATOR(pg_catalog.>) 0),
	CONSTRAINT quotas_max_queued_jobs_check CHECK (max_queued_jobs OPERATOR(pg_catalog.>) 0),
	CONSTRAINT quotas_tokens_need_period_check
		CHECK ((tokens_per_period IS NULL) OPERATOR(pg_catalog.=) (period IS NULL))
);

-- The number of a role that is gone may be another role's where the dump is restored.
SELECT pg_catalog.pg_extension_config_dump('llm.quotas',
	'WHERE role::oid OPERATOR(pg_catalog.=) 0::oid OR role::oid IN (SELECT oid FROM pg_catalog.pg_roles)');

-- ---- jobs: rows of one table that the functions below and the workers write as its owner ----

CREATE SEQUENCE llm.job_ids;
CREATE SEQUENCE llm.job_expired MINVALUE 0 START 0; -- the greatest id that retention has removed

CREATE TABLE llm.job_queue (
	id bigint PRIMARY KEY,
	owner regrole NOT NULL,
	rank int NOT NULL, -- 0 - priority: lower goes first
	due timestamptz NOT NULL,
	state text NOT NULL,
	attempts int NOT NULL DEFAULT 0,
	max_attempts int NOT NULL,
	submitted timestamptz NOT NULL,
	started timestamptz,
	finished timestamptz,
	model text NOT NULL,
	prompt text NOT NULL,
	system_prompt text,
	max_tokens int,
	temperature float8,
	seed bigint,
	stop text[],
	options jsonb,
	result llm.result,
	sqlstate text,
	message text,
	CONSTRAINT job_queue_state_check
		CHECK (state OPERATOR(pg_catalog.=) ANY (ARRAY['queued', 'running', 'done', 'failed', 'cancelled'])),
	CONSTRAINT job_queue_finished_check
		CHECK ((finished IS NULL) OPERATOR(pg_catalog.=) (state OPERATOR(pg_catalog.=) ANY (ARRAY['queued', 'running'])))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX job_queue_open ON llm.job_queue (owner, rank, model, due, id) WHERE finished IS NULL;
CREATE INDEX job_queue_running ON llm.job_queue (owner) WHERE state OPERATOR(pg_catalog.=) 'running';
CREATE INDEX job_queue_finished ON llm.job_queue (finished) WHERE finished IS NOT NULL;

-- As with quotas: jobs of a role that is gone stay behind.
SELECT pg_catalog.pg_extension_config_dump('llm.job_queue', 'WHERE owner::oid IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('llm.job_ids', '');
SELECT pg_catalog.pg_extension_config_dump('llm.job_expired', '');

CREATE FUNCTION llm_job_submit(
	prompt text,
	model text DEFAULT NULL,
	system_prompt text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	stop text[] DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	on_error text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_job_submit';

CREATE FUNCTION llm_job_submit(
	prompts text[],
	model text DEFAULT NULL,
	system_prompt text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	stop text[] DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	on_error text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS SETOF bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_job_submit_array';

CREATE FUNCTION llm_job_status(id bigint)
RETURNS text
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_job_status';

CREATE FUNCTION llm_job_result(id bigint)
RETURNS llm.result
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_job_result';

CREATE FUNCTION llm_job_cancel(id bigint)
RETURNS boolean
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_job_cancel';

CREATE FUNCTION llm_job_wait(id bigint, timeout interval DEFAULT NULL)
RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_job_wait';

CREATE FUNCTION llm.stat_get_job_workers(
	OUT role oid,
	OUT task bigint,
	OUT pid int,
	OUT state text,
	OUT reason text,
	OUT until timestamptz)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10
AS 'MODULE_PATHNAME', 'llm_stat_job_workers';

CREATE VIEW llm.jobs WITH (security_barrier) AS
SELECT j.id,
	j.owner,
	j.state,
	j.model,
	0 OPERATOR(pg_catalog.-) j.rank AS priority,
	j.attempts,
	j.max_attempts,
	j.submitted,
	CASE WHEN j.finished IS NULL THEN j.due END AS not_before,
	j.started,
	j.finished,
	j.sqlstate,
	CASE WHEN pg_catalog.pg_has_role(j.owner::oid, 'USAGE') THEN j.message END AS message
FROM llm.job_queue AS j
WHERE pg_catalog.pg_has_role(j.owner::oid, 'USAGE') OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE');

-- ---- enrichment: what is to be done is in the tables themselves; rows that failed are here ----

CREATE TABLE llm.enrich_failures (
	relation oid,
	target name,
	hash bigint, -- of the key: an index takes no long ones
	key jsonb NOT NULL,
	row_xmin xid NOT NULL, -- the version of the row that failed
	role oid NOT NULL,
	attempts int NOT NULL,
	failed timestamptz NOT NULL,
	sqlstate text NOT NULL,
	message text NOT NULL,
	PRIMARY KEY (relation, target, hash)
);

CREATE PROCEDURE llm_enrich(
	relation regclass,
	target name,
	prompt text DEFAULT NULL,
	expr text DEFAULT NULL,
	filter text DEFAULT NULL,
	reorder boolean DEFAULT false,
	batch_size int DEFAULT 64,
	max_rows bigint DEFAULT NULL,
	concurrency int DEFAULT 128,
	model text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	on_error text DEFAULT NULL,
	options jsonb DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'llm_enrich';

CREATE VIEW llm.failed_rows WITH (security_barrier) AS
SELECT c.oid::pg_catalog.regclass AS relation,
	f.target,
	f.key,
	f.attempts,
	f.failed,
	r.rolname AS role,
	f.sqlstate,
	f.message
FROM llm.enrich_failures AS f
	JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) f.relation
	LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) f.role
WHERE pg_catalog.pg_has_role(f.role, 'USAGE') OR pg_catalog.pg_has_role(c.relowner, 'USAGE');

-- ---- standing enrichments: a definition, and the keys of rows that changed ----

CREATE SEQUENCE llm.enrichment_ids;

CREATE TABLE llm.enrichment_defs (
	id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('llm.enrichment_ids'),
	name name NOT NULL UNIQUE,
	owner regrole NOT NULL,
	relation regclass NOT NULL,
	target name NOT NULL,
	prompt text,
	expr text,
	filter text,
	search_path text NOT NULL, -- of the role that created it: its SQL is read with that
	sources name[], -- columns that prompt, expr and filter read; NULL = all but the target
	batch_size int NOT NULL,
	concurrency int NOT NULL,
	model text,
	max_tokens int,
	temperature float8,
	seed bigint,
	response_format jsonb,
	options jsonb,
	active boolean NOT NULL,
	reason text, -- why it was paused; NULL = by a user
	backfill boolean NOT NULL, -- rows whose target is NULL are to be looked for
	created timestamptz NOT NULL,
	UNIQUE (relation, target)
);

CREATE SEQUENCE llm.enrich_queue_ids;

-- An entry per change; written by triggers, removed by the worker that has done the row.
CREATE TABLE llm.enrich_queue (
	id bigint NOT NULL DEFAULT pg_catalog.nextval('llm.enrich_queue_ids'),
	enrichment bigint NOT NULL,
	due timestamptz NOT NULL,
	hash bigint NOT NULL, -- of the key: all entries of a row are done together
	key jsonb NOT NULL, -- {} = rows whose keys are not known
	only_null boolean NOT NULL -- the row is done when its target is not NULL, whoever wrote that
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE UNIQUE INDEX enrich_queue_order ON llm.enrich_queue (enrichment, due, id);
CREATE INDEX enrich_queue_row ON llm.enrich_queue (enrichment, hash);

CREATE FUNCTION llm.enrich_changed()
RETURNS trigger
LANGUAGE C
AS 'MODULE_PATHNAME', 'llm_enrich_changed';

CREATE FUNCTION llm_enrich_create(
	name name,
	relation regclass,
	target name,
	prompt text DEFAULT NULL,
	expr text DEFAULT NULL,
	filter text DEFAULT NULL,
	batch_size int DEFAULT 64,
	concurrency int DEFAULT 128,
	model text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	options jsonb DEFAULT NULL,
	backfill boolean DEFAULT true)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_enrich_create';

CREATE FUNCTION llm_enrich_alter(
	name name,
	target name DEFAULT NULL,
	prompt text DEFAULT NULL,
	expr text DEFAULT NULL,
	filter text DEFAULT NULL,
	batch_size int DEFAULT NULL,
	concurrency int DEFAULT NULL,
	model text DEFAULT NULL,
	max_tokens int DEFAULT NULL,
	temperature float8 DEFAULT NULL,
	seed bigint DEFAULT NULL,
	response_format jsonb DEFAULT NULL,
	options jsonb DEFAULT NULL,
	backfill boolean DEFAULT NULL,
	new_name name DEFAULT NULL)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_enrich_alter';

CREATE FUNCTION llm_enrich_drop(name name)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_enrich_drop';

CREATE FUNCTION llm_enrich_pause(name name)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_enrich_pause';

CREATE FUNCTION llm_enrich_resume(name name, backfill boolean DEFAULT NULL)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_enrich_resume';

CREATE FUNCTION llm_enrich_retry_failed(name name)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_enrich_retry_failed';

-- Texts are for members of the owner. One whose table is gone is on its way out.
CREATE VIEW llm.enrichments WITH (security_barrier) AS
SELECT d.name,
	d.owner,
	d.relation,
	d.target,
	CASE WHEN NOT d.active THEN 'paused' WHEN d.backfill THEN 'backfill' ELSE 'active' END AS state,
	COALESCE(d.reason, w.reason) AS reason,
	w.pid,
	(SELECT pg_catalog.count(*)
	 FROM llm.enrich_queue AS q
	 WHERE q.enrichment OPERATOR(pg_catalog.=) d.id) AS pending,
	(SELECT pg_catalog.count(*)
	 FROM llm.enrich_failures AS f
	 WHERE f.relation OPERATOR(pg_catalog.=) d.relation::oid AND f.target OPERATOR(pg_catalog.=) d.target) AS failed,
	d.created,
	CASE WHEN pg_catalog.pg_has_role(d.owner::oid, 'USAGE') THEN d.prompt END AS prompt,
	CASE WHEN pg_catalog.pg_has_role(d.owner::oid, 'USAGE') THEN d.expr END AS expr,
	CASE WHEN pg_catalog.pg_has_role(d.owner::oid, 'USAGE') THEN d.filter END AS filter,
	d.batch_size,
	d.concurrency,
	d.model,
	d.max_tokens,
	d.temperature,
	d.seed,
	CASE WHEN pg_catalog.pg_has_role(d.owner::oid, 'USAGE') THEN d.response_format END AS response_format,
	CASE WHEN pg_catalog.pg_has_role(d.owner::oid, 'USAGE') THEN d.options END AS options
FROM llm.enrichment_defs AS d
	JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) d.relation::oid
	LEFT JOIN llm.stat_get_job_workers() AS w ON w.task OPERATOR(pg_catalog.=) d.id
WHERE pg_catalog.pg_has_role(d.owner::oid, 'USAGE') OR pg_catalog.pg_has_role(c.relowner, 'USAGE') OR
	pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE');

SELECT pg_catalog.pg_extension_config_dump('llm.enrichment_ids', '');
SELECT pg_catalog.pg_extension_config_dump('llm.enrich_queue_ids', '');
SELECT pg_catalog.pg_extension_config_dump('llm.enrichment_defs',
	'WHERE owner::oid IN (SELECT oid FROM pg_catalog.pg_roles) AND relation::oid IN (SELECT oid FROM pg_catalog.pg_class)');
SELECT pg_catalog.pg_extension_config_dump('llm.enrich_queue',
	'WHERE enrichment IN (SELECT id FROM llm.enrichment_defs AS d WHERE d.owner::oid IN (SELECT oid FROM pg_catalog.pg_roles) AND d.relation::oid IN (SELECT oid FROM pg_catalog.pg_class))');

-- ---- the memo: answers that are kept; a cache, so no dump has it ----

CREATE TABLE llm.memo_entries (
	key uuid PRIMARY KEY, -- a digest of all that the answer depends on
	server oid NOT NULL, -- the model
	role oid NOT NULL, -- who asked first
	created timestamptz NOT NULL,
	used timestamptz NOT NULL, -- to the hour
	finish int NOT NULL,
	prompt_tokens int NOT NULL,
	completion_tokens int NOT NULL,
	numerics_key bigint NOT NULL,
	nbytes int NOT NULL, -- before compression, with what a row takes
	answer bytea NOT NULL, -- UTF-8
	reasoning bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX memo_entries_used ON llm.memo_entries (used);
CREATE INDEX memo_entries_asker ON llm.memo_entries (role, server);

-- What the entries are together is the sum: the launcher's row, and those of removals that it has not yet added up.
CREATE TABLE llm.memo_sizes (
	total boolean NOT NULL,
	entries bigint NOT NULL,
	bytes bigint NOT NULL
);

CREATE FUNCTION llm_memo_forget(model text DEFAULT NULL)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'llm_memo_forget';

CREATE FUNCTION llm.stat_get_memo(
	OUT size_limit bigint,
	OUT hits bigint,
	OUT misses bigint,
	OUT kept bigint,
	OUT pending bigint,
	OUT lost bigint,
	OUT evicted bigint,
	OUT stats_reset timestamptz)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1
AS 'MODULE_PATHNAME', 'llm_stat_memo';

CREATE VIEW llm.memo WITH (security_barrier) AS
SELECT e.key,
	s.srvname AS model,
	e.role::pg_catalog.regrole AS role,
	CASE e.finish WHEN 0 THEN 'stop' ELSE 'length' END AS finish_reason,
	e.prompt_tokens,
	e.completion_tokens,
	e.nbytes AS bytes,
	e.created,
	e.used
FROM llm.memo_entries AS e
	LEFT JOIN pg_catalog.pg_foreign_server AS s ON s.oid OPERATOR(pg_catalog.=) e.server
WHERE pg_catalog.pg_has_role(e.role, 'USAGE') OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE');

CREATE VIEW llm.stat_memo AS
SELECT CASE WHEN a.may_see THEN s.entries END AS entries,
	CASE WHEN a.may_see THEN s.bytes END AS bytes,
	m.size_limit,
	m.hits,
	m.misses,
	m.kept,
	m.pending,
	m.lost,
	m.evicted,
	m.stats_reset
FROM llm.stat_get_memo() AS m,
	(SELECT coalesce(pg_catalog.sum(t.entries), 0)::bigint AS entries,
		coalesce(pg_catalog.sum(t.bytes), 0)::bigint AS bytes
	FROM llm.memo_sizes AS t) AS s,
	(SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') AS may_see) AS a;

-- ---- none of these tables takes part in logical replication, though FOR ALL TABLES publishes them ----

CREATE FUNCTION llm.skip_replicated()
RETURNS trigger
LANGUAGE C
AS 'MODULE_PATHNAME', 'llm_skip_replicated';

CREATE TRIGGER skip_replicated BEFORE INSERT OR UPDATE OR DELETE ON llm.quotas FOR EACH ROW EXECUTE FUNCTION llm.skip_replicated();
ALTER TABLE llm.quotas ENABLE REPLICA TRIGGER skip_replicated;
CREATE TRIGGER skip_replicated BEFORE INSERT OR UPDATE OR DELETE ON llm.job_queue FOR EACH ROW EXECUTE FUNCTION llm.skip_replicated();
ALTER TABLE llm.job_queue ENABLE REPLICA TRIGGER skip_replicated;
CREATE TRIGGER skip_replicated BEFORE INSERT OR UPDATE OR DELETE ON llm.enrich_failures FOR EACH ROW EXECUTE FUNCTION llm.skip_replicated();
ALTER TABLE llm.enrich_failures ENABLE REPLICA TRIGGER skip_replicated;
CREATE TRIGGER skip_replicated BEFORE INSERT OR UPDATE OR DELETE ON llm.enrichment_defs FOR EACH ROW EXECUTE FUNCTION llm.skip_replicated();
ALTER TABLE llm.enrichment_defs ENABLE REPLICA TRIGGER skip_replicated;
CREATE TRIGGER skip_replicated BEFORE INSERT OR UPDATE OR DELETE ON llm.enrich_queue FOR EACH ROW EXECUTE FUNCTION llm.skip_replicated();
ALTER TABLE llm.enrich_queue ENABLE REPLICA TRIGGER skip_replicated;
CREATE TRIGGER skip_replicated BEFORE INSERT OR UPDATE OR DELETE ON llm.memo_entries FOR EACH ROW EXECUTE FUNCTION llm.skip_replicated();
ALTER TABLE llm.memo_entries ENABLE REPLICA TRIGGER skip_replicated;
CREATE TRIGGER skip_replicated BEFORE INSERT OR UPDATE OR DELETE ON llm.memo_sizes FOR EACH ROW EXECUTE FUNCTION llm.skip_replicated();
ALTER TABLE llm.memo_sizes ENABLE REPLICA TRIGGER skip_replicated;

-- What is published needs an identity, or its changes are refused.
ALTER TABLE llm.enrich_queue REPLICA IDENTITY USING INDEX enrich_queue_order;
ALTER TABLE llm.memo_sizes REPLICA IDENTITY FULL;

-- ---- watching ----

CREATE VIEW llm.job_workers AS
SELECT CASE WHEN w.role OPERATOR(pg_catalog.<>) 0::oid THEN w.role::pg_catalog.regrole END AS owner,
	d.name AS enrichment,
	w.pid,
	w.state,
	w.reason,
	w.until
FROM llm.stat_get_job_workers() AS w
	LEFT JOIN llm.enrichment_defs AS d ON d.id OPERATOR(pg_catalog.=) w.task;

CREATE FUNCTION llm.stat_get_engine(
	OUT state text,
	OUT generation int,
	OUT pid int,
	OUT started timestamptz,
	OUT restarts int,
	OUT message text,
	OUT device text,
	OUT isa text,
	OUT threads int,
	OUT threads_used int,
	OUT kv_pages_total bigint,
	OUT kv_pages_free bigint,
	OUT kv_pages_cached bigint,
	OUT running int,
	OUT waiting int,
	OUT steps bigint,
	OUT prompt_tokens bigint,
	OUT cached_tokens bigint,
	OUT generated_tokens bigint,
	OUT preemptions bigint,
	OUT requests bigint,
	OUT errors bigint,
	OUT stats_reset timestamptz,
	OUT kv_bytes bigint,
	OUT kv_rule text,
	OUT memory_bytes bigint,
	OUT memory_limit bigint,
	OUT shared_requests bigint,
	OUT copied_tokens bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1
AS 'MODULE_PATHNAME', 'llm_stat_engine';

CREATE FUNCTION llm.stat_get_models(
	OUT server oid,
	OUT architecture text,
	OUT parameters bigint,
	OUT quantization text,
	OUT context_length int,
	OUT bytes bigint,
	OUT kv_bytes_per_token int,
	OUT state text)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10
AS 'MODULE_PATHNAME', 'llm_stat_models';

CREATE FUNCTION llm.stat_get_residents(
	OUT server oid,
	OUT path text,
	OUT state text,
	OUT digest text,
	OUT bytes bigint,
	OUT kv_pages bigint,
	OUT kv_page_bytes bigint,
	OUT kv_rule text,
	OUT memory_bytes bigint,
	OUT last_used timestamptz)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 5
AS 'MODULE_PATHNAME', 'llm_stat_residents';

CREATE FUNCTION llm.stat_get_activity(
	OUT datid oid,
	OUT pid int,
	OUT usesysid oid,
	OUT model text,
	OUT state text,
	OUT prompt_tokens bigint,
	OUT cached_tokens bigint,
	OUT generated_tokens bigint,
	OUT query_start timestamptz,
	OUT state_change timestamptz)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 100
AS 'MODULE_PATHNAME', 'llm_stat_activity';

CREATE FUNCTION llm.stat_get_progress_enrich(
	OUT pid int,
	OUT datid oid,
	OUT relation oid,
	OUT target name,
	OUT enrichment bigint,
	OUT role oid,
	OUT phase text,
	OUT done bigint,
	OUT failed bigint,
	OUT pending bigint,
	OUT in_flight bigint,
	OUT rows_per_s float8,
	OUT started timestamptz)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 5
AS 'MODULE_PATHNAME', 'llm_stat_progress_enrich';

CREATE FUNCTION llm.stat_get_users(
	OUT role oid,
	OUT requests bigint,
	OUT prompt_tokens bigint,
	OUT cached_tokens bigint,
	OUT generated_tokens bigint,
	OUT in_flight int,
	OUT period_tokens bigint,
	OUT period_start timestamptz)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 100
AS 'MODULE_PATHNAME', 'llm_stat_users';

CREATE FUNCTION llm.stat_get_prefixes(
	OUT server oid,
	OUT datid oid,
	OUT roleid oid,
	OUT blocks bigint,
	OUT pinned bigint,
	OUT lookups bigint,
	OUT hits bigint,
	OUT tokens_saved bigint,
	OUT evictions bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10
AS 'MODULE_PATHNAME', 'llm_stat_prefixes';

CREATE VIEW llm.models AS
SELECT s.srvname AS name,
	s.srvowner::pg_catalog.regrole AS owner,
	(SELECT o.option_value
	 FROM pg_catalog.pg_options_to_table(s.srvoptions) AS o
	 WHERE o.option_name OPERATOR(pg_catalog.=) 'path') AS path,
	m.architecture,
	m.parameters,
	m.quantization,
	m.context_length,
	m.bytes,
	m.kv_bytes_per_token,
	m.state
FROM pg_catalog.pg_foreign_server AS s
	JOIN llm.stat_get_models() AS m ON m.server OPERATOR(pg_catalog.=) s.oid;

CREATE VIEW llm.stat_engine AS
SELECT e.state,
	e.generation,
	e.pid,
	e.started,
	e.restarts,
	e.device,
	e.isa,
	e.threads,
	e.threads_used,
	e.kv_pages_total,
	e.kv_pages_free,
	e.kv_pages_cached,
	e.steps,
	e.prompt_tokens,
	e.cached_tokens,
	e.generated_tokens,
	e.preemptions,
	e.requests,
	e.errors,
	e.stats_reset,
	e.running,
	e.waiting,
	e.message,
	e.kv_bytes,
	e.kv_rule,
	e.memory_bytes,
	e.memory_limit,
	e.shared_requests,
	e.copied_tokens
FROM llm.stat_get_engine() AS e;

CREATE VIEW llm.stat_models AS
SELECT s.srvname AS name,
	m.path,
	m.state,
	m.digest,
	m.bytes,
	m.kv_pages,
	m.kv_page_bytes,
	m.kv_rule,
	m.memory_bytes,
	m.last_used
FROM llm.stat_get_residents() AS m
	LEFT JOIN pg_catalog.pg_foreign_server AS s ON s.oid OPERATOR(pg_catalog.=) m.server;

CREATE VIEW llm.stat_activity AS
SELECT a.datid,
	d.datname,
	a.pid,
	a.usesysid,
	u.rolname AS usename,
	a.model,
	a.state,
	a.prompt_tokens,
	a.cached_tokens,
	a.generated_tokens,
	a.query_start,
	a.state_change
FROM llm.stat_get_activity() AS a
	LEFT JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) a.datid
	LEFT JOIN pg_catalog.pg_roles AS u ON u.oid OPERATOR(pg_catalog.=) a.usesysid;

CREATE VIEW llm.stat_progress_enrich AS
SELECT p.pid,
	p.datid,
	d.datname,
	p.relation::pg_catalog.regclass AS relation,
	p.target,
	e.name AS enrichment,
	u.rolname AS role,
	p.phase,
	p.done OPERATOR(pg_catalog.+) p.failed OPERATOR(pg_catalog.+) p.in_flight OPERATOR(pg_catalog.+) p.pending AS total,
	p.done,
	p.failed,
	p.pending,
	p.in_flight,
	p.rows_per_s,
	CASE WHEN p.rows_per_s OPERATOR(pg_catalog.>) 0
		THEN pg_catalog.make_interval(secs => pg_catalog.ceil((p.pending OPERATOR(pg_catalog.+) p.in_flight) OPERATOR(pg_catalog./) p.rows_per_s))
	END AS eta,
	p.started
FROM llm.stat_get_progress_enrich() AS p
	LEFT JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) p.datid
	LEFT JOIN pg_catalog.pg_roles AS u ON u.oid OPERATOR(pg_catalog.=) p.role
	LEFT JOIN llm.enrichment_defs AS e ON e.id OPERATOR(pg_catalog.=) p.enrichment;

CREATE VIEW llm.stat_users AS
SELECT u.role::pg_catalog.regrole AS role,
	u.requests,
	u.prompt_tokens,
	u.cached_tokens,
	u.generated_tokens,
	u.in_flight,
	q.max_in_flight,
	CASE
		WHEN q.period_end OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() THEN u.period_tokens
		WHEN q.period_end IS NOT NULL THEN 0
	END AS period_tokens,
	q.tokens_per_period,
	CASE
		WHEN q.period_end OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() THEN q.period_end
	END AS period_end,
	q.max_queued_jobs
FROM llm.stat_get_users() AS u
	LEFT JOIN LATERAL (
		SELECT r.max_in_flight, r.max_queued_jobs, r.tokens_per_period, u.period_start OPERATOR(pg_catalog.+) r.period AS period_end
		FROM llm.quotas AS r
		WHERE r.role::oid OPERATOR(pg_catalog.=) u.role OR r.role::oid OPERATOR(pg_catalog.=) 0::oid
		ORDER BY r.role::oid DESC
		LIMIT 1) AS q ON true;

CREATE VIEW llm.prefix_cache AS
SELECT s.srvname AS model,
	d.datname AS database,
	r.rolname AS role,
	p.blocks,
	p.pinned,
	p.lookups,
	p.hits,
	p.tokens_saved,
	p.evictions
FROM llm.stat_get_prefixes() AS p
	LEFT JOIN pg_catalog.pg_foreign_server AS s ON s.oid OPERATOR(pg_catalog.=) p.server
	LEFT JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) p.datid
	LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) p.roleid;

-- ---- rights: a model needs USAGE, loading needs its ownership, a restart is for superusers ----

REVOKE ALL ON FUNCTION llm_engine_restart() FROM PUBLIC;
GRANT USAGE ON SCHEMA llm TO PUBLIC;
GRANT SELECT ON llm.jobs, llm.job_workers, llm.failed_rows, llm.enrichments TO PUBLIC;
GRANT SELECT ON SEQUENCE llm.job_ids, llm.job_expired, llm.enrichment_ids, llm.enrich_queue_ids TO PUBLIC; -- pg_dump reads them always
GRANT SELECT ON llm.models, llm.stat_engine, llm.stat_models, llm.stat_activity, llm.stat_progress_enrich, llm.stat_users, llm.prefix_cache TO PUBLIC;
GRANT SELECT ON llm.memo, llm.stat_memo TO PUBLIC;
GRANT SELECT ON llm.quotas TO pg_monitor;

-- ---- comments ----

COMMENT ON SCHEMA llm IS 'types and views of the extension llm_infer';
COMMENT ON TYPE llm.result IS 'what llm_generate_result returns: the text and how it came about';
COMMENT ON FOREIGN DATA WRAPPER llm_infer IS 'models of llm_infer: each of its servers is one';
COMMENT ON VIEW llm.models IS 'registered models and what the engine knows about them';
COMMENT ON VIEW llm.stat_engine IS 'the engine process; counters are for members of pg_monitor';
COMMENT ON TABLE llm.quotas IS 'what roles may ask of the engine; a role without a row has that of role -, else no limit';
COMMENT ON COLUMN llm.quotas.role IS 'the role that calls; - stands for every role without a row';
COMMENT ON COLUMN llm.quotas.tokens_per_period IS 'tokens of prompts and answers; NULL = no limit';
COMMENT ON COLUMN llm.quotas.period IS 'begins with the first request after the last one has ended';
COMMENT ON COLUMN llm.quotas.max_in_flight IS 'requests of all sessions at once; NULL = no limit';
COMMENT ON COLUMN llm.quotas.max_queued_jobs IS 'unfinished jobs, queued or running; NULL = no limit';
COMMENT ON TABLE llm.job_queue IS 'jobs and their results; read through llm.jobs and llm_job_result';
COMMENT ON SEQUENCE llm.job_ids IS 'ids of jobs';
COMMENT ON SEQUENCE llm.job_expired IS 'the greatest id of a job that was removed after llm_infer.job_retention';
COMMENT ON VIEW llm.jobs IS 'jobs that one may see: those of roles that one is a member of, all for pg_monitor';
COMMENT ON VIEW llm.job_workers IS 'background workers of this database''s jobs and enrichments, and why there is none; the launcher has no owner';
COMMENT ON TABLE llm.enrichment_defs IS 'standing enrichments; read through llm.enrichments';
COMMENT ON SEQUENCE llm.enrichment_ids IS 'ids of standing enrichments';
COMMENT ON VIEW llm.enrichments IS 'standing enrichments that one may see: one''s own, those of one''s tables, all for pg_monitor';
COMMENT ON TABLE llm.enrich_queue IS 'keys of rows that standing enrichments are to do';
COMMENT ON SEQUENCE llm.enrich_queue_ids IS 'ids of entries of llm.enrich_queue';
COMMENT ON TABLE llm.memo_entries IS 'answers that are kept; read through llm.memo';
COMMENT ON TABLE llm.memo_sizes IS 'how many entries the memo has, and their bytes: the sum of its rows';
COMMENT ON VIEW llm.memo IS 'answers that are kept: those of roles that one is a member of, all for pg_monitor';
COMMENT ON VIEW llm.stat_memo IS 'the memo of this database: its size, and what it was asked; counters are for members of pg_monitor';
COMMENT ON TABLE llm.enrich_failures IS 'rows that llm_enrich could not do; read through llm.failed_rows';
COMMENT ON VIEW llm.failed_rows IS 'rows that llm_enrich could not do, with their errors: one''s own calls and tables';
COMMENT ON VIEW llm.stat_users IS 'what roles have asked of the engine and what their quotas leave; own rows, all for pg_monitor';
COMMENT ON VIEW llm.prefix_cache IS 'blocks of prompts that are kept, and what they saved; those that one shares, all for pg_monitor';
COMMENT ON VIEW llm.stat_models IS 'models in the engine''s memory: weights, KV cache, last use';
COMMENT ON VIEW llm.stat_activity IS 'what backends ask of the engine; own ones, all for pg_monitor';
COMMENT ON VIEW llm.stat_progress_enrich IS 'how far running enrichments are; own ones, all for pg_monitor';

COMMENT ON FUNCTION llm_generate(text, text, text, int, float8, bigint, text[], jsonb, text, jsonb)
	IS 'generate text from a prompt';
COMMENT ON FUNCTION llm_generate(text[], text, text, int, float8, bigint, text[], jsonb, text, jsonb)
	IS 'generate text from each prompt, in order; NULL stays NULL';
COMMENT ON FUNCTION llm_generate_result(text, text, text, int, float8, bigint, text[], jsonb, text, jsonb)
	IS 'generate text from a prompt, with counts, times and the reason of its end';
COMMENT ON FUNCTION llm_generate_stream(text, text, text, int, float8, bigint, text[], jsonb, text, jsonb)
	IS 'generate text from a prompt, a row for each piece as it comes';
COMMENT ON FUNCTION llm_chat(jsonb, text, int, float8, bigint, text[], jsonb, text, jsonb)
	IS 'answer a conversation with a message';
COMMENT ON FUNCTION llm_job_submit(text, text, text, int, float8, bigint, text[], jsonb, text, jsonb)
	IS 'generate text later, in the background; visible with COMMIT; returns the id';
COMMENT ON FUNCTION llm_job_submit(text[], text, text, int, float8, bigint, text[], jsonb, text, jsonb)
	IS 'one job per prompt, in order; NULL gives NULL';
COMMENT ON FUNCTION llm_job_status(bigint)
	IS 'queued, running, done, failed, cancelled or expired';
COMMENT ON FUNCTION llm_job_result(bigint)
	IS 'the answer of a job; NULL when there is none yet';
COMMENT ON FUNCTION llm_job_cancel(bigint)
	IS 'cancel a job; false when it had ended';
COMMENT ON FUNCTION llm_job_wait(bigint, interval)
	IS 'wait for the end of a job, at most so long; returns its state';
COMMENT ON PROCEDURE llm_enrich(regclass, name, text, text, text, boolean, int, bigint, int, text, int, float8, bigint, jsonb, text, jsonb)
	IS 'fill a column by generated values, batch by batch; called again it goes on';
COMMENT ON FUNCTION llm_enrich_create(name, regclass, name, text, text, text, int, int, text, int, float8, bigint, jsonb, jsonb, boolean)
	IS 'keep a column filled by generated values: existing rows, new ones, changed ones';
COMMENT ON FUNCTION llm_enrich_alter(name, name, text, text, text, int, int, text, int, float8, bigint, jsonb, jsonb, boolean, name)
	IS 'change a standing enrichment; what is not given stays';
COMMENT ON FUNCTION llm_enrich_drop(name)
	IS 'end a standing enrichment; what it has written stays';
COMMENT ON FUNCTION llm_enrich_pause(name)
	IS 'stop the work of a standing enrichment; rows go on being queued';
COMMENT ON FUNCTION llm_enrich_resume(name, boolean)
	IS 'go on with a standing enrichment that is paused; optionally look for rows without a value';
COMMENT ON FUNCTION llm_enrich_retry_failed(name)
	IS 'queue the rows that have failed again; returns how many';
COMMENT ON FUNCTION llm.enrich_changed()
	IS 'trigger of standing enrichments';
COMMENT ON FUNCTION llm_pin_prefix(text, text)
	IS 'keep the beginning of prompts in the prefix cache; returns its tokens';
COMMENT ON FUNCTION llm_unpin_prefix(text, text)
	IS 'let a pinned beginning of prompts be evicted again';
COMMENT ON FUNCTION llm_tokenize(text, text)
	IS 'token ids of a text';
COMMENT ON FUNCTION llm_detokenize(int[], text)
	IS 'text of token ids';
COMMENT ON FUNCTION llm_count_tokens(text, text)
	IS 'number of tokens of a text';
COMMENT ON FUNCTION llm_model_register(text, text, jsonb)
	IS 'register a model file: CREATE SERVER of the wrapper llm_infer';
COMMENT ON FUNCTION llm_model_drop(text)
	IS 'forget a model: DROP SERVER';
COMMENT ON FUNCTION llm_model_load(text)
	IS 'load a model now instead of at its first use; for its owner';
COMMENT ON FUNCTION llm_model_unload(text)
	IS 'free the memory of a model; for its owner';
COMMENT ON FUNCTION llm_engine_restart()
	IS 'start a new engine process; running requests go on in it';
COMMENT ON FUNCTION llm.call_support(internal)
	IS 'tells the planner what calls cost';
COMMENT ON FUNCTION llm.llm_infer_validator(text[], oid)
	IS 'checks the options of models';
COMMENT ON FUNCTION llm.skip_replicated()
	IS 'keeps rows that logical replication brings out of the tables of schema llm';
COMMENT ON FUNCTION llm.stat_get_engine()
	IS 'behind the view llm.stat_engine';
COMMENT ON FUNCTION llm.stat_get_models()
	IS 'behind the view llm.models';
COMMENT ON FUNCTION llm.stat_get_users()
	IS 'behind the view llm.stat_users';
COMMENT ON FUNCTION llm.stat_get_residents()
	IS 'behind the view llm.stat_models';
COMMENT ON FUNCTION llm.stat_get_activity()
	IS 'behind the view llm.stat_activity';
COMMENT ON FUNCTION llm.stat_get_progress_enrich()
	IS 'behind the view llm.stat_progress_enrich';
COMMENT ON FUNCTION llm.stat_get_job_workers()
	IS 'behind the view llm.job_workers';
COMMENT ON FUNCTION llm_memo_forget(text)
	IS 'remove one''s own answers from the memo, of a model or of all; returns how many';
COMMENT ON FUNCTION llm.stat_get_memo()
	IS 'behind the view llm.stat_memo';
COMMENT ON FUNCTION llm.stat_get_prefixes()
	IS 'behind the view llm.prefix_cache';
COMMENT ON COLUMN llm.result.text IS 'the generated text';
COMMENT ON COLUMN llm.result.reasoning IS 'what a reasoning model thought; not part of the text';
COMMENT ON COLUMN llm.result.finish_reason IS 'stop, length, cancelled or error';
COMMENT ON COLUMN llm.result.prompt_tokens IS 'tokens of the prompt';
COMMENT ON COLUMN llm.result.cached_tokens IS 'of these, read from the prefix cache';
COMMENT ON COLUMN llm.result.completion_tokens IS 'tokens generated';
COMMENT ON COLUMN llm.result.logprobs IS 'log-probabilities, when asked for';
COMMENT ON COLUMN llm.result.queue_ms IS 'from submit to the first step';
COMMENT ON COLUMN llm.result.first_token_ms IS 'from submit to the first token';
COMMENT ON COLUMN llm.result.total_ms IS 'from submit to the end';
COMMENT ON COLUMN llm.result.model IS 'name of the model';
COMMENT ON COLUMN llm.result.error IS 'the error that on_error hid';
