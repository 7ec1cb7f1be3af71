#include "backend/cpu/pack_weights.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/pack_weights_grouped.h"
#include "base/size.h"
#include "core/half.h"
#include "core/quant.h"

#define INT8_MAX_IN 131072 /* 127 * 128 * 131072 < 2^31 */

const int8_t pack_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

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
        switch (from) {
#define PACK_FROM(name, group, bits, zero, scale)                                                                                          \
    case DTYPE_##name:                                                                                                                     \
        *out = PACK_##name;                                                                                                                \
        break;
            PACK_GROUPED_LIST(PACK_FROM)
#undef PACK_FROM
        default:
            return QUIRE_UNSUPPORTED;
        }
    }
    return QUIRE_OK;
}

/* Bits of quants and scales for one column and PACK_SUPER of k, and those of its supers. */
static void grouped_bits(pack_kind kind, size_t *quants, size_t *scales, size_t *supers) {
    static const struct {
        uint8_t bits;
        pack_scale scale;
    } formats[N_PACKS] = {
#define PACK_FORMAT(name, group, bits, zero, scale) [PACK_##name] = {bits, scale},
        PACK_GROUPED_LIST(PACK_FORMAT)
#undef PACK_FORMAT
    };
    static const uint16_t scale_bits[] = {
        [SCALE_F16] = 128, [SCALE_F16_MIN] = 256, [SCALE_FOUR] = 128, [SCALE_SIX] = 96, [SCALE_SIX_MIN] = 96, [SCALE_EIGHT] = 128};
    pack_scale s = formats[kind].scale;
    *quants = (size_t)formats[kind].bits * PACK_SUPER;
    *scales = scale_bits[s];
    *supers = s == SCALE_SIX || s == SCALE_EIGHT ? 16 : s == SCALE_SIX_MIN || s == SCALE_FOUR ? 32 : 0;
}

/* The bytes of a whole block with `bits` for a column and k_unit of k, rounded up to a cache line. */
static bool area_bytes(size_t bits, size_t n_in, size_t k_unit, size_t *out) {
    size_t bytes;
    if (!size_mul(n_in, bits, &bytes) || !size_mul(bytes, PACK_LANES / 8, &bytes) || bytes > SIZE_MAX / 2) {
        return false;
    }
    *out = size_align(bytes / k_unit, 64);
    return true;
}

quire_err pack_plan(pack_kind kind, int32_t n_out, int32_t n_in, pack_layout *out) {
    if (n_out <= 0 || n_in <= 0 || n_in > INT32_MAX - PACK_SUPER || n_out > INT32_MAX - PACK_LANES) {
        return QUIRE_INVALID;
    }
    if (kind == PACK_INT8 && n_in > INT8_MAX_IN) {
        return QUIRE_TOO_LARGE;
    }
    int32_t unit = kind == PACK_BF16 ? 2 : kind == PACK_INT8 ? PACK_GROUP : 1;
    pack_layout p = {.kind = kind, .n_out = n_out, .n_in = n_in, .n_blocks = (n_out + PACK_LANES - 1) / PACK_LANES};
    p.k_padded = (n_in + unit - 1) / unit * unit;
    size_t quants = kind == PACK_F32 ? 32 : kind == PACK_INT8 ? 8 : 16, scales = 0, supers = 0, k_unit = 1, all;
    if (pack_is_grouped(kind)) {
        bool in_supers = kind == PACK_Q2_K || kind == PACK_Q3_K || kind == PACK_Q4_K || kind == PACK_Q5_K || kind == PACK_Q6_K;
        if (n_in % (in_supers ? PACK_SUPER : PACK_GROUP) != 0) {
            return QUIRE_INVALID;
        }
        grouped_bits(kind, &quants, &scales, &supers);
        k_unit = PACK_SUPER;
    }
    size_t quant_bytes, scale_bytes, super_bytes, k = (size_t)p.k_padded;
    if (!area_bytes(quants, k, k_unit, &quant_bytes) || !area_bytes(scales, k, k_unit, &scale_bytes) ||
        !area_bytes(supers, k, k_unit, &super_bytes) || !size_add(quant_bytes, scale_bytes, &p.supers_at) ||
        !size_add(p.supers_at, super_bytes, &p.block_bytes) || !size_mul(p.block_bytes, (size_t)p.n_blocks, &all)) {
        return QUIRE_TOO_LARGE;
    }
    p.scales_at = quant_bytes;
    *out = p;
    return QUIRE_OK;
}

