#include <math.h>

#include "core/model_desc.h"
#include "test.h"

static model_desc llama(void) {
    model_desc d = desc_plain(22, 32, 4, 64, 5632);
    d.d_model = 2048;
    d.n_vocab = 32000;
    d.max_positions = 2048;
    d.norm_eps = 1e-5f;
    d.attention_scale = 0.125f;
    d.activation = ACT_SILU;
    d.ropes[0] = (rope_desc){.kind = ROPE_PLAIN, .n_dims = 64, .theta = 10000.0f};
    d.n_eos = 1;
    d.eos[0] = 2;
    d.bos = 1;
    return d;
}

TEST(a_real_description_passes) {
    model_desc d = llama();
    assert_int_equal(desc_check(&d, NULL), QUIRE_OK);
    d.ropes[0] = (rope_desc){.kind = ROPE_LLAMA3,
                             .n_dims = 64,
                             .theta = 500000.0f,
                             .factor = 8.0f,
                             .low_freq_factor = 1.0f,
                             .high_freq_factor = 4.0f,
                             .original_positions = 8192};
    assert_int_equal(desc_check(&d, NULL), QUIRE_OK);
    d.ropes[0].high_freq_factor = 1.0f; /* Llama 4 Scout's */
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

#define REFUSED_WITH(field, value)                                                                           \
    do {                                                                                                     \
        model_desc d = llama();                                                                              \
        d.field = (value);                                                                                   \
        refused(&d);                                                                                         \
    } while (0)

TEST(shapes_that_no_model_has_are_refused) {
    REFUSED_WITH(n_layers, 0);
    REFUSED_WITH(n_layers, DESC_MAX_LAYERS + 1);
    REFUSED_WITH(d_model, -1);
    REFUSED_WITH(d_model, INT32_MAX);
    REFUSED_WITH(layers[21].n_heads, -1);
    REFUSED_WITH(layers[21].n_heads, 1 << 20);
    REFUSED_WITH(caches[0].n_kv_heads, 0);
    REFUSED_WITH(caches[0].n_kv_heads, 5);
    REFUSED_WITH(caches[21].n_kv_heads, 64);
    REFUSED_WITH(caches[0].d_key, 63);
    REFUSED_WITH(caches[0].d_value, DESC_MAX_HEAD + 2);
    REFUSED_WITH(layers[3].d_ff, -1);
    REFUSED_WITH(n_vocab, 0);
    REFUSED_WITH(n_vocab, INT32_MAX);
    REFUSED_WITH(max_positions, 0);
}

TEST(numbers_that_are_not_finite_or_out_of_range_are_refused) {
    REFUSED_WITH(norm_eps, NAN);
    REFUSED_WITH(norm_eps, -1e-5f);
    REFUSED_WITH(attention_scale, INFINITY);
    REFUSED_WITH(attention_scale, 0.0f);
    REFUSED_WITH(activation, (activation)99);
    REFUSED_WITH(ropes[0].theta, 0.0f);
    REFUSED_WITH(ropes[0].n_dims, 66);
    REFUSED_WITH(ropes[0].n_dims, 7);
    REFUSED_WITH(ropes[0].kind, ROPE_LINEAR);
    REFUSED_WITH(ropes[0].kind, ROPE_YARN);
    REFUSED_WITH(ropes[0].kind, (rope_kind)77);
    REFUSED_WITH(attend.temperature, 0.1f); /* without a length */
    model_desc d = llama();
    d.ropes[0].has_factors = true;
    d.ropes[0].factors[0] = 1.0f; /* the others are 0 */
    refused(&d);
    d = llama();
    d.ropes[0].kind = ROPE_LLAMA3;
    d.ropes[0].factor = 8.0f;
    d.ropes[0].original_positions = 8192;
    d.ropes[0].low_freq_factor = 4.0f;
    d.ropes[0].high_freq_factor = 3.0f;
    refused(&d);
}

TEST(tokens_outside_the_vocabulary_are_refused) {
    REFUSED_WITH(eos[0], 32000);
    REFUSED_WITH(eos[0], -1);
    REFUSED_WITH(n_eos, DESC_MAX_EOS + 1);
    REFUSED_WITH(bos, 32000);
    REFUSED_WITH(bos, -2);
}

TEST(a_window_layer_needs_a_window) {
    REFUSED_WITH(caches[3].kind, LAYER_WINDOW);
    model_desc d = llama();
    d.caches[3].kind = LAYER_WINDOW;
    d.caches[3].window = 1;
    assert_int_equal(desc_check(&d, NULL), QUIRE_OK);
}

TEST(a_layer_names_what_there_is) {
    REFUSED_WITH(layers[2].caches[0], 22);
    REFUSED_WITH(layers[2].caches[0], NO_CACHE); /* it attends */
    REFUSED_WITH(layers[2].caches[1], -2);
    REFUSED_WITH(layers[2].rope, 1);
    REFUSED_WITH(layers[2].window, -1);
    REFUSED_WITH(n_caches, 21);
    REFUSED_WITH(n_ropes, DESC_MAX_ROPES + 1);
    model_desc d = llama();
    d.layers[7].caches[0] = 6; /* shares its neighbour's */
    d.layers[8].rope = NO_ROPE;
    d.layers[9].n_heads = 0;
    assert_int_equal(desc_check(&d, NULL), QUIRE_OK);
    assert_int_equal(desc_widest_ff(&d), 5632);
    assert_true(desc_attention_layer(&d) == &d.layers[0]);
    assert_false(desc_scales_by_length(&d));
    d.ropes[0].kind = ROPE_NTK;
    assert_true(desc_scales_by_length(&d));
}

TEST_MAIN(NULL, NULL)
