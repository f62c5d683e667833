/* kernels/cpu_threads.c - windows of steps with all threads and with fewer, and which was faster. */
#include "kernels/cpu_threads.h"

#include "core/log.h"

#define WINDOW_SECONDS 0.04
#define WINDOW_STEPS 3
#define DISTURBED 0.2 /* threads that wait for a core, on average; between 0 and this: daemons */
#define CALM 0.1
#define FASTER 0.95 /* fewer threads must be faster by this: they leave the other cores cold */
#define HOLD_MIN 0.25
#define HOLD_MAX 4.0
#define TOLD_SECONDS 60.0

void
llm_cpu_threads_init(LlmCpuThreads *t, int n_all)
{
	*t = (LlmCpuThreads){.n_all = n_all, .n = n_all, .hold = HOLD_MIN, .told = -TOLD_SECONDS};
}

bool
llm_cpu_threads_step(LlmCpuThreads *t, int32_t rows, double seconds)
{
	double row = seconds / rows, *mean = &t->row_seconds[0];

	for (int32_t n = rows; n > 1; n /= 2)
		mean++;
	if (*mean == 0.0)
		*mean = row;
	else if (t->state == LLM_CPU_CALM)
		*mean += (row - *mean) / 16;
	t->n_steps++;
	t->seconds += seconds;
	t->calm += *mean * rows;
	return t->seconds >= WINDOW_SECONDS && t->n_steps >= WINDOW_STEPS;
}

/* Keep n threads; a choice that is made again stays for twice as long. */
static void
hold(LlmCpuThreads *t, int n, bool again, double now)
{
	t->hold = !again ? HOLD_MIN : t->hold * 2 < HOLD_MAX ? t->hold * 2 : HOLD_MAX;
	t->until = now + t->hold;
	t->state = LLM_CPU_HOLD;
	t->n = n;
	if (n == t->n_all || now - t->told < TOLD_SECONDS)
		return;
	t->told = now;
	llm_log(LLM_LOG_INFO, "other processes take the cores: steps are faster with %d of %d threads",
			n, t->n_all);
}

/* The next state, waiting: threads that waited for a core in the window, on average. */
static void
advance(LlmCpuThreads *t, double waiting, double now)
{
	double slowed = t->seconds / t->calm;
	bool fewer_won;

	switch (t->state)
	{
		case LLM_CPU_CALM:
			if (waiting >= DISTURBED)
				t->state = LLM_CPU_TRY_ALL;
			break;
		case LLM_CPU_TRY_ALL:
			if (waiting < CALM)
			{
				t->state = LLM_CPU_CALM;
				t->hold = HOLD_MIN;
				break;
			}
			t->slowed_all = slowed;
			t->fewer = t->n_all - (waiting > 1.5 ? (int) (waiting + 0.5) : 1);
			t->n = t->fewer = t->fewer > 1 ? t->fewer : 1;
			t->state = LLM_CPU_TRY_FEWER;
			break;
		case LLM_CPU_TRY_FEWER:
			fewer_won = slowed < FASTER * t->slowed_all;
			hold(t, fewer_won ? t->fewer : t->n_all, fewer_won == t->fewer_won, now);
			t->fewer_won = fewer_won;
			break;
		case LLM_CPU_HOLD:
			if (now < t->until)
				break;
			t->state = LLM_CPU_TRY_ALL;
			t->n = t->n_all;
			break;
	}
}

void
llm_cpu_threads_choose(LlmCpuThreads *t, double delay, double now)
{
	if (t->n_all > 1 && delay >= 0.0)
		advance(t, (delay - t->delay) / t->seconds, now);
	t->n_steps = 0;
	t->seconds = t->calm = 0.0;
	t->delay = delay;
}
