/* Output files: see output.h. */
#include "server/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/buf.h"

static err_code open_partial(struct output *o, bool there, struct err *e)
{
	size_t n;

	o->target = there ? realpath(o->path, NULL) : mem_strdup(o->path, e);
	if (!o->target)
		return there ? err_errno(e, "cannot write '%s'", o->path) : e->code;
	n = strlen(o->target) + sizeof ".partial";
	o->partial = mem_alloc(n, 1, e);
	if (!o->partial)
		return e->code;
	snprintf(o->partial, n, "%s.partial", o->target);
	o->f = fopen(o->partial, "we");
	return o->f ? ERR_OK : err_errno(e, "cannot write '%s'", o->path);
}

err_code output_open(struct output *o, const char *flag, const char *path, struct err *e)
{
	struct stat st;
	bool there;

	*o = (struct output){.path = path};
	if (!path)
		return ERR_OK;
	if (!*path)
		return err_set(e, ERR_INPUT, "%s: the path is empty", flag);
	there = !lstat(path, &st);
	if (there && S_ISLNK(st.st_mode))
		(void)stat(path, &st); /* of a link to nothing: the link's own, which is no regular file */
	if (there && S_ISDIR(st.st_mode))
		return err_set(e, ERR_INPUT, "%s: '%.200s' is a folder", flag, path);
	if (!there || S_ISREG(st.st_mode))
		return open_partial(o, there, e);
	o->f = fopen(path, "we");
	return o->f ? ERR_OK : err_errno(e, "cannot write '%s'", path);
}

bool output_same(const struct output *a, const struct output *b)
{
	struct stat s, t;

	return a->partial && b->partial && !fstat(fileno(a->f), &s) && !fstat(fileno(b->f), &t) &&
	       s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

err_code output_commit(struct output *o, struct err *e)
{
	bool bad;

	if (!o->f)
		return ERR_OK;
	bad = fflush(o->f) || ferror(o->f);
	bad |= fclose(o->f) != 0;
	o->f = NULL;
	if (bad) {
		err_errno(e, "cannot write '%s'", o->path);
		if (o->partial)
			unlink(o->partial);
		return e->code;
	}
	if (o->partial && rename(o->partial, o->target)) {
		err_errno(e, "cannot write '%s'", o->path);
		return err_wrap(e, "left as '%.200s'", o->partial);
	}
	return ERR_OK;
}

void output_release(struct output *o)
{
	if (o->f) {
		fclose(o->f);
		if (o->partial)
			unlink(o->partial);
	}
	free(o->partial);
	free(o->target);
}
