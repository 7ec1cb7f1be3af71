/* The page at /: what runs here, and where the rest is. HTML for people, JSON for programs that ask for it. */
#ifndef SERVER_HOME_H
#define SERVER_HOME_H

#include "json/json_out.h"
#include "server/loop.h"

/* Writes the page: no script, and nothing from elsewhere. Any thread. */
quire_err home_write_html(const server *s, strbuf *to);
/* {"model":..,"version":..,"uptime_s":..,"running":..,"waiting":..,"links":[..]} */
void home_write_json(const server *s, json_out *o);
/* Writes the header lines of the page, whose Content-Security-Policy allows its style and nothing else. */
quire_err home_write_headers(strbuf *to);

#endif
