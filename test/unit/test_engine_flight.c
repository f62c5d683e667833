/*
 * test_engine_flight.c - requests that ask the same at the same time are generated once, and nobody
 * who asks can tell: not by the answer, not by what becomes of the others.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "engine/flight.h"
#include "engine_run.h"

static LlmEngineOptions
flight_options(void)
{
	LlmEngineOptions o = run_options();

	o.single_flight = true;
	return o;
}

static LlmRequest
greedy(const char *prompt, uint64_t client)
{
	LlmRequest q = run_request(prompt, 64);

	q.sample.temperature = 0.0f;
	q.key.client = client;
	return q;
}

static LlmEngineStats
stats_of(const Run *r)
{
	LlmEngineStats s;

	llm_engine_stats(r->e, &s);
	return s;
}

static void
audit(const Run *r)
{
	LlmError err = {0};

	if (!llm_engine_audit(r->e, &err))
		fail_msg("audit: %s", err.text);
}

static void
cancel(Run *r, uint64_t client, uint64_t id)
{
	llm_engine_cancel(r->e, (LlmRequestKey){client, id});
	audit(r);
}

/* ---- who is the twin of whom ---- */

static LlmLoaded loaded; /* the echo model, without an engine */

static void
no_progress(void *arg)
{
}

static int
model_open(void **state)
{
	LlmEngineOptions o = flight_options();
	LlmModelSpec spec = {.path = "echo:"};
	LlmLoaderArgs a = {&o, &spec, false, no_progress, NULL};

	return llm_loader_open(&a, &loaded, NULL) != LLM_OK;
}

static int
model_close(void **state)
{
	llm_loader_close(&loaded);
	return 0;
}

static LlmReq *
named(const LlmRequest *q, const char *prompt)
{
	LlmPrompt p = {0};
	LlmReq *r = NULL;
	LlmError err;

	for (const char *c = prompt; *c != '\0'; c++)
		assert_true(llm_tokens_push(&p.ids, *c));
	assert_int_equal(llm_req_create(&loaded, q, &p, q->max_tokens, &r, &err), LLM_OK);
	assert_true(llm_flight_name(r, q));
	llm_prompt_fini(&p);
	return r;
}

static bool
twins(const LlmRequest *a, const char *prompt_a, const LlmRequest *b, const char *prompt_b)
{
	LlmFlights *f = calloc(1, sizeof(*f));
	LlmReq *ra = named(a, prompt_a);
	LlmReq *rb = named(b, prompt_b);
	bool found;

	llm_flight_insert(f, ra);
	found = llm_flight_find(f, rb) == ra;
	llm_flight_remove(f, ra);
	assert_null(llm_flight_find(f, rb));
	llm_req_free(ra);
	llm_req_free(rb);
	free(f);
	return found;
}

static void
twins_are_equal_in_all_that_an_answer_depends_on(void **state)
{
	static const LlmTokenBias bias[] = {{65, 1.5f}, {66, -2.0f}};
	static const int32_t list[] = {65, 66};
	LlmRequest base = run_request("p", 10);

	base.sample.temperature = 0.5f;
	base.sample.seed = 7;
	assert_true(twins(&base, "prompt", &base, "prompt"));
	assert_false(twins(&base, "prompt", &base, "prompT"));
	assert_false(twins(&base, "prompt", &base, "promp"));
#define TWINS(expected, change)                                                                    \
	do                                                                                             \
	{                                                                                              \
		LlmRequest q = base;                                                                       \
		change;                                                                                    \
		assert_int_equal(twins(&base, "prompt", &q, "prompt"), expected);                          \
		assert_int_equal(twins(&q, "prompt", &base, "prompt"), expected);                          \
		assert_true(twins(&q, "prompt", &q, "prompt"));                                            \
	} while (0)
	TWINS(false, q.salt = 1);
	TWINS(false, q.max_tokens = 11);
	TWINS(false, q.sample.temperature = 0.6f);
	TWINS(false, q.sample.top_p = 0.9f);
	TWINS(false, q.sample.min_p = 0.1f);
	TWINS(false, q.sample.top_k = 5);
	TWINS(false, q.sample.repetition_penalty = 1.1f);
	TWINS(false, q.sample.presence_penalty = 0.1f);
	TWINS(false, q.sample.frequency_penalty = 0.1f);
	TWINS(false, q.sample.seed = 8);
	TWINS(false, (q.stops[0] = llm_str("x"), q.n_stops = 1));
	TWINS(false, (q.stops[0] = llm_str("x"), q.stops[1] = llm_str("yz"), q.n_stops = 2));
	TWINS(false, q.raw = true);
	TWINS(false, q.ignore_eos = true);
	TWINS(false, q.reasoning = LLM_REASONING_OFF);
	TWINS(false, q.template_kwargs = llm_str("{\"a\": 1}"));
	TWINS(false, (q.bias = bias, q.n_bias = 1));
	TWINS(false, (q.bias = bias, q.n_bias = 2));
	TWINS(false, (q.allowed = list, q.n_allowed = 2));
	TWINS(false, (q.forbidden = list, q.n_forbidden = 2));
	TWINS(false, (q.stop_tokens = list, q.n_stop_tokens = 1));
	TWINS(false, q.min_tokens = 1);
	TWINS(false, q.logprobs = true);
	TWINS(false, q.prompt_logprobs = true);
	TWINS(true, q.key.client = 9);
	TWINS(true, q.stream = true);
	TWINS(true, q.timeout_ms = 5);
	TWINS(true, q.priority = 5);
	TWINS(true, q.tenant = 5);
	TWINS(true, q.truncate = LLM_TRUNCATE_LEFT);
	base.sample.temperature = 0.0f;
	TWINS(true, q.sample.seed = 8); /* nobody asks the noise */
	base.logprobs = true;
	TWINS(false, q.n_top = 3);
#undef TWINS
}

