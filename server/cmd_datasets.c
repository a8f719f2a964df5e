/* fathom datasets: what a server has; and `fathom datasets fetch`, which gets a known dataset from its publisher. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "server/client.h"
#include "server/cmd.h"
#include "server/fetch.h"
#include "server/progress.h"

static err_code check_url(const char *value, struct err *e)
{
	if (!strncmp(value, "http://", 7) || !strncmp(value, "https://", 8))
		return ERR_OK;
	return err_set(e, ERR_INPUT, "does not begin with http:// or https://");
}

static const struct option_spec specs[] = {
    {"--datasets", "DIR", "FATHOM_DATASETS", "data",
     "the folder of datasets, made if need be: NAME becomes a folder in it", 0, NULL},
    {"--mirror", "URL", "FATHOM_MIRROR", NULL,
     "take NAME/FILE from below this address rather than from the publisher; checksums are the same", 0, check_url},
};

/* -- what can be fetched ----------------------------------------------------------------------- */

static err_code print_catalog(struct err *e)
{
	static const char *const head[] = {"NAME", "TASK", "ITEMS", "MB", "FROM"};
	static const bool right[] = {false, false, true, true, false};
	struct client_table t = {.head = head, .right = right, .n_columns = 5};
	char items[40], size[24];
	err_code rc = ERR_OK;

	for (size_t i = 0; i < catalog_count() && !rc; i++) {
		const struct catalog_entry *c = catalog_at(i);

		snprintf(items, sizeof items, "%u %s", c->n_items, c->unit);
		snprintf(size, sizeof size, "%.1f", (double)catalog_entry_bytes(c) / 1e6);
		rc = client_table_add(&t, (const char *const[]){c->name, c->task, items, size, c->url}, e);
	}
	if (!rc)
		client_table_print(&t);
	client_table_release(&t);
	return rc;
}

static const struct catalog_entry *find_entry(const char *name, struct err *e)
{
	const struct catalog_entry *c = catalog_find(name);
	struct buf names = BUF_INIT(4096);

	for (size_t i = 0; i < catalog_count() && !c; i++)
		buf_printf(&names, "%s%s", i ? ", " : "", catalog_at(i)->name);
	if (!c)
		err_set(e, ERR_INPUT, "no dataset '%.100s' is known (there is: %s)", name, buf_str(&names));
	buf_release(&names);
	return c;
}

/* -- fetching ---------------------------------------------------------------------------------- */

static uint64_t kilobytes_done(void *arg)
{
	const struct fetch *f = arg;

	return f->done / 1000;
}

static void stop(void *arg)
{
	struct fetch *f = arg;

	f->stop = true;
}

static err_code fetch_one(const struct catalog_entry *c, const struct options *o, struct err *e)
{
	struct fetch f = {.dir = options_get(o, "--datasets"), .mirror = options_get(o, "--mirror")};
	const struct progress progress = {.done = kilobytes_done,
	                                  .stop = stop,
	                                  .arg = &f,
	                                  .total = (catalog_entry_bytes(c) + 999) / 1000,
	                                  .unit = "kB"};
	struct progress_thread *thread = NULL;
	err_code rc = progress_start(&progress, &thread, e);

	if (!rc)
		rc = fetch_dataset(c, &f, e);
	progress_stop(thread);
	if (rc)
		return err_wrap(e, "%s", c->name);
	printf("%s: %u %s in %s/%s, %s\n", c->name, c->n_items, c->unit, f.dir, c->name,
	       f.n_bytes_loaded ? "checksums verified" : "all there already");
	return ERR_OK;
}

static err_code fetch_all(const struct options *o, struct err *e)
{
	const char *dir = options_get(o, "--datasets");
	struct stat st;

	for (size_t i = 0; i < options_n_args(o); i++)
		if (!find_entry(options_arg(o, i), e))
			return e->code;
	(void)mkdir(dir, 0777); /* the first dataset makes the folder */
	if (stat(dir, &st) || !S_ISDIR(st.st_mode))
		return err_set(e, ERR_INPUT, "--datasets '%.200s': no such folder", dir);
	for (size_t i = 0; i < options_n_args(o); i++)
		if (fetch_one(catalog_find(options_arg(o, i)), o, e))
			return e->code;
	return ERR_OK;
}

static int run_fetch(int argc, char **argv)
{
	struct options *o = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(specs, sizeof specs / sizeof *specs, "fathom datasets fetch [options] [NAME...]",
	                  "Gets known datasets from their publishers and verifies them; without a name, lists them.\n"
	                  "What was interrupted goes on where it ended.",
	                  argc, argv, &o, &help, &e))
		return cmd_error("datasets fetch", &e);
	if (!help && options_n_args(o))
		progress_catch_signals();
	if (!help && (options_n_args(o) ? fetch_all(o, &e) : print_catalog(&e)))
		status = cmd_error("datasets fetch", &e);
	options_free(o);
	return status;
}

int cmd_datasets(int argc, char **argv)
{
	return argc > 1 && !strcmp(argv[1], "fetch") ? run_fetch(argc - 1, argv + 1) : cmd_datasets_list(argc, argv);
}
