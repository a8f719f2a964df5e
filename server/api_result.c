/* A finished job's result in its forms: JSON, CSV, Markdown, and as SVG: curves, alone or several in one chart,
 * and the map of frequencies. */
#include <stdlib.h>
#include <string.h>

#include "engine/sha256.h"
#include "server/api.h"
#include "server/curve_svg.h"
#include "server/frequency_svg.h"
#include "server/problem.h"
#include "server/report.h"

#define MAX_REPLY  ((size_t)64 << 20)
#define MAX_CURVES 16
#define SVG_POLICY "default-src 'none'; style-src 'unsafe-inline'"

/* Loads a job that has a result; else the problem is sent and false returned. */
static bool load_job(struct http_request *r, int64_t id, struct job *j)
{
	struct err e;

	*j = (struct job){0};
	if (store_job_get(api_of(r)->store, id, j, &e)) {
		problem_error(r, &e);
		return false;
	}
	if (j->state == JOB_SUCCEEDED && j->result)
		return true;
	if (job_state_final(j->state))
		problem_send(r, 409, "job %lld has no result: it is %s", (long long)id, job_state_name(j->state));
	else
		problem_send(r, 409, "job %lld has no result yet: it is %s", (long long)id, job_state_name(j->state));
	job_release(j);
	return false;
}

static bool parse_result(struct http_request *r, const struct job *j, struct json **result)
{
	struct err e;

	if (!json_parse(j->result, strlen(j->result), result, &e))
		return true;
	err_wrap(&e, "the result of job %lld", (long long)j->id);
	e.code = ERR_IO;
	problem_error(r, &e);
	return false;
}

/* -- JSON, CSV, Markdown ----------------------------------------------------------------------- */

static void set_filename(struct http_request *r, const char *suffix)
{
	http_set_header(r, "Content-Disposition", "inline; filename=\"job-%lld.%s\"", (long long)r->id, suffix);
}

void api_result_json(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct job j;
	char hex[SHA256_HEX];

	if (!load_job(r, r->id, &j))
		return;
	sha256_hex(j.result, strlen(j.result), hex);
	hex[16] = '\0';
	set_filename(r, "json");
	if (!http_not_modified(r, hex)) {
		buf_puts(&b, j.result);
		api_send_json(r, 200, &b);
	}
	job_release(&j);
}

static void send_report(struct http_request *r, enum report_format format, const char *type, const char *suffix)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json *result = NULL;
	struct job j;
	struct err e;

	if (!load_job(r, r->id, &j))
		return;
	if (!parse_result(r, &j, &result))
		goto out;
	if (report_write(result, format, &b, &e) || buf_check(&b, "the report", &e)) {
		buf_release(&b);
		problem_error(r, &e);
		goto out;
	}
	set_filename(r, suffix);
	http_send(r, 200, type, &b);
out:
	json_free(result);
	job_release(&j);
}

void api_result_csv(struct http_request *r)
{
	send_report(r, REPORT_CSV, "text/csv; charset=utf-8; header=present", "csv");
}

void api_result_markdown(struct http_request *r)
{
	send_report(r, REPORT_MARKDOWN, "text/markdown; charset=utf-8", "md");
}

/* -- curves ------------------------------------------------------------------------------------ */

static const struct {
	const char *name, *label;
} curve_metrics[] = {
    {"ppl_token", "Perplexity per token"},
    {"nll_token", "Loss per token (nats)"},
    {"bits_per_byte", "Bits per byte"},
    {"ppl_word", "Perplexity per word"},
    {"ppl_doc_macro", "Perplexity, mean over documents"},
};
#define N_CURVE_METRICS (sizeof curve_metrics / sizeof *curve_metrics)

struct curves {
	int64_t ids[MAX_CURVES];
	struct buf labels[MAX_CURVES];
	char *datasets[MAX_CURVES]; /* owned names */
	struct curve_point *points[MAX_CURVES];
	struct curve_series series[MAX_CURVES];
	size_t n;
};

