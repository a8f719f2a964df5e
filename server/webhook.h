/* Webhooks: the verdict of a run, POSTed to the gate's URL, signed. Shares libcurl with client.c and fetch.c. */
#ifndef FATHOM_SERVER_WEBHOOK_H
#define FATHOM_SERVER_WEBHOOK_H

#include "engine/json.h"
#include "server/store.h"

/* One delivery of a stored run's verdict to its gate's URL. Headers: X-Fathom-Event: verdict; X-Fathom-Delivery: the
 * run's number, the same in each try; where the gate names an environment variable with a secret, X-Fathom-Signature:
 * sha256=HMAC-SHA256(secret, body) in hex. Redirects are not followed. Any answer but 2xx is an error: ERR_IO. Writes
 * {"event":"delivered"}. */
err_code webhook_notify(struct store *s, int64_t run, struct json_writer *w, struct err *e);

#endif
