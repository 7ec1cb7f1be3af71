/* memmem() is outside POSIX. */
#define _GNU_SOURCE

#include "server/fake_quire.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/err.h"
#include "json/json.h"

struct quire_engine {
    int64_t tick_us;
    atomic_llong running, cancelled, generation_tokens, parses, looks, drops;
    atomic_bool unhealthy, held, has_history;
    quire_info info;
};

struct quire_request {
    quire_request_info info;
    quire_request_more more;
    char model[200], fail[16], stop_kind[16];
    int32_t max_tokens, stop_at, n_prompt;
    int32_t text_bytes; /* of one token */
    int32_t burst;      /* tokens a tick */
    int32_t rollback_at, pause_at;
};

struct quire_stream {
    quire_request *r;
    quire_queue *queue;
    void *user;
    quire_stream *next;
    int32_t choice;   /* whose turn it is in this tick */
    int32_t produced; /* tokens of each choice so far */
    bool rolled_back;
    quire_error error;
    int phase; /* 0 start, 1 tokens, 2 ends, 3 done, 4 over */
};

struct quire_queue {
    quire_engine *engine;
    quire_stream *streams, *at; /* at: the next one to speak in this tick */
    quire_parse *parses;        /* bodies that come out with the next tick */
    quire_error parse_err;
    bool ticked, has_released; /* streams before their end, whose last events come with the next tick */
    int fd;
    char *text;
    int32_t ids[4];
};

int64_t fake_looks(const quire_engine *e) {
    return atomic_load(&((quire_engine *)(uintptr_t)e)->looks);
}

int64_t fake_parses(const quire_engine *e) {
    return atomic_load(&((quire_engine *)(uintptr_t)e)->parses);
}

quire_engine *fake_open(int64_t tick_us) {
    quire_engine *e = calloc(1, sizeof(*e));
    e->tick_us = tick_us;
    e->info = (quire_info){.model_name = "fake",
                           .model_path = "/nowhere",
                           .max_model_len = 128,
                           .n_vocab = 100,
                           .n_pages = 100,
                           .page_tokens = 16,
                           .page_bytes = 4096,
                           .n_page_groups = 2,
                           .kv_dtype = "f32"};
    return e;
}

void fake_close(quire_engine *e) {
    free(e);
}

static atomic_int n_beside;
static atomic_llong n_opened;
static atomic_bool are_resumed;

int32_t fake_beside(void) {
    return atomic_load(&n_beside);
}

int64_t fake_opened(void) {
    return atomic_load(&n_opened);
}

void fake_resume(void) {
    atomic_store(&are_resumed, true);
}

quire_err quire_engine_open_beside(quire_engine *host, const quire_options *o, quire_engine **out,
                                   quire_error *err) {
    *out = NULL;
    if (strcmp(o->model, "broken") == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "broken: it is cut short; download it again");
    }
    if (strcmp(o->model, "big") == 0 && fake_beside() > 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "there is no room for big");
    }
    for (int i = 0; i < 50 && strcmp(o->model, "slow") == 0; i++) {
        usleep(2000);
        if (!o->load_progress(o->load_progress_user, i / 50.0)) {
            return err_set(err, QUIRE_CANCELLED, -1, "slow: loading was cancelled");
        }
    }
    while (strcmp(o->model, "endless") == 0) { /* until that is cancelled */
        usleep(1000);
        if (!o->load_progress(o->load_progress_user, 0.25)) {
            return err_set(err, QUIRE_CANCELLED, -1, "endless: loading was cancelled");
        }
    }
    *out = fake_open(host->tick_us);
    fake_set_healthy(*out, strcmp(o->model, "sick") != 0);
    atomic_fetch_add(&n_opened, 1);
    atomic_fetch_add(&n_beside, 1);
    return QUIRE_OK;
}

void quire_engine_close(quire_engine *e) {
    if (e != NULL) {
        if (atomic_load(&e->running) != 0) {
            fprintf(stderr, "an engine is closed while it has streams\n");
            abort();
        }
        atomic_fetch_sub(&n_beside, 1);
        fake_close(e);
    }
}

void fake_set_healthy(quire_engine *e, bool healthy) {
    atomic_store(&e->unhealthy, !healthy);
}

void fake_hold(quire_engine *e, bool held) {
    atomic_store(&e->held, held);
}

