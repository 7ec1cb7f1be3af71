#include "core/batch.h"
#include "test.h"

TEST(rows_are_cut_into_tiles_that_see_their_own_last_position) {
    const batch_seq seqs[] = {
        {.row0 = 0, .n_rows = 1, .n_tokens = 257},  /* a decode at position 256 */
        {.row0 = 1, .n_rows = 10, .n_tokens = 260}, /* a chunk over the boundary: positions 250..259 */
        {.row0 = 11, .n_rows = 4, .n_tokens = 4},
    };
    attn_item items[8];
    assert_int_equal(batch_plan_work(seqs, 3, 4, items, 8), 5);
    static const attn_item expected[] = {
        {0, 0, 1, 0, 2, -1}, {1, 1, 4, 0, 1, -1},  {1, 5, 4, 0, 2, -1},
        {1, 9, 2, 0, 2, -1}, {2, 11, 4, 0, 1, -1},
    };
    assert_memory_equal(items, expected, sizeof expected);
}

TEST(too_small_a_list_is_reported) {
    const batch_seq seq = {.n_rows = 9, .n_tokens = 9};
    attn_item items[3];
    assert_int_equal(batch_plan_work(&seq, 1, 4, items, 2), -1);
    assert_int_equal(batch_plan_work(&seq, 1, 4, items, 3), 3);
    assert_int_equal(batch_plan_work(&seq, 0, 4, items, 0), 0);
}

/* Rows that see later ones need every chunk of their sequence, whichever tile they are
 * in. */
TEST(tiles_of_a_two_sided_sequence_cover_all_its_chunks) {
    batch_seq s = {
        .row0 = 0, .n_rows = 2 * ATTN_CHUNK + 1, .n_tokens = 2 * ATTN_CHUNK + 1, .two_sided = true};
    attn_item items[64];
    int32_t n = batch_plan_work(&s, 1, 16, items, 64);
    assert_int_equal(n, 33);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(items[i].chunk0, 0);
        assert_int_equal(items[i].n_chunks, 3);
    }
    s.two_sided = false;
    assert_int_equal(batch_plan_work(&s, 1, 16, items, 64), 33);
    assert_int_equal(items[0].n_chunks, 1);
    assert_int_equal(items[32].n_chunks, 3);
}

TEST_MAIN(NULL, NULL)
