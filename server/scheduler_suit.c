/* Which worker may do which job: what a worker says of itself, what a job asks for, and why a job finds none. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/scheduler.h"

/* -- what a worker is -------------------------------------------------------------------------- */

void scheduler_forget_hello(struct sched_worker *k)
{
	for (size_t i = 0; i < k->n_signatures; i++) {
		free(k->signatures[i].dtype);
		free(k->signatures[i].signature);
	}
	free(k->signatures);
	free(k->device);
	free(k->kind);
	k->signatures = NULL;
	k->n_signatures = 0;
	k->device = k->kind = NULL;
	k->known = false;
}

static err_code read_signatures(struct sched_worker *k, const struct json *signatures, struct err *e)
{
	k->signatures = mem_zalloc(json_count(signatures), sizeof *k->signatures, e);
	if (!k->signatures)
		return ERR_MEMORY;
	for (const struct json *s = json_first(signatures); s; s = json_next(s)) {
		struct sched_signature *at = &k->signatures[k->n_signatures];

		if (!json_string(s))
			return err_set(e, ERR_INPUT, "its hello has a signature that is no string");
		k->n_signatures++;
		at->dtype = mem_strdup(json_key(s), e);
		at->signature = mem_strdup(json_string(s), e);
		if (!at->dtype || !at->signature)
			return ERR_MEMORY;
	}
	return ERR_OK;
}

err_code scheduler_up(struct scheduler *s, size_t w, const char *device, const char *kind,
                      const struct json *signatures, struct err *e)
{
	struct sched_worker *k = &s->workers[w];
	err_code rc;

	assert(k->state == WORKER_DOWN);
	if (!device || !kind || !json_is_object(signatures))
		return err_set(e, ERR_INPUT, "its hello has no device, kind or signatures");
	scheduler_forget_hello(k);
	k->device = mem_strdup(device, e);
	k->kind = mem_strdup(kind, e);
	rc = k->device && k->kind ? read_signatures(k, signatures, e) : ERR_MEMORY;
	if (rc) {
		scheduler_forget_hello(k);
		return rc;
	}
	k->known = k->heard = true;
	k->hopeless = false;
	k->unusable[0] = '\0';
	k->state = WORKER_IDLE;
	for (struct sched_job *j = s->jobs; j; j = j->next)
		j->refused_by &= ~(UINT64_C(1) << w);
	return ERR_OK;
}

void scheduler_unusable(struct scheduler *s, size_t w, const char *why)
{
	struct sched_worker *k = &s->workers[w];

	assert(k->state == WORKER_DOWN);
	scheduler_forget_hello(k);
	k->heard = k->hopeless = true;
	snprintf(k->unusable, sizeof k->unusable, "%s", why);
}

/* -- what a job asks for ----------------------------------------------------------------------- */

static const char *signature_of(const struct sched_worker *k, const char *dtype)
{
	for (size_t i = 0; i < k->n_signatures; i++)
		if (!strcmp(k->signatures[i].dtype, dtype))
			return k->signatures[i].signature;
	return NULL;
}

static bool suits_device(const struct sched_worker *k, const struct sched_job *j)
{
	return !j->device || !strcmp(j->device, k->device) || !strcmp(j->device, k->kind);
}

static bool suits_dtype(const struct sched_worker *k, const struct sched_job *j)
{
	return !j->dtype || signature_of(k, j->dtype);
}

static bool suits_signature(const struct sched_worker *k, const struct sched_job *j)
{
	if (!j->pins.signature)
		return true;
	for (size_t i = 0; i < k->n_signatures; i++)
		if (!strcmp(k->signatures[i].signature, j->pins.signature))
			return true;
	return false;
}

bool scheduler_suits(const struct scheduler *s, size_t w, const struct sched_job *j)
{
	const struct sched_worker *k = &s->workers[w];

	return suits_device(k, j) && suits_dtype(k, j) && suits_signature(k, j) && !(j->refused_by >> w & 1);
}

/* A job that asks for no device goes to a GPU if there is one: the first plan pins the kind of device, and a
 * processor that happened to be ready first would take hours for what a GPU does in minutes. */
bool scheduler_leaves_to_gpu(const struct scheduler *s, size_t w, const struct sched_job *j)
{
	if (j->device || j->pins.signature || strcmp(s->workers[w].kind, "cpu") != 0)
		return false;
	for (size_t i = 0; i < s->n_workers; i++) {
		const struct sched_worker *k = &s->workers[i];

		if (!k->heard || (k->known && strcmp(k->kind, "cpu") != 0 && scheduler_suits(s, i, j)))
			return true;
	}
	return false;
}

/* The first worker that said why it cannot work, to the end of a reason to wait. */
static void add_unusable(const struct scheduler *s, char *out, size_t size)
{
	size_t n = strlen(out);

	for (size_t w = 0; w < s->n_workers; w++) {
		if (!s->workers[w].unusable[0])
			continue;
		snprintf(out + n, size - n, "; worker %zu is unusable: %s", w, s->workers[w].unusable);
		return;
	}
}

bool scheduler_job_waits(const struct scheduler *s, const struct sched_job *j, char *out, size_t size)
{
	bool device = false, dtype = false, any = false;

	for (size_t w = 0; w < s->n_workers; w++) {
		const struct sched_worker *k = &s->workers[w];

		if (!k->known && !k->hopeless)
			return false; /* it may turn out to suit */
		if (!k->known)
			continue;
		any = true;
		device |= suits_device(k, j);
		dtype |= suits_device(k, j) && suits_dtype(k, j);
		if (scheduler_suits(s, w, j))
			return false;
	}
	if (!any)
		snprintf(out, size, "no worker is up");
	else if (!device)
		snprintf(out, size, "no worker with device '%s'", j->device);
	else if (!dtype)
		snprintf(out, size, "no worker computes in '%s'", j->dtype);
	else if (j->pins.signature)
		snprintf(out, size, "no worker with signature '%s'; a restart of the job computes it anew",
		         j->pins.signature);
	else
		snprintf(out, size, "no worker can plan it");
	add_unusable(s, out, size);
	return true;
}
