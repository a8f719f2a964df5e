/* Launchers: see launcher.h. A worker inherits the environment without what a cluster's own launcher left in
 * it: a library that finds RANK or MASTER_ADDR would wait for peers that do not exist. */
#include "server/launcher.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct list {
	char **items; /* owned, NULL-terminated */
	size_t n, cap;
	bool failed;
};

static void list_push(struct list *l, const char *s)
{
	struct err ignored;
	char **grown = mem_grow(l->items, &l->cap, l->n + 2, sizeof *grown, &ignored);

	l->failed |= !grown;
	if (!grown)
		return;
	l->items = grown;
	l->items[l->n] = mem_strdup(s, &ignored);
	if (l->items[l->n])
		l->n++;
	else
		l->failed = true;
	l->items[l->n] = NULL;
}

static void list_free(char **items)
{
	for (char **s = items; s && *s; s++)
		free(*s);
	free(items);
}

static bool starts_with(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* Does this "NAME=value" tell a process its place among others? srun needs SLURM_JOB_ID and its like to start a step in
 * the allocation that the server runs in, so a command keeps them, but not the server's own place. */
static bool is_placement(const char *variable, bool command)
{
	static const char *const always[] = {
	    "RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "NODE_RANK=",     "GROUP_RANK=",  "MASTER_",
	    "PMI_",  "PMIX_",       "OMPI_",       "SLURM_PROCID=",     "SLURM_LOCALID=", "SLURM_NODEID="};

	for (size_t i = 0; i < sizeof always / sizeof *always; i++)
		if (starts_with(variable, always[i]))
			return true;
	return !command && starts_with(variable, "SLURM_");
}

/* Takes argv, and adds the environment. */
static err_code finish(struct list *argv, bool command, const char *name, struct launch *out, struct err *e)
{
	struct list envp = {0};

	for (char **v = environ; *v; v++)
		if (!is_placement(*v, command))
			list_push(&envp, *v);
	if (argv->failed || envp.failed || !envp.items) {
		list_free(argv->items);
		list_free(envp.items);
		return err_set(e, ERR_MEMORY, "out of memory starting '%s'", name);
	}
	*out = (struct launch){argv->items, envp.items};
	return ERR_OK;
}

err_code launch_make(const char *spec, const char *self, const struct registry *r, struct launch *out, struct err *e)
{
	bool command = strchr(spec, ' ') != NULL;
	struct list argv = {0};
	struct buf line = BUF_INIT(1 << 20);

	if (command) {
		buf_printf(&line, "exec %s", spec);
		list_push(&argv, "/bin/sh");
		list_push(&argv, "-c");
		list_push(&argv, buf_str(&line));
	} else {
		list_push(&argv, self);
		list_push(&argv, "worker");
		list_push(&argv, "--device");
		list_push(&argv, spec);
	}
	for (size_t i = 0; !command && i < r->n_model_dirs; i++) {
		list_push(&argv, "--models");
		list_push(&argv, r->model_dirs[i]);
	}
	for (size_t i = 0; !command && i < r->n_dataset_dirs; i++) {
		list_push(&argv, "--datasets");
		list_push(&argv, r->dataset_dirs[i]);
	}
	argv.failed |= line.failed;
	buf_release(&line);
	return finish(&argv, command, spec, out, e);
}

err_code launch_self(const char *const *args, struct launch *out, struct err *e)
{
	struct list argv = {0};

	for (const char *const *s = args; *s; s++)
		list_push(&argv, *s);
	return finish(&argv, false, args[0], out, e);
}

void launch_release(struct launch *l)
{
	list_free(l->argv);
	list_free(l->envp);
	*l = (struct launch){0};
}

void launch_detach(int on_death, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, (unsigned long)on_death);
	if (getppid() != parent)
		_exit(127); /* it died before prctl */
}
