/* fathom run and fathom tokenize as processes: results, formats, files, exit statuses, SIGINT; and reports from a
 * result made by hand. FATHOM is the program, else build/fathom. */
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/report.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_model.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;
static char root[PATH_MAX];

static void set_up(void)
{
	static const char text[] = "It was the best of times, it was the worst of times, it was the age of wisdom.\r\n";
	char data[PATH_MAX + 8];

	snprintf(root, sizeof root, "%s", fixture_tmpdir());
	snprintf(data, sizeof data, "%s/books", root);
	ck_assert_int_eq(mkdir(data, 0700), 0);
	fixture_write(data, "a.txt", text, strlen(text));
	fixture_write(data, "b.txt", text, strlen(text) / 2);
	model_free(fixture_eval_model(root, "tiny", "rope"));
}

/* Runs `fathom ARGS` in root through the shell; stdout to root/stdout, stderr to root/stderr. Returns the exit
 * status. */
static int fathom(const char *args)
{
	static char here[PATH_MAX], command[4 * PATH_MAX];
	const char *program = getenv("FATHOM");
	int status;

	if (!program)
		program = "build/fathom";
	ck_assert_ptr_nonnull(getcwd(here, sizeof here));
	snprintf(command, sizeof command, "cd '%s' && '%s%s%s' %s >stdout 2>stderr", root, *program == '/' ? "" : here,
	         *program == '/' ? "" : "/", program, args);
	status = system(command);
	ck_assert_msg(WIFEXITED(status), "%s: killed", args);
	return WEXITSTATUS(status);
}

static const char *output(const char *name)
{
	static struct buf text[2] = {BUF_INIT(1 << 20), BUF_INIT(1 << 20)};
	static unsigned i;

	i ^= 1;
	buf_clear(&text[i]);
	fixture_read(root, name, &text[i]);
	return buf_str(&text[i]);
}

static bool exists(const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", root, name);
	return !access(path, F_OK);
}

#define RUN "run --model tiny --data books --threads 1 --set lengths=8,32 "

/* -- results ----------------------------------------------------------------------------------- */

START_TEST(a_json_result_has_every_member_of_the_contract)
{
	struct json *r;
	const struct json *m;

	ck_assert_int_eq(fathom(RUN "--format json --items items.jsonl"), 0);
	r = fixture_json(output("stdout"));
	ck_assert_double_eq(fixture_member(r, "schema"), 1);
	ck_assert_str_eq(json_get_string(json_get(r, "model"), "name"), "tiny");
	ck_assert_int_eq(strncmp(json_get_string(json_get(r, "model"), "fingerprint"), "sha256:", 7), 0);
	ck_assert_double_gt(fixture_member(json_get(r, "model"), "n_params"), 1000);
	ck_assert_str_eq(json_get_string(json_get(json_get(r, "model"), "position"), "type"), "rope");
	ck_assert_str_eq(json_get_string(json_get(r, "task"), "name"), "pg19");
	ck_assert_double_eq(fixture_member(json_get(r, "task"), "version"), 1);
	ck_assert_uint_eq(json_count(json_get(json_get(r, "task"), "params")), 8);
	ck_assert_str_eq(json_get_string(json_get(r, "dataset"), "name"), "books");
	ck_assert_double_eq(fixture_member(json_get(r, "dataset"), "n_items"), 4);
	ck_assert_str_eq(json_get_string(json_get(r, "engine"), "dtype"), "f32");
	ck_assert_double_eq(fixture_member(json_get(r, "engine"), "tokens"), 2 * (78 + 39)); /* CRLF is LF */
	ck_assert_double_gt(fixture_member(json_get(r, "engine"), "tokens_per_s"), 0);
	ck_assert_double_gt(fixture_member(json_get(r, "engine"), "model_flops_per_token"), 1000);
	ck_assert(json_is_null(json_get(json_get(r, "engine"), "mfu")));
	ck_assert_ptr_nonnull(strstr(json_get_string(json_get(r, "engine"), "mfu_reason"), "in f32 is not known"));
	ck_assert(json_is_array(json_get(r, "warnings")));
	ck_assert_ptr_null(json_get(r, "partial"));
	m = fixture_metric(json_get(r, "metrics"), "ppl_token", 32);
	ck_assert_double_gt(fixture_member(m, "value"), 1);
	ck_assert_double_gt(fixture_member(m, "stderr"), 0);
	ck_assert_double_eq(fixture_member(m, "n"), 117);
	ck_assert_str_eq(json_get_string(m, "unit"), "perplexity");
	ck_assert_int_eq(strncmp(output("items.jsonl"), "{\"id\":0,\"key\":\"", 15), 0);
	json_free(r);
}
END_TEST

