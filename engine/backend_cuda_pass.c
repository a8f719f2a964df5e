/* A pass on the GPU: its layout, its end, and its replay.
 *
 * Keys and values lie in slots. A segment owns whole panels of `block` slots, aligned to chain positions: those with
 * its rows. If it starts inside a panel, that panel begins with copies of its ancestors' keys; the panels before are
 * its ancestors' own, so its chain is a list of panels. Segments own panels in order, so the list of a segment
 * without parent is a run of 0, 1, 2, ..., which stands in the arena; only others bring a list.
 *
 * All launches of a pass are a function of its key, so the second small pass of a key is captured as a graph and
 * later ones replay it: their ops do nothing. The first that comes to its end runs as it is, for products ask for
 * algorithms then. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend_cuda.h"
#include "engine/buf.h"
#include "engine/panels.h"

_Static_assert(sizeof(struct kern_score) == sizeof(struct token_score), "scores are copied whole");

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static uint32_t panel_of(const struct backend *b, uint32_t pos)
{
	return pos / b->shape.block;
}

/* -- the layout's sizes ---------------------------------------------------------------------------- */

/* Words of a part of what goes up: 16-byte units, for tiles are read so. */
static uint64_t part(uint64_t n)
{
	return (n + 3) / 4 * 4;
}

struct count {
	uint64_t panels, lists, copies, tiles, longest;
};

/* Sets each segment's first panel and list. The list's index is within what goes up for now. */
static void count_segments(struct backend *b, struct count *n)
{
	const struct pass *p = &b->pass;
	uint32_t block = b->shape.block;

	*n = (struct count){0};
	for (uint32_t i = 0; i < p->n_segments; i++) {
		const struct pass_segment *s = &p->segments[i];
		uint32_t last;

		b->segment_panel[i] = (uint32_t)n->panels;
		b->segment_list[i] = (uint32_t)n->lists;
		if (!s->n_row)
			continue;
		last = panel_of(b, s->start_pos + s->n_row - 1);
		n->panels += panels_of_segment(s, block);
		n->tiles += s->n_row / b->shape.tile_rows + 1;
		n->longest = last > n->longest ? last : n->longest;
		if (s->parent >= 0) {
			n->lists += last + 1;
			n->copies += s->start_pos % block;
		}
	}
}

/* Grows an array of the host's; its content is lost. */
static err_code grow(uint32_t **array, size_t *cap, size_t n, struct err *e)
{
	if (n <= *cap && *array)
		return ERR_OK;
	free(*array);
	*cap = 0;
	*array = mem_alloc(n + n / 4 + 16, sizeof **array, e);
	if (!*array)
		return e->code;
	*cap = n + n / 4 + 16;
	return ERR_OK;
}

static err_code grow_tiles(struct backend *b, size_t n, struct err *e)
{
	if (n <= b->tiles_cap)
		return ERR_OK;
	free(b->tiles);
	b->tiles_cap = 0;
	b->tiles = mem_alloc(n + n / 4, sizeof *b->tiles, e);
	if (!b->tiles)
		return e->code;
	b->tiles_cap = n + n / 4;
	return ERR_OK;
}

static err_code reserve_segments(struct backend *b, struct err *e)
{
	size_t n = b->pass.n_segments;

	if (grow(&b->segment_panel, &b->segments_cap, n, e) || grow(&b->segment_list, &b->lists_cap, n, e))
		return e->code;
	return ERR_OK;
}

/* Makes room on the device and the host, and says where what goes up lies but for the end. */
static err_code reserve(struct backend *b, const struct count *n, struct err *e)
{
	const struct pass *p = &b->pass;
	uint64_t n_chunks = p->n_rows / min_size(b->chunk, LEAST_CHUNK) + 1, tiles = n->tiles + n_chunks;
	uint64_t slots = n->panels * b->shape.block, rows = part(p->n_rows), preds = part(p->n_pred);
	uint64_t words = part(n->lists) + 4 * tiles + part(2 * n->copies) + 3 * rows + 2 * preds;
	struct extent need = {.rows = p->n_rows,
	                      .preds = p->n_pred,
	                      .chunk = p->n_rows > p->n_pred ? p->n_rows : p->n_pred,
	                      .slots = (uint32_t)slots,
	                      .words = (uint32_t)words};
	err_code rc;

	if (slots > UINT32_MAX / 2 || words > UINT32_MAX / 2)
		return err_set(e, ERR_MEMORY, "a batch of %u segments with %llu keys and %llu tiles is too large",
		               p->n_segments, (unsigned long long)slots, (unsigned long long)tiles);
	if ((rc = cuda_reserve(b, need, e)) || (rc = grow_tiles(b, n->tiles + 1, e)) ||
	    (rc = grow(&b->buckets, &b->buckets_cap, n->longest + 2, e)))
		return rc;
	b->n_chunks = (p->n_rows - 1) / b->chunk + 1;
	if ((rc = grow(&b->chunk_tiles, &b->chunks_cap, b->n_chunks + 1, e)) ||
	    (rc = grow(&b->chunk_copies, &b->copies_cap, b->n_chunks + 1, e)))
		return rc;
	b->at.tiles = (uint32_t)part(n->lists);
	return ERR_OK;
}

