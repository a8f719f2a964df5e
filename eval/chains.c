/* See chains.h. In order of their tokens, chains with a common beginning stand together, and what a chain shares with
 * the one before it says where the tree of segments branches:
 *
 *    a a a a b b        shared 0        [a a a a] ── [b b]
 *    a a a a c c c             4                 └── [c c c] ── [d]
 *    a a a a c c c d           7 */
#include "eval/chains.h"

#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"

/* -- order ------------------------------------------------------------------------------------- */

static int compare(const void *pa, const void *pb)
{
	const struct chain *a = *(struct chain *const *)pa, *b = *(struct chain *const *)pb;
	uint32_t n = a->n < b->n ? a->n : b->n;

	for (uint32_t i = 0; i < n; i++)
		if (a->ids[i] != b->ids[i])
			return a->ids[i] < b->ids[i] ? -1 : 1;
	return a->n < b->n ? -1 : a->n > b->n;
}

static uint32_t common(const struct chain *a, const struct chain *b)
{
	uint32_t n = a->n < b->n ? a->n : b->n, i = 0;

	while (i < n && a->ids[i] == b->ids[i])
		i++;
	return i / CHAINS_STEP * CHAINS_STEP;
}

void chains_sort(struct chain **list, size_t n, bool share)
{
	qsort(list, n, sizeof(struct chain *), compare);
	for (size_t i = 0; i < n; i++)
		list[i]->shared = i && share ? common(list[i - 1], list[i]) : 0;
}

/* -- packing ----------------------------------------------------------------------------------- */

struct packer {
	struct chain *const *list;
	struct batch_builder *b;
	uint32_t *const *place;
};

/* The segment ids[from..to) that chains lo..hi have in common. */
static err_code put_segment(const struct packer *p, size_t lo, size_t hi, uint32_t from, uint32_t to, int32_t parent,
                            struct err *e)
{
	uint32_t start;

	if (batch_builder_add(p->b, parent, to - from, &start, e))
		return e->code;
	memcpy(p->b->tokens + start, p->list[lo]->ids + from, (to - from) * sizeof *p->b->tokens);
	for (size_t i = lo; i < hi; i++)
		for (uint32_t at = from; at < to; at++) {
			p->place[i][at] = start + (at - from);
			if (at >= p->list[i]->from)
				p->b->score[start + (at - from)] = 1;
		}
	return ERR_OK;
}

/* Chains lo..hi agree up to `from`, which stands there as segment `parent`. As deep as there are branches on one chain,
 * one every CHAINS_STEP tokens at most. */
static err_code put_tree(const struct packer *p, size_t lo, size_t hi, uint32_t from, int32_t parent, struct err *e)
{
	uint32_t to = p->list[lo]->n;

	for (size_t i = lo + 1; i < hi; i++)
		to = p->list[i]->shared < to ? p->list[i]->shared : to;
	if (to > from) {
		if (put_segment(p, lo, hi, from, to, parent, e))
			return e->code;
		parent = (int32_t)p->b->n_segments - 1;
	}
	for (size_t i = lo, next; hi - lo > 1 && i < hi; i = next) {
		for (next = i + 1; next < hi && p->list[next]->shared > to; next++)
			;
		if (put_tree(p, i, next, to, parent, e))
			return e->code;
	}
	return ERR_OK;
}

err_code chains_pack(struct chain *const *list, size_t n, struct batch_builder *b, uint32_t *const *place,
                     struct err *e)
{
	struct packer p = {list, b, place};

	for (size_t i = 0, next; i < n; i = next) {
		for (next = i + 1; next < n && list[next]->shared; next++)
			;
		if (put_tree(&p, i, next, 0, -1, e))
			return e->code;
	}
	return ERR_OK;
}

/* -- scoring ----------------------------------------------------------------------------------- */

/* Scores n chains as one batch. */
static err_code score_batch(struct session *s, struct chain *const *list, size_t n, struct err *e)
{
	struct batch_builder b = {0};
	struct token_score *scores = NULL;
	uint32_t **place = mem_alloc(n, sizeof *place, e), *places = NULL;
	size_t total = 0;
	err_code rc = place ? ERR_OK : ERR_MEMORY;

	for (size_t i = 0; i < n; i++)
		total += list[i]->n;
	if (!rc && !(places = mem_alloc(total, sizeof *places, e)))
		rc = ERR_MEMORY;
	for (size_t i = 0, at = 0; !rc && i < n; at += list[i++]->n)
		place[i] = places + at;
	if (!rc)
		rc = chains_pack(list, n, &b, place, e);
	if (!rc && !(scores = mem_alloc(b.n_tokens, sizeof *scores, e)))
		rc = ERR_MEMORY;
	if (!rc)
		rc = session_score(
		    s, &(struct batch){b.tokens, b.score, (uint32_t)b.n_tokens, b.segments, (uint32_t)b.n_segments},
		    scores, e);
	for (size_t i = 0; !rc && i < n; i++)
		for (uint32_t at = list[i]->from; at < list[i]->n; at++)
			list[i]->scores[at] = scores[place[i][at]];
	batch_builder_release(&b);
	free(scores);
	free(places);
	free(place);
	return rc;
}

/* Scores n chains, in halves if they fail together, so that only the guilty fail. */
static err_code score_fitting(struct session *s, struct chain **list, size_t n, chains_failed *failed, void *arg,
                              struct err *e)
{
	uint32_t cut = n > 1 ? list[n / 2]->shared : 0;
	err_code rc = score_batch(s, list, n, e);

	if (rc != ERR_NUMERIC && rc != ERR_MEMORY)
		return rc;
	if (n == 1) {
		failed(arg, list[0], e);
		return ERR_OK;
	}
	if (rc == ERR_MEMORY)
		session_shrink(s); /* so that later batches begin with what fits */
	rc = score_fitting(s, list, n / 2, failed, arg, e);
	list[n / 2]->shared = 0;
	if (!rc)
		rc = score_fitting(s, list + n / 2, n - n / 2, failed, arg, e);
	list[n / 2]->shared = cut;
	return rc;
}

err_code chains_score(struct session *s, struct chain **list, size_t n, bool share, chains_failed *failed, void *arg,
                      struct err *e)
{
	err_code rc = ERR_OK;

	chains_sort(list, n, share);
	for (size_t i = 0, next; !rc && i < n; i = next) {
		struct batch_size size = {list[i]->n, 1};

		list[i]->shared = 0; /* it begins a batch */
		for (next = i + 1; next < n; next++) {
			size.n_tokens += list[next]->n - list[next]->shared;
			size.n_segments += list[next]->shared ? 2 : 1; /* a branch cuts one */
			if (!session_takes(s, size))
				break;
		}
		rc = score_fitting(s, list + i, next - i, failed, arg, e);
	}
	return rc;
}
