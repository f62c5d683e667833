/*
 * engine_ways.h - a workload, many ways of running it, and one set of answers.
 *
 * The workload is a list of requests of mixed lengths around pages, some beginning alike, greedy and
 * seeded, with penalties, biases, stop strings and log-probabilities. A way says everything that
 * must not matter: batch, chunks, threads, instruction set, cache, single flight, preemption, pool,
 * neighbours, order of arrival. The reference runs each request by itself, with nothing cached or
 * shared. Of a logits row the 128-bit hash is kept, so that vocabularies of any size can be compared
 * at every position.
 */
#ifndef LLM_TEST_ENGINE_WAYS_H
#define LLM_TEST_ENGINE_WAYS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "core/rng.h"
#include "core/str.h"
#include "engine/llm.h"
#include "tensor/kv_spec.h"

#define WAY_REQS 64
#define WAY_COPIES 3 /* of a request at most, beside the first */
#define WAY_NEW 70   /* tokens generated at most */
#define WAY_LEN (129 + WAY_NEW)
#define STRANGER_ID 100000 /* requests from here on are cancelled sooner or later */

/* What is run. */
typedef struct WayModel
{
	const char *path;
	const char *kv_type;
	int32_t first_id, n_ids; /* plain tokens */
	int n_reqs;              /* of the workload, at most WAY_REQS */
	int32_t page_nbytes;     /* of the KV pool; set by way_reference */
} WayModel;

/* How it is run. Zero is the reference's value, but for the numbers that must be set. */
typedef struct Way
{
	const char *what;
	const char *isa; /* NULL = best */
	int32_t threads, max_batch_tokens, max_running;
	bool prefix, flight;
	bool again;             /* the workload twice: with prefix, the second time on a warm cache */
	int copies;             /* further askers of every request */
	int strangers;          /* further requests, which are cancelled */
	uint32_t preempt_every; /* must happen */
	int32_t pages;          /* of the pool; 0 = plenty */
	int n_reqs;             /* the first n of the workload; 0 = all */
	int arrival;            /* 0 in order, 1 reversed, 2 shuffled and spread over steps */
	bool last_only;         /* logits of sampled rows only */
} Way;

/* A request of the workload; q may point into it. */
typedef struct WayReq
{
	LlmRequest q;
	int32_t ids[WAY_LEN];
	int32_t n;
	LlmTokenBias bias[20];
} WayReq;

/* What one who asked got. */
typedef struct WayAnswer
{
	bool done;
	LlmFinish finish;
	int32_t generated[WAY_NEW];
	int32_t n_generated;
	XXH128_hash_t logprobs; /* of the answer and the prompt; zero = none */
	LlmBuf text;
	LlmBuf pieces;
} WayAnswer;

typedef struct WayRun
{
	const Way *way;
	LlmEngine *e;
	int n_reqs;
	XXH128_hash_t logits[WAY_REQS][WAY_LEN]; /* by request and position */
	bool seen[WAY_REQS][WAY_LEN];
	WayAnswer answers[WAY_REQS * (1 + WAY_COPIES)];
	uint64_t next_stranger, oldest_stranger;
} WayRun;

/* ---- the workload ---- */

static inline void
way_sampling(LlmRequest *q, int i)
{
	static const LlmSampleParams kinds[] = {
		{.temperature = 0.0f, .top_p = 1.0f, .repetition_penalty = 1.0f},
		{.temperature = 1.0f, .top_p = 0.9f, .repetition_penalty = 1.0f},
		{.temperature = 0.0f, .top_p = 1.0f, .repetition_penalty = 1.3f},
		{.temperature = 0.8f,
		 .top_p = 1.0f,
		 .min_p = 0.02f,
		 .top_k = 40,
		 .repetition_penalty = 1.0f},
		{.temperature = 1.2f,
		 .top_p = 0.95f,
		 .repetition_penalty = 1.1f,
		 .presence_penalty = 0.5f,
		 .frequency_penalty = 0.3f},
	};

	q->sample = kinds[i % 5];
	q->sample.seed = (uint64_t) i / 5;
	if (i % 7 == 3)
	{
		q->stops[0] = llm_str("e");
		q->stops[1] = llm_str("an");
		q->n_stops = 2;
	}
	else if (i % 7 == 5)
	{
		q->stops[0] = llm_str("never said by chance");
		q->n_stops = 1;
	}
}

