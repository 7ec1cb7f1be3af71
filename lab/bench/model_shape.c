#define _GNU_SOURCE

#include "lab/bench/model_shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/size.h"
#include "base/str.h"
#include "core/half.h"
#include "core/quant.h"
#include "setup/pool_plan.h"

quire_compute speed_type_compute(const speed_type *t) {
    return (quire_compute)((int)t->compute + (int)QUIRE_COMPUTE_F32);
}

const speed_type speed_types[N_SPEED_TYPES] = {
    {"q4_0", DTYPE_Q4_0, COMPUTE_INT8, DTYPE_Q4_0}, {"q8_0", DTYPE_Q8_0, COMPUTE_INT8, DTYPE_Q8_0},
    {"q4_k", DTYPE_Q4_K, COMPUTE_INT8, DTYPE_Q4_K}, {"mxfp4", DTYPE_MXFP4, COMPUTE_INT8, DTYPE_MXFP4},
    {"int8", DTYPE_BF16, COMPUTE_INT8, DTYPE_I8},   {"bf16", DTYPE_BF16, COMPUTE_BF16, DTYPE_BF16},
    {"f32", DTYPE_F32, COMPUTE_F32, DTYPE_F32},
};

const speed_type *speed_type_find(const char *name, size_t n) {
    for (int i = 0; i < N_SPEED_TYPES; i++) {
        if (strlen(speed_types[i].name) == n && memcmp(speed_types[i].name, name, n) == 0) {
            return &speed_types[i];
        }
    }
    return NULL;
}

int64_t shape_layer_weights(const llama_shape *s) {
    int64_t q = (int64_t)s->n_heads * s->d_head, kv = (int64_t)s->n_kv_heads * s->d_head;
    return s->n_layers * s->d_model * (2 * q + 2 * kv + 3 * (int64_t)s->d_ff);
}

int64_t shape_head_weights(const llama_shape *s) {
    return (int64_t)s->d_model * s->n_vocab;
}

double shape_prompt_operations(const llama_shape *s, int32_t n) {
    return 2.0 * ((double)shape_layer_weights(s) * n + (double)shape_head_weights(s));
}

double shape_token_operations(const llama_shape *s) {
    return 2.0 * (double)(shape_layer_weights(s) + shape_head_weights(s));
}

double shape_weight_bytes(const llama_shape *s, const speed_type *t) {
    return (double)(shape_layer_weights(s) + shape_head_weights(s)) * dtype_block_bytes(t->published) /
           dtype_block_elements(t->published);
}

double shape_kv_bytes(const llama_shape *s, dtype kv) {
    return 2.0 * s->n_layers * s->n_kv_heads * s->d_head * dtype_block_bytes(kv);
}

/* Whether t stores unsigned codes of at most four bits, with any offset. */
static bool shape_is_small(dtype t) {
    return t == DTYPE_Q4_0 || t == DTYPE_Q4_1 || t == DTYPE_Q4_K || t == DTYPE_Q3_K || t == DTYPE_Q2_K;
}

double products_peak(const roofline *r, compute_mode compute, dtype weights, const char **by) {
    if (compute != COMPUTE_INT8) {
        *by = compute == COMPUTE_BF16 ? "bf16" : "f32";
        return compute == COMPUTE_BF16 ? r->bf16.best : r->f32.best;
    }
    *by = shape_is_small(weights) ? "int8 by 4 bits" : "int8";
    return shape_is_small(weights) ? r->int8_small.best : r->int8.best;
}

static speed_limit shape_lower(double bytes_bound, double operations_bound, const char *by) {
    return bytes_bound < operations_bound ? (speed_limit){bytes_bound, "bytes"}
                                          : (speed_limit){operations_bound, by};
}

speed_limit shape_prefill_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t n) {
    const char *by;
    double peak = products_peak(r, t->compute, t->published, &by);
    return shape_lower(n * r->read.best / shape_weight_bytes(s, t), n * peak / shape_prompt_operations(s, n),
                       by);
}

speed_limit shape_decode_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t n_seqs,
                               double context, dtype kv) {
    const char *by;
    double peak = products_peak(r, t->compute, t->published, &by);
    return shape_lower(n_seqs * r->read.best /
                           (shape_weight_bytes(s, t) + n_seqs * context * shape_kv_bytes(s, kv)),
                       peak / shape_token_operations(s), by);
}

