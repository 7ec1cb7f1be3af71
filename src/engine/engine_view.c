#include "engine/engine_view.h"

#include <string.h>

#include "base/mem.h"
#include "engine/state.h"

#define MAX_PAGES  65536 /* most pages shown; a tree of more entries is not shown */
#define MAX_SEQS   4096
#define MAX_EVENTS 256

typedef enum view_state { VIEW_EMPTY, VIEW_ASKED, VIEW_FILLED } view_state;

struct engine_view {
    engine *e;
    quire_kv_view *view;
    wake reader;
    atomic_int state;   /* view_state */
    atomic_int holders; /* references: its owner, and the engine thread while it is requested */
    engine_view *next;  /* in the engine's stack of requests */
};

static int32_t at_most(int32_t n, int32_t most) {
    return n < most ? n : most;
}

quire_err engine_view_open(engine *e, engine_view **out) {
    engine_view *w = mem_new(1, sizeof *w);
    TRY(mem_check(w));
    int32_t n_pages = at_most(e->options.n_pages, MAX_PAGES);
    quire_err r =
        quire_kv_view_open(n_pages, at_most(e->options.max_seqs, MAX_SEQS), n_pages, MAX_EVENTS, &w->view);
    if (r != QUIRE_OK || (r = wake_init(&w->reader)) != QUIRE_OK) {
        quire_kv_view_close(w->view);
        mem_free(w);
        return r;
    }
    w->e = e;
    atomic_init(&w->state, VIEW_EMPTY);
    atomic_init(&w->holders, 1);
    *out = w;
    return QUIRE_OK;
}

static void engine_view_drop(engine_view *w) {
    if (atomic_fetch_sub(&w->holders, 1) == 1) {
        quire_kv_view_close(w->view);
        wake_deinit(&w->reader);
        mem_free(w);
    }
}

void engine_view_close(engine_view *w) {
    if (w != NULL) {
        engine_view_drop(w);
    }
}

const wake *engine_view_reader(const engine_view *w) {
    return &w->reader;
}

void engine_view_ask(engine_view *w, int32_t page, uint64_t after) {
    if (atomic_load(&w->state) == VIEW_ASKED) {
        return;
    }
    w->view->page = page;
    w->view->after = after;
    atomic_store(&w->state, VIEW_ASKED);
    atomic_fetch_add(&w->holders, 1);
    engine_view *top = atomic_load(&w->e->views);
    do {
        w->next = top;
    } while (!atomic_compare_exchange_weak(&w->e->views, &top, w));
    wake_ring(w->e->in_wake);
}

const quire_kv_view *engine_view_get(engine_view *w) {
    wake_wait(&w->reader, 0);
    return atomic_load(&w->state) == VIEW_FILLED ? w->view : NULL;
}

static void engine_view_fill(const engine *e, quire_kv_view *v) {
    kv_view_begin(v, e->kv.pool, e->layout.page_tokens, e->kv.n_token_groups);
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        const sequence *s = running_at(e, i);
        quire_kv_view_state state = s->task.state == TASK_PREFILL ? QUIRE_KV_PREFILL : QUIRE_KV_DECODE;
        /* the end of the tenant's name, where a salt follows */
        const uint8_t *end = memchr(s->namespace, 0, s->n_namespace);
        str owner = {(const char *)s->namespace, end != NULL ? (size_t)(end - s->namespace) : s->n_namespace};
        kv_view_seq(v, (int64_t)s->task.arrival + 1, owner, state, s->task.tokens, s->task.kv.tables,
                    s->task.kv.n_tables);
    }
    for (const engine_park *p = e->parks.oldest; p != NULL; p = p->younger) {
        kv_view_seq(v, (int64_t)p->number + 1, (str){(const char *)p->owner, p->n_owner}, QUIRE_KV_PARKED,
                    NULL, p->kv.tables, p->kv.n_tables);
    }
    kv_view_end(v, e->kv.index, e->kv.events);
}

void engine_view_response(engine *e) {
    engine_view *w = atomic_exchange(&e->views, NULL);
    while (w != NULL) {
        engine_view *next = w->next;
        if (atomic_load(&w->holders) > 1) { /* its owner has not closed it */
            engine_view_fill(e, w->view);
            atomic_store(&w->state, VIEW_FILLED);
            wake_ring(&w->reader);
        }
        engine_view_drop(w);
        w = next;
    }
}
