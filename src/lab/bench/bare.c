#include "lab/bench/bare.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "setup/engine_config.h"

enum { TILE_ROWS = 16 };

static quire_err open_arrays(bare *b) {
    size_t rows = (size_t)b->max_rows, seqs = (size_t)b->max_seqs;
    b->max_work = b->max_rows / TILE_ROWS + b->max_seqs + 1;
    b->tokens = mem_new(rows, sizeof *b->tokens);
    b->positions = mem_new(rows, sizeof *b->positions);
    b->out_rows = mem_new(seqs, sizeof *b->out_rows);
    b->slots = mem_new(rows, sizeof *b->slots);
    b->seqs = mem_new(seqs, sizeof *b->seqs);
    b->work = mem_new((size_t)b->max_work, sizeof *b->work);
    return b->tokens && b->positions && b->out_rows && b->slots && b->seqs && b->work ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static quire_err open_model(const bare_options *o, model_file *f, bare *b, quire_error *err) {
    model_desc d;
    compute_mode compute;
    dtype kv;
    TRY(model_describe(f, &d, err));
    TRY(options_compute(o->engine, &d, &compute, err));
    TRY(options_kv_dtype(o->engine, compute, &kv, err));
    if (o->max_len > d.max_positions) {
        return err_set(err, QUIRE_INVALID, -1, "sequences of %d tokens: the model takes %d", (int)o->max_len, (int)d.max_positions);
    }
    backend_options bo = {.compute = compute, .isa = o->engine->isa, .n_threads = o->engine->n_threads};
    TRY(backend_cpu_open(&bo, &b->b, err));
    TRY(model_open(f, b->b, o->max_len, &b->m, err));
    b->desc = model_description(b->m);
    TRY(kv_layout_init(b->desc, kv, o->page_tokens, &b->layout, err));
    if (b->layout.n_groups != 1 || b->layout.groups[0].kind != LAYER_FULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "this experiment is for models whose layers all see everything");
    }
    step_limits limits = {.max_rows = b->max_rows, .max_seqs = b->max_seqs, .max_out = b->max_seqs};
    TRY(b->b->ops->step_open(b->b, &limits, &b->layout, b->desc->n_vocab, err));
    return b->b->ops->kv_open(b->b, o->n_pages, err);
}

quire_err bare_open(const bare_options *o, bare *out, quire_error *err) {
    *out = (bare){.max_rows = o->max_rows, .max_seqs = o->max_seqs, .n_threads = o->engine->n_threads};
    model_file *f = NULL;
    quire_err e = open_arrays(out);
    e = e == QUIRE_OK ? options_open_file(o->engine, &f, err) : err_set(err, e, -1, "no memory for passes of %d rows", (int)o->max_rows);
    if (e == QUIRE_OK) {
        e = open_model(o, f, out, err);
        model_file_close(f);
    }
    if (e != QUIRE_OK) {
        bare_close(out);
    }
    return e;
}

void bare_close(bare *b) {
    model_close(b->m);
    if (b->b != NULL) {
        b->b->ops->close(b->b);
    }
    mem_free(b->tokens);
    mem_free(b->positions);
    mem_free(b->out_rows);
    mem_free(b->slots);
    mem_free(b->seqs);
    mem_free(b->work);
    *b = (bare){0};
}

static void add_part(bare *b, const bare_part *p) {
    int32_t row0 = b->rows.n_rows, page_tokens = b->layout.page_tokens;
    for (int32_t i = 0; i < p->n_rows; i++) {
        int32_t at = p->first + i;
        b->tokens[row0 + i] = p->tokens[at];
        b->positions[row0 + i] = at;
        b->slots[row0 + i] = (kv_slot){p->pages != NULL ? (int64_t)p->pages[at / page_tokens] * page_tokens + at % page_tokens : -1};
    }
    batch_seq *q = &b->seqs[b->rows.n_seqs++];
    *q = (batch_seq){.row0 = row0, .n_rows = p->n_rows, .n_tokens = p->first + p->n_rows};
    q->pages[0] = p->pages;
    b->rows.n_rows += p->n_rows;
    if (p->wants_logits) {
        b->out_rows[b->rows.n_out++] = b->rows.n_rows - 1;
    }
}

quire_err bare_forward(bare *b, const bare_part *parts, int32_t n) {
    int64_t rows = 0;
    for (int32_t i = 0; i < n; i++) {
        rows += parts[i].n_rows;
    }
    if (n > b->max_seqs || rows > b->max_rows) {
        return QUIRE_TOO_LARGE;
    }
    b->rows =
        (batch){.tokens = b->tokens, .positions = b->positions, .n_axes = 1, .seqs = b->seqs, .out_rows = b->out_rows, .work = b->work};
    b->rows.slots[0] = b->slots;
    for (int32_t i = 0; i < n; i++) {
        add_part(b, &parts[i]);
    }
    b->rows.n_work = batch_plan_work(b->seqs, n, TILE_ROWS, b->work, b->max_work);
    b->b->ops->enter(b->b);
    model_forward(b->m, &b->rows);
    b->b->ops->step_wait(b->b);
    b->b->ops->leave(b->b);
    return QUIRE_OK;
}

quire_err bare_prefill(bare *b, const int32_t *tokens, int32_t n, const int32_t *pages) {
    for (int32_t at = 0; at < n;) {
        int32_t rows = n - at < b->max_rows ? n - at : b->max_rows;
        bare_part p = {tokens, at, rows, pages, at + rows == n};
        TRY(bare_forward(b, &p, 1));
        at += rows;
    }
    return QUIRE_OK;
}

const float *bare_logits(const bare *b, int32_t i) {
    return b->b->ops->logits(b->b, i);
}

int32_t bare_greedy(const bare *b, int32_t i) {
    const float *logits = bare_logits(b, i);
    int32_t best = 0;
    for (int32_t v = 1; v < b->desc->n_vocab; v++) {
        best = logits[v] > logits[best] ? v : best;
    }
    return best;
}

void bare_prompt(const bare *b, uint64_t seed, int32_t n, int32_t *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = 1 + (int32_t)(rng_next(&seed) % (uint64_t)(b->desc->n_vocab - 1));
    }
}
