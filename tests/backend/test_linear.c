/* Product kernels: every container and compute mode on every instruction set this machine runs, against sums in double and against the
 * plain twin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "backend/cpu/linear_ops.h"
#include "backend/linear_cases.h"
#include "base/mem.h"
#include "core/float8.h"

#define MAX_ROWS  LINEAR_TILE_ROWS
#define SOME_ROWS 33 /* more than a tile of any kernel, and odd */

/* One matrix with its packed form and quantised rows. */
typedef struct product_case {
    dtype type;
    int32_t n_out, n_in;
    uint8_t *source; /* or NULL: */
    const pack_source *codes;
    const scaled_source *floats;
    linear w;
    float *x; /* [MAX_ROWS, n_in] */
} product_case;

static product_case case_new(dtype t, compute_mode mode, int32_t n_out, int32_t n_in, uint64_t seed) {
    product_case c = {.type = t, .n_out = n_out, .n_in = n_in};
    pack_kind kind;
    c.source = random_weights(t, (size_t)n_out * (size_t)n_in, &seed);
    assert_int_equal(pack_choose(t, mode, &kind), QUIRE_OK);
    assert_int_equal(pack_plan(kind, quant_rule_of(t), n_out, n_in, &c.w.layout), QUIRE_OK);
    c.w.format = linear_format(kind, mode);
    c.w.data = mem_new((size_t)c.w.layout.n_blocks, c.w.layout.block_bytes);
    c.w.scales = mem_new((size_t)c.w.layout.n_blocks, PACK_LANES * sizeof(float));
    tensor_view view = matrix_view(t, n_out, n_in, c.source);
    for (int32_t i = 0; i < c.w.layout.n_blocks; i++) {
        pack_block(&c.w.layout, &view, i, c.w.data + (size_t)i * c.w.layout.block_bytes, c.w.scales + (size_t)i * PACK_LANES);
    }
    c.x = malloc(sizeof(float) * MAX_ROWS * (size_t)n_in);
    for (int32_t i = 0; i < MAX_ROWS * n_in; i++) {
        c.x[i] = random_float(&seed) * (i % 37 == 0 ? 8.0f : 1.0f);
    }
    return c;
}

static void case_free(product_case *c) {
    mem_free(c->w.data);
    mem_free(c->w.scales);
    free(c->source);
    free(c->x);
}

static void quantise(const linear_kernels *k, const product_case *c, uint8_t *rows) {
    size_t stride = linear_row_bytes(c->w.format, c->n_in);
    for (size_t r = 0; r < MAX_ROWS; r++) {
        k->quantise[c->w.format](c->x + r * (size_t)c->n_in, c->n_in, rows + r * stride);
    }
}

/* y [n_rows][n_blocks * 16] of rows row0.. by tiles of tile_rows rows and tile_blocks blocks. An odd number of rows goes straight to y. */
static void multiply(const linear_kernels *k, const product_case *c, int32_t row0, int32_t n_rows, int32_t tile_rows, int32_t tile_blocks,
                     float *y) {
    size_t stride = linear_row_bytes(c->w.format, c->n_in);
    int32_t n_blocks = c->w.layout.n_blocks, width = n_blocks * PACK_LANES;
    uint8_t *rows = mem_new(MAX_ROWS, stride);
    float *tile = mem_new((size_t)tile_rows * (size_t)tile_blocks, PACK_LANES * sizeof *tile);
    void *scratch = mem_new(1, LINEAR_SCRATCH_BYTES);
    memset(scratch, 0xff, LINEAR_SCRATCH_BYTES); /* what is read before it is written shows */
    quantise(k, c, rows);
    for (int32_t r = 0; r < n_rows; r += tile_rows) {
        int32_t n = n_rows - r < tile_rows ? n_rows - r : tile_rows;
        for (int32_t b = 0; b < n_blocks; b += tile_blocks) {
            int32_t m = n_blocks - b < tile_blocks ? n_blocks - b : tile_blocks;
            const row_view x = {rows + (size_t)(row0 + r) * stride, stride};
            const linear_part part = {&c->w, b, m, (b / tile_blocks) % 2 == 0 ? linear_block(&c->w, 0) : NULL};
            if (tile_rows % 2 == 1) {
                k->product(&part, x, n, y + r * width + b * PACK_LANES, width, scratch);
                continue;
            }
            k->product(&part, x, n, tile, m * PACK_LANES, scratch);
            for (int32_t i = 0; i < n; i++) {
                memcpy(y + (r + i) * width + b * PACK_LANES, tile + i * m * PACK_LANES, sizeof *y * PACK_LANES * (size_t)m);
            }
        }
    }
    mem_free(scratch);
    mem_free(tile);
    mem_free(rows);
}

/* ---- an own reading of what a product is, in double ---- */

static void reference_quantise(const float *x, int32_t n, double *out) {
    float a = 0.0f;
    for (int32_t i = 0; i < n; i++) {
        a = fmaxf(a, fabsf(x[i]));
    }
    for (int32_t i = 0; i < n; i++) {
        out[i] = a > 0.0f ? (double)rintf(x[i] * (127.0f / a)) * (double)(a / 127.0f) : 0.0;
    }
}

static void reference_row(row_format format, const float *x, int32_t k, double *out) {
    for (int32_t i = 0; i < k; i++) {
        out[i] = format == ROWS_BF16 ? (double)bf16_to_f32(f32_to_bf16(x[i])) : (double)x[i];
    }
    if (format == ROWS_TOKEN) {
        reference_quantise(x, k, out);
    }
    for (int32_t i = 0; format == ROWS_GROUPS && i < k; i += 32) {
        reference_quantise(x + i, 32, out + i);
    }
}