START_TEST(two_runs_give_the_same_metrics_and_items_to_the_bit)
{
	struct json *r[2];
	struct buf text[2] = {BUF_INIT(1 << 20), BUF_INIT(1 << 20)};
	char *items;

	ck_assert_int_eq(fathom(RUN "--format json --items items.jsonl"), 0);
	r[0] = fixture_json(output("stdout"));
	items = strdup(output("items.jsonl"));
	ck_assert_int_eq(fathom("run --model tiny/ --data books/ --threads 2 --set lengths=8,32 --format=json --items "
	                        "items.jsonl --out r.json"),
	                 0);
	ck_assert_str_eq(output("stdout"), "");
	r[1] = fixture_json(output("r.json"));
	ck_assert_str_eq(output("items.jsonl"), items);
	for (int i = 0; i < 2; i++) {
		struct json_writer w = JSON_WRITER(&text[i]);

		json_begin_array(&w, NULL);
		json_put_value(&w, NULL, json_get(r[i], "metrics"));
		json_put_value(&w, NULL, json_get(r[i], "model"));
		json_put_value(&w, NULL, json_get(r[i], "task"));
		json_put_value(&w, NULL, json_get(r[i], "dataset"));
		json_end_array(&w);
	}
	ck_assert_str_eq(buf_str(&text[0]), buf_str(&text[1]));
	for (int i = 0; i < 2; i++) {
		json_free(r[i]);
		buf_release(&text[i]);
	}
	free(items);
}
END_TEST

START_TEST(a_position_override_is_part_of_the_result_and_its_fingerprint)
{
	struct json *plain, *yarn;

	ck_assert_int_eq(fathom(RUN "--format json"), 0);
	plain = fixture_json(output("stdout"));
	ck_assert_int_eq(fathom(RUN "--format json --position '{\"type\":\"yarn\",\"factor\":4}'"), 0);
	yarn = fixture_json(output("stdout"));
	ck_assert_str_eq(json_get_string(json_get(json_get(yarn, "model"), "position"), "type"), "yarn");
	ck_assert_str_ne(json_get_string(json_get(yarn, "model"), "fingerprint"),
	                 json_get_string(json_get(plain, "model"), "fingerprint"));
	ck_assert(fixture_member(fixture_metric(json_get(plain, "metrics"), "ppl_token", 32), "value") !=
	          fixture_member(fixture_metric(json_get(yarn, "metrics"), "ppl_token", 32), "value"));
	json_free(plain);
	json_free(yarn);
}
END_TEST

START_TEST(stdout_has_the_result_and_stderr_the_warnings)
{
	ck_assert_int_eq(fathom("run --model tiny --data books --set lengths=8,60"), 0);
	ck_assert_ptr_nonnull(strstr(output("stdout"), "\nlength  ppl_token"));
	ck_assert_ptr_null(strstr(output("stdout"), "warning"));
	ck_assert_ptr_nonnull(strstr(output("stderr"), "warning: length 60: 1 of 2 documents shorter"));
	ck_assert_ptr_null(strchr(output("stderr"), '\r')); /* no bar: stderr is no terminal */
}
END_TEST

START_TEST(help_explains_the_task_too)
{
	ck_assert_int_eq(fathom("run --help"), 0);
	ck_assert_ptr_nonnull(strstr(output("stdout"), "--items"));
	ck_assert_ptr_null(strstr(output("stdout"), "min_doc_tokens"));
	ck_assert_int_eq(fathom("run --task pg19 --help"), 0);
	ck_assert_ptr_nonnull(strstr(output("stdout"), "--items"));
	ck_assert_ptr_nonnull(strstr(output("stdout"), "min_doc_tokens"));
	ck_assert_int_eq(fathom("run --task pg20 --help"), 2);
}
END_TEST

