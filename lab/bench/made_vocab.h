/* Tokenizers of every kind, made from the pieces of one that is there: to measure and
 * test those that no model at hand has. */
#ifndef LAB_BENCH_MADE_VOCAB_H
#define LAB_BENCH_MADE_VOCAB_H

#include "text/tokenizer.h"

typedef enum made_kind {
    MADE_RANKS,
    MADE_SENTENCEPIECE,
    MADE_UNIGRAM,
    MADE_WORDPIECE,
    MADE_WORDLEVEL,
    N_MADE
} made_kind;

/* "ranks", "SentencePiece BPE", "Unigram", "WordPiece", "WordLevel". */
const char *made_name(made_kind kind);

/* Opens a tokenizer of the kind whose pieces are those of `from`, a byte-level
 * vocabulary; lower ids count as more frequent. Ranks, SentencePiece and Unigram have a
 * token for every byte, the others an unknown token. QUIRE_NO_MEMORY; errors of
 * tokenizer_open. */
quire_err made_open(made_kind kind, const tokenizer *from, tokenizer **out, quire_error *err);

#endif
