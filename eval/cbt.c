/* Task cbt: which of ten candidates fills the gap of the 21st sentence (Children's Book Test). A question is 21
 * numbered lines, the last with answer and candidates behind tabs; a candidate is scored with all that follows the
 * gap. */
#include "eval/cbt.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "eval/catalog.h"
#include "eval/example.h"

#define GAP         "XXXXX"
#define N_SENTENCES 20

/* -- the Penn Treebank's tokens ---------------------------------------------------------------- */

enum { LEFT = 1, RIGHT = 2, OPENS = 4, CLOSES = 8 }; /* no space before, behind it; a single quote */

/* Tokens that are not words with a space on either side, and what is printed for them. */
static const struct token_rule {
	const char *token, *text;
	unsigned flags;
} rules[] = {
    {"``", "\"", RIGHT},   {"''", "\"", LEFT},   {"`", "'", RIGHT | OPENS}, {"'", "'", LEFT | CLOSES},
    {"-LRB-", "(", RIGHT}, {"-RRB-", ")", LEFT}, {"-LSB-", "[", RIGHT},     {"-RSB-", "]", LEFT},
    {"-LCB-", "{", RIGHT}, {"-RCB-", "}", LEFT}, {"(", "(", RIGHT},         {")", ")", LEFT},
    {"[", "[", RIGHT},     {"]", "]", LEFT},     {"{", "{", RIGHT},         {"}", "}", LEFT},
    {",", ",", LEFT},      {".", ".", LEFT},     {";", ";", LEFT},          {":", ":", LEFT},
    {"!", "!", LEFT},      {"?", "?", LEFT},     {"...", "...", LEFT},      {"%", "%", LEFT},
    {"$", "$", RIGHT},     {"'s", "'s", LEFT},   {"'S", "'S", LEFT},        {"--", "--", LEFT | RIGHT},
    {"'m", "'m", LEFT},    {"'M", "'M", LEFT},   {"'d", "'d", LEFT},        {"'D", "'D", LEFT},
    {"'ll", "'ll", LEFT},  {"'LL", "'LL", LEFT}, {"'re", "'re", LEFT},      {"'RE", "'RE", LEFT},
    {"'ve", "'ve", LEFT},  {"'VE", "'VE", LEFT}, {"n't", "n't", LEFT},      {"N'T", "N'T", LEFT},
};

/* Words that the Treebank cuts in two. */
static const char *const pairs[][2] = {{"can", "not"}, {"gon", "na"}, {"got", "ta"}, {"wan", "na"}, {"gim", "me"},
                                       {"lem", "me"},  {"d", "'ye"},  {"'t", "is"},  {"'t", "was"}};

struct token {
	const char *s; /* [len] borrowed */
	size_t len;
};

static const struct token_rule *find_rule(struct token t)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (strlen(rules[i].token) == t.len && !memcmp(rules[i].token, t.s, t.len))
			return &rules[i];
	return NULL;
}

static bool is_word(struct token t, const char *word)
{
	return strlen(word) == t.len && !strncasecmp(word, t.s, t.len);
}

static bool are_pair(struct token a, struct token b)
{
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		if (is_word(a, pairs[i][0]) && is_word(b, pairs[i][1]))
			return true;
	return false;
}

static struct token next_token(const char *s, const char *end)
{
	const char *space;

	while (s < end && *s == ' ')
		s++;
	space = memchr(s, ' ', (size_t)(end - s));
	return (struct token){s, (size_t)((space ? space : end) - s)};
}

/* Whether a "'" that no word stands before is met earlier than a "`". */
static bool is_closed_later(const char *s, const char *end)
{
	bool word = false;

	for (struct token t = next_token(s, end); t.len; t = next_token(t.s + t.len, end)) {
		const struct token_rule *r = find_rule(t);

		if (r && r->flags & OPENS)
			return false;
		if (r && r->flags & CLOSES && !word)
			return true;
		word = !r;
	}
	return false;
}

/* Appends a text of tokens with spaces between as a book prints it. A "'" closes a quote, or ends a word ("the kings '
 * men"). Where no quote is open, no word stands before it, and another one follows that would have nothing to close, it
 * is an opening one which the corpus's tokenizer took for the other: "he replied , ' I do not know . '" */
