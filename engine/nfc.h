/* Normalisation to NFC, and the way back from a place in the normal form to the text. By utf8proc (2.8: Unicode 15). */
#ifndef FATHOM_ENGINE_NFC_H
#define FATHOM_ENGINE_NFC_H

#include <stddef.h>

#include "engine/buf.h"
#include "engine/err.h"

/* A run whose normal form differs: bytes from..to of the text became out_from..out_to. Outside the runs
 * text and normal form are the same, byte by byte. */
struct nfc_run {
	size_t from, to, out_from, out_to;
};

struct nfc {
	struct buf text;      /* the normal form; valid only if n_runs > 0 */
	struct nfc_run *runs; /* [n_runs], ascending; owned */
	size_t n_runs, cap_runs;
};
void nfc_release(struct nfc *n); /* zero-initialise before the first use */

/* Normalises s, which must be valid UTF-8. n_runs = 0: s is in NFC already (and n->text is empty).
 *
 * This is NFC as Hugging Face's `tokenizers` (0.23) computes it, from tables of Unicode 9: the marks that
 * came later are left where they are and nothing moves across them. */
err_code nfc_apply(struct nfc *n, const char *s, size_t len, struct err *e);

/* The byte of the text that byte `at` of the normal form comes from. Inside a run, where there is no such byte,
 * the run's end: the token that opens a changed run owns all its bytes. *run is a cursor for ascending
 * calls; start it at 0. */
size_t nfc_origin(const struct nfc *n, size_t at, size_t *run);

#endif
