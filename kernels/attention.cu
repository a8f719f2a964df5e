/* Which attention kernel takes which shape, and the calls. The rule is kern_attention_shape_cuda's: a function of
 * compute capability, type, head_dim and scheme alone, so that a score depends neither on the batch nor on lengths. */
#include "kernels/attention.cuh"
#include "kernels/attention_tile.cuh"

/* f32: attention_f32.cu, any even head_dim up to 256.
 * Half types: head_dim is padded up to 64 or 128, or to 256 but not for PoPE, whose keys would be 512 wide.
 *   9.0:   attention_sm90.cu, up to 128;
 *   other: attention_mma.cu, and on 9.0 for what is wider.
 * On an H200, causal, 4 x 10240, TFLOP/s of the two: (d_qk, d_v) = (64, 64) 518, 275; (128, 64) 623, 334;
 * (128, 128) 596, 350; (256, 128) 649, 335.
 * Cards newer than 9.0 run the latter, from PTX. */
int kern_attention_shape_cuda(struct kern_attention_shape *out, int compute_capability, enum kern_type type,
                              uint32_t head_dim, bool pope)
{
	uint32_t width = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;

	if (compute_capability < 80 || !head_dim || head_dim % 2 || head_dim > 256)
		return -1;
	if (type == KERN_F32) {
		width = ceil_div(head_dim, 4u) * 4;
		*out = {pope ? 2 * width : width, width, 64, 64, KERN_F32};
		return 0;
	}
	if (pope && width > 128)
		return -1;
	*out = {pope ? 2 * width : width, width, 128, 64, KERN_F16};
	if (compute_capability == 90 && width <= 128)
		return kern_attention_sm90_shape(out->d_qk, out->d_v, &out->tile_rows, &out->block);
	return 0;
}

static int attend(const struct kern_attention_cuda *a, int device, bool portable, struct CUstream_st *stream)
{
	struct kern_attention_shape shape;
	int capability, rc = capability_of(&capability, device);

	if (rc)
		return rc;
	if (kern_attention_shape_cuda(&shape, capability, a->type, a->head_dim, a->pope) || !a->n_kv_head ||
	    a->n_head % a->n_kv_head || a->out_stride < a->n_head * a->head_dim || a->out_stride % 2 || !(a->scale > 0))
		return BAD_ARGS;
	if (!a->n_tiles || !a->n_head)
		return 0;
	if (!portable && capability == 90 && a->type != KERN_F32 && shape.d_v <= 128)
		return kern_attention_sm90(a, device, stream);

	struct attention_args args = {};
	args.out = a->out;
	args.q = a->q;
	args.k = a->k;
	args.v = a->v;
	args.tiles = a->tiles;
	args.panels = a->panels;
	args.head_dim = a->head_dim;
	args.q_rows = a->q_rows;
	args.n_slots = a->n_slots;
	args.out_stride = a->out_stride;
	args.group = a->n_head / a->n_kv_head;
	args.block = shape.block;
	args.d_qk = shape.d_qk;
	args.d_v = shape.d_v;
	args.scale_log2e = a->scale * LOG2E;
	if (a->type == KERN_F32)
		return attention_f32(&args, a->n_tiles, a->n_head, shape.tile_rows, stream);
	return attention_mma(&args, a->n_tiles, a->n_head, shape.tile_rows, a->type, stream);
}

int kern_attention_cuda(const struct kern_attention_cuda *a, int device, struct CUstream_st *stream)
{
	return attend(a, device, false, stream);
}

int kern_attention_mma_cuda(const struct kern_attention_cuda *a, int device, struct CUstream_st *stream)
{
	return a->type == KERN_F32 ? BAD_ARGS : attend(a, device, true, stream);
}