static float float_of_code(const product_case *c, uint8_t code) {
    return c->w.layout.kind == PACK_T4_FLOAT ? c->floats->table[code] : e4m3_to_f32(code);
}

/* Column c of floats with scales. */
static void reference_floats(const product_case *c, int32_t column, double *out) {
    for (int32_t k = 0; k < c->n_in; k++) {
        uint8_t code;
        c->floats->codes(c->floats->context, column, k, 1, &code);
        const float scale = c->floats->scale(c->floats->context, column, k / pack_stretch(&c->w.layout));
        out[k] = (double)float_of_code(c, code) * (double)scale;
    }
}

/* Column c of the weights as the mode uses them. */
static void reference_column(const product_case *c, int32_t column, double *out) {
    if (c->floats != NULL) {
        reference_floats(c, column, out);
        return;
    }
    size_t k = (size_t)c->n_in, row_bytes = k / (size_t)dtype_block_elements(c->type) * (size_t)dtype_block_bytes(c->type);
    float *w = malloc(k * sizeof *w), a = 0.0f;
    for (int32_t i = 0; c->codes != NULL && i < c->n_in; i += QUANT_SUPER) {
        const int32_t n = c->n_in - i < QUANT_SUPER ? c->n_in - i : QUANT_SUPER;
        quant_codes codes = {.q = {0}};
        c->codes->read(c->codes->context, column, i, n, &codes);
        quant_values(&c->w.layout.rule, &codes, (size_t)n, w + i);
    }
    if (c->codes == NULL) {
        assert_int_equal(quant_dequantise(c->type, c->source + (size_t)column * row_bytes, k, w), QUIRE_OK);
    }
    for (size_t i = 0; i < k; i++) {
        a = fmaxf(a, fabsf(w[i]));
    }
    for (size_t i = 0; i < k; i++) {
        out[i] = c->w.format == ROWS_BF16 ? (double)bf16_to_f32(f32_to_bf16(w[i])) : (double)w[i];
        if (c->w.layout.kind == PACK_INT8) {
            out[i] = (double)rintf(w[i] / (a / 127.0f)) * (double)(a / 127.0f);
        }
    }
    free(w);
}

static void expect_near_reference(const product_case *c, const float *y, int32_t n_rows, const char *isa) {
    size_t k = (size_t)c->n_in;
    double *w = malloc(k * sizeof *w), *x = malloc(k * sizeof *x);
    for (int32_t column = 0; column < c->n_out; column++) {
        reference_column(c, column, w);
        for (int32_t r = 0; r < n_rows; r++) {
            double sum = 0.0, size = 0.0;
            reference_row(c->w.format, c->x + (size_t)r * k, c->n_in, x);
            for (size_t i = 0; i < k; i++) {
                sum += x[i] * w[i];
                size += fabs(x[i] * w[i]);
            }
            float got = y[r * c->w.layout.n_blocks * PACK_LANES + column];
            if (!(fabs((double)got - sum) <= 4e-6 * size + 1e-30)) {
                fail_msg("%s %s format %d, %d x %d: row %d column %d is %.9g, not %.9g", isa, dtype_name(c->type), (int)c->w.format,
                         c->n_out, c->n_in, r, column, (double)got, sum);
            }
        }
    }
    free(w);
    free(x);
}

static int32_t rounded_in(dtype t, int32_t n_in) {
    int32_t block = dtype_block_elements(t);
    return (n_in + block - 1) / block * block;
}

static const struct { int32_t n_out, n_in; } shapes[] = {{1, 1}, {16, 32}, {5, 7}, {40, 96}, {131, 320}, {64, 517}, {48, 1312}};

static void every_product_is_near_the_sum_in_double(void **state) {
    (void)state;
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        for (int isa = 0; isa < N_ISAS; isa++) {
            backend *b = open_isa(isa_names[isa], mode, 1);
            if (b == NULL) {
                print_message("SKIP %s: not on this machine\n", isa_names[isa]);
                continue;
            }
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] * N_WEIGHT_TYPES; i++) {
                dtype t = weight_types[i % N_WEIGHT_TYPES];
                product_case c = case_new(t, mode, shapes[i / N_WEIGHT_TYPES].n_out, rounded_in(t, shapes[i / N_WEIGHT_TYPES].n_in), i + 1);
                float *y = malloc(sizeof *y * 3 * PACK_LANES * (size_t)c.w.layout.n_blocks);
                multiply(((cpu_backend *)b)->linear, &c, 0, 3, 3, LINEAR_TILE_BLOCKS, y);
                expect_near_reference(&c, y, 3, isa_names[isa]);
                free(y);
                case_free(&c);
            }
            b->ops->close(b);
        }
    }
}

static void expect_same_columns(const product_case *c, const float *a, const float *b, int32_t n_rows, const char *what) {
    int32_t width = c->w.layout.n_blocks * PACK_LANES;
    for (int32_t r = 0; r < n_rows; r++) {
        if (memcmp(a + r * width, b + r * width, sizeof *a * (size_t)c->n_out) != 0) {
            fail_msg("%s: %s format %d, %d x %d: row %d of %d has other bits", what, dtype_name(c->type), (int)c->w.format, c->n_out,
                     c->n_in, r, n_rows);
        }
    }
}

