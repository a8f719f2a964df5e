/* Shots: the solved examples that stand before a context, each with a blank line after it. Never the scored example:
 * one with the same context and choices is passed over. */
#include <stdlib.h>
#include <string.h>

#include "eval/example_plan.h"
#include "eval/random.h"

err_code shots_add(struct example_plan *p, const struct examples *x, int64_t gold, struct err *e)
{
	struct shot *s = mem_grow(p->shots, &p->cap_shots, p->n_shots + 1, sizeof *s, e);
	size_t context = x->choices[0].at, from = x->choices[gold].at;
	size_t to = (size_t)gold + 1 < x->n_choices ? x->choices[gold + 1].at : x->text.len;

	if (!s)
		return e->code;
	p->shots = s;
	s = &p->shots[p->n_shots++];
	*s = (struct shot){.len = x->text.len, .n_solution = context + to - from};
	s->text = mem_alloc(s->len, 1, e);
	s->solution = mem_alloc(s->n_solution, 1, e);
	if (!s->text || !s->solution)
		return e->code;
	memcpy(s->text, x->text.data, s->len);
	memcpy(s->solution, x->text.data, context);
	memcpy(s->solution + context, x->text.data + from, to - from);
	return ERR_OK;
}

static bool is_scored(const struct shot *s, const struct examples *x)
{
	return s->len == x->text.len && !memcmp(s->text, x->text.data, s->len);
}

/* Puts the i-th of a random order of all shots at order[i], those before it in place: Fisher and Yates, as far as
 * needed. */
static size_t shuffle_step(struct example_plan *p, size_t i, uint64_t *state)
{
	size_t k = i + (size_t)random_below(state, p->n_shots - i);
	uint32_t at = p->order[k];

	p->order[k] = p->order[i];
	p->order[i] = at;
	return at;
}

static err_code make_order(struct example_plan *p, struct err *e)
{
	if (!p->order)
		p->order = mem_alloc(p->n_shots, sizeof *p->order, e);
	if (!p->order)
		return e->code;
	for (size_t i = 0; i < p->n_shots; i++)
		p->order[i] = (uint32_t)i;
	return ERR_OK;
}

err_code shots_write(struct example_plan *p, const struct examples *x, struct buf *out, struct err *e)
{
	/* an example's draws depend on the seed and its number alone */
	uint64_t state = (uint64_t)p->seed << 32 ^ p->n_items;
	size_t left = (size_t)p->n_shot;

	if (left && p->seeded && make_order(p, e))
		return e->code;
	for (size_t i = 0; left && i < p->n_shots; i++) {
		const struct shot *s = &p->shots[p->seeded ? shuffle_step(p, i, &state) : i];

		if (is_scored(s, x))
			continue;
		buf_append(out, s->solution, s->n_solution);
		buf_puts(out, "\n\n");
		left--;
	}
	if (!left)
		return ERR_OK;
	err_set(e, ERR_INPUT, "n_shot: %lld, and shots_from has %zu examples besides this one", (long long)p->n_shot,
	        (size_t)p->n_shot - left);
	return err_at(e, "/n_shot");
}

void shots_release(struct example_plan *p)
{
	for (size_t i = 0; i < p->n_shots; i++) {
		free(p->shots[i].text);
		free(p->shots[i].solution);
	}
	free(p->shots);
	free(p->order);
	p->shots = NULL;
	p->order = NULL;
	p->n_shots = 0;
}