/* Lists of another kind or split do not look alike. */
static void
lists_do_not_run_into_each_other(void **state)
{
	static const int32_t list[] = {65, 66, 67};
	LlmRequest a = run_request("p", 10);
	LlmRequest b = a;

	a.allowed = list;
	a.n_allowed = 2;
	b.forbidden = list;
	b.n_forbidden = 2;
	assert_false(twins(&a, "prompt", &b, "prompt"));
	a = b = run_request("p", 10);
	a.stops[0] = llm_str("ab");
	a.stops[1] = llm_str("c");
	b.stops[0] = llm_str("a");
	b.stops[1] = llm_str("bc");
	a.n_stops = b.n_stops = 2;
	assert_false(twins(&a, "prompt", &b, "prompt"));
}

static void
who_runs_alone_has_no_twin(void **state)
{
	Run r;
	LlmRequest q = greedy("alone", 1);

	run_echo_with(&r, flight_options(), RUN_CONTEXT);
	run_submit(&r, q);
	q.alone = true;
	run_submit(&r, q);
	run_submit(&r, q);
	assert_int_equal(stats_of(&r).waiting, 3);
	run_all(&r);
	for (int i = 1; i <= 3; i++)
		assert_string_equal(run_text(&r.of[i]), "alone");
	assert_int_equal(stats_of(&r).shared, 0);
	run_fini(&r);
}

/* ---- one answer for all ---- */

static void
they_are_generated_once(void **state)
{
	Run r;

	run_echo_with(&r, flight_options(), RUN_CONTEXT);
	for (uint64_t i = 1; i <= 10; i++)
	{
		run_submit(&r, greedy("what is asked often", i % 3));
		audit(&r);
		if (i == 6) /* late ones join what is under way */
			for (int k = 0; k < 5; k++)
				run_step(&r);
	}
	assert_int_equal(stats_of(&r).waiting + stats_of(&r).running, 1);
	run_all(&r);
	assert_int_equal(r.n_done, 10);
	for (int i = 1; i <= 10; i++)
	{
		const Outcome *o = &r.of[i];

		assert_int_equal(o->n_done, 1);
		assert_string_equal(run_text(o), "what is asked often");
		assert_int_equal(o->finish, LLM_FINISH_STOP);
		assert_int_equal(o->prompt_tokens, RUN_AROUND + 19);
		assert_int_equal(o->completion_tokens, 20);
		assert_int_equal(o->cached_tokens, i == 1 ? 0 : o->prompt_tokens);
		assert_true(o->queue_ms >= 0 && o->first_token_ms >= o->queue_ms);
		assert_true(o->total_ms >= o->first_token_ms);
	}
	assert_int_equal(stats_of(&r).generated_tokens, 20);
	assert_int_equal(stats_of(&r).requests, 10);
	assert_int_equal(stats_of(&r).shared, 9);
	run_one(&r, greedy("what is asked often", 1)); /* nobody is in flight any more */
	assert_int_equal(stats_of(&r).generated_tokens, 40);
	run_fini(&r);
}

