#include "setup/loaded_model.h"

#include <assert.h>

#include "file/packed_image.h"
#include "model/model.h"
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
    assert(max_len >= 0);
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
    assert(l != NULL);
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
    TRY_DONE(e, packed_image_metadata(image, f, (str){tables.p, tables.n}, (str){json.p, json.n}));
done:
    strbuf_deinit(&tables);
    strbuf_deinit(&json);
    return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory for the packed model") : e;
}

/* ---- packing ---- */

static quire_err model_pack_no_memory(quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the packed model");
}

/* Adds f's metadata, with the tokenizer's tables if this build can use the vocabulary. */
static quire_err add_metadata(packed_image *image, const model_file *f, quire_error *err) {
    tokenizer *t = NULL;
    quire_error why = {0};
    quire_err e = tokenizer_open(model_file_vocab(f), &t, &why);
    if (e != QUIRE_OK && e != QUIRE_NOT_FOUND && e != QUIRE_UNSUPPORTED) {
        return err_set(err, e, why.position, "%s", why.message);
    }
    e = image_metadata(image, f, t, err);
    tokenizer_close(t);
    return e;
}

/* Loads the model into b and writes its packed form to path. */
static quire_err model_pack_write_model(model_file *f, backend *b, packed_image *image, const char *path,
                                        quire_error *err) {
    packed_writer *w;
    model *m = NULL;
    /* opened first, so that an error comes before the time for loading is spent */
    TRY(packed_writer_open(path, &w, err));
    quire_err e = model_open_image(f, b, 1, image, &m, err);
    TRY_DONE(e, add_metadata(image, f, err));
    if (packed_image_finish(image) != QUIRE_OK) {
        e = model_pack_no_memory(err);
    }
done:
    if (e == QUIRE_OK) {
        e = packed_writer_finish(w, image, err);
    } else {
        packed_writer_discard(w);
    }
    model_close(m);
    return e;
}

static quire_err model_pack_do(const quire_options *o, model_file *f, const char *path, int64_t *n_bytes,
                               quire_error *err) {
    model_desc d;
    compute_mode compute;
    backend *b;
    packed_image *image;
    TRY(model_describe(f, &d, err));
    if (d.is_packed) {
        return err_set(err, QUIRE_INVALID, -1, "%s: is packed already; pack the original model",
                       model_file_path(f));
    }
    TRY(options_compute(o, &d, &compute, err));
    if (compute == COMPUTE_FP8) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "--compute fp8 is for checking checkpoints and cannot be packed: pack for f32, bf16 or int8");
    }
    if (packed_image_open(compute, &image) != QUIRE_OK) {
        return model_pack_no_memory(err);
    }
    backend_options bo = {.compute = compute, .isa = o->isa, .n_threads = o->n_threads};
    quire_err e = backend_cpu_open(&bo, &b, err);
    if (e == QUIRE_OK) {
        e = model_pack_write_model(f, b, image, path, err);
        *n_bytes = (int64_t)packed_image_bytes(image);
        b->ops->close(b);
    }
    packed_image_close(image);
    return e;
}

quire_err quire_pack(const quire_options *o, const char *path, int64_t *n_bytes, quire_error *err) {
    model_file *f;
    quire_options own;
    TRY(options_read(o, &own, err));
    TRY(options_open_file(&own, &f, err));
    quire_err e = model_pack_do(&own, f, path, n_bytes, err);
    model_file_close(f);
    return e;
}
