/* What subcommands share: see cmd.h. */
#include "server/cmd.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/report.h"

int cmd_error(const char *name, const struct err *e)
{
	fprintf(stderr, "fathom %s: %s\n", name, e->msg);
	return 2;
}

err_code cmd_check_format(const char *value, struct err *e)
{
	enum report_format f;

	if (report_format_from_name(value, &f))
		return ERR_OK;
	return err_set(e, ERR_INPUT, "is not table, json, csv or markdown");
}

err_code cmd_check_threads(const char *value, struct err *e)
{
	char *end;
	long n = strtol(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || n > 1024)
		return err_set(e, ERR_INPUT, "is not a number from 0 to 1024");
	return ERR_OK;
}
