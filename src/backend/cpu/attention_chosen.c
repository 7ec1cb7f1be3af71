#include "backend/cpu/attention_chosen.h"

#include <string.h>

/* The sequence of a row of the batch. */
static const batch_seq *seq_of(const batch *step, int32_t row) {
    const batch_seq *s = step->seqs;
    while (row < s->row0 || row >= s->row0 + s->n_rows) {
        s++;
    }
    return s;
}

bool attn_choice_counts(const attn_job *job) {
    const attn_choice *c = &job->state->choice;
    assert(c->step == job->b->step);
    for (int32_t row = 0; row < job->b->batch->n_rows; row++) {
        if (c->n[row] < c->n_seen[row]) {
            return true;
        }
    }
    return false;
}

/* n heads of a row from head `from` on, over its chosen keys, a chunk of them after the
 * other. */
static void attend_chosen(const attn_job *job, int32_t row, int32_t from, int32_t n, attn_scratch *s) {
    const attn_choice *c = &job->state->choice;
    const attn_pages pages = attn_pages_of(job, seq_of(job->b->batch, row), 0);
    const int32_t *places = c->places + (int64_t)row * c->n_best;
    attn_tile *tile = &s->tile;
    tile->n_queries = n;
    tile->seen = NULL;
    tile->change = NULL;
    for (int32_t t = 0; t < n; t++) {
        attn_set_query(job, row, from + t, t, s);
    }
    for (int32_t base = 0; base < c->n[row]; base += ATTN_CHUNK) {
        const int32_t left = c->n[row] - base, count = left < ATTN_CHUNK ? left : ATTN_CHUNK;
        attn_state now[ATTN_TILE];
        attn_pages_gather(&pages, places + base, count, &s->copies, tile);
        for (int32_t t = 0; t < n; t++) {
            tile->first[t] = 0;
            tile->end[t] = count;
        }
        job->b->math->attention_tile(tile);
        for (int32_t t = 0; t < n; t++) {
            now[t] = (attn_state){tile->max[t], tile->sum[t], tile->acc + (int64_t)t * tile->acc_stride};
        }
        job->b->math->attention_merge(s->states, now, n, tile->acc_stride);
    }
    for (int32_t t = 0; t < n; t++) {
        const float *sinks = job->spec->sinks;
        job->b->math->attention_finish(&s->states[t], sinks != NULL ? sinks + from + t : NULL, tile->d_value,
                                       s->out[t]);
    }
}

/* Task: one row. */
static void chosen_task(void *context, int32_t row, int32_t worker) {
    const attn_job *job = context;
    attn_scratch *s = &job->state->scratch[worker * MOST_TOGETHER];
    attn_tile_begin(job, &s->tile);
    for (int32_t from = 0; from < job->n_heads; from += ATTN_TILE) {
        attend_chosen(job, row, from, job->n_heads - from < ATTN_TILE ? job->n_heads - from : ATTN_TILE, s);
    }
}

void attn_run_chosen(const attn_job *job) {
    assert(job->planes->kind == LAYER_LATENT);
    thread_pool_run(job->b->thread_pool, chosen_task, (void *)(uintptr_t)job, job->b->batch->n_rows);
}

/* ---- the choice ---- */

typedef struct choose_job {
    attn_job attn; /* of the keys that are scored */
    const choose_use *use;
} choose_job;

/* A row and what it sees: the keys at the indices of its sequence's pages before `plain`,
 * and behind them itself and, in a tree of drafts, its ancestors. */
typedef struct chooser {
    const batch_seq *seq;
    int32_t row, at, plain; /* at: the row's number in its sequence */
} chooser;

static bool chooser_sees(const chooser *c, int32_t place) {
    const int32_t other = place - c->plain;
    if (other < 0 || c->seq->parents == NULL) {
        return other <= (c->seq->parents == NULL ? c->at : -1);
    }
    int32_t row = c->at;
    while (row > other) {
        row = c->seq->parents[row];
    }
    return row == other;
}

static float *candidate_scores(const choose_job *job, int32_t worker) {
    const attn_choice *c = &job->attn.state->choice;
    return c->scores + (size_t)worker * (2 * (size_t)c->n_best + ATTN_CHUNK);
}

static int32_t *candidate_places(const choose_job *job, int32_t worker) {
    const attn_choice *c = &job->attn.state->choice;
    return c->candidates + (size_t)worker * (2 * (size_t)c->n_best + ATTN_CHUNK);
}

/* The n-th largest of x[0..count), n from 1 on; x is reordered. */
static float nth_largest(float *x, int32_t count, int32_t n) {
    int32_t low = 0, high = count - 1, want = n - 1;
    while (low < high) {
        const float pivot = x[low + (high - low) / 2];
        int32_t i = low, k = high;
        while (i <= k) {
            for (; x[i] > pivot; i++) {
            }
            for (; x[k] < pivot; k--) {
            }
            if (i <= k) {
                const float other = x[i];
                x[i++] = x[k];
                x[k--] = other;
            }
        }
        if (want <= k) {
            high = k;
        } else if (want >= i) {
            low = i;
        } else {
            break;
        }
    }
    return x[want];
}

