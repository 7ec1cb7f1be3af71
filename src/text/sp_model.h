/* A SentencePiece model (Kudo & Richardson 2018, arXiv:1808.06226), as a .model file or a
 * GGUF file's metadata describe it, and the tokenizer built from it. */
#ifndef TEXT_SP_MODEL_H
#define TEXT_SP_MODEL_H

#include "text/tokenizer_impl.h"

typedef enum sp_kind { SP_UNIGRAM = 1, SP_BPE, SP_WORD, SP_CHAR } sp_kind; /* numbers as in the file */

typedef struct sp_piece {
    str text;
    float score;
    vocab_type type;
} sp_piece;

typedef struct sp_model {
    sp_kind kind;
    sp_piece *pieces; /* owned; their texts are borrowed */
    size_t n, cap;
    bool byte_fallback, suffix, dummy_prefix, remove_extra, escape;
    str charsmap, unk_surface;  /* borrowed; unk_surface: text of an unknown token */
    str names[4];               /* names of bos, eos, unk, pad; borrowed */
    int32_t bos, eos, unk, pad; /* -1: none */
    const char *file;           /* name of the file for messages */
} sp_model;

/* Sets sentencepiece's defaults. */
void sp_model_init(sp_model *m, const char *file);
void sp_model_deinit(sp_model *m);
/* Builds *t, except for its post-processor, bos and eos. tables: from a packed model, or
 * empty. */
quire_err sp_model_build(const sp_model *m, str tables, tokenizer *t, quire_error *err);

#endif
