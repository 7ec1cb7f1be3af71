#include <string.h>

#include "base/rng.h"
#include "layer_plan.h"
#include "test.h"

static layer_plan plain(int32_t n_layers, int32_t n_kv_heads, int32_t d_head) {
    return (layer_plan){.n_layers = n_layers, .n_kv_heads = n_kv_heads, .d_head = d_head};
}

TEST(a_plain_llama_is_one_group_of_all_its_layers) {
    layer_plan d = plain(32, 32, 128);
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 1);
    assert_int_equal(l.groups[0].n_caches, 32);
    assert_int_equal(l.caches[0].key.bytes, 32 * 128 * 16 * 2);
    assert_int_equal(l.page_bytes, 2 * 32 * l.caches[0].key.bytes);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(l.caches[i].group, 0);
        assert_int_equal(l.caches[i].key.offset, i * 2 * l.caches[0].key.bytes);
        assert_int_equal(l.caches[i].value.offset, (i * 2 + 1) * l.caches[0].key.bytes);
    }
}

/* Worked example 8. */
TEST(a_7b_shape_takes_524288_bytes_a_token) {
    layer_plan d = plain(32, 32, 128);
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(kv_layout_token_bytes(&l), 524288);
    assert_int_equal(4096 * kv_layout_token_bytes(&l), (int64_t)2 << 30);
    assert_int_equal(kv_pages_for(4096, 16) * l.page_bytes, (int64_t)2 << 30);
    assert_int_equal(64 * l.page_bytes, 512 << 20);
    assert_int_equal(kv_pages_for(2048, 16) * l.page_bytes, 1 << 30);
}

