/* Position schemes: see position.h. Owns how config.json and a job's override become a struct position, and how that
 * becomes frequencies. Formulas: RoPE arXiv 2104.09864, YaRN arXiv 2309.00071 section 3.4, PoPE arXiv 2509.10534. */
#include "engine/position.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI_L       3.14159265358979323846264338327950288L
#define MAX_CTX    (INT64_C(1) << 31) /* positions: far beyond any model, and phases are still exact */
#define MAX_FACTOR 1e6
#define MIN_THETA  1.001 /* at 1 all channels turn alike, and yarn divides by ln(theta) */
#define MAX_THETA  1e12

/* Where a value is read: `where` names it in messages; a request's errors also carry a pointer, and there a null is a
 * wrong type, while a checkpoint's null means "not given". */
struct scope {
	const struct json *object;
	const char *where; /* "config.json: rope_scaling" */
	bool request;
};

/* -- reading values ---------------------------------------------------------------------------- */

static err_code at(const struct scope *s, const char *key, struct err *e)
{
	return s->request ? err_at_member(e, "", key) : e->code;
}

/* The member, or NULL when it is not given. */
static const struct json *member(const struct scope *s, const char *key)
{
	const struct json *j = json_get(s->object, key);

	return json_is_null(j) && !s->request ? NULL : j;
}

/* Reads a number in [low, high] if it is given; *given says whether it was. */
static err_code read_number(const struct scope *s, const char *key, double low, double high, double *out, bool *given,
                            struct err *e)
{
	const struct json *j = member(s, key);
	double v;

	*given = j != NULL;
	if (!j)
		return ERR_OK;
	if (!json_number(j, &v)) {
		err_set(e, ERR_INPUT, "%s: %s is %s, want a number", s->where, key, json_type_name(j));
		return at(s, key, e);
	}
	if (!(v >= low && v <= high)) {
		err_set(e, ERR_INPUT, "%s: %s is %.9g, want %.9g to %.9g", s->where, key, v, low, high);
		return at(s, key, e);
	}
	*out = v;
	return ERR_OK;
}

static err_code read_context(const struct scope *s, const char *key, uint32_t *out, bool *given, struct err *e)
{
	const struct json *j = member(s, key);
	int64_t v;

	*given = j != NULL;
	if (!j)
		return ERR_OK;
	if (!json_integer(j, &v)) {
		err_set(e, ERR_INPUT, "%s: %s is %s, want an integer", s->where, key,
		        json_is_number(j) ? "a fraction or out of range" : json_type_name(j));
		return at(s, key, e);
	}
	if (v < 1 || v > MAX_CTX) {
		err_set(e, ERR_INPUT, "%s: %s is %lld, want 1 to %lld", s->where, key, (long long)v,
		        (long long)MAX_CTX);
		return at(s, key, e);
	}
	*out = (uint32_t)v;
	return ERR_OK;
}

static err_code read_string(const struct scope *s, const char *key, const char **out, struct err *e)
{
	const struct json *j = member(s, key);

	*out = NULL;
	if (!j)
		return ERR_OK;
	*out = json_string(j);
	if (*out)
		return ERR_OK;
	err_set(e, ERR_INPUT, "%s: %s is %s, want a string", s->where, key, json_type_name(j));
	return at(s, key, e);
}

static bool in_list(const char *key, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(key, *list))
			return true;
	return false;
}

/* A key that nobody reads would be a setting silently ignored. */
static err_code refuse_unknown(const struct scope *s, const char *const *known, const char *const *also_known,
                               const char *type, struct err *e)
{
	for (const struct json *j = json_first(s->object); j; j = json_next(j)) {
		const char *key = json_key(j);

		if (!member(s, key) || in_list(key, known) || in_list(key, also_known))
			continue;
		err_set(e, ERR_INPUT, "%s: '%.100s' is not a setting of type '%s'", s->where, key, type);
		return at(s, key, e);
	}
	return ERR_OK;
}

/* -- scalings ---------------------------------------------------------------------------------- */

static const char *const none_keys[] = {NULL};
static const char *const linear_keys[] = {"factor", "original_max_position_embeddings", NULL};
static const char *const yarn_keys[] = {"factor",
                                        "original_max_position_embeddings",
                                        "attention_factor",
                                        "beta_fast",
                                        "beta_slow",
                                        "mscale",
                                        "mscale_all_dim",
                                        "truncate",
                                        NULL};

