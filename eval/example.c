/* Tasks made of examples: parameters, the plan, and what a unit, an example, scores and reports. See example.h.
 *
 * Result: {"doc", "group" (if any), "key", "logprobs", "n_tokens", "n_chars", "n_bytes", "greedy": one a continuation,
 * "gold", "truncated" and "merged" (if true)}. Log-probabilities are summed in double in the order of the tokens. */
#include "eval/example.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/example_plan.h"
#include "eval/item_key.h"

#define MAX_TEXT_BYTES ((size_t)1 << 30)

const struct param example_params[EXAMPLE_N_PARAMS] = {EXAMPLE_PARAMS};
const struct param choice_params[CHOICE_N_PARAMS] = {CHOICE_PARAMS};

#define COUNTS                                                                                                         \
	{"n_truncated", "items", "examples whose context was cut"},                                                    \
	{                                                                                                              \
		"n_boundary_merged", "items",                                                                          \
		    "examples where the tokens of context and continuation do not begin with the context's"            \
	}

const struct task_metric example_metrics[EXAMPLE_N_METRICS] = {
    {"acc", "fraction", "every token of the continuation is the most probable one"},
    {"ppl", "perplexity", "exp of the mean loss of a continuation"},
    COUNTS,
};
const struct task_metric choice_metrics[CHOICE_N_METRICS] = {
    {"acc", "fraction", "the right choice has the highest log-probability (divided by `norm`)"},
    {"acc_norm", "fraction", "the same, each divided by its characters"},
    {"acc_bytes", "fraction", "the same, each divided by its bytes"},
    {"acc_token", "fraction", "the same, each divided by its tokens"},
    COUNTS,
};

err_code example_resolve(struct param_value *v, struct err *e)
{
	if (v[EXAMPLE_N_SHOT].null)
		v[EXAMPLE_N_SHOT] = (struct param_value){0};
	if (v[EXAMPLE_SEED].null)
		v[EXAMPLE_SEED] = (struct param_value){0};
	if (v[EXAMPLE_N_SHOT].i && v[EXAMPLE_SHOTS_FROM].null) {
		err_set(e, ERR_INPUT, "shots_from: n_shot %lld needs a dataset to take them from",
		        (long long)v[EXAMPLE_N_SHOT].i);
		return err_at(e, "/shots_from");
	}
	if (!v[EXAMPLE_N_SHOT].i && !v[EXAMPLE_SHOTS_FROM].null) {
		err_set(e, ERR_INPUT, "shots_from: n_shot is 0, so no shot is taken from it");
		return err_at(e, "/shots_from");
	}
	return ERR_OK;
}

/* -- the plan ---------------------------------------------------------------------------------- */

void example_plan_free(void *plan)
{
	struct example_plan *p = plan;

	if (!p)
		return;
	free(p->ids);
	free(p->choices);
	free(p->items);
	free(p->groups);
	buf_release(&p->names);
	shots_release(p);
	buf_release(&p->text);
	token_list_release(&p->context);
	token_list_release(&p->whole);
	free(p);
}

/* Runs the task's reader over one dataset. */
static err_code read_files(struct evaluation *ev, const struct param_value *v, const char *path, bool shots,
                           char fingerprint[FINGERPRINT_LEN], struct err *e)
{
	const struct example_reader *reader = ev->task->examples;
	struct examples x = {.text = BUF_INIT(MAX_TEXT_BYTES), .ev = ev, .plan = ev->plan, .shots = shots};
	err_code rc = file_list_open(&x.files, path, reader->files, e);

	if (!rc) {
		rc = reader->read(&x, v, e);
		if (rc && rc != ERR_CANCELLED && x.file)
			err_wrap(e, "'%s' line %zu", x.files.names[x.file - 1], x.lines.number);
	}
	if (!rc)
		rc = file_list_check(&x.files, e);
	if (!rc && x.n_replaced)
		evaluation_warn(ev, "invalid UTF-8 became U+FFFD: %zu sequences in %zu lines%s", x.n_replaced,
		                x.n_invalid, shots ? " of the shots" : "");
	if (!rc)
		strcpy(fingerprint, x.files.fingerprint);
	file_list_release(&x.files);
	line_reader_close(&x.lines);
	json_free(x.row);
	free(x.choices);
	buf_release(&x.text);
	return rc;
}

/* The dataset that shots are taken from: a name under the configured folders where there are such, else a path. */
static err_code read_shots(struct evaluation *ev, const struct param_value *v, char fingerprint[FINGERPRINT_LEN],
                           struct err *e)
{
	const char *name = v[EXAMPLE_SHOTS_FROM].s;
	char *path = NULL;
	err_code rc = ERR_OK;

