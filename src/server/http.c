#include "server/http.h"

#include <assert.h>
#include <stdio.h>
#include <strings.h>

#include "base/str.h"

/* ---- the chunked transfer coding ---- */

#define MAX_DIGITS 15 /* hexadecimal digits of a size: below 2^60, so it cannot overflow */

static bool chunked_size_byte(chunked *c, char byte) {
    int digit = hex_digit(byte);
    if (digit >= 0) {
        c->left = c->left * 16 + (uint64_t)digit;
        return ++c->n_digits <= MAX_DIGITS;
    }
    c->state = byte == '\r' ? CHUNKED_SIZE_LF : CHUNKED_EXTENSION;
    return c->n_digits > 0 && (byte == '\r' || byte == ';');
}

/* Parses one byte outside a chunk's data. */
static bool chunked_framing_byte(chunked *c, char byte, size_t max_extras) {
    switch (c->state) {
    case CHUNKED_SIZE:
        return chunked_size_byte(c, byte);
    case CHUNKED_EXTENSION:
    case CHUNKED_TRAILER:
        if (byte == '\r') {
            c->state = c->state == CHUNKED_EXTENSION ? CHUNKED_SIZE_LF : CHUNKED_TRAILER_LF;
        }
        return byte != '\n' && ++c->n_extras <= max_extras;
    case CHUNKED_SIZE_LF:
        c->state = c->left > 0 ? CHUNKED_DATA : CHUNKED_LINE;
        return byte == '\n';
    case CHUNKED_DATA_CR:
        c->state = CHUNKED_DATA_LF;
        return byte == '\r';
    case CHUNKED_DATA_LF:
        c->state = CHUNKED_SIZE;
        c->n_digits = 0;
        return byte == '\n';
    case CHUNKED_LINE:
        c->state = byte == '\r' ? CHUNKED_END_LF : CHUNKED_TRAILER;
        return byte != '\n';
    case CHUNKED_TRAILER_LF:
        c->state = CHUNKED_LINE;
        return byte == '\n';
    case CHUNKED_END_LF:
        c->state = CHUNKED_DONE;
        return byte == '\n';
    default:
        return false;
    }
}

/* Parses p[0..n), n > 0. *used: bytes consumed, of which the last *data belong to the
 * body. False: malformed, or more than max_extras bytes of extensions and trailers. Call
 * it until state is CHUNKED_DONE. */
static bool chunked_feed(chunked *c, const char *p, size_t n, size_t max_extras, size_t *used, size_t *data) {
    assert(n > 0 && c->state != CHUNKED_DONE);
    *used = *data = 0;
    while (*used < n && c->state != CHUNKED_DONE && c->state != CHUNKED_DATA) {
        if (!chunked_framing_byte(c, p[(*used)++], max_extras)) {
            return false;
        }
    }
    if (c->state == CHUNKED_DATA) {
        *data = c->left < n - *used ? (size_t)c->left : n - *used;
        *used += *data;
        c->left -= *data;
        c->state = c->left > 0 ? CHUNKED_DATA : CHUNKED_DATA_CR;
    }
    return true;
}

/* ---- requests ---- */

#define KEEP_BYTES (64u << 10) /* larger buffers are freed between requests */

/* Records the first reason for a refusal. Returns the value that stops http-parser. */
static int http_refuse(http_request *r, int status, const char *message) {
    if (r->status == 0) {
        r->status = status;
        r->message = message;
    }
    return -1;
}

static int http_append(http_request *r, strbuf *b, const char *p, size_t n) {
    return strbuf_add(b, p, n) == QUIRE_OK ? 0 : http_refuse(r, 500, "out of memory");
}

/* ---- headers ---- */

static bool http_is_token(str s) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alphanumeric && (c == '\0' || strchr(others, c) == NULL)) {
            return false;
        }
    }
    return s.n > 0;
}

static bool http_is(const strbuf *b, const char *text) {
    return b->n == strlen(text) && (b->n == 0 || strncasecmp(b->p, text, b->n) == 0);
}

static int http_keep_value(http_request *r, strbuf *to) {
    strbuf_clear(to);
    return http_append(r, to, r->value.p, r->value.n);
}

