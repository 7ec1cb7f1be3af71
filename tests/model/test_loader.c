/* The loader finds weights under either naming, requires exactly the expected tensors and
 * shapes, and survives randomly corrupted files. */
#include "make_model.h"

#include "model/model.h"

static quire_err open_file(model_file *f, compute_mode compute, quire_error *err) {
    backend *b;
    model *m;
    backend_options o = {.compute = compute, .isa = "auto", .n_threads = 1};
    assert_int_equal(backend_cpu_open(&o, &b, err), QUIRE_OK);
    quire_err e = model_open(f, b, 128, &m, err);
    if (e == QUIRE_OK) {
        model_close(m);
    } else {
        assert_null(m);
        assert_int_equal(err->code, e);
        assert_true(err->message[0] != 0);
    }
    b->ops->close(b);
    return e;
}

static quire_err open_plan(const model_plan *p, compute_mode compute, quire_error *err) {
    plan_file f = plan_open(p);
    quire_err e = open_file(f.f, compute, err);
    plan_close(&f);
    return e;
}

static void opens_plan(const model_plan *p) {
    for (compute_mode c = COMPUTE_F32; c <= COMPUTE_INT8; c++) {
        quire_error err = {0};
        if (open_plan(p, c, &err) != QUIRE_OK) {
            fail_msg("%s", err.message);
        }
    }
}

static void refused(const model_plan *p, const char *what) {
    quire_error err = {0};
    quire_err e = open_plan(p, COMPUTE_F32, &err);
    if (e == QUIRE_OK || !strstr(err.message, what)) {
        fail_msg("expected a refusal about \"%s\": %s, \"%s\"", what, quire_err_name(e), err.message);
    }
}

TEST(a_whole_file_opens) {
    model_plan p;
    plan_llama(&p);
    opens_plan(&p);
    set_tensor(&p, "output.weight", 40, 64);
    opens_plan(&p);
    set_tensor(&p, "blk.0.attn_q.bias", 64, 0);
    set_tensor(&p, "blk.1.ffn_down.bias", 64, 0);
    opens_plan(&p);
    set_tensor(&p, "rope_freqs.weight", 8, 0);
    tensor_of(&p, "rope_freqs.weight")->fill = 1.5f;
    opens_plan(&p);
    for (int i = 0; i < p.n_tensors; i++) {
        if (p.tensors[i].n_dims == 2) {
            p.tensors[i].type = 8;
        }
    }
    opens_plan(&p);
}

TEST(every_missing_tensor_is_named) {
    model_plan whole;
    plan_llama(&whole);
    for (int i = 0; i < whole.n_tensors; i++) {
        model_plan p = whole;
        const char *name = whole.tensors[i].name;
        drop_tensor(&p, name);
        refused(&p, strcmp(name, "token_embd.weight") == 0 ? "vocab_size" : name);
    }
    drop_tensor(&whole, "token_embd.weight");
    set_u32(&whole, "llama.vocab_size", 40);
    refused(&whole, "token_embd.weight");
}

TEST(every_tensor_of_another_shape_is_named) {
    model_plan whole;
    plan_llama(&whole);
    set_u32(&whole, "llama.vocab_size", 40);
    set_tensor(&whole, "output.weight", 40, 64);
    set_tensor(&whole, "blk.0.attn_k.bias", 32, 0);
    for (int i = 0; i < whole.n_tensors; i++) {
        model_plan p = whole;
        const char *name = whole.tensors[i].name;
        p.tensors[i].dims[0]++;
        refused(&p, name);
        p = whole;
        p.tensors[i].n_dims = 3;
        p.tensors[i].dims[1] = p.tensors[i].dims[1] ? p.tensors[i].dims[1] : 1;
        p.tensors[i].dims[2] = 2;
        refused(&p, name);
        p = whole;
        p.tensors[i].n_dims = 1;
        p.tensors[i].dims[0] = 1;
        refused(&p, name);
    }
}

