/* Sends requests to an OpenAI-compatible API, several at once: each thread handles one
 * request at a time over its own connection. Temporary failures are retried a few times,
 * after the delay that the API asks for.
 *
 *   api_client_send -> (a thread posts it) -> api_client_take -> api_job_free
 *
 * One thread makes all calls. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/mem.h"
#include "base/ring.h"
#include "base/utf8.h"
#include "cli/api_executor.h"
#include "hub/hub_http.h"
#include "json/json.h"

/* Text that an API generated past the end of a gen, and its use by later gens: pure
 * functions of texts and responses.
 *
 * A gen that is followed by constant text and another gen is sent without its stop
 * strings and with a larger max_tokens. The returned text is cut where the API would have
 * ended the gen: at the first token that completes a stop string, at max_tokens, or where
 * the model ended. The text after the cut is a guess of the constant text and the later
 * gens. If it begins with the constant text, and a token ends where that ends, the rest
 * is what the API would (greedily) generate there, so no call is needed. */

/* ---- responses ---- */

api_text *api_text_share(api_text *t) {
    if (t != NULL) {
        t->refs++;
    }
    return t;
}

void api_text_drop(api_text *t) {
    if (t != NULL && --t->refs == 0) {
        strbuf_deinit(&t->text);
        mem_free(t->ends);
        mem_free(t);
    }
}

static quire_err api_text_add_end(api_text *t, size_t end) {
    TRY(mem_grow(&t->ends, &t->cap_tokens, t->n_tokens + 1, sizeof *t->ends));
    t->ends[t->n_tokens++] = end < t->text.n ? end : t->text.n;
    return QUIRE_OK;
}

/* The offset of token i, in characters; 0 if it is missing or invalid. */
static int64_t api_offset_at(const json_value *offsets, size_t i) {
    int64_t at = json_int64(json_at(offsets, i));
    return at >= 0 && at <= INT32_MAX ? at : 0;
}

/* Sets t->ends from a completion's text_offset, in characters: token i ends where the
 * next one begins. */
static quire_err api_text_read_offsets(api_text *t, const json_value *offsets) {
    size_t at = 0, n = json_length(offsets);
    int64_t first = n > 0 ? api_offset_at(offsets, 0) : 0, chars = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t next = i + 1 < n ? api_offset_at(offsets, i + 1) - first : INT64_MAX;
        for (size_t len; at < t->text.n && chars < next; chars++, at += len) {
            utf8_next(t->text.p + at, &len);
        }
        TRY(api_text_add_end(t, at));
    }
    t->has_tokens = n > 0;
    return QUIRE_OK;
}

/* Sets t->ends from the bytes of a chat's tokens or, if these are missing, from their
 * texts. */
static quire_err api_text_read_content(api_text *t, const json_value *tokens) {
    size_t at = 0, n = json_length(tokens);
    for (size_t i = 0; i < n; i++) {
        const json_value *token = json_at(tokens, i), *bytes = json_get(token, "bytes");
        at += json_is(bytes, JSON_KIND_ARRAY) ? json_length(bytes) : json_get_str(token, "token").n;
        TRY(api_text_add_end(t, at));
    }
    t->has_tokens = n > 0 && at >= t->text.n;
    return QUIRE_OK;
}

quire_err api_text_read(const json_value *choice, bool is_chat, api_text **out) {
    const json_value *holder = is_chat ? json_get(choice, "message") : choice,
                     *logprobs = json_get(choice, "logprobs");
    const char *name = is_chat ? "content" : "text";
    *out = NULL;
    if (!json_is(holder, JSON_KIND_OBJECT)) {
        return QUIRE_IO;
    }
    api_text *t = mem_new(1, sizeof *t);
    TRY(mem_check(t));
    t->refs = 1;
    str text = json_get_str(holder, name), reason = json_get_str(choice, "finish_reason");
    t->is_whole = !str_is(reason, "length");
    quire_err e = strbuf_add(&t->text, text.p, text.n);
    if (e == QUIRE_OK) {
        e = is_chat ? api_text_read_content(t, json_get(logprobs, "content"))
                    : api_text_read_offsets(t, json_get(logprobs, "text_offset"));
    }
    if (e != QUIRE_OK) {
        api_text_drop(t);
        return e;
    }
    *out = t;
    return QUIRE_OK;
}