static void a_row_has_the_same_bits_in_every_tile_and_on_every_instruction_set(void **state) {
    (void)state;
    static const int32_t n_rows[] = {1, 2, 3, 7, 16, 33}, tile_rows[] = {1, 5, 16, 33}, tile_blocks[] = {1, 2, 3, 4};
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] * N_WEIGHT_TYPES; i++) {
            dtype t = weight_types[i % N_WEIGHT_TYPES];
            product_case c = case_new(t, mode, shapes[i / N_WEIGHT_TYPES].n_out, rounded_in(t, shapes[i / N_WEIGHT_TYPES].n_in), i + 1);
            size_t bytes = sizeof(float) * SOME_ROWS * PACK_LANES * (size_t)c.w.layout.n_blocks;
            float *expected = malloc(bytes), *y = malloc(bytes);
            multiply(&linear_plain, &c, 0, SOME_ROWS, 1, 1, expected);
            for (int isa = 0; isa < N_ISAS; isa++) {
                backend *b = open_isa(isa_names[isa], mode, 1);
                if (b == NULL) {
                    continue;
                }
                const linear_kernels *k = ((cpu_backend *)b)->linear;
                if (mode == COMPUTE_BF16 && isa == ISA_AVX512_BF16) {
                    multiply(k, &c, 0, SOME_ROWS, 1, 1, expected); /* the dot instruction's own bits */
                }
                for (size_t m = 0; m < sizeof n_rows / sizeof n_rows[0]; m++) {
                    multiply(k, &c, 0, n_rows[m], tile_rows[m % 4], tile_blocks[(m + i) % 4], y);
                    expect_same_columns(&c, expected, y, n_rows[m], isa_names[isa]);
                    multiply(k, &c, 0, n_rows[m], SOME_ROWS, LINEAR_TILE_BLOCKS, y);
                    expect_same_columns(&c, expected, y, n_rows[m], isa_names[isa]);
                }
                b->ops->close(b);
            }
            free(expected);
            free(y);
            case_free(&c);
        }
    }
}

/* Some numbers next to nothing, zero, huge or none at all; what a row holds beside its numbers is compared too. */
static void prepared_rows_are_those_of_the_plain_twin(void **state) {
    (void)state;
    enum { MOST = 11 * PACK_GROUP, ROOM = 2 * MOST + 64 };
    static const float kinds[] = {1.0f, 0x1p-110f, 0.0f, 3e38f, 1.0f, NAN, -1e-3f, 1.0f, INFINITY, 1.0f, 0x1p-100f};
    _Alignas(64) uint8_t want[ROOM], got[ROOM];
    float x[MOST];
    uint64_t seed = 77;
    for (int32_t i = 0; i < MOST; i++) {
        float kind = kinds[i / PACK_GROUP];
        x[i] = isfinite(kind) ? kind * random_float(&seed) : i % PACK_GROUP == 21 ? kind : 1.0f;
    }
    for (int isa = 1; isa < N_ISAS; isa++) {
        backend *b = open_isa(isa_names[isa], COMPUTE_INT8, 1);
        for (int32_t k = 1; b != NULL && k <= MOST; k++) {
            for (row_format f = ROWS_TOKEN; f <= ROWS_GROUPS; f++) {
                for (int32_t from = 0; from + k <= MOST && (f == ROWS_TOKEN || k % PACK_GROUP == 0); from += PACK_GROUP) {
                    memset(want, 7, ROOM);
                    memset(got, 7, ROOM);
                    linear_plain.quantise[f](x + from, k, want);
                    ((cpu_backend *)b)->linear->quantise[f](x + from, k, got);
                    if (memcmp(want, got, ROOM) != 0) {
                        fail_msg("%s: %d numbers from %d, format %d", isa_names[isa], k, from, (int)f);
                    }
                }
            }
        }
        if (b != NULL) {
            b->ops->close(b);
        }
    }
}

/* Rows so long that their sums wait in y, in every number of passes. */
static void long_int8_rows_have_the_bits_of_the_plain_twin(void **state) {
    (void)state;
    product_case c = case_new(DTYPE_F32, COMPUTE_INT8, 70, 2500, 5);
    size_t bytes = sizeof(float) * SOME_ROWS * PACK_LANES * (size_t)c.w.layout.n_blocks;
    float *expected = malloc(bytes), *y = malloc(bytes);
    multiply(&linear_plain, &c, 0, SOME_ROWS, 1, 1, expected);
    for (int isa = 1; isa < N_ISAS; isa++) {
        backend *b = open_isa(isa_names[isa], COMPUTE_INT8, 1);
        if (b == NULL) {
            print_message("SKIP %s: not on this machine\n", isa_names[isa]);
            continue;
        }
        for (int32_t n_rows = 1; n_rows <= SOME_ROWS; n_rows++) {
            multiply(((cpu_backend *)b)->linear, &c, 0, n_rows, SOME_ROWS, n_rows % LINEAR_TILE_BLOCKS + 1, y);
            expect_same_columns(&c, expected, y, n_rows, isa_names[isa]);
        }
        b->ops->close(b);
    }
    free(expected);
    free(y);
    case_free(&c);
}

/* Parts as the ops cut them: up to 16 blocks of few rows, and a whole tile of rows. */
static void wide_parts_and_whole_tiles_have_the_bits_of_the_plain_twin(void **state) {
    (void)state;
    static const int32_t n_rows[] = {1, 2, 3, 4, 5, 8, 16, 31, 32, 63, 64}, tile_blocks[] = {16, 9, 16, 16, 5, 16, 16, 8, 8, 9, 4};
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        for (size_t i = 0; i < N_WEIGHT_TYPES; i++) {
            product_case c = case_new(weight_types[i], mode, 19 * PACK_LANES - 5, rounded_in(weight_types[i], 700), i + 1);
            size_t bytes = sizeof(float) * MAX_ROWS * PACK_LANES * (size_t)c.w.layout.n_blocks;
            float *expected = malloc(bytes), *y = malloc(bytes);
            multiply(&linear_plain, &c, 0, MAX_ROWS, 1, 1, expected);
            for (int isa = 1; isa < N_ISAS; isa++) {
                backend *b = open_isa(isa_names[isa], mode, 1);
                if (b == NULL) {
                    continue;
                }
                const linear_kernels *k = ((cpu_backend *)b)->linear;
                if (mode == COMPUTE_BF16 && isa == ISA_AVX512_BF16) {
                    multiply(k, &c, 0, MAX_ROWS, 1, 1, expected); /* the dot instruction's own bits */
                }
                for (size_t m = 0; m < sizeof n_rows / sizeof n_rows[0]; m++) {
                    multiply(k, &c, 0, n_rows[m], n_rows[m], tile_blocks[m], y);
                    expect_same_columns(&c, expected, y, n_rows[m], isa_names[isa]);
                }
                b->ops->close(b);
            }
            free(expected);
            free(y);
            case_free(&c);
        }
    }
}

