#include "server/watch.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/models.h"
#include "server/pool_json.h"

#define TICK_US   200000   /* shortest interval between states */
#define SPARE     19       /* of 20 parts of the loop's time, those not used to write states */
#define BEAT_US   15000000 /* interval of keep-alive comments while nothing changes */
#define PAGE_NONE (-1)

typedef enum watch_kind { WATCH_STREAM, WATCH_STATE, WATCH_PAGE } watch_kind;

static const char no_store[] = "Cache-Control: no-store\r\n";

typedef struct watcher {
    conn *conn;
    struct watcher *next; /* next watcher of the loop */
    watch_kind kind;
    int32_t page;     /* page that a WATCH_PAGE watcher reads */
    bool started;     /* a state was sent to it */
    bool behind;      /* the last state was not sent to it */
    uint64_t seen;    /* number of the last event sent to it */
    int64_t spoke_us; /* time when something was last sent to it */
} watcher;

typedef struct watch {
    quire_pool_view *view; /* NULL until the first watcher */
    struct event *on_view, *on_tick;
    watcher *first;
    int32_t n;
    bool asked;
    int64_t next_us;    /* time before which no state is requested */
    quire_stats before; /* the engine's counters when a state was last requested */
    strbuf text[2];     /* the state as all see it: [0] without texts, [1] with texts */
    strbuf own;         /* the state as one tenant sees it, written anew for each watcher */
} watch;

/* ---- requesting a state ---- */

static void watch_ask(loop *l) {
    watch *h = l->watch;
    uint64_t after = UINT64_MAX;
    int32_t page = PAGE_NONE;
    for (const watcher *w = h->first; w != NULL; w = w->next) {
        after = w->started && w->seen < after ? w->seen : after;
        page = w->kind == WATCH_PAGE ? w->page : page;
    }
    quire_engine_stats(l->server->engine, &h->before);
    h->asked = true;
    quire_pool_view_ask(h->view, page, after);
}

/* Whether the engine has done anything since the last request of a state. */
static bool watch_has_changed(const loop *l) {
    const quire_stats *b = &l->watch->before;
    quire_stats s;
    quire_engine_stats(l->server->engine, &s);
    return s.steps != b->steps || s.n_pages_free != b->n_pages_free || s.n_pages_held != b->n_pages_held ||
           s.n_pages_cached != b->n_pages_cached || s.n_requests_running != b->n_requests_running ||
           s.n_requests_waiting != b->n_requests_waiting;
}

/* Frees a watcher whose connection closes or has its response. */
static void watcher_remove(watcher *w) {
    watch *h = w->conn->loop->watch;
    for (watcher **p = &h->first; *p != NULL; p = &(*p)->next) {
        if (*p == w) {
            *p = w->next;
            break;
        }
    }
    h->n--;
    w->conn->pending = NULL;
    mem_free(w);
}

/* ---- sending ---- */

static void watch_write_text(const void *context, const int32_t *tokens, int32_t n, json_out *o) {
    quire_error err;
    char *text = NULL;
    size_t n_text = 0;
    if (quire_detokenize(context, tokens, (size_t)n, false, &text, &n_text, &err) == QUIRE_OK) {
        json_text(o, text, n_text);
    } else {
        json_raw(o, "\"\""); /* without a vocabulary only ids are shown */
    }
    quire_free(text);
}

/* What c may see: operator: all; tenant: its own; without keys: all except texts. */
static pool_viewer watcher_viewer(const conn *c, const pool_text *text) {
    const server *s = c->loop->server;
    return (pool_viewer){.key = s->pool_key,
                         .text = c->is_operator ? text : NULL,
                         .owner = c->is_operator || !c->has_tenant ? NULL : c->tenant};
}

