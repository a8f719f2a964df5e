/* Judging a run: see judge.h. */
#include "server/judge.h"

#include <stdlib.h>
#include <string.h>

#include "engine/sha256.h"
#include "server/job_evidence.h"

#define MAX_VERDICT ((size_t)32 << 20)

/* What a run is judged on. */
struct bench {
	struct store *store; /* borrowed */
	struct gate_run run; /* owned, as all here */
	struct gate *gate;
	struct json *tags;
	struct evidence **candidate; /* [run.n_measures] */
	char (*protocols)[17];       /* [run.n_measures]; "": it came to nothing */
	const char *fingerprint;     /* of the model; borrowed from a candidate; NULL: none was measured */
	struct evidence **baseline;  /* [n_baseline] */
	size_t n_baseline, cap_baseline;
};

static void bench_release(struct bench *b)
{
	for (size_t i = 0; b->candidate && i < b->run.n_measures; i++)
		evidence_free(b->candidate[i]);
	for (size_t i = 0; i < b->n_baseline; i++)
		evidence_free(b->baseline[i]);
	free(b->candidate);
	free(b->protocols);
	free(b->baseline);
	json_free(b->tags);
	gate_free(b->gate);
	gate_run_release(&b->run);
}

/* -- loading ----------------------------------------------------------------------------------- */

/* What a value may be compared with over time: everything of a result that is not the model, and the positions that the
 * measure asks for in place of the model's. */
static err_code hash_protocol(const struct gate_measure *m, const struct evidence *ev, char out[17], struct err *e)
{
	const struct json *result = evidence_result(ev), *engine = json_get(result, "engine");
	const struct json *position = json_get(m->engine, "position");
	struct buf b = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&b);
	char hex[SHA256_HEX];
	err_code rc;

	json_begin_array(&w, NULL);
	json_put_value(&w, NULL, json_get(result, "task"));
	json_put_string(&w, NULL, json_get_string(json_get(result, "dataset"), "fingerprint"));
	json_put_string(&w, NULL, json_get_string(json_get(result, "model"), "tokenizer_fingerprint"));
	json_put_string(&w, NULL, json_get_string(engine, "dtype"));
	json_put_string(&w, NULL, json_get_string(engine, "device_name"));
	if (position)
		json_put_value(&w, NULL, position);
	json_end_array(&w);
	rc = buf_check(&b, "a protocol", e);
	if (!rc) {
		sha256_hex(b.data, b.len, hex);
		memcpy(out, hex, 16);
		out[16] = '\0';
	}
	buf_release(&b);
	return rc;
}

static err_code load_candidate(struct bench *b, size_t i, struct err *e)
{
	const struct json *result;
	const char *fingerprint;

	if (job_evidence_load(b->store, b->run.measures[i].job, &b->candidate[i], e))
		return e->code;
	result = evidence_result(b->candidate[i]);
	fingerprint = json_get_string(json_get(result, "model"), "fingerprint");
	if (!fingerprint)
		return ERR_OK;
	b->fingerprint = fingerprint;
	if (!json_get(result, "metrics"))
		return ERR_OK;
	return hash_protocol(&b->gate->measures[i], b->candidate[i], b->protocols[i], e);
}

static err_code load_baseline(struct store *s, int64_t job, const char *result, const char *items,
                              struct evidence **out, struct err *e)
{
	struct evidence *ev = NULL;
	err_code rc;

	if (job)
		return job_evidence_load(s, job, out, e);
	rc = evidence_parse(result, strlen(result), &ev, e);
	if (!rc)
		rc = evidence_add_items(ev, items, strlen(items), e);
	if (rc)
		evidence_free(ev);
	else
		*out = ev;
	return rc;
}

static err_code add_baseline(void *arg, int64_t job, const char *result, const char *items, struct err *e)
{
	struct bench *b = arg;
	struct evidence **grown =
	    mem_grow(b->baseline, &b->cap_baseline, b->n_baseline + 1, sizeof(struct evidence *), e);
	err_code rc;

	if (!grown)
		return ERR_MEMORY;
	b->baseline = grown;
	rc = load_baseline(b->store, job, result, items, &b->baseline[b->n_baseline], e);
	b->n_baseline += !rc;
	return rc;
}

static err_code load(struct bench *b, int64_t id, struct err *e)
{
	struct gate_row row = {0};
	err_code rc = store_run_get(b->store, id, &b->run, e);

	if (!rc)
		rc = store_gate_get(b->store, b->run.gate, b->run.gate_version, &row, e);
	if (!rc)
		rc = gate_parse_text(row.definition, strlen(row.definition), &b->gate, e);
	gate_row_release(&row);
	if (!rc)
		rc = json_parse(b->run.tags, strlen(b->run.tags), &b->tags, e);
	if (rc)
		return rc;
	if (b->gate->n_measures != b->run.n_measures)
		return err_set(e, ERR_CONFLICT, "gate '%s' has %zu measurements, its run %lld %zu", b->run.gate,
		               b->gate->n_measures, (long long)id, b->run.n_measures);
	b->candidate = mem_zalloc(b->run.n_measures, sizeof(struct evidence *), e);
	b->protocols = mem_zalloc(b->run.n_measures, sizeof *b->protocols, e);
	if (!b->candidate || !b->protocols)
		return ERR_MEMORY;
	for (size_t i = 0; !rc && i < b->run.n_measures; i++)
		rc = load_candidate(b, i, e);
	if (!rc && b->run.baseline)
		rc = store_baseline_evidence(b->store, b->run.baseline, b->run.baseline_version, add_baseline, b, e);
	return rc;
}

