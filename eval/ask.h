/* What a scoring request asks for, and how far its prompts are. Knows no session and no queue: worker_score.c leads
 * asks through passes. Main thread of the worker only. */
#ifndef FATHOM_EVAL_ASK_H
#define FATHOM_EVAL_ASK_H

#include "eval/chains.h"
#include "eval/token_keys.h"

#define ASK_MAX_TOKENS (1u << 18) /* of its prompts: the answer must fit a line */

/* Whose request it is; borrowed. */
struct ask_model {
	const struct model *model;
	const struct token_keys *keys;
	uint32_t limit; /* inputs that a chain may have: a prompt has one token more at most */
};

struct prompt {
	struct ask *ask;
	uint32_t *ids;              /* [n + 1, and room for what is generated] owned */
	struct token_score *scores; /* the same; of ids[i], 0 < i < n, if logprobs are wanted */
	uint32_t n_given, n;        /* as asked; with what was generated */
	uint32_t from;              /* tokens below it need no score any more */
	const char *finish;         /* static: why it is complete; NULL: it is not */
	bool at_eos;                /* the last token is EOS, which has no text */
	size_t cut;                 /* bytes of the generated text before a stop string; SIZE_MAX: there is none */
	struct chain chain;         /* of the pass under way */
};

struct ask {
	struct ask *next;
	struct command *command; /* of worker_score.c */
	struct ask_model model;
	bool echo, logprobs;
	uint32_t max_new;
	const struct json *stop; /* borrowed from the command, as `json` below */
	struct prompt *prompts;  /* [n_prompts] owned */
	size_t n_prompts;
	struct err why; /* code 0: nothing is wrong */
};

/* Reads a `score` command (wire.h): tokenizes texts, checks ids, lengths and counts. */
err_code ask_new(const struct ask_model *m, const struct json *json, struct ask **out, struct err *e);
void ask_free(struct ask *a); /* NULL is fine */

/* Sets the prompt's chain for the next pass. False when there is nothing to compute: it is complete then. */
bool prompt_begin(struct prompt *p);
/* Takes what the pass gave: appends a token where one was asked for, and may be complete. */
err_code prompt_end(struct prompt *p, struct err *e);

bool ask_is_complete(const struct ask *a); /* or something is wrong with it */
/* The array of its prompts' results, as `scored` has them. */
err_code ask_write(const struct ask *a, struct json_writer *w, const char *key, struct err *e);

#endif
