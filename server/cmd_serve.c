/* fathom serve: puts the parts together. The main thread becomes the core; HTTP runs on its own. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/log.h"
#include "server/api.h"
#include "server/cmd.h"
#include "server/options.h"

/* A misspelt device would be a worker that is started for ever, and never is there. */
static err_code check_worker(const char *value, struct err *e)
{
	size_t skip = strlen("cuda:");

	if (strchr(value, ' ') || !strcmp(value, "cpu") || !strcmp(value, "auto"))
		return ERR_OK;
	if (!strncmp(value, "cuda:", skip) && value[skip] && strspn(value + skip, "0123456789") == strlen(value + skip))
		return ERR_OK;
	return err_set(e, ERR_INPUT, "is not auto, cpu, cuda:N or a command that runs fathom worker");
}

static const struct option_spec specs[] = {
    {"--listen", "ADDR:PORT", "FATHOM_LISTEN", "127.0.0.1:8080", "where to answer; port 0 picks a free one", 0, NULL},
    {"--data", "DIR", "FATHOM_DATA_DIR", NULL,
     "where jobs and results are kept (default $XDG_DATA_HOME/fathom or ~/.local/share/fathom)", 0, NULL},
    {"--models", "DIR", "FATHOM_MODELS", NULL, "a folder of checkpoints; earlier ones win", 1, NULL},
    {"--datasets", "DIR", "FATHOM_DATASETS", NULL, "a folder of datasets; earlier ones win", 1, NULL},
    {"--workers", "SPEC", "FATHOM_WORKERS", "auto",
     "a worker to start: auto (the first GPU, else the CPU), cpu, cuda:N, or a command such as 'ssh host fathom worker "
     "--device cuda:0'",
     1, check_worker},
};

struct serve {
	char *data_dir;      /* owned, as what follows */
	char self[PATH_MAX]; /* this program, for local workers */
	struct http *http;
	struct core *core;
	struct store *store; /* the HTTP thread's */
	struct api api;
};

/* -- folders ----------------------------------------------------------------------------------- */

static err_code default_data_dir(char **out, struct err *e)
{
	const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
	int rc;

	if (xdg && xdg[0] == '/')
		rc = asprintf(out, "%s/fathom", xdg);
	else if (home && *home)
		rc = asprintf(out, "%s/.local/share/fathom", home);
	else
		return err_set(e, ERR_INPUT, "neither --data, XDG_DATA_HOME nor HOME says where to keep jobs");
	return rc < 0 ? err_set(e, ERR_MEMORY, "out of memory") : ERR_OK;
}

/* mkdir -p; the folder itself is for its owner alone. */
static err_code make_dirs(const char *path, struct err *e)
{
	char part[PATH_MAX];

	if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
		return err_set(e, ERR_INPUT, "path too long: %.100s...", path);
	for (char *s = strchr(part + 1, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (mkdir(part, 0777) && errno != EEXIST)
			return err_errno(e, "cannot make %s", part);
		*s = '/';
	}
	if (mkdir(part, 0700) && errno != EEXIST)
		return err_errno(e, "cannot make %s", part);
	return ERR_OK;
}

static err_code check_dirs(const char *flag, const char *const *dirs, size_t n, struct err *e)
{
	struct stat st;

	for (size_t i = 0; i < n; i++) {
		if (stat(dirs[i], &st) || access(dirs[i], R_OK | X_OK))
			return err_errno(e, "%s %s", flag, dirs[i]);
		if (!S_ISDIR(st.st_mode))
			return err_set(e, ERR_INPUT, "%s %s: not a folder", flag, dirs[i]);
	}
	return ERR_OK;
}

/* -- starting ---------------------------------------------------------------------------------- */

static err_code find_self(char self[PATH_MAX], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);

	if (n < 0)
		return err_errno(e, "cannot find this program: /proc/self/exe");
	self[n] = '\0';
	return ERR_OK;
}

