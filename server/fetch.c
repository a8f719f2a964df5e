/* Downloads of known datasets: see fetch.h. Shares libcurl with client.c. */
#include "server/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <curl/curl.h>

#include "engine/clock.h"
#include "engine/log.h"
#include "server/unpack.h"

#define PART         ".part"
#define MAX_FAILURES 4  /* attempts in a row that brought nothing */
#define SILENCE_S    60 /* after which a connection counts as broken */

/* One source on its way. */
struct load {
	struct fetch *fetch; /* borrowed, as source */
	const struct catalog_source *source;
	char url[2000];
	char dir[PATH_MAX], part[PATH_MAX]; /* the dataset's folder; the file that is written */
	int fd;                             /* of part, locked */
	uint64_t size;                      /* of part */
	uint64_t before;                    /* bytes of the sources before this one */
	bool too_long;
	int write_errno;
};

static err_code join(char out[PATH_MAX], const char *dir, const char *name, const char *suffix, struct err *e)
{
	if (snprintf(out, PATH_MAX, "%s/%s%s", dir, name, suffix) >= PATH_MAX)
		return err_set(e, ERR_INPUT, "path too long: '%.200s...'", dir);
	return ERR_OK;
}

/* -- the network ------------------------------------------------------------------------------- */

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	struct load *l = arg;
	size_t left = size * n;

	l->too_long = l->size + left > l->source->bytes;
	while (left && !l->too_long) {
		ssize_t k = write(l->fd, data, left);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			l->write_errno = errno;
			return 0;
		}
		data += k;
		left -= (size_t)k;
		l->size += (uint64_t)k;
		l->fetch->n_bytes_loaded += (uint64_t)k;
		l->fetch->done = l->before + l->size;
	}
	return l->too_long ? 0 : size * n;
}

static int on_progress(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
	const struct load *l = arg;

	(void)total;
	(void)now;
	(void)up_total;
	(void)up;
	return l->fetch->stop;
}

/* Empties the part: the server does not go on where it ends. */
static err_code start_again(struct load *l, struct err *e)
{
	l->size = 0;
	if (ftruncate(l->fd, 0))
		return err_errno(e, "cannot write '%s'", l->part);
	return ERR_OK;
}

static err_code configure(struct load *l, CURL *curl, struct err *e)
{
	bool ok = true;

	curl_easy_reset(curl);
	ok &= !curl_easy_setopt(curl, CURLOPT_URL, l->url);
	ok &= !curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	ok &= !curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
	ok &= !curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
	ok &= !curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
	ok &= !curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 20L);
	ok &= !curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	ok &= !curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
	ok &= !curl_easy_setopt(curl, CURLOPT_USERAGENT, "fathom/" FATHOM_VERSION);
	ok &= !curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)l->size);
	ok &= !curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	ok &= !curl_easy_setopt(curl, CURLOPT_WRITEDATA, l);
	ok &= !curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	ok &= !curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	ok &= !curl_easy_setopt(curl, CURLOPT_XFERINFODATA, l);
	return ok ? ERR_OK : err_set(e, ERR_MEMORY, "libcurl refused an option");
}

/* What is wrong beyond repair; ERR_OK when another attempt may help. */
static err_code judge(struct load *l, CURLcode rc, long status, struct err *e)
{
	if (l->fetch->stop)
		return err_set(e, ERR_CANCELLED, "stopped with %llu of %llu bytes: the same command goes on from there",
		               (unsigned long long)l->size, (unsigned long long)l->source->bytes);
	if (l->write_errno) {
		errno = l->write_errno;
		return err_errno(e, "cannot write '%s'", l->part);
	}
	if (l->too_long) /* nor is what came before it */
		return start_again(l, e) ? e->code
		                         : err_set(e, ERR_INPUT, "%s: more than the %llu bytes of the published file",
		                                   l->url, (unsigned long long)l->source->bytes);
	if (rc == CURLE_HTTP_RETURNED_ERROR && status < 500 && status != 416 && status != 429)
		return err_set(e, ERR_INPUT, "%s: the server answered %ld", l->url, status);
	if (rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_TOO_MANY_REDIRECTS ||
	    rc == CURLE_PEER_FAILED_VERIFICATION)
		return err_set(e, ERR_INPUT, "%s: %s", l->url, curl_easy_strerror(rc));
	return ERR_OK;
}

