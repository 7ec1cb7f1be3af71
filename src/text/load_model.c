/* Loads SentencePiece's .model files, with the tokens that tokenizer_config.json adds. */
#include "base/mem.h"
#include "base/utf8.h"
#include "text/model_build.h"
#include "text/sp_model.h"
#include "json/json.h"

#define MAX_ADDED 65536 /* ids after those of the file */

/* Adds a token after the file's own; ids between are unused. A symbol of the file's that
 * is special here is a control token. */
static quire_err load_model_add_token(sp_model *m, size_t n_own, int64_t id, str text, bool special) {
    if (id < (int64_t)n_own && special && m->pieces[id].type == VOCAB_USER_DEFINED &&
        str_eq(m->pieces[id].text, text)) {
        m->pieces[id].type = VOCAB_CONTROL;
    }
    if (id < (int64_t)n_own || text.n == 0) {
        return QUIRE_OK;
    }
    if (id >= (int64_t)(n_own + MAX_ADDED) || !utf8_is_valid(text)) {
        return QUIRE_BAD_FILE;
    }
    while ((int64_t)m->n <= id) {
        TRY(mem_grow(&m->pieces, &m->cap, m->n + 1, sizeof *m->pieces));
        m->pieces[m->n++] = (sp_piece){.text = {"", 0}, .type = VOCAB_UNUSED};
    }
    m->pieces[id] = (sp_piece){.text = text, .type = special ? VOCAB_CONTROL : VOCAB_USER_DEFINED};
    return QUIRE_OK;
}

/* Their ids are shifted against those of the file, as each class does in its own way. */
static quire_err check_class(json_value *config, quire_error *err) {
    static const char *const shifted[] = {"XLMRoberta",    "Camembert", "BarthezTokenizer", "MBart",
                                          "NllbTokenizer", "XGLM",      "M2M100",           "SpeechT5"};
    str name = json_get_str(config, "tokenizer_class");
    for (size_t i = 0; i < sizeof shifted / sizeof *shifted; i++) {
        if (str_begins(name, shifted[i])) {
            return err_set(err, QUIRE_UNSUPPORTED, -1,
                           "tokenizer.model: %.*s gives its pieces other ids than the file; convert it to a "
                           "tokenizer.json",
                           (int)name.n, name.p);
        }
    }
    return QUIRE_OK;
}

static quire_err load_model_load(tokenizer *t, const vocab *v, json_value *config, sp_model *m,
                                 quire_error *err) {
    TRY(check_class(config, err));
    TRY(sp_model_read(m, v->model_bytes, err));
    size_t n_own = m->n;
    for (json_member o = {0}; json_next(json_get(config, "added_tokens_decoder"), &o);) {
        int64_t id;
        quire_err e = config_token_id(o.name, &id)
                          ? load_model_add_token(m, n_own, id, json_get_str(o.value, "content"),
                                                 json_get_bool(o.value, "special", false))
                          : QUIRE_OK;
        TRY(e == QUIRE_BAD_FILE
                ? err_set(err, e, -1, "tokenizer_config.json: the added token %.20s is malformed", o.name)
                : e);
    }
    TRY(sp_model_build(m, v->tables, t, err));
    str bos = config_special(config, "bos_token"), eos = config_special(config, "eos_token");
    int32_t bos_id = bos.n > 0 ? added_set_find(&t->added, bos) : -1,
            eos_id = eos.n > 0 ? added_set_find(&t->added, eos) : -1;
    bool starts = m->kind == SP_BPE; /* Llama's and Gemma's texts begin with bos; T5's end with eos */
    return config_surround(t, config, bos_id >= 0 ? bos_id : m->bos, eos_id >= 0 ? eos_id : m->eos, starts,
                           m->kind == SP_UNIGRAM && m->bos < 0);
}

quire_err tokenizer_load_sentencepiece(tokenizer *t, const vocab *v, quire_error *err) {
    sp_model m;
    json_value *config = json_model_document(v->tokenizer_config_json);
    sp_model_init(&m, "tokenizer.model");
    quire_err e = load_model_load(t, v, config, &m, err);
    sp_model_deinit(&m);
    json_drop(config);
    return e;
}
