/* Corrupted checkpoints of every quantisation method: tensors missing or of other types
 * and shapes, extreme values, settings out of range, random changes of header and data.
 * Each either is refused with the file's name and a reason, or computes. QUIRE_TEST_LONG:
 * 10,000 random changes per format, five minutes of processor time under the address
 * sanitizer. QUIRE_TEST_SEED=n repeats a run. */
#include <math.h>

#include "golden_model.h"

enum { WIDTH = 64, FF = 256, VOCAB = 32, EXPERTS = 2, MOST_TENSORS = 40, ROUNDS = 60, LONG_ROUNDS = 10000 };

typedef enum fill { BYTES, SCALES, SMALL, GROUPS, POWERS, STATE } fill;

typedef struct tensor {
    const char *suffix; /* after the layer's name; NULL: there is none */
    const char *type;
    fill with;
    int n_dims;
    int64_t dims[4];
    bool may_miss; /* or say anything */
} tensor;

/* One layer, [64, 256], in a form. The first tensor holds the codes. */
typedef struct form {
    const char *name, *config;
    tensor tensors[7];
} form;

#define BNB_CONFIG "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}"
#define FP8_CONFIG "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}"
#define CT(settings)                                                                                         \
    "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"weights\":{" settings "}}}}"
#define BNB_STATE  ".weight.quant_state.bitsandbytes__nf4"
#define INNER      ",\"nested_blocksize\":256,\"nested_offset\":0.04}"
#define STATE_TEXT "{\"quant_type\":\"nf4\",\"blocksize\":64" INNER