/* With one element of x set, y is that weight times it. Numbers and scale codes are integers of at most 8 bits, so a product this near to
 * the file's value can come from no other codes. */
static void repacked_types_keep_every_value(void **state) {
    (void)state;
    for (size_t i = 3; i < N_WEIGHT_TYPES; i++) {
        product_case c = case_new(weight_types[i], COMPUTE_INT8, 19, 512, 77 + i);
        size_t k = (size_t)c.n_in, row_bytes = linear_row_bytes(ROWS_GROUPS, c.n_in);
        float *w = malloc((size_t)c.n_out * k * sizeof *w), *x = calloc(k, sizeof *x), y[2 * PACK_LANES];
        uint8_t *row = mem_new(1, row_bytes);
        assert_int_equal(quant_dequantise(c.type, c.source, (size_t)c.n_out * k, w), QUIRE_OK);
        for (size_t j = 0; j < k; j++) {
            x[j] = 127.0f;
            linear_plain.quantise[ROWS_GROUPS](x, c.n_in, row);
            x[j] = 0.0f;
            const linear_part whole = {.w = &c.w, .n_blocks = c.w.layout.n_blocks};
            linear_plain.product(&whole, (row_view){row, row_bytes}, 1, y, c.w.layout.n_blocks * PACK_LANES, NULL);
            for (size_t column = 0; column < (size_t)c.n_out; column++) {
                float value = w[column * k + j], largest = 0.0f;
                for (size_t g = j / 32 * 32; g < j / 32 * 32 + 32; g++) {
                    largest = fmaxf(largest, fabsf(w[column * k + g]));
                }
                if (!(fabsf(y[column] / 127.0f - value) <= 1e-6f * largest)) {
                    fail_msg("%s: column %zu, k %zu: %.9g, not %.9g", dtype_name(c.type), column, j, (double)(y[column] / 127.0f),
                             (double)value);
                }
            }
        }
        free(w);
        free(x);
        mem_free(row);
        case_free(&c);
    }
}

/* Bytes of 256 elements where codes are unpacked: 3 or 4 bits instead of a grid's row, 2 instead of a digit. */
static size_t unpacked_bytes(dtype t) {
    switch (t) {
    case DTYPE_IQ3_S:
    case DTYPE_IQ3_XXS:
        return 134;
    case DTYPE_IQ2_S:
    case DTYPE_IQ2_XS:
    case DTYPE_IQ1_M:
        return 106;
    case DTYPE_IQ2_XXS:
    case DTYPE_IQ1_S:
        return 102;
    default:
        return 66;
    }
}

static void packed_types_take_their_published_bits_or_those_of_unpacked_codes(void **state) {
    (void)state;
    for (size_t i = 3; i < N_WEIGHT_TYPES; i++) {
        const dtype t = weight_types[i];
        pack_kind kind;
        pack_layout plan;
        assert_int_equal(pack_choose(t, COMPUTE_INT8, &kind), QUIRE_OK);
        assert_int_equal(pack_plan(kind, quant_rule_of(t), 64, 2048, &plan), QUIRE_OK);
        const size_t all = plan.block_bytes * (size_t)plan.n_blocks;
        size_t published = 64 * 2048 / (size_t)dtype_block_elements(t) * (size_t)dtype_block_bytes(t);
        if (t >= DTYPE_IQ3_S) {
            published = 64 * 2048 / 256 * unpacked_bytes(t);
            assert_true(all >= published && all * 100 <= published * 101); /* and the zeros of TQ */
        } else {
            assert_int_equal(all, published);
        }
    }
}

/* ---- integers with one scale for so many of k, and zeros ---- */

typedef struct integers {
    int bits;
    int32_t group; /* 0: the whole row */
} integers;

static uint32_t mixed(uint32_t row, uint32_t i, uint32_t what) {
    uint64_t seed = ((uint64_t)row << 32) + i * 4 + what;
    return (uint32_t)(rng_next(&seed) >> 32);
}

/* Codes, scales and zeros that follow from their places alone. */
static void read_integers(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    const integers *s = context;
    const uint32_t mask = (1u << s->bits) - 1, r = (uint32_t)row;
    for (int32_t i = 0; i < n; i++) {
        out->q[i] = (uint8_t)(mixed(r, (uint32_t)(k + i), 0) & mask);
    }
    for (int32_t i = 0; i < n; i += QUANT_GROUP) {
        const uint32_t group = s->group > 0 ? (uint32_t)((k + i) / s->group) : 0;
        out->d[i / QUANT_GROUP] = f32_to_f16((float)(int32_t)(mixed(r, group, 1) % 2001 - 1000) * 0x1p-16f);
        out->zero[i / QUANT_GROUP] = (uint8_t)(mixed(r, group, 2) & mask);
    }
}

