/* A model description: the numbers that define a model, as plain data. src/model reads
 * them from a file's metadata; every room uses them.
 *
 * A model is a table of layers over a numbered list of caches. A layer names the caches
 * in which it keeps keys and values, latents or states; it may have none or several.
 * Layers may share a cache: the first one that names it writes it, the others read it.
 *
 * Invariant after desc_check(): every count is positive; widths fit int32_t, and the
 * product of any three fits int64_t; a layer's heads are a multiple of its cache's; head
 * widths are even and at most DESC_MAX_HEAD; every number of a cache or a rotary table is
 * within its list. Plain data: copy freely. */
#ifndef CORE_MODEL_DESC_H
#define CORE_MODEL_DESC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"

#define DESC_MAX_EOS         32
#define DESC_MAX_LAYERS      512
#define DESC_MAX_CACHES      512
#define DESC_MAX_ROPES       4
#define DESC_MAX_HEAD        512                /* widest head */
#define DESC_MAX_LATENT      2048               /* widest latent */
#define DESC_MAX_STATE_BYTES ((int64_t)1 << 32) /* largest state of a layer */
#define DESC_MAX_UNIT_BYTES  ((int64_t)1 << 26) /* largest unit of a state */

typedef enum rope_kind {
    ROPE_NONE,
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_NTK,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONGROPE
} rope_kind;
/* Which elements of a head rotate together: (i, i + n/2), as Hugging Face stores them, or
 * (2i, 2i + 1), as GGUF stores Llama's. */
typedef enum rope_pairs { ROPE_HALVES, ROPE_NEIGHBOURS } rope_pairs;

typedef struct rope_desc {
    rope_kind kind;
    rope_pairs pairs;
    int32_t n_dims;                          /* elements of a head that rotate (even, <= the head's width) */
    float theta;                             /* base */
    float factor;                            /* linear, ntk, llama3, yarn, longrope */
    float low_freq_factor, high_freq_factor; /* llama3 */
    float beta_fast, beta_slow;              /* yarn */
    /* yarn, longrope: multiplies cos and sin; 0: computed from `factor` by the published
     * formula */
    float attention_factor;
    bool truncate;              /* yarn: correction range rounded outwards to integers */
    bool backwards;             /* rotates by the negative angle (nanochat) */
    int32_t behind;             /* rows rotate as if so many positions earlier, but not before 0 */
    int32_t original_positions; /* trained length before scaling */
    /* divisors of the frequencies: GGUF's rope_freqs; longrope's short factors */
    bool has_factors;
    bool multiplies; /* has_factors: they multiply the frequencies (Mistral Large 4) */
    float factors[DESC_MAX_HEAD / 2];
    /* longrope: used instead if the configured length exceeds the original one */
    float long_factors[DESC_MAX_HEAD / 2];
} rope_desc;

/* The function of a gate g, or, if gated, of a gate g and an up product u: f(g) * u. */
typedef enum activation {
    ACT_SILU,       /* g * sigmoid(g) */
    ACT_GELU,       /* g * (1 + erf(g / sqrt(2))) / 2 */
    ACT_GELU_TANH,  /* its approximation by tanh */
    ACT_RELU,       /* max(g, 0) */
    ACT_RELU2,      /* max(g, 0)^2 */
    ACT_GELU_QUICK, /* g * sigmoid(1.702 g) */
    ACT_SIGMOID,
    ACT_TANH,
    ACT_SOFTPLUS,       /* ln(1 + exp(g)) */
    ACT_NONE,           /* g */
    ACT_SWIGLU_CLAMPED, /* gated only: ACT_GELU_QUICK of min(g, limit), times clamp(u, -limit, limit) + 1 */
    ACT_SILU_CLAMPED,   /* gated only: min(ACT_SILU of g, limit) * clamp(u, -limit, limit) */
    ACT_XIELU,          /* without a gate only; with numbers of its own */
    ACT_CLAMPED_SILU,   /* gated only: ACT_SILU of min(g, limit), times clamp(u, -limit, limit) */
} activation;
#define N_ACTIVATIONS (ACT_CLAMPED_SILU + 1)

/* Whether it is a function of gate, up product and limit. */
static inline bool activation_has_limit(activation f) {
    return f == ACT_SWIGLU_CLAMPED || f == ACT_SILU_CLAMPED || f == ACT_CLAMPED_SILU;
}