/* Writes the counts of LoRA adapters; nothing if the engine was opened without them. */
static void watch_write_adapters(const loop *l, json_out *o) {
    quire_adapter_stats n = {.size = sizeof n};
    quire_adapter_count(l->server->engine, &n);
    const json_named_int counts[] = {
        {"loaded", n.n_loaded}, {"max", n.max_loaded}, {"bytes", n.n_bytes}, {NULL, 0}};
    if (n.max_running > 0) {
        json_named_ints(json_name(o, "adapters"), counts);
    }
}

static void watch_write_snapshots(const loop *l, json_out *o) {
    quire_snapshot_stats n = {.size = sizeof n};
    quire_engine_snapshots(l->server->engine, &n);
    const json_named_int counts[] = {
        {"count", n.n_snapshots}, {"max", n.max_snapshots},
        {"bytes", n.bytes},       {"max_bytes", n.max_bytes},
        {"taken", n.taken},       {"dropped", n.dropped},
        {"restored", n.restored}, {NULL, 0},
    };
    if (n.max_snapshots > 0) {
        json_named_ints(json_name(o, "snapshots"), counts);
    }
}

/* Writes the counts of parked sequences; nothing if none was ever parked. */
static void watch_write_parked(const loop *l, json_out *o) {
    quire_parked_stats n = {.size = sizeof n};
    quire_engine_parked(l->server->engine, &n);
    const json_named_int counts[] = {
        {"count", n.n_parks}, {"pages", n.n_pages},   {"bytes", n.bytes}, {"max_bytes", n.max_bytes},
        {"parked", n.parked}, {"bounded", n.bounded}, {NULL, 0},
    };
    if (n.parked + n.bounded > 0) {
        json_named_ints(json_name(o, "parked"), counts);
    }
}

/* Writes a loaded model's share of the memory of pages, in bytes. */
static void watch_write_part(const char *name, const quire_engine *e, json_out *o) {
    quire_page_memory m = {.size = sizeof m};
    quire_stats st;
    quire_engine_page_memory(e, &m);
    quire_engine_stats(e, &st);
    const int64_t each = quire_engine_info(e)->page_bytes;
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "model_name"), name);
    json_int(json_name(o, "free"), st.n_pages_free * each);
    json_int(json_name(o, "held"), st.n_pages_held * each);
    json_int(json_name(o, "cached"), st.n_pages_cached * each);
    json_int(json_name(o, "absent"), m.n_pages_absent * each);
    json_int(json_name(o, "draft"), m.draft_bytes);
    json_int(json_name(o, "sure"), m.sure_bytes);
    json_end(o, '}');
}

static void watch_write_memory(const loop *l, json_out *o) {
    models *all = l->server->models;
    quire_page_memory m = {.size = sizeof m};
    quire_engine_page_memory(l->server->engine, &m);
    json_begin(json_name(o, "memory"), '{');
    json_int(json_name(o, "bytes"), m.used_bytes);
    json_int(json_name(o, "max_bytes"), m.max_bytes);
    json_int(json_name(o, "draft_bytes"), m.draft_bytes);
    json_int(json_name(o, "absent"), m.n_pages_absent);
    if (models_count(all) > 1) {
        json_int(json_name(o, "taken_bytes"), m.model_bytes);
        json_begin(json_name(o, "models"), '[');
        watch_write_part(l->server->model_name, l->server->engine, o);
        for (int32_t i = 1; i < models_count(all); i++) {
            served_model *other = models_at(all, i);
            if (models_visit(all, other)) {
                watch_write_part(other->name, other->engine, o);
                models_end_visit(all, other);
            }
        }
        json_end(o, ']');
    }
    json_end(o, '}');
}

/* The state as `who` may see it, written once for all watchers with the same view. */
static str watch_state_text(loop *l, const quire_kv_view *v, const pool_viewer *who) {
    watch *h = l->watch;
    strbuf *b = who->owner != NULL ? &h->own : &h->text[who->text != NULL];
    if (who->owner != NULL) {
        strbuf_clear(b);
    }
    if (b->n == 0) {
        json_out o = {.to = b};
        json_int(json_name(&o, "waiting"), h->before.n_requests_waiting);
        watch_write_memory(l, &o);
        watch_write_parked(l, &o);
        watch_write_snapshots(l, &o);
        watch_write_adapters(l, &o);
        pool_json_state(v, who, &o);
        if (o.err != QUIRE_OK) {
            strbuf_clear(b);
        }
    }
    return (str){b->p, b->n};
}

