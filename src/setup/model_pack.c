/* `quire pack`: writes a model as one file that is mapped instead of loaded. */
#include "file/packed_image.h"
#include "model/model.h"
#include "setup/engine_config.h"
#include "setup/loaded_model.h"

static quire_err model_pack_no_memory(quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the packed model");
}

/* Adds the metadata, with the tokenizer's tables where this build can use the
 * vocabulary. */
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

/* Loads the model into b and writes it. */
static quire_err model_pack_write_model(model_file *f, backend *b, packed_image *image, const char *path,
                                        quire_error *err) {
    packed_writer *w;
    model *m = NULL;
    TRY(packed_writer_open(path, &w, err)); /* before the time is spent */
    quire_err e = model_open_image(f, b, 1, image, &m, err);
    e = e != QUIRE_OK ? e : add_metadata(image, f, err);
    if (e == QUIRE_OK && packed_image_finish(image) != QUIRE_OK) {
        e = model_pack_no_memory(err);
    }
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
        return err_set(err, QUIRE_INVALID, -1, "%s: is packed already; pack the model that it was made of",
                       model_file_path(f));
    }
    TRY(options_compute(o, &d, &compute, err));
    if (compute == COMPUTE_FP8) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--compute fp8 checks a checkpoint, and packs none: pack it for f32, bf16 or int8");
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