/* Keeps the n_best of count candidates, in their order. Returns how many are left. */
static int32_t keep_best(const choose_job *job, int32_t worker, int32_t count) {
    const attn_choice *c = &job->attn.state->choice;
    const int32_t n_best = job->use->n_best;
    float *scores = candidate_scores(job, worker), *sorted = c->sorted + (scores - c->scores);
    int32_t *places = candidate_places(job, worker), n_above = 0, n = 0;
    if (count <= n_best) {
        return count;
    }
    memcpy(sorted, scores, sizeof *sorted * (size_t)count);
    const float least = nth_largest(sorted, count, n_best);
    for (int32_t i = 0; i < count; i++) {
        n_above += scores[i] > least;
    }
    for (int32_t i = 0, n_equal = n_best - n_above; i < count; i++) {
        if (scores[i] > least || (scores[i] == least && n_equal-- > 0)) {
            scores[n] = scores[i];
            places[n++] = places[i];
        }
    }
    return n;
}

/* Scores of keys base..base + n of the row's pages: sums[0..n). */
static void score_keys(const choose_job *job, const chooser *c, int32_t base, int32_t n, attn_scratch *s,
                       float *sums) {
    const choose_use *use = job->use;
    const attn_pages pages = attn_pages_of(&job->attn, c->seq, 0);
    const float *weights = cpu_act_row(job->attn.b, use->weights, c->row);
    memset(sums, 0, sizeof *sums * ATTN_CHUNK);
    attn_pages_find(&pages, base, 0, n, &s->copies, &s->tile);
    attn_pages_fetch_next(&pages, base, 0, &s->tile);
    for (int32_t from = 0; from < use->n_heads; from += ATTN_TILE) {
        s->tile.n_queries = use->n_heads - from < ATTN_TILE ? use->n_heads - from : ATTN_TILE;
        for (int32_t t = 0; t < s->tile.n_queries; t++) {
            attn_set_query(&job->attn, c->row, from + t, t, s);
            s->tile.first[t] = 0;
            s->tile.end[t] = n;
        }
        job->attn.b->math->attention_products(&s->tile);
        for (int32_t t = 0; t < s->tile.n_queries; t++) {
            const float weight = weights[from + t] * use->scale, *products = s->tile.scores + t * ATTN_CHUNK;
            for (int32_t i = 0; i < n; i++) {
                const float part = weight * (products[i] > 0.0f || isnan(products[i]) ? products[i] : 0.0f);
                sums[i] = sums[i] + part;
            }
        }
    }
}

/* Task: one row. */
static void choose_task(void *context, int32_t row, int32_t worker) {
    const choose_job *job = context;
    const batch *step = job->attn.b->batch;
    attn_choice *to = &job->attn.state->choice;
    const batch_seq *seq = seq_of(step, row);
    const chooser c = {seq, row, row - seq->row0, seq->n_tokens - seq->n_rows};
    attn_scratch *s = &job->attn.state->scratch[worker * MOST_TOGETHER];
    const int32_t n_best = job->use->n_best, end = c.plain + c.at + 1;
    float *scores = candidate_scores(job, worker), sums[ATTN_CHUNK];
    int32_t *places = candidate_places(job, worker), n = 0, n_seen = 0;
    for (int32_t place = c.plain; place < end; place++) {
        n_seen += chooser_sees(&c, place);
    }
    n_seen += c.plain;
    attn_tile_begin(&job->attn, &s->tile);
    s->tile.seen = NULL;
    s->tile.change = NULL;
    for (int32_t base = 0; base < end; base += ATTN_CHUNK) {
        const int32_t count = end - base < ATTN_CHUNK ? end - base : ATTN_CHUNK;
        if (n_seen > n_best) {
            score_keys(job, &c, base, count, s, sums);
        }
        for (int32_t i = 0; i < count; i++) {
            if (chooser_sees(&c, base + i)) {
                scores[n] = n_seen > n_best && !isnan(sums[i]) ? sums[i] : -INFINITY;
                places[n++] = base + i;
            }
        }
        n = n > 2 * n_best ? keep_best(job, worker, n) : n;
    }
    n = keep_best(job, worker, n);
    memcpy(to->places + (int64_t)row * to->n_best, places, sizeof *places * (size_t)n);
    to->n[row] = n;
    to->n_seen[row] = n_seen;
}

void cpu_choose(backend *base, const choose_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    const kv_planes *planes = &b->layout.caches[use->cache];
    const attn_spec spec = {.scale = 1.0f};
    const choose_job job = {.attn = {.b = b,
                                     .state = b->attention_state,
                                     .spec = &spec,
                                     .planes = planes,
                                     .cache = use->cache,
                                     .n_heads = use->n_heads,
                                     .max_heads = b->attention_state->max_heads,
                                     .group_size = use->n_heads,
                                     .q = use->q,
                                     .out = use->q},
                            .use = use};
    assert(planes->kind == LAYER_LATENT && use->n_best > 0 &&
           use->n_best <= b->attention_state->choice.n_best &&
           b->buffers[use->q.id].width == use->n_heads * planes->key.width &&
           b->buffers[use->weights.id].width == use->n_heads);
    b->attention_state->choice.step = b->step;
    thread_pool_run(b->thread_pool, choose_task, (void *)(uintptr_t)&job, b->batch->n_rows);
}

void cpu_choose_reserve(backend *base, int32_t n_best) {
    cpu_backend *b = (cpu_backend *)base;
    b->most_chosen = n_best > b->most_chosen ? n_best : b->most_chosen;
}
