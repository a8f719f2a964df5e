/* Private to eval/example*.c: what a plan of examples holds. Tokens of all examples lie in one array: an example's
 * context, then the scored tokens of its choices. */
#ifndef FATHOM_EVAL_EXAMPLE_PLAN_H
#define FATHOM_EVAL_EXAMPLE_PLAN_H

#include "eval/example.h"

struct choice_start {
	size_t at; /* in the text of the examples: where it begins, with its joint */
	size_t joint;
};

struct example_choice {
	size_t at;                    /* of its tokens in ids */
	uint32_t n, n_chars, n_bytes; /* scored tokens; code points and bytes without the joint */
};

struct example_item {
	size_t doc;     /* in names */
	size_t context; /* in ids */
	size_t choice;  /* index of its first */
	uint32_t n_context, n_choices, gold, group;
	uint32_t longest; /* tokens of its longest choice */
	bool apart;       /* each continuation is read with a context of its own */
	bool truncated;   /* the context was cut: for max_length, then apart; or by max_context_tokens */
	bool merged;      /* the tokens of context and continuation do not begin with the context's */
};

struct example_group {
	size_t name; /* in names */
	uint32_t n;
};

/* An example that is given solved. */
struct shot {
	char *text, *solution; /* owned: context and choices, to know the scored example by; context and right choice */
	size_t len, n_solution;
};

struct example_plan {
	int64_t max_length;
	int64_t limit;  /* INT64_MAX: none */
	int64_t prefix; /* the token in place of an empty context; -1: none */
	int64_t bos;    /* the token that the tokenizer puts first; -1: none */
	bool share;     /* contexts are read once for all choices */

	uint32_t *ids; /* [n_ids] owned, as all arrays here */
	size_t n_ids, cap_ids;
	struct example_choice *choices;
	size_t n_choices, cap_choices;
	struct example_item *items;
	size_t n_items, cap_items;
	struct example_group *groups;       /* in the order in which they were met */
	size_t n_groups, cap_groups, group; /* group: the one last met */
	struct buf names;                   /* strings with their NULs */

	struct shot *shots;
	size_t n_shots, cap_shots;
	uint32_t *order; /* [n_shots] a permutation: of shots=seeded */
	int64_t n_shot, seed;
	bool seeded;

	struct buf text;                  /* scratch of example_encode: shots, context, one continuation */
	struct token_list context, whole; /* scratch of it */
	bool drops;                       /* the example that is encoded: its text has bytes without a token */
	size_t n_drops;                   /* examples with such */
	size_t cut, n_cut;                /* the text up to this byte is these tokens, whatever follows the context */
};

/* Appends the shots for the example that x holds, each with a blank line after it, to out. */
err_code shots_write(struct example_plan *p, const struct examples *x, struct buf *out, struct err *e);
/* Keeps the example that x holds as one that shots are taken from. */
err_code shots_add(struct example_plan *p, const struct examples *x, int64_t gold, struct err *e);
void shots_release(struct example_plan *p);

/* Tokens of a choice's chain as the model reads it: of the context what is kept, and the choice. */
size_t item_chain(const struct example_plan *p, const struct example_item *item, size_t choice);

/* Tokenizes the example that x holds into ids and choices, and fills in all of `item` that says where they are. */
err_code example_encode(struct examples *x, struct example_item *item, struct err *e);

#endif
