/* Packs blocks of 16 columns of floats, int8, and floats with scales; other kinds are in
 * pack_blocks.c and pack_codes.c. Works in chunks of QUANT_SUPER of k, so that a chunk of
 * 16 columns stays in cache. */
#include "backend/cpu/pack_weights.h"

#include <assert.h>
#include <math.h>

#include "backend/cpu/pack_blocks.h"
#include "backend/cpu/pack_lanes.h"
#include "base/mem.h"
#include "core/half.h"

/* ---- floats ---- */

/* The scale of a column of int8 weights. */
static float column_scale(const tensor_view *w, int32_t column) {
    const tensor_view *s = w->scale;
    float scale = 0.0f;
    /* cannot fail: the type was checked at load */
    (void)quant_dequantise(
        s->type, (const uint8_t *)s->data + (size_t)column * (size_t)dtype_block_bytes(s->type), 1, &scale);
    return scale;
}

/* Reads elements k0..k0+n of the block's columns as f32; everything else is 0. Loops over
 * a chunk run over all QUANT_SUPER elements: with a constant length the compiler
 * vectorises them. */
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
        const uint8_t *from = pack_column(w, plan->n_in, column, k0);
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
            /* pack_choose has checked the type */
            (void)quant_dequantise(w->type, from, (size_t)n, out[c]);
        }
    }
}

/* Chunks of 16 columns, padded with zeros. */
typedef float float_chunk[PACK_LANES][QUANT_SUPER];
typedef uint16_t half_chunk[PACK_LANES][QUANT_SUPER];

/* The columns of a chunk of QUANT_SUPER elements of `size` bytes. */
static void chunk_columns(const void *chunk, size_t size, const uint8_t *columns[PACK_LANES]) {
    PACK_EACH(c) {
        columns[c] = (const uint8_t *)chunk + (size_t)c * QUANT_SUPER * size;
    }
}

/* Prefetches four rows of words that will be written a chunk later. */
static void fetch_packed_rows(const uint8_t *out) {
    for (size_t i = 0; i < 4; i++) {
        __builtin_prefetch(out + (QUANT_SUPER + i) * sizeof(pack_row), 1);
    }
}

/* Interleaves n words of each column of a chunk. */
static void put_words(const void *chunk, size_t size, size_t n, uint8_t *out) {
    const uint8_t *columns[PACK_LANES];
    chunk_columns(chunk, size, columns);
    for (size_t i = 0; i < n; i += 4, out += sizeof(pack_row[4])) {
        pack_row four[4];
        pack_load_rows(columns, 4 * i, 4, four);
        fetch_packed_rows(out);
        memcpy(out, four, (n - i < 4 ? n - i : 4) * sizeof *four);
    }
}

static void pack_f32(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out) {
    float_chunk x;
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        const int32_t n = pack_chunk(plan, k0);
        read_columns(plan, w, block, k0, n, x);
        put_words(x, sizeof x[0][0], (size_t)n, out + (size_t)k0 * sizeof(pack_row));
    }
}

/* Reads elements k0..k0+n of the block's columns, which are f16; everything else is 0. */
static void read_halves(const pack_layout *plan, const tensor_view *w, int32_t block, int32_t k0, int32_t n,
                        half_chunk out) {
    for (int32_t c = 0; c < PACK_LANES; c++) {
        const int32_t column = block * PACK_LANES + c;
        const size_t bytes = column < plan->n_out ? (size_t)n * sizeof out[0][0] : 0;
        const uint8_t *from = bytes > 0 ? pack_column(w, plan->n_in, column, k0) : NULL;
        mem_copy(out[c], from, bytes);
        memset((uint8_t *)out[c] + bytes, 0, sizeof out[c] - bytes);
        for (size_t line = 0; line < bytes; line += 64) { /* prefetches the next chunk */
            __builtin_prefetch(from + bytes + line);
        }
    }
}

/* f32_to_bf16(f16_to_f32(h)) without a branch, so that the compiler vectorises it. */
static uint16_t bf16_of_f16(uint16_t h) {
    const uint32_t magnitude = h & 0x7fffu, moved = magnitude << 13;
    const uint32_t finite = float_bits(float_of_bits(moved) * 0x1p112f); /* exact */
    const uint32_t rounded = (finite + 0x7fffu + (finite >> 16 & 1u)) >> 16;
    const uint32_t other = (moved | 0x7f800000u) >> 16 | (magnitude > 0x7c00u ? 0x40u : 0u);
    return (uint16_t)((magnitude < 0x7c00u ? rounded : other) | (h & 0x8000u));
}

