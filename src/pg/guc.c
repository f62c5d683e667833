/* pg/guc.c - the settings llm_infer.*: one table and a loop. */
#include "postgres.h"

#include "pg/guc.h"

#include <limits.h>

#include "llm.pb-c.h"
#include "miscadmin.h"
#include "utils/guc.h"

char *llm_guc_model_dir = NULL;
char *llm_guc_engine_path = NULL;
char *llm_guc_devices = NULL;
int llm_guc_memo_memory = 0;
int llm_guc_memo_size = 1024 * 1024;
int llm_guc_threads = 0;
int llm_guc_kv_cache_memory = 0;
int llm_guc_memory_limit = 0;
int llm_guc_max_batch_tokens = 512;
int llm_guc_max_running = 64;
bool llm_guc_prefix_cache = true;
int llm_guc_prefix_cache_scope = LLM__PREFIX_SCOPE__SCOPE_ROLE;
int llm_guc_engine_timeout = 60000;
char *llm_guc_databases = NULL;
int llm_guc_job_retention = 7 * 86400;
char *llm_guc_default_model = NULL;
int llm_guc_max_tokens = 256;
double llm_guc_temperature = -1;
bool llm_guc_enable_batch = true;
bool llm_guc_enable_distinct = true;
bool llm_guc_enable_pullup = true;
bool llm_guc_skip_unread_columns = true;
int llm_guc_max_lookahead_rows = 256;
int llm_guc_max_statement_tokens = 0;
int llm_guc_max_priority = 0;
int llm_guc_timeout = 0;
int llm_guc_on_error = LLM_ON_ERROR_ERROR;
bool llm_guc_memo = false;

static bool preloaded = false;

static const struct config_enum_entry on_error_values[] = {
	{"error", LLM_ON_ERROR_ERROR, false},
	{"null", LLM_ON_ERROR_NULL, false},
	{NULL, 0, false},
};

static const struct config_enum_entry prefix_scope_values[] = {
	{"role", LLM__PREFIX_SCOPE__SCOPE_ROLE, false},
	{"database", LLM__PREFIX_SCOPE__SCOPE_DATABASE, false},
	{"cluster", LLM__PREFIX_SCOPE__SCOPE_CLUSTER, false},
	{NULL, 0, false},
};

typedef enum SettingType
{
	SETTING_BOOL,
	SETTING_INT,
	SETTING_REAL,
	SETTING_STRING,
	SETTING_ENUM
} SettingType;

typedef struct Setting
{
	const char *name;
	SettingType type;
	void *var;            /* bool, int, double, char * or int, by type */
	const char *fallback; /* boot value of a string */
	double boot;          /* boot value of the others */
	double min;
	double max;
	GucContext context;
	int flags; /* unit */
	const char *help;
	const struct config_enum_entry *values; /* of an enumeration; the last has no name */
} Setting;

/* A negative temperature between -1 and 0 would mean nothing. */
static bool
check_temperature(double *newval, void **extra, GucSource source)
{
	if (*newval >= 0 || *newval == -1)
		return true;
	GUC_check_errdetail("It must be -1 (the model's own) or between 0 and 100.");
	return false;
}