/* -- failure ----------------------------------------------------------------------------------- */

START_TEST(bad_usage_and_bad_input_exit_with_two_and_say_why)
{
	static const struct {
		const char *args, *words;
	} cases[] = {
	    {"run --data books", "--model is missing"},
	    {"run --model tiny", "--data: a dataset is missing"},
	    {"run --model tiny --task indirect_indexing", "--data: a dataset is missing (or n, with which task"},
	    {"run --model tiny --task indirect_indexing --set n=5 --data books",
	     "--data: with n, task indirect_indexing "},
	    {"run --model tiny --task indirect_indexing --set seed=5", "seed: only lines that are generated have one"},
	    {"generate", "--task is missing"},
	    {"generate --task pg19", "task pg19 makes no dataset"},
	    {"generate --task indirect_indexing", "n is missing: task indirect_indexing makes a dataset by it"},
	    {"generate --task indirect_indexing --set n=0", "n: 0 is not an integer from 1 to 1000000"},
	    {"run --model tiny --data books --task pg20", "unknown task 'pg20'"},
	    {"run --model tiny --data books --set lengths=0", "--set: lengths/0: 0 is not an integer from 1"},
	    {"run --model tiny --data books --set lengths=64,32", "must ascend"},
	    {"run --model tiny --data books --set length=64", "is 'lengths' meant?"},
	    {"run --model tiny --data books --set lengths=8 --set lengths=9", "--set: lengths is given twice"},
	    {"run --model tiny --data books --format xml", "--format: 'xml' is not table, json, csv or markdown"},
	    {"run --model tiny --data books --threads many", "--threads: 'many' is not a number"},
	    {"run --model tiny --data books --device cuda:0", "cuda"},
	    {"run --model tiny --data books --dtype f8", "f8"},
	    {"run --model tiny --data books --position '{'", "--position: '{' is not a JSON object"},
	    {"run --model tiny --data books --position yarn", "--position: 'yarn' is not a JSON object"},
	    {"run --model tiny --data books --position '{\"type\":\"alibi\"}'", "alibi"},
	    {"run --model tiny --data books extra", "unexpected argument 'extra'"},
	    {"run --model tiny --data books --frobnicate", "--frobnicate"},
	    {"run --model absent --data books", "absent"},
	    {"run --model tiny --data absent", "dataset 'absent'"},
	    {"run --model tiny --data tiny", "dataset 'tiny': nothing to read: no .txt file in it"},
	    {"run --model tiny --data books --set lengths=500 --set last_window=drop", "no document has a window"},
	    {"tokenize", "--model is missing"},
	    {"tokenize --model absent", "absent"},
	    {"tokenize --model tiny --file absent", "absent"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		ck_assert_msg(fathom(cases[i].args) == 2, "%s", cases[i].args);
		ck_assert_msg(strstr(output("stderr"), cases[i].words) != NULL, "%s: %s", cases[i].args,
		              output("stderr"));
		ck_assert_str_eq(output("stdout"), "");
	}
}
END_TEST

START_TEST(outputs_that_cannot_be_written_are_refused_at_once_and_failure_leaves_none)
{
	ck_assert_int_eq(fathom(RUN "--out absent/r.json"), 2);
	ck_assert_ptr_nonnull(strstr(output("stderr"), "cannot write 'absent/r.json': No such file"));
	ck_assert_int_eq(fathom("run --model tiny --data tiny --out r.json --items i.jsonl"), 2);
	ck_assert(!exists("r.json") && !exists("r.json.partial") && !exists("i.jsonl") && !exists("i.jsonl.partial"));
}
END_TEST

START_TEST(an_output_that_could_only_fail_at_the_end_is_refused_before_the_start)
{
	static const struct {
		const char *args, *message;
	} cases[] = {
	    {"--out books", "--out: 'books' is a folder"},
	    {"--items books", "--items: 'books' is a folder"},
	    {"--out ''", "--out: the path is empty"},
	    {"--out r.json --items r.json", "--out and --items are one file: 'r.json'"},
	    {"--out r.json --items ./r.json", "--out and --items are one file: 'r.json'"},
	};
	char args[200];

	for (size_t i = 0; i < COUNT(cases); i++) {
		snprintf(args, sizeof args, RUN "%s", cases[i].args);
		ck_assert_int_eq(fathom(args), 2);
		ck_assert_ptr_nonnull(strstr(output("stderr"), cases[i].message));
		ck_assert(!exists("r.json") && !exists("r.json.partial") && !exists("books.partial"));
	}
}
END_TEST

START_TEST(an_output_that_is_no_regular_file_is_written_and_not_replaced)
{
	char path[2 * PATH_MAX], text[1 << 16];
	struct stat st;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "%s/pipe", root);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fd = open(path, O_RDWR | O_NONBLOCK);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fathom(RUN "--format csv --out pipe"), 0);
	n = read(fd, text, sizeof text - 1);
	ck_assert_int_gt(n, 100);
	ck_assert_int_eq(strncmp(text, "model,", 6), 0);
	close(fd);
	ck_assert(!lstat(path, &st) && S_ISFIFO(st.st_mode));

	/* a link stays one, and what it points to is replaced */
	fixture_write(root, "target", "old", 3);
	snprintf(path, sizeof path, "%s/link", root);
	ck_assert_int_eq(symlink("target", path), 0);
	ck_assert_int_eq(fathom(RUN "--format csv --out link"), 0);
	ck_assert(!lstat(path, &st) && S_ISLNK(st.st_mode));
	ck_assert_int_eq(strncmp(output("target"), "model,", 6), 0);
}
END_TEST