/* ACT_XIELU: positive g^2 + linear g where g > 0, else negative (exp(min(g, eps)) - 1 -
 * g) + linear g (Huang and Schlag 2024, arXiv:2411.13010). */
typedef struct xielu_desc {
    float positive, negative, linear, eps;
} xielu_desc;

/* What a cache keeps of past tokens (docs/design.md, Pages). */
typedef enum layer_kind { LAYER_FULL, LAYER_WINDOW, LAYER_LATENT, LAYER_STATE } layer_kind;

/* One cache. Only the numbers of its kind are set; the others are 0. */
typedef struct cache_desc {
    layer_kind kind;
    int32_t n_kv_heads, d_key, d_value; /* full, window: heads, and elements of a head's key and value */
    int32_t window;                     /* window: how many tokens it has to keep */
    int32_t d_latent;                   /* latent: elements kept a token (latent rank + rotary part) */
    int32_t n_units;                    /* state: parts that no kernel needs side by side: heads, stretches of
                                         * channels */
    int64_t unit_bytes;                 /* state: of each, kept for a sequence, in 32-bit elements */
    bool stays_wide;                    /* state: not rounded to the type of states (kv_types) */
} cache_desc;

/* Bytes that a cache keeps of a sequence's state; 0: it keeps tokens. */
static inline int64_t cache_state_bytes(const cache_desc *c) {
    return c->n_units * c->unit_bytes;
}

#define NO_CACHE (-1)
#define NO_ROPE  (-1)

/* The uses for which a layer can have a cache. */
enum { CACHE_ATTENTION, CACHE_STATE, CACHE_CONV, CACHE_SECOND, CACHE_NGRAMS, CACHE_NGRAM_CONV, LAYER_CACHES };
#define NO_CACHES                                                                                            \
    { NO_CACHE, NO_CACHE, NO_CACHE, NO_CACHE, NO_CACHE, NO_CACHE }

typedef struct layer_step layer_step; /* model/steps.h */

/* How a layer adds a branch to the residual: keep * x + add * branch. */
typedef struct residual_mix {
    float keep, add;
} residual_mix;

typedef struct layer_desc {
    /* what it computes, in order: a static list; NULL in plans without a model */
    const layer_step *steps;
    /* numbers in the list of caches, or NO_CACHE: for attention; for a recurrence and the
     * short convolution before it (in a layer that attends: for making its index keys);
     * for a second attention or an index; for the last tokens and the convolution after
     * their n-grams */
    int16_t caches[LAYER_CACHES];
    int16_t rope;      /* number of its rotary table, or NO_ROPE */
    int32_t n_heads;   /* of queries; 0: the layer does not attend */
    int32_t window;    /* a query attends to the last so many positions, its own included; 0: all */
    int32_t chunk;     /* a query attends only to its own chunk of this length; 0: all */
    int32_t d_ff;      /* width of the dense feed-forward part; 0: none */
    int32_t n_experts; /* 0: none */
    /* limits of clamped activations: of the experts, and of the dense part or the shared
     * expert; 0: none. With a limit, ACT_SILU becomes ACT_SILU_CLAMPED */
    float limit, dense_limit;
    /* the dense part's gate first passes NORM_ABOVE with this cutoff; 0: it does not */
    float cutoff;
    xielu_desc xielu;      /* of ACT_XIELU */
    residual_mix mixes[2]; /* of its mixing steps, in order */
} layer_desc;

/* What a norm computes from a group of elements; the first two have weights that multiply
 * the result. */
typedef enum norm_kind {
    NORM_RMS,
    NORM_LAYER,
    NORM_RMS_WEIGHED, /* NORM_RMS without weights of x times the weights */
    NORM_SCALE,       /* no norm: x times the weights */
    NORM_ABOVE,       /* max(x - mean - cutoff * standard deviation, 0) (Gemma 3n) */
} norm_kind;

/* Norms of queries and keys. */
typedef enum qk_norm_kind {
    QK_NORM_NONE,
    QK_NORM_HEAD,     /* over each head, one weight for all heads */
    QK_NORM_HEADS,    /* over each head, a weight for each */
    QK_NORM_ROW,      /* over all heads */
    QK_NORM_BARE,     /* over each head, without weights, in layers with rotary embedding */
    QK_NORM_BARE_ALL, /* the same in all layers */
} qk_norm_kind;

/* The order of the rows of a checkpoint's query_key_value: all of q, then k, then v; or
 * for each KV head its queries, its key, its value. GGUF has the first. */
