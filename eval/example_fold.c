/* Tasks made of examples: unit results to items and metrics (protocols.md section 2). No model, no dataset: everything
 * stands in the results. Sums run in unit order, which is the order of the examples. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/example_plan.h"
#include "eval/metric.h"
#include "eval/stats.h"

/* -- one result -------------------------------------------------------------------------------- */

/* An example as its unit reports it; `json` is its whole result. */
struct outcome {
	const struct json *json; /* borrowed */
	const char *group;       /* borrowed; "": none */
	size_t n;
	double logprob[MAX_CHOICES];
	double divisor[N_NORMS][MAX_CHOICES]; /* 1, characters, bytes, tokens */
	bool greedy;                          /* of choice 0 */
	size_t gold;
};

static bool read_numbers(const struct json *list, size_t n, double *out)
{
	size_t i = 0;

	for (const struct json *j = json_first(list); j; j = json_next(j), i++)
		if (i == n || !json_number(j, &out[i]))
			return false;
	return i == n;
}

static err_code read_outcome(const struct json *j, uint32_t unit, struct outcome *o, struct err *e)
{
	const char *group = json_get_string(j, "group");
	int64_t gold;

	o->json = j;
	o->group = group ? group : "";
	o->n = json_count(json_get(j, "logprobs"));
	if (!o->n || o->n > MAX_CHOICES || !read_numbers(json_get(j, "logprobs"), o->n, o->logprob))
		return unit_malformed(e, unit, "logprobs");
	for (size_t i = 0; i < o->n; i++)
		o->divisor[NORM_NONE][i] = 1;
	for (int k = NORM_NONE + 1; k < N_NORMS; k++)
		if (!read_numbers(json_get(j, choice_norms[k].divisor), o->n, o->divisor[k]))
			return unit_malformed(e, unit, choice_norms[k].divisor);
	if (!json_get_integer(j, "gold", &gold) || gold < 0 || gold >= (int64_t)o->n)
		return unit_malformed(e, unit, "gold");
	o->gold = (size_t)gold;
	o->greedy = json_true(json_first(json_get(j, "greedy")));
	return ERR_OK;
}

static bool is_right(const struct param_value *v, const struct outcome *o, int64_t norm)
{
	return choice_is_right(o->logprob, o->divisor[norm], o->n, o->gold, v[CHOICE_TIES].i == TIES_WRONG);
}

typedef err_code visit_fn(void *arg, uint32_t unit, const struct outcome *o, struct err *e);

static err_code walk(const struct unit_source *units, visit_fn *visit, void *arg, struct err *e)
{
	struct outcome o = {0};
	struct json *j;
	uint32_t unit;
	err_code rc;

	while (!(rc = unit_source_next(units, &unit, &j, e)) && j) {
		rc = read_outcome(j, unit, &o, e);
		if (!rc)
			rc = visit(arg, unit, &o, e);
		json_free(j);
		if (rc)
			break;
	}
	return rc;
}

/* -- items ------------------------------------------------------------------------------------- */

struct item_writer {
	const struct param_value *v;
	bool single;
	item_fn *f;
	void *arg;
	struct buf line;
};

static err_code write_item(void *arg, uint32_t unit, const struct outcome *o, struct err *e)
{
	struct item_writer *iw = arg;
	struct json_writer w = JSON_WRITER(&iw->line);
	int64_t norm = iw->single ? NORM_NONE : iw->v[CHOICE_NORM].i;
	bool tie;

	buf_clear(&iw->line);
	json_begin_object(&w, NULL);
	json_put_uint(&w, "id", unit);
	for (const struct json *m = json_first(o->json); m; m = json_next(m))
		json_put_value(&w, json_key(m), m);
	json_put_uint(&w, "choice", iw->single ? 0 : choice_best(o->logprob, o->divisor[norm], o->n, &tie));
	json_put_bool(&w, "correct", iw->single ? o->greedy : is_right(iw->v, o, norm));
	json_end_object(&w);
	if (buf_check(&iw->line, "item", e))
		return e->code;
	if (iw->f(iw->arg, buf_str(&iw->line), iw->line.len))
		return err_set(e, ERR_CANCELLED, "stopped at item %u", unit);
	return ERR_OK;
}

static err_code fold_items(const struct param_value *v, bool single, const struct unit_source *units, item_fn *f,
                           void *arg, struct err *e)
{
	struct item_writer iw = {.v = v, .single = single, .f = f, .arg = arg, .line = BUF_INIT(1 << 24)};
	err_code rc = walk(units, write_item, &iw, e);

	buf_release(&iw.line);
	return rc;
}

err_code example_fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                            struct err *e)
{
	return fold_items(v, true, units, f, arg, e);
}

err_code choice_fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                           struct err *e)
{
	return fold_items(v, false, units, f, arg, e);
}

