/* Task pg19: its parameters and the geometry of its windows: see pg19.h. */
#include "eval/pg19.h"

#include <assert.h>
#include <math.h>

#define MAX_LENGTH (1 << 24)
#define MAX_COUNT  INT32_MAX

const struct param pg19_params[] = {
    {"lengths", PARAM_INT_LIST, "[1024,2048,3072,4096,5120,6144,7168,8192,9216,10240]", NULL, 1, MAX_LENGTH,
     "the x axis: inputs of a window, in tokens"},
    {"protocol", PARAM_ENUM, "\"windows\"", "windows|sliding|prefix", 0, 0,
     "how a document is cut: side by side, overlapping, or one window from its start"},
    {"stride", PARAM_INT, "null", NULL, 1, MAX_LENGTH,
     "sliding only: how far the window moves, at most the length (256 unless given)"},
    {"bos", PARAM_ENUM, "\"none\"", "none|document|window", 0, 0,
     "a BOS token before each document, or (windows only) before each window"},
    {"max_docs", PARAM_INT, "null", NULL, 1, MAX_COUNT,
     "only the first documents of at least min_doc_tokens; null: all"},
    {"max_tokens_per_doc", PARAM_INT, "null", NULL, 1, MAX_COUNT,
     "cut each document after so many tokens (BOS not counted); null: none is cut"},
    {"min_doc_tokens", PARAM_INT, "null", NULL, 1, MAX_COUNT,
     "leave out shorter documents; null: none (prefix: max(lengths)+1)"},
    {"last_window", PARAM_ENUM, "\"keep\"", "keep|drop", 0, 0,
     "keep or drop every window with fewer predictions than its length"},
};

static err_code refuse(struct err *e, const char *name, const char *message)
{
	err_set(e, ERR_INPUT, "%s: %s", name, message);
	return err_at(e, "/%s", name);
}

static err_code resolve_stride(struct param_value *v, int64_t longest, struct err *e)
{
	struct param_value *stride = &v[PG19_STRIDE];

	if (v[PG19_PROTOCOL].i != PROTOCOL_SLIDING)
		return stride->given ? refuse(e, "stride", "only protocol sliding has one") : ERR_OK;
	if (!stride->given)
		*stride = (struct param_value){.i = 256};
	if (stride->i <= longest)
		return ERR_OK;
	err_set(e, ERR_INPUT, "stride: %lld%s is above every length (the longest is %lld)", (long long)stride->i,
	        stride->given ? "" : ", the default,", (long long)longest);
	return err_at(e, "/stride");
}

/* Every document of a prefix curve must reach the longest length: the same documents at each. */
static err_code resolve_prefix(struct param_value *v, int64_t longest, struct err *e)
{
	if (v[PG19_PROTOCOL].i != PROTOCOL_PREFIX)
		return ERR_OK;
	if (v[PG19_MIN_TOKENS].null)
		v[PG19_MIN_TOKENS] = (struct param_value){.i = longest + 1};
	if (v[PG19_MIN_TOKENS].i <= longest)
		return refuse(e, "min_doc_tokens", "protocol prefix needs at least max(lengths)+1");
	if (!v[PG19_MAX_TOKENS].null && v[PG19_MAX_TOKENS].i <= longest)
		return refuse(e, "max_tokens_per_doc", "protocol prefix needs at least max(lengths)+1");
	return ERR_OK;
}

err_code pg19_resolve(struct param_value *v, struct err *e)
{
	const struct param_value *lengths = &v[PG19_LENGTHS];
	int64_t longest = lengths->list[lengths->n - 1];

	if (resolve_stride(v, longest, e) || resolve_prefix(v, longest, e))
		return e->code;
	if (v[PG19_BOS].i == BOS_WINDOW && v[PG19_PROTOCOL].i != PROTOCOL_WINDOWS)
		return refuse(e, "bos", "window goes with protocol windows only");
	return ERR_OK;
}

int64_t pg19_stride(const struct param_value *v, int64_t length)
{
	if (v[PG19_PROTOCOL].i != PROTOCOL_SLIDING || v[PG19_STRIDE].i > length)
		return length;
	return v[PG19_STRIDE].i;
}

struct window_rule pg19_rule(const struct pg19 *p, size_t length)
{
	int64_t l = p->lengths[length];
	struct window_rule r = {.length = (uint64_t)l, .stride = (uint64_t)l, .drop = p->drop};

	if (p->protocol == PROTOCOL_SLIDING && p->stride < l)
		r.stride = (uint64_t)p->stride;
	return r;
}

/* Window k > 0 scores predictions from k stride + length - stride + 1 on, so it exists while that is not past the last:
 * there are ceil((n - length) / stride) of them. It is full while k stride + length is not past the last. */
uint64_t window_count(const struct window_rule *r, uint64_t n)
{
	if (n < r->length)
		return n && !r->drop;
	if (r->drop)
		return (n - r->length) / r->stride + 1;
	return (n - r->length + r->stride - 1) / r->stride + 1;
}

void window_at(const struct window_rule *r, uint64_t n, uint64_t k, struct window *out)
{
	uint64_t left = n - k * r->stride; /* predictions from the window's start on */

	assert(k < window_count(r, n));
	out->start = k * r->stride;
	out->len = (uint32_t)(left < r->length ? left : r->length) + 1;
	out->first = (uint32_t)(k ? r->length - r->stride + 1 : 1);
}

size_t pg19_edges(int64_t max, int64_t edges[PG19_MAX_EDGES])
{
	size_t n = 0;
	int64_t edge;

	for (int k = 0; k < 52; k++) {
		/* for odd k and k < 52 the root is further from any integer than sqrt's rounding */
		edge = (int64_t)floor(sqrt(ldexp(1, k)));
		if (edge > max)
			break;
		if (!n || edge > edges[n - 1])
			edges[n++] = edge;
	}
	edges[n++] = max + 1;
	return n;
}
