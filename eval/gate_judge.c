/* Gates: a verdict. Each rule comes to an outcome by itself; then Holm's correction over all that were tested, and the
 * worst of the outcomes is the gate's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/gate_private.h"

/* A measure of the gate, with what it is compared with. */
struct side {
	const struct evidence *cand, *base; /* borrowed; NULL: none */
	struct buf refused, engine;         /* "": comparable; engines alike */
};

struct trial {
	const struct gate *gate;
	const struct gate_case *c;
	struct side *sides;       /* [n_measures] owned */
	struct outcome *outcomes; /* [n_rules] owned */
	size_t n_tested;
};

static bool compares(const struct gate_rule *r)
{
	return r->type == RULE_RELATIVE || r->type == RULE_THROUGHPUT;
}

/* -- measures ---------------------------------------------------------------------------------- */

static bool has_result(const struct evidence *ev)
{
	return ev && json_is_array(json_get(ev->result, "metrics"));
}

/* "3 units of measure 'books' came to ...; the first, unit 7: layer 3, ..." */
static void put_failures(const struct evidence *ev, const struct failures *f, const char *what, struct buf *out)
{
	buf_printf(out, " %s", what);
	if (ev->told && f->n)
		buf_printf(out, " in %zu unit%s; unit %u", f->n, f->n == 1 ? "" : "s", f->unit);
	buf_printf(out, ": %s", f->why);
}

static void refuse_side(const struct gate *g, size_t i, const char *why, struct side *s)
{
	buf_printf(&s->refused, "the comparison of measure '%s' is refused: %s", g->measures[i].id, why);
}

static err_code compare_side(const struct trial *t, size_t i, struct side *s, struct err *e)
{
	const struct failures *f = s->base->other.why ? &s->base->other : &s->base->numeric;
	struct buf why = BUF_INIT(1 << 16);
	err_code rc = ERR_OK;

	if (f->why || !has_result(s->base)) {
		buf_puts(&why, "the baseline's own measurement is not whole:");
		put_failures(s->base, f, "it failed", &why);
		refuse_side(t->gate, i, f->why ? buf_str(&why) : "the baseline has no metrics", s);
	} else if (evidence_comparable(s->base, s->cand, t->c->allow_engine_change || t->gate->allow_engine_change,
	                               &s->engine, e)) {
		rc = e->code == ERR_INPUT ? ERR_OK : e->code;
		refuse_side(t->gate, i, e->msg, s);
	}
	buf_release(&why);
	return rc ? rc : buf_check(&s->refused, "a refusal", e);
}

static err_code meet_sides(struct trial *t, struct err *e)
{
	t->sides = mem_zalloc(t->gate->n_measures, sizeof *t->sides, e);
	if (!t->sides)
		return e->code;
	for (size_t i = 0; i < t->gate->n_measures; i++) {
		struct side *s = &t->sides[i];

		s->refused = BUF_INIT(1 << 16);
		s->engine = BUF_INIT(1 << 16);
		s->cand = t->c->candidate[i];
		if (t->c->baseline_name)
			s->base = evidence_match(&t->gate->measures[i], s->cand, t->c->baseline, t->c->n_baseline);
		if (s->base && has_result(s->cand) && compare_side(t, i, s, e))
			return e->code;
	}
	return ERR_OK;
}

/* -- rules ------------------------------------------------------------------------------------- */

/* Whether the candidate was measured, and whole; else o says what came of it. */
static bool is_measured(const struct trial *t, const struct gate_rule *r, struct outcome *o)
{
	const struct evidence *ev = t->sides[r->measure].cand;
	struct buf text = BUF_INIT(2000);
	enum gate_verdict v = VERDICT_ERROR;
	bool measured = false;

	buf_printf(&text, "measure '%s'", t->gate->measures[r->measure].id);
	if (!ev) {
		buf_puts(&text, " was not measured");
	} else if (ev->other.why) {
		put_failures(ev, &ev->other, "could not be measured", &text);
	} else if (ev->numeric.why) {
		put_failures(ev, &ev->numeric, "came to no finite number", &text);
		v = VERDICT_FAIL;
	} else {
		measured = has_result(ev);
		buf_puts(&text, " has no result");
	}
	if (!measured)
		outcome_set(o, v, "%s", buf_str(&text));
	buf_release(&text);
	return measured;
}