/* -- metrics ----------------------------------------------------------------------------------- */

struct group_sum {
	char *name;             /* owned; "": no group */
	int64_t n;              /* examples */
	int64_t right[N_NORMS]; /* of them; single: right[0] */
};

struct sums {
	const struct param_value *v;
	bool single;
	struct group_sum *groups; /* [n_groups] owned, in the order in which they were met */
	size_t n_groups, cap_groups, at;
	double *losses; /* [n] owned; single: of each example */
	size_t n, cap_losses;
	int64_t n_truncated, n_merged;
};

static err_code find_group(struct sums *s, const char *name, struct err *e)
{
	struct group_sum *g;

	if (s->n_groups && !strcmp(s->groups[s->at].name, name))
		return ERR_OK;
	for (s->at = 0; s->at < s->n_groups; s->at++)
		if (!strcmp(s->groups[s->at].name, name))
			return ERR_OK;
	g = mem_grow(s->groups, &s->cap_groups, s->n_groups + 1, sizeof *g, e);
	if (!g)
		return e->code;
	s->groups = g;
	s->groups[s->n_groups] = (struct group_sum){.name = mem_strdup(name, e)};
	return s->groups[s->n_groups++].name ? ERR_OK : e->code;
}

static err_code sum_outcome(void *arg, uint32_t unit, const struct outcome *o, struct err *e)
{
	struct sums *s = arg;
	struct group_sum *g;

	(void)unit;
	if (find_group(s, o->group, e))
		return e->code;
	g = &s->groups[s->at];
	g->n++;
	s->n_truncated += json_true(json_get(o->json, "truncated"));
	s->n_merged += json_true(json_get(o->json, "merged"));
	if (s->single) {
		double *p = mem_grow(s->losses, &s->cap_losses, s->n + 1, sizeof *p, e);

		if (!p)
			return e->code;
		s->losses = p;
		s->losses[s->n] = -o->logprob[0];
		g->right[0] += o->greedy;
	} else {
		g->right[0] += is_right(s->v, o, s->v[CHOICE_NORM].i);
		for (int64_t k = NORM_NONE + 1; k < N_NORMS; k++)
			g->right[k] += is_right(s->v, o, k);
	}
	s->n++;
	return ERR_OK;
}

/* One accuracy: of each group and then the mean over them; of all examples where there are no groups. */
static void write_accuracy(const struct sums *s, size_t norm, const char *name, struct json_writer *w)
{
	struct metric_row r = {.why_value = "no_items", .why_stderr = "one_item"};
	double k = (double)s->n_groups, mean = 0, variance = 0;

	for (size_t i = 0; i < s->n_groups; i++) {
		const struct group_sum *g = &s->groups[i];
		double n = (double)g->n, p = (double)g->right[norm] / n,
		       se = g->n > 1 ? sqrt(p * (1 - p) / (n - 1)) : NAN;

		r.n = g->n;
		r.group = g->name;
		if (*g->name)
			metric_row_write(&r, name, "fraction", p, se, w);
		mean += p;
		variance += se * se;
	}
	r.n = (int64_t)s->n;
	r.group = NULL;
	metric_row_write(&r, name, "fraction", s->n_groups ? mean / k : NAN, sqrt(variance) / k, w);
}

static void write_ppl(const struct sums *s, struct json_writer *w)
{
	struct metric_row r = {.why_value = "no_items", .why_stderr = "one_item", .n = (int64_t)s->n};
	double ppl = exp(mean_value(s->losses, s->n));

	/* delta method: d exp(x) = exp(x) dx */
	metric_row_write(&r, "ppl", "perplexity", ppl, ppl * mean_stderr(s->losses, s->n), w);
}

static err_code fold_metrics(const struct param_value *v, bool single, const struct unit_source *units,
                             struct json_writer *w, struct err *e)
{
	struct sums s = {.v = v, .single = single};
	struct metric_row r = {0};
	err_code rc = walk(units, sum_outcome, &s, e);

	for (size_t k = 0; !rc && k < (single ? 1 : N_NORMS); k++)
		write_accuracy(&s, k, choice_norms[k].metric, w);
	if (!rc && single)
		write_ppl(&s, w);
	if (!rc) {
		metric_row_count(&r, "n_truncated", s.n_truncated, (int64_t)s.n, w);
		metric_row_count(&r, "n_boundary_merged", s.n_merged, (int64_t)s.n, w);
	}
	for (size_t i = 0; i < s.n_groups; i++)
		free(s.groups[i].name);
	free(s.groups);
	free(s.losses);
	return rc;
}

err_code example_fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                              struct err *e)
{
	return fold_metrics(v, true, units, w, e);
}

err_code choice_fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                             struct err *e)
{
	return fold_metrics(v, false, units, w, e);
}
