/* Panels: both backends keep the keys and values of a pass in panels of `block` positions, aligned to the chain's
 * start. A segment owns whole panels, those that its rows touch, so a batch of many short segments has many more of
 * them than its tokens would fill. Pure numbers. */
#ifndef FATHOM_ENGINE_PANELS_H
#define FATHOM_ENGINE_PANELS_H

#include "engine/backend.h"

uint32_t panels_of_segment(const struct pass_segment *s, uint32_t block);

/* Of a batch, before it is there: an upper bound where segments begin chains, as these begin a panel; the mean where
 * they begin anywhere in one. */
uint64_t panels_of_batch(struct batch_size size, uint32_t block);

#endif
