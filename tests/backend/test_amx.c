/* Products with AMX tiles: the model of the instructions, the kernels over that model,
 * and the kernels for the processor, whose instructions are emulated where it lacks them.
 * All have the bits of the plain C version. */
#define _GNU_SOURCE /* the registers of a ucontext_t */
#include <stdio.h>

#if defined(__x86_64__)
#define AMX_MODEL
#include "backend/amx_trap.h"
#include "backend/product_case.h"
#include "test.h"

#define MOST_ROWS 112 /* groups are multiplied by tiles from 96 on */

/* ---- the model ---- */

static void fill(uint64_t *seed, uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(rng_next(seed) >> 32);
    }
}

/* Sums in 64 bits, as matrices: a [m][k], b [k][n]. */
static int64_t dot_of(const int8_t *a, const int8_t *b, int k, int m_at, int n_at) {
    int64_t sum = 0;
    for (int i = 0; i < k; i++) {
        sum += a[m_at * AMX_BYTES + i] * b[i / 4 * AMX_BYTES + 4 * n_at + i % 4];
    }
    return sum;
}

TEST(a_product_of_tiles_is_that_of_matrices_of_any_shape) {
    uint64_t seed = 4;
    int8_t a[AMX_ROWS * AMX_BYTES], b[AMX_ROWS * AMX_BYTES];
    int32_t before[AMX_ROWS][16], after[AMX_ROWS][16];
    for (int i = 0; i < 200; i++) {
        const int m = 1 + i % 16, quads = 1 + i * 7 % 16, n = 1 + i * 5 % 16;
        amx_config c = {0};
        amx_shape(&c, 1, m, 4 * n);
        amx_shape(&c, 3, m, 4 * quads);
        amx_shape(&c, 7, quads, 4 * n);
        fill(&seed, (uint8_t *)a, sizeof a);
        fill(&seed, (uint8_t *)b, sizeof b);
        fill(&seed, (uint8_t *)before, sizeof before);
        memset(after, 77, sizeof after);
        amx_configure(&c);
        amx_load(1, before, sizeof before[0]);
        amx_load(3, a, AMX_BYTES);
        amx_load(7, b, AMX_BYTES);
        amx_dot(1, 3, 7);
        amx_store(1, after, sizeof after[0]);
        for (int r = 0; r < AMX_ROWS; r++) {
            for (int j = 0; j < 16; j++) {
                const int32_t sum = (int32_t)(uint32_t)(before[r][j] + dot_of(a, b, 4 * quads, r, j));
                assert_int_equal(after[r][j], r < m && j < n ? sum : 0x4d4d4d4d);
            }
        }
        amx_release();
    }
}

TEST(loading_clears_what_a_tile_lacks_and_a_configuration_clears_all) {
    uint8_t ones[AMX_ROWS * AMX_BYTES], got[AMX_ROWS * AMX_BYTES];
    amx_config c = {0};
    memset(ones, 1, sizeof ones);
    amx_shape(&c, 0, 3, 20);
    amx_configure(&c);
    amx_load(0, ones, AMX_BYTES);
    for (int r = 0; r < AMX_ROWS; r++) {
        for (int i = 0; i < AMX_BYTES; i++) {
            assert_int_equal(amx_here.tiles[0][r][i], r < 3 && i < 20 ? 1 : 0);
        }
    }
    amx_configure(&c);
    memset(got, 9, sizeof got);
    amx_store(0, got, AMX_BYTES);
    assert_true(got[0] == 0 && got[19] == 0 && got[20] == 9 && got[2 * AMX_BYTES + 19] == 0 &&
                got[3 * AMX_BYTES] == 9);
    amx_release();
    assert_int_equal(amx_here.config.palette, 0);
}

/* ---- the kernels ---- */

/* Those of the object for the processor. NULL: no AVX-512 here, or a compiler without
 * AMX. In a test: cmocka has a trap of its own. */
static const linear_kernels *find_kernels(void) {
#if defined(QUIRE_AMX)
    cpu_isa isa;
    quire_error err;
    if (cpu_isa_choose("avx512", &isa, &err) != QUIRE_OK || !linear_avx512.finds_rows()) {
        print_message("SKIP: the object for AMX: no AVX-512 with VNNI and VBMI here\n");
        return NULL;
    }
    if (cpu_isa_choose("amx", &isa, &err) != QUIRE_OK) {
        print_message("by trapped instructions: %s\n", err.message);
        amx_trap_install();
    }
    return &linear_amx;
#else
    print_message("SKIP: the object for AMX: this compiler has no -mamx-int8\n");
    return NULL;
#endif
}