/* -- what goes up ---------------------------------------------------------------------------------- */

/* The panels of each chain that is no run; turns segment_list into an index into the arena's panels. */
static void put_lists(struct backend *b)
{
	const struct pass_segment *segments = b->pass.segments;

	for (uint32_t i = 0; i < b->pass.n_segments; i++) {
		const struct pass_segment *s = &segments[i];
		uint32_t n = s->n_row ? panel_of(b, s->start_pos + s->n_row - 1) + 1 : 0;
		uint32_t *list = b->host_up + b->segment_list[i];

		if (s->parent < 0) {
			b->segment_list[i] = b->segment_panel[i];
			continue;
		}
		b->segment_list[i] += b->arena.identity;
		for (int64_t j = i; j >= 0 && n; j = segments[j].parent)
			for (uint32_t first = panel_of(b, segments[j].start_pos); n > first; n--)
				list[n - 1] = b->segment_panel[j] + n - 1 - first;
	}
}

/* The slot of the key at a position of a segment's own. */
static uint32_t slot_of(const struct backend *b, uint32_t segment, uint32_t pos)
{
	uint32_t start = b->pass.segments[segment].start_pos, block = b->shape.block;

	return b->segment_panel[segment] * block + start % block + (pos - start);
}

/* The copies of segments that start in a chunk come with that chunk: their ancestors' rows are all before. */
static void put_copies(struct backend *b)
{
	const struct pass_segment *segments = b->pass.segments;
	struct kern_slot_copy *copies = (struct kern_slot_copy *)(b->host_up + b->at.copies);
	uint32_t n = 0, chunk = 0;

	b->chunk_copies[0] = 0;
	for (uint32_t i = 0; i < b->pass.n_segments; i++) {
		const struct pass_segment *s = &segments[i];
		uint32_t pos = s->start_pos, first = pos - pos % b->shape.block,
		         own = b->segment_panel[i] * b->shape.block;

		if (!s->n_row || s->parent < 0)
			continue;
		while (chunk < s->row / b->chunk)
			b->chunk_copies[++chunk] = n;
		for (int32_t j = s->parent; j >= 0 && pos > first; j = segments[j].parent)
			for (; pos > first && pos > segments[j].start_pos; pos--)
				copies[n++] =
				    (struct kern_slot_copy){own + pos - 1 - first, slot_of(b, (uint32_t)j, pos - 1)};
	}
	while (chunk < b->n_chunks)
		b->chunk_copies[++chunk] = n;
	b->at.tokens = b->at.copies + (uint32_t)part(2 * (uint64_t)n);
}

/* The tiles of the rows row0..row1, whose first segment is *segment; it moves on. In order of rows. */
static uint32_t list_tiles(struct backend *b, uint32_t *segment, uint32_t row0, uint32_t row1)
{
	const struct pass_segment *segments = b->pass.segments;
	uint32_t n = 0;

	for (uint32_t row = row0; row < row1;) {
		const struct pass_segment *s = &segments[*segment];
		uint32_t end = (uint32_t)min_size(s->row + s->n_row, row1);

		for (uint32_t rows; row < end; row += rows) {
			rows = (uint32_t)min_size(end - row, b->shape.tile_rows);
			b->tiles[n++] = (struct kern_tile){.row = row - row0,
			                                   .n_rows = rows,
			                                   .pos0 = s->start_pos + (row - s->row),
			                                   .panels = b->segment_list[*segment]};
		}
		if (row < row1)
			++*segment;
	}
	return n;
}

/* Longest chains first, by buckets of panels; in order of rows within a bucket. */
static void sort_tiles(struct backend *b, struct kern_tile *out, uint32_t n)
{
	uint32_t most = 0, at = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t last = panel_of(b, b->tiles[i].pos0 + b->tiles[i].n_rows - 1);

		most = last > most ? last : most;
	}
	memset(b->buckets, 0, ((size_t)most + 1) * sizeof *b->buckets);
	for (uint32_t i = 0; i < n; i++)
		b->buckets[panel_of(b, b->tiles[i].pos0 + b->tiles[i].n_rows - 1)]++;
	for (uint32_t i = most + 1; i-- > 0;) {
		uint32_t count = b->buckets[i];

		b->buckets[i] = at;
		at += count;
	}
	for (uint32_t i = 0; i < n; i++)
		out[b->buckets[panel_of(b, b->tiles[i].pos0 + b->tiles[i].n_rows - 1)]++] = b->tiles[i];
}