static product_case integer_case(const pack_source *from, const quant_rule *rule, int32_t n_out, int32_t n_in) {
    product_case c = {.codes = from, .n_out = n_out, .n_in = n_in};
    uint64_t seed = 3;
    assert_int_equal(pack_plan(pack_kind_of(rule->form), rule, n_out, n_in, &c.w.layout), QUIRE_OK);
    c.w.format = ROWS_GROUPS;
    c.w.data = mem_new((size_t)c.w.layout.n_blocks, c.w.layout.block_bytes);
    for (int32_t i = 0; i < c.w.layout.n_blocks; i++) {
        pack_block_of(&c.w.layout, from, i, c.w.data + (size_t)i * c.w.layout.block_bytes);
    }
    c.x = malloc(sizeof(float) * MAX_ROWS * (size_t)n_in);
    for (int32_t i = 0; i < MAX_ROWS * n_in; i++) {
        c.x[i] = random_float(&seed);
    }
    return c;
}

static void expect_plain_bits(const product_case *c) {
    static const int32_t n_rows[] = {1, 2, 3, 6, 33, 64};
    size_t bytes = sizeof(float) * MAX_ROWS * PACK_LANES * (size_t)c->w.layout.n_blocks;
    float *expected = malloc(bytes), *y = malloc(bytes);
    multiply(&linear_plain, c, 0, MAX_ROWS, 1, 1, expected);
    expect_near_reference(c, expected, 3, "plain");
    for (int isa = 1; isa < N_ISAS; isa++) {
        backend *b = open_isa(isa_names[isa], COMPUTE_INT8, 1);
        for (size_t m = 0; b != NULL && m < sizeof n_rows / sizeof n_rows[0]; m++) {
            multiply(((cpu_backend *)b)->linear, c, 0, n_rows[m], n_rows[m], m % 2 == 0 ? 16 : 3, y);
            expect_same_columns(c, expected, y, n_rows[m], isa_names[isa]);
        }
        if (b != NULL) {
            b->ops->close(b);
        }
    }
    free(expected);
    free(y);
}

static void integers_with_any_group_and_zeros_multiply_exactly(void **state) {
    (void)state;
    static const int bits[] = {2, 3, 4, 8};
    static const int32_t groups[] = {32, 64, 96, 128, 256, 0}, widths[] = {96, 416, 768};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0] * sizeof groups / sizeof groups[0] * 2; i++) {
        const integers s = {.bits = bits[i % 4], .group = groups[i / 4 % 6]};
        const pack_source from = {read_integers, &s};
        quant_rule rule;
        assert_int_equal(pack_integers(s.bits, s.group, i / 24 == 1, &rule), QUIRE_OK);
        product_case c = integer_case(&from, &rule, 83, widths[i % 3]);
        expect_plain_bits(&c);
        case_free(&c);
    }
}

static void integers_take_their_bits_a_half_and_a_zero_of_their_own_bits_a_group(void **state) {
    (void)state;
    static const struct {
        int bits;
        int32_t group;
        bool has_zeros;
        double published; /* bits a weight */
    } cases[] = {{4, 128, false, 4 + 16.0 / 128},
                 {4, 128, true, 4 + 20.0 / 128},
                 {4, 32, true, 4 + 20.0 / 32},
                 {3, 128, true, 3 + 19.0 / 128},
                 {2, 64, true, 2 + 18.0 / 64},
                 {8, 128, true, 8 + 24.0 / 128},
                 {8, 0, false, 8},
                 {4, 0, true, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        quant_rule rule;
        pack_layout plan;
        assert_int_equal(pack_integers(cases[i].bits, cases[i].group, cases[i].has_zeros, &rule), QUIRE_OK);
        assert_int_equal(pack_plan(pack_kind_of(rule.form), &rule, 2048, 2048, &plan), QUIRE_OK);
        const double got = (double)plan.block_bytes * plan.n_blocks * 8 / 2048 / 2048;
        if (!(got >= cases[i].published && got <= 1.03 * cases[i].published)) {
            fail_msg("%d bits, groups of %d: %g bits a weight, not %g", cases[i].bits, (int)cases[i].group, got, cases[i].published);
        }
    }
}

/* Q4_0 and Q8_0 are such forms, with groups of 32. */
static void read_q4_0(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    quant_split(DTYPE_Q4_0, (const uint8_t *)context + (row * 352 + k) / 32 * 18, (size_t)n, out);
}
static void read_q8_0(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    quant_split(DTYPE_Q8_0, (const uint8_t *)context + (row * 352 + k) / 32 * 34, (size_t)n, out);
}

static void q4_0_and_q8_0_are_integers_with_groups_of_32(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        product_case file = case_new(i == 0 ? DTYPE_Q4_0 : DTYPE_Q8_0, COMPUTE_INT8, 40, 352, 5);
        const pack_source from = {i == 0 ? read_q4_0 : read_q8_0, file.source};
        quant_rule rule;
        assert_int_equal(pack_integers(i == 0 ? 4 : 8, 32, false, &rule), QUIRE_OK);
        product_case c = integer_case(&from, &rule, 40, 352);
        assert_int_equal(c.w.layout.kind, file.w.layout.kind);
        assert_int_equal(c.w.layout.block_bytes, file.w.layout.block_bytes);
        assert_memory_equal(c.w.data, file.w.data, c.w.layout.block_bytes * (size_t)c.w.layout.n_blocks);
        case_free(&c);
        case_free(&file);
    }
}

static void integers_without_a_form_are_refused(void **state) {
    (void)state;
    quant_rule rule;
    assert_int_equal(pack_integers(5, 32, false, &rule), QUIRE_UNSUPPORTED);
    assert_int_equal(pack_integers(4, 48, false, &rule), QUIRE_UNSUPPORTED);
    assert_int_equal(pack_integers(4, 16, true, &rule), QUIRE_UNSUPPORTED);
    assert_int_equal(pack_integers(4, -32, true, &rule), QUIRE_UNSUPPORTED);
    assert_int_equal(pack_integers(INT32_MAX, 32, true, &rule), QUIRE_UNSUPPORTED);
}

/* ---- floats with scales ---- */