START_TEST(items_that_cannot_be_written_do_not_cost_the_result)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/full", root); /* a link, so that a fault costs the link and not the device */
	ck_assert_int_eq(symlink("/dev/full", path), 0);
	ck_assert_int_eq(fathom(RUN "--format csv --items full"), 1);
	ck_assert_int_eq(strncmp(output("stdout"), "model,", 6), 0);
	ck_assert_ptr_nonnull(strstr(output("stderr"), "cannot write 'full'"));
}
END_TEST

START_TEST(messages_never_land_in_a_file_when_stderr_is_closed)
{
	ck_assert_int_eq(
	    fathom("run --model tiny --data books --set lengths=500 --format json --out r.json 2>&-; true"), 0);
	json_free(fixture_json(output("r.json")));
}
END_TEST

START_TEST(a_truncated_checkpoint_is_named_with_its_tensor)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/tiny/model.safetensors", root);
	ck_assert_int_eq(truncate(path, 20000), 0);
	ck_assert_int_eq(fathom(RUN), 2);
	ck_assert_ptr_nonnull(strstr(output("stderr"), "tensor '"));
}
END_TEST

START_TEST(a_run_with_a_failed_unit_prints_the_rest_as_partial_and_exits_with_one)
{
	struct json *r;
	char data[2 * PATH_MAX];

	snprintf(data, sizeof data, "%s/books", root);
	fixture_write(data, "c.txt", "the Zebra", 9);
	fixture_eval_poison(root, "tiny", 'Z');
	ck_assert_int_eq(fathom(RUN "--format json"), 1);
	ck_assert_ptr_nonnull(strstr(output("stderr"), "2 of 6 units failed, the first: "));
	ck_assert_ptr_nonnull(strstr(output("stderr"), "layer"));
	r = fixture_json(output("stdout"));
	ck_assert(json_true(json_get(r, "partial")));
	ck_assert_uint_eq(json_count(json_get(r, "failed_units")), 2);
	ck_assert_double_eq(fixture_member(fixture_metric(json_get(r, "metrics"), "ppl_token", 32), "n_docs"), 2);
	json_free(r);
}
END_TEST