static const struct scaling {
	const char *name;
	enum position_scaling id;
	const char *const *keys; /* NULL: known, not supported */
} scalings[] = {
    {"none", SCALING_NONE, none_keys}, {"default", SCALING_NONE, none_keys}, {"linear", SCALING_LINEAR, linear_keys},
    {"yarn", SCALING_YARN, yarn_keys}, {"dynamic", SCALING_NONE, NULL},      {"llama3", SCALING_NONE, NULL},
    {"longrope", SCALING_NONE, NULL},  {"su", SCALING_NONE, NULL},           {"ntk", SCALING_NONE, NULL},
    {"mrope", SCALING_NONE, NULL},     {"proportional", SCALING_NONE, NULL},
};

static err_code find_scaling(const struct scope *s, const char *key, const char *type, const struct scaling **out,
                             struct err *e)
{
	for (const struct scaling *k = scalings; k < scalings + sizeof scalings / sizeof *scalings; k++) {
		if (strcmp(k->name, type) != 0)
			continue;
		*out = k;
		if (k->keys)
			return ERR_OK;
		err_set(e, ERR_INPUT, "%s: %s '%s' is not supported yet (supported: none, linear, yarn)", s->where, key,
		        type);
		return at(s, key, e);
	}
	err_set(e, ERR_INPUT, "%s: %s '%.100s' is unknown (known: none, linear, yarn)", s->where, key, type);
	return at(s, key, e);
}

/* mscale(s, m) = .1 m ln s + 1 */
static double mscale(double factor, double m)
{
	return factor > 1 ? .1 * m * log(factor) + 1 : 1;
}

static void set_scaling(struct position *p, enum position_scaling scaling)
{
	p->scaling = scaling;
	p->factor = 1;
	p->attention_factor = 1;
	p->beta_fast = 32;
	p->beta_slow = 1;
	p->mscale = p->mscale_all_dim = 0;
	p->truncate = true;
}

/* The members that only yarn has; factor is there already. */
static err_code read_yarn(const struct scope *s, struct position *p, struct err *e)
{
	const struct json *truncate = member(s, "truncate");
	bool given, explicit_factor;

	if (read_number(s, "beta_fast", 1e-3, 1e6, &p->beta_fast, &given, e) ||
	    read_number(s, "beta_slow", 1e-3, p->beta_fast, &p->beta_slow, &given, e) ||
	    read_number(s, "mscale", 0, 1e3, &p->mscale, &given, e) ||
	    read_number(s, "mscale_all_dim", 0, 1e3, &p->mscale_all_dim, &given, e) ||
	    read_number(s, "attention_factor", 1e-3, 1e3, &p->attention_factor, &explicit_factor, e))
		return e->code;
	if (truncate && !json_is_bool(truncate)) {
		err_set(e, ERR_INPUT, "%s: truncate is %s, want a boolean", s->where, json_type_name(truncate));
		return at(s, "truncate", e);
	}
	if (truncate)
		p->truncate = json_true(truncate);
	if (explicit_factor)
		return ERR_OK;
	/* With one of the two alone, public implementations disagree by more than a percent. */
	if ((p->mscale > 0) != (p->mscale_all_dim > 0)) {
		const char *lone = p->mscale > 0 ? "mscale" : "mscale_all_dim";

		err_set(e, ERR_INPUT, "%s: %s without %s is ambiguous: give both, or attention_factor", s->where, lone,
		        p->mscale > 0 ? "mscale_all_dim" : "mscale");
		return at(s, lone, e);
	}
	p->attention_factor =
	    p->mscale > 0 ? mscale(p->factor, p->mscale) / mscale(p->factor, p->mscale_all_dim) : mscale(p->factor, 1);
	return ERR_OK;
}

/* The members of a scaling of this kind, into *p. original_ctx is set where it is given. */
static err_code read_scaling(const struct scope *s, const struct scaling *kind, const char *type_key,
                             struct position *p, struct err *e)
{
	bool given;

	if (p->type == POSITION_POPE && kind->id != SCALING_NONE) {
		err_set(e, ERR_INPUT, "%s: %s '%s' on PoPE: no rule for it is published", s->where, type_key,
		        kind->name);
		return at(s, type_key, e);
	}
	set_scaling(p, kind->id);
	if (kind->id == SCALING_NONE)
		return ERR_OK;
	if (read_number(s, "factor", 1, MAX_FACTOR, &p->factor, &given, e))
		return e->code;
	if (!given) {
		err_set(e, ERR_INPUT, "%s: type '%s' needs a factor", s->where, kind->name);
		return at(s, "factor", e);
	}
	if (read_context(s, "original_max_position_embeddings", &p->original_ctx, &given, e))
		return e->code;
	return kind->id == SCALING_YARN ? read_yarn(s, p, e) : ERR_OK;
}