double shape_pace_at(const shape_pace *p, double intensity) {
    int32_t last = p->n - 1;
    if (intensity >= p->intensity[last]) {
        return p->us_per_byte[last] * intensity / p->intensity[last];
    }
    for (int32_t i = last; i > 0; i--) {
        if (intensity >= p->intensity[i - 1]) {
            double part = (intensity - p->intensity[i - 1]) / (p->intensity[i] - p->intensity[i - 1]);
            return p->us_per_byte[i - 1] + part * (p->us_per_byte[i] - p->us_per_byte[i - 1]);
        }
    }
    return p->us_per_byte[0];
}

/* ---- keys ---- */

#define KEYS(list, ...) static const shape_key list[] = {__VA_ARGS__, {.name = NULL}}
#define SIZED(key, which)                                                                                    \
    { key, .size = which }
#define REAL(key, value)                                                                                     \
    { key, .real = value }
#define TEXTUAL(key, is)                                                                                     \
    { key, .text = is }

KEYS(common_keys, SIZED("context_length", SIZE_POSITIONS), SIZED("embedding_length", SIZE_MODEL),
     SIZED("block_count", SIZE_LAYERS), SIZED("feed_forward_length", SIZE_FF),
     SIZED("attention.head_count", SIZE_HEADS), SIZED("attention.head_count_kv", SIZE_KV_HEADS),
     SIZED("vocab_size", SIZE_VOCABULARY));
KEYS(decoder_keys, SIZED("attention.key_length", SIZE_HEAD), SIZED("attention.value_length", SIZE_HEAD),
     REAL("attention.layer_norm_rms_epsilon", 1e-5f));
KEYS(llama_keys, SIZED("rope.dimension_count", SIZE_HEAD), REAL("rope.freq_base", 1e4f));
KEYS(million_keys, SIZED("rope.dimension_count", SIZE_HEAD), REAL("rope.freq_base", 1e6f));
KEYS(expert_keys, SIZED("expert_count", SIZE_EXPERTS), SIZED("expert_used_count", SIZE_USED));
KEYS(gemma3_keys, SIZED("attention.sliding_window", SIZE_WINDOW), REAL("rope.freq_base", 1e6f),
     REAL("rope.freq_base_swa", 1e4f));
KEYS(gpt_oss_keys, SIZED("attention.sliding_window", SIZE_WINDOW),
     SIZED("expert_feed_forward_length", SIZE_FF), REAL("rope.freq_base", 150000.0f),
     TEXTUAL("rope.scaling.type", "yarn"), REAL("rope.scaling.factor", 32.0f),
     SIZED("rope.scaling.original_context_length", SIZE_TRAINED), REAL("rope.scaling.yarn_beta_fast", 32.0f),
     REAL("rope.scaling.yarn_beta_slow", 1.0f));
KEYS(bert_keys, REAL("attention.layer_norm_epsilon", 1e-12f));

/* ---- tensors ---- */

/* Lists of tensors. WHOLE: one for the model; LAYER: one per layer; _F32: always F32. */
#define TENSORS(list, ...) static const shape_tensor list[] = {__VA_ARGS__, {.name = NULL}}
#define TENSOR(of, is_f32, ...)                                                                              \
    { of, {__VA_ARGS__}, is_f32 }
#define WHOLE(of, ...)     TENSOR(of, false, __VA_ARGS__)
#define LAYER(of, ...)     TENSOR("blk.%d." of, false, __VA_ARGS__)
#define WHOLE_F32(of, ...) TENSOR(of, true, __VA_ARGS__)
#define LAYER_F32(of, ...) TENSOR("blk.%d." of, true, __VA_ARGS__)

TENSORS(token_tensors, WHOLE("token_embd.weight", SIZE_VOCABULARY, SIZE_MODEL),
        WHOLE("output_norm.weight", SIZE_MODEL));
TENSORS(head_tensors, WHOLE("output.weight", SIZE_VOCABULARY, SIZE_MODEL));
TENSORS(attention_tensors, LAYER("attn_norm.weight", SIZE_MODEL),
        LAYER("attn_q.weight", SIZE_QUERIES, SIZE_MODEL), LAYER("attn_k.weight", SIZE_KEYS, SIZE_MODEL),
        LAYER("attn_v.weight", SIZE_KEYS, SIZE_MODEL), LAYER("attn_output.weight", SIZE_MODEL, SIZE_QUERIES));
