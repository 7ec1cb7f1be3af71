/* Mixtures of experts with different layers: which are dense, have windows or rotate, and
 * by which table; defaults of config.json; and what is refused. */
#include <math.h>

#include "describe_config.h"

#define SIZES                                                                                                \
    "\"hidden_size\": 32, \"num_hidden_layers\": 6, \"num_attention_heads\": 4, \"num_key_value_heads\": "   \
    "2, \"vocab_size\": 40, \"max_position_embeddings\": 128"

static model_desc described(const char *architecture, const char *more) {
    char numbers[1536];
    model_desc d;
    quire_error err = {0};
    (void)snprintf(numbers, sizeof numbers, SIZES "%s%s", more[0] != 0 ? ", " : "", more);
    if (describe_config(architecture, numbers, "x", &d, &err) != QUIRE_OK) {
        fail_msg("%s, %s: %s", architecture, more, err.message);
    }
    return d;
}

static void refused(const char *architecture, const char *more, const char *what) {
    char numbers[1536];
    model_desc d;
    quire_error err = {0};
    (void)snprintf(numbers, sizeof numbers, SIZES "%s%s", more[0] != 0 ? ", " : "", more);
    if (describe_config(architecture, numbers, "x", &d, &err) == QUIRE_OK ||
        strstr(err.message, what) == NULL) {
        fail_msg("%s, %s: expected a refusal about \"%s\": \"%s\"", architecture, more, what, err.message);
    }
}

/* A letter for each layer: w a window, f none; upper case where it rotates. D before it: a
 * dense layer, M: a mixture. "Mw MF" */
static void layers_are(const char *architecture, const char *more, const char *wanted) {
    char found[64] = "";
    model_desc d = described(architecture, more);
    for (int32_t i = 0; i < d.n_layers; i++) {
        const layer_desc *l = &d.layers[i];
        size_t n = strlen(found);
        char kind = l->rope >= 0 ? (l->window > 0 ? 'W' : 'F') : (l->window > 0 ? 'w' : 'f');
        (void)snprintf(found + n, sizeof found - n, "%s%c%c", i > 0 ? " " : "", l->n_experts > 0 ? 'M' : 'D',
                       kind);
    }
    if (strcmp(found, wanted) != 0) {
        fail_msg("%s, %s: \"%s\", expected \"%s\"", architecture, more, found, wanted);
    }
}

#define TYPES                                                                                                \
    "\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\", "                      \
    "\"sliding_attention\", \"full_attention\", \"sliding_attention\"]"
#define MLPS "\"mlp_layer_types\": [\"sparse\", \"dense\", \"sparse\", \"sparse\", \"dense\", \"sparse\"]"

