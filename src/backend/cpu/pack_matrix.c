#include "backend/cpu/pack_matrix.h"

#include <math.h>
#include <string.h>

#include "core/float8.h"
#include "core/half.h"

static size_t n_scales(const quant_matrix *m) {
    return (size_t)((m->n_rows + m->scale_rows - 1) / m->scale_rows) * (size_t)m->n_groups;
}

static bool is_half(float v) {
    return f16_to_f32(f32_to_f16(v)) == v;
}

/* The power of two by which all scales become halves: 1 where they are, else the one that makes the largest of the size of the largest
 * half. 0: none does. */
static float find_power(const quant_matrix *m) {
    const size_t n = n_scales(m);
    float largest = 0.0f;
    bool plain = true;
    for (size_t i = 0; i < n; i++) {
        largest = fabsf(m->scales[i]) > largest ? fabsf(m->scales[i]) : largest;
        plain = plain && is_half(m->scales[i]);
    }
    if (plain || !isfinite(largest)) {
        return plain ? 1.0f : 0.0f;
    }
    int exponent;
    (void)frexpf(largest, &exponent);
    const float power = ldexpf(1.0f, 15 - exponent);
    bool fits = isfinite(power) && power > 0.0f && isfinite(1.0f / power);
    for (size_t i = 0; i < n && fits; i++) {
        fits = is_half(m->scales[i] * power);
    }
    return fits ? power : 0.0f;
}

static bool zeros_fit(const quant_matrix *m) {
    const size_t n = n_scales(m);
    const int32_t most = (1 << m->bits) - 1;
    bool fit = m->zeros != NULL || m->zero == 1 << (m->bits - 1);
    for (size_t i = 0; i < n && fit && m->zeros != NULL; i++) {
        fit = m->zeros[i] >= 0 && m->zeros[i] <= most;
    }
    return fit;
}

static bool plan_integers(const quant_matrix *m, int32_t n_in, matrix_plan *out) {
    const int32_t group = m->group >= n_in ? 0 : m->group;
    if (m->scale_rows != 1 || pack_integers(m->bits, group, m->zeros != NULL, &out->rule) != QUIRE_OK || !zeros_fit(m)) {
        return false;
    }
    out->scale_by = find_power(m);
    out->factor = m->factor / (out->scale_by != 0.0f ? out->scale_by : 1.0f);
    return out->scale_by != 0.0f;
}

/* E2M1 by its table: doubled, its values are those of TABLE_E2M1. */
static bool is_e2m1(const quant_matrix *m) {
    for (int i = 0; i < 16; i++) {
        if (m->table[i] * 2.0f != (float)quant_tables[TABLE_E2M1][i]) {
            return false;
        }
    }
    return m->bits == 4 && m->scale_rows == 1;
}

/* Whether each scale comes back from its byte. */
static bool scales_are(const quant_matrix *m, quant_scale coding) {
    const size_t n = n_scales(m);
    bool are = true;
    for (size_t i = 0; i < n && are; i++) {
        int exponent;
        bool is_power = m->scales[i] > 0.0f && frexpf(m->scales[i], &exponent) == 0.5f;
        bool is_e4m3 = m->scales[i] >= 0.0f && e4m3_to_f32(f32_to_e4m3(m->scales[i])) == m->scales[i] && !signbit(m->scales[i]);
        are = coding == SCALE_E8M0 ? is_power : is_e4m3;
    }
    return are;
}

static bool plan_fours(const quant_matrix *m, matrix_plan *out) {
    const bool is_mx = m->group == 32;
    out->rule = (quant_rule){.form = is_mx ? FORM_T4_E8M0 : FORM_T4_E4M3, .table = TABLE_E2M1, .unit = 1.0f};
    out->scale_by = 1.0f;
    out->factor = m->factor;
    return (is_mx || m->group == 16) && is_e2m1(m) && scales_are(m, is_mx ? SCALE_E8M0 : SCALE_E4M3);
}

bool pack_matrix_plan(const quant_matrix *m, int32_t n_in, matrix_plan *out) {
    out->m = m;
    if (n_in % PACK_GROUP != 0 || m->group_of != NULL || m->runs_on || !isfinite(m->factor)) {
        return false;
    }
    return m->kind == CODE_INTEGER ? plan_integers(m, n_in, out) : m->kind == CODE_TABLE && plan_fours(m, out);
}

static void put_scale(const matrix_plan *p, size_t scale, int32_t at, quant_codes *out) {
    const quant_matrix *m = p->m;
    const float value = m->scales[scale];
    int exponent;
    switch (quant_formats[p->rule.form].coding) {
    case SCALE_E8M0:
        (void)frexpf(value, &exponent); /* 2^(exponent - 1) */
        out->scale[at / 32] = (uint8_t)(exponent + 126);
        break;
    case SCALE_E4M3:
        out->scale[at / 16] = f32_to_e4m3(value);
        break;
    default:
        out->d[at / 32] = f32_to_f16(value * p->scale_by);
        out->zero[at / 32] = m->zeros != NULL ? (uint8_t)(m->bits == 8 ? m->zeros[scale] - 128 : m->zeros[scale]) : 0;
    }
}

void pack_matrix_read(const void *plan, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    const matrix_plan *p = plan;
    const quant_matrix *m = p->m;
    const int32_t step = m->group == 16 ? 16 : PACK_GROUP;
    const size_t first = (size_t)quant_matrix_row(m, row) * (size_t)m->n_groups;
    quant_matrix_codes(m, row, k, n, out->q);
    for (int32_t i = 0; i < n && m->kind == CODE_INTEGER && m->bits == 8; i++) {
        out->q[i] ^= 0x80; /* minus 128, as a signed byte */
    }
    for (int32_t i = 0; i < n; i += step) {
        put_scale(p, first + (size_t)((k + i) / m->group), i, out);
    }
}
