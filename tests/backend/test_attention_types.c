/* Attention over fp8_e4m3 and int4 caches, and over keys and values of different types:
 * close to a reference in double, and the same bits however the work is cut. */
#include "backend/attention_fixture.h"

/* The pairs that are tried, and how far attention over normal numbers may be from the
 * exact one. */
static const struct {
    kv_types types;
    double most;
} pairs[] = {
    {{DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_F32}, 0.25},
    {{DTYPE_I4, DTYPE_I4, DTYPE_F32}, 1.0},
    {{DTYPE_I8, DTYPE_I4, DTYPE_F32}, 0.6},
    {{DTYPE_F16, DTYPE_I8, DTYPE_F32}, 0.1},
    {{DTYPE_I8, DTYPE_BF16, DTYPE_F32}, 0.15},
    {{DTYPE_I4, DTYPE_F8_E4M3, DTYPE_F32}, 1.0},
    {{DTYPE_F8_E4M3, DTYPE_I8, DTYPE_F32}, 0.25},
    {{DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_F32}, 0.25},
    {{DTYPE_F8_E4M3, DTYPE_F32, DTYPE_F32}, 0.25},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

TEST(heads_of_every_size_are_near_double_and_have_the_plain_twins_bits) {
    static const int32_t sizes[] = {8, 10, 18, 32, 48, 64, 80, 96, 128, 256};
    static const int32_t ratios[][2] = {{1, 1}, {4, 2}, {8, 1}, {9, 1}, {3, 3}};
    for (int i = 0; i < 2 * N_PAIRS; i++) {
        attention_case c = base_case();
        c.n_seqs = 2;
        c.lengths[0] = 23;
        c.lengths[1] = 290;
        c.types = &pairs[i % N_PAIRS].types;
        c.type = DTYPE_F32; /* the reference's */
        c.d_head = sizes[i % 10];
        c.n_heads = ratios[i % 5][0];
        c.n_kv_heads = ratios[i % 5][1];
        c.page_tokens = i % 2 ? 16 : 32;
        c.tile_rows = 5;
        c.spec.scale = 1.0f / sqrtf((float)c.d_head);
        fixture f;
        fixture_fill(&f, c);
        case_run_all(&f.c, f.base);
        double worst = worst_difference(&f.c, f.base);
        if (!(worst < pairs[i % N_PAIRS].most)) {
            fail_msg("%s/%s, heads of %d: off by %g", dtype_name(c.types->key), dtype_name(c.types->value),
                     c.d_head, worst);
        }
        for (int j = 1; j < N_MATH_ISAS; j++) {
            if (isa_is_here(ISAS[j])) {
                c.isa = ISAS[j];
                check_same(&f, &c);
            }
        }
        fixture_free(&f);
    }
}

TEST(the_cut_shows_in_no_bit) {
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f}, sinks[] = {0.5f, -1.0f, 3.0f, 0.0f};
    for (int i = 0; i < N_PAIRS; i++) {
        attention_case c = base_case();
        c.types = &pairs[i].types;
        c.d_head = i % 2 == 0 ? 24 : 40;
        c.lengths[2] = 530;
        if (i % 3 == 1) {
            c.spec.window = 19;
            c.spec.sinks = sinks;
        } else if (i % 3 == 2) {
            c.spec = (attn_spec){.scale = 0.3f, .causal = false, .soft_cap = 3.0f, .alibi_slopes = slopes};
        }
        check_every_way(&c);
    }
}

/* A key or value that is not finite shows in all rows that see it, and in no other. */
TEST(what_is_not_finite_is_passed_on) {
    for (int i = 0; i < 2 * N_PAIRS * N_MATH_ISAS; i++) {
        attention_case c = base_case();
        c.types = &pairs[i % N_PAIRS].types;
        c.isa = ISAS[i / N_PAIRS % N_MATH_ISAS];
        c.n_seqs = 1;
        if (!isa_is_here(c.isa)) {
            continue;
        }
        fixture f;
        fixture_fill(&f, c);
        /* position 20, head 0 */
        size_t row = (size_t)(c.n_heads * c.d_head), at = (size_t)20 * (size_t)(c.n_kv_heads * c.d_head);
        if (i < N_PAIRS * N_MATH_ISAS) {
            f.k[at] = NAN; /* of a key in floats that is infinite, a score may be -infinity, as it should */
        } else {
            f.v[at] = INFINITY;
        }
        case_run_all(&f.c, f.base);
        for (size_t p = 0; p < (size_t)c.lengths[0]; p++) {
            if (isfinite(f.base[p * row]) != (p < 20) || !isfinite(f.base[p * row + row - 1])) {
                fail_msg("%s, %s/%s: row %zu", c.isa, dtype_name(c.types->key), dtype_name(c.types->value),
                         p);
            }
        }
        fixture_free(&f);
    }
}