static const form forms[] = {
    {"gptq",
     "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":64}",
     {{".qweight", "I32", BYTES, 2, {32, 64}, 0},
      {".qzeros", "I32", BYTES, 2, {4, 8}, 0},
      {".scales", "F16", SCALES, 2, {4, 64}, 0},
      {".g_idx", "I32", GROUPS, 1, {256}, 1}}},
    {"gptq of 3 bits",
     "{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":100,\"checkpoint_format\":\"gptq_v2\"}",
     {{".qweight", "I32", BYTES, 2, {24, 64}, 0},
      {".qzeros", "I32", BYTES, 2, {3, 6}, 0},
      {".scales", "F32", SCALES, 2, {3, 64}, 0}}},
    {"awq",
     "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32}",
     {{".qweight", "I32", BYTES, 2, {256, 8}, 0},
      {".qzeros", "I32", BYTES, 2, {8, 8}, 0},
      {".scales", "F16", SCALES, 2, {8, 64}, 0}}},
    {"pack-quantized",
     CT("\"group_size\":64"),
     {{".weight_packed", "I32", BYTES, 2, {64, 32}, 0},
      {".weight_scale", "BF16", SCALES, 2, {64, 4}, 0},
      {".weight_zero_point", "I32", BYTES, 2, {8, 4}, 1},
      {".weight_g_idx", "I32", GROUPS, 1, {256}, 1},
      {".weight_shape", "I64", SMALL, 1, {2}, 1}}},
    {"pack-quantized of 3 bits",
     CT("\"group_size\":null"),
     {{".weight_packed", "I32", BYTES, 2, {64, 26}, 0},
      {".weight_scale", "BF16", SCALES, 2, {64, 1}, 0},
      {".weight_zero_point", "I32", BYTES, 2, {7, 1}, 1}}},
    {"nvfp4-pack-quantized",
     CT("\"group_size\":16"),
     {{".weight_packed", "U8", BYTES, 2, {64, 128}, 0},
      {".weight_scale", "F8_E4M3", POWERS, 2, {64, 16}, 0},
      {".weight_global_scale", "F32", SCALES, 1, {1}, 0},
      {".input_global_scale", "F32", SCALES, 1, {1}, 1}}},
    {"mxfp4-pack-quantized",
     CT("\"group_size\":32"),
     {{".weight_packed", "U8", BYTES, 2, {64, 128}, 0}, {".weight_scale", "U8", POWERS, 2, {64, 8}, 0}}},
    {"modelopt",
     "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}",
     {{".weight", "U8", BYTES, 2, {64, 128}, 0},
      {".weight_scale", "F8_E4M3", POWERS, 2, {64, 16}, 0},
      {".weight_scale_2", "F32", SCALES, 0, {0}, 0},
      {".input_scale", "F32", SCALES, 0, {0}, 1}}},
    {"fp8 with a scale",
     CT("\"group_size\":null"),
     {{".weight", "F8_E4M3", POWERS, 2, {64, 256}, 0},
      {".weight_scale", "F32", SCALES, 1, {1}, 0},
      {".input_scale", "F32", SCALES, 1, {1}, 1}}},
    {"fp8 with a scale a row",
     CT("\"group_size\":null"),
     {{".weight", "F8_E4M3", POWERS, 2, {64, 256}, 0}, {".weight_scale", "BF16", SCALES, 2, {64, 1}, 0}}},
    {"fp8 in blocks",
     FP8_CONFIG,
     {{".weight", "F8_E4M3", POWERS, 2, {64, 256}, 0}, {".weight_scale_inv", "F32", SCALES, 2, {1, 2}, 0}}},
    {"mxfp8",
     CT("\"group_size\":32"),
     {{".weight", "F8_E4M3", POWERS, 2, {64, 256}, 0}, {".weight_scale", "U8", POWERS, 2, {64, 8}, 0}}},
    {"nf4",
     BNB_CONFIG,
     {{".weight", "U8", BYTES, 2, {8192, 1}, 0},
      {".weight.absmax", "F32", SCALES, 1, {256}, 0},
      {".weight.quant_map", "F32", SCALES, 1, {16}, 0},
      {BNB_STATE, "U8", STATE, 1, {sizeof STATE_TEXT - 1}, 0}}},
    {"nf4, double",
     BNB_CONFIG,
     {{".weight", "U8", BYTES, 2, {8192, 1}, 0},
      {".weight.absmax", "U8", BYTES, 1, {256}, 0},
      {".weight.quant_map", "F32", SCALES, 1, {16}, 0},
      {BNB_STATE, "U8", STATE, 1, {sizeof STATE_TEXT - 1}, 0},
      {".weight.nested_absmax", "F32", SCALES, 1, {1}, 0},
      {".weight.nested_quant_map", "F32", SCALES, 1, {256}, 0}}},
    {"mxfp4, stacked",
     "{\"quant_method\":\"mxfp4\"}",
     {{"_blocks", "U8", BYTES, 4, {EXPERTS, 64, 8, 16}, 0},
      {"_scales", "U8", POWERS, 3, {EXPERTS, 64, 8}, 0}}},
    {"fp8, stacked",
     "{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}",
     {{"", "F8_E4M3", POWERS, 3, {EXPERTS, 256, 64}, 0},
      {"_weight_scale", "F32", SCALES, 0, {0}, 0},
      {"_input_scale", "F32", SCALES, 0, {0}, 1}}},
    {"nvfp4, stacked",
     "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}",
     {{"", "U8", BYTES, 3, {EXPERTS, 128, 64}, 0},
      {"_weight_scale", "F8_E4M3", POWERS, 3, {EXPERTS, 16, 64}, 0},
      {"_weight_scale_2", "F32", SCALES, 0, {0}, 0},
      {"_input_scale", "F32", SCALES, 0, {0}, 1}}},
    {"pack-quantized of 7 bits, each in full",
     CT("\"num_bits\":7,\"group_size\":64"),
     {{".weight_packed", "I32", BYTES, 2, {64, 56}, 0},
      {".weight_scale", "BF16", SCALES, 2, {64, 4}, 0},
      {".weight_zero_point", "I32", BYTES, 2, {14, 4}, 1}}},
    {"int8 in groups",
     CT("\"num_bits\":8,\"group_size\":64"),
     {{".weight", "I8", BYTES, 2, {64, 256}, 0},
      {".weight_scale", "BF16", SCALES, 2, {64, 4}, 0},
      {".weight_zero_point", "I8", BYTES, 2, {64, 4}, 1}}},
    {"int8 with a scale",
     CT("\"num_bits\":8,\"group_size\":null"),
     {{".weight", "I8", BYTES, 2, {64, 256}, 0},
      {".weight_scale", "F32", SCALES, 1, {1}, 0},
      {".input_scale", "F32", SCALES, 1, {1}, 1},
      {".input_zero_point", "I8", BYTES, 1, {1}, 1}}},
    {"int8 of bitsandbytes",
     "{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}",
     {{".weight", "I8", BYTES, 2, {64, 256}, 0},
      {".SCB", "F32", SCALES, 1, {64}, 0},
      {".weight_format", "U8", BYTES, 0, {0}, 1}}},
};

