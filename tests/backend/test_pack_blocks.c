/* Packed weights: blocks packed whole have the same bytes as codes packed one column at a
 * time, and those that PACK_VERSION stands for. */
#include "backend/linear_cases.h"
#include "test.h"

#define MOST_ROWS 64

/* Whole blocks and some columns less, whole chunks and less. */
static const int32_t shapes[][2] = {{1, 256}, {16, 512}, {37, 768},  {33, 96}, {20, 320},
                                    {15, 32}, {31, 64},  {64, 2048}, {5, 33},  {18, 7}};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* A random matrix and how it is packed. */
typedef struct pack_case {
    tensor_view view, scales;
    uint16_t halves[MOST_ROWS]; /* of int8 */
    pack_layout plan;
    uint8_t *bytes, *out;
    float out_scales[MOST_ROWS];
    size_t n_out;
} pack_case;

static void pack_all(pack_case *x) {
    for (int32_t b = 0; b < x->plan.n_blocks; b++) {
        pack_block(&x->plan, &x->view, b, x->out + x->plan.block_bytes * (size_t)b,
                   x->out_scales + b * PACK_LANES);
    }
}

/* false: the type or kind has no such shape. */
static bool open_case(pack_case *x, dtype t, pack_kind kind, const quant_rule *rule, const int32_t shape[2]) {
    const quant_rule none = {.unit = 1.0f};
    uint64_t seed = (uint64_t)t * 100 + (uint64_t)shape[0];
    if (shape[1] % dtype_block_elements(t) != 0 ||
        pack_plan(kind, rule != NULL ? rule : &none, shape[0], shape[1], &x->plan) != QUIRE_OK) {
        return false;
    }
    x->bytes = random_weights(t, (size_t)shape[0] * (size_t)shape[1], &seed);
    for (int32_t i = 0; i < shape[0]; i++) {
        x->halves[i] = f32_to_f16(random_float(&seed));
    }
    x->view = matrix_view(t, shape[0], shape[1], x->bytes);
    x->scales = matrix_view(DTYPE_F16, 1, shape[0], x->halves);
    x->view.scale = t == DTYPE_I8 ? &x->scales : NULL;
    x->n_out = x->plan.block_bytes * (size_t)x->plan.n_blocks;
    x->out = calloc(1, x->n_out);
    memset(x->out_scales, 0, sizeof x->out_scales);
    pack_all(x);
    return true;
}

static void close_case(pack_case *x) {
    free(x->bytes);
    free(x->out);
}

/* The codes of a row of the case's matrix, one column at a time. */
static void read_codes(const void *context, int32_t row, int32_t k, int32_t n, quant_codes *out) {
    const pack_case *x = context;
    const size_t elements = (size_t)dtype_block_elements(x->view.type);
    const size_t at = ((size_t)row * (size_t)x->view.dims[1] + (size_t)k) / elements;
    quant_split(x->view.type, x->bytes + at * (size_t)dtype_block_bytes(x->view.type), (size_t)n, out);
}

static void expect_codes(const pack_case *x, const char *what) {
    uint8_t *want = calloc(1, x->n_out);
    for (int32_t b = 0; b < x->plan.n_blocks; b++) {
        pack_block_of(&x->plan, &(pack_source){read_codes, x}, b, want + x->plan.block_bytes * (size_t)b);
    }
    if (memcmp(x->out, want, x->n_out) != 0) {
        fail_msg("%s of %s, %lld x %lld: other bytes", what, dtype_name(x->view.type),
                 (long long)x->view.dims[0], (long long)x->view.dims[1]);
    }
    free(want);
}

/* Numbers as files have them, and bytes of any value, as damaged files have. */
TEST(whole_blocks_have_the_bytes_of_their_codes) {
    uint64_t seed = 44;
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        const quant_rule *published = quant_rule_of(weight_types[i]);
        for (size_t s = 0; s < N_SHAPES && published != NULL; s++) {
            static pack_case x;
            quant_rule rule = *published;
            rule.form = quant_unpacked(rule.form); /* rows of grids: test_pack_read.c */
            if (!open_case(&x, weight_types[i], pack_kind_of(rule.form), &rule, shapes[s])) {
                continue;
            }
            expect_codes(&x, "numbers");
            for (size_t k = 0; k < x.view.n_bytes; k++) {
                x.bytes[k] = (uint8_t)rng_next(&seed);
            }
            pack_all(&x);
            expect_codes(&x, "any bytes");
            close_case(&x);
        }
    }
}

