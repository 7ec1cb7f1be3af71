/* Next-token prediction layers: recognised in checkpoints and GGUF files, skipped and
 * counted; the model computes as if they were absent. */
#include "golden_model.h"

#include "model/model.h"

static model_desc described(model_file *f) {
    model_desc d;
    quire_error err = {0};
    if (model_describe(f, &d, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return d;
}

/* A llama file; n_next layers with two tensors after its two layers. */
static void plan_with(model_plan *p, uint32_t n_next) {
    plan_llama(p);
    set_u32(p, "llama.block_count", 2 + n_next);
    set_u32(p, "llama.nextn_predict_layers", n_next);
    for (uint32_t i = 0; i < n_next; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", 2 + i);
        set_tensor(p, name, 64, 128);
        snprintf(name, sizeof name, "blk.%u.attn_q.weight", 2 + i);
        set_tensor(p, name, 64, 64);
    }
}

TEST(gguf_layers_behind_the_last_are_left_out) {
    for (compute_mode compute = COMPUTE_F32; compute <= COMPUTE_INT8; compute++) {
        model_plan plain, with;
        size_t n_plain, n_with;
        plan_llama(&plain);
        plan_with(&with, 2);
        plan_file a = plan_open(&plain), b = plan_open(&with);
        model_desc da = described(a.f), db = described(b.f);
        assert_int_equal(da.n_next_token_layers, 0);
        assert_int_equal(da.n_left_out, 0);
        assert_int_equal(db.n_layers, 2);
        assert_int_equal(db.n_next_token_layers, 2);
        assert_int_equal(db.n_left_out, 4);
        assert_int_equal(db.left_out_bytes, 2 * 4 * (64 * 128 + 64 * 64));
        assert_int_equal(db.n_params, da.n_params);
        assert_int_equal(db.weight_bytes, da.weight_bytes);
        float *x = logits_of(a.f, compute, &n_plain), *y = logits_of(b.f, compute, &n_with);
        assert_int_equal(n_plain, n_with);
        assert_memory_equal(x, y, n_plain * sizeof *x);
        mem_free(x);
        mem_free(y);
        free(a.bytes);
        free(b.bytes);
    }
}

TEST(towers_beside_the_text_of_a_gguf_file_are_left_out_and_named) {
    model_plan plain, with;
    size_t n_plain, n_with;
    plan_llama(&plain);
    plan_llama(&with);
    set_tensor(&with, "v.blk.0.attn_q.weight", 64, 64);
    set_tensor(&with, "v.patch_embd.weight", 64, 32);
    set_tensor(&with, "mm.0.weight", 64, 64);
    set_tensor(&with, "mm.0.bias", 64, 0);
    set_tensor(&with, "a.conv1d.1.weight", 64, 32);
    plan_file a = plan_open(&plain), b = plan_open(&with);
    model_desc da = described(a.f), db = described(b.f);
    assert_int_equal(db.n_left_out, 5);
    assert_int_equal(db.left_out_bytes, 4 * (64 * 64 + 64 * 32 + 64 * 64 + 64 + 64 * 32));
    assert_int_equal(db.n_params, da.n_params);
    assert_true(strstr(db.left_out_names, "v.") && strstr(db.left_out_names, "mm.") &&
                strstr(db.left_out_names, "a."));
    float *x = logits_of(a.f, COMPUTE_F32, &n_plain), *y = logits_of(b.f, COMPUTE_F32, &n_with);
    assert_int_equal(n_plain, n_with);
    assert_memory_equal(x, y, n_plain * sizeof *x);
    mem_free(x);
    mem_free(y);
    free(a.bytes);
    free(b.bytes);
}

static void refused(const model_plan *p, const char *what) {
    plan_file f = plan_open(p);
    backend *b = open_backend(COMPUTE_F32);
    model *m;
    quire_error err = {0};
    quire_err e = model_open(f.f, b, 64, &m, &err);
    if (e == QUIRE_OK || !strstr(err.message, what) || !strstr(err.message, "test.gguf")) {
        fail_msg("expected a refusal about \"%s\": %s, \"%s\"", what, quire_err_name(e), err.message);
    }
    b->ops->close(b);
    plan_close(&f);
}

TEST(only_as_many_as_the_file_says_are_left_out) {
    model_plan p;
    plan_with(&p, 1);
    set_tensor(&p, "blk.3.attn_q.weight", 64, 64);
    refused(&p, "blk.3.attn_q.weight");
    plan_with(&p, 1);
    set_u32(&p, "llama.nextn_predict_layers", 3);
    refused(&p, "3 next-token layers for 3 layers; at most 2");
    plan_with(&p, 1);
    drop_key(&p, "llama.nextn_predict_layers"); /* the third layer is then one of the model's */
    refused(&p, "blk.2.");
    plan_llama(&p);
    set_u32(&p, "llama.block_count", 3); /* a file that says it had one, and has none */
    set_u32(&p, "llama.nextn_predict_layers", 1);
    plan_file f = plan_open(&p);
    assert_int_equal(described(f.f).n_next_token_layers, 0);
    plan_close(&f);
}

/* ---- checkpoints ---- */

/* Adds tensors of four numbers each, which lie over the first ones of the file, and
 * returns the whole file. */
static strbuf weights_with(const char *base, const char *const *names) {
    strbuf was = golden_weights(base, "?", ""), out = {0};
    size_t n_header;
    memcpy(&n_header, was.p, sizeof n_header);
    json_t *header = json_loadb(was.p + 8, n_header, 0, NULL);
    size_t n = was.n - 8 - n_header;
    for (; *names != NULL; names++, n += 16) {
        json_object_set_new(header, *names,
                            json_pack("{s:s,s:[i,i],s:[I,I]}", "dtype", "F32", "shape", 2, 2, "data_offsets",
                                      (json_int_t)n, (json_int_t)n + 16));
    }
    char *text = json_dumps(header, JSON_COMPACT);
    put_u64(&out, strlen(text));
    put(&out, text, strlen(text));
    put(&out, was.p + 8 + n_header, was.n - 8 - n_header);
    while (out.n < 8 + strlen(text) + n) {
        put(&out, "\0", 1);
    }
    free(text);
    json_decref(header);
    strbuf_deinit(&was);
    return out;
}

typedef struct checkpoint {
    const char *model, *key; /* config.json's number of next-token layers; NULL: it has none */
    int32_t number, counts;
    const char *names[5];
} checkpoint;

static const checkpoint checkpoints[] = {
    {"glm4_moe",
     "num_nextn_predict_layers",
     1,
     1,
     {"model.layers.3.eh_proj.weight", "model.layers.3.shared_head.norm.weight"}},
    {"minimax_m2",
     "num_mtp_modules",
     3,
     2,
     {"model.layers.2.enorm.weight", "model.layers.3.self_attn.q_proj.weight"}},
    {"ernie4_5_moe",
     "num_nextn_predict_layers",
     1,
     1,
     {"model.mtp_block.0.self_attn.q_proj.weight", "model.mtp_emb_norm.0.weight",
      "model.mtp_hidden_norm.0.weight", "model.mtp_linear_proj.0.weight"}},
    {"ernie4_5_moe", NULL, 0, 2, {"model.mtp_block.1.self_attn.q_proj.weight"}},
    {"qwen3", NULL, 0, 1, {"mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight"}},
};

TEST(the_layers_of_checkpoints_are_left_out) {
    for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
        const checkpoint *t = &checkpoints[i];
        json_t *config = golden_config(t->model);
        quire_error err;
        model_file *f;
        size_t n, n_plain;
        int32_t n_names = 0;
        if (config == NULL) {
            print_message("%s is not there: skipped\n", t->model);
            continue;
        }
        while (t->names[n_names] != NULL) {
            n_names++;
        }
        temp_dir plain = golden_write(t->model, config, NULL);
        strbuf weights = weights_with(t->model, t->names);
        if (t->key != NULL) {
            json_object_set_new(config, t->key, json_integer(t->number));
        }
        temp_dir with = golden_write(t->model, config, &weights);
        float *a = golden_run(plain.path, COMPUTE_F32, &n_plain, &err),
              *b = golden_run(with.path, COMPUTE_F32, &n, &err);
        if (a == NULL || b == NULL) {
            fail_msg("%s: %s", t->model, err.message);
        }
        assert_int_equal(n, n_plain);
        assert_memory_equal(a, b, n * sizeof *a);
        assert_int_equal(model_file_open(with.path, &f, &err), QUIRE_OK);
        model_desc d = described(f);
        assert_int_equal(d.n_next_token_layers, t->counts);
        assert_int_equal(d.n_left_out, n_names);
        assert_int_equal(d.left_out_bytes, 16 * n_names);
        model_file_close(f);
        mem_free(a);
        mem_free(b);
        temp_delete(&plain, golden_files);
        temp_delete(&with, golden_files);
        strbuf_deinit(&weights);
        json_decref(config);
    }
}

TEST(without_the_number_a_layer_behind_the_last_is_a_stranger) {
    json_t *config = golden_config("glm4_moe");
    quire_error err;
    size_t n;
    if (config == NULL) {
        skip();
    }
    strbuf weights = weights_with("glm4_moe", (const char *const[]){"model.layers.3.eh_proj.weight", NULL});
    temp_dir d = golden_write("glm4_moe", config, &weights);
    assert_null(golden_run(d.path, COMPUTE_F32, &n, &err));
    assert_non_null(strstr(err.message, "model.layers.3.eh_proj.weight"));
    temp_delete(&d, golden_files);
    strbuf_deinit(&weights);
    json_decref(config);
}

TEST(next_token_layers_of_qwen_3_5_are_left_out) {
    char path[GOLDEN_PATH];
    model_file *f;
    model *m = NULL;
    quire_error err = {0};
    if (golden_path("qwen3_5", "config.json", path) == NULL) {
        skip();
    }
    json_t *config = golden_config("qwen3_5");
    json_object_set_new(config, "num_hidden_layers", json_integer(3));
    json_object_set_new(config, "mtp_num_hidden_layers", json_integer(1));
    json_array_remove(json_object_get(config, "layer_types"), 3);
    strbuf weights = golden_weights("qwen3_5", "model.layers.3.", "mtp.layers.0.");
    temp_dir d = golden_write("qwen3_5", config, &weights);
    assert_int_equal(model_file_open(d.path, &f, &err), QUIRE_OK);
    model_desc desc = described(f);
    assert_int_equal(desc.n_layers, 3);
    assert_int_equal(desc.n_next_token_layers, 1);
    assert_int_equal(desc.n_left_out, 11);
    backend *b = open_backend_of(COMPUTE_F32, 1);
    if (model_open(f, b, 64, &m, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    model_close(m);
    b->ops->close(b);
    model_file_close(f);
    temp_delete(&d, golden_files);
    strbuf_deinit(&weights);
    json_decref(config);
}

TEST_MAIN(NULL, NULL)
