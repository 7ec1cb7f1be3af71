/* One HTTP/1.x request, parsed incrementally. http-parser reads the head. Limits and
 * strict checks are added here, because distributions build it leniently (it accepts
 * other bytes in place of CRLF or "HTTP/"). The body is read here too.
 *
 *   http_feed ... -> HTTP_GOT_HEAD (a body follows: check the head, then feed on)
 *             ... -> HTTP_GOT_ALL (answer it) -> http_next -> http_feed ...
 *   any time: HTTP_REFUSED (status and message say why; the bytes that follow can't be
 *             trusted, so the connection must close)
 *
 * Owner: a connection; one thread. It never consumes a byte after the request's end, so
 * pipelined requests stay with the caller. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* The chunked transfer coding, parsed strictly: sizes are plain hexadecimal, lines end in
 * CRLF, data ends where its size says. */

typedef enum chunked_state {
    CHUNKED_SIZE,
    CHUNKED_EXTENSION,
    CHUNKED_SIZE_LF,
    CHUNKED_DATA,
    CHUNKED_DATA_CR,
    CHUNKED_DATA_LF,
    CHUNKED_LINE, /* at the start of a line after the last chunk: a trailer or the end */
    CHUNKED_TRAILER,
    CHUNKED_TRAILER_LF,
    CHUNKED_END_LF,
    CHUNKED_DONE
} chunked_state;

/* Zero-initialised it is at the start of a body. */
typedef struct chunked {
    chunked_state state;
    uint64_t left; /* bytes of the chunk that are still missing; the size while it is read */
    int n_digits;
    size_t n_extras; /* bytes of extensions and trailers so far */
} chunked;

/* ---- requests ---- */

typedef enum http_event { HTTP_WANTS_MORE, HTTP_GOT_HEAD, HTTP_GOT_ALL, HTTP_REFUSED } http_event;

typedef struct http_request {
    http_parser parser;
    size_t max_head_bytes, max_body_bytes;
    /* The head, complete at HTTP_GOT_HEAD: path is decoded and has no query. host is the
     * authority of the request: an absolute target's, else the Host header; n_hosts == 0:
     * there is none. fetch_site: the browser's Sec-Fetch-Site header, about the page that
     * sent the request. request_id: the first X-Request-Id header. The body, complete at
     * HTTP_GOT_ALL. api_key: the X-Api-Key header, as "Bearer KEY". line, name and value:
     * the request line, and the header being read. */
    union {
        struct {
            strbuf target, path, content_type, authorization, api_key, origin, fetch_site, request_id, host,
                body, line, name, value;
        };
        strbuf buffers[13]; /* memory of all of these; small buffers are kept for the next request */
    };
    enum http_method method;
    bool wants_json;                 /* an Accept header names application/json and not text/html */
    bool is_anthropic;               /* it has an Anthropic-Version header */
    bool keep_alive, chunks_allowed; /* the client's HTTP version allows it */
    bool has_body, expects_continue;
    /* set by the caller at HTTP_GOT_HEAD or later: skip what is left of the body */
    bool drop_body;
    /* HTTP_REFUSED: why. */
    int status;
    const char *message;
    /* Progress. */
    bool started, head_done, in_value;
    char last; /* byte of the head */
    size_t n_head_bytes, n_body_bytes;
    uint64_t length;   /* Content-Length */
    size_t body_limit; /* max_body_bytes, or less: set by the caller at HTTP_GOT_HEAD, to length at least */
    chunked chunks;
    int n_hosts, n_lengths, n_encodings, n_types, n_authorizations, n_api_keys, n_origins, n_fetch_sites;
    bool encoding_is_chunked, expectation_unknown;
} http_request;

/* The next parameter of a target's query, undecoded; true if there is one. *rest: what is
 * left of the query, at first http_query of the target. */
bool http_query_next(str *rest, str *name, str *value);
str http_query(const http_request *r);

void http_init(http_request *r, size_t max_head_bytes, size_t max_body_bytes);
void http_deinit(http_request *r);
/* Resets r for the next request of the same connection; keeps small buffers. */
void http_next(http_request *r);
/* Parses p[0..n), n > 0. *used is how many bytes it consumed (fewer than n at
 * HTTP_GOT_HEAD and HTTP_GOT_ALL). Not called after HTTP_REFUSED. */
http_event http_feed(http_request *r, const char *p, size_t n, size_t *used);
/* In a body of known length: where its next bytes may be received without a copy, or NULL
 * where they have to be fed. *left: how many it still lacks. */
char *http_body_place(const http_request *r, uint64_t *left);
/* Reports that n bytes, 0 < n <= *left, were received there, or skipped in a dropped
 * body; returns as http_feed. */
http_event http_body_received(http_request *r, size_t n);

#endif
