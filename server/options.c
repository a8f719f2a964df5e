/* Command-line options: see options.h. Values are borrowed; only the lists that point at them are owned. */
#include "server/options.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"

#define HELP_COLUMN 30 /* where the help text of an option begins */
#define HELP_WIDTH  100

struct values {
	const char **v; /* owned list of borrowed strings, [cap] */
	size_t n, cap;
};

struct options {
	const struct option_spec *specs; /* borrowed, [n_specs] */
	size_t n_specs;
	struct values *values; /* owned, [n_specs] */
	struct values args;
};

static err_code values_add(struct values *l, const char *value, struct err *e)
{
	const char **v = mem_grow(l->v, &l->cap, l->n + 1, sizeof *v, e);

	if (!v)
		return e->code;
	l->v = v;
	l->v[l->n++] = value;
	return ERR_OK;
}

/* -- help -------------------------------------------------------------------------------------- */

/* Prints `text` wrapped at HELP_WIDTH, the cursor being at `column`, going on at HELP_COLUMN. */
static void print_wrapped(const char *text, size_t column)
{
	while (*text) {
		size_t len = strcspn(text, " ");

		if (column > HELP_COLUMN && column + 1 + len > HELP_WIDTH) {
			printf("\n%*s", HELP_COLUMN, "");
			column = HELP_COLUMN;
		} else if (column > HELP_COLUMN) {
			putchar(' ');
			column++;
		}
		printf("%.*s", (int)len, text);
		column += len;
		text += len;
		text += strspn(text, " ");
	}
	putchar('\n');
}

static void print_option(const struct option_spec *s)
{
	char text[1024];
	int used = printf("  %s%s%s%s", s->flag, s->value ? " " : "", s->value ? s->value : "", s->repeat ? "..." : "");

	if (used < HELP_COLUMN - 1)
		printf("%*s", HELP_COLUMN - used, "");
	else
		printf("\n%*s", HELP_COLUMN, "");
	snprintf(text, sizeof text, "%s%s%s%s%s%s%s%s", s->help, s->fallback ? " (default " : "",
	         s->fallback ? s->fallback : "", s->fallback ? ")" : "", s->env ? " [$" : "", s->env ? s->env : "",
	         s->env ? "]" : "", s->repeat ? " (may be repeated)" : "");
	print_wrapped(text, HELP_COLUMN);
}

static void print_help(const struct option_spec *specs, size_t n, const char *usage, const char *summary)
{
	printf("usage: %s\n\n%s\n\noptions:\n", usage, summary);
	for (size_t i = 0; i < n; i++)
		print_option(&specs[i]);
	printf("  %-*s%s\n", HELP_COLUMN - 2, "--help", "this text");
}

/* -- parsing ----------------------------------------------------------------------------------- */

/* The row of a flag of `len` bytes, or n. */
static size_t find_spec(const struct option_spec *specs, size_t n, const char *flag, size_t len)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strlen(specs[i].flag) == len && !memcmp(specs[i].flag, flag, len))
			break;
	return i;
}

static err_code add_checked(struct options *o, size_t i, const char *value, const char *source, struct err *e)
{
	const struct option_spec *s = &o->specs[i];
	struct err why;

	if (s->check && s->check(value, &why))
		return err_set(e, why.code, "%s: '%.100s' %s", source, value, why.msg);
	return values_add(&o->values[i], value, e);
}

/* Takes argv[at], and its value from argv[at + 1] if it has one; *next is the first index not taken. */
static err_code parse_flag(struct options *o, int argc, char **argv, int at, int *next, struct err *e)
{
	const char *flag = argv[at], *value = strchr(flag, '=');
	size_t len = value ? (size_t)(value - flag) : strlen(flag);
	size_t i = find_spec(o->specs, o->n_specs, flag, len);
	const struct option_spec *s = &o->specs[i];

	*next = at + 1;
	if (i == o->n_specs)
		return err_set(e, ERR_INPUT, "unknown option %.100s (--help lists them)", flag);
	if (o->values[i].n && !s->repeat)
		return err_set(e, ERR_INPUT, "option %s is given twice", s->flag);
	if (!s->value) {
		if (value)
			return err_set(e, ERR_INPUT, "option %s takes no value: '%.100s'", s->flag, flag);
		return add_checked(o, i, "", s->flag, e);
	}
	if (value)
		return add_checked(o, i, value + 1, s->flag, e);
	if (*next == argc)
		return err_set(e, ERR_INPUT, "option %s needs a value: %s", s->flag, s->value);
	return add_checked(o, i, argv[(*next)++], s->flag, e);
}

