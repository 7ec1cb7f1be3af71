#include "backend/cpu/pack_matrix.h"

#include <math.h>

#include "base/mem.h"
#include "core/half.h"

static size_t n_scales(const quant_matrix *m) {
    return (size_t)((m->n_rows + m->scale_rows - 1) / m->scale_rows) * (size_t)m->n_groups;
}

static bool is_half(float v) {
    return f16_to_f32(f32_to_f16(v)) == v;
}

/* The power of two that makes all scales exact f16: 1 if they are already, else the one
 * that scales the largest to the exponent of the largest f16. 0: none. */
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

/* Whether the zeros fit their bits as stored or each less 1 (GPTQ's zeros start at 1). */
static bool zeros_fit(const quant_matrix *m, int32_t *least) {
    const size_t n = n_scales(m);
    const int32_t most = (1 << pack_zero_bits(m->bits)) - 1;
    int32_t low = INT16_MAX, high = 0;
    for (size_t i = 0; i < n && m->zeros != NULL; i++) {
        low = m->zeros[i] < low ? m->zeros[i] : low;
        high = m->zeros[i] > high ? m->zeros[i] : high;
    }
    *least = high > most;
    return m->zeros != NULL ? low >= *least && high <= most + *least : m->zero == 1 << (m->bits - 1);
}

static bool plan_integers(const quant_matrix *m, int32_t n_in, matrix_plan *out) {
    const int32_t group = m->group >= n_in ? 0 : m->group;
    if (m->scale_rows != 1 || pack_integers(m->bits, group, m->zeros != NULL, &out->rule) != QUIRE_OK ||
        !zeros_fit(m, &out->rule.least)) {
        return false;
    }
    out->scale_by = find_power(m);
    out->factor = m->factor / (out->scale_by != 0.0f ? out->scale_by : 1.0f);
    return out->scale_by != 0.0f;
}

/* Whether the table is E2M1: doubled, its values are those of TABLE_E2M1. */
static bool is_e2m1(const quant_matrix *m) {
    for (int i = 0; i < 16; i++) {
        if (m->table[i] * 2.0f != (float)quant_tables[TABLE_E2M1][i]) {
            return false;
        }
    }
    return m->bits == 4 && m->scale_rows == 1;
}

