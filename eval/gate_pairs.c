/* Gates: what may be compared with what, and item with item. */
#include <stdlib.h>
#include <string.h>

#include "eval/gate_private.h"

/* -- results ----------------------------------------------------------------------------------- */

static void put_json(struct buf *out, const struct json *v)
{
	struct json_writer w = JSON_WRITER(out);

	json_put_value(&w, NULL, v);
}

/* Absent and null are the same: a parameter that a version has not yet. */
static bool same_json(const struct json *a, const struct json *b)
{
	struct buf x = BUF_INIT(1 << 20), y = BUF_INIT(1 << 20);
	bool a_null = !a || json_is_null(a), b_null = !b || json_is_null(b), same = a_null && b_null;

	if (!a_null && !b_null) {
		put_json(&x, a);
		put_json(&y, b);
		same = !x.failed && !y.failed && !strcmp(buf_str(&x), buf_str(&y));
	}
	buf_release(&x);
	buf_release(&y);
	return same;
}

static void put_value(struct buf *out, const struct json *v)
{
	struct buf text = BUF_INIT(1 << 20);

	if (json_is_string(v)) {
		buf_printf(out, "%.100s", json_string(v));
	} else if (!v || json_is_null(v)) {
		buf_puts(out, "not given");
	} else {
		put_json(&text, v);
		buf_printf(out, "%.100s%s", buf_str(&text), text.len > 100 ? "..." : "");
	}
	buf_release(&text);
}

/* "dtype is bf16, and f32 in the baseline", after what was there. */
static void put_differs(struct buf *out, const char *what, const struct json *base, const struct json *cand)
{
	buf_printf(out, "%s%s is ", out->len ? "; " : "", what);
	put_value(out, cand);
	buf_puts(out, ", and ");
	put_value(out, base);
	buf_puts(out, " in the baseline");
}

static void compare_member(struct buf *out, const char *what, const char *object, const char *key,
                           const struct evidence *base, const struct evidence *cand)
{
	const struct json *a = json_get(json_get(base->result, object), key),
	                  *b = json_get(json_get(cand->result, object), key);

	if (!same_json(a, b))
		put_differs(out, what, a, b);
}

static void compare_params(struct buf *out, const struct evidence *base, const struct evidence *cand)
{
	const struct json *a = json_get(json_get(base->result, "task"), "params"),
	                  *b = json_get(json_get(cand->result, "task"), "params");

	for (const struct json *m = json_first(b); m; m = json_next(m))
		if (!same_json(json_get(a, json_key(m)), m))
			put_differs(out, json_key(m), json_get(a, json_key(m)), m);
	for (const struct json *m = json_first(a); m; m = json_next(m))
		if (!json_get(b, json_key(m)) && !json_is_null(m))
			put_differs(out, json_key(m), m, NULL);
}

/* The override of a result's positions: an object, or null; a result of before has none. */
static const struct json *override_of(const struct evidence *ev)
{
	return json_get(json_get(ev->result, "engine"), "position");
}

/* As they were asked for, the members in any order. */
static bool same_override(const struct json *a, const struct json *b)
{
	if (!json_is_object(a) || !json_is_object(b))
		return same_json(a, b);
	for (const struct json *m = json_first(a); m; m = json_next(m))
		if (!same_json(m, json_get(b, json_key(m))))
			return false;
	for (const struct json *m = json_first(b); m; m = json_next(m))
		if (!same_json(m, json_get(a, json_key(m))))
			return false;
	return true;
}

bool evidence_has_positions(const struct gate_measure *m, const struct evidence *ev)
{
	return same_override(json_get(m->engine, "position"), override_of(ev));
}

/* "cuda:0" and "cuda:1" are of a kind. */
static size_t kind_length(const struct json *device)
{
	return json_is_string(device) ? strcspn(json_string(device), ":") : 0;
}

static void compare_engine(struct buf *out, const struct evidence *base, const struct evidence *cand)
{
	const struct json *a = json_get(json_get(base->result, "engine"), "device"),
	                  *b = json_get(json_get(cand->result, "engine"), "device");

	compare_member(out, "dtype", "engine", "dtype", base, cand);
	if (!kind_length(a) || kind_length(a) != kind_length(b) ||
	    memcmp(json_string(a), json_string(b), kind_length(a)) != 0)
		put_differs(out, "device", a, b);
}

err_code evidence_comparable(const struct evidence *base, const struct evidence *cand, bool allow_engine,
                             struct buf *engine, struct err *e)
{
	struct buf why = BUF_INIT(1 << 16);
	err_code rc = ERR_OK;