/* -- history ----------------------------------------------------------------------------------- */

struct past {
	const struct gate_rule *rule;
	double *values; /* [max] newest first */
	size_t max, n;
};

static const struct json *find_metric(const struct json *verdict, const char *measure, const struct gate_rule *rule)
{
	const struct json *results = json_get(verdict, "results");

	for (const struct json *r = json_first(results); r; r = json_next(r)) {
		const char *name = json_get_string(r, "measure");

		if (name && !strcmp(name, measure))
			return result_metric(json_get(r, "metrics"), rule->metric, rule->length, rule->group);
	}
	return NULL;
}

static err_code add_past(void *arg, const char *text, const char *measure, struct err *e)
{
	struct past *p = arg;
	struct json *verdict = NULL;
	err_code rc = json_parse(text, strlen(text), &verdict, e);
	double value;

	if (!rc && p->n < p->max && json_get_number(find_metric(verdict, measure, p->rule), "value", &value))
		p->values[p->n++] = value;
	json_free(verdict);
	return rc;
}

static err_code history(void *arg, const struct gate_rule *rule, double *values, size_t max, size_t *n, struct err *e)
{
	const struct bench *b = arg;
	struct past p = {rule, values, max, 0};
	struct run_past which = {.gate = b->run.gate,
	                         .branch = json_get_string(b->tags, "branch"),
	                         .protocol = b->protocols[rule->measure],
	                         .except = b->fingerprint ? b->fingerprint : "",
	                         .before = b->run.id,
	                         .limit = max < 1000 ? (int)max : 1000};
	err_code rc = store_run_passed(b->store, &which, add_past, &p, e);

	for (size_t i = 0; !rc && i < p.n / 2; i++) {
		double v = values[i];

		values[i] = values[p.n - 1 - i];
		values[p.n - 1 - i] = v;
	}
	*n = p.n;
	return rc;
}

/* -- judging ----------------------------------------------------------------------------------- */

/* The verdict, with the run's number first: what the store keeps and the webhook gets. */
static err_code put_verdict(const struct bench *b, const char *text, size_t len, struct json_writer *w, struct err *e)
{
	struct json *verdict = NULL;

	if (json_parse(text, len, &verdict, e))
		return e->code;
	json_begin_object(w, "verdict");
	json_put_int(w, "run", b->run.id);
	for (const struct json *m = json_first(verdict); m; m = json_next(m))
		json_put_value(w, json_key(m), m);
	json_end_object(w);
	json_free(verdict);
	return ERR_OK;
}

static err_code judge(struct bench *b, struct json_writer *w, struct err *e)
{
	struct buf text = BUF_INIT(MAX_VERDICT);
	struct json_writer inner = JSON_WRITER(&text);
	enum gate_verdict verdict;
	struct gate_case c = {
	    .candidate = (const struct evidence *const *)b->candidate,
	    .baseline_name = b->run.baseline,
	    .baseline_version = b->run.baseline_version,
	    .baseline = (const struct evidence *const *)b->baseline,
	    .n_baseline = b->n_baseline,
	    .tags = b->tags,
	    .allow_engine_change = b->run.allow_engine_change,
	    .history = history,
	    .history_arg = b,
	    .bootstrap = true,
	    .seed = GATE_SEED,
	};
	err_code rc = gate_judge(b->gate, &c, &inner, &verdict, e);

	if (!rc)
		rc = buf_check(&text, "a verdict", e);
	if (rc)
		goto out;
	json_begin_object(w, NULL);
	json_put_string(w, "event", "judged");
	json_put_string(w, "outcome", gate_verdict_name(verdict));
	json_put_string(w, "fingerprint", b->fingerprint);
	json_begin_array(w, "protocols");
	for (size_t i = 0; i < b->run.n_measures; i++)
		json_put_string(w, NULL, b->protocols[i][0] ? b->protocols[i] : NULL);
	json_end_array(w);
	json_put_bool(w, "hook", b->gate->webhook_url != NULL);
	rc = put_verdict(b, buf_str(&text), text.len, w, e);
	json_end_object(w);
out:
	buf_release(&text);
	return rc;
}

err_code judge_run(struct store *s, int64_t run, struct json_writer *w, struct err *e)
{
	struct bench b = {.store = s};
	err_code rc = load(&b, run, e);

	if (!rc)
		rc = judge(&b, w, e);
	bench_release(&b);
	return rc ? rc : buf_check(w->out, "a verdict", e);
}