	if (ev->registry)
		rc = registry_dataset(ev->registry, name, &path, e);
	if (!rc)
		rc = read_files(ev, v, path ? path : name, true, fingerprint, e);
	free(path);
	if (!rc || rc == ERR_CANCELLED)
		return rc;
	err_wrap(e, "shots_from '%s'", name);
	return err_at(e, "/shots_from");
}

/* Both are part of what is measured. */
static void combine_fingerprints(struct evaluation *ev, const char *data, const char *shots)
{
	char lines[2 * FINGERPRINT_LEN + 16], hex[SHA256_HEX];
	int n;

	if (!*shots) {
		strcpy(ev->fingerprint, data);
		return;
	}
	n = snprintf(lines, sizeof lines, "%s\nshots %s\n", data, shots);
	sha256_hex(lines, (size_t)n, hex);
	snprintf(ev->fingerprint, sizeof ev->fingerprint, "sha256:%s", hex);
}

/* BOS as the tokenizer would add it, and what stands for an empty context. */
static err_code choose_prefix(struct evaluation *ev, struct err *e)
{
	const struct model_config *c = &ev->model->config;
	struct example_plan *p = ev->plan;
	struct token_list l = {0};
	err_code rc = ERR_OK;

	p->prefix = c->bos >= 0 ? c->bos : c->eos;
	p->bos = -1;
	if (p->prefix >= c->n_vocab)
		p->prefix = -1;
	if (tokenizer_adds_bos(ev->model->tokenizer)) {
		rc = tokenizer_encode(ev->model->tokenizer, "", 0, true, &l, e);
		if (!rc && l.ids[0] >= c->n_vocab)
			rc = err_set(e, ERR_INPUT, "the tokenizer's BOS, %u, is beyond the model's vocabulary of %u",
			             l.ids[0], c->n_vocab);
		if (!rc)
			p->bos = l.ids[0];
		token_list_release(&l);
	}
	return rc;
}

err_code example_plan(struct evaluation *ev, const struct param_value *v, struct err *e)
{
	struct example_plan *p = mem_zalloc(1, sizeof *p, e);
	char data[FINGERPRINT_LEN], shots[FINGERPRINT_LEN] = "";
	err_code rc;

	if (!p)
		return e->code;
	ev->plan = p;
	p->names = BUF_INIT(MAX_TEXT_BYTES);
	p->text = BUF_INIT(MAX_TEXT_BYTES);
	p->limit = v[EXAMPLE_LIMIT].null ? INT64_MAX : v[EXAMPLE_LIMIT].i;
	p->max_length = v[EXAMPLE_MAX_LENGTH].null ? ev->model->config.position.max_ctx : v[EXAMPLE_MAX_LENGTH].i;
	p->n_shot = v[EXAMPLE_N_SHOT].i;
	p->seeded = v[EXAMPLE_SHOTS].i == SHOTS_SEEDED;
	p->seed = v[EXAMPLE_SEED].i;
	p->share = ev->task->examples->single || v[CHOICE_SHARE].i;
	if (evaluation_check_tokenizer(ev, e))
		return e->code;
	rc = choose_prefix(ev, e);
	if (!rc && p->n_shot)
		rc = read_shots(ev, v, shots, e);
	if (rc)
		return rc;
	rc = read_files(ev, v, ev->dataset_path, false, data, e);
	if (!rc && !p->n_items)
		rc = err_set(e, ERR_INPUT, "no examples");
	if (rc)
		return err_wrap(e, "dataset '%s'", ev->dataset_name);
	if (p->n_drops)
		evaluation_warn(ev,
		                "the tokenizer has no token for some bytes of %zu of %zu examples, which are dropped",
		                p->n_drops, p->n_items);
	shots_release(p);
	ev->n_items = ev->n_docs = p->n_items;
	combine_fingerprints(ev, data, shots);
	return ERR_OK;
}

/* -- units ------------------------------------------------------------------------------------- */

/* Appends a segment: of the context its last n_context tokens, then the tokens of a choice (NULL: none), scored. */
static err_code put_segment(const struct example_plan *p, const struct example_item *item, size_t n_context,
                            const struct example_choice *c, int32_t parent, struct batch_builder *b, struct err *e)
{
	size_t n = n_context + (c ? c->n : 0);
	uint32_t start;

	if (batch_builder_add(b, parent, (uint32_t)n, &start, e))
		return e->code;
	memcpy(b->tokens + start, p->ids + item->context + item->n_context - n_context, n_context * sizeof *p->ids);
	if (c) {
		memcpy(b->tokens + start + n_context, p->ids + c->at, c->n * sizeof *p->ids);
		memset(b->score + start + n_context, 1, c->n);
	}
	return ERR_OK;
}