static const Setting settings[] = {
	{"llm_infer.model_dir", SETTING_STRING, &llm_guc_model_dir, "llm_models", 0, 0, 0,
	 PGC_POSTMASTER, GUC_SUPERUSER_ONLY,
	 gettext_noop("Directory of the model files, absolute or below the data directory.")},
	{"llm_infer.engine_path", SETTING_STRING, &llm_guc_engine_path, "", 0, 0, 0, PGC_POSTMASTER,
	 GUC_SUPERUSER_ONLY,
	 gettext_noop("Program of the engine; empty means llm_infer_engine beside the library.")},
	{"llm_infer.devices", SETTING_STRING, &llm_guc_devices, "auto", 0, 0, 0, PGC_POSTMASTER, 0,
	 gettext_noop("Devices that the engine computes on: auto, cpu, echo or a list.")},
	{"llm_infer.memo_memory", SETTING_INT, &llm_guc_memo_memory, NULL, 8192, 0, 1024 * 1024,
	 PGC_POSTMASTER, GUC_UNIT_KB,
	 gettext_noop("Shared memory for the newest answers of the memo; 0 means that there is none.")},
	{"llm_infer.memo_size", SETTING_INT, &llm_guc_memo_size, NULL, 1024 * 1024, 1024, INT_MAX,
	 PGC_SIGHUP, GUC_UNIT_KB,
	 gettext_noop("Size of a database's memo beyond which the least recently used is removed.")},
	{"llm_infer.threads", SETTING_INT, &llm_guc_threads, NULL, 0, 0, 1024, PGC_SIGHUP, 0,
	 gettext_noop("Compute threads of the engine; 0 means one per physical core.")},
	{"llm_infer.kv_cache_memory", SETTING_INT, &llm_guc_kv_cache_memory, NULL, 0, 0, INT_MAX,
	 PGC_SIGHUP, GUC_UNIT_KB,
	 gettext_noop(
		 "Memory for keys and values of each model; 0 means a quarter of the free memory or "
		 "of memory_limit, at most 4 GB.")},
	{"llm_infer.memory_limit", SETTING_INT, &llm_guc_memory_limit, NULL, 0, 0, INT_MAX, PGC_SIGHUP,
	 GUC_UNIT_KB,
	 gettext_noop("Memory for the weights, keys and values of all models that are loaded; 0 means "
				  "half of the machine's.")},
	{"llm_infer.max_batch_tokens", SETTING_INT, &llm_guc_max_batch_tokens, NULL, 512, 1, 8192,
	 PGC_SIGHUP, 0, gettext_noop("Most tokens that one step of the engine computes.")},
	{"llm_infer.max_running", SETTING_INT, &llm_guc_max_running, NULL, 64, 1, 1024, PGC_SIGHUP, 0,
	 gettext_noop("Most requests that are in one step of the engine.")},
	{"llm_infer.prefix_cache", SETTING_BOOL, &llm_guc_prefix_cache, NULL, true, 0, 0, PGC_SIGHUP, 0,
	 gettext_noop("Computes the beginning that prompts share only once.")},
	{"llm_infer.prefix_cache_scope", SETTING_ENUM, &llm_guc_prefix_cache_scope, NULL,
	 LLM__PREFIX_SCOPE__SCOPE_ROLE, 0, 0, PGC_SIGHUP, 0,
	 gettext_noop(
		 "Whose prompts share beginnings: those of a role in a database, of a database, or "
		 "of the cluster."),
	 prefix_scope_values},
	{"llm_infer.engine_timeout", SETTING_INT, &llm_guc_engine_timeout, NULL, 60000, 100,
	 INT_MAX / 4, PGC_SIGHUP, GUC_UNIT_MS,
	 gettext_noop("Time after which an engine without progress is killed, and for which a call "
				  "waits for one.")},
	{"llm_infer.databases", SETTING_STRING, &llm_guc_databases, "*", 0, 0, 0, PGC_SIGHUP, 0,
	 gettext_noop("Databases whose jobs go on after a start of the server: names, or * for all.")},
	{"llm_infer.job_retention", SETTING_INT, &llm_guc_job_retention, NULL, 7 * 86400, -1, INT_MAX,
	 PGC_SIGHUP, GUC_UNIT_S,
	 gettext_noop("Time for which jobs are kept after their end; -1 means for ever.")},
	{"llm_infer.default_model", SETTING_STRING, &llm_guc_default_model, "", 0, 0, 0, PGC_USERSET, 0,
	 gettext_noop("Model of calls that name none; empty means the only one there is.")},
	{"llm_infer.max_tokens", SETTING_INT, &llm_guc_max_tokens, NULL, 256, -1, INT_MAX, PGC_USERSET,
	 0, gettext_noop("Most tokens to generate per call; -1 means the room left in the context.")},
	{"llm_infer.temperature", SETTING_REAL, &llm_guc_temperature, NULL, -1, -1, 100, PGC_USERSET, 0,
	 gettext_noop("Sampling temperature; 0 is greedy, -1 the model's own.")},
	{"llm_infer.enable_batch", SETTING_BOOL, &llm_guc_enable_batch, NULL, true, 0, 0, PGC_USERSET,
	 0, gettext_noop("Lets plans hand many rows to the engine at once.")},
	{"llm_infer.enable_distinct", SETTING_BOOL, &llm_guc_enable_distinct, NULL, true, 0, 0,
	 PGC_USERSET, 0,
	 gettext_noop("Asks for what is greedy or seeded once per distinct input of a statement.")},
	{"llm_infer.enable_pullup", SETTING_BOOL, &llm_guc_enable_pullup, NULL, true, 0, 0, PGC_USERSET,
	 0, gettext_noop("Lets filters that call the model wait for joins when that is cheaper.")},
	{"llm_infer.skip_unread_columns", SETTING_BOOL, &llm_guc_skip_unread_columns, NULL, true, 0, 0,
	 PGC_USERSET, 0,
	 gettext_noop("Does not compute columns of views and sub-selects that nobody reads.")},
	{"llm_infer.max_lookahead_rows", SETTING_INT, &llm_guc_max_lookahead_rows, NULL, 256, 1, 65536,
	 PGC_USERSET, 0, gettext_noop("Most rows that a plan reads ahead of the row it returns.")},
	{"llm_infer.max_priority", SETTING_INT, &llm_guc_max_priority, NULL, 0, 0, 100, PGC_SUSET, 0,
	 gettext_noop("Highest priority that a call may ask for.")},
	{"llm_infer.max_statement_tokens", SETTING_INT, &llm_guc_max_statement_tokens, NULL, 0, 0,
	 INT_MAX, PGC_USERSET, 0,
	 gettext_noop("Most tokens, of prompts and answers, that one statement may use; 0 means any.")},
	{"llm_infer.timeout", SETTING_INT, &llm_guc_timeout, NULL, 0, 0, INT_MAX, PGC_USERSET,
	 GUC_UNIT_MS, gettext_noop("Time that one call may take; 0 means any.")},
	{"llm_infer.on_error", SETTING_ENUM, &llm_guc_on_error, NULL, LLM_ON_ERROR_ERROR, 0, 0,
	 PGC_USERSET, 0, gettext_noop("What a row that fails does: error or null."), on_error_values},
	{"llm_infer.memo", SETTING_BOOL, &llm_guc_memo, NULL, false, 0, 0, PGC_USERSET, 0,
	 gettext_noop("Keeps what is greedy or seeded and answers the same request from there.")},
};