/* Each worker packs a run of blocks of its own, however many there are. */
TEST(any_number_of_workers_packs_the_same_bytes) {
    static pack_case x;
    const int32_t shape[2] = {61, 512};
    for (int32_t n_threads = 1; n_threads <= 6; n_threads++) {
        backend *b = open_isa("auto", COMPUTE_INT8, n_threads);
        linear *l;
        quire_error err;
        size_t n_bytes;
        uint32_t packing;
        assert_true(open_case(&x, DTYPE_Q4_K, PACK_W4_SIX_MIN, quant_rule_of(DTYPE_Q4_K), shape));
        assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &x.view}, &l, &err), QUIRE_OK);
        const uint8_t *packed = b->ops->linear_packed(l, &n_bytes, &packing);
        assert_true(n_bytes >= x.n_out);
        assert_memory_equal(packed, x.out, x.n_out);
        b->ops->close(b);
        close_case(&x);
    }
}

/* Every half there is, most of them between numbers of other kinds and some among normal ones
 * alone. */
TEST(halves_become_bf16_as_one_by_one) {
    enum { N = 65536 };
    static uint16_t weights[2][N], out[N * PACK_LANES];
    static const dtype types[2] = {DTYPE_F16, DTYPE_BF16};
    pack_layout plan;
    assert_int_equal(pack_plan(PACK_BF16, &(quant_rule){.unit = 1.0f}, 2, N, &plan), QUIRE_OK);
    for (int t = 0; t < 2; t++) {
        const tensor_view view = matrix_view(types[t], 2, N, weights);
        for (int k = 0; k < N; k++) {
            weights[0][k] = (uint16_t)k;
            weights[1][k] = (uint16_t)((unsigned)k * 40503u); /* odd: each once */
        }
        pack_block(&plan, &view, 0, (uint8_t *)out, NULL);
        for (int k = 0; k < N; k++) {
            for (int c = 0; c < 2; c++) {
                const uint16_t h = weights[c][k];
                assert_int_equal(out[k / 2 * 2 * PACK_LANES + 2 * c + k % 2],
                                 f32_to_bf16(t == 0 ? f16_to_f32(h) : bf16_to_f32(h)));
            }
        }
    }
}

/* A hash of all shapes' blocks and scales. */
static uint64_t hash_kind(dtype t, pack_kind kind, const quant_rule *rule) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t s = 0; s < N_SHAPES; s++) {
        static pack_case x;
        if (open_case(&x, t, kind, rule, shapes[s])) {
            hash = fnv64(hash, x.out, x.n_out);
            hash = fnv64(hash, x.out_scales, sizeof x.out_scales);
            close_case(&x);
        }
    }
    return hash;
}

/* By type: packed for f32, for bf16, for int8, and for int8 with unpacked grids where there
 * are some. They change with PACK_VERSION only. */
