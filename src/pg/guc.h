/* pg/guc.h - the settings llm_infer.*; sql.md of the documentation lists what each means. */
#ifndef LLM_PG_GUC_H
#define LLM_PG_GUC_H

#include "postgres.h"

typedef enum LlmOnError
{
	LLM_ON_ERROR_ERROR = 0, /* raise at the row */
	LLM_ON_ERROR_NULL = 1   /* NULL, and one WARNING per statement */
} LlmOnError;

/* postmaster; defined only while preloading, NULL otherwise */
extern char *llm_guc_model_dir;
extern char *llm_guc_engine_path;
extern char *llm_guc_devices;
extern int llm_guc_memo_memory; /* kB; 0 also when not preloaded */
/* sighup */
extern int llm_guc_memo_size; /* kB per database */
extern int llm_guc_threads;
extern int llm_guc_kv_cache_memory; /* kB, 0 = a share of free memory */
extern int llm_guc_memory_limit;    /* kB, 0 = half of the machine's */
extern int llm_guc_max_batch_tokens;
extern int llm_guc_max_running;
extern bool llm_guc_prefix_cache;
extern int llm_guc_prefix_cache_scope; /* Llm__PrefixScope */
extern int llm_guc_engine_timeout;     /* ms */
extern char *llm_guc_databases;        /* names, * = all */
extern int llm_guc_job_retention;      /* s, -1 = for ever */
/* superuser */
extern int llm_guc_max_priority;
/* user */
extern char *llm_guc_default_model; /* '' = the only one there is */
extern int llm_guc_max_tokens;      /* 256 */
extern double llm_guc_temperature;  /* -1 = the model's own */
extern bool llm_guc_enable_batch;
extern bool llm_guc_enable_distinct;
extern bool llm_guc_enable_pullup;
extern bool llm_guc_skip_unread_columns;
extern int llm_guc_max_lookahead_rows;
extern int llm_guc_max_statement_tokens; /* 0 = any number */
extern int llm_guc_timeout;              /* ms, 0 = none */
extern int llm_guc_on_error;
extern bool llm_guc_memo;

/* True when the library came by shared_preload_libraries. */
extern bool llm_guc_preloaded(void);

/* Define all; from _PG_init before the worker is registered. */
extern void llm_guc_init(void);

#endif
