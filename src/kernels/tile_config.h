/* kernels/tile_config.h - the configuration of AMX tiles; for functions with the target amx-tile. */
#ifndef LLM_KERNELS_TILE_CONFIG_H
#define LLM_KERNELS_TILE_CONFIG_H

#include <immintrin.h>
#include <stdint.h>

/* What ldtilecfg reads. Palette 1: 8 tiles of up to 16 rows of up to 64 bytes. */
typedef struct LlmTileConfig
{
	uint8_t palette;
	uint8_t start_row;
	uint8_t reserved[14];
	uint16_t row_nbytes[16];
	uint8_t rows[16];
} LlmTileConfig;

/* All tiles are zero afterwards, until _tile_release. */
__attribute__((target("amx-tile"))) static inline void
llm_tiles_configure(const LlmTileConfig *config)
{
	/* gcc 12's intrinsic says that it reads 8 of the 64 bytes, so that the other stores could go */
	__asm__ volatile("" : : "r"(config) : "memory");
	_tile_loadconfig(config);
}

#endif
