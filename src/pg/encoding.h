/* pg/encoding.h - the engine speaks UTF-8, the database what it was created with. */
#ifndef LLM_PG_ENCODING_H
#define LLM_PG_ENCODING_H

#include "postgres.h"

#include <protobuf-c/protobuf-c.h>

struct LlmFailure;

/* Database text to UTF-8. *out is s itself when nothing changes, else palloc'd; *n_out its bytes,
 * without terminator. False and f set: SQL_ASCII (0A000), a character without equivalent (22P05). */
extern bool llm_encoding_to_utf8(const char *s, Size n, const char **out, Size *n_out,
								 struct LlmFailure *f);

/* The same, always palloc'd and terminated. */
extern bool llm_encoding_copy_to_utf8(const char *s, Size n, ProtobufCBinaryData *out,
									  struct LlmFailure *f);

/* Text of the engine to the database's encoding: palloc'd, terminated, never fails. What has no
 * equivalent or is not UTF-8 becomes '?', NUL bytes go. *n_out (may be NULL) is its length. */
extern char *llm_encoding_from_utf8(const char *s, Size n, Size *n_out);

/* Bytes of the engine that need not be text: palloc'd, terminated; what is not UTF-8 shows as U+FFFD, in
 * other encodings than UTF8 as '?'. */
extern char *llm_encoding_show_utf8(const char *s, Size n, Size *n_out);

#endif
