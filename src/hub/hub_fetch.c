#include "hub/hub_fetch.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "file/show.h"
#include "hub/hub_name.h"

#define DEFAULT_ENDPOINT "https://huggingface.co"
#define MAX_REDIRECTS    5
#define MAX_FAILURES     4 /* retries after consecutive failures */
#define FIRST_WAIT_US    500000
#define MAX_WAIT_S       120
#define PROGRESS_BYTES   ((int64_t)1 << 20)
#define MAX_TOKEN_BYTES  1000

struct hub_client {
    hub_http *http;
    char *endpoint; /* without a trailing slash */
    const char *token;
    const atomic_bool *stop;
};

/* ---- addresses ---- */

/* Length of a URL's "scheme://host:port"; 0: it has none. */
static size_t origin_length(const char *url) {
    const char *host = strstr(url, "://");
    return host != NULL ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : 0;
}

bool hub_same_origin(const char *endpoint, const char *url) {
    size_t n = origin_length(endpoint);
    return n > 0 && origin_length(url) == n && memcmp(endpoint, url, n) == 0;
}

bool hub_is_loopback(const char *endpoint) {
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *host = strstr(endpoint, "://");
    bool is = false;
    for (size_t i = 0; host != NULL && i < sizeof hosts / sizeof *hosts; i++) {
        size_t n = strlen(hosts[i]);
        const char *end = host + 3 + n;
        is = is || (strncmp(host + 3, hosts[i], n) == 0 && (*end == 0 || *end == '/' || *end == ':'));
    }
    return is && strchr(host, '@') == NULL;
}

quire_err hub_escape(str text, bool keep_slashes, strbuf *out) {
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        bool plain = c < 0x80 && (isalnum(c) || strchr("-_.~", c) != NULL || (keep_slashes && c == '/'));
        TRY(plain ? strbuf_add_char(out, (char)c) : strbuf_addf(out, "%%%02X", c));
    }
    return QUIRE_OK;
}

/* ---- open and close ---- */

static quire_err check_endpoint(const char *endpoint, quire_error *err) {
    bool fine = strncmp(endpoint, "https://", 8) == 0 || strncmp(endpoint, "http://", 7) == 0;
    for (const char *p = endpoint; *p != 0 && fine; p++) {
        fine = *p > ' ' && *p < 0x7f && strchr("?#@\\", *p) == NULL;
    }
    size_t n = origin_length(endpoint);
    return fine && n > 8 ? QUIRE_OK
                         : err_set(err, QUIRE_INVALID, -1,
                                   "HF_ENDPOINT %s: must be an address such as https://huggingface.co",
                                   show_name(str_of(endpoint)).text);
}

static quire_err check_token(const char *token, quire_error *err) {
    return token == NULL || hub_http_is_token(token, MAX_TOKEN_BYTES)
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1,
                         "the hub's token (HF_TOKEN, or its file) is not valid: it has blanks or is empty");
}

/* Returns the token if it may be sent to the endpoint; else NULL. */
static const char *usable_token(const char *endpoint, const char *token) {
    if (token != NULL && strncmp(endpoint, "http://", 7) == 0 && !hub_is_loopback(endpoint)) {
        log_line(LOG_WARN, "%s: the hub's token is not sent over plain HTTP; give an https:// address",
                 endpoint);
        return NULL;
    }
    return token;
}

quire_err hub_client_open(const quire_hub_options *o, const atomic_bool *stop, hub_client **out,
                          quire_error *err) {
    assert(o != NULL);
    const char *endpoint = o->endpoint != NULL ? o->endpoint : DEFAULT_ENDPOINT;
    size_t n = strlen(endpoint);
    TRY(check_endpoint(endpoint, err));
    TRY(check_token(o->token, err));
    hub_client *c = mem_new(1, sizeof *c);
    TRY(mem_check_for(c, "a hub's client", err));
    while (n > 0 && endpoint[n - 1] == '/') {
        n--;
    }
    c->endpoint = mem_dup(endpoint, n);
    c->stop = stop;
    hub_http_options http = {.ca_file = o->ca_file, .stall_s = o->stall_s, .stop = stop};
    http.https_only = strncmp(endpoint, "https://", 8) == 0;
    quire_err e = mem_check_for(c->endpoint, "a hub's address", err);
    TRY_DONE(e, hub_http_open(&http, &c->http, err));
done:
    if (e != QUIRE_OK) {
        hub_client_close(c);
        return e;
    }
    c->token = usable_token(c->endpoint, o->token);
    *out = c;
    return QUIRE_OK;
}

