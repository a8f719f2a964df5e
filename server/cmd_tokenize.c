/* fathom tokenize: the token ids of a text, without special tokens. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/json.h"
#include "engine/path.h"
#include "engine/tokenizer.h"
#include "engine/utf8.h"
#include "server/cmd.h"
#include "server/options.h"

#define MAX_TEXT ((size_t)2 << 30)

static const struct option_spec specs[] = {
    {"--model", "DIR", NULL, NULL, "a model's folder, or a tokenizer.json", 0, NULL},
    {"--file", "FILE", NULL, "-", "the text; - is stdin", 0, NULL},
    {"--json", NULL, NULL, NULL, "one JSON object: ids, ends (the byte after each token), n_replaced, n_dropped", 0,
     NULL},
};

static err_code read_text(const char *file, struct buf *out, struct err *e)
{
	char chunk[1 << 16];
	ssize_t n;

	if (strcmp(file, "-") != 0)
		return buf_read_file(out, file, e);
	while ((n = read(0, chunk, sizeof chunk)) != 0) {
		if (n < 0 && errno != EINTR)
			return err_errno(e, "cannot read stdin");
		buf_append(out, chunk, n > 0 ? (size_t)n : 0);
	}
	return buf_check(out, "stdin", e);
}

static void print_json(const struct token_list *tokens, size_t n_replaced, struct buf *out)
{
	struct json_writer w = JSON_WRITER(out);

	json_begin_object(&w, NULL);
	json_put_uint(&w, "n", tokens->n);
	json_begin_array(&w, "ids");
	for (size_t i = 0; i < tokens->n; i++)
		json_put_uint(&w, NULL, tokens->ids[i]);
	json_end_array(&w);
	json_begin_array(&w, "ends");
	for (size_t i = 0; i < tokens->n; i++)
		json_put_uint(&w, NULL, tokens->ends[i]);
	json_end_array(&w);
	json_put_uint(&w, "n_replaced", n_replaced);
	json_put_uint(&w, "n_dropped", tokens->n_dropped);
	json_end_object(&w);
}

static err_code tokenize(const char *model, const char *file, bool json, struct err *e)
{
	struct buf path = BUF_INIT(1 << 16), raw = BUF_INIT(MAX_TEXT), text = BUF_INIT(MAX_TEXT),
	           out = BUF_INIT(SIZE_MAX / 2);
	struct token_list tokens = {0};
	struct tokenizer *t = NULL;
	size_t n_replaced = 0;
	err_code rc;

	buf_printf(&path, path_has_suffix(model, ".json") ? "%s" : "%s/tokenizer.json", model);
	rc = tokenizer_open(buf_str(&path), &t, e);
	if (!rc)
		rc = read_text(file, &raw, e);
	if (!rc) {
		n_replaced = utf8_clean(&text, buf_str(&raw), raw.len, false);
		rc = buf_check(&text, "the text", e);
	}
	if (!rc)
		rc = tokenizer_encode(t, buf_str(&text), text.len, false, &tokens, e);
	if (!rc && json)
		print_json(&tokens, n_replaced, &out);
	for (size_t i = 0; !rc && !json && i < tokens.n; i++)
		buf_printf(&out, "%s%u", i ? " " : "", tokens.ids[i]);
	buf_putc(&out, '\n');
	if (!rc)
		rc = buf_check(&out, "the ids", e);
	if (!rc)
		fwrite(out.data, 1, out.len, stdout);
	if (!rc && n_replaced && !json)
		fprintf(stderr, "fathom tokenize: warning: %zu invalid UTF-8 sequences became U+FFFD\n", n_replaced);
	if (!rc && tokens.n_dropped && !json)
		fprintf(stderr, "fathom tokenize: warning: %zu bytes have no token and were dropped\n",
		        tokens.n_dropped);
	token_list_release(&tokens);
	tokenizer_free(t);
	buf_release(&path);
	buf_release(&raw);
	buf_release(&text);
	buf_release(&out);
	return rc;
}

int cmd_tokenize(int argc, char **argv)
{
	struct options *options = NULL;
	const char *model;
	struct err e;
	int help;
	err_code rc =
	    options_parse(specs, sizeof specs / sizeof specs[0], "fathom tokenize --model DIR [--file FILE] [--json]",
	                  "Prints the token ids of a text on one line. The text is taken as it is: no newline rule.",
	                  argc, argv, &options, &help, &e);

	if (!rc && help)
		return 0;
	if (rc)
		return cmd_error("tokenize", &e);
	model = options_get(options, "--model");
	rc = options_no_args(options, &e);
	if (!rc && !model)
		rc = err_set(&e, ERR_INPUT, "--model is missing");
	if (!rc)
		rc = tokenize(model, options_get(options, "--file"), options_count(options, "--json") > 0, &e);
	options_free(options);
	return rc ? cmd_error("tokenize", &e) : 0;
}