/* On the core thread. */
static void on_change(void *arg, int64_t job)
{
	struct serve *s = arg;

	http_wake(s->http, job);
	http_wake(s->http, 0); /* whoever listens to all jobs */
}

static err_code read_options(struct serve *s, const struct options *o, struct core_options *core, struct err *e)
{
	const char *data = options_get(o, "--data");

	s->data_dir = data ? mem_strdup(data, e) : NULL;
	if (data ? !s->data_dir : default_data_dir(&s->data_dir, e))
		return e->code;
	core->data_dir = s->data_dir;
	core->self = s->self;
	core->workers = options_all(o, "--workers", &core->n_workers);
	core->registry.model_dirs = options_all(o, "--models", &core->registry.n_model_dirs);
	core->registry.dataset_dirs = options_all(o, "--datasets", &core->registry.n_dataset_dirs);
	core->on_change = on_change;
	core->arg = s;
	if (check_dirs("--models", core->registry.model_dirs, core->registry.n_model_dirs, e) ||
	    check_dirs("--datasets", core->registry.dataset_dirs, core->registry.n_dataset_dirs, e))
		return e->code;
	return make_dirs(s->data_dir, e);
}

/* What starts, and is hardly meant. */
static void warn_about(const struct registry *r, const struct http *http)
{
	char path[PATH_MAX];

	if (!http_is_loopback(http))
		log_warn("no password is asked for: whoever reaches %s may start and delete jobs", http_url(http));
	if (!r->n_model_dirs)
		log_warn("no --models: there is nothing to evaluate");
	if (!r->n_dataset_dirs)
		log_warn("no --datasets: there is nothing to evaluate on");
	for (size_t i = 0; i < r->n_model_dirs; i++)
		if (snprintf(path, sizeof path, "%s/config.json", r->model_dirs[i]) < (int)sizeof path &&
		    !access(path, F_OK))
			log_warn("--models %s is a checkpoint itself: only those in it are found; the folder that "
			         "holds it is meant?",
			         r->model_dirs[i]);
}

static err_code start(struct serve *s, const struct options *o, struct err *e)
{
	struct core_options core = {0};
	struct http_options http = {.listen = options_get(o, "--listen"),
	                            .handler = routes_dispatch,
	                            .max_body = routes_max_body,
	                            .app = &s->api};

	if (find_self(s->self, e) || read_options(s, o, &core, e))
		return e->code;
	if (http_open(&http, &s->http, e) || core_open(&core, &s->core, e) ||
	    store_open(s->data_dir, true, &s->store, e))
		return e->code;
	s->api = (struct api){
	    .core = s->core,
	    .store = s->store,
	    .registry = core.registry,
	    .data_dir = s->data_dir,
	    .loopback = http_is_loopback(s->http),
	};
	if (http_start(s->http, e))
		return e->code;
	fprintf(stderr, "fathom " FATHOM_VERSION " listening on %s\n", http_url(s->http));
	warn_about(&core.registry, s->http);
	return ERR_OK;
}

int cmd_serve(int argc, char **argv)
{
	struct serve s = {0};
	struct options *o = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(specs, sizeof specs / sizeof *specs, "fathom serve [options]",
	                  "Answers HTTP, keeps the queue and every result, starts and watches the workers. "
	                  "SIGTERM or SIGINT\nstops it in order, a terminal that closes does not; jobs go on when it "
	                  "is started again.",
	                  argc, argv, &o, &help, &e))
		return cmd_error("serve", &e);
	if (help)
		goto out;
	signal(SIGHUP, SIG_IGN); /* a terminal that goes away does not end it */
	if (options_no_args(o, &e) || start(&s, o, &e) || core_run(s.core, &e))
		status = cmd_error("serve", &e);
out:
	http_free(s.http);
	store_close(s.store);
	core_free(s.core);
	free(s.api.last_model);
	free(s.data_dir);
	options_free(o);
	return status;
}
