/* See panels.h. */
#include "engine/panels.h"

uint32_t panels_of_segment(const struct pass_segment *s, uint32_t block)
{
	return s->n_row ? (s->start_pos + s->n_row - 1) / block - s->start_pos / block + 1 : 0;
}

/* A segment of n rows that begins a panel has (n + block - 1) / block, rounded down. One that begins at any of a
 * panel's positions, all as likely, has as many on the average, not rounded: (n - 1) / block panels' borders, and 1. */
uint64_t panels_of_batch(struct batch_size size, uint32_t block)
{
	return (size.n_tokens + size.n_segments * (block - 1)) / block;
}