/* Sends the state to w. A watcher of a single state is then freed. */
static void watcher_send_state(loop *l, const quire_kv_view *v, watcher *w, int64_t now_us) {
    pool_text text = {watch_write_text, l->server->engine};
    pool_viewer who = watcher_viewer(w->conn, &text);
    str state = watch_state_text(l, v, &who);
    json_out o = conn_begin_json(w->conn);
    json_raw(&o, w->kind == WATCH_STREAM ? "data: {" : "{");
    if (o.err == QUIRE_OK && state.n > 0) {
        o.err = strbuf_add(o.to, state.p, state.n);
        json_raw(&o, ",");
    }
    pool_json_events(v, &who, w->started ? w->seen : v->last_event, &o);
    json_raw(&o, w->kind == WATCH_STREAM ? "}\n\n" : "}");
    conn *c = w->conn;
    if (o.err != QUIRE_OK || state.n == 0) {
        w->behind = true; /* out of memory: the next state is sent instead */
        return;
    }
    if (w->kind != WATCH_STREAM) {
        watcher_remove(w);
        conn_reply_json(c, &o, no_store);
        return;
    }
    w->started = true;
    w->behind = false;
    w->seen = v->last_event;
    w->spoke_us = now_us;
    conn_stream_add(c, (str){l->scratch.p, l->scratch.n});
}

static void watcher_send_page(const loop *l, const quire_kv_view *v, watcher *w) {
    conn *c = w->conn;
    pool_text text = {watch_write_text, l->server->engine};
    json_out o = conn_begin_json(c);
    watcher_remove(w);
    pool_json_page(v, &text, &o);
    conn_reply_json(c, &o, no_store);
}

static LOOP_CALLBACK(watch_on_view) {
    loop *l = arg;
    watch *h = l->watch;
    const quire_kv_view *v = quire_pool_view_get(h->view);
    if (v == NULL) {
        return;
    }
    int64_t now_us = clock_us();
    h->asked = false;
    strbuf_clear(&h->text[0]);
    strbuf_clear(&h->text[1]);
    bool again = false;
    for (watcher *w = h->first, *next; w != NULL; w = next) {
        next = w->next;
        if (w->kind == WATCH_PAGE && w->page == v->page) {
            watcher_send_page(l, v, w);
        } else if (w->kind == WATCH_PAGE) {
            again = true;
        } else if (conn_unsent(w->conn) > 0 && w->started) {
            w->behind = true;
        } else {
            watcher_send_state(l, v, w, now_us);
        }
    }
    int64_t spent_us = clock_us() - now_us;
    int64_t pause_us = spent_us * SPARE > TICK_US ? spent_us * SPARE : TICK_US;
    h->next_us = now_us + pause_us;
    if (again) {
        watch_ask(l);
    } else if (h->first != NULL) {
        loop_set_timer(h->on_tick, pause_us);
    }
}

/* Sends a comment to watchers that were sent nothing for BEAT_US, so that proxies keep
 * the connection open. */
static void watch_beat(watch *h, int64_t now_us) {
    for (watcher *w = h->first, *next; w != NULL; w = next) {
        next = w->next;
        if (w->kind == WATCH_STREAM && w->started && now_us - w->spoke_us > BEAT_US &&
            conn_unsent(w->conn) == 0) {
            w->spoke_us = now_us;
            conn_stream_add(w->conn, str_of(":\n\n"));
        }
    }
}

