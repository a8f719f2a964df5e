/* The web page: files that are embedded in the program, by name. */
#include <stdio.h>
#include <string.h>

#include "engine/sha256.h"
#include "server/api.h"
#include "server/embedded.h"
#include "server/problem.h"

#define PAGE_POLICY                                                                                                    \
	"default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "                         \
	"form-action 'self'; frame-ancestors 'none'"

static const char *type_of(const char *name)
{
	static const struct {
		const char *suffix, *type;
	} types[] = {
	    {".html", "text/html; charset=utf-8"},
	    {".css", "text/css; charset=utf-8"},
	    {".js", "text/javascript; charset=utf-8"},
	    {".svg", "image/svg+xml"},
	};
	const char *suffix = strrchr(name, '.');

	for (size_t i = 0; suffix && i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].suffix, suffix))
			return types[i].type;
	return "application/octet-stream";
}

static const struct embedded *find_file(const char *name)
{
	char full[200];

	snprintf(full, sizeof full, "web/%s", name && *name ? name : "index.html");
	for (size_t i = 0; i < embedded_count; i++)
		if (!strcmp(embedded_files[i].name, full))
			return &embedded_files[i];
	return NULL;
}

void api_static(struct http_request *r)
{
	const struct embedded *f = find_file(r->name);
	char hex[SHA256_HEX];

	if (!f) {
		problem_send(r, 404, "nothing at %.500s", r->path);
		return;
	}
	sha256_hex(f->data, f->len, hex);
	hex[32] = '\0';
	http_set_header(r, "Content-Security-Policy", "%s", PAGE_POLICY);
	http_set_header(r, "Referrer-Policy", "no-referrer");
	if (!http_not_modified(r, hex))
		http_send_static(r, type_of(f->name), f->data, f->len);
}