/* ---- rules ---- */

bool api_rule_read(const json_value *fields, api_rule *out) {
    const json_value *max = json_get(fields, "max_tokens"), *stop = json_get(fields, "stop");
    size_t n = json_is(stop, JSON_KIND_TEXT) ? 1 : json_length(stop);
    *out = (api_rule){.max_tokens = json_get_int32(fields, "max_tokens", -1)};
    bool is_fine = (max == NULL || out->max_tokens >= 0) && n <= sizeof out->stops / sizeof *out->stops;
    for (size_t i = 0; i < n && is_fine; i++) {
        const json_value *one = json_is(stop, JSON_KIND_TEXT) ? stop : json_at(stop, i);
        is_fine = json_is(one, JSON_KIND_TEXT) && json_str(one).n > 0;
        out->stops[out->n_stops++] = json_str(one);
    }
    return is_fine;
}

/* ---- cuts ---- */

/* The number of tokens in bytes [from, to); if tokens are unknown, an upper bound: one
 * per byte. */
static size_t api_text_tokens(const api_text *t, size_t from, size_t to) {
    size_t n = 0;
    if (!t->has_tokens) {
        return to - from;
    }
    for (size_t i = 0; i < t->n_tokens && t->ends[i] < to; i++) {
        n += t->ends[i] > from ? 1 : 0;
    }
    return to > from ? n + 1 : 0;
}

/* Finds the stop string that ends first; of several that end together, the longest. */
static bool api_text_find_stop(const api_text *t, size_t from, const api_rule *rule, size_t *begin,
                               size_t *end) {
    for (size_t at = from + 1; at <= t->text.n; at++) {
        size_t longest = 0;
        for (size_t i = 0; i < rule->n_stops; i++) {
            str stop = rule->stops[i];
            bool is_here = stop.n <= at - from && memcmp(t->text.p + at - stop.n, stop.p, stop.n) == 0;
            longest = is_here && stop.n > longest ? stop.n : longest;
        }
        if (longest > 0) {
            *begin = at - longest;
            *end = at;
            return true;
        }
    }
    return false;
}

bool api_text_cut(const api_text *t, size_t from, const api_rule *rule, api_cut *out) {
    assert(t != NULL && rule != NULL);
    size_t begin = t->text.n, end = t->text.n;
    bool stops = api_text_find_stop(t, from, rule, &begin, &end);
    size_t n = api_text_tokens(t, from, end),
           most = rule->max_tokens < 0 ? SIZE_MAX : (size_t)rule->max_tokens;
    if ((stops || t->is_whole) && n <= most) {
        *out = (api_cut){begin, n, QUIRE_FINISH_STOP};
        return true;
    }
    if (!t->has_tokens) {
        return false;
    }
    size_t i = 0, left = most;
    while (i < t->n_tokens && t->ends[i] <= from) {
        i++;
    }
    if (left > t->n_tokens - i) {
        return false;
    }
    *out = (api_cut){left > 0 ? t->ends[i + left - 1] : from, left, QUIRE_FINISH_LENGTH};
    return true;
}

bool api_text_agrees(const api_text *t, size_t from, str text) {
    size_t to = from + text.n;
    bool is_boundary = to == 0;
    if (!t->has_tokens || text.n > t->text.n - from || !str_eq((str){t->text.p + from, text.n}, text)) {
        return false;
    }
    for (size_t i = 0; i < t->n_tokens && t->ends[i] <= to; i++) {
        is_boundary = is_boundary || t->ends[i] == to;
    }
    return is_boundary;
}

/* ---- responses ---- */

const json_value *api_choice_at(const json_value *response, size_t index) {
    const json_value *all = json_get(response, "choices");
    for (size_t i = 0; i < json_length(all); i++) {
        if (json_get_int32(json_at(all, i), "index", 0) == (int32_t)index) {
            return json_at(all, i);
        }
    }
    return NULL;
}