static LOOP_CALLBACK(watch_on_tick) {
    loop *l = arg;
    watch *h = l->watch;
    bool behind = false;
    if (h->first == NULL || h->asked) {
        return;
    }
    for (const watcher *w = h->first; w != NULL; w = w->next) {
        behind = behind || !w->started || (w->behind && conn_unsent(w->conn) == 0);
    }
    if (behind || watch_has_changed(l)) {
        watch_ask(l);
        return;
    }
    watch_beat(h, clock_us());
    if (h->first != NULL) {
        loop_set_timer(h->on_tick, TICK_US);
    }
}

/* ---- opening and closing ---- */

quire_err watch_open(loop *l) {
    l->watch = mem_new(1, sizeof *l->watch);
    TRY(mem_check(l->watch));
    l->watch->on_tick = evtimer_new(l->base, watch_on_tick, l);
    return l->watch->on_tick != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Opens the view for the first watcher. */
static quire_err watch_open_view(loop *l) {
    watch *h = l->watch;
    if (h->view != NULL) {
        return QUIRE_OK;
    }
    TRY(quire_pool_view_open(l->server->engine, &h->view));
    h->on_view = event_new(l->base, quire_pool_view_fd(h->view), EV_READ | EV_PERSIST, watch_on_view, l);
    if (h->on_view == NULL || event_add(h->on_view, NULL) != 0) {
        loop_free_event(h->on_view);
        quire_pool_view_close(h->view);
        h->view = NULL;
        h->on_view = NULL;
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

void watch_shut(loop *l) {
    watch *h = l->watch;
    if (h == NULL) {
        return;
    }
    loop_free_event(h->on_view);
    loop_free_event(h->on_tick);
    quire_pool_view_close(h->view);
    strbuf_deinit(&h->text[0]);
    strbuf_deinit(&h->text[1]);
    strbuf_deinit(&h->own);
    mem_free(h);
    l->watch = NULL;
}

/* ---- watchers ---- */

static void watcher_close(conn *c) {
    watcher_remove(c->pending_of);
}

static void watcher_end(conn *c, const api_error *why) {
    (void)why;
    watcher_remove(c->pending_of);
    conn_stream_end(c);
}

static const pending_kind watcher_stream = {
    .close = watcher_close, .end = watcher_end, .ends_at_drain = true, .is_endless = true};
static const pending_kind watcher_reply = {.close = watcher_close, .ends_at_drain = true};

/* Adds a watcher and schedules a state for it. False: it failed, and c was answered. A
 * stream waits for the next interval, so opening and closing streams costs the engine no
 * more than one stream does. */
static bool watch_add(conn *c, watch_kind kind, int32_t page) {
    assert(c->pending == NULL && c->state == CONN_RESPONSE);
    loop *l = c->loop;
    watch *h = l->watch;
    if (h->n == WATCH_MAX) {
        conn_reply_error(c, 503, NULL, "too many clients are watching the pool; close one of them",
                         "Retry-After: 5\r\n");
        return false;
    }
    watcher *w = watch_open_view(l) == QUIRE_OK ? mem_new(1, sizeof *w) : NULL;
    if (w == NULL) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return false;
    }
    *w = (watcher){.conn = c, .next = h->first, .kind = kind, .page = page};
    h->first = w;
    h->n++;
    c->pending = kind == WATCH_STREAM ? &watcher_stream : &watcher_reply;
    c->pending_of = w;
    if (!h->asked) {
        int64_t wait_us = h->next_us - clock_us();
        loop_set_timer(h->on_tick, wait_us > 0 ? wait_us : 0);
    }
    return true;
}

void watch_stream(conn *c) {
    if (watch_add(c, WATCH_STREAM, PAGE_NONE)) {
        conn_stream_begin(c, "text/event-stream; charset=utf-8");
    }
}

void watch_state(conn *c) {
    (void)watch_add(c, WATCH_STATE, PAGE_NONE);
}

void watch_page(conn *c, int32_t page) {
    assert(page >= 0);
    (void)watch_add(c, WATCH_PAGE, page);
}
