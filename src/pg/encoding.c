/* pg/encoding.c - conversion between the database's encoding and UTF-8 without raising errors. */
#include "postgres.h"

#include "pg/encoding.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "pg/error.h"
#include "utils/memutils.h"

/* A conversion takes a transaction; errors are also reported from where there is none. */
static Oid
find_conversion(int from, int to)
{
	return IsTransactionState() ? FindDefaultConversionProc(from, to) : InvalidOid;
}

bool
llm_encoding_to_utf8(const char *s, Size n, const char **out, Size *n_out, LlmFailure *f)
{
	int encoding = GetDatabaseEncoding();
	Oid proc;
	char *dst;
	Size cap;
	int used;

	*out = s;
	*n_out = n;
	if (encoding == PG_UTF8)
		return true;
	proc = encoding == PG_SQL_ASCII ? InvalidOid : find_conversion(encoding, PG_UTF8);
	if (!OidIsValid(proc))
	{
		llm_failure_set(f, ERRCODE_FEATURE_NOT_SUPPORTED,
						"llm_infer does not support databases with encoding \"%s\"",
						GetDatabaseEncodingName());
		llm_failure_hint(f, "Use a database with encoding UTF8.");
		return false;
	}
	if (n == 0)
		return true;
	if (n >= MaxAllocSize / MAX_CONVERSION_GROWTH)
		return llm_failure_set(f, ERRCODE_PROGRAM_LIMIT_EXCEEDED,
							   "text of %zu bytes is too long to convert", n);
	cap = n * MAX_CONVERSION_GROWTH + 1;
	dst = palloc(cap);
	used = pg_do_encoding_conversion_buf(proc, encoding, PG_UTF8, (unsigned char *) s, (int) n,
										 (unsigned char *) dst, (int) cap, true);
	if ((Size) used != n)
	{
		llm_failure_set(f, ERRCODE_UNTRANSLATABLE_CHARACTER,
						"text has a character at byte %d that has no equivalent in UTF8", used + 1);
		llm_failure_detail(f, "The database has encoding \"%s\".", GetDatabaseEncodingName());
		return false;
	}
	*n_out = strlen(dst);
	*out = repalloc(dst, *n_out + 1); /* the room for the worst case is not kept */
	return true;
}

bool
llm_encoding_copy_to_utf8(const char *s, Size n, ProtobufCBinaryData *out, LlmFailure *f)
{
	const char *p;
	Size len;

	if (!llm_encoding_to_utf8(s, n, &p, &len, f))
		return false;
	out->data = (uint8_t *) p;
	out->len = len;
	if (p == s)
	{
		out->data = MemoryContextAllocHuge(CurrentMemoryContext, len + 1);
		memcpy(out->data, s, len);
		out->data[len] = '\0';
	}
	return true;
}

/* Bytes of the character at s, at most n; a byte that starts none is a character of its own. */
static Size
utf8_char(const char *s, Size n)
{
	int len = pg_utf_mblen((const unsigned char *) s);

	if ((Size) len > n || !pg_utf8_islegal((const unsigned char *) s, len))
		return 1;
	return len;
}

/* Append the longest part of s that is valid UTF-8 without NUL; give back how much that was. */
static Size
append_valid(StringInfo out, const char *s, Size n)
{
	Size ok = pg_encoding_verifymbstr(PG_UTF8, s, (int) n);

	appendBinaryStringInfo(out, s, (int) ok);
	return ok;
}

/* Append the longest part of s that converts; give back how much that was. A character cut by the
 * end of a piece begins the next one. */
static Size
append_converted(StringInfo out, Oid proc, const char *s, Size n)
{
	Size piece = Min(n, 64 * 1024);
	int used;

	enlargeStringInfo(out, (int) (piece * MAX_CONVERSION_GROWTH) + 1);
	used = pg_do_encoding_conversion_buf(proc, PG_UTF8, GetDatabaseEncoding(), (unsigned char *) s,
										 (int) piece, (unsigned char *) out->data + out->len,
										 out->maxlen - out->len, true);
	out->len += (int) strlen(out->data + out->len);
	return used;
}

char *
llm_encoding_from_utf8(const char *s, Size n, Size *n_out)
{
	int encoding = GetDatabaseEncoding();
	Oid proc = encoding == PG_UTF8 ? InvalidOid : find_conversion(PG_UTF8, encoding);
	StringInfoData out;

	initStringInfo(&out);
	while (n > 0)
	{
		Size used;

		if (encoding == PG_UTF8)
			used = append_valid(&out, s, n);
		else if (OidIsValid(proc))
			used = append_converted(&out, proc, s, n);
		else if (IS_HIGHBIT_SET(*s) || *s == '\0')
			used = 0;
		else
		{
			appendStringInfoCharMacro(&out, *s);
			used = 1;
		}
		s += used;
		n -= used;
		if (n == 0 || (used > 0 && encoding != PG_UTF8))
			continue;
		used = utf8_char(s, n);
		if (*s != '\0')
			appendStringInfoChar(&out, '?');
		s += used;
		n -= used;
	}
	if (n_out)
		*n_out = (Size) out.len;
	return out.data;
}

char *
llm_encoding_show_utf8(const char *s, Size n, Size *n_out)
{
	StringInfoData valid;
	char *shown;

	initStringInfo(&valid);
	while (n > 0)
	{
		Size used = append_valid(&valid, s, n);

		s += used;
		n -= used;
		if (n == 0)
			break;
		appendStringInfoString(&valid, "\xEF\xBF\xBD");
		used = utf8_char(s, n);
		s += used;
		n -= used;
	}
	shown = llm_encoding_from_utf8(valid.data, (Size) valid.len, n_out);
	pfree(valid.data);
	return shown;
}
