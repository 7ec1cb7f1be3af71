/* Adapters that do not fit their model are refused with an error that names the
 * tensor. */
#include "made_adapter.h"
#include "model/arch.h"

#define BASE "tests/golden/lora/base"

static const char dora[] = "{\"peft_type\": \"LORA\", \"r\": 3, \"use_dora\": true}";

#define Q   "base_model.model.model.layers.0.self_attn.q_proj"
#define Q_A Q ".lora_A.weight"
#define Q_B Q ".lora_B.weight"

static void refused(const char *text, const new_tensor *t, int n, quire_err code, const char *name,
                    const char *says) {
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(BASE, b);
    model_adapter a = {0};
    quire_error err = {0};
    assert_int_equal(open_written(m, b, text, t, n, &a, &err), code);
    if (strstr(err.message, name) == NULL || strstr(err.message, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err.message, name, says);
    }
    assert_null(a.weights);
    model_close(m);
    b->ops->close(b);
}

TEST(a_tensor_of_no_weight_is_refused) {
    refused(
        CONFIG,
        (new_tensor[]){
            {.name = "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight", .d0 = 3, .d1 = 32},
            {.name = "base_model.model.model.layers.9.self_attn.q_proj.lora_B.weight", .d0 = 32, .d1 = 3}},
        2, QUIRE_UNSUPPORTED, "layers.9.self_attn.q_proj", "matches no weight");
    refused(CONFIG,
            (new_tensor[]){
                {.name = "base_model.model.model.layers.0.self_attn.q_proj.hada_w1_a", .d0 = 3, .d1 = 32}},
            1, QUIRE_UNSUPPORTED, "hada_w1_a", "not a part of LoRA adapters");
    refused(CONFIG, (new_tensor[]){{.name = "base_model.model.score.weight", .d0 = 2, .d1 = 32}}, 1,
            QUIRE_UNSUPPORTED, "score.weight", "matches no weight");
}

/* Text alone never passes them. */
TEST(modules_of_towers_for_images_are_left_out) {
    static const char *const names[] = {"base_model.model.visual.blocks.0.attn.qkv",
                                        "base_model.model.model.vision_tower.encoder.layers.0.fc1",
                                        "base_model.model.multi_modal_projector.linear_1"};
    char full[6][128];
    new_tensor t[8] = {{.name = Q_A, .d0 = 3, .d1 = 32}, {.name = Q_B, .d0 = 32, .d1 = 3}};
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(BASE, b);
    model_adapter a = {0};
    quire_error err = {0};
    for (int i = 0; i < 6; i++) {
        (void)snprintf(full[i], sizeof full[i], "%s.lora_%c.weight", names[i / 2], i % 2 == 0 ? 'A' : 'B');
        t[2 + i] = (new_tensor){.name = full[i], .d0 = i % 2 == 0 ? 3 : 20, .d1 = i % 2 == 0 ? 12 : 3};
    }
    assert_int_equal(open_written(m, b, CONFIG, t, 8, &a, &err), QUIRE_OK);
    assert_int_equal(a.rank, 3);
    model_adapter_close(b, &a);
    assert_int_equal(open_written(m, b, CONFIG, t + 2, 6, &a, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "changes nothing"));
    model_close(m);
    b->ops->close(b);
    refused(CONFIG,
            (new_tensor[]){{.name = "base_model.model.model.visually.lora_A.weight", .d0 = 3, .d1 = 32}}, 1,
            QUIRE_BAD_FILE, "visually", "no partner");
    refused(CONFIG, (new_tensor[]){{.name = "base_model.model.visually.bias", .d0 = 3}}, 1, QUIRE_UNSUPPORTED,
            "visually", "matches no weight");
}

TEST(a_tensor_of_another_shape_is_refused) {
    refused(CONFIG, (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 31}, {.name = Q_B, .d0 = 32, .d1 = 3}}, 2,
            QUIRE_BAD_FILE, "lora_A.weight", "[3, 31]; this base needs [3, 32]");
    refused(CONFIG, (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 32}, {.name = Q_B, .d0 = 33, .d1 = 3}}, 2,
            QUIRE_BAD_FILE, "lora_B.weight", "[33, 3]; this base needs [32, 3]");
    refused(CONFIG, (new_tensor[]){{.name = Q ".bias", .d0 = 31}}, 1, QUIRE_BAD_FILE, "q_proj.bias",
            "needs [32]");
}

