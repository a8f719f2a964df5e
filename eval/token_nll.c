/* Task token_nll: loss of sequences of token ids, for streams of symbols without a text (protocols.md section 2: music,
 * genomes). A piece is a line of ids, or an element of a member of a JSON file. The model needs no tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "engine/path.h"
#include "eval/files.h"
#include "eval/stream.h"

#define MAX_JSON_BYTES ((size_t)256 << 20) /* a tree of it has twenty times that; lists a line are read one by one */
#define FORMATS        ".json|.jsonl|.txt"

enum { NLL_SPLIT, NLL_OFFSET, NLL_MAX_TOKENS, NLL_LIMIT, NLL_N_PARAMS };

static const struct param params[NLL_N_PARAMS] = {
    {"split", PARAM_STRING, "\"test\"", NULL, 1, 200, "the member of a JSON file whose elements are the pieces"},
    {"offset", PARAM_INT, "0", NULL, -INT32_MAX, INT32_MAX, "added to each id"},
    {"max_tokens", PARAM_INT, "null", NULL, 1, INT32_MAX - 1,
     "predictions of a piece: only its first ids, one more than that; null: all"},
    {"limit", PARAM_INT, "null", NULL, 1, INT32_MAX, "only the first pieces; null: all"},
};

/* -- pieces ------------------------------------------------------------------------------------ */

/* A piece while its ids come in. */
struct piece {
	struct evaluation *ev;
	int64_t offset;
	size_t most;   /* ids that are kept */
	uint32_t *ids; /* [n] owned */
	size_t n, cap;
	bool truncated;
};

static err_code put_id(struct piece *p, int64_t number, struct err *e)
{
	int64_t id = number + p->offset;
	uint32_t n_vocab = p->ev->model->config.n_vocab, *ids;

	if (p->n == p->most) {
		p->truncated = true;
		return ERR_OK;
	}
	if (id < 0 || id >= n_vocab)
		return err_set(e, ERR_INPUT, "id %lld%s is not in the model's vocabulary of %u", (long long)id,
		               p->offset ? " (with the offset)" : "", n_vocab);
	ids = mem_grow(p->ids, &p->cap, p->n + 1, sizeof *ids, e);
	if (!ids)
		return e->code;
	p->ids = ids;
	p->ids[p->n++] = (uint32_t)id;
	return ERR_OK;
}

/* All integers below, in order. */
static err_code put_json(struct piece *p, const struct json *j, struct err *e)
{
	int64_t number;
	double d;

	if (json_is_array(j) || json_is_object(j)) {
		for (j = json_first(j); j; j = json_next(j))
			if (put_json(p, j, e))
				return e->code;
		return ERR_OK;
	}
	if (json_integer(j, &number))
		return put_id(p, number, e);
	if (json_number(j, &d))
		return err_set(e, ERR_INPUT, "%.17g is no integer", d);
	return err_set(e, ERR_INPUT, "an id is %s, not an integer", json_type_name(j));
}

static err_code finish_piece(struct piece *p, const char *name, struct err *e)
{
	struct stream s = {
	    .name = mem_strdup(name, e), .ids = p->ids, .n = (uint32_t)p->n, .first = 1, .truncated = p->truncated};

	if (!s.name)
		return e->code;
	p->ids = NULL;
	p->n = p->cap = 0;
	p->truncated = false;
	return stream_add(p->ev, &s, e);
}

static bool is_full(const struct piece *p, const struct param_value *v)
{
	return !v[NLL_LIMIT].null && p->ev->n_units >= v[NLL_LIMIT].i;
}

/* -- files ------------------------------------------------------------------------------------- */

/* A piece's name begins with that of its file where there are several. */
static void begin_name(struct buf *out, const struct file_list *files, size_t at)
{
	buf_clear(out);
	if (files->n > 1)
		buf_printf(out, "%s ", files->names[at]);
}

static err_code no_split(const struct json *root, const char *split, struct err *e)
{
	struct buf names = BUF_INIT(2000);

	for (const struct json *m = json_first(root); m; m = json_next(m))
		buf_printf(&names, "%s%.100s", names.len ? ", " : "", json_key(m));
	if (json_is_object(root))
		err_set(e, ERR_INPUT, "no member '%s' (split), only: %s", split, buf_str(&names));
	else
		err_set(e, ERR_INPUT, "the file is %s, not an object", json_type_name(root));
	buf_release(&names);
	return e->code;
}

static err_code read_json(struct piece *p, const struct param_value *v, const struct file_list *files, size_t at,
                          struct err *e)
{
	struct buf name = BUF_INIT(1 << 16);
	struct json *root = NULL;
	const struct json *pieces;
	const char *split;
	size_t i = 0;
	err_code rc = json_parse_file(files->paths[at], MAX_JSON_BYTES, &root, e);

	if (rc)
		return rc;
	pieces = json_is_array(root) ? root : json_get(root, v[NLL_SPLIT].s);
	if (pieces == root)
		evaluation_warn(p->ev, "'%s' is an array: its elements are the pieces, whatever the split",
		                files->names[at]);
	if (!pieces)
		rc = no_split(root, v[NLL_SPLIT].s, e);
	else if (!json_is_array(pieces) && !json_is_object(pieces))
		rc = err_set(e, ERR_INPUT, "'%s' is %s, not an array", v[NLL_SPLIT].s, json_type_name(pieces));
	split = pieces == root ? "" : v[NLL_SPLIT].s;
	for (const struct json *j = json_first(pieces); !rc && j && !is_full(p, v); j = json_next(j), i++) {
		begin_name(&name, files, at);
		buf_printf(&name, "%s[%zu]", split, i);
		rc = put_json(p, j, e);
		if (!rc)
			rc = finish_piece(p, buf_str(&name), e);
		if (rc)
			err_wrap(e, "%s[%zu]", split, i);
	}
	json_free(root);
	buf_release(&name);
	return rc ? err_wrap(e, "'%s'", files->names[at]) : ERR_OK;
}

