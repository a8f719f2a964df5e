/* Position schemes: the one table of how a position becomes a phase.
 *
 * A scheme gives, for a chain of a given total length, a frequency per rotated channel and one amplitude that
 * multiplies cos and sin. Phases are exact (kernels.md "angles"): a frequency is held as turns per position times
 * 2^64, so that position * freq wraps without error; see position_phase. The formulas are those of the RoPE, YaRN
 * (arXiv 2309.00071) and PoPE (arXiv 2509.10534) papers. */
#ifndef FATHOM_ENGINE_POSITION_H
#define FATHOM_ENGINE_POSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/json.h"
#include "engine/tensor.h"

enum position_type { POSITION_ROPE, POSITION_POPE };
enum position_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN };

struct position {
	enum position_type type;
	enum position_scaling scaling;
	double theta;                                        /* base of the frequencies */
	double factor;                                       /* linear, yarn: s >= 1 */
	double beta_fast, beta_slow, mscale, mscale_all_dim; /* yarn; mscale* 0: absent */
	double attention_factor;                             /* amplitude on cos and sin; resolved, 1 unless yarn */
	uint32_t original_ctx;                               /* yarn: L in the formula */
	uint32_t max_ctx; /* context of the resolved settings (max_position_embeddings, scaled) */
	bool truncate;    /* yarn: floor and ceil the correction range */
	bool f32_freq;    /* inv_freq=f32: round each frequency to float first, as Hugging Face does */
};

/* Reads scheme and scaling from a parsed config.json (position_embedding_type, rope_theta, rope_scaling /
 * rope_parameters, max_position_embeddings). Unknown types, unknown keys of rope_scaling and impossible values are
 * refused by name; yarn or linear on pope too. */
err_code position_from_config(const struct json *config, uint32_t head_dim, struct position *out, struct err *e);

/* Applies a job's override: {"type": "none"|"linear"|"yarn", "factor": 4, "original_max_position_embeddings": ...,
 * "inv_freq": "f32"|"exact", ...}. e->pointer is relative ("/factor"). */
err_code position_override(struct position *p, const struct json *override, uint32_t head_dim, struct err *e);

/* Members of a result's "position" object: {"type": "yarn", "theta": ..., "factor": 4.0, "attention_factor": ...}.
 * The type is "rope", "linear", "yarn" or "pope". */
void position_write(const struct position *p, struct json_writer *w, const char *key);

/* How many frequencies a head has: rope, its pairs, head_dim/2; pope, its elements, head_dim. What is turned by
 * frequency i stands in elements i and i + this many of a turned query or key. */
uint32_t position_count_freq(const struct position *p, uint32_t head_dim);

/* Frequencies for a chain of `length` positions. */
struct position_table {
	uint32_t n_freq; /* position_count_freq */
	uint64_t *freq;  /* [n_freq] owned: round(theta_c / 2pi * 2^64) */
	float amplitude;
};
err_code position_table_init(struct position_table *t, const struct position *p, uint32_t head_dim, uint64_t length,
                             struct err *e);
void position_table_release(struct position_table *t);

/* The cosine of pope's delta, or its sine, of each element clamped to [-2 pi, 0] as the paper does. ERR_INPUT when one
 * is not finite. */
err_code position_delta(const struct tensor *delta /* [n_kv_head, head_dim] */, bool sine,
                        float *out /* [n_kv_head, head_dim] */, struct err *e);

/* Whether the table depends on the chain's total length (none of today's schemes). */
bool position_depends_on_length(const struct position *p);

/* How many positions there are, where the scheme has a hard end; 0: any number (all of today's schemes). */
uint32_t position_limit(const struct position *p);

/* The phase of a position in half-turns, in [-1, 1]: feed it to sinpi and cospi. Same bits on every device. At most
 * 9.52e-8 radians off: half of a float's last place at 1, and the 2^-31 half-turns that the shift cuts. */
static inline float position_phase(uint64_t pos, uint64_t freq)
{
	return (float)(int32_t)(uint32_t)((pos * freq) >> 32) * 0x1p-31f;
}

#endif
