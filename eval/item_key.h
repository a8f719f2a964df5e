/* Keys of items (protocols.md section 5): the first 16 hex digits of the sha256 of an item's exact token ids and score
 * mask. Over its chains in order, each as the number of its tokens (32 bits, little-endian, as all here), the ids, and
 * for every token one byte, 1 if it is scored and 0 if not. */
#ifndef FATHOM_EVAL_ITEM_KEY_H
#define FATHOM_EVAL_ITEM_KEY_H

#include <stdint.h>

#include "engine/sha256.h"

#define ITEM_KEY_LEN 17 /* 16 hex digits and NUL */

/* Adds a chain of which tokens [first, len) are scored. */
void item_key_add(struct sha256 *h, const uint32_t *tokens, uint32_t len, uint32_t first);
void item_key_final(struct sha256 *h, char key[ITEM_KEY_LEN]); /* frees h */

#endif