static err_code judge_rule(const struct trial *t, const struct gate_rule *r, struct outcome *o, struct err *e)
{
	static err_code (*const judges[])(const struct judgement *, struct outcome *, struct err *) = {
	    [RULE_ABSOLUTE] = judge_absolute,
	    [RULE_RELATIVE] = judge_relative,
	    [RULE_SHAPE] = judge_shape,
	    [RULE_HISTORY] = judge_history,
	    [RULE_NO_TRUNCATION] = judge_no_truncation,
	    [RULE_THROUGHPUT] = judge_throughput,
	};
	const struct side *s = &t->sides[r->measure];
	struct judgement j = {
	    .gate = t->gate,
	    .c = t->c,
	    .rule = r,
	    .cand = s->cand,
	    .base = s->base,
	    .refused = s->refused.len ? buf_str(&s->refused) : NULL,
	    .engine_differs = s->engine.len,
	};

	*o = (struct outcome){.verdict = VERDICT_ERROR,
	                      .value = NAN,
	                      .baseline_value = NAN,
	                      .delta = NAN,
	                      .lower = NAN,
	                      .upper = NAN,
	                      .limit = NAN,
	                      .n = -1,
	                      .p_holm = NAN,
	                      .items_needed = -1,
	                      .message = BUF_INIT(1 << 14)};
	if (!is_measured(t, r, o))
		return ERR_OK;
	return judges[r->type](&j, o, e);
}

/* Whether its p counts: too few documents are inconclusive whatever it is. */
static bool is_of_family(const struct outcome *o)
{
	return o->tested && !(o->paired.too_few && o->paired.n_differ);
}

static err_code adjust(struct trial *t, struct err *e)
{
	size_t n = t->gate->n_rules, k = 0;
	double *p = mem_alloc(2 * n, sizeof *p, e);

	if (!p)
		return e->code;
	for (size_t i = 0; i < n; i++)
		if (is_of_family(&t->outcomes[i]))
			p[t->n_tested++] = t->outcomes[i].paired.p;
	holm_adjust(p, p + n, t->n_tested);
	for (size_t i = 0; i < n; i++)
		if (is_of_family(&t->outcomes[i]))
			t->outcomes[i].p_holm = p[n + k++];
	for (size_t i = 0; i < n; i++)
		if (t->outcomes[i].tested)
			settle_tested(&t->gate->rules[i], t->n_tested, &t->outcomes[i]);
	free(p);
	return ERR_OK;
}

static err_code judge_rules(struct trial *t, struct err *e)
{
	t->outcomes = mem_zalloc(t->gate->n_rules, sizeof *t->outcomes, e);
	if (!t->outcomes)
		return e->code;
	for (size_t i = 0; i < t->gate->n_rules; i++)
		if (judge_rule(t, &t->gate->rules[i], &t->outcomes[i], e))
			return e->code;
	return adjust(t, e);
}

/* -- the verdict object ------------------------------------------------------------------------ */

static void put_known(struct json_writer *w, const char *key, double v)
{
	if (!isnan(v))
		json_put_double(w, key, v);
}

static void write_tested(const struct outcome *o, struct json_writer *w)
{
	json_put_double(w, "stderr", o->paired.se);
	json_put_double(w, "p", o->paired.p);
	put_known(w, "p_holm", o->p_holm);
	if (o->metric->fraction)
		json_put_uint(w, "discordant", o->paired.n_differ);
	if (o->resampled) {
		json_begin_object(w, "bootstrap");
		json_put_double(w, "lower", o->bootstrap.lower);
		json_put_double(w, "upper", o->bootstrap.upper);
		json_put_int(w, "resamples", PAIRED_RESAMPLES);
		json_put_uint(w, "seed", o->bootstrap.seed);
		json_end_object(w);
	}
}

