/* pg/compat.h - differences between PostgreSQL 15 and 18; the only place for PG_VERSION_NUM. */
#ifndef LLM_PG_COMPAT_H
#define LLM_PG_COMPAT_H

#include "postgres.h"

#include "catalog/pg_database.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_proc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "llm_infer needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#define llm_compat_server_acl(oid, role, mode)                                                     \
	object_aclcheck(ForeignServerRelationId, (oid), (role), (mode))
#define llm_compat_execute_acl(oid, role)                                                          \
	object_aclcheck(ProcedureRelationId, (oid), (role), ACL_EXECUTE)
#define llm_compat_server_owned(oid, role) object_ownercheck(ForeignServerRelationId, (oid), (role))
#define llm_compat_database_owned(oid, role) object_ownercheck(DatabaseRelationId, (oid), (role))
#else
#define llm_compat_server_acl(oid, role, mode) pg_foreign_server_aclcheck((oid), (role), (mode))
#define llm_compat_execute_acl(oid, role) pg_proc_aclcheck((oid), (role), ACL_EXECUTE)
#define llm_compat_server_owned(oid, role) pg_foreign_server_ownercheck((oid), (role))
#define llm_compat_database_owned(oid, role) pg_database_ownercheck((oid), (role))
#endif

/* Rights to the tables of a query, when its range table moves to another query. */
#if PG_VERSION_NUM >= 160000
#define llm_compat_move_permissions(to, from)                                                      \
	((to)->rteperminfos = (from)->rteperminfos, (from)->rteperminfos = NIL)
#else
#define llm_compat_move_permissions(to, from) ((void) (from))
#endif

/* On 18+ the columns of GROUP BY are an entry of the range table, the last one; NULL = it has none.
 * Grouping sets make NULLs of them, which a Var that is moved to another entry has to say. */
#if PG_VERSION_NUM >= 180000
#define llm_compat_group_entry(query) ((query)->hasGroupRTE ? llast((query)->rtable) : NULL)
#define llm_compat_move_nulls(to, from)                                                            \
	((to)->varnullingrels = (from)->varnullingrels == NULL ? NULL : bms_make_singleton((to)->varno))
#else
#define llm_compat_group_entry(query) ((void) (query), NULL)
#define llm_compat_move_nulls(to, from) ((void) (to), (void) (from))
#endif

#if PG_VERSION_NUM >= 170000
#include "miscadmin.h"
#include "storage/procnumber.h"
#include "utils/resowner.h"
#define llm_compat_proc_number() ((int) MyProcNumber)
#define llm_compat_is_autovacuum() AmAutoVacuumWorkerProcess()
/* A wait set of the session, not of a resource owner. */
#define llm_compat_wait_set(n) CreateWaitEventSet(NULL, (n))
#else
#include "postmaster/autovacuum.h"
#define llm_compat_proc_number() (MyProc->pgprocno)
#define llm_compat_is_autovacuum() IsAutoVacuumWorkerProcess()
#define llm_compat_wait_set(n) CreateWaitEventSet(TopMemoryContext, (n))
#endif

#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif

#if PG_VERSION_NUM >= 180000
#define llm_compat_index_beginscan(heap, index, snapshot)                                          \
	index_beginscan((heap), (index), (snapshot), NULL, 1, 0)
#define llm_compat_primary_key(rel) RelationGetPrimaryKeyIndex((rel), false)
#else
#define llm_compat_index_beginscan(heap, index, snapshot)                                          \
	index_beginscan((heap), (index), (snapshot), 1, 0)
#define llm_compat_primary_key(rel) RelationGetPrimaryKeyIndex(rel)
#endif

/* ExecutorRun_hook's last parameter, in declarations and in calls. */
#if PG_VERSION_NUM >= 180000
#define LLM_COMPAT_ONCE_PARAM
#define LLM_COMPAT_ONCE_ARG
#else
#define LLM_COMPAT_ONCE_PARAM , bool once
#define LLM_COMPAT_ONCE_ARG , once
#endif

/* Whether this process holds a lock in just this mode. */
#if PG_VERSION_NUM >= 170000
#define llm_compat_lock_held(tag, mode) LockHeldByMe((tag), (mode), false)
#else
#define llm_compat_lock_held(tag, mode) LockHeldByMe((tag), (mode))
#endif

/* The library is built with hidden visibility, and 15 marks no exports: what the server looks up by
 * name is declared between these two. */
#define LLM_EXPORTS_BEGIN _Pragma("GCC visibility push(default)")
#define LLM_EXPORTS_END _Pragma("GCC visibility pop")

/* Named on 17+, where an extension can have wait events; "Extension" before. */
#if PG_VERSION_NUM >= 170000
#define llm_compat_wait_event(cache, name)                                                         \
	(*(cache) != 0 ? *(cache) : (*(cache) = WaitEventExtensionNew(name)))
#else
#define llm_compat_wait_event(cache, name) ((void) (cache), (uint32) PG_WAIT_EXTENSION)
#endif

#endif