/* Stores the key of an X-Api-Key header as the value of an Authorization header. */
static int http_keep_key(http_request *r, strbuf *to) {
    strbuf_clear(to);
    int stop = http_append(r, to, "Bearer ", sizeof "Bearer " - 1);
    return stop != 0 ? stop : http_append(r, to, r->value.p, r->value.n);
}

/* Stores the value of a header that a request may have only once. */
static int http_end_single(http_request *r) {
    const struct {
        const char *name;
        strbuf *value;
        int *n;
        int (*keep)(http_request *r, strbuf *to);
    } singles[] = {
        {"content-type", &r->content_type, &r->n_types, http_keep_value},
        {"authorization", &r->authorization, &r->n_authorizations, http_keep_value},
        {"x-api-key", &r->api_key, &r->n_api_keys, http_keep_key},
        {"origin", &r->origin, &r->n_origins, http_keep_value},
        {"sec-fetch-site", &r->fetch_site, &r->n_fetch_sites, http_keep_value},
    };
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++) {
        if (http_is(&r->name, singles[i].name)) {
            return ++*singles[i].n > 1 ? http_refuse(r, 400,
                                                     "Content-Type, Authorization, X-Api-Key, Origin and "
                                                     "Sec-Fetch-Site may be given only once")
                                       : singles[i].keep(r, singles[i].value);
        }
    }
    return 0;
}

/* Handles a header whose name and value are complete. */
static int http_end_header(http_request *r) {
    if (!r->in_value) {
        return 0;
    }
    r->in_value = false;
    while (r->value.n > 0 && (r->value.p[r->value.n - 1] == ' ' || r->value.p[r->value.n - 1] == '\t')) {
        r->value.p[--r->value.n] = '\0';
    }
    if (!http_is_token((str){r->name.p, r->name.n})) {
        return http_refuse(r, 400, "malformed header name");
    }
    if (http_is(&r->name, "host")) {
        r->n_hosts++;
        return http_keep_value(r, &r->host);
    } else if (http_is(&r->name, "content-length")) {
        r->n_lengths++;
    } else if (http_is(&r->name, "transfer-encoding")) {
        r->n_encodings++;
        r->encoding_is_chunked = http_is(&r->value, "chunked");
    } else if (http_is(&r->name, "accept") && r->value.n > 0) {
        r->wants_json =
            strstr(r->value.p, "application/json") != NULL && strstr(r->value.p, "text/html") == NULL;
    } else if (http_is(&r->name, "anthropic-version")) {
        r->is_anthropic = true;
    } else if (http_is(&r->name, "x-request-id") && r->request_id.n == 0) {
        return http_keep_value(r, &r->request_id);
    } else if (http_is(&r->name, "expect")) {
        r->expects_continue = http_is(&r->value, "100-continue");
        r->expectation_unknown = !r->expects_continue;
    }
    return http_end_single(r);
}

static int http_on_begin(http_parser *p) {
    http_request *r = p->data;
    r->started = true;
    return 0;
}

static int http_on_url(http_parser *p, const char *text, size_t n) {
    http_request *r = p->data;
    r->method = (enum http_method)p->method;
    return http_append(r, &r->target, text, n);
}

static int http_on_name(http_parser *p, const char *text, size_t n) {
    http_request *r = p->data;
    if (r->in_value) {
        int e = http_end_header(r);
        if (e != 0) {
            return e;
        }
        strbuf_clear(&r->name);
    }
    return http_append(r, &r->name, text, n);
}

static int http_on_value(http_parser *p, const char *text, size_t n) {
    http_request *r = p->data;
    if (!r->in_value) {
        r->in_value = true;
        strbuf_clear(&r->value);
    }
    return http_append(r, &r->value, text, n);
}

/* ---- the head as a whole ---- */

/* Takes the host from an absolute target in place of the Host header (RFC 9112,
 * 3.2.2). */
static int http_take_authority(http_request *r, const struct http_parser_url *url) {
    const char *host = r->target.p + url->field_data[UF_HOST].off;
    size_t n = url->field_data[UF_HOST].len;
    bool is_v6 = memchr(host, ':', n) != NULL; /* http-parser removes the brackets */
    strbuf_clear(&r->host);
    bool is_added = strbuf_addf(&r->host, is_v6 ? "[%.*s]" : "%.*s", (int)n, host) == QUIRE_OK;
    return is_added ? 0 : http_refuse(r, 500, "out of memory");
}

