/* Attention over pages: compared with a naive reference in double and with stored
 * bits. */
#include "backend/attention_fixture.h"

/* of base_case's rows, the same on every instruction set and compiler */
#define STORED_HASH 0xa8f9722bb0343e1au

TEST(heads_of_every_size_agree_with_double_and_the_plain_twin) {
    static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    check_heads_of_every_size(types, 3, 41, 4, 3e-6);
}

TEST(windows_sinks_caps_slopes_and_full_masks_agree_with_double) {
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f}, sinks[] = {0.5f, -1.0f, 9.0f, 0.0f};
    const attn_spec specs[] = {{.scale = 0.3f, .causal = true},
                               {.scale = 0.3f, .causal = true, .window = 1},
                               {.scale = 0.3f, .causal = true, .window = 40},
                               {.scale = 0.3f, .causal = true, .window = 300, .sinks = sinks},
                               {.scale = 0.3f, .causal = true, .soft_cap = 2.0f},
                               {.scale = 0.3f, .causal = true, .soft_cap = 50.0f},
                               {.scale = 0.3f, .causal = true, .alibi_slopes = slopes},
                               {.scale = 0.3f, .causal = false},
                               {.scale = 0.3f, .causal = false, .window = 12},
                               {.scale = 0.3f, .causal = true, .chunk = 1},
                               {.scale = 0.3f, .causal = true, .chunk = 100, .soft_cap = 2.0f},
                               {.scale = 0.3f, .causal = true, .chunk = 256, .window = 90},
                               {.scale = 0.3f, .causal = false, .chunk = 77},
                               {.scale = 0.3f, .causal = false, .chunk = 1000, .window = 300}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        attention_case c = base_case();
        c.lengths[2] = 333;
        c.spec = specs[i];
        fixture f;
        fixture_fill(&f, c);
        case_run_all(&f.c, f.base);
        double worst = worst_difference(&f.c, f.base);
        if (!(worst < 3e-6)) {
            fail_msg("mask %zu: off by %g", i, worst);
        }
        fixture_free(&f);
    }
}

/* Row i sees i + 1 keys: up to the fifteenth none lies in the last lane of a block. */
TEST(a_query_with_a_nan_gives_nan_however_few_keys_it_sees) {
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I8};
    static const float sinks[] = {0.5f, -1.0f, 9.0f, 0.0f};
    for (int i = 0; i < N_MATH_ISAS * 16; i++) {
        attention_case c = base_case();
        fixture f;
        c.isa = ISAS[i / 16];
        if (!isa_is_here(c.isa)) {
            continue;
        }
        c.n_seqs = 1;
        c.lengths[0] = 40;
        c.type = types[i % 4];
        c.chunk = i / 4 % 2; /* all rows in one step, or one a step */
        c.spec.window = i / 8 % 2 * 3;
        c.spec.sinks = c.spec.window > 0 ? sinks : NULL;
        fixture_fill(&f, c);
        size_t row = (size_t)(c.n_heads * c.d_head);
        for (size_t p = 0; p < 40; p++) {
            f.q[p * row + 3] = NAN; /* of head 0 */
        }
        case_run_all(&f.c, f.base);
        for (size_t e = 0; e < 40 * row; e++) {
            if ((isnan(f.base[e]) != 0) != (e % row < (size_t)c.d_head)) {
                fail_msg("%s, type %s, window %d, %d rows a step: row %zu, element %zu is %g", c.isa,
                         dtype_name(c.type), c.spec.window, c.chunk, e / row, e % row, (double)f.base[e]);
            }
        }
        fixture_free(&f);
    }
}

TEST(the_result_has_the_stored_bits) {
    for (int i = 0; i < N_MATH_ISAS; i++) {
        if (!isa_is_here(ISAS[i])) {
            continue;
        }
        attention_case c = base_case();
        c.isa = ISAS[i];
        fixture f;
        fixture_fill(&f, c);
        case_run_all(&f.c, f.base);
        uint64_t hash = hash_bytes(HASH_START, f.base, sizeof *f.base * f.n_out);
        printf("%s: %016llx\n", ISAS[i], (unsigned long long)hash);
        fixture_free(&f);
        assert_true(hash == STORED_HASH);
    }
}

TEST_MAIN_ISAS
