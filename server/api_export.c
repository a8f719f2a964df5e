/* Documents that take long to write: a short-lived thread with its own read-only connection writes one to an unlinked
 * file, and the file is then sent. (A cursor held open over a slow download would pin the HTTP thread's view of the
 * database.) */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/api.h"
#include "server/problem.h"

#define MAX_EXPORTS 2

struct export
{
	struct http_request *r; /* borrowed: suspended until the thread is done with everything here */
	struct api *api;        /* borrowed */
	struct api_export x;
	pthread_t thread;
	bool started;
	FILE *file; /* owned */
	struct err err;
};

static void free_arg(const struct api_export *x)
{
	if (x->arg_free)
		x->arg_free(x->arg);
}

static void export_free(void *state)
{
	struct export *p = state;

	if (p->started) { /* also when the client left meanwhile, and nobody asks for the file */
		pthread_join(p->thread, NULL);
		p->api->n_exports--;
	}
	if (p->file)
		fclose(p->file);
	free_arg(&p->x);
	free(p);
}

/* -- on the export's thread -------------------------------------------------------------------- */

static FILE *open_unlinked(const char *dir, struct err *e)
{
	char *path = NULL;
	FILE *f = NULL;
	int fd;

	if (asprintf(&path, "%s/export-XXXXXX", dir) < 0) {
		err_set(e, ERR_MEMORY, "out of memory");
		return NULL;
	}
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0) {
		err_errno(e, "cannot write %s", path);
	} else {
		unlink(path);
		f = fdopen(fd, "w+");
		if (!f) {
			err_errno(e, "fdopen");
			close(fd);
		}
	}
	free(path);
	return f;
}

static err_code write_file(struct export *p, struct err *e)
{
	struct store *store = NULL;
	err_code rc = store_open(p->api->data_dir, true, &store, e);

	if (!rc)
		rc = p->x.write(p->x.arg, store, p->file, e);
	store_close(store);
	if (!rc && (ferror(p->file) || fflush(p->file)))
		rc = err_errno(e, "cannot write %s", p->x.filename);
	return rc;
}

static void *export_main(void *arg)
{
	struct export *p = arg;

	p->file = open_unlinked(p->api->data_dir, &p->err);
	if (p->file)
		write_file(p, &p->err);
	http_complete(p->r); /* the last use of p here */
	return NULL;
}

/* -- on the HTTP thread ------------------------------------------------------------------------ */

static void exported(struct http_request *r)
{
	struct export *p = r->state;
	int fd = -1;
	off_t size = 0;

	if (!p->err.code) {
		size = ftello(p->file);
		fd = dup(fileno(p->file));
		if (fd < 0)
			err_errno(&p->err, "cannot send %s", p->x.filename);
	}
	if (p->err.code) {
		problem_error(r, &p->err);
		return;
	}
	http_set_header(r, "Content-Disposition", "inline; filename=\"%s\"", p->x.filename);
	http_send_file(r, p->x.type, fd, (uint64_t)size);
}

void api_export(struct http_request *r, const struct api_export *x)
{
	struct err e;
	struct export *p;

	if (api_of(r)->n_exports >= MAX_EXPORTS) {
		free_arg(x);
		problem_send(r, 503, "%d exports are being written already", MAX_EXPORTS);
		return;
	}
	p = mem_zalloc(1, sizeof *p, &e);
	if (!p) {
		free_arg(x);
		problem_error(r, &e);
		return;
	}
	p->r = r;
	p->api = api_of(r);
	p->x = *x;
	r->state = p;
	r->state_free = export_free;
	http_suspend(r, exported);
	p->started = !pthread_create(&p->thread, NULL, export_main, p);
	if (p->started) {
		p->api->n_exports++;
	} else {
		err_set(&p->err, ERR_IO, "cannot start a thread");
		http_complete(r);
	}
}