/* Worked examples 16 and 17. */
TEST(grouped_queries_divide_the_bytes_a_token) {
    kv_layout l;
    layer_plan d = plain(32, 8, 128);
    assert_int_equal(lay_out(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(99 * kv_layout_token_bytes(&l), 12976128);
    d = plain(80, 8, 128);
    assert_int_equal(lay_out(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(kv_layout_token_bytes(&l), 327680);
    d = plain(80, 64, 128);
    assert_int_equal(lay_out(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(kv_layout_token_bytes(&l), 2621440);
}

/* Worked examples 7, 12, 13, 15, 19 and 28: pages that a number of tokens needs. */
TEST(page_counts_are_the_published_ones) {
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

TEST(fifteen_window_layers_and_three_full_are_six_groups_of_three) {
    layer_kind kinds[18];
    for (int i = 0; i < 18; i++) {
        kinds[i] = i % 6 == 5 ? LAYER_FULL : LAYER_WINDOW;
    }
    layer_plan d = plain(18, 1, 256);
    d.kinds = kinds;
    d.window = 512;
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 6);
    for (int g = 0; g < 6; g++) {
        assert_int_equal(l.groups[g].n_caches, 3);
        assert_int_equal(l.groups[g].kind, g == 0 ? LAYER_FULL : LAYER_WINDOW);
        assert_int_equal(l.groups[g].window, g == 0 ? 0 : 512);
    }
    assert_int_equal(l.page_bytes, 3 * 2 * 256 * 16 * 2);
    assert_int_equal(l.caches[5].group, 0);
    assert_int_equal(l.caches[11].key.offset, 2 * 256 * 16 * 2);
    assert_int_equal(l.caches[0].group, 1);
    assert_int_equal(l.caches[4].key.offset, 2 * 256 * 16 * 2); /* window layers 0 1 2 | 3 4 6 | ... */
}

/* Every period-th layer is of one kind, the others of another. */
static layer_plan mixed(int32_t n_layers, int32_t period, layer_kind others, layer_kind every,
                        int32_t n_kv_heads, int32_t d_head) {
    static layer_kind kinds[DESC_MAX_LAYERS];
    layer_plan d = plain(n_layers, n_kv_heads, d_head);
    for (int32_t i = 0; i < n_layers; i++) {
        kinds[i] = i % period == period - 1 ? every : others;
    }
    d.kinds = kinds;
    return d;
}

/* Padding of page_tokens tokens in all groups that hold tokens: what their pages have
 * beyond their planes. */
static int64_t padding_bytes(const kv_layout *l) {
    int64_t padding = 0;
    for (int32_t g = 0; g < l->n_groups; g++) {
        padding += l->groups[g].kind != LAYER_STATE ? l->page_bytes - l->groups[g].used_bytes : 0;
    }
    return padding;
}

/* Pages that one sequence's states take in all state groups, and the padding in them. */
static int64_t state_pages(const kv_layout *l) {
    int64_t n = 0;
    for (int32_t g = 0; g < l->n_groups; g++) {
        n += l->groups[g].state_pages;
    }
    return n;
}

static int64_t state_padding_bytes(const kv_layout *l) {
    int64_t padding = 0;
    for (int32_t g = 0; g < l->n_groups; g++) {
        const kv_group *group = &l->groups[g];
        padding += group->kind == LAYER_STATE ? group->state_pages * l->page_bytes - group->used_bytes : 0;
    }
    return padding;
}

static void expect_no_padding(const kv_layout *l) {
    assert_int_equal(padding_bytes(l), 0);
    assert_int_equal(state_padding_bytes(l), 0);
}

/* Gemma 3 270M, 4B and 27B: five layers of a window before each full one. 29 + 5 layers
 * have no divisor in common but 1. */
TEST(groups_are_cut_so_that_padding_is_least) {
    kv_layout l;
    layer_plan d = mixed(18, 6, LAYER_WINDOW, LAYER_FULL, 1, 256);
    d.window = 512;
    assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    expect_no_padding(&l);
    assert_int_equal(kv_layout_token_bytes(&l), 18 * 2 * 256 * 2);
    assert_int_equal(l.n_groups * l.page_bytes, 16 * kv_layout_token_bytes(&l));
    d = mixed(34, 6, LAYER_WINDOW, LAYER_FULL, 4, 256);
    d.window = 1024;
    assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 34);
    expect_no_padding(&l);
    d = mixed(62, 6, LAYER_WINDOW, LAYER_FULL, 16, 128);
    d.window = 1024;
    assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 31); /* 26 of 2 window layers, 5 of 2 full ones */
    expect_no_padding(&l);
}

/* 97 + 2 layers one by one would be 99 groups: in pairs one page of each 50 is half
 * empty. */
TEST(what_padding_remains_is_counted) {
    layer_plan d = mixed(99, 49, LAYER_WINDOW, LAYER_FULL, 2, 64);
    d.window = 100;
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 50);
    assert_int_equal(l.groups[49].n_caches, 1);
    assert_int_equal(l.groups[49].used_bytes, 2 * 2 * 64 * 16 * 2);
    assert_int_equal(l.page_bytes, 2 * l.groups[49].used_bytes);
    assert_int_equal(padding_bytes(&l), l.groups[49].used_bytes);
}

/* DeepSeek-V2-Lite (27 layers) and V3 (61): a latent of 512 and 64 rotary elements a
 * token. */
TEST(a_latent_layer_has_one_plane) {
    static const int32_t n_layers[] = {27, 61}, token_bytes[] = {31104, 70272},
                         page_bytes[] = {497664, 1124352};
    for (int i = 0; i < 2; i++) {
        layer_plan d = mixed(n_layers[i], 1, LAYER_LATENT, LAYER_LATENT, 16, 192);
        d.d_latent = 576;
        kv_layout l;
        assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
        assert_int_equal(l.n_groups, 1);
        assert_int_equal(l.groups[0].kind, LAYER_LATENT);
        assert_int_equal(l.caches[0].key.bytes, 576 * 16 * 2);
        assert_int_equal(l.caches[0].value.bytes, 0);
        assert_int_equal(l.page_bytes, page_bytes[i]);
        assert_int_equal(kv_layout_token_bytes(&l), token_bytes[i]);
        expect_no_padding(&l);
    }
}

/* Qwen3-Next 80B-A3B: 36 gated-delta layers, each with 32 matrices of 128 x 128 in F32
 * and the last 3 inputs of a convolution over 8192 channels in BF16, and 12 full layers
 * of 2 heads of 256. */
TEST(the_states_of_qwen3_next_take_197_pages) {
    layer_plan d = mixed(48, 4, LAYER_STATE, LAYER_FULL, 2, 256);
    d.n_units = 131; /* of 32 such matrices and the inputs */
    d.unit_bytes = 16384;
    assert_int_equal(36 * d.n_units * d.unit_bytes, 77266944);
    assert_int_equal(d.n_units * d.unit_bytes, 32 * 128 * 128 * 4 + 3 * 8192 * 2);
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 2);
    assert_int_equal(l.page_bytes, 12 * 2 * 2 * 256 * 16 * 2);
    assert_int_equal(l.page_bytes, 393216);
    assert_int_equal(kv_layout_token_bytes(&l), 24576);
    assert_int_equal(l.groups[0].kind, LAYER_FULL);
    assert_int_equal(l.groups[0].n_caches, 12);
    assert_int_equal(l.groups[1].kind, LAYER_STATE);
    assert_int_equal(l.groups[1].n_caches, 36);
    assert_int_equal(l.groups[1].used_bytes, 77266944);
    assert_int_equal(l.caches[0].group, 1);
    assert_int_equal(l.caches[3].group, 0);
    assert_int_equal(state_pages(&l), 197);
    assert_int_equal(padding_bytes(&l), 0);
    assert_int_equal(state_padding_bytes(&l), 196608);
    assert_int_equal(197 * l.page_bytes, 77266944 + 196608);
}

TEST(states_in_bf16_take_half_the_bytes) {
    model_desc d = desc_plain(1, 2, 1, 16, 0);
    kv_layout f32, bf16;
    d.caches[d.n_caches++] = (cache_desc){.kind = LAYER_STATE, .n_units = 7, .unit_bytes = 4096};
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_F32), 16, &f32, NULL), QUIRE_OK);
    const kv_types types = {.key = DTYPE_F32, .value = DTYPE_F32, .state = DTYPE_BF16};
    assert_int_equal(kv_layout_init(&d, types, 16, &bf16, NULL), QUIRE_OK);
    assert_int_equal(bf16.caches[1].state.unit_bytes, 2048);
    assert_int_equal(bf16.caches[1].state.element_bytes, 2);
    assert_int_equal(f32.caches[1].state.unit_bytes, 4096);
    assert_int_equal(f32.caches[1].state.element_bytes, 4);
    const kv_types others = {.key = DTYPE_F32, .value = DTYPE_F32, .state = DTYPE_F16};
    assert_int_equal(kv_layout_init(&d, others, 16, &bf16, NULL), QUIRE_INVALID);
}

