/* One HTTP/1.x request being read. http-parser reads the head; limits and strictness are added here, because distributions build it lenient
 * (it skips over what stands where CRLF or "HTTP/" should), and so is the body.
 *
 *   http_feed ... -> HTTP_GOT_HEAD (a body follows: look at the head, then feed on) -> HTTP_GOT_ALL (answer it) -> http_next -> http_feed
 * ... any time: HTTP_REFUSED (status and message say why; the bytes that follow can't be trusted, so the connection must close)
 *
 * Owner: a connection; one thread. It never takes a byte behind the request's end, so pipelined requests stay with the caller. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "server/chunked.h"

typedef enum http_event { HTTP_WANTS_MORE, HTTP_GOT_HEAD, HTTP_GOT_ALL, HTTP_REFUSED } http_event;

typedef struct http_request {
    http_parser parser;
    size_t max_head_bytes, max_body_bytes;
    /* The head, complete at HTTP_GOT_HEAD. path is decoded and without its query. host is the authority that the request is for: an
     * absolute target's, else the Host header; n_hosts == 0: there is none. fetch_site: what a browser says of the page that asks
     * (Sec-Fetch-Site). */
    strbuf target, path, content_type, authorization, origin, fetch_site, host;
    enum http_method method;
    bool keep_alive, chunks_allowed; /* what the client understands */
    bool has_body, expects_continue;
    /* The body, complete at HTTP_GOT_ALL. */
    strbuf body;
    bool drop_body; /* set by the caller at HTTP_GOT_HEAD: read over the body, keep nothing */
    /* HTTP_REFUSED: why. */
    int status;
    const char *message;
    /* Progress. */
    bool started, head_done, in_value;
    char last;               /* byte of the head */
    size_t n_head_bytes, n_body_bytes;
    uint64_t length;         /* Content-Length */
    chunked chunks;
    int n_hosts, n_lengths, n_encodings, n_types, n_authorizations, n_origins, n_fetch_sites;
    bool encoding_is_chunked, expectation_unknown;
    strbuf line, name, value; /* the request line; the header being read */
} http_request;

void http_init(http_request *r, size_t max_head_bytes, size_t max_body_bytes);
void http_deinit(http_request *r);
/* Ready for the next request of the same connection; keeps small buffers. */
void http_next(http_request *r);
/* Reads from p[0..n), n > 0; *used is how many bytes were taken (fewer than n at HTTP_GOT_HEAD and HTTP_GOT_ALL). After HTTP_REFUSED: no
 * more. */
http_event http_feed(http_request *r, const char *p, size_t n, size_t *used);

/* The words of a status code ("Not Found"). */
const char *http_reason(int status);

#endif
