/* kernels/cpu_device.h - the CPU as a device. */
#ifndef LLM_KERNELS_CPU_DEVICE_H
#define LLM_KERNELS_CPU_DEVICE_H

#include "core/pool.h"
#include "tensor/device.h"
#include "tensor/limits.h"

/* pool is borrowed for the device's life. isa NULL = the best that the machine has; otherwise
 * "generic", "avx2", ...; one that the machine lacks is LLM_E_INVALID. */
LlmStatus llm_cpu_device_create(LlmPool *pool, const char *isa, LlmDevice **out, LlmError *err);

/* Whether attention goes through pages that sequences share for all of them at once (the default), or
 * for one sequence after the other. The bits are the same: for benchmarks and tests. */
void llm_cpu_device_share(LlmDevice *dev, bool on);

/* What this machine can do with its best ISA, measured now over about `seconds`, or as long as a few
 * reads take. They are of as many bytes as the weights have, so that as much comes from caches; of 256
 * MiB at most, or if that is 0. Weights that are larger are read as a whole besides (read_weights), if
 * half of the memory that is left suffices for a copy. */
void llm_cpu_limits_measure(LlmPool *pool, int64_t weight_nbytes, double seconds,
							LlmMachineLimits *out);

#endif