enum { N_FORMS = sizeof forms / sizeof *forms };

/* ---- files ---- */

/* A tensor of the file, and its bytes. */
typedef struct piece {
    char name[96];
    tensor t;
    strbuf bytes;
} piece;

typedef struct checkpoint {
    char config[1200], quantisation[600];
    const form *form;
    piece pieces[MOST_TENSORS];
    int n, first; /* the first of the layer that is quantised */
} checkpoint;

static size_t bytes_of_type(const char *type) {
    static const struct {
        const char *type;
        size_t n;
    } sizes[] = {{"F64", 8},  {"I64", 8}, {"F32", 4}, {"I32", 4},     {"F16", 2},
                 {"BF16", 2}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E8M0", 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(type, sizes[i].type) == 0) {
            return sizes[i].n;
        }
    }
    fail_msg("no size of type %s", type);
    return 0;
}

static size_t n_elements(const tensor *t) {
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) {
        n *= (size_t)t->dims[i];
    }
    return n;
}

static void put_scale(strbuf *b, const char *type, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t half = strcmp(type, "F16") == 0 ? 0x2000 : (uint16_t)(bits >> 16); /* 2^-7 */
    if (strcmp(type, "F32") == 0) {
        put_f32(b, value);
    } else {
        put(b, &half, sizeof half);
    }
}

static void fill_piece(piece *p, uint64_t *seed) {
    size_t n = n_elements(&p->t);
    strbuf_deinit(&p->bytes);
    if (p->t.with == STATE) {
        put(&p->bytes, STATE_TEXT, strlen(STATE_TEXT));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t random[8];
        uint64_t word = rng_next(seed), shape = i == 0 ? WIDTH : FF;
        memcpy(random, &word, sizeof random);
        switch (p->t.with) {
        case SCALES:
            put_scale(&p->bytes, p->t.type, ((float)(word % 2000) - 900.0f) * 1e-5f);
            break;
        case SMALL:
            put_u64(&p->bytes, shape);
            break;
        case GROUPS:
            put_u32(&p->bytes, (uint32_t)(word % 4));
            break;
        case POWERS: /* of a scale in E8M0, or numbers about 1 in E4M3 */
            put(&p->bytes,
                &(uint8_t){strcmp(p->t.type, "U8") == 0 ? (uint8_t)(112 + word % 8)
                                                        : (uint8_t)(0x30 + word % 16)},
                1);
            break;
        default:
            put(&p->bytes, random, bytes_of_type(p->t.type));
        }
    }
}

static piece *add_piece(checkpoint *c, const char *name, tensor t, uint64_t *seed) {
    assert_true(c->n < MOST_TENSORS);
    piece *p = &c->pieces[c->n++];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->t = t;
    fill_piece(p, seed);
    return p;
}

