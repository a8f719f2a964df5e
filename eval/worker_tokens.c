/* The worker's commands about tokenizers: tokenize, detokenize, tokenizer_info. They need no device, so that a server
 * asks a worker that has none, beside those that compute. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/buf.h"
#include "eval/wire.h"
#include "eval/worker.h"

#define KEPT_MODELS  4 /* tokenizers, without weights, that stay open */
#define MAX_CONFIG   ((size_t)16 << 20)
#define MAX_TEMPLATE ((size_t)4 << 20)

static struct loaded *open_model(struct worker *w, const struct command *c, struct err *e)
{
	const char *name = json_get_string(c->json, "model");
	struct loaded *l = NULL;
	char *path;

	if (!name)
		err_set(e, ERR_INPUT, "%s: no string 'model'", c->name);
	if (!name || registry_model(&w->options->registry, name, &path, e))
		return NULL;
	worker_trim_models(w, KEPT_MODELS - 1);
	worker_load_unhashed(w, path, "", &l, e);
	free(path);
	if (l && !l->model->tokenizer) {
		err_set(e, ERR_INPUT, "model '%s' has no tokenizer", name);
		return NULL;
	}
	if (l && !l->keys && token_keys_make(l->model->tokenizer, l->model->config.n_vocab, &l->keys, e))
		return NULL;
	return l;
}

/* -- what a checkpoint says of its tokenizer --------------------------------------------------- */

/* The optional files beside config.json. */
struct facts {
	const struct model *model;
	struct json *tokenizer, *generation; /* owned; NULL: absent */
};

static err_code read_optional(const struct model *m, const char *name, struct json **out, struct err *e)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", m->path, name);
	if (stat(path, &st))
		return ERR_OK;
	return json_parse_file(path, MAX_CONFIG, out, e);
}

static err_code facts_open(const struct model *m, struct facts *f, struct err *e)
{
	*f = (struct facts){.model = m};
	if (read_optional(m, "tokenizer_config.json", &f->tokenizer, e) ||
	    read_optional(m, "generation_config.json", &f->generation, e))
		return err_wrap(e, "model '%s'", m->name);
	return ERR_OK;
}

static void facts_release(struct facts *f)
{
	json_free(f->tokenizer);
	json_free(f->generation);
}

/* The id of "bos", "eos" or "pad": config.json's, as `fathom run` has it, else generation_config.json's; a list's first
 * one. -1: none. */
static int64_t special_id(const struct facts *f, const char *which)
{
	const struct json *files[] = {f->model->raw_config, f->generation};
	char key[32];
	int64_t id;

	snprintf(key, sizeof key, "%s_token_id", which);
	for (size_t i = 0; i < 2; i++) {
		const struct json *v = json_get(files[i], key);

		if (json_is_array(v))
			v = json_first(v);
		if (json_integer(v, &id) && id >= 0 && id < UINT32_MAX)
			return id;
	}
	return -1;
}

/* Its text, not NUL-terminated, or NULL. pad is mostly the tokenizer's own affair, so there its file comes first. */
static const char *special_text(const struct facts *f, const char *which, size_t *len)
{
	int64_t id = special_id(f, which);
	const char *text = NULL, *given;
	const struct json *v;
	char key[32];

	snprintf(key, sizeof key, "%s_token", which);
	v = json_get(f->tokenizer, key);
	given = json_is_object(v) ? json_get_string(v, "content") : json_string(v);
	if (id >= 0 && (strcmp(which, "pad") != 0 || !given))
		text = tokenizer_token_bytes(f->model->tokenizer, (uint32_t)id, len);
	if (text || !given)
		return text;
	*len = strlen(given);
	return given;
}

/* A string, or the one called "default" (else the first) of a list of {"name","template"}; NULL: none. */
static const char *chat_template(const struct facts *f)
{
	const struct json *v = json_get(f->tokenizer, "chat_template"), *first = json_first(v);

	if (!json_is_array(v))
		return json_string(v);
	for (const struct json *j = first; j; j = json_next(j)) {
		const char *name = json_get_string(j, "name");

		if (name && !strcmp(name, "default"))
			first = j;
	}
	return json_get_string(first, "template");
}

static void put_template(struct json_writer *w, const struct facts *f)
{
	struct buf file = BUF_INIT(MAX_TEMPLATE);
	const char *template = chat_template(f);
	char path[PATH_MAX];
	struct err ignored;

	snprintf(path, sizeof path, "%s/chat_template.jinja", f->model->path);
	if (!template && !buf_read_file(&file, path, &ignored))
		template = buf_str(&file);
	json_put_string(w, "chat_template", template);
	buf_release(&file);
}

