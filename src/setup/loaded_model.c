#include "setup/loaded_model.h"

#include "setup/engine_config.h"
#include "text/json_vocab.h"
#include "text/tables.h"

quire_err loaded_model_begin(const quire_options *o, const model_desc *d, loaded_model *out,
                             quire_error *err) {
    compute_mode compute;
    *out = (loaded_model){0};
    TRY(options_compute(o, d, &compute, err));
    backend_options b = {
        .compute = compute, .isa = o->isa, .n_threads = o->n_threads, .cpu_bind = o->cpu_bind};
    return backend_cpu_open(&b, &out->b, err);
}

quire_err loaded_model_load(loaded_model *l, const quire_options *o, model_file *f, packed_image *image,
                            int32_t max_len, quire_error *err) {
    TRY(image != NULL ? model_open_image(f, l->b, max_len, image, &l->m, err)
                      : model_open(f, l->b, max_len, &l->m, err));
    const kv_types kv = options_kv_types(o, model_description(l->m), l->b->compute);
    return kv_layout_init(model_description(l->m), kv, o->page_tokens, &l->layout, err);
}

quire_err loaded_model_open(const quire_options *o, model_file *f, const model_desc *d, int32_t max_len,
                            loaded_model *out, quire_error *err) {
    TRY(loaded_model_begin(o, d, out, err));
    return loaded_model_load(out, o, f, NULL, max_len, err);
}

void loaded_model_close(loaded_model *l) {
    model_close(l->m);
    if (l->b != NULL) {
        l->b->ops->close(l->b);
    }
    *l = (loaded_model){0};
}

quire_err image_metadata(packed_image *image, const model_file *f, const tokenizer *t, quire_error *err) {
    const vocab *v = model_file_vocab(f);
    strbuf tables = {0}, json = {0};
    quire_err e = t != NULL ? tables_write(t, &tables) : QUIRE_OK;
    if (e == QUIRE_OK && t != NULL && v->source == VOCAB_TOKENIZER_JSON) {
        e = json_vocab_strip(v->tokenizer_json, &json, err);
    }
    e = e != QUIRE_OK ? e : packed_image_metadata(image, f, (str){tables.p, tables.n}, (str){json.p, json.n});
    strbuf_deinit(&tables);
    strbuf_deinit(&json);
    return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory for the packed model") : e;
}