static void curves_release(struct curves *c)
{
	for (size_t i = 0; i < c->n; i++) {
		buf_release(&c->labels[i]);
		free(c->points[i]);
		free(c->datasets[i]);
	}
}

/* "3,1,2" appended to the ids; false when it is malformed, too long or repeats. */
static bool add_ids(struct curves *c, const char *list)
{
	char *end;
	int64_t id;

	for (const char *s = list; *s; s = *end ? end + 1 : end) {
		if (*s < '1' || *s > '9' || strspn(s, "0123456789") > 18 || c->n == MAX_CURVES)
			return false;
		id = strtoll(s, &end, 10);
		if ((*end && *end != ',') || (*end == ',' && !end[1]))
			return false;
		for (size_t i = 0; i < c->n; i++)
			if (c->ids[i] == id)
				return false;
		c->ids[c->n++] = id;
	}
	return true;
}

/* {"type":"yarn","factor":4} as "YaRN ×4". */
static void put_scheme(struct buf *b, const struct json *position)
{
	static const char *const names[][2] = {
	    {"rope", "RoPE"},
	    {"yarn", "YaRN"},
	    {"linear", "RoPE linear"},
	    {"pope", "PoPE"},
	};
	const char *type = json_get_string(position, "type");
	double factor;

	if (!type)
		return;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(names[i][0], type))
			type = names[i][1];
	buf_printf(b, " · %s", type);
	if (json_get_number(position, "factor", &factor) && factor > 1)
		buf_printf(b, " ×%.4g", factor);
}

/* The part of the parameters that changes what the number means: "sliding, stride 256, BOS per document". */
static void put_protocol(struct buf *b, const struct json *params)
{
	const char *protocol = json_get_string(params, "protocol"), *bos = json_get_string(params, "bos");
	const char *last = json_get_string(params, "last_window");
	int64_t stride;

	if (!protocol)
		return;
	buf_printf(b, " · %s", protocol);
	if (!strcmp(protocol, "sliding") && json_get_integer(params, "stride", &stride))
		buf_printf(b, ", stride %lld", (long long)stride);
	if (bos && strcmp(bos, "none") != 0)
		buf_printf(b, ", BOS per %s", bos);
	if (last && !strcmp(last, "drop"))
		buf_puts(b, ", last window dropped");
}

static void put_label(struct buf *b, const struct job *j, const struct json *result)
{
	*b = BUF_INIT((size_t)1 << 14);
	buf_puts(b, j->model);
	put_scheme(b, json_get(json_get(result, "model"), "position"));
	put_protocol(b, json_get(json_get(result, "task"), "params"));
}

/* Whether an earlier curve has curve i's dataset. */
static bool is_known_dataset(const struct curves *c, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!strcmp(c->datasets[k], c->datasets[i]))
			return true;
	return false;
}

/* Each dataset once. Returns how many there are. */
static size_t put_datasets(struct buf *b, const struct curves *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		if (!is_known_dataset(c, i))
			buf_printf(b, "%s%s", n++ ? ", " : "", c->datasets[i]);
	return n;
}

/* False when the problem was sent. */
static bool load_curve(struct http_request *r, struct curves *c, size_t i, const char *metric)
{
	struct json *result = NULL;
	struct job j;
	struct err e;
	bool ok = false;

	if (!load_job(r, c->ids[i], &j))
		return false;
	if (!parse_result(r, &j, &result))
		goto out;
	if (result_curve(json_get(result, "metrics"), metric, &c->points[i], &c->series[i].n, &e)) {
		problem_error(r, &e);
		goto out;
	}
	if (!c->series[i].n) {
		problem_send(r, 409, "job %lld has no curve of %s", (long long)j.id, metric);
		goto out;
	}
	put_label(&c->labels[i], &j, result);
	c->datasets[i] = j.dataset;
	j.dataset = NULL;
	c->series[i].points = c->points[i];
	ok = true;
out:
	json_free(result);
	job_release(&j);
	return ok;
}