/* Whether each scale is exactly represented by its byte. */
static bool scales_are(const quant_matrix *m, quant_scale coding) {
    const size_t n = n_scales(m);
    bool are = true;
    for (size_t i = 0; i < n && are; i++) {
        int exponent;
        bool is_power = m->scales[i] > 0.0f && frexpf(m->scales[i], &exponent) == 0.5f;
        bool is_e4m3 = m->scales[i] >= 0.0f && e4m3_to_f32(f32_to_e4m3(m->scales[i])) == m->scales[i] &&
                       !signbit(m->scales[i]);
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

/* ---- floats with scales ---- */

/* The index of a row's first scale. */
static size_t first_scale(const quant_matrix *m, int32_t row) {
    const size_t r = (size_t)quant_matrix_row(m, row);
    return m->runs_on ? r * (size_t)(m->n_in / m->group) : r / (size_t)m->scale_rows * (size_t)m->n_groups;
}

/* Properties of the scales: all powers of two; the same for each 16 rows; none so large
 * that kernels cannot multiply it by 256. */
typedef struct scale_traits {
    bool powers, tiles, fit;
} scale_traits;

static scale_traits find_traits(const quant_matrix *m, int32_t n_out, int32_t n_in) {
    const int32_t n = (n_in - 1) / m->group + 1;
    scale_traits t = {true, true, true};
    for (int32_t row = 0; row < n_out; row++) {
        const size_t first = first_scale(m, row);
        t.tiles = t.tiles && first == first_scale(m, row - row % PACK_LANES);
        for (int32_t g = 0; g < n; g++) {
            const float scale = m->scales[first + (size_t)g];
            int exponent;
            t.powers = t.powers && scale > 0.0f && isfinite(scale) && frexpf(scale, &exponent) == 0.5f &&
                       exponent >= -126;
            t.fit = t.fit && (!isfinite(scale) || isfinite(scale * 256.0f));
        }
    }
    return t;
}

static bool plan_scaled(const quant_matrix *m, int32_t n_out, int32_t n_in, matrix_plan *out) {
    if (m->runs_on && (n_in != m->n_in || n_in % m->group != 0)) {
        return false;
    }
    const scale_traits t = find_traits(m, n_out, n_in);
    out->kind = m->kind == CODE_TABLE ? PACK_T4_FLOAT
                : t.tiles             ? PACK_E4M3_TILE
                : t.powers            ? PACK_E4M3_E8M0
                                      : PACK_E4M3;
    out->rule =
        (quant_rule){.unit = 1.0f, .stretch = pack_stretch_of(out->kind, m->group >= n_in ? 0 : m->group)};
    out->factor = m->factor;
    if (m->nested != NULL && (out->rule.stretch == 0 || out->rule.stretch == m->group)) {
        out->kind = PACK_T4_NESTED;
    }
    return out->rule.stretch >= 0 && (m->kind == CODE_TABLE || t.fit);
}

static void read_scaled(const void *context, int32_t row, int32_t k, int32_t n, uint8_t *out) {
    const matrix_plan *p = context;
    quant_matrix_codes(p->m, row, k, n, out);
}

static float scaled_scale(const void *context, int32_t row, int32_t k) {
    const matrix_plan *p = context;
    return p->m->scales[first_scale(p->m, row) + (size_t)(k / p->m->group)];
}

static size_t scaled_first(const void *context, int32_t row) {
    const matrix_plan *p = context;
    return first_scale(p->m, row);
}

scaled_source pack_matrix_source(const matrix_plan *plan) {
    return (scaled_source){.codes = read_scaled,
                           .scale = scaled_scale,
                           .table = plan->m->table,
                           .nested = plan->m->nested,
                           .first = scaled_first,
                           .context = plan};
}

/* ---- all kinds ---- */

/* order[0..n_in) = the inputs by group, ascending within each group. False: a group does
 * not have m->group inputs, or out of memory. next: [n_groups], zeroed. */
static bool sort_inputs(const quant_matrix *m, int32_t n_in, int32_t *next, int32_t *order) {
    for (int32_t i = 0; i < n_in; i++) {
        const int32_t g = m->group_of[i];
        if (next[g] == m->group) {
            return false;
        }
        order[g * m->group + next[g]++] = i;
    }
    return true;
}

static bool plan_ordered(const quant_matrix *m, int32_t n_in, matrix_plan *out) {
    if (m->kind != CODE_INTEGER || m->runs_on || n_in != m->n_in || n_in % PACK_GROUP != 0 ||
        (int64_t)m->n_groups * m->group != n_in || !plan_integers(m, n_in, out)) {
        return false;
    }
    int32_t *next = mem_new((size_t)m->n_groups, sizeof *next), *order = mem_new((size_t)n_in, sizeof *order);
    const bool is_sorted = next != NULL && order != NULL && sort_inputs(m, n_in, next, order);
    mem_free(next);
    if (!is_sorted) {
        mem_free(order);
        return false;
    }
    out->kind = pack_kind_of(out->rule.form);
    out->order = order;
    return true;
}

bool pack_matrix_plan(const quant_matrix *m, int32_t n_out, int32_t n_in, matrix_plan *out) {
    out->m = m;
    out->order = NULL;
    if (!isfinite(m->factor)) {
        return false;
    }
    if (m->group_of != NULL) {
        return plan_ordered(m, n_in, out);
    }
    const bool has_groups = n_in % PACK_GROUP == 0 && !m->runs_on;
    const bool is_grouped =
        has_groups &&
        (m->kind == CODE_INTEGER ? plan_integers(m, n_in, out) : m->kind == CODE_TABLE && plan_fours(m, out));
    if (is_grouped) {
        out->kind = pack_kind_of(out->rule.form);
    }
    return is_grouped || (m->kind != CODE_INTEGER && plan_scaled(m, n_out, n_in, out));
}

static void put_scale(const matrix_plan *p, size_t scale, int32_t at, quant_codes *out) {
    const quant_matrix *m = p->m;
    const float value = m->scales[scale];
    int exponent;
    switch (quant_formats[p->rule.form].coding) {
    case SCALE_E8M0:
        (void)frexpf(value, &exponent); /* the value is 2^(exponent - 1) */
        out->scale[at / 32] = (uint8_t)(exponent + 126);
        break;
    case SCALE_E4M3:
        out->scale[at / 16] = f32_to_e4m3(value);
        break;
    default:
        out->d[at / 32] = f32_to_f16(value * p->scale_by);
        out->zero[at / 32] =
            m->zeros != NULL ? (uint8_t)(m->zeros[scale] - p->rule.least - (m->bits == 8 ? 128 : 0)) : 0;
    }
}

void pack_matrix_rows(matrix_reader *r, int32_t row0, int32_t n) {
    const quant_matrix *m = r->plan->m;
    r->row0 = row0;
    for (int32_t i = 0; i < n && r->plan->order != NULL; i++) {
        quant_matrix_codes(m, row0 + i, 0, m->n_in, r->codes + i * m->n_in);
    }
}

void pack_matrix_read(const void *reader, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    const matrix_reader *r = reader;
    const matrix_plan *p = r->plan;
    const quant_matrix *m = p->m;
    const int32_t step = m->group == 16 ? 16 : PACK_GROUP;
    const size_t first = (size_t)quant_matrix_row(m, row) * (size_t)m->n_groups;
    if (p->order == NULL) {
        quant_matrix_codes(m, row, k, n, out->q);
    }
    for (int32_t i = 0; i < n && p->order != NULL; i++) {
        out->q[i] = r->codes[(row - r->row0) * m->n_in + p->order[k + i]];
    }
    for (int32_t i = 0; i < n && m->kind == CODE_INTEGER && m->bits == 8; i++) {
        out->q[i] ^= 0x80; /* minus 128, as a signed byte */
    }
    for (int32_t i = 0; i < n; i += step) {
        put_scale(p, first + (size_t)((k + i) / m->group), i, out);
    }
}
