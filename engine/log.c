/* Logs: see log.h. The level is read from the environment once. */
#include "engine/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/clock.h"

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static enum log_level lowest = LOG_INFO;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_level(void)
{
	const char *s = getenv("FATHOM_LOG");

	for (int i = LOG_DEBUG; s && i <= LOG_ERROR; i++)
		if (!strcmp(s, level_names[i]))
			lowest = (enum log_level)i;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char line[2048];
	char time[CLOCK_TEXT];
	va_list ap;
	size_t n;
	int k;

	pthread_once(&once, read_level);
	if (level < lowest)
		return;
	clock_format(clock_unix_ms(), time);
	n = (size_t)snprintf(line, sizeof line, "%s %-5s ", time, level_names[level]);
	va_start(ap, fmt);
	k = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	va_end(ap);
	if (k > 0)
		n = n + (size_t)k < sizeof line - 1 ? n + (size_t)k : sizeof line - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* a log that cannot be written has nobody to tell */
}
