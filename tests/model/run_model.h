/* Runs a model without an engine. Every group has one page, or the pages of one state. */
#ifndef TESTS_MODEL_RUN_MODEL_H
#define TESTS_MODEL_RUN_MODEL_H

#include "make_model.h"

#include "base/mem.h"
#include "model/model.h"
#include "test.h"

enum { N = 7, PAGE = 16 };

static inline backend *open_backend_of(compute_mode compute, int32_t n_threads) {
    backend *b;
    quire_error err = {0};
    assert_int_equal(
        backend_cpu_open(&(backend_options){.compute = compute, .isa = "auto", .n_threads = n_threads}, &b,
                         &err),
        QUIRE_OK);
    return b;
}

static inline backend *open_backend(compute_mode compute) {
    return open_backend_of(compute, 2);
}

/* Returns the number of pages of a group. */
static inline int32_t run_pages_of(const kv_group *g) {
    return g->kind == LAYER_STATE ? g->state_pages : 1;
}

/* Assigns pages, from 1 on, to every group. */
static inline void run_take_pages(const kv_layout *layout, int32_t *pages, const int32_t **of_group) {
    int32_t n = 0;
    for (int32_t g = 0; g < layout->n_groups; g++) {
        of_group[g] = pages + n;
        for (int32_t i = run_pages_of(&layout->groups[g]); i > 0; i--) {
            pages[n] = 1 + n;
            n++;
        }
    }
}

/* Returns the logits [.., n_vocab] of a prompt's first tokens, at most the model's
 * positions; for a model without a head, the rows after the last norm [.., d_model].
 * fine_tune: adapter of all rows; NULL: none. *n: number of values, which the caller
 * frees with mem_free. NULL: the cache is refused; err says why. */
static inline float *run_prompt_with(model *m, backend *b, const struct adapter *fine_tune, size_t *n,
                                     quire_error *err) {
    const model_desc *d = model_description(m);
    int32_t n_rows = d->max_positions < N ? d->max_positions : N;
    kv_layout layout;
    if (kv_layout_init(d, kv_both(DTYPE_F32), PAGE, &layout, err) != QUIRE_OK) {
        return NULL;
    }
    int32_t n_pages = 0;
    for (int32_t g = 0; g < layout.n_groups; g++) {
        n_pages += run_pages_of(&layout.groups[g]);
    }
    const step_limits limits = {
        .max_rows = N, .max_seqs = 1, .max_out = N, .max_adapters = fine_tune != NULL, .max_rank = 256};
    if (b->ops->step_open(b, &limits, &layout, d->n_vocab, err) != QUIRE_OK ||
        b->ops->kv_open(b, n_pages + 1, err) != QUIRE_OK) {
        return NULL;
    }
    const int16_t first[N] = {0};
    int32_t tokens[N], positions[N], rows[N], *pages = mem_new((size_t)n_pages, sizeof *pages);
    assert_non_null(pages);
    kv_slot slots[KV_MAX_GROUPS][N];
    attn_item work[N];
    batch_seq seq = {.n_rows = n_rows, .n_tokens = n_rows, .two_sided = d->two_sided};
    batch q = {.n_rows = n_rows,
               .n_seqs = 1,
               .n_out = d->no_head ? 0 : n_rows,
               .wants_rows = d->no_head,
               .tokens = tokens,
               .positions = positions,
               .n_axes = 1,
               .adapters = &fine_tune,
               .n_adapters = fine_tune != NULL,
               .row_adapters = fine_tune != NULL ? first : NULL};
    for (int32_t i = 0; i < n_rows; i++) {
        tokens[i] = (3 + 5 * i) % d->n_vocab;
        positions[i] = rows[i] = i;
    }
    run_take_pages(&layout, pages, seq.pages);
    for (int32_t g = 0; g < layout.n_groups; g++) {
        q.slots[g] = layout.groups[g].kind != LAYER_STATE ? slots[g] : NULL;
        for (int32_t i = 0; i < n_rows; i++) {
            slots[g][i] = (kv_slot){(int64_t)seq.pages[g][0] * PAGE + i};
        }
    }
    q.seqs = &seq;
    q.out_rows = rows;
    q.work = work;
    q.n_work = batch_plan_work(&seq, 1, 16, work, N);
    model_forward(m, &q);
    b->ops->step_wait(b);
    mem_free(pages);
    size_t width = (size_t)(d->no_head ? d->d_model : d->n_vocab);
    *n = (size_t)n_rows * width;
    float *out = mem_new(*n, sizeof *out);
    if (d->no_head) {
        b->ops->buffer_read(b, model_hidden(m), 0, n_rows, out);
    }
    for (int32_t i = 0; i < n_rows && !d->no_head; i++) {
        memcpy(out + (size_t)i * width, b->ops->logits(b, i), width * sizeof *out);
    }
    return out;
}

static inline float *run_prompt(model *m, backend *b, size_t *n, quire_error *err) {
    return run_prompt_with(m, b, NULL, n, err);
}

/* Opens a model, closes the file, and returns run_prompt_with's logits. Must succeed. */
static inline float *logits_of(model_file *f, compute_mode compute, size_t *n) {
    backend *b = open_backend(compute);
    model *m;
    quire_error err = {0};
    if (model_open(f, b, 64, &m, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    model_file_close(f);
    float *out = run_prompt(m, b, n, &err);
    if (out == NULL) {
        fail_msg("%s", err.message);
    }
    model_close(m);
    b->ops->close(b);
    return out;
}

#endif
