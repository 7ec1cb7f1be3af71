/* Layouts of packed weights: chooses the kind for weights, and computes where its parts
 * are. */
#include "backend/cpu/pack_lanes.h"

#include "base/size.h"

#define INT8_MAX_IN   131072 /* 127 * 128 * 131072 < 2^31 */
#define LEAST_STRETCH 8

quire_err pack_choose(dtype from, compute_mode mode, pack_kind *out) {
    bool plain = from == DTYPE_F32 || from == DTYPE_F16 || from == DTYPE_BF16 || from == DTYPE_I8;
    if (!plain && !dtype_is_quantised(from)) {
        return QUIRE_UNSUPPORTED;
    }
    if (mode == COMPUTE_BF16) {
        *out = PACK_BF16;
    } else if (mode == COMPUTE_F32) {
        *out = from == DTYPE_F16 ? PACK_F16 : from == DTYPE_BF16 ? PACK_BF16 : PACK_F32;
    } else if (plain) {
        *out = PACK_INT8;
    } else {
        *out = pack_kind_of(quant_rule_of(from)->form);
    }
    return QUIRE_OK;
}

quire_err pack_integers(int bits, int32_t group, bool has_zeros, quant_rule *out) {
    static const quant_form forms[9][2] = {[2] = {FORM_W2, FORM_W2_ZERO},
                                           [3] = {FORM_W3, FORM_W3_ZERO},
                                           [4] = {FORM_W4, FORM_W4_ZERO},
                                           [8] = {FORM_W8, FORM_W8_ZERO}};
    if ((bits != 2 && bits != 3 && bits != 4 && bits != 8) || group < 0 || group % QUANT_GROUP != 0) {
        return QUIRE_UNSUPPORTED;
    }
    int32_t shift = group > 0 ? 0 : 31;
    for (int32_t n = group / QUANT_GROUP; n > 0 && n % 2 == 0; n /= 2) {
        shift++;
    }
    *out = (quant_rule){.form = forms[bits][has_zeros], .unit = 1.0f, .shift = shift};
    return QUIRE_OK;
}

/* Whether kernels support a stretch of 1 or more. */
static bool is_stretch(pack_kind kind, int32_t stretch) {
    return stretch >= LEAST_STRETCH && stretch <= PACK_MOST_STRETCH &&
           stretch % (pack_is_fours(kind) ? 8 : 2) == 0;
}

int32_t pack_stretch_of(pack_kind kind, int32_t group) {
    int32_t n = group < PACK_MOST_STRETCH ? group : PACK_MOST_STRETCH;
    while (n >= LEAST_STRETCH && (group % n != 0 || !is_stretch(kind, n))) {
        n--;
    }
    return group == 0 ? 0 : n >= LEAST_STRETCH ? n : -1;
}

/* Bits of quants, scales and supers for one column and QUANT_SUPER of k. Not for forms
 * whose groups share scales. */
static void grouped_bits(const quant_format *f, size_t *quants, size_t *scales, size_t *supers) {
    const size_t n_groups = (size_t)(QUANT_SUPER / f->group);
    const size_t scale_bits[] = {
        [SCALE_F16_MIN] = 32 * n_groups, [SCALE_FOUR] = 8 * n_groups,  [SCALE_SIX] = 6 * n_groups,
        [SCALE_SIX_MIN] = 12 * n_groups, [SCALE_EIGHT] = 8 * n_groups, [SCALE_ODD] = 4 * n_groups,
        [SCALE_E8M0] = 8 * n_groups,     [SCALE_E4M3] = 8 * n_groups};
    const quant_scale s = f->coding;
    *quants = pack_group_bytes(f) * 8 / PACK_LANES * (QUANT_SUPER / PACK_GROUP);
    *scales = scale_bits[s];
    *supers = s == SCALE_SIX || s == SCALE_EIGHT || s == SCALE_ODD || s == SCALE_ODD_SPARE ? 16
              : s == SCALE_SIX_MIN || s == SCALE_FOUR                                      ? 32
                                                                                           : 0;
}

/* Rows of 16 f16 that a block's scales take, for forms whose groups may share them. */
static size_t n_shared(const quant_rule *rule, int32_t n_in) {
    return (size_t)((n_in / PACK_GROUP - 1) >> rule->shift) + 1;
}

static size_t zero_rows(const quant_rule *rule, int32_t n_in) {
    const size_t a_byte = (size_t)(8 / pack_zero_bits(quant_formats[rule->form].bits));
    return quant_formats[rule->form].coding == SCALE_F16_ZERO ? (n_shared(rule, n_in) + a_byte - 1) / a_byte
                                                              : 0;
}

