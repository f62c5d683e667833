/* kernels/dispatch.c - what the CPU has and the system saves, and the table for it. */
#include "kernels/dispatch.h"

#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Register state that the system saves on a switch (XCR0). */
static uint64_t
saved_state(void)
{
	uint32_t lo, hi;

	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t) hi << 32 | lo;
}

#define XCR0_AVX 0x6u      /* xmm and ymm */
#define XCR0_AVX512 0xE6u  /* and opmask, high zmm */
#define XCR0_TILE 0x60000u /* tile configuration and data */

#define CPUID_AMX                                                                                  \
	(1u << 22 | 1u << 24 | 1u << 25) /* leaf 7 edx: bf16 products, tiles, int8 products */
#define REQUEST_STATE 0x1023         /* arch_prctl: ARCH_REQ_XCOMP_PERM */
#define STATE_TILE_DATA 18

static bool
bits_set(uint32_t value, uint32_t bits)
{
	return (value & bits) == bits;
}

static bool
has_avx2(void)
{
	uint32_t a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !bits_set(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
		return false;
	if ((saved_state() & XCR0_AVX) != XCR0_AVX)
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && bits_set(b, bit_AVX2);
}

static bool
has_avx512(void)
{
	uint32_t a, b, c, d;

	if (!has_avx2() || (saved_state() & XCR0_AVX512) != XCR0_AVX512)
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
		   bits_set(b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) &&
		   bits_set(c, bit_AVX512VNNI);
}

/* Tiles are big, so Linux hands them out on request, to the whole process. */
static bool
has_amx(void)
{
	uint32_t a, b, c, d;

	if (!has_avx512() || (saved_state() & XCR0_TILE) != XCR0_TILE)
		return false;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !bits_set(d, CPUID_AMX))
		return false;
	return syscall(SYS_arch_prctl, REQUEST_STATE, STATE_TILE_DATA) == 0;
}

#endif

int
llm_kernels_list(const LlmKernels *out[LLM_KERNELS_MAX])
{
	int n = 0;

#if defined(__x86_64__)
	if (has_amx())
		out[n++] = &llm_kernels_amx;
	if (has_avx512())
		out[n++] = &llm_kernels_avx512;
	if (has_avx2())
		out[n++] = &llm_kernels_avx2;
#endif
	out[n++] = &llm_kernels_generic;
	return n;
}

const LlmKernels *
llm_kernels_find(const char *isa)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n = llm_kernels_list(all);

	if (isa == NULL)
		return all[0];
	for (int i = 0; i < n; i++)
		if (strcmp(all[i]->isa, isa) == 0)
			return all[i];
	return NULL;
}
