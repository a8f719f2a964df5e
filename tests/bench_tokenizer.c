/* Tokenizer speed: bench_tokenizer BOOK TOKENIZER.json...
 *
 * Encodes the whole book on one core, repeated to at least half a second, and prints the best MB/s (10^6 bytes of
 * text a second of processor time); then the same text as lines of their own, which is what short examples of tasks
 * cost. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/buf.h"
#include "engine/tokenizer.h"
#include "engine/utf8.h"

/* Processor time of this one thread: what else the machine does is not counted. */
static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One pass over the text: whole, or a call a line. Returns the number of tokens. */
static err_code encode(const struct tokenizer *t, const struct buf *text, bool lines, size_t *n, struct err *e)
{
	struct token_list list = {0};
	const char *s = text->data, *end = text->data + text->len, *stop;
	err_code rc = ERR_OK;

	for (*n = 0; s < end && !rc; s = stop) {
		stop = lines ? memchr(s, '\n', (size_t)(end - s)) : NULL;
		stop = stop ? stop + 1 : end;
		list.n = 0;
		rc = tokenizer_encode(t, s, (size_t)(stop - s), false, &list, e);
		*n += list.n;
	}
	token_list_release(&list);
	return rc;
}

static err_code bench(const char *path, const struct buf *text, struct err *e)
{
	struct tokenizer *t = NULL;
	double start = now_s(), open_s, best[2] = {1e9, 1e9};
	size_t n[2] = {0, 0};
	err_code rc = tokenizer_open(path, &t, e);

	open_s = now_s() - start;
	for (int lines = 0; lines < 2 && !rc; lines++)
		for (double begun = now_s(); now_s() - begun < 0.5 && !rc;) {
			double s = now_s();

			rc = encode(t, text, lines, &n[lines], e);
			s = now_s() - s;
			if (s < best[lines])
				best[lines] = s;
		}
	if (!rc)
		printf("%-40s %6.1f MB/s whole (%zu tokens), %6.1f MB/s by line (%zu tokens), opens in %.0f ms\n", path,
		       (double)text->len / best[0] / 1e6, n[0], (double)text->len / best[1] / 1e6, n[1], open_s * 1e3);
	tokenizer_free(t);
	return rc;
}

int main(int argc, char **argv)
{
	struct buf raw = BUF_INIT((size_t)1 << 30), text = BUF_INIT((size_t)1 << 31);
	struct err e = {0};
	err_code rc;

	if (argc < 3) {
		fprintf(stderr, "usage: %s BOOK TOKENIZER.json...\n", argv[0]);
		return 2;
	}
	rc = buf_read_file(&raw, argv[1], &e);
	utf8_clean(&text, buf_str(&raw), raw.len, true);
	if (!rc)
		rc = buf_check(&text, "the text", &e);
	for (int i = 2; i < argc && !rc; i++)
		rc = bench(argv[i], &text, &e);
	if (rc)
		fprintf(stderr, "%s\n", e.msg);
	buf_release(&raw);
	buf_release(&text);
	return rc ? 1 : 0;
}