/* How many blocks of NESTED_BLOCK a column's n scales can overlap, wherever they begin:
 * rows follow one another. */
static int32_t outer_of(int32_t n) {
    return NESTED_BLOCK % n == 0 ? 1 : (n + NESTED_BLOCK - 2) / NESTED_BLOCK + 1;
}

/* Bytes of the scales and supers of a block of a scaled kind. */
static void scaled_bytes(const pack_layout *p, size_t *scales, size_t *supers) {
    const size_t n = (size_t)pack_n_stretches(&p->rule, p->n_in), floats = PACK_LANES * sizeof(float);
    const bool is_tile = p->kind == PACK_E4M3_TILE,
               is_byte = p->kind == PACK_E4M3_E8M0 || p->kind == PACK_T4_NESTED;
    *scales = size_align(n * (is_tile ? sizeof(float) : is_byte ? PACK_LANES : floats), 64);
    *supers = p->kind == PACK_T4_NESTED  ? (size_t)(1 + p->n_outer) * floats
              : p->kind == PACK_T4_FLOAT ? 0
                                         : floats;
}

/* Bytes of a block that has `bits` bits per column and k_unit of k, rounded up to a cache
 * line. */
static bool area_bytes(size_t bits, size_t n_in, size_t k_unit, size_t *out) {
    size_t bytes;
    if (!size_mul(n_in, bits, &bytes) || !size_mul(bytes, PACK_LANES / 8, &bytes) || bytes > SIZE_MAX / 2) {
        return false;
    }
    *out = size_align(bytes / k_unit, 64);
    return true;
}

quire_err pack_plan(pack_kind kind, const quant_rule *rule, int32_t n_out, int32_t n_in, pack_layout *out) {
    if (n_out <= 0 || n_in <= 0 || n_in > INT32_MAX - QUANT_SUPER || n_out > INT32_MAX - PACK_LANES) {
        return QUIRE_INVALID;
    }
    if (kind == PACK_INT8 && n_in > INT8_MAX_IN) {
        return QUIRE_TOO_LARGE;
    }
    int32_t unit = kind == PACK_BF16      ? 2
                   : kind == PACK_INT8    ? PACK_GROUP
                   : pack_is_fours(kind)  ? 8
                   : pack_is_scaled(kind) ? 2
                                          : 1;
    pack_layout p = {
        .kind = kind, .n_out = n_out, .n_in = n_in, .n_blocks = (n_out + PACK_LANES - 1) / PACK_LANES};
    p.k_padded = (n_in + unit - 1) / unit * unit;
    size_t quants = kind == PACK_F32    ? 32
                    : kind == PACK_INT8 ? 8
                                        : 16,
           scales = 0, supers = 0, k_unit = 1, all;
    size_t shared_bytes = 0, zero_bytes = 0;
    if (pack_is_grouped(kind)) {
        p.rule = *rule;
        grouped_bits(pack_format(kind), &quants, &scales, &supers);
        if (n_in % (supers > 0 ? QUANT_SUPER : PACK_GROUP) != 0) {
            return QUIRE_INVALID;
        }
        k_unit = QUANT_SUPER;
        if (pack_format(kind)->coding == SCALE_F16 || pack_format(kind)->coding == SCALE_F16_ZERO) {
            shared_bytes = size_align(n_shared(rule, n_in) * 2 * PACK_LANES, 64);
            zero_bytes = size_align(zero_rows(rule, n_in) * PACK_LANES, 64);
        }
    }
    if (pack_is_scaled(kind)) {
        if (rule->stretch != 0 && !is_stretch(kind, rule->stretch)) {
            return QUIRE_INVALID;
        }
        p.rule.stretch = rule->stretch;
        p.n_outer = kind == PACK_T4_NESTED ? outer_of(pack_n_stretches(rule, n_in)) : 0;
        quants = pack_is_fours(kind) ? 4 : 8;
        scaled_bytes(&p, &shared_bytes, &zero_bytes);
    }
    size_t quant_bytes, scale_bytes, super_bytes, k = (size_t)p.k_padded;
    if (!area_bytes(quants, k, k_unit, &quant_bytes) || !area_bytes(scales, k, k_unit, &scale_bytes) ||
        !area_bytes(supers, k, k_unit, &super_bytes) ||
        !size_add(quant_bytes, scale_bytes + shared_bytes, &p.supers_at) ||
        !size_add(p.supers_at, super_bytes + zero_bytes, &p.block_bytes) ||
        !size_mul(p.block_bytes, (size_t)p.n_blocks, &all)) {
        return QUIRE_TOO_LARGE;
    }
    p.scales_at = quant_bytes;
    *out = p;
    return QUIRE_OK;
}