/* ---- packing a block: in chunks of PACK_SUPER of k, so that 16 columns of a chunk stay in cache ---- */

/* The address of element k of column (a row of the file). k is a multiple of the type's block. */
static const uint8_t *column_at(const tensor_view *w, int32_t n_in, int32_t column, int32_t k) {
    size_t elements = (size_t)dtype_block_elements(w->type), bytes = (size_t)dtype_block_bytes(w->type);
    return (const uint8_t *)w->data + ((size_t)column * (size_t)n_in + (size_t)k) / elements * bytes;
}

/* The scale of a column of int8 weights. */
static float column_scale(const tensor_view *w, int32_t column) {
    const tensor_view *s = w->scale;
    float scale = 0.0f;
    /* The type was checked when the weights were loaded. */
    (void)quant_dequantise(s->type, (const uint8_t *)s->data + (size_t)column * (size_t)dtype_block_bytes(s->type), 1, &scale);
    return scale;
}

/* Reads elements k0..k0+n of the block's columns as f32; all else is 0. Loops over a chunk run over all PACK_SUPER elements: with a
 * constant length the compiler vectorises them. */
static void read_columns(const pack_layout *plan, const tensor_view *w, int32_t block, int32_t k0, int32_t n,
                         float out[PACK_LANES][PACK_SUPER]) {
    for (int32_t c = 0; c < PACK_LANES; c++) {
        int32_t column = block * PACK_LANES + c;
        if (column >= plan->n_out || n < PACK_SUPER) {
            memset(out[c], 0, sizeof out[c]);
        }
        if (column >= plan->n_out) {
            continue;
        }
        const uint8_t *from = column_at(w, plan->n_in, column, k0);
        if (w->type == DTYPE_F32) {
            memcpy(out[c], from, (size_t)n * sizeof(float));
        } else if (w->type == DTYPE_BF16) {
            uint16_t halves[PACK_SUPER] = {0};
            memcpy(halves, from, (size_t)n * sizeof halves[0]);
            for (int32_t k = 0; k < PACK_SUPER; k++) {
                out[c][k] = bf16_to_f32(halves[k]);
            }
        } else if (w->type == DTYPE_I8) {
            float scale = column_scale(w, column);
            for (int32_t k = 0; k < n; k++) {
                out[c][k] = (float)(int8_t)from[k] * scale;
            }
        } else {
            /* Types were checked by pack_choose. */
            (void)quant_dequantise(w->type, from, (size_t)n, out[c]);
        }
    }
}

static void pack_f32(const float columns[PACK_LANES][PACK_SUPER], int32_t n, float *out) {
    for (int32_t k = 0; k < n; k++) {
        for (int c = 0; c < PACK_LANES; c++) {
            out[k * PACK_LANES + c] = columns[c][k];
        }
    }
}

static void pack_bf16(const float columns[PACK_LANES][PACK_SUPER], int32_t n, uint8_t *out) {
    uint16_t halves[PACK_LANES][PACK_SUPER];
    for (int c = 0; c < PACK_LANES; c++) {
        for (int k = 0; k < PACK_SUPER; k++) {
            halves[c][k] = f32_to_bf16(columns[c][k]);
        }
    }
    for (int32_t k = 0; k < n; k += 2) {
        for (int c = 0; c < PACK_LANES; c++) {
            memcpy(out + (size_t)k * 2 * PACK_LANES + 4 * (size_t)c, &halves[c][k], 4);
        }
    }
}

/* 16-bit weights are moved, not converted. */
static void pack_f16(const pack_layout *plan, const tensor_view *w, int32_t block, uint16_t *out) {
    for (int32_t c = 0; c < PACK_LANES && block * PACK_LANES + c < plan->n_out; c++) {
        const uint8_t *from = column_at(w, plan->n_in, block * PACK_LANES + c, 0);
        for (int32_t k = 0; k < plan->n_in; k++) {
            memcpy(out + (size_t)k * PACK_LANES + c, from + 2 * (size_t)k, sizeof *out);
        }
    }
}

static int32_t chunk_length(const pack_layout *plan, int32_t k0) {
    return plan->n_in - k0 < PACK_SUPER ? plan->n_in - k0 : PACK_SUPER;
}

/* The largest magnitude of a chunk and `so_far`, compared by bits: in this order NaN is above infinity. */
static float largest_of(const float x[PACK_SUPER], float so_far) {
    int32_t largest, bits[PACK_SUPER];
    memcpy(&largest, &so_far, sizeof largest);
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < PACK_SUPER; i++) {
        int32_t magnitude = bits[i] & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    memcpy(&so_far, &largest, sizeof so_far);
    return so_far;
}

