/* The HTML pages: / says what runs here and where the rest is, as HTML for people and as
 * JSON for programs that ask for it; /pool is one file inside the binary. Their headers
 * allow their own script and style and nothing else. Any thread. */
#ifndef SERVER_WEB_PAGES_H
#define SERVER_WEB_PAGES_H

#include "base/str.h"
#include "server/error_body.h"
#include "server/loop.h"
#include "json/json_out.h"

/* ---- /pool ---- */

str page_body(void);
/* Appends its header lines, with hashes of script and style (Content-Security-Policy). */
quire_err page_headers(strbuf *to);
/* The sandbox's texts: a line for each story, and one of words unlike all others. */
const char *page_sandbox_texts(void);

/* ---- / ---- */

/* A request for the page. */
typedef struct home_request {
    str host;      /* the Host header; empty: there is none */
    path_at known; /* the paths of all routes */
} home_request;

/* Writes the page: no script, and nothing from elsewhere. Any thread. */
quire_err home_write_html(const server *s, const home_request *r, strbuf *to);
/* {"model":..,"version":..,"uptime_s":..,"running":..,"waiting":..,"needs_key":..,
 *  "base_url":..,"links":[..],"paths":[..]} */
void home_write_json(const server *s, const home_request *r, json_out *o);
/* Writes the page's header lines; their Content-Security-Policy allows its style. */
quire_err home_write_headers(strbuf *to);

#endif
