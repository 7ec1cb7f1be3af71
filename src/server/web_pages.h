/* The HTML pages: / chats with the model and shows what is running, /pool draws the KV
 * pages. Each is a single file inside the program, the same for every client; programs
 * that request JSON from / get the data of its page. Headers allow a page its own script
 * and style and nothing else. Any thread. */
#ifndef SERVER_WEB_PAGES_H
#define SERVER_WEB_PAGES_H

#include "base/str.h"
#include "server/error_body.h"
#include "server/loop.h"
#include "json/json_out.h"

/* The path / has one representation for browsers and one for programs. */
#define HOME_VARY "Vary: Accept\r\n"

typedef enum web_page { PAGE_HOME, PAGE_POOL } web_page;

/* The page's HTML; static. */
str page_body(web_page page);
/* Appends its header lines, with hashes of script and style (Content-Security-Policy). On
 * failure (QUIRE_NO_MEMORY) `to` has some of them. */
quire_err page_headers(web_page page, strbuf *to);
/* The sandbox's texts: a line for each story, and one of words unlike all others. */
const char *page_sandbox_texts(void);
/* JSON: descriptions for /openapi.json that are not in tables (openapi.c). */
const char *page_openapi_notes(void);

/* Writes
 * {"model":..,"version":..,"uptime_s":..,"running":..,"waiting":..,"needs_key":..,
 * "base_url":..,"links":[..],"paths":[..]}. host: the Host header, empty if there is
 * none; known: the paths of all routes. */
void home_write_json(const server *s, str host, path_at known, json_out *o);

#endif