TEST(a_matrix_of_one_row_may_be_stored_as_a_vector) {
    model_plan p;
    plan_shared_gate(&p, false);
    opens_plan(&p);
    plan_shared_gate(&p, true);
    opens_plan(&p);
    set_tensor(&p, "blk.0.ffn_gate_inp_shexp.weight", 63, 0);
    refused(&p, "blk.0.ffn_gate_inp_shexp.weight");
    set_tensor(&p, "blk.0.ffn_gate_inp_shexp.weight", 64, 0);
    set_tensor(&p, "blk.0.ffn_gate_inp.weight", 64, 0);
    refused(&p, "blk.0.ffn_gate_inp.weight");
}

TEST(strangers_and_a_wrong_vocabulary_are_refused) {
    model_plan p;
    plan_llama(&p);
    set_tensor(&p, "blk.0.attn_q_norm.weight", 16, 0);
    refused(&p, "blk.0.attn_q_norm.weight");
    plan_llama(&p);
    set_tensor(&p, "blk.2.attn_q.weight", 64, 64); /* a layer past the last */
    refused(&p, "blk.2.attn_q.weight");
    plan_llama(&p);
    set_u32(&p, "llama.vocab_size", 41);
    refused(&p, "token_embd.weight");
    plan_llama(&p);
    tensor_of(&p, "output_norm.weight")->type = 8;
    refused(&p, "output_norm.weight");
}

/* ---- safetensors: names as Hugging Face has them ---- */

typedef struct hf_tensor {
    char name[80], shape[24], dtype[12];
    size_t n;
} hf_tensor;

typedef struct hf_plan {
    hf_tensor tensors[40];
    int n;
    const char *more; /* for config.json */
} hf_plan;

static void hf_add(hf_plan *p, const char *name, int d0, int d1) {
    hf_tensor *t = &p->tensors[p->n++];
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->shape, sizeof t->shape, d1 ? "%d, %d" : "%d", d0, d1);
    snprintf(t->dtype, sizeof t->dtype, "F32");
    t->n = (size_t)d0 * (size_t)(d1 ? d1 : 1);
}

static void hf_llama(hf_plan *p) {
    static const struct {
        const char *name;
        int d0, d1;
    } parts[] = {
        {"input_layernorm", 64, 0},   {"self_attn.q_proj", 64, 64}, {"self_attn.k_proj", 64, 64},
        {"self_attn.v_proj", 64, 64}, {"self_attn.o_proj", 64, 64}, {"post_attention_layernorm", 64, 0},
        {"mlp.gate_proj", 96, 64},    {"mlp.up_proj", 96, 64},      {"mlp.down_proj", 64, 96}};
    *p = (hf_plan){.more = ""};
    hf_add(p, "model.embed_tokens.weight", 40, 64);
    hf_add(p, "model.norm.weight", 64, 0);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char name[80];
        snprintf(name, sizeof name, "model.layers.0.%s.weight", parts[k].name);
        hf_add(p, name, parts[k].d0, parts[k].d1);
    }
}

static quire_err open_hf(const hf_plan *p, quire_error *err) {
    static const char *const names[] = {"config.json", "model.safetensors", NULL};
    temp_dir dir = temp_new();
    strbuf header = {0}, file = {0}, config = {0};
    size_t at = 0;
    for (int i = 0; i < p->n; i++) {
        const hf_tensor *t = &p->tensors[i];
        size_t bytes = t->n * (strcmp(t->dtype, "F8_E5M2") == 0 ? 1 : 4);
        assert_int_equal(
            strbuf_addf(&header,
                        "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
                        i ? ", " : "{", t->name, t->dtype, t->shape, at, at + bytes),
            QUIRE_OK);
        at += bytes;
    }
    assert_int_equal(strbuf_add_char(&header, '}'), QUIRE_OK);
    make_safetensors(&file, header.p, at);
    assert_int_equal(
        strbuf_addf(
            &config,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": 1, \"hidden_size\": 64, "
            "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 40, "
            "\"max_position_embeddings\": 128%s%s}",
            p->more[0] ? ", " : "", p->more),
        QUIRE_OK);
    write_file(temp_path(&dir, names[0]), config.p, config.n);
    write_file(temp_path(&dir, names[1]), file.p, file.n);
    model_file *f;
    quire_err e = model_file_open(dir.path, &f, err);
    if (e == QUIRE_OK) {
        e = open_file(f, COMPUTE_F32, err);
        model_file_close(f);
    }
    temp_delete(&dir, names);
    strbuf_deinit(&header);
    strbuf_deinit(&file);
    strbuf_deinit(&config);
    return e;
}

