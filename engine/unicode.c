/* The table of classes: see unicode.h. One byte a code point (1.1 MB), filled by matching \p{L}+ and its like over a
 * string of all scalar values, so that a pattern run by PCRE2 and one run over the table cannot disagree. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/unicode.h"

#include <assert.h>
#include <pcre2.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "engine/buf.h"
#include "engine/utf8.h"

static uint8_t table[UNICODE_N];
static bool ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* All scalar values in order; surrogates are no text. */
static err_code put_everything(struct buf *all, struct err *e)
{
	for (uint32_t cp = 0; cp < UNICODE_N; cp++)
		if (cp < 0xD800 || cp > 0xDFFF)
			utf8_put(all, cp);
	return buf_check(all, "the Unicode table", e);
}

/* Sets `bits` on every character that `pattern`, a repeated class, matches in `all`. */
static err_code mark(const char *pattern, uint8_t bits, const struct buf *all, struct err *e)
{
	int code, rc;
	PCRE2_SIZE at, pos = 0, *span;
	pcre2_match_data *match = NULL;
	pcre2_code *re =
	    pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);

	if (!re)
		return err_set(e, ERR_INPUT, "PCRE2 does not know '%s' (10.40 or newer is needed)", pattern);
	pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* without a JIT it is only slower */
	match = pcre2_match_data_create_from_pattern(re, NULL);
	if (!match) {
		pcre2_code_free(re);
		return err_set(e, ERR_MEMORY, "out of memory for PCRE2");
	}
	while ((rc = pcre2_match(re, (PCRE2_SPTR)all->data, all->len, pos, PCRE2_NO_UTF_CHECK, match, NULL)) > 0) {
		span = pcre2_get_ovector_pointer(match);
		for (size_t i = span[0], n; i < span[1]; i += n)
			table[utf8_at(all->data + i, &n)] |= bits;
		pos = span[1];
	}
	pcre2_match_data_free(match);
	pcre2_code_free(re);
	if (rc != PCRE2_ERROR_NOMATCH)
		return err_set(e, ERR_INPUT, "PCRE2 failed on '%s' with code %d", pattern, rc);
	return ERR_OK;
}

err_code unicode_classes(const uint8_t **classes, struct err *e)
{
	struct buf all = BUF_INIT(8u << 20);
	err_code rc = ERR_OK;

	pthread_mutex_lock(&lock);
	if (ready)
		goto out;
	memset(table, 0, sizeof table);
	rc = put_everything(&all, e);
	if (!rc)
		rc = mark("\\p{L}+", UNICODE_LETTER, &all, e);
	if (!rc)
		rc = mark("\\p{N}+", UNICODE_NUMBER, &all, e);
	if (!rc)
		rc = mark("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]+", UNICODE_WORD, &all, e);
	if (rc)
		goto out;
	for (uint32_t cp = 0; cp <= 0x3000; cp++) /* the last white space */
		if (utf8_is_space(cp)) {
			assert(!(table[cp] & UNICODE_KIND));
			table[cp] |= UNICODE_SPACE;
		}
	ready = true;
out:
	pthread_mutex_unlock(&lock);
	buf_release(&all);
	if (!rc)
		*classes = table;
	return rc;
}