#define FEW 32 /* f16 values converted together */

/* Converts f16 to bf16 in place. For normal numbers only the exponent changes and three
 * bits are rounded off, which 16-bit operations can do. */
static void round_f16(uint16_t x[QUANT_SUPER]) {
    for (int k = 0; k < QUANT_SUPER; k += FEW) {
        /* lacking: the top bit is set if one of them is not a normal number */
        uint16_t moved[FEW], lacking = 0;
        for (int i = 0; i < FEW; i++) {
            const uint16_t h = x[k + i], m = h & 0x7fff;
            const uint16_t kept = (uint16_t)((m + 3 + (m >> 3 & 1)) >> 3);
            moved[i] = (uint16_t)((h & 0x8000) | (kept + 0x3800));
            lacking = (uint16_t)(lacking | (m - 0x400) | (0x7bff - m));
        }
        if ((lacking & 0x8000) == 0) {
            memcpy(x + k, moved, sizeof moved);
            continue;
        }
        for (int i = k; i < k + FEW; i++) {
            x[i] = bf16_of_f16(x[i]);
        }
    }
}

/* Reads columns as bf16. */
static void read_bf16(const pack_layout *plan, const tensor_view *w, int32_t block, int32_t k0, int32_t n,
                      half_chunk out) {
    if (w->quant == NULL && (w->type == DTYPE_BF16 || w->type == DTYPE_F16)) {
        read_halves(plan, w, block, k0, n, out);
        for (int c = 0; c < PACK_LANES && w->type == DTYPE_F16; c++) {
            round_f16(out[c]);
        }
        return;
    }
    float_chunk x;
    read_columns(plan, w, block, k0, n, x);
    for (int c = 0; c < PACK_LANES; c++) {
        for (int k = 0; k < QUANT_SUPER; k++) {
            out[c][k] = f32_to_bf16(x[c][k]);
        }
    }
}

/* Makes NaNs quiet, since a file's may be signalling; two numbers per word. */
static void pack_bf16(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out) {
    half_chunk halves;
    const uint8_t *columns[PACK_LANES];
    chunk_columns(halves, sizeof halves[0][0], columns);
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        const int32_t n = pack_chunk(plan, k0);
        read_bf16(plan, w, block, k0, n, halves);
        for (int32_t k = 0; k < n; k += 8) {
            const size_t n_rows = n - k < 8 ? (size_t)(n - k + 1) / 2 : 4;
            uint32_t words[4 * PACK_LANES];
            pack_load(columns, 2 * (size_t)k, (uint8_t *)words);
            fetch_packed_rows(out);
            for (int i = 0; i < 4 * PACK_LANES; i++) {
                words[i] |= (((words[i] & 0x7fff7fffu) + 0x007f007fu) & 0x80008000u) >> 9;
            }
            memcpy(out, words, n_rows * sizeof(pack_row));
            out += n_rows * sizeof(pack_row);
        }
    }
}

/* f16 weights are moved, not converted. */
static void pack_f16(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out) {
    half_chunk halves;
    const uint8_t *columns[PACK_LANES];
    chunk_columns(halves, sizeof halves[0][0], columns);
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        const int32_t n = pack_chunk(plan, k0);
        read_halves(plan, w, block, k0, n, halves);
        for (int32_t k = 0; k < n; k += 8) {
            pack_row pairs[4];
            pack_load_rows(columns, 2 * (size_t)k, 4, pairs);
            fetch_packed_rows(out);
            for (int32_t i = 0; i < 8 && k + i < n; i++, out += 2 * PACK_LANES) {
                pack_put_halves(pairs[i / 2], i % 2 * 16, out);
            }
        }
    }
}

/* ---- int8 ---- */

/* The largest of a chunk's magnitudes and `so_far`, compared by bits: in this order NaN
 * is above infinity. */
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

/* Rounds half to even: adding 1.5 * 2^23 leaves the nearest integer. With a subnormal
 * scale, which is imprecise, the quotient may exceed 127. */