/* What changes the logits before a pick, and what is told of them. */
static inline void
way_choice(const WayModel *m, int i, WayReq *r)
{
	r->q.logprobs = i % 6 == 2;
	r->q.prompt_logprobs = i % 13 == 6;
	r->q.n_top = r->q.logprobs || r->q.prompt_logprobs ? i % 4 : 0;
	r->q.min_tokens = i % 10 == 3 && r->q.max_tokens > 2 ? 2 : 0;
	if (i % 8 == 1)
	{
		for (int32_t k = 0; k < 20; k++)
			r->bias[k] = (LlmTokenBias){m->first_id + k * 7, (float) (k % 5) - 2.5f};
		r->q.bias = r->bias;
		r->q.n_bias = 20;
	}
	if (i % 9 == 4)
	{
		r->q.forbidden = r->ids; /* of the prompt's first token */
		r->q.n_forbidden = 1;
	}
}

/* Prompts around one page and two (a page is a split of attention), answers over their borders. */
static inline void
way_req(const WayModel *m, int i, WayReq *r)
{
	static const int32_t lengths[] = {63, 64, 65,  128, 1, 70,  7,  17,
									  33, 2,  127, 100, 5, 129, 50, 3};
	static const int32_t shared[] = {0, 128, 64, 63, 100}; /* with the others of its kind */
	static const int32_t new[] = {6, 3, 12, 1, 20, 4, 8};

	memset(r, 0, sizeof(*r));
	r->n = lengths[i % 16] - (i >= 16 && lengths[i % 16] > 40 ? i % 9 : 0);
	r->q = (LlmRequest){.raw = true,
						.ignore_eos = i % 3 != 0,
						.stream = i % 2 == 0,
						.salt = i % 11 == 0 ? 2 : 1,
						.max_tokens = i == 4 || i == 30 ? WAY_NEW : new[i % 7]};
	way_sampling(&r->q, i);
	way_choice(m, i, r);
	for (int32_t k = 0; k < r->n; k++)
		r->ids[k] =
			m->first_id +
			(int32_t) (llm_rng_u32(99, k < shared[i % 5] ? 1000 : (uint32_t) i, (uint32_t) k) %
					   (uint32_t) m->n_ids);
}

static inline void
way_submit(WayRun *w, LlmRequest q, const int32_t *ids, int32_t n)
{
	LlmError err = {0};

	llm_engine_force_prompt(w->e, ids, n);
	if (llm_engine_submit(w->e, &q, &err) != LLM_OK)
		fail_msg("%s: submit: %s", w->way->what, err.text);
}

/* Request i, `copy` 0 or one that another client asks as well. */
static inline void
way_submit_req(WayRun *w, const WayModel *m, int i, int copy)
{
	WayReq r;

	way_req(m, i, &r);
	r.q.key = (LlmRequestKey){(uint64_t) ((i + copy) % 5), (uint64_t) (copy * w->n_reqs + i)};
	way_submit(w, r.q, r.ids, r.n);
}

/* ---- strangers: requests that come and are cancelled, whatever state they are in ---- */

static inline void
way_stranger(WayRun *w, const WayModel *m)
{
	uint64_t n = w->next_stranger++;
	WayReq r;

	way_req(m, (int) (n * 3 % (uint64_t) w->n_reqs), &r);
	r.q.key = (LlmRequestKey){n % 7, STRANGER_ID + n};
	r.q.max_tokens = 40;
	r.q.ignore_eos = true;
	r.q.n_stops = 0;
	if (n % 2 == 0) /* half of them begin like the workload and then go their own way */
		r.ids[r.n - 1] = m->first_id;
	way_submit(w, r.q, r.ids, r.n);
}