/* "[1, 2, 3]", or the same numbers with spaces or commas between. */
static err_code put_line(struct piece *p, const char *line, size_t len, struct err *e)
{
	const char *stop = line + len;
	struct json *j = NULL;
	char *end;
	err_code rc = ERR_OK;

	line += strspn(line, " \t");
	if (*line == '[') {
		rc = json_parse(line, (size_t)(stop - line), &j, e);
		if (!rc)
			rc = put_json(p, j, e);
		json_free(j);
		return rc;
	}
	for (; !rc && line < stop; line = end + strspn(end, " \t,")) {
		long long number = strtoll(line, &end, 10);

		if (end == line || (end < stop && (!*end || !strchr(" \t,", *end))))
			return err_set(e, ERR_INPUT, "'%.*s' is no integer", (int)strcspn(line, " \t,"), line);
		rc = number > JSON_INT_MAX || number < -JSON_INT_MAX ? err_set(e, ERR_INPUT, "%lld is no id", number)
		                                                     : put_id(p, number, e);
	}
	return rc;
}

static err_code read_lines(struct piece *p, const struct param_value *v, const struct file_list *files, size_t at,
                           uint64_t *before, struct err *e)
{
	const struct evaluation_watch *watch = p->ev->watch;
	struct line_reader r = {0};
	struct buf name = BUF_INIT(1 << 16);
	bool more = true;
	err_code rc = line_reader_open(&r, files->paths[at], e);

	while (!rc && !is_full(p, v) && !(rc = line_reader_next(&r, &more, e)) && more) {
		if (line_is_blank(r.line.data, r.line.len))
			continue;
		rc = put_line(p, buf_str(&r.line), r.line.len, e);
		begin_name(&name, files, at);
		buf_printf(&name, "line %zu", r.number);
		if (!rc)
			rc = finish_piece(p, buf_str(&name), e);
		if (rc)
			err_wrap(e, "'%s' line %zu", files->names[at], r.number);
		else if (watch && watch->tick(watch->arg, *before + r.read, files->bytes))
			rc = err_set(e, ERR_CANCELLED, "stopped while the pieces were read");
	}
	*before += r.read;
	line_reader_close(&r);
	buf_release(&name);
	return rc;
}

static err_code read_files(struct piece *p, const struct param_value *v, const struct file_list *files, struct err *e)
{
	uint64_t before = 0;
	err_code rc = ERR_OK;

	for (size_t at = 0; !rc && at < files->n && !is_full(p, v); at++)
		rc = path_has_suffix(files->names[at], ".json") ? read_json(p, v, files, at, e)
		                                                : read_lines(p, v, files, at, &before, e);
	return rc;
}

static err_code plan(struct evaluation *ev, const struct param_value *v, struct err *e)
{
	struct piece p = {.ev = ev, .offset = v[NLL_OFFSET].i, .most = INT32_MAX};
	struct file_list files = {0};
	err_code rc;

	ev->plan = mem_zalloc(1, sizeof(struct stream_plan), e);
	if (!ev->plan)
		return e->code;
	if (!v[NLL_MAX_TOKENS].null)
		p.most = (size_t)v[NLL_MAX_TOKENS].i + 1;
	rc = file_list_open(&files, ev->dataset_path, FORMATS, e);
	if (!rc)
		rc = read_files(&p, v, &files, e);
	if (!rc)
		rc = stream_finish(ev, "pieces", e);
	if (!rc)
		rc = file_list_check(&files, e);
	if (!rc)
		strcpy(ev->fingerprint, files.fingerprint);
	file_list_release(&files);
	free(p.ids);
	return rc ? err_wrap(e, "dataset '%s'", ev->dataset_name) : ERR_OK;
}

/* -- the task ---------------------------------------------------------------------------------- */

static const struct task_metric metrics[] = {
    {"nll_token", "nats/token", "summed loss over scored ids: each but the first of a piece"},
    {"n_skipped", "items", "pieces without an id to score"},
    {"n_truncated", "items", "pieces cut by max_tokens"},
};

static err_code fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                             struct err *e)
{
	(void)v;
	return stream_fold_metrics(units, metric_nll_token, w, e);
}

const struct task task_token_nll = {
    .name = "token_nll",
    .version = 1,
    .summary = "loss of sequences of token ids, without a tokenizer",
    .dataset = "a .json with a member of pieces (any nesting), or a .jsonl or .txt with a list of integers a line",
    .params = params,
    .n_params = NLL_N_PARAMS,
    .metrics = metrics,
    .n_metrics = sizeof metrics / sizeof metrics[0],
    .formats = FORMATS,
    .plan = plan,
    .plan_free = stream_plan_free,
    .add = stream_unit_add,
    .result = stream_unit_result,
    .fold_metrics = fold_metrics,
    .fold_items = stream_fold_items,
};