typedef enum qkv_order { QKV_STACKED, QKV_GROUPED } qkv_order;

/* What attention's result is multiplied with, before the product after it: a product of
 * the rows that queries are made of, through a function. */
typedef enum attend_gate {
    ATTEND_NO_GATE,
    ATTEND_GATE_ELEMENTS, /* one for each element */
    ATTEND_GATE_HEADS,    /* one for each head */
    ATTEND_GATE_QUERIES,  /* one for each element; each head's follow its query in one tensor */
} attend_gate;

/* The norms on rows of the model's width. All 0: as Llama's. */
typedef struct norm_desc {
    norm_kind kind;
    bool add_one;      /* weights are stored as w - 1 */
    bool plain_last;   /* except for the last norm, whose weights are w */
    bool bare;         /* they have no weights */
    bool inner;        /* others stand before the last products of attention and MLP (BitNet) */
    float post_eps;    /* of the norms after attention and MLP; 0: norm_eps */
    int32_t gate_rank; /* of the gates after norms, in lists of steps that have some */
    bool post_weighed; /* norms after a branch: NORM_RMS_WEIGHED, or without weights if files name none */
} norm_desc;

/* How layers attend, apart from their sizes. All 0: as in Llama. */
typedef struct attend_desc {
    qkv_order order;
    qk_norm_kind qk_norm;
    norm_kind qk_norm_type;
    bool norm_after_rope; /* of queries and keys */
    bool v_norm;          /* values go through a norm of each head without weights */
    /* with v_norm: layers without a window and without a weight for values use their
     * keys, as computed by the product */
    bool values_are_keys;
    bool sinks;            /* each head has a logit that counts in the softmax's sum only */
    bool sinks_in_windows; /* in layers with windows only */
    float value_scale;     /* of values; 0: 1 */
    bool scale_by_layer;   /* the scores of layer i, counted from 1, are divided by i */
    float temperature;     /* layers without rotary embedding multiply the query at position p by */
    /* 1 + temperature * ln(1 + floor((p + 1) / temperature_length)); 0: they do not */
    int32_t temperature_length;
    bool temperature_on_all;   /* all layers do, with floor(p / temperature_length) instead */
    bool temperature_by_head;  /* instead: each head, also of the index, by s ln(p + 1) + b (weights s, b) */
    float cap;                 /* of scores; 0: none */
    float clip;                /* of q, k and v; 0: none */
    float alibi;               /* the largest exponent of ALiBi's slopes; 0: none */
    float in_scale, out_scale; /* of the rows that attention reads and of those that it writes; 0: 1 */
    float alibi_scale;         /* of the slopes; 0: 1 */
    bool alibi_bf16;           /* slopes are rounded to BF16 */
    /* in place of the above: layers without rotary embedding multiply the query at
     * position p by (1 + (p + 1) / temperature_length)^temperature_power; 0: they do
     * not */
    float temperature_power;
    bool result_norm; /* each head of the result passes a norm without weights before the gate */
    attend_gate gate;
    bool gate_bias;    /* each head has a bias for its elements' gates */
    activation gate_f; /* of the gate */
} attend_desc;

/* Latent attention (layers whose cache is LAYER_LATENT). A head's query and key have
 * d_nope elements without and d_rope with positions; the former of keys, and values, are
 * products of the latent. d_latent of the caches is rank + d_rope. */
typedef struct latent_desc {
    int32_t q_rank; /* of the latent from which queries are computed; 0: from the row itself */
    int32_t rank, d_nope, d_rope, d_value;
    float eps;                   /* of both latents' norms */
    float q_scale, latent_scale; /* of the queries, and of the latent after its norm; 0: 1 */
    /* layers without a rotary table have no rotary part: all d_nope + d_rope elements of
     * keys are products of the latent, and caches keep only its rank (Mistral Large 4) */
    bool rotary_folds;
    /* queries are products of their latent, normed and plain side by side, and so is a
     * gate for each element of the result: in each head, the gate's rows follow the
     * query's (A.X K2) */
    bool q_gates;
} latent_desc;

/* What rows choose from their visible keys. Blocks are runs of adjacent positions. */
typedef enum choose_kind {
    CHOOSE_KEYS,   /* keys, each by its score */
    CHOOSE_BLOCKS, /* blocks, by their best key; each index head for one KV head (MiniMax M3) */
    CHOOSE_POOLS,  /* blocks, by one key computed from theirs; the last, incomplete one is always read */
} choose_kind;

