/* Evidence: what a verdict is judged from. One measurement is a result object (design, "Command line") with its items
 * as "items": [...]; a file holds one such object, or {"results": [...]} of several, plain or as gzip. */
#ifndef FATHOM_SERVER_EVIDENCE_FILE_H
#define FATHOM_SERVER_EVIDENCE_FILE_H

#include "engine/json.h"
#include "server/output.h"

#define EVIDENCE_FILE_MAX ((size_t)1 << 30)

/* Whether a word is meant as a file rather than as a name: it ends in .json or .json.gz. */
bool evidence_file_named(const char *word);

/* Reads a file to {"results": [evidence...]} and appends that as text, the same for the same contents however they were
 * packed. ERR_INPUT names the file, the JSON pointer and what is wrong there. */
err_code evidence_file_read(const char *path, struct buf *out, struct err *e);

/* The object of one measurement under `key`: the members of `result`, then items from JSON lines. */
err_code evidence_file_put(struct json_writer *w, const char *key, const struct json *result, const char *lines,
                           size_t len, struct err *e);

/* Writes text to an open output, as gzip when its path ends in .gz, and commits it. */
err_code evidence_file_commit(struct output *o, const struct buf *text, struct err *e);

#endif