/* Decodes the path of the target: "/a%2Fb?q" and "http://host/a%2Fb?q" give "/a/b". */
static int http_decode_path(http_request *r) {
    str t = {r->target.p, r->target.n};
    if (r->method == HTTP_OPTIONS && str_is(t, "*")) {
        return http_append(r, &r->path, "*", 1);
    }
    struct http_parser_url url;
    http_parser_url_init(&url);
    if (http_parser_parse_url(t.p, t.n, r->method == HTTP_CONNECT, &url) != 0) {
        return http_refuse(r, 400, "malformed request target");
    }
    if ((url.field_set & (1 << UF_HOST)) != 0 && http_take_authority(r, &url) != 0) {
        return -1;
    }
    if ((url.field_set & (1 << UF_PATH)) == 0) {
        return http_append(r, &r->path, "/", 1);
    }
    const char *p = t.p + url.field_data[UF_PATH].off;
    size_t n = url.field_data[UF_PATH].len;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (c == '%') {
            int high = i + 2 < n ? hex_digit(p[i + 1]) : -1, low = i + 2 < n ? hex_digit(p[i + 2]) : -1;
            if (high < 0 || low < 0 || high * 16 + low == 0) {
                return http_refuse(r, 400, "malformed percent-encoding in the path");
            }
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (http_append(r, &r->path, &c, 1) != 0) {
            return -1;
        }
    }
    return 0;
}

bool http_read_path(http_request *r) {
    bool has_line = r->head_done || r->name.n > 0;
    if (r->path.n == 0 && has_line && http_decode_path(r) != 0) {
        strbuf_clear(&r->path);
    }
    return r->path.n > 0;
}

/* Checks that the request line is exactly what http-parser has parsed. */
static int http_check_line(http_request *r) {
    const http_parser *p = &r->parser;
    const char *method = http_method_str(r->method);
    char version[16];
    snprintf(version, sizeof(version), " HTTP/1.%d\r\n", p->http_minor);
    size_t n_method = strlen(method), n_version = strlen(version);
    const char *line = r->line.p;
    bool same = r->line.n == n_method + 1 + r->target.n + n_version && memcmp(line, method, n_method) == 0 &&
                line[n_method] == ' ' && memcmp(line + n_method + 1, r->target.p, r->target.n) == 0 &&
                memcmp(line + r->line.n - n_version, version, n_version) == 0;
    return same ? 0 : http_refuse(r, 400, "malformed request line");
}

static int http_check_head(http_request *r) {
    const http_parser *p = &r->parser;
    if (p->http_major != 1 || p->http_minor > 1) {
        return http_refuse(r, 505, "this server speaks only HTTP/1.0 and HTTP/1.1");
    }
    if (http_check_line(r) != 0) {
        return -1;
    }
    if (r->n_hosts > 1 || (p->http_minor == 1 && r->n_hosts == 0)) {
        return http_refuse(r, 400, "a request must have exactly one Host header");
    }
    if (r->n_lengths > 1 || (r->n_lengths > 0 && r->n_encodings > 0)) {
        return http_refuse(
            r, 400,
            "the length of the body must be given exactly once: by Content-Length or by Transfer-Encoding");
    }
    if (r->n_encodings > 0 && (r->n_encodings > 1 || !r->encoding_is_chunked || p->http_minor == 0)) {
        return http_refuse(r, 400, "the only supported Transfer-Encoding is chunked, in HTTP/1.1");
    }
    if (!http_read_path(r)) {
        return -1;
    }
    if (r->length > r->max_body_bytes) {
        return http_refuse(r, 413, "the body is too large");
    }
    return r->expectation_unknown ? http_refuse(r, 417, "the only supported expectation is 100-continue") : 0;
}

