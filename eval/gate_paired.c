/* Gates: rules that are tested on pairs (protocols.md section 5): relative ones, item by item against the baseline, and
 * shapes, document by document within the candidate. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/gate_private.h"

/* Turns a refusal into an outcome; other errors stay. */
static err_code refused(struct outcome *o, struct err *e)
{
	if (e->code != ERR_INPUT)
		return e->code;
	outcome_set(o, VERDICT_ERROR, "the comparison is refused: %s", e->msg);
	o->refused = true;
	return e->code = ERR_OK;
}

/* -- pairs to numbers -------------------------------------------------------------------------- */

static double weight_of(const struct gate_metric *m, const struct evidence_item *it)
{
	switch (m->weight) {
	case BY_TOKENS:
		return it->n_tokens;
	case BY_BYTES:
		return it->n_bytes * m->scale;
	case BY_WORDS:
		return it->n_words;
	case BY_OWN_TOKENS:
	case BY_ITEMS:
		break;
	}
	return 1;
}

static const char *weight_name(const struct gate_metric *m)
{
	return m->weight == BY_BYTES ? "n_bytes" : m->weight == BY_WORDS ? "n_words" : "n_tokens";
}

/* False: the item does not carry what the metric is made of. */
static bool cluster_of(const struct gate_metric *m, const struct evidence_item *it, struct cluster *c)
{
	c->s = m->weight == BY_OWN_TOKENS ? it->loss / it->n_tokens : it->loss;
	c->w = weight_of(m, it);
	return isfinite(c->s) && isfinite(c->w) && c->w > 0;
}

static void missing_loss(const struct gate_metric *m, const struct item_pair *pair, bool in_base, struct outcome *o)
{
	const struct evidence_item *it = in_base ? pair->base : pair->cand;

	outcome_set(o, VERDICT_ERROR, "item %016llx of the %s carries no %s, of which %s is made",
	            (unsigned long long)it->key, in_base ? "baseline" : "candidate",
	            !isfinite(it->loss)     ? "nll"
	            : m->weight == BY_ITEMS ? "logprobs"
	                                    : weight_name(m),
	            m->name);
}

static err_code test_loss(const struct judgement *j, const struct item_pairs *pairs, double alpha, struct outcome *o,
                          struct err *e)
{
	struct cluster *base = mem_alloc(pairs->n, sizeof *base, e), *cand = mem_alloc(pairs->n, sizeof *cand, e);
	err_code rc = base && cand ? ERR_OK : ERR_MEMORY;
	bool whole = true;

	for (size_t i = 0; !rc && whole && i < pairs->n; i++) {
		bool base_whole = cluster_of(o->metric, pairs->list[i].base, &base[i]);

		whole = base_whole && cluster_of(o->metric, pairs->list[i].cand, &cand[i]);
		if (!whole)
			missing_loss(o->metric, &pairs->list[i], !base_whole, o);
	}
	if (!rc && whole) {
		paired_ratio(cand, base, pairs->n, alpha, &o->paired);
		o->tested = true;
		if (j->c->bootstrap)
			rc = bootstrap_ratio(cand, base, pairs->n, alpha, j->c->seed, &o->bootstrap, e);
		o->resampled = j->c->bootstrap;
	}
	free(base);
	free(cand);
	return rc;
}

/* Pairs of one group stand together. False, and o says so, when an item does not say whether it is right. */
static bool count_discordance(const struct item_pairs *pairs, int norm, struct discordance *groups, size_t *n_groups,
                              struct outcome *o)
{
	*n_groups = 0;
	for (size_t i = 0; i < pairs->n; i++) {
		const struct item_pair *p = &pairs->list[i];
		int8_t base = p->base->right[norm], cand = p->cand->right[norm];

		if (base == RIGHT_UNKNOWN || cand == RIGHT_UNKNOWN) {
			outcome_set(o, VERDICT_ERROR, "item %016llx of the %s carries no %s, of which %s is made",
			            (unsigned long long)p->base->key, base == RIGHT_UNKNOWN ? "baseline" : "candidate",
			            norm ? "logprobs with their lengths" : "correct", o->metric->name);
			return false;
		}
		if (!i || strcmp(p->name, pairs->list[i - 1].name) != 0)
			groups[(*n_groups)++] = (struct discordance){0};
		groups[*n_groups - 1].n++;
		groups[*n_groups - 1].worse += base > cand;
		groups[*n_groups - 1].better += cand > base;
	}
	return true;
}

static err_code test_fraction(const struct judgement *j, const struct item_pairs *pairs, double alpha,
                              struct outcome *o, struct err *e)
{
	struct discordance *groups = mem_alloc(pairs->n, sizeof *groups, e);
	size_t n_groups;
	err_code rc = ERR_OK;

	if (!groups)
		return e->code;
	if (count_discordance(pairs, o->metric->norm, groups, &n_groups, o)) {
		paired_accuracy(groups, n_groups, alpha, &o->paired);
		o->tested = true;
		if (j->c->bootstrap)
			rc = bootstrap_accuracy(groups, n_groups, alpha, j->c->seed, &o->bootstrap, e);
		o->resampled = j->c->bootstrap;
	}
	free(groups);
	return rc;
}