static void add_floats(checkpoint *c, const char *name, int64_t rows, int64_t columns, uint64_t *seed) {
    (void)add_piece(c, name, (tensor){NULL, "F32", SCALES, columns > 0 ? 2 : 1, {rows, columns}, false},
                    seed);
}

static void add_attention(checkpoint *c, uint64_t *seed) {
    static const char *const names[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s.weight", names[i]);
        add_floats(c, name, WIDTH, WIDTH, seed);
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s.bias", names[i]);
        add_floats(c, name, WIDTH, 0, seed);
    }
    add_floats(c, "model.embed_tokens.weight", VOCAB, WIDTH, seed);
    add_floats(c, "lm_head.weight", VOCAB, WIDTH, seed);
    add_floats(c, "model.norm.weight", WIDTH, 0, seed);
    add_floats(c, "model.layers.0.input_layernorm.weight", WIDTH, 0, seed);
    add_floats(c, "model.layers.0.post_attention_layernorm.weight", WIDTH, 0, seed);
}

#define CONFIG                                                                                               \
    "{\"architectures\":[\"%sForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_"     \
    "heads\":2,\"num_key_value_heads\":"                                                                     \
    "2,"                                                                                                     \
    "\"head_dim\":32,\"intermediate_size\":256,\"vocab_size\":32,\"max_position_embeddings\":64,\"rms_norm_" \
    "eps\":1e-5,"                                                                                            \
    "\"attention_bias\":true,\"tie_word_embeddings\":false,"
#define STACKED_CONFIG                                                                                       \
    "\"num_local_experts\":2,\"num_experts_per_tok\":1,\"sliding_window\":8,\"layer_types\":[\"full_"        \
    "attention\"],\"swiglu_limit\":7.0,"                                                                     \
    "\"rope_theta\":10000.0,\"hidden_act\":\"silu\","

/* A model of one layer whose last matrix has the form. */
static checkpoint *checkpoint_new(const form *f) {
    checkpoint *c = calloc(1, sizeof *c);
    uint64_t seed = 5;
    bool stacked = f->tensors[0].suffix[0] != '.';
    const char *ff = stacked ? "model.layers.0.mlp.experts." : "model.layers.0.mlp.";
    assert_non_null(c);
    c->form = f;
    snprintf(c->quantisation, sizeof c->quantisation, "%s", f->config);
    snprintf(c->config, sizeof c->config, CONFIG "%s\"quantization_config\":", stacked ? "GptOss" : "Llama",
             stacked ? STACKED_CONFIG : "");
    add_attention(c, &seed);
    if (stacked) {
        add_floats(c, "model.layers.0.self_attn.sinks", 2, 0, &seed);
        add_floats(c, "model.layers.0.mlp.router.weight", EXPERTS, WIDTH, &seed);
        add_floats(c, "model.layers.0.mlp.router.bias", EXPERTS, 0, &seed);
        (void)add_piece(c, "model.layers.0.mlp.experts.gate_up_proj",
                        (tensor){NULL, "F32", SCALES, 3, {EXPERTS, WIDTH, 2 * (int64_t)FF}, false}, &seed);
        add_floats(c, "model.layers.0.mlp.experts.gate_up_proj_bias", EXPERTS, 2 * (int64_t)FF, &seed);
        add_floats(c, "model.layers.0.mlp.experts.down_proj_bias", EXPERTS, WIDTH, &seed);
    } else {
        add_floats(c, "model.layers.0.mlp.gate_proj.weight", FF, WIDTH, &seed);
        add_floats(c, "model.layers.0.mlp.up_proj.weight", FF, WIDTH, &seed);
    }
    c->first = c->n;
    for (const tensor *t = f->tensors; t->suffix != NULL; t++) {
        char name[96];
        snprintf(name, sizeof name, "%sdown_proj%s", ff, t->suffix);
        (void)add_piece(c, name, *t, &seed);
    }
    return c;
}