static err_code put_info(struct json_writer *w, const struct loaded *l, struct err *e)
{
	static const char *const which[] = {"eos", "bos", "pad"};
	struct facts f;
	char key[32];
	err_code rc = facts_open(l->model, &f, e);

	for (size_t i = 0; !rc && i < 3; i++) {
		size_t len = 0;
		const char *text = special_text(&f, which[i], &len);

		snprintf(key, sizeof key, "%s_token", which[i]);
		if (text)
			json_put_stringn(w, key, text, len);
		else
			json_put_null(w, key);
	}
	if (!rc)
		put_template(w, &f);
	facts_release(&f);
	return rc;
}

/* -- text and ids ------------------------------------------------------------------------------ */

/* The id of a text that is a special token's and nothing else; -1: it is not. */
static int64_t whole_special(const struct model *m, const char *text)
{
	static const char *const which[] = {"eos", "bos", "pad"};
	int64_t id = -1;
	struct err ignored;
	struct facts f;

	if (!facts_open(m, &f, &ignored))
		for (size_t i = 0; id < 0 && i < 3; i++) {
			size_t len = 0;
			const char *special = special_text(&f, which[i], &len);

			if (special && len == strlen(text) && !memcmp(special, text, len))
				id = tokenizer_token_id(m->tokenizer, text);
		}
	facts_release(&f);
	return id;
}

static err_code put_ids(struct json_writer *w, const struct loaded *l, const struct json *command, struct err *e)
{
	const char *text = json_get_string(command, "prompt");
	bool add_special = json_true(json_get(command, "add_special_tokens"));
	struct token_list list = {0};
	int64_t special;
	err_code rc = ERR_OK;

	if (!text)
		return err_set(e, ERR_INPUT, "tokenize: no string 'prompt'");
	special = strlen(text) < 200 && !add_special ? whole_special(l->model, text) : -1;
	if (special < 0)
		rc = tokenizer_encode(l->model->tokenizer, text, strlen(text), add_special, &list, e);
	json_begin_array(w, "tokens");
	if (special >= 0)
		json_put_int(w, NULL, special);
	for (size_t i = 0; !rc && i < list.n; i++)
		json_put_uint(w, NULL, list.ids[i]);
	json_end_array(w);
	token_list_release(&list);
	return rc;
}

static err_code put_text(struct json_writer *w, const struct loaded *l, const struct json *command, struct err *e)
{
	const struct json *tokens = json_get(command, "tokens");
	uint32_t *ids = mem_alloc(json_count(tokens), sizeof *ids, e);
	struct buf text = BUF_INIT(WIRE_MAX_LINE / 2);
	size_t n = 0;
	int64_t id = 0;
	err_code rc = ids ? ERR_OK : ERR_MEMORY;

	if (!rc && !json_is_array(tokens))
		rc = err_set(e, ERR_INPUT, "detokenize: no array 'tokens'");
	for (const struct json *j = json_first(tokens); !rc && j; j = json_next(j)) {
		if (!json_integer(j, &id) || id < 0 || id >= l->model->config.n_vocab)
			rc = err_set(e, ERR_INPUT, "element %zu is not a token id: model '%s' has %u", n,
			             l->model->name, l->model->config.n_vocab);
		ids[n++] = (uint32_t)id;
	}
	if (!rc)
		rc = token_keys_text(l->keys, ids, n, &text, NULL, e);
	if (!rc)
		rc = buf_check(&text, "the text", e);
	if (!rc)
		json_put_string(w, "prompt", buf_str(&text));
	buf_release(&text);
	free(ids);
	return rc;
}

void worker_do_tokens(struct worker *w, const struct command *c)
{
	struct buf line = BUF_INIT(WIRE_MAX_LINE - 4096);
	struct json_writer j = JSON_WRITER(&line);
	struct err e;
	const struct loaded *l = open_model(w, c, &e);
	err_code rc = l ? ERR_OK : e.code;

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "tokens");
	json_put_int(&j, "request", c->request);
	if (l && !strcmp(c->name, "tokenize"))
		rc = put_ids(&j, l, c->json, &e);
	else if (l && !strcmp(c->name, "detokenize"))
		rc = put_text(&j, l, c->json, &e);
	else if (l)
		rc = put_info(&j, l, &e);
	if (l && !rc)
		json_put_uint(&j, "n_ctx", l->model->config.n_ctx);
	json_end_object(&j);
	if (!rc && line.failed)
		rc = err_set(&e, ERR_INPUT, "the answer is longer than %zu MB", WIRE_MAX_LINE >> 20);
	if (rc)
		worker_emit_refused(w, c->request, &e);
	else
		worker_emit(w, &line);
	buf_release(&line);
}
