#include "hub/hub_http.h"

#include <assert.h>
#define CURL_DISABLE_DEPRECATION /* allow options of older libcurl versions */
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/mem.h"

#define CONNECT_S   20
#define LEAST_SPEED 1000               /* bytes per second */
#define MAX_UNREAD  ((int64_t)1 << 16) /* most bytes of an unwanted body that are read */

/* The functions of libcurl that Quire calls. */
typedef struct curl_calls {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *curl, CURLoption option, ...);
    CURLcode (*easy_getinfo)(CURL *curl, CURLINFO info, ...);
    CURLcode (*easy_perform)(CURL *curl);
    void (*easy_reset)(CURL *curl);
    void (*easy_cleanup)(CURL *curl);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
} curl_calls;

static curl_calls curl;
static bool curl_is_there;
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

/* Stores the address of a library's function in the pointer at `to`, in the way that
 * POSIX allows. */
static bool hub_http_find(void *library, const char *name, void *to) {
    void *found = dlsym(library, name);
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

static void load_curl(void) {
    void *l = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    l = l != NULL ? l : dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    curl_is_there = l != NULL && hub_http_find(l, "curl_global_init", &curl.global_init) &&
                    hub_http_find(l, "curl_easy_init", &curl.easy_init) &&
                    hub_http_find(l, "curl_easy_setopt", &curl.easy_setopt) &&
                    hub_http_find(l, "curl_easy_getinfo", &curl.easy_getinfo) &&
                    hub_http_find(l, "curl_easy_perform", &curl.easy_perform) &&
                    hub_http_find(l, "curl_easy_reset", &curl.easy_reset) &&
                    hub_http_find(l, "curl_easy_cleanup", &curl.easy_cleanup) &&
                    hub_http_find(l, "curl_easy_strerror", &curl.easy_strerror) &&
                    hub_http_find(l, "curl_slist_append", &curl.slist_append) &&
                    hub_http_find(l, "curl_slist_free_all", &curl.slist_free_all) &&
                    curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

struct hub_http {
    CURL *handle;
    hub_http_options options;
    char error[CURL_ERROR_SIZE];
    /* the members below belong to the current exchange */
    const hub_receiver *to;
    hub_reply *reply;
    quire_err result; /* first error of the receiver */
    bool has_begun;
    int64_t n_unread;
};

quire_err hub_http_open(const hub_http_options *o, hub_http **out, quire_error *err) {
    (void)pthread_once(&curl_once, load_curl);
    if (!curl_is_there) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "downloads need libcurl, which is not installed; install it (Debian: apt install "
                       "libcurl4), or fetch the model by other means and give its path");
    }
    hub_http *h = mem_new(1, sizeof *h);
    TRY(mem_check_for(h, "a connection", err));
    h->options = *o;
    h->handle = curl.easy_init();
    if (h->handle == NULL) {
        mem_free(h);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a libcurl connection");
    }
    *out = h;
    return QUIRE_OK;
}

void hub_http_close(hub_http *h) {
    if (h != NULL) {
        curl.easy_cleanup(h->handle);
        mem_free(h);
    }
}

bool hub_http_is_token(const char *token, size_t most) {
    size_t n = strlen(token);
    bool is_one = n > 0 && n <= most;
    for (size_t i = 0; i < n && is_one; i++) {
        is_one = token[i] > ' ' && token[i] < 0x7f;
    }
    return is_one;
}

/* ---- the head ---- */

static void hub_http_copy(str from, char *to, size_t n) {
    size_t length = from.n < n ? from.n : n - 1;
    memcpy(to, from.p, length);
    to[length] = 0;
}

/* Sets *value to the value of a line "NAME: VALUE", without white space around it. False:
 * the line has another name. */
static bool is_header(str line, const char *name, str *value) {
    size_t n = strlen(name);
    if (line.n <= n || line.p[n] != ':' || strncasecmp(line.p, name, n) != 0) {
        return false;
    }
    str v = {line.p + n + 1, line.n - n - 1};
    while (v.n > 0 && (v.p[0] == ' ' || v.p[0] == '\t')) {
        v = (str){v.p + 1, v.n - 1};
    }
    while (v.n > 0 && strchr(" \t\r\n", v.p[v.n - 1]) != NULL) {
        v.n--;
    }
    *value = v;
    return true;
}

/* Text of an etag: x for W/"x" and for "x". */
static str bare_etag(str v) {
    v = str_begins(v, "W/") ? (str){v.p + 2, v.n - 2} : v;
    return v.n >= 2 && v.p[0] == '"' && v.p[v.n - 1] == '"' ? (str){v.p + 1, v.n - 2} : v;
}

/* Reads a whole number of at most 18 digits at the beginning of v; -1: there is none. */
static int64_t hub_http_read_number(str v, size_t *n_digits) {
    int64_t number = 0;
    size_t n = 0;
    for (; n < v.n && n < 18 && v.p[n] >= '0' && v.p[n] <= '9'; n++) {
        number = number * 10 + (v.p[n] - '0');
    }
    *n_digits = n;
    return n > 0 ? number : -1;
}