quire_finish api_finish_of(const json_value *choice) {
    return str_is(json_get_str(choice, "finish_reason"), "length") ? QUIRE_FINISH_LENGTH : QUIRE_FINISH_STOP;
}

int64_t api_count_of(const json_value *usage, const char *name) {
    int64_t n = json_int64(json_get(usage, name));
    return n >= 0 && n <= INT32_MAX ? n : 0;
}

#define MAX_RESPONSE ((size_t)64 << 20)
#define MAX_SENT     3   /* attempts to send a job */
#define STALL_S      600 /* most seconds between sending a request and the first byte of its response */
#define MAX_WAIT_S   60
#define MAX_KEY      8192 /* bytes */

typedef struct api_thread {
    api_client *client;
    pthread_t thread;
    hub_http *http;
    api_job *job;     /* the job that the thread runs; under the lock */
    atomic_bool stop; /* set to end the present job */
} api_thread;

struct api_client {
    api_client_options o;
    size_t n_url; /* length of the address without trailing slashes */
    pthread_mutex_t lock;
    pthread_cond_t work; /* signalled when a job is queued or dropped, or the client closes */
    wake ended;
    api_job *waiting, **waiting_last, *over, **over_last;
    int32_t n_idle;
    bool closes;
    int32_t n_threads;
    api_thread threads[API_MAX_AT_ONCE];
};

/* ---- jobs ---- */

api_job *api_job_new(const char *path, void *user) {
    api_job *j = mem_new(1, sizeof *j);
    if (j != NULL) {
        j->path = path;
        j->user = user;
    }
    return j;
}

void api_job_free(api_job *j) {
    if (j != NULL) {
        strbuf_deinit(&j->body);
        strbuf_deinit(&j->response);
        mem_free(j);
    }
}

static void api_jobs_add(api_job ***last, api_job *j) {
    j->next = NULL;
    **last = j;
    *last = &j->next;
}

static api_job *api_jobs_take(api_job **first, api_job ***last) {
    api_job *j = *first;
    if (j != NULL) {
        *first = j->next;
        *last = *first == NULL ? first : *last;
    }
    return j;
}

/* ---- one exchange ---- */

static quire_err api_on_body(void *user, const void *p, size_t n) {
    api_job *j = user;
    return n > MAX_RESPONSE - j->response.n ? QUIRE_TOO_LARGE : strbuf_add(&j->response, p, n);
}

/* Sets err from an API's error: error.message of its body, or the whole body if it is
 * short. For a redirect, which is not followed: its address. */
static quire_err api_read_error(const api_job *j, const char *url, const hub_reply *reply, quire_error *err) {
    const int32_t status = reply->status;
    if (reply->location[0] != 0) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "%s: redirects to %.300s; give that address as --api", url,
                       reply->location);
    }
    str text = {j->response.n > 0 ? j->response.p : "", j->response.n};
    json_value *body = json_document(text);
    const json_value *error = json_get(body, "error");
    str said = json_is(error, JSON_KIND_TEXT) ? json_str(error) : json_get_str(error, "message");
    said = said.n > 0 ? said : json_get_str(body, "message");
    said = said.n > 0 ? said : json_get_str(body, "detail");
    said = said.n > 0 ? said : text;
    bool may_pass = status == 429 || status >= 500;
    quire_err code = status == 404                    ? QUIRE_NOT_FOUND
                     : may_pass                       ? QUIRE_BUSY
                     : status == 401 || status == 403 ? QUIRE_UNAUTHORIZED
                                                      : QUIRE_BAD_REQUEST;
    err_set(err, code, -1, "%s: status %d: %.*s", url, (int)status, (int)(said.n < 300 ? said.n : 300),
            said.p);
    json_drop(body);
    return code;
}

