/* The page at /: what runs here, and where the rest is. HTML for people, JSON for
 * programs that ask for it. */
#ifndef SERVER_HOME_H
#define SERVER_HOME_H

#include "server/loop.h"
#include "server/unknown_path.h"
#include "json/json_out.h"

/* How the page is asked for. */
typedef struct home_request {
    str host;      /* the Host header; empty: there is none */
    path_at known; /* the paths of all routes */
} home_request;

/* Writes the page: no script, and nothing from elsewhere. Any thread. */
quire_err home_write_html(const server *s, const home_request *r, strbuf *to);
/* {"model":..,"version":..,"uptime_s":..,"running":..,"waiting":..,"needs_key":..,
 *  "base_url":..,"links":[..],"paths":[..]} */
void home_write_json(const server *s, const home_request *r, json_out *o);
/* Writes the header lines of the page, whose Content-Security-Policy allows its style and
 * nothing else. */
quire_err home_write_headers(strbuf *to);

#endif