/* Reads a Content-Range such as "bytes 100-199/200". */
static void hub_http_read_range(str v, hub_reply *r) {
    size_t n;
    const char *slash = memchr(v.p, '/', v.n);
    if (!str_begins(v, "bytes ") || slash == NULL) {
        return;
    }
    r->range_from = hub_http_read_number((str){v.p + 6, v.n - 6}, &n);
    r->range_total = hub_http_read_number((str){slash + 1, v.n - (size_t)(slash + 1 - v.p)}, &n);
}

static void hub_http_read_header(str line, hub_reply *r, bool *is_linked) {
    str v;
    size_t n;
    if (is_header(line, "X-Linked-Etag", &v)) {
        hub_http_copy(bare_etag(v), r->id, sizeof r->id);
        *is_linked = true;
    } else if (is_header(line, "ETag", &v) && !*is_linked) {
        hub_http_copy(bare_etag(v), r->id, sizeof r->id);
    } else if (is_header(line, "X-Error-Code", &v)) {
        hub_http_copy(v, r->code, sizeof r->code);
    } else if (is_header(line, "X-Error-Message", &v)) {
        hub_http_copy(v, r->message, sizeof r->message);
    } else if (is_header(line, "Retry-After", &v)) {
        int64_t s = hub_http_read_number(v, &n);
        r->retry_after_s = n == v.n && s >= 0 && s <= INT32_MAX ? (int32_t)s : -1;
    } else if (is_header(line, "Content-Range", &v)) {
        hub_http_read_range(v, r);
    }
}

static const hub_reply no_reply = {.retry_after_s = -1, .range_from = -1, .range_total = -1};

typedef struct head_reading {
    hub_reply *reply;
    bool is_linked;
} head_reading;

static size_t on_header(char *p, size_t size, size_t n, void *user) {
    head_reading *h = user;
    str line = {p, size * n};
    if (str_begins(line, "HTTP/")) { /* a new response; a proxy's or a 100 Continue may precede it */
        *h->reply = no_reply;
        h->is_linked = false;
    }
    hub_http_read_header(line, h->reply, &h->is_linked);
    return line.n;
}

/* ---- the body ---- */

static bool hub_http_wants(const hub_http *h) {
    return h->to->takes_all || h->reply->status == 200 || h->reply->status == 206;
}

static quire_err hub_http_begin(hub_http *h) {
    long status = 0;
    (void)curl.easy_getinfo(h->handle, CURLINFO_RESPONSE_CODE, &status);
    h->reply->status = (int32_t)status;
    h->has_begun = true;
    bool wanted = h->to->begin != NULL && hub_http_wants(h);
    return wanted ? h->to->begin(h->to->user, h->reply) : QUIRE_OK;
}

static size_t on_body(char *p, size_t size, size_t n, void *user) {
    hub_http *h = user;
    h->result = h->has_begun ? QUIRE_OK : hub_http_begin(h);
    bool wanted = hub_http_wants(h);
    if (h->result == QUIRE_OK && wanted) {
        h->result = h->to->add(h->to->user, p, size * n);
    } else if (!wanted) {
        h->n_unread += (int64_t)(size * n);
    }
    return h->result == QUIRE_OK && h->n_unread <= MAX_UNREAD ? size * n : 0;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now) {
    const hub_http *h = user;
    (void)total, (void)now, (void)up_total, (void)up_now;
    return h->options.stop != NULL && atomic_load(h->options.stop) ? 1 : 0;
}

/* ---- the exchange ---- */

/* Whether this failure is temporary, so that another try may succeed. */
static bool may_pass(CURLcode code) {
    return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
           code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT || code == CURLE_PARTIAL_FILE ||
           code == CURLE_GOT_NOTHING || code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR ||
           code == CURLE_SSL_CONNECT_ERROR || code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM ||
           code == CURLE_WEIRD_SERVER_REPLY;
}

/* Allows only the wanted protocols: by name or, before libcurl 7.85, by bits. */
static bool set_protocols(const hub_http *h) {
    const char *names = h->options.https_only ? "https" : "http,https";
    long bits = h->options.https_only ? (long)CURLPROTO_HTTPS : (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS);
    bool by_name = curl.easy_setopt(h->handle, CURLOPT_PROTOCOLS_STR, names) == CURLE_OK &&
                   curl.easy_setopt(h->handle, CURLOPT_REDIR_PROTOCOLS_STR, names) == CURLE_OK;
    return by_name || (curl.easy_setopt(h->handle, CURLOPT_PROTOCOLS, bits) == CURLE_OK &&
                       curl.easy_setopt(h->handle, CURLOPT_REDIR_PROTOCOLS, bits) == CURLE_OK);
}

