/* The known datasets: what their publishers' files are called, how large they are, their sha256, and what is in them.
 * `fathom datasets fetch` gets them by it, and everything else asks it whether a file is the official one.
 *
 * Rows stand in catalog_table.c, immutable. A checksum is pinned only where a public record of it exists; each row says
 * which. What an archive holds has no checksum of its own: unpacking a verified archive leaves CATALOG_RECORD beside
 * the files. */
#ifndef FATHOM_EVAL_CATALOG_H
#define FATHOM_EVAL_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/sha256.h"

/* One file as it is published. */
struct catalog_source {
	const char *file;           /* below the entry's url */
	const char *sha256;         /* 64 hex digits */
	uint64_t bytes;             /* of the file; of an archive, packed */
	const char *const *members; /* NULL: it is data itself; else an archive (zip, tar) of which these paths, up to a
	                             * NULL, are the data */
};

struct catalog_entry {
	const char *name; /* of the dataset, and of its folder */
	const char *task; /* that it is made for */
	bool open;        /* the task is made for any other data as well: no need to warn of it */
	uint32_t n_items;
	const char *unit; /* of the items: "passages" */
	const char *url;  /* the publisher's folder, with a slash at its end */
	const struct catalog_source *sources;
	size_t n_sources;
};

size_t catalog_count(void);
const struct catalog_entry *catalog_at(size_t i);
const struct catalog_entry *catalog_find(const char *name);      /* NULL when there is none of this name */
const struct catalog_entry *catalog_of_task(const char *task);   /* NULL: no dataset is official for it */
uint64_t catalog_entry_bytes(const struct catalog_entry *entry); /* to download */

size_t catalog_n_data_files(const struct catalog_entry *entry); /* in its folder; labels beside them do not count */

/* The last component of a source's file or of a member: how the data is called in the dataset's folder. */
const char *catalog_base(const char *path);

/* In the folder of a dataset that came out of an archive: the lines "# NAME SHA256" of each archive, and one
 * "SHA256  NAME" of each file in it, as `sha256sum --check` reads them. */
#define CATALOG_RECORD ".official.sha256"

/* Whether the data at `path` is the entry's: a folder that holds all of its files and no other data, or one of its
 * files. Reads only what has the right size. ERR_IO when something there cannot be read. */
err_code catalog_check(const struct catalog_entry *entry, const char *path, bool *official, struct err *e);

/* The entry that data at `path`, a dataset called `name`, is or claims to be, and which of the two: by its bytes, else
 * by the name of the dataset or of the file. NULL: it is none. */
err_code catalog_identify(const char *name, const char *path, const struct catalog_entry **entry, bool *official,
                          struct err *e);

/* Private to the two files: the rows. */
extern const struct catalog_entry catalog_entries[];
extern const size_t catalog_n_entries;

#endif