static void
noise_of_one_seed_is_shared_and_of_two_is_not(void **state)
{
	Run r;
	LlmRequest q = run_request("@seed", 30);

	run_echo_with(&r, flight_options(), RUN_CONTEXT);
	for (uint64_t i = 0; i < 6; i++)
	{
		q.sample.seed = 100 + i % 2;
		run_submit(&r, q);
	}
	assert_int_equal(stats_of(&r).waiting, 2);
	run_all(&r);
	for (int i = 1; i <= 6; i++)
		assert_string_equal(run_text(&r.of[i]), i % 2 == 1 ? "100" : "101");
	run_fini(&r);
}

static void
it_can_be_turned_off_and_on(void **state)
{
	Run r;
	LlmEngineOptions o = flight_options();
	LlmError err;

	run_echo_with(&r, o, RUN_CONTEXT);
	for (int on = 0; on < 2; on++)
	{
		o.single_flight = on;
		assert_int_equal(llm_engine_settings(r.e, &o, &err), LLM_OK);
		run_submit(&r, greedy("words", 1));
		run_submit(&r, greedy("words", 2));
		assert_int_equal(stats_of(&r).waiting, on ? 1 : 2);
		run_all(&r);
		assert_int_equal(stats_of(&r).shared, on);
	}
	run_fini(&r);
}

/* Who joins late is shown at once what the others have seen, and then each piece with them; what
 * may begin a stop string is held back from all. */
static void
streams_show_the_same_text(void **state)
{
	Run r;

	run_echo_with(&r, flight_options(), RUN_CONTEXT);
	for (int join_after = 0; join_after < 12; join_after++)
	{
		LlmRequest q = greedy("abSTSTOcdSTOPx", 1);
		uint64_t first, silent, late;

		q.stops[0] = llm_str("STOP");
		q.n_stops = 1;
		q.stream = true;
		first = run_submit(&r, q);
		q.stream = false;
		silent = run_submit(&r, q);
		for (int i = 0; i < join_after; i++)
			run_step(&r);
		q.stream = true;
		late = run_submit(&r, q);
		do
		{
			assert_int_equal(r.of[first].pieces.len, r.of[late].pieces.len);
			if (r.of[first].pieces.len > 0)
				assert_string_equal(r.of[first].pieces.data, r.of[late].pieces.data);
		} while (run_step(&r));
		assert_string_equal(r.of[late].pieces.data, "abSTSTOcd");
		assert_int_equal(r.of[silent].n_pieces, 0);
		for (uint64_t id = first; id <= late; id++)
			assert_string_equal(run_text(&r.of[id]), "abSTSTOcd");
		assert_int_equal(stats_of(&r).shared, 2 * (join_after + 1));
	}
	run_fini(&r);
}

static void
a_failure_of_the_row_is_everybodys(void **state)
{
	Run r;

	run_echo_with(&r, flight_options(), RUN_CONTEXT);
	for (int i = 0; i < 3; i++)
		run_submit(&r, greedy("@error=kaputt rest", 1));
	run_submit(&r, greedy("good neighbour", 1));
	run_all(&r);
	for (int i = 1; i <= 3; i++)
	{
		assert_int_equal(r.of[i].status, LLM_E_INTERNAL);
		assert_string_equal(r.of[i].error.text, "kaputt");
	}
	assert_string_equal(run_text(&r.of[4]), "good neighbour");
	assert_int_equal(stats_of(&r).errors, 3);
	assert_int_equal(stats_of(&r).shared, 0);
	run_fini(&r);
}

static void
an_unload_ends_all(void **state)
{
	Run r;

	run_echo_with(&r, flight_options(), RUN_CONTEXT);
	for (uint64_t i = 1; i <= 4; i++)
		run_submit(&r, greedy("never said", i));
	run_step(&r);
	llm_engine_unload(r.e);
	for (int i = 1; i <= 4; i++)
		assert_int_equal(r.of[i].status, LLM_E_CANCELLED);
	run_fini(&r);
}

/* ---- whoever leaves, leaves alone ---- */

