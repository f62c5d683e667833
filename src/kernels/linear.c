/* kernels/linear.c - repacking weights at load, and products by ranges of panels. */
#include "kernels/linear.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/mem.h"
#include "kernels/panel.h"

#define CHUNK_NBYTES ((size_t) 16 << 20)

/* Two parts are read side by side (LlmGemm.twin): the second begins so far into its 4 KB from where the first
 * begins in its, so that the lines that are read together do not meet in one set of the first cache. */
#define PART_PAGE ((size_t) 4096)
#define PART_SKEW ((size_t) 1536)

typedef struct LlmWeightChunk
{
	struct LlmWeightChunk *next;
	uint8_t *data; /* [nbytes] huge pages */
	size_t nbytes;
	size_t used;
} LlmWeightChunk;

/* Zeroed memory aligned to 64 bytes; NULL when memory is out. */
static uint8_t *
store_alloc(LlmWeightStore *store, size_t nbytes)
{
	LlmWeightChunk *c = store->chunks;
	uint8_t *p;

	if (c == NULL || c->nbytes - c->used < nbytes)
	{
		c = calloc(1, sizeof(*c));
		if (c == NULL)
			return NULL;
		c->nbytes = nbytes > CHUNK_NBYTES ? nbytes : CHUNK_NBYTES;
		c->data = llm_block_create(c->nbytes);
		if (c->data == NULL)
		{
			free(c);
			return NULL;
		}
		c->next = store->chunks;
		store->chunks = c;
	}
	p = c->data + c->used;
	c->used += nbytes;
	store->nbytes += (int64_t) nbytes;
	return p;
}

size_t
llm_weight_ahead(size_t nbytes)
{
	long last = sysconf(_SC_LEVEL3_CACHE_SIZE); /* 0 or -1 when the system does not tell */

	return last > 0 && nbytes > (size_t) last ? LLM_FETCH_MEMORY : LLM_FETCH_FAR;
}

bool
llm_weight_store_huge(const LlmWeightStore *store)
{
	const LlmWeightChunk *c = store->chunks;

	while (c != NULL && llm_block_collapse(c->data, c->used))
		c = c->next;
	return c == NULL;
}

void
llm_weight_store_fini(LlmWeightStore *store)
{
	while (store->chunks != NULL)
	{
		LlmWeightChunk *c = store->chunks;

		store->chunks = c->next;
		llm_block_free(c->data, c->nbytes);
		free(c);
	}
	while (store->linears != NULL)
	{
		LlmLinear *l = store->linears;

		store->linears = l->next;
		free(l);
	}
	store->nbytes = 0;
}

static LlmStatus
part_check(const LlmWeightView *w, const LlmWeightView *first, LlmError *err)
{
	const LlmDtypeInfo *info = llm_dtype_info((uint32_t) w->type);

	if (info == NULL)
		return llm_error_set(err, LLM_E_MODEL, "weight \"%s\" has type %s, which is not supported",
							 w->name, llm_dtype_gguf_name((uint32_t) w->type));
	if (w->rows < 1 || w->cols < 1)
		return llm_error_set(err, LLM_E_MODEL, "weight \"%s\" is empty: %" PRId32 " x %" PRId32,
							 w->name, w->rows, w->cols);
	if (w->cols != first->cols)
		return llm_error_set(err, LLM_E_MODEL,
							 "weight \"%s\" has %" PRId32 " inputs, \"%s\" beside it %" PRId32,
							 w->name, w->cols, first->name, first->cols);
	if (w->cols % info->block != 0)
		return llm_error_set(err, LLM_E_MODEL,
							 "weight \"%s\" of type %s has %" PRId32
							 " inputs, not a multiple of %" PRId32,
							 w->name, info->name, w->cols, info->block);
	return LLM_OK;
}

typedef struct PackJob
{
	const LlmWeightView *view;
	const LlmLinearPart *part;
} PackJob;

static void
pack_panels(void *arg, int tid, int n_threads)
{
	PackJob *job = arg;
	int64_t n = job->part->n_panels;

	for (int64_t p = n * tid / n_threads; p < n * (tid + 1) / n_threads; p++)
		llm_panel_pack(job->view, (int32_t) p, job->part->w + (size_t) p * job->part->panel_nbytes);
}

static LlmStatus
part_create(LlmWeightStore *store, LlmPool *pool, LlmLinear *l, const LlmWeightView *w,
			LlmError *err)
{
	LlmLinearPart *part = &l->parts[l->n_parts];
	PackJob job = {w, part};
	size_t nbytes;

	part->type = w->type;
	part->n = w->rows;
	part->first_col = l->n;
	part->n_panels = w->rows / LLM_LANES + (w->rows % LLM_LANES != 0);
	part->first_panel = l->n_panels;
	part->panel_nbytes = llm_panel_nbytes(w->type, w->cols);
	nbytes = (size_t) part->n_panels * part->panel_nbytes;
	part->w = store_alloc(store, nbytes + (l->n_parts > 0 ? PART_PAGE : 0));
	if (part->w != NULL && l->n_parts > 0)
		part->w += ((uintptr_t) l->parts[0].w + PART_SKEW - (uintptr_t) part->w) % PART_PAGE;
	if (part->w == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory: %zu bytes for weight \"%s\"",
							 nbytes, w->name);
	llm_pool_run(pool, pack_panels, &job);
	l->n += w->rows;
	l->n_panels += part->n_panels;
	l->n_parts++;
	l->nbytes += nbytes;
	l->forms |= llm_dtype_info((uint32_t) w->type)->block == 1 ? LLM_ACT_F32 : LLM_ACT_Q8;
	return LLM_OK;
}

