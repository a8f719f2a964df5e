/* Clocks: monotonic for intervals and deadlines, Unix time for what is stored and shown; and a pause. */
#ifndef FATHOM_ENGINE_CLOCK_H
#define FATHOM_ENGINE_CLOCK_H

#include <stdint.h>

int64_t clock_mono_ms(void);
double clock_mono_s(void);
int64_t clock_unix_ms(void);

void clock_sleep_ms(int64_t ms); /* a signal ends it early */

/* RFC 3339 in UTC with milliseconds, "2026-01-31T12:00:00.123Z"; "" for a time that has no year of four digits. */
#define CLOCK_TEXT 25
void clock_format(int64_t unix_ms, char out[CLOCK_TEXT]);

#endif