/* Cancel one of three in every state of the answer: the others get it, and nothing is begun anew. */
static void
a_cancel_touches_nobody_else(void **state)
{
	for (uint64_t leaves = 1; leaves <= 3; leaves++)
		for (int n_steps = 0; n_steps < 10; n_steps++)
		{
			Run r;
			LlmEngineOptions o = flight_options();
			LlmRequest q = greedy("a text in three steps", 1);

			o.max_batch_tokens = 16;
			run_echo_with(&r, o, RUN_CONTEXT);
			q.stream = true;
			for (q.key.client = 1; q.key.client <= 3; q.key.client++)
				run_submit(&r, q);
			for (int i = 0; i < n_steps; i++)
				run_step(&r);
			for (int twice = 0; twice < 2; twice++)
				cancel(&r, leaves, leaves);
			run_step(&r);
			assert_int_equal(r.n_keys, 1);
			assert_int_equal(r.keys[0].client, leaves == 1 ? 2 : 1); /* who is to blame now */
			run_all(&r);
			for (uint64_t id = 1; id <= 3; id++)
			{
				assert_int_equal(r.of[id].n_done, id != leaves);
				if (id == leaves)
					continue;
				assert_string_equal(run_text(&r.of[id]), q.prompt.p);
				assert_string_equal(r.of[id].pieces.data, q.prompt.p);
			}
			assert_int_equal(stats_of(&r).generated_tokens, 22);
			assert_int_equal(stats_of(&r).shared, 1);
			assert_int_equal(stats_of(&r).requests, 3);
			run_fini(&r);
		}
}

static void
the_last_cancel_ends_the_work(void **state)
{
	for (int n_steps = 0; n_steps < 6; n_steps++)
	{
		Run r;

		run_echo_with(&r, flight_options(), RUN_CONTEXT);
		for (uint64_t i = 1; i <= 4; i++)
			run_submit(&r, greedy("nobody waits for this", i));
		for (int i = 0; i < n_steps; i++)
			run_step(&r);
		cancel(&r, 2, 2);
		cancel(&r, 1, 1);
		cancel(&r, 4, 4);
		assert_int_equal(stats_of(&r).running + stats_of(&r).waiting, 1);
		cancel(&r, 3, 3);
		assert_int_equal(stats_of(&r).running + stats_of(&r).waiting, 0);
		assert_false(run_step(&r));
		assert_int_equal(r.n_done, 0);
		run_fini(&r);
	}
}

static void
a_client_goes_with_all_its_askers(void **state)
{
	for (int n_steps = 0; n_steps < 4; n_steps++)
		for (uint64_t leaves = 0; leaves < 3; leaves++)
		{
			Run r;

			run_echo_with(&r, flight_options(), RUN_CONTEXT);
			for (uint64_t i = 0; i < 30; i++) /* two texts, three clients */
				run_submit(&r, greedy(i % 2 == 0 ? "even" : "odd", i / 3 % 3));
			for (int i = 0; i < n_steps; i++)
				run_step(&r);
			llm_engine_cancel_client(r.e, leaves);
			llm_engine_cancel_client(r.e, 77);
			audit(&r);
			run_all(&r);
			for (uint64_t i = 0; i < 30; i++)
			{
				assert_int_equal(r.of[i + 1].n_done, i / 3 % 3 != leaves);
				if (i / 3 % 3 != leaves)
					assert_string_equal(run_text(&r.of[i + 1]), i % 2 == 0 ? "even" : "odd");
			}
			run_fini(&r);
		}
}

static void
a_timeout_is_the_askers_own(void **state)
{
	for (int hasty = 0; hasty < 2; hasty++) /* the leader, a follower */
	{
		Run r;
		LlmRequest q = greedy("@slow=25 late", 1);

		run_echo_with(&r, flight_options(), RUN_CONTEXT);
		for (int i = 0; i < 3; i++)
		{
			q.timeout_ms = i == hasty ? 20 : i == 2 ? 60000 : 0;
			run_submit(&r, q);
		}
		run_all(&r);
		for (int i = 0; i < 3; i++)
		{
			assert_int_equal(r.of[i + 1].n_done, 1);
			assert_int_equal(r.of[i + 1].status, i == hasty ? LLM_E_TIMEOUT : LLM_OK);
			if (i != hasty)
				assert_string_equal(run_text(&r.of[i + 1]), "late");
		}
		assert_non_null(strstr(r.of[hasty + 1].error.text, "20 ms"));
		run_fini(&r);
	}
}

/* ---- urgency ---- */

/* The work is as urgent as its most urgent asker, while that one asks; its turn among equals stays
 * that of its first asker. */
