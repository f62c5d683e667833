/* kernels/panel_ops.h - scales and minima of a panel's blocks, as products use them. Written over the 16
 * lanes of a vec_*.h; include after one. `type` is a constant at every call. */
#ifndef LLM_KERNELS_PANEL_OPS_H
#define LLM_KERNELS_PANEL_OPS_H

#include "kernels/panel.h"

/* Scale of block i of a record, per column, for quants as products see them. */
VEC_INLINE vf
panel_scale(const LlmDtype type, const uint8_t *record, int i)
{
	const bool shared = llm_panel_form(type).units > 1;
	vf d = vf_load_half((const uint16_t *) record + (shared ? 0 : i * 16));

	if (llm_panel_shift(type) > 0)
		d = vf_mul(d, vf_set1(llm_panel_step(type)));
	return shared ? vf_mul(d, vf_load_int8((const int8_t *) record + LLM_PANEL_SCALES + i * 16))
				  : d;
}

/* Minimum of block i of a record, per column; for types that have it. */
VEC_INLINE vf
panel_minimum(const LlmDtype type, const uint8_t *record, int i)
{
	const int8_t *mm = (const int8_t *) record + LLM_PANEL_SCALES + (8 + i) * 16;

	if (llm_panel_form(type).units == 1)
		return vf_load_half((const uint16_t *) (record + LLM_PANEL_SCALES) + i * 16);
	return vf_mul(vf_load_half((const uint16_t *) record + 16), vf_load_int8(mm));
}

#endif
