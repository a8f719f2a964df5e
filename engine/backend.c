/* What both backends do alike: see backend.h. */
#include "engine/backend.h"

uint32_t pass_segment_of(const struct pass *p, uint32_t row)
{
	uint32_t i = 0;

	while (i + 1 < p->n_segments && p->segments[i].row + p->segments[i].n_row <= row)
		i++;
	return i;
}

err_code pass_fault(const struct pass *p, uint32_t row, int64_t layer, const char *what, struct err *e)
{
	uint32_t pos = p->pos[row], segment = pass_segment_of(p, row);

	if (layer < 0)
		return err_set(e, ERR_NUMERIC, "the head, position %u of segment %u: not a finite number", pos,
		               segment);
	return err_set(e, ERR_NUMERIC, "layer %u, position %u of segment %u: not a finite number in %s",
	               (uint32_t)layer, pos, segment, what);
}

enum kern_act backend_act(enum activation act)
{
	static const enum kern_act acts[] = {
	    [ACT_GELU_TANH] = KERN_GELU_TANH,
	    [ACT_GELU] = KERN_GELU,
	    [ACT_SILU] = KERN_SILU,
	    [ACT_RELU] = KERN_RELU,
	};

	return acts[act];
}
