#include "backend/cpu/pack_weights.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/size.h"
#include "core/half.h"

#define QUADS         8
#define PLANE_WORDS   16     /* 64 bytes */
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

/* Whether kernels take a stretch of 1 or more. */
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

/* Bits of quants and scales for one column and QUANT_SUPER of k, and those of its supers;
 * not of forms whose groups share scales. */
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

/* Rows of 16 halves that a block's scales take, of the forms whose groups may share
 * them. */
static size_t n_shared(const quant_rule *rule, int32_t n_in) {
    return (size_t)((n_in / PACK_GROUP - 1) >> rule->shift) + 1;
}

static size_t zero_rows(const quant_rule *rule, int32_t n_in) {
    const size_t a_byte = (size_t)(8 / pack_zero_bits(quant_formats[rule->form].bits));
    return quant_formats[rule->form].coding == SCALE_F16_ZERO ? (n_shared(rule, n_in) + a_byte - 1) / a_byte
                                                              : 0;
}

static int32_t n_stretches(const quant_rule *rule, int32_t n_in) {
    return rule->stretch == 0 ? 1 : (n_in - 1) / rule->stretch + 1;
}

/* How many blocks of NESTED_BLOCK the n scales of a column reach into, wherever in such a
 * block they begin: rows follow one another. */
static int32_t outer_of(int32_t n) {
    return NESTED_BLOCK % n == 0 ? 1 : (n + NESTED_BLOCK - 2) / NESTED_BLOCK + 1;
}

/* Bytes of the scales of a block of a scaled kind, and of what its supers are. */
static void scaled_bytes(const pack_layout *p, size_t *scales, size_t *supers) {
    const size_t n = (size_t)n_stretches(&p->rule, p->n_in), floats = PACK_LANES * sizeof(float);
    const bool is_tile = p->kind == PACK_E4M3_TILE,
               is_byte = p->kind == PACK_E4M3_E8M0 || p->kind == PACK_T4_NESTED;
    *scales = size_align(n * (is_tile ? sizeof(float) : is_byte ? PACK_LANES : floats), 64);
    *supers = p->kind == PACK_T4_NESTED  ? (size_t)(1 + p->n_outer) * floats
              : p->kind == PACK_T4_FLOAT ? 0
                                         : floats;
}

/* The bytes of a whole block with `bits` for a column and k_unit of k, rounded up to a
 * cache line. */
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
        p.n_outer = kind == PACK_T4_NESTED ? outer_of(n_stretches(rule, n_in)) : 0;
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

/* ---- packing a block: in chunks of QUANT_SUPER of k, so that 16 columns of a chunk stay
 * in cache ---- */

/* The address of element k of column (a row of the file). k is a multiple of the type's
 * block. */
static const uint8_t *column_at(const tensor_view *w, int32_t n_in, int32_t column, int32_t k) {
    size_t elements = (size_t)dtype_block_elements(w->type), bytes = (size_t)dtype_block_bytes(w->type);
    return (const uint8_t *)w->data + ((size_t)column * (size_t)n_in + (size_t)k) / elements * bytes;
}

/* The scale of a column of int8 weights. */
static float column_scale(const tensor_view *w, int32_t column) {
    const tensor_view *s = w->scale;
    float scale = 0.0f;
    /* The type was checked when the weights were loaded. */
    (void)quant_dequantise(
        s->type, (const uint8_t *)s->data + (size_t)column * (size_t)dtype_block_bytes(s->type), 1, &scale);
    return scale;
}

/* Reads elements k0..k0+n of the block's columns as f32; all else is 0. Loops over a
 * chunk run over all QUANT_SUPER elements: with a constant length the compiler vectorises
 * them. */
