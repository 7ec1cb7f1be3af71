/* Pooled keys and n-gram embeddings, which depend on a row's last few tokens. A
 * sequence's state is its last rows; a task processes its rows in order. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/states.h"
#include "core/math_plain.h"

/* ---- pools ---- */

typedef struct pool_job {
    const cpu_backend *b;
    const pool_use *use;
    int32_t width, n_units;
} pool_job;

/* One pooled key of a channel, from n rows of x and gates that are `stride` apart. */
static float pool_channel(const pool_use *use, const float *x, const float *gates, const float *bias,
                          int32_t stride, int32_t n_channels) {
    float most = gates[0] + bias[0], sum = 0.0f, all = 0.0f;
    for (int32_t j = 1; j < use->n; j++) {
        most = plain_max(most, gates[j * stride] + bias[j * n_channels]);
    }
    for (int32_t j = 0; j < use->n; j++) {
        const float e = plain_exp((gates[j * stride] + bias[j * n_channels]) - most);
        all += e;
        sum += e * x[j * stride];
    }
    return sum / all;
}

/* Processes one unit over a sequence's rows. The window is the state and the next row. */
static void pool_sequence(const pool_job *job, const batch_seq *s, int32_t unit) {
    const cpu_backend *b = job->b;
    const pool_use *use = job->use;
    const int32_t kept = use->n - 1, first = unit * CONV_UNIT, left = job->width - first,
                  n_channels = left < CONV_UNIT ? left : CONV_UNIT, stride = 2 * CONV_UNIT;
    const state_part part = {use->cache, unit, 0, (int64_t)kept * stride};
    float window[CONV_MAX_TAPS * 2 * CONV_UNIT] = {0}, *state = cpu_state_begin(b, part, s, NULL);
    memcpy(window, state, sizeof *window * (size_t)(kept * stride));
    for (int32_t row = 0, snapshot = 0; row < s->n_rows; row++) {
        (void)cpu_state_stretch(s, row, 1, &snapshot);
        const int32_t at = s->row0 + row, position = b->batch->positions[(int64_t)at * b->batch->n_axes];
        float *out = cpu_act_row(b, use->out, at) + first, *newest = window + kept * stride;
        memcpy(newest, cpu_act_row(b, use->x, at) + first, sizeof *newest * (size_t)n_channels);
        memcpy(newest + CONV_UNIT, cpu_act_row(b, use->gate, at) + first,
               sizeof *newest * (size_t)n_channels);
        for (int32_t c = 0; c < n_channels; c++) {
            out[c] = ((int64_t)position + 1) % use->n == 0
                         ? pool_channel(use, window + c, window + CONV_UNIT + c, use->bias + first + c,
                                        stride, job->width)
                         : 0.0f;
        }
        memmove(window, window + stride, sizeof *window * (size_t)(kept * stride));
        cpu_state_copy(b, part, s, snapshot, row, window);
    }
    memcpy(state, window, sizeof *window * (size_t)(kept * stride));
}

/* Task: one unit of all sequences. */
static void pool_task(void *context, int32_t unit, int32_t worker) {
    const pool_job *job = context;
    (void)worker;
    for (int32_t i = 0; i < job->b->batch->n_seqs; i++) {
        pool_sequence(job, &job->b->batch->seqs[i], unit);
    }
}

void cpu_pool(backend *base, const pool_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    pool_job job = {.b = b, .use = use, .width = b->buffers[use->x.id].width};
    job.n_units = conv_units(job.width);
    assert(use->n >= 2 && use->n <= CONV_MAX_TAPS && !b->buffers[use->x.id].is_quantised);
    assert(b->buffers[use->gate.id].width == job.width && b->buffers[use->out.id].width == job.width);
    assert(b->layout.caches[use->cache].kind == LAYER_STATE);
    assert(b->layout.caches[use->cache].state.n_units == job.n_units);
    b->buffers[use->out.id].is_quantised = false;
    cpu_state_run(b, pool_task, &job, job.n_units);
}

