/* Attention gives the same bits however its work is cut: pages, chunks, tiles, threads,
 * instruction sets. */
#include "backend/attention_fixture.h"

TEST(the_cut_of_the_work_shows_in_no_bit) {
    attention_case c = base_case();
    check_every_way(&c);
    c.type = DTYPE_BF16;
    c.n_heads = 7;
    c.n_kv_heads = 1;
    c.d_head = 16;
    c.lengths[2] = 530;
    check_every_way(&c);
    c.n_heads = c.n_kv_heads = 8; /* of which some take a chunk one after the other */
    check_every_way(&c);
}

TEST(the_cut_shows_in_no_bit_with_masks_and_score_changes) {
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f}, sinks[] = {0.5f, -1.0f, 3.0f, 0.0f};
    attention_case c = base_case();
    c.type = DTYPE_F16;
    c.lengths[2] = 530;
    c.spec.window = 19;
    c.spec.chunk = 111;
    c.spec.sinks = sinks;
    check_every_way(&c);
    c = base_case();
    c.lengths[2] = 300;
    c.spec.alibi_slopes = slopes;
    for (int i = 0; i < 2; i++) {
        c.spec.soft_cap = i == 0 ? 3.0f : 50.0f; /* above and far above the scores */
        check_every_way(&c);
    }
    c.spec.causal = false;
    check_every_way(&c);
}

TEST_MAIN_ISAS