TENSORS(gated_tensors, LAYER("ffn_norm.weight", SIZE_MODEL), LAYER("ffn_gate.weight", SIZE_FF, SIZE_MODEL),
        LAYER("ffn_up.weight", SIZE_FF, SIZE_MODEL), LAYER("ffn_down.weight", SIZE_MODEL, SIZE_FF));
TENSORS(expert_tensors, LAYER_F32("ffn_gate_inp.weight", SIZE_EXPERTS, SIZE_MODEL),
        LAYER("ffn_gate_exps.weight", SIZE_EXPERTS, SIZE_FF, SIZE_MODEL),
        LAYER("ffn_up_exps.weight", SIZE_EXPERTS, SIZE_FF, SIZE_MODEL),
        LAYER("ffn_down_exps.weight", SIZE_EXPERTS, SIZE_MODEL, SIZE_FF));
TENSORS(mixtral_tensors, LAYER("ffn_norm.weight", SIZE_MODEL));
TENSORS(qk_norm_tensors, LAYER("attn_q_norm.weight", SIZE_HEAD), LAYER("attn_k_norm.weight", SIZE_HEAD));
TENSORS(gemma3_tensors, LAYER("attn_q_norm.weight", SIZE_HEAD), LAYER("attn_k_norm.weight", SIZE_HEAD),
        LAYER("post_attention_norm.weight", SIZE_MODEL), LAYER("post_ffw_norm.weight", SIZE_MODEL));
TENSORS(gpt_oss_tensors, LAYER("post_attention_norm.weight", SIZE_MODEL), LAYER("attn_q.bias", SIZE_QUERIES),
        LAYER("attn_k.bias", SIZE_KEYS), LAYER("attn_v.bias", SIZE_KEYS),
        LAYER("attn_output.bias", SIZE_MODEL), LAYER("attn_sinks.weight", SIZE_HEADS),
        LAYER("ffn_gate_inp.bias", SIZE_EXPERTS), LAYER_F32("ffn_gate_exps.bias", SIZE_EXPERTS, SIZE_FF),
        LAYER_F32("ffn_up_exps.bias", SIZE_EXPERTS, SIZE_FF),
        LAYER_F32("ffn_down_exps.bias", SIZE_EXPERTS, SIZE_MODEL));
TENSORS(bert_tensors, WHOLE("token_embd.weight", SIZE_VOCABULARY, SIZE_MODEL),
        WHOLE_F32("position_embd.weight", SIZE_POSITIONS, SIZE_MODEL),
        WHOLE_F32("token_types.weight", SIZE_TYPES, SIZE_MODEL), WHOLE("token_embd_norm.weight", SIZE_MODEL),
        WHOLE("token_embd_norm.bias", SIZE_MODEL), LAYER("attn_q.weight", SIZE_QUERIES, SIZE_MODEL),
        LAYER("attn_q.bias", SIZE_QUERIES), LAYER("attn_k.weight", SIZE_KEYS, SIZE_MODEL),
        LAYER("attn_k.bias", SIZE_KEYS), LAYER("attn_v.weight", SIZE_KEYS, SIZE_MODEL),
        LAYER("attn_v.bias", SIZE_KEYS), LAYER("attn_output.weight", SIZE_MODEL, SIZE_QUERIES),
        LAYER("attn_output.bias", SIZE_MODEL), LAYER("attn_output_norm.weight", SIZE_MODEL),
        LAYER("attn_output_norm.bias", SIZE_MODEL), LAYER("ffn_up.weight", SIZE_FF, SIZE_MODEL),
        LAYER("ffn_up.bias", SIZE_FF), LAYER("ffn_down.weight", SIZE_MODEL, SIZE_FF),
        LAYER("ffn_down.bias", SIZE_MODEL), LAYER("layer_output_norm.weight", SIZE_MODEL),
        LAYER("layer_output_norm.bias", SIZE_MODEL));

/* ---- architectures ---- */

