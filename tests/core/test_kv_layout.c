#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "core/kv_layout.h"

static model_desc plain(int32_t n_layers, int32_t n_kv_heads, int32_t d_head) {
    return (model_desc){.n_layers = n_layers, .n_kv_heads = n_kv_heads, .n_heads = n_kv_heads, .d_head = d_head};
}

static void a_plain_llama_is_one_group_of_all_its_layers(void **state) {
    (void)state;
    model_desc d = plain(32, 32, 128);
    kv_layout l;
    assert_int_equal(kv_layout_init(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 1);
    assert_int_equal(l.groups[0].n_layers, 32);
    assert_int_equal(l.plane_bytes, 32 * 128 * 16 * 2);
    assert_int_equal(l.page_bytes, 2 * 32 * l.plane_bytes);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(l.layer_group[i], 0);
        assert_int_equal(l.layer_index[i], i);
    }
}

/* Worked example 8. */
static void a_7b_shape_takes_524288_bytes_a_token(void **state) {
    (void)state;
    model_desc d = plain(32, 32, 128);
    kv_layout l;
    assert_int_equal(kv_layout_init(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(kv_layout_token_bytes(&l), 524288);
    assert_int_equal(4096 * kv_layout_token_bytes(&l), (int64_t)2 << 30);
    assert_int_equal(kv_pages_for(4096, 16) * l.page_bytes, (int64_t)2 << 30);
    assert_int_equal(64 * l.page_bytes, 512 << 20);
    assert_int_equal(kv_pages_for(2048, 16) * l.page_bytes, 1 << 30);
}

/* Worked examples 16 and 17. */
static void grouped_queries_divide_the_bytes_a_token(void **state) {
    (void)state;
    kv_layout l;
    model_desc d = plain(32, 8, 128);
    assert_int_equal(kv_layout_init(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(99 * kv_layout_token_bytes(&l), 12976128);
    d = plain(80, 8, 128);
    assert_int_equal(kv_layout_init(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(kv_layout_token_bytes(&l), 327680);
    d = plain(80, 64, 128);
    assert_int_equal(kv_layout_init(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(kv_layout_token_bytes(&l), 2621440);
}

/* Worked examples 7, 12, 13, 15, 19 and 28: pages that a number of tokens needs. */
static void page_counts_are_the_published_ones(void **state) {
    (void)state;
    assert_int_equal((2048 - 80) * 10000 / 2048, 9609);
    assert_int_equal(kv_pages_for(80, 2048), 1);
    assert_int_equal(kv_pages_for(500, 64), 8);
    assert_int_equal(kv_pages_for(8000, 64), 125);
    assert_int_equal(kv_pages_for(8000, 128), 63);
    static const int64_t pages[] = {4256, 1070, 538, 272}, wasted[] = {96, 480, 864, 1632};
    static const int32_t sizes[] = {16, 64, 128, 256};
    static const int64_t long_pages[] = {6250, 1563, 782, 391}, long_wasted[] = {0, 32, 96, 96};
    for (int i = 0; i < 4; i++) {
        int64_t n = 0;
        for (int64_t prompt = 500; prompt <= 8000; prompt += 500) {
            n += kv_pages_for(prompt, sizes[i]);
        }
        assert_int_equal(n, pages[i]);
        assert_int_equal(n * sizes[i] - 68000, wasted[i]);
        assert_int_equal(kv_pages_for(100000, sizes[i]), long_pages[i]);
        assert_int_equal(long_pages[i] * sizes[i] - 100000, long_wasted[i]);
    }
    assert_int_equal(kv_pages_for(5, 2), 3);
    assert_int_equal(kv_pages_for(29, 16), 2);
    assert_int_equal(kv_pages_for(1295, 16), 81);
    assert_int_equal(kv_pages_for(2048, 16), 128);
    assert_int_equal(kv_pages_for(0, 16), 0);
}

static void fifteen_window_layers_and_three_full_are_six_groups_of_three(void **state) {
    (void)state;
    layer_kind kinds[18];
    for (int i = 0; i < 18; i++) {
        kinds[i] = i % 6 == 5 ? LAYER_FULL : LAYER_WINDOW;
    }
    model_desc d = plain(18, 1, 256);
    d.layer_kinds = kinds;
    d.window = 512;
    kv_layout l;
    assert_int_equal(kv_layout_init(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 6);
    for (int g = 0; g < 6; g++) {
        assert_int_equal(l.groups[g].n_layers, 3);
        assert_int_equal(l.groups[g].kind, g == 0 ? LAYER_FULL : LAYER_WINDOW);
        assert_int_equal(l.groups[g].window, g == 0 ? 0 : 512);
    }
    assert_int_equal(l.page_bytes, 3 * 2 * 256 * 16 * 2);
    assert_int_equal(l.layer_group[5], 0);
    assert_int_equal(l.layer_index[11], 1);
    assert_int_equal(l.layer_group[0], 1);
    assert_int_equal(l.layer_index[4], 1); /* window layers 0 1 2 | 3 4 6 | ... */
}

static void random_layer_kinds_give_every_layer_a_place_of_its_own(void **state) {
    (void)state;
    uint64_t seed = rng_os_seed(), s = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 500; round++) {
        layer_kind kinds[128];
        model_desc d = plain(1 + (int32_t)(rng_next(&s) % 128), 2, 8);
        uint64_t full_in_8 = rng_next(&s) % 9;
        for (int i = 0; i < d.n_layers; i++) {
            kinds[i] = rng_next(&s) % 8 < full_in_8 ? LAYER_FULL : LAYER_WINDOW;
        }
        d.layer_kinds = kinds;
        d.window = 4;
        kv_layout l;
        assert_int_equal(kv_layout_init(&d, DTYPE_F32, 4, &l, NULL), QUIRE_OK);
        assert_in_range(l.n_groups, 1, KV_MAX_GROUPS);
        int32_t used[KV_MAX_GROUPS] = {0};
        for (int i = 0; i < d.n_layers; i++) {
            const kv_group *g = &l.groups[l.layer_group[i]];
            assert_int_equal(g->kind, kinds[i]);
            assert_int_equal(l.layer_index[i], used[l.layer_group[i]]++);
        }
        for (int g = 0; g < l.n_groups; g++) {
            assert_int_equal(used[g], l.groups[g].n_layers);
            assert_true(l.groups[g].n_layers * 2 * l.plane_bytes <= l.page_bytes);
        }
    }
}

static void planes_start_at_multiples_of_64_bytes(void **state) {
    (void)state;
    model_desc d = plain(2, 1, 6);
    kv_layout l;
    assert_int_equal(kv_layout_init(&d, DTYPE_F16, 1, &l, NULL), QUIRE_OK);
    assert_int_equal(l.plane_bytes, 64);
    assert_int_equal(l.page_bytes, 256);
    assert_int_equal(kv_layout_token_bytes(&l), 48);
}

static void what_cannot_be_laid_out_is_refused_with_a_reason(void **state) {
    (void)state;
    model_desc d = plain(2, 1, 8);
    kv_layout l = {.version = 77};
    quire_error err;
    static const int32_t bad[] = {0, -16, 3, 24, 512, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(kv_layout_init(&d, DTYPE_F16, bad[i], &l, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.message, "power of two"));
    }
    assert_int_equal(kv_layout_init(&d, DTYPE_Q8_0, 16, &l, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "Q8_0"));
    layer_kind kinds[] = {LAYER_FULL, LAYER_STATE};
    d.layer_kinds = kinds;
    assert_int_equal(kv_layout_init(&d, DTYPE_F16, 16, &l, &err), QUIRE_UNSUPPORTED);
    assert_int_equal(l.version, 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_llama_is_one_group_of_all_its_layers),
        cmocka_unit_test(a_7b_shape_takes_524288_bytes_a_token),
        cmocka_unit_test(grouped_queries_divide_the_bytes_a_token),
        cmocka_unit_test(page_counts_are_the_published_ones),
        cmocka_unit_test(fifteen_window_layers_and_three_full_are_six_groups_of_three),
        cmocka_unit_test(random_layer_kinds_give_every_layer_a_place_of_its_own),
        cmocka_unit_test(planes_start_at_multiples_of_64_bytes),
        cmocka_unit_test(what_cannot_be_laid_out_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