void cbt_detokenize(struct buf *out, const char *tokens, size_t len)
{
	const char *end = tokens + len;
	struct token last = {"", 0};
	bool tight = true, quoted = false, word = false;

	for (struct token t = next_token(tokens, end); t.len; last = t, t = next_token(t.s + t.len, end)) {
		const struct token_rule *r = find_rule(t);
		unsigned flags = r ? r->flags : 0;

		if (flags & CLOSES && !quoted && !word && is_closed_later(t.s + t.len, end))
			flags = RIGHT | OPENS;
		if (flags & (OPENS | CLOSES))
			quoted = flags & OPENS;
		if (!tight && !(flags & LEFT) && !are_pair(last, t))
			buf_putc(out, ' ');
		if (r)
			buf_puts(out, r->text);
		else
			buf_append(out, t.s, t.len);
		tight = flags & RIGHT;
		word = !r;
	}
}

/* -- questions --------------------------------------------------------------------------------- */

enum { DETOKENIZE = CHOICE_N_PARAMS, MAX_CONTEXT_TOKENS, SPLIT, N_PARAMS };

static const struct param params[N_PARAMS] = {
    CHOICE_PARAMS,
    {"detokenize", PARAM_BOOL, "true", NULL, 0, 0, "print the corpus's tokens as a book does; false: as they are"},
    {"max_context_tokens", PARAM_INT, "null", NULL, 1, 1 << 24, "of a context only the last ones are read; null: all"},
    {"split", PARAM_ENUM, "\"test\"", "test|valid|train", 0, 0, "which of a folder's files: cbtest_KIND_SPLIT*.txt"},
};

struct reader {
	bool detokenize;
	const char *split;
	struct buf joined; /* the sentences and the query so far, with a space between each two */
	struct buf text;   /* the same as it is printed */
	size_t query;      /* where in `joined` the query begins */
};

/* The text of a numbered line. */
static err_code read_number(const char **line, size_t *len, int expected, struct err *e)
{
	char *end;
	long n = strtol(*line, &end, 10);

	if (*line[0] < '0' || *line[0] > '9' || *end != ' ')
		return err_set(e, ERR_INPUT, "sentence %d must begin with its number and a space, not '%.40s'",
		               expected, *line);
	if (n != expected)
		return err_set(e, ERR_INPUT, "sentence %ld stands where number %d belongs", n, expected);
	*len -= (size_t)(end + 1 - *line);
	*line = end + 1;
	return ERR_OK;
}

/* The gap of the query in a text of the whole question. */
static const char *find_gap(const struct reader *r, const char *text)
{
	const char *at = text;

	for (const char *s = buf_str(&r->joined); (s = strstr(s, GAP)) && s < buf_str(&r->joined) + r->query;) {
		s += strlen(GAP); /* one in a sentence */
		at = strstr(at, GAP) + strlen(GAP);
	}
	return strstr(at, GAP);
}

/* One choice for each candidate of "a|b|c", and which is the answer. */
static err_code put_candidates(struct examples *x, const char *list, const char *answer, size_t answer_len,
                               const char *rest, struct err *e)
{
	int64_t gold = -1, n = 0;

	for (const char *s = list, *end;; s = end + 1, n++) {
		end = s + strcspn(s, "|");
		if (end == s)
			return err_set(e, ERR_INPUT, "candidate %lld is empty", (long long)n + 1);
		examples_choice(x, "");
		buf_append(&x->text, s, (size_t)(end - s));
		buf_puts(&x->text, rest);
		if (gold < 0 && (size_t)(end - s) == answer_len && !memcmp(s, answer, answer_len))
			gold = n;
		if (!*end)
			break;
	}
	if (gold < 0)
		return err_set(e, ERR_INPUT, "the answer '%.*s' is not among the candidates '%.200s'",
		               answer_len > 100 ? 100 : (int)answer_len, answer, list);
	return examples_add(x, gold, e);
}