static void set_options(hub_http *h, const hub_http_request *r, head_reading *head,
                        struct curl_slist *headers) {
    CURL *c = h->handle;
    curl.easy_reset(c);
    h->error[0] = 0;
    (void)curl.easy_setopt(c, CURLOPT_URL, r->url);
    (void)curl.easy_setopt(c, CURLOPT_ERRORBUFFER, h->error);
    (void)curl.easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)curl.easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl.easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L);
    (void)curl.easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L);
    (void)curl.easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    (void)curl.easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)LEAST_SPEED);
    (void)curl.easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)h->options.stall_s);
    (void)curl.easy_setopt(c, CURLOPT_BUFFERSIZE, 256L << 10);
    (void)curl.easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl.easy_setopt(c, CURLOPT_HEADERDATA, head);
    (void)curl.easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl.easy_setopt(c, CURLOPT_WRITEDATA, h);
    (void)curl.easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    (void)curl.easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl.easy_setopt(c, CURLOPT_XFERINFODATA, h);
    (void)curl.easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (r->json != NULL) {
        (void)curl.easy_setopt(c, CURLOPT_POSTFIELDS, r->json);
        (void)curl.easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n_json);
    }
    if (r->is_direct) {
        (void)curl.easy_setopt(c, CURLOPT_NOPROXY, "*");
    }
    if (h->options.ca_file != NULL) {
        (void)curl.easy_setopt(c, CURLOPT_CAINFO, h->options.ca_file);
    }
}

/* Appends a header line, `begin` followed by value. False: out of memory; the list is
 * unchanged. */
static bool add_header(struct curl_slist **list, const char *begin, const char *value) {
    strbuf line = {0};
    struct curl_slist *longer =
        strbuf_addf(&line, "%s%s", begin, value) == QUIRE_OK ? curl.slist_append(*list, line.p) : NULL;
    strbuf_deinit(&line);
    *list = longer != NULL ? longer : *list;
    return longer != NULL;
}

static bool make_headers(const hub_http_request *r, struct curl_slist **list) {
    char range[48];
    (void)snprintf(range, sizeof range, "bytes=%lld-", (long long)r->from);
    return add_header(list, "User-Agent: ", "quire") &&
           (r->token == NULL || add_header(list, "Authorization: Bearer ", r->token)) &&
           (r->json == NULL || add_header(list, "Content-Type: ", "application/json")) &&
           (r->from == 0 || add_header(list, "Range: ", range));
}

/* Returns the result of an exchange from libcurl's code and the receiver's error. */
static quire_err conclude(hub_http *h, CURLcode code, const char *url, quire_error *err) {
    if (h->result != QUIRE_OK) {
        return h->result;
    }
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        return err_set(err, QUIRE_CANCELLED, -1, "cancelled");
    }
    if (code != CURLE_OK && h->n_unread <= MAX_UNREAD) {
        bool is_certificate = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
        /* the query may hold a signature */
        return err_set(err, may_pass(code) ? QUIRE_BUSY : QUIRE_IO, -1, "%.*s: %s%s", (int)strcspn(url, "?"),
                       url, h->error[0] != 0 ? h->error : curl.easy_strerror(code),
                       is_certificate ? "; Debian's package of certificates is ca-certificates; "
                                        "SSL_CERT_FILE names another file of them"
                                      : "");
    }
    if (!h->has_begun) {
        h->result = hub_http_begin(h); /* the response has no body, so `begin` was not called yet */
    }
    char *location = NULL;
    (void)curl.easy_getinfo(h->handle, CURLINFO_REDIRECT_URL, &location);
    str to = location != NULL ? str_of(location) : (str){"", 0};
    hub_http_copy(to.n < sizeof h->reply->location ? to : (str){"", 0}, h->reply->location,
                  sizeof h->reply->location);
    return h->result;
}

quire_err hub_http_run(hub_http *h, const hub_http_request *r, const hub_receiver *to, hub_reply *reply,
                       quire_error *err) {
    struct curl_slist *headers = NULL;
    head_reading head = {.reply = reply};
    *reply = no_reply;
    h->to = to;
    h->reply = reply;
    h->result = QUIRE_OK;
    h->has_begun = false;
    h->n_unread = 0;
    assert(r->token == NULL || hub_http_is_token(r->token, SIZE_MAX));
    quire_err e = make_headers(r, &headers)
                      ? QUIRE_OK
                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
    if (e == QUIRE_OK) {
        set_options(h, r, &head, headers);
        e = set_protocols(h) ? QUIRE_OK
                             : err_set(err, QUIRE_UNSUPPORTED, -1,
                                       "this libcurl cannot be restricted to HTTPS; install a newer one");
    }
    if (e == QUIRE_OK) {
        CURLcode code = curl.easy_perform(h->handle);
        e = conclude(h, code, r->url, err);
    }
    curl.slist_free_all(headers);
    return e;
}