/* Full and window layers are cut into groups of 3; all states are one group. */
TEST(all_states_are_one_group) {
    layer_kind kinds[28];
    for (int i = 0; i < 28; i++) {
        kinds[i] = i < 10 ? LAYER_STATE : i < 13 ? LAYER_FULL : LAYER_WINDOW;
    }
    layer_plan d = plain(28, 1, 256);
    d.kinds = kinds;
    d.window = 512;
    d.n_units = 7;
    d.unit_bytes = 14000;
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 7);
    /* 3 units of 14,016 bytes fit a page: the second cache has two in the first one's
     * last page */
    assert_int_equal(l.caches[1].state.page, 2);
    assert_int_equal(l.caches[1].state.offset, 14016);
    assert_int_equal(l.caches[1].state.n_first, 2);
    assert_int_equal(l.page_bytes, 49152);
    assert_int_equal(l.groups[6].kind, LAYER_STATE);
    assert_int_equal(l.groups[6].n_caches, 10);
    assert_int_equal(state_pages(&l), 24); /* 70 units */
    assert_int_equal(padding_bytes(&l), 0);
    assert_int_equal(state_padding_bytes(&l), 49152 - 14016);
}

/* Gemma 4's global layers have other heads than those with windows: 5 layers of 2 heads
 * of 256 are as large as 2.5 of 1 head of 512. */