static err_code parse_args(struct options *o, int argc, char **argv, struct err *e)
{
	for (int i = 1; i < argc;) {
		if (!strcmp(argv[i], "--")) {
			for (i++; i < argc; i++)
				if (values_add(&o->args, argv[i], e))
					return e->code;
		} else if (argv[i][0] == '-' && argv[i][1]) {
			if (parse_flag(o, argc, argv, i, &i, e))
				return e->code;
		} else if (values_add(&o->args, argv[i++], e)) {
			return e->code;
		}
	}
	return ERR_OK;
}

/* What no flag gave comes from the environment (an empty variable counts as absent), else from the table. */
static err_code fill_defaults(struct options *o, struct err *e)
{
	for (size_t i = 0; i < o->n_specs; i++) {
		const struct option_spec *s = &o->specs[i];
		const char *env = s->env ? getenv(s->env) : NULL;

		if (o->values[i].n)
			continue;
		if (env && *env) {
			if (add_checked(o, i, env, s->env, e))
				return e->code;
		} else if (s->fallback && values_add(&o->values[i], s->fallback, e)) {
			return e->code;
		}
	}
	return ERR_OK;
}

/* --help anywhere before "--" wins over any error in the rest of the line. */
static bool wants_help(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return true;
	return false;
}

err_code options_parse(const struct option_spec *specs, size_t n_specs, const char *usage, const char *summary,
                       int argc, char **argv, struct options **out, int *help, struct err *e)
{
	struct options *o;

	*out = NULL;
	*help = wants_help(argc, argv);
	if (*help) {
		print_help(specs, n_specs, usage, summary);
		return ERR_OK;
	}
	o = mem_zalloc(1, sizeof *o, e);
	if (!o)
		return e->code;
	o->specs = specs;
	o->n_specs = n_specs;
	o->values = mem_zalloc(n_specs, sizeof *o->values, e);
	if (!o->values)
		goto fail;
	if (parse_args(o, argc, argv, e) || fill_defaults(o, e))
		goto fail;
	*out = o;
	return ERR_OK;
fail:
	options_free(o);
	return e->code;
}

void options_free(struct options *o)
{
	if (!o)
		return;
	for (size_t i = 0; o->values && i < o->n_specs; i++)
		free(o->values[i].v);
	free(o->values);
	free(o->args.v);
	free(o);
}

/* -- reading ----------------------------------------------------------------------------------- */

static const struct values *values_of(const struct options *o, const char *flag)
{
	size_t i = find_spec(o->specs, o->n_specs, flag, strlen(flag));

	assert(i < o->n_specs);
	return &o->values[i];
}

const char *options_get(const struct options *o, const char *flag)
{
	const struct values *l = values_of(o, flag);

	return l->n ? l->v[l->n - 1] : NULL;
}

size_t options_count(const struct options *o, const char *flag)
{
	return values_of(o, flag)->n;
}

const char *const *options_all(const struct options *o, const char *flag, size_t *n)
{
	const struct values *l = values_of(o, flag);

	*n = l->n;
	return (const char *const *)l->v;
}

err_code options_no_args(const struct options *o, struct err *e)
{
	if (!o->args.n)
		return ERR_OK;
	return err_set(e, ERR_INPUT, "unexpected argument '%.100s'", o->args.v[0]);
}

size_t options_n_args(const struct options *o)
{
	return o->args.n;
}

const char *options_arg(const struct options *o, size_t i)
{
	assert(i < o->args.n);
	return o->args.v[i];
}
