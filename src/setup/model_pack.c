/* `quire pack`: writes a model as one file that is mapped instead of loaded. */
#include "file/packed.h"
#include "model/model.h"
#include "setup/engine_config.h"
#include "text/json_vocab.h"
#include "text/tables.h"

/* Writes the tokenizer's tables, and tokenizer.json without what they contain. Both stay empty where this build cannot use the vocabulary,
 * which is kept unchanged then. */
static quire_err write_tables(const vocab *v, strbuf *tables, strbuf *json, quire_error *err) {
    tokenizer *t;
    quire_error why = {0};
    quire_err e = tokenizer_open(v, &t, &why);
    if (e == QUIRE_NOT_FOUND || e == QUIRE_UNSUPPORTED) {
        return QUIRE_OK;
    }
    if (e != QUIRE_OK) {
        return err_set(err, e, why.position, "%s", why.message);
    }
    e = tables_write(t, tables);
    tokenizer_close(t);
    if (e == QUIRE_OK && v->source == VOCAB_TOKENIZER_JSON) {
        e = json_vocab_strip(v->tokenizer_json, json, err);
    }
    return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory for the vocabulary") : e;
}

static quire_err write_model(model_file *f, backend *b, packed_writer *w, quire_error *err) {
    strbuf tables = {0}, json = {0};
    quire_err e = model_pack(f, b, w, err);
    e = e != QUIRE_OK ? e : write_tables(model_file_vocab(f), &tables, &json, err);
    e = e != QUIRE_OK ? e : packed_writer_metadata(w, f, (str){tables.p, tables.n}, (str){json.p, json.n}, err);
    strbuf_deinit(&tables);
    strbuf_deinit(&json);
    return e;
}

static quire_err pack(const quire_options *o, model_file *f, const char *path, int64_t *n_bytes, quire_error *err) {
    model_desc d;
    compute_mode compute;
    backend *b;
    packed_writer *w;
    TRY(model_describe(f, &d, err));
    if (d.is_packed) {
        return err_set(err, QUIRE_INVALID, -1, "%s: is packed already; pack the model that it was made of", model_file_path(f));
    }
    TRY(options_compute(o, &d, &compute, err));
    backend_options bo = {.compute = compute, .isa = o->isa, .n_threads = o->n_threads};
    TRY(packed_writer_open(path, compute, &w, err));
    quire_err e = backend_cpu_open(&bo, &b, err);
    if (e == QUIRE_OK) {
        e = write_model(f, b, w, err);
        b->ops->close(b);
    }
    if (e != QUIRE_OK) {
        packed_writer_discard(w);
        return e;
    }
    return packed_writer_finish(w, n_bytes, err);
}

quire_err quire_pack(const quire_options *o, const char *path, int64_t *n_bytes, quire_error *err) {
    model_file *f;
    quire_options own;
    TRY(options_read(o, &own, err));
    TRY(options_open_file(&own, &f, err));
    quire_err e = pack(&own, f, path, n_bytes, err);
    model_file_close(f);
    return e;
}