/* -- config.json ------------------------------------------------------------------------------- */

static err_code read_type(const struct scope *config, struct position *p, struct err *e)
{
	static const char *const later[] = {"alibi", "learned", "sinusoidal", "none", NULL};
	const char *type;

	if (read_string(config, "position_embedding_type", &type, e))
		return e->code;
	if (!type)
		return err_set(e, ERR_INPUT, "%s: position_embedding_type is absent", config->where);
	if (in_list(type, later))
		return err_set(e, ERR_INPUT, "%s: position_embedding_type '%s' is not supported yet", config->where,
		               type);
	if (strcmp(type, "rope") != 0 && strcmp(type, "pope") != 0)
		return err_set(e, ERR_INPUT, "%s: position_embedding_type '%.100s' is unknown", config->where, type);
	p->type = strcmp(type, "rope") ? POSITION_POPE : POSITION_ROPE;
	return ERR_OK;
}

/* Rotating only a part of each head comes later; 1 is the same as not saying so. */
static err_code refuse_partial(const struct scope *s, struct err *e)
{
	static const char *const keys[] = {"partial_rotary_factor", "rotary_pct"};
	double v;

	for (size_t i = 0; i < 2; i++) {
		const struct json *j = member(s, keys[i]);

		if (j && !(json_number(j, &v) && v == 1))
			return err_set(e, ERR_INPUT, "%s: partial rotary (%s) is not supported yet", s->where, keys[i]);
	}
	return ERR_OK;
}

/* theta: at the top, or since Hugging Face 5 in rope_parameters; twice only if equal. */
static err_code read_theta(const struct scope *config, const struct scope *params, struct position *p, struct err *e)
{
	double inner = 0;
	bool outer_given, inner_given = false;

	p->theta = 10000; /* of the papers, and Hugging Face's default */
	if (read_number(config, "rope_theta", MIN_THETA, MAX_THETA, &p->theta, &outer_given, e) ||
	    (params && read_number(params, "rope_theta", MIN_THETA, MAX_THETA, &inner, &inner_given, e)))
		return e->code;
	if (!inner_given)
		return ERR_OK;
	if (outer_given && inner != p->theta)
		return err_set(e, ERR_INPUT, "%s: rope_theta is %.9g, but %.9g in rope_parameters", config->where,
		               p->theta, inner);
	p->theta = inner;
	return ERR_OK;
}

/* `type` is the old name of `rope_type`. */
static err_code read_scaling_type(const struct scope *s, bool params, const char **type, const char **key,
                                  struct err *e)
{
	const char *old, *new;

	if (read_string(s, "type", &old, e) || read_string(s, "rope_type", &new, e))
		return e->code;
	if (old && new &&strcmp(old, new) != 0)
		return err_set(e, ERR_INPUT, "%s: type is '%.50s', but rope_type is '%.50s'", s->where, old, new);
	if (!old && !new && !params)
		return err_set(e, ERR_INPUT, "%s: neither rope_type nor type is given", s->where);
	*type = new ? new : old ? old : "default";
	*key = new ? "rope_type" : "type";
	return ERR_OK;
}

/* The object of that name; NULL when absent or null. */
static err_code read_object(const struct scope *config, const char *key, const struct json **out, struct err *e)
{
	*out = member(config, key);
	if (*out && !json_is_object(*out))
		return err_set(e, ERR_INPUT, "%s: %s is %s, want an object", config->where, key, json_type_name(*out));
	return ERR_OK;
}

static err_code check_head_dim(const struct position *p, uint32_t head_dim, struct err *e)
{
	if (p->type == POSITION_ROPE && head_dim % 2)
		return err_set(e, ERR_INPUT, "head_dim is %u, but rope turns pairs of channels: want it even",
		               head_dim);
	return ERR_OK;
}

