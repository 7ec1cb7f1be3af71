/* What a tokenizer is made of. For the files of this room that build or run one, and for quire-check, which looks at single components. */
#ifndef TEXT_TOKENIZER_IMPL_H
#define TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/pipeline.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

/* text -> added tokens -> normalizer -> added tokens -> pre-tokenizer -> bpe -> post-processor -> ids -> decoder -> text.
 * Invariant: every id of the pairs, added tokens and templates is below vocab.n. */
struct tokenizer {
    piece_table vocab; /* names all ids; found by text are those that ordinary text may become */
    added_set added;
    normalizer normalizer;
    pretokenizer pretokenizer;
    bpe bpe;
    decoder decoder;
    postprocessor post;
    uint8_t *classes; /* [vocab.n] piece_class, or NULL: all normal */
    size_t max_bytes; /* of a text that one token may stand for; 0: not known, since characters may be deleted */
    int32_t bos, eos;
    strbuf bos_text, eos_text;
};

/* Fill *t, which is zero but for bos and eos -1; after a failure the caller closes it. */
quire_err tokenizer_load_gguf(tokenizer *t, const vocab *v, quire_error *err);
quire_err tokenizer_load_json(tokenizer *t, const vocab *v, quire_error *err);
/* The pre-tokenizer, and what goes with it, that a GGUF file names; QUIRE_UNSUPPORTED for a name that is not known. */
quire_err tokenizer_apply_pre(tokenizer *t, str pre, quire_error *err);

/* What max_bytes is, once all else is built. *max is 0 where it is not known. QUIRE_NO_MEMORY. */
quire_err tokenizer_find_max_bytes(const tokenizer *t, size_t *max);

/* A postprocessor that puts bos before and eos behind; -1: not. */
quire_err tokenizer_surround(tokenizer *t, int32_t bos, int32_t eos);

/* As the post-processor has it, without a look at what the ids begin with: one text, or two when pair is given. types (may be NULL) gets a
 * segment number for each id. Errors and state as tokenizer_encode. */
quire_err tokenizer_encode_pair(const tokenizer *t, str text, const str *pair, encode_special special, token_list *out, token_list *types,
                                quire_error *err);

/* What decode_add wants of an id: its text (of an added token as it was looked for, so perhaps normalized) and class. false: the id gives
 * nothing. */
bool tokenizer_decodes(const tokenizer *t, int32_t id, bool skip_special, str *text, piece_class *class);

#endif