	compare_member(&why, "task", "task", "name", base, cand);
	compare_member(&why, "task version", "task", "version", base, cand);
	compare_params(&why, base, cand);
	if (!same_override(override_of(base), override_of(cand)))
		put_differs(&why, "the override of positions", override_of(base), override_of(cand));
	compare_member(&why, "tokenizer", "model", "tokenizer_fingerprint", base, cand);
	compare_member(&why, "dataset", "dataset", "fingerprint", base, cand);
	compare_engine(allow_engine ? engine : &why, base, cand);
	if (why.len)
		rc = err_set(e, ERR_INPUT, "%s", buf_str(&why));
	buf_release(&why);
	return rc;
}

/* How well a baseline's result answers what the candidate was measured for: what is first weighs more than all after
 * it. Positions and engine tell measures apart that are the same in the rest: a scaling, or a dtype, beside another.
 */
static int match_score(const struct gate_measure *m, const struct evidence *cand, const struct evidence *base)
{
	const struct json *dataset = json_get(base->result, "dataset"), *of = cand ? cand->result : NULL;
	const char *name = json_get_string(dataset, "name");
	struct buf params = BUF_INIT(1 << 16), engine = BUF_INIT(1 << 16);
	int score = 0;

	if (of && json_get(json_get(of, "task"), "params"))
		compare_params(&params, base, cand);
	if (of)
		compare_engine(&engine, base, cand);
	score += 32 * !params.len;
	score += 16 * same_json(json_get(dataset, "fingerprint"), json_get(json_get(of, "dataset"), "fingerprint"));
	score += 8 * (name && m->dataset && !strcmp(name, m->dataset));
	score += 4 * (of && same_override(override_of(base), override_of(cand)));
	score += 2 * same_json(json_get(json_get(base->result, "model"), "position"),
	                       json_get(json_get(of, "model"), "position"));
	score += !engine.len;
	buf_release(&params);
	buf_release(&engine);
	return score;
}

const struct evidence *evidence_match(const struct gate_measure *m, const struct evidence *cand,
                                      const struct evidence *const *baseline, size_t n)
{
	const struct evidence *best = NULL;
	int best_score = -1;

	for (size_t i = 0; i < n; i++) {
		const char *task = json_get_string(json_get(baseline[i]->result, "task"), "name");
		int score;

		if (!task || strcmp(task, task_name(m->task)) != 0)
			continue;
		score = match_score(m, cand, baseline[i]);
		if (score > best_score) {
			best_score = score;
			best = baseline[i];
		}
	}
	return best;
}

/* -- items by key ------------------------------------------------------------------------------ */

/* An item with what it is sorted by: one side's selection. */
struct handle {
	const struct evidence_item *item;
	const char *name; /* group, or document */
};

struct selection {
	struct handle *list; /* [n] owned */
	size_t n;
};

static int order(double a, double b)
{
	return (a > b) - (a < b);
}

/* Group and key; then, among items of one key, which are the same text, the right answer and what they came to: pairs
 * of equal things. Broken ones have no numbers and come first. */
static int compare_keys(const struct handle *a, const struct handle *b)
{
	int by = strcmp(a->name, b->name);

	return by ? by : (a->item->key > b->item->key) - (a->item->key < b->item->key);
}

static int compare_handles(const void *pa, const void *pb)
{
	const struct handle *a = pa, *b = pb;
	int by = compare_keys(a, b);

	if (!by)
		by = (a->item->gold > b->item->gold) - (a->item->gold < b->item->gold);
	if (!by)
		by = b->item->broken - a->item->broken;
	for (int k = 0; !by && k < N_NORMS; k++)
		by = a->item->right[k] - b->item->right[k];
	return by ? by : order(a->item->loss, b->item->loss);
}

static bool is_of_rule(const struct gate_rule *r, const struct evidence *ev, const struct evidence_item *it)
{
	return it->length == r->length && (!r->group || !strcmp(evidence_name(ev, it->group), r->group));
}

/* ERR_INPUT when an item has no key. */
static err_code select_items(const struct gate_rule *r, const struct evidence *ev, const char *whose,
                             struct selection *s, struct err *e)
{
	size_t n_keyless = 0;

	s->list = mem_alloc(ev->n, sizeof *s->list, e);
	if (!s->list)
		return ERR_MEMORY;
	for (size_t i = 0; i < ev->n; i++) {
		const struct evidence_item *it = &ev->items[i];

		if (!is_of_rule(r, ev, it))
			continue;
		n_keyless += !it->has_key;
		s->list[s->n++] = (struct handle){it, evidence_name(ev, it->group)};
	}
	if (n_keyless)
		return err_set(e, ERR_INPUT, "%zu of the %s's %zu items have no key to be paired by", n_keyless, whose,
		               s->n);
	if (s->n)
		qsort(s->list, s->n, sizeof *s->list, compare_handles);
	return ERR_OK;
}

