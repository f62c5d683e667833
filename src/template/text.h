/*
 * template/text.h - strings whose bytes remember who wrote them.
 *
 * A text is a range of a buffer; a buffer is bytes plus marks, a mark being the end of a run of
 * bytes of one origin. Slicing shares the buffer and costs nothing. Joining appends in place when
 * the left text ends where its buffer ends, so that building a text piece by piece is linear.
 * Fixed buffers (literals of the template, strings of the caller) are never written to, which lets
 * threads share them.
 */
#ifndef LLM_TEMPLATE_TEXT_H
#define LLM_TEMPLATE_TEXT_H

#include "core/str.h"
#include "template/bounds.h"

typedef struct LlmMark
{
	size_t end;   /* first byte after the run */
	bool trusted; /* written by the template or the model's own tokens */
} LlmMark;

typedef struct LlmTextBuf
{
	char *data;       /* [cap], or borrowed when fixed */
	size_t used;      /* bytes in use */
	size_t cap;       /* bytes allocated */
	LlmMark *marks;   /* [cap_marks], ascending, covering [0, used) */
	size_t n_marks;   /* marks in use */
	size_t cap_marks; /* marks allocated */
	bool fixed;       /* never append in place */
} LlmTextBuf;

typedef struct LlmText
{
	const LlmTextBuf *buf; /* NULL only when len is 0 */
	size_t off;            /* first byte */
	size_t len;            /* bytes */
} LlmText;

typedef enum LlmCase
{
	LLM_CASE_UPPER,
	LLM_CASE_LOWER,
	LLM_CASE_CAPITAL,    /* first character upper, the others lower */
	LLM_CASE_TITLE,      /* as Python's str.title: after anything that has no case */
	LLM_CASE_TITLE_WORDS /* as Jinja's filter: after white space and opening brackets */
} LlmCase;

/* An empty buffer with room for cap bytes. */
LlmTextBuf *llm_tmpl_buf_new(LlmRun *run, size_t cap);
void llm_tmpl_buf_add(LlmRun *run, LlmTextBuf *buf, const char *p, size_t n, bool trusted);
void llm_tmpl_buf_add_text(LlmRun *run, LlmTextBuf *buf, LlmText text);
LlmText llm_tmpl_buf_text(const LlmTextBuf *buf);

/* A text over borrowed bytes, which must outlive the run. */
LlmText llm_tmpl_text_borrow(LlmRun *run, LlmStr s, bool trusted);
LlmText llm_tmpl_text_concat(LlmRun *run, LlmText a, LlmText b);
LlmText llm_tmpl_text_sub(LlmText text, size_t off, size_t len);

/* The origin of the byte at `at`; *end becomes the end of its run, both relative to the text. */
bool llm_tmpl_text_origin(LlmText text, size_t at, size_t *end);
/* True when every byte is trusted. */
bool llm_tmpl_text_trusted(LlmText text);

static inline const char *
llm_tmpl_text_data(LlmText text)
{
	return text.len == 0 ? "" : text.buf->data + text.off;
}

bool llm_tmpl_text_eq(LlmText a, LlmText b);

/* Decode the character at p[0..n), n > 0: its length in bytes. A byte that starts no character
 * counts as one character of code U+FFFD. */
size_t llm_tmpl_char(const char *p, size_t n, uint32_t *code);
/* White space as Python's str.isspace has it. */
bool llm_tmpl_is_space(uint32_t code);
/* Bytes of p[0..n) that remain when white space at the end is cut, or to skip at the start. */
size_t llm_tmpl_space_rtrim(const char *p, size_t n);
size_t llm_tmpl_space_skip(const char *p, size_t n);

/* Characters (code points) of the text; and the byte offset of character i <= that count. */
size_t llm_tmpl_text_chars(LlmRun *run, LlmText text);
size_t llm_tmpl_text_offset(LlmRun *run, LlmText text, size_t i);

/* Byte offset of needle in text[from..], or SIZE_MAX. */
size_t llm_tmpl_text_find(LlmRun *run, LlmText text, size_t from, LlmText needle);
/* The same for the last place before `before`. */
size_t llm_tmpl_text_rfind(LlmRun *run, LlmText text, size_t before, LlmText needle);

/* Cut characters of the set (NULL: white space) from the ends asked for. */
LlmText llm_tmpl_text_strip(LlmRun *run, LlmText text, const LlmText *set, bool left, bool right);
LlmText llm_tmpl_text_case(LlmRun *run, LlmText text, LlmCase how);
/* At most `count` replacements from the left; count < 0 means all. old is not empty. */
LlmText llm_tmpl_text_replace(LlmRun *run, LlmText text, LlmText old, LlmText new, int64_t count);

/* One line of Python's str.splitlines from *at on, without its end; false when there is none. */
bool llm_tmpl_text_line(LlmRun *run, LlmText text, size_t *at, LlmText *line);

#endif
