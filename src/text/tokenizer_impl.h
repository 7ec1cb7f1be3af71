/* The parts of a tokenizer, for the files of this room that build or run one, and for
 * quire-check, which tests single components. */
#ifndef TEXT_TOKENIZER_IMPL_H
#define TEXT_TOKENIZER_IMPL_H

#include "core/vocab.h"
#include "text/added.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/piece_model.h"
#include "text/pipeline.h"
#include "text/pretokenize.h"

/* text -> added tokens -> normalizer -> added tokens -> pre-tokenizer -> piece model ->
 * post-processor -> ids -> decoder -> text. Invariant: every id of the model, the added
 * tokens and the templates is below vocab.n. */
typedef struct tokenizer {
    piece_table vocab; /* has all ids; finds by text only those that plain text may become */
    added_set added;
    normalizer normalizer;
    pretokenizer pretokenizer;
    piece_model model;
    piece_trie symbols; /* SentencePiece's user-defined symbols */
    decoder decoder;
    postprocessor post;
    uint8_t *classes; /* [vocab.n] piece_class; NULL: all are normal */
    /* most bytes of text that one token may stand for; 0: unlimited, since characters may
     * be removed */
    size_t max_bytes;
    int32_t bos, eos;
    int32_t says_bos; /* add_bos_token in tokenizer_config.json: 0 or 1; -1: absent */
    int32_t start;    /* result of tokenizer_start; set when everything else is built */
    strbuf bos_text, eos_text;
    fim_marks fim; /* set when everything else is built */
} tokenizer;

/* These functions fill *t, which is zero except for bos and eos -1. After a failure, the
 * caller closes it. */
quire_err tokenizer_load_gguf(tokenizer *t, const vocab *v, quire_error *err);
quire_err tokenizer_load_json(tokenizer *t, const vocab *v, quire_error *err);
quire_err tokenizer_load_sentencepiece(tokenizer *t, const vocab *v, quire_error *err);
quire_err tokenizer_load_ranks(tokenizer *t, const vocab *v, quire_error *err);
quire_err tokenizer_load_tekken(tokenizer *t, const vocab *v, quire_error *err);
/* Whether a text begins with BOS: only if the file asks for it; unless the file forbids
 * it; always. */
typedef enum pre_start { PRE_AS_SAID, PRE_STARTS, PRE_ALWAYS_STARTS } pre_start;
/* Sets the pre-tokenizer and related options by the name in a GGUF file.
 * QUIRE_UNSUPPORTED for an unknown name. */
quire_err tokenizer_apply_pre(tokenizer *t, str pre, pre_start *start, quire_error *err);

/* Computes max_bytes when everything else is built; 0: unlimited. QUIRE_NO_MEMORY. */
quire_err tokenizer_find_max_bytes(const tokenizer *t, size_t *max);

/* Makes t put bos before and eos after a text; -1: none. QUIRE_NO_MEMORY. */
quire_err tokenizer_surround(tokenizer *t, int32_t bos, int32_t eos);

/* Finds what decode_add needs for an id: its text (for an added token its pattern,
 * perhaps normalized) and class. False if the id has no text. */
bool tokenizer_decodes(const tokenizer *t, int32_t id, bool skip_special, str *text, piece_class *class);

#endif