/* Both sides are sorted: what has a partner is paired, the rest counted. */
static void merge(const struct selection *base, const struct selection *cand, struct item_pairs *out, size_t only[2])
{
	size_t i = 0, k = 0;

	only[0] = only[1] = 0;
	while (i < base->n && k < cand->n) {
		int by = compare_keys(&base->list[i], &cand->list[k]);

		if (!by)
			out->list[out->n++] =
			    (struct item_pair){base->list[i].item, cand->list[k].item, cand->list[k].name};
		only[0] += by < 0;
		only[1] += by > 0;
		i += by <= 0;
		k += by >= 0;
	}
	only[0] += base->n - i;
	only[1] += cand->n - k;
}

err_code pairs_by_key(const struct gate_rule *r, const struct evidence *base, const struct evidence *cand,
                      struct item_pairs *out, struct err *e)
{
	struct selection b = {0}, c = {0};
	size_t only[2];
	err_code rc = select_items(r, base, "baseline", &b, e);

	*out = (struct item_pairs){0};
	if (!rc)
		rc = select_items(r, cand, "candidate", &c, e);
	if (!rc) {
		out->list = mem_alloc(b.n < c.n ? b.n : c.n, sizeof *out->list, e);
		rc = out->list ? ERR_OK : ERR_MEMORY;
	}
	if (!rc) {
		merge(&b, &c, out, only);
		if (only[0] || only[1])
			rc = err_set(
			    e, ERR_INPUT,
			    "the sets of items differ: %zu are in both, %zu only in the candidate, %zu only in the "
			    "baseline",
			    out->n, only[1], only[0]);
	}
	free(b.list);
	free(c.list);
	return rc;
}

/* -- lengths by document ----------------------------------------------------------------------- */

static int compare_documents(const void *pa, const void *pb)
{
	const struct handle *a = pa, *b = pb;

	return strcmp(a->name, b->name);
}

static err_code select_length(const struct evidence *ev, int64_t length, struct selection *s, struct err *e)
{
	s->list = mem_alloc(ev->n, sizeof *s->list, e);
	if (!s->list)
		return ERR_MEMORY;
	for (size_t i = 0; i < ev->n; i++)
		if (ev->items[i].length == length)
			s->list[s->n++] = (struct handle){&ev->items[i], evidence_name(ev, ev->items[i].doc)};
	if (s->n)
		qsort(s->list, s->n, sizeof *s->list, compare_documents);
	for (size_t i = 1; i < s->n; i++)
		if (!strcmp(s->list[i].name, s->list[i - 1].name))
			return err_set(e, ERR_INPUT, "two items of length %lld are of one document, '%.200s'",
			               (long long)length, s->list[i].name);
	return ERR_OK;
}

/* Whether a document of this item has at least one more token than the longer length: all windows but the last predict
 * as many tokens as they are long, so its scored tokens tell. */
static bool is_filled(const struct evidence_item *at_longest, int64_t longest)
{
	return at_longest->broken || at_longest->n_tokens >= (double)longest;
}

err_code pairs_by_document(const struct gate_rule *r, const struct evidence *ev, struct item_pairs *out,
                           size_t *n_short, struct err *e)
{
	int64_t longest = r->length > r->over ? r->length : r->over;
	struct selection base = {0}, cand = {0};
	err_code rc = select_length(ev, r->over, &base, e);
	size_t i = 0, k = 0;

	*out = (struct item_pairs){0};
	*n_short = 0;
	if (!rc)
		rc = select_length(ev, r->length, &cand, e);
	if (!rc) {
		out->list = mem_alloc(base.n < cand.n ? base.n : cand.n, sizeof *out->list, e);
		rc = out->list ? ERR_OK : ERR_MEMORY;
	}
	while (!rc && i < base.n && k < cand.n) {
		const struct handle *b = &base.list[i], *c = &cand.list[k];
		int by = strcmp(b->name, c->name);

		i += by <= 0;
		k += by >= 0;
		if (!by && is_filled(longest == r->length ? c->item : b->item, longest))
			out->list[out->n++] = (struct item_pair){b->item, c->item, c->name};
		else
			*n_short += 1;
	}
	if (!rc)
		*n_short += base.n - i + (cand.n - k);
	free(base.list);
	free(cand.list);
	return rc;
}

void item_pairs_release(struct item_pairs *p)
{
	free(p->list);
	*p = (struct item_pairs){0};
}
