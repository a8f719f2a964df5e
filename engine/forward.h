/* The forward pass over one packed batch: checks it, lays it out as rows, and drives a backend's ops. */
#ifndef FATHOM_ENGINE_FORWARD_H
#define FATHOM_ENGINE_FORWARD_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/backend.h"

/* What a session's probe needs. Zeroed before the first pass. */
struct probe {
	struct frequency_use *use; /* borrowed; NULL: there is no probe */
	float *q, *k;              /* owned: a few rows, of every head */
};

/* What a running pass shares with other threads, and what passes leave to the next. Zeroed before the first. */
struct forward_control {
	atomic_bool stop;             /* polled between chunks: ERR_CANCELLED */
	_Atomic uint64_t done_tokens; /* only grows; by n_tokens over a whole pass */
	struct layout *layout;        /* owned; the pass's alone */
	struct probe probe;
};
void forward_release(struct forward_control *c);

/* session_score's contract. */
err_code forward_run(const struct backend_ops *ops, struct backend *b, const struct model_config *config,
                     const struct batch *batch, struct forward_control *control,
                     struct token_score *out /* [n_tokens] */, struct err *e);

/* probe.c: adds the magnitudes of rows row0..row1 of a layer, whose qkv was the last op. */
err_code probe_rows(struct probe *p, const struct backend_ops *ops, struct backend *b, const struct model_config *c,
                    uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
void probe_release(struct probe *p);

#endif
