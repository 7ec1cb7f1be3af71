/* Model descriptions read from GGUF metadata and config.json: valid, unusual and
 * hostile. */
#include "make_model.h"

#include <math.h>

#include "model/config.h"
#include "model/model.h"

static quire_err describe(const model_plan *p, model_desc *d, quire_error *err) {
    plan_file f = plan_open(p);
    quire_err e = model_describe(f.f, d, err);
    plan_close(&f);
    return e;
}

static model_desc described(const model_plan *p) {
    model_desc d;
    quire_error err = {0};
    if (describe(p, &d, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return d;
}

/* Refused, with the file's name and what is said in the message. */
static void refused(const model_plan *p, const char *what) {
    model_desc d;
    quire_error err = {0};
    quire_err e = describe(p, &d, &err);
    if (e == QUIRE_OK || !strstr(err.message, what) || !strstr(err.message, "test.gguf: ")) {
        fail_msg("expected a refusal about \"%s\": %s, \"%s\"", what, quire_err_name(e), err.message);
    }
    assert_int_equal(err.code, e);
}

TEST(a_gguf_file_is_described) {
    model_plan p;
    plan_llama(&p);
    set_str(&p, "general.name", "a name");
    set_u32(&p, "tokenizer.ggml.bos_token_id", 1);
    set_u32(&p, "tokenizer.ggml.eos_token_id", 2);
    set_u32(&p, "tokenizer.ggml.eot_token_id", 2);
    set_u32(&p, "tokenizer.ggml.eom_token_id", 5);
    model_desc d = described(&p);
    assert_string_equal(d.architecture, "llama");
    assert_string_equal(d.name, "a name");
    assert_int_equal(d.n_layers, 2);
    assert_int_equal(d.d_model, 64);
    assert_int_equal(d.layers[0].n_heads, 4);
    assert_int_equal(d.caches[0].n_kv_heads, 2);
    assert_int_equal(d.caches[0].d_key, 16);
    assert_int_equal(d.layers[0].d_ff, 96);
    assert_int_equal(d.n_vocab, 40);
    assert_int_equal(d.max_positions, 128);
    assert_true(d.tied_embeddings);
    assert_int_equal(d.bos, 1);
    assert_int_equal(d.n_eos, 2); /* the same id twice is one */
    assert_int_equal(d.eos[0], 2);
    assert_int_equal(d.eos[1], 5);
    assert_int_equal(d.ropes[0].kind, ROPE_PLAIN);
    assert_int_equal(d.ropes[0].pairs, ROPE_NEIGHBOURS);
    assert_int_equal(d.weight_type, DTYPE_F32);
    assert_int_equal(d.n_params,
                     40 * 64 + 64 + 2 * (64 + 64 * 64 + 2 * 32 * 64 + 64 * 64 + 64 + 3 * 96 * 64));
    assert_int_equal(d.weight_bytes, d.n_params * 4);
    assert_true(d.attention_scale == 0.25f);
}

TEST(numbers_that_are_lists_of_equal_ones_are_one_number) {
    static const char *const keys[] = {"llama.attention.head_count", "llama.attention.head_count_kv",
                                       "llama.feed_forward_length"};
    static const uint32_t equal[] = {4, 4}, other[] = {4, 2}, ff[] = {96, 96}, ff_other[] = {96, 64};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        model_plan p;
        plan_llama(&p);
        set_list(&p, keys[i], 2, i == 2 ? ff : equal);
        model_desc d = described(&p);
        assert_int_equal(d.layers[1].n_heads, 4);
        assert_int_equal(d.caches[1].n_kv_heads, i == 1 ? 4 : 2);
        assert_int_equal(d.layers[1].d_ff, 96);
        set_list(&p, keys[i], 2, i == 2 ? ff_other : other);
        if (i == 0) {
            refused(&p, "llama.attention.head_count is 4 in layer 0 and 2 in layer 1");
        } else {
            d = described(&p); /* a layer may have its own */
            assert_true(i == 1 ? d.caches[1].n_kv_heads == 2 : d.layers[1].d_ff == 64);
        }
    }
    model_plan p;
    plan_llama(&p);
    set_list(&p, keys[0], 0, equal);
    refused(&p, "attention heads must be at least 1");
    set_list(&p, keys[1], 3, (const uint32_t[]){2, 2, 2});
    set_u32(&p, keys[0], 4);
    refused(&p, "head_count_kv");
}

TEST(what_may_be_absent_has_its_default) {
    model_plan p;
    plan_llama(&p);
    drop_key(&p, "llama.attention.head_count_kv");
    drop_key(&p, "llama.attention.layer_norm_rms_epsilon");
    model_desc d = described(&p);
    assert_int_equal(d.caches[0].n_kv_heads, 4);
    assert_true(d.norm_eps == 1e-6f);
    assert_int_equal(d.bos, -1);
    assert_int_equal(d.n_eos, 0);
    set_u32(&p, "tokenizer.ggml.bos_token_id", 40); /* outside the vocabulary: some published files have it */
    set_u32(&p, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    d = described(&p);
    assert_int_equal(d.bos, -1);
    assert_int_equal(d.n_eos, 0);
    set_tensor(&p, "output.weight", 40, 64);
    assert_false(described(&p).tied_embeddings);
}

TEST(what_must_be_there_is_named_when_it_is_not) {
    static const char *const needed[] = {"block_count", "embedding_length", "feed_forward_length",
                                         "attention.head_count", "context_length"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        model_plan p;
        char key[64];
        plan_llama(&p);
        snprintf(key, sizeof key, "llama.%s", needed[i]);
        drop_key(&p, key);
        refused(&p, needed[i]);
        set_str(&p, key, "many");
        refused(&p, key);
        key_of(&p, key)->type = GGUF_I64;
        key_of(&p, key)->i = -1;
        refused(&p, key);
        key_of(&p, key)->i = (int64_t)1 << 40;
        refused(&p, key);
        key_of(&p, key)->i = 0;
        refused(&p, "");
        key_of(&p, key)->i = INT32_MAX;
        refused(&p, "");
        set_f32(&p, key, 2.5f);
        refused(&p, key);
        set_f32(&p, key, NAN);
        refused(&p, key);
    }
    model_plan p;
    plan_llama(&p);
    drop_key(&p, "general.architecture");
    refused(&p, "general.architecture");
    set_str(&p, "general.architecture", "mamba");
    refused(&p, "mamba");
    plan_llama(&p);
    drop_tensor(&p, "token_embd.weight");
    refused(&p, "vocab_size");
}

TEST(shapes_that_cannot_be_computed_are_refused) {
    static const struct {
        const char *key;
        uint32_t v;
        const char *what;
    } cases[] = {{"llama.attention.head_count_kv", 3, "evenly"},
                 {"llama.attention.head_count_kv", 0, "key-value heads"},
                 {"llama.attention.head_count_kv", 8, "evenly"},
                 {"llama.attention.head_count", 65, ""}, /* heads of no element */
                 {"llama.attention.key_length", 15, ""},
                 {"llama.attention.key_length", 32, "different widths"},
                 {"llama.attention.value_length", 8, "different widths"},
                 {"llama.rope.dimension_count", 18, "rotary dimensions"},
                 {"llama.rope.dimension_count", 3, "rotary dimensions"},
                 {"llama.rope.dimension_count", 0, "rotary dimensions"},
                 {"llama.expert_count", 8, "experts"},
                 {"llama.vocab_size", 0, "vocabulary"},
                 {"llama.block_count", 1u << 20, "layers"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_plan p;
        plan_llama(&p);
        if (strstr(cases[i].key, "key_length") && cases[i].v == 32) {
            set_u32(&p, "llama.attention.value_length", 16);
        } else if (strstr(cases[i].key, "key_length")) {
            set_u32(&p, "llama.attention.value_length", cases[i].v);
        }
        set_u32(&p, cases[i].key, cases[i].v);
        refused(&p, cases[i].what);
    }
    static const float bad[] = {0.0f, -1.0f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model_plan p;
        plan_llama(&p);
        set_f32(&p, "llama.rope.freq_base", bad[i]);
        refused(&p, "");
        plan_llama(&p);
        if (bad[i] != 0.0f) {
            set_f32(&p, "llama.attention.layer_norm_rms_epsilon", bad[i]);
            refused(&p, "");
            plan_llama(&p);
            set_f32(&p, "llama.rope.scaling.factor", bad[i]);
            refused(&p, "");
        }
    }
}

TEST(any_number_of_positions_in_bounds_is_taken) {
    model_plan p;
    plan_llama(&p);
    set_u32(&p, "llama.context_length", 1);
    assert_int_equal(described(&p).max_positions, 1);
    set_u32(&p, "llama.context_length", 1 << 30);
    assert_int_equal(described(&p).max_positions, 1 << 30);
    set_u32(&p, "llama.context_length", INT32_MAX);
    refused(&p, "positions");
    set_u32(&p, "llama.context_length", UINT32_MAX);
    refused(&p, "context_length");
}

TEST(rotary_scaling_of_gguf_is_read) {
    model_plan p;
    plan_llama(&p);
    set_f32(&p, "llama.rope.freq_base", 500000.0f);
    set_u32(&p, "llama.rope.dimension_count", 8);
    model_desc d = described(&p);
    assert_true(d.ropes[0].theta == 500000.0f);
    assert_int_equal(d.ropes[0].n_dims, 8);
    set_f32(&p, "llama.rope.scale_linear", 4.0f); /* the old key */
    d = described(&p);
    assert_int_equal(d.ropes[0].kind, ROPE_LINEAR);
    assert_true(d.ropes[0].factor == 4.0f);
    drop_key(&p, "llama.rope.scale_linear");
    set_f32(&p, "llama.rope.scaling.factor", 2.0f); /* a factor without a type is linear */
    d = described(&p);
    assert_int_equal(d.ropes[0].kind, ROPE_LINEAR);
    assert_true(d.ropes[0].factor == 2.0f);
    set_str(&p, "llama.rope.scaling.type", "none");
    assert_int_equal(described(&p).ropes[0].kind, ROPE_PLAIN);
    set_f32(&p, "llama.rope.scaling.factor", 0.0f); /* 0: none */
    drop_key(&p, "llama.rope.scaling.type");
    assert_int_equal(described(&p).ropes[0].kind, ROPE_PLAIN);
    set_str(&p, "llama.rope.scaling.type", "yarn");
    set_f32(&p, "llama.rope.scaling.factor", 8.0f);
    set_u32(&p, "llama.rope.scaling.original_context_length", 32);
    d = described(&p);
    assert_int_equal(d.ropes[0].kind, ROPE_YARN);
    assert_int_equal(d.ropes[0].original_positions, 32);
    set_u32(&p, "llama.rope.scaling.original_context_length", 0);
    refused(&p, "positions");
    set_str(&p, "llama.rope.scaling.type", "longrope");
    refused(&p, "rope_factors_long.weight is missing");
    set_tensor(&p, "rope_factors_long.weight", 4, 0);
    tensor_of(&p, "rope_factors_long.weight")->fill = 2.0f;
    refused(&p, "rope_factors_short.weight is missing");
    set_tensor(&p, "rope_factors_short.weight", 4, 0);
    tensor_of(&p, "rope_factors_short.weight")->fill = 1.5f;
    set_u32(&p, "llama.rope.scaling.original_context_length", 32);
    d = described(&p);
    assert_int_equal(d.ropes[0].kind, ROPE_LONGROPE);
    assert_true(d.ropes[0].factors[3] == 1.5f && d.ropes[0].long_factors[3] == 2.0f);
    set_u32(&p, "llama.rope.scaling.type", 1);
    refused(&p, "rope.scaling.type");
}

TEST(frequency_divisors_must_fit_the_rotary_dimensions) {
    model_plan p;
    plan_llama(&p);
    set_tensor(&p, "rope_freqs.weight", 8, 0);
    tensor_of(&p, "rope_freqs.weight")->fill = 2.0f;
    described(&p);
    tensor_of(&p, "rope_freqs.weight")->fill = -2.0f;
    refused(&p, "rope_freqs");
    tensor_of(&p, "rope_freqs.weight")->fill = INFINITY;
    refused(&p, "rope_freqs");
    set_tensor(&p, "rope_freqs.weight", 7, 0);
    refused(&p, "rope_freqs");
    set_tensor(&p, "rope_freqs.weight", 1, 8);
    refused(&p, "rope_freqs");
    set_tensor(&p, "rope_freqs.weight", 32, 0);
    tensor_of(&p, "rope_freqs.weight")->type = 8;
    refused(&p, "rope_freqs");
}

/* ---- heads of scores ---- */

/* The Llama of plan_llama under another architecture's name, with a head that gives one
 * score of an input. */
static void plan_scores(model_plan *p, const char *architecture) {
    char type[64];
    plan_llama(p);
    plan_rename(p, architecture);
    snprintf(type, sizeof type, "%s.pooling_type", architecture);
    set_u32(p, type, 4);
    set_tensor(p, "cls.output.weight", 1, 64);
}

TEST(a_head_of_one_score_may_be_stored_as_a_vector) {
    model_plan p;
    plan_scores(&p, "qwen3");
    assert_int_equal(described(&p).pooling.n_scores, 1);
    set_tensor(&p, "cls.output.weight", 64, 0);
    model_desc d = described(&p);
    assert_int_equal(d.pooling.n_scores, 1);
    assert_int_equal(d.pooling.steps[0].n_in, 64);
    set_tensor(&p, "cls.output.weight", 2, 64);
    assert_int_equal(described(&p).pooling.n_scores, 2);
}

/* Conversions of BERT have the product that gives the scores, and not the pooler before
 * it. */
TEST(scores_without_the_dense_layer_before_them_are_refused) {
    static const char *const architectures[] = {"bert", "roberta", "modern-bert"};
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        model_plan p;
        plan_scores(&p, architectures[i]);
        refused(&p, "cls.weight is missing");
        set_tensor(&p, "cls.weight", 64, 64);
        model_desc d = described(&p);
        assert_int_equal(d.pooling.n_steps, 2);
        assert_int_equal(d.pooling.n_scores, 1);
    }
}

TEST(a_table_of_one_token_type_may_be_stored_as_a_vector) {
    model_plan p;
    plan_scores(&p, "bert");
    set_tensor(&p, "cls.weight", 64, 64);
    assert_int_equal(described(&p).embed.n_token_types, 0);
    set_tensor(&p, "token_types.weight", 64, 0);
    assert_int_equal(described(&p).embed.n_token_types, 1);
    set_tensor(&p, "token_types.weight", 2, 64);
    assert_int_equal(described(&p).embed.n_token_types, 2);
}

/* ---- rows that see both ways ---- */

TEST(a_gguf_decoder_may_see_both_ways) {
    model_plan p;
    plan_llama(&p);
    key_of(&p, "llama.attention.causal")->type = GGUF_BOOL;
    model_desc d = described(&p);
    assert_true(d.two_sided);
    assert_false(desc_gives_tokens(&d));
    set_u32(&p, "llama.attention.sliding_window", 8);
    refused(&p, "attention.causal false is not supported for a decoder with windows");
    key_of(&p, "llama.attention.causal")->i = 1;
    assert_false(described(&p).two_sided);
    plan_llama(&p);
    plan_rename(&p, "gemma-embedding");
    set_u32(&p, "gemma-embedding.attention.sliding_window_pattern", 2);
    key_of(&p, "gemma-embedding.attention.causal")->type = GGUF_BOOL;
    assert_true(described(&p).two_sided);
    key_of(&p, "gemma-embedding.attention.causal")->i = 1;
    refused(&p, "attention.causal true is not supported");
}

/* ---- config.json ---- */

#define HF_BASE                                                                                              \
    "\"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": 2, \"hidden_size\": 64, "             \
    "\"num_attention_heads\": 4, "                                                                           \
    "\"intermediate_size\": 96, \"vocab_size\": 40, \"max_position_embeddings\": 128"

static quire_err describe_hf(const char *more, const char *generation, model_desc *d, quire_error *err) {
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors", NULL};
    temp_dir dir = temp_new();
    char text[2048];
    strbuf tensors = {0};
    model_file *f;
    snprintf(text, sizeof text, "{" HF_BASE "%s%s}", more[0] ? ", " : "", more);
    write_text(&dir, names[0], text);
    if (generation) {
        write_text(&dir, names[1], generation);
    }
    make_safetensors(&tensors, "{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4);
    write_file(temp_path(&dir, names[2]), tensors.p, tensors.n);
    strbuf_deinit(&tensors);
    quire_err e = model_file_open(dir.path, &f, err);
    if (e == QUIRE_OK) {
        e = model_describe(f, d, err);
        model_file_close(f);
    }
    temp_delete(&dir, names);
    return e;
}

static model_desc described_hf(const char *more, const char *generation) {
    model_desc d;
    quire_error err = {0};
    if (describe_hf(more, generation, &d, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return d;
}

static void refused_hf(const char *more, const char *what) {
    model_desc d;
    quire_error err = {0};
    quire_err e = describe_hf(more, NULL, &d, &err);
    if (e == QUIRE_OK || !strstr(err.message, what)) {
        fail_msg("%s: expected a refusal about \"%s\": %s, \"%s\"", more, what, quire_err_name(e),
                 err.message);
    }
}

TEST(a_hugging_face_config_is_described) {
    model_desc d = described_hf("", NULL);
    assert_int_equal(d.caches[0].n_kv_heads, 4);
    assert_int_equal(d.caches[0].d_key, 16);
    assert_false(d.tied_embeddings);
    assert_int_equal(d.activation, ACT_SILU);
    assert_int_equal(d.ropes[0].pairs, ROPE_HALVES);
    d = described_hf("\"num_key_value_heads\": 2, \"head_dim\": 32, \"hidden_act\": \"gelu_new\", "
                     "\"tie_word_embeddings\": true, \"rope_theta\": 5e5, "
                     "\"eos_token_id\": [3, 4, 3, 900], \"bos_token_id\": 1, \"rope_scaling\": null",
                     NULL);
    assert_int_equal(d.caches[0].n_kv_heads, 2);
    assert_int_equal(d.caches[0].d_key, 32);
    assert_int_equal(d.activation, ACT_GELU_TANH);
    assert_true(d.tied_embeddings);
    assert_true(d.ropes[0].theta == 5e5f);
    assert_int_equal(d.n_eos, 2);
    assert_int_equal(d.bos, 1);
    d = described_hf("\"text_config\": {\"hidden_size\": 64, \"tie_word_embeddings\": false}, "
                     "\"tie_word_embeddings\": true",
                     NULL);
    /* the whole model's flag ties the head of its text part */
    assert_true(d.tied_embeddings);
    /* generation_config.json goes before */
    d = described_hf("\"eos_token_id\": 3", "{\"eos_token_id\": [7, 8]}");
    assert_int_equal(d.n_eos, 2);
    assert_int_equal(d.eos[0], 7);
    char many[512] = "\"eos_token_id\": [0";
    for (int i = 1; i < 40; i++) {
        (void)snprintf(many + strlen(many), sizeof many - strlen(many), ",%d", i);
    }
    (void)snprintf(many + strlen(many), sizeof many - strlen(many), "]");
    d = described_hf(many, NULL); /* as many as are kept */
    assert_int_equal(d.n_eos, DESC_MAX_EOS);
}

TEST(rotary_scaling_of_hugging_face_is_read) {
    model_desc d = described_hf("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", NULL);
    assert_int_equal(d.ropes[0].kind, ROPE_LINEAR);
    d = described_hf("\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
                     "\"high_freq_factor\": 4, "
                     "\"original_max_position_embeddings\": 64}",
                     NULL);
    assert_int_equal(d.ropes[0].kind, ROPE_LLAMA3);
    assert_int_equal(d.ropes[0].original_positions, 64);
    d = described_hf("\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 2e4, \"factor\": 4, "
                     "\"mscale\": 1, \"mscale_all_dim\": 1}",
                     NULL);
    assert_int_equal(d.ropes[0].kind, ROPE_YARN);
    assert_true(d.ropes[0].theta == 2e4f);
    assert_true(d.ropes[0].attention_factor == 1.0f);
    d = described_hf("\"original_max_position_embeddings\": 32, \"rope_scaling\": {\"type\": \"su\", "
                     "\"short_factor\": [1,1,1,1,1,1,1,2], "
                     "\"long_factor\": [1,1,1,1,1,1,1,4]}",
                     NULL);
    assert_int_equal(d.ropes[0].kind, ROPE_LONGROPE);
    assert_true(d.ropes[0].factor == 4.0f && d.ropes[0].long_factors[7] == 4.0f);
    refused_hf("\"rope_scaling\": {\"type\": \"su\", \"factor\": 2}", "short_factor");
    refused_hf("\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1,1], \"long_factor\": [1,1]}",
               "short_factor");
    refused_hf("\"rope_scaling\": {\"type\": \"wave\", \"factor\": 2}", "wave");
    refused_hf("\"rope_scaling\": {\"type\": 7, \"factor\": 2}", "must be a string");
    refused_hf("\"rope_scaling\": \"yarn\"", "rope_scaling must be an object");
    refused_hf("\"rope_parameters\": [1]", "rope_parameters must be an object");
    refused_hf("\"rope_parameters\": {\"full_attention\": 4}",
               "rope_parameters.full_attention must be an object");
    refused_hf("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}", "factor");
    refused_hf("\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}", "factor");
    refused_hf("\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
               "\"high_freq_factor\": 3, "
               "\"original_max_position_embeddings\": 64}",
               "high_freq_factor");
    d = described_hf(
        "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 16, \"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 1.0, \"original_max_position_embeddings\": 64}",
        NULL); /* Llama 4 Scout's */
    assert_int_equal(d.ropes[0].kind, ROPE_LLAMA3);
}

TEST(odd_values_of_a_config_are_refused) {
    refused_hf("\"hidden_act\": \"mish\"", "mish");
    refused_hf("\"hidden_act\": 3", "hidden_act");
    refused_hf("\"tie_word_embeddings\": \"yes\"", "tie_word_embeddings");
    refused_hf("\"num_key_value_heads\": 2.5", "num_key_value_heads");
    refused_hf("\"num_local_experts\": 4", "experts");
    refused_hf("\"head_dim\": 0", "head size");
    refused_hf("\"head_dim\": 1000", "head size");
    refused_hf("\"rms_norm_eps\": -1", "epsilon");
    refused_hf("\"rms_norm_eps\": \"small\"", "rms_norm_eps");
}

/* Lists of numbers are read into tables of a fixed size. */
TEST(lists_longer_than_any_model_has_are_refused) {
    char more[1900];
    int at = snprintf(more, sizeof more,
                      "\"head_dim\": 1600, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1");
    for (int i = 1; i < 800; i++) {
        at += snprintf(more + at, sizeof more - (size_t)at, ",1");
    }
    snprintf(more + at, sizeof more - (size_t)at, "]}");
    refused_hf(more, "the head size is 1600");
    refused_hf("\"head_dim\": 2147483647, \"partial_rotary_factor\": 1.0", "the head size is 2147483647");
    refused_hf("\"eos_token_id\": 1, \"num_attention_heads\": 65", "the head size is 0");
}

/* A caller that asks for more rotary dimensions than a head has gets no factors, however
 * many the file holds. */
TEST(factors_for_more_dimensions_than_a_head_has_are_refused) {
    static const char *const names[] = {"config.json", "model.safetensors", NULL};
    temp_dir dir = temp_new();
    strbuf text = {0}, tensors = {0};
    quire_error err = {0};
    model_file *f;
    assert_int_equal(strbuf_addf(&text, "{" HF_BASE ", \"rope_scaling\": {\"type\": \"longrope\""), QUIRE_OK);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(strbuf_addf(&text, ", \"%s_factor\": [2", k == 0 ? "short" : "long"), QUIRE_OK);
        for (int i = 1; i < 600; i++) {
            assert_int_equal(strbuf_addf(&text, ",2"), QUIRE_OK);
        }
        assert_int_equal(strbuf_addf(&text, "]"), QUIRE_OK);
    }
    assert_int_equal(strbuf_addf(&text, "}}"), QUIRE_OK);
    write_file(temp_path(&dir, names[0]), text.p, text.n);
    make_safetensors(&tensors, "{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4);
    write_file(temp_path(&dir, names[1]), tensors.p, tensors.n);
    assert_int_equal(model_file_open(dir.path, &f, &err), QUIRE_OK);
    struct {
        rope_desc r;
        char behind[2048];
    } place = {
        .r = {.kind = ROPE_PLAIN, .n_dims = 1200, .theta = 1e4f, .factor = 2.0f, .original_positions = 32}};
    model_desc d = desc_plain(1, 4, 4, 16, 96);
    const config c = config_of(f, "llama", &err);
    assert_int_equal(config_rope(&c, NULL, &d, &place.r), QUIRE_BAD_FILE);
    assert_non_null(
        strstr(err.message, "short_factor is for more rotary dimensions than a head can have, 512"));
    for (size_t i = 0; i < sizeof place.behind; i++) {
        assert_int_equal(place.behind[i], 0);
    }
    model_file_close(f);
    strbuf_deinit(&text);
    strbuf_deinit(&tensors);
    temp_delete(&dir, names);
}

TEST_MAIN(NULL, NULL)
