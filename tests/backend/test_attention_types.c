/* Attention over keys and values of fp8_e4m3 and int4, and of two types: near the
 * reference in double, and the same bits however its work is cut. */
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

static void heads_of_every_size_are_near_double_and_have_the_plain_twins_bits(void **unused) {
    (void)unused;
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

static void the_cut_shows_in_no_bit(void **unused) {
    (void)unused;
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
static void what_is_not_finite_is_passed_on(void **unused) {
    (void)unused;
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
static void int4_is_unpacked_alike_on_every_instruction_set(void **unused) {
    (void)unused;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_every_size_are_near_double_and_have_the_plain_twins_bits),
        cmocka_unit_test(the_cut_shows_in_no_bit),
        cmocka_unit_test(what_is_not_finite_is_passed_on),
        cmocka_unit_test(int4_is_unpacked_alike_on_every_instruction_set),
    };
    note_isas();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
