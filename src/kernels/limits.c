/*
 * kernels/limits.c - what this machine can do, measured: plain reads, int8 and float peaks.
 *
 * Bandwidth: every thread, or the first alone, sums its part of a block of huge pages, and fetches
 * ahead as the products of few rows do (qgemm_tile.h). Where the weights are larger than that block,
 * as many bytes as they have are read too: what fits into the last cache is read faster. Peaks:
 * independent chains of the instruction that the best products use, nothing else, long enough to hide
 * its latency.
 */
#include "kernels/cpu_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "kernels/linear.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/tile_config.h"
#endif

#define READ_NBYTES ((int64_t) 256 << 20)
#define TURNS 20000 /* of a peak loop between looks at the clock */
#define CHAINS 12   /* independent accumulators */
#define RUNS_MIN 5
#define RUNS_MAX 256

/* A loop and the operations of one call. */
typedef struct Peak
{
	void (*run)(void);
	double ops;
} Peak;

/* Keep a value alive without storing it. */
#define KEEP(x) __asm__ volatile("" : "+r"(x))

static uint64_t
read_generic(const uint8_t *p, size_t n, size_t ahead)
{
	uint64_t sum[4] = {0};

	for (size_t i = 0; i + 32 <= n; i += 32)
	{
		uint64_t v[4];

		memcpy(v, p + i, sizeof(v));
		for (int j = 0; j < 4; j++)
			sum[j] += v[j];
	}
	return sum[0] + sum[1] + sum[2] + sum[3];
}

static void
int8_generic(void)
{
	int32_t acc[CHAINS] = {0};
	int32_t a = 3, b = 5;

	for (int i = 0; i < TURNS; i++)
	{
		KEEP(a);
		for (int j = 0; j < CHAINS; j++)
			acc[j] += a * b;
	}
	for (int j = 0; j < CHAINS; j++)
		KEEP(acc[j]);
}

static void
f32_generic(void)
{
	float acc[CHAINS] = {0};
	int32_t turn = 0;

	for (int i = 0; i < TURNS; i++)
	{
		KEEP(turn);
		for (int j = 0; j < CHAINS; j++)
			acc[j] = fmaf((float) turn, 0.5f, acc[j]);
	}
	for (int j = 0; j < CHAINS; j++)
		turn += acc[j] > 0.0f;
	KEEP(turn);
}

#if defined(__x86_64__)

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define KEEP_X(x) __asm__ volatile("" : "+x"(x))
#define KEEP_V(x) __asm__ volatile("" : "+v"(x))
#define EACH_CHAIN _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++)

AVX2 static uint64_t
read_avx2(const uint8_t *p, size_t n, size_t ahead)
{
	__m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
					  _mm256_setzero_si256()};
	uint64_t out[4];

	for (size_t i = 0; i + 128 <= n; i += 128)
	{
		for (int j = 0; j < 128; j += 64)
		{
			__builtin_prefetch(p + i + LLM_FETCH_NEAR + j);
			__builtin_prefetch(p + i + ahead + j, 0, 2);
		}
#pragma GCC unroll 4
		for (int j = 0; j < 4; j++)
			sum[j] = _mm256_add_epi64(sum[j], _mm256_load_si256((const __m256i *) (p + i) + j));
	}
	sum[0] = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
	_mm256_storeu_si256((__m256i *) out, sum[0]);
	return out[0] + out[1] + out[2] + out[3];
}

/* A peak loop named `name`: TURNS times `step` for each of CHAINS accumulators acc[j] of a vector
 * type, with operands a and b; the asm statements (KEEP_X, KEEP_V) hold the compiler to it. */
#define PEAK_LOOP(name, target, vector, zero, a_value, b_value, keep, step)                        \
	target static void name(void)                                                                  \
	{                                                                                              \
		vector acc[CHAINS], a = a_value, b = b_value;                                              \
                                                                                                   \
		EACH_CHAIN                                                                                 \
		acc[j] = zero;                                                                             \
		for (int i = 0; i < TURNS; i++)                                                            \
		{                                                                                          \
			EACH_CHAIN                                                                             \
			{                                                                                      \
				step;                                                                              \
			}                                                                                      \
		}                                                                                          \
		EACH_CHAIN                                                                                 \
		keep(acc[j]);                                                                              \
	}

PEAK_LOOP(int8_avx2, AVX2, __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1),
		  _mm256_set1_epi8(1), KEEP_X, KEEP_X(a);
		  acc[j] = _mm256_add_epi16(acc[j], _mm256_maddubs_epi16(a, b)))
PEAK_LOOP(f32_avx2, AVX2, __m256, _mm256_setzero_ps(), _mm256_set1_ps(0.5f), _mm256_set1_ps(0.25f),
		  KEEP_X, acc[j] = _mm256_fmadd_ps(a, b, acc[j]);
		  KEEP_X(acc[j]))
PEAK_LOOP(int8_avx512, AVX512, __m512i, _mm512_setzero_si512(), _mm512_set1_epi8(1),
		  _mm512_set1_epi8(1), KEEP_V, acc[j] = _mm512_dpbusd_epi32(acc[j], a, b);
		  KEEP_V(acc[j]))
PEAK_LOOP(f32_avx512, AVX512, __m512, _mm512_setzero_ps(), _mm512_set1_ps(0.5f),
		  _mm512_set1_ps(0.25f), KEEP_V, acc[j] = _mm512_fmadd_ps(a, b, acc[j]);
		  KEEP_V(acc[j]))

#define TILE_CHAINS 4 /* tiles 0..3; the operands are 4..7 */
#define TILE_OPS (2.0 * 16 * 16 * 64)