TEST(caches_of_two_widths_share_pages_of_one_size) {
    model_desc d = {.n_layers = 0};
    for (int i = 0; i < 12; i++) {
        bool global = i % 6 == 5;
        cache_desc c = {.kind = global ? LAYER_FULL : LAYER_WINDOW,
                        .n_kv_heads = global ? 4 : 16,
                        .d_key = global ? 512 : 256};
        c.d_value = c.d_key;
        c.window = global ? 0 : 1024;
        desc_add_layer(&d, (layer_desc){.caches = NO_CACHES, .rope = NO_ROPE, .n_heads = 16}, &c);
    }
    kv_layout l;
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_BF16), 16, &l, NULL), QUIRE_OK);
    int64_t global_bytes = 2 * 4 * 512 * 16 * 2, window_bytes = 2 * 16 * 256 * 16 * 2;
    assert_int_equal(window_bytes, 2 * global_bytes);
    assert_int_equal(l.page_bytes, window_bytes);
    assert_int_equal(l.n_groups, 11); /* both global caches in one page, each other cache in its own */
    assert_int_equal(padding_bytes(&l), 0);
    assert_int_equal(l.caches[11].key.offset, global_bytes);
    assert_int_equal(l.caches[11].value.offset, global_bytes + global_bytes / 2);
    assert_int_equal(kv_layout_token_bytes(&l), (2 * global_bytes + 10 * window_bytes) / 16);
    assert_int_equal(kv_layout_most_heads(&l), 16);
}

/* Layers with windows of two lengths are never in one group: pages behind a window are
 * freed group by group. */
TEST(each_window_has_groups_of_its_own) {
    model_desc d = {.n_layers = 0};
    for (int i = 0; i < 8; i++) {
        cache_desc c = {.kind = LAYER_WINDOW,
                        .n_kv_heads = 1,
                        .d_key = 64,
                        .d_value = 64,
                        .window = i % 2 == 0 ? 128 : 32};
        desc_add_layer(&d, (layer_desc){.caches = NO_CACHES, .rope = NO_ROPE, .n_heads = 1}, &c);
    }
    kv_layout l;
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_BF16), 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 2);
    assert_int_equal(l.groups[0].window, 32);
    assert_int_equal(l.groups[1].window, 128);
    assert_int_equal(l.caches[0].group, 1);
    assert_int_equal(l.caches[7].group, 0);
}