/* What index queries are computed from. */
typedef enum index_source {
    INDEX_OF_LATENT,     /* the queries' latent */
    INDEX_OF_NORMED_ROW, /* the row after a norm with weights and biases */
    INDEX_OF_ROW,
} index_source;

/* The choice of keys. A layer with a CACHE_SECOND keeps an index key of d_head elements
 * per token in it, and chooses; with latents, a layer without one reuses the choice of
 * the last layer that made one. */
typedef struct index_desc {
    choose_kind kind;
    int32_t n_best; /* keys that a row reads; 0: all */
    int32_t n_heads, d_head;
    int32_t rope;     /* number of its rotary table, which rotates the first elements of a head; or NO_ROPE */
    int32_t key_rope; /* of its keys */
    int32_t block;    /* of CHOOSE_BLOCKS and CHOOSE_POOLS: tokens of a block */
    int32_t n_own;    /* of CHOOSE_BLOCKS: the last blocks, its own included, that a row always reads */
    index_source source;
    bool rms_norms;   /* queries and keys have attention's norms; else keys a layer norm, queries none */
    bool unweighed;   /* all heads have the same weight */
    bool gated_pools; /* a pool's key is a sum weighted by gates and places; else a mean, normed afterwards */
} index_desc;

/* How rows are embedded. All 0: as in Llama. */
typedef struct embed_desc {
    float scale; /* of tokens' rows; 0: 1 */
    /* of tokens' rows, which products widen to d_model and narrow for the head; 0:
     * d_model */
    int32_t width;
    bool normed;    /* rows are normed, without weights */
    bool positions; /* learned positions are added */
    int32_t position_offset;
    /* tokens with the id position_offset - 1 are padding, which positions do not count */
    bool skips_padding;
    int32_t n_token_types; /* rows of the table of token types, which is added; 0: none */
    int32_t d_layer_input; /* width of each layer's own input; 0: none */
    /* rows of the table of these inputs; later ids use row 0. 0: at least one per
     * token */
    int32_t n_input_rows;
} embed_desc;

/* Several residual streams.
 *   STREAMS_PREDICTED  layers compute with one of them, predict the others and correct
 *                      all (AltUp: Baykal et al. 2023, arXiv:2301.13310)
 *   STREAMS_MIXED      each half of a layer reads a weighted sum of them and changes all;
 *                      streams mix by matrices that are nearly doubly stochastic
 *                      (hyper-connections: Zhu et al. 2024, arXiv:2409.19606)
 *   STREAMS_GATED      each half reads them through gates of low rank, and adds to all */
typedef enum streams_kind { STREAMS_PREDICTED, STREAMS_MIXED, STREAMS_GATED } streams_kind;

/* All 0: there is one. */
typedef struct streams_desc {
    streams_kind kind;
    int32_t n, active;  /* streams; of STREAMS_PREDICTED the one that layers compute with */
    int32_t n_rounds;   /* of STREAMS_MIXED: rounds of Sinkhorn's normalisation */
    float eps;          /* of STREAMS_MIXED: added to weights and sums */
    int32_t rank;       /* of STREAMS_GATED: of the gates */
    int32_t d_laurel;   /* rank of the product beside attention (Gemma 3n) */
    bool scales_output; /* the stream to which a layer's own input is added is scaled by weights */
} streams_desc;

#define DESC_MAX_STREAMS 8

#define NGRAM_MAX       8  /* longest n-gram */
#define NGRAM_MAX_HEADS 64 /* rows looked up for a token */

/* Rows that are looked up by hashes of the last 2 .. n tokens, and added to all streams
 * before a layer (Qwen4). With t[0] the row's token, t[1] the one before and so on, all
 * `end` from the last token with that id on, head h of n-gram g reads row
 *   offsets[i] + (t[0] multipliers[0] ^ .. ^ t[g - 1] multipliers[g - 1]) mod sizes[i],
 * i = (g - 2) n_heads + h, in two's complement of 64 bits, the remainder not negative.
 * All 0: there are none. */
typedef struct ngram_desc {
    int32_t n, n_heads, d_head; /* longest n-gram; rows read by each n-gram, and their elements */
    int32_t n_taps;             /* of the convolution after it, over every n-th token */
    int32_t end;
    int32_t layer;
    int32_t n_rows, rows_each; /* of the table, and of each of its parts but the last */
    int64_t multipliers[NGRAM_MAX];
    int32_t sizes[NGRAM_MAX_HEADS], offsets[NGRAM_MAX_HEADS];
} ngram_desc;