err_code position_from_config(const struct json *config, uint32_t head_dim, struct position *out, struct err *e)
{
	static const char *const config_keys[] = {"type", "rope_type", NULL};
	static const char *const param_keys[] = {"type",       "rope_type", "rope_theta", "partial_rotary_factor",
	                                         "rotary_pct", NULL};
	struct scope top = {.object = config, .where = "config.json"};
	struct scope s = {.where = "config.json: rope_scaling"};
	const struct json *old, *new;
	const struct scaling *kind;
	const char *type = NULL, *key = NULL;
	struct position p = {0};
	bool given;

	if (read_type(&top, &p, e) || refuse_partial(&top, e) || read_object(&top, "rope_scaling", &old, e) ||
	    read_object(&top, "rope_parameters", &new, e))
		return e->code;
	if (old && new)
		return err_set(e, ERR_INPUT, "config.json: both rope_scaling and rope_parameters are given");
	s.object = new ? new : old;
	if (new)
		s.where = "config.json: rope_parameters";
	if (read_theta(&top, new ? &s : NULL, &p, e) || (new &&refuse_partial(&s, e)) ||
	    read_context(&top, "max_position_embeddings", &p.max_ctx, &given, e))
		return e->code;
	if (!given)
		return err_set(e, ERR_INPUT, "config.json: max_position_embeddings is absent");
	p.original_ctx = p.max_ctx;
	set_scaling(&p, SCALING_NONE);
	if (s.object && (read_scaling_type(&s, new != NULL, &type, &key, e) || find_scaling(&s, key, type, &kind, e) ||
	                 refuse_unknown(&s, kind->keys, new ? param_keys : config_keys, type, e) ||
	                 read_scaling(&s, kind, key, &p, e)))
		return e->code;
	if (check_head_dim(&p, head_dim, e))
		return err_wrap(e, "config.json");
	*out = p;
	return ERR_OK;
}

/* -- a job's override -------------------------------------------------------------------------- */

static const char *const override_keys[] = {"type", "rope_theta", "inv_freq", NULL};

static err_code read_inv_freq(const struct scope *s, bool *f32, struct err *e)
{
	const char *name;

	if (read_string(s, "inv_freq", &name, e))
		return e->code;
	if (!name)
		return ERR_OK;
	if (strcmp(name, "f32") != 0 && strcmp(name, "exact") != 0) {
		err_set(e, ERR_INPUT, "%s: inv_freq is '%.50s', want 'f32' or 'exact'", s->where, name);
		return at(s, "inv_freq", e);
	}
	*f32 = !strcmp(name, "f32");
	return ERR_OK;
}

/* Without a type the scaling stays as it is, so its settings have nothing to act on. */
static err_code refuse_without_type(const struct scope *s, struct err *e)
{
	for (const struct json *j = json_first(s->object); j; j = json_next(j)) {
		if (!in_list(json_key(j), yarn_keys))
			continue;
		err_set(e, ERR_INPUT, "%s: '%s' needs a type", s->where, json_key(j));
		return at(s, json_key(j), e);
	}
	return refuse_unknown(s, none_keys, override_keys, "unchanged", e);
}

/* Replaces the scaling as a whole: nothing of the checkpoint's own survives but its original context. */
static err_code override_scaling(const struct scope *s, const char *type, struct position *p, struct err *e)
{
	const struct scaling *kind;
	double ctx;

	if (!strcmp(type, p->type == POSITION_POPE ? "pope" : "rope")) /* as a result calls it */
		type = "none";
	if (find_scaling(s, "type", type, &kind, e) || refuse_unknown(s, kind->keys, override_keys, type, e) ||
	    read_scaling(s, kind, "type", p, e))
		return e->code;
	ctx = floor((double)p->original_ctx * p->factor);
	if (ctx > (double)MAX_CTX) {
		err_set(e, ERR_INPUT, "%s: a context of %.0f positions (%u times %.9g), want at most %lld", s->where,
		        ctx, p->original_ctx, p->factor, (long long)MAX_CTX);
		return at(s, "factor", e);
	}
	p->max_ctx = (uint32_t)ctx;
	return ERR_OK;
}

err_code position_override(struct position *p, const struct json *override, uint32_t head_dim, struct err *e)
{
	struct scope s = {.object = override, .where = "position", .request = true};
	struct position q = *p;
	const char *type;
	bool given;

	if (!json_is_object(override))
		return err_set(e, ERR_INPUT, "position: %s, want an object", json_type_name(override));
	if (read_string(&s, "type", &type, e) ||
	    (type ? override_scaling(&s, type, &q, e) : refuse_without_type(&s, e)) ||
	    read_number(&s, "rope_theta", MIN_THETA, MAX_THETA, &q.theta, &given, e) ||
	    read_inv_freq(&s, &q.f32_freq, e) || check_head_dim(&q, head_dim, e))
		return e->code;
	*p = q;
	return ERR_OK;
}

/* -- results ----------------------------------------------------------------------------------- */

static const char *type_name(const struct position *p)
{
	return p->type == POSITION_POPE       ? "pope"
	       : p->scaling == SCALING_YARN   ? "yarn"
	       : p->scaling == SCALING_LINEAR ? "linear"
	                                      : "rope";
}

