/* One HTTP/1.x request, parsed incrementally: the head by http-parser, the body here.
 * Limits and strict checks are added here, because distributions build http-parser
 * leniently (it accepts other bytes in place of CRLF or "HTTP/").
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

/* Zero-initialised: at the start of a body. */
typedef struct chunked {
    chunked_state state;
    uint64_t left; /* bytes of the chunk still to come; while its size is read, the size so far */
    int n_digits;
    size_t n_extras; /* bytes of chunk extensions and trailers read so far */
} chunked;

/* ---- requests ---- */

typedef enum http_event { HTTP_WANTS_MORE, HTTP_GOT_HEAD, HTTP_GOT_ALL, HTTP_REFUSED } http_event;

typedef struct http_request {
    http_parser parser;
    size_t max_head_bytes, max_body_bytes;
    /* Complete at HTTP_GOT_HEAD: path, decoded and without the query; host, the authority
     * of an absolute target, else the Host header (n_hosts is 0: none); api_key, the
     * X-Api-Key header as "Bearer KEY"; fetch_site, the browser's Sec-Fetch-Site header;
     * request_id, the first X-Request-Id header. Complete at HTTP_GOT_ALL: body. line,
     * name, value: the request line, and the header being read. */
    union {
        struct {
            strbuf target, path, content_type, authorization, api_key, origin, fetch_site, request_id, host,
                body, line, name, value;
        };
        strbuf buffers[13]; /* all of them; small buffers are kept for the next request */
    };
    enum http_method method;
    bool wants_json;                 /* an Accept header names application/json and not text/html */
    bool is_anthropic;               /* the request has an Anthropic-Version header */
    bool keep_alive, chunks_allowed; /* the request and its HTTP version allow it */
    bool has_body, expects_continue;
    /* the caller may set it at HTTP_GOT_HEAD or later, to skip the rest of the body */
    bool drop_body;
    /* The reason of HTTP_REFUSED. */
    int status;
    const char *message;
    /* Progress of parsing. */
    bool started, head_done, in_value;
    char last; /* last byte of the head so far */
    size_t n_head_bytes, n_body_bytes;
    uint64_t length;   /* Content-Length */
    size_t body_limit; /* max_body_bytes; the caller may lower it at HTTP_GOT_HEAD, not below length */
    chunked chunks;
    int n_hosts, n_lengths, n_encodings, n_types, n_authorizations, n_api_keys, n_origins, n_fetch_sites;
    bool encoding_is_chunked, expectation_unknown;
} http_request;

/* Splits the next parameter, undecoded, off *rest (at first http_query); false: none. */
bool http_query_next(str *rest, str *name, str *value);
/* Whether a name or value of http_query_next, once decoded, is the text. */
bool http_query_is(str s, const char *text);
/* The undecoded query of the request's target; empty: none. */
str http_query(const http_request *r);

/* Initialises r with limits in bytes for the head and the body. */
void http_init(http_request *r, size_t max_head_bytes, size_t max_body_bytes);
void http_deinit(http_request *r);
/* Resets r for the connection's next request; keeps small buffers. */
void http_next(http_request *r);
/* Parses p[0..n), n > 0. *used: how many bytes it consumed; fewer than n at HTTP_GOT_HEAD
 * and HTTP_GOT_ALL. Must not be called after HTTP_REFUSED. */
http_event http_feed(http_request *r, const char *p, size_t n, size_t *used);
/* Decodes the path of a request whose head is refused or incomplete. False: its request
 * line is not complete, or is malformed. */
bool http_read_path(http_request *r);
/* For a body of known length: the address at which its next bytes may be received without
 * a copy; NULL: feed them. *left: bytes still to come. */
char *http_body_place(const http_request *r, uint64_t *left);
/* Reports that n bytes, 0 < n <= *left, were received at http_body_place, or skipped in a
 * dropped body. Returns as http_feed. */
http_event http_body_received(http_request *r, size_t n);

#endif