/* What follows the last layer. All 0: as in Llama. */
typedef struct head_desc {
    float scale, cap; /* of logits; 0: 1, none */
    bool bare;        /* no norm comes before it */
} head_desc;

/* What a row's router logits become before experts are chosen, and how results are
 * weighted.
 *   ROUTE_SOFTMAX         a softmax over all experts
 *   ROUTE_SIGMOID         a sigmoid of each
 *   ROUTE_SOFTMAX_CHOSEN  the logits themselves; the weights are a softmax over those of
 *                         the chosen (gpt-oss, GraniteMoE)
 *   ROUTE_SPARSE_MIXER    PhiMoE's: two experts, the best and the best of the others.
 *                         Each one's weight is its part of a softmax over the logits s
 *                         that lie near its own, t: those with (t - s) / max(|s|, t)
 *                         at most 2 * jitter_eps; the second time without the first
 *                         expert. */
typedef enum route_score {
    ROUTE_SOFTMAX,
    ROUTE_SIGMOID,
    ROUTE_SOFTMAX_CHOSEN,
    ROUTE_SPARSE_MIXER
} route_score;

typedef struct moe_desc {
    int32_t n_used, d_expert, d_shared; /* widths of an expert, of the shared expert (0: none) */
    int32_t d_latent;                   /* width of the rows that experts read and write; 0: d_model */
    bool latent_norm, result_norm;      /* on the experts' input (with d_latent), on each expert's result */
    float router_scale;                 /* of the router's logits; 0: 1 */
    int32_t n_groups, n_groups_used;
    route_score score;
    bool group_by_best_two, closed_is_zero, correction_bias, renormalise, scale_inputs, shared_gate;
    /* ROUTE_SIGMOID: the correction bias is added to the logits, not to their sigmoids */
    bool choose_by_logits;
    bool shared_mean; /* the mean of the routed and the shared experts' results, not the sum */
    float scale;      /* of the weights; 0: 1 */
    float logit_cap;  /* of the router's logits; 0: none */
    float jitter_eps;
    float limit;      /* of the experts' activation */
    bool router_norm; /* the router has its own norm, and experts have scales (Gemma 4) */
    activation activation;
    bool interleaved; /* gate and up rows alternate in a checkpoint */
    bool transposed;  /* a checkpoint's stacked experts are [n_in, n_out] */
    /* the number of experts for images that a checkpoint has after those for text; if any,
     * its routers are [n_in, n_out] and its correction biases have a second row (ERNIE 4.5
     * VL) */
    int32_t n_image_experts;
    int32_t n_identity; /* the last so many experts of a layer: they return their input */
} moe_desc;

/* The norms of Mamba-1's time step, B and C. */
typedef enum mamba_norms { MAMBA_NORMS_NONE, MAMBA_NORMS_BARE, MAMBA_NORMS_WEIGHED } mamba_norms;

/* Layers with Mamba's mixer (model/blocks_mamba.c has what it computes): Mamba-1's where
 * n_heads is 0, else Mamba-2's. All 0: there are none. */
typedef struct mamba_desc {
    int32_t n_inner;           /* width of x and z: channels, or heads times head width */
    int32_t n_heads, n_groups; /* Mamba-2: heads, and the number of Bs and Cs for them */
    int32_t n_states;          /* of a channel: elements of B and C */
    int32_t n_taps;            /* of the convolution */
    int32_t step_rank;         /* Mamba-1: width of the time step before its last product */
    activation activation;     /* of the convolution; of z in Mamba-1 */
    mamba_norms inner_norms;   /* Mamba-1: of time step, B and C */
    float inner_eps;           /* of these norms, or of the norm after the heads */
    int32_t n_norm_groups;     /* Mamba-2: groups of the norm after the heads; 0: there is no norm */
    bool norm_first;           /* Mamba-2: that norm comes before the product with z, not after it */
    float step_least;          /* Mamba-2: the time step is clamped from here */
    float step_most;           /* to here; 0: it is not clamped */
    float in_scale, out_scale; /* of the rows that it reads and of those that it writes; 0: 1 */
    float scales[5];           /* Mamba-2: of z, x, B, C and time step after the first product; 0: 1 */
} mamba_desc;

