/* Products of floats with scales: the bits of the plain C version on every instruction
 * set available, the values of codes, and their storage. */

#include "backend/product_case.h"
#include "test.h"

typedef struct some_floats {
    pack_kind kind;
    float table[16];
    int32_t nan_row, nan_k; /* a code that is NaN */
    bool is_zero;           /* 0 there in its place */

    /* Of T4_NESTED: how many scales a row has, of how many inputs. */
    int32_t n_scales, stretch;
    nested_scales nested;
    uint8_t codes[83 * 164];
    float inner[256], outer[83 * 164 / NESTED_BLOCK + 1];
} some_floats;

static void read_float_codes(const void *context, int32_t row, int32_t k, int32_t n, uint8_t *out) {
    const some_floats *s = context;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t code = (uint8_t)mixed((uint32_t)row, (uint32_t)(k + i), 0);
        const bool is_bad = row == s->nan_row && k + i == s->nan_k;
        out[i] = pack_is_fours(s->kind)  ? code & 15
                 : is_bad                ? (s->is_zero ? 0 : 0xff)
                 : (code & 0x7f) == 0x7f ? 3
                                         : code;
    }
}

static float read_float_scale(const void *context, int32_t row, int32_t k) {
    const some_floats *s = context;
    if (s->kind == PACK_T4_NESTED) {
        const int32_t i = row * s->n_scales + (s->stretch > 0 ? k / s->stretch : 0);
        return s->inner[s->codes[i]] * s->outer[i / NESTED_BLOCK] + s->nested.offset;
    }
    const uint32_t at = mixed((uint32_t)(s->kind == PACK_E4M3_TILE ? row / PACK_LANES : row), (uint32_t)k, 1);
    return s->kind == PACK_E4M3_E8M0 ? ldexpf(1.0f, (int)(at % 16) - 12)
                                     : (float)(int32_t)(at % 20001 - 10000) * 0x1p-18f;
}

static size_t first_of_row(const void *context, int32_t row) {
    const some_floats *s = context;
    return (size_t)(row * s->n_scales);
}

static scaled_source source_of(some_floats *s) {
    for (int i = 0; i < 16; i++) {
        s->table[i] = (float)(int32_t)(mixed(99, (uint32_t)i, 0) >> 8) * 0x1p-23f - 1.0f;
    }
    for (int i = 0; i < 256; i++) {
        s->inner[i] = (float)(int32_t)(mixed(98, (uint32_t)i, 0) >> 8) * 0x1p-23f - 1.0f;
    }
    for (size_t i = 0; i < sizeof s->codes; i++) {
        s->codes[i] = (uint8_t)mixed(97, (uint32_t)i, 0);
        s->outer[i / NESTED_BLOCK] =
            (float)(int32_t)(mixed(96, (uint32_t)i / NESTED_BLOCK, 0) >> 8) * 0x1p-24f;
    }
    s->nested = (nested_scales){s->codes, s->inner, s->outer, 0.043f};
    return (scaled_source){.codes = read_float_codes,
                           .scale = read_float_scale,
                           .table = s->table,
                           .nested = &s->nested,
                           .first = first_of_row,
                           .context = s};
}

static product_case float_case(const scaled_source *from, pack_kind kind, row_format format, int32_t stretch,
                               int32_t n_out, int32_t n_in) {
    product_case c = {.floats = from, .n_out = n_out, .n_in = n_in};
    const quant_rule rule = {.stretch = stretch};
    uint64_t seed = (uint64_t)n_in;
    assert_int_equal(pack_plan(kind, &rule, n_out, n_in, &c.w.layout), QUIRE_OK);
    c.w.format = format;
    c.w.data = mem_new((size_t)c.w.layout.n_blocks, c.w.layout.block_bytes);
    if (pack_is_fours(kind)) {
        c.w.numbers = mem_new(pack_n_numbers(kind), sizeof *c.w.numbers);
        pack_numbers(kind, from, c.w.numbers);
    }
    for (int32_t i = 0; i < c.w.layout.n_blocks; i++) {
        pack_block_scaled(&c.w.layout, from, i, c.w.data + (size_t)i * c.w.layout.block_bytes);
    }
    c.x = malloc(sizeof(float) * MAX_ROWS * (size_t)n_in);
    for (int32_t i = 0; i < MAX_ROWS * n_in; i++) {
        c.x[i] = random_float(&seed);
    }
    return c;
}

/* The plain twin's bits on every instruction set, in tiles of any size; or the dot
 * instruction's own. */
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

static const pack_kind float_kinds[] = {PACK_E4M3, PACK_E4M3_TILE, PACK_E4M3_E8M0, PACK_T4_FLOAT,
                                        PACK_T4_NESTED};

enum { N_KINDS = (int)(sizeof float_kinds / sizeof float_kinds[0]) };

