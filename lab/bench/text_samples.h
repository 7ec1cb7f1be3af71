/* Texts for measuring tokenizers, made by drawing words: the same bytes on every
 * machine. */
#ifndef LAB_BENCH_TEXT_SAMPLES_H
#define LAB_BENCH_TEXT_SAMPLES_H

#include "base/str.h"
#include "text/tokenizer.h"

typedef enum sample_kind {
    SAMPLE_ENGLISH,
    SAMPLE_CODE,
    SAMPLE_CHINESE,
    SAMPLE_LETTER,
    SAMPLE_SPACE,
    N_SAMPLES
} sample_kind;

/* "English", "code", "Chinese", "one letter", "white space". */
const char *sample_name(sample_kind kind);

/* Appends about n_bytes of a kind, in whole characters. English has few frequent words
 * and many rare ones (Zipf's law), with capitals, commas and numbers; code has indented
 * lines of C; Chinese has sentences of frequent and rare characters. QUIRE_NO_MEMORY. */
quire_err sample_make(sample_kind kind, size_t n_bytes, strbuf *out);

/* Tokenizers of every kind, made from the pieces of an existing one: to measure and test
 * kinds for which no model is at hand. */

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

/* Opens a tokenizer of a kind with the pieces of `from`, a byte-level vocabulary; lower
 * ids count as more frequent. Ranks, SentencePiece and Unigram have a token for every
 * byte, the others an unknown token. QUIRE_NO_MEMORY; errors of tokenizer_open. */
quire_err made_open(made_kind kind, const tokenizer *from, tokenizer **out, quire_error *err);

#endif