/* -- rules ------------------------------------------------------------------------------------- */

/* An item that turned NaN in the candidate fails the rule; a baseline that has one is none. */
static bool is_unbroken(const struct judgement *j, const struct item_pairs *pairs, struct outcome *o)
{
	size_t n_base = 0, n_cand = 0, first = 0;

	for (size_t i = pairs->n; i-- > 0;) {
		n_base += pairs->list[i].base->broken;
		n_cand += pairs->list[i].cand->broken;
		if (pairs->list[i].cand->broken)
			first = i;
	}
	if (n_cand) {
		const struct evidence_item *it = pairs->list[first].cand;

		outcome_set(o, VERDICT_FAIL, "%zu of %zu items turned NaN in the candidate, such as %016llx (%.200s)",
		            n_cand, pairs->n, (unsigned long long)it->key, evidence_name(j->cand, it->doc));
	} else if (n_base) {
		outcome_set(o, VERDICT_ERROR,
		            "the comparison is refused: %zu of %zu items have no value in the baseline", n_base,
		            pairs->n);
		o->refused = true;
	}
	return !n_cand && !n_base;
}

static err_code test_pairs(const struct judgement *j, const struct item_pairs *pairs, double min_effect,
                           struct outcome *o, struct err *e)
{
	double alpha = 1 - j->rule->confidence;
	err_code rc = o->metric->fraction ? test_fraction(j, pairs, alpha, o, e) : test_loss(j, pairs, alpha, o, e);

	if (rc || !o->tested)
		return rc;
	o->delta = o->paired.delta;
	o->lower = o->paired.lower;
	o->upper = o->paired.upper;
	o->items_needed = items_needed(&o->paired, min_effect, alpha);
	return ERR_OK;
}

err_code judge_relative(const struct judgement *j, struct outcome *o, struct err *e)
{
	const struct gate_rule *r = j->rule;
	const struct json *cand = evidence_metric(j->cand, r->metric, r->length, r->group);
	struct item_pairs pairs = {0};
	err_code rc;

	o->metric = gate_metric_find(r->metric);
	json_get_number(cand, "value", &o->value);
	if (!can_compare(j, o))
		return ERR_OK;
	json_get_number(evidence_metric(j->base, r->metric, r->length, r->group), "value", &o->baseline_value);
	rc = pairs_by_key(r, j->base, j->cand, &pairs, e);
	if (rc)
		rc = refused(o, e);
	else if (!pairs.n)
		outcome_set(o, VERDICT_ERROR, "neither side has an item of %s%s%s to compare", r->metric,
		            r->group ? " of " : "", r->group ? r->group : "");
	else if (is_unbroken(j, &pairs, o))
		rc = test_pairs(j, &pairs, r->min_effect, o, e);
	o->n = (int64_t)pairs.n;
	item_pairs_release(&pairs);
	return rc;
}

static void judge_point(const struct judgement *j, struct outcome *o)
{
	const struct gate_rule *r = j->rule;
	double longer, over;
	bool above;

	if (!find_value(j, r->metric, r->length, &longer, o) || !find_value(j, r->metric, r->over, &over, o))
		return;
	o->value = longer / over;
	if (!isfinite(over) || over <= 0) {
		outcome_set(o, VERDICT_ERROR, "%s at %lld is no number to divide by", r->metric, (long long)r->over);
		return;
	}
	above = o->value > r->max_ratio;
	outcome_set(o, above ? VERDICT_FAIL : VERDICT_PASS, "%s at %lld is %.5g, %.4f times the %.5g at %lld, %s %g",
	            r->metric, (long long)r->length, longer, o->value, over, (long long)r->over,
	            above ? "above the ratio allowed of" : "at most", r->max_ratio);
}

static err_code judge_documents(const struct judgement *j, const struct item_pairs *pairs, size_t n_short,
                                struct outcome *o, struct err *e)
{
	const struct gate_rule *r = j->rule;
	int64_t longest = r->length > r->over ? r->length : r->over;

	if (pairs->n < PAIRED_MIN_DOCS) {
		outcome_set(o, VERDICT_INCONCLUSIVE,
		            "%zu document%s at least %lld tokens (%zu shorter), and fewer than %d decide nothing",
		            pairs->n, pairs->n == 1 ? " has" : "s have", (long long)longest + 1, n_short,
		            PAIRED_MIN_DOCS);
		o->items_needed = PAIRED_MIN_DOCS;
	}
	if (!pairs->n || !is_unbroken(j, pairs, o))
		return ERR_OK;
	if (test_pairs(j, pairs, log(r->max_ratio), o, e))
		return e->code;
	o->value = exp(o->delta);
	if (pairs->n < PAIRED_MIN_DOCS) {
		o->tested = false; /* whatever the documents say */
		if (o->items_needed < PAIRED_MIN_DOCS)
			o->items_needed = PAIRED_MIN_DOCS;
	}
	return ERR_OK;
}