/* 1 s, 2 s, 4 s; shorter when it is to stop. */
static void wait_before(const struct load *l, unsigned failures)
{
	for (unsigned i = 0; i < 10u << (failures - 1) && !l->fetch->stop; i++)
		clock_sleep_ms(100);
}

/* Until the part has all its bytes. */
static err_code load_part(struct load *l, CURL *curl, struct err *e)
{
	uint64_t had, most = l->size; /* what was reached: a server without ranges begins again and again */
	unsigned failures = 0;
	long status;
	CURLcode rc;

	while (l->size < l->source->bytes) {
		had = l->size;
		status = 0;
		if (configure(l, curl, e))
			return e->code;
		rc = curl_easy_perform(curl);
		curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
		if (l->size == l->source->bytes)
			break;
		if (judge(l, rc, status, e))
			return e->code;
		if (had && (rc == CURLE_RANGE_ERROR || status == 416) && start_again(l, e))
			return e->code;
		failures = l->size > most ? 0 : failures + 1;
		most = l->size > most ? l->size : most;
		if (failures == MAX_FAILURES)
			return err_set(e, ERR_IO, "%s: %s; %llu of %llu bytes are kept", l->url,
			               rc ? curl_easy_strerror(rc) : "the file ends early", (unsigned long long)l->size,
			               (unsigned long long)l->source->bytes);
		if (failures)
			wait_before(l, failures);
		log_debug("%s: %s at byte %llu, again", l->url, rc ? curl_easy_strerror(rc) : "ended early",
		          (unsigned long long)l->size);
	}
	return ERR_OK;
}

/* -- one source -------------------------------------------------------------------------------- */

