/* See scheduler.h. A unit's states (stored: the store has its row):
 *
 *     TODO ──────> OUT ──────> DONE (stored)
 *                 │ ^ └──────> FAILED (stored; its error is its own)
 *    worker died  v │ alone
 *               SUSPECT        OUT ── third strike ──> GIVEN_UP ──> FAILED (stored)
 *
 * 1. A unit is OUT for exactly one worker: it is in that worker's units[n_reported..n_units) or was just reported.
 * 2. DONE and FAILED are never left: what is stored is never handed out again.
 * 3. A SUSPECT is handed out alone; only a unit that is alone gets a strike.
 * 4. A job without pins is planned by one worker at a time; with pins, any worker of that signature may join.
 * 5. A worker holds at most one plan; its ticket is the wire's "job", and no two plans share one.
 * 6. n_todo + n_suspect + n_out + n_done + n_failed + n_given_up = n_units, always. */
#include "server/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A command should last about this long: short enough that a cancel, or a job of higher priority, waits little; long
 * enough that the gap between commands (a commit, some milliseconds) does not show. */
#define COMMAND_MS           3000
#define FIRST_COMMAND_TOKENS 8192 /* before any was measured */
#define COMMAND_MAX_UNITS    4096

void scheduler_init(struct scheduler *s, size_t n_workers)
{
	assert(n_workers <= SCHEDULER_MAX_WORKERS);
	memset(s, 0, sizeof *s);
	s->n_workers = n_workers;
	s->next_ticket = 1;
}

static void free_job(struct sched_job *j)
{
	if (!j)
		return;
	free(j->model);
	free(j->task);
	free(j->dataset);
	free(j->params);
	free(j->engine);
	free(j->device);
	free(j->dtype);
	job_pins_release(&j->pins);
	free(j->units);
	free(j->strikes);
	free(j->unit_tokens);
	free(j->given_up);
	free(j->waiting);
	free(j->new_waiting);
	free(j);
}

void scheduler_release(struct scheduler *s)
{
	while (s->jobs) {
		struct sched_job *next = s->jobs->next;

		free_job(s->jobs);
		s->jobs = next;
	}
	for (size_t w = 0; w < s->n_workers; w++) {
		scheduler_forget_hello(&s->workers[w]);
		free(s->workers[w].units);
	}
	memset(s, 0, sizeof *s);
}

/* -- jobs -------------------------------------------------------------------------------------- */

static err_code alloc_units(struct sched_job *j, uint32_t n, struct err *e)
{
	uint8_t *units = mem_zalloc(n, 1, e), *strikes = mem_zalloc(n, 1, e);

	if (!units || !strikes) {
		free(units);
		free(strikes);
		return ERR_MEMORY;
	}
	j->units = units;
	j->strikes = strikes;
	j->n_units = j->n_todo = n;
	return ERR_OK;
}

/* The value of a string member; NULL when it is absent or "auto". */
static char *asked(const struct json *engine, const char *key, bool *failed)
{
	const char *v = json_get_string(engine, key);
	char *copy;

	if (!v || !strcmp(v, "auto"))
		return NULL;
	copy = strdup(v);
	*failed |= !copy;
	return copy;
}

static char *copy_string(const char *s, bool *failed)
{
	char *copy = s ? strdup(s) : NULL;

	*failed |= s && !copy;
	return copy;
}

err_code scheduler_add(struct scheduler *s, const struct job *j, struct job_pins *pins, struct sched_job **out,
                       struct err *e)
{
	struct sched_job *n = mem_zalloc(1, sizeof *n, e), **at = &s->jobs;
	struct json *engine = NULL;
	bool failed = false;
	err_code rc = n ? json_parse(j->engine, strlen(j->engine), &engine, e) : ERR_MEMORY;

	if (rc)
		goto out;
	n->id = j->id;
	n->priority = j->priority;
	n->state = j->state;
	n->model = copy_string(j->model, &failed);
	n->task = copy_string(j->task, &failed);
	n->dataset = copy_string(j->dataset, &failed);
	n->params = copy_string(j->params, &failed);
	n->engine = copy_string(j->engine, &failed);
	n->waiting = copy_string(j->waiting, &failed);
	n->device = asked(engine, "device", &failed);
	n->dtype = asked(engine, "dtype", &failed);
	if (failed)
		rc = err_set(e, ERR_MEMORY, "out of memory for job %lld", (long long)j->id);
	if (!rc && pins->signature)
		rc = alloc_units(n, (uint32_t)j->n_units, e);
	if (rc)
		goto out;
	n->pins = *pins;
	memset(pins, 0, sizeof *pins);
	while (*at && ((*at)->priority > n->priority || ((*at)->priority == n->priority && (*at)->id < n->id)))
		at = &(*at)->next;
	n->next = *at;
	*at = n;
	*out = n;
	n = NULL;
out:
	json_free(engine);
	free_job(n);
	return rc;
}

