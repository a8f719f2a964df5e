/* Examples to tokens (protocols.md section 2, lm-eval's rule): C = encode(context), W = encode(context + continuation);
 * the model reads C and then W[len(C)..], which is scored. White space at the context's end goes to the continuation
 * first. An empty context is the prefix token. */
#include <string.h>

#include "engine/pystr.h"
#include "engine/utf8.h"
#include "eval/example_plan.h"

size_t item_chain(const struct example_plan *p, const struct example_item *item, size_t choice)
{
	size_t n = item->n_context + (size_t)p->choices[item->choice + choice].n;
	size_t most = (size_t)p->max_length + 1;

	return n > most ? most : n;
}

static err_code put_ids(struct example_plan *p, const uint32_t *ids, size_t n, struct err *e)
{
	uint32_t *grown = mem_grow(p->ids, &p->cap_ids, p->n_ids + n, sizeof *grown, e);

	if (!grown)
		return e->code;
	p->ids = grown;
	memcpy(p->ids + p->n_ids, ids, n * sizeof *ids);
	p->n_ids += n;
	return ERR_OK;
}

/* The tokens of p->text[from..to). */
static err_code encode(const struct examples *x, size_t from, size_t to, struct token_list *out, struct err *e)
{
	out->n = out->n_dropped = 0;
	if (tokenizer_encode(x->ev->model->tokenizer, buf_str(&x->plan->text) + from, to - from, false, out, e))
		return e->code;
	x->plan->drops |= out->n_dropped > 0;
	return evaluation_check_ids(x->ev, out, e);
}

/* The tokens of the context, and how many of them are the same whatever follows it. */
static err_code encode_context(struct examples *x, size_t n_context, struct err *e)
{
	struct example_plan *p = x->plan;

	if (encode(x, 0, n_context, &p->context, e))
		return e->code;
	p->cut = tokenizer_cut(x->ev->model->tokenizer, buf_str(&p->text), n_context);
	for (p->n_cut = p->context.n; p->n_cut && p->context.ends[p->n_cut - 1] > p->cut;)
		p->n_cut--;
	return ERR_OK;
}

/* The scored tokens of a continuation, p->text[n_context..], after the context's, p->context. The whole is encoded from
 * the cut on. */
static err_code encode_choice(struct examples *x, size_t n_context, bool *merged, const uint32_t **ids, size_t *n,
                              struct err *e)
{
	struct example_plan *p = x->plan;
	const uint32_t *rest = p->context.ids + p->n_cut; /* of the context */
	size_t n_rest = p->context.n - p->n_cut;

	if (encode(x, p->cut, p->text.len, &p->whole, e))
		return e->code;
	*merged |= p->whole.n < n_rest || memcmp(p->whole.ids, rest, n_rest * sizeof *rest) != 0;
	*ids = p->whole.ids + n_rest;
	*n = p->whole.n > n_rest ? p->whole.n - n_rest : 0;
	if (*n)
		return ERR_OK;
	if (encode(x, n_context, p->text.len, &p->whole, e)) /* nothing is left of it: encoded apart */
		return e->code;
	*ids = p->whole.ids;
	*n = p->whole.n;
	return *n ? ERR_OK : err_set(e, ERR_INPUT, "a choice has no token");
}

/* The tokens of the context: BOS before it where the tokenizer adds it and the text does not have it, or the prefix
 * token in place of an empty one; the last max_context_tokens of them. */
static err_code put_context(struct examples *x, struct example_item *item, struct err *e)
{
	struct example_plan *p = x->plan;
	size_t n = p->context.n, skip = 0;
	bool bos = p->bos >= 0 && (!n || p->context.ids[0] != p->bos);
	uint32_t first = (uint32_t)(bos ? p->bos : p->prefix);

	if (!bos && !n && p->prefix < 0)
		return err_set(e, ERR_INPUT,
		               "an empty context, and model '%s' has no bos_token_id or eos_token_id to begin with",
		               x->ev->model->name);
	bos |= !n;
	if (x->max_context_tokens && n + bos > x->max_context_tokens) {
		skip = n + bos - x->max_context_tokens - bos;
		bos = false;
		item->truncated = true;
	}
	item->context = p->n_ids;
	item->n_context = (uint32_t)(n + bos - skip);
	if (bos && put_ids(p, &first, 1, e))
		return e->code;
	return put_ids(p, p->context.ids + skip, n - skip, e);
}

/* A continuation that begins with the token that stands for an empty context has its context in itself. */
static err_code put_choice(struct examples *x, struct example_item *item, size_t i, size_t n_context, struct err *e)
{
	struct example_plan *p = x->plan;
	const struct choice_start *at = &x->choices[i];
	size_t end = i + 1 < x->n_choices ? at[1].at : x->text.len, n = 0;
	const char *text = x->text.data + at->at;
	struct example_choice *choices, c = {.at = p->n_ids};
	const uint32_t *ids = NULL;

	buf_append(&p->text, text, end - at->at);
	if (buf_check(&p->text, "an example's text", e) || encode_choice(x, n_context, &item->merged, &ids, &n, e))
		return e->code;
	if (n && !p->context.n && ids[0] == p->ids[item->context]) {
		ids++;
		n--;
	}
	if (!n || n > (size_t)p->max_length)
		return err_set(e, ERR_INPUT, "choice %zu has %zu tokens to score: 1 to max_length, %lld, are possible",
		               i, n, (long long)p->max_length);
	c.n = (uint32_t)n;
	if (c.n > item->longest)
		item->longest = c.n;
	c.n_bytes = (uint32_t)(end - at->at - at->joint);
	for (size_t k = at->joint; k < end - at->at; k++)
		c.n_chars += ((unsigned char)text[k] & 0xC0) != 0x80;
	if (item->n_context + n > (size_t)p->max_length + 1)
		item->apart = item->truncated = true;
	choices = mem_grow(p->choices, &p->cap_choices, p->n_choices + 1, sizeof *choices, e);
	if (!choices)
		return e->code;
	p->choices = choices;
	p->choices[p->n_choices++] = c;
	return put_ids(p, ids, n, e);
}

err_code example_encode(struct examples *x, struct example_item *item, struct err *e)
{
	struct example_plan *p = x->plan;
	size_t n_context, n;

	p->drops = false;
	buf_clear(&p->text);
	if (shots_write(p, x, &p->text, e))
		return e->code;
	buf_append(&p->text, x->text.data, x->choices[0].at);
	if (buf_check(&p->text, "an example's text", e))
		return e->code;
	n = p->text.len;
	n_context = pystr_rstrip(buf_str(&p->text), n);
	item->choice = p->n_choices;
	item->n_choices = (uint32_t)x->n_choices;
	item->apart = !p->share;
	if (encode_context(x, n_context, e) || put_context(x, item, e))
		return e->code;
	for (size_t i = 0; i < x->n_choices; i++) {
		p->text.len = n; /* what was moved from the context's end comes before each */
		if (put_choice(x, item, i, n_context, e))
			return e->code;
	}
	p->n_drops += p->drops;
	return ERR_OK;
}