#define DESC_MAX_SHARED_BLOCKS 16

/* Blocks of attention and feed-forward whose weights several layers share, taking the
 * blocks in turn (Zamba 2). All 0: there are none. */
typedef struct shared_desc {
    int32_t n_blocks;
    int32_t adapter_rank; /* of the products that a layer adds to them */
    bool has_attention_adapters;
} shared_desc;

/* Layers with a gated linear recurrence (RecurrentGemma). All 0: there are none. */
typedef struct lru_desc {
    int32_t width, n_blocks; /* channels, and blocks of channels whose gates depend on one another */
    int32_t n_taps;          /* of the convolution before it */
} lru_desc;

/* Short convolutions of layers that have one in place of attention (LFM2), over the
 * model's width. */
typedef struct conv_desc {
    int32_t n_taps; /* 0: there are none */
} conv_desc;

/* Layers with linear attention: a matrix for each head in place of keys and values.
 *   DELTA_GATED      the gated delta rule, with one decay a head (Qwen3-Next)
 *   DELTA_CHANNELS   the same, with a decay for each channel of the key (Kimi Linear)
 *   DELTA_LIGHTNING  no delta rule; a head's decay follows from its number and the
 *                    layer's (MiniMax) */
typedef enum delta_kind { DELTA_GATED, DELTA_CHANNELS, DELTA_LIGHTNING } delta_kind;

/* Linear attention's numbers. All 0: there is none. */
typedef struct delta_desc {
    delta_kind kind;
    int32_t n_heads, n_key_heads; /* heads of values and of the result; of queries and keys */
    int32_t d_key, d_value;
    /* head h reads key head h % n_key_heads, as in GGUF files; else h / (n_heads /
     * n_key_heads) */
    bool cyclic;
    int32_t n_taps;   /* of the convolutions of queries, keys and values; 0: there are none */
    int32_t d_low;    /* decay and gate are products of a product of this width; 0: of the row */
    float beta_scale; /* 0: 1 */
    float lower;      /* lower bound of a decay's logarithm; 0: none */
    activation gate;  /* of the result */
    float norm_eps;   /* of the result's norm; 0: the model's */
} delta_desc;

/* How the rows of an input become one row, its embedding. */
typedef enum pooling_kind {
    POOLING_NONE, /* the model says nothing */
    POOLING_MEAN, /* the mean of all rows */
    POOLING_CLS,  /* the first row */
    POOLING_LAST, /* the last row */
} pooling_kind;

/* The function of a row's elements. */
typedef enum row_function {
    ROW_PLAIN,
    ROW_TANH,
    ROW_GELU,
    ROW_RELU,
    ROW_SIGMOID,
    N_ROW_FUNCTIONS
} row_function;

/* A step after the pooling of a row. */
typedef struct pooled_step {
    /* f(W row + bias); the row divided by its length; f of a layer norm with weight and
     * bias; a softmax over the row */
    enum { POOLED_DENSE, POOLED_LENGTH, POOLED_NORM, POOLED_SOFTMAX } kind;
    int32_t n_in, n_out; /* of POOLED_DENSE */
    row_function f;
    bool has_bias, may_have_bias; /* it must have one; it has one if the file does */
    char name[80];                /* of its tensors, without ".weight"; "model." as in weight_name */
} pooled_step;

#define DESC_MAX_POOLED 8

/* What a model's files say about its embeddings (sentence-transformers' modules.json,
 * GGUF's pooling_type). All 0: nothing. */
typedef struct pooling_desc {
    pooling_kind kind;
    bool normalise; /* the result of the steps is divided by its length */
    /* the number of scores that a head gives in place of an embedding (cross-encoders);
     * 0: no head */
    int32_t n_scores;
    int32_t n_steps;
    pooled_step steps[DESC_MAX_POOLED];
} pooling_desc;

