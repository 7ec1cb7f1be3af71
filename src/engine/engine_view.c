#include "engine/engine_view.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/histogram.h"
#include "engine/cache.h"
#include "engine/state.h"
#include "sched/prefix_wait.h"

#define MAX_PAGES  65536 /* most pages in a view; a tree with more entries is left out */
#define MAX_SEQS   4096
#define MAX_EVENTS 256

typedef enum view_state { VIEW_EMPTY, VIEW_ASKED, VIEW_FILLED } view_state;

struct engine_view {
    engine *e;
    quire_kv_view *view;
    wake reader;
    atomic_int state; /* view_state */
    /* number of references: the owner's and, while it is requested, the engine
     * thread's */
    atomic_int holders;
    engine_view *next; /* link in the engine's stack of requested views */
};

quire_err engine_view_open(engine *e, engine_view **out) {
    engine_view *w = mem_new(1, sizeof *w);
    TRY(mem_check(w));
    int32_t n_pages = least_i32(e->options.n_pages, MAX_PAGES);
    quire_err r =
        quire_kv_view_open(n_pages, least_i32(e->options.max_seqs, MAX_SEQS), n_pages, MAX_EVENTS, &w->view);
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
        /* the tenant's name ends here if a salt follows */
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
        if (atomic_load(&w->holders) > 1) { /* the owner has not closed the view */
            engine_view_fill(e, w->view);
            atomic_store(&w->state, VIEW_FILLED);
            wake_ring(&w->reader);
        }
        engine_view_drop(w);
        w = next;
    }
}

/* The engine's counters. The engine thread updates them without locks, and publishes them
 * once a step for other threads. */

static void stats_add(engine *e, quire_histogram_kind kind, int64_t value) {
    histogram_add(&e->stats.histograms[kind], kind, value);
}

/* Counts rows of the prompt, also those that are computed again after a preemption;
 * stats_token limits the sum to the prompt's length. */
void stats_computed(engine *e, sequence *s, int32_t n) {
    (void)e;
    s->n_prefilled += s->task.n_known == s->task.n_prompt ? n : 0;
}

static void count_prompt(engine *e, const sequence *s) {
    int32_t computed = s->n_prefilled < s->task.n_prompt ? s->n_prefilled : s->task.n_prompt;
    e->stats.prompt_tokens += s->task.n_prompt;
    e->stats.prompt_tokens_cached += s->task.n_prompt - computed;
}

void stats_pooled(engine *e, const sequence *s) {
    count_prompt(e, s);
}

void stats_token(engine *e, sequence *s, int64_t now_us) {
    assert(s != NULL);
    quire_stats *st = &e->stats;
    if (s->last_token_us == 0) {
        count_prompt(e, s);
        atomic_store_explicit(&s->first_token_us, now_us, memory_order_relaxed);
    } else {
        stats_add(e, QUIRE_HISTOGRAM_TOKEN_GAP, now_us - s->last_token_us);
    }
    s->last_token_us = now_us;
    st->generation_tokens++;
}

void stats_step(engine *e, int64_t us) {
    assert(e != NULL);
    e->stats.steps++;
    e->stats.step_rows += e->step.rows.n_rows;
    e->stats.step_us += us;
    stats_add(e, QUIRE_HISTOGRAM_STEP_TOKENS, e->step.rows.n_rows);
}

void stats_pages(engine *e) {
    assert(e != NULL);
    const int64_t held = kv_pool_counts(e->kv.pool).n_held;
    engine_profile *p = &e->profile;
    p->n_pages_held_most = held > p->n_pages_held_most ? held : p->n_pages_held_most;
}

/* Number of sequences that wait for something other than the scheduler's limits; 0 if
 * every place is in use, since then all wait for a place. */
static int64_t count_deferred(const engine *e) {
    int64_t n = 0;
    for (int32_t i = 0; i < e->sched.n_waiting && e->sched.n_running < e->sched.limits.max_seqs; i++) {
        const sched_task *t = e->sched.waiting[i];
        n += t->kv.tier_wait == KV_TIER_WAITS || prefix_wait_blocks(&e->sched, t);
    }
    return n;
}