static const shape_form llama = {.architecture = "llama",
                                 .keys = {common_keys, decoder_keys, llama_keys},
                                 .tensors = {token_tensors, head_tensors, attention_tensors, gated_tensors}};
static const shape_form qwen3 = {
    .architecture = "qwen3",
    .keys = {common_keys, decoder_keys, million_keys},
    .tensors = {token_tensors, attention_tensors, qk_norm_tensors, gated_tensors}};
static const shape_form gemma3 = {
    .architecture = "gemma3",
    .keys = {common_keys, decoder_keys, gemma3_keys},
    .tensors = {token_tensors, attention_tensors, gated_tensors, gemma3_tensors}};
static const shape_form mixtral = {
    .architecture = "llama",
    .keys = {common_keys, decoder_keys, million_keys, expert_keys},
    .tensors = {token_tensors, head_tensors, attention_tensors, mixtral_tensors, expert_tensors}};
static const shape_form gpt_oss = {
    .architecture = "gpt-oss",
    .keys = {common_keys, decoder_keys, gpt_oss_keys, expert_keys},
    .tensors = {token_tensors, head_tensors, attention_tensors, expert_tensors, gpt_oss_tensors}};
static const shape_form bert = {
    .architecture = "bert", .keys = {common_keys, bert_keys}, .tensors = {bert_tensors}, .no_tokens = true};

/* ---- shapes ---- */

/* In the order of shape_size: layers, width, heads, KV heads, head, feed-forward,
 * vocabulary, positions, trained positions, window, experts, experts used, token
 * types. */
#define SIZES(...) 0, __VA_ARGS__

const model_shape model_shapes[N_MODEL_SHAPES] = {
    {"1.1b", "1.1 billion parameters, as TinyLlama", &llama, {SIZES(22, 2048, 32, 4, 64, 5632, 32000, 2048)}},
    {"qwen3-0.6b", "Qwen3 0.6B", &qwen3, {SIZES(28, 1024, 16, 8, 128, 3072, 151936, 40960)}},
    {"gemma-3-1b", "Gemma 3 1B", &gemma3, {SIZES(26, 1152, 4, 1, 256, 6912, 262144, 32768, 0, 512)}},
    {"mixtral",
     "Mixtral 8x7B: 2 of 32 layers, a 16th of the vocabulary",
     &mixtral,
     {SIZES(2, 4096, 32, 8, 128, 14336, 2000, 32768, 0, 0, 8, 2)}},
    {"gpt-oss",
     "gpt-oss 20B: 4 of 24 layers, a 6th of the vocabulary",
     &gpt_oss,
     {SIZES(4, 2880, 64, 8, 64, 2880, 33515, 131072, 4096, 128, 32, 4)}},
    {"bert-base", "BERT base", &bert, {SIZES(12, 768, 12, 12, 64, 3072, 30522, 512, 0, 0, 0, 0, 2)}}};

const model_shape model_shape_builtin = {"builtin",
                                         "the built-in model, with room for long contexts",
                                         &llama,
                                         {SIZES(6, 192, 6, 2, 32, 512, 2048, 131072)}};

const model_shape *model_shape_find(const char *name, size_t n) {
    for (int32_t i = 0; i < N_MODEL_SHAPES; i++) {
        if (strlen(model_shapes[i].name) == n && memcmp(model_shapes[i].name, name, n) == 0) {
            return &model_shapes[i];
        }
    }
    return NULL;
}

/* Like model_shape_find; INVALID names the flag's value and the shapes that exist. */
static quire_err model_shape_parse(const char *flag, const char *name, const model_shape **out,
                                   quire_error *err) {
    *out = model_shape_find(name, strlen(name));
    return *out != NULL ? QUIRE_OK
                        : err_set(err, QUIRE_INVALID, -1, "%s %s: must be one of " MODEL_SHAPES, flag, name);
}