/* The widening of int4, over widths that end within a group, against the plain twin's. */
TEST(int4_is_unpacked_alike_on_every_instruction_set) {
    static const int32_t widths[] = {2, 8, 18, 20, 32, 36, 64, 72, 80, 128, 130, 256, 512};
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 2 * (int)(sizeof widths / sizeof *widths) * N_MATH_ISAS; i++) {
        const char *isa = ISAS[i / 2 % N_MATH_ISAS];
        const int32_t width = widths[i / 2 / N_MATH_ISAS], row = ((width + 31) / 32 * 17 + 3) / 4 * 4,
                      n = 16 * ((width + 3) / 4 * 4);
        uint8_t block[16 * 280];
        int8_t want[16 * 544], got[16 * 544];
        if (!isa_is_here(isa)) {
            continue;
        }
        for (int32_t b = 0; b < 16 * row; b++) {
            block[b] = (uint8_t)rng_next(&seed);
        }
        backend *plain = open_isa("plain", 1), *other = open_isa(isa, 1);
        ((cpu_backend *)plain)->math->unpack_int4(i % 2 == 1, block, width, row, want);
        ((cpu_backend *)other)->math->unpack_int4(i % 2 == 1, block, width, row, got);
        for (int32_t b = 0; b < n; b++) {
            if (got[b] != want[b]) {
                fail_msg("%s, %s of width %d: byte %d is %d, must be %d", isa, i % 2 == 1 ? "values" : "keys",
                         width, b, got[b], want[b]);
            }
        }
        plain->ops->close(plain);
        other->ops->close(other);
    }
}

enum { FEW = 12, WIDEST = 160 };

/* A tile of few queries, its memory, and its keys and values as codes and, of int4, as int8. */
typedef struct few_queries {
    attn_tile tile;
    uint8_t codes[2][ATTN_BLOCKS][ATTN_BLOCK * WIDEST + 64];
    int8_t unpacked[2][ATTN_BLOCKS][ATTN_BLOCK * (WIDEST + 32) + 1024];
    float q[FEW][WIDEST], scales[2][ATTN_CHUNK];
    int8_t q_int8[FEW * WIDEST];
    uint8_t weights[FEW * ATTN_CHUNK];
    uint16_t seen[FEW * ATTN_BLOCKS];
    float scores[FEW * ATTN_CHUNK], max[FEW], sum[FEW], acc[FEW * (WIDEST + 16)];
} few_queries;

/* A multiplier and a zero with which all codes stand for bytes, as those of encoded rows do. */
static uint8_t random_form(uint64_t *seed) {
    const int32_t zero = (int32_t)(rng_next(seed) % 16), below = zero > 0 ? 128 / zero : 16,
                  above = zero < 15 ? 127 / (15 - zero) : 16, most = below < above ? below : above;
    return (uint8_t)((int32_t)(rng_next(seed) % (uint64_t)(most < 16 ? most : 16)) + 16 * zero);
}

static void few_queries_fill_int4(few_queries *f, int32_t width, uint64_t *seed) {
    const int32_t n_groups = (width + 31) / 32, row = (n_groups * 17 + 3) / 4 * 4;
    for (int32_t i = 0; i < 2 * ATTN_BLOCKS * ATTN_BLOCK * row; i++) {
        const int32_t side = i % 2, block = i / 2 % ATTN_BLOCKS, at = i / 2 / ATTN_BLOCKS;
        const bool is_code = side == 0 ? at < n_groups * 256 : at % (4 * row) < n_groups * 64;
        f->codes[side][block][at] = is_code ? (uint8_t)rng_next(seed) : random_form(seed);
    }
}

/* All codes of E4M3 but NaN. */
static void few_queries_fill_fp8(few_queries *f, uint64_t *seed) {
    for (size_t i = 0; i < sizeof f->codes; i++) {
        const uint8_t code = (uint8_t)rng_next(seed);
        (&f->codes[0][0][0])[i] = (code & 0x7f) == 0x7f ? 0 : code;
    }
}

/* Random queries and scales, and ranges that are `alike` or not. */
static void few_queries_fill(few_queries *f, int32_t width, int32_t n, bool masked, bool alike,
                             uint64_t *seed) {
    attn_tile *t = &f->tile;
    *t = (attn_tile){.n_queries = n,
                     .d_head = width,
                     .d_value = width,
                     .acc_stride = (width + 15) / 16 * 16,
                     .k_is_scaled = true,
                     .v_is_scaled = true,
                     .scale = 0.05f,
                     .seen = masked ? f->seen : NULL,
                     .q_int8 = f->q_int8,
                     .weights = f->weights,
                     .scores = f->scores,
                     .max = f->max,
                     .sum = f->sum,
                     .acc = f->acc};
    for (int32_t i = 0; i < 2 * ATTN_CHUNK; i++) {
        (&f->scales[0][0])[i] = 0.001f + (float)(rng_next(seed) % 1000) * 1e-5f;
    }
    for (int32_t i = 0; i < n; i++) {
        for (int32_t e = 0; e < width; e++) {
            f->q[i][e] = random_normal(seed);
        }
        t->q[i] = f->q[i];
        t->first[i] = alike ? 5 : (int32_t)(rng_next(seed) % 40) * (i % 2);
        t->end[i] = alike ? 250 : ATTN_CHUNK - (int32_t)(rng_next(seed) % 200) * (i > 1 || n == 1);
        for (int32_t p = 0; p < ATTN_CHUNK; p++) {
            const bool sees = p >= t->first[i] && p < t->end[i] && rng_next(seed) % 2 == 1;
            uint16_t *bits = &f->seen[i * ATTN_BLOCKS + p / ATTN_BLOCK];
            *bits = (uint16_t)((p % ATTN_BLOCK > 0 ? *bits : 0) | (sees ? 1u << p % ATTN_BLOCK : 0));
        }
    }
    for (int32_t b = 0; b < ATTN_BLOCKS; b++) {
        t->k_scales[b] = t->fetch_k_scales[b] = f->scales[0] + b * ATTN_BLOCK;
        t->v_scales[b] = t->fetch_v_scales[b] = f->scales[1] + b * ATTN_BLOCK;
    }
}

