/* The engine's counters: its thread keeps them without locks, and publishes them once a step for other threads. */
#include "base/clock.h"
#include "engine/state.h"

#define N_BOUNDS 16 /* buckets of a histogram, as quire_stats_bounds has them */

/* Adds to a cumulative histogram. */
/* Counts in one bucket; engine_stats_read sums them up, since that happens less often. */
static void histogram_add(int64_t *buckets, double *sum, int64_t *count, int64_t us) {
    static const int64_t bounds_us[N_BOUNDS] = {1000,    2000,    5000,    10000,   20000,    50000,    100000,   200000,
                                                500000, 1000000, 2000000, 5000000, 10000000, 30000000, 60000000, INT64_MAX};
    int32_t i = 0;
    while (us > bounds_us[i]) {
        i++;
    }
    buckets[i]++;
    *sum += (double)us * 1e-6;
    ++*count;
}

void stats_token(engine *e, sequence *s, int64_t now_us) {
    quire_stats *st = &e->stats;
    if (s->last_token_us == 0) {
        histogram_add(st->ttft_buckets, &st->ttft_sum, &st->ttft_count, now_us - s->task.submitted_us);
        st->prompt_tokens += s->task.n_prompt;
    } else {
        histogram_add(st->gap_buckets, &st->gap_sum, &st->gap_count, now_us - s->last_token_us);
    }
    s->last_token_us = now_us;
    st->generation_tokens++;
}

void stats_ended(engine *e, sequence *s) {
    quire_stats *st = &e->stats;
    histogram_add(st->e2e_buckets, &st->e2e_sum, &st->e2e_count, s->ended_us - s->task.submitted_us);
}

void stats_pages(engine *e) {
    int64_t held = kv_pool_counts(e->kv.pool).n_held;
    e->profile.n_pages_held_most = held > e->profile.n_pages_held_most ? held : e->profile.n_pages_held_most;
}

void stats_publish(engine *e) {
    kv_counts c = kv_pool_counts(e->kv.pool);
    const sched_counts *q = &e->sched.counts;
    e->stats.preemptions = q->preemptions;
    e->stats.prefix_queries = q->prompt_tokens_queried;
    e->stats.prefix_hits = q->prompt_tokens_reused;
    e->stats.preempted_queries = q->known_tokens_queried;
    e->stats.preempted_hits = q->known_tokens_reused;
    e->stats.n_requests_running = e->sched.n_running;
    e->stats.n_requests_waiting = e->sched.n_waiting;
    e->stats.n_pages = c.n_pages;
    e->stats.n_pages_free = c.n_free;
    e->stats.n_pages_held = c.n_held;
    e->stats.n_pages_cached = c.n_cached;
    kv_tiering_stats(e->tiering, e->stats.tiers);
    pthread_mutex_lock(&e->lock);
    e->published = e->stats;
    e->published_profile = e->profile;
    e->published_profile.steps = e->stats.steps;
    pthread_mutex_unlock(&e->lock);
}

static void accumulate(int64_t *buckets) {
    for (int32_t i = 1; i < N_BOUNDS; i++) {
        buckets[i] += buckets[i - 1];
    }
}

void engine_stats_read(engine *e, quire_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->published;
    pthread_mutex_unlock(&e->lock);
    accumulate(out->ttft_buckets);
    accumulate(out->gap_buckets);
    accumulate(out->e2e_buckets);
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
