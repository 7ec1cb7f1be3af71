#include "core/quant_words.h"

void quant_words_read(const quant_words *w, size_t i, size_t n, uint8_t *out) {
    size_t at = i * w->bits, index = at / w->used;
    uint32_t skipped = (uint32_t)(at % w->used), left = 0, bits = w->bits, mask = (1u << bits) - 1;
    uint64_t have = 0;
    for (size_t k = 0; k < n; k++) {
        while (left < bits) { /* twice for a first code that lies in two words */
            uint64_t word = quant_word(w->words, index * w->stride) & UINT32_MAX >> (32 - w->used);
            have |= word >> skipped << left;
            left += w->used - skipped;
            skipped = 0;
            index++;
        }
        out[k] = (uint8_t)(have & mask);
        have >>= bits;
        left -= bits;
    }
}