static void checkpoint_free(checkpoint *c) {
    for (int i = 0; i < MOST_TENSORS; i++) {
        strbuf_deinit(&c->pieces[i].bytes);
    }
    free(c);
}

static piece *piece_of(checkpoint *c, const char *suffix) {
    for (int i = c->first; i < c->n; i++) {
        if (c->pieces[i].t.suffix != NULL && strcmp(c->pieces[i].t.suffix, suffix) == 0) {
            return &c->pieces[i];
        }
    }
    fail_msg("%s: no tensor %s", c->form->name, suffix);
    return NULL;
}

/* The safetensors file. Bytes are as many as the type and shape say: cut, or repeated
 * from the beginning. */
static strbuf checkpoint_weights(const checkpoint *c) {
    strbuf header = {0}, body = {0}, out = {0};
    put(&header, "{", 1);
    for (int i = 0; i < c->n; i++) {
        const piece *p = &c->pieces[i];
        char text[320];
        size_t at = body.n, n = n_elements(&p->t) * bytes_of_type(p->t.type);
        for (size_t left = n; left > 0 && p->bytes.n > 0;) {
            size_t step = left < p->bytes.n ? left : p->bytes.n;
            put(&body, p->bytes.p, step);
            left -= step;
        }
        int used = snprintf(text, sizeof text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i > 0 ? "," : "",
                            p->name, p->t.type);
        for (int d = 0; d < p->t.n_dims; d++) {
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%lld", d > 0 ? "," : "",
                             (long long)p->t.dims[d]);
        }
        used +=
            snprintf(text + used, sizeof text - (size_t)used, "],\"data_offsets\":[%zu,%zu]}", at, body.n);
        put(&header, text, (size_t)used);
    }
    put(&header, "}", 1);
    while (header.n % 8 != 0) {
        put(&header, " ", 1);
    }
    put_u64(&out, header.n);
    put(&out, header.p, header.n);
    put(&out, body.p, body.n);
    strbuf_deinit(&header);
    strbuf_deinit(&body);
    return out;
}

static const char *const files[] = {"config.json", "model.safetensors", NULL};
static temp_dir dir;

/* Writes and runs it. True: it computes. Else why has the refusal, which names the
 * file. */
static bool runs_bytes(const checkpoint *c, const strbuf *weights, compute_mode compute, float **logits,
                       quire_error *why) {
    char config[sizeof c->config + sizeof c->quantisation + 2];
    size_t n;
    snprintf(config, sizeof config, "%s%s}", c->config, c->quantisation);
    write_text(&dir, "config.json", config);
    write_file(temp_path(&dir, "model.safetensors"), weights->p, weights->n);
    float *out = golden_run(dir.path, compute, &n, why);
    if (out == NULL && (why->code == QUIRE_OK || strstr(why->message, dir.path) == NULL ||
                        strlen(why->message) < strlen(dir.path) + 10)) {
        fail_msg("%s: refused without a reason: %s", c->form->name, why->message);
    }
    if (logits != NULL) {
        *logits = out;
    } else {
        mem_free(out);
    }
    return out != NULL;
}

static bool runs(const checkpoint *c, quire_error *why) {
    strbuf weights = checkpoint_weights(c);
    bool ok = runs_bytes(c, &weights, COMPUTE_F32, NULL, why);
    strbuf_deinit(&weights);
    return ok;
}

/* It must be refused, with the name of the layer. */
static void assert_refused(const checkpoint *c, const char *what) {
    quire_error why;
    if (runs(c, &why)) {
        fail_msg("%s: %s: computed", c->form->name, what);
    }
    if (strstr(why.message, "down_proj") == NULL) {
        fail_msg("%s: %s: refused without the layer's name: %s", c->form->name, what, why.message);
    }
}

/* ---- tests ---- */

