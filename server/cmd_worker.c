/* fathom worker: owns one device; commands on stdin, events on stdout (eval/wire.h). Started by `fathom serve`. */
#include <stdlib.h>

#include "eval/eval.h"
#include "server/cmd.h"
#include "server/options.h"

static const struct option_spec specs[] = {
    {"--device", "DEVICE", NULL, "auto", "cpu; cuda:N, a GPU by number; auto; or none: only describes models", 0, NULL},
    {"--threads", "N", NULL, "0", "CPU threads; 0: all that this process may use", 0, cmd_check_threads},
    {"--models", "DIR", NULL, NULL, "where models are", 1, NULL},
    {"--datasets", "DIR", NULL, NULL, "where datasets are", 1, NULL},
};

int cmd_worker(int argc, char **argv)
{
	struct worker_options o = {0};
	struct options *options = NULL;
	struct err e;
	int help, status;

	if (options_parse(
	        specs, sizeof specs / sizeof specs[0], "fathom worker [options]",
	        "Owns one device: JSON commands on stdin, JSON events on stdout, logs on stderr, until stdin ends.\n"
	        "`fathom serve` starts it.",
	        argc, argv, &options, &help, &e))
		return cmd_error("worker", &e);
	if (help)
		return 0;
	if (options_no_args(options, &e)) {
		options_free(options);
		return cmd_error("worker", &e);
	}
	o.device = options_get(options, "--device");
	o.n_threads = (uint32_t)strtoul(options_get(options, "--threads"), NULL, 10);
	o.registry.model_dirs = options_all(options, "--models", &o.registry.n_model_dirs);
	o.registry.dataset_dirs = options_all(options, "--datasets", &o.registry.n_dataset_dirs);
	status = worker_main(&o);
	options_free(options);
	return status;
}
