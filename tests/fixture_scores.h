/* What the suites of scores share: batches that grow; that a token's score depends on its chain alone, to the bit, on
 * any device; and the numbers of the 29M models that are known. One batch at a time, in static storage. */
#ifndef FATHOM_TESTS_FIXTURE_SCORES_H
#define FATHOM_TESTS_FIXTURE_SCORES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/* -- one batch ----------------------------------------------------------------------------------- */

#define PACK_MAX_TOKENS   (1u << 18)
#define PACK_MAX_SEGMENTS 4000

struct pack {
	uint32_t tokens[PACK_MAX_TOKENS];
	uint8_t marks[PACK_MAX_TOKENS];
	struct segment segments[PACK_MAX_SEGMENTS];
	struct token_score out[PACK_MAX_TOKENS]; /* of the last pack_run; poisoned where nothing was scored */
	uint32_t n_tokens, n_segments;
};
extern struct pack packed;

void pack_clear(void);
/* Adds a segment; returns its index. Every token is scored that can be. */
int32_t pack_add(int32_t parent, const uint32_t *tokens, uint32_t n);
struct batch pack_batch(void); /* what is packed */
void pack_run(struct session *s);
/* The scores of segment i, from its token `first`, are the n of want, to the bit. */
void pack_same(int32_t i, uint32_t first, const struct token_score *want, uint32_t n, const char *what);

/* n ids below n_vocab, the same for the same seed. free() it. */
uint32_t *some_tokens(uint32_t n, uint32_t n_vocab, uint32_t seed);

/* threads, chunk: 0 for the backend's choice. */
struct session *open_session(const struct model *m, const char *device, const char *dtype, uint32_t threads,
                             uint32_t chunk);

/* -- the same bits ------------------------------------------------------------------------------- */

/* A document, and its scores when it is alone in a batch. */
struct subject {
	const struct model *model; /* borrowed, as both strings */
	const char *device, *dtype;
	struct session *session; /* two threads, the backend's own chunk */
	uint32_t n;
	uint32_t *doc;            /* [n] owned */
	struct token_score *want; /* [n] owned; [0] is not filled */
};
void subject_init(struct subject *t, const struct model *m, const char *device, const char *dtype, uint32_t n);
void subject_release(struct subject *t);

/* Each fails the test unless the document's scores are `want`, or those of chains written out in full. */
void subject_under(const struct subject *t, uint32_t threads, uint32_t chunk); /* and twice in one session */
void subject_at_every_row(const struct subject *t, uint32_t rows);             /* behind a filler of 1..rows rows */
void subject_with_shared_prefixes(const struct subject *t); /* contexts that end anywhere in a block; continuations */
void subject_as_chains(const struct subject *t);            /* of single tokens; of mixed links with side branches */
void subject_in_company(const struct subject *t);           /* of others, in two orders, every third token scored */
/* Trees of random shape, some leaves without a scored token: each chain against itself written out. */
void subject_as_trees(const struct subject *t, uint32_t seed);

/* -- faults -------------------------------------------------------------------------------------- */

/* Replaces an element of an F32 tensor, in a copy of its data. free() it after the model. */
void *poison_tensor(struct tensor *t, uint64_t index, float value);

/* Scoring these tokens, as segments of 60 and of the rest, fails twice with ERR_NUMERIC and these words. */
void scores_refused(const struct model *m, const char *device, const char *dtype, const uint32_t *tokens, uint32_t n,
                    const char *words);

/* -- known numbers ------------------------------------------------------------------------------- */

/* Which entries of reference.json to compare: NULL for all. */
typedef bool reference_filter(const char *book, uint32_t length);

/* A model of ../shared/models against models/reference.json: sums within `relative`, and the listed tokens within
 * `absolute` (0: not compared). Says SKIP, and returns false, without models or books. */
bool reference_check(const char *name, const char *device, const char *dtype, reference_filter *wanted, double relative,
                     double absolute);

#endif