typedef struct some_floats {
    pack_kind kind;
    float table[16];
    int32_t nan_row, nan_k; /* a code that is NaN */
    bool is_zero;           /* 0 there in its place */
} some_floats;

static void read_float_codes(const void *context, int32_t row, int32_t k, int32_t n, uint8_t *out) {
    const some_floats *s = context;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t code = (uint8_t)mixed((uint32_t)row, (uint32_t)(k + i), 0);
        const bool is_bad = row == s->nan_row && k + i == s->nan_k;
        out[i] = s->kind == PACK_T4_FLOAT ? code & 15 : is_bad ? (s->is_zero ? 0 : 0xff) : (code & 0x7f) == 0x7f ? 3 : code;
    }
}

static float read_float_scale(const void *context, int32_t row, int32_t stretch) {
    const some_floats *s = context;
    const uint32_t at = mixed((uint32_t)(s->kind == PACK_E4M3_TILE ? row / PACK_LANES : row), (uint32_t)stretch, 1);
    return s->kind == PACK_E4M3_E8M0 ? ldexpf(1.0f, (int)(at % 16) - 12) : (float)(int32_t)(at % 20001 - 10000) * 0x1p-18f;
}

static scaled_source source_of(some_floats *s) {
    for (int i = 0; i < 16; i++) {
        s->table[i] = (float)(int32_t)(mixed(99, (uint32_t)i, 0) >> 8) * 0x1p-23f - 1.0f;
    }
    return (scaled_source){read_float_codes, read_float_scale, s->table, s};
}

static product_case float_case(const scaled_source *from, pack_kind kind, row_format format, int32_t shift, int32_t n_out, int32_t n_in) {
    product_case c = {.floats = from, .n_out = n_out, .n_in = n_in};
    const quant_rule rule = {.shift = shift};
    uint64_t seed = (uint64_t)n_in;
    assert_int_equal(pack_plan(kind, &rule, n_out, n_in, &c.w.layout), QUIRE_OK);
    c.w.format = format;
    c.w.data = mem_new((size_t)c.w.layout.n_blocks, c.w.layout.block_bytes);
    for (int32_t i = 0; i < c.w.layout.n_blocks; i++) {
        pack_block_scaled(&c.w.layout, from, i, c.w.data + (size_t)i * c.w.layout.block_bytes);
    }
    c.x = malloc(sizeof(float) * MAX_ROWS * (size_t)n_in);
    for (int32_t i = 0; i < MAX_ROWS * n_in; i++) {
        c.x[i] = random_float(&seed);
    }
    return c;
}

/* The plain twin's bits on every instruction set, in tiles of any size; or the dot instruction's own. */
static void expect_bits_of_floats(const product_case *c) {
    static const int32_t n_rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 64}, tile_blocks[] = {4, 3, 16, 1};
    size_t bytes = sizeof(float) * MAX_ROWS * PACK_LANES * (size_t)c->w.layout.n_blocks;
    float *expected = malloc(bytes), *y = malloc(bytes);
    multiply(&linear_plain, c, 0, MAX_ROWS, 1, 1, expected);
    expect_near_reference(c, expected, 3, "plain");
    for (int isa = 1; isa < N_ISAS; isa++) {
        backend *b = open_isa(isa_names[isa], COMPUTE_BF16, 1);
        if (b == NULL) {
            continue;
        }
        const linear_kernels *k = ((cpu_backend *)b)->linear;
        if (isa == ISA_AVX512_BF16 && c->w.format == ROWS_BF16) {
            multiply(k, c, 0, MAX_ROWS, 1, 1, expected);
            expect_near_reference(c, expected, 3, isa_names[isa]);
        }
        for (size_t m = 0; m < sizeof n_rows / sizeof n_rows[0]; m++) {
            multiply(k, c, 0, n_rows[m], n_rows[m], tile_blocks[m % 4], y);
            expect_same_columns(c, expected, y, n_rows[m], isa_names[isa]);
        }
        b->ops->close(b);
    }
    free(expected);
    free(y);
}

static const pack_kind float_kinds[] = {PACK_E4M3, PACK_E4M3_TILE, PACK_E4M3_E8M0, PACK_T4_FLOAT};

static void floats_with_scales_have_the_bits_of_the_plain_twin(void **state) {
    (void)state;
    static const struct { int32_t n_out, n_in; } sizes[] = {{1, 1}, {16, 32}, {5, 7}, {83, 517}, {40, 768}, {64, 1312}};
    static const int32_t groups[] = {32, 64, 128, 256, 0};
    for (size_t i = 0; i < 4 * 2 * 6; i++) {
        some_floats s = {.kind = float_kinds[i % 4], .nan_row = -1};
        const row_format format = i / 4 % 2 == 0 || s.kind == PACK_T4_FLOAT ? ROWS_F32 : ROWS_BF16;
        const scaled_source from = source_of(&s);
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
            int32_t shift;
            assert_int_equal(pack_stretches(groups[g], &shift), QUIRE_OK);
            product_case c = float_case(&from, s.kind, format, shift, sizes[i / 8].n_out, sizes[i / 8].n_in);
            expect_bits_of_floats(&c);
            case_free(&c);
        }
    }
}

static void read_all_codes(const void *context, int32_t row, int32_t k, int32_t n, uint8_t *out) {
    (void)context;
    for (int32_t i = 0; i < n; i++) {
        out[i] = (uint8_t)(k + i + 128 * row);
    }
}
static float scale_of_1(const void *context, int32_t row, int32_t stretch) {
    (void)context;
    (void)row;
    (void)stretch;
    return 1.0f;
}

