/* Gates: the metrics that rules compare, the names of things, and numbers in messages. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "eval/gate_private.h"

#define LN2 0.69314718055994530942

static const struct gate_metric metrics[] = {
    {.name = "ppl_token", .weight = BY_TOKENS, .scale = 1, .log_ratio = true},
    {.name = "nll_token", .weight = BY_TOKENS, .scale = 1, .unit = "nats/token"},
    {.name = "bits_per_byte", .weight = BY_BYTES, .scale = LN2, .unit = "bits/byte"},
    {.name = "ppl_word", .weight = BY_WORDS, .scale = 1, .log_ratio = true},
    {.name = "ppl_doc_macro", .weight = BY_OWN_TOKENS, .scale = 1, .log_ratio = true},
    {.name = "ppl", .weight = BY_ITEMS, .scale = 1, .log_ratio = true},
    {.name = "logprob", .weight = BY_ITEMS, .scale = 1, .higher_is_better = true, .unit = "nats"},
    {.name = "acc", .fraction = true, .norm = NORM_NONE, .higher_is_better = true},
    {.name = "acc_norm", .fraction = true, .norm = NORM_CHARS, .higher_is_better = true},
    {.name = "acc_bytes", .fraction = true, .norm = NORM_BYTES, .higher_is_better = true},
    {.name = "acc_token", .fraction = true, .norm = NORM_TOKENS, .higher_is_better = true},
};

const struct gate_metric *gate_metric_find(const char *name)
{
	for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
		if (!strcmp(metrics[i].name, name))
			return &metrics[i];
	return NULL;
}

bool gate_metric_is_log(const char *name)
{
	const struct gate_metric *m = gate_metric_find(name);

	return m && m->log_ratio;
}

static const char *const verdicts[] = {"pass", "inconclusive", "fail", "error"};

const char *gate_verdict_name(enum gate_verdict v)
{
	return verdicts[v];
}

bool gate_verdict_from_name(const char *name, enum gate_verdict *out)
{
	for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
		if (!strcmp(verdicts[i], name)) {
			*out = (enum gate_verdict)i;
			return true;
		}
	return false;
}

void outcome_set(struct outcome *o, enum gate_verdict v, const char *fmt, ...)
{
	char text[2000];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	o->verdict = v;
	buf_clear(&o->message);
	buf_printf(&o->message, "%s.", text);
}

void put_subject(const struct gate_rule *r, struct buf *out)
{
	buf_puts(out, r->metric);
	if (r->group)
		buf_printf(out, " of %s", r->group);
	if (r->length)
		buf_printf(out, " at %lld", (long long)r->length);
}

void put_number(double v, struct buf *out)
{
	double a = fabs(v);

	if (isinf(v))
		buf_puts(out, v < 0 ? "-infinity" : "infinity");
	else if (a < 1e15 && v == trunc(v))
		buf_printf(out, "%.0f", v);
	else
		buf_printf(out, a >= 1e5 ? "%.0f" : "%.5g", v);
}

/* Two decimals, or two digits of what is small. */
static void put_rounded(double v, struct buf *out)
{
	double a = fabs(v);

	if (a >= 1e6 || !isfinite(v))
		buf_printf(out, "%.3g", v);
	else
		buf_printf(out, a == 0 ? "%.0f" : a >= 0.1 ? "%.2f" : "%.2g", a == 0 ? 0 : v);
}

/* Of perplexities as a share of the baseline's. */
static double in_words(const struct gate_metric *m, double difference)
{
	return m->log_ratio ? 100 * expm1(difference) : m->fraction ? 100 * difference : difference;
}

static const char *unit_word(const struct gate_metric *m)
{
	return m->log_ratio ? "%" : m->fraction ? "percentage points" : m->unit;
}

/* A difference in the metric's terms: "0.41 %", "0.62 percentage points", "0.0041 nats/token". */
static void put_difference(const struct gate_metric *m, double difference, struct buf *out)
{
	put_rounded(in_words(m, difference), out);
	buf_printf(out, " %s", unit_word(m));
}

void gate_put_delta(const char *metric, double delta, struct buf *out)
{
	const struct gate_metric *m = gate_metric_find(metric);

	if (m)
		put_difference(m, delta, out);
	else
		put_rounded(delta, out);
}

void put_bounds(const struct gate_metric *m, double lower, double upper, struct buf *out)
{
	put_rounded(in_words(m, lower), out);
	buf_puts(out, " to ");
	put_difference(m, upper, out);
}

void put_min_effect(const struct gate_rule *r, const struct gate_metric *m, struct buf *out)
{
	double v = r->type == RULE_SHAPE ? 100 * (r->max_ratio - 1) : r->min_effect;

	buf_printf(out, "%.5g %s", r->type != RULE_SHAPE && (m->log_ratio || m->fraction) ? 100 * v : v, unit_word(m));
}

void put_p(double p, struct buf *out)
{
	buf_printf(out, p < 1e-4 ? "< 0.0001" : p < 0.1 ? "= %.2g" : "= %.2f", p);
}

void put_change(const struct gate_metric *m, double worsening, struct buf *out)
{
	struct buf text = BUF_INIT(200);
	const char *s;

	if (worsening == 0) {
		buf_puts(out, "did not change");
		return;
	}
	put_difference(m, worsening, &text);
	s = buf_str(&text);
	buf_printf(out, "%s by %s", (worsening > 0) == m->higher_is_better ? "fell" : "rose", s + (*s == '-'));
	buf_release(&text);
}