START_TEST(windows_that_cannot_fit_are_refused_with_the_numbers)
{
	const char *model = fixture_shared("models/rope-29m");
	char args[2 * PATH_MAX], path[PATH_MAX];
	size_t n = 16000000;
	char *text;

	if (!model || !realpath(model, path)) {
		fixture_skip("windows_that_cannot_fit_are_refused_with_the_numbers", "no shared models");
		return;
	}
	text = malloc(n);
	ck_assert_ptr_nonnull(text);
	for (size_t i = 0; i < n; i++)
		text[i] = (char)('0' + i % 2); /* some millions of tokens: tens of GB of keys and values */
	fixture_write(root, "big.txt", text, n);
	free(text);
	snprintf(args, sizeof args, "run --model '%s' --data big.txt --set lengths=16777216 --device cpu", path);
	ck_assert_int_eq(fathom(args), 1);
	ck_assert_msg(strstr(output("stderr"), " tokens needs ") && strstr(output("stderr"), " MB free"), "%s",
	              output("stderr"));
}
END_TEST

START_TEST(an_interrupt_ends_a_run_cleanly)
{
	const char *program = getenv("FATHOM");
	char model[2 * PATH_MAX], data[2 * PATH_MAX], out[2 * PATH_MAX];
	size_t n = 8000000;
	char *text = malloc(n);
	int status;
	pid_t pid;

	ck_assert_ptr_nonnull(text);
	memset(text, 'x', n);
	fixture_write(root, "long.txt", text, n);
	free(text);
	snprintf(model, sizeof model, "%s/tiny", root);
	snprintf(data, sizeof data, "%s/long.txt", root);
	snprintf(out, sizeof out, "%s/r.json", root);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
		execl(program ? program : "build/fathom", "fathom", "run", "--model", model, "--data", data, "--set",
		      "lengths=8192", "--out", out, (char *)NULL);
		_exit(127);
	}
	while (!exists("r.json.partial")) /* it catches signals before it opens its output */
		usleep(10000);
	usleep(500000);
	ck_assert_int_eq(kill(pid, SIGINT), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 1);
	ck_assert(!exists("r.json") && !exists("r.json.partial"));
}
END_TEST

/* -- tokenize ---------------------------------------------------------------------------------- */

START_TEST(tokenize_prints_ids_and_ends)
{
	fixture_write(root, "t.txt", "hi\xFF\r\n", 5);
	ck_assert_int_eq(fathom("tokenize --model tiny --file t.txt"), 0);
	ck_assert_str_eq(output("stdout"), "104 105 239 191 189 13 10\n");
	ck_assert_ptr_nonnull(strstr(output("stderr"), "1 invalid UTF-8"));
	ck_assert_int_eq(fathom("tokenize --model tiny/tokenizer.json --json < t.txt"), 0);
	ck_assert_str_eq(output("stdout"), "{\"n\":7,\"ids\":[104,105,239,191,189,13,10],\"ends\":[1,2,3,4,5,6,7],\"n_"
	                                   "replaced\":1,\"n_dropped\":0}\n");
	ck_assert_int_eq(fathom("tokenize --model tiny </dev/null"), 0);
	ck_assert_str_eq(output("stdout"), "\n");
}
END_TEST

/* -- reports ----------------------------------------------------------------------------------- */

static const char result_text[] =
    "{\"schema\":1,\"model\":{\"name\":\"m,\\\"x\\\"\",\"position\":{\"type\":\"yarn\",\"factor\":4}},"
    "\"task\":{\"name\":\"pg19\",\"params\":{\"lengths\":[8,1024],\"protocol\":\"windows\",\"stride\":null}},"
    "\"dataset\":{\"name\":\"d\",\"n_docs\":2},\"metrics\":["
    "{\"name\":\"ppl_token\",\"length\":8,\"value\":12345678.25,\"stderr\":null,\"n\":1234567,\"unit\":\"perplexity\","
    "\"reason\":\"one_document\"},"
    "{\"name\":\"bits_per_byte\",\"length\":8,\"value\":1.25,\"stderr\":0.125,\"n\":1234567,\"unit\":\"bits/byte\"},"
    "{\"name\":\"ppl_token\",\"length\":1024,\"value\":null,\"stderr\":null,\"n\":5,\"unit\":\"perplexity\",\"reason\":"
    "\"overflow\"},"
    "{\"name\":\"acc\",\"group\":\"cn\",\"value\":0.5,\"stderr\":0.1,\"n\":25,\"unit\":\"fraction\"},"
    "{\"name\":\"nll_position\",\"from\":1,\"to\":2,\"value\":0.1,\"stderr\":0.2,\"n\":2,\"unit\":\"nats/token\"}],"
    "\"engine\":{\"device\":\"cpu\",\"dtype\":\"f32\",\"tokens\":1000,\"seconds\":2,\"tokens_per_s\":500,"
    "\"tflops_per_s\":400,\"mfu\":0.404},\"warnings\":[],\"partial\":true}";