static inline void
way_strangers_turn(WayRun *w, const WayModel *m, uint32_t step)
{
	uint32_t x = llm_rng_u32(4, step, 0);

	if (w->next_stranger < (uint64_t) w->way->strangers && x % 2 == 0)
		way_stranger(w, m);
	if (w->oldest_stranger < w->next_stranger && x / 2 % 3 == 0)
	{
		uint64_t n = w->oldest_stranger++;

		llm_engine_cancel(w->e, (LlmRequestKey){n % 7, STRANGER_ID + n});
	}
}

/* ---- running ---- */

/* A position that is computed again, for whatever reason, must give the same bits again. */
static inline void
way_on_logits(void *arg, LlmRequestKey key, int32_t position, const float *logits,
			  int32_t vocab_size)
{
	WayRun *w = arg;
	XXH128_hash_t h = XXH3_128bits(logits, (size_t) vocab_size * sizeof(float));
	size_t i = (size_t) (key.id % (uint64_t) w->n_reqs);

	if (key.id >= STRANGER_ID)
		return;
	assert_in_range(position, 0, WAY_LEN - 1);
	if (w->seen[i][position] && !XXH128_isEqual(w->logits[i][position], h))
		fail_msg("%s: request %d position %d differs when computed again", w->way->what, (int) i,
				 position);
	w->logits[i][position] = h;
	w->seen[i][position] = true;
}

static inline void
way_on_text(void *arg, LlmRequestKey key, LlmStr piece)
{
	WayRun *w = arg;

	if (key.id < STRANGER_ID)
		assert_true(llm_buf_append(&w->answers[key.id].pieces, piece.p, piece.len));
}

static inline XXH128_hash_t
way_hash_logprobs(XXH128_hash_t before, const LlmLogprob *rows, int32_t n, int32_t n_top)
{
	return XXH3_128bits_withSeed(rows, (size_t) n * (size_t) (1 + n_top) * sizeof(*rows),
								 before.low64 + 1);
}

static inline void
way_on_done(void *arg, const LlmResult *r)
{
	WayRun *w = arg;
	WayAnswer *a;

	if (r->status != LLM_OK)
		fail_msg("%s: request %d: %s", w->way->what, (int) r->key.id, r->error->text);
	if (r->key.id >= STRANGER_ID)
		return;
	a = &w->answers[r->key.id];
	assert_false(a->done);
	assert_in_range(r->completion_tokens, 1, WAY_NEW);
	a->done = true;
	a->finish = r->finish;
	a->n_generated = r->completion_tokens;
	memcpy(a->generated, r->generated, (size_t) r->completion_tokens * sizeof(int32_t));
	assert_true(llm_buf_append(&a->text, r->text.p, r->text.len));
	if (r->logprobs != NULL)
		a->logprobs = way_hash_logprobs(a->logprobs, r->logprobs, r->completion_tokens, r->n_top);
	if (r->prompt_logprobs != NULL)
		a->logprobs =
			way_hash_logprobs(a->logprobs, r->prompt_logprobs, r->prompt_tokens, r->n_top);
}

static inline bool
way_step(WayRun *w)
{
	bool idle;
	LlmError err = {0};

	if (llm_engine_step(w->e, &idle, &err) != LLM_OK || !llm_engine_audit(w->e, &err))
		fail_msg("%s: %s", w->way->what, err.text);
	return !idle;
}