err_code judge_shape(const struct judgement *j, struct outcome *o, struct err *e)
{
	struct item_pairs pairs = {0};
	size_t n_short;
	err_code rc;

	o->limit = j->rule->max_ratio;
	o->metric = gate_metric_find(j->rule->metric);
	if (!j->rule->paired) {
		judge_point(j, o);
		return ERR_OK;
	}
	rc = pairs_by_document(j->rule, j->cand, &pairs, &n_short, e);
	o->n = (int64_t)pairs.n;
	rc = rc ? refused(o, e) : judge_documents(j, &pairs, n_short, o, e);
	item_pairs_release(&pairs);
	return rc;
}

/* -- verdicts ---------------------------------------------------------------------------------- */

static void put_count(const struct gate_metric *m, int64_t n, struct buf *out)
{
	buf_printf(out, "%lld %s%s", (long long)n, m->fraction || m->weight == BY_ITEMS ? "item" : "document",
	           n == 1 ? "" : "s");
}

/* "ppl_token at 8192 rose by 0.41 % (one-sided 95 % bounds of the worsening 0.11 to 0.72 %, 67 documents)" */
static void put_finding(const struct gate_rule *r, const struct outcome *o, struct buf *out)
{
	put_subject(r, out);
	if (r->type == RULE_SHAPE)
		buf_printf(out, " is %s by %.2f %% than at %lld", o->delta < 0 ? "lower" : "higher",
		           fabs(100 * expm1(o->delta)), (long long)r->over);
	else
		buf_putc(out, ' '), put_change(o->metric, o->delta, out);
	buf_puts(out, " (");
	if (!isnan(o->lower)) { /* of one document there are none */
		buf_printf(out, "one-sided %g %% bounds of the worsening ", 100 * r->confidence);
		put_bounds(o->metric, o->lower, o->upper, out);
		buf_puts(out, ", ");
	}
	put_count(o->metric, o->n, out);
	if (o->metric->fraction)
		buf_printf(out, " of which %zu differ", o->paired.n_differ);
	buf_putc(out, ')');
}

static void put_test(const struct outcome *o, size_t n_tested, struct buf *out)
{
	buf_puts(out, "p ");
	put_p(o->paired.p, out);
	if (n_tested > 1) {
		buf_puts(out, ", with Holm's correction for ");
		buf_printf(out, "%zu rules p ", n_tested);
		put_p(o->p_holm, out);
	}
}

static void put_reason(const struct gate_rule *r, enum paired_verdict v, size_t n_tested, const struct outcome *o,
                       struct buf *out)
{
	if (v == PAIRED_PASS) {
		buf_puts(out, ": less than the minimum effect of ");
		put_min_effect(r, o->metric, out);
		return;
	}
	if (v == PAIRED_FAIL) {
		buf_puts(out, ": more than 0 (");
		put_test(o, n_tested, out);
		buf_puts(out, "), and ");
		put_min_effect(r, o->metric, out);
		buf_puts(out, " or more cannot be ruled out");
		return;
	}
	if (o->paired.too_few) {
		buf_printf(out, ": fewer than %d documents decide nothing", PAIRED_MIN_DOCS);
	} else {
		buf_puts(out, ": neither is a worsening shown (");
		put_test(o, n_tested, out);
		buf_puts(out, ") nor is one of ");
		put_min_effect(r, o->metric, out);
		buf_puts(out, " ruled out");
	}
	if (o->items_needed > o->n) {
		buf_puts(out, "; about ");
		put_count(o->metric, o->items_needed, out);
		buf_puts(out, " would do");
	} else if (o->items_needed > 0) { /* what was found is between 0 and min_effect */
		buf_puts(out, "; about ");
		put_count(o->metric, o->items_needed, out);
		buf_puts(out, " do where nothing changed, so it lies between, and only many more can tell");
	}
}

void settle_tested(const struct gate_rule *r, size_t n_tested, struct outcome *o)
{
	static const enum gate_verdict verdicts[] = {
	    [PAIRED_PASS] = VERDICT_PASS, [PAIRED_FAIL] = VERDICT_FAIL, [PAIRED_INCONCLUSIVE] = VERDICT_INCONCLUSIVE};
	double min_effect = r->type == RULE_SHAPE ? log(r->max_ratio) : r->min_effect;
	enum paired_verdict v = paired_decide(&o->paired, min_effect, 1 - r->confidence, o->p_holm);
	struct buf text = BUF_INIT(2000);

	if (!o->paired.n_differ && r->type == RULE_RELATIVE) {
		put_subject(r, &text);
		buf_puts(&text, " is the same in all of ");
		put_count(o->metric, o->n, &text);
	} else {
		if (o->paired.too_few && o->items_needed < PAIRED_MIN_DOCS)
			o->items_needed = PAIRED_MIN_DOCS;
		put_finding(r, o, &text);
		put_reason(r, v, n_tested, o, &text);
	}
	outcome_set(o, verdicts[v], "%s", buf_str(&text));
	buf_release(&text);
}
