#include "setup/model_image.h"

#include "text/json_vocab.h"
#include "text/tables.h"

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