TEST(layers_are_of_the_published_kinds) {
    layers_are("ExaoneMoeForCausalLM", "", "DW MW MW Mf MW MW");
    layers_are("ExaoneMoeForCausalLM", "\"sliding_window\": null, \"first_k_dense_replace\": 2",
               "DF DF MF MF MF MF");
    layers_are("ExaoneMoeForCausalLM", TYPES ", " MLPS, "Mf Df MW MW Df MW");
    layers_are("ExaoneMoeForCausalLM", "\"sliding_window_pattern\": \"LLG\"", "DW MW Mf MW MW Mf");
    layers_are("HYV3ForCausalLM", "", "DF MF MF MF MF MF");
    layers_are("HYV3ForCausalLM", MLPS, "MF DF MF MF DF MF");
    layers_are("MellumForCausalLM", "", "MF MF MF MF MF MF");
    layers_are("MellumForCausalLM", TYPES ", " MLPS, "MF DF MW MW DF MW");
    layers_are("LagunaForCausalLM", "", "DF MF MF MF MF MF");
    layers_are("LagunaForCausalLM", TYPES ", " MLPS, "MF DF MW MW DF MW");
    layers_are("AfmoeForCausalLM", "", "DW MW MW Mf MW MW");
    layers_are("AfmoeForCausalLM", "\"num_dense_layers\": 2, \"global_attn_every_n_layers\": 2",
               "DW Df MW Mf MW Mf");
    layers_are("MiMoV2FlashForCausalLM", "", "DF MW MW MW MW MF");
    layers_are("MiMoV2FlashForCausalLM",
               "\"hybrid_layer_pattern\": [0, 1, 0, 1, 0, 1], \"moe_layer_freq\": [0, 0, 1, 1, 0, 1]",
               "DF DW MF MW DF MW");
    layers_are("MiMoV2FlashForCausalLM", TYPES ", " MLPS, "MF DF MW MW DF MW");
    layers_are("BeamForCausalLM", "", "DW DW DW MW MW Mf");
    layers_are("BeamForCausalLM",
               TYPES ", " MLPS ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 7e3, "
                     "\"rope_type\": \"default\"}, \"sliding_attention\": null}",
               "MF DF Mw Mw DF Mw");
    layers_are("Kolibri1ForCausalLM", "", "MW MW MW MW Mf MW");
    layers_are("Kolibri1ForCausalLM",
               "\"sliding_window\": null, \"layer_types\": [\"full_attention\", \"full_attention\", "
               "\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]",
               "MF MF MF MF MF MF");
    layers_are("FlintForCausalLM", "", "Df Df MW MW MW Mf");
    layers_are("FlintForCausalLM", "\"mlp_only_layers\": [], " TYPES, "Mf Mf MW MW Mf MW");
    layers_are("FlintForCausalLM", "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [1]",
               "Df Df DW MW DW Mf");
    layers_are("GraniteSWAForCausalLM", "\"intermediate_size\": 64", "DF DW DW DW DF DW");
    layers_are("GraniteMoeSWAForCausalLM", "\"layer_rope_theta\": [0, 1e4, 0, 5e5, 1e4, 0]",
               "Mf MW Mw MW MF Mw");
    layers_are("Cohere2MoeForCausalLM", "", "MW MW MW Mf MW MW");
    layers_are("Cohere2MoeForCausalLM", "\"first_k_dense_replace\": 2", "DF DF MW MW MW Mf");
    layers_are("Cohere2MoeForCausalLM",
               "\"first_k_dense_replace\": 3, \"prefix_dense_sliding_window_pattern\": 2",
               "DW Df DW MW MW MW");
    layers_are("Cohere2MoeForCausalLM", TYPES ", " MLPS, "Mf DF MW MW DF MW");
}

TEST(tables_are_by_kind_of_layer) {
    model_desc d = described("MellumForCausalLM", TYPES);
    assert_true(d.ropes[d.layers[0].rope].theta == 5e5f && d.ropes[d.layers[2].rope].theta == 1e4f);
    d = described("MellumForCausalLM", TYPES
                  ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\", \"factor\": 4, "
                  "\"original_max_position_embeddings\": 16, \"rope_theta\": 3e5}, "
                  "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 2e4}}");
    assert_int_equal(d.n_ropes, 2);
    assert_int_equal(d.ropes[d.layers[0].rope].kind, ROPE_YARN);
    assert_int_equal(d.ropes[d.layers[2].rope].kind, ROPE_PLAIN);
    assert_true(d.ropes[d.layers[0].rope].theta == 3e5f && d.ropes[d.layers[2].rope].theta == 2e4f);
    refused("MellumForCausalLM",
            TYPES ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}",
            "rope_parameters.sliding_attention is missing");
    d = described("LagunaForCausalLM", TYPES); /* half of a head where it sees all */
    assert_true(d.ropes[d.layers[0].rope].n_dims == 64 && d.ropes[d.layers[2].rope].n_dims == 128);
    assert_true(d.ropes[d.layers[0].rope].theta == 5e5f && d.ropes[d.layers[2].rope].theta == 1e4f);
    d = described("GraniteSWAForCausalLM",
                  "\"intermediate_size\": 64, \"layer_rope_theta\": [1e4, 7e3, 1e4, 7e3, 7e3, 7e3]");
    assert_true(d.n_ropes == 2 && d.ropes[d.layers[1].rope].theta == 7e3f && d.attend.sinks);
    refused("GraniteSWAForCausalLM", "\"intermediate_size\": 64, \"layer_rope_theta\": [1e4, 7e3]",
            "layer_rope_theta must have one number for each layer");
    refused("GraniteSWAForCausalLM", "\"intermediate_size\": 64, \"layer_rope_theta\": [1, 2, 3, 4, 5, 6]",
            "layer_rope_theta has more different bases");
    refused("GraniteSWAForCausalLM", "\"intermediate_size\": 64, \"layer_rope_theta\": [-1, 2, 2, 1, 1, 1]",
            "the rotary base");
    refused("GraniteSWAForCausalLM", "\"intermediate_size\": 64, \"layer_rope_theta\": \"no\"",
            "layer_rope_theta");
}

