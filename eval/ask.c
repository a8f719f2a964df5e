/* See ask.h.
 *
 * A pass scores a prompt's tokens, and a token after its end if one more is wanted: the most probable is appended, and
 * the next pass reads the prompt again, with it. That is dear, and meant for a few tokens. */
#include "eval/ask.h"

#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"
#include "eval/wire.h"

/* -- what is asked ----------------------------------------------------------------------------- */

static err_code put_ids(struct prompt *p, const struct json *list, struct err *e)
{
	size_t n = 0;
	int64_t v;

	for (const struct json *j = json_first(list); j; j = json_next(j), n++) {
		if (!json_integer(j, &v) || v < 0 || v > UINT32_MAX)
			return err_set(e, ERR_INPUT, "element %zu is not a token id", n);
		p->ids[n] = (uint32_t)v;
	}
	return ERR_OK;
}

/* A text that begins with BOS does not get another. */
static err_code encode(const struct model *m, const char *text, struct token_list *out, struct err *e)
{
	if (!m->tokenizer)
		return err_set(e, ERR_INPUT, "model '%s' has no tokenizer: give token ids", m->name);
	if (tokenizer_encode(m->tokenizer, text, strlen(text), true, out, e))
		return e->code;
	if (tokenizer_adds_bos(m->tokenizer) && out->n > 1 && out->ids[0] == out->ids[1])
		memmove(out->ids, out->ids + 1, --out->n * sizeof *out->ids);
	return ERR_OK;
}

static err_code check_prompt(const struct ask_model *m, const struct prompt *p, struct err *e)
{
	const struct model *model = m->model;

	if (!p->n)
		return err_set(e, ERR_INPUT, "it has no token");
	if (p->n > m->limit + 1)
		return err_set(e, ERR_INPUT,
		               "%u tokens are more than the %u that model '%s' takes (its context and one)", p->n,
		               m->limit + 1, model->name);
	for (uint32_t i = 0; i < p->n; i++)
		if (p->ids[i] >= model->config.n_vocab)
			return err_set(e, ERR_INPUT, "token id %u at position %u: model '%s' has %u ids", p->ids[i], i,
			               model->name, model->config.n_vocab);
	return ERR_OK;
}

static err_code read_prompt(const struct json *j, struct ask *a, struct prompt *p, struct err *e)
{
	struct token_list list = {0};
	const char *text = json_string(j);
	size_t n;
	err_code rc = ERR_OK;

	*p = (struct prompt){.ask = a, .cut = SIZE_MAX};
	if (text)
		rc = encode(a->model.model, text, &list, e);
	n = text ? list.n : json_count(j);
	if (!rc && n > ASK_MAX_TOKENS)
		rc = err_set(e, ERR_INPUT, "%zu tokens, and a request may have %u", n, ASK_MAX_TOKENS);
	if (!rc && (!(p->ids = mem_zalloc(n + WIRE_MAX_NEW + 1, sizeof *p->ids, e)) ||
	            !(p->scores = mem_zalloc(n + WIRE_MAX_NEW + 1, sizeof *p->scores, e))))
		rc = ERR_MEMORY;
	if (!rc && text && n)
		memcpy(p->ids, list.ids, n * sizeof *p->ids);
	else if (!rc)
		rc = put_ids(p, j, e);
	token_list_release(&list);
	p->n = p->n_given = (uint32_t)n;
	p->from = a->echo && a->logprobs ? 1 : p->n;
	return rc ? rc : check_prompt(&a->model, p, e);
}