/* Opens and locks the part; what is in it counts if it can be of the file. */
static err_code open_part(struct load *l, struct err *e)
{
	struct stat st;

	l->fd = open(l->part, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (l->fd < 0)
		return err_errno(e, "cannot write '%s'", l->part);
	if (flock(l->fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? err_set(e, ERR_CONFLICT, "another fathom is writing '%s'", l->part)
		                            : err_errno(e, "cannot lock '%s'", l->part);
	if (fstat(l->fd, &st))
		return err_errno(e, "cannot stat '%s'", l->part);
	l->size = (uint64_t)st.st_size;
	if (l->size > l->source->bytes && start_again(l, e))
		return e->code;
	l->fetch->done = l->before + l->size;
	return ERR_OK;
}

/* The checksum decides. A file that is not the published one goes out of the way of the next attempt. */
static err_code verify(const struct load *l, struct err *e)
{
	char hex[SHA256_HEX], rejected[PATH_MAX];

	if (fsync(l->fd))
		return err_errno(e, "cannot write '%s'", l->part);
	if (sha256_file(l->part, hex, e))
		return e->code;
	if (!strcmp(hex, l->source->sha256))
		return ERR_OK;
	if (join(rejected, l->dir, catalog_base(l->source->file), ".rejected", e))
		return e->code;
	if (rename(l->part, rejected))
		return err_errno(e, "cannot rename '%s'", l->part);
	return err_set(
	    e, ERR_INPUT,
	    "%s is not the published file: its sha256 is %s, not %s; it was kept as '%s', and nothing else was "
	    "changed",
	    l->url, hex, l->source->sha256, rejected);
}

static err_code write_record(const struct load *l, struct err *e)
{
	const char *const *members = l->source->members;
	char path[PATH_MAX], temporary[PATH_MAX], member[PATH_MAX], hex[SHA256_HEX];
	FILE *f;
	err_code rc = ERR_OK;

	if (join(path, l->dir, CATALOG_RECORD, "", e) || join(temporary, l->dir, CATALOG_RECORD, PART, e))
		return e->code;
	f = fopen(temporary, "we");
	if (!f)
		return err_errno(e, "cannot write '%s'", temporary);
	fprintf(f, "# %s %s\n", l->source->file, l->source->sha256);
	for (size_t i = 0; members[i] && !rc; i++) {
		rc = join(member, l->dir, catalog_base(members[i]), UNPACK_SUFFIX, e);
		if (!rc)
			rc = sha256_file(member, hex, e);
		if (!rc)
			fprintf(f, "%s  %s\n", hex, catalog_base(members[i]));
	}
	if (!rc && (fflush(f) || ferror(f) || fsync(fileno(f)) || rename(temporary, path)))
		rc = err_errno(e, "cannot write '%s'", path);
	fclose(f);
	return rc;
}

/* The record first: without it the files would be strangers, whereas a record of files that are not there does no
 * harm. */
static err_code unpack(const struct load *l, struct err *e)
{
	const char *const *members = l->source->members;
	char from[PATH_MAX], to[PATH_MAX];

	if (unpack_members(l->part, members, l->dir, e) || write_record(l, e))
		return e->code;
	for (size_t i = 0; members[i]; i++) {
		if (join(from, l->dir, catalog_base(members[i]), UNPACK_SUFFIX, e) ||
		    join(to, l->dir, catalog_base(members[i]), "", e))
			return e->code;
		if (rename(from, to))
			return err_errno(e, "cannot rename '%s'", from);
	}
	if (unlink(l->part))
		return err_errno(e, "cannot remove '%s'", l->part);
	return ERR_OK;
}

static err_code place(const struct load *l, struct err *e)
{
	char path[PATH_MAX];

	if (l->source->members)
		return unpack(l, e);
	if (join(path, l->dir, catalog_base(l->source->file), "", e))
		return e->code;
	if (rename(l->part, path))
		return err_errno(e, "cannot rename '%s'", l->part);
	return ERR_OK;
}

/* Whether a file is there already; another one in its place is the user's, and an error. */
static err_code find_file(const struct catalog_entry *one, const char *dir, const char *file, bool *there,
                          struct err *e)
{
	char path[PATH_MAX];
	bool official;

	*there = false;
	if (join(path, dir, file, "", e))
		return e->code;
	if (access(path, F_OK))
		return errno == ENOENT ? ERR_OK : err_errno(e, "cannot open '%s'", path);
	if (catalog_check(one, path, &official, e))
		return e->code;
	if (!official)
		return err_set(e, ERR_INPUT,
		               "'%s' is there and is not the published file: move it away, it is not replaced", path);
	*there = true;
	return ERR_OK;
}

/* Whether all the data of a source is there. */
static err_code find_source(const struct catalog_source *s, const char *dir, bool *there, struct err *e)
{
	const struct catalog_entry one = {.sources = s, .n_sources = 1};
	bool all = true;

	if (!s->members)
		return find_file(&one, dir, catalog_base(s->file), there, e);
	for (size_t i = 0; s->members[i]; i++) {
		if (find_file(&one, dir, catalog_base(s->members[i]), there, e))
			return e->code;
		all &= *there;
	}
	*there = all;
	return ERR_OK;
}

static err_code fetch_source(const struct catalog_entry *entry, struct load *l, CURL *curl, struct err *e)
{
	const struct fetch *f = l->fetch;
	int n = snprintf(l->url, sizeof l->url, "%s%s%s%s%s", f->mirror ? f->mirror : entry->url,
	                 f->mirror ? (f->mirror[strlen(f->mirror) - 1] == '/' ? "" : "/") : "",
	                 f->mirror ? entry->name : "", f->mirror ? "/" : "", l->source->file);
	err_code rc;

	if (n >= (int)sizeof l->url)
		return err_set(e, ERR_INPUT, "the URL is too long: '%.200s...'", l->url);
	if (join(l->part, l->dir, catalog_base(l->source->file), PART, e))
		return e->code;
	rc = open_part(l, e);
	if (!rc)
		rc = load_part(l, curl, e);
	if (!rc)
		rc = verify(l, e);
	if (!rc)
		rc = place(l, e);
	if (l->fd >= 0)
		close(l->fd);
	return rc;
}

static err_code make_folder(const char *path, struct err *e)
{
	if (mkdir(path, 0777) && errno != EEXIST)
		return err_errno(e, "cannot make the folder '%s'", path);
	return ERR_OK;
}

err_code fetch_dataset(const struct catalog_entry *entry, struct fetch *f, struct err *e)
{
	struct load l;
	uint64_t before = 0;
	CURL *curl;
	bool there;
	err_code rc;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	curl = curl_easy_init(); /* one, so that connections are kept */
	rc = curl ? ERR_OK : err_set(e, ERR_MEMORY, "out of memory");
	for (size_t i = 0; i < entry->n_sources && !rc; i++) {
		l = (struct load){.fetch = f, .source = &entry->sources[i], .fd = -1, .before = before};
		rc = join(l.dir, f->dir, entry->name, "", e);
		if (!rc)
			rc = make_folder(l.dir, e);
		if (!rc)
			rc = find_source(l.source, l.dir, &there, e);
		if (!rc && !there)
			rc = fetch_source(entry, &l, curl, e);
		before += l.source->bytes;
		f->done = before;
	}
	if (curl)
		curl_easy_cleanup(curl);
	curl_global_cleanup();
	return rc;
}