TEST(norths_layers_may_have_no_positions) {
    const char *text = "\"text_config\": {" SIZES ", \"intermediate_size\": 64, %s\"rope_parameters\": "
                       "{\"full_attention\": null, \"sliding_attention\": {\"rope_theta\": 3e4, "
                       "\"rope_type\": \"default\"}}}";
    char numbers[1024];
    (void)snprintf(numbers, sizeof numbers, text, TYPES ", ");
    model_desc d;
    quire_error err = {0};
    assert_int_equal(describe_config("CohereCompassForConditionalGeneration", numbers, "x", &d, &err),
                     QUIRE_OK);
    assert_int_equal(d.layers[0].rope, NO_ROPE);
    assert_int_equal(d.layers[2].window, 4096);
    assert_true(d.ropes[d.layers[2].rope].theta == 3e4f && d.head.scale == 0.0f && d.tied_embeddings);
    assert_int_equal(d.ropes[0].pairs, ROPE_HALVES);
}

TEST(gates_are_by_head_or_by_element) {
    model_desc d = described("LagunaForCausalLM", "\"num_attention_heads_per_layer\": [4, 2, 4, 2, 6, 2]");
    assert_true(d.layers[1].n_heads == 2 && d.layers[4].n_heads == 6);
    assert_true(d.attend.gate == ATTEND_GATE_HEADS && d.attend.gate_f == ACT_SOFTPLUS);
    d = described("LagunaForCausalLM", "\"gating\": \"per-head\", \"moe_router_logit_softcapping\": 3");
    assert_true(d.attend.gate == ATTEND_GATE_HEADS && d.moe.logit_cap == 3.0f && d.moe.d_shared == 512);
    assert_int_equal(described("LagunaForCausalLM", "\"gating\": \"per-element\"").attend.gate,
                     ATTEND_GATE_ELEMENTS);
    d = described("AfmoeForCausalLM", "\"mup_enabled\": true");
    assert_true(d.attend.gate == ATTEND_GATE_ELEMENTS && d.attend.gate_f == ACT_SIGMOID);
    assert_true(d.embed.scale == sqrtf(32.0f) && d.moe.d_shared == 2 * 1408);
    assert_true(described("AfmoeForCausalLM", "").embed.scale == 0.0f);
    refused("LagunaForCausalLM", "\"num_attention_heads_per_layer\": [4, 2]", "one for each layer");
    refused("LagunaForCausalLM", "\"num_attention_heads_per_layer\": [4, 2, 4, 0, 4, 4]",
            "the number of attention heads must be at least 1");
    refused("LagunaForCausalLM", "\"num_attention_heads_per_layer\": [4, 2, 4, 3, 4, 4]",
            "3 attention heads cannot share 2 key-value heads");
    refused("LagunaForCausalLM", "\"gating\": 1.5", "gating");
    refused("LagunaForCausalLM", "\"moe_apply_router_weight_on_input\": true",
            "moe_apply_router_weight_on_input true is not supported");
    refused("AfmoeForCausalLM", "\"score_func\": \"softmax\"", "a score_func other than");
}

