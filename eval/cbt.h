/* Text of the Children's Book Test, which is tokenized as the Penn Treebank is. */
#ifndef FATHOM_EVAL_CBT_H
#define FATHOM_EVAL_CBT_H

#include "engine/buf.h"

/* Appends a text of tokens with single spaces between as a book prints it: quotes, brackets, clitics, punctuation. */
void cbt_detokenize(struct buf *out, const char *tokens, size_t len);

#endif
