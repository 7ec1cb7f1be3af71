#include "lab/bench/model_runner.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "setup/engine_config.h"
#include "setup/loaded_model.h"

enum { TILE_ROWS = 16 };

static quire_err model_runner_open_arrays(model_runner *b) {
    size_t rows = (size_t)b->max_rows, seqs = (size_t)b->max_seqs;
    b->max_work = b->max_rows / TILE_ROWS + b->max_seqs + 1;
    b->tokens = mem_new(rows, sizeof *b->tokens);
    b->positions = mem_new(rows, sizeof *b->positions);
    b->out_rows = mem_new((size_t)b->max_out, sizeof *b->out_rows);
    b->seqs = mem_new(seqs, sizeof *b->seqs);
    b->work = mem_new((size_t)b->max_work, sizeof *b->work);
    b->adapters = mem_new(seqs, sizeof *b->adapters);
    b->row_adapters = mem_new(rows, sizeof *b->row_adapters);
    return b->tokens && b->positions && b->out_rows && b->seqs && b->work && b->adapters && b->row_adapters
               ? QUIRE_OK
               : QUIRE_NO_MEMORY;
}

/* Checks that the runner supports the model's layers. */
static quire_err model_runner_check_layers(const kv_layout *l, bool has_groups, quire_error *err) {
    bool alike = l->n_groups == 1 && l->groups[0].kind == LAYER_FULL;
    return alike || has_groups ? QUIRE_OK
                               : err_set(err, QUIRE_UNSUPPORTED, -1,
                                         "this experiment is for models whose layers all see everything");
}

static quire_err model_runner_open_model(const model_runner_options *o, model_file *f, model_runner *b,
                                         quire_error *err) {
    model_desc d;
    loaded_model loaded = {0};
    quire_options own = *o->engine;
    own.page_tokens = o->page_tokens;
    TRY(model_describe(f, &d, err));
    if (o->max_len > d.max_positions) {
        return err_set(err, QUIRE_INVALID, -1, "sequences of %d tokens: the model takes %d", (int)o->max_len,
                       (int)d.max_positions);
    }
    quire_err e = loaded_model_open(&own, f, &d, o->max_len, &loaded, err);
    b->b = loaded.b; /* model_runner_close frees both, even after a failure */
    b->m = loaded.m;
    b->layout = loaded.layout;
    TRY(e);
    b->desc = model_description(b->m);
    TRY(model_runner_check_layers(&b->layout, o->has_groups, err));
    b->slots = mem_new((size_t)b->max_rows, (size_t)b->layout.n_groups * sizeof *b->slots);
    TRY(mem_check_for(b->slots, "the passes", err));
    step_limits limits = {.max_rows = b->max_rows,
                          .max_seqs = b->max_seqs,
                          .max_out = b->max_out,
                          .max_adapters = o->max_adapters,
                          .max_rank = o->max_rank};
    TRY(b->b->ops->step_open(b->b, &limits, &b->layout, b->desc->n_vocab, err));
    int32_t n_pages = o->has_groups ? o->n_pages * b->layout.n_groups : o->n_pages;
    return n_pages > 0 ? b->b->ops->kv_open(b->b, n_pages, err) : QUIRE_OK;
}

quire_err model_runner_open(const model_runner_options *o, model_runner *out, quire_error *err) {
    *out =
        (model_runner){.max_rows = o->max_rows, .max_seqs = o->max_seqs, .n_threads = o->engine->n_threads};
    out->max_out = o->max_out > 0 ? o->max_out : o->max_seqs;
    model_file *f = NULL;
    quire_err e =
        err_set(err, model_runner_open_arrays(out), -1, "no memory for passes of %d rows", (int)o->max_rows);
    TRY_DONE(e, options_open_file(o->engine, &f, err));
    e = model_runner_open_model(o, f, out, err);
    model_file_close(f);
done:
    if (e != QUIRE_OK) {
        model_runner_close(out);
    }
    return e;
}

void model_runner_close(model_runner *b) {
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
    mem_free(b->adapters);
    mem_free(b->row_adapters);
    *b = (model_runner){0};
}

/* Sets the slots of a part's rows in the pages of one group. */
static void set_slots(const model_runner *b, const runner_part *p, const int32_t *pages, kv_slot *out) {
    int32_t page_tokens = b->layout.page_tokens;
    for (int32_t i = 0; i < p->n_rows; i++) {
        int32_t at = p->first + i;
        out[i] =
            (kv_slot){pages != NULL ? (int64_t)pages[at / page_tokens] * page_tokens + at % page_tokens : -1};
    }
}