/* A task of parts, with two metrics a part and their means last, and counts. */
static const char parts_text[] =
    "{\"schema\":1,\"model\":{\"name\":\"m\",\"position\":{\"type\":\"pope\"}},"
    "\"task\":{\"name\":\"cbt\",\"params\":{\"ties\":\"first\",\"limit\":null}},"
    "\"dataset\":{\"name\":\"books\",\"n_items\":5000,\"n_docs\":0},\"metrics\":["
    "{\"name\":\"acc\",\"group\":\"CN\",\"value\":0.8124,\"stderr\":0.0078102,\"n\":2500,\"unit\":\"fraction\"},"
    "{\"name\":\"acc_token\",\"group\":\"CN\",\"value\":0.75,\"stderr\":0.0086,\"n\":2500,\"unit\":\"fraction\"},"
    "{\"name\":\"acc\",\"group\":\"NE\",\"value\":1,\"stderr\":0,\"n\":2500,\"unit\":\"fraction\"},"
    "{\"name\":\"acc_token\",\"group\":\"NE\",\"value\":null,\"stderr\":null,\"n\":0,\"unit\":\"fraction\","
    "\"reason\":\"no_items\"},"
    "{\"name\":\"acc\",\"value\":0.9062,\"stderr\":0.0039051,\"n\":5000,\"unit\":\"fraction\"},"
    "{\"name\":\"acc_token\",\"value\":0.75,\"stderr\":0.0086,\"n\":2500,\"unit\":\"fraction\"},"
    "{\"name\":\"ppl\",\"value\":40.0554,\"stderr\":1.41231,\"n\":5000,\"unit\":\"perplexity\"},"
    "{\"name\":\"n_truncated\",\"value\":0,\"stderr\":null,\"n\":5000,\"unit\":\"items\",\"reason\":\"count\"},"
    "{\"name\":\"n_boundary_merged\",\"value\":1234,\"stderr\":null,\"n\":5000,\"unit\":\"items\",\"reason\":\"count\"}"
    "],"
    "\"engine\":{\"device\":\"cpu\",\"dtype\":\"f32\",\"tokens\":1000,\"seconds\":2,\"tokens_per_s\":500},\"warnings\":"
    "[]}";

static void check_report_of(const char *text, enum report_format format, const char *want)
{
	struct json *r = fixture_json(text);
	struct buf out = BUF_INIT(1 << 16);

	ck_ok(report_write(r, format, &out, &e), &e);
	ck_assert_str_eq(buf_str(&out), want);
	buf_release(&out);
	json_free(r);
}

static void check_report(enum report_format format, const char *want)
{
	check_report_of(result_text, format, want);
}

