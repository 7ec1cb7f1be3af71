#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "core/model_desc.h"

static model_desc llama(void) {
    return (model_desc){.n_layers = 22,
                        .d_model = 2048,
                        .n_heads = 32,
                        .n_kv_heads = 4,
                        .d_head = 64,
                        .d_ff = 5632,
                        .n_vocab = 32000,
                        .max_positions = 2048,
                        .norm_eps = 1e-5f,
                        .attention_scale = 0.125f,
                        .activation = ACT_SILU,
                        .rope = {.kind = ROPE_PLAIN, .n_dims = 64, .theta = 10000.0f},
                        .n_eos = 1,
                        .eos = {2},
                        .bos = 1};
}

static void a_real_description_passes(void **state) {
    (void)state;
    model_desc d = llama();
    assert_int_equal(desc_check(&d, NULL), QUIRE_OK);
    d.rope = (rope_desc){.kind = ROPE_LLAMA3,
                         .n_dims = 64,
                         .theta = 500000.0f,
                         .factor = 8.0f,
                         .low_freq_factor = 1.0f,
                         .high_freq_factor = 4.0f,
                         .original_positions = 8192};
    assert_int_equal(desc_check(&d, NULL), QUIRE_OK);
    d.bos = -1;
    d.n_eos = 0;
    assert_int_equal(desc_check(&d, NULL), QUIRE_OK);
}

static void refused(const model_desc *d) {
    quire_error err = {0};
    assert_int_not_equal(desc_check(d, &err), QUIRE_OK);
    assert_int_not_equal(err.message[0], 0);
}

#define REFUSED_WITH(field, value)                                                                                                         \
    do {                                                                                                                                   \
        model_desc d = llama();                                                                                                            \
        d.field = (value);                                                                                                                 \
        refused(&d);                                                                                                                       \
    } while (0)

static void shapes_that_no_model_has_are_refused(void **state) {
    (void)state;
    REFUSED_WITH(n_layers, 0);
    REFUSED_WITH(n_layers, DESC_MAX_LAYERS + 1);
    REFUSED_WITH(d_model, -1);
    REFUSED_WITH(d_model, INT32_MAX);
    REFUSED_WITH(n_heads, 0);
    REFUSED_WITH(n_kv_heads, 0);
    REFUSED_WITH(n_kv_heads, 5);
    REFUSED_WITH(n_kv_heads, 64);
    REFUSED_WITH(d_head, 63);
    REFUSED_WITH(d_head, DESC_MAX_HEAD + 2);
    REFUSED_WITH(d_ff, 0);
    REFUSED_WITH(n_vocab, 0);
    REFUSED_WITH(n_vocab, INT32_MAX);
    REFUSED_WITH(max_positions, 0);
}

static void numbers_that_are_not_finite_or_out_of_range_are_refused(void **state) {
    (void)state;
    REFUSED_WITH(norm_eps, NAN);
    REFUSED_WITH(norm_eps, -1e-5f);
    REFUSED_WITH(attention_scale, INFINITY);
    REFUSED_WITH(attention_scale, 0.0f);
    REFUSED_WITH(activation, (activation)99);
    REFUSED_WITH(rope.theta, 0.0f);
    REFUSED_WITH(rope.n_dims, 66);
    REFUSED_WITH(rope.n_dims, 7);
    REFUSED_WITH(rope.kind, ROPE_LINEAR);
    REFUSED_WITH(rope.kind, ROPE_YARN);
    REFUSED_WITH(rope.kind, (rope_kind)77);
    static const float factors[32] = {1.0f};
    REFUSED_WITH(rope.freq_factors, factors);
}

static void tokens_outside_the_vocabulary_are_refused(void **state) {
    (void)state;
    REFUSED_WITH(eos[0], 32000);
    REFUSED_WITH(eos[0], -1);
    REFUSED_WITH(n_eos, DESC_MAX_EOS + 1);
    REFUSED_WITH(bos, 32000);
    REFUSED_WITH(bos, -2);
}

static void a_window_layer_needs_a_window(void **state) {
    (void)state;
    layer_kind kinds[22] = {[3] = LAYER_WINDOW};
    REFUSED_WITH(layer_kinds, kinds);
    model_desc d = llama();
    d.layer_kinds = kinds;
    d.window = 1;
    assert_int_equal(desc_check(&d, NULL), QUIRE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_description_passes),
        cmocka_unit_test(shapes_that_no_model_has_are_refused),
        cmocka_unit_test(numbers_that_are_not_finite_or_out_of_range_are_refused),
        cmocka_unit_test(tokens_outside_the_vocabulary_are_refused),
        cmocka_unit_test(a_window_layer_needs_a_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
