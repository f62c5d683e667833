/* pg/memo/memo_key.c - the digest of a request, and its way to the store and back; see memo_key.h. */
#include "postgres.h"

#include "pg/memo/memo_key.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "pg/distinct.h"
#include "pg/guc.h"
#include "pg/memo/memo_model.h"
#include "utils/memutils.h"

#define KEY_VERSION 1 /* of what follows: keys of another one are never found */

/* What comes before the request in the digest. */
typedef struct KeyHead
{
	uint32 version;
	uint32 scope;
} KeyHead;

/* The first half of SHA-256: nobody can make two requests of one key. */
static void
digest(const uint8 *bytes, Size n, LlmMemoKey *key)
{
	KeyHead head = {KEY_VERSION, (uint32) llm_guc_prefix_cache_scope};
	uint8 sha[PG_SHA256_DIGEST_LENGTH];
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);

	if (ctx == NULL || pg_cryptohash_init(ctx) < 0 ||
		pg_cryptohash_update(ctx, (const uint8 *) &head, sizeof(head)) < 0 ||
		pg_cryptohash_update(ctx, bytes, n) < 0 || pg_cryptohash_final(ctx, sha, sizeof(sha)) < 0)
		elog(ERROR, "could not compute a digest: %s", pg_cryptohash_error(ctx));
	pg_cryptohash_free(ctx);
	memcpy(key->bytes, sha, sizeof(key->bytes));
}

/* All of req but the numerics key. */
static void
key_of(const LlmClientRequest *req, LlmMemoKey *key)
{
	Llm__Submit m = req->submit;
	LlmDistinctBytes asked;

	m.has_timeout_ms = m.has_priority = false;
	m.has_database = llm_guc_prefix_cache_scope != LLM__PREFIX_SCOPE__SCOPE_CLUSTER;
	m.has_role = llm_guc_prefix_cache_scope == LLM__PREFIX_SCOPE__SCOPE_ROLE;
	asked = llm_distinct_bytes(req->model, m);
	digest(asked.data, asked.n, key);
	pfree(asked.data);
}

/* A bijection for each numerics key, so that what it makes of digests are digests. */
static LlmMemoKey
with_numerics(LlmMemoKey key, uint64 numerics_key)
{
	for (Size i = 0; i < sizeof(numerics_key); i++)
		key.bytes[i] ^= (uint8) (numerics_key >> (8 * i));
	return key;
}

/* As an answer that nothing was computed for. */
static void
take_kept(LlmClientRequest *req, const LlmMemoAnswer *kept)
{
	LlmClientAnswer *a = &req->answer;

	a->text = (char *) kept->text;
	a->n_text = kept->n_text;
	a->reasoning = (char *) kept->reasoning;
	a->n_reasoning = kept->n_reasoning;
	a->finish = (Llm__Finish) kept->finish;
	a->prompt_tokens = a->cached_tokens = kept->prompt_tokens;
	a->completion_tokens = kept->completion_tokens;
	a->numerics_key = kept->numerics_key;
	req->remembered = true;
	req->state = LLM_CLIENT_FINISHED;
}

bool
llm_memo_key_answer(LlmClientRequest *req, bool patient)
{
	MemoryContext old;
	LlmMemoAnswer kept;
	LlmMemoKey key;
	uint64 numerics_key;

	if (!req->memo)
		key_of(req, &req->memo_key);
	req->memo = true;
	old = MemoryContextSwitchTo(req->cxt);
	numerics_key = llm_memo_model_numerics(req->model, patient, req->timeout_ms, &req->failure);
	MemoryContextSwitchTo(old);
	if (req->failure.sqlstate != 0)
		req->state = LLM_CLIENT_FINISHED;
	if (numerics_key == 0)
		return req->state == LLM_CLIENT_FINISHED;
	key = with_numerics(req->memo_key, numerics_key);
	if (!llm_memo_find(&key, req->cxt, &kept))
		return false;
	take_kept(req, &kept);
	return true;
}

/* Whether the same request would get the answer at any time. One without a limit of its own ends at the
 * latest where the engine's memory does. */
static bool
is_lasting(const LlmClientRequest *req)
{
	const LlmClientAnswer *a = &req->answer;
	bool limited = req->submit.has_max_tokens && req->submit.max_tokens >= 0;

	return a->numerics_key != 0 && !a->dated &&
		   (a->finish == LLM__FINISH__FINISH_STOP ||
			(a->finish == LLM__FINISH__FINISH_LENGTH && limited));
}

void
llm_memo_key_keep(const LlmClientRequest *req)
{
	const LlmClientAnswer *a = &req->answer;
	LlmMemoAnswer kept = {.text = a->text,
						  .n_text = a->n_text,
						  .reasoning = a->reasoning,
						  .n_reasoning = a->n_reasoning,
						  .finish = (int) a->finish,
						  .prompt_tokens = a->prompt_tokens,
						  .completion_tokens = a->completion_tokens,
						  .numerics_key = a->numerics_key};
	LlmMemoKey key = with_numerics(req->memo_key, a->numerics_key);

	if (is_lasting(req))
		llm_memo_keep(&key, req->model->server, req->submit.role, &kept);
}