void hub_client_close(hub_client *c) {
    if (c != NULL) {
        hub_http_close(c->http);
        mem_free(c->endpoint);
        mem_free(c);
    }
}

/* ---- what an answer means ---- */

static quire_err hub_client_refuse(const hub_client *c, const hub_target *t, const hub_reply *r,
                                   quire_error *err) {
    const char *at = c->endpoint;
    if (strcmp(r->code, "GatedRepo") == 0) {
        return err_set(err, QUIRE_UNAUTHORIZED, -1, "%s is gated: accept its terms at %s/%s%s", t->repo, at,
                       t->repo,
                       c->token != NULL ? " with the account of HF_TOKEN"
                                        : ", and set HF_TOKEN to a token of that account");
    }
    if (r->status == 401 && c->token == NULL) {
        return err_set(
            err, QUIRE_UNAUTHORIZED, -1,
            "%s: the hub answers 401: there is no such model, or it is private or gated; look at %s/%s, "
            "and set HF_TOKEN to a token that may read it",
            t->repo, at, t->repo);
    }
    if (r->status == 401) {
        return err_set(err, QUIRE_UNAUTHORIZED, -1,
                       "%s: the hub answers 401: there is no such model, or HF_TOKEN may not read it or has "
                       "expired; look at %s/%s and %s/settings/tokens",
                       t->repo, at, t->repo, at);
    }
    return err_set(err, QUIRE_UNAUTHORIZED, -1,
                   "%s: the hub answers 403%s%s: %s; see %s/%s for who may read it", t->repo,
                   r->message[0] != 0 ? ": " : "", show_name(str_of(r->message)).text,
                   c->token != NULL ? "HF_TOKEN may not read it" : "HF_TOKEN is not set", at, t->repo);
}

static quire_err hub_client_not_found(const hub_client *c, const hub_target *t, const hub_reply *r,
                                      quire_error *err) {
    if (strcmp(r->code, "RevisionNotFound") == 0) {
        return err_set(err, QUIRE_NOT_FOUND, -1,
                       "%s: has no such branch, tag or commit; %s/%s/refs lists them", t->repo, c->endpoint,
                       t->repo);
    }
    if (t->id != NULL || strcmp(r->code, "EntryNotFound") == 0) {
        return err_set(err, QUIRE_NOT_FOUND, -1,
                       "%s: the hub lists %s but does not have it (404); pull again", t->repo,
                       show_name(str_of(t->what)).text);
    }
    return err_set(err, QUIRE_NOT_FOUND, -1, "%s: no such model at %s; check the name%s", t->repo,
                   c->endpoint, c->token == NULL ? "; a private one needs HF_TOKEN" : "");
}

/* Returns the error of a status that is neither success nor a redirect. BUSY: another try
 * may succeed, after r->retry_after_s if that is known. */
static quire_err hub_client_explain(const hub_client *c, const hub_target *t, const hub_reply *r, bool is_hub,
                                    quire_error *err) {
    bool passes =
        r->status == 408 || r->status == 425 || r->status == 429 || r->status >= 500 || r->status == 416;
    if (is_hub && (r->status == 401 || (r->status == 403))) {
        return hub_client_refuse(c, t, r, err);
    }
    if (is_hub && r->status == 404) {
        return hub_client_not_found(c, t, r, err);
    }
    /* a redirect's signed address has expired: the hub will give a new one */
    passes = passes || (!is_hub && r->status == 403);
    return err_set(err, passes ? QUIRE_BUSY : QUIRE_IO, -1, "%s: %s answers %d for %s%s%s", t->repo,
                   is_hub ? "the hub" : "its storage", (int)r->status, show_name(str_of(t->what)).text,
                   r->message[0] != 0 ? ": " : "", show_name(str_of(r->message)).text);
}

/* ---- one try ---- */

typedef struct receiving {
    const hub_target *target;
    hub_sink *sink;
    quire_error *err;
} receiving;