START_TEST(parts_are_listed_with_their_mean_last_and_counts_only_above_zero)
{
	check_report_of(parts_text, REPORT_TABLE,
	                "m (pope, f32 on cpu), task cbt on books, 5,000 items\n"
	                "ties first\n"
	                "\n"
	                "group         acc       ±  acc_token       ±      n\n"
	                "CN         0.8124  0.0078     0.7500  0.0086  2,500\n"
	                "NE         1.0000  0.0000   no_items       -      0\n"
	                "mean of 2  0.9062  0.0039     0.7500  0.0086  2,500\n"
	                "\n"
	                "metric              value       ±      n        unit\n"
	                "ppl                40.055  1.4123  5,000  perplexity\n"
	                "n_boundary_merged   1,234          5,000       items\n"
	                "\n"
	                "1,000 tokens in 2.0 s: 500 tokens/s\n");
	check_report_of(parts_text, REPORT_MARKDOWN,
	                "**m** (pope, f32 on cpu), task cbt on books, 5,000 items  \n"
	                "ties first\n"
	                "\n"
	                "| group     |    acc |      ± | acc_token |      ± |     n |\n"
	                "|:--|--:|--:|--:|--:|--:|\n"
	                "| CN        | 0.8124 | 0.0078 |    0.7500 | 0.0086 | 2,500 |\n"
	                "| NE        | 1.0000 | 0.0000 |  no_items |      - |     0 |\n"
	                "| mean of 2 | 0.9062 | 0.0039 |    0.7500 | 0.0086 | 2,500 |\n"
	                "\n"
	                "| metric            |  value |      ± |     n |       unit |\n"
	                "|:--|--:|--:|--:|--:|\n"
	                "| ppl               | 40.055 | 1.4123 | 5,000 | perplexity |\n"
	                "| n_boundary_merged |  1,234 |        | 5,000 |      items |\n"
	                "\n"
	                "1,000 tokens in 2.0 s: 500 tokens/s\n");
}
END_TEST

START_TEST(csv_has_all_parts_and_counts_of_zero)
{
	struct json *r = fixture_json(parts_text);
	struct buf out = BUF_INIT(1 << 16);

	ck_ok(report_write(r, REPORT_CSV, &out, &e), &e);
	ck_assert_ptr_nonnull(
	    strstr(buf_str(&out), "\nm,pope,cbt,books,,f32,acc,CN,,,,0.8124,0.0078102,2500,fraction,\n"));
	ck_assert_ptr_nonnull(
	    strstr(buf_str(&out), "\nm,pope,cbt,books,,f32,acc,,,,,0.9062,0.0039051,5000,fraction,\n"));
	ck_assert_ptr_nonnull(strstr(buf_str(&out), "\nm,pope,cbt,books,,f32,n_truncated,,,,,0,,5000,items,count\n"));
	buf_release(&out);
	json_free(r);
}
END_TEST

START_TEST(a_report_is_aligned_and_marks_what_is_null)
{
	check_report(REPORT_TABLE, "m,\"x\" (yarn x 4, f32 on cpu), task pg19 on d, 2 documents\n"
	                           "protocol windows\n"
	                           "\n"
	                           "length  ppl_token  ±  bits_per_byte       ±  ppl_word  ppl_doc_macro     tokens\n"
	                           "     8   12345678  -         1.2500  0.1250         -              -  1,234,567\n"
	                           "  1024   overflow  -              -       -         -              -          5\n"
	                           "\n"
	                           "group     acc       ±   n\n"
	                           "cn     0.5000  0.1000  25\n"
	                           "\n"
	                           "1,000 tokens in 2.0 s: 500 tokens/s, 400 TFLOP/s: 40 % of the device's peak\n"
	                           "PARTIAL: some units failed or are not done; the figures are over the rest\n");
}
END_TEST

START_TEST(markdown_is_the_same_as_tables)
{
	check_report(REPORT_MARKDOWN,
	             "**m,\"x\"** (yarn x 4, f32 on cpu), task pg19 on d, 2 documents  \n"
	             "protocol windows\n"
	             "\n"
	             "| length | ppl_token | ± | bits_per_byte |      ± | ppl_word | ppl_doc_macro |    tokens |\n"
	             "|--:|--:|--:|--:|--:|--:|--:|--:|\n"
	             "|      8 |  12345678 | - |        1.2500 | 0.1250 |        - |             - | 1,234,567 |\n"
	             "|   1024 |  overflow | - |             - |      - |        - |             - |         5 |\n"
	             "\n"
	             "| group |    acc |      ± |  n |\n"
	             "|:--|--:|--:|--:|\n"
	             "| cn    | 0.5000 | 0.1000 | 25 |\n"
	             "\n"
	             "1,000 tokens in 2.0 s: 500 tokens/s, 400 TFLOP/s: 40 % of the device's peak\n"
	             "PARTIAL: some units failed or are not done; the figures are over the rest\n");
}
END_TEST