int64_t fake_running(const quire_engine *e) {
    return atomic_load(&e->running);
}

int64_t fake_produced(const quire_engine *e) {
    return atomic_load(&e->generation_tokens);
}

int64_t fake_drops(const quire_engine *e) {
    return atomic_load(&e->drops);
}

int64_t fake_cancelled(const quire_engine *e) {
    return atomic_load(&e->cancelled);
}

quire_err quire_inspect(const quire_options *o, bool json, char **text, quire_error *err) {
    (void)json;
    *text = NULL;
    if (strcmp(o->model, "broken") == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "broken: it is cut short; download it again");
    }
    *text = strdup("{\"architecture\":\"llama\",\"n_layers\":7,\"n_params\":5,\"vocabulary\":\"ranks\","
                   "\"chat_template\":true,\"tool_format\":\"hermes\",\"reasoning_format\":null}");
    return *text != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void quire_engine_drop_cache(quire_engine *e) {
    atomic_fetch_add(&e->drops, 1);
}

quire_err quire_engine_drop_tenant(quire_engine *e, const char *tenant) {
    (void)tenant;
    atomic_fetch_add(&e->drops, 1);
    return QUIRE_OK;
}

const quire_info *quire_engine_info(const quire_engine *e) {
    return &e->info;
}

const quire_row_info *quire_engine_rows(const quire_engine *e) {
    static const quire_row_info none = {.size = sizeof none};
    (void)e;
    return &none;
}

bool quire_engine_healthy(const quire_engine *e) {
    return !atomic_load(&e->unhealthy);
}

void quire_engine_stats(const quire_engine *e, quire_stats *out) {
    *out = (quire_stats){.n_pages = 100, .n_pages_free = 100};
    out->n_requests_running = atomic_load(&e->running);
    out->n_pages_held = out->n_requests_running;
    out->n_pages_free -= out->n_pages_held;
    out->generation_tokens = atomic_load(&e->generation_tokens);
    out->histograms[QUIRE_HISTOGRAM_FIRST_TOKEN] =
        (quire_histogram){.buckets = {3, 1, [22] = 2}, .count = 6, .sum = 1500000};
}

/* ---- the pool: a real one, small, with one sequence of the tenant alice, whose tokens
 * are 0, 1, 2, ... ---- */

struct quire_pool_view {
    quire_kv *kv;
    quire_kv_view *view;
    quire_kv_seq *seq;
    int fd;
    bool filled;
};

quire_err quire_pool_view_open(quire_engine *e, quire_pool_view **out) {
    quire_pool_view *v = calloc(1, sizeof(*v));
    quire_kv_options o;
    int32_t tokens[40], n_cached;
    for (int32_t i = 0; i < 40; i++) {
        tokens[i] = i;
    }
    quire_kv_options_init(&o);
    o.n_pages = e->info.n_pages;
    o.n_events = 16;
    v->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (quire_kv_open(&o, &v->kv) != QUIRE_OK ||
        quire_kv_view_open(o.n_pages, 4, o.n_pages, 16, &v->view) != QUIRE_OK ||
        quire_kv_seq_open(v->kv, "", 0, tokens, 40, &v->seq, &n_cached) != QUIRE_OK ||
        quire_kv_seq_commit(v->seq, 40, QUIRE_KV_PAGES) != QUIRE_OK) {
        return QUIRE_INTERNAL;
    }
    *out = v;
    return QUIRE_OK;
}

void quire_pool_view_close(quire_pool_view *v) {
    if (v != NULL) {
        quire_kv_close(v->kv);
        quire_kv_view_close(v->view);
        close(v->fd);
        free(v);
    }
}

int quire_pool_view_fd(const quire_pool_view *v) {
    return v->fd;
}

void quire_pool_view_ask(quire_pool_view *v, int32_t page, uint64_t after) {
    struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
    v->view->page = page;
    v->view->after = after;
    v->filled = false;
    timerfd_settime(v->fd, 0, &soon, NULL);
}

const quire_kv_view *quire_pool_view_get(quire_pool_view *v) {
    uint64_t n;
    v->filled = v->filled || read(v->fd, &n, sizeof(n)) > 0;
    if (!v->filled) {
        return NULL;
    }
    quire_kv_look(v->kv, v->view);
    snprintf(v->view->seqs[0].owner, sizeof v->view->seqs[0].owner, "alice");
    return v->view;
}

