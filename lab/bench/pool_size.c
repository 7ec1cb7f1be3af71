#include "lab/bench/pool_size.h"

#include "api/quire_engine.h"
#include "base/err.h"
#include "setup/engine_config.h"

int64_t pool_size_sequence(const quire_options *o, const quire_engine *e, int64_t n_tokens) {
    const loaded_model *l = &e->parts.model;
    kv_most most =
        options_most_pages(o, model_description(l->m), &l->layout, quire_engine_info(e)->max_batched_tokens);
    return kv_most_pages(&most, n_tokens);
}

int64_t pool_size_tokens(const quire_info *i) {
    return (int64_t)(i->n_pages / i->n_page_groups) * i->page_tokens;
}

/* The pages of one sequence of n_tokens, and how many groups the model has. */
typedef struct needs {
    int64_t n_pages;
    int32_t n_groups;
} needs;

static quire_err needs_of(const quire_options *o, const model_file *f, int64_t n_tokens, needs *out,
                          quire_error *err) {
    model_desc d;
    kv_layout layout;
    compute_mode compute;
    TRY(model_describe(f, &d, err));
    TRY(options_compute(o, &d, &compute, err));
    const kv_types types = options_kv_types(o, &d, compute);
    TRY(kv_layout_init(&d, types, o->page_tokens, &layout, err));
    int32_t longest = o->max_model_len > 0 ? o->max_model_len : d.max_positions;
    kv_most most = options_most_pages(o, &d, &layout, options_max_rows(o, longest));
    *out = (needs){kv_most_pages(&most, n_tokens), layout.n_groups};
    return QUIRE_OK;
}

static quire_err read_needs(const quire_options *o, int64_t n_tokens, needs *out, quire_error *err) {
    model_file *f = NULL;
    TRY(options_open_file(o, &f, err));
    quire_err e = needs_of(o, f, n_tokens, out, err);
    model_file_close(f);
    return e;
}

/* times: at least 1. */
static quire_err multiply(const char *flags, int64_t n_pages, int64_t times, int32_t *out, quire_error *err) {
    if (n_pages > INT32_MAX / times) {
        return err_set(err, QUIRE_INVALID, -1, "%s: takes %lld times %lld pages; a pool has at most %d",
                       flags, (long long)times, (long long)n_pages, INT32_MAX);
    }
    *out = (int32_t)(n_pages * times);
    return QUIRE_OK;
}

quire_err pool_size_sequences(const quire_options *o, const char *flags, int64_t n_seqs, int64_t n_tokens,
                              int32_t *out, quire_error *err) {
    needs one;
    TRY(read_needs(o, n_tokens, &one, err));
    return multiply(flags, one.n_pages, n_seqs, out, err);
}

quire_err pool_size_groups(const quire_options *o, const char *flags, int64_t n_pages, int32_t *out,
                           quire_error *err) {
    needs one;
    TRY(read_needs(o, 1, &one, err));
    return multiply(flags, n_pages, one.n_groups, out, err);
}