static void read_columns(const pack_layout *plan, const tensor_view *w, int32_t block, int32_t k0, int32_t n,
                         float out[PACK_LANES][QUANT_SUPER]) {
    for (int32_t c = 0; c < PACK_LANES; c++) {
        int32_t column = block * PACK_LANES + c;
        if (column >= plan->n_out || n < QUANT_SUPER) {
            memset(out[c], 0, sizeof out[c]);
        }
        if (column >= plan->n_out) {
            continue;
        }
        if (w->quant != NULL) {
            quant_matrix_read(w->quant, column, k0, n, out[c]);
            continue;
        }
        const uint8_t *from = column_at(w, plan->n_in, column, k0);
        if (w->type == DTYPE_F32) {
            memcpy(out[c], from, (size_t)n * sizeof(float));
        } else if (w->type == DTYPE_BF16) {
            uint16_t halves[QUANT_SUPER] = {0};
            memcpy(halves, from, (size_t)n * sizeof halves[0]);
            for (int32_t k = 0; k < QUANT_SUPER; k++) {
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

static void pack_f32(const float columns[PACK_LANES][QUANT_SUPER], int32_t n, float *out) {
    for (int32_t k = 0; k < n; k++) {
        for (int c = 0; c < PACK_LANES; c++) {
            out[k * PACK_LANES + c] = columns[c][k];
        }
    }
}

static void pack_bf16(const float columns[PACK_LANES][QUANT_SUPER], int32_t n, uint8_t *out) {
    uint16_t halves[PACK_LANES][QUANT_SUPER];
    for (int c = 0; c < PACK_LANES; c++) {
        for (int k = 0; k < QUANT_SUPER; k++) {
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
    return plan->n_in - k0 < QUANT_SUPER ? plan->n_in - k0 : QUANT_SUPER;
}

/* The largest magnitude of a chunk and `so_far`, compared by bits: in this order NaN is
 * above infinity. */
static float pack_weights_largest_of(const float x[QUANT_SUPER], float so_far) {
    int32_t largest, bits[QUANT_SUPER];
    memcpy(&largest, &so_far, sizeof largest);
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < QUANT_SUPER; i++) {
        int32_t magnitude = bits[i] & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    memcpy(&so_far, &largest, sizeof so_far);
    return so_far;
}

/* Rounds half to even: adding 1.5 * 2^23 leaves the nearest integer. A subnormal scale is
 * rounded so much that the quotient may exceed 127. */
static int8_t quantised(float x, float scale) {
    float q = x / scale;
    q = q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
    return (int8_t)((q + 0x1.8p23f) - 0x1.8p23f);
}

static void put_quads(int8_t q[PACK_LANES][QUANT_SUPER], int32_t k0, int32_t n, uint8_t *out) {
    for (int32_t i = 0; i < n; i += 4) {
        for (int c = 0; c < PACK_LANES; c++) {
            memcpy(out + (size_t)(k0 + i) * PACK_LANES + 4 * (size_t)c, &q[c][i], 4);
        }
    }
}

/* Copies weights that were quantised before, numbers and scales unchanged. */
static void copy_int8(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out,
                      float *scales) {
    int32_t n_columns =
        plan->n_out - block * PACK_LANES < PACK_LANES ? plan->n_out - block * PACK_LANES : PACK_LANES;
    for (int32_t c = 0; c < n_columns; c++) {
        scales[c] = column_scale(w, block * PACK_LANES + c);
    }
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        int32_t n = chunk_length(plan, k0);
        int8_t q[PACK_LANES][QUANT_SUPER] = {{0}};
        for (int32_t c = 0; c < n_columns; c++) {
            memcpy(q[c], column_at(w, plan->n_in, block * PACK_LANES + c, k0), (size_t)n);
        }
        put_quads(q, k0, n, out);
    }
}

/* A column with a value that is not finite gets the scale NaN and zeros, so that its
 * products are NaN. */
static void pack_int8(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out,
                      float *scales) {
    float columns[PACK_LANES][QUANT_SUPER], largest[PACK_LANES] = {0};
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        int32_t n = chunk_length(plan, k0);
        read_columns(plan, w, block, k0, n, columns);
        for (int c = 0; c < PACK_LANES; c++) {
            largest[c] = pack_weights_largest_of(columns[c], largest[c]);
        }
    }
    for (int c = 0; c < PACK_LANES; c++) {
        scales[c] = isfinite(largest[c]) ? largest[c] / 127.0f : NAN;
    }
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        int32_t n = chunk_length(plan, k0);
        int8_t q[PACK_LANES][QUANT_SUPER] = {{0}};
        read_columns(plan, w, block, k0, n, columns);
        for (int c = 0; c < PACK_LANES; c++) {
            if (!(scales[c] > 0.0f)) {
                continue;
            }
            for (int i = 0; i < QUANT_SUPER; i++) {
                q[c][i] = quantised(columns[c][i], scales[c]);
            }
        }
        put_quads(q, k0, n, out);
    }
}

/* ---- codes to planes ---- */

/* Word t of column c, of four at columns[c][at..], goes to word c of plane t. */
static void transpose_words(const uint8_t *const columns[PACK_LANES], size_t at, uint8_t *planes) {
    for (size_t c = 0; c < PACK_LANES; c += 4, planes += 16) {
#if defined(__SSE2__)
        __m128i x[4], low[2], high[2];
        for (int i = 0; i < 4; i++) {
            x[i] = _mm_loadu_si128((const __m128i *)(const void *)(columns[c + (size_t)i] + at));
        }
        for (int i = 0; i < 2; i++) {
            low[i] = _mm_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
            high[i] = _mm_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
        }
        _mm_storeu_si128((__m128i *)(void *)planes, _mm_unpacklo_epi64(low[0], low[1]));
        _mm_storeu_si128((__m128i *)(void *)(planes + 4 * PLANE_WORDS), _mm_unpackhi_epi64(low[0], low[1]));
        _mm_storeu_si128((__m128i *)(void *)(planes + 8 * PLANE_WORDS), _mm_unpacklo_epi64(high[0], high[1]));
        _mm_storeu_si128((__m128i *)(void *)(planes + 12 * PLANE_WORDS),
                         _mm_unpackhi_epi64(high[0], high[1]));
#else
        for (size_t i = 0; i < 4; i++) {
            for (size_t t = 0; t < 4; t++) {
                memcpy(planes + 4 * (t * PLANE_WORDS + i), columns[c + i] + at + 4 * t, 4);
            }
        }
#endif
    }
}

/* The quads of a group: word [t][c] holds the four bytes of quad t of column c. Planes
 * are made of whole rows of them, all columns at once. */
typedef uint32_t group_quads[QUADS][PLANE_WORDS];

static void gather_quads(const quant_codes columns[PACK_LANES], int32_t at, group_quads out) {
    const uint8_t *q[PACK_LANES];
    for (int c = 0; c < PACK_LANES; c++) {
        q[c] = columns[c].q + at;
    }
    transpose_words(q, 0, (uint8_t *)out);
    transpose_words(q, 16, (uint8_t *)(out + 4));
}

static void join_nibbles(group_quads q, uint32_t planes[4][PLANE_WORDS]) {
    for (int v = 0; v < 4; v++) {
        for (int c = 0; c < PLANE_WORDS; c++) {
            planes[v][c] = (q[v][c] & 0x0f0f0f0fu) | (q[v + 4][c] & 0x0f0f0f0fu) << 4;
        }
    }
}

/* Bits at_bit and the next one of every number. */
static void join_pairs(group_quads q, int at_bit, uint32_t planes[2][PLANE_WORDS]) {
    for (int v = 0; v < 2; v++) {
        for (int c = 0; c < PLANE_WORDS; c++) {
            uint32_t word = 0;
            for (int j = 0; j < 4; j++) {
                word |= (q[4 * v + j][c] >> at_bit & 0x03030303u) << (2 * j);
            }
            planes[v][c] = word;
        }
    }
}

static void join_bits(group_quads q, int at_bit, uint32_t plane[PLANE_WORDS]) {
    for (int c = 0; c < PLANE_WORDS; c++) {
        uint32_t word = 0;
        for (int t = 0; t < QUADS; t++) {
            word |= (q[t][c] >> at_bit & 0x01010101u) << t;
        }
        plane[c] = word;
    }
}

static void join_threes(group_quads q, uint32_t planes[3][PLANE_WORDS]) {
    for (int v = 0; v < 3; v++) {
        for (int c = 0; c < PLANE_WORDS; c++) {
            planes[v][c] = (q[2 * v][c] & 0x07070707u) | (q[2 * v + 1][c] & 0x07070707u) << 4 |
                           (q[6][c] >> v & 0x01010101u) << 3 | (q[7][c] >> v & 0x01010101u) << 7;
        }
    }
}

/* Packs the planes of one group. */
static void join_planes(int bits, const quant_codes columns[PACK_LANES], int32_t at, uint8_t *out) {
    group_quads quads;
    uint32_t planes[QUADS][PLANE_WORDS];
    int n = 0;
    gather_quads(columns, at, quads);
    if (bits == 8) {
        memcpy(out, quads, sizeof quads);
        return;
    }
    if (bits >= 4) {
        join_nibbles(quads, planes);
        n = 4;
    }
    if (bits == 2 || bits == 6) {
        join_pairs(quads, bits == 6 ? 4 : 0, planes + n);
        n += 2;
    }
    if (bits == 3) {
        join_threes(quads, planes);
        n = 3;
    } else if (bits % 2 == 1) {
        join_bits(quads, pack_single_bit(bits), planes[n]);
        n++;
    }
    memcpy(out, planes, (size_t)n * sizeof planes[0]);
}

static void write_half(uint8_t *area, size_t index, uint16_t value) {
    memcpy(area + 2 * index, &value, sizeof value);
}

/* Writes four numbers of 6 bits for column c into three bytes. */
static void write_six(uint8_t *area, int c, const uint8_t n[4]) {
    for (int i = 0; i < 3; i++) {
        area[i * PACK_LANES + c] = (uint8_t)(n[i] | (n[3] >> (2 * i) & 3) << 6);
    }
}

/* Writes the halves of groups group0.. of column c, and the zeros; of groups that share
 * them, the first one's. */
static void join_shared(const quant_rule *rule, const quant_codes *codes, size_t lane, size_t group0,
                        size_t n, uint8_t *scales, uint8_t *zeros) {
    const int width = pack_zero_bits(quant_formats[rule->form].bits), a_byte = 8 / width;
    for (size_t g = 0; g < n; g++) {
        const size_t row = (group0 + g) >> rule->shift;
        if (row << rule->shift != group0 + g) {
            continue;
        }
        write_half(scales, row * PACK_LANES + lane, codes->d[g]);
        if (quant_formats[rule->form].coding == SCALE_F16_ZERO) {
            uint8_t *to = &zeros[row / (size_t)a_byte * PACK_LANES + lane];
            *to = (uint8_t)(*to | codes->zero[g] << (width * (int)(row % (size_t)a_byte)));
        }
    }
}

/* Writes codes of 6 bits of column c, from elements k0 on. */
static void join_sixes(const quant_format *f, const quant_codes *codes, int c, size_t k0, uint8_t *scales) {
    const uint8_t *s = codes->scale, *m = codes->min;
    const size_t n = f->coding == SCALE_SIX ? (size_t)(QUANT_SUPER / f->group / 4) : 4;
    for (size_t p = 0; p < n; p++) {
        const uint8_t with_mins[4] = {s[2 * p], s[2 * p + 1], m[2 * p], m[2 * p + 1]};
        write_six(scales + (k0 / QUANT_SUPER * n + p) * 3 * PACK_LANES, c,
                  f->coding == SCALE_SIX ? s + 4 * p : with_mins);
    }
}

/* E4M3 with 5 bits of exponent, 3 more: no number but 0 has the exponent 0, so none
 * becomes a subnormal float on the way to its value. */
static uint8_t e5m3_of(uint8_t e4m3) {
    const int top = e4m3 > 3 ? 3 : e4m3 > 1 ? 2 : 1; /* of a number with the exponent 0 */
    return (uint8_t)(e4m3 >= 8 ? e4m3 + 24 : e4m3 == 0 ? 0 : top * 8 + ((e4m3 << (4 - top)) & 7));
}

/* Writes codes of whole bytes, and pairs of nibbles. */
static void join_bytes(const quant_format *f, const quant_codes *codes, size_t lane, size_t k0, size_t n,
                       uint8_t *scales) {
    const size_t group = (size_t)f->group, step = f->coding == SCALE_ODD ? 2 : 1;
    for (size_t i = 0; i < n / group; i += step) {
        const uint8_t second = f->coding == SCALE_FOUR  ? codes->min[i]
                               : f->coding == SCALE_ODD ? codes->scale[i + 1]
                                                        : 0;
        const uint8_t first = f->coding == SCALE_E4M3 ? e5m3_of(codes->scale[i]) : codes->scale[i];
        scales[(k0 / group + i) / step * PACK_LANES + lane] = (uint8_t)(first | second << 4);
    }
}

/* Writes the scales of column c over elements k0..k0+n into the areas for scales and
 * supers. */
static void join_scales(const quant_rule *rule, const quant_codes *codes, int c, int32_t k0, int32_t n,
                        uint8_t *scales, uint8_t *supers) {
    const quant_format *f = &quant_formats[rule->form];
    const size_t group0 = (size_t)k0 / PACK_GROUP, super = (size_t)k0 / QUANT_SUPER, lane = (size_t)c;
    switch (f->coding) {
    case SCALE_F16:
    case SCALE_F16_ZERO:
        join_shared(rule, codes, lane, group0, (size_t)n / PACK_GROUP, scales, supers);
        break;
    case SCALE_F16_MIN:
        for (size_t g = 0; g < (size_t)n / PACK_GROUP; g++) {
            write_half(scales, (group0 + g) * 2 * PACK_LANES + lane, codes->d[g]);
            write_half(scales, ((group0 + g) * 2 + 1) * PACK_LANES + lane, codes->m[g]);
        }
        break;
    case SCALE_SIX:
    case SCALE_SIX_MIN:
        join_sixes(f, codes, c, (size_t)k0, scales);
        break;
    case SCALE_ODD_SPARE:
        break;
    default:
        join_bytes(f, codes, lane, (size_t)k0, (size_t)n, scales);
    }
    if (f->coding == SCALE_FOUR || f->coding == SCALE_SIX_MIN) {
        write_half(supers, 2 * super * PACK_LANES + lane, codes->d[0]);
        write_half(supers, (2 * super + 1) * PACK_LANES + lane, codes->m[0]);
    } else if (f->coding == SCALE_SIX || f->coding == SCALE_EIGHT || f->coding == SCALE_ODD ||
               f->coding == SCALE_ODD_SPARE) {
        write_half(supers, super * PACK_LANES + lane, codes->d[0]);
    }
}

/* Writes 16 columns' codes of elements k0..k0+n (k0 a multiple of QUANT_SUPER) into a
 * block. */
static void join_codes(const pack_layout *plan, const quant_codes columns[PACK_LANES], int32_t k0, int32_t n,
                       uint8_t *block) {
    const quant_format f = *pack_format(plan->kind);
    const size_t group_bytes = pack_group_bytes(&f);
    for (int32_t at = 0; at < n; at += PACK_GROUP) {
        join_planes(f.bits, columns, at, block + (size_t)(k0 + at) / PACK_GROUP * group_bytes);
    }
    for (int c = 0; c < PACK_LANES; c++) {
        join_scales(&plan->rule, &columns[c], c, k0, n, block + plan->scales_at, block + plan->supers_at);
    }
}

/* True for blocks of 32 whose numbers lie in the file as they do in a column's planes:
 * nibbles of elements i and i + 16 in byte i, or bytes. */
static bool is_simple(dtype t) {
    return t == DTYPE_Q4_0 || t == DTYPE_Q4_1 || t == DTYPE_Q5_0 || t == DTYPE_Q5_1 || t == DTYPE_Q8_0 ||
           t == DTYPE_IQ4_NL;
}

/* The fifth bits of 16 columns: bit 4t + j of a column's word is that of byte j of quad
 * t, and goes to bit t of byte j of its plane word. */
static void spread_fifth_bits(const uint8_t *const columns[PACK_LANES], size_t at,
                              uint32_t plane[PLANE_WORDS]) {
    for (int c = 0; c < PACK_LANES; c++) {
        uint32_t bits, word = 0;
        memcpy(&bits, columns[c] + at, sizeof bits);
        for (int t = 0; t < QUADS; t++) {
            word |= ((bits >> (4 * t) & 15u) * 0x00204081u & 0x01010101u) << t;
        }
        plane[c] = word;
    }
}

/* Simple blocks are moved word by word, without a look at their numbers. */
static void pack_simple(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out) {
    static const uint8_t zeros[64];
    const quant_format f = *pack_format(plan->kind);
    bool has_min = f.coding == SCALE_F16_MIN, five = f.bits == 5;
    size_t bytes = (size_t)dtype_block_bytes(w->type), bits_at = has_min ? 4 : 2,
           quants_at = bits_at + (five ? 4 : 0);
    const uint8_t *columns[PACK_LANES];
    size_t steps[PACK_LANES];
    uint8_t *scales = out + plan->scales_at;
    for (int32_t c = 0; c < PACK_LANES; c++) {
        bool there = block * PACK_LANES + c < plan->n_out;
        columns[c] = there ? column_at(w, plan->n_in, block * PACK_LANES + c, 0) : zeros;
        steps[c] = there ? bytes : 0;
    }
    for (int32_t g = 0; g < plan->n_in / PACK_GROUP; g++) {
        transpose_words(columns, quants_at, out);
        out += 4 * PLANE_WORDS * sizeof(uint32_t);
        if (f.bits == 8) {
            transpose_words(columns, quants_at + 16, out);
            out += 4 * PLANE_WORDS * sizeof(uint32_t);
        }
        if (five) {
            uint32_t plane[PLANE_WORDS];
            spread_fifth_bits(columns, bits_at, plane);
            memcpy(out, plane, sizeof plane);
            out += sizeof plane;
        }
        for (int half = 0; half <= has_min; half++, scales += 2 * PACK_LANES) {
            for (int c = 0; c < PACK_LANES; c++) {
                memcpy(scales + 2 * c, columns[c] + 2 * half, 2);
            }
        }
        for (int c = 0; c < PACK_LANES; c++) {
            columns[c] += steps[c];
        }
    }
}

void pack_block_of(const pack_layout *plan, const pack_source *from, int32_t block, uint8_t *out) {
    quant_codes columns[PACK_LANES];
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        const int32_t n = chunk_length(plan, k0);
        memset(columns, 0, sizeof columns);
        for (int32_t c = 0; c < PACK_LANES && block * PACK_LANES + c < plan->n_out; c++) {
            from->read(from->context, block * PACK_LANES + c, k0, n, &columns[c]);
        }
        join_codes(plan, columns, k0, n, out);
    }
}

/* Writes n codes of column c from k0 on, NaN as 0. Returns whether one was NaN. */
static bool put_e4m3(const uint8_t *q, int32_t n, size_t c, size_t k0, uint8_t *out) {
    bool is_bad = false;
    for (int32_t i = 0; i < n; i++) {
        const bool is_nan = (q[i] & 0x7f) == 0x7f;
        out[((k0 + (size_t)i) / 2 * PACK_LANES + c) * 2 + (size_t)i % 2] = is_nan ? 0 : q[i];
        is_bad |= is_nan;
    }
    return is_bad;
}

static void put_fours(const uint8_t *q, int32_t n, size_t c, size_t k0, uint8_t *out) {
    for (size_t i = 0; i < (size_t)n; i++) {
        const size_t k = k0 + i;
        uint8_t *to = &out[(k / 8 * PACK_LANES + c) * 4 + k % 8 / 2];
        *to = (uint8_t)(*to | q[i] << (4 * (k % 2)));
    }
}

/* Writes the codes of the scales of column c, the place of the first, and the outer
 * scales that they need. */
static void put_nested(const pack_layout *plan, const scaled_source *from, int32_t row, size_t c,
                       uint8_t *block) {
    const size_t n = (size_t)n_stretches(&plan->rule, plan->n_in), first = from->first(from->context, row);
    const size_t outer0 = first / NESTED_BLOCK, n_outer = (first + n - 1) / NESTED_BLOCK - outer0 + 1;
    const float place = (float)(first % NESTED_BLOCK);
    uint8_t *supers = block + plan->supers_at;
    assert(n_outer <= (size_t)plan->n_outer);
    for (size_t g = 0; g < n; g++) {
        block[plan->scales_at + g * PACK_LANES + c] = from->nested->codes[first + g];
    }
    memcpy(supers + sizeof place * c, &place, sizeof place);
    for (size_t i = 0; i < n_outer; i++) {
        memcpy(supers + sizeof(float) * ((i + 1) * PACK_LANES + c), &from->nested->outer[outer0 + i],
               sizeof(float));
    }
}

/* Writes the scales of column c, which is a row of the matrix. */
static void put_scales(const pack_layout *plan, const scaled_source *from, int32_t row, size_t c,
                       uint8_t *out) {
    const int64_t stretch = pack_stretch(plan);
    for (int32_t g = 0; g * stretch < plan->n_in; g++) {
        const size_t at = (size_t)g * PACK_LANES + c;
        const float value = from->scale(from->context, row, (int32_t)(g * stretch));
        int exponent;
        if (plan->kind == PACK_E4M3_E8M0) {
            (void)frexpf(value, &exponent); /* 2^(exponent - 1) */
            out[at] = (uint8_t)(exponent + 126);
        } else if (plan->kind != PACK_E4M3_TILE || c == 0) {
            memcpy(out + sizeof value * (plan->kind == PACK_E4M3_TILE ? (size_t)g : at), &value,
                   sizeof value);
        }
    }
}

void pack_block_scaled(const pack_layout *plan, const scaled_source *from, int32_t block, uint8_t *out) {
    float starts[PACK_LANES] = {0.0f};
    uint8_t q[QUANT_SUPER];
    for (int32_t c = 0; c < PACK_LANES && block * PACK_LANES + c < plan->n_out; c++) {
        const int32_t row = block * PACK_LANES + c;
        for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
            const int32_t n = chunk_length(plan, k0);
            from->codes(from->context, row, k0, n, q);
            if (pack_is_fours(plan->kind)) {
                put_fours(q, n, (size_t)c, (size_t)k0, out);
            } else if (put_e4m3(q, n, (size_t)c, (size_t)k0, out)) {
                starts[c] = NAN;
            }
        }
        if (plan->kind == PACK_T4_NESTED) {
            put_nested(plan, from, row, (size_t)c, out);
        } else {
            put_scales(plan, from, row, (size_t)c, out + plan->scales_at);
        }
    }
    if (!pack_is_fours(plan->kind)) {
        memcpy(out + plan->supers_at, starts, sizeof starts);
    }
}

void pack_numbers(pack_kind kind, const scaled_source *from, float *out) {
    memcpy(out, from->table, 16 * sizeof *out);
    if (kind == PACK_T4_NESTED) {
        memcpy(out + 16, from->nested->table, 256 * sizeof *out);
        out[16 + 256] = from->nested->offset;
    }
}

/* Blocks of a file's tensor as a source. */
typedef struct block_source {
    const tensor_view *w;
    int32_t n_in;
} block_source;

static void read_blocks(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    const block_source *s = context;
    quant_split(s->w->type, column_at(s->w, s->n_in, row, k), (size_t)n, out);
}

/* ---- grids ---- */

/* A group's word of signs, and what the spare bits hold: those of the scale, or of the
 * numbers of its rows of 8. */
static uint32_t sign_word(const quant_format *f, const uint16_t *row, const uint8_t *sign, unsigned scale) {
    static const uint16_t spread[16] = {0x0000, 0x0001, 0x0100, 0x0101, 0x0010, 0x0011, 0x0110, 0x0111,
                                        /* four signs, by pack_sign_at */
                                        0x1000, 0x1001, 0x1100, 0x1101, 0x1010, 0x1011, 0x1110, 0x1111};
    uint32_t word = 0;
    for (int j = 0; j < 4; j++) {
        const unsigned spare = f->coding == SCALE_ODD_SPARE ? scale >> j & 1 : (unsigned)row[j] >> 8 & 1;
        const unsigned bits = quant_has_even_signs(f) ? (sign[j] & 127u) | spare << 7 : sign[j];
        word |= (uint32_t)spread[bits & 15] << pack_sign_at(f, j, 0) | (uint32_t)spread[bits >> 4]
                                                                           << pack_sign_at(f, j, 4);
    }
    return word;
}

/* Writes the numbers of rows and the signs of one group of column c. */
static void join_rows(const quant_format *f, const uint16_t *row, const uint8_t *sign, unsigned scale,
                      size_t c, uint8_t *out) {
    const size_t n = PACK_GROUP / (size_t)f->run, signs_at = 16 * n;
    const uint32_t word = sign_word(f, row, sign, scale);
    unsigned high = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t u = i % 4;
        out[64 * (i / 4) + 16 * (c / 4) + 8 * (u / 2) + 2 * (c % 4) + u % 2] = (uint8_t)row[i];
        high |= (row[i] >> 8 & 1u) << i | (f->run == 8 ? row[i] >> 9 & 1u : 0) << (4 + u);
    }
    memcpy(out + signs_at + 4 * c, &word, sizeof word);
    if (!quant_has_even_signs(f)) {
        out[signs_at + 64 + c] = (uint8_t)high;
    }
}