static void
the_most_urgent_asker_counts(void **state)
{
	for (int way = 0; way < 4; way++)
	{
		bool changes_its_mind = way % 2 == 1;
		bool comes_first = way / 2 == 1;
		Run r;
		LlmEngineOptions o = flight_options();
		LlmRequest q;
		uint64_t shared, other;

		o.max_running = 1;
		run_echo_with(&r, o, RUN_CONTEXT);
		run_submit(&r, greedy("runs", 1));
		run_step(&r);
		shared = comes_first ? run_submit(&r, greedy("shared", 2)) : 0;
		other = run_submit(&r, greedy("other", 2));
		shared = comes_first ? shared : run_submit(&r, greedy("shared", 2));
		q = greedy("shared", 3);
		q.priority = 5;
		q.key.id = run_submit(&r, q);
		audit(&r);
		cancel(&r, 4, run_submit(&r, greedy("shared", 4))); /* changes nothing */
		if (changes_its_mind)
			cancel(&r, 3, q.key.id);
		while (r.of[shared].n_done == 0)
			run_step(&r);
		assert_int_equal(r.of[other].n_done, changes_its_mind && !comes_first);
		run_all(&r);
		run_fini(&r);
	}
}

/* ---- storms ---- */

#define STORM_OPS 3000
#define STORM_KINDS 12 /* distinct requests */
#define STORM_CLIENTS 5
#define STORM_IDS 96 /* tokens of a prompt at most */

/* One of the requests that everybody asks; ids gets its prompt. */
static LlmRequest
storm_request(uint32_t kind, int32_t ids[STORM_IDS], int32_t *n)
{
	LlmRequest q = {.sample = {.temperature = kind % 3 == 0 ? 0.0f : 1.0f,
							   .top_p = kind % 2 == 0 ? 1.0f : 0.9f,
							   .repetition_penalty = kind % 4 == 1 ? 1.3f : 1.0f,
							   .seed = kind / 6},
					.max_tokens = 3 + (int32_t) kind % 7,
					.raw = true,
					.ignore_eos = kind % 5 != 0};

	*n = 20 + (int32_t) (kind % 4) * 25;
	for (int32_t i = 0; i < *n; i++) /* prompts share their first 64 tokens, or all */
		ids[i] = (int32_t) (llm_rng_u32(5, i < 64 ? 0 : kind % 6, (uint32_t) i) % 496);
	if (kind % 3 == 1)
	{
		q.stops[0] = llm_str("e");
		q.n_stops = 1;
	}
	return q;
}

static uint64_t
storm_submit(Run *r, LlmRequest q, uint32_t kind)
{
	int32_t ids[STORM_IDS];
	int32_t n;
	LlmRequest of_kind = storm_request(kind, ids, &n);

	of_kind.key = q.key;
	of_kind.stream = q.stream;
	of_kind.timeout_ms = q.timeout_ms;
	of_kind.priority = q.priority;
	llm_engine_force_prompt(r->e, ids, n);
	return run_submit(r, of_kind);
}

static void
storm_init(Run *r, LlmEngineOptions o)
{
	LlmModelSpec spec = {.path = "test/golden/models/llama-gqa/model.gguf"};

	o.threads = 1;
	run_init(r, &o, &spec);
}

/* Everybody who was not cancelled has the answer of the same request run by itself. */
static void
storm_check(Run *r, const Run *ref, const uint8_t *kind_of, const bool *cancelled, bool hasty)
{
	for (uint64_t id = 1; id <= r->next_id; id++)
	{
		const Outcome *o = &r->of[id];
		const Outcome *want = &ref->of[1 + kind_of[id]];

		assert_int_equal(o->n_done, !cancelled[id]);
		if (o->n_done == 0 || (hasty && o->status == LLM_E_TIMEOUT))
			continue;
		assert_int_equal(o->status, LLM_OK);
		assert_int_equal(o->finish, want->finish);
		assert_string_equal(run_text(o), run_text(want));
		assert_int_equal(o->generated.len, want->generated.len);
		assert_memory_equal(o->generated.ids, want->generated.ids,
							want->generated.len * sizeof(int32_t));
		if (o->n_pieces > 0)
			assert_string_equal(o->pieces.data, o->text.data);
	}
}

