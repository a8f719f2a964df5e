/* Logs: one line on stderr, "2026-01-31T12:00:00.123Z level message". FATHOM_LOG sets the lowest level shown:
 * debug, info (default), warn, error. Thread-safe; a line is one write. */
#ifndef FATHOM_ENGINE_LOG_H
#define FATHOM_ENGINE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