static void pack_rows(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out) {
    const quant_format *f = pack_format(plan->kind);
    const size_t n = PACK_GROUP / (size_t)f->run;
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        for (int32_t c = 0; c < PACK_LANES && block * PACK_LANES + c < plan->n_out; c++) {
            quant_rows rows;
            quant_codes codes = {.d = {0}};
            quant_split_rows(w->type, column_at(w, plan->n_in, block * PACK_LANES + c, k0), &rows, &codes);
            for (size_t g = 0; g < QUANT_SUPER / PACK_GROUP; g++) {
                uint8_t *group = out + ((size_t)k0 / PACK_GROUP + g) * pack_group_bytes(f);
                join_rows(f, rows.row + g * n, rows.sign + 4 * g, codes.scale[g], (size_t)c, group);
            }
            join_scales(&plan->rule, &codes, c, k0, QUANT_SUPER, out + plan->scales_at,
                        out + plan->supers_at);
        }
    }
}

static void pack_grouped(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out) {
    if (is_simple(w->type)) {
        pack_simple(plan, w, block, out);
    } else if (pack_format(plan->kind)->run > 1) {
        pack_rows(plan, w, block, out);
    } else {
        const block_source blocks = {w, plan->n_in};
        pack_block_of(plan, &(pack_source){read_blocks, &blocks}, block, out);
    }
}

void pack_block(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out, float *scales) {
    float columns[PACK_LANES][QUANT_SUPER];
    if (pack_is_grouped(plan->kind)) {
        pack_grouped(plan, w, block, out);
    } else if (plan->kind == PACK_INT8 && w->type == DTYPE_I8) {
        copy_int8(plan, w, block, out, scales);
    } else if (plan->kind == PACK_INT8) {
        pack_int8(plan, w, block, out, scales);
    } else if (plan->kind == PACK_F16) {
        pack_f16(plan, w, block, (uint16_t *)(void *)out);
    } else {
        for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
            int32_t n = chunk_length(plan, k0);
            read_columns(plan, w, block, k0, n, columns);
            if (plan->kind == PACK_F32) {
                pack_f32((const float(*)[QUANT_SUPER])columns, n,
                         (float *)(void *)out + (size_t)k0 * PACK_LANES);
            } else {
                pack_bf16((const float(*)[QUANT_SUPER])columns, n, out + (size_t)k0 * 2 * PACK_LANES);
            }
        }
    }
}
