/* Product kernels: every weight format and compute mode on every instruction set
 * available, compared with sums in double and with the plain C version. */

#include "backend/product_case.h"
#include "test.h"

#define SOME_ROWS 33 /* more than a tile of any kernel, and odd */

static product_case case_packed(dtype t, pack_kind kind, const quant_rule *rule, compute_mode mode,
                                int32_t n_out, int32_t n_in, uint64_t seed) {
    product_case c = {.type = t, .n_out = n_out, .n_in = n_in};
    c.source = random_weights(t, (size_t)n_out * (size_t)n_in, &seed);
    assert_int_equal(pack_plan(kind, rule, n_out, n_in, &c.w.layout), QUIRE_OK);
    c.w.format = linear_format(kind, mode);
    c.w.data = mem_new((size_t)c.w.layout.n_blocks, c.w.layout.block_bytes);
    c.w.scales = mem_new((size_t)c.w.layout.n_blocks, PACK_LANES * sizeof(float));
    tensor_view view = matrix_view(t, n_out, n_in, c.source);
    for (int32_t i = 0; i < c.w.layout.n_blocks; i++) {
        pack_block(&c.w.layout, &view, i, c.w.data + (size_t)i * c.w.layout.block_bytes,
                   c.w.scales + (size_t)i * PACK_LANES);
    }
    c.x = malloc(sizeof(float) * MAX_ROWS * (size_t)n_in);
    for (int32_t i = 0; i < MAX_ROWS * n_in; i++) {
        c.x[i] = random_float(&seed) * (i % 37 == 0 ? 8.0f : 1.0f);
    }
    return c;
}

static product_case case_new(dtype t, compute_mode mode, int32_t n_out, int32_t n_in, uint64_t seed) {
    pack_kind kind;
    assert_int_equal(pack_choose(t, mode, &kind), QUIRE_OK);
    return case_packed(t, kind, quant_rule_of(t), mode, n_out, n_in, seed);
}

static int32_t rounded_in(dtype t, int32_t n_in) {
    int32_t block = dtype_block_elements(t);
    return (n_in + block - 1) / block * block;
}

static const struct {
    int32_t n_out, n_in;
} shapes[] = {{1, 1}, {16, 32}, {5, 7}, {40, 96}, {131, 320}, {64, 517}, {48, 1312}};

