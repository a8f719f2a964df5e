/* Task text: perplexity of documents of any length, each scored whole in one chain (protocols.md sections 1 and 2). */
#include "eval/docs.h"
#include "eval/stream.h"

enum { TEXT_BOS, TEXT_MAX_DOCS, TEXT_MAX_TOKENS, TEXT_N_PARAMS };
enum { BOS_NONE, BOS_DOCUMENT };

static const struct param params[TEXT_N_PARAMS] = {
    {"bos", PARAM_ENUM, "\"none\"", "none|document", 0, 0,
     "document: a BOS token before each, so that its first token is scored"},
    {"max_docs", PARAM_INT, "null", NULL, 1, INT32_MAX, "only the first documents; null: all"},
    {"max_tokens_per_doc", PARAM_INT, "null", NULL, 1, INT32_MAX,
     "cut each document after so many tokens (BOS not counted); null: none is cut"},
};

/* The stream takes over the document's name and ids. */
static err_code add_doc(struct evaluation *ev, struct text_doc *d, struct err *e)
{
	struct stream s = {
	    .name = d->name, .ids = d->seq, .n = d->n, .first = 1, .truncated = d->cut, .has_text = true};

	if (d->n > 1) {
		s.bytes = d->ends[d->n - 1] - d->ends[0];
		s.words = d->words[d->n - 1] - d->words[0];
	}
	d->name = NULL;
	d->seq = NULL;
	return stream_add(ev, &s, e);
}

static err_code plan(struct evaluation *ev, const struct param_value *v, struct err *e)
{
	struct text_rule rule = {
	    .bos = v[TEXT_BOS].i == BOS_DOCUMENT, .max_docs = &v[TEXT_MAX_DOCS], .max_tokens = &v[TEXT_MAX_TOKENS]};
	struct text_docs docs = {0};
	err_code rc;

	ev->plan = mem_zalloc(1, sizeof(struct stream_plan), e);
	if (!ev->plan)
		return e->code;
	if (text_bos(ev, rule.bos, &rule.bos_id, e))
		return e->code;
	rc = text_docs_read(ev, &rule, &docs, e);
	for (size_t i = 0; i < docs.n && !rc; i++)
		rc = add_doc(ev, &docs.docs[i], e);
	if (!rc)
		rc = stream_finish(ev, "documents", e);
	text_docs_release(&docs);
	return rc ? err_wrap(e, "dataset '%s'", ev->dataset_name) : ERR_OK;
}

static const struct task_metric metrics[] = {
    {"nll_token", "nats/token", "summed loss over scored tokens"},
    {"ppl_token", "perplexity", "exp of nll_token: token-weighted"},
    {"bits_per_byte", "bits/byte", "summed loss over bytes, in bits"},
    {"ppl_word", "perplexity", "exp of summed loss over words"},
    {"ppl_doc_macro", "perplexity", "exp of the mean over documents of loss a token"},
    {"n_skipped", "items", "documents without a token to score"},
    {"n_truncated", "items", "documents cut by max_tokens_per_doc"},
};

static err_code fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                             struct err *e)
{
	(void)v;
	return stream_fold_metrics(units, metric_perplexities, w, e);
}

const struct task task_text = {
    .name = "text",
    .version = 1,
    .summary = "perplexity of texts, each read whole",
    .dataset = "a folder of .txt files (recursive), one .txt, or a .jsonl with a string \"text\" a line",
    .params = params,
    .n_params = TEXT_N_PARAMS,
    .metrics = metrics,
    .n_metrics = sizeof metrics / sizeof metrics[0],
    .headline = "ppl_token",
    .formats = ".txt|.jsonl",
    .plan = plan,
    .plan_free = stream_plan_free,
    .add = stream_unit_add,
    .result = stream_unit_result,
    .fold_metrics = fold_metrics,
    .fold_items = stream_fold_items,
};
