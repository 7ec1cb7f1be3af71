/* The engine's counters: its thread keeps them without locks, and publishes them once a step for other threads. */
#include "base/clock.h"
#include "engine/state.h"

const int64_t ENGINE_BOUNDS_US[ENGINE_N_BOUNDS] = {1000,    2000,    5000,    10000,   20000,    50000,    100000,   200000,
                                                   500000, 1000000, 2000000, 5000000, 10000000, 30000000, 60000000, INT64_MAX};

static void histogram_add(engine_histogram *h, int64_t us) {
    int32_t i = 0;
    while (us > ENGINE_BOUNDS_US[i]) {
        i++;
    }
    h->buckets[i]++;
    h->sum_us += us;
    h->count++;
}

void stats_token(engine *e, sequence *s, int64_t now_us) {
    if (s->last_token_us == 0) {
        histogram_add(&e->stats.first_token, now_us - s->task.submitted_us);
        e->stats.prompt_tokens += s->task.n_prompt;
    } else {
        histogram_add(&e->stats.gap, now_us - s->last_token_us);
    }
    s->last_token_us = now_us;
    e->stats.generation_tokens++;
}

void stats_ended(engine *e, sequence *s) {
    histogram_add(&e->stats.whole, s->ended_us - s->task.submitted_us);
}

void stats_pages(engine *e) {
    int64_t held = kv_pool_counts(e->kv.pool).n_held;
    e->stats.n_pages_held_most = held > e->stats.n_pages_held_most ? held : e->stats.n_pages_held_most;
}

void stats_publish(engine *e) {
    kv_counts c = kv_pool_counts(e->kv.pool);
    const sched_counts *q = &e->sched.counts;
    e->stats.preemptions = q->preemptions;
    e->stats.prompt_tokens_queried = q->prompt_tokens_queried;
    e->stats.prompt_tokens_reused = q->prompt_tokens_reused;
    e->stats.known_tokens_queried = q->known_tokens_queried;
    e->stats.known_tokens_reused = q->known_tokens_reused;
    e->stats.n_running = e->sched.n_running;
    e->stats.n_waiting = e->sched.n_waiting;
    e->stats.n_pages = c.n_pages;
    e->stats.n_pages_free = c.n_free;
    e->stats.n_pages_held = c.n_held;
    e->stats.n_pages_cached = c.n_cached;
    kv_tiering_stats(e->tiering, e->stats.tiers);
    pthread_mutex_lock(&e->lock);
    e->published = e->stats;
    pthread_mutex_unlock(&e->lock);
}

void engine_stats_read(engine *e, engine_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->published;
    pthread_mutex_unlock(&e->lock);
}

int64_t engine_busy_us(const engine *e) {
    int64_t since = atomic_load(&e->step_started_us);
    return since == 0 ? 0 : clock_us() - since;
}