TEST(floats_with_scales_have_the_bits_of_the_plain_twin) {
    static const struct {
        int32_t n_out, n_in;
    } sizes[] = {{1, 1}, {16, 32}, {5, 7}, {83, 517}, {40, 768}, {64, 1312}};
    static const int32_t groups[] = {32, 64, 128, 256, 0, 8, 96, 10, 1024};
    for (size_t i = 0; i < N_KINDS * 2 * 6; i++) {
        some_floats s = {.kind = float_kinds[i % N_KINDS], .nan_row = -1};
        const row_format format = i / N_KINDS % 2 == 0 || pack_is_fours(s.kind) ? ROWS_F32 : ROWS_BF16;
        const int32_t n_out = sizes[i / N_KINDS / 2].n_out, n_in = sizes[i / N_KINDS / 2].n_in;
        const scaled_source from = source_of(&s);
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
            const int32_t stretch = pack_stretch_of(s.kind, groups[g]);
            assert_int_equal(stretch, pack_is_fours(s.kind) && groups[g] == 10 ? -1 : groups[g]);
            if (stretch < 0) {
                continue;
            }
            s.stretch = stretch;
            s.n_scales = stretch > 0 ? (n_in - 1) / stretch + 1 : 1;
            product_case c = float_case(&from, s.kind, format, stretch, n_out, n_in);
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
static float scale_of_1(const void *context, int32_t row, int32_t k) {
    (void)context;
    (void)row;
    (void)k;
    return 1.0f;
}

/* Rows that are 1 at one place and else 0 show each code's value. */
TEST(every_code_of_e4m3_has_its_value) {
    const scaled_source from = {.codes = read_all_codes, .scale = scale_of_1};
    for (size_t i = 0; i < 3 * 4; i++) {
        product_case c =
            float_case(&from, float_kinds[i % 3], i < 6 ? ROWS_F32 : ROWS_BF16, 50, 2, 126 + (i % 2 == 0));
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

TEST(a_code_that_is_nan_makes_its_column_nan_and_no_other) {
    for (size_t i = 0; i < 6; i++) {
        some_floats bad = {.kind = float_kinds[i % 3], .nan_row = 21, .nan_k = 70}, zero = bad;
        zero.is_zero = true;
        const scaled_source from = source_of(&bad), instead = source_of(&zero);
        product_case c = float_case(&from, bad.kind, i < 3 ? ROWS_F32 : ROWS_BF16, 64, 40, 96);
        product_case other = float_case(&instead, bad.kind, c.w.format, 64, 40, 96);
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

TEST(floats_with_scales_take_their_published_bits) {
    static const struct {
        pack_kind kind;
        int32_t group;
        double published; /* bits a weight of 2048 x 2048, with scales in 32 bits or those of E8M0 */
    } cases[] = {{PACK_E4M3_TILE, 0, 8},
                 {PACK_E4M3, 0, 8 + 32.0 / 2048},
                 {PACK_E4M3_TILE, 128, 8 + 32.0 / 16384},
                 {PACK_E4M3, 96, 8 + 32.0 / 96},
                 {PACK_E4M3, 128, 8 + 32.0 / 128},
                 {PACK_E4M3_E8M0, 32, 8 + 8.0 / 32},
                 {PACK_T4_FLOAT, 64, 4 + 32.0 / 64},
                 {PACK_T4_NESTED, 64, 4 + 8.0 / 64 + 32.0 / 64 / 256}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const quant_rule rule = {.unit = 1.0f, .stretch = pack_stretch_of(cases[i].kind, cases[i].group)};
        pack_layout plan;
        assert_int_equal(pack_plan(cases[i].kind, &rule, 2048, 2048, &plan), QUIRE_OK);
        const double got = (double)plan.block_bytes * plan.n_blocks * 8 / 2048 / 2048;
        assert_true(got >= cases[i].published && got <= 1.03 * cases[i].published);
    }
}

TEST(groups_have_the_longest_stretch_that_kernels_take) {
    static const struct {
        int32_t group, e4m3, t4;
    } cases[] = {{0, 0, 0},           {1, -1, -1},        {4, -1, -1},     {7, -1, -1},    {8, 8, 8},
                 {10, 10, -1},        {16, 16, 16},       {31, -1, -1},    {48, 48, 48},   {100, 100, -1},
                 {2048, 1024, 1024},  {1536, 768, 768},   {2050, 410, -1}, {2018, -1, -1}, {-32, -1, -1},
                 {INT32_MIN, -1, -1}, {INT32_MAX, -1, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(pack_stretch_of(PACK_E4M3, cases[i].group), cases[i].e4m3);
        assert_int_equal(pack_stretch_of(PACK_T4_FLOAT, cases[i].group), cases[i].t4);
    }
    static const int32_t stretches[] = {-8, 2, 6, 9, 1026, 2048};
    for (size_t i = 0; i < sizeof stretches / sizeof stretches[0]; i++) {
        const quant_rule rule = {.stretch = stretches[i]};
        pack_layout plan;
        assert_int_equal(pack_plan(PACK_E4M3, &rule, 16, 64, &plan), QUIRE_INVALID);
    }
}

TEST_MAIN(NULL, NULL)