static err_code read_ask(struct ask *a, const struct json *json, struct err *e)
{
	const struct json *prompts = json_get(json, "prompts");
	size_t n = json_count(prompts), total = 0;
	int64_t max_new = 0;

	json_get_integer(json, "max_tokens", &max_new);
	if (!json_is_array(prompts) || !n || n > WIRE_MAX_PROMPTS)
		return err_set(e, ERR_INPUT, "%zu prompts, want 1 to %d", n, WIRE_MAX_PROMPTS);
	if (max_new < 0 || max_new > WIRE_MAX_NEW)
		return err_set(e, ERR_INPUT, "max_tokens is %lld, want 0 to %d", (long long)max_new, WIRE_MAX_NEW);
	a->max_new = (uint32_t)max_new;
	a->echo = json_true(json_get(json, "echo"));
	a->logprobs = json_true(json_get(json, "logprobs"));
	a->stop = json_get(json, "stop");
	a->prompts = mem_zalloc(n, sizeof *a->prompts, e);
	if (!a->prompts)
		return ERR_MEMORY;
	for (const struct json *j = json_first(prompts); j; j = json_next(j)) {
		struct prompt *p = &a->prompts[a->n_prompts++];

		if (read_prompt(j, a, p, e))
			return err_wrap(e, "prompt %zu", a->n_prompts - 1);
		total += p->n;
	}
	if (total > ASK_MAX_TOKENS)
		return err_set(e, ERR_INPUT, "the prompts have %zu tokens, and a request may have %u", total,
		               ASK_MAX_TOKENS);
	return ERR_OK;
}

err_code ask_new(const struct ask_model *m, const struct json *json, struct ask **out, struct err *e)
{
	struct ask *a = mem_zalloc(1, sizeof *a, e);

	if (!a)
		return ERR_MEMORY;
	a->model = *m;
	if (read_ask(a, json, e)) {
		ask_free(a);
		return e->code;
	}
	*out = a;
	return ERR_OK;
}

void ask_free(struct ask *a)
{
	for (size_t i = 0; a && i < a->n_prompts; i++) {
		free(a->prompts[i].ids);
		free(a->prompts[i].scores);
	}
	if (a)
		free(a->prompts);
	free(a);
}

/* -- passes ------------------------------------------------------------------------------------ */

static bool wants_more(const struct prompt *p)
{
	return p->n - p->n_given < p->ask->max_new && p->n <= p->ask->model.limit;
}

bool prompt_begin(struct prompt *p)
{
	if (p->finish)
		return false;
	p->ids[p->n] = 0; /* any token: its place is scored for what is most probable there */
	p->chain =
	    (struct chain){.ids = p->ids, .n = p->n + wants_more(p), .from = p->from, .scores = p->scores, .owner = p};
	if (p->chain.from >= p->chain.n)
		p->finish = "length";
	return !p->finish;
}

/* EOS or a stop string in the generated text ends it. */
static err_code look_for_stop(struct prompt *p, struct err *e)
{
	struct buf text = BUF_INIT((size_t)1 << 20);
	err_code rc = token_keys_text(p->ask->model.keys, p->ids + p->n_given, p->n - p->n_given, &text, NULL, e);

	if (!rc)
		rc = buf_check(&text, "generated text", e);
	p->at_eos = p->ask->model.model->config.eos == (int64_t)p->ids[p->n - 1];
	for (const struct json *j = json_first(p->ask->stop); !rc && j; j = json_next(j)) {
		const char *stop = json_string(j), *at = stop && *stop ? strstr(buf_str(&text), stop) : NULL;

		if (at && (size_t)(at - text.data) < p->cut)
			p->cut = (size_t)(at - text.data);
	}
	if (p->at_eos || p->cut != SIZE_MAX)
		p->finish = "stop";
	buf_release(&text);
	return rc;
}

err_code prompt_end(struct prompt *p, struct err *e)
{
	uint32_t n = p->chain.n;

	p->from = n;
	if (n == p->n) {
		p->finish = "length";
		return ERR_OK;
	}
	p->ids[p->n] = p->scores[p->n].argmax;
	p->scores[p->n].logprob = p->scores[p->n].argmax_logprob;
	p->n++;
	if (look_for_stop(p, e))
		return e->code;
	if (!p->finish && !wants_more(p))
		p->finish = "length";
	return ERR_OK;
}

bool ask_is_complete(const struct ask *a)
{
	for (size_t i = 0; !a->why.code && i < a->n_prompts; i++)
		if (!a->prompts[i].finish)
			return false;
	return true;
}

/* -- answers ----------------------------------------------------------------------------------- */

static void put_key(struct json_writer *w, const struct token_keys *k, uint32_t id)
{
	char scratch[TOKEN_KEY_BYTES];
	size_t len;
	const char *key = token_keys_get(k, id, scratch, &len);

	json_put_stringn(w, NULL, key, len);
}

