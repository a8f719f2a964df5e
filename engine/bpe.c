/* Words to tokens: see bpe.h. Three ways, the cheapest first:
 *   1. the word is a token that it encodes to (a table made with the vocabulary);
 *   2. the word was met before in this text (the cache points at the tokens written then);
 *   3. merges, lowest rank first and leftmost among equals, by a binary heap over a linked list. An entry of the heap
 *      is stale when the pair at its place has another rank by now: ranks belong to one pair. */
#include "engine/bpe.h"

#include <stdlib.h>
#include <string.h>

struct bpe_symbol {
	uint32_t id;         /* BPE_NONE: merged into its left neighbour */
	uint32_t prev, next; /* BPE_NONE at the ends */
	uint32_t end;        /* in the word */
};

struct bpe_cached {
	const char *word; /* NULL: free */
	uint32_t len, hash;
	size_t first; /* its tokens are ids[first .. first + n) of the list */
	uint32_t n;
};

#define CACHE_PROBES   8          /* then the first slot is taken over */
#define CACHE_MIN      64         /* slots */
#define CACHE_MAX      (1u << 15) /* slots: 1 MiB, stays in the second-level cache */
#define CACHE_WORD_MAX 256        /* bytes; longer words hardly repeat */

void token_list_release(struct token_list *l)
{
	if (!l)
		return;
	free(l->ids);
	free(l->ends);
	*l = (struct token_list){0};
}

err_code token_list_reserve(struct token_list *l, size_t n, struct err *e)
{
	size_t need, cap;
	uint32_t *ids;
	size_t *ends;

	if (n <= l->cap - l->n)
		return ERR_OK;
	if (__builtin_add_overflow(l->n, n, &need) || need > SIZE_MAX / 4 / sizeof *ends)
		return err_set(e, ERR_MEMORY, "out of memory for %zu tokens", n);
	cap = need > 32 ? need + need / 2 : 32;
	ids = realloc(l->ids, cap * sizeof *ids);
	if (ids)
		l->ids = ids;
	ends = ids ? realloc(l->ends, cap * sizeof *ends) : NULL;
	if (!ends)
		return err_set(e, ERR_MEMORY, "out of memory for %zu tokens", cap);
	l->ends = ends;
	l->cap = cap;
	return ERR_OK;
}

static uint64_t mix(uint64_t x)
{
	x *= UINT64_C(0x9E3779B97F4A7C15);
	return x ^ x >> 29;
}

/* A hash of bytes, for tables that are compared in full. */
static uint32_t hash_word(const char *s, size_t len)
{
	uint64_t h = mix(len), a = 0, b = 0;
	uint32_t lo, hi;

	while (len > 16) {
		memcpy(&a, s, 8);
		h = mix(h ^ a);
		s += 8;
		len -= 8;
	}
	if (len >= 8) {
		memcpy(&a, s, 8);
		memcpy(&b, s + len - 8, 8);
	} else if (len >= 4) {
		memcpy(&lo, s, 4);
		memcpy(&hi, s + len - 4, 4);
		a = lo;
		b = hi;
	} else if (len) {
		a = (uint64_t)(uint8_t)s[0] << 16 | (uint64_t)(uint8_t)s[len / 2] << 8 | (uint8_t)s[len - 1];
	}
	h = mix(mix(h ^ a) ^ b);
	return (uint32_t)(h >> 32);
}

static const char *token_bytes(const struct bpe *b, uint32_t id)
{
	return b->bytes.data + b->tokens[id].start;
}

static uint32_t find_hashed(const struct bpe *b, const char *bytes, size_t len, bool raw, uint32_t hash)
{
	for (size_t i = hash & b->word_mask; b->words[i].id != BPE_NONE; i = (i + 1) & b->word_mask) {
		const struct bpe_token *t = &b->tokens[b->words[i].id];

		if (b->words[i].hash == hash && t->len == len && t->raw == raw &&
		    !memcmp(b->bytes.data + t->start, bytes, len))
			return b->words[i].id;
	}
	return BPE_NONE;
}

uint32_t bpe_find(const struct bpe *b, const char *bytes, size_t len, bool raw)
{
	return find_hashed(b, bytes, len, raw, hash_word(bytes, len));
}

void bpe_add_word(struct bpe *b, uint32_t id)
{
	uint32_t hash = hash_word(token_bytes(b, id), b->tokens[id].len);
	size_t i = hash & b->word_mask;

	while (b->words[i].id != BPE_NONE)
		i = (i + 1) & b->word_mask;
	b->words[i] = (struct bpe_word){hash, id};
}