model_shape model_shape_small(const model_shape *s) {
    static const int32_t small[N_GIVEN_SIZES] = {
        [SIZE_LAYERS] = 7, /* one more than six: Gemma's sixth layer has no window */
        [SIZE_MODEL] = 256, [SIZE_HEADS] = 4,        [SIZE_KV_HEADS] = 2,     [SIZE_HEAD] = 64,
        [SIZE_FF] = 256,    [SIZE_VOCABULARY] = 512, [SIZE_POSITIONS] = 2048, [SIZE_TRAINED] = 64,
        [SIZE_WINDOW] = 16, [SIZE_EXPERTS] = 4,      [SIZE_USED] = 2,         [SIZE_TYPES] = 2};
    model_shape out = *s;
    for (int i = 0; i < N_GIVEN_SIZES; i++) {
        out.sizes[i] = s->sizes[i] < small[i] ? s->sizes[i] : small[i];
    }
    out.sizes[SIZE_KV_HEADS] =
        s->sizes[SIZE_KV_HEADS] == s->sizes[SIZE_HEADS] ? out.sizes[SIZE_HEADS] : out.sizes[SIZE_KV_HEADS];
    return out;
}

static int32_t model_shape_size(const model_shape *s, shape_size size) {
    switch (size) {
    case SIZE_QUERIES:
        return s->sizes[SIZE_HEADS] * s->sizes[SIZE_HEAD];
    case SIZE_KEYS:
        return s->sizes[SIZE_KV_HEADS] * s->sizes[SIZE_HEAD];
    default:
        return s->sizes[size];
    }
}

llama_shape model_shape_costs(const model_shape *s) {
    return (llama_shape){.name = s->name,
                         .n_layers = s->sizes[SIZE_LAYERS],
                         .d_model = s->sizes[SIZE_MODEL],
                         .n_heads = s->sizes[SIZE_HEADS],
                         .n_kv_heads = s->sizes[SIZE_KV_HEADS],
                         .d_head = s->sizes[SIZE_HEAD],
                         .d_ff = s->sizes[SIZE_FF],
                         .n_vocab = s->sizes[SIZE_VOCABULARY],
                         .max_positions = s->sizes[SIZE_POSITIONS]};
}

/* memfd_create is specific to Linux. */

enum { ALIGNMENT = 32, GGUF_VERSION = 3, GGUF_U32 = 4, GGUF_F32 = 6, GGUF_STRING = 8, MAX_NAME = 64 };
/* beside the model and the engine's copy: pages, buffers, other programs */
#define SPARE_BYTES ((int64_t)1 << 30)

/* A tensor of the file: n matrices [n_out, n_in]. */
typedef struct tensor {
    char name[MAX_NAME];
    int32_t n_dims;
    int64_t n, n_out, n_in; /* n, n_out: 1 if the tensor has fewer dimensions */
    dtype type;
} tensor;

/* Called for every tensor of the file, in order. */
typedef quire_err (*tensor_fn)(void *context, const tensor *t);

static tensor make_tensor(const model_shape *s, const shape_tensor *from, int32_t layer, dtype type) {
    int64_t dims[3] = {1, 1, 1};
    tensor t = {.n_dims = 0};
    while (t.n_dims < 3 && from->dims[t.n_dims] != SIZE_NONE) {
        t.n_dims++;
    }
    for (int32_t i = 0; i < t.n_dims; i++) {
        dims[3 - t.n_dims + i] = model_shape_size(s, from->dims[i]);
    }
    t.n = dims[0];
    t.n_out = dims[1];
    t.n_in = dims[2];
    t.type = from->f32 || t.n_dims == 1 ? DTYPE_F32 : type;
    const char *rest = strstr(from->name, "%d");
    if (rest == NULL) {
        (void)snprintf(t.name, sizeof t.name, "%s", from->name);
    } else {
        (void)snprintf(t.name, sizeof t.name, "%.*s%d%s", (int)(rest - from->name), from->name, (int)layer,
                       rest + 2);
    }
    return t;
}

/* Calls fn for the whole model's tensors, then for those of each layer. */
static quire_err for_tensors(const model_shape *s, dtype type, tensor_fn fn, void *context) {
    for (int32_t layer = -1; layer < s->sizes[SIZE_LAYERS]; layer++) {
        for (int l = 0; l < FORM_LISTS && s->form->tensors[l] != NULL; l++) {
            for (const shape_tensor *from = s->form->tensors[l]; from->name != NULL; from++) {
                if ((strstr(from->name, "%d") != NULL) == (layer >= 0)) {
                    tensor t = make_tensor(s, from, layer, type);
                    TRY(fn(context, &t));
                }
            }
        }
    }
    return QUIRE_OK;
}

