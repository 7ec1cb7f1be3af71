/* Names of weights: a role in a decoder, and its names in GGUF files and Hugging Face
 * checkpoints. */
#ifndef MODEL_WEIGHT_NAMES_H
#define MODEL_WEIGHT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

/* A weight's two names, without ".weight"; %d is the layer. Alternatives are separated by
 * '|'. "model." at the start of an hf name stands for wherever the file has its text
 * model. */
typedef struct weight_name {
    const char *gguf, *hf;
} weight_name;

typedef enum weight_role {
    W_TOKENS,
    W_POSITIONS,
    W_TYPES,
    W_EMBED_NORM,
    W_EMBED_IN, /* products from the width of embeddings to the model's, and back */
    W_EMBED_OUT,
    W_OUT_NORM,
    W_HEAD,
    W_ATTN_NORM,
    W_QKV,
    W_Q,
    W_K,
    W_V,
    W_Q_NORM,
    W_K_NORM,
    W_SINKS,
    W_K_SCALE, /* scales of keys and values stored as FP8: numbers, not weights of a linear */
    W_V_SCALE,
    W_Q_A, /* latent attention: product to the queries' latent, its norm, product from it */
    W_Q_A_NORM,
    W_Q_B,
    W_KV_A, /* product to the latent of keys and values and the rotary part; the latent's norm */
    W_KV_A_NORM,
    W_KV_B, /* product from that latent: each head's keys, then its values */
    W_K_B,  /* the same in GGUF files: per head the keys' transpose, and the values' */
    W_V_B,
    W_INDEX_K, /* key selection: products to the index key, to queries and to weights of heads */
    W_INDEX_K_NORM,
    W_INDEX_Q,
    W_INDEX_WEIGHTS,
    W_INDEX_QK,   /* queries and keys in one tensor */
    W_INDEX_GATE, /* pools: product to the gates of their keys; a matrix of positions */
    W_INDEX_PLACES,
    W_INDEX_Q_NORM, /* norms index queries, or the row from which they are computed */
    W_QUERY_SLOPE,  /* numbers per head that scale queries; full names */
    W_QUERY_BIAS,
    W_INDEX_SLOPE, /* the same for index queries */
    W_INDEX_BIAS,
    W_O,
    W_ATTN_GATE,
    W_ATTN_GATE_BIAS,  /* a number per head; a full name */
    W_ATTN_INNER_NORM, /* norms before the last product of attention and of the MLP */
    W_FFN_INNER_NORM,
    W_ATTN_POST_NORM,
    W_FFN_NORM,
    W_GATE_UP,
    W_GATE,
    W_UP,
    W_DOWN,
    W_FFN_POST_NORM,
    W_ROUTER,
    W_ROUTER_BIAS,
    W_EXPERT_GATE_UP, /* a checkpoint's stacked gate and up of all experts */
    W_EXPERT_GATE,    /* one expert, whose index is the second %d */
    W_EXPERT_UP,
    W_EXPERT_DOWN,
    W_EXPERTS_DOWN, /* down in files that hold a stack where W_EXPERT_DOWN names modules, or vice versa */
    W_SHARED_GATE_UP,
    W_SHARED_GATE,
    W_SHARED_UP,
    W_SHARED_DOWN,
    W_SHARED_ROUTER, /* one logit, the weight of the shared expert */
    W_ROUTER_NORM,   /* Gemma 4; a full name, without ".weight", like the next two */
    W_EXPERT_SCALES,
    W_LAYER_SCALE,
    W_MLP_POST_NORM, /* norm after the MLP; the next two: of experts in the same layer */
    W_EXPERTS_NORM,
    W_EXPERTS_POST_NORM,
    W_INPUT_TABLE, /* for layers' additional inputs */
    W_INPUT_PROJECTION,
    W_INPUT_PROJECTION_NORM,
    W_INPUT_GATE,
    W_INPUT_OUT,
    W_INPUT_POST_NORM,
    W_EXPERTS_IN_NORM,
    W_EXPERT_RESULT_NORM,
    W_ATTN_BLEND, /* factor per element with which a branch is added to the residual; full names */
    W_FFN_BLEND,
    W_STREAM_IN, /* residual streams: products from the first stream and back; %d is the stream */
    W_STREAM_OUT,
    W_STREAM_NORM, /* norm before the router of a layer's streams */
    W_STREAM_ROUTER,
    W_STREAM_PREDICT,
    W_STREAM_CORRECT,
    W_STREAM_SCALE,     /* a full name, without ".weight" */
    W_HYPER_ATTN,       /* streams with coefficients, before attention: products of all streams */
    W_HYPER_ATTN_SCALE, /* vectors of hyper-connections: full names */
    W_HYPER_ATTN_BASE,
    W_HYPER_FFN, /* the same before the feed-forward part */
    W_HYPER_FFN_SCALE,
    W_HYPER_FFN_BASE,
    W_GATED_ATTN_NORM, /* gated streams, before attention */
    W_GATED_ATTN_DOWN,
    W_GATED_ATTN_UP,
    W_GATED_ATTN_WRITE, /* computes the share that each stream receives */
    W_GATED_FFN_NORM,
    W_GATED_FFN_DOWN,
    W_GATED_FFN_UP,
    W_GATED_FFN_WRITE,
    W_GATED_END_NORM, /* gated streams, after the last layer */
    W_GATED_END_DOWN,
    W_GATED_END_UP,
    W_NGRAM_TABLE, /* embeddings of n-grams */
    W_NGRAM_KEY,
    W_NGRAM_VALUE,
    W_NGRAM_KEY_NORM,
    W_NGRAM_QUERY_NORM,
    W_NGRAM_CONV_NORM,
    W_NGRAM_CONV,
    W_ATTN_NORM_DOWN, /* low-rank gate after a norm: products to its rank and back */
    W_ATTN_NORM_UP,
    W_FFN_NORM_DOWN,
    W_FFN_NORM_UP,
    W_LAUREL_LEFT,
    W_LAUREL_RIGHT,
    W_LAUREL_NORM,
    W_EXPERTS_IN, /* products to the width of experts' rows and back */
    W_EXPERTS_OUT,
    W_MAMBA_IN_NORM, /* norm of Mamba's input if attention beside it has its own */
    W_MAMBA_IN,
    W_MAMBA_TAPS,
    W_MAMBA_X, /* Mamba-1: time step, B and C */
    W_MAMBA_STEP,
    W_MAMBA_STEP_BIAS, /* Mamba-2; Mamba-1's is in W_MAMBA_STEP */
    W_MAMBA_STEP_NORM,
    W_MAMBA_B_NORM,
    W_MAMBA_C_NORM,
    W_MAMBA_RATE, /* logarithms in checkpoints; GGUF files have the negative rates */
    W_MAMBA_SKIP,
    W_MAMBA_NORM, /* norm of the heads' results */
    W_MAMBA_OUT,
    W_SHARED_NORM, /* norm of a shared block's input, which has twice the model's width */
    W_SHARED_OUT,
    W_Q_ADAPTER_A, /* adapter of one of the layers that share a block; its index is the second %d */
    W_Q_ADAPTER_B,
    W_K_ADAPTER_A,
    W_K_ADAPTER_B,
    W_V_ADAPTER_A,
    W_V_ADAPTER_B,
    W_FFN_ADAPTER_A,
    W_FFN_ADAPTER_B,
    W_LRU_X, /* gated linear recurrence */
    W_LRU_Y,
    W_LRU_TAPS,
    W_LRU_INPUT, /* its gates; full names, without "_weight" and "_bias" */
    W_LRU_DECAY,
    W_LRU_RATE,
    W_LRU_OUT,
    W_CONV_IN, /* gated short convolution: gates B and C, and its input */
    W_CONV_TAPS,
    W_CONV_OUT,
    W_DELTA_IN,   /* linear attention: q, k, v, z, b, a in one tensor */
    W_DELTA_QKVZ, /* the same, grouped by key head */
    W_DELTA_BA,
    W_DELTA_QKV,
    W_DELTA_Q,
    W_DELTA_K,
    W_DELTA_V,
    W_DELTA_GATE,    /* z */
    W_DELTA_BETA,    /* b */
    W_DELTA_DECAY,   /* a */
    W_DELTA_GATE_IN, /* the first of two products */
    W_DELTA_DECAY_IN,
    W_DELTA_CONV, /* taps of q, k and v in one tensor */
    W_DELTA_CONV_Q,
    W_DELTA_CONV_K,
    W_DELTA_CONV_V,
    W_DELTA_RATE, /* a number per head; a full name, without ".weight" */
    W_DELTA_BIAS,
    W_DELTA_NORM,
    W_DELTA_OUT,
    N_WEIGHT_ROLES
} weight_role;

