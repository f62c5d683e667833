/* kernels/panel_ops.h - scales and minima of a panel's halves. Written over the 16 lanes of a vec_*.h;
 * include after one. `type` is a constant at every call. */
#ifndef LLM_KERNELS_PANEL_OPS_H
#define LLM_KERNELS_PANEL_OPS_H

#include "kernels/panel.h"

/* What a quant of the half counts, per column. */
VEC_INLINE vf
panel_scale(const LlmDtype type, const uint8_t *unit, int half)
{
	(void) type;
	return vf_load_half((const uint16_t *) unit + half * 16);
}

/* What is added to every weight of the half, per column; for types with llm_panel_has_minimum. */
VEC_INLINE vf
panel_minimum(const LlmDtype type, const uint8_t *unit, int half)
{
	(void) type;
	return vf_load_half((const uint16_t *) (unit + LLM_PANEL_SCALES) + half * 16);
}

#endif
