/* Checks the data of packed models, block by block. */
#include "file/checksum.h"
#include "file/open_file.h"
#include "file/packed.h"

static uint64_t packed_check_word_at(str section, size_t i) {
    uint64_t word;
    memcpy(&word, section.p + i * sizeof word, sizeof word);
    return word;
}

int32_t packed_n_blocks(const model_file *f) {
    str s = packed_section(f, PACKED_CHECKSUMS);
    if (s.n < 3 * sizeof(uint64_t) || s.n % sizeof(uint64_t) != 0 || s.n / sizeof(uint64_t) > INT32_MAX) {
        return 0;
    }
    uint64_t n = s.n / sizeof(uint64_t) - 2, end = packed_check_word_at(s, 0),
             at = (uint64_t)(s.p - (const char *)f->whole.p);
    bool fits =
        end > PACKED_ALIGN && end <= at && n == (end - PACKED_ALIGN + PACKED_BLOCK - 1) / PACKED_BLOCK;
    return fits && checksum(s.p, s.n - sizeof(uint64_t)) == packed_check_word_at(s, (size_t)n + 1)
               ? (int32_t)n
               : 0;
}

bool packed_block_is_whole(const model_file *f, int32_t block) {
    str s = packed_section(f, PACKED_CHECKSUMS);
    uint64_t from = PACKED_ALIGN + (uint64_t)block * PACKED_BLOCK, end = packed_check_word_at(s, 0);
    size_t n = (size_t)(end - from < PACKED_BLOCK ? end - from : PACKED_BLOCK);
    return checksum((const uint8_t *)f->whole.p + from, n) == packed_check_word_at(s, (size_t)block + 1);
}
