/* See svg.h. */
#include "server/svg.h"

#include <string.h>

#include "engine/utf8.h"

#define MAX_TITLE 80 /* characters that are drawn */

void svg_put_text(struct buf *out, const char *s, size_t max)
{
	size_t len = strlen(s), n;

	for (; len && max; s += n, len -= n, max--) {
		uint32_t cp = utf8_next(s, len, &n);

		if (cp == '&')
			buf_puts(out, "&amp;");
		else if (cp == '<')
			buf_puts(out, "&lt;");
		else if (cp == '>')
			buf_puts(out, "&gt;");
		else if (cp == '"')
			buf_puts(out, "&quot;");
		else if (cp == UTF8_INVALID || cp < 0x20 || cp == 0xFFFE || cp == 0xFFFF)
			utf8_put(out, 0xFFFD);
		else
			utf8_put(out, cp);
	}
	if (len)
		utf8_put(out, 0x2026);
}

void svg_begin(struct buf *out, double width, double height, double left, const char *title, const char *light,
               const char *dark)
{
	buf_printf(out,
	           "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
	           "role=\"img\" aria-labelledby=\"t\">\n<title id=\"t\">",
	           width, height, width, height);
	svg_put_text(out, title, 200);
	buf_printf(out,
	           "</title>\n<style>\n"
	           "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
	           "font-size:13px;fill:#16202c}\n"
	           ".title{font-size:16px;font-weight:600}.quiet{fill:#56626f}"
	           ".mid{text-anchor:middle}.end{text-anchor:end}\n"
	           ".back{fill:#fff}.grid{stroke:#dbe1e8;fill:none}.frame{stroke:#56626f;fill:none}\n%s\n"
	           "@media(prefers-color-scheme:dark){text{fill:#e6ebf1}.quiet{fill:#9eabb9}.back{fill:#161d27}"
	           ".grid{stroke:#28323f}.frame{stroke:#9eabb9}\n%s}\n</style>\n",
	           light, dark);
	buf_printf(out, "<rect class=\"back\" width=\"%.0f\" height=\"%.0f\"/>\n", width, height);
	buf_printf(out, "<text class=\"title\" x=\"%.2f\" y=\"26\">", left);
	svg_put_text(out, title, MAX_TITLE);
	buf_puts(out, "</text>\n");
}