/* An engine with the model as the way says; false when the machine lacks the ISA. */
static inline bool
way_open(WayRun *w, const WayModel *m)
{
	LlmEngineOptions o = llm_engine_options_default();
	LlmEngineEvents events = {.arg = w, .text = way_on_text, .done = way_on_done};
	LlmModelSpec spec = {.path = m->path, .kv_type = m->kv_type};
	LlmError err = {0};

	o.isa = w->way->isa;
	o.threads = w->way->threads;
	o.max_batch_tokens = w->way->max_batch_tokens;
	o.max_running = w->way->max_running;
	o.preempt_every = w->way->preempt_every;
	o.prefix_cache = w->way->prefix;
	o.single_flight = w->way->flight;
	o.kv_nbytes = w->way->pages > 0 ? (int64_t) w->way->pages * m->page_nbytes : 0;
	assert_int_equal(llm_engine_create(&o, events, &w->e, &err), LLM_OK);
	llm_engine_logits_hook(w->e, way_on_logits, w, !w->way->last_only);
	if (llm_engine_load(w->e, &spec, &err) == LLM_OK)
		return true;
	llm_engine_free(w->e);
	w->e = NULL;
	if (w->way->isa == NULL || err.code != LLM_E_INVALID)
		fail_msg("load: %s (%s)", err.text, err.detail);
	printf("SKIP %s: %s\n", w->way->what, err.text);
	return false;
}

/* The i-th request to arrive. */
static inline int
way_arrival(const Way *way, int i, int n)
{
	if (way->arrival == 0)
		return i;
	return way->arrival == 1 ? n - 1 - i : (i * 37 + 11) % n; /* n has no factor 37 */
}

/* The workload from its first request to its last answer. */
static inline void
way_round(WayRun *w, const WayModel *m)
{
	int n = w->n_reqs;
	uint32_t step = 0;
	LlmEngineStats s;

	for (int i = 0; i < n; i++)
		for (int copy = 0; copy <= w->way->copies; copy++)
		{
			way_submit_req(w, m, way_arrival(w->way, i, n), copy);
			way_strangers_turn(w, m, step++);
			for (int k = 0; w->way->arrival == 2 && k < (i + copy) % 3; k++)
				way_step(w);
		}
	while (way_step(w))
		way_strangers_turn(w, m, step++);
	llm_engine_stats(w->e, &s);
	assert_int_equal(s.kv_pages_free + s.kv_pages_cached, s.kv_pages_total);
}

static inline void
way_forget_answers(WayRun *w)
{
	for (int i = 0; i < w->n_reqs * (1 + w->way->copies); i++)
	{
		llm_buf_fini(&w->answers[i].text);
		llm_buf_fini(&w->answers[i].pieces);
	}
	memset(w->answers, 0, sizeof(w->answers));
}

/* ---- comparing ---- */

static inline void
way_compare_answer(const WayRun *ref, const WayRun *w, int i, int copy, bool streamed)
{
	const WayAnswer *a = &ref->answers[i];
	const WayAnswer *b = &w->answers[copy * w->n_reqs + i];

	if (!b->done || b->n_generated != a->n_generated ||
		memcmp(b->generated, a->generated, (size_t) a->n_generated * sizeof(int32_t)) != 0)
		fail_msg("%s: request %d, copy %d, has other tokens", w->way->what, i, copy);
	assert_int_equal(b->finish, a->finish);
	if (!XXH128_isEqual(b->logprobs, a->logprobs))
		fail_msg("%s: request %d, copy %d, has other log-probabilities", w->way->what, i, copy);
	assert_int_equal(b->text.len, a->text.len);
	assert_true(a->text.len == 0 || memcmp(b->text.data, a->text.data, a->text.len) == 0);
	assert_int_equal(b->pieces.len, streamed ? a->text.len : 0);
	assert_true(b->pieces.len == 0 || memcmp(b->pieces.data, a->text.data, a->text.len) == 0);
}

/* Every answer and every logit that w has is the reference's, and w has what its way should give. */
static inline void
way_compare(const WayRun *ref, const WayRun *w, const WayModel *m)
{
	for (int i = 0; i < w->n_reqs; i++)
	{
		WayReq r;

		way_req(m, i, &r);
		for (int copy = 0; copy <= w->way->copies; copy++)
			way_compare_answer(ref, w, i, copy, r.q.stream);
		for (int32_t pos = 0; pos < r.n + ref->answers[i].n_generated - 1; pos++)
		{
			assert_true(ref->seen[i][pos]);
			if (!w->seen[i][pos])
				assert_true(pos < r.n - 1 && (w->way->last_only || w->way->prefix));
			else if (!XXH128_isEqual(w->logits[i][pos], ref->logits[i][pos]))
				fail_msg("%s: request %d (prompt of %d) differs at position %d", w->way->what, i,
						 r.n, pos);
		}
	}
}