TEST(int8_rows_have_scales_and_count_them) {
    kv_layout l;
    layer_plan d = plain(3, 5, 18);
    assert_int_equal(lay_out(&d, DTYPE_I8, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.caches[0].key.row_bytes, 20); /* whole quads */
    assert_int_equal(l.caches[0].key.scale_bytes, 4);
    assert_int_equal(l.caches[0].key.bytes, 16 * 5 * 24);
    assert_int_equal(l.page_bytes, 2 * 3 * 16 * 5 * 24);
    assert_int_equal(kv_layout_token_bytes(&l), 2 * 3 * 5 * 24);
    expect_no_padding(&l);
    d = mixed(8, 8, LAYER_LATENT, LAYER_FULL, 8, 128);
    d.d_latent = 576;
    assert_int_equal(lay_out(&d, DTYPE_I8, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.caches[0].key.bytes, 16 * 580);
}

/* Tokens in a pool of given bytes, for heads of 128. */
static int64_t pool_tokens(kv_types types) {
    kv_layout l;
    const model_desc d = desc_plain(32, 32, 8, 128, 0);
    assert_int_equal(kv_layout_init(&d, types, 16, &l, NULL), QUIRE_OK);
    return ((int64_t)4 << 30) / l.page_bytes * l.page_tokens;
}

TEST(smaller_types_hold_more_tokens_in_the_same_pool) {
    const double bf16 = (double)pool_tokens(kv_both(DTYPE_BF16));
    assert_true((double)pool_tokens(kv_both(DTYPE_I8)) > 1.9 * bf16);
    assert_true((double)pool_tokens(kv_both(DTYPE_F8_E4M3)) > 1.9 * bf16);
    assert_true((double)pool_tokens(kv_both(DTYPE_I4)) > 3.5 * bf16);
    assert_true((double)pool_tokens((kv_types){DTYPE_I8, DTYPE_I4, DTYPE_F32}) > 2.4 * bf16);
}

TEST(keys_and_values_may_have_different_types) {
    kv_layout l;
    const model_desc d = desc_plain(2, 4, 3, 40, 0);
    assert_int_equal(kv_layout_init(&d, ((kv_types){DTYPE_F16, DTYPE_I4, DTYPE_F32}), 16, &l, NULL),
                     QUIRE_OK);
    const kv_planes *p = &l.caches[1];
    assert_string_equal(l.type_name, "f16/int4");
    assert_int_equal(p->key.row_bytes, 80);
    assert_int_equal(p->key.scale_bytes, 0);
    assert_int_equal(p->value.row_bytes, 36); /* two groups of 17, whole words */
    assert_int_equal(p->value.scale_bytes, 4);
    assert_int_equal(p->value.offset - p->key.offset, 16 * 3 * 80);
    assert_int_equal(kv_layout_token_bytes(&l), 2 * 3 * (80 + 40));
    assert_int_equal(kv_layout_init(&d, ((kv_types){DTYPE_F16, DTYPE_Q4_0, DTYPE_F32}), 16, &l, NULL),
                     QUIRE_INVALID);
}

/* A model whose kinds differ in bytes: 7 latent layers, as many as fill a page of 1 full
 * layer and a bit. */
TEST(pages_are_as_large_as_the_largest_group) {
    layer_plan d = mixed(8, 8, LAYER_LATENT, LAYER_FULL, 8, 128);
    d.d_latent = 576;
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    /* in groups of 4: one full layer of 65,536 bytes, 4 and 3 latent ones of 18,432 */
    assert_int_equal(l.n_groups, 3);
    assert_int_equal(l.page_bytes, 4 * 18432);
    assert_int_equal(padding_bytes(&l), (73728 - 65536) + 18432);
    assert_int_equal(kv_layout_token_bytes(&l), 7 * 576 * 2 + 2 * 8 * 128 * 2);
}

TEST(a_model_of_states_alone_has_one_page_a_sequence) {
    layer_plan d = mixed(64, 1, LAYER_STATE, LAYER_STATE, 1, 2);
    d.n_units = 1;
    d.unit_bytes = 5000;
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_F32, 16, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n_groups, 1);
    assert_int_equal(l.page_bytes, 64 * 5056);
    assert_int_equal(state_pages(&l), 1);
    assert_int_equal(kv_layout_token_bytes(&l), 0);
    expect_no_padding(&l);
}

/* Units lie after byte `at` of the state's pages, one after the other, none in two
 * pages. Returns the end of the last. */
static int64_t expect_units_in_order(const kv_layout *l, const kv_planes *p, int64_t at) {
    for (int32_t i = 0; i < p->state.n_units; i++) {
        int32_t page;
        int64_t offset = kv_state_unit(p, i, &page), start = page * l->page_bytes + offset;
        assert_true(offset >= 0 && offset + p->state.unit_bytes <= l->page_bytes);
        assert_true(start >= at && start - at < p->state.unit_bytes);
        assert_true(start == at || offset == 0);
        at = start + p->state.unit_bytes;
    }
    return at;
}

TEST(random_layer_kinds_give_every_layer_a_place_of_its_own) {
    uint64_t seed = rng_os_seed(), s = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 500; round++) {
        layer_kind kinds[128];
        layer_plan d = plain(1 + (int32_t)(rng_next(&s) % 128), 2, 8);
        uint64_t full_in_8 = rng_next(&s) % 9;
        for (int i = 0; i < d.n_layers; i++) {
            kinds[i] = rng_next(&s) % 8 < full_in_8 ? LAYER_FULL : (layer_kind)(rng_next(&s) % 4);
        }
        d.kinds = kinds;
        d.window = 4;
        d.d_latent = 1 + (int32_t)(rng_next(&s) % 40);
        d.n_units = 1 + (int32_t)(rng_next(&s) % 9);
        d.unit_bytes = 1 + (int64_t)(rng_next(&s) % 5000);
        kv_layout l;
        assert_int_equal(lay_out(&d, DTYPE_F32, 4, &l, NULL), QUIRE_OK);
        assert_in_range(l.n_groups, 1, KV_MAX_GROUPS);
        int32_t n[KV_MAX_GROUPS] = {0};
        int64_t used[KV_MAX_GROUPS] = {0};
        for (int i = 0; i < d.n_layers; i++) {
            const kv_planes *p = &l.caches[i];
            assert_int_equal(l.groups[p->group].kind, kinds[i]);
            n[p->group]++;
            if (kinds[i] == LAYER_STATE) {
                used[p->group] = expect_units_in_order(&l, p, used[p->group]);
                continue;
            }
            assert_int_equal(p->key.offset, used[p->group]);
            assert_int_equal(p->value.offset, p->key.offset + p->key.bytes);
            assert_int_equal(p->key.bytes % 64, 0);
            used[p->group] += p->key.bytes + p->value.bytes;
        }
        for (int g = 0; g < l.n_groups; g++) {
            assert_int_equal(n[g], l.groups[g].n_caches);
            assert_int_equal(used[g], l.groups[g].used_bytes);
            bool is_state = l.groups[g].kind == LAYER_STATE;
            assert_true(l.groups[g].used_bytes <= l.page_bytes * (is_state ? l.groups[g].state_pages : 1));
            assert_true(!is_state || l.groups[g].used_bytes > l.page_bytes * (l.groups[g].state_pages - 1));
        }
    }
}