/* Whether the context is a segment of its own, the parent of the choices. */
static bool is_tree(const struct example_item *item)
{
	return !item->apart && item->n_choices > 1;
}

err_code example_add(const void *plan, uint32_t unit, struct batch_builder *b, struct err *e)
{
	const struct example_plan *p = plan;
	const struct example_item *item = &p->items[unit];
	int32_t root = (int32_t)b->n_segments;

	if (is_tree(item) && put_segment(p, item, item->n_context, NULL, -1, b, e))
		return e->code;
	for (size_t i = 0; i < item->n_choices; i++) {
		const struct example_choice *c = &p->choices[item->choice + i];

		if (is_tree(item) ? put_segment(p, item, 0, c, root, b, e)
		                  : put_segment(p, item, item_chain(p, item, i) - c->n, c, -1, b, e))
			return e->code;
	}
	return ERR_OK;
}

/* The continuations in order, each with its whole context: whether that is shared is not in the key. */
static err_code item_key(const struct example_plan *p, const struct example_item *item, char key[ITEM_KEY_LEN],
                         struct err *e)
{
	uint32_t *chain = mem_alloc(item->n_context + item->longest, sizeof *chain, e);
	struct sha256 *h = chain ? sha256_new(e) : NULL;

	for (size_t i = 0; h && i < item->n_choices; i++) {
		const struct example_choice *c = &p->choices[item->choice + i];
		uint32_t n = (uint32_t)item_chain(p, item, i), context = n - c->n;

		memcpy(chain, p->ids + item->context + item->n_context - context, context * sizeof *chain);
		memcpy(chain + context, p->ids + c->at, c->n * sizeof *chain);
		item_key_add(h, chain, n, context);
	}
	free(chain);
	if (!h)
		return e->code;
	item_key_final(h, key);
	return ERR_OK;
}

static void write_counts(const struct example_choice *c, size_t n, struct json_writer *w)
{
	json_begin_array(w, "n_tokens");
	for (size_t i = 0; i < n; i++)
		json_put_uint(w, NULL, c[i].n);
	json_end_array(w);
	json_begin_array(w, "n_chars");
	for (size_t i = 0; i < n; i++)
		json_put_uint(w, NULL, c[i].n_chars);
	json_end_array(w);
	json_begin_array(w, "n_bytes");
	for (size_t i = 0; i < n; i++)
		json_put_uint(w, NULL, c[i].n_bytes);
	json_end_array(w);
}

/* Log-probabilities of the choices, and whether all tokens of each are the argmax. Scores and tokens run side by side.
 */
static err_code write_scores(const struct example_plan *p, const struct example_item *item,
                             const struct token_score *scores, struct json_writer *w, struct err *e)
{
	bool greedy[MAX_CHOICES];

	json_begin_array(w, "logprobs");
	scores += is_tree(item) ? item->n_context : 0;
	for (size_t i = 0; i < item->n_choices; i++) {
		const struct example_choice *c = &p->choices[item->choice + i];
		double sum = 0;

		scores += is_tree(item) ? 0 : item_chain(p, item, i) - c->n;
		greedy[i] = true;
		for (size_t k = 0; k < c->n; k++, scores++) {
			sum += (double)scores->logprob;
			greedy[i] &= scores->argmax == p->ids[c->at + k];
		}
		json_put_double(w, NULL, sum);
		if (!isfinite(sum))
			return err_set(e, ERR_NUMERIC, "example '%s', choice %zu: its log-probability is not finite",
			               p->names.data + item->doc, i);
	}
	json_end_array(w);
	json_begin_array(w, "greedy");
	for (size_t i = 0; i < item->n_choices; i++)
		json_put_bool(w, NULL, greedy[i]);
	json_end_array(w);
	return ERR_OK;
}

err_code example_result(const void *plan, uint32_t unit, const struct token_score *scores, struct json_writer *w,
                        struct err *e)
{
	const struct example_plan *p = plan;
	const struct example_item *item = &p->items[unit];
	const char *group = p->names.data + p->groups[item->group].name;
	char key[ITEM_KEY_LEN];

	if (item_key(p, item, key, e))
		return e->code;
	json_begin_object(w, NULL);
	json_put_string(w, "key", key);
	json_put_string(w, "doc", p->names.data + item->doc);
	if (*group)
		json_put_string(w, "group", group);
	if (write_scores(p, item, scores, w, e))
		return e->code;
	write_counts(&p->choices[item->choice], item->n_choices, w);
	json_put_uint(w, "gold", item->gold);
	if (item->truncated)
		json_put_bool(w, "truncated", true);
	if (item->merged)
		json_put_bool(w, "merged", true);
	json_end_object(w);
	return ERR_OK;
}
