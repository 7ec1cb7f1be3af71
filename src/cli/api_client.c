/* Requests to an OpenAI-compatible API, several at once: each thread has one exchange at
 * a time over a connection of its own. Failures that may pass are retried a few times,
 * after the delay that the API names.
 *
 *   api_client_send -> (a thread posts it) -> api_client_take -> api_job_free
 *
 * Owner: one thread, which calls everything here. */
#include "cli/api_executor.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/mem.h"
#include "base/ring.h"
#include "hub/hub_http.h"
#include "json/json.h"

#define MAX_RESPONSE ((size_t)64 << 20)
#define MAX_SENT     3   /* most times that a job is sent */
#define STALL_S      600 /* a model may compute for that long before its first byte */
#define MAX_WAIT_S   60
#define MAX_KEY      8192 /* bytes */

typedef struct api_thread {
    api_client *client;
    pthread_t thread;
    hub_http *http;
    api_job *job;     /* the job that it runs, under the lock */
    atomic_bool stop; /* ends that job */
} api_thread;

struct api_client {
    api_client_options o;
    size_t n_url; /* without trailing slashes */
    pthread_mutex_t lock;
    pthread_cond_t work; /* signalled when a job waits or is dropped, or the client closes */
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

/* The message of an API's error: error.message of its body, or all of a short body; of a
 * redirect, which is not followed, its address. */
static quire_err api_read_error(const api_job *j, const char *url, const hub_reply *reply, quire_error *err) {
    const int32_t status = reply->status;
    if (reply->location[0] != 0) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "%s: it redirects to %.300s; give that address as --api",
                       url, reply->location);
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

/* Waits before the job is sent again. False: it was given up. */
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
            err_set(&j->error, e, -1, "%s: its response is over %zu MiB, or memory is out", url.p,
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

/* An address with a name and a password is not repeated in messages. */
static quire_err api_check_url(const char *url, quire_error *err) {
    const char *host = strstr(url, "://");
    if (host != NULL && memchr(host + 3, '@', strcspn(host + 3, "/")) != NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--api: the address has a name or password before its host; give a key in "
                       "OPENAI_API_KEY");
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
        return err_set(err, e, -1, "no file descriptor for an API's responses");
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

/* One more thread. */
static quire_err api_client_grow(api_client *c, quire_error *err) {
    api_thread *t = &c->threads[c->n_threads];
    const hub_http_options http = {.ca_file = c->o.ca_file, .stall_s = STALL_S, .stop = &t->stop};
    t->client = c;
    TRY(hub_http_open(&http, &t->http, err));
    if (pthread_create(&t->thread, NULL, api_thread_run, t) != 0) {
        hub_http_close(t->http);
        return err_set(err, QUIRE_NO_MEMORY, -1, "no thread for a request");
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
    pthread_cond_broadcast(&c->work); /* a thread that pauses waits too */
    pthread_mutex_unlock(&c->lock);
    return QUIRE_OK;
}

/* Removes a job from a list, if it is there. */
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