/* Rows that are 1 at one place and else 0 show each code's value. */
static void every_code_of_e4m3_has_its_value(void **state) {
    (void)state;
    const scaled_source from = {read_all_codes, scale_of_1, NULL, NULL};
    for (size_t i = 0; i < 3 * 4; i++) {
        product_case c = float_case(&from, float_kinds[i % 3], i < 6 ? ROWS_F32 : ROWS_BF16, 2, 2, 126 + (i % 2 == 0));
        for (int32_t j = 0; j < MAX_ROWS * c.n_in; j++) {
            c.x[j] = j % c.n_in == j / c.n_in * 2 ? 1.0f : 0.0f;
        }
        for (int isa = 0; isa < N_ISAS; isa++) {
            float y[MAX_ROWS * PACK_LANES];
            backend *b = open_isa(isa_names[isa], COMPUTE_BF16, 1);
            if (b == NULL) {
                continue;
            }
            multiply(((cpu_backend *)b)->linear, &c, 0, MAX_ROWS, MAX_ROWS - (int32_t)(i % 3) * 31, 1, y);
            for (int32_t r = 0; r < MAX_ROWS && 2 * r < c.n_in; r++) {
                assert_true(y[r * PACK_LANES] == e4m3_to_f32((uint8_t)(2 * r)));
                assert_true(y[r * PACK_LANES + 1] == e4m3_to_f32((uint8_t)(2 * r + 128)));
            }
            b->ops->close(b);
        }
        case_free(&c);
    }
}

static void a_code_that_is_nan_makes_its_column_nan_and_no_other(void **state) {
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        some_floats bad = {.kind = float_kinds[i % 3], .nan_row = 21, .nan_k = 70}, zero = bad;
        zero.is_zero = true;
        const scaled_source from = source_of(&bad), instead = source_of(&zero);
        product_case c = float_case(&from, bad.kind, i < 3 ? ROWS_F32 : ROWS_BF16, 1, 40, 96);
        product_case other = float_case(&instead, bad.kind, c.w.format, 1, 40, 96);
        for (int isa = 0; isa < N_ISAS; isa++) {
            float y[9 * 48], want[9 * 48];
            backend *b = open_isa(isa_names[isa], COMPUTE_BF16, 1);
            if (b == NULL) {
                continue;
            }
            for (int32_t rows = 1; rows <= 9; rows += 8) {
                multiply(((cpu_backend *)b)->linear, &c, 0, 9, rows, 3, y);
                multiply(((cpu_backend *)b)->linear, &other, 0, 9, rows, 3, want);
                for (int at = 0; at < 9 * 48; at++) {
                    assert_true(at % 48 >= 40 || (at % 48 == 21 ? isnan(y[at]) : y[at] == want[at]));
                }
            }
            b->ops->close(b);
        }
        case_free(&c);
        case_free(&other);
    }
}

static void floats_with_scales_take_their_published_bits(void **state) {
    (void)state;
    static const struct {
        pack_kind kind;
        int32_t group;
        double published; /* bits a weight of 2048 x 2048, with scales in 32 bits or those of E8M0 */
    } cases[] = {{PACK_E4M3_TILE, 0, 8},           {PACK_E4M3, 0, 8 + 32.0 / 2048},    {PACK_E4M3_TILE, 128, 8 + 32.0 / 16384},
                 {PACK_E4M3, 128, 8 + 32.0 / 128}, {PACK_E4M3_E8M0, 32, 8 + 8.0 / 32}, {PACK_T4_FLOAT, 64, 4 + 32.0 / 64}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        quant_rule rule = {.unit = 1.0f};
        pack_layout plan;
        assert_int_equal(pack_stretches(cases[i].group, &rule.shift), QUIRE_OK);
        assert_int_equal(pack_plan(cases[i].kind, &rule, 2048, 2048, &plan), QUIRE_OK);
        const double got = (double)plan.block_bytes * plan.n_blocks * 8 / 2048 / 2048;
        assert_true(got >= cases[i].published && got <= 1.03 * cases[i].published);
    }
}

static void stretches_without_a_kind_are_refused(void **state) {
    (void)state;
    static const int32_t groups[] = {1, 16, 31, 48, 96, 2048, -32, INT32_MIN, INT32_MAX};
    int32_t shift;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        assert_int_equal(pack_stretches(groups[i], &shift), QUIRE_UNSUPPORTED);
    }
    static const int32_t shifts[] = {-1, 6, 30, 32};
    for (size_t i = 0; i < sizeof shifts / sizeof shifts[0]; i++) {
        const quant_rule rule = {.shift = shifts[i]};
        pack_layout plan;
        assert_int_equal(pack_plan(PACK_E4M3, &rule, 16, 64, &plan), QUIRE_INVALID);
    }
}

static void impossible_shapes_are_refused(void **state) {
    (void)state;
    pack_layout plan;
    pack_kind kind;
    assert_int_equal(pack_plan(PACK_F32, NULL, 0, 4, &plan), QUIRE_INVALID);
    assert_int_equal(pack_plan(PACK_F32, NULL, 4, -1, &plan), QUIRE_INVALID);
    assert_int_equal(pack_plan(PACK_W4, quant_rule_of(DTYPE_Q4_0), 16, 48, &plan), QUIRE_INVALID);
    assert_int_equal(pack_plan(PACK_W4_SIX_MIN, quant_rule_of(DTYPE_Q4_K), 16, 96, &plan), QUIRE_INVALID);
    assert_int_equal(pack_plan(PACK_INT8, NULL, 16, 131073, &plan), QUIRE_TOO_LARGE);
    assert_int_equal(pack_choose(DTYPE_I32, COMPUTE_F32, &kind), QUIRE_UNSUPPORTED);
}

