#include "backend/cpu/attention_chosen.h"

#include <assert.h>
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
    assert(job != NULL);
    const attn_choice *c = &job->state->choice;
    assert(c->step == job->b->step);
    for (int32_t row = 0; row < job->b->batch->n_rows; row++) {
        for (int32_t list = 0; list < c->n_lists; list++) {
            if (c->n[attn_choice_at(c, row, list)] < c->n_seen[row]) {
                return true;
            }
        }
    }
    return false;
}

/* Computes n heads of a row from head `from` on, which share a kv head, over their
 * selected keys, chunk by chunk. */
static void attend_chosen(const attn_job *job, int32_t row, int32_t from, int32_t n, attn_scratch *s) {
    const attn_choice *c = &job->state->choice;
    const int32_t kv_head = from / job->group_size,
                  list = attn_choice_at(c, row, c->n_lists > 1 ? kv_head : 0);
    const attn_pages pages = attn_pages_of(job, seq_of(job->b->batch, row), kv_head);
    const int32_t *places = c->places + (int64_t)list * c->most;
    attn_tile *tile = &s->tile;
    tile->n_queries = n;
    tile->seen = NULL;
    tile->change = NULL;
    for (int32_t t = 0; t < n; t++) {
        attn_set_query(job, row, from + t, t, s);
    }
    for (int32_t base = 0; base < c->n[list]; base += ATTN_CHUNK) {
        const int32_t left = c->n[list] - base, count = left < ATTN_CHUNK ? left : ATTN_CHUNK;
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

/* Task: attention of one row to its selected keys. */
static void chosen_task(void *context, int32_t row, int32_t worker) {
    const attn_job *job = context;
    attn_scratch *s = &job->state->scratch[worker * MOST_TOGETHER];
    attn_tile_begin(job, &s->tile);
    for (int32_t first = 0; first < job->n_heads; first += job->group_size) {
        for (int32_t i = 0; i < job->group_size; i += ATTN_TILE) {
            const int32_t left = job->group_size - i;
            attend_chosen(job, row, first + i, left < ATTN_TILE ? left : ATTN_TILE, s);
        }
    }
}

void attn_run_chosen(const attn_job *job) {
    thread_pool_run(job->b->thread_pool, chosen_task, (void *)(uintptr_t)job, job->b->batch->n_rows);
}

/* ---- selection ---- */

typedef struct choose_job {
    attn_job attn; /* scores of keys, computed as attention */
    const choose_use *use;
} choose_job;

/* A row and its visible keys: indices below `plain` in its sequence's pages, then the row
 * itself and, in a draft tree, its ancestors. */
typedef struct chooser {
    const batch_seq *seq;
    int32_t row, at, plain; /* at: the row's index in its sequence */
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
    return c->scores + (size_t)worker * (2 * (size_t)c->most + ATTN_CHUNK);
}

static int32_t *candidate_places(const choose_job *job, int32_t worker) {
    const attn_choice *c = &job->attn.state->choice;
    return c->candidates + (size_t)worker * (2 * (size_t)c->most + ATTN_CHUNK);
}

/* The n-th largest of x[0..count), n >= 1; reorders x. */
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

/* Keeps the `most` best of `count` candidates in their order. Returns how many remain. */
static int32_t keep_best(const choose_job *job, int32_t worker, int32_t count, int32_t most) {
    const attn_choice *c = &job->attn.state->choice;
    float *scores = candidate_scores(job, worker), *sorted = c->sorted + (scores - c->scores);
    int32_t *places = candidate_places(job, worker), n_above = 0, n = 0;
    if (count <= most) {
        return count;
    }
    memcpy(sorted, scores, sizeof *sorted * (size_t)count);
    const float least = nth_largest(sorted, count, most);
    for (int32_t i = 0; i < count; i++) {
        n_above += scores[i] > least;
    }
    for (int32_t i = 0, n_equal = most - n_above; i < count; i++) {
        if (scores[i] > least || (scores[i] == least && n_equal-- > 0)) {
            scores[n] = scores[i];
            places[n++] = places[i];
        }
    }
    return n;
}

/* Adds the scores of a chunk's keys, for n_heads index heads from `head` on, to sums. */
static void add_scores(const choose_job *job, const chooser *c, int32_t head, int32_t n_heads, int32_t n,
                       attn_scratch *s, float *sums) {
    const choose_use *use = job->use;
    const bool is_weighed = use->weights.id != BUFFER_NONE.id;
    const float *weights = is_weighed ? cpu_act_row(job->attn.b, use->weights, c->row) : NULL;
    s->tile.n_queries = n_heads;
    for (int32_t t = 0; t < n_heads; t++) {
        attn_set_query(&job->attn, c->row, head + t, t, s);
        s->tile.first[t] = 0;
        s->tile.end[t] = n;
    }
    job->attn.b->math->attention_products(&s->tile);
    for (int32_t t = 0; t < n_heads; t++) {
        const float weight = (is_weighed ? weights[head + t] : 1.0f) * use->scale,
                    *products = s->tile.scores + t * ATTN_CHUNK;
        for (int32_t i = 0; i < n; i++) {
            const float part = weight * (products[i] > 0.0f || isnan(products[i]) ? products[i] : 0.0f);
            sums[i] = sums[i] + part;
        }
    }
}

/* Computes the scores of keys base..base + n of the row's pages for a list into sums. */
static void score_keys(const choose_job *job, const chooser *c, int32_t list, int32_t base, int32_t n,
                       attn_scratch *s, float *sums) {
    const choose_use *use = job->use;
    const attn_pages pages = attn_pages_of(&job->attn, c->seq, 0);
    attn_pages_find(&pages, base, 0, n, 0, &s->copies, &s->tile);
    attn_pages_fetch_next(&pages, base, 0, &s->tile);
    if (use->kind == CHOOSE_BLOCKS) {
        s->tile.n_queries = 1;
        attn_set_query(&job->attn, c->row, list, 0, s);
        s->tile.first[0] = 0;
        s->tile.end[0] = n;
        job->attn.b->math->attention_products(&s->tile);
        memcpy(sums, s->tile.scores, sizeof *sums * (size_t)n);
        return;
    }
    memset(sums, 0, sizeof *sums * ATTN_CHUNK);
    for (int32_t head = 0; head < use->n_heads; head += ATTN_TILE) {
        const int32_t left = use->n_heads - head;
        add_scores(job, c, head, left < ATTN_TILE ? left : ATTN_TILE, n, s, sums);
    }
}

/* The visible key before `place`, which is that of the row or an ancestor. */
static int32_t chooser_before(const chooser *c, int32_t place) {
    const int32_t other = place - c->plain;
    return c->seq->parents == NULL || other <= 0 ? place - 1 : c->plain + c->seq->parents[other];
}

/* Writes n places: the n - 1 visible keys before `place`, then `place`. */
static void write_places(const chooser *c, int32_t place, int32_t n, int32_t *to) {
    for (int32_t i = n - 1; i >= 0; i--) {
        to[i] = place;
        place = chooser_before(c, place);
    }
}

/* A scan of a row's blocks for one list; candidates are places of blocks' last keys. */
typedef struct block_scan {
    const choose_job *job;
    const chooser *c;
    int32_t worker, list;
    int32_t block, n_seen, n_blocks, most; /* `most` of n_blocks blocks are to be selected */
    int32_t n, n_passed;                   /* numbers of candidates, and of visited keys */
    float best;                            /* score of the current block */
} block_scan;

/* Visits a visible key. */
static void block_pass(block_scan *s, int32_t place, float score) {
    const choose_use *use = s->job->use;
    const int32_t block = s->n_passed / s->block, at = s->n_passed % s->block;
    const bool is_own = use->kind == CHOOSE_BLOCKS && block >= s->n_blocks - use->n_own,
               is_last = at == s->block - 1 || (use->kind == CHOOSE_BLOCKS && s->n_passed == s->n_seen - 1);
    score = isnan(score) ? -INFINITY : score;
    s->best = is_own ? INFINITY : at == 0 || use->kind == CHOOSE_POOLS || score > s->best ? score : s->best;
    s->n_passed++;
    if (is_last) {
        candidate_scores(s->job, s->worker)[s->n] = s->best;
        candidate_places(s->job, s->worker)[s->n++] = place;
    }
}

/* Writes a list: the selected blocks and, for pools, the keys after the last block. */
static int32_t choice_write(const block_scan *s, int32_t *to) {
    const int32_t *places = candidate_places(s->job, s->worker), last = s->c->plain + s->c->at;
    const int32_t rest = s->n_seen % s->block;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const bool is_cut = s->job->use->kind == CHOOSE_BLOCKS && rest > 0 && places[i] == last;
        const int32_t count = is_cut ? rest : s->block;
        write_places(s->c, places[i], count, to + n);
        n += count;
    }
    if (s->job->use->kind == CHOOSE_POOLS) {
        write_places(s->c, last, rest, to + n);
        n += rest;
    }
    return n;
}

static int32_t choose_list(block_scan *s, attn_scratch *scratch, int32_t *to) {
    const chooser *c = s->c;
    const int32_t end = c->plain + c->at + 1;
    float sums[ATTN_CHUNK];
    for (int32_t base = 0; base < end; base += ATTN_CHUNK) {
        const int32_t count = end - base < ATTN_CHUNK ? end - base : ATTN_CHUNK;
        score_keys(s->job, c, s->list, base, count, scratch, sums);
        for (int32_t i = 0; i < count; i++) {
            if (chooser_sees(c, base + i)) {
                block_pass(s, base + i, sums[i]);
            }
        }
        s->n = s->n > 2 * s->most ? keep_best(s->job, s->worker, s->n, s->most) : s->n;
    }
    s->n = keep_best(s->job, s->worker, s->n, s->most);
    return choice_write(s, to);
}

/* Task: selects the keys of one row. */
static void choose_task(void *context, int32_t row, int32_t worker) {
    const choose_job *job = context;
    const choose_use *use = job->use;
    attn_choice *to = &job->attn.state->choice;
    const batch_seq *seq = seq_of(job->attn.b->batch, row);
    const chooser c = {seq, row, row - seq->row0, seq->n_tokens - seq->n_rows};
    attn_scratch *scratch = &job->attn.state->scratch[worker * MOST_TOGETHER];
    const int32_t block = use->block > 1 ? use->block : 1, most = use->n_best / block;
    int32_t n_seen = c.plain;
    for (int32_t place = c.plain; place <= c.plain + c.at; place++) {
        n_seen += chooser_sees(&c, place);
    }
    const int32_t n_blocks = use->kind == CHOOSE_BLOCKS ? (n_seen + block - 1) / block : n_seen / block;
    attn_tile_begin(&job->attn, &scratch->tile);
    scratch->tile.seen = NULL;
    scratch->tile.change = NULL;
    to->n_seen[row] = n_seen;
    for (int32_t list = 0; list < to->n_lists; list++) {
        block_scan s = {job, &c, worker, list, block, n_seen, n_blocks, most, 0, 0, 0.0f};
        const int32_t at = attn_choice_at(to, row, list);
        int32_t *places = to->places + (int64_t)at * to->most;
        to->n[at] = n_seen;
        if (n_blocks > most) {
            to->n[at] = choose_list(&s, scratch, places);
        } else {
            write_places(&c, c.plain + c.at, n_seen, places);
        }
    }
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
    attn_choice *choice = &b->attention_state->choice;
    assert(planes->kind == LAYER_LATENT && b->buffers[use->q.id].width == use->n_heads * planes->key.width);
    assert(use->weights.id == BUFFER_NONE.id || b->buffers[use->weights.id].width == use->n_heads);
    assert(use->n_best > 0 &&
           (use->kind == CHOOSE_KEYS || (use->block > 0 && use->n_best % use->block == 0)));
    choice->n_lists = choose_lists(use->kind, use->n_heads);
    assert(choice->n_lists <= choice->most_lists &&
           choose_room(use->kind, use->n_best, use->block) <= choice->most);
    choice->step = b->step;
    thread_pool_run(b->thread_pool, choose_task, (void *)(uintptr_t)&job, b->batch->n_rows);
}

void cpu_choose_reserve(backend *base, int32_t n_lists, int32_t room) {
    cpu_backend *b = (cpu_backend *)base;
    b->most_choices = n_lists > b->most_choices ? n_lists : b->most_choices;
    b->most_chosen = room > b->most_chosen ? room : b->most_chosen;
}
