#include "core/quant_matrix.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/half.h"
#include "core/quant.h"

#define STRETCH 256 /* codes decoded per pass */

static void quant_matrix_read_codes(const quant_matrix *m, size_t row, size_t i, size_t n, uint8_t *out) {
    static const uint8_t awq_shift[8] = {0, 16, 4, 20, 8, 24, 12, 28}; /* by row % 8 */
    size_t n_in = (size_t)m->n_in, at = row * n_in + i, high = m->place == CODES_NIBBLES_HIGH;
    uint32_t bits = (uint32_t)m->bits, used = 32 / bits * bits, shift = awq_shift[row % 8];
    quant_words words;
    switch (m->place) {
    case CODES_BYTES:
        memcpy(out, m->codes + at, n);
        break;
    case CODES_BYTES_DOWN:
        for (size_t k = 0; k < n; k++) {
            out[k] = m->codes[(i + k) * (size_t)m->n_rows + row];
        }
        break;
    case CODES_NIBBLES_DOWN:
        for (size_t k = 0; k < n; k++) {
            out[k] = m->codes[(i + k) / 2 * (size_t)m->n_rows + row] >> (i + k) % 2 * 4 & 15u;
        }
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

/* How many of the n elements from (row, i) on share a scale; *index: of that scale. */
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

/* The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, ties to the even code. */
static float to_e2m1(float x) {
    static const float values[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    float magnitude = fabsf(x);
    int code = 0;
    while (code < 7) {
        float middle = (values[code] + values[code + 1]) / 2.0f;
        if (magnitude < middle || (magnitude == middle && code % 2 == 0)) {
            break;
        }
        code++;
    }
    return copysignf(values[code], x);
}

/* The largest magnitude; NaN if any element is not finite. */
static float row_rounding_largest_of(const float *x, int32_t n) {
    float largest = 0.0f;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return NAN;
        }
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    return largest;
}

static float row_rounding_scale_of(const row_rounding *r, float largest) {
    const float most = r->to == ROUND_E4M3 ? 448.0f : 6.0f;
    int exponent;
    float fraction;
    switch (r->scale) {
    case ROUND_LARGEST:
        return largest / most;
    case ROUND_POWER:
        fraction = frexpf(largest, &exponent); /* `fraction` is in 0.5 .. 1 */
        return ldexpf(1.0f, exponent - 1 + (fraction >= 0.875f) - (r->to == ROUND_E4M3 ? 8 : 2));
    case ROUND_SCALED: {
        float scale = e4m3_to_f32(f32_to_e4m3(largest / most / r->fixed));
        return (scale == 0.0f ? r->least : scale) * r->fixed;
    }
    default:
        return r->fixed;
    }
}

static void row_rounding_round_group(const row_rounding *r, float *x, int32_t n) {
    float largest = row_rounding_largest_of(x, n),
          scale = largest > 0.0f ? row_rounding_scale_of(r, largest) : largest;
    for (int32_t i = 0; i < n; i++) {
        float q = scale > 0.0f ? x[i] / scale : scale;
        x[i] = (r->to == ROUND_E4M3 ? e4m3_to_f32(f32_to_e4m3(q)) : to_e2m1(q)) * scale;
    }
}

void row_round(const row_rounding *r, float *x, int32_t n) {
    assert(n >= 0);
    const int32_t group = r->group > 0 ? r->group : n;
    for (int32_t i = 0; i < n && r->to != ROUND_NOTHING; i += group) {
        row_rounding_round_group(r, x + i, n - i < group ? n - i : group);
    }
}