TEST(mimos_windows_have_heads_of_their_own) {
    model_desc d = described("MiMoV2FlashForCausalLM", "");
    const layer_desc *full = &d.layers[0], *local = &d.layers[1];
    assert_true(d.caches[full->caches[0]].d_key == 192 && d.caches[full->caches[0]].d_value == 128);
    assert_true(d.caches[full->caches[0]].n_kv_heads == 2 && d.caches[local->caches[0]].n_kv_heads == 4);
    assert_true(local->window == 129 && d.attend.sinks && d.attend.sinks_in_windows);
    assert_true(d.ropes[full->rope].theta == 5e6f && d.ropes[local->rope].theta == 1e4f);
    assert_true(d.ropes[full->rope].n_dims == 64 && d.ropes[local->rope].n_dims == 64);
    assert_true(d.attend.value_scale == 0.707f && d.moe.correction_bias && d.moe.d_shared == 0);
    d = described("MiMoV2FlashForCausalLM",
                  "\"sliding_window\": 16, \"sliding_window_size\": 16, \"attention_value_scale\": null, "
                  "\"swa_num_key_value_heads\": 1, \"v_head_dim\": 8, \"head_dim\": 12");
    assert_true(d.layers[1].window == 17 && d.attend.value_scale == 0.0f && d.caches[1].n_kv_heads == 1);
    assert_true(d.caches[1].d_key == 12 && d.caches[1].d_value == 8 && d.ropes[0].n_dims == 4);
    refused("MiMoV2FlashForCausalLM", "\"swa_head_dim\": 64", "swa_head_dim must equal the width");
    refused("MiMoV2FlashForCausalLM", "\"v_head_dim\": 1024", "v_head_dim must be from 1 to 512");
    refused("MiMoV2FlashForCausalLM", "\"hybrid_layer_pattern\": [0, 1]",
            "hybrid_layer_pattern must have one number for each layer");
    refused("MiMoV2FlashForCausalLM", "\"moe_layer_freq\": [0, 1]",
            "moe_layer_freq must have one number for each layer");
    refused("MiMoV2FlashForCausalLM",
            "\"add_full_attention_sink_bias\": true, \"add_swa_attention_sink_bias\": false",
            "add_full_attention_sink_bias true beside");
}

TEST(beams_sums_are_weighed_by_depth) {
    model_desc d = described("BeamForCausalLM", "");
    assert_true(d.residual_by_depth && d.attend.gate_bias && d.attend.gate == ATTEND_GATE_ELEMENTS);
    assert_true(d.attend.temperature_power == 0.1f && d.attend.temperature_length == 2048);
    assert_true(d.moe.n_groups == 8 && d.moe.n_groups_used == 4 && d.moe.group_by_best_two);
    assert_true(d.moe.scale == 2.5f && d.head.cap == 30.0f);
    assert_true(described("BeamForCausalLM", "\"final_logit_softcapping\": null").head.cap == 0.0f);
    refused("BeamForCausalLM", "\"n_group\": 8, \"topk_group\": 9", "the groups of experts");
    refused("BeamForCausalLM", "\"final_logit_softcapping\": -1.0", "final_logit_softcapping must be over 0");
}

