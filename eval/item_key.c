/* Keys of items: see item_key.h. */
#include "eval/item_key.h"

#include <string.h>

/* Bytes on their way into a hash. */
struct feed {
	struct sha256 *h;
	unsigned char bytes[1024];
	size_t n;
};

static void flush(struct feed *f)
{
	sha256_update(f->h, f->bytes, f->n);
	f->n = 0;
}

static void feed_u32(struct feed *f, uint32_t v)
{
	if (f->n + 4 > sizeof f->bytes)
		flush(f);
	for (unsigned k = 0; k < 4; k++)
		f->bytes[f->n++] = (unsigned char)(v >> 8 * k);
}

static void feed_run(struct feed *f, unsigned char byte, uint32_t n)
{
	for (; n; n--) {
		if (f->n == sizeof f->bytes)
			flush(f);
		f->bytes[f->n++] = byte;
	}
}

void item_key_add(struct sha256 *h, const uint32_t *tokens, uint32_t len, uint32_t first)
{
	struct feed f = {.h = h};

	feed_u32(&f, len);
	for (uint32_t i = 0; i < len; i++)
		feed_u32(&f, tokens[i]);
	feed_run(&f, 0, first);
	feed_run(&f, 1, len - first);
	flush(&f);
}

void item_key_final(struct sha256 *h, char key[ITEM_KEY_LEN])
{
	char hex[SHA256_HEX];

	sha256_final(h, hex);
	memcpy(key, hex, ITEM_KEY_LEN - 1);
	key[ITEM_KEY_LEN - 1] = '\0';
}