typedef struct model_desc {
    char architecture[64]; /* "llama" */
    char name[128];        /* for people; may be empty */
    int32_t n_layers, n_caches, n_ropes, d_model, n_vocab;
    int32_t max_positions;
    float norm_eps;
    float attention_scale; /* multiplies q . k; 1 / sqrt(head width) for Llama */
    float residual_scale;  /* of what a layer adds; 0: 1 */
    /* the n-th sum, counted from 2, is x sqrt((n - 1) / n) + y sqrt(1 / n) */
    bool residual_by_depth;
    float blend_temperature; /* of steps that blend (model/steps.h) */
    activation activation;   /* of the dense feed-forward part */
    bool ungated;            /* neither it nor the experts have a gate */
    float gate_scale;        /* of its gate's rows before the function; 0: 1 */
    float down_scale;        /* of its result; 0: 1 */
    bool conv1d;             /* a checkpoint's matrices are stored as [n_in, n_out] */
    bool two_sided;          /* rows see later positions too */
    bool tied_embeddings;
    bool no_head; /* it gives rows and no logits: an encoder, or a decoder without its head */
    pooling_desc pooling;
    int32_t n_eos, eos[DESC_MAX_EOS]; /* tokens that end a generation */
    int32_t bos;                      /* -1: none known */
    dtype weight_type;                /* the type of most of the matrices' parameters */
    /* the type to which matrices are quantised while loading (model/quantise_load.h);
     * F32: none are */
    dtype quantise_to;
    /* the default for these weights: int8 for integers, f32 for 32-bit floats, else
     * bf16 */
    compute_mode auto_compute;
    bool has_fp8_kv; /* the checkpoint asks for FP8 keys and values */
    int64_t n_params, weight_bytes, weight_bytes_of[N_DTYPES];
    /* layers after the last one that predict later tokens: left out (model/left_out.h) */
    int32_t n_next_token_layers;
    /* tensors of these, of towers for images and sound, and of the modules named here: */
    int32_t n_left_out;
    char left_out_names[128]; /* "model.pooler, cls" */
    int64_t left_out_bytes;
    bool is_packed; /* its weights are in the backend's layout, for this compute mode only: */
    compute_mode packed_compute;
    norm_desc norm;
    attend_desc attend;
    latent_desc latent;
    index_desc index;
    embed_desc embed;
    streams_desc streams;
    ngram_desc ngrams;
    head_desc head;
    moe_desc moe;
    mamba_desc mamba;
    shared_desc shared;
    lru_desc lru;
    conv_desc conv;
    delta_desc delta;
    rope_desc ropes[DESC_MAX_ROPES];
    cache_desc caches[DESC_MAX_CACHES];
    layer_desc layers[DESC_MAX_LAYERS];
} model_desc;

/* The number of rotating elements of a layer's latents. */
static inline int32_t desc_rotary_part(const model_desc *d, const layer_desc *l) {
    return d->latent.rotary_folds && l->rope == NO_ROPE ? 0 : d->latent.d_rope;
}

/* Appends a layer and its own attention cache to their lists. The caller sets the layer's
 * other caches, and keeps within the limits. */
void desc_add_layer(model_desc *d, layer_desc l, const cache_desc *c);
/* Adds a cache and returns its number. */
int16_t desc_add_cache(model_desc *d, const cache_desc *c);
/* A plain decoder: n_layers layers with full attention of n_heads heads over n_kv_heads,
 * each d_head wide, the first rotary table and a feed-forward part of d_ff. Everything
 * else of the description is 0. */
model_desc desc_plain(int32_t n_layers, int32_t n_heads, int32_t n_kv_heads, int32_t d_head, int32_t d_ff);

/* The fewest and the most query heads of the layers that attend; 0 and 0 where none
 * does. */
void desc_heads(const model_desc *d, int32_t *fewest, int32_t *most);
/* The largest width of a dense feed-forward part over all layers. 0: no layer has any. */
int32_t desc_widest_ff(const model_desc *d);
/* Whether a rotary table depends on the configured maximum length: it is then part of the
 * numeric configuration. */
bool desc_scales_by_length(const model_desc *d);
/* Whether it generates tokens; else it gives only rows, which are pooled. */
bool desc_gives_tokens(const model_desc *d);
/* Elements of a pooled row after the steps: an embedding's, or its scores. */
int32_t desc_pooled_width(const model_desc *d);
/* The first layer that attends, or NULL, for summaries of a model. */
const layer_desc *desc_attention_layer(const model_desc *d);

/* Adds a token that ends a generation. A duplicate, an id outside the vocabulary and
 * tokens over DESC_MAX_EOS are left out. */
void desc_add_eos(model_desc *d, int64_t id);
void desc_drop_eos(model_desc *d, int32_t id);

/* Refuses a description that is invalid or that this build cannot compute; err names the
 * first bad number. */
quire_err desc_check(const model_desc *d, quire_error *err);

#endif
