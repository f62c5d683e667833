/*
 * tile_config.h - included before llama.cpp's sources: loads all of a configuration of AMX tiles.
 *
 * The intrinsic of GCC 12 says that it reads 8 of the 64 bytes, so that the compiler drops the
 * writes to the others, and tiles of no rows are an illegal instruction.
 */
#include <immintrin.h>

#define _tile_loadconfig(config)                                                                   \
	__asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(config)))
