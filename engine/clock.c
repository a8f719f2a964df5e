/* Clocks: see clock.h. */
#include "engine/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_ms(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t clock_mono_ms(void)
{
	return read_ms(CLOCK_MONOTONIC);
}

int64_t clock_unix_ms(void)
{
	return read_ms(CLOCK_REALTIME);
}

double clock_mono_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void clock_sleep_ms(int64_t ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

void clock_format(int64_t unix_ms, char out[CLOCK_TEXT])
{
	time_t s = (time_t)(unix_ms / 1000);
	char whole[CLOCK_TEXT] = "";
	struct tm tm;

	out[0] = '\0';
	if (gmtime_r(&s, &tm) && strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%S", &tm) == 19)
		snprintf(out, CLOCK_TEXT, "%.19s.%03uZ", whole, (unsigned)(unix_ms % 1000) % 1000);
}