static void put_tiles(struct backend *b)
{
	struct kern_tile *tiles = (struct kern_tile *)(b->host_up + b->at.tiles);
	uint32_t segment = 0, n = 0;

	for (uint32_t i = 0; i < b->n_chunks; i++) {
		uint32_t row0 = i * b->chunk, row1 = (uint32_t)min_size((uint64_t)row0 + b->chunk, b->pass.n_rows),
		         more;

		b->chunk_tiles[i] = n;
		more = list_tiles(b, &segment, row0, row1);
		sort_tiles(b, tiles + n, more);
		n += more;
	}
	b->chunk_tiles[b->n_chunks] = n;
	b->at.copies = b->at.tiles + 4 * n;
}

static void put_rows(struct backend *b)
{
	const struct pass *p = &b->pass;
	uint32_t rows = (uint32_t)part(p->n_rows), preds = (uint32_t)part(p->n_pred), *slot;

	b->at.pos = b->at.tokens + rows;
	b->at.slot = b->at.pos + rows;
	b->at.targets = b->at.slot + rows;
	b->at.pred_row = b->at.targets + preds;
	b->at.end = b->at.pred_row + preds;
	memcpy(b->host_up + b->at.tokens, p->tokens, p->n_rows * sizeof *p->tokens);
	memcpy(b->host_up + b->at.pos, p->pos, p->n_rows * sizeof *p->pos);
	memcpy(b->host_up + b->at.targets, p->pred_target, p->n_pred * sizeof *p->pred_target);
	memcpy(b->host_up + b->at.pred_row, p->pred_row, p->n_pred * sizeof *p->pred_row);
	slot = b->host_up + b->at.slot;
	for (uint32_t i = 0; i < p->n_segments; i++) {
		const struct pass_segment *s = &p->segments[i];
		uint32_t first = slot_of(b, i, s->start_pos);

		for (uint32_t r = 0; r < s->n_row; r++)
			slot[s->row + r] = first + r;
	}
}

/* -- replay ---------------------------------------------------------------------------------------- */

static bool same_key(const struct pass_key *a, const struct pass_key *b)
{
	return !memcmp(a, b, sizeof *a);
}

static struct graph *find_graph(struct backend *b)
{
	for (int i = 0; i < N_GRAPHS; i++)
		if (b->graphs[i].exec && same_key(&b->graphs[i].key, &b->key))
			return &b->graphs[i];
	return NULL;
}

static bool was_seen(const struct backend *b)
{
	for (uint32_t i = 0; i < N_SEEN && i < b->n_seen; i++)
		if (same_key(&b->seen[i], &b->key))
			return true;
	return false;
}

/* A pass that can be replayed: small, and in one piece. */
static bool is_small(const struct backend *b)
{
	return b->key.n_rows <= GRAPH_ROWS && b->key.n_pred <= GRAPH_ROWS && b->n_chunks == 1 &&
	       b->key.n_pred <= b->chunk;
}

/* After a pass that came to its end; one that was stopped has not asked for all its algorithms. */
static void remember(struct backend *b)
{
	if (is_small(b) && !was_seen(b))
		b->seen[b->n_seen++ % N_SEEN] = b->key;
}

static enum pass_mode choose_mode(struct backend *b)
{
	if (!is_small(b) || b->pass.probed) /* a probe waits in the middle */
		return PASS_LAUNCH;
	if (find_graph(b))
		return PASS_REPLAY;
	return was_seen(b) ? PASS_CAPTURE : PASS_LAUNCH;
}

void cuda_drop_graphs(struct backend *b)
{
	for (int i = 0; i < N_GRAPHS; i++)
		if (b->graphs[i].exec)
			cudaGraphExecDestroy(b->graphs[i].exec);
	memset(b->graphs, 0, sizeof b->graphs);
	b->n_seen = 0;
}

/* Ends the capture; if the pass is complete, its graph takes the place of the one that is longest unused, and runs. */
static int finish_capture(struct backend *b)
{
	struct graph *oldest = &b->graphs[0];
	cudaGraph_t graph = NULL;
	int rc = cudaStreamEndCapture(b->stream, &graph);

	if (rc || !b->complete)
		goto out;
	for (int i = 1; i < N_GRAPHS; i++)
		if (b->graphs[i].used < oldest->used)
			oldest = &b->graphs[i];
	if (oldest->exec)
		cudaGraphExecDestroy(oldest->exec);
	*oldest = (struct graph){.key = b->key, .used = b->n_passes};
	if (!(rc = cudaGraphInstantiate(&oldest->exec, graph, 0)))
		rc = cudaGraphLaunch(oldest->exec, b->stream);
	else
		*oldest = (struct graph){0};
out:
	if (graph)
		cudaGraphDestroy(graph);
	return rc;
}