static int http_on_head(http_parser *p) {
    http_request *r = p->data;
    if (http_end_header(r) != 0) {
        return -1;
    }
    p->upgrade = 0; /* ignores an Upgrade header */
    r->length = r->n_lengths > 0 ? p->content_length : 0;
    r->keep_alive = http_should_keep_alive(p) != 0;
    r->chunks_allowed = p->http_minor >= 1;
    r->has_body = r->n_encodings > 0 || r->length > 0;
    r->body_limit = r->max_body_bytes;
    r->expects_continue = r->expects_continue && r->has_body && p->http_minor >= 1;
    return 1; /* tells http-parser that there is no body */
}

static int http_on_head_end(http_parser *p) {
    http_request *r = p->data;
    r->head_done = true;
    http_parser_pause(p, 1);
    return 0;
}

static const http_parser_settings http_settings = {
    .on_message_begin = http_on_begin,
    .on_url = http_on_url,
    .on_header_field = http_on_name,
    .on_header_value = http_on_value,
    .on_headers_complete = http_on_head,
    .on_message_complete = http_on_head_end,
};

static void http_start(http_request *r) {
    http_parser_init(&r->parser, HTTP_REQUEST);
    r->parser.data = r;
}

void http_init(http_request *r, size_t max_head_bytes, size_t max_body_bytes) {
    *r = (http_request){.max_head_bytes = max_head_bytes, .max_body_bytes = max_body_bytes};
    http_start(r);
}

#define N_BUFFERS (sizeof((http_request *)0)->buffers / sizeof(strbuf))

void http_deinit(http_request *r) {
    for (size_t i = 0; i < N_BUFFERS; i++) {
        strbuf_deinit(&r->buffers[i]);
    }
}

void http_next(http_request *r) {
    http_request next = {.max_head_bytes = r->max_head_bytes, .max_body_bytes = r->max_body_bytes};
    for (size_t i = 0; i < N_BUFFERS; i++) {
        if (r->buffers[i].cap > KEEP_BYTES) {
            strbuf_deinit(&r->buffers[i]);
        }
        strbuf_clear(&r->buffers[i]);
        next.buffers[i] = r->buffers[i];
    }
    *r = next;
    http_start(r);
}

/* Sets the reason of http-parser's failure, unless a callback has set one. */
static void http_explain(http_request *r, enum http_errno e) {
    if (e == HPE_HEADER_OVERFLOW) {
        http_refuse(r, 431, "the header is too large");
    } else if (e == HPE_UNEXPECTED_CONTENT_LENGTH || e == HPE_INVALID_TRANSFER_ENCODING) {
        http_refuse(
            r, 400,
            "the length of the body must be given exactly once: by Content-Length or by Transfer-Encoding");
    } else if (e == HPE_INVALID_CONTENT_LENGTH) {
        http_refuse(r, 400, "malformed Content-Length");
    } else {
        http_refuse(r, 400, "malformed HTTP request");
    }
}

/* Refuses bytes p[0..n) of the head that http-parser accepts: bare CR or LF, folded
 * lines. Also stores the request line. */
static int http_check_bytes(http_request *r, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char before = r->last;
        r->last = p[i];
        if ((p[i] == '\n') != (before == '\r')) {
            return http_refuse(r, 400, "header lines must end in CRLF");
        }
        if (before == '\n' && r->started && (p[i] == ' ' || p[i] == '\t')) {
            return http_refuse(r, 400, "folded header lines are not supported");
        }
        bool in_line = r->line.n == 0 || r->line.p[r->line.n - 1] != '\n';
        if (in_line && http_append(r, &r->line, &p[i], 1) != 0) {
            return -1;
        }
        if (r->line.n == 2 && memcmp(r->line.p, "\r\n", 2) == 0) {
            strbuf_clear(&r->line); /* an empty line before the request is allowed */
        }
    }
    return 0;
}

