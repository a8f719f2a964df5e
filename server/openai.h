/* Routes with other people's contracts: OpenAI's completions, for scoring, and the tokenizer's that lm-eval asks for.
 * All run on the HTTP thread. Refusals are OpenAI's error objects: {"error":{"message","type","param","code"}}. */
#ifndef FATHOM_SERVER_OPENAI_H
#define FATHOM_SERVER_OPENAI_H

#include "server/api.h"

#define OPENAI_MAX_BODY    ((size_t)4 << 20)
#define OPENAI_MAX_WAITING 256 /* requests that wait for a worker; more are answered 429 */

/* openai_completions.c */
void openai_completions(struct http_request *r); /* POST /v1/completions */

/* openai_tokens.c */
void openai_models(struct http_request *r);         /* GET /v1/models */
void openai_model(struct http_request *r);          /* GET /v1/models/{name} */
void openai_tokenizer_info(struct http_request *r); /* GET /tokenizer_info */
void openai_tokenize(struct http_request *r);       /* POST /tokenize */
void openai_detokenize(struct http_request *r);     /* POST /detokenize */

/* -- shared (openai.c) ------------------------------------------------------------------------- */

bool openai_owns(const char *path);

/* `param` and `code` may be NULL. */
void openai_refuse(struct http_request *r, unsigned status, const char *param, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* An error of the layers below; what is wrong with the input is wrong with `param`. */
void openai_refuse_error(struct http_request *r, const char *param, const struct err *e);

/* The body as an object, to be freed; NULL: refused. */
struct json *openai_body(struct http_request *r);

/* A boolean member; null and absent are false. Else refused. */
bool openai_take_bool(struct http_request *r, const struct json *body, const char *key, bool *out);

/* Whether a model of that name is there; else refused. */
bool openai_has_model(struct http_request *r, const char *name);

#endif
