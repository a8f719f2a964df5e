/* Patterns: see pattern.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"
#include "engine/unicode.h"

#define MAX_SOURCE 10000 /* bytes */

struct pattern {
	char *source;     /* as in the file, for messages; owned */
	pcre2_code *code; /* owned */
};

struct pattern_match {
	pcre2_match_data *data; /* owned */
};

/* -- from Oniguruma's syntax to PCRE2's -------------------------------------------------------- */

/* Length of a general category's name at s, "{L}" or "{Lu}", with braces; 0 for any other property. Scripts mean
 * script extensions in PCRE2 and are not the same sets. */
static size_t category(const char *s)
{
	if (s[0] != '{' || !s[1] || !strchr("LMNPSZC", s[1]))
		return 0;
	if (s[2] == '}')
		return 3;
	return s[2] && strchr("ultomncdefskipo", s[2]) && s[3] == '}' ? 4 : 0;
}

/* Copies the escape at s (a backslash); returns its length, 0 if it is refused. */
static size_t put_escape(struct buf *out, const char *s, bool in_class)
{
	size_t n;

	switch (s[1]) {
	case 's':
		buf_puts(out, in_class ? UNICODE_SPACE_CLASS : "[" UNICODE_SPACE_CLASS "]");
		return 2;
	case 'S':
		if (in_class)
			return 0;
		buf_puts(out, "[^" UNICODE_SPACE_CLASS "]");
		return 2;
	case 'p':
	case 'P':
		n = category(s + 2);
		buf_append(out, s, n ? 2 + n : 0);
		return n ? 2 + n : 0;
	case 'r':
	case 'n':
	case 't':
	case 'd': /* Nd in both */
		buf_append(out, s, 2);
		return 2;
	default: /* a punctuation mark stands for itself */
		if (!s[1] || !strchr("!\"#%&'()*+,-./:;=?@[\\]^_{|}~$", s[1]))
			return 0;
		buf_append(out, s, 2);
		return 2;
	}
}

/* Length of the quantifier at s, with a possessive or lazy sign; 0 if it is refused. "{n}+" is possessive only in
 * PCRE2, "{,n}" and a brace that counts nothing are only there literal. */
static size_t quantifier(const char *s)
{
	size_t n = 1, digits;

	if (*s == '{') {
		digits = strspn(s + 1, "0123456789");
		n += digits;
		if (!digits)
			return 0;
		if (s[n] == ',')
			n += 1 + strspn(s + n + 1, "0123456789");
		if (s[n++] != '}' || s[n] == '+')
			return 0;
		return n;
	}
	return s[1] == '+' || s[1] == '?' ? 2 : 1;
}

/* Length of the group's opening at s, "(" and what follows of "?:", "?=", "?!", "?i:"; 0 if it is refused. */
static size_t group_open(const char *s)
{
	static const char *const openings[] = {"(?:", "(?=", "(?!", "(?i:"};

	for (size_t i = 0; i < sizeof openings / sizeof *openings; i++)
		if (!strncmp(s, openings[i], strlen(openings[i])))
			return strlen(openings[i]);
	return s[1] == '?' || s[1] == '*' ? 0 : 1;
}

/* Copies one item outside a class; 0 if it is refused. */
static size_t put_outside(struct buf *out, const char *s)
{
	size_t n = 1;

	if (*s == '\\')
		return put_escape(out, s, false);
	if (strchr("*+?{", *s))
		n = quantifier(s);
	else if (*s == '(')
		n = group_open(s);
	else if (strchr(".^$", *s))
		n = 0;
	buf_append(out, s, n);
	return n;
}

/* Copies one item inside a class; 0 if it is refused: a set in a set, an intersection. */
static size_t put_inside(struct buf *out, const char *s)
{
	if (*s == '\\')
		return put_escape(out, s, true);
	if (*s == '[' || (*s == '&' && s[1] == '&'))
		return 0;
	buf_putc(out, *s);
	return 1;
}

static err_code translate(const char *source, struct buf *out, struct err *e)
{
	bool in_class = false;
	size_t n;

	for (const char *s = source; *s; s += n) {
		if (in_class) {
			n = put_inside(out, s);
			in_class = *s != ']';
		} else {
			n = put_outside(out, s);
			in_class = *s == '[';
			if (in_class && s[1] == '^') {
				buf_putc(out, '^');
				n++;
			}
			if (in_class && s[n] == ']')
				n = 0; /* literal in one, an empty set in the other */
		}
		if (!n)
			return err_set(e, ERR_INPUT, "pattern '%.300s' is not supported at '%.20s'", source, s);
	}
	return buf_check(out, "pattern", e);
}

/* -- compiling and matching -------------------------------------------------------------------- */

err_code pattern_compile(const char *source, struct pattern **out, struct err *e)
{
	struct buf text = BUF_INIT(64 * MAX_SOURCE);
	struct pattern *p = NULL;
	PCRE2_UCHAR why[200];
	PCRE2_SIZE at;
	uint32_t matches_empty = 0;
	int code;
	err_code rc;

	if (strlen(source) > MAX_SOURCE)
		return err_set(e, ERR_INPUT, "a pattern of %zu bytes is too long", strlen(source));
	rc = translate(source, &text, e);
	if (rc)
		goto out;
	p = mem_zalloc(1, sizeof *p, e);
	if (p)
		p->source = mem_strdup(source, e);
	if (!p || !p->source) {
		rc = e->code;
		goto out;
	}
	p->code = pcre2_compile((PCRE2_SPTR)buf_str(&text), text.len, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
	if (!p->code) {
		pcre2_get_error_message(code, why, sizeof why);
		rc = err_set(e, ERR_INPUT, "pattern '%.300s': %s", source, (const char *)why);
		goto out;
	}
	pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
	if (matches_empty) {
		rc = err_set(e, ERR_INPUT, "pattern '%.300s' is not supported: it may match nothing", source);
		goto out;
	}
	pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without a JIT it is only slower */
	*out = p;
	p = NULL;
out:
	pattern_free(p);
	buf_release(&text);
	return rc;
}

void pattern_free(struct pattern *p)
{
	if (!p)
		return;
	pcre2_code_free(p->code);
	free(p->source);
	free(p);
}

err_code pattern_match_new(const struct pattern *p, struct pattern_match **out, struct err *e)
{
	struct pattern_match *m = mem_zalloc(1, sizeof *m, e);

	if (!m)
		return e->code;
	m->data = pcre2_match_data_create_from_pattern(p->code, NULL);
	if (!m->data) {
		free(m);
		return err_set(e, ERR_MEMORY, "out of memory for PCRE2");
	}
	*out = m;
	return ERR_OK;
}

void pattern_match_free(struct pattern_match *m)
{
	if (!m)
		return;
	pcre2_match_data_free(m->data);
	free(m);
}

err_code pattern_find(const struct pattern *p, struct pattern_match *m, const char *text, size_t len, size_t at,
                      size_t *from, size_t *to, struct err *e)
{
	const PCRE2_SIZE *span = pcre2_get_ovector_pointer(m->data);
	int rc = pcre2_match(p->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, m->data, NULL);

	*from = *to = len;
	if (rc == PCRE2_ERROR_NOMATCH)
		return ERR_OK;
	if (rc < 0 || span[1] <= span[0] || span[0] < at)
		return err_set(e, ERR_INPUT, "pattern '%.200s' fails at byte %zu of a text (PCRE2 code %d)", p->source,
		               at, rc);
	*from = span[0];
	*to = span[1];
	return ERR_OK;
}