/* "query \t answer \t\t c1|...|c10" */
static err_code put_query(struct reader *r, struct examples *x, const char *line, struct err *e)
{
	const char *answer = strchr(line, '\t'), *list = strrchr(line, '\t'), *gap;
	const struct buf *text = r->detokenize ? &r->text : &r->joined;

	if (!answer || list < answer + 2)
		return err_set(e, ERR_INPUT,
		               "the query must be followed by a tab, the answer, two tabs and the candidates");
	r->query = r->joined.len;
	buf_append(&r->joined, line, (size_t)(answer - line));
	if (r->detokenize)
		cbt_detokenize(&r->text, buf_str(&r->joined), r->joined.len);
	if (buf_check(&r->joined, "a question", e) || buf_check(&r->text, "a question", e))
		return e->code;
	gap = strstr(buf_str(&r->joined) + r->query, GAP);
	if (!gap || strstr(gap + 1, GAP))
		return err_set(e, ERR_INPUT, "the query must have one gap, " GAP);
	gap = find_gap(r, buf_str(text));
	buf_append(&x->text, buf_str(text), (size_t)(gap - buf_str(text)));
	answer++;
	return put_candidates(x, list + 1, answer, strcspn(answer, "\t"), gap + strlen(GAP), e);
}

/* One question; *more is false at the end of the file. */
static err_code read_question(struct reader *r, struct examples *x, bool *more, struct err *e)
{
	const char *line;
	size_t len;

	buf_clear(&r->joined);
	buf_clear(&r->text);
	for (int n = 1; n <= N_SENTENCES + 1;) {
		if (examples_next_line(x, &line, &len, e))
			return e->code;
		*more = line != NULL;
		if (n == 1 && (!line || line_is_blank(line, len))) {
			if (!line)
				return ERR_OK;
			continue;
		}
		if (!line || line_is_blank(line, len))
			return err_set(e, ERR_INPUT, "a question ends after sentence %d of %d", n - 1, N_SENTENCES + 1);
		if (strlen(line) != len)
			return err_set(e, ERR_INPUT, "sentence %d has a NUL byte", n);
		if (read_number(&line, &len, n, e))
			return e->code;
		if (n++ > N_SENTENCES)
			return put_query(r, x, line, e);
		buf_append(&r->joined, line, len);
		buf_putc(&r->joined, ' ');
	}
	return ERR_OK;
}

/* The kind that a file's name tells; NULL: it is no file of questions. A file that is the whole dataset may have any
 * name. */
static bool find_kind(const struct reader *r, const char *name, bool alone, const char **kind)
{
	static const char *const kinds[] = {"CN", "NE", "P", "V"};
	const char *base = catalog_base(name);

	*kind = NULL;
	for (size_t i = 0; !strncmp(base, "cbtest_", 7) && i < sizeof kinds / sizeof *kinds; i++) {
		size_t n = strlen(kinds[i]);

		if (strncmp(base + 7, kinds[i], n) != 0 || base[7 + n] != '_')
			continue;
		*kind = kinds[i];
		return alone || !strncmp(base + 7 + n + 1, r->split, strlen(r->split));
	}
	return alone;
}

static err_code read_cbt(struct examples *x, const struct param_value *v, struct err *e)
{
	static const char *const splits[] = {"test", "valid", "train"};
	struct reader r = {.detokenize = v[DETOKENIZE].i,
	                   .split = splits[v[SPLIT].i],
	                   .joined = BUF_INIT((size_t)1 << 24),
	                   .text = BUF_INIT((size_t)1 << 24)};
	const char *name;
	err_code rc;
	bool more;

	x->max_context_tokens = v[MAX_CONTEXT_TOKENS].null ? 0 : (uint32_t)v[MAX_CONTEXT_TOKENS].i;
	do {
		rc = examples_next_file(x, &name, e);
		more = !rc && name && find_kind(&r, name, x->files.n == 1, &x->group);
		while (!rc && more && !examples_full(x))
			rc = read_question(&r, x, &more, e);
	} while (!rc && name);
	buf_release(&r.joined);
	buf_release(&r.text);
	return rc;
}

static const struct example_reader reader = {.files = ".txt", .read = read_cbt};

const struct task task_cbt = {
    .name = "cbt",
    .version = 1,
    .summary = "the Children's Book Test: a word, given twenty sentences before it and the rest of its own",
    .dataset = "a folder with cbtest_CN_test*.txt, and the same for NE, P and V, or one such file: a kind is a group",
    CHOICE_TASK_WITH(reader, params, N_PARAMS),
};