static quire_err hub_client_on_begin(void *user, const hub_reply *r) {
    const receiving *x = user;
    const hub_target *t = x->target;
    if (r->status == 206 && t->n_bytes >= 0 && r->range_total >= 0 && r->range_total != t->n_bytes) {
        return err_set(x->err, QUIRE_BAD_FILE, -1,
                       "%s: %s has %s bytes, but %s in the hub's list: it has changed; pull again", t->repo,
                       show_name(str_of(t->what)).text, show_count((uint64_t)r->range_total).text,
                       show_count((uint64_t)t->n_bytes).text);
    }
    if (r->status == 206 && r->range_from == x->sink->at) {
        x->sink->is_joined = x->sink->at > 0;
        return QUIRE_OK;
    }
    if (r->status == 206) { /* the server sent another range than requested */
        TRY(x->sink->restart(x->sink, x->err));
        return err_set(x->err, QUIRE_BUSY, -1,
                       "%s: the server sent a part of %s other than the one asked for", t->repo,
                       show_name(str_of(t->what)).text);
    }
    return x->sink->at > 0 ? x->sink->restart(x->sink, x->err) : QUIRE_OK;
}

static quire_err on_add(void *user, const void *p, size_t n) {
    const receiving *x = user;
    const hub_target *t = x->target;
    if (t->n_bytes >= 0 && (uint64_t)n > (uint64_t)(t->n_bytes - x->sink->at)) {
        (void)x->sink->restart(x->sink, NULL);
        return err_set(x->err, QUIRE_BAD_FILE, -1,
                       "%s: %s is longer than the %s bytes of the hub's list; pull again", t->repo,
                       show_name(str_of(t->what)).text, show_count((uint64_t)t->n_bytes).text);
    }
    return x->sink->add(x->sink, p, n, x->err);
}

/* Fails if the file has changed on the hub. An etag that is not a hash is ignored, since
 * the content is hashed later. */
static quire_err hub_client_check_id(const hub_target *t, const hub_reply *r, quire_error *err) {
    if (t->id == NULL || !hub_is_digest(str_of(r->id)) || strcmp(r->id, t->id) == 0) {
        return QUIRE_OK;
    }
    return err_set(
        err, QUIRE_BAD_FILE, -1,
        "%s: %s has changed at the hub while it was pulled (its etag was %.12s.., it is %.12s..); pull again",
        t->repo, show_name(str_of(t->what)).text, t->id, r->id);
}

/* BUSY if the response ended before the whole target had arrived. */
static quire_err check_whole(const hub_target *t, const hub_sink *s, quire_error *err) {
    if (t->n_bytes < 0 || s->at == t->n_bytes) {
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_BUSY, -1, "%s: %s ended after %s of %s bytes", t->repo,
                   show_name(str_of(t->what)).text, show_count((uint64_t)s->at).text,
                   show_count((uint64_t)t->n_bytes).text);
}

/* Sets *url to a redirect's address. */
static quire_err hub_client_follow(const hub_client *c, const hub_target *t, const hub_reply *r, char *url,
                                   size_t n, quire_error *err) {
    bool secure = strncmp(c->endpoint, "https://", 8) != 0 || strncmp(r->location, "https://", 8) == 0;
    if (r->location[0] == 0 || !secure) {
        return err_set(err, QUIRE_IO, -1, "%s: the server redirects %s %s", t->repo,
                       show_name(str_of(t->what)).text,
                       secure ? "to nowhere" : "from https:// to an address without it");
    }
    (void)snprintf(url, n, "%s", r->location);
    return QUIRE_OK;
}

static quire_err try_once(hub_client *c, const hub_target *t, hub_sink *s, hub_reply *r, quire_error *err) {
    char url[sizeof r->location];
    receiving x = {t, s, err};
    const hub_receiver to = {.begin = hub_client_on_begin, .add = on_add, .user = &x};
    if (snprintf(url, sizeof url, "%s%s", c->endpoint, t->path) >= (int)sizeof url) {
        return err_set(err, QUIRE_INVALID, -1, "%s: its address is too long", t->repo);
    }
    for (int i = 0; i <= MAX_REDIRECTS; i++) {
        bool is_hub = hub_same_origin(c->endpoint, url);
        const hub_http_request get = {
            .url = url, .token = is_hub ? c->token : NULL, .from = s->at, .is_direct = hub_is_loopback(url)};
        TRY(hub_http_run(c->http, &get, &to, r, err));
        if (is_hub && r->status < 400) {
            TRY(hub_client_check_id(t, r, err));
        }
        if (r->status == 200 || r->status == 206) {
            return check_whole(t, s, err);
        }
        if (r->status == 416 && s->at > 0) {
            TRY(s->restart(s, err));
        }
        if (r->status < 300 || r->status >= 400) {
            return hub_client_explain(c, t, r, is_hub, err);
        }
        TRY(hub_client_follow(c, t, r, url, sizeof url, err));
    }
    return err_set(err, QUIRE_IO, -1, "%s: over %d redirects for %s", t->repo, MAX_REDIRECTS,
                   show_name(str_of(t->what)).text);
}