static size_t synthetic_tensor_bytes(const tensor *t) {
    size_t n = (size_t)t->n * (size_t)t->n_out * (size_t)t->n_in;
    return n / (size_t)dtype_block_elements(t->type) * (size_t)dtype_block_bytes(t->type);
}

/* ---- the head of the file ---- */

static uint32_t ggml_number(dtype type) {
    uint32_t i = 0;
    for (dtype t = N_DTYPES; !(dtype_from_ggml(i, &t) && t == type); i++) {
    }
    return i;
}

static quire_err put_u32(strbuf *b, uint32_t v) {
    return strbuf_add(b, &v, sizeof v);
}

static quire_err put_u64(strbuf *b, uint64_t v) {
    return strbuf_add(b, &v, sizeof v);
}

static quire_err put_text(strbuf *b, const char *text) {
    TRY(put_u64(b, strlen(text)));
    return strbuf_add_str(b, text);
}

static quire_err put_string(strbuf *b, const char *key, const char *v) {
    TRY(put_text(b, key));
    TRY(put_u32(b, GGUF_STRING));
    return put_text(b, v);
}

static quire_err put_key(strbuf *b, const model_shape *s, const shape_key *k) {
    char name[MAX_NAME];
    (void)snprintf(name, sizeof name, "%s.%s", s->form->architecture, k->name);
    if (k->text != NULL) {
        return put_string(b, name, k->text);
    }
    TRY(put_text(b, name));
    if (k->size != SIZE_NONE) {
        TRY(put_u32(b, GGUF_U32));
        return put_u32(b, (uint32_t)model_shape_size(s, k->size));
    }
    TRY(put_u32(b, GGUF_F32));
    return strbuf_add(b, &k->real, sizeof k->real);
}

static quire_err put_keys(strbuf *b, const model_shape *s, dtype type) {
    uint64_t n = 2;
    for (int l = 0; l < FORM_LISTS && s->form->keys[l] != NULL; l++) {
        for (const shape_key *k = s->form->keys[l]; k->name != NULL; k++) {
            n++;
        }
    }
    char name[MAX_NAME];
    (void)snprintf(name, sizeof name, "random-%s-%s", s->name, dtype_name(type));
    TRY(put_u64(b, n));
    TRY(put_string(b, "general.architecture", s->form->architecture));
    TRY(put_string(b, "general.name", name));
    for (int l = 0; l < FORM_LISTS && s->form->keys[l] != NULL; l++) {
        for (const shape_key *k = s->form->keys[l]; k->name != NULL; k++) {
            TRY(put_key(b, s, k));
        }
    }
    return QUIRE_OK;
}

/* Context of writing the tensor infos. */
typedef struct head_context {
    strbuf *b;
    size_t n_data;
} head_context;

static quire_err put_tensor(void *context, const tensor *t) {
    head_context *c = context;
    const int64_t dims[3] = {t->n_in, t->n_out, t->n};
    TRY(put_text(c->b, t->name));
    TRY(put_u32(c->b, (uint32_t)t->n_dims));
    for (int32_t i = 0; i < t->n_dims; i++) {
        TRY(put_u64(c->b, (uint64_t)dims[i]));
    }
    TRY(put_u32(c->b, ggml_number(t->type)));
    TRY(put_u64(c->b, c->n_data));
    c->n_data += size_align(synthetic_tensor_bytes(t), ALIGNMENT);
    return QUIRE_OK;
}

/* Writes everything before the tensors' bytes, padded. *n_data: size of those bytes. */
static quire_err put_head(strbuf *b, const model_shape *s, dtype type, uint64_t n_tensors, size_t *n_data) {
    head_context c = {.b = b};
    TRY(strbuf_add_str(b, "GGUF"));
    TRY(put_u32(b, GGUF_VERSION));
    TRY(put_u64(b, n_tensors));
    TRY(put_keys(b, s, type));
    TRY(for_tensors(s, type, put_tensor, &c));
    *n_data = c.n_data;
    while (b->n % ALIGNMENT != 0) {
        TRY(strbuf_add_char(b, 0));
    }
    return QUIRE_OK;
}

/* ---- weights ---- */

static void put_half(uint8_t *at, float x) {
    uint16_t h = f32_to_f16(x);
    memcpy(at, &h, sizeof h);
}