/* ---- n-grams ---- */

typedef struct ngram_job {
    const cpu_backend *b;
    const ngram_use *use;
} ngram_job;

/* The row indices in the tables for the last tokens; t[0] is the row's own token. */
static void ngram_rows(const ngram_desc *d, const int64_t *t, int32_t *rows) {
    uint64_t hash = (uint64_t)t[0] * (uint64_t)d->multipliers[0];
    for (int32_t g = 1; g < d->n; g++) {
        hash ^= (uint64_t)t[g] * (uint64_t)d->multipliers[g];
        for (int32_t h = 0; h < d->n_heads; h++) {
            const int32_t i = (g - 1) * d->n_heads + h;
            int64_t signed_hash, rest;
            memcpy(&signed_hash, &hash, sizeof hash);
            rest = signed_hash % d->sizes[i];
            rows[i] = d->offsets[i] + (int32_t)(rest < 0 ? rest + d->sizes[i] : rest);
        }
    }
}

/* The tokens of an n-gram: `end` from the most recent token with that id backwards. kept:
 * earlier ids + 1, newest last. */
static void ngram_tokens(const ngram_desc *d, int32_t token, const int32_t *kept, int64_t *t) {
    bool ended = false;
    t[0] = token >= 0 ? token : d->end;
    for (int32_t i = 1; i < d->n; i++) {
        const int32_t id = kept[d->n - 1 - i] - 1;
        ended = ended || id < 0 || id == d->end;
        t[i] = ended ? d->end : id;
    }
}

/* Task: one sequence. */
static void ngram_task(void *context, int32_t seq, int32_t worker) {
    const ngram_job *job = context;
    const cpu_backend *b = job->b;
    const ngram_use *use = job->use;
    const ngram_desc *d = use->d;
    const batch_seq *s = &b->batch->seqs[seq];
    const state_part part = {use->cache, 0, 0, d->n - 1};
    const size_t kept_bytes = sizeof(int32_t) * (size_t)(d->n - 1);
    int32_t kept[NGRAM_MAX], rows[NGRAM_MAX_HEADS];
    float *state = cpu_state_begin(b, part, s, NULL), copy[NGRAM_MAX];
    memcpy(kept, state, kept_bytes);
    for (int32_t row = 0, snapshot = 0; row < s->n_rows; row++) {
        (void)cpu_state_stretch(s, row, 1, &snapshot);
        const int32_t token = b->batch->tokens[s->row0 + row];
        float *out = cpu_act_row(b, use->out, s->row0 + row);
        int64_t t[NGRAM_MAX];
        ngram_tokens(d, token, kept, t);
        ngram_rows(d, t, rows);
        for (int32_t i = 0; i < (d->n - 1) * d->n_heads; i++) {
            cpu_embedding_row(b, use->tables[rows[i] / use->rows_each], rows[i] % use->rows_each,
                              s->row0 + row, worker, out + (int64_t)i * d->d_head);
        }
        memmove(kept, kept + 1, kept_bytes - sizeof *kept);
        kept[d->n - 2] = (int32_t)t[0] + 1;
        memcpy(copy, kept, kept_bytes);
        cpu_state_copy(b, part, s, snapshot, row, copy);
    }
    memcpy(state, kept, kept_bytes);
}

void cpu_ngrams(backend *base, const ngram_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    const ngram_desc *d = use->d;
    assert(d->n >= 2 && d->n <= NGRAM_MAX && (d->n - 1) * d->n_heads <= NGRAM_MAX_HEADS);
    assert(b->buffers[use->out.id].width == (d->n - 1) * d->n_heads * d->d_head);
    assert(b->layout.caches[use->cache].kind == LAYER_STATE);
    b->buffers[use->out.id].is_quantised = false;
    thread_pool_run(b->thread_pool, ngram_task, &(ngram_job){b, use}, b->batch->n_seqs);
}
