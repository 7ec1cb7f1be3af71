/* The HTML pages: / to chat with the model and see what is running, /pool to see the KV
 * pages. Each is one file inside the program, the same for every client; programs that
 * request JSON from / get the page's data. A page's headers allow only its own script and
 * style. Any thread. */
#ifndef SERVER_WEB_PAGES_H
#define SERVER_WEB_PAGES_H

#include "base/str.h"
#include "server/error_body.h"
#include "server/loop.h"
#include "json/json_out.h"

/* / has one representation for browsers and one for programs. */
#define HOME_VARY "Vary: Accept\r\n"

typedef enum web_page { PAGE_HOME, PAGE_POOL } web_page;

/* The page's HTML; static. */
str page_body(web_page page);
/* Appends the page's header lines, with hashes of its script and style
 * (Content-Security-Policy). QUIRE_NO_MEMORY: `to` has some of them. */
quire_err page_headers(web_page page, strbuf *to);
/* The words of the sandboxes: a line for each story, and a line of other words. */
const char *page_sandbox_texts(void);
/* JSON text: descriptions for /openapi.json that are in no table (openapi.c). */
const char *page_openapi_notes(void);

/* Writes
 * {"model":..,"version":..,"uptime_s":..,"running":..,"waiting":..,"needs_key":..,
 * "base_url":..,"links":[..],"paths":[..]}. host: the Host header, empty if there is
 * none; known: the paths of all routes. */
void home_write_json(const server *s, str host, path_at known, json_out *o);

#endif