/* The sign of a block's scale, since its codes are not centred on 0. */
static float sign_of(const uint8_t *block) {
    return block[2] & 1 ? -1.0f : 1.0f;
}

/* Sets the scales of one block of random bits. The divisors are the standard deviation of
 * a weight with scale 1 and uniform codes. */
static void set_scales(dtype type, uint8_t *block, float deviation) {
    switch (type) {
    case DTYPE_Q8_0:
        put_half(block, sign_of(block) * deviation / 73.9f);
        break;
    /* equal six-bit scales and minima, so that a minimum of 7.5 steps makes the mean
     * zero */
    case DTYPE_Q4_K: {
        float d = deviation / (4.61f * 36.4f);
        put_half(block, d);
        put_half(block + 2, 7.5f * d);
        memcpy(block + 8, block + 4, 4);
        for (int i = 12; i < 16; i++) {
            block[i] = (uint8_t)((block[i] & 15) * 17);
        }
        break;
    }
    case DTYPE_F32: { /* like BF16 */
        uint32_t v, exponent;
        float e = deviation / 1.53f;
        memcpy(&exponent, &e, sizeof exponent);
        memcpy(&v, block, sizeof v);
        v = (v & 0x807fffff) | (exponent & 0x7f800000);
        memcpy(block, &v, sizeof v);
        break;
    }
    /* BF16: random sign and fraction with one exponent; 1.53 is the root mean square of a
     * uniform number from 1 to 2 */
    default: {
        uint16_t v, exponent = (uint16_t)(f32_to_bf16(deviation / 1.53f) & 0x7f80);
        memcpy(&v, block, sizeof v);
        v = (uint16_t)((v & 0x807f) | exponent);
        memcpy(block, &v, sizeof v);
    }
    }
}

/* Fills a block of Q4_0 or MXFP4. Equal seeds give the same numbers in both, so that a
 * model has the same logits and its routers choose the same experts: E2M1's 0 to 3 and
 * their negatives, times a power of two. */
static void fill_fours(dtype type, uint64_t *seed, uint8_t *block, float deviation) {
    const int8_t *doubled = quant_tables[TABLE_E2M1];
    const int exponent = (int)lroundf(log2f(deviation / 3.84f)); /* exponent of the doubled numbers */
    uint64_t words[2] = {rng_next(seed), rng_next(seed)};
    uint8_t *codes = block + 1;
    block[0] = (uint8_t)(128 + exponent); /* exponent of 2^(e - 128) */
    if (type == DTYPE_Q4_0) {
        put_half(block, ldexpf(1.0f, exponent));
        codes++;
    }
    memcpy(codes, words, sizeof words);
    for (size_t i = 0; i < sizeof words; i++) {
        const int q = codes[i] & ~(codes[i] >> 1 & 0x22); /* 4 becomes 2, 6 becomes 3 */
        codes[i] = (uint8_t)(type == DTYPE_MXFP4 ? q : (doubled[q & 15] + 8) | (doubled[q >> 4] + 8) << 4);
    }
}

static void fill_tensor(const tensor *t, uint64_t seed, uint8_t *to) {
    size_t n = synthetic_tensor_bytes(t), block = (size_t)dtype_block_bytes(t->type);
    if (t->n_dims == 1) {
        for (int64_t i = 0; i < t->n_in; i++) {
            memcpy(to + (size_t)i * sizeof(float), &(float){1.0f}, sizeof(float));
        }
        return;
    }
    const float deviation = 1.0f / sqrtf((float)t->n_in);
    const bool is_fours = t->type == DTYPE_Q4_0 || t->type == DTYPE_MXFP4;
    for (size_t i = 0; i < n && is_fours; i += block) {
        fill_fours(t->type, &seed, to + i, deviation);
    }
    for (size_t i = 0; i < n && !is_fours; i += sizeof(uint64_t)) {
        uint64_t word = rng_next(&seed);
        memcpy(to + i, &word, n - i < sizeof word ? n - i : sizeof word);
    }
    for (size_t i = 0; i < n && !is_fours; i += block) {
        set_scales(t->type, to + i, deviation);
    }
}

/* ---- the file ---- */

typedef struct fill_context {
    uint8_t *to;
    uint64_t seed;
} fill_context;