/* ---- tries ---- */

/* Sleeps; CANCELLED when stopped. */
static quire_err wait_us(const hub_client *c, int64_t us) {
    const struct timespec tick = {.tv_nsec = 50000000};
    for (; us > 0; us -= 50000) {
        if (c->stop != NULL && atomic_load(c->stop)) {
            return QUIRE_CANCELLED;
        }
        (void)nanosleep(&tick, NULL);
    }
    return QUIRE_OK;
}

/* Returns the error of the last try, with the number of tries. */
static quire_err hub_client_give_up(const hub_reply *r, const hub_sink *s, int n_tries, quire_error *err) {
    if (err == NULL) {
        return r->status == 429 ? QUIRE_BUSY : QUIRE_IO;
    }
    char why[sizeof err->message];
    (void)snprintf(why, sizeof why, "%s", err->message);
    quire_err e = err_set(err, r->status == 429 ? QUIRE_BUSY : QUIRE_IO, -1,
                          "%.400s; gave up after %d tries; %spull again later", why, n_tries,
                          s->keeps && s->at > 0 ? "what was received is kept: " : "");
    err->retry_after_s = r->status == 429 && r->retry_after_s > 0 ? r->retry_after_s : 0;
    return e;
}

quire_err hub_client_get(hub_client *c, const hub_target *t, hub_sink *s, quire_error *err) {
    assert(s != NULL);
    int64_t most = s->at;
    for (int n_failures = 0, n_tries = 1;; n_tries++) {
        hub_reply r = {.status = 0, .retry_after_s = -1};
        quire_err e = try_once(c, t, s, &r, err);
        if (e != QUIRE_BUSY) {
            return e;
        }
        n_failures = s->at >= most + PROGRESS_BYTES ? 0 : n_failures + 1;
        most = s->at > most ? s->at : most;
        if (n_failures > MAX_FAILURES || r.retry_after_s > MAX_WAIT_S) {
            return hub_client_give_up(&r, s, n_tries, err);
        }
        int64_t wait = r.retry_after_s >= 0 ? (int64_t)r.retry_after_s * 1000000
                                            : (int64_t)FIRST_WAIT_US << (n_failures > 0 ? n_failures - 1 : 0);
        TRY(wait_us(c, wait));
    }
}

#define READ_BYTES ((size_t)1 << 20)
#define PART       ".incomplete" /* huggingface_hub has used this name, too */

/* A blob that is being written. The sink is its first member. */
typedef struct fetch {
    hub_sink sink;
    const hub_file *file;
    hub_meter *meter;
    const char *repo;
    strbuf path, part;
    hub_digest digest;
    int fd, lock;
} fetch;

static bool stat_blob(const hub_repo *r, const hub_file *f, const char *suffix, struct stat *st) {
    strbuf path = {0};
    bool there = hub_repo_blob(r, f->id, suffix, &path, NULL) == QUIRE_OK && lstat(path.p, st) == 0 &&
                 S_ISREG(st->st_mode);
    strbuf_deinit(&path);
    return there;
}

bool hub_blob_is_there(const hub_repo *r, const hub_file *f) {
    struct stat st;
    return stat_blob(r, f, "", &st) && (int64_t)st.st_size == f->n_bytes;
}

int64_t hub_blob_begun(const hub_repo *r, const hub_file *f) {
    struct stat st;
    return stat_blob(r, f, PART, &st) && (int64_t)st.st_size <= f->n_bytes ? (int64_t)st.st_size : 0;
}

static quire_err hub_fetch_failed(const fetch *x, const char *what, quire_error *err) {
    return err_set(err, errno == ENOSPC || errno == EDQUOT ? QUIRE_NO_ROOM : QUIRE_IO, -1, "%s: %s: %s%s",
                   x->part.p, what, strerror(errno),
                   errno == ENOSPC || errno == EDQUOT ? "; make room (quire list, quire rm) and pull again"
                                                      : "");
}

/* ---- the sink ---- */