bool
llm_guc_preloaded(void)
{
	return preloaded;
}

static void
define_setting(const Setting *s)
{
	switch (s->type)
	{
		case SETTING_BOOL:
			DefineCustomBoolVariable(s->name, s->help, NULL, s->var, s->boot != 0, s->context,
									 s->flags, NULL, NULL, NULL);
			break;
		case SETTING_INT:
			DefineCustomIntVariable(s->name, s->help, NULL, s->var, (int) s->boot, (int) s->min,
									(int) s->max, s->context, s->flags, NULL, NULL, NULL);
			break;
		case SETTING_REAL:
			DefineCustomRealVariable(s->name, s->help, NULL, s->var, s->boot, s->min, s->max,
									 s->context, s->flags,
									 s->var == &llm_guc_temperature ? check_temperature : NULL,
									 NULL, NULL);
			break;
		case SETTING_STRING:
			DefineCustomStringVariable(s->name, s->help, NULL, s->var, s->fallback, s->context,
									   s->flags, NULL, NULL, NULL);
			break;
		case SETTING_ENUM:
			DefineCustomEnumVariable(s->name, s->help, NULL, s->var, (int) s->boot, s->values,
									 s->context, s->flags, NULL, NULL, NULL);
			break;
	}
}

void
llm_guc_init(void)
{
	preloaded = process_shared_preload_libraries_in_progress;
	for (Size i = 0; i < lengthof(settings); i++)
	{
		/* Elsewhere a postmaster setting would be FATAL, and the engine's owner is not there. */
		if (settings[i].context == PGC_POSTMASTER && !preloaded)
			continue;
		define_setting(&settings[i]);
	}
	if (preloaded)
		MarkGUCPrefixReserved("llm_infer");
}