/* Extremes: int8's lowest number, the largest sums, subnormal and huge scales, all on every instruction set as on plain C. */
static void extreme_numbers_do_not_saturate(void **state) {
    (void)state;
    static const dtype types[] = {DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_Q5_0, DTYPE_Q4_0, DTYPE_F32};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        product_case c = case_new(types[i], COMPUTE_INT8, 16, 512, 5);
        for (size_t j = 0; types[i] == DTYPE_Q8_0 && j < 16 * 512 / 32; j++) {
            memset(c.source + j * 34 + 2, j % 2 != 0 ? 0x80 : 0x7f, 32);
        }
        for (size_t j = 0; types[i] == DTYPE_Q6_K && j < 32; j++) {
            memset(c.source + j * 210, j % 2 != 0 ? 0 : 0xff, 192);
        }
        for (int32_t j = 0; j < MAX_ROWS * c.n_in; j++) {
            c.x[j] = j / c.n_in % 3 == 0 ? 1.0f : j / c.n_in % 3 == 1 ? -1.0f : j % 2 != 0 ? 1.0f : -1.0f;
        }
        tensor_view view = matrix_view(c.type, c.n_out, c.n_in, c.source);
        memset(c.w.data, 0, c.w.layout.block_bytes);
        pack_block(&c.w.layout, &view, 0, c.w.data, c.w.scales);
        float expected[MAX_ROWS * PACK_LANES], y[MAX_ROWS * PACK_LANES];
        multiply(&linear_plain, &c, 0, MAX_ROWS, 1, 1, expected);
        expect_near_reference(&c, expected, 3, "plain");
        for (int isa = 1; isa < N_ISAS; isa++) {
            backend *b = open_isa(isa_names[isa], COMPUTE_INT8, 1);
            if (b != NULL) {
                multiply(((cpu_backend *)b)->linear, &c, 0, MAX_ROWS, MAX_ROWS, 1, y);
                expect_same_columns(&c, expected, y, MAX_ROWS, isa_names[isa]);
                b->ops->close(b);
            }
        }
        case_free(&c);
    }
}

static void values_that_are_not_finite_come_out_as_nan_in_their_row_only(void **state) {
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int isa = 0; isa < N_ISAS; isa++) {
        for (int i = 0; i < 6; i++) {
            backend *b = open_isa(isa_names[isa], COMPUTE_INT8, 1);
            if (b == NULL) {
                continue;
            }
            product_case c = case_new(i < 3 ? DTYPE_F32 : DTYPE_Q4_K, COMPUTE_INT8, 16, 256, 9);
            float y[3 * PACK_LANES];
            c.x[256 + 70] = bad[i % 3];
            multiply(((cpu_backend *)b)->linear, &c, 0, 3, 3, 1, y);
            for (int column = 0; column < PACK_LANES; column++) {
                assert_true(isfinite(y[column]) && isnan(y[PACK_LANES + column]) && isfinite(y[2 * PACK_LANES + column]));
            }
            case_free(&c);
            b->ops->close(b);
        }
    }
}

static void f32_and_int8_products_have_the_stored_bits(void **state) {
    (void)state;
    static const uint64_t stored[] = {0x7b88874e7a433308u, 0x34078b67781c4a55u, 0xaaf2304f5775a91cu, 0xbc1d793897fa0b77u};
    static const compute_mode modes[] = {COMPUTE_F32, COMPUTE_INT8, COMPUTE_F32, COMPUTE_INT8};
    for (int i = 0; i < 4; i++) {
        for (int isa = 0; isa < N_ISAS; isa++) {
            backend *b = open_isa(isa_names[isa], modes[i], 1);
            if (b == NULL) {
                continue;
            }
            uint64_t hash = 0xcbf29ce484222325u;
            for (size_t t = i < 2 ? 0 : N_OLD_TYPES; t < (size_t)(i < 2 ? N_OLD_TYPES : N_WEIGHT_TYPES); t++) {
                product_case c = case_new(weight_types[t], modes[i], 48, 768, 1000 + t);
                float y[5 * 48];
                multiply(((cpu_backend *)b)->linear, &c, 0, 5, 5, 3, y);
                hash = fnv64(hash, y, sizeof y);
                case_free(&c);
            }
            b->ops->close(b);
            if (hash != stored[i]) {
                fail_msg("%s, compute mode %d: hash 0x%016llx", isa_names[isa], (int)modes[i], (unsigned long long)hash);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_product_is_near_the_sum_in_double),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_tile_and_on_every_instruction_set),
        cmocka_unit_test(prepared_rows_are_those_of_the_plain_twin),
        cmocka_unit_test(long_int8_rows_have_the_bits_of_the_plain_twin),
        cmocka_unit_test(wide_parts_and_whole_tiles_have_the_bits_of_the_plain_twin),
        cmocka_unit_test(repacked_types_keep_every_value),
        cmocka_unit_test(packed_types_take_their_published_bits_or_those_of_unpacked_codes),
        cmocka_unit_test(integers_with_any_group_and_zeros_multiply_exactly),
        cmocka_unit_test(integers_take_their_bits_a_half_and_a_zero_of_their_own_bits_a_group),
        cmocka_unit_test(q4_0_and_q8_0_are_integers_with_groups_of_32),
        cmocka_unit_test(integers_without_a_form_are_refused),
        cmocka_unit_test(floats_with_scales_have_the_bits_of_the_plain_twin),
        cmocka_unit_test(every_code_of_e4m3_has_its_value),
        cmocka_unit_test(a_code_that_is_nan_makes_its_column_nan_and_no_other),
        cmocka_unit_test(floats_with_scales_take_their_published_bits),
        cmocka_unit_test(stretches_without_a_kind_are_refused),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(extreme_numbers_do_not_saturate),
        cmocka_unit_test(values_that_are_not_finite_come_out_as_nan_in_their_row_only),
        cmocka_unit_test(f32_and_int8_products_have_the_stored_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