__attribute__((target("amx-tile,amx-int8"))) static void
int8_amx(void)
{
	LlmTileConfig config = {.palette = 1};

	for (int i = 0; i < 8; i++)
	{
		config.rows[i] = 16;
		config.row_nbytes[i] = 64;
	}
	llm_tiles_configure(&config);
	for (int i = 0; i < TURNS; i++)
	{
		_tile_dpbusd(0, 4, 6);
		_tile_dpbusd(1, 4, 7);
		_tile_dpbusd(2, 5, 6);
		_tile_dpbusd(3, 5, 7);
	}
	_tile_release();
}

#endif

typedef struct Loops
{
	uint64_t (*read)(const uint8_t *p, size_t n, size_t ahead);
	Peak int8;
	Peak amx; /* run NULL: there is none */
	Peak f32;
} Loops;

static Loops
loops_of(const char *isa)
{
	double n = (double) TURNS * CHAINS * 2.0;
	Loops loops = {read_generic, {int8_generic, n}, {NULL, 0}, {f32_generic, n}};

#if defined(__x86_64__)
	if (strcmp(isa, "avx2") == 0)
		loops = (Loops){read_avx2, {int8_avx2, n * 32}, {NULL, 0}, {f32_avx2, n * 8}};
	if (strcmp(isa, "avx512") == 0 || strcmp(isa, "amx") == 0)
		loops = (Loops){read_avx2, {int8_avx512, n * 64}, {NULL, 0}, {f32_avx512, n * 16}};
	if (strcmp(isa, "amx") == 0)
		loops.amx = (Peak){int8_amx, (double) TURNS * TILE_CHAINS * TILE_OPS};
#endif
	return loops;
}

typedef struct Job
{
	const Loops *loops;
	const Peak *peak;    /* NULL: read */
	const uint8_t *data; /* [nbytes] */
	size_t nbytes;
	size_t ahead;  /* see LlmGemm */
	int n_workers; /* threads that take part, from the first */
} Job;

/* Bytes that each of the readers reads. */
static size_t
read_part(const Job *job)
{
	return job->nbytes / (size_t) job->n_workers / 128 * 128;
}

static void
job_run(void *arg, int tid, int n_threads)
{
	const Job *job = arg;
	uint64_t sum;

	if (tid >= job->n_workers)
		return;
	if (job->peak != NULL)
	{
		job->peak->run();
		return;
	}
	sum = job->loops->read(job->data + read_part(job) * (size_t) tid, read_part(job), job->ahead);
	KEEP(sum);
}

static int
double_cmp(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* Amounts per second of runs over about `seconds`; `amount` is that of one worker in one run. */
static LlmLimit
limit_measure(LlmPool *pool, Job *job, double amount, double seconds)
{
	double times[RUNS_MAX], start = llm_clock_seconds(), t = start;
	int n = 0;

	amount *= job->n_workers;
	do
	{
		double end;

		llm_pool_run(pool, job_run, job);
		end = llm_clock_seconds();
		times[n++] = end - t;
		t = end;
	} while (n < RUNS_MIN || (n < RUNS_MAX && t - start < seconds));
	qsort(times, (size_t) n, sizeof(times[0]), double_cmp);
	return (LlmLimit){amount / times[0], amount / times[n / 2]};
}

static LlmLimit
peak_measure(LlmPool *pool, const Peak *peak, double seconds)
{
	Job job = {.peak = peak, .n_workers = llm_pool_threads(pool)};

	if (peak->run == NULL)
		return (LlmLimit){0};
	return limit_measure(pool, &job, peak->ops, seconds);
}

/* Reads of nbytes by one thread, unless that is NULL, and by all, over about `seconds` each; nothing
 * without memory for them. */
static void
reads_measure(LlmPool *pool, const Loops *loops, size_t nbytes, size_t ahead, double seconds,
			  LlmLimit *one, LlmLimit *all)
{
	uint8_t *data = llm_block_create(nbytes);
	Job read = {.loops = loops, .data = data, .nbytes = nbytes, .ahead = ahead, .n_workers = 1};

	if (data == NULL)
		return;
	memset(data, 1, nbytes); /* untouched pages would all be one zero page */
	if (one != NULL)
		*one = limit_measure(pool, &read, (double) read_part(&read), seconds);
	read.n_workers = llm_pool_threads(pool);
	*all = limit_measure(pool, &read, (double) read_part(&read), seconds);
	llm_block_free(data, nbytes);
}

void
llm_cpu_limits_measure(LlmPool *pool, int64_t weight_nbytes, double seconds, LlmMachineLimits *out)
{
	Loops loops = loops_of(llm_kernels_find(NULL)->isa);
	bool small = weight_nbytes > 0 && weight_nbytes < READ_NBYTES;
	size_t nbytes = (size_t) (small ? weight_nbytes : READ_NBYTES);

	*out = (LlmMachineLimits){0};
	reads_measure(pool, &loops, nbytes, LLM_FETCH_FAR, seconds / 4, &out->read_one, &out->read_all);
	if (weight_nbytes > READ_NBYTES && weight_nbytes < llm_memory_available() / 2)
		reads_measure(pool, &loops, (size_t) weight_nbytes,
					  llm_weight_ahead((size_t) weight_nbytes), seconds / 4, NULL,
					  &out->read_weights);
	out->int8_ops = peak_measure(pool, &loops.int8, seconds / 6);
	out->amx_ops = peak_measure(pool, &loops.amx, seconds / 6);
	out->f32_ops = peak_measure(pool, &loops.f32, seconds / 6);
}
