/* Words: see pretokenize.h. */
#include "engine/pretokenize.h"

#include <string.h>

#include "engine/unicode.h"
#include "engine/utf8.h"

/* -- GPT-2's pattern --------------------------------------------------------------------------- */

/* The end of the run of characters of `kind` from s[i]. */
static size_t run_end(const uint8_t *classes, unsigned kind, const char *s, size_t i, size_t len)
{
	size_t n;

	while (i < len && (classes[utf8_at(s + i, &n)] & UNICODE_KIND) == kind)
		i += n;
	return i;
}

/* 's 't 're 've 'm 'll 'd: the length of the one at s, or 0. */
static size_t contraction(const char *s, size_t len)
{
	if (len < 2)
		return 0;
	switch (s[1]) {
	case 's':
	case 't':
	case 'm':
	case 'd':
		return 2;
	case 'r':
	case 'v':
		return len > 2 && s[2] == 'e' ? 3 : 0;
	case 'l':
		return len > 2 && s[2] == 'l' ? 3 : 0;
	default:
		return 0;
	}
}

/* The end of the word at s[i], i < len. Each alternative of the pattern, in its order; they cover every character:
 * white space that does not lead a word is cut one short of what follows, so that the last space goes along. */
static size_t gpt2_end(const uint8_t *classes, const char *s, size_t i, size_t len)
{
	size_t n, last, end;
	unsigned kind = classes[utf8_at(s + i, &n)] & UNICODE_KIND;

	if (s[i] == '\'' && (end = contraction(s + i, len - i)) != 0)
		return i + end;
	if (kind != UNICODE_SPACE)
		return run_end(classes, kind, s, i + n, len);
	if (s[i] == ' ' && i + 1 < len) {
		size_t m;

		kind = classes[utf8_at(s + i + 1, &m)] & UNICODE_KIND;
		if (kind != UNICODE_SPACE)
			return run_end(classes, kind, s, i + 1 + m, len);
	}
	/* \s+(?!\S): all of the run at the text's end, else all but its last character; \s+ if that is none */
	last = i;
	for (end = i + n; end < len; end += n) {
		if ((classes[utf8_at(s + end, &n)] & UNICODE_KIND) != UNICODE_SPACE)
			return last > i ? last : end;
		last = end;
	}
	return end;
}

/* -- the walk ---------------------------------------------------------------------------------- */

struct walk {
	const struct pretokenizer *p;
	struct pretokenize_run *run;
	const char *text;
	word_fn *fn;
	void *ctx;
};

/* Cuts text[from..to) by the steps from `step` on. Each step sees its piece as a text of its own. */
static err_code cut(const struct walk *w, size_t step, size_t from, size_t to, struct err *e)
{
	struct pattern *pattern = step < w->p->n_steps ? w->p->steps[step] : NULL;
	size_t len = to - from, at = 0, match_from, match_to;

	if (step == w->p->n_steps)
		return w->fn(w->ctx, from, to, e);
	if (pattern && !w->run->match[step] && pattern_match_new(pattern, &w->run->match[step], e))
		return e->code;
	while (at < len) {
		match_from = at;
		if (!pattern)
			match_to = gpt2_end(w->p->classes, w->text + from, at, len);
		else if (pattern_find(pattern, w->run->match[step], w->text + from, len, at, &match_from, &match_to, e))
			return e->code;
		if (match_from > at && cut(w, step + 1, from + at, from + match_from, e))
			return e->code;
		if (match_to > match_from && cut(w, step + 1, from + match_from, from + match_to, e))
			return e->code;
		at = match_to;
	}
	return ERR_OK;
}

err_code pretokenize(const struct pretokenizer *p, struct pretokenize_run *r, const char *text, size_t len, word_fn *fn,
                     void *ctx, struct err *e)
{
	struct walk w = {p, r, text, fn, ctx};

	return len ? cut(&w, 0, 0, len, e) : ERR_OK;
}

void pretokenize_run_release(struct pretokenize_run *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < PRETOKENIZE_MAX_STEPS; i++)
		pattern_match_free(r->match[i]);
	*r = (struct pretokenize_run){0};
}

/* -- reading ----------------------------------------------------------------------------------- */

void pretokenizer_release(struct pretokenizer *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_steps; i++)
		pattern_free(p->steps[i]);
	*p = (struct pretokenizer){0};
}

