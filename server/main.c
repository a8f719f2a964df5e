/* fathom: the program's entry. Dispatches to a subcommand through one table and makes sure that a result that could
 * not be written to stdout is not reported as success. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/cmd.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary; /* NULL: a child of serve, of no use to people */
} commands[] = {
    {"serve", cmd_serve, "run the server: HTTP API, queue, workers, web page"},
    {"run", cmd_run, "evaluate one model in this process, without a server"},
    {"frequencies", cmd_frequencies, "map how much each layer uses each frequency of its positions"},
    {"worker", cmd_worker, "own one device; started by serve, speaks JSON on stdin and stdout"},
    {"judge", cmd_judge, NULL},
    {"notify", cmd_notify, NULL},
    {"tokenize", cmd_tokenize, "print the token ids of a text"},
    {"generate", cmd_generate, "print a dataset that a task makes itself"},
    {"submit", cmd_submit, "queue an evaluation on a running server"},
    {"wait", cmd_wait, "wait for a job and print its result"},
    {"jobs", cmd_jobs, "list a server's jobs"},
    {"cancel", cmd_cancel, "cancel a job"},
    {"gate", cmd_gate, "judge a model against a baseline: pass, fail or inconclusive"},
    {"compare", cmd_compare, "the same for results that are there already, in files"},
    {"baseline", cmd_baseline, "make, list, import and export what gates compare with"},
    {"gates", cmd_gates, "list a server's gates, or the runs of one"},
    {"models", cmd_models, "list a server's models, or describe one"},
    {"datasets", cmd_datasets, "list a server's datasets; `datasets fetch` gets known ones"},
    {"tasks", cmd_tasks, "list a server's tasks, or describe one"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static void print_usage(FILE *out)
{
	fputs("usage: fathom COMMAND [options]\n\n"
	      "Measures how far a language model can read: perplexity against length, zero-shot tasks.\n\n"
	      "commands:\n",
	      out);
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (commands[i].summary)
			fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].summary);
	fputs("\n`fathom COMMAND --help` describes one. `fathom --version` prints the version.\n"
	      "Exit status: 0 ok, 1 the evaluation failed, 2 usage or bad input, 3 inconclusive.\n",
	      out);
}

static int dispatch(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	const struct command *c = find_command(name);
	char help[] = "--help";
	char *help_argv[] = {NULL, help, NULL};

	if (c)
		return c->run(argc - 1, argv + 1);
	if (!strcmp(name, "--version")) {
		puts("fathom " FATHOM_VERSION);
		return 0;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || (!strcmp(name, "help") && argc == 2)) {
		print_usage(stdout);
		return 0;
	}
	c = !strcmp(name, "help") ? find_command(argv[2]) : NULL;
	if (c) {
		help_argv[0] = argv[2];
		return c->run(2, help_argv);
	}
	if (*name)
		fprintf(stderr, "fathom: unknown command '%s' (fathom --help lists them)\n",
		        argc > 2 && !strcmp(name, "help") ? argv[2] : name);
	else
		print_usage(stderr);
	return 2;
}

/* A standard stream that is closed would be the first file or socket opened, and messages would be written there. Its
 * place is taken by one on which reads and writes go on failing. */
static void hold_standard_streams(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
			_exit(2);
}

int main(int argc, char **argv)
{
	int status;

	hold_standard_streams();
	status = dispatch(argc, argv);

	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "fathom: cannot write to stdout: %s\n", strerror(errno));
		return status ? status : 2;
	}
	return status;
}