static int8_t quantised(float x, float scale) {
    float q = x / scale;
    q = q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
    return (int8_t)((q + 0x1.8p23f) - 0x1.8p23f);
}

static void put_quads(int8_t q[PACK_LANES][QUANT_SUPER], int32_t k0, int32_t n, uint8_t *out) {
    put_words(q, 1, (size_t)(n + 3) / 4, out + (size_t)k0 * PACK_LANES);
}

/* Copies weights that are already int8: numbers and scales unchanged. */
static void copy_int8(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out,
                      float *scales) {
    int32_t n_columns =
        plan->n_out - block * PACK_LANES < PACK_LANES ? plan->n_out - block * PACK_LANES : PACK_LANES;
    for (int32_t c = 0; c < n_columns; c++) {
        scales[c] = column_scale(w, block * PACK_LANES + c);
    }
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        int32_t n = pack_chunk(plan, k0);
        int8_t q[PACK_LANES][QUANT_SUPER] = {{0}};
        for (int32_t c = 0; c < n_columns; c++) {
            memcpy(q[c], pack_column(w, plan->n_in, block * PACK_LANES + c, k0), (size_t)n);
        }
        put_quads(q, k0, n, out);
    }
}

/* Packs int8. A column with a value that is not finite gets the scale NaN and zeros, so
 * that its products are NaN. */
static void pack_int8(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out,
                      float *scales) {
    float columns[PACK_LANES][QUANT_SUPER], largest[PACK_LANES] = {0};
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        int32_t n = pack_chunk(plan, k0);
        read_columns(plan, w, block, k0, n, columns);
        for (int c = 0; c < PACK_LANES; c++) {
            largest[c] = pack_weights_largest_of(columns[c], largest[c]);
        }
    }
    for (int c = 0; c < PACK_LANES; c++) {
        scales[c] = isfinite(largest[c]) ? largest[c] / 127.0f : NAN;
    }
    for (int32_t k0 = 0; k0 < plan->n_in; k0 += QUANT_SUPER) {
        int32_t n = pack_chunk(plan, k0);
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

/* ---- floats with scales ---- */

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

/* Writes the scale codes of column c, the index of the first, and the outer scales that
 * they need. */
static void put_nested(const pack_layout *plan, const scaled_source *from, int32_t row, size_t c,
                       uint8_t *block) {
    const size_t n = (size_t)pack_n_stretches(&plan->rule, plan->n_in),
                 first = from->first(from->context, row);
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

/* Writes the scales of column c, a row of the matrix. */
static void put_scales(const pack_layout *plan, const scaled_source *from, int32_t row, size_t c,
                       uint8_t *out) {
    const int64_t stretch = pack_stretch(plan);
    for (int32_t g = 0; g * stretch < plan->n_in; g++) {
        const size_t at = (size_t)g * PACK_LANES + c;
        const float value = from->scale(from->context, row, (int32_t)(g * stretch));
        int exponent;
        if (plan->kind == PACK_E4M3_E8M0) {
            (void)frexpf(value, &exponent); /* the value is 2^(exponent - 1) */
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
            const int32_t n = pack_chunk(plan, k0);
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

/* ---- all kinds ---- */

/* A pack_source over the blocks of a file's tensor. */
typedef struct block_source {
    const tensor_view *w;
    int32_t n_in;
} block_source;

static void read_blocks(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    const block_source *s = context;
    quant_split(s->w->type, pack_column(s->w, s->n_in, row, k), (size_t)n, out);
}

void pack_block(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out, float *scales) {
    if (pack_is_grouped(plan->kind)) {
        const block_source blocks = {w, plan->n_in};
        if (!pack_file_blocks(plan, w, block, out)) {
            pack_block_of(plan, &(pack_source){read_blocks, &blocks}, block, out);
        }
    } else if (plan->kind == PACK_INT8 && w->type == DTYPE_I8) {
        copy_int8(plan, w, block, out, scales);
    } else if (plan->kind == PACK_INT8) {
        pack_int8(plan, w, block, out, scales);
    } else if (plan->kind == PACK_F16) {
        pack_f16(plan, w, block, out);
    } else if (plan->kind == PACK_F32) {
        pack_f32(plan, w, block, out);
    } else {
        pack_bf16(plan, w, block, out);
    }
}
