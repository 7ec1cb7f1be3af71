#include "setup/loaded_model.h"

#include "setup/engine_config.h"

quire_err loaded_model_open(const quire_options *o, model_file *f, const model_desc *d, int32_t max_len, loaded_model *out,
                            quire_error *err) {
    compute_mode compute;
    dtype kv;
    *out = (loaded_model){0};
    TRY(options_compute(o, d, &compute, err));
    TRY(options_kv_dtype(o, compute, &kv, err));
    backend_options b = {.compute = compute, .isa = o->isa, .n_threads = o->n_threads, .cpu_bind = o->cpu_bind};
    TRY(backend_cpu_open(&b, &out->b, err));
    TRY(model_open(f, out->b, max_len, &out->m, err));
    return kv_layout_init(model_description(out->m), kv, o->page_tokens, &out->layout, err);
}

void loaded_model_close(loaded_model *l) {
    model_close(l->m);
    if (l->b != NULL) {
        l->b->ops->close(l->b);
    }
    *l = (loaded_model){0};
}