struct bpe_merge *bpe_merge_slot(const struct bpe *b, uint32_t left, uint32_t right)
{
	uint64_t h = mix((uint64_t)left << 32 | right);
	size_t i = (size_t)(h >> 20) & b->merge_mask;

	while (b->merges[i].left != BPE_NONE && (b->merges[i].left != left || b->merges[i].right != right))
		i = (i + 1) & b->merge_mask;
	return &b->merges[i];
}

/* -- merging ----------------------------------------------------------------------------------- */

/* Heap entries: rank << 32 | place, so that the smallest is the lowest rank, then the leftmost. */
static void sift_down(uint64_t *heap, size_t n, size_t i)
{
	uint64_t v = heap[i];
	size_t child;

	while ((child = 2 * i + 1) < n) {
		if (child + 1 < n && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= v)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = v;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t v)
{
	size_t i = (*n)++, parent;

	while (i && heap[parent = (i - 1) / 2] > v) {
		heap[i] = heap[parent];
		i = parent;
	}
	heap[i] = v;
}

static err_code reserve_symbols(struct bpe_run *r, size_t n, struct err *e)
{
	size_t cap = n > 64 ? n : 64;

	if (n <= r->cap)
		return ERR_OK;
	if (n >= UINT32_MAX / 2)
		return err_set(e, ERR_INPUT, "a word of %zu bytes is too long", n);
	free(r->symbols);
	free(r->heap);
	r->cap = 0;
	r->heap = NULL;
	r->symbols = mem_alloc(cap, sizeof *r->symbols, e);
	if (!r->symbols)
		return e->code;
	r->heap = mem_alloc(cap, 2 * sizeof *r->heap, e);
	if (!r->heap)
		return e->code;
	r->cap = cap;
	return ERR_OK;
}

/* The pair of the symbol at `place` and the next, as a heap entry if it merges. */
static void push_pair(const struct bpe *b, const struct bpe_run *r, uint32_t place, size_t *n_heap)
{
	const struct bpe_symbol *s = r->symbols;
	const struct bpe_merge *m;

	if (s[place].next == BPE_NONE)
		return;
	m = bpe_merge_slot(b, s[place].id, s[s[place].next].id);
	if (m->left != BPE_NONE)
		heap_push(r->heap, n_heap, (uint64_t)m->rank << 32 | place);
}

/* The word's bytes as symbols. */
static void split_word(const struct bpe *b, struct bpe_run *r, const char *word, size_t len)
{
	struct bpe_symbol *s = r->symbols;
	bool unknown = false; /* the byte before */
	uint32_t n = 0;

	for (uint32_t i = 0; i < len; i++) {
		uint32_t id = b->byte_id[(uint8_t)word[i]];
		bool fuse = id == BPE_NONE && unknown && b->fuse_unk;

		unknown = id == BPE_NONE;
		if (unknown)
			id = b->unk_id;
		if (fuse && n)
			s[n - 1].end = i + 1;
		else if (id != BPE_NONE)
			s[n] = (struct bpe_symbol){id, n - 1, n + 1, i + 1}, n++;
	}
	if (n) {
		s[0].prev = BPE_NONE;
		s[n - 1].next = BPE_NONE;
	}
	r->n_symbols = n;
}

/* Leaves the word's tokens as a list from symbols[0], if there is any. Each merge takes an entry and adds at most two,
 * and there are at most len - 1 of them: the heap never passes 2 * len. */
static err_code merge_word(const struct bpe *b, struct bpe_run *r, const char *word, size_t len, struct err *e)
{
	struct bpe_symbol *s;
	const struct bpe_merge *m;
	size_t n_heap = 0;

	if (reserve_symbols(r, len, e))
		return e->code;
	split_word(b, r, word, len);
	s = r->symbols;
	for (uint32_t i = 0; i < r->n_symbols; i++)
		push_pair(b, r, i, &n_heap);
	while (n_heap) {
		uint32_t rank = (uint32_t)(r->heap[0] >> 32), at = (uint32_t)r->heap[0], right;

		r->heap[0] = r->heap[--n_heap];
		if (n_heap)
			sift_down(r->heap, n_heap, 0);
		right = s[at].next;
		if (s[at].id == BPE_NONE || right == BPE_NONE)
			continue;
		m = bpe_merge_slot(b, s[at].id, s[right].id);
		if (m->left == BPE_NONE || m->rank != rank)
			continue;
		s[at].id = m->id;
		s[at].end = s[right].end;
		s[at].next = s[right].next;
		s[right].id = BPE_NONE;
		if (s[at].next != BPE_NONE)
			s[s[at].next].prev = at;
		if (s[at].prev != BPE_NONE)
			push_pair(b, r, s[at].prev, &n_heap);
		push_pair(b, r, at, &n_heap);
	}
	return ERR_OK;
}

/* Whether the tokens of the word are its bytes one after the other, so that their lengths say where each ends. */
static bool is_covered(const struct bpe *b, const char *word, size_t len)
{
	for (size_t i = 0; b->has_gaps && i < len; i++)
		if (b->byte_id[(uint8_t)word[i]] == BPE_NONE)
			return false;
	return true;
}

err_code bpe_check_whole(const struct bpe *b, struct bpe_run *r, uint32_t id, bool *whole, struct err *e)
{
	const char *word = token_bytes(b, id);
	size_t len = b->tokens[id].len;

	*whole = false;
	if (!len || !is_covered(b, word, len))
		return ERR_OK;
	if (merge_word(b, r, word, len, e))
		return e->code;
	*whole = r->symbols[0].next == BPE_NONE && r->symbols[0].id == id;
	return ERR_OK;
}

/* -- the cache --------------------------------------------------------------------------------- */

void bpe_run_release(struct bpe_run *r)
{
	if (!r)
		return;
	free(r->symbols);
	free(r->heap);
	free(r->cache);
	*r = (struct bpe_run){0};
}

void bpe_run_forget(struct bpe_run *r)
{
	free(r->cache);
	r->cache = NULL;
}

static err_code open_cache(struct bpe_run *r, size_t text_len, struct err *e)
{
	size_t n = CACHE_MIN;

	while (n < CACHE_MAX && n < text_len / 16)
		n *= 2;
	r->cache = mem_zalloc(n, sizeof *r->cache, e);
	r->cache_mask = n - 1;
	return r->cache ? ERR_OK : e->code;
}

/* The slot of the word, or one to keep it in. */
static struct bpe_cached *cache_slot(const struct bpe_run *r, const char *word, size_t len, uint32_t hash)
{
	struct bpe_cached *c;

	for (size_t i = 0; i < CACHE_PROBES; i++) {
		c = &r->cache[(hash + i) & r->cache_mask];
		if (!c->word || (c->hash == hash && c->len == len && !memcmp(c->word, word, len)))
			return c;
	}
	c = &r->cache[hash & r->cache_mask];
	c->word = NULL;
	return c;
}

/* -- words ------------------------------------------------------------------------------------- */

static void put_token(const struct bpe *b, uint32_t id, size_t *end, struct token_list *out)
{
	*end += b->tokens[id].len;
	out->ids[out->n] = id;
	out->ends[out->n++] = *end;
}

/* The tokens that merges give. The caller has made room. */
static err_code put_merged(const struct bpe *b, struct bpe_run *r, const char *word, size_t len, size_t base,
                           struct token_list *out, struct err *e)
{
	if (merge_word(b, r, word, len, e))
		return e->code;
	for (uint32_t i = r->n_symbols ? 0 : BPE_NONE; i != BPE_NONE; i = r->symbols[i].next) {
		out->ids[out->n] = r->symbols[i].id;
		out->ends[out->n++] = base + r->symbols[i].end;
	}
	if (b->has_gaps && b->unk_id == BPE_NONE)
		out->n_dropped += len - r->n_symbols;
	return ERR_OK;
}

err_code bpe_encode(const struct bpe *b, struct bpe_run *r, const char *word, size_t len, size_t base, size_t text_len,
                    struct token_list *out, struct err *e)
{
	uint32_t hash, id;
	struct bpe_cached *c;

	if (!len)
		return ERR_OK;
	if (len > out->cap - out->n && token_list_reserve(out, len, e))
		return e->code;
	hash = hash_word(word, len);
	id = find_hashed(b, word, len, false, hash);
	if (id != BPE_NONE && (b->tokens[id].whole || b->ignore_merges)) {
		put_token(b, id, &base, out);
		return ERR_OK;
	}
	if (len > CACHE_WORD_MAX || !is_covered(b, word, len))
		return put_merged(b, r, word, len, base, out, e);
	if (!r->cache && open_cache(r, text_len, e))
		return e->code;
	c = cache_slot(r, word, len, hash);
	if (c->word) {
		for (size_t i = 0; i < c->n; i++)
			put_token(b, out->ids[c->first + i], &base, out);
		return ERR_OK;
	}
	*c = (struct bpe_cached){NULL, (uint32_t)len, hash, out->n, 0};
	if (put_merged(b, r, word, len, base, out, e))
		return e->code;
	c->n = (uint32_t)(out->n - c->first);
	c->word = word;
	return ERR_OK;
}