/* Waits before the job is sent again. False: the job was dropped. */
static bool api_pause(api_thread *t, int32_t seconds) {
    api_client *c = t->client;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds < MAX_WAIT_S ? seconds : MAX_WAIT_S;
    pthread_mutex_lock(&c->lock);
    while (!c->closes && !atomic_load(&t->stop) && pthread_cond_timedwait(&c->work, &c->lock, &until) == 0) {
    }
    bool goes_on = !c->closes && !atomic_load(&t->stop);
    pthread_mutex_unlock(&c->lock);
    return goes_on;
}

static void api_run_job(api_thread *t, api_job *j) {
    const api_client *c = t->client;
    strbuf url = {0};
    hub_reply reply;
    quire_err e = strbuf_addf(&url, "%.*s%s", (int)c->n_url, c->o.url, j->path);
    if (e != QUIRE_OK) {
        err_set(&j->error, e, -1, "out of memory for an address");
        strbuf_deinit(&url);
        return;
    }
    const hub_http_request r = {
        .url = url.p, .token = c->o.key, .json = j->body.n > 0 ? j->body.p : NULL, .n_json = j->body.n};
    const hub_receiver to = {.add = api_on_body, .user = j, .takes_all = true};
    for (int32_t wait_s = 1;; wait_s *= 2) {
        j->error = (quire_error){0};
        strbuf_clear(&j->response);
        j->n_sent++;
        e = hub_http_run(t->http, &r, &to, &reply, &j->error);
        if (e == QUIRE_OK && reply.status != 200) {
            e = api_read_error(j, url.p, &reply, &j->error);
        } else if (e != QUIRE_OK && j->error.code == QUIRE_OK) {
            err_set(&j->error, e, -1, "%s: its response is over %zu MiB, or out of memory", url.p,
                    MAX_RESPONSE >> 20);
        }
        int32_t pause_s = reply.retry_after_s >= 0 ? reply.retry_after_s : wait_s;
        if (e != QUIRE_BUSY || j->n_sent == MAX_SENT || !api_pause(t, pause_s)) {
            break;
        }
    }
    strbuf_deinit(&url);
}

static void *api_thread_run(void *arg) {
    api_thread *t = arg;
    api_client *c = t->client;
    pthread_mutex_lock(&c->lock);
    while (!c->closes) {
        api_job *j = api_jobs_take(&c->waiting, &c->waiting_last);
        if (j == NULL) {
            c->n_idle++;
            pthread_cond_wait(&c->work, &c->lock);
            c->n_idle--;
            continue;
        }
        t->job = j;
        atomic_store(&t->stop, false);
        pthread_mutex_unlock(&c->lock);
        api_run_job(t, j);
        pthread_mutex_lock(&c->lock);
        t->job = NULL;
        if (j->is_dropped) {
            api_job_free(j);
        } else {
            api_jobs_add(&c->over_last, j);
            wake_ring(&c->ended);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the client ---- */

/* Checks the address. Messages do not repeat one with a user name and password. */
static quire_err api_check_url(const char *url, quire_error *err) {
    const char *host = strstr(url, "://");
    if (host != NULL && memchr(host + 3, '@', strcspn(host + 3, "/")) != NULL) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "--api: the address has a user name or password; give a key in OPENAI_API_KEY instead");
    }
    bool is_fine = str_begins(str_of(url), "https://") || str_begins(str_of(url), "http://");
    for (const char *p = url; *p != 0 && is_fine; p++) {
        is_fine = *p > ' ' && *p < 0x7f && *p != '?' && *p != '#';
    }
    return is_fine ? QUIRE_OK
                   : err_set(err, QUIRE_INVALID, -1,
                             "--api %s: must be an address such as https://api.example.com/v1", url);
}

quire_err api_client_open(const api_client_options *o, api_client **out, quire_error *err) {
    assert(o != NULL);
    TRY(api_check_url(o->url, err));
    if (o->key != NULL && !hub_http_is_token(o->key, MAX_KEY)) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "OPENAI_API_KEY is not a valid key: it is empty, has blanks or line ends, or is over %d bytes",
            MAX_KEY);
    }
    api_client *c = mem_new(1, sizeof *c);
    TRY(mem_check_for(c, "a client", err));
    c->o = *o;
    c->n_url = strlen(o->url);
    while (o->url[c->n_url - 1] == '/') {
        c->n_url--;
    }
    c->waiting_last = &c->waiting;
    c->over_last = &c->over;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    quire_err e = wake_init(&c->ended);
    if (e != QUIRE_OK) {
        api_client_close(c);
        return err_set(err, e, -1, "a file descriptor for an API's responses could not be opened");
    }
    *out = c;
    return QUIRE_OK;
}