/* Names in which an architecture differs from Llama. NULL: as in Llama; NO_WEIGHT: it has
 * no such weight. */
#define MAX_LEFT_OUT_NAMES 4

typedef struct arch_names {
    const char *gguf[N_WEIGHT_ROLES], *hf[N_WEIGHT_ROLES];
    const struct arch_names *second; /* names of a layer's second attention, MLP and norms; NULL: none */
    /* Extra tensors of its checkpoints that are not read: masks that follow from the
     * model, heads for training. Prefixes of names, up to a dot; "model." and %d as
     * above. */
    const char *left_out[MAX_LEFT_OUT_NAMES];
} arch_names;

#define NO_WEIGHT ""

/* Names that many checkpoints have together, for the tables of arch_names. at: what they
 * begin with, as in "model.layers.%d.mlp". */
/* clang-format off */
#define LATENT_NAMES(at) \
    [W_Q] = at ".q_proj", [W_Q_A] = at ".q_a_proj", [W_Q_A_NORM] = at ".q_a_layernorm", \
    [W_Q_B] = at ".q_b_proj", [W_KV_A] = at ".kv_a_proj_with_mqa", [W_KV_A_NORM] = at ".kv_a_layernorm", \
    [W_KV_B] = at ".kv_b_proj"
#define SANDWICH_NAMES(at) \
    [W_ATTN_POST_NORM] = at ".post_attention_layernorm", [W_FFN_NORM] = at ".pre_feedforward_layernorm", \
    [W_FFN_POST_NORM] = at ".post_feedforward_layernorm"