static void write_rule(const struct gate *g, const struct gate_rule *r, const struct outcome *o, struct json_writer *w)
{
	gate_rule_begin(g, r, w);
	json_put_string(w, "verdict", gate_verdict_name(o->verdict));
	json_put_double(w, "value", o->value);
	put_known(w, "baseline_value", o->baseline_value);
	put_known(w, "delta", o->delta);
	put_known(w, "lower", o->lower);
	put_known(w, "upper", o->upper);
	if (o->metric && !isnan(o->delta))
		write_tested(o, w);
	put_known(w, "min_effect", r->min_effect);
	put_known(w, "confidence", r->confidence);
	if (o->n >= 0)
		json_put_int(w, "n", o->n);
	if (o->items_needed >= 0 && o->verdict == VERDICT_INCONCLUSIVE)
		json_put_int(w, "items_needed", o->items_needed);
	put_known(w, "limit", o->limit);
	json_put_string(w, "message", buf_str(&o->message));
	json_end_object(w);
}

static const struct json *model_of(const struct evidence *ev)
{
	const struct json *model = ev ? json_get(ev->result, "model") : NULL;

	return json_is_object(model) ? model : NULL;
}

static void write_model(struct json_writer *w, const struct json *model)
{
	if (model)
		json_put_value(w, "model", model);
	else
		json_put_null(w, "model");
}

static void write_sides(const struct trial *t, struct json_writer *w)
{
	const struct json *cand = NULL, *base = NULL;
	static const char *const tags[] = {"commit", "branch"};

	for (size_t i = 0; i < t->gate->n_measures; i++) {
		cand = cand ? cand : model_of(t->sides[i].cand);
		base = base ? base : model_of(t->sides[i].base);
	}
	write_model(w, cand);
	if (t->c->baseline_name) {
		json_begin_object(w, "baseline");
		json_put_string(w, "name", t->c->baseline_name);
		if (t->c->baseline_version)
			json_put_int(w, "version", t->c->baseline_version);
		write_model(w, base);
		json_end_object(w);
	} else {
		json_put_null(w, "baseline");
	}
	for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
		json_put_string(w, tags[i], json_get_string(t->c->tags, tags[i]));
}

/* Each refusal once, however many rules it met. */
static void write_refused(const struct trial *t, struct json_writer *w)
{
	json_begin_array(w, "refused");
	for (size_t i = 0; i < t->gate->n_rules; i++) {
		const struct outcome *o = &t->outcomes[i];
		bool said = false;

		for (size_t k = 0; k < i && !said; k++)
			said =
			    t->outcomes[k].refused && !strcmp(buf_str(&t->outcomes[k].message), buf_str(&o->message));
		if (o->refused && !said)
			json_put_string(w, NULL, buf_str(&o->message));
	}
	json_end_array(w);
}

static void write_results(const struct trial *t, struct json_writer *w)
{
	static const char *const engine[] = {"device", "dtype"};

	json_begin_array(w, "results");
	for (size_t i = 0; i < t->gate->n_measures; i++) {
		const struct gate_measure *m = &t->gate->measures[i];
		const struct evidence *ev = t->sides[i].cand;

		if (!ev)
			continue;
		json_begin_object(w, NULL);
		json_put_string(w, "measure", m->id);
		json_put_string(w, "task", task_name(m->task));
		json_put_string(w, "dataset", m->dataset);
		for (size_t k = 0; k < sizeof engine / sizeof *engine; k++)
			json_put_string(w, engine[k], json_get_string(json_get(ev->result, "engine"), engine[k]));
		if (ev->job)
			json_put_int(w, "job", ev->job);
		json_put_bool(w, "cached", ev->cached_from != 0);
		if (ev->cached_from)
			json_put_int(w, "cached_from", ev->cached_from);
		if (has_result(ev))
			json_put_value(w, "metrics", json_get(ev->result, "metrics"));
		json_end_object(w);
	}
	json_end_array(w);
}