TEST(every_form_computes) {
    for (int i = 0; i < N_FORMS; i++) {
        checkpoint *c = checkpoint_new(&forms[i]);
        strbuf weights = checkpoint_weights(c);
        for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
            quire_error why;
            float *logits;
            if (!runs_bytes(c, &weights, mode, &logits, &why)) {
                fail_msg("%s: %s", forms[i].name, why.message);
            }
            for (int k = 0; k < VOCAB; k++) {
                assert_true(isfinite(logits[k]));
            }
            mem_free(logits);
        }
        strbuf_deinit(&weights);
        checkpoint_free(c);
    }
}

TEST(a_missing_tensor_is_refused) {
    for (int i = 0; i < N_FORMS; i++) {
        for (int k = 0; forms[i].tensors[k].suffix != NULL; k++) {
            checkpoint *c = checkpoint_new(&forms[i]);
            piece *p = &c->pieces[c->first + k], last = c->pieces[c->n - 1];
            quire_error why;
            bool may_miss = p->t.may_miss;
            c->pieces[c->n - 1] = *p;
            *p = last;
            c->n--;
            if (may_miss) {
                (void)runs(c, &why);
            } else {
                assert_refused(c, forms[i].tensors[k].suffix);
            }
            checkpoint_free(c);
        }
    }
}

TEST(a_tensor_of_another_type_is_refused_or_read_as_one) {
    static const char *const types[] = {"F64",  "I64", "F32", "I32",     "F16",
                                        "BF16", "U8",  "I8",  "F8_E4M3", "F8_E8M0"};
    for (int i = 0; i < N_FORMS; i++) {
        for (int k = 0; forms[i].tensors[k].suffix != NULL; k++) {
            checkpoint *c = checkpoint_new(&forms[i]);
            piece *p = &c->pieces[c->first + k];
            const char *was = p->t.type;
            for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
                quire_error why;
                p->t.type = types[t];
                /* with a scale a row, or one, each is a form of its own */
                bool is_form = k == 0 && (strcmp(types[t], "I8") == 0 ||
                                          (strcmp(was, "I8") == 0 && strcmp(types[t], "F8_E4M3") == 0));
                if (strcmp(was, types[t]) != 0 && !is_form && (k == 0 || strcmp(types[t], "I64") == 0) &&
                    !p->t.may_miss) {
                    assert_refused(c, types[t]);
                } else {
                    (void)runs(c, &why);
                }
            }
            checkpoint_free(c);
        }
    }
}

TEST(scales_of_blocks_of_a_stack_by_inputs_are_refused) {
    for (int i = 0; i < N_FORMS; i++) {
        if (strcmp(forms[i].name, "fp8, stacked") == 0) {
            checkpoint *c = checkpoint_new(&forms[i]);
            tensor *scales = &c->pieces[c->first + 1].t;
            snprintf(c->quantisation, sizeof c->quantisation,
                     "{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\",\"weight_block_size\":[32,128]}");
            scales->n_dims = 3;
            scales->dims[0] = EXPERTS;
            scales->dims[1] = scales->dims[2] = 2;
            assert_refused(c, "scales of blocks");
            checkpoint_free(c);
        }
    }
}

TEST(a_wrong_dimension_is_refused) {
    for (int i = 0; i < N_FORMS; i++) {
        for (int k = 0; forms[i].tensors[k].suffix != NULL; k++) {
            for (int d = 0; d < forms[i].tensors[k].n_dims; d++) {
                checkpoint *c = checkpoint_new(&forms[i]);
                piece *p = &c->pieces[c->first + k];
                int64_t was = p->t.dims[d], wrong[] = {was + 1, was - 1, 2 * was, was / 2, 0};
                for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
                    quire_error why;
                    p->t.dims[d] = wrong[w];
                    if (k == 0 && !runs(c, &why) && strstr(why.message, "down_proj") != NULL) {
                        continue;
                    }
                    if (k == 0) {
                        fail_msg("%s: dimension %d of the codes is %lld: %s", forms[i].name, d,
                                 (long long)wrong[w], why.message);
                    }
                    (void)runs(c, &why); /* fewer scales may each stand for more */
                }
                p->t.dims[d] = was;
                if (p->t.n_dims < 4) {
                    p->t.dims[p->t.n_dims++] = 2;
                }
                quire_error why;
                (void)runs(c, &why);
                checkpoint_free(c);
            }
        }
    }
}