quire_err quire_detokenize(const quire_engine *e, const int32_t *ids, size_t n, bool skip_special,
                           char **text, size_t *n_text, quire_error *err) {
    (void)e;
    (void)err;
    *text = calloc(n + 1, 1);
    *n_text = 0;
    for (size_t i = 0; i < n; i++) {
        if (!skip_special || ids[i] != FAKE_SPECIAL) {
            (*text)[(*n_text)++] = (char)('a' + ids[i] % 26);
        }
    }
    return QUIRE_OK;
}

const char *quire_token_piece(const quire_engine *e, int32_t id, size_t *n) {
    (void)e, (void)id;
    *n = 1;
    return "x";
}

const char *quire_engine_chat_template(const quire_engine *e, size_t *n) {
    (void)e;
    *n = 0;
    return "";
}

quire_err quire_token_bytes(const quire_engine *e, int32_t id, char **bytes, size_t *n, quire_error *err) {
    return quire_detokenize(e, &id, 1, false, bytes, n, err);
}

void quire_free(void *p) {
    free(p);
}

/* ---- requests ---- */

static int32_t int_of(const json_value *o, const char *key, int32_t otherwise) {
    json_value *v = json_get(o, key);
    return v == NULL ? otherwise : json_is(v, JSON_KIND_BOOL) ? json_truth(v) : (int32_t)json_int64(v);
}

static void string_of(json_value *o, const char *key, char *out, size_t size) {
    snprintf(out, size, "%s", json_get_str(o, key).p);
}

static bool bool_of(const json_value *o, const char *key) {
    return int_of(o, key, 0) != 0;
}

void quire_engine_history(quire_engine *e, quire_history find, void *user) {
    (void)user;
    atomic_store(&e->has_history, find != NULL);
}

bool fake_has_history(const quire_engine *e) {
    return atomic_load(&((quire_engine *)(uintptr_t)e)->has_history);
}