LlmStatus
llm_linear_create(LlmWeightStore *store, LlmPool *pool, const LlmWeightView *parts, int n_parts,
				  const LlmLinearSpec *spec, LlmLinear **out, LlmError *err)
{
	LlmLinear *l;
	int64_t n = 0;

	*out = NULL;
	if (n_parts < 1 || n_parts > LLM_LINEAR_PARTS_MAX || (spec->is_embedding && n_parts != 1))
		return llm_error_set(err, LLM_E_INTERNAL, "a linear of %d parts", n_parts);
	for (int i = 0; i < n_parts; i++)
	{
		LlmStatus status = part_check(&parts[i], &parts[0], err);

		if (status != LLM_OK)
			return status;
		n += parts[i].rows;
	}
	if (n > INT32_MAX / 2)
		return llm_error_set(err, LLM_E_MODEL, "weight \"%s\" has too many outputs: %" PRId64,
							 parts[0].name, n);
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory: %zu bytes for a linear",
							 sizeof(*l));
	l->k = parts[0].cols;
	l->is_embedding = spec->is_embedding;
	l->role = spec->role;
	l->next = store->linears;
	store->linears = l;
	for (int i = 0; i < n_parts; i++)
	{
		LlmStatus status = part_create(store, pool, l, &parts[i], err);

		if (status != LLM_OK)
			return status; /* the store frees what was made */
	}
	*out = l;
	return LLM_OK;
}

void
llm_linear_row(const LlmLinear *l, int32_t row, float *out)
{
	const LlmLinearPart *part = &l->parts[0];

	llm_panel_column(part->type, part->w + (size_t) (row / LLM_LANES) * part->panel_nbytes, l->k,
					 row % LLM_LANES, out);
}

const uint8_t *
llm_linear_panel(const LlmLinear *l, int32_t panel)
{
	const LlmLinearPart *part = &l->parts[0];

	while (panel >= part->first_panel + part->n_panels)
		part++;
	return part->w + (size_t) (panel - part->first_panel) * part->panel_nbytes;
}

int32_t
llm_linear_share(const LlmLinear *l, int tid, int n_threads)
{
	return (int32_t) ((int64_t) l->n_panels * tid / n_threads);
}

static void
gemm_run(const LlmKernels *kernels, const LlmGemm *g)
{
	if (llm_dtype_info((uint32_t) g->type)->block == 1)
		kernels->gemm_float(g);
	else
		kernels->gemm_quant(g);
}

/* Panels begin..end of a part; y is the first column of panel `begin`. */
static LlmGemm
part_gemm(const LlmLinear *l, const LlmLinearPart *part, const LlmLinearInput *in, int32_t begin,
		  int32_t end, float *y, int32_t ldy)
{
	return (LlmGemm){.type = part->type,
					 .w = part->w + (size_t) begin * part->panel_nbytes,
					 .next = in->next,
					 .ahead = in->ahead,
					 .panel_nbytes = part->panel_nbytes,
					 .k = l->k,
					 .n_panels = end - begin,
					 .n_cols =
						 (end < part->n_panels ? end * LLM_LANES : part->n) - begin * LLM_LANES,
					 .n_rows = in->n_rows,
					 .q = in->q,
					 .tiles = in->tiles,
					 .x = in->x,
					 .ldx = in->ldx,
					 .ldy = ldy,
					 .y = y};
}

void
llm_linear_run(const LlmKernels *kernels, const LlmLinear *l, const LlmLinearInput *in,
			   int32_t begin, int32_t end, float *y, int32_t ldy)
{
	for (int i = 0; i < l->n_parts; i++)
	{
		const LlmLinearPart *part = &l->parts[i];
		int32_t p0 = begin > part->first_panel ? begin - part->first_panel : 0;
		int32_t p1 = end - part->first_panel;

		p1 = p1 < part->n_panels ? p1 : part->n_panels;
		if (p0 < p1)
		{
			LlmGemm g = part_gemm(l, part, in, p0, p1, y + part->first_col + p0 * LLM_LANES, ldy);

			gemm_run(kernels, &g);
		}
	}
}

void
llm_linear_gate_run(const LlmKernels *kernels, const LlmLinear *l, const LlmLinearInput *in,
					int32_t begin, int32_t end, float *gate, float *up, int32_t ldy)
{
	const LlmLinearPart *part = l->parts;
	LlmGemm g = part_gemm(l, &part[0], in, begin, end, gate, ldy);
	LlmGemm u = part_gemm(l, &part[1], in, begin, end, up, ldy);

	if (kernels->n_streams > 1 && in->n_rows <= LLM_GEMM_FEW_ROWS && part[0].type == part[1].type &&
		l->forms == LLM_ACT_Q8)
	{
		g.twin = u.w - g.w;
		g.twin_col = (int32_t) (up - gate);
		kernels->gemm_quant(&g);
		return;
	}
	g.next = u.w;
	gemm_run(kernels, &g);
	gemm_run(kernels, &u);
}
