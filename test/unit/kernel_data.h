/* kernel_data.h - random rows and the list of instruction sets, for the tests of kernels. Include
 * after cmocka.h. */
#ifndef LLM_TEST_KERNEL_DATA_H
#define LLM_TEST_KERNEL_DATA_H

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"

static uint32_t counter;

/* Uniform in (-1, 1). */
static inline float
uniform(void)
{
	return 2.0f * llm_rng_uniform(1, 2, counter++) - 1.0f;
}

/* Zeroed. */
static inline void *
aligned(size_t nbytes)
{
	void *p = aligned_alloc(64, (nbytes + 127) / 64 * 64);

	assert_non_null(p);
	memset(p, 0, nbytes);
	return p;
}

static inline float *
random_floats(size_t n, float scale)
{
	float *x = aligned(n * sizeof(*x));

	for (size_t i = 0; i < n; i++)
		x[i] = scale * uniform();
	return x;
}

/* Every table but generic. */
static inline int
others(const LlmKernels *out[LLM_KERNELS_MAX])
{
	int n = llm_kernels_list(out);

	assert_string_equal(out[n - 1]->isa, "generic");
	return n - 1;
}

#endif