void position_write(const struct position *p, struct json_writer *w, const char *key)
{
	json_begin_object(w, key);
	json_put_string(w, "type", type_name(p));
	json_put_double(w, "theta", p->theta);
	if (p->scaling != SCALING_NONE) {
		json_put_double(w, "factor", p->factor);
		json_put_uint(w, "original_max_position_embeddings", p->original_ctx);
	}
	if (p->scaling == SCALING_YARN) {
		json_put_double(w, "attention_factor", p->attention_factor);
		json_put_double(w, "beta_fast", p->beta_fast);
		json_put_double(w, "beta_slow", p->beta_slow);
		json_put_bool(w, "truncate", p->truncate);
	}
	json_put_uint(w, "max_position_embeddings", p->max_ctx);
	json_put_string(w, "inv_freq", p->f32_freq ? "f32" : "exact");
	json_end_object(w);
}

/* -- frequencies ------------------------------------------------------------------------------- */

/* corr(r) = d ln(L/(2 pi r)) / (2 ln b): the pair that makes r turns over the original context. In double, as
 * everywhere that YaRN is implemented: floor and ceil must fall the same way. */
static double yarn_pair(const struct position *p, uint32_t head_dim, double turns)
{
	return head_dim * log(p->original_ctx / (turns * 2 * (double)PI_L)) / (2 * log(p->theta));
}

/* ramp_i = clamp((i - low) / max(high - low, .001), 0, 1): 0 keeps a pair's frequency, 1 divides it by s. */
static long double yarn_ramp(const struct position *p, uint32_t head_dim, uint32_t i)
{
	double low = yarn_pair(p, head_dim, p->beta_fast), high = yarn_pair(p, head_dim, p->beta_slow);
	long double ramp;

	if (p->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, head_dim - 1.0);
	ramp = (i - (long double)low) / fmax(high - low, .001);
	return fminl(fmaxl(ramp, 0), 1);
}

/* Radians per position of channel (pope) or pair (rope) c. */
static long double frequency(const struct position *p, uint32_t head_dim, uint32_t c)
{
	long double d = head_dim, theta, ramp;

	if (p->type == POSITION_POPE)
		theta = powl(p->theta, -(c / d)); /* b^(-c/d) */
	else
		theta = powl(p->theta, -(2 * c / d)); /* b^(-2c/d) */
	if (p->scaling == SCALING_LINEAR)
		theta /= p->factor;
	if (p->scaling == SCALING_YARN) {
		ramp = yarn_ramp(p, head_dim, c);
		theta = theta / p->factor * ramp + theta * (1 - ramp);
	}
	return p->f32_freq ? (float)theta : theta;
}

uint32_t position_count_freq(const struct position *p, uint32_t head_dim)
{
	return p->type == POSITION_POPE ? head_dim : head_dim / 2;
}

err_code position_table_init(struct position_table *t, const struct position *p, uint32_t head_dim, uint64_t length,
                             struct err *e)
{
	uint32_t n = position_count_freq(p, head_dim);
	uint64_t *freq = mem_alloc(n, sizeof *freq, e);

	(void)length; /* for schemes that depend on it */
	if (!freq)
		return e->code;
	for (uint32_t c = 0; c < n; c++) {
		/* theta <= 1, so a turn's 2^64 is reached at most 1/(2 pi) of the way */
		long double turns = frequency(p, head_dim, c) / (2 * PI_L);

		freq[c] = (uint64_t)roundl(ldexpl(turns, 64));
	}
	*t = (struct position_table){.n_freq = n, .freq = freq, .amplitude = (float)p->attention_factor};
	return ERR_OK;
}

void position_table_release(struct position_table *t)
{
	if (!t)
		return;
	free(t->freq);
	*t = (struct position_table){0};
}

err_code position_delta(const struct tensor *delta, bool sine, float *out, struct err *e)
{
	uint64_t n = delta->shape[0] * delta->shape[1];

	tensor_to_f32(delta, 0, n, out);
	for (uint64_t i = 0; i < n; i++) {
		double d = fmin(fmax(out[i], -2 * M_PI), 0);

		if (!isfinite(out[i])) /* which the clamp would hide */
			return err_set(e, ERR_INPUT, "pope_delta: element %llu is not finite", (unsigned long long)i);
		out[i] = (float)(sine ? sin(d) : cos(d));
	}
	return ERR_OK;
}

bool position_depends_on_length(const struct position *p)
{
	(void)p;
	return false;
}

uint32_t position_limit(const struct position *p)
{
	(void)p;
	return 0;
}