START_TEST(csv_has_a_metric_a_line_in_full_precision_and_quotes_what_must_be)
{
	check_report(
	    REPORT_CSV,
	    "model,position,task,dataset,protocol,dtype,metric,group,length,from,to,value,stderr,n,unit,reason\n"
	    "\"m,\"\"x\"\"\",yarn,pg19,d,windows,f32,ppl_token,,8,,,12345678.25,,1234567,perplexity,one_document\n"
	    "\"m,\"\"x\"\"\",yarn,pg19,d,windows,f32,bits_per_byte,,8,,,1.25,0.125,1234567,bits/byte,\n"
	    "\"m,\"\"x\"\"\",yarn,pg19,d,windows,f32,ppl_token,,1024,,,,,5,perplexity,overflow\n"
	    "\"m,\"\"x\"\"\",yarn,pg19,d,windows,f32,acc,cn,,,,0.5,0.1,25,fraction,\n"
	    "\"m,\"\"x\"\"\",yarn,pg19,d,windows,f32,nll_position,,,1,2,0.1,0.2,2,nats/token,\n");
}
END_TEST

START_TEST(json_is_the_result_itself)
{
	struct json *r = fixture_json(result_text), *again;
	struct buf out = BUF_INIT(1 << 16);

	ck_ok(report_write(r, REPORT_JSON, &out, &e), &e);
	again = fixture_json(buf_str(&out));
	ck_assert_uint_eq(json_count(again), json_count(r));
	ck_assert_double_eq(fixture_member(json_get(again, "engine"), "tokens"), 1000);
	json_free(again);
	json_free(r);
	buf_release(&out);
}
END_TEST

Suite *run_suite(void);
Suite *run_suite(void)
{
	Suite *s = suite_create("run");
	TCase *process = tcase_create("process"), *reports = tcase_create("reports");

	tcase_add_checked_fixture(process, set_up, NULL);
	tcase_set_timeout(process, 60);
	tcase_add_test(process, a_json_result_has_every_member_of_the_contract);
	tcase_add_test(process, two_runs_give_the_same_metrics_and_items_to_the_bit);
	tcase_add_test(process, a_position_override_is_part_of_the_result_and_its_fingerprint);
	tcase_add_test(process, stdout_has_the_result_and_stderr_the_warnings);
	tcase_add_test(process, help_explains_the_task_too);
	tcase_add_test(process, bad_usage_and_bad_input_exit_with_two_and_say_why);
	tcase_add_test(process, outputs_that_cannot_be_written_are_refused_at_once_and_failure_leaves_none);
	tcase_add_test(process, an_output_that_could_only_fail_at_the_end_is_refused_before_the_start);
	tcase_add_test(process, an_output_that_is_no_regular_file_is_written_and_not_replaced);
	tcase_add_test(process, items_that_cannot_be_written_do_not_cost_the_result);
	tcase_add_test(process, messages_never_land_in_a_file_when_stderr_is_closed);
	tcase_add_test(process, a_truncated_checkpoint_is_named_with_its_tensor);
	tcase_add_test(process, a_run_with_a_failed_unit_prints_the_rest_as_partial_and_exits_with_one);
	tcase_add_test(process, windows_that_cannot_fit_are_refused_with_the_numbers);
	tcase_add_test(process, an_interrupt_ends_a_run_cleanly);
	tcase_add_test(process, tokenize_prints_ids_and_ends);
	suite_add_tcase(s, process);
	tcase_add_test(reports, a_report_is_aligned_and_marks_what_is_null);
	tcase_add_test(reports, markdown_is_the_same_as_tables);
	tcase_add_test(reports, parts_are_listed_with_their_mean_last_and_counts_only_above_zero);
	tcase_add_test(reports, csv_has_all_parts_and_counts_of_zero);
	tcase_add_test(reports, csv_has_a_metric_a_line_in_full_precision_and_quotes_what_must_be);
	tcase_add_test(reports, json_is_the_result_itself);
	suite_add_tcase(s, reports);
	return s;
}
