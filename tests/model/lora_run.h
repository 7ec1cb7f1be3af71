/* Runs prompts with different adapters, or none, in one batch, without an engine. */
#ifndef TESTS_MODEL_LORA_RUN_H
#define TESTS_MODEL_LORA_RUN_H

#include <string.h>

#include "base/mem.h"
#include "model/model.h"

/* An open base model, with room for max_seqs sequences of max_tokens tokens. */
typedef struct lora_base {
    backend *b;
    model *m;
    int32_t max_seqs, max_tokens, n_vocab;
    kv_layout layout;
    int32_t seq_pages; /* pages of one sequence in all groups */
} lora_base;

/* A prompt and its greedy continuation. */
typedef struct lora_seq {
    const struct adapter *adapter; /* NULL: without an adapter */
    const int32_t *prompt;
    int32_t n_prompt, n_greedy;
    float *logits;   /* out: [n_prompt + n_greedy - 1, n_vocab] */
    int32_t *greedy; /* out: [n_greedy] */
} lora_seq;

enum { PAGE_TOKENS = 16 };

/* Returns the number of pages of a sequence in group g, for its tokens or its state. */
static inline int32_t pages_of(const lora_base *b, int32_t g) {
    const kv_group *group = &b->layout.groups[g];
    return group->kind == LAYER_STATE ? group->state_pages : (b->max_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

static inline quire_err open_steps(lora_base *out, int32_t max_adapters, int32_t max_rank, quire_error *err) {
    const model_desc *d = model_description(out->m);
    const backend_ops *op = out->b->ops;
    TRY(kv_layout_init(d, kv_both(DTYPE_F32), PAGE_TOKENS, &out->layout, err));
    out->n_vocab = d->n_vocab;
    for (int32_t g = 0; g < out->layout.n_groups; g++) {
        out->seq_pages += pages_of(out, g);
    }
    const int32_t n_rows = out->max_seqs * out->max_tokens;
    TRY(op->step_open(out->b,
                      &(step_limits){.max_rows = n_rows,
                                     .max_seqs = out->max_seqs,
                                     .max_out = n_rows,
                                     .max_adapters = max_adapters,
                                     .max_rank = max_rank},
                      &out->layout, d->n_vocab, err));
    return op->kv_open(out->b, 1 + out->max_seqs * out->seq_pages, err);
}

static inline void lora_base_close(lora_base *b) {
    model_close(b->m);
    if (b->b != NULL) {
        b->b->ops->close(b->b);
    }
    *b = (lora_base){0};
}

static inline quire_err lora_base_open(const char *path, int32_t max_seqs, int32_t max_tokens,
                                       int32_t max_adapters, int32_t max_rank, lora_base *out,
                                       quire_error *err) {
    model_file *f;
    *out = (lora_base){.max_seqs = max_seqs, .max_tokens = max_tokens};
    TRY(model_file_open(path, &f, err));
    quire_err e = backend_cpu_open(&(backend_options){.compute = COMPUTE_F32, .isa = "auto", .n_threads = 2},
                                   &out->b, err);
    e = e ? e : model_open(f, out->b, max_tokens, &out->m, err);
    model_file_close(f);
    e = e ? e : open_steps(out, max_adapters, max_rank, err);
    if (e != QUIRE_OK) {
        lora_base_close(out);
    }
    return e;
}

/* The arrays of a batch. */
typedef struct lora_arrays {
    int32_t *tokens, *positions, *out_rows, *pages;
    int16_t *row_adapters;
    kv_slot *slots[KV_MAX_GROUPS];
    batch_seq *seqs;
    attn_item *work;
    const struct adapter **adapters;
    int32_t n_adapters, max_work;
} lora_arrays;

static inline void arrays_deinit(lora_arrays *a) {
    mem_free(a->tokens);
    mem_free(a->positions);
    mem_free(a->out_rows);
    mem_free(a->pages);
    mem_free(a->row_adapters);
    for (int32_t g = 0; g < KV_MAX_GROUPS; g++) {
        mem_free(a->slots[g]);
    }
    mem_free(a->seqs);
    mem_free(a->work);
    mem_free(a->adapters);
}

/* Allocates the arrays and assigns pages, from 1 on, to the sequences in each group. */
static inline quire_err arrays_init(const lora_base *b, int32_t n, lora_arrays *a, quire_error *err) {
    const size_t rows = (size_t)(b->max_seqs * b->max_tokens), pages = (size_t)b->seq_pages;
    a->max_work = b->max_seqs * b->max_tokens;
    a->tokens = mem_new(rows, sizeof *a->tokens);
    a->positions = mem_new(rows, sizeof *a->positions);
    a->out_rows = mem_new(rows, sizeof *a->out_rows);
    a->row_adapters = mem_new(rows, sizeof *a->row_adapters);
    a->pages = mem_new((size_t)n * pages, sizeof *a->pages);
    a->seqs = mem_new((size_t)n, sizeof *a->seqs);
    a->work = mem_new((size_t)a->max_work, sizeof *a->work);
    a->adapters = mem_new((size_t)n, sizeof *a->adapters);
    bool ok = a->tokens && a->positions && a->out_rows && a->row_adapters && a->pages && a->seqs && a->work &&
              a->adapters;
    for (int32_t g = 0; g < b->layout.n_groups; g++) {
        bool is_state = b->layout.groups[g].kind == LAYER_STATE;
        a->slots[g] = is_state ? NULL : mem_new(rows, sizeof *a->slots[g]);
        ok = ok && (is_state || a->slots[g]);
    }
    if (!ok) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    for (int32_t i = 0; i < n * (int32_t)pages; i++) {
        a->pages[i] = 1 + i;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t *of_group = a->pages + (size_t)i * pages;
        for (int32_t g = 0; g < b->layout.n_groups; g++) {
            a->seqs[i].pages[g] = of_group;
            of_group += pages_of(b, g);
        }
    }
    return QUIRE_OK;
}

/* Returns the index of an adapter in the batch, adding it if it is new. */
static inline int16_t place_of(lora_arrays *a, const struct adapter *wanted) {
    int32_t i = 0;
    while (wanted != NULL && i < a->n_adapters && a->adapters[i] != wanted) {
        i++;
    }
    if (wanted != NULL && i == a->n_adapters) {
        a->adapters[a->n_adapters++] = wanted;
    }
    return (int16_t)(wanted == NULL ? -1 : i);
}

/* Adds a sequence's rows from position `from` on to the batch. */
static inline int32_t add_rows(const lora_base *b, lora_arrays *a, const lora_seq *s, int32_t i, int32_t from,
                               int32_t n_rows, int32_t row) {
    batch_seq *q = &a->seqs[i];
    q->row0 = row;
    q->n_rows = n_rows;
    q->n_tokens = from + n_rows;
    for (int32_t k = 0; k < n_rows; k++, row++) {
        const int32_t at = from + k;
        a->tokens[row] = at < s->n_prompt ? s->prompt[at] : s->greedy[at - s->n_prompt];
        a->positions[row] = at;
        a->out_rows[row] = row;
        a->row_adapters[row] = place_of(a, s->adapter);
        for (int32_t g = 0; g < b->layout.n_groups; g++) {
            if (a->slots[g] != NULL) {
                a->slots[g][row] =
                    (kv_slot){(int64_t)q->pages[g][at / PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS};
            }
        }
    }
    return row;
}

static inline int32_t best_of(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* Runs a step with the rows of each sequence i from position done[i] on. */
static inline quire_err run_step(lora_base *b, lora_arrays *a, lora_seq *seqs, int32_t n, int32_t *done,
                                 quire_error *err) {
    int32_t n_rows = 0, row = 0;
    for (int32_t i = 0; i < n; i++) {
        n_rows = add_rows(b, a, &seqs[i], i, done[i], done[i] == 0 ? seqs[i].n_prompt : 1, n_rows);
    }
    batch q = {.n_rows = n_rows,
               .n_seqs = n,
               .n_out = n_rows,
               .tokens = a->tokens,
               .positions = a->positions,
               .n_axes = 1,
               .seqs = a->seqs,
               .out_rows = a->out_rows,
               .work = a->work,
               .adapters = a->adapters,
               .n_adapters = a->n_adapters,
               .row_adapters = a->n_adapters > 0 ? a->row_adapters : NULL};
    for (int32_t g = 0; g < b->layout.n_groups; g++) {
        q.slots[g] = a->slots[g];
    }
    q.n_work = batch_plan_work(a->seqs, n, 16, a->work, a->max_work);
    if (q.n_work < 0) {
        return err_set(err, QUIRE_INVALID, -1, "the work list is too short");
    }
    model_forward(b->m, &q);
    b->b->ops->step_wait(b->b);
    for (int32_t i = 0; i < n; i++) {
        const size_t v = (size_t)b->n_vocab;
        for (int32_t k = 0; k < a->seqs[i].n_rows; k++, row++) {
            memcpy(seqs[i].logits + (size_t)(done[i] + k) * v, b->b->ops->logits(b->b, row),
                   v * sizeof *seqs[i].logits);
        }
        done[i] += a->seqs[i].n_rows;
        seqs[i].greedy[done[i] - seqs[i].n_prompt] =
            best_of(seqs[i].logits + (size_t)(done[i] - 1) * v, b->n_vocab);
    }
    return QUIRE_OK;
}

/* Runs n sequences together: all prompts in one step, then one token of each per step. */
static inline quire_err lora_run(lora_base *b, lora_seq *seqs, int32_t n, quire_error *err) {
    lora_arrays a = {0};
    int32_t *done = mem_new((size_t)n, sizeof *done), n_steps = 0;
    quire_err e = done != NULL ? arrays_init(b, n, &a, err) : QUIRE_NO_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        n_steps = seqs[i].n_greedy > n_steps ? seqs[i].n_greedy : n_steps;
        if (seqs[i].n_prompt + seqs[i].n_greedy > b->max_tokens || seqs[i].n_greedy != seqs[0].n_greedy) {
            e = err_set(err, QUIRE_INVALID, -1, "sequences of different lengths, or too long");
        }
    }
    for (int32_t step = 0; step < n_steps && e == QUIRE_OK; step++) {
        e = run_step(b, &a, seqs, n, done, err);
    }
    mem_free(done);
    arrays_deinit(&a);
    return e;
}

#endif