/* Documents of very unequal length are few (paired.h): said of a rule that they decided. */
static void warn_of_weights(const struct trial *t, struct buf *text, struct json_writer *w)
{
	for (size_t i = 0; i < t->gate->n_rules; i++) {
		const struct outcome *o = &t->outcomes[i];

		if (!o->tested || o->metric->fraction || !o->paired.n_differ || o->paired.too_few ||
		    !(o->paired.n_effective < PAIRED_MIN_DOCS))
			continue;
		buf_clear(text);
		buf_printf(text,
		           "rule '%s': its %lld documents are so unequal in length that they weigh as %.1f equal ones, "
		           "and below %d the test is a little liberal",
		           t->gate->rules[i].name, (long long)o->n, o->paired.n_effective, PAIRED_MIN_DOCS);
		json_put_string(w, NULL, buf_str(text));
	}
}

static void write_warnings(const struct trial *t, struct json_writer *w)
{
	struct buf text = BUF_INIT(1 << 16);

	json_begin_array(w, "warnings");
	warn_of_weights(t, &text, w);
	for (size_t i = 0; i < t->gate->n_measures; i++) {
		const struct side *s = &t->sides[i];
		const char *id = t->gate->measures[i].id;

		if (s->engine.len) {
			buf_clear(&text);
			buf_printf(&text, "measure '%s': the engine changed, as allowed: %s", id, buf_str(&s->engine));
			json_put_string(w, NULL, buf_str(&text));
		}
		for (const struct json *m = json_first(s->cand ? json_get(s->cand->result, "warnings") : NULL); m;
		     m = json_next(m)) {
			buf_clear(&text);
			buf_printf(&text, "measure '%s': %s", id, json_is_string(m) ? json_string(m) : "");
			json_put_string(w, NULL, buf_str(&text));
		}
	}
	json_end_array(w);
	buf_release(&text);
}

/* Whether a rule compared across an engine that is not the baseline's. */
static bool engine_changed(const struct trial *t)
{
	for (size_t i = 0; i < t->gate->n_rules; i++)
		if (compares(&t->gate->rules[i]) && t->sides[t->gate->rules[i].measure].engine.len)
			return true;
	return false;
}

static void write_verdict(const struct trial *t, enum gate_verdict verdict, struct json_writer *w)
{
	json_begin_object(w, NULL);
	json_put_int(w, "schema", 1);
	json_put_string(w, "gate", t->gate->name);
	json_put_string(w, "verdict", gate_verdict_name(verdict));
	write_sides(t, w);
	json_begin_array(w, "rules");
	for (size_t i = 0; i < t->gate->n_rules; i++)
		write_rule(t->gate, &t->gate->rules[i], &t->outcomes[i], w);
	json_end_array(w);
	write_refused(t, w);
	json_put_bool(w, "engine_change", engine_changed(t));
	write_results(t, w);
	write_warnings(t, w);
	json_end_object(w);
}

static void release(struct trial *t)
{
	for (size_t i = 0; t->sides && i < t->gate->n_measures; i++) {
		buf_release(&t->sides[i].refused);
		buf_release(&t->sides[i].engine);
	}
	for (size_t i = 0; t->outcomes && i < t->gate->n_rules; i++)
		buf_release(&t->outcomes[i].message);
	free(t->sides);
	free(t->outcomes);
}

err_code gate_judge(const struct gate *g, const struct gate_case *c, struct json_writer *w, enum gate_verdict *verdict,
                    struct err *e)
{
	struct trial t = {.gate = g, .c = c};
	err_code rc = meet_sides(&t, e);

	if (!rc)
		rc = judge_rules(&t, e);
	if (!rc) {
		*verdict = VERDICT_PASS;
		for (size_t i = 0; i < g->n_rules; i++)
			if (t.outcomes[i].verdict > *verdict)
				*verdict = t.outcomes[i].verdict;
		write_verdict(&t, *verdict, w);
		rc = buf_check(w->out, "the verdict", e);
	}
	release(&t);
	return rc;
}