/* What the way is about must have happened. */
static inline void
way_check_stats(const WayRun *w)
{
	const Way *way = w->way;
	LlmEngineStats s;

	llm_engine_stats(w->e, &s);
	if (way->preempt_every > 0)
		assert_true(s.preemptions > 0);
	if (way->again && way->pages == 0)
		assert_int_equal(s.cached_tokens > 0, way->prefix);
	if (!way->flight)
		assert_int_equal(s.shared, 0);
	else if (way->copies > 0)
		assert_true(s.shared > 0);
}

static inline WayRun *
way_run_create(const Way *way, const WayModel *m)
{
	WayRun *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->way = way;
	w->n_reqs = way->n_reqs == 0 || way->n_reqs > m->n_reqs ? m->n_reqs : way->n_reqs;
	return w;
}

static inline void
way_run_free(WayRun *w)
{
	way_forget_answers(w);
	llm_engine_free(w->e);
	free(w);
}

/* Every request by itself. */
static inline WayRun *
way_reference(WayModel *m)
{
	static const Way alone = {.what = "alone",
							  .threads = 1,
							  .max_batch_tokens = 512,
							  .max_running = 1};
	WayRun *ref = way_run_create(&alone, m);
	LlmModelInfo info;

	assert_true(way_open(ref, m));
	assert_true(llm_engine_model(ref->e, &info));
	m->page_nbytes = info.kv_nbytes_per_token * LLM_PAGE_TOKENS;
	way_round(ref, m);
	return ref;
}

/* Run one way and compare. */
static inline void
way_check(const WayRun *ref, const Way *way, const WayModel *m)
{
	WayRun *w = way_run_create(way, m);

	if (way_open(w, m))
	{
		for (int round = 0; round <= way->again; round++)
		{
			way_forget_answers(w);
			way_round(w, m);
			way_compare(ref, w, m);
		}
		way_check_stats(w);
	}
	way_run_free(w);
}

/* ---- ways by chance ---- */

static inline int32_t
way_dice(uint32_t seed, uint32_t what, int32_t n)
{
	return (int32_t) (llm_rng_u32(2024, seed, what) % (uint32_t) n);
}

/* All that must not matter, thrown by seed. */
static inline Way
way_by_chance(uint32_t seed)
{
	static char what[32];
	static const int32_t rows[] = {1, 5, 15, 16, 31, 64, 90, 128, 200, 256, 511, 512};
	Way w = {.what = what,
			 .threads = 1 + way_dice(seed, 0, 2),
			 .max_batch_tokens = rows[way_dice(seed, 1, 12)],
			 .max_running = 1 + way_dice(seed, 2, 64),
			 .prefix = way_dice(seed, 3, 4) > 0,
			 .flight = way_dice(seed, 4, 4) > 0,
			 .again = way_dice(seed, 5, 2) == 0,
			 .copies = way_dice(seed, 6, 3) == 0 ? 1 + way_dice(seed, 7, WAY_COPIES) : 0,
			 .strangers = way_dice(seed, 8, 2) * 25,
			 .preempt_every =
				 (uint32_t) way_dice(seed, 9, 2) * (uint32_t) (2 + way_dice(seed, 10, 9)),
			 .pages = way_dice(seed, 11, 3) == 0 ? 4 + way_dice(seed, 12, 12) : 0,
			 .arrival = way_dice(seed, 13, 3),
			 .last_only = way_dice(seed, 14, 4) == 0};

	snprintf(what, sizeof(what), "chance %u", seed);
	if (w.max_batch_tokens < 15)
		w.n_reqs = 16;
	return w;
}

#endif