/* A member that must be true or false; `absent` when it is not there. */
static err_code read_bool(const struct json *o, const char *key, bool absent, bool *out, struct err *e)
{
	const struct json *v = json_get(o, key);

	if (v && !json_is_bool(v))
		return err_set(e, ERR_INPUT, "pre_tokenizer: '%s' is %s, not true or false", key, json_type_name(v));
	*out = v ? json_true(v) : absent;
	return ERR_OK;
}

static err_code add_step(struct pretokenizer *p, const char *pattern, struct err *e)
{
	if (p->n_steps == PRETOKENIZE_MAX_STEPS)
		return err_set(e, ERR_INPUT, "pre_tokenizer: more than %d steps", PRETOKENIZE_MAX_STEPS);
	if (pattern && pattern_compile(pattern, &p->steps[p->n_steps], e))
		return err_wrap(e, "pre_tokenizer");
	p->n_steps++;
	return ERR_OK;
}

static err_code read_byte_level(const struct json *v, struct pretokenizer *p, struct err *e)
{
	bool regex = true;

	if (read_bool(v, "use_regex", true, &regex, e) ||
	    read_bool(v, "add_prefix_space", true, &p->add_prefix_space, e))
		return e->code;
	if (p->add_prefix_space && p->n_steps)
		return err_set(e, ERR_INPUT,
		               "pre_tokenizer: ByteLevel with add_prefix_space after other steps is not "
		               "supported");
	return regex ? add_step(p, NULL, e) : ERR_OK;
}

static err_code read_split(const struct json *v, struct pretokenizer *p, struct err *e)
{
	const char *regex = json_get_string(json_get(v, "pattern"), "Regex");
	const char *behavior = json_get_string(v, "behavior");
	bool invert = false;

	if (read_bool(v, "invert", false, &invert, e))
		return e->code;
	if (!regex || !behavior || strcmp(behavior, "Isolated") != 0 || invert)
		return err_set(e, ERR_INPUT,
		               "pre_tokenizer: Split is supported with a Regex, behavior 'Isolated' and "
		               "invert false only");
	return add_step(p, regex, e);
}

static err_code read_digits(const struct json *v, struct pretokenizer *p, struct err *e)
{
	bool individual = false;

	if (read_bool(v, "individual_digits", false, &individual, e))
		return e->code;
	return add_step(p, individual ? "\\p{N}" : "\\p{N}+", e);
}

/* One pre-tokenizer that is no Sequence; *done when it is the ByteLevel, which must come last. */
static err_code read_one(const struct json *v, struct pretokenizer *p, bool *done, struct err *e)
{
	const char *type = json_get_string(v, "type");

	if (!type)
		return err_set(e, ERR_INPUT, "pre_tokenizer is %s: only byte-level tokenizers are supported",
		               json_is_object(v) ? "without a type" : json_type_name(v));
	if (*done)
		return err_set(e, ERR_INPUT, "pre_tokenizer: '%.100s' after ByteLevel is not supported", type);
	if (!strcmp(type, "ByteLevel")) {
		*done = true;
		return read_byte_level(v, p, e);
	}
	if (!strcmp(type, "Split"))
		return read_split(v, p, e);
	if (!strcmp(type, "Digits"))
		return read_digits(v, p, e);
	return err_set(e, ERR_INPUT, "pre_tokenizer.type '%.100s' is not supported", type);
}

err_code pretokenizer_read(const struct json *value, struct pretokenizer *out, struct err *e)
{
	const char *type = json_get_string(value, "type");
	const struct json *list = json_get(value, "pretokenizers");
	bool done = false;
	err_code rc;

	*out = (struct pretokenizer){0};
	rc = unicode_classes(&out->classes, e);
	if (rc)
		return rc;
	if (type && !strcmp(type, "Sequence")) {
		if (!json_is_array(list))
			return err_set(e, ERR_INPUT, "pre_tokenizer.pretokenizers is %s, not an array",
			               json_type_name(list));
		for (const struct json *v = json_first(list); v && !rc; v = json_next(v))
			rc = read_one(v, out, &done, e);
	} else {
		rc = read_one(value, out, &done, e);
	}
	if (!rc && !done)
		rc = err_set(e, ERR_INPUT, "pre_tokenizer has no ByteLevel: only byte-level tokenizers are supported");
	if (rc)
		pretokenizer_release(out);
	return rc;
}