TEST(ranks_beyond_the_limit_or_the_config_are_refused) {
    refused("{\"peft_type\": \"LORA\", \"r\": 65}",
            (new_tensor[]){{.name = Q_A, .d0 = 65, .d1 = 32}, {.name = Q_B, .d0 = 32, .d1 = 65}}, 2,
            QUIRE_TOO_LARGE, "lora_A.weight", "raise --max-lora-rank");
    refused("{\"peft_type\": \"LORA\", \"r\": 1000000000}",
            (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 32}, {.name = Q_B, .d0 = 32, .d1 = 3}}, 2,
            QUIRE_BAD_FILE, "self_attn.q_proj", "says 1e+09");
}

TEST(halves_and_doras_without_magnitude_are_refused) {
    refused(CONFIG, (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 32}}, 1, QUIRE_BAD_FILE, "lora_A.weight",
            "no partner");
    refused(dora, (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 32}, {.name = Q_B, .d0 = 32, .d1 = 3}}, 2,
            QUIRE_BAD_FILE, "lora_A.weight", "lora_magnitude_vector");
}

TEST(new_rows_of_a_vocabulary_are_refused) {
    refused(CONFIG, (new_tensor[]){{.name = "base_model.model.lm_head.weight", .d0 = 73, .d1 = 32}}, 1,
            QUIRE_UNSUPPORTED, "lm_head.weight", "rows for the vocabulary");
    refused(CONFIG,
            (new_tensor[]){{.name = "base_model.model.model.embed_tokens.weight", .d0 = 80, .d1 = 32}}, 1,
            QUIRE_UNSUPPORTED, "embed_tokens.weight", "rows for the vocabulary");
    refused(
        CONFIG,
        (new_tensor[]){{.name = "base_model.model.model.embed_tokens.lora_embedding_A", .d0 = 3, .d1 = 73},
                       {.name = "base_model.model.model.embed_tokens.lora_embedding_B", .d0 = 32, .d1 = 3}},
        2, QUIRE_UNSUPPORTED, "lora_embedding_A", "rows for the vocabulary");
}

TEST(invocation_tokens_outside_of_the_vocabulary_are_refused) {
    const new_tensor q[] = {{.name = Q_A, .d0 = 3, .d1 = 32}, {.name = Q_B, .d0 = 32, .d1 = 3}};
    refused("{\"peft_type\": \"LORA\", \"r\": 3, \"alora_invocation_tokens\": [71, 72]}", q, 2,
            QUIRE_BAD_FILE, "alora_invocation_tokens[1]", "is 72; the model's vocabulary has 72 ids");
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(BASE, b);
    model_adapter a = {0};
    quire_error err = {0};
    const char *last = "{\"peft_type\": \"LORA\", \"r\": 3, \"alora_invocation_tokens\": [71]}";
    assert_int_equal(open_written(m, b, last, q, 2, &a, &err), QUIRE_OK);
    assert_true(a.n_invocation == 1 && a.invocation[0] == 71);
    model_adapter_close(b, &a);
    model_close(m);
    b->ops->close(b);
}

TEST(values_that_are_no_numbers_and_other_types_are_refused) {
    float values[96] = {[40] = NAN};
    refused(
        CONFIG,
        (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 32, .values = values}, {.name = Q_B, .d0 = 32, .d1 = 3}},
        2, QUIRE_BAD_FILE, "lora_A.weight", "NaN");
    values[40] = INFINITY;
    refused(
        CONFIG,
        (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 32}, {.name = Q_B, .d0 = 32, .d1 = 3, .values = values}},
        2, QUIRE_BAD_FILE, "lora_B.weight", "NaN");
    refused(CONFIG, (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 32, .type = "I32"}}, 1, QUIRE_UNSUPPORTED,
            "lora_A.weight", "F32, F16 and BF16");
    refused(
        CONFIG,
        (new_tensor[]){{.name = Q_A, .d0 = 3, .d1 = 32}, {.name = Q_B, .d0 = 32, .d1 = 3, .type = "F8_E4M3"}},
        2, QUIRE_UNSUPPORTED, "lora_B.weight", "F32, F16 and BF16");
}