/* The tile's result by these kernels. type: F8_E4M3, I8 unpacked from int4, or I4, after a
 * call with I8 and only where the kernels read it. */
static void few_queries_run(few_queries *f, const math_kernels *math, dtype type) {
    attn_tile *t = &f->tile;
    const int32_t width = t->d_head, row = ((width + 31) / 32 * 17 + 3) / 4 * 4;
    const bool is_int4 = type == DTYPE_I4;
    memset(f->acc, 0, sizeof f->acc);
    memset(f->q_int8, 0, sizeof f->q_int8);
    t->k_type = is_int4 && t->n_queries > math->int4_key_queries ? DTYPE_I8 : type;
    t->v_type = is_int4 && t->n_queries > math->int4_value_queries ? DTYPE_I8 : type;
    for (int32_t i = 0; i < t->n_queries; i++) {
        t->q_scale[i] =
            math->narrow_int8(f->q[i], width, f->q_int8 + i * attn_int8_stride(width), &t->q_sum[i]);
    }
    for (int32_t b = 0; b < ATTN_BLOCKS; b++) {
        for (int side = 0; side < 2 && type == DTYPE_I8; side++) {
            math->unpack_int4(side == 1, f->codes[side][b], width, row, f->unpacked[side][b]);
        }
        t->k_blocks[b] = t->k_type == DTYPE_I8 ? (void *)f->unpacked[0][b] : (void *)f->codes[0][b];
        t->v_blocks[b] = t->v_type == DTYPE_I8 ? (void *)f->unpacked[1][b] : (void *)f->codes[1][b];
        t->fetch_k[b] = t->v_blocks[b];
        t->fetch_v[b] = t->k_blocks[b];
    }
    t->fetch_k_bytes = t->fetch_v_bytes = ATTN_BLOCK * row;
    math->attention_tile(t);
}

/* n queries over random codes of a type, on one instruction set and by the plain twin. */
static void check_few_queries(dtype type, int32_t width, int32_t n, int kind, const char *isa,
                              uint64_t *seed) {
    static few_queries f, want;
    backend *plain = open_isa("plain", 1), *other = open_isa(isa, 1);
    few_queries_fill(&f, width, n, kind == 1, kind == 2, seed);
    if (type == DTYPE_I4) {
        few_queries_fill_int4(&f, width, seed);
    } else {
        few_queries_fill_fp8(&f, seed);
    }
    few_queries_run(&f, ((cpu_backend *)plain)->math, type == DTYPE_I4 ? DTYPE_I8 : type);
    memcpy(want.max, f.max, sizeof f.max);
    memcpy(want.sum, f.sum, sizeof f.sum);
    memcpy(want.acc, f.acc, sizeof f.acc);
    few_queries_run(&f, ((cpu_backend *)other)->math, type);
    for (int32_t q = 0; q < n; q++) {
        const int32_t at = q * f.tile.acc_stride;
        if (!same_floats(&f.max[q], &want.max[q], 1) || !same_floats(&f.sum[q], &want.sum[q], 1) ||
            !same_floats(f.acc + at, want.acc + at, (size_t)width)) {
            fail_msg("%s, %s, %d queries, width %d, kind %d: query %d", isa, dtype_name(type), n, width, kind,
                     q);
        }
    }
    plain->ops->close(plain);
    other->ops->close(other);
}

/* Few queries multiply codes of int4, where more would unpack them; two groups of queries
 * may share fp8 that is widened once. */
TEST(few_queries_over_codes_have_the_plain_twins_bits) {
    static const int32_t widths[] = {2, 8, 18, 32, 36, 64, 72, 80, 128, 130, 160};
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 1; i < N_MATH_ISAS; i++) {
        for (size_t w = 0; isa_is_here(ISAS[i]) && w < sizeof widths / sizeof *widths; w++) {
            for (int32_t n = 1; n <= FEW; n++) {
                const int kind = (int)(n + (int32_t)w) % 3;
                if (n <= 8) {
                    check_few_queries(DTYPE_I4, widths[w], n, kind, ISAS[i], &seed);
                }
                check_few_queries(DTYPE_F8_E4M3, widths[w], n, kind, ISAS[i], &seed);
                check_few_queries(DTYPE_F8_E4M3, widths[w], n, 2, ISAS[i], &seed);
            }
        }
    }
}

TEST_MAIN_ISAS
