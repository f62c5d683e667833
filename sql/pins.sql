-- pins.sql - pinned beginnings of prompts, and the view of the prefix cache
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

CREATE ROLE regress_llm_pin;
CREATE ROLE regress_llm_other;
CREATE ROLE regress_llm_watch IN ROLE pg_monitor;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_pin, regress_llm_other;
CREATE FUNCTION instruction() RETURNS text LANGUAGE sql AS $$SELECT repeat('always the same. ', 20)$$;

SET ROLE regress_llm_pin;
-- the tokens that are kept, in blocks of 64
SELECT llm_pin_prefix(instruction());
SELECT llm_pin_prefix(instruction()) AS once;
SELECT model, database = current_database() AS here, role, blocks, pinned, evictions FROM llm.prefix_cache;
SELECT prompt_tokens, cached_tokens, text = instruction() || 'x' AS same FROM llm_generate_result(instruction() || 'x', max_tokens => 500);
SELECT hits > 0 AS hit, tokens_saved > 0 AS saved, lookups >= hits AS counted FROM llm.prefix_cache;
-- names and errors
SELECT llm_pin_prefix(NULL), llm_unpin_prefix(NULL) IS NULL AS nothing;
SELECT error_of($$SELECT llm_pin_prefix('x', 'nobody')$$);
SELECT error_of($$SELECT llm_unpin_prefix('never pinned')$$);
SELECT error_of($$SELECT llm_unpin_prefix('never pinned' || instruction())$$);

-- what another role pins and asks is its own; a monitor sees everything
SET ROLE regress_llm_other;
SELECT count(*) FROM llm.prefix_cache WHERE role <> current_user;
SELECT cached_tokens FROM llm_generate_result(instruction() || 'x');
SELECT error_of($$SELECT llm_unpin_prefix(instruction())$$);
SELECT model, role, pinned FROM llm.prefix_cache;
SET ROLE regress_llm_watch;
SELECT model, role, blocks > 0 AS blocks, pinned FROM llm.prefix_cache WHERE role LIKE 'regress\_llm\_%' ORDER BY role;
SELECT error_of($$SELECT llm_pin_prefix('x')$$);

SET ROLE regress_llm_pin;
SELECT llm_unpin_prefix(instruction());
SELECT pinned FROM llm.prefix_cache;
SELECT error_of($$SELECT llm_unpin_prefix(instruction())$$);
-- a prefix is a prompt: it must fit the context
RESET ROLE;
SELECT left(error_of(format('SELECT llm_pin_prefix(repeat(%L, 4000), %L)', 'far too long to be pinned. ', 'echo')), 5) AS sqlstate;
SELECT engine_idle();
SELECT proname, provolatile, proparallel, proisstrict, pg_get_function_result(oid) FROM pg_proc WHERE proname LIKE 'llm\_%pin\_prefix' ORDER BY 1;
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_llm_pin, regress_llm_other;
DROP FUNCTION instruction();
DROP ROLE regress_llm_pin, regress_llm_other, regress_llm_watch;