static product_case case_of(dtype t, int32_t n_out, int32_t n_in, uint64_t seed) {
    product_case c = {.type = t, .n_out = n_out, .n_in = n_in};
    pack_kind kind;
    c.source = random_weights(t, (size_t)n_out * (size_t)n_in, &seed);
    assert_int_equal(pack_choose(t, COMPUTE_INT8, &kind), QUIRE_OK);
    assert_int_equal(pack_plan(kind, quant_rule_of(t), n_out, n_in, &c.w.layout), QUIRE_OK);
    c.w.format = linear_format(kind, COMPUTE_INT8);
    c.w.data = mem_new((size_t)c.w.layout.n_blocks, c.w.layout.block_bytes);
    c.w.scales = mem_new((size_t)c.w.layout.n_blocks, PACK_LANES * sizeof(float));
    const tensor_view view = matrix_view(t, n_out, n_in, c.source);
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

/* Every step-th number of rows up to MOST_ROWS, in tiles of all of them and of n_blocks
 * blocks. They are the last ones, so that a sanitizer sees what reads after them. */
static void expect_plain(const linear_kernels *k, const char *what, const product_case *c, int32_t step,
                         int32_t n_blocks) {
    const int32_t width = c->w.layout.n_blocks * PACK_LANES;
    const size_t bytes = sizeof(float) * MAX_ROWS * (size_t)width;
    float *expected = malloc(bytes), *y = malloc(bytes);
    multiply(&linear_plain, c, 0, MAX_ROWS, 1, 1, expected);
    for (int32_t n = step; n <= MAX_ROWS; n = n + step <= MOST_ROWS || n == MAX_ROWS ? n + step : MAX_ROWS) {
        const int32_t row0 = MAX_ROWS - n;
        multiply(k, c, row0, n, n, n_blocks, y);
        expect_same_columns(c, expected + row0 * width, y, n, what);
    }
    free(expected);
    free(y);
}

static int32_t width_of(dtype t, int32_t at_least) {
    const int32_t block = dtype_block_elements(t);
    return (at_least + block - 1) / block * block;
}

/* Whole steps of 64 and half ones, one block, two and an odd number, groups in one chunk
 * and in several; floats are INT8 by channel. Of one shape every row_step-th number of
 * rows. */
static void check_kernels(const linear_kernels *k, const char *what, int32_t row_step) {
    static const struct {
        int32_t n_out, n_in;
    } shapes[] = {{16, 32}, {40, 96}, {5, 77}, {27, 320}, {33, 1120}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes * N_WEIGHT_TYPES; i++) {
        const dtype t = weight_types[i % N_WEIGHT_TYPES];
        const size_t shape = i / N_WEIGHT_TYPES;
        product_case c = case_of(t, shapes[shape].n_out, width_of(t, shapes[shape].n_in), i + 1);
        expect_plain(k, what, &c, shape == 1 ? row_step : 20, 1 + (int32_t)(i % 4));
        case_free(&c);
    }
}

TEST(kernels_over_the_model_have_the_bits_of_the_plain_twin) {
    backend *b = open_isa("amx-model", COMPUTE_INT8, 1);
    if (b == NULL) {
        print_message("SKIP: no AVX2 here\n");
        return;
    }
    check_kernels(((cpu_backend *)b)->linear, "amx-model", 1);
    b->ops->close(b);
}

TEST(the_processors_object_has_the_bits_of_the_plain_twin) {
    const linear_kernels *k = find_kernels();
    if (k != NULL) {
        /* traps are slow: all numbers of rows in make test-long */
        check_kernels(k, "amx", getenv("QUIRE_TEST_LONG") != NULL ? 1 : 5);
    }
}

TEST(tiles_are_released_after_each_product) {
    const linear_kernels *k = find_kernels();
    if (k == NULL || amx_trapped == 0) { /* the processor's own tiles cannot be seen */
        return;
    }
    product_case c = case_of(DTYPE_Q4_0, 32, 64, 1);
    const long before = amx_trapped;
    float y[MAX_ROWS * 32];
    multiply(k, &c, 0, 95, 95, 2, y);
    assert_int_equal(amx_trapped, before); /* few rows don't touch them */
    multiply(k, &c, 0, 96, 96, 2, y);
    assert_true(amx_trapped > before);
    assert_int_equal(amx_here.config.palette, 0);
    case_free(&c);
}

TEST(auto_takes_tiles_where_the_processor_and_the_kernel_have_them) {
    cpu_isa isa, chosen;
    quire_error err;
    const quire_err e = cpu_isa_choose("amx", &isa, &err);
    assert_int_equal(cpu_isa_choose("auto", &chosen, NULL), QUIRE_OK);
    assert_true(chosen != ISA_AMX_MODEL);
    if (e == QUIRE_OK) {
        assert_true(chosen == ISA_AMX || chosen == ISA_AVX512_BF16);
        return;
    }
    assert_int_equal(e, QUIRE_UNSUPPORTED);
    assert_true(chosen != ISA_AMX);
    assert_non_null(strstr(err.message, "--isa amx: this "));
}

TEST_MAIN(NULL, NULL)
#else
int main(void) {
    printf("SKIP: AMX is of x86-64\n");
    return 0;
}
#endif