struct sched_job *scheduler_find(struct scheduler *s, int64_t id)
{
	struct sched_job *j = s->jobs;

	while (j && j->id != id)
		j = j->next;
	return j;
}

static bool is_busy(const struct sched_worker *k)
{
	return k->state == WORKER_PLANNING || k->state == WORKER_RUNNING;
}

size_t scheduler_job_workers(const struct scheduler *s, const struct sched_job *j)
{
	size_t n = 0;

	for (size_t w = 0; w < s->n_workers; w++)
		n += s->workers[w].job == j && is_busy(&s->workers[w]);
	return n;
}

void scheduler_remove(struct scheduler *s, struct sched_job *j)
{
	struct sched_job **at = &s->jobs;

	for (size_t w = 0; w < s->n_workers; w++) {
		struct sched_worker *k = &s->workers[w];

		if (k->job != j)
			continue;
		if (is_busy(k))
			k->state = WORKER_SETTLING;
		k->job = NULL;
	}
	while (*at != j)
		at = &(*at)->next;
	*at = j->next;
	free_job(j);
}

bool scheduler_job_complete(const struct sched_job *j)
{
	return j->pins.signature && j->n_done + j->n_failed == j->n_units;
}

/* -- units ------------------------------------------------------------------------------------- */

static uint32_t *count_of(struct sched_job *j, enum unit_state state)
{
	switch (state) {
	case UNIT_TODO:
		return &j->n_todo;
	case UNIT_SUSPECT:
		return &j->n_suspect;
	case UNIT_OUT:
		return &j->n_out;
	case UNIT_DONE:
		return &j->n_done;
	case UNIT_FAILED:
		return &j->n_failed;
	default:
		return &j->n_given_up;
	}
}

static void set_unit(struct sched_job *j, uint32_t unit, enum unit_state state)
{
	enum unit_state was = (enum unit_state)j->units[unit];

	assert(was != UNIT_DONE && was != UNIT_FAILED);
	--*count_of(j, was);
	++*count_of(j, state);
	j->units[unit] = (uint8_t)state;
}

static void drop_given_up(struct sched_job *j, uint32_t unit)
{
	uint32_t i = 0;

	while (j->given_up[i].unit != unit)
		i++;
	j->given_up[i] = j->given_up[j->n_given_up - 1];
}

static void unit_stored(struct sched_job *j, uint32_t unit, enum unit_state state)
{
	assert(unit < j->n_units);
	if (j->units[unit] == UNIT_DONE || j->units[unit] == UNIT_FAILED)
		return;
	if (j->units[unit] == UNIT_GIVEN_UP)
		drop_given_up(j, unit);
	set_unit(j, unit, state);
}

void scheduler_unit_done(struct sched_job *j, uint32_t unit)
{
	unit_stored(j, unit, UNIT_DONE);
}

void scheduler_unit_failed(struct sched_job *j, uint32_t unit)
{
	unit_stored(j, unit, UNIT_FAILED);
}

/* A third strike. Without memory for its entry the unit stays a suspect and is tried once more: no harm. */
static void give_up(struct sched_job *j, uint32_t unit, const struct err *why)
{
	struct given_up *grown = realloc(j->given_up, (j->n_given_up + 1) * sizeof *grown);

	if (!grown) {
		set_unit(j, unit, UNIT_SUSPECT);
		return;
	}
	j->given_up = grown;
	grown[j->n_given_up] = (struct given_up){unit, *why};
	err_wrap(&grown[j->n_given_up].why, "unit %u, computed alone %d times", unit, SCHEDULER_STRIKES);
	set_unit(j, unit, UNIT_GIVEN_UP);
	if (++j->n_lost < SCHEDULER_HOPELESS || j->n_done || j->failure.code)
		return;
	/* it is the model or the machine, not the unit: the rest would take hours to say the same */
	j->failure = *why;
	err_wrap(&j->failure, "given up without a result after %u units, each computed alone %d times", j->n_lost,
	         SCHEDULER_STRIKES);
}