TEST(every_product_is_near_the_sum_in_double) {
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        for (int isa = 0; isa < N_ISAS; isa++) {
            backend *b = open_isa(isa_names[isa], mode, 1);
            if (b == NULL) {
                print_message("SKIP %s: not on this machine\n", isa_names[isa]);
                continue;
            }
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] * N_WEIGHT_TYPES; i++) {
                dtype t = weight_types[i % N_WEIGHT_TYPES];
                product_case c = case_new(t, mode, shapes[i / N_WEIGHT_TYPES].n_out,
                                          rounded_in(t, shapes[i / N_WEIGHT_TYPES].n_in), i + 1);
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

/* Which of a list a case takes: every nth from first on, and the next case others. All
 * with QUIRE_TEST_LONG. */
typedef struct taken {
    size_t first, step;
} taken;

static taken in_turn(size_t turn, size_t step) {
    bool all = getenv("QUIRE_TEST_LONG") != NULL;
    return (taken){all ? 0 : turn % step, all ? 1 : step};
}

TEST(a_row_has_the_same_bits_in_every_tile_and_on_every_instruction_set) {
    static const int32_t n_rows[] = {1, 2, 3, 7, 16, 33}, tile_rows[] = {1, 5, 16, 33},
                         tile_blocks[] = {1, 2, 3, 4};
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] * N_WEIGHT_TYPES; i++) {
            dtype t = weight_types[i % N_WEIGHT_TYPES];
            product_case c = case_new(t, mode, shapes[i / N_WEIGHT_TYPES].n_out,
                                      rounded_in(t, shapes[i / N_WEIGHT_TYPES].n_in), i + 1);
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
                const taken some = in_turn(i + (size_t)isa, 2);
                for (size_t m = some.first; m < sizeof n_rows / sizeof n_rows[0]; m += some.step) {
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

/* Rewrites what n groups hold of sums as AVX2 has it. */
static void to_pairs(row_group *x, int32_t n) {
    for (; n > 0; n--, x++) {
        int sums[2][2] = {{0}}, magnitudes[2][2] = {{0}};
        for (int i = 0; i < PACK_GROUP; i++) {
            sums[i / 16][i / 2 % 2] += x->q[i];
            magnitudes[i / 16][i / 2 % 2] += abs(x->q[i]);
        }
        x->large = 0;
        for (int i = 0; i < 2; i++) {
            x->pairs_8[i] = (int16_t)(-8 * (sums[0][i] + sums[1][i]));
            for (int half = 0; half < 2; half++) {
                x->pairs_32[half][i] = (int16_t)(-32 * sums[half][i]);
                x->large |= magnitudes[half][i] > 762 ? 1 << half : 0;
            }
        }
    }
}

/* Some numbers next to nothing, zero, huge or none at all; what a row holds beside its
 * numbers is compared too. */
TEST(prepared_rows_are_those_of_the_plain_twin) {
    enum { MOST = 12 * PACK_GROUP, ROOM = 2 * MOST + 64 };
    static const float kinds[] = {1.0f,   0x1p-110f, 0.0f,     3e38f, 1.0f,      NAN,
                                  -1e-3f, 1.0f,      INFINITY, 1.0f,  0x1p-100f, 2.0f};
    _Alignas(64) uint8_t want[ROOM], got[ROOM];
    float x[MOST];
    uint64_t seed = 77;
    for (int32_t i = 0; i < MOST; i++) {
        float kind = kinds[i / PACK_GROUP];
        x[i] = isfinite(kind) ? kind * random_float(&seed) : i % PACK_GROUP == 21 ? kind : 1.0f;
        if (kind == 2.0f) { /* the second half is large */
            x[i] = i % PACK_GROUP < 16 && i % 2 == 0 ? 0.0f : i % 3 == 0 ? -kind : kind;
        }
    }
    for (int isa = 1; isa < N_ISAS; isa++) {
        backend *b = open_isa(isa_names[isa], COMPUTE_INT8, 1);
        for (int32_t k = 1; b != NULL && k <= MOST; k++) {
            for (row_format f = ROWS_TOKEN; f <= ROWS_GROUPS; f++) {
                for (int32_t from = 0; from + k <= MOST && (f == ROWS_TOKEN || k % PACK_GROUP == 0);
                     from += PACK_GROUP) {
                    memset(want, 7, ROOM);
                    memset(got, 7, ROOM);
                    linear_plain.quantise[f](x + from, k, want);
                    ((cpu_backend *)b)->linear->quantise[f](x + from, k, got);
                    if (f == ROWS_GROUPS && (isa == ISA_AVX2 || isa == ISA_AMX_MODEL)) {
                        to_pairs((row_group *)(void *)want, k / PACK_GROUP);
                    }
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
TEST(long_int8_rows_have_the_bits_of_the_plain_twin) {
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
            multiply(((cpu_backend *)b)->linear, &c, 0, n_rows, SOME_ROWS, n_rows % LINEAR_TILE_BLOCKS + 1,
                     y);
            expect_same_columns(&c, expected, y, n_rows, isa_names[isa]);
        }
        b->ops->close(b);
    }
    free(expected);
    free(y);
    case_free(&c);
}

/* Parts as the ops cut them: up to 16 blocks of few rows, and a whole tile of rows. */
TEST(wide_parts_and_whole_tiles_have_the_bits_of_the_plain_twin) {
    static const int32_t n_rows[] = {1, 2, 3, 4, 5, 8, 16, 31, 32, 63, 64, MAX_ROWS},
                         tile_blocks[] = {16, 9, 16, 16, 5, 16, 16, 8, 8, 9, 4, 4};
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        for (size_t i = 0; i < N_WEIGHT_TYPES; i++) {
            product_case c =
                case_new(weight_types[i], mode, 19 * PACK_LANES - 5, rounded_in(weight_types[i], 700), i + 1);
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
                const taken some = in_turn(i + (size_t)isa, 3);
                for (size_t m = some.first; m < sizeof n_rows / sizeof n_rows[0]; m += some.step) {
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

/* On processors that find rows slowly codes are unpacked. */
TEST(unpacked_grids_have_the_bits_of_their_rows) {
    static const dtype types[] = {DTYPE_IQ2_XXS, DTYPE_IQ2_XS, DTYPE_IQ2_S, DTYPE_IQ3_XXS, DTYPE_IQ3_S};
    static const int32_t n_rows[] = {1, 2, 3, 7, 16, 33};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        quant_rule rule = *quant_rule_of(types[i]);
        const quant_form published = rule.form;
        product_case rows = case_new(types[i], COMPUTE_INT8, 6 * PACK_LANES - 5, 512, i + 1);
        rule.form = quant_unpacked(published);
        assert_int_not_equal(rule.form, published);
        product_case codes =
            case_packed(types[i], pack_kind_of(rule.form), &rule, COMPUTE_INT8, rows.n_out, rows.n_in, i + 1);
        size_t bytes = sizeof(float) * SOME_ROWS * PACK_LANES * (size_t)rows.w.layout.n_blocks;
        float *expected = malloc(bytes), *y = malloc(bytes);
        multiply(&linear_plain, &rows, 0, SOME_ROWS, 1, 1, expected);
        for (int isa = 0; isa < N_ISAS; isa++) {
            backend *b = open_isa(isa_names[isa], COMPUTE_INT8, 1);
            for (size_t m = 0; b != NULL && m < sizeof n_rows / sizeof n_rows[0]; m++) {
                multiply(((cpu_backend *)b)->linear, &codes, 0, n_rows[m], SOME_ROWS, LINEAR_TILE_BLOCKS, y);
                expect_same_columns(&codes, expected, y, n_rows[m], isa_names[isa]);
            }
            if (b != NULL) {
                b->ops->close(b);
            }
        }
        free(expected);
        free(y);
        case_free(&rows);
        case_free(&codes);
    }
}

/* With one element of x set, y is that weight times it. Numbers and scale codes are
 * integers of at most 8 bits, so a product this near to the file's value can come from no
 * other codes. */
TEST(repacked_types_keep_every_value) {
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
            linear_plain.product(&whole, (row_view){row, row_bytes}, 1, y, c.w.layout.n_blocks * PACK_LANES,
                                 NULL);
            for (size_t column = 0; column < (size_t)c.n_out; column++) {
                float value = w[column * k + j], largest = 0.0f;
                for (size_t g = j / 32 * 32; g < j / 32 * 32 + 32; g++) {
                    largest = fmaxf(largest, fabsf(w[column * k + g]));
                }
                if (!(fabsf(y[column] / 127.0f - value) <= 1e-6f * largest)) {
                    fail_msg("%s: column %zu, k %zu: %.9g, not %.9g", dtype_name(c.type), column, j,
                             (double)(y[column] / 127.0f), (double)value);
                }
            }
        }
        free(w);
        free(x);
        mem_free(row);
        case_free(&c);
    }
}

/* Bytes of 256 elements where codes are always unpacked: 3 bits instead of a grid's row,
 * 2 instead of a digit; of others 0. */
static size_t unpacked_bytes(dtype t) {
    switch (t) {
    case DTYPE_IQ1_M:
        return 106;
    case DTYPE_IQ1_S:
        return 102;
    case DTYPE_Q2_0:
        return 72;
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0:
        return 66;
    default:
        return 0;
    }
}

TEST(packed_types_take_their_published_bits_or_those_of_unpacked_codes) {
    for (size_t i = 3; i < N_WEIGHT_TYPES; i++) {
        const dtype t = weight_types[i];
        pack_kind kind;
        pack_layout plan;
        assert_int_equal(pack_choose(t, COMPUTE_INT8, &kind), QUIRE_OK);
        assert_int_equal(pack_plan(kind, quant_rule_of(t), 64, 2048, &plan), QUIRE_OK);
        const size_t all = plan.block_bytes * (size_t)plan.n_blocks;
        const size_t published = 64 * 2048 / (size_t)dtype_block_elements(t) * (size_t)dtype_block_bytes(t);
        const size_t unpacked = 64 * 2048 / 256 * unpacked_bytes(t);
        if (unpacked > 0) {
            /* and the zeros of codes of 2 bits */
            assert_true(all >= unpacked && all * 100 <= unpacked * 102);
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

static product_case integer_case(const pack_source *from, const quant_rule *rule, int32_t n_out,
                                 int32_t n_in) {
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
    static const int32_t n_rows[] = {1, 2, 3, 6, 33, 64, MAX_ROWS};
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

/* So long that no processor keeps a tile's blocks in the L2: all go by chunks. */
TEST(long_rows_of_four_bits_have_the_bits_of_the_plain_twin) {
    static const dtype types[] = {DTYPE_Q4_0, DTYPE_IQ4_NL, DTYPE_MXFP4};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        product_case c = case_new(types[i], COMPUTE_INT8, PACK_LANES + 3, 11264, i + 1);
        expect_plain_bits(&c);
        case_free(&c);
    }
}

TEST(integers_with_any_group_and_zeros_multiply_exactly) {
    static const int bits[] = {2, 3, 4, 8};
    static const int32_t groups[] = {32, 64, 96, 128, 256, 0}, widths[] = {96, 416, 768};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0] * sizeof groups / sizeof groups[0] * 2; i++) {
        const integers s = {.bits = bits[i % 4], .group = groups[i / 4 % 6]};
        const pack_source from = {read_integers, &s};
        quant_rule rule;
        assert_int_equal(pack_integers(s.bits, s.group, i / 24 == 1, &rule), QUIRE_OK);
        rule.least = i / 24 == 1 && i % 8 < 4;
        product_case c = integer_case(&from, &rule, 83, widths[i % 3]);
        expect_plain_bits(&c);
        case_free(&c);
    }
}

TEST(integers_take_their_bits_a_half_and_a_zero_of_their_own_bits_a_group) {
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
            fail_msg("%d bits, groups of %d: %g bits a weight, not %g", cases[i].bits, (int)cases[i].group,
                     got, cases[i].published);
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

TEST(q4_0_and_q8_0_are_integers_with_groups_of_32) {
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

TEST(integers_without_a_form_are_refused) {
    quant_rule rule;
    assert_int_equal(pack_integers(5, 32, false, &rule), QUIRE_UNSUPPORTED);
    assert_int_equal(pack_integers(4, 48, false, &rule), QUIRE_UNSUPPORTED);
    assert_int_equal(pack_integers(4, 16, true, &rule), QUIRE_UNSUPPORTED);
    assert_int_equal(pack_integers(4, -32, true, &rule), QUIRE_UNSUPPORTED);
    assert_int_equal(pack_integers(INT32_MAX, 32, true, &rule), QUIRE_UNSUPPORTED);
}

TEST(impossible_shapes_are_refused) {
    pack_layout plan;
    pack_kind kind;
    assert_int_equal(pack_plan(PACK_F32, NULL, 0, 4, &plan), QUIRE_INVALID);
    assert_int_equal(pack_plan(PACK_F32, NULL, 4, -1, &plan), QUIRE_INVALID);
    assert_int_equal(pack_plan(PACK_W4, quant_rule_of(DTYPE_Q4_0), 16, 48, &plan), QUIRE_INVALID);
    assert_int_equal(pack_plan(PACK_W4_SIX_MIN, quant_rule_of(DTYPE_Q4_K), 16, 96, &plan), QUIRE_INVALID);
    assert_int_equal(pack_plan(PACK_INT8, NULL, 16, 131073, &plan), QUIRE_TOO_LARGE);
    assert_int_equal(pack_choose(DTYPE_I32, COMPUTE_F32, &kind), QUIRE_UNSUPPORTED);
}

/* Extremes: int8's lowest number, the largest sums, subnormal and huge scales, all on
 * every instruction set as on plain C. */
TEST(extreme_numbers_do_not_saturate) {
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

/* The codes of a type's largest number and its negative. */
typedef struct largest {
    uint8_t plus, minus;
} largest;

/* Columns all of the one, all of the other, of both in turn. */
static void read_largest(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    const largest *l = context;
    for (int32_t i = 0; i < n; i++) {
        out->q[i] = row % 3 == 0 || (row % 3 == 1 && (k + i) % 2 == 0) ? l->plus : l->minus;
    }
    for (int32_t i = 0; i < 16; i++) {
        out->scale[i] = (uint8_t)((row + i) % 16);
    }
    for (int32_t i = 0; i < 8; i++) {
        out->d[i] = f32_to_f16(0.01f);
    }
}

/* Rows of 1, -1 or both in turn. Twelve begin each 16 with four zeros, so that six of the
 * eight x of an int16 of AVX2's are 127, the most that it adds up for IQ2 (simd_int.h).
 * Twelve have no zeros, and twelve one step more. */
static float largest_x(int32_t row, int32_t k) {
    const float sign = row % 3 == 0 ? 1.0f : row % 3 == 1 ? -1.0f : k % 2 != 0 ? 1.0f : -1.0f;
    return row / 12 % 3 == 1 || k % 16 >= 4 ? sign : row / 12 % 3 == 2 && k % 16 == 0 ? sign / 127.0f : 0.0f;
}

TEST(sums_of_the_largest_numbers_do_not_overflow) {
    static const struct {
        dtype type;
        largest numbers;
    } cases[] = {{DTYPE_IQ2_XXS, {2, 6}}, {DTYPE_IQ2_XS, {2, 6}}, {DTYPE_IQ3_XXS, {7, 15}},
                 {DTYPE_IQ3_S, {7, 15}},  {DTYPE_Q5_0, {31, 0}},  {DTYPE_Q6_K, {63, 0}},
                 {DTYPE_Q3_K, {7, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const pack_source from = {read_largest, &cases[i].numbers};
        quant_rule rule = *quant_rule_of(cases[i].type);
        rule.form = quant_unpacked(rule.form);
        product_case c = integer_case(&from, &rule, 40, 768);
        for (int32_t j = 0; j < MAX_ROWS * c.n_in; j++) {
            c.x[j] = largest_x(j / c.n_in, j % c.n_in);
        }
        expect_plain_bits(&c);
        case_free(&c);
    }
}

TEST(values_that_are_not_finite_come_out_as_nan_in_their_row_only) {
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
                assert_true(isfinite(y[column]) && isnan(y[PACK_LANES + column]) &&
                            isfinite(y[2 * PACK_LANES + column]));
            }
            case_free(&c);
            b->ops->close(b);
        }
    }
}

TEST(f32_and_int8_products_have_the_stored_bits) {
    static const uint64_t stored[] = {0x7b88874e7a433308u, 0x34078b67781c4a55u, 0xaaf2304f5775a91cu,
                                      0xbc1d793897fa0b77u, 0xcb5db50e8bc26a0fu, 0x2e2330cd58c8a7cau};
    static const size_t first[] = {0, N_OLD_TYPES, N_NEW_TYPES, N_WEIGHT_TYPES};
    for (int i = 0; i < 6; i++) {
        const compute_mode mode = i % 2 == 0 ? COMPUTE_F32 : COMPUTE_INT8;
        for (int isa = 0; isa < N_ISAS; isa++) {
            backend *b = open_isa(isa_names[isa], mode, 1);
            if (b == NULL) {
                continue;
            }
            uint64_t hash = 0xcbf29ce484222325u;
            for (size_t t = first[i / 2]; t < first[i / 2 + 1]; t++) {
                product_case c = case_new(weight_types[t], mode, 48, 768, 1000 + t);
                float y[5 * 48];
                multiply(((cpu_backend *)b)->linear, &c, 0, 5, 5, 3, y);
                hash = fnv64(hash, y, sizeof y);
                case_free(&c);
            }
            b->ops->close(b);
            if (hash != stored[i]) {
                fail_msg("%s, compute mode %d: hash 0x%016llx", isa_names[isa], (int)mode,
                         (unsigned long long)hash);
            }
        }
    }
}

TEST_MAIN(NULL, NULL)