static http_event http_feed_head(http_request *r, const char *p, size_t n, size_t *used) {
    size_t room = r->max_head_bytes + 1 - r->n_head_bytes;
    http_parser_pause(&r->parser, 0);
    *used = http_parser_execute(&r->parser, &http_settings, p, n < room ? n : room);
    r->n_head_bytes += *used;
    enum http_errno e = HTTP_PARSER_ERRNO(&r->parser);
    if (e != HPE_OK && e != HPE_PAUSED) {
        http_explain(r, e);
        return HTTP_REFUSED;
    }
    if (http_check_bytes(r, p, *used) != 0 || (r->head_done && http_check_head(r) != 0)) {
        return HTTP_REFUSED;
    }
    if (!r->head_done && r->n_head_bytes > r->max_head_bytes) {
        http_refuse(r, 431, "the header is too large");
        return HTTP_REFUSED;
    }
    return r->head_done ? (r->has_body ? HTTP_GOT_HEAD : HTTP_GOT_ALL) : HTTP_WANTS_MORE;
}

static http_event http_feed_body(http_request *r, const char *p, size_t n, size_t *used) {
    size_t data;
    uint64_t announced = 0; /* bytes of the chunk still to come */
    bool done;
    if (r->n_encodings > 0) {
        if (!chunked_feed(&r->chunks, p, n, r->max_head_bytes, used, &data)) {
            http_refuse(r, 400, "malformed chunk");
            return HTTP_REFUSED;
        }
        done = r->chunks.state == CHUNKED_DONE;
        announced = r->chunks.state == CHUNKED_DATA ? r->chunks.left : 0;
    } else {
        uint64_t left = r->length - r->n_body_bytes;
        *used = data = left < n ? (size_t)left : n;
        done = data == left;
    }
    size_t room = r->body_limit - r->n_body_bytes;
    if (data > room || announced > room - data) {
        http_refuse(r, 413, "the body is too large");
        return HTTP_REFUSED;
    }
    r->n_body_bytes += data;
    if (!r->drop_body && http_append(r, &r->body, p + *used - data, data) != 0) {
        return HTTP_REFUSED;
    }
    return done ? HTTP_GOT_ALL : HTTP_WANTS_MORE;
}

http_event http_feed(http_request *r, const char *p, size_t n, size_t *used) {
    assert(n > 0 && r->status == 0);
    return r->head_done ? http_feed_body(r, p, n, used) : http_feed_head(r, p, n, used);
}

str http_query(const http_request *r) {
    const char *query = r->target.n > 0 ? memchr(r->target.p, '?', r->target.n) : NULL;
    return query != NULL ? (str){query + 1, (size_t)(r->target.p + r->target.n - query) - 1} : (str){"", 0};
}

bool http_query_next(str *rest, str *name, str *value) {
    const char *p = rest->p, *end = p + rest->n;
    if (rest->n == 0) {
        return false;
    }
    const char *next = memchr(p, '&', rest->n);
    next = next != NULL ? next : end;
    const char *equals = memchr(p, '=', (size_t)(next - p));
    *name = (str){p, (size_t)((equals != NULL ? equals : next) - p)};
    *value = equals != NULL ? (str){equals + 1, (size_t)(next - equals) - 1} : (str){next, 0};
    p = next + (next < end);
    *rest = (str){p, (size_t)(end - p)};
    return true;
}

bool http_query_is(str s, const char *text) {
    size_t i = 0;
    for (; i < s.n && *text != '\0'; i++, text++) {
        char c = s.p[i];
        if (c == '%' && i + 2 < s.n && hex_digit(s.p[i + 1]) >= 0 && hex_digit(s.p[i + 2]) >= 0) {
            c = (char)(hex_digit(s.p[i + 1]) * 16 + hex_digit(s.p[i + 2]));
            i += 2;
        }
        if (c != *text) {
            return false;
        }
    }
    return i == s.n && *text == '\0';
}

char *http_body_place(const http_request *r, uint64_t *left) {
    assert(r->head_done && r->n_encodings == 0);
    *left = r->length - r->n_body_bytes;
    /* the body is followed by a 0 byte */
    bool fits = !r->drop_body && r->body.p != NULL && *left < r->body.cap - r->body.n;
    return fits ? r->body.p + r->body.n : NULL;
}

http_event http_body_received(http_request *r, size_t n) {
    assert(n > 0 && n <= r->length - r->n_body_bytes);
    if (!r->drop_body) {
        r->body.n += n;
        r->body.p[r->body.n] = '\0';
    }
    r->n_body_bytes += n;
    return r->n_body_bytes == r->length ? HTTP_GOT_ALL : HTTP_WANTS_MORE;
}