/* Curves of several datasets name theirs; those that still read the same are told apart by their jobs' numbers. */
static void finish_labels(struct curves *c, bool several_datasets)
{
	bool same[MAX_CURVES] = {false};

	for (size_t i = 0; several_datasets && i < c->n; i++)
		buf_printf(&c->labels[i], " · %s", c->datasets[i]);
	for (size_t i = 0; i < c->n; i++)
		for (size_t k = 0; k < c->n; k++)
			if (i != k && !strcmp(buf_str(&c->labels[i]), buf_str(&c->labels[k])))
				same[i] = true;
	for (size_t i = 0; i < c->n; i++) {
		if (same[i])
			buf_printf(&c->labels[i], " · job %lld", (long long)c->ids[i]);
		c->series[i].label = buf_str(&c->labels[i]);
	}
}

static void send_curves(struct http_request *r, struct curves *c)
{
	const char *metric = http_query(r, "metric");
	struct buf title = BUF_INIT((size_t)1 << 14), svg = BUF_INIT(MAX_REPLY);
	struct curve_chart chart = {.series = c->series, .n_series = c->n};
	size_t m = 0;

	while (metric && m < N_CURVE_METRICS && strcmp(curve_metrics[m].name, metric) != 0)
		m++;
	if (m == N_CURVE_METRICS) {
		problem_query(r, "metric",
		              "metric '%.40s' is none of ppl_token, nll_token, bits_per_byte, ppl_word, ppl_doc_macro",
		              metric);
		return;
	}
	for (size_t i = 0; i < c->n; i++)
		if (!load_curve(r, c, i, curve_metrics[m].name))
			return;
	buf_printf(&title, "%s against length: ", curve_metrics[m].label);
	finish_labels(c, put_datasets(&title, c) > 1);
	chart.title = buf_str(&title);
	chart.y_label = curve_metrics[m].label;
	curve_svg(&chart, &svg);
	buf_release(&title);
	http_set_header(r, "Content-Security-Policy", SVG_POLICY);
	http_set_header(r, "Content-Disposition", "inline; filename=\"%s.svg\"", curve_metrics[m].name);
	http_send(r, 200, "image/svg+xml", &svg);
}

void api_job_frequencies(struct http_request *r)
{
	struct buf svg = BUF_INIT(MAX_REPLY);
	struct json *result = NULL;
	struct job j;
	struct err e;
	err_code rc;

	if (!load_job(r, r->id, &j))
		return;
	if (!parse_result(r, &j, &result))
		goto out;
	rc = frequency_svg(result, &svg, &e);
	if (rc == ERR_NOT_FOUND) {
		problem_send(r, 409, "job %lld: %s", (long long)r->id, e.msg);
	} else if (rc) {
		problem_error(r, &e);
	} else {
		http_set_header(r, "Content-Security-Policy", SVG_POLICY);
		set_filename(r, "svg");
		http_send(r, 200, "image/svg+xml", &svg);
	}
	if (rc)
		buf_release(&svg);
out:
	json_free(result);
	job_release(&j);
}

/* One job's curve, or with ?with=2,3 those of others beside it. */
void api_job_curve(struct http_request *r)
{
	struct curves c = {.ids = {r->id}, .n = 1};
	const char *with = http_query(r, "with");

	if (with && !add_ids(&c, with))
		problem_query(r, "with", "with is '%.100s', not up to %d numbers of other jobs", with, MAX_CURVES - 1);
	else
		send_curves(r, &c);
	curves_release(&c);
}

void api_curve(struct http_request *r)
{
	struct curves c = {0};
	const char *jobs = http_query(r, "jobs");

	if (!jobs || !*jobs || !add_ids(&c, jobs))
		problem_query(r, "jobs", "jobs is '%.100s', not 1 to %d different jobs' numbers", jobs ? jobs : "",
		              MAX_CURVES);
	else
		send_curves(r, &c);
	curves_release(&c);
}