static quire_err restart(hub_sink *s, quire_error *err) {
    fetch *x = (fetch *)s;
    (void)atomic_fetch_sub(&x->meter->bytes, s->at);
    s->at = 0;
    s->is_joined = false;
    if (ftruncate(x->fd, 0) != 0 || lseek(x->fd, 0, SEEK_SET) != 0) {
        return hub_fetch_failed(x, "could not be emptied", err);
    }
    return err_set(err, hub_digest_begin(&x->digest, x->file->id, x->file->n_bytes), -1,
                   "%s: its hash could not be started", x->part.p);
}

static quire_err hash(fetch *x, const void *p, size_t n, quire_error *err) {
    quire_err e = hub_digest_add(&x->digest, p, n);
    x->sink.at += (int64_t)n;
    (void)atomic_fetch_add(&x->meter->bytes, (int64_t)n);
    return err_set(err, e, -1, "%s: its hash failed", x->part.p);
}

static quire_err hub_fetch_add(hub_sink *s, const void *p, size_t n, quire_error *err) {
    fetch *x = (fetch *)s;
    for (size_t done = 0; done < n;) {
        ssize_t k = write(x->fd, (const char *)p + done, n - done);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return hub_fetch_failed(x, "could not be written", err);
        }
        TRY(hash(x, (const char *)p + done, (size_t)k, err));
        (void)atomic_fetch_add(&x->meter->fetched, (int64_t)k);
        done += (size_t)k;
    }
    return QUIRE_OK;
}

/* ---- the blob ---- */

/* Waits for the blob's lock. */
static quire_err take_lock(fetch *x, const hub_repo *r, quire_error *err) {
    const struct timespec tick = {.tv_nsec = 50000000};
    quire_err e = hub_lock(r, x->file->id, HUB_LOCK_EXCLUSIVE, &x->lock, err);
    if (e != QUIRE_BUSY) {
        return e;
    }
    (void)atomic_fetch_add(&x->meter->n_waiting, 1);
    while (e == QUIRE_BUSY && !atomic_load(&x->meter->stop)) {
        (void)nanosleep(&tick, NULL);
        e = hub_lock(r, x->file->id, HUB_LOCK_EXCLUSIVE, &x->lock, err);
    }
    (void)atomic_fetch_sub(&x->meter->n_waiting, 1);
    return e == QUIRE_BUSY ? QUIRE_CANCELLED : e;
}

/* Opens the file of an earlier, unfinished fetch, hashes its bytes, and moves to its
 * end. */
static quire_err open_part(fetch *x, quire_error *err) {
    struct stat st;
    x->fd = open(x->part.p, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (x->fd < 0 || fstat(x->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        errno = x->fd >= 0 ? EEXIST : errno;
        return hub_fetch_failed(x, "could not be opened", err);
    }
    if ((int64_t)st.st_size > x->file->n_bytes) {
        return restart(&x->sink, err);
    }
    char *piece = mem_new(READ_BYTES, 1);
    quire_err e = mem_check_for(piece, "a piece of a file", err);
    TRY_DONE(e, hub_digest_begin(&x->digest, x->file->id, x->file->n_bytes));
    while (x->sink.at < (int64_t)st.st_size) {
        ssize_t n = read(x->fd, piece, READ_BYTES);
        TRY_DONE(e, n > 0 ? hash(x, piece, (size_t)n, err) : hub_fetch_failed(x, "could not be read", err));
        TRY_DONE(e, atomic_load(&x->meter->stop) ? QUIRE_CANCELLED : QUIRE_OK);
    }
done:
    mem_free(piece);
    return e;
}

/* Renames the fetched file to the blob's name if its hash is right. BAD_FILE, without a
 * message: the hash is wrong. */
static quire_err prove(fetch *x, quire_error *err) {
    char found[HUB_DIGEST_BYTES];
    struct stat st; /* if locks do not work, another process may have truncated it */
    TRY(err_set(err, hub_digest_end(&x->digest, found), -1, "%s: its hash failed", x->part.p));
    if (strcmp(found, x->file->id) != 0 || fstat(x->fd, &st) != 0 ||
        (int64_t)st.st_size != x->file->n_bytes) {
        return QUIRE_BAD_FILE;
    }
    if (fdatasync(x->fd) != 0 || rename(x->part.p, x->path.p) != 0) {
        return hub_fetch_failed(x, "could not be put in place", err);
    }
    return QUIRE_OK;
}

quire_err hub_address(const char *repo, const char *commit, const hub_file *f, strbuf *out,
                      quire_error *err) {
    quire_err e = strbuf_addf(out, "/%s/resolve/%s/", repo, commit);
    TRY_DONE(e, hub_escape(str_of(f->path), true, out));
done:
    return err_set(err, e, -1, "%s: out of memory", f->path);
}

/* Fetches the missing part and verifies the whole file. If a file that came in several
 * pieces fails, it is fetched once more from the start. */
static quire_err get(fetch *x, hub_client *c, const char *path, quire_error *err) {
    const hub_target t = {x->repo, x->file->path, path, x->file->id, x->file->n_bytes};
    for (bool again = false;; again = true) {
        x->sink.is_joined = x->sink.at > 0;
        if (x->sink.at < x->file->n_bytes) {
            TRY(hub_client_get(c, &t, &x->sink, err));
        }
        quire_err e = prove(x, err);
        if (e != QUIRE_BAD_FILE) {
            return e;
        }
        bool is_joined = x->sink.is_joined;
        TRY(restart(&x->sink, err));
        if (again || !is_joined) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "%s: the received %s does not have the hash that the hub lists (%.12s..) and was "
                           "dropped: pull again; if that fails too, the hub's copy is damaged",
                           x->repo, show_name(str_of(x->file->path)).text, x->file->id);
        }
    }
}