static void
storm(LlmEngineOptions o, uint32_t seed, bool hasty)
{
	Run *r = malloc(sizeof(*r));
	Run *ref = malloc(sizeof(*ref));
	uint8_t kind_of[RUN_MAX] = {0};
	uint64_t client_of[RUN_MAX] = {0};
	bool cancelled[RUN_MAX] = {false};

	storm_init(ref, run_options());
	for (uint32_t kind = 0; kind < STORM_KINDS; kind++)
	{
		storm_submit(ref, (LlmRequest){.key.client = 1}, kind);
		run_all(ref);
	}
	storm_init(r, o);
	for (uint32_t op = 0; op < STORM_OPS; op++)
	{
		uint32_t x = llm_rng_u32(seed, op, 0);
		uint32_t what = x % 16;

		if (what < 6 && r->next_id < RUN_MAX - 2)
		{
			LlmRequest q = {.key.client = 1 + x / 16 % STORM_CLIENTS,
							.stream = x / 128 % 2 == 0,
							.priority = x / 256 % 8 == 0 ? 1 : 0,
							.timeout_ms = hasty && x / 4096 % 8 == 0 ? 1 : 0};
			uint32_t kind = x / 65536 % STORM_KINDS;
			uint64_t id = storm_submit(r, q, kind);

			kind_of[id] = (uint8_t) kind;
			client_of[id] = q.key.client;
		}
		else if (what == 6 && r->next_id > 0)
		{
			uint64_t id = 1 + x / 16 % r->next_id;
			uint64_t back = x / 65536 % 8; /* mostly a young one, which is still there */

			id = back < 6 && r->next_id > back ? r->next_id - back : id;
			cancelled[id] = cancelled[id] || r->of[id].n_done == 0;
			llm_engine_cancel(r->e, (LlmRequestKey){client_of[id], id});
		}
		else if (what == 7 && x / 16 % 32 == 0)
		{
			uint64_t client = 1 + x / 1024 % STORM_CLIENTS;

			for (uint64_t id = 1; id <= r->next_id; id++)
				if (client_of[id] == client && r->of[id].n_done == 0)
					cancelled[id] = true;
			llm_engine_cancel_client(r->e, client);
		}
		else
			run_step(r);
		audit(r);
	}
	run_all(r);
	storm_check(r, ref, kind_of, cancelled, hasty);
	assert_int_equal(stats_of(r).shared > 0, o.single_flight);
	assert_int_equal(stats_of(r).preemptions > 0, o.preempt_every > 0);
	run_fini(r);
	run_fini(ref);
	free(r);
	free(ref);
}

static void
storm_of_cancels(void **state)
{
	LlmEngineOptions o = flight_options();

	o.max_batch_tokens = 48;
	for (uint32_t seed = 0; seed < 3; seed++)
		storm(o, seed, false);
	o.single_flight = false;
	storm(o, 0, false);
}

static void
storm_with_timeouts(void **state)
{
	storm(flight_options(), 11, true);
}

static void
storm_with_preemption(void **state)
{
	LlmEngineOptions o = flight_options();

	o.preempt_every = 3;
	o.max_running = 4;
	storm(o, 21, false);
	o.preempt_every = 0;
	o.kv_nbytes = 50000; /* 3 pages: the next one waits, or evicts */
	storm(o, 22, false);
	o.prefix_cache = false;
	storm(o, 23, true);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(twins_are_equal_in_all_that_an_answer_depends_on),
		cmocka_unit_test(lists_do_not_run_into_each_other),
		cmocka_unit_test(who_runs_alone_has_no_twin),
		cmocka_unit_test(they_are_generated_once),
		cmocka_unit_test(noise_of_one_seed_is_shared_and_of_two_is_not),
		cmocka_unit_test(it_can_be_turned_off_and_on),
		cmocka_unit_test(streams_show_the_same_text),
		cmocka_unit_test(a_failure_of_the_row_is_everybodys),
		cmocka_unit_test(an_unload_ends_all),
		cmocka_unit_test(a_cancel_touches_nobody_else),
		cmocka_unit_test(the_last_cancel_ends_the_work),
		cmocka_unit_test(a_client_goes_with_all_its_askers),
		cmocka_unit_test(a_timeout_is_the_askers_own),
		cmocka_unit_test(the_most_urgent_asker_counts),
		cmocka_unit_test(storm_of_cancels),
		cmocka_unit_test(storm_with_timeouts),
		cmocka_unit_test(storm_with_preemption),
	};

	return cmocka_run_group_tests(tests, model_open, model_close);
}