TEST(an_input_of_no_group_is_refused) {
    static const struct {
        int form;
        const char *suffix;
    } rows[] = {{0, ".g_idx"}, {3, ".weight_g_idx"}};
    static const int32_t groups[] = {4, -1, INT32_MAX, INT32_MIN, 1 << 20};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < sizeof groups / sizeof *groups; k++) {
            checkpoint *c = checkpoint_new(&forms[rows[i].form]);
            quire_error why;
            memcpy(piece_of(c, rows[i].suffix)->bytes.p + 4 * (k * 60), &groups[k], sizeof groups[k]);
            assert_false(runs(c, &why));
            assert_non_null(strstr(why.message, rows[i].suffix));
            checkpoint_free(c);
        }
    }
}

/* All bytes of each tensor of the layer at an extreme; and floats that are none. */
TEST(values_at_their_extremes_compute_or_are_refused) {
    static const uint8_t bytes[] = {0, 1, 0x7f, 0x80, 0xff};
    static const float floats[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, -1.0f, 3.4e38f, 1e-45f};
    for (int i = 0; i < N_FORMS; i++) {
        for (int k = 0; forms[i].tensors[k].suffix != NULL; k++) {
            checkpoint *c = checkpoint_new(&forms[i]);
            piece *p = &c->pieces[c->first + k];
            quire_error why;
            bool is_float = strcmp(p->t.type, "F32") == 0;
            for (size_t v = 0; v < sizeof bytes / sizeof *bytes; v++) {
                memset(p->bytes.p, bytes[v], p->bytes.n);
                bool ok = runs(c, &why);
                /* any code and any scale is a number, or NaN */
                assert_true(ok || p->t.may_miss || p->t.with == STATE);
            }
            for (size_t v = 0; v < sizeof floats / sizeof *floats && is_float; v++) {
                memcpy(p->bytes.p, &floats[v], sizeof floats[v]);
                assert_true(runs(c, &why));
            }
            checkpoint_free(c);
        }
    }
}

TEST(sizes_in_the_configuration_that_do_not_fit_are_refused) {
    static const char *const sizes[] = {
        "0",     "-1",     "7",    "1",  "300", "9223372036854775807", "-9223372036854775808",
        "1e300", "\"64\"", "null", "[]", "{}"};
    static const struct {
        int form;
        const char *pattern;
    } rows[] = {{0, "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":%s}"},
                {1, "{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":%s}"},
                {2, "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":%s}"},
                {3, CT("\"group_size\":%s")},
                {10, "{\"quant_method\":\"fp8\",\"weight_block_size\":[%s,128]}"},
                {10, "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,%s]}"},
                {10, "{\"quant_method\":\"fp8\",\"weight_block_size\":%s}"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        checkpoint *c = checkpoint_new(&forms[rows[i].form]);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            quire_error why;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(c->quantisation, sizeof c->quantisation, rows[i].pattern, sizes[k]);
#pragma GCC diagnostic pop
            bool ok = runs(c, &why);
            if (rows[i].form == 1) {
                assert_false(ok); /* three groups of 256 inputs: only the configuration can say how */
                assert_non_null(strstr(why.message, "256 inputs cannot be split into 3 equal groups"));
            }
        }
        checkpoint_free(c);
    }
}

