/* The figures of `quire bench memory`: worked examples 13 to 15, from real runs. */

#include "lab/bench/memory_cases.h"
#include "test.h"

enum { TOKEN = 2 * 16 * 8 * 64 * 2 }; /* bytes, Llama 3.2 1B in f16 */
#define WEIGHTS 2471628800

static memory_result run(memory_scenario scenario, memory_method method, int32_t parameter) {
    model_desc d = desc_plain(16, 8, 8, 64, 0);
    memory_case c = {scenario, method, parameter};
    memory_result r;
    quire_error err = {.message = ""};
    if (memory_run(&c, &d, DTYPE_F16, &r, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(r.minimum_bytes, r.live_tokens * TOKEN);
    assert_true(r.peak_bytes >= r.end_bytes && r.end_bytes >= r.minimum_bytes);
    return r;
}

/* Worked example 13. */
TEST(the_batch_takes_0_141_percent_over_its_tokens_at_page_16) {
    static const int32_t sizes[] = {16, 64, 128, 256}, pages[] = {4256, 1070, 538, 272},
                         wasted[] = {96, 480, 864, 1632}, thousandths[] = {141, 706, 1271, 2400};
    for (int i = 0; i < 4; i++) {
        memory_result r = run(MEMORY_BATCH, MEMORY_PAGED, sizes[i]);
        assert_int_equal(r.live_tokens, 68000);
        assert_int_equal(r.n_pages, pages[i]);
        assert_int_equal(r.peak_bytes - r.minimum_bytes, wasted[i] * TOKEN);
        assert_int_equal(((r.peak_bytes - r.minimum_bytes) * 100000 + r.minimum_bytes / 2) / r.minimum_bytes,
                         thousandths[i]);
        assert_int_equal(r.copied_bytes, 0);
    }
    assert_int_equal(run(MEMORY_BATCH, MEMORY_PAGED, 1).peak_bytes, 68000 * (int64_t)TOKEN);
}

/* Worked example 14: of what is taken, used in tenths of a percent. */
TEST(static_lengths_and_powers_of_two_leave_much_unused) {
    memory_result r = run(MEMORY_BATCH, MEMORY_STATIC, 8000);
    assert_int_equal((r.minimum_bytes * 1000 + r.peak_bytes / 2) / r.peak_bytes, 531);
    r = run(MEMORY_BATCH, MEMORY_STATIC, 8192);
    assert_int_equal((r.minimum_bytes * 1000 + r.peak_bytes / 2) / r.peak_bytes, 519);
    r = run(MEMORY_BATCH, MEMORY_CONTIGUOUS, 200);
    assert_int_equal((r.minimum_bytes * 1000 + r.end_bytes / 2) / r.end_bytes, 777);
}

/* Worked example 15. */
TEST(a_long_sequence_takes_less_than_a_page_over_its_tokens) {
    static const int32_t sizes[] = {16, 64, 128, 256}, pages[] = {6250, 1563, 782, 391},
                         wasted[] = {0, 32, 96, 96};
    for (int i = 0; i < 4; i++) {
        memory_result r = run(MEMORY_LONG, MEMORY_PAGED, sizes[i]);
        assert_int_equal(r.n_pages, pages[i]);
        assert_int_equal(r.peak_bytes - r.minimum_bytes, wasted[i] * TOKEN);
    }
}

/* A buffer that doubles from 16 is copied at 16, 32 .. 65536 tokens; at the last, 65,536
 * and 131,072 stand side by side. */
TEST(growing_copies_and_holds_both_buffers_meanwhile) {
    memory_result r = run(MEMORY_LONG, MEMORY_CONTIGUOUS, 200);
    assert_int_equal(r.end_bytes, 131072 * (int64_t)TOKEN);
    assert_int_equal(r.peak_bytes, (65536 + 131072) * (int64_t)TOKEN);
    assert_int_equal(r.copied_bytes, (131072 - 16) * (int64_t)TOKEN);
}

/* Every turn finds all that was said before; turns end inside a page of 16 where 1000 +
 * 200 n leaves a rest, and then that page is copied. */
TEST(a_chat_takes_at_most_a_page_over_what_it_says) {
    memory_result r = run(MEMORY_CHAT, MEMORY_PAGED, 16);
    assert_int_equal(r.live_tokens, 32000);
    assert_in_range(r.peak_bytes, r.minimum_bytes, r.minimum_bytes + 16 * TOKEN);
    int32_t n_copies = 0;
    for (int32_t n = 1000; n < 32000; n += 200) {
        n_copies += n % 16 != 0;
    }
    assert_int_equal(r.copied_bytes, n_copies * 16 * (int64_t)TOKEN);
}

TEST(metadata_is_under_a_thousandth_on_a_1b_model_at_page_16) {
    for (int s = 0; s < MEMORY_N_SCENARIOS; s++) {
        memory_result r = run((memory_scenario)s, MEMORY_PAGED, 16);
        assert_true(r.metadata_bytes > r.n_pages * 16); /* the pool's alone */
        assert_true(r.metadata_bytes * 1000 <= r.minimum_bytes);
        assert_true(r.metadata_bytes * 1000 <= r.minimum_bytes + WEIGHTS);
    }
}

TEST(what_does_not_fit_is_refused) {
    model_desc d = desc_plain(16, 8, 8, 64, 0);
    quire_error err;
    memory_result r;
    assert_int_equal(memory_run(&(memory_case){MEMORY_BATCH, MEMORY_STATIC, 7999}, &d, DTYPE_F16, &r, &err),
                     QUIRE_INVALID);
    assert_int_equal(memory_run(&(memory_case){MEMORY_BATCH, MEMORY_PAGED, 24}, &d, DTYPE_F16, &r, &err),
                     QUIRE_INVALID);
}

TEST_MAIN(NULL, NULL)
