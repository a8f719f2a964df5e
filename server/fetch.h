/* Downloads of known datasets (eval/catalog.h) into a folder of datasets.
 *
 * Invariants: what is not yet verified is called NAME.part, so that a reader never meets it; a download goes on from
 * the part that is there, in this run or a later one; a file gets its own name by rename(2), after its checksum was
 * found to be the pinned one and its bytes were synced; a file that is there is never replaced. */
#ifndef FATHOM_SERVER_FETCH_H
#define FATHOM_SERVER_FETCH_H

#include <stdatomic.h>

#include "eval/catalog.h"

struct fetch {
	const char *dir;         /* the folder of datasets, which is there; borrowed, as `mirror` */
	const char *mirror;      /* NULL: from the publisher; else a URL below which NAME/FILE is to be had */
	_Atomic uint64_t done;   /* bytes of the entry's sources that are there; may be read from another thread */
	_Atomic bool stop;       /* set from another thread: ends the download, ERR_CANCELLED */
	uint64_t n_bytes_loaded; /* that came over the network */
};

/* ERR_INPUT: the server has not the file, or it is not the published one (then it is kept as NAME.rejected), or another
 * file is in its place. ERR_IO: the network or the disk. ERR_CONFLICT: another process is at it. */
err_code fetch_dataset(const struct catalog_entry *entry, struct fetch *f, struct err *e);

#endif
