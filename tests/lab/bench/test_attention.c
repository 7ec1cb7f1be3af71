/* `quire bench attention`: what it counts, and the shapes it measures. */

#include "lab/bench/attention_measure.h"
#include "test.h"

TEST(bytes_and_operations_are_those_of_what_rows_see) {
    attention_shape s = {.n_heads = 32,
                         .n_kv_heads = 4,
                         .d_head = 64,
                         .type = DTYPE_F16,
                         .n_seqs = 2,
                         .n_tokens = 1000,
                         .n_rows = 1};
    assert_int_equal(attention_bytes(&s), 2 * 1000 * 2 * 4 * 64 * 2);
    assert_true(attention_operations(&s) == 4.0 * 2 * 1000 * 32 * 64);
    s.n_rows = 3; /* rows that see 998, 999 and 1000 positions */
    assert_true(attention_operations(&s) == 4.0 * 2 * (998 + 999 + 1000) * 32 * 64);
    s.n_rows = 1000;
    assert_true(attention_operations(&s) == 4.0 * 2 * (1000 * 1001 / 2) * 32 * 64);
}

TEST(a_latent_is_read_once_for_all_heads) {
    const attention_machine m = {.isa = "auto", .n_threads = 1, .n_runs = 1};
    const attention_shape s = {.n_heads = 6,
                               .n_kv_heads = 1,
                               .d_head = 24,
                               .n_value = 16,
                               .type = DTYPE_BF16,
                               .n_seqs = 1,
                               .n_tokens = 300,
                               .n_rows = 1};
    attention_speed speed;
    quire_error err;
    assert_int_equal(attention_bytes(&s), 300 * 24 * 2);
    assert_true(attention_operations(&s) == 2.0 * 300 * 6 * (24 + 16));
    assert_int_equal(attention_measure(&s, &m, &speed, &err), QUIRE_OK);
    assert_true(speed.paged_us > 0 && speed.contiguous_us > 0);
}

TEST(decodes_and_prefills_of_more_than_a_step_are_measured) {
    const attention_machine m = {.isa = "auto", .n_threads = 2, .n_runs = 1};
    attention_shape s = {.n_heads = 4,
                         .n_kv_heads = 2,
                         .d_head = 16,
                         .type = DTYPE_BF16,
                         .n_seqs = 3,
                         .n_tokens = 300,
                         .n_rows = 1};
    attention_speed speed;
    quire_error err;
    assert_int_equal(attention_measure(&s, &m, &speed, &err), QUIRE_OK);
    assert_true(speed.paged_us > 0 && speed.contiguous_us > 0);
    s.n_seqs = 1;
    s.n_tokens = s.n_rows = ATTENTION_STEP_ROWS + 100;
    assert_int_equal(attention_measure(&s, &m, &speed, &err), QUIRE_OK);
    assert_true(speed.paged_us > 0 && speed.contiguous_us > 0);
}

TEST(the_same_keys_and_values_are_read_alone_from_pages_of_any_size) {
    attention_machine m = {.isa = "auto", .n_threads = 1, .n_runs = 1};
    const attention_shape s = {.n_heads = 4,
                               .n_kv_heads = 2,
                               .d_head = 16,
                               .type = DTYPE_I8,
                               .n_seqs = 1,
                               .n_tokens = 300,
                               .n_rows = 1};
    for (m.page_tokens = 1; m.page_tokens <= 256; m.page_tokens *= 16) {
        attention_speed speed;
        quire_error err;
        assert_int_equal(attention_measure_reading(&s, &m, &speed, &err), QUIRE_OK);
        assert_true(speed.paged_us > 0 && speed.contiguous_us > 0);
    }
}

/* As many pieces as leave a rest at every number of them side by side and ahead. */
TEST(every_way_to_read_pieces_reads_each_line_once) {
    enum { LAYERS = 2, N = 23, LINES = 3, LINE = 64 };
    static uint8_t bytes[LAYERS * N * LINES * LINE];
    const uint8_t *at[LAYERS * N];
    for (int i = 0; i < LAYERS * N; i++) {
        at[i] = bytes + (i * 5 % (LAYERS * N)) * LINES * LINE;
    }
    for (size_t i = 0; i < LAYERS * N * LINES; i++) {
        bytes[i * LINE] = (uint8_t)(i % 251);
    }
    const pieces p = {.n_layers = LAYERS, .n = N, .bytes = LINES * LINE, .at = at};
    for (int layer = 0; layer < LAYERS; layer++) {
        uint64_t sum = 0;
        for (int i = 0; i < N * LINES; i++) {
            sum += at[layer * N + i / LINES][i % LINES * LINE];
        }
        for (int way = 0; way < PIECES_WAYS; way++) {
            assert_true(pieces_read(&p, layer, way) == sum);
        }
    }
}

TEST(a_shape_that_no_backend_takes_is_refused) {
    const attention_machine m = {.isa = "auto", .n_threads = 1, .n_runs = 1};
    attention_shape s = {.n_heads = 4,
                         .n_kv_heads = 2,
                         .d_head = 16,
                         .type = DTYPE_Q4_0,
                         .n_seqs = 1,
                         .n_tokens = 300,
                         .n_rows = 1};
    attention_speed speed;
    quire_error err;
    assert_int_equal(attention_measure(&s, &m, &speed, &err), QUIRE_INVALID);
}

TEST_MAIN(NULL, NULL)