TEST(planes_start_at_multiples_of_64_bytes) {
    layer_plan d = plain(2, 1, 6);
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_F16, 1, &l, NULL), QUIRE_OK);
    assert_int_equal(l.caches[0].key.bytes, 64);
    assert_int_equal(l.page_bytes, 256);
    assert_int_equal(kv_layout_token_bytes(&l), 48);
}

TEST(an_impossible_layout_is_refused_with_a_reason) {
    layer_plan d = plain(2, 1, 8);
    kv_layout l = {.n_caches = 77};
    quire_error err;
    static const int32_t bad[] = {0, -16, 3, 24, 512, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(lay_out(&d, DTYPE_F16, bad[i], &l, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.message, "power of two"));
    }
    assert_int_equal(lay_out(&d, DTYPE_Q8_0, 16, &l, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "Q8_0"));
    assert_int_equal(l.n_caches, 77);
}

static void expect_refused(const layer_plan *d) {
    kv_layout l = {.n_caches = 77};
    quire_error err = {.message = ""};
    assert_int_equal(lay_out(d, DTYPE_F32, 256, &l, &err), QUIRE_INVALID);
    assert_true(err.message[0] != 0);
    assert_int_equal(l.n_caches, 77);
}

TEST(sizes_that_would_overflow_are_refused) {
    static const int32_t bad_counts[] = {0, -1, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        layer_plan d = plain(2, bad_counts[i], INT32_MAX);
        expect_refused(&d);
        d = plain(2, INT32_MAX, bad_counts[i]);
        expect_refused(&d);
        d = plain(bad_counts[i], 1, 8);
        expect_refused(&d);
        d = mixed(8, 2, LAYER_FULL, LAYER_LATENT, 1, 8);
        d.d_latent = bad_counts[i] == INT32_MAX ? 0 : bad_counts[i];
        expect_refused(&d);
    }
    layer_plan d = mixed(8, 2, LAYER_FULL, LAYER_STATE, 1, 8);
    static const int64_t bad_states[] = {
        0, -1, INT64_MIN, INT64_MAX, INT64_MAX - 63, DESC_MAX_UNIT_BYTES + 1};
    d.n_units = 1;
    for (int i = 0; i < 6; i++) {
        d.unit_bytes = bad_states[i];
        expect_refused(&d);
    }
    d = mixed(512, 512, LAYER_STATE, LAYER_FULL, 1, 2);
    d.n_units = INT32_MAX; /* not in such small pages */
    d.unit_bytes = 64;
    expect_refused(&d);
    d.n_units = 0;
    expect_refused(&d);
    d = mixed(8, 2, LAYER_FULL, LAYER_WINDOW, 1, 8);
    expect_refused(&d);
    ((layer_kind *)d.kinds)[3] = (layer_kind)4;
    d.window = 1;
    expect_refused(&d);
    ((layer_kind *)d.kinds)[3] = (layer_kind)-1;
    expect_refused(&d);
}

TEST_MAIN(NULL, NULL)
