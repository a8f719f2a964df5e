/* Webhooks: see webhook.h. */
#include "server/webhook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "engine/sha256.h"
#include "eval/gate.h"
#include "server/store_gate.h"

#define TIMEOUT_S 20

static size_t ignore_body(char *data, size_t size, size_t n, void *arg)
{
	(void)data;
	(void)arg;
	return size * n;
}

static bool add_header(struct curl_slist **list, const char *line)
{
	struct curl_slist *grown = curl_slist_append(*list, line);

	if (grown)
		*list = grown;
	return grown != NULL;
}

static bool make_headers(struct curl_slist **list, const char *secret, int64_t run, const char *body)
{
	char line[160], hex[SHA256_HEX];
	bool ok = add_header(list, "Content-Type: application/json") && add_header(list, "X-Fathom-Event: verdict") &&
	          add_header(list, "Expect:");

	snprintf(line, sizeof line, "X-Fathom-Delivery: %lld", (long long)run);
	ok = ok && add_header(list, line);
	if (!secret)
		return ok;
	hmac_sha256_hex(secret, strlen(secret), body, strlen(body), hex);
	snprintf(line, sizeof line, "X-Fathom-Signature: sha256=%s", hex);
	return ok && add_header(list, line);
}

static err_code configure(CURL *curl, const char *url, const struct curl_slist *headers, const char *body,
                          struct err *e)
{
	bool ok = true;

	ok &= !curl_easy_setopt(curl, CURLOPT_URL, url);
	ok &= !curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	ok &= !curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	ok &= !curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)TIMEOUT_S / 2);
	ok &= !curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
	ok &= !curl_easy_setopt(curl, CURLOPT_USERAGENT, "fathom/" FATHOM_VERSION);
	ok &= !curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore_body);
	ok &= !curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
	ok &= !curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	return ok ? ERR_OK : err_set(e, ERR_MEMORY, "libcurl refused an option");
}

static err_code post(const char *url, const char *secret, int64_t run, const char *body, struct err *e)
{
	struct curl_slist *headers = NULL;
	long status = 0;
	CURLcode rc;
	CURL *curl;

	if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
		return err_set(e, ERR_INPUT, "webhook '%.200s' does not begin with http:// or https://", url);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	curl = curl_easy_init();
	e->code = ERR_OK;
	if (!curl || !make_headers(&headers, secret, run, body))
		err_set(e, ERR_MEMORY, "out of memory");
	else
		configure(curl, url, headers, body, e);
	if (e->code)
		goto out;
	rc = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	if (rc)
		err_set(e, ERR_IO, "%s: %s", url, curl_easy_strerror(rc));
	else if (status < 200 || status > 299)
		err_set(e, ERR_IO, "%s: answered %ld", url, status);
out:
	curl_slist_free_all(headers);
	if (curl)
		curl_easy_cleanup(curl);
	curl_global_cleanup();
	return e->code;
}

static err_code notify(const struct gate *g, const struct gate_run *run, struct err *e)
{
	const char *secret = NULL;

	if (!g->webhook_url || !run->verdict)
		return err_set(e, ERR_CONFLICT, "run %lld has no verdict to tell", (long long)run->id);
	if (g->webhook_secret_env) {
		secret = getenv(g->webhook_secret_env);
		if (!secret || !*secret)
			return err_set(e, ERR_INPUT, "the server's environment has no %s to sign with",
			               g->webhook_secret_env);
	}
	return post(g->webhook_url, secret, run->id, run->verdict, e);
}

err_code webhook_notify(struct store *s, int64_t id, struct json_writer *w, struct err *e)
{
	struct gate_run run = {0};
	struct gate_row row = {0};
	struct gate *gate = NULL;
	err_code rc = store_run_get(s, id, &run, e);

	if (!rc)
		rc = store_gate_get(s, run.gate, run.gate_version, &row, e);
	if (!rc)
		rc = gate_parse_text(row.definition, strlen(row.definition), &gate, e);
	if (!rc)
		rc = notify(gate, &run, e);
	gate_free(gate);
	gate_row_release(&row);
	gate_run_release(&run);
	if (rc)
		return rc;
	json_begin_object(w, NULL);
	json_put_string(w, "event", "delivered");
	json_end_object(w);
	return ERR_OK;
}