TEST(routers_are_the_published_ones) {
    model_desc d = described("ExaoneMoeForCausalLM", "");
    assert_true(d.moe.score == ROUTE_SIGMOID && d.moe.correction_bias && d.moe.renormalise);
    assert_true(d.moe.scale == 2.5f && d.moe.n_used == 8 && d.moe.d_expert == 1024 && d.moe.d_shared == 1024);
    d = described("ExaoneMoeForCausalLM", "\"num_shared_experts\": 2, \"moe_intermediate_size\": 8");
    assert_int_equal(d.moe.d_shared, 16);
    d = described("HYV3ForCausalLM", "\"norm_topk_prob\": false, \"router_scaling_factor\": 2");
    assert_true(d.moe.renormalise && d.moe.scale == 2.0f && d.moe.d_shared == 1536);
    d = described("Kolibri1ForCausalLM", "");
    assert_true(d.moe.choose_by_logits && !d.moe.renormalise && d.moe.d_shared == 512);
    d = described("FlintForCausalLM", "");
    assert_true(!d.moe.correction_bias && d.moe.renormalise && d.moe.d_shared == 1024 && d.attend.sinks);
    d = described("Cohere2MoeForCausalLM", "");
    assert_true(d.moe.score == ROUTE_SOFTMAX_CHOSEN && d.moe.d_expert == 22528 && d.moe.d_shared == 0);
    assert_true(d.norm.kind == NORM_LAYER);
    d = described(
        "Cohere2MoeForCausalLM",
        "\"expert_selection_fn\": \"sigmoid\", \"num_shared_experts\": 2, \"intermediate_size\": 12, "
        "\"prefix_dense_intermediate_size\": 40, \"first_k_dense_replace\": 1, \"rms_norm_eps\": 1e-4");
    assert_true(d.moe.score == ROUTE_SIGMOID && d.moe.renormalise && d.moe.shared_mean);
    assert_true(d.moe.d_expert == 12 && d.moe.d_shared == 24 && d.layers[0].d_ff == 40);
    assert_true(d.norm.kind == NORM_RMS && d.norm_eps == 1e-4f);
    assert_false(described("Cohere2MoeForCausalLM", "\"shared_expert_combination_strategy\": \"sum\"")
                     .moe.shared_mean);
}

TEST(what_is_not_computed_is_refused_by_its_key) {
    refused("Cohere2MoeForCausalLM", "\"shared_expert_combination_strategy\": \"max\"",
            "shared_expert_combination_strategy must be");
    refused("Cohere2MoeForCausalLM", "\"expert_selection_fn\": \"sinkhorn\"", "expert_selection_fn must be");
    refused("Cohere2MoeForCausalLM", "\"prefix_dense_sliding_window_pattern\": 0",
            "prefix_dense_sliding_window_pattern must be at least 1");
    refused("HYV3ForCausalLM", "\"mlp_layer_types\": [\"dense\"]",
            "mlp_layer_types must have one string for each layer");
    refused("HYV3ForCausalLM", "\"mlp_layer_types\": 3", "mlp_layer_types");
    refused("MellumForCausalLM",
            "\"mlp_layer_types\": [\"sparse\", \"moe\", \"sparse\", \"sparse\", \"sparse\", \"sparse\"]",
            "a layer of type \"moe\" in mlp_layer_types is not supported");
    refused("ExaoneMoeForCausalLM", "\"num_experts_per_tok\": 65", "a row must use from 1 to all of them");
    refused("ExaoneMoeForCausalLM", "\"n_group\": 4, \"topk_group\": 5", "the groups of experts");
    refused("ApertusForCausalLM", "", "model.layers.0.mlp.act_fn.alpha_p is missing");
    refused("ApertusForCausalLM", "\"hidden_act\": \"sine\"", "hidden_act \"sine\" is not supported");
}

TEST(apertus_has_llama_3s_scaling_where_it_says_nothing) {
    model_desc d = described("ApertusForCausalLM", "\"hidden_act\": \"relu2\"");
    assert_true(d.ropes[0].kind == ROPE_LLAMA3 && d.ropes[0].theta == 1.2e7f && d.ropes[0].factor == 8.0f);
    assert_true(d.ungated && d.activation == ACT_RELU2);
    d = described("ApertusForCausalLM",
                  "\"hidden_act\": \"relu2\", \"rope_parameters\": {\"rope_type\": \"default\", "
                  "\"rope_theta\": 5e5}");
    assert_true(d.ropes[0].kind == ROPE_PLAIN && d.ropes[0].theta == 5e5f);
}

TEST_MAIN(NULL, NULL)
