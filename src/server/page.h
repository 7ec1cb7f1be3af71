/* The page at /pool: one HTML file inside the binary, with headers that allow its own
 * script and style and nothing else. */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

#include "base/str.h"

typedef struct web_page web_page;

/* Hashes the page's script and style for its Content-Security-Policy. */
quire_err page_open(web_page **out);
/* NULL does nothing. */
void page_close(web_page *p);
/* Writes the header lines of an HTML page: a Content-Security-Policy that allows the
 * script and the style in `html`, where it has them, data: images and requests to this
 * server, and nothing else. They occur once at most, with tags that have no
 * attributes. */
quire_err page_write_headers(const char *html, strbuf *to);
str page_body(const web_page *p);
/* Header lines, valid as long as p. */
const char *page_headers(const web_page *p);

#endif