/* The index of an adapter among those of the pass; -1: none. */
static int16_t runner_adapter_number(model_runner *b, const adapter *a) {
    int32_t i = 0;
    while (a != NULL && i < b->rows.n_adapters && b->adapters[i] != a) {
        i++;
    }
    if (a != NULL && i == b->rows.n_adapters) {
        b->adapters[b->rows.n_adapters++] = a;
    }
    return a != NULL ? (int16_t)i : -1;
}

static void model_runner_add_part(model_runner *b, const runner_part *p) {
    int32_t row0 = b->rows.n_rows;
    const int16_t number = runner_adapter_number(b, p->adapter);
    batch_seq *q = &b->seqs[b->rows.n_seqs++];
    *q = (batch_seq){
        .row0 = row0, .n_rows = p->n_rows, .n_tokens = p->first + p->n_rows, .two_sided = b->desc->two_sided};
    for (int32_t i = 0; i < p->n_rows; i++) {
        b->tokens[row0 + i] = p->tokens[p->first + i];
        b->positions[row0 + i] = p->first + i;
        b->row_adapters[row0 + i] = number;
    }
    for (int32_t g = 0; g < b->layout.n_groups; g++) {
        q->pages[g] = p->seq != NULL ? &p->seq->tables[g].pages->v : p->pages;
        if (b->rows.slots[g] != NULL) {
            set_slots(b, p, q->pages[g], b->slots + (int64_t)g * b->max_rows + row0);
        }
    }
    b->rows.n_rows += p->n_rows;
    for (int32_t i = p->n_logits; i > 0; i--) {
        b->out_rows[b->rows.n_out++] = b->rows.n_rows - i;
    }
}

quire_err model_runner_forward(model_runner *b, const runner_part *parts, int32_t n) {
    int64_t rows = 0, out = 0;
    for (int32_t i = 0; i < n; i++) {
        rows += parts[i].n_rows;
        out += parts[i].n_logits;
    }
    if (n > b->max_seqs || rows > b->max_rows || out > b->max_out) {
        return QUIRE_TOO_LARGE;
    }
    b->rows = (batch){.tokens = b->tokens,
                      .positions = b->positions,
                      .n_axes = 1,
                      .seqs = b->seqs,
                      .out_rows = b->out_rows,
                      .adapters = b->adapters,
                      .row_adapters = b->row_adapters,
                      .work = b->work};
    b->rows.wants_rows = b->desc->no_head;
    for (int32_t g = 0; g < b->layout.n_groups; g++) {
        bool has_tokens = b->layout.groups[g].kind != LAYER_STATE;
        b->rows.slots[g] = has_tokens ? b->slots + (int64_t)g * b->max_rows : NULL;
    }
    for (int32_t i = 0; i < n; i++) {
        model_runner_add_part(b, &parts[i]);
    }
    b->rows.n_work = batch_plan_work(b->seqs, n, TILE_ROWS, b->work, b->max_work);
    b->b->ops->enter(b->b);
    model_forward(b->m, &b->rows);
    b->b->ops->step_wait(b->b);
    b->b->ops->leave(b->b);
    return QUIRE_OK;
}

quire_err model_runner_prefill(model_runner *b, const int32_t *tokens, int32_t n, const int32_t *pages) {
    for (int32_t at = 0; at < n;) {
        int32_t rows = n - at < b->max_rows ? n - at : b->max_rows;
        runner_part p = {tokens, at, rows, pages, at + rows == n, NULL, NULL};
        TRY(model_runner_forward(b, &p, 1));
        at += rows;
    }
    return QUIRE_OK;
}

const float *model_runner_logits(const model_runner *b, int32_t i) {
    return b->b->ops->logits(b->b, i);
}

int32_t model_runner_greedy(const model_runner *b, int32_t i) {
    int32_t noted = b->b->ops->argmax != NULL ? b->b->ops->argmax(b->b, i) : -1;
    if (noted >= 0) {
        return noted;
    }
    const float *logits = model_runner_logits(b, i);
    int32_t best = 0;
    for (int32_t v = 1; v < b->desc->n_vocab; v++) {
        best = logits[v] > logits[best] ? v : best;
    }
    return best;
}

void model_runner_prompt(const model_runner *b, uint64_t seed, int32_t n, int32_t *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = 1 + (int32_t)(rng_next(&seed) % (uint64_t)(b->desc->n_vocab - 1));
    }
}

void model_runner_scatter(uint64_t seed, int32_t n, int32_t *pages) {
    for (int32_t i = 0; i < n; i++) {
        int32_t other = (int32_t)(rng_next(&seed) % (uint64_t)(i + 1));
        pages[i] = pages[other];
        pages[other] = i;
    }
}
