/* Texts to measure tokenizers on, made by drawing words: the same bytes on every
 * machine. */
#ifndef LAB_BENCH_TEXT_SAMPLES_H
#define LAB_BENCH_TEXT_SAMPLES_H

#include "base/str.h"

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

/* Appends some n_bytes of a kind, whole characters: English has few frequent words and
 * many rare ones (Zipf's law), with capitals, commas and numbers; code has indented lines
 * of C; Chinese has sentences of frequent and rare characters. QUIRE_NO_MEMORY. */
quire_err sample_make(sample_kind kind, size_t n_bytes, strbuf *out);

#endif
