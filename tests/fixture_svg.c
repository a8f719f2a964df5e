/* See fixture_svg.h. */
#include "tests/fixture_svg.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixture.h"

void svg_well_formed(const char *s)
{
	char open[32][32];
	size_t depth = 0;

	while (*s) {
		if (*s == '&')
			ck_assert_msg(strcspn(s, ";") < 7, "a bare & at %.40s", s);
		if (*s++ != '<')
			continue;
		size_t n = strcspn(s, " />\n");
		const char *end = strchr(s, '>');
		bool closing = *s == '/';

		ck_assert_ptr_nonnull(end);
		if (closing) {
			n = strcspn(s + 1, ">");
			ck_assert_uint_gt(depth, 0);
			depth--;
			ck_assert_msg(!strncmp(open[depth], s + 1, n) && !open[depth][n], "</%.*s> closes <%s>", (int)n,
			              s + 1, open[depth]);
		} else {
			size_t quotes = 0;

			for (const char *q = s; q < end; q++)
				quotes += *q == '"';
			ck_assert_uint_eq(quotes % 2, 0);
			if (end[-1] != '/') {
				ck_assert_uint_lt(depth, 32);
				snprintf(open[depth++], 32, "%.*s", (int)n, s);
			}
		}
		s = end + 1;
	}
	ck_assert_uint_eq(depth, 0);
}

size_t svg_count(const char *s, const char *what)
{
	size_t n = 0;

	for (; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}