static void api_jobs_free(api_job *first) {
    while (first != NULL) {
        api_job *next = first->next;
        api_job_free(first);
        first = next;
    }
}

void api_client_close(api_client *c) {
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->closes = true;
    for (int32_t i = 0; i < c->n_threads; i++) {
        atomic_store(&c->threads[i].stop, true);
    }
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (int32_t i = 0; i < c->n_threads; i++) {
        pthread_join(c->threads[i].thread, NULL);
        hub_http_close(c->threads[i].http);
    }
    api_jobs_free(c->waiting);
    api_jobs_free(c->over);
    wake_deinit(&c->ended);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* Starts one more thread. */
static quire_err api_client_grow(api_client *c, quire_error *err) {
    api_thread *t = &c->threads[c->n_threads];
    const hub_http_options http = {.ca_file = c->o.ca_file, .stall_s = STALL_S, .stop = &t->stop};
    t->client = c;
    TRY(hub_http_open(&http, &t->http, err));
    if (pthread_create(&t->thread, NULL, api_thread_run, t) != 0) {
        hub_http_close(t->http);
        return err_set(err, QUIRE_NO_MEMORY, -1, "a thread for a request could not be started");
    }
    c->n_threads++;
    return QUIRE_OK;
}

quire_err api_client_send(api_client *c, api_job *j, quire_error *err) {
    assert(c != NULL);
    pthread_mutex_lock(&c->lock);
    bool grows = c->n_threads < API_MAX_AT_ONCE && (c->n_idle == 0 || c->waiting != NULL);
    pthread_mutex_unlock(&c->lock);
    quire_err e = grows ? api_client_grow(c, err) : QUIRE_OK;
    if (e != QUIRE_OK && c->n_threads == 0) {
        return e;
    }
    pthread_mutex_lock(&c->lock);
    api_jobs_add(&c->waiting_last, j);
    pthread_cond_broadcast(&c->work); /* wakes a thread in api_pause too */
    pthread_mutex_unlock(&c->lock);
    return QUIRE_OK;
}

/* Removes a job from a list. False: it is not there. */
static bool api_jobs_remove(api_job **first, api_job ***last, const api_job *j) {
    api_job **at = first;
    while (*at != NULL && *at != j) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        return false;
    }
    *at = j->next;
    *last = *at == NULL ? at : *last;
    return true;
}

void api_client_drop(api_client *c, api_job *j) {
    pthread_mutex_lock(&c->lock);
    bool runs = false;
    (void)(api_jobs_remove(&c->waiting, &c->waiting_last, j) || api_jobs_remove(&c->over, &c->over_last, j));
    for (int32_t i = 0; i < c->n_threads; i++) {
        if (c->threads[i].job == j) {
            runs = true;
            j->is_dropped = true;
            atomic_store(&c->threads[i].stop, true);
            pthread_cond_broadcast(&c->work);
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (!runs) {
        api_job_free(j);
    }
}

api_job *api_client_take(api_client *c) {
    pthread_mutex_lock(&c->lock);
    api_job *j = api_jobs_take(&c->over, &c->over_last);
    pthread_mutex_unlock(&c->lock);
    return j;
}

int api_client_fd(const api_client *c) {
    assert(c != NULL);
    return c->ended.fd;
}

void api_client_wait(api_client *c, int64_t timeout_us) {
    assert(c != NULL);
    pthread_mutex_lock(&c->lock);
    bool has_some = c->over != NULL;
    pthread_mutex_unlock(&c->lock);
    if (!has_some) {
        (void)wake_wait(&c->ended, timeout_us);
    }
}