static quire_err fill_next(void *context, const tensor *t) {
    fill_context *c = context;
    fill_tensor(t, ++c->seed, c->to);
    c->to += size_align(synthetic_tensor_bytes(t), ALIGNMENT);
    return QUIRE_OK;
}

static quire_err write_file(const model_shape *shape, dtype type, const strbuf *head, synthetic *s,
                            quire_error *err) {
    uint8_t *p = ftruncate(s->fd, s->n_bytes) == 0
                     ? mmap(NULL, (size_t)s->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0)
                     : MAP_FAILED;
    if (p == MAP_FAILED) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory for a model of %lld MB",
                       (long long)(s->n_bytes / 1000000));
    }
    memcpy(p, head->p, head->n);
    quire_err e = for_tensors(shape, type, fill_next, &(fill_context){.to = p + head->n});
    munmap(p, (size_t)s->n_bytes);
    return e;
}

/* Counts a tensor, and checks that its rows are whole blocks. */
static quire_err check_tensor(void *context, const tensor *t) {
    ++*(uint64_t *)context;
    return t->n_in % dtype_block_elements(t->type) == 0 ? QUIRE_OK : QUIRE_UNSUPPORTED;
}

static quire_err check_room(const model_shape *shape, const synthetic *s, quire_error *err) {
    memory_room room;
    memory_room_read("", 0, &room);
    int64_t needed = 2 * s->n_bytes + SPARE_BYTES;
    return room.bytes < 0 || room.bytes >= needed
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1,
                         "a %s model of %lld MB and the engine's copy of it need %lld MB of memory, there "
                         "are %lld",
                         shape->name, (long long)(s->n_bytes / 1000000), (long long)(needed / 1000000),
                         (long long)(room.bytes / 1000000));
}

quire_err synthetic_open(const model_shape *shape, dtype type, synthetic *out, quire_error *err) {
    strbuf head = {0};
    size_t n_data;
    uint64_t n_tensors = 0;
    *out = (synthetic){.fd = -1};
    if (for_tensors(shape, type, check_tensor, &n_tensors) != QUIRE_OK) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s has matrices whose rows are no whole blocks of %d, as %s has them: take another type",
            shape->name, (int)dtype_block_elements(type), dtype_flag_name(type));
    }
    quire_err e = put_head(&head, shape, type, n_tensors, &n_data);
    if (e != QUIRE_OK) {
        strbuf_deinit(&head);
        return err_set(err, e, -1, "out of memory for a model's head");
    }
    out->n_bytes = (int64_t)(head.n + n_data);
    e = check_room(shape, out, err);
    if (e == QUIRE_OK) {
        out->fd = memfd_create("quire-synthetic", MFD_CLOEXEC);
        e = out->fd >= 0 ? write_file(shape, type, &head, out, err)
                         : err_set(err, QUIRE_NO_MEMORY, -1, "no file in memory for a model");
    }
    strbuf_deinit(&head);
    if (e != QUIRE_OK) {
        synthetic_close(out);
        return e;
    }
    snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", out->fd);
    return QUIRE_OK;
}

quire_err synthetic_open_named(const char *shape, const char *type, quire_options *e, synthetic *out,
                               quire_error *err) {
    const speed_type *t = speed_type_find(type, strlen(type));
    const model_shape *s;
    if (t == NULL) {
        TRY(err_set(err, QUIRE_INVALID, -1, "--type %s: must be q4_0, q8_0, q4_k, mxfp4, int8, bf16 or f32",
                    type));
    }
    TRY(model_shape_parse("--shape", shape, &s, err));
    if (s->form->no_tokens) {
        return err_set(err, QUIRE_INVALID, -1, "--shape %s: gives no tokens; take a decoder", shape);
    }
    TRY(synthetic_open(s, t->file, out, err));
    e->model = out->path;
    e->compute = speed_type_compute(t);
    return QUIRE_OK;
}

quire_err synthetic_open_builtin(quire_options *e, synthetic *out, quire_error *err) {
    *out = (synthetic){.fd = -1};
    if (strcmp(e->model, "builtin") == 0) {
        TRY(synthetic_open(&model_shape_builtin, DTYPE_Q8_0, out, err));
        e->model = out->path;
    }
    return QUIRE_OK;
}

void synthetic_close(synthetic *s) {
    if (s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
}
