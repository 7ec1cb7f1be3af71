/* Attention over int8 keys and values: close to a reference in double, and the same bits
 * however the work is cut. */
#include "backend/attention_fixture.h"

/* Keys and values lose up to a 254th of their largest number, weights of a chunk a 252nd
 * of theirs: of normal numbers the worst is off by less than 0.1. */
TEST(int8_heads_of_every_size_are_near_double_and_have_the_plain_twins_bits) {
    static const dtype type = DTYPE_I8;
    check_heads_of_every_size(&type, 1, 341, 2, 0.1);
}

/* A key or value that is not finite shows in all rows that see it, and in no other. */
TEST(what_is_not_finite_in_int8_is_passed_on) {
    attention_case c = base_case();
    c.type = DTYPE_I8;
    c.n_seqs = 1;
    for (int i = 0; i < N_MATH_ISAS; i++) {
        if (!isa_is_here(ISAS[i])) {
            continue;
        }
        c.isa = ISAS[i];
        fixture f;
        fixture_fill(&f, c);
        size_t row = (size_t)(c.n_heads * c.d_head);
        f.v[(size_t)20 * (size_t)(c.n_kv_heads * c.d_head)] = INFINITY; /* position 20, head 0 */
        case_run_all(&f.c, f.base);
        for (size_t p = 0; p < (size_t)c.lengths[0]; p++) {
            assert_true((isnan(f.base[p * row]) != 0) == (p >= 20));
            assert_true(!isnan(f.base[p * row + row - 1]));
        }
        fixture_free(&f);
    }
}

TEST(the_cut_shows_in_no_bit_with_int8_keys_and_values) {
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f}, sinks[] = {0.5f, -1.0f, 3.0f, 0.0f};
    attention_case c = base_case();
    c.type = DTYPE_I8;
    check_every_way(&c);
    c.n_heads = 9;
    c.n_kv_heads = 1;
    c.d_head = 18; /* not a multiple of a quad */
    c.lengths[2] = 530;
    check_every_way(&c);
    c.n_heads = c.n_kv_heads = 6;
    check_every_way(&c);
    c = base_case();
    c.type = DTYPE_I8;
    c.lengths[2] = 530;
    c.spec.window = 19;
    c.spec.sinks = sinks;
    check_every_way(&c);
    c.spec = (attn_spec){.scale = 0.3f, .causal = false, .soft_cap = 3.0f, .alibi_slopes = slopes};
    check_every_way(&c);
}

TEST_MAIN_ISAS