/* -- begin and end --------------------------------------------------------------------------------- */

err_code cuda_begin(struct backend *b, const struct pass *p, struct err *e)
{
	struct count n;
	err_code code;
	int rc;

	b->pass = *p;
	b->mode = PASS_LAUNCH;
	b->complete = false;
	b->n_passes++;
	if ((rc = cudaSetDevice(b->device)))
		return cuda_error(e, rc, "device cuda:%d", b->device);
	if ((code = reserve_segments(b, e)))
		return code;
	count_segments(b, &n);
	if ((code = reserve(b, &n, e)))
		return code;
	put_lists(b);
	put_tiles(b);
	put_copies(b);
	put_rows(b);
	b->key = (struct pass_key){p->n_rows, p->n_pred, b->chunk_tiles[b->n_chunks], b->chunk_copies[b->n_chunks],
	                           b->at.tiles};
	if ((rc = cudaMemcpyAsync(b->arena.up, b->host_up, b->at.end * sizeof(uint32_t), cudaMemcpyHostToDevice,
	                          b->stream)) ||
	    (rc = cudaMemsetAsync(b->arena.fault, 0xff, sizeof *b->arena.fault, b->stream)))
		return cuda_error(e, rc, "a batch goes up");
	b->mode = choose_mode(b);
	if (b->mode == PASS_CAPTURE && (rc = cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal))) {
		b->mode = PASS_LAUNCH;
		return cuda_error(e, rc, "capturing a pass");
	}
	return ERR_OK;
}

/* What a branch adds to the residual is seen by the norm of the next one. */
static err_code describe_fault(const struct backend *b, unsigned long long fault, struct err *e)
{
	static const char *const seen_by[] = {
	    [STAGE_INPUT] = "the mlp",
	    [STAGE_QKV] = "queries, keys and values",
	    [STAGE_MLP] = "attention's output",
	};
	uint32_t stage = (uint32_t)(fault >> 32), row = (uint32_t)fault, layer = stage / N_STAGES,
	         step = stage % N_STAGES;
	const char *what = seen_by[step];

	if (layer == b->c.n_layer && step != STAGE_INPUT)
		row = row < b->pass.n_pred ? b->pass.pred_row[row] : 0;
	row = row < b->pass.n_rows ? row : 0;
	if (layer == b->c.n_layer && step != STAGE_INPUT)
		return pass_fault(&b->pass, row, -1, NULL, e);
	if (step == STAGE_INPUT && layer == 0)
		what = seen_by[STAGE_QKV];
	else if (step == STAGE_INPUT)
		layer--;
	return pass_fault(&b->pass, row, layer, what, e);
}

/* Waits: asleep for a pass that takes long. */
static int wait(struct backend *b)
{
	int rc;

	if (b->key.n_rows <= GRAPH_ROWS)
		return cudaStreamSynchronize(b->stream);
	if ((rc = cudaEventRecord(b->done, b->stream)))
		return rc;
	return cudaEventSynchronize(b->done);
}

err_code cuda_end(struct backend *b, struct err *e)
{
	struct graph *graph;
	int rc = 0;

	if (b->mode == PASS_REPLAY) {
		if (b->complete && (graph = find_graph(b))) {
			graph->used = b->n_passes;
			rc = cudaGraphLaunch(graph->exec, b->stream);
		}
	} else {
		rc = cudaMemcpyAsync(b->host_fault, b->arena.fault, sizeof *b->host_fault, cudaMemcpyDeviceToHost,
		                     b->stream);
		if (b->mode == PASS_CAPTURE)
			rc = finish_capture(b);
	}
	b->mode = PASS_LAUNCH;
	if (!rc)
		rc = wait(b);
	if (rc) {
		cuda_drop_graphs(b);
		return cuda_error(e, rc, "scoring a batch of %u rows", b->pass.n_rows);
	}
	if (*b->host_fault != UINT64_MAX) {
		/* keys and values that nothing overwrites are read (and masked) by others, so must be finite */
		if ((rc = cudaMemsetAsync(b->arena.k, 0, b->arena.kv_bytes, b->stream)))
			return cuda_error(e, rc, "clearing keys and values");
		if (b->complete)
			return describe_fault(b, *b->host_fault, e);
	}
	if (b->complete) {
		memcpy(b->out, b->host_scores, b->pass.n_pred * sizeof *b->out);
		remember(b);
	}
	return ERR_OK;
}

void cuda_release_pass(struct backend *b)
{
	free(b->segment_panel);
	free(b->segment_list);
	free(b->tiles);
	free(b->buckets);
	free(b->chunk_tiles);
	free(b->chunk_copies);
}
