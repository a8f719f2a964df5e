/* What subcommands share: see cmd.h. */
#include "server/cmd.h"

#include <stdio.h>

int cmd_error(const char *name, const struct err *e)
{
	fprintf(stderr, "fathom %s: %s\n", name, e->msg);
	return 2;
}
