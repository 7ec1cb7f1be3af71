/* Codes of a few bits that are packed into words, as quantised checkpoints keep weights
 * and zero points. */
#ifndef CORE_QUANT_WORDS_H
#define CORE_QUANT_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* A column of little-endian u32, `stride` words apart. The lowest `used` bits of each
 * hold codes of `bits` (1 to 8), which run on from word to word, the first in the lowest
 * bits. Borrowed; needs no alignment. */
typedef struct quant_words {
    const uint8_t *words;
    size_t stride;
    uint32_t bits, used;
} quant_words;

/* The word at index, in words. */
static inline uint32_t quant_word(const uint8_t *words, size_t index) {
    const uint8_t *p = words + 4 * index;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* out[0..n) = codes i .. i + n. Reads no word that holds none of them. */
void quant_words_read(const quant_words *w, size_t i, size_t n, uint8_t *out);

#endif
