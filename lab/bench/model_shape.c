#include "lab/bench/model_shape.h"

#include <string.h>

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

/* Types whose numbers are unsigned and have at most four bits, whatever offset
 * follows. */
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

speed_limit shape_decode_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t batch,
                               double context, dtype kv) {
    const char *by;
    double peak = products_peak(r, t->compute, t->published, &by);
    return shape_lower(batch * r->read.best /
                           (shape_weight_bytes(s, t) + batch * context * shape_kv_bytes(s, kv)),
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

/* Of the whole model and of each layer, the latter two never in the weights' own type. */
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
 * vocabulary, positions, those YaRN stretches, window, experts, used ones, token
 * types. */
#define SIZES(...) 0, __VA_ARGS__

const model_shape model_shapes[] = {
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

const int32_t n_model_shapes = (int32_t)(sizeof model_shapes / sizeof *model_shapes);

const model_shape *model_shape_find(const char *name, size_t n) {
    for (int32_t i = 0; i < n_model_shapes; i++) {
        if (strlen(model_shapes[i].name) == n && memcmp(model_shapes[i].name, name, n) == 0) {
            return &model_shapes[i];
        }
    }
    return NULL;
}

quire_err model_shape_parse(const char *flag, const char *name, const model_shape **out, quire_error *err) {
    *out = model_shape_find(name, strlen(name));
    return *out != NULL ? QUIRE_OK
                        : err_set(err, QUIRE_INVALID, -1, "%s %s: must be one of " MODEL_SHAPES, flag, name);
}

model_shape model_shape_small(const model_shape *s) {
    static const int32_t small[N_GIVEN_SIZES] = {
        [SIZE_LAYERS] = 7, /* of Gemma's, the sixth has no window */
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

int32_t model_shape_size(const model_shape *s, shape_size size) {
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