/* Rounds half to even: adding 1.5 * 2^23 leaves the nearest integer. A subnormal scale is rounded so much that the quotient may exceed
 * 127. */
static int8_t quantised(float x, float scale) {
    float q = x / scale;
    q = q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
    return (int8_t)((q + 0x1.8p23f) - 0x1.8p23f);
}

static void put_quads(int8_t q[PACK_LANES][PACK_SUPER], int32_t k0, int32_t n, uint8_t *out) {
    for (int32_t i = 0; i < n; i += 4) {
        for (int c = 0; c < PACK_LANES; c++) {
            memcpy(out + (size_t)(k0 + i) * PACK_LANES + 4 * (size_t)c, &q[c][i], 4);
        }
    }
}

/* Copies weights that were quantised before, numbers and scales unchanged. */
static void copy_int8(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out, float *scales) {
    int32_t n_columns = plan->n_out - block * PACK_LANES < PACK_LANES ? plan->n_out - block * PACK_LANES : PACK_LANES;
    for (int32_t c = 0; c < n_columns; c++) {
        scales[c] = column_scale(w, block * PACK_LANES + c);
    }
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += PACK_SUPER) {
        int32_t n = chunk_length(plan, k0);
        int8_t q[PACK_LANES][PACK_SUPER] = {{0}};
        for (int32_t c = 0; c < n_columns; c++) {
            memcpy(q[c], column_at(w, plan->n_in, block * PACK_LANES + c, k0), (size_t)n);
        }
        put_quads(q, k0, n, out);
    }
}

/* A column with a value that is not finite gets the scale NaN and zeros, so that its products are NaN. */
static void pack_int8(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out, float *scales) {
    float columns[PACK_LANES][PACK_SUPER], largest[PACK_LANES] = {0};
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += PACK_SUPER) {
        int32_t n = chunk_length(plan, k0);
        read_columns(plan, w, block, k0, n, columns);
        for (int c = 0; c < PACK_LANES; c++) {
            largest[c] = largest_of(columns[c], largest[c]);
        }
    }
    for (int c = 0; c < PACK_LANES; c++) {
        scales[c] = isfinite(largest[c]) ? largest[c] / 127.0f : NAN;
    }
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += PACK_SUPER) {
        int32_t n = chunk_length(plan, k0);
        int8_t q[PACK_LANES][PACK_SUPER] = {{0}};
        read_columns(plan, w, block, k0, n, columns);
        for (int c = 0; c < PACK_LANES; c++) {
            if (!(scales[c] > 0.0f)) {
                continue;
            }
            for (int i = 0; i < PACK_SUPER; i++) {
                q[c][i] = quantised(columns[c][i], scales[c]);
            }
        }
        put_quads(q, k0, n, out);
    }
}

static void pack_grouped(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out) {
    pack_codes columns[PACK_LANES];
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += PACK_SUPER) {
        int32_t n = chunk_length(plan, k0);
        for (int32_t c = 0; c < PACK_LANES; c++) {
            int32_t column = block * PACK_LANES + c;
            if (column < plan->n_out) {
                pack_split(plan->kind, column_at(w, plan->n_in, column, k0), n, &columns[c]);
            } else {
                memset(&columns[c], 0, sizeof columns[c]);
            }
        }
        pack_join(plan, columns, k0, n, out);
    }
}

void pack_block(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out, float *scales) {
    float columns[PACK_LANES][PACK_SUPER];
    if (pack_is_grouped(plan->kind)) {
        pack_grouped(plan, w, block, out);
    } else if (plan->kind == PACK_INT8 && w->type == DTYPE_I8) {
        copy_int8(plan, w, block, out, scales);
    } else if (plan->kind == PACK_INT8) {
        pack_int8(plan, w, block, out, scales);
    } else if (plan->kind == PACK_F16) {
        pack_f16(plan, w, block, (uint16_t *)(void *)out);
    } else {
        for (int32_t k0 = 0; k0 < plan->n_in; k0 += PACK_SUPER) {
            int32_t n = chunk_length(plan, k0);
            read_columns(plan, w, block, k0, n, columns);
            if (plan->kind == PACK_F32) {
                pack_f32((const float(*)[PACK_SUPER])columns, n, (float *)(void *)out + (size_t)k0 * PACK_LANES);
            } else {
                pack_bf16((const float(*)[PACK_SUPER])columns, n, out + (size_t)k0 * 2 * PACK_LANES);
            }
        }
    }
}
