#include "core/quant_matrix.h"

#include <string.h>

#include "core/float8.h"
#include "core/quant.h"

#define STRETCH 256 /* codes that are decoded at a time */

/* ---- codes ---- */

static void quant_matrix_read_codes(const quant_matrix *m, size_t row, size_t i, size_t n, uint8_t *out) {
    static const uint8_t awq_shift[8] = {0, 16, 4, 20, 8, 24, 12, 28}; /* of row % 8 */
    size_t n_in = (size_t)m->n_in, at = row * n_in + i, high = m->place == CODES_NIBBLES_HIGH;
    uint32_t bits = (uint32_t)m->bits, used = 32 / bits * bits, shift = awq_shift[row % 8];
    quant_words words;
    switch (m->place) {
    case CODES_BYTES:
        memcpy(out, m->codes + at, n);
        break;
    case CODES_NIBBLES:
    case CODES_NIBBLES_HIGH:
        for (size_t k = 0; k < n; k++) {
            out[k] = m->codes[(at + k) / 2] >> ((at + k + high) % 2 * 4) & 15u;
        }
        break;
    case CODES_WORDS:
        words = (quant_words){m->codes + 4 * row * ((n_in * bits + used - 1) / used), 1, bits, used};
        quant_words_read(&words, i, n, out);
        break;
    case CODES_WORDS_DOWN:
        words = (quant_words){m->codes + 4 * row, (size_t)m->n_rows, bits, 32};
        quant_words_read(&words, i, n, out);
        break;
    default:
        for (size_t k = 0; k < n; k++) {
            out[k] = quant_word(m->codes, (i + k) * ((size_t)m->n_rows / 8) + row / 8) >> shift & 15u;
        }
    }
}

uint32_t quant_matrix_code(const quant_matrix *m, int64_t row, int64_t i) {
    uint8_t code;
    quant_matrix_read_codes(m, (size_t)row, (size_t)i, 1, &code);
    return code;
}

void quant_matrix_codes(const quant_matrix *m, int64_t r, int64_t i, int64_t n, uint8_t *out) {
    quant_matrix_read_codes(m, (size_t)quant_matrix_row(m, r), (size_t)i, (size_t)n, out);
}

/* ---- values ---- */

/* How many of the n elements from (row, i) on share a scale, and its index. */
static size_t find_scale(const quant_matrix *m, size_t row, size_t i, size_t n, size_t *index) {
    size_t group = (size_t)m->group, at = m->runs_on ? row * (size_t)m->n_in + i : i,
           left = group - at % group;
    *index = m->runs_on ? at / group
                        : row / (size_t)m->scale_rows * (size_t)m->n_groups +
                              (m->group_of != NULL ? (size_t)m->group_of[i] : i / group);
    return m->group_of != NULL ? 1 : left < n ? left : n;
}

static void quant_matrix_decode(const quant_matrix *m, const uint8_t *codes, size_t n, int32_t zero,
                                float scale, float *out) {
    for (size_t k = 0; k < n && m->kind == CODE_INTEGER; k++) {
        out[k] = (float)((int32_t)codes[k] - zero) * scale;
    }
    for (size_t k = 0; k < n && m->kind == CODE_E4M3; k++) {
        out[k] = e4m3_to_f32(codes[k]) * scale;
    }
    for (size_t k = 0; k < n && m->kind == CODE_TABLE; k++) {
        out[k] = m->table[codes[k]] * scale;
    }
}

void quant_matrix_read(const quant_matrix *m, int64_t r, int64_t i, int64_t n, float *out) {
    size_t row = (size_t)quant_matrix_row(m, r), end = (size_t)(i + n);
    uint8_t codes[STRETCH];
    for (size_t from = (size_t)i; from < end; from += STRETCH) {
        size_t count = end - from < STRETCH ? end - from : STRETCH, index;
        quant_matrix_read_codes(m, row, from, count, codes);
        for (size_t k = 0, run; k < count; k += run) {
            run = find_scale(m, row, from + k, count - k, &index);
            int32_t zero = m->zeros != NULL ? m->zeros[index] : m->zero;
            quant_matrix_decode(m, codes + k, run, zero, m->scales[index] * m->factor,
                                out + (from - (size_t)i) + k);
        }
    }
}