/* A log-probability, or null for a token that has none: the first of a chain, and one beyond the context. */
static void put_logprob(struct json_writer *w, const struct prompt *p, uint32_t i, float v)
{
	if (i && i < p->n)
		json_put_double(w, NULL, (double)v);
	else
		json_put_null(w, NULL);
}

/* Parallel arrays over tokens [from, end); what is beyond p->n has no token. */
static void put_tokens(struct json_writer *w, const struct prompt *p, uint32_t from, uint32_t end)
{
	const struct token_keys *k = p->ask->model.keys;

	json_begin_array(w, "tokens");
	for (uint32_t i = from; i < end; i++)
		if (i < p->n)
			put_key(w, k, p->ids[i]);
		else
			json_put_string(w, NULL, "");
	json_end_array(w);
	json_begin_array(w, "logprobs");
	for (uint32_t i = from; i < end; i++)
		put_logprob(w, p, i, p->scores[i].logprob);
	json_end_array(w);
	json_begin_array(w, "argmax");
	for (uint32_t i = from; i < end; i++)
		if (i && i < p->n)
			put_key(w, k, p->scores[i].argmax);
		else
			json_put_null(w, NULL);
	json_end_array(w);
	json_begin_array(w, "argmax_logprobs");
	for (uint32_t i = from; i < end; i++)
		put_logprob(w, p, i, p->scores[i].argmax_logprob);
	json_end_array(w);
}

/* Ends the text where a stop string begins. */
static err_code cut_text(const struct prompt *p, uint32_t from, struct buf *text, struct err *e)
{
	struct buf given = BUF_INIT(WIRE_MAX_LINE);
	err_code rc;

	if (p->cut == SIZE_MAX)
		return ERR_OK;
	rc = token_keys_text(p->ask->model.keys, p->ids + from, p->n_given - from, &given, NULL, e);
	if (!rc && given.len + p->cut < text->len) {
		text->len = given.len + p->cut;
		text->data[text->len] = '\0';
	}
	buf_release(&given);
	return rc;
}

/* The text of tokens [from, end), and in which of its characters each begins. */
static err_code put_text(struct json_writer *w, const struct prompt *p, uint32_t from, uint32_t end, struct err *e)
{
	uint32_t shown = p->n - p->at_eos - from, *offsets = mem_zalloc((size_t)end - from + 1, sizeof *offsets, e);
	struct buf text = BUF_INIT(WIRE_MAX_LINE);
	size_t n_chars;
	err_code rc = ERR_MEMORY;

	if (offsets)
		rc = token_keys_text(p->ask->model.keys, p->ids + from, shown, &text, offsets, e);
	if (!rc)
		rc = buf_check(&text, "the text", e);
	if (!rc)
		rc = cut_text(p, from, &text, e);
	if (!rc) {
		n_chars = utf8_count(buf_str(&text));
		json_put_string(w, "text", buf_str(&text));
		json_begin_array(w, "offsets");
		for (uint32_t i = 0; i < end - from; i++)
			json_put_uint(w, NULL, i < shown && offsets[i] < n_chars ? offsets[i] : n_chars);
		json_end_array(w);
	}
	buf_release(&text);
	free(offsets);
	return rc;
}

static err_code put_prompt(struct json_writer *w, const struct prompt *p, struct err *e)
{
	const struct ask *a = p->ask;
	uint32_t from = a->echo ? 0 : p->n_given;
	/* the token after a prompt that fills the context cannot be computed; its place is kept */
	uint32_t end = p->n + (a->max_new && p->n_given > a->model.limit);
	err_code rc;

	json_begin_object(w, NULL);
	json_put_uint(w, "n_prompt", p->n_given);
	json_put_uint(w, "n_generated", p->n - p->n_given);
	json_put_string(w, "finish", p->finish);
	rc = put_text(w, p, from, end, e);
	if (a->logprobs)
		put_tokens(w, p, from, end);
	json_end_object(w);
	return rc;
}

err_code ask_write(const struct ask *a, struct json_writer *w, const char *key, struct err *e)
{
	err_code rc = ERR_OK;

	json_begin_array(w, key);
	for (size_t i = 0; !rc && i < a->n_prompts; i++)
		rc = put_prompt(w, &a->prompts[i], e);
	json_end_array(w);
	return rc;
}