#define MLP_NAMES(at) [W_GATE] = at ".gate_proj", [W_UP] = at ".up_proj", [W_DOWN] = at ".down_proj"
#define MLP_W_NAMES(at) [W_GATE] = at ".w1", [W_UP] = at ".w3", [W_DOWN] = at ".w2"
#define EXPERT_NAMES(at) \
    [W_EXPERT_GATE] = at ".gate_proj", [W_EXPERT_UP] = at ".up_proj", [W_EXPERT_DOWN] = at ".down_proj"
#define EXPERT_W_NAMES(at) \
    [W_EXPERT_GATE] = at ".w1", [W_EXPERT_UP] = at ".w3", [W_EXPERT_DOWN] = at ".w2"
#define SHARED_NAMES(at) \
    [W_SHARED_GATE] = at ".gate_proj", [W_SHARED_UP] = at ".up_proj", [W_SHARED_DOWN] = at ".down_proj"
/* stacks of experts, which are modules in quantised files */
#define STACK_NAMES(at) \
    [W_EXPERT_GATE_UP] = at ".gate_up_proj", [W_EXPERT_DOWN] = at ".down_proj", \
    [W_EXPERTS_DOWN] = at ".%d.down_proj"
/* clang-format on */

/* The names of a role. names NULL: Llama's. */
weight_name weight_name_of(const arch_names *names, weight_role role);
/* The name of the i-th of several weights of a layer, such as an expert's or head's: the
 * second %d of the checkpoint's name becomes i. *memory holds it. */
#define WEIGHT_NAME_BYTES 160
weight_name weight_name_at(weight_name name, int32_t layer, int32_t i, char memory[WEIGHT_NAME_BYTES]);
/* Whether a checkpoint has such a weight per expert or head: its hf name has a second
 * %d. */
bool weight_name_is_list(weight_name name);
/* Whether a tensor's name starts with a pattern, or one of its alternatives, followed by
 * the end or a dot. %d is any number; root: what "model." stands for in the file
 * (find_weight.h). */
bool weight_is_named(const char *root, const char *pattern, const char *name);
/* Whether the architecture has such a weight. */
bool weight_role_is(const arch_names *names, weight_role role);

#endif