static const uint64_t stored[N_WEIGHT_TYPES + 1][4] = {
    {0xad9de089875816e7, 0xb7e00500f07dd600, 0xc81c03d8224ee6c4},                     /* F32 */
    {0x8ce3c90aec77ef0b, 0xc6b88ee1fd91d98f, 0x6c39627889a3d206},                     /* F16 */
    {0x50881ce524807607, 0x50881ce524807607, 0x3653734f7446f48c},                     /* BF16 */
    {0xb2a7e043bfdd04f1, 0xd844f176c981edf7, 0xc17dca7319253aaf},                     /* Q4_0 */
    {0x24c6cd4a3ca1a005, 0x9dfe38bb5ae48908, 0xea7bc0b3bd84a29c},                     /* Q4_1 */
    {0xfff0b2db57150ef2, 0xbfb08f55967f7e13, 0x2ae94366379c95f7},                     /* Q5_0 */
    {0xd5cfdff55b2f8032, 0x9c398a6298495f65, 0x290473d69eed5dd4},                     /* Q5_1 */
    {0xdb4cd343808410a0, 0x95f099bd12ddf0fb, 0xf2ef07ba545f870e},                     /* Q8_0 */
    {0x65e27f8453c906d9, 0x77318be5907f6200, 0x376cb740644ae1b5},                     /* Q2_K */
    {0xeb6271c6e9df0a6d, 0xd4284909c39790bb, 0x06d2f41d2b1df96c},                     /* Q3_K */
    {0x45892e1aac0ba015, 0x7b414fe5a463ba80, 0xd03720d890fdc2bb},                     /* Q4_K */
    {0x3d1434fb60f44230, 0x4eedc97268f367cf, 0xa9dee02b7d073170},                     /* Q5_K */
    {0x2c7400ccbdb0491a, 0xea772d0fdbfb5c88, 0x4e1fbc058447ea5f},                     /* Q6_K */
    {0xf8c84d8911513708, 0xff20272ff199bc4f, 0xce22ae0f60f7570e},                     /* IQ4_NL */
    {0x9e567eb234bb9108, 0xf7fbddd7ff21f00a, 0x83ffdae494972c10},                     /* IQ4_XS */
    {0x25dd1c1f8d29130a, 0xe265074931e7fdf2, 0x0b2a23ae3daa2bdb},                     /* MXFP4 */
    {0xb162816fe20f65f3, 0x15e7aec4faf7746b, 0x16aa40b4a18b6750},                     /* NVFP4 */
    {0x0522a32ab346b083, 0x4bbe03800586bdff, 0x36912640e6c3370b, 0xa17bc00740a6f696}, /* IQ3_S */
    {0x48564426421d9056, 0x391279eeb8beab3f, 0xaa2b636735730277, 0x37160d5ff31f3b8c}, /* IQ3_XXS */
    {0x5f01d57e36ac2e3e, 0x8006e2c26410ff12, 0x9a59d84f9000ee1b, 0x7fb57c60677abce5}, /* IQ2_S */
    {0x637482a941a3047c, 0x023d0200846745a9, 0x40a36461350ef9dd, 0xe8c8e220e5894617}, /* IQ2_XS */
    {0x946d9074d0200d4f, 0x0e92f270b8ee2f3f, 0x935c9e3bd059cf63, 0x11d532f4d14bddd1}, /* IQ2_XXS */
    {0x0766a045f8324982, 0xa6a85e1851e0428c, 0x4093f0de24ea15fc},                     /* IQ1_M */
    {0x474370b507c70c71, 0x51db8fb7b9328079, 0x5bebfdc1978eab70},                     /* IQ1_S */
    {0x87d8d563112cd1d3, 0xf1cc60c88ece1168, 0x60a0e7deaa4423a7},                     /* TQ1_0 */
    {0xfabad2666550b19e, 0xb708d89f3667ca71, 0x24e24722fec0f25c},                     /* TQ2_0 */
    {0x9cd872c58bbc0c8a, 0x2cea104054c0b9de, 0xd43c5b2629f07f26},                     /* Q2_0 */
    {0x63983a78b4457a25, 0x42aafc34d4626025, 0xa3db26dba571f77a},                     /* Q1_0 */
    {0xe6a085cd1ae13117, 0x2757d817b9b12e1c, 0x75a39b145cff24d9},                     /* I8 */
};

TEST(packed_bytes_are_those_of_the_version) {
    for (int i = 0; i <= N_WEIGHT_TYPES; i++) {
        const dtype t = i < N_WEIGHT_TYPES ? weight_types[i] : DTYPE_I8;
        const quant_rule *published = quant_rule_of(t);
        for (int m = 0; m < 4; m++) {
            quant_rule rule = published != NULL ? *published : (quant_rule){.unit = 1.0f};
            pack_kind kind;
            assert_int_equal(pack_choose(t, m < 3 ? (compute_mode)m : COMPUTE_INT8, &kind), QUIRE_OK);
            if (m == 3 && (published == NULL || quant_unpacked(rule.form) == rule.form)) {
                assert_int_equal(stored[i][m], 0);
                continue;
            }
            if (m == 3) {
                rule.form = quant_unpacked(rule.form);
                kind = pack_kind_of(rule.form);
            }
            const uint64_t hash = hash_kind(t, kind, &rule);
            if (hash != stored[i][m]) {
                fail_msg("%s, mode %d: 0x%llx", dtype_name(t), m, (unsigned long long)hash);
            }
        }
    }
}

TEST_MAIN(NULL, NULL)