static quire_err hub_fetch_run(fetch *x, hub_client *c, const hub_repo *r, const char *commit,
                               quire_error *err) {
    TRY(take_lock(x, r, err));
    if (hub_blob_is_there(r, x->file)) { /* another process was first */
        (void)atomic_fetch_add(&x->meter->bytes, x->file->n_bytes);
        return QUIRE_OK;
    }
    TRY(open_part(x, err));
    strbuf path = {0};
    quire_err e = hub_address(x->repo, commit, x->file, &path, err);
    TRY_DONE(e, get(x, c, path.p, err));
done:
    strbuf_deinit(&path);
    return e;
}

quire_err hub_fetch(hub_client *c, const hub_repo *r, const char *repo, const char *commit, const hub_file *f,
                    hub_meter *m, quire_error *err) {
    fetch x = {.sink = {.keeps = true, .restart = restart, .add = hub_fetch_add},
               .file = f,
               .meter = m,
               .repo = repo,
               .fd = -1,
               .lock = -1};
    quire_err e = hub_repo_blob(r, f->id, "", &x.path, err);
    TRY_DONE(e, hub_repo_blob(r, f->id, PART, &x.part, err));
    TRY_DONE(e, hub_fetch_run(&x, c, r, commit, err));
done:
    if (x.fd >= 0) {
        if (e != QUIRE_OK && x.sink.at == 0) {
            (void)unlink(x.part.p); /* nothing was received; the lock is still held */
        }
        (void)close(x.fd);
    }
    hub_unlock(x.lock);
    hub_digest_deinit(&x.digest);
    strbuf_deinit(&x.path);
    strbuf_deinit(&x.part);
    if (e == QUIRE_OK) {
        (void)atomic_fetch_add(&m->n_files, 1);
    }
    return e;
}

quire_err hub_digest_begin(hub_digest *d, const char *id, int64_t n_bytes) {
    assert(d != NULL);
    d->context = d->context != NULL ? d->context : EVP_MD_CTX_new();
    d->is_sha1 = strlen(id) == 40;
    if (d->context == NULL ||
        EVP_DigestInit_ex(d->context, d->is_sha1 ? EVP_sha1() : EVP_sha256(), NULL) != 1) {
        return QUIRE_NO_MEMORY;
    }
    char head[32]; /* git hashes "blob SIZE", a 0 byte and the content */
    int n = snprintf(head, sizeof head, "blob %lld", (long long)n_bytes);
    return d->is_sha1 ? hub_digest_add(d, head, (size_t)n + 1) : QUIRE_OK;
}

quire_err hub_digest_add(hub_digest *d, const void *p, size_t n) {
    assert(d != NULL);
    return EVP_DigestUpdate(d->context, p, n) == 1 ? QUIRE_OK : QUIRE_INTERNAL;
}

quire_err hub_digest_end(hub_digest *d, char out[HUB_DIGEST_BYTES]) {
    assert(d != NULL);
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (EVP_DigestFinal_ex(d->context, bytes, &n) != 1 || n > (HUB_DIGEST_BYTES - 1) / 2) {
        return QUIRE_INTERNAL;
    }
    for (unsigned int i = 0; i < n; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
    return QUIRE_OK;
}

void hub_digest_deinit(hub_digest *d) {
    assert(d != NULL);
    EVP_MD_CTX_free(d->context);
    d->context = NULL;
}