static quire_snapshot_stats count_snapshots(const engine *e) {
    kv_index_counts n = e->kv.index != NULL ? kv_index_count(e->kv.index) : (kv_index_counts){0};
    int64_t bytes = e->kv.n_state_pages * e->layout.page_bytes;
    return (quire_snapshot_stats){.size = sizeof(quire_snapshot_stats),
                                  .n_snapshots = n.n_snapshots,
                                  .max_snapshots = n.max_snapshots,
                                  .bytes = n.n_snapshots * bytes,
                                  .max_bytes = n.max_snapshots * bytes,
                                  .taken = n.snapshots_taken,
                                  .dropped = n.snapshots_dropped,
                                  .restored = n.snapshots_restored};
}

static quire_page_memory count_memory(const engine *e) {
    kv_counts c = kv_pool_counts(e->kv.pool);
    int64_t own = (c.n_pages - c.n_absent) * e->layout.page_bytes;
    kv_budget_counts all = e->kv.budget != NULL ? kv_budget_count(e->kv.budget)
                                                : (kv_budget_counts){.bytes = own, .used_bytes = own};
    return (quire_page_memory){.size = sizeof(quire_page_memory),
                               .used_bytes = all.used_bytes - all.fixed_bytes,
                               .max_bytes = all.bytes - all.fixed_bytes,
                               .draft_bytes = cache_draft_bytes(e),
                               .n_pages_absent = c.n_absent,
                               .own_bytes = own,
                               .sure_bytes = engine_sure_pages(e) * e->layout.page_bytes,
                               .model_bytes = all.fixed_bytes};
}

static quire_parked_stats count_parked(const engine *e) {
    const engine_parks *p = &e->parks;
    return (quire_parked_stats){.size = sizeof(quire_parked_stats),
                                .n_parks = p->n,
                                .n_pages = p->n_pages,
                                .bytes = p->n_pages * e->layout.page_bytes,
                                .max_bytes = p->max_pages * e->layout.page_bytes,
                                .parked = p->n_parked,
                                .bounded = p->n_bounded};
}

void stats_publish(engine *e) {
    assert(e != NULL);
    kv_counts c = kv_pool_counts(e->kv.pool);
    const sched_counts *q = &e->sched.counts;
    e->stats.preemptions = q->preemptions;
    e->stats.prefix_queries = q->prompt_tokens_queried;
    e->stats.prefix_hits = q->prompt_tokens_reused;
    e->stats.preempted_queries = q->known_tokens_queried;
    e->stats.preempted_hits = q->known_tokens_reused;
    e->stats.n_requests_running = e->sched.n_running;
    e->stats.n_requests_waiting = e->sched.n_waiting;
    e->stats.n_requests_deferred = count_deferred(e);
    e->stats.n_pages = c.n_pages;
    e->stats.n_pages_free = c.n_free;
    e->stats.n_pages_held = c.n_held;
    e->stats.n_pages_cached = c.n_cached;
    kv_tiering_stats(e->tiering, e->stats.tiers);
    pthread_mutex_lock(&e->lock);
    e->published = e->stats;
    e->published_snapshots = count_snapshots(e);
    e->published_memory = count_memory(e);
    e->published_parked = count_parked(e);
    e->published_profile = e->profile;
    e->published_profile.steps = e->stats.steps;
    pthread_mutex_unlock(&e->lock);
}

void engine_stats_read(engine *e, quire_stats *out) {
    assert(e != NULL);
    pthread_mutex_lock(&e->lock);
    *out = e->published;
    pthread_mutex_unlock(&e->lock);
}

void engine_snapshots_read(engine *e, quire_snapshot_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->published_snapshots;
    pthread_mutex_unlock(&e->lock);
}

void engine_page_memory_read(engine *e, quire_page_memory *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->published_memory;
    pthread_mutex_unlock(&e->lock);
}

void engine_parked_read(engine *e, quire_parked_stats *out) {
    assert(e != NULL);
    pthread_mutex_lock(&e->lock);
    *out = e->published_parked;
    pthread_mutex_unlock(&e->lock);
}

void engine_profile_read(engine *e, engine_profile *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->published_profile;
    pthread_mutex_unlock(&e->lock);
}

int64_t engine_busy_us(const engine *e) {
    int64_t since = atomic_load(&e->step_started_us);
    return since == 0 ? 0 : clock_us() - since;
}