/* -- what workers did -------------------------------------------------------------------------- */

static void drop_plan(struct sched_worker *k, bool down)
{
	k->job = NULL;
	k->ticket = 0;
	k->n_units = k->n_reported = 0;
	k->tokens_per_ms = 0;
	k->state = down ? WORKER_DOWN : WORKER_IDLE;
}

err_code scheduler_planned(struct scheduler *s, size_t w, const uint32_t *unit_tokens, uint32_t n, struct err *e)
{
	struct sched_worker *k = &s->workers[w];
	struct sched_job *j = k->job;
	uint32_t *tokens;

	assert(k->state == WORKER_PLANNING && j && j->pins.signature);
	tokens = mem_alloc(n, sizeof *tokens, e);
	if (!tokens)
		return ERR_MEMORY;
	if (!j->units && alloc_units(j, n, e)) {
		free(tokens);
		return ERR_MEMORY;
	}
	assert(j->n_units == n);
	memcpy(tokens, unit_tokens, n * sizeof *tokens);
	free(j->unit_tokens);
	j->unit_tokens = tokens;
	j->plan_deaths = 0;
	k->state = WORKER_IDLE;
	return ERR_OK;
}

void scheduler_reported(struct scheduler *s, size_t w, uint32_t unit)
{
	struct sched_worker *k = &s->workers[w];

	/* in order, but for one that failed alone: look from the first that is out */
	for (uint32_t i = k->n_reported; i < k->n_units; i++) {
		if (k->units[i] != unit)
			continue;
		memmove(&k->units[k->n_reported + 1], &k->units[k->n_reported], (i - k->n_reported) * sizeof *k->units);
		k->units[k->n_reported++] = unit;
		if (k->job)
			k->reported_tokens += k->job->unit_tokens[unit];
		return;
	}
}

/* Units of the command that were not reported go back as suspects; one that ran alone is struck. */
static void take_back(struct sched_worker *k, const struct err *why)
{
	struct sched_job *j = k->job;

	for (uint32_t i = k->n_reported; i < k->n_units; i++) {
		uint32_t unit = k->units[i];

		if (j->units[unit] != UNIT_OUT)
			continue;
		if (k->n_units == 1 && why && ++j->strikes[unit] >= SCHEDULER_STRIKES)
			give_up(j, unit, why);
		else
			set_unit(j, unit, UNIT_SUSPECT);
	}
	k->n_units = k->n_reported = 0;
}

void scheduler_idle(struct scheduler *s, size_t w, int64_t now_ms)
{
	struct sched_worker *k = &s->workers[w];
	int64_t took = now_ms - k->command_ms;
	struct err why;

	assert(k->state == WORKER_RUNNING);
	k->tokens_per_ms = (double)k->command_tokens / (double)(took > 0 ? took : 1);
	err_set(&why, ERR_DEVICE, "the worker ended its command without a result for it");
	take_back(k, &why);
	k->state = WORKER_IDLE;
}

void scheduler_lost(struct scheduler *s, size_t w, bool down, const struct err *why)
{
	struct sched_worker *k = &s->workers[w];
	struct sched_job *j = k->job;

	if (j && k->state == WORKER_RUNNING)
		take_back(k, why);
	if (j && k->state == WORKER_PLANNING && ++j->plan_deaths >= SCHEDULER_STRIKES && !j->failure.code) {
		j->failure = *why;
		err_wrap(&j->failure, "planned %d times", SCHEDULER_STRIKES);
	}
	drop_plan(k, down);
	k->heard |= down;
}

void scheduler_plan_failed(struct scheduler *s, size_t w, const struct err *why)
{
	struct sched_worker *k = &s->workers[w];
	struct sched_job *j = k->job;
	bool others = false;

	assert(k->state == WORKER_PLANNING && j);
	for (size_t i = 0; i < s->n_workers; i++)
		others |= i != w && s->workers[i].job == j;
	/* a conflict is about the worker's signature, not about the job */
	if ((others && why->code != ERR_CHANGED) || why->code == ERR_CONFLICT)
		j->refused_by |= UINT64_C(1) << w;
	else if (!j->failure.code)
		j->failure = *why;
	drop_plan(k, false);
}

void scheduler_settled(struct scheduler *s, size_t w)
{
	struct sched_worker *k = &s->workers[w];

	if (k->job && k->state == WORKER_RUNNING)
		take_back(k, NULL);
	drop_plan(k, false);
}