TEST(doras_that_are_not_computed_are_refused) {
    static const char kv_b[] = "base_model.model.model.layers.1.self_attn.kv_b_proj";
    char base[GOLDEN_PATH], names[3][128];
    refused(dora,
            (new_tensor[]){
                {.name = "base_model.model.model.embed_tokens.lora_embedding_A", .d0 = 3, .d1 = 72},
                {.name = "base_model.model.model.embed_tokens.lora_embedding_B", .d0 = 32, .d1 = 3},
                {.name = "base_model.model.model.embed_tokens.lora_magnitude_vector.weight", .d0 = 32}},
            3, QUIRE_UNSUPPORTED, "lora_embedding_A", "DoRA adapter of embeddings");
    if (golden_path("deepseek_v3", "config.json", base) == NULL) {
        return;
    }
    *strrchr(base, '/') = 0;
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"};
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(base, b);
    const latent_desc *l = &m->desc.latent;
    const int64_t n_out = (int64_t)desc_attention_layer(&m->desc)->n_heads * (l->d_nope + l->d_value);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s%s", kv_b, ends[i]);
    }
    const new_tensor t[] = {{.name = names[0], .d0 = 3, .d1 = l->rank},
                            {.name = names[1], .d0 = n_out, .d1 = 3},
                            {.name = names[2], .d0 = n_out}};
    model_adapter a = {0};
    quire_error err = {0};
    assert_int_equal(open_written(m, b, dora, t, 3, &a, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "kv_b_proj.lora_magnitude_vector"));
    assert_non_null(strstr(err.message, "DoRA adapter of latent attention"));
    /* without magnitudes it is read */
    assert_int_equal(open_written(m, b, CONFIG, t, 2, &a, &err), QUIRE_OK);
    model_adapter_close(b, &a);
    model_close(m);
    b->ops->close(b);
}

/* The head keeps the base's table, unless the config ties it to the adapter's. */
TEST(an_adapter_that_ties_the_head_is_refused_on_tied_embeddings) {
    model_plan p;
    plan_llama(&p);
    plan_file file = plan_open(&p);
    backend *b = open_backend(COMPUTE_F32);
    model *m;
    model_adapter a = {0};
    quire_error err = {0};
    const new_tensor t[] = {
        {.name = "base_model.model.model.embed_tokens.lora_embedding_A", .d0 = 3, .d1 = 40},
        {.name = "base_model.model.model.embed_tokens.lora_embedding_B", .d0 = 64, .d1 = 3}};
    assert_int_equal(model_open(file.f, b, 64, &m, &err), QUIRE_OK);
    assert_int_equal(open_written(m, b, "{\"peft_type\": \"LORA\", \"r\": 3, \"ensure_weight_tying\": true}",
                                  t, 2, &a, &err),
                     QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "ensure_weight_tying"));
    assert_int_equal(open_written(m, b, CONFIG, t, 2, &a, &err), QUIRE_OK);
    model_adapter_close(b, &a);
    model_close(m);
    plan_close(&file);
    b->ops->close(b);
}

TEST(a_weight_that_is_named_twice_is_refused) {
    refused(CONFIG,
            (new_tensor[]){
                {.name = Q_A, .d0 = 3, .d1 = 32},
                {.name = Q_B, .d0 = 32, .d1 = 3},
                {.name = "base_model.model.layers.0.self_attn.q_proj.lora_A.weight", .d0 = 3, .d1 = 32},
                {.name = "base_model.model.layers.0.self_attn.q_proj.lora_B.weight", .d0 = 32, .d1 = 3}},
            4, QUIRE_BAD_FILE, "q_proj", "under another name");
}

TEST_MAIN(NULL, NULL)
