#include "core/quant_matrix.h"

#include "core/float8.h"

static uint32_t word_at(const uint8_t *codes, size_t index) {
    const uint8_t *p = codes + 4 * index;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The code of input i in a column of words, `bits` each, of which some lie in two words. */
static uint32_t code_down(const quant_matrix *m, size_t row, size_t i) {
    size_t at = i * (size_t)m->bits, word = at / 32, stride = (size_t)m->n_rows;
    uint32_t shift = (uint32_t)(at % 32), code = word_at(m->codes, word * stride + row) >> shift;
    if (shift + (uint32_t)m->bits > 32) {
        code |= word_at(m->codes, (word + 1) * stride + row) << (32 - shift);
    }
    return code & ((1u << m->bits) - 1);
}

static uint32_t code_at(const quant_matrix *m, size_t row, size_t i) {
    static const uint8_t awq_shift[8] = {0, 16, 4, 20, 8, 24, 12, 28}; /* of row % 8 */
    size_t n_in = (size_t)m->n_in, at = row * n_in + i;
    switch (m->place) {
    case CODES_BYTES:
        return m->codes[at];
    case CODES_NIBBLES:
        return m->codes[at / 2] >> (at % 2 * 4) & 15u;
    case CODES_NIBBLES_HIGH:
        return m->codes[at / 2] >> ((at + 1) % 2 * 4) & 15u;
    case CODES_WORDS: {
        size_t a_word = 32 / (size_t)m->bits, words = (n_in + a_word - 1) / a_word;
        return word_at(m->codes, row * words + i / a_word) >> (i % a_word * (size_t)m->bits) & ((1u << m->bits) - 1);
    }
    case CODES_WORDS_DOWN:
        return code_down(m, row, i);
    default:
        return word_at(m->codes, i * ((size_t)m->n_rows / 8) + row / 8) >> awq_shift[row % 8] & 15u;
    }
}

uint32_t quant_matrix_code(const quant_matrix *m, int64_t row, int64_t i) {
    return code_at(m, (size_t)row, (size_t)i);
}

static float decode(const quant_matrix *m, uint32_t code, size_t scale) {
    switch (m->kind) {
    case CODE_E4M3:
        return e4m3_to_f32((uint8_t)code);
    case CODE_TABLE:
        return m->table[code];
    default:
        return (float)((int32_t)code - (m->zeros != NULL ? m->zeros[scale] : m->zero));
    }
}

/* The index of the scale of (row, i). */
static size_t scale_index(const quant_matrix *m, size_t row, size_t i) {
    size_t group = (size_t)m->group;
    if (m->runs_on) {
        return (row * (size_t)m->n_in + i) / group;
    }
    return row / (size_t)m->scale_rows * (size_t)m->n_groups + (m->group_of != NULL ? (size_t)m->group_of[i] : i / group);
}

void quant_matrix_read(const quant_matrix *m, int64_t r, int64_t i, int64_t n, float *out) {
    size_t row = (size_t)(m->first + r / m->block * m->step + r % m->block);
    for (size_t k = 0; k < (size_t)n; k++) {
        size_t at = (size_t)i + k, scale = scale_index(m, row, at);
        out[k] = decode(m, code_at(m, row, at), scale) * (m->scales[scale] * m->factor);
    }
}