/* -- what workers do next ---------------------------------------------------------------------- */

/* Is there something in j for worker w, and what? */
static enum sched_step step_for(const struct scheduler *s, size_t w, const struct sched_job *j)
{
	const struct sched_worker *k = &s->workers[w];

	if ((j->state != JOB_QUEUED && j->state != JOB_RUNNING) || j->failure.code || !scheduler_suits(s, w, j))
		return STEP_NONE;
	if (!j->pins.signature) /* invariant 4 */
		return scheduler_job_workers(s, j) || scheduler_leaves_to_gpu(s, w, j) ? STEP_NONE : STEP_PLAN;
	if (!j->n_todo && !j->n_suspect)
		return STEP_NONE;
	return k->job == j ? STEP_RUN : STEP_PLAN;
}

enum sched_step scheduler_next(struct scheduler *s, size_t w, struct sched_job **job)
{
	const struct sched_worker *k = &s->workers[w];
	enum sched_step best = STEP_NONE;
	size_t fewest = 0;

	assert(k->state == WORKER_IDLE);
	*job = NULL;
	/* the list is by priority and id: among equal priorities fewest other workers first, then the plan at hand */
	for (struct sched_job *j = s->jobs; j && (!*job || j->priority == (*job)->priority); j = j->next) {
		enum sched_step step = step_for(s, w, j);
		size_t others = scheduler_job_workers(s, j);

		if (step == STEP_NONE)
			continue;
		if (*job && (others > fewest || (others == fewest && k->job != j)))
			continue;
		*job = j;
		best = step;
		fewest = others;
	}
	return best;
}

void scheduler_plan(struct scheduler *s, size_t w, struct sched_job *j)
{
	struct sched_worker *k = &s->workers[w];

	assert(k->state == WORKER_IDLE && k->job != j);
	drop_plan(k, false);
	k->job = j;
	k->ticket = s->next_ticket++;
	k->state = WORKER_PLANNING;
}

static err_code push_unit(struct sched_worker *k, uint32_t unit, struct err *e)
{
	uint32_t *grown = mem_grow(k->units, &k->cap_units, k->n_units + 1u, sizeof *grown, e);

	if (!grown)
		return e->code;
	k->units = grown;
	k->units[k->n_units++] = unit;
	return ERR_OK;
}

static uint32_t first_suspect(const struct sched_job *j)
{
	uint32_t u = 0;

	while (j->units[u] != UNIT_SUSPECT)
		u++;
	return u;
}

/* The next units to do, in order, of about COMMAND_MS of work. */
static err_code collect_todo(struct sched_worker *k, struct sched_job *j, struct err *e)
{
	double budget = k->tokens_per_ms > 0 ? k->tokens_per_ms * COMMAND_MS : FIRST_COMMAND_TOKENS;
	uint64_t tokens = 0;
	err_code rc = ERR_OK;

	while (j->first_todo < j->n_units && j->units[j->first_todo] != UNIT_TODO)
		j->first_todo++;
	for (uint32_t u = j->first_todo; !rc && u < j->n_units && k->n_units < COMMAND_MAX_UNITS; u++) {
		if (j->units[u] != UNIT_TODO)
			continue;
		if (k->n_units && (double)(tokens + j->unit_tokens[u]) > budget)
			break;
		tokens += j->unit_tokens[u];
		rc = push_unit(k, u, e);
	}
	return rc;
}

err_code scheduler_run(struct scheduler *s, size_t w, int64_t now_ms, struct err *e)
{
	struct sched_worker *k = &s->workers[w];
	struct sched_job *j = k->job;
	err_code rc;

	assert(k->state == WORKER_IDLE && j && j->unit_tokens);
	k->n_units = k->n_reported = 0;
	rc = j->n_suspect ? push_unit(k, first_suspect(j), e) : collect_todo(k, j, e);
	if (rc) {
		k->n_units = 0;
		return rc;
	}
	assert(k->n_units);
	k->command_tokens = k->reported_tokens = k->progress_tokens = 0;
	for (uint32_t i = 0; i < k->n_units; i++) {
		set_unit(j, k->units[i], UNIT_OUT);
		k->command_tokens += j->unit_tokens[k->units[i]];
	}
	k->command_ms = now_ms;
	k->state = WORKER_RUNNING;
	return ERR_OK;
}