quire_err quire_request_schema(const quire_engine *e, quire_endpoint endpoint, char **json, size_t *n,
                               quire_error *err) {
    static const char schema[] = "{\"type\":\"object\"}";
    (void)e, (void)endpoint, (void)err;
    *n = sizeof schema - 1;
    *json = strdup(schema);
    return *json != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err quire_request_parse(const quire_engine *e, quire_endpoint endpoint, const char *body, size_t n,
                              quire_request **out, quire_error *err) {
    (void)e;
    *out = NULL;
    json_value *o = json_document((str){body, n});
    if (!json_is(o, JSON_KIND_OBJECT)) {
        json_drop(o);
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body must be a JSON object");
    }
    quire_request *r = calloc(1, sizeof(*r));
    string_of(o, "model", r->model, sizeof(r->model));
    string_of(o, "fail", r->fail, sizeof(r->fail));
    string_of(o, "stop_kind", r->stop_kind, sizeof(r->stop_kind));
    r->max_tokens = int_of(o, "max_tokens", 3);
    r->stop_at = int_of(o, "stop_at", 0);
    r->burst = int_of(o, "burst", 1);
    r->text_bytes = int_of(o, "text_bytes", 0);
    r->rollback_at = int_of(o, "rollback_at", 0);
    r->pause_at = int_of(o, "pause_at", 0);
    r->info = (quire_request_info){.endpoint = endpoint,
                                   .model = r->model[0] != '\0' ? r->model : NULL,
                                   .n_choices = 1,
                                   .n_samples = 1,
                                   .n_best = 1,
                                   .logprobs = -1,
                                   .prompt_logprobs = -1,
                                   .stream = bool_of(o, "stream"),
                                   .explain = bool_of(o, "explain"),
                                   .return_token_ids = bool_of(o, "return_token_ids"),
                                   .echo = bool_of(o, "echo")};
    r->more.has_keep_alive = json_get(o, "keep_alive") != NULL;
    r->more.keep_alive_us = json_int64(json_get(o, "keep_alive")) * 1000; /* milliseconds here */
    r->more.prompt_only = endpoint == QUIRE_TOKENIZE;
    if (json_is(json_get(o, "prompt"), JSON_KIND_ARRAY)) {
        r->info.n_choices = (int32_t)json_length(json_get(o, "prompt"));
    }
    const json_value *v = json_get(o, "stream_options");
    if (v != NULL) {
        r->info.include_usage = bool_of(v, "include_usage");
        r->info.continuous_usage = bool_of(v, "continuous_usage_stats");
    }
    json_drop(o);
    if (strcmp(r->fail, "parse") == 0) {
        free(r);
        return err_set_param(err, QUIRE_BAD_REQUEST, "top_p",
                             "top_p is 1.5; it must be over 0 and at most 1");
    }
    *out = r;
    return QUIRE_OK;
}

void quire_request_free(quire_request *r) {
    free(r);
}

const quire_request_info *quire_request_describe(const quire_request *r) {
    return &r->info;
}

void quire_request_waited(quire_request *r, int64_t us) {
    (void)r, (void)us;
}

quire_err quire_request_tenant(quire_request *r, const char *tenant) {
    (void)r;
    (void)tenant;
    return QUIRE_OK;
}

/* ---- streams ---- */

quire_err quire_submit(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err) {
    *out = NULL;
    if (strcmp(r->fail, "submit") == 0) {
        free(r);
        return err_set(err, QUIRE_BUSY, -1, "too many requests");
    }
    quire_stream *s = calloc(1, sizeof(*s));
    *s = (quire_stream){.r = r, .queue = q, .user = user, .next = q->streams};
    q->streams = s;
    atomic_fetch_add(&q->engine->running, 1);
    *out = s;
    return QUIRE_OK;
}

static bool is_paused(const quire_stream *s) {
    return s->r->pause_at > 0 && s->produced == s->r->pause_at && !atomic_load(&are_resumed);
}

/* The first of s and those after it that has something to say: a stream may be kept after
 * its DONE. */
static quire_stream *next_unfinished(quire_stream *s) {
    while (s != NULL && (s->phase == 4 || is_paused(s))) {
        s = s->next;
    }
    return s;
}

void quire_stream_release(quire_stream *s) {
    if (s->phase < 4) {
        atomic_fetch_add(&s->queue->engine->cancelled, 1);
        atomic_fetch_sub(&s->queue->engine->running, 1);
        s->queue->has_released = true;
    }
    quire_queue *q = s->queue;
    for (quire_stream **p = &q->streams; *p != NULL; p = &(*p)->next) {
        if (*p == s) {
            *p = s->next;
            break;
        }
    }
    if (q->at == s) {
        q->at = next_unfinished(s->next);
    }
    free(s->r);
    free(s);
}

const quire_responses_info *quire_request_responses(const quire_request *r) {
    (void)r;
    return NULL;
}

const quire_request_info *quire_stream_describe(const quire_stream *s) {
    return &s->r->info;
}

const quire_request_more *quire_request_describe_more(const quire_request *r) {
    return &r->more;
}

const quire_request_more *quire_stream_describe_more(const quire_stream *s) {
    return &s->r->more;
}

size_t quire_stream_namespace(const quire_stream *s, const char *name, size_t n) {
    (void)s, (void)name, (void)n;
    return 0;
}

/* ---- the queue ---- */

void quire_sign(const quire_engine *e, const uint8_t digest[32], char out[QUIRE_SIGNATURE_BYTES + 1]) {
    (void)e;
    for (int i = 0; i < QUIRE_SIGNATURE_BYTES; i++) {
        out[i] = (char)('a' + digest[i / 2] % 26);
    }
    out[QUIRE_SIGNATURE_BYTES] = '\0';
}

quire_err quire_queue_open(quire_engine *e, quire_queue **out) {
    quire_queue *q = calloc(1, sizeof(*q));
    q->engine = e;
    q->text = calloc(1, 1 << 20);
    q->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct timespec t = {.tv_sec = (time_t)(e->tick_us / 1000000),
                         .tv_nsec = (long)(e->tick_us % 1000000) * 1000};
    timerfd_settime(q->fd, 0, &(struct itimerspec){.it_interval = t, .it_value = t}, NULL);
    *out = q;
    return QUIRE_OK;
}

static void forget_parses(quire_queue *q);

static atomic_int n_waits;

int32_t fake_waits(void) {
    return atomic_load(&n_waits);
}

bool quire_queue_idle(const quire_queue *q) {
    return q->streams == NULL && q->parses == NULL && !q->has_released;
}

void quire_queue_close(quire_queue *q) {
    atomic_fetch_add(&n_waits, q->has_released);
    forget_parses(q);
    while (q->streams != NULL) {
        quire_stream_release(q->streams);
    }
    close(q->fd);
    free(q->text);
    free(q);
}

int quire_queue_fd(const quire_queue *q) {
    return q->fd;
}

static bool is_last(const quire_request *r, int32_t produced) {
    return produced == r->max_tokens || (r->stop_at > 0 && produced == r->stop_at);
}

/* Fills the event of the stream's next word; true when its turn in this tick is over with
 * it. */
static bool speak(quire_queue *q, quire_stream *s, quire_event *ev) {
    const quire_request *r = s->r;
    bool last_choice = s->choice == r->info.n_choices - 1;
    *ev = (quire_event){.stream = s,
                        .user = s->user,
                        .choice = s->choice,
                        .stop_token = -1,
                        .prompt_tokens = 5,
                        .cached_tokens = 3,
                        .text = q->text};
    if (strcmp(r->fail, "start") == 0 || (strcmp(r->fail, "middle") == 0 && s->produced == 1)) {
        err_set_param(&s->error, QUIRE_BAD_REQUEST, "input_tokens", "the prompt is too long");
        ev->kind = QUIRE_EVENT_DONE;
        ev->finish = QUIRE_FINISH_ERROR;
        ev->error = &s->error;
        s->phase = 4;
    } else if (s->phase == 0) {
        ev->kind = QUIRE_EVENT_START;
        q->ids[0] = 7;
        q->ids[1] = 8;
        ev->tokens = q->ids;
        ev->n_tokens = 2;
        ev->n_text = r->info.echo ? (size_t)sprintf(q->text, "ECHO") : 0;
        s->phase = last_choice ? 1 : 0;
    } else if (s->phase == 1 && r->rollback_at > 0 && s->produced == r->rollback_at && !s->rolled_back) {
        ev->kind = QUIRE_EVENT_ROLLBACK;
        s->rolled_back = true;
    } else if (s->phase == 1) {
        ev->kind = QUIRE_EVENT_DELTA;
        q->ids[0] = s->produced;
        ev->tokens = q->ids;
        ev->n_tokens = 1;
        ev->completion_tokens = s->produced + 1;
        ev->n_text = (size_t)sprintf(q->text, " t%d", s->produced);
        if (r->text_bytes > 0) {
            memset(q->text, s->rolled_back ? 'y' : 'x', (size_t)r->text_bytes);
            ev->n_text = (size_t)r->text_bytes;
        }
        if (last_choice) {
            s->produced++;
            s->phase = is_last(r, s->produced) ? 2 : 1;
        }
    } else if (s->phase == 2) {
        bool stopped = r->stop_at > 0 && s->produced == r->stop_at;
        ev->kind = QUIRE_EVENT_END;
        ev->finish = stopped ? QUIRE_FINISH_STOP : QUIRE_FINISH_LENGTH;
        ev->completion_tokens = s->produced;
        ev->stop_string = stopped && strcmp(r->stop_kind, "string") == 0 ? "st\"op" : NULL;
        ev->stop_token = stopped && strcmp(r->stop_kind, "token") == 0 ? 42 : -1;
        s->phase = last_choice ? 3 : 2;
    } else {
        ev->kind = QUIRE_EVENT_DONE;
        ev->finish = QUIRE_FINISH_STOP;
        ev->prompt_tokens = 5 * r->info.n_choices;
        ev->cached_tokens = 3 * r->info.n_choices;
        ev->completion_tokens = s->produced * r->info.n_choices;
        s->phase = 4;
    }
    if (ev->kind == QUIRE_EVENT_DELTA) {
        atomic_fetch_add(&q->engine->generation_tokens, 1);
    }
    s->choice = last_choice ? 0 : s->choice + 1;
    return s->phase == 4 || (last_choice && s->phase < 2 && s->produced % r->burst == 0);
}

void quire_queue_wait(quire_queue *q, int64_t timeout_us) {
    struct pollfd p = {.fd = q->fd, .events = POLLIN};
    poll(&p, 1, (int)(timeout_us / 1000));
}

/* ---- large bodies: read at the tick ---- */

struct quire_parse {
    quire_request *r;
    quire_error err;
    void *user;
    bool cancelled, is_check;
    char *begin; /* of a look, and its bytes */
    size_t n;
    quire_parse *next;
};

static quire_parse *new_parse(quire_queue *q, void *user) {
    quire_parse *p = calloc(1, sizeof(*p));
    p->user = user;
    p->next = q->parses;
    q->parses = p;
    return p;
}

quire_err quire_parse_start(quire_queue *q, quire_endpoint endpoint, char *body, size_t n, const char *tenant,
                            void *user, quire_parse **out) {
    (void)tenant;
    quire_parse *p = new_parse(q, user);
    (void)quire_request_parse(q->engine, endpoint, body, n, &p->r, &p->err);
    free(body);
    atomic_fetch_add(&q->engine->parses, 1);
    *out = p;
    return QUIRE_OK;
}

quire_err quire_look_start(quire_queue *q, quire_endpoint endpoint, char *begin, size_t n, const char *tenant,
                           void *user, quire_parse **out) {
    static const char fails[] = "\"fail\":\"look\"";
    (void)endpoint, (void)tenant;
    quire_parse *p = *out = new_parse(q, user);
    p->begin = begin;
    p->n = n;
    if (memmem(begin, n, fails, sizeof fails - 1) != NULL) {
        err_set_param(&p->err, QUIRE_BAD_REQUEST, "guided_json", "guided_json is too large");
    }
    atomic_fetch_add(&q->engine->looks, 1);
    return QUIRE_OK;
}

quire_err quire_check_start(quire_queue *q, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out) {
    quire_err e = quire_parse_start(q, QUIRE_COMPLETIONS, body, n, tenant, user, out);
    (*out)->is_check = true;
    return e;
}

quire_err quire_count_start(quire_queue *q, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out) {
    return quire_check_start(q, body, n, tenant, user, out);
}

void quire_parse_cancel(quire_parse *p) {
    p->cancelled = true;
}

/* The next one that is wanted. */
static bool parse_next(quire_queue *q, quire_event *out) {
    while (q->parses != NULL) {
        quire_parse *p = q->parses;
        bool wanted = !p->cancelled;
        q->parses = p->next;
        q->parse_err = p->err;
        *out = (quire_event){.kind = QUIRE_EVENT_PARSED,
                             .user = p->user,
                             .request = wanted ? p->r : NULL,
                             .error = p->r == NULL ? &q->parse_err : NULL};
        if (p->begin != NULL) {
            quire_error *err = p->err.code != QUIRE_OK ? &q->parse_err : NULL;
            *out = (quire_event){
                .kind = QUIRE_EVENT_LOOKED, .user = p->user, .text = p->begin, .n_text = p->n, .error = err};
            free(wanted ? NULL : p->begin);
        } else if (p->is_check && p->r != NULL) {
            *out = (quire_event){
                .kind = QUIRE_EVENT_CHECKED, .user = p->user, .text = "{\"accepted\":true}", .n_text = 17};
        } else if (p->is_check) {
            out->kind = QUIRE_EVENT_CHECKED;
        }
        if (!wanted || p->is_check) {
            free(p->r);
        }
        free(p);
        if (wanted) {
            return true;
        }
    }
    return false;
}

static void forget_parses(quire_queue *q) {
    quire_event none;
    for (quire_parse *p = q->parses; p != NULL; p = p->next) {
        p->cancelled = true;
    }
    (void)parse_next(q, &none);
}

bool quire_queue_next(quire_queue *q, quire_event *out) {
    if (q->at == NULL) {
        uint64_t ticks;
        if (q->ticked && parse_next(q, out)) {
            return true;
        }
        q->ticked = read(q->fd, &ticks, sizeof(ticks)) == sizeof(ticks);
        q->has_released = q->has_released && !q->ticked;
        if (q->ticked && parse_next(q, out)) {
            return true;
        }
        q->at = q->ticked && !atomic_load(&q->engine->held) ? next_unfinished(q->streams) : NULL;
        if (q->at == NULL) {
            return false;
        }
    }
    quire_stream *s = q->at;
    if (speak(q, s, out)) {
        q->at = next_unfinished(s->next);
        if (s->phase == 4) {
            atomic_fetch_sub(&q->engine->running, 1);
        }
    }
    return true;
}
