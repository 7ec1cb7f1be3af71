/* Opens a draft model for another model. */
#ifndef TESTS_ENGINE_SECOND_MODEL_H
#define TESTS_ENGINE_SECOND_MODEL_H

#include "harness.h"
#include "spec/draft.h"

/* An open draft model. */
typedef struct second {
    backend *b;
    model *m;
    kv_layout layout;
} second;

static inline draft_options second_open(second *x, const char *path, compute_mode compute, int32_t n_pages) {
    quire_error err = {0};
    model_file *f;
    backend_options bo = {.compute = compute, .isa = "auto", .n_threads = 1};
    step_limits limits = {.max_rows = 512, .max_seqs = 16, .max_out = 16};
    assert_int_equal(model_file_open(path, &f, &err), QUIRE_OK);
    assert_int_equal(backend_cpu_open(&bo, &x->b, &err), QUIRE_OK);
    assert_int_equal(model_open(f, x->b, 2048, &x->m, &err), QUIRE_OK);
    model_file_close(f);
    assert_int_equal(kv_layout_init(model_description(x->m), kv_both(DTYPE_F32), 16, &x->layout, &err),
                     QUIRE_OK);
    assert_int_equal(x->b->ops->step_open(x->b, &limits, &x->layout, model_description(x->m)->n_vocab, &err),
                     QUIRE_OK);
    assert_int_equal(x->b->ops->kv_open(x->b, n_pages, &err), QUIRE_OK);
    return (draft_options){
        .method = DRAFT_METHOD_MODEL, .n_tokens = 4, .model = {x->m, x->b, &x->layout, n_pages, 2048, NULL}};
}

static inline void second_close(second *x) {
    model_close(x->m);
    x->b->ops->close(x->b);
}

#endif
