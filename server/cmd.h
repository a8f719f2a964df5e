/* Subcommands: one file each, server/cmd_<name>.c. Each returns the process's exit status (0 ok, 1 the evaluation
 * failed, 2 usage or bad input, 3 inconclusive) and prints its own errors as "fathom <name>: message". */
#ifndef FATHOM_SERVER_CMD_H
#define FATHOM_SERVER_CMD_H

#include "eval/eval.h"
#include "server/options.h"

int cmd_serve(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_frequencies(int argc, char **argv);
int cmd_worker(int argc, char **argv);
int cmd_judge(int argc, char **argv);  /* cmd_judge.c */
int cmd_notify(int argc, char **argv); /* the same */
int cmd_tokenize(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_submit(int argc, char **argv);
int cmd_wait(int argc, char **argv);
int cmd_jobs(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_datasets(int argc, char **argv);
int cmd_datasets_list(int argc, char **argv); /* without "fetch": cmd_models.c */
int cmd_tasks(int argc, char **argv);
int cmd_gate(int argc, char **argv);
int cmd_gates(int argc, char **argv);
int cmd_baseline(int argc, char **argv);
int cmd_compare(int argc, char **argv);

/* Prints "fathom <name>: message" on stderr and returns 2. */
int cmd_error(const char *name, const struct err *e);

/* --set key=value... as members of the object that is open. */
err_code cmd_put_params(const struct options *o, const struct task *t, struct json_writer *w, struct err *e);
/* The same to effective parameters; json_free them. */
err_code cmd_read_params(const struct options *o, const struct task *t, struct json **out, struct err *e);

/* Rows that the tables of commands share which evaluate in this process. */
/* clang-format off */
#define CMD_RUN_OPTIONS                                                                                                \
	{"--set", "KEY=VALUE", NULL, NULL, "a parameter of the task", 1, NULL},                                        \
	{"--device", "DEVICE", NULL, "auto",                                                                           \
	 "cpu; cuda:N, a GPU by number; auto: the first GPU if there is one, else the CPU", 0, NULL},                  \
	{"--dtype", "DTYPE", NULL, "auto", "auto (f32 on a CPU, bf16 on a GPU), f32, bf16, f16", 0, NULL},             \
	{"--threads", "N", NULL, "0", "CPU threads; 0: all that this process may use", 0, cmd_check_threads},          \
	{"--position", "JSON", NULL, NULL, "position override, as {\"type\":\"yarn\",\"factor\":4}", 0, cmd_check_json}
/* clang-format on */

/* `fathom run` with options that are parsed: CMD_RUN_OPTIONS, --model --data --format --items --out. Messages begin
 * with "fathom <command>". */
int cmd_run_task(const char *command, const char *task, const struct options *o);
/* The task's own help, after the command's. The exit status. */
int cmd_print_task_help(const char *command, const char *task);

/* Checks of options (struct option_spec) that more than one command has. */
err_code cmd_check_format(const char *value, struct err *e);
err_code cmd_check_threads(const char *value, struct err *e);
err_code cmd_check_pair(const char *value, struct err *e); /* KEY=VALUE */
err_code cmd_check_json(const char *value, struct err *e); /* an object */

/* The file of a gate; its text is appended to `text` (NULL: not wanted). The error names the file and the pointer. */
struct gate;
err_code cmd_read_gate(const char *path, struct buf *text, struct gate **out, struct err *e);

/* --tag KEY=VALUE... as the member "tags". */
err_code cmd_put_tags(const struct options *o, struct json_writer *w, struct err *e);

#endif