TEST(a_state_of_bitsandbytes_is_checked) {
    static const char *const texts[] = {"",
                                        "null",
                                        "[]",
                                        "{}",
                                        "{\"blocksize\":0}",
                                        "{\"blocksize\":-64}",
                                        "{\"blocksize\":1e300}",
                                        "{\"blocksize\":NaN}",
                                        "{\"blocksize\":\"64\"}",
                                        "{\"blocksize\":9223372036854775807}",
                                        "{\"blocksize\":2147483648}",
                                        "{\"blocksize\":2147483647}",
                                        "{\"blocksize\":32}",
                                        "{\"blocksize\":64,\"nested_blocksize\":0}",
                                        "{\"blocksize\":64,\"nested_blocksize\":9223372036854775807}",
                                        "{\"blocksize\":64,\"nested_blocksize\":16}"};
    for (int i = 12; i <= 13; i++) {
        checkpoint *c = checkpoint_new(&forms[i]);
        piece *p = piece_of(c, BNB_STATE);
        quire_error why;
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            strbuf_deinit(&p->bytes);
            put(&p->bytes, texts[k], strlen(texts[k]));
            p->t.dims[0] = (int64_t)strlen(texts[k]);
            bool nested = strstr(texts[k], "nested") != NULL;
            assert_true(!runs(c, &why) || (nested && i == 12 && strstr(texts[k], ":16") != NULL));
        }
        for (size_t n = strlen(STATE_TEXT); n-- > 0;) {
            strbuf_deinit(&p->bytes);
            put(&p->bytes, STATE_TEXT, n);
            p->t.dims[0] = (int64_t)n;
            assert_refused(c, "cut state");
        }
        static const char *const offsets[] = {"1e300", "\"0\"", "{}", "true", "[0]"};
        for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++) {
            char text[128];
            p->t.dims[0] = snprintf(text, sizeof text, "{\"blocksize\":64,\"nested_offset\":%s}", offsets[k]);
            strbuf_deinit(&p->bytes);
            put(&p->bytes, text, strlen(text));
            if (runs(c, &why) || strstr(why.message, "nested_offset") == NULL) {
                fail_msg("nested_offset %s: \"%s\"", offsets[k], why.message);
            }
        }
        checkpoint_free(c);
    }
}

TEST(random_changes_are_refused_or_compute) {
    uint64_t seed = test_seed("mutated quantised checkpoints");
    int rounds = getenv("QUIRE_TEST_LONG") != NULL ? LONG_ROUNDS : ROUNDS, n_computed = 0;
    for (int i = 0; i < N_FORMS; i++) {
        checkpoint *c = checkpoint_new(&forms[i]);
        strbuf weights = checkpoint_weights(c), changed = {0};
        uint64_t n_header;
        size_t at = weights.n;
        memcpy(&n_header, weights.p, sizeof n_header);
        for (int k = c->first; k < c->n; k++) {
            at -= n_elements(&c->pieces[k].t) * bytes_of_type(c->pieces[k].t.type);
        }
        for (int round = 0; round < rounds; round++) {
            quire_error why;
            changed.n = 0;
            put(&changed, weights.p, weights.n);
            if (round % 2 == 0) { /* the header's entries of the layer come last */
                size_t from = 8 + (size_t)n_header - (size_t)n_header / 4;
                mutate((uint8_t *)changed.p + from, 8 + (size_t)n_header - from, &seed);
            } else {
                mutate((uint8_t *)changed.p + at, changed.n - at, &seed);
            }
            n_computed +=
                runs_bytes(c, &changed, (compute_mode)(COMPUTE_F32 + rng_next(&seed) % 3), NULL, &why);
        }
        strbuf_deinit(&weights);
        strbuf_deinit(&changed);
        checkpoint_free(c);
    }
    print_message("%d of %d computed, the others were refused\n", n_computed, rounds * N_FORMS);
    assert_true(n_computed > rounds * N_FORMS / 10);
}

static int setup(void **state) {
    (void)state;
    dir = temp_new();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    temp_delete(&dir, files);
    return 0;
}

TEST_MAIN(setup, teardown)