static void hf_opens(const hf_plan *p) {
    quire_error err = {0};
    if (open_hf(p, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static void hf_refused(const hf_plan *p, const char *what) {
    quire_error err = {0};
    quire_err e = open_hf(p, &err);
    if (e == QUIRE_OK || !strstr(err.message, what)) {
        fail_msg("expected a refusal about \"%s\": %s, \"%s\"", what, quire_err_name(e), err.message);
    }
}

TEST(a_head_of_its_own_must_be_there_unless_it_is_tied) {
    hf_plan p;
    hf_llama(&p);
    hf_refused(&p, "lm_head.weight"); /* config.json ties nothing by default */
    p.more = "\"tie_word_embeddings\": true";
    hf_opens(&p);
    hf_add(&p, "lm_head.weight", 40, 64); /* a second copy of the tied one */
    hf_opens(&p);
    p.more = "";
    hf_opens(&p);
    hf_add(&p, "model.layers.0.self_attn.rotary_emb.inv_freq", 8, 0); /* derived data of old files */
    hf_opens(&p);
    snprintf(p.tensors[0].name, sizeof p.tensors[0].name, "lm_head_2.weight");
    hf_refused(&p, "model.embed_tokens.weight");
}

/* Qwen3-Embedding-8B's checkpoint: its text model alone, whose names lie at the root. */
TEST(a_text_model_by_itself_needs_no_head) {
    hf_plan p;
    hf_llama(&p);
    hf_refused(&p, "lm_head.weight");
    for (int i = 0; i < p.n; i++) {
        char rest[80];
        snprintf(rest, sizeof rest, "%s", p.tensors[i].name + strlen("model."));
        snprintf(p.tensors[i].name, sizeof p.tensors[i].name, "%s", rest);
    }
    hf_opens(&p);
    hf_add(&p, "lm_head.weight", 40, 64);
    hf_opens(&p);
    snprintf(p.tensors[p.n - 1].dtype, sizeof p.tensors[0].dtype, "F8_E5M2");
    hf_refused(&p, "lm_head.weight");
}

TEST(a_tensor_that_cannot_be_read_is_not_passed_over) {
    hf_plan p;
    hf_llama(&p);
    hf_add(&p, "lm_head.weight", 40, 64);
    hf_add(&p, "model.layers.0.self_attn.q_proj.bias", 64, 0);
    hf_opens(&p);
    snprintf(p.tensors[p.n - 1].dtype, sizeof p.tensors[0].dtype, "F8_E5M2");
    hf_refused(&p, "q_proj.bias");
    p.n--;
    snprintf(p.tensors[p.n - 1].dtype, sizeof p.tensors[0].dtype, "F8_E5M2");
    hf_refused(&p, "lm_head.weight");
    p.more = "\"tie_word_embeddings\": true";
    hf_refused(&p, "lm_head.weight");
}

/* ---- chance ---- */

TEST(spoilt_files_are_refused_or_open_whole) {
    uint64_t seed = test_seed("spoilt models");
    model_plan p;
    strbuf b = {0};
    plan_llama(&p);
    put_plan(&b, &p);
    int n_opened = 0;
    for (int i = 0; i < 1500; i++) {
        uint8_t *bytes = malloc(b.n);
        quire_error err = {0};
        model_file *f;
        assert_non_null(bytes);
        memcpy(bytes, b.p, b.n);
        mutate(bytes, 2000 < b.n ? 2000 : b.n, &seed); /* the directory and a little beyond */
        if (model_file_open_memory(bytes, b.n, "test.gguf", &f, &err) == QUIRE_OK) {
            n_opened += open_file(f, COMPUTE_F32, &err) == QUIRE_OK;
            model_file_close(f);
        }
        free(bytes);
    }
    print_message("%d of 1500 opened\n", n_opened);
    strbuf_deinit(&b);
}

TEST_MAIN(NULL, NULL)
