/* A model description: the numbers that define a model, as plain data. src/model reads
 * them from a file's metadata; every room uses them.
 *
 * A model is a table of layers and a numbered list of caches. A layer names the caches in
 * which it keeps keys and values, latents or states, if any. Layers may share a cache:
 * the first one that names it writes it, the others read it.
 *
 * Invariant after desc_check(): every count is positive; widths fit int32_t, and the
 * product of any three fits int64_t; a layer's heads are a multiple of its cache's; head
 * widths are even and at most DESC_MAX_HEAD; every cache and rotary table that is named
 * exists. Plain data: copy freely. */
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
    int32_t n_dims; /* elements of a head that rotate (even, at most the head's width) */
    float theta;    /* base */
    float factor;   /* scale factor of linear, ntk, llama3, yarn, longrope */
    float low_freq_factor, high_freq_factor; /* llama3 */
    float beta_fast, beta_slow;              /* yarn */
    /* yarn, longrope: factor of cos and sin; 0: derived from `factor` as published */
    float attention_factor;
    bool truncate;              /* yarn: the correction range is rounded outwards to integers */
    bool backwards;             /* rotates by the negative angle (nanochat) */
    int32_t behind;             /* rows rotate as if this many positions earlier, but not before position 0 */
    int32_t original_positions; /* context length in training, before scaling */
    /* `factors` divide the frequencies: GGUF's rope_freqs, or longrope's short factors */
    bool has_factors;
    bool multiplies; /* with has_factors: they multiply instead (Mistral Large 4) */
    float factors[DESC_MAX_HEAD / 2];
    /* longrope: used instead if the configured length exceeds original_positions */
    float long_factors[DESC_MAX_HEAD / 2];
} rope_desc;

/* The function f of a gate g. In a gated layer, f(g) is multiplied by the up product u,
 * unless noted below. */
typedef enum activation {
    ACT_SILU,       /* g * sigmoid(g) */
    ACT_GELU,       /* g * (1 + erf(g / sqrt(2))) / 2 */
    ACT_GELU_TANH,  /* ACT_GELU approximated by tanh */
    ACT_RELU,       /* max(g, 0) */
    ACT_RELU2,      /* max(g, 0)^2 */
    ACT_GELU_QUICK, /* g * sigmoid(1.702 g) */
    ACT_SIGMOID,
    ACT_TANH,
    ACT_SOFTPLUS,       /* ln(1 + exp(g)) */
    ACT_NONE,           /* g */
    ACT_SWIGLU_CLAMPED, /* gated: ACT_GELU_QUICK(min(g, limit)) * (clamp(u, -limit, limit) + 1) */
    ACT_SILU_CLAMPED,   /* gated only: min(ACT_SILU(g), limit) * clamp(u, -limit, limit) */
    ACT_XIELU,          /* ungated only; parameters in xielu_desc */
    ACT_CLAMPED_SILU,   /* gated only: ACT_SILU(min(g, limit)) * clamp(u, -limit, limit) */
} activation;
#define N_ACTIVATIONS (ACT_CLAMPED_SILU + 1)

/* Whether the function has a limit, so it takes gate and up product together. */
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
    int32_t n_kv_heads, d_key, d_value; /* full, window: KV heads; width of a head's key and value */
    int32_t window;                     /* window: number of tokens to keep */
    int32_t d_latent;                   /* latent: elements kept per token (latent rank + rotary part) */
    int32_t n_units;    /* state: parts that may lie apart in memory: heads, or runs of channels */
    int64_t unit_bytes; /* state: bytes of a unit for one sequence, with 32-bit elements */
    bool stays_wide;    /* state: kept in F32 whatever the type of states (kv_types) */
} cache_desc;

/* Bytes of one sequence's state in this cache; 0 if it keeps tokens. */
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
    /* the layer's operations, in order: a static list; NULL in plans without a model */
    const layer_step *steps;
    /* numbers of its caches, or NO_CACHE: for attention; for a recurrence and the short
     * convolution before it (if the layer attends: for making its index keys); for a
     * second attention or an index; for the last tokens, and for the convolution over
     * their n-grams */
    int16_t caches[LAYER_CACHES];
    int16_t rope;      /* number of the rotary table, or NO_ROPE */
    int32_t n_heads;   /* query heads; 0: the layer does not attend */
    int32_t window;    /* a query sees the last `window` positions, its own included; 0: all */
    int32_t chunk;     /* a query sees only its own chunk of this many positions; 0: all */
    int32_t d_ff;      /* width of the dense feed-forward part; 0: there is none */
    int32_t n_experts; /* 0: none */
    /* limits of clamped activations: in the experts, and in the dense part or the shared
     * expert; 0: none. With a limit, ACT_SILU becomes ACT_SILU_CLAMPED */
    float limit, dense_limit;
    /* the dense part's gate first passes NORM_ABOVE with this cutoff; 0: it does not */
    float cutoff;
    xielu_desc xielu;      /* parameters of ACT_XIELU */
    residual_mix mixes[2]; /* parameters of its add steps that mix, in order */
} layer_desc;

/* What a norm does to a group of elements x. The first two then multiply by weights. */
typedef enum norm_kind {
    NORM_RMS,
    NORM_LAYER,
    NORM_RMS_WEIGHED, /* NORM_RMS without weights of x times the weights */
    NORM_SCALE,       /* no norm: x times weights */
    NORM_ABOVE,       /* max(x - mean - cutoff * standard deviation, 0) (Gemma 3n) */
} norm_kind;

/* What the norm of queries and keys covers. */
typedef enum qk_norm_kind {
    QK_NORM_NONE,
    QK_NORM_HEAD,     /* each head; all heads share one weight vector */
    QK_NORM_HEADS,    /* each head, with its own weight vector */
    QK_NORM_ROW,      /* all heads of a row together */
    QK_NORM_BARE,     /* each head, without weights, in layers with rotary embedding */
    QK_NORM_BARE_ALL, /* each head, without weights, in all layers */
} qk_norm_kind;

/* Row order of a checkpoint's query_key_value: all of q, then k, then v; or per KV head
 * its queries, its key, its value. GGUF has the first. */
typedef enum qkv_order { QKV_STACKED, QKV_GROUPED } qkv_order;

/* A gate that multiplies attention's result before the output product: a function of a
 * linear map of attention's input. */
typedef enum attend_gate {
    ATTEND_NO_GATE,
    ATTEND_GATE_ELEMENTS, /* a value per element */
    ATTEND_GATE_HEADS,    /* a value per head */
    ATTEND_GATE_QUERIES,  /* a value per element; the query tensor holds each head's query, then its gate */
} attend_gate;

/* The norms of rows of width d_model. All 0: as in Llama. */
typedef struct norm_desc {
    norm_kind kind;
    bool add_one;      /* weights are stored as w - 1 */
    bool plain_last;   /* the last norm's weights are stored as w in spite of add_one */
    bool bare;         /* norms have no weights */
    bool inner;        /* more norms before the output product of attention and the down product (BitNet) */
    float post_eps;    /* epsilon of the norms after attention and MLP; 0: norm_eps */
    int32_t gate_rank; /* rank of the gates after norms, for layers whose steps have them */
    bool post_weighed; /* norms after a branch: NORM_RMS_WEIGHED, or without weights if files name none */
} norm_desc;

/* How layers attend, apart from their sizes. All 0: as in Llama. */
typedef struct attend_desc {
    qkv_order order;
    qk_norm_kind qk_norm;
    norm_kind qk_norm_type;
    bool norm_after_rope; /* queries and keys are normed after rotation, not before */
    bool v_norm;          /* each head of values passes a norm without weights */
    /* with v_norm: in layers that have no window and no value weights, values are the
     * keys before norm and rotation */
    bool values_are_keys;
    bool sinks;            /* each head has a logit that only adds to the softmax's sum */
    bool sinks_in_windows; /* sinks only in layers with a window */
    float value_scale;     /* factor of values; 0 means 1 */
    bool scale_by_layer;   /* the scores of layer i, counted from 1, are divided by i */
    float temperature;     /* layers without rotary embedding multiply the query at position p by */
    /* 1 + temperature * ln(1 + floor((p + 1) / temperature_length)); 0: no scaling */
    int32_t temperature_length;
    bool temperature_on_all; /* scales in all layers, by floor(p / temperature_length) instead */
    /* each head, also of the index, scales by s ln(p + 1) + b instead (weights s, b) */
    bool temperature_by_head;
    float cap;                 /* cap of scores (soft-capping); 0: none */
    float clip;                /* bound to which q, k and v are clamped; 0: none */
    float alibi;               /* the largest exponent of ALiBi's slopes; 0: none */
    float in_scale, out_scale; /* factors of attention's input and of its output; 0 means 1 */
    float alibi_scale;         /* factor of ALiBi's slopes; 0 means 1 */
    bool alibi_bf16;           /* ALiBi's slopes are rounded to BF16 */
    /* instead: layers without rotary embedding multiply the query at position p by (1 +
     * (p + 1) / temperature_length)^temperature_power; 0: no scaling */
    float temperature_power;
    bool result_norm; /* each head of the result passes a norm without weights before the gate */
    attend_gate gate;
    bool gate_bias;    /* the gate has a bias for each element */
    activation gate_f; /* the gate's function */
} attend_desc;

/* Latent attention (layers whose cache is LAYER_LATENT). A head's query and key have
 * d_nope elements without position and d_rope with it. The d_nope elements of keys, and
 * values, are products of the latent. The caches' d_latent is rank + d_rope. */
typedef struct latent_desc {
    int32_t q_rank; /* rank of the latent from which queries are computed; 0: from the row itself */
    int32_t rank, d_nope, d_rope, d_value;
    float eps;                   /* epsilon of both latents' norms */
    float q_scale, latent_scale; /* factors of queries, and of the latent after its norm; 0 means 1 */
    /* layers without a rotary table have no rotary part: all d_nope + d_rope elements of
     * keys are products of the latent; caches keep `rank` elements (Mistral Large 4) */
    bool rotary_folds;
    /* queries are products of their latent, normed and plain side by side. So is a gate
     * for each element of the result; each head has its query rows, then its gate rows
     * (A.X K2) */
    bool q_gates;
} latent_desc;

/* What a row chooses among its visible keys. Blocks are runs of adjacent positions. */
typedef enum choose_kind {
    CHOOSE_KEYS,   /* keys, by the score of each */
    CHOOSE_BLOCKS, /* blocks, by their best key; each index head chooses for one KV head (MiniMax M3) */
    CHOOSE_POOLS,  /* blocks, by one pooled key each; the last, incomplete block is always read */
} choose_kind;

/* Where index queries come from. */
typedef enum index_source {
    INDEX_OF_LATENT,     /* the latent of the queries */
    INDEX_OF_NORMED_ROW, /* the row, after a norm with weights and biases */
    INDEX_OF_ROW,
} index_source;

/* The choice of keys (sparse attention). A layer with a CACHE_SECOND keeps an index key
 * of d_head elements per token in it, and chooses. With latents, a layer without that
 * cache reuses the choice of the last layer that made one. */
typedef struct index_desc {
    choose_kind kind;
    int32_t n_best; /* keys that a row reads; 0: all */
    int32_t n_heads, d_head;
    int32_t rope;     /* rotary table of index queries, which rotates a head's first elements; or NO_ROPE */
    int32_t key_rope; /* rotary table of index keys */
    int32_t block;    /* CHOOSE_BLOCKS, CHOOSE_POOLS: tokens of a block */
    int32_t n_own;    /* CHOOSE_BLOCKS: last blocks that a row always reads, its own included */
    index_source source;
    bool rms_norms; /* queries and keys have attention's norms; else keys a layer norm, queries none */
    bool unweighed; /* all heads have the same weight */
    /* a pool's key is a sum weighted by gates and places; else a mean, then normed */
    bool gated_pools;
} index_desc;

/* How rows are embedded. All 0: as in Llama. */
typedef struct embed_desc {
    float scale; /* factor of token embeddings; 0 means 1 */
    /* width of the token embeddings, which a matrix product maps to d_model; another one
     * maps the head's input back. 0: d_model, without products */
    int32_t width;
    bool normed;    /* rows pass a norm without weights */
    bool positions; /* learned positions are added */
    int32_t position_offset;
    /* tokens with the id position_offset - 1 are padding and take no position */
    bool skips_padding;
    int32_t n_token_types; /* rows of the table of token types, which is added; 0: there is none */
    int32_t d_layer_input; /* width of each layer's own token embedding (Gemma 3n); 0: there is none */
    /* rows of the table of these embeddings; larger ids use row 0. 0: a row for each
     * token */
    int32_t n_input_rows;
} embed_desc;

/* How a model with several residual streams uses them.
 *   STREAMS_PREDICTED  layers compute with one stream, predict the others and correct all
 *                      (AltUp: Baykal et al. 2023, arXiv:2301.13310)
 *   STREAMS_MIXED      each half of a layer reads a weighted sum of the streams and
 *                      changes all; nearly doubly stochastic matrices mix them
 *                      (hyper-connections: Zhu et al. 2024, arXiv:2409.19606)
 *   STREAMS_GATED      each half reads them through low-rank gates, and adds to all */
typedef enum streams_kind { STREAMS_PREDICTED, STREAMS_MIXED, STREAMS_GATED } streams_kind;

/* All 0: there is one residual stream. */
typedef struct streams_desc {
    streams_kind kind;
    int32_t n, active;  /* number of streams; STREAMS_PREDICTED: the one that layers compute with */
    int32_t n_rounds;   /* STREAMS_MIXED: rounds of Sinkhorn's normalisation */
    float eps;          /* STREAMS_MIXED: added to weights and sums */
    int32_t rank;       /* STREAMS_GATED: rank of the gates */
    int32_t d_laurel;   /* rank of the product beside attention (Gemma 3n) */
    bool scales_output; /* the stream that gets the layer's own embedding is scaled by weights */
} streams_desc;

#define DESC_MAX_STREAMS 8

#define NGRAM_MAX       8  /* longest n-gram */
#define NGRAM_MAX_HEADS 64 /* rows looked up per token */

/* Embeddings of n-grams: rows found by hashes of the last 2 .. n tokens, which are added
 * to all streams before a layer (Qwen4). Let t[0] be the row's token and t[1] the one
 * before it; from the last token with the id `end` on, older ones count as `end`. Head h
 * of n-gram length g reads row
 *   offsets[i] + (t[0] multipliers[0] ^ .. ^ t[g - 1] multipliers[g - 1]) mod sizes[i],
 * where i = (g - 2) n_heads + h, in two's complement of 64 bits with a non-negative
 * remainder. All 0: there are none. */
typedef struct ngram_desc {
    int32_t n, n_heads, d_head; /* longest n-gram; rows per n-gram length, and their width */
    int32_t n_taps;             /* taps of the convolution that follows, n tokens apart */
    int32_t end;
    int32_t layer;
    int32_t n_rows, rows_each; /* rows of the table, and of each of its parts but the last */
    int64_t multipliers[NGRAM_MAX];
    int32_t sizes[NGRAM_MAX_HEADS], offsets[NGRAM_MAX_HEADS];
} ngram_desc;

/* What comes after the last layer. All 0: as in Llama. */
typedef struct head_desc {
    float scale, cap; /* factor of logits (0 means 1), and their cap (0: none) */
    bool bare;        /* there is no norm before the head */
} head_desc;

/* How router logits become scores by which experts are chosen, and the weights of their
 * results.
 *   ROUTE_SOFTMAX         a softmax over all experts
 *   ROUTE_SIGMOID         a sigmoid of each logit
 *   ROUTE_SOFTMAX_CHOSEN  scores are the logits; weights are a softmax over the chosen
 *                         experts (gpt-oss, GraniteMoE)
 *   ROUTE_SPARSE_MIXER    PhiMoE: the best expert, then the best of the others. Weight
 *                         of an expert with logit t: its part of a softmax over those
 *                         logits s for which (t - s) / max(|s|, t) <= 2 * jitter_eps;
 *                         for the second expert, the first one's logit is left out. */
typedef enum route_score {
    ROUTE_SOFTMAX,
    ROUTE_SIGMOID,
    ROUTE_SOFTMAX_CHOSEN,
    ROUTE_SPARSE_MIXER
} route_score;

typedef struct moe_desc {
    /* experts per row; width of an expert, of the shared expert (0: none) */
    int32_t n_used, d_expert, d_shared;
    int32_t d_latent; /* width of the experts' input and output; 0: d_model */
    /* norms: of the experts' input (with d_latent), of each expert's result */
    bool latent_norm, result_norm;
    float router_scale; /* factor of the router's logits; 0 means 1 */
    int32_t n_groups, n_groups_used;
    route_score score;
    bool group_by_best_two, closed_is_zero, correction_bias, renormalise, scale_inputs, shared_gate;
    /* ROUTE_SIGMOID: the correction bias is added to the logits, not to their sigmoids */
    bool choose_by_logits;
    bool shared_mean; /* the routed and the shared experts' results are averaged, not added */
    float scale;      /* factor of the weights; 0 means 1 */
    float logit_cap;  /* cap of the router's logits; 0: none */
    float jitter_eps;
    float limit;      /* limit of the experts' activation */
    bool router_norm; /* the router has its own norm, and experts have scales (Gemma 4) */
    activation activation;
    bool interleaved; /* gate and up rows alternate in a checkpoint */
    bool transposed;  /* stacked experts of a checkpoint are [n_in, n_out] */
    /* experts for images, which a checkpoint has after those for text. If any, its
     * routers are [n_in, n_out] and its correction biases have a second row (ERNIE 4.5
     * VL) */
    int32_t n_image_experts;
    int32_t n_identity; /* the last n_identity experts of a layer return their input */
} moe_desc;

/* Norms in Mamba-1 of time step, B and C. */
typedef enum mamba_norms { MAMBA_NORMS_NONE, MAMBA_NORMS_BARE, MAMBA_NORMS_WEIGHED } mamba_norms;

/* Layers with Mamba's mixer (formulas in model/blocks_mamba.c): Mamba-1 if n_heads is 0,
 * else Mamba-2. All 0: there are none. */
typedef struct mamba_desc {
    int32_t n_inner;           /* width of x and z: channels, or heads times head width */
    int32_t n_heads, n_groups; /* Mamba-2: heads, and groups of heads that share B and C */
    int32_t n_states;          /* states of a channel: elements of B and C */
    int32_t n_taps;            /* taps of the convolution */
    int32_t step_rank;         /* Mamba-1: rank of the time step */
    activation activation;     /* function after the convolution; Mamba-1: also of z */
    mamba_norms inner_norms;   /* Mamba-1: of time step, B and C */
    float inner_eps;           /* epsilon of these norms, or of the norm after the heads */
    int32_t n_norm_groups;     /* Mamba-2: groups of the norm after the heads; 0: there is no norm */
    bool norm_first;           /* Mamba-2: that norm comes before the product with z, not after it */
    float step_least;          /* Mamba-2: lower bound of the time step */
    float step_most;           /* Mamba-2: upper bound of the time step; 0: no bounds */
    float in_scale, out_scale; /* factors of the mixer's input and of its output; 0 means 1 */
    float scales[5]; /* Mamba-2: factors of z, x, B, C and time step after the input product; 0 means 1 */
} mamba_desc;

#define DESC_MAX_SHARED_BLOCKS 16

/* Blocks of attention and feed-forward part whose weights several layers share; these
 * layers take the blocks in turn (Zamba 2). All 0: there are none. */
typedef struct shared_desc {
    int32_t n_blocks;
    int32_t adapter_rank; /* rank of the low-rank products that each layer adds to a block's weights */
    bool has_attention_adapters;
} shared_desc;

/* Layers with a gated linear recurrence (RecurrentGemma). All 0: there are none. */
typedef struct lru_desc {
    /* channels; blocks of channels, on which the gates of a block depend */
    int32_t width, n_blocks;
    int32_t n_taps; /* taps of the convolution before the recurrence */
} lru_desc;

/* Short convolutions of width d_model, in place of a layer's attention (LFM2). */
typedef struct conv_desc {
    int32_t n_taps; /* taps; 0: there are none */
} conv_desc;

/* Layers with linear attention: a matrix for each head in place of keys and values.
 *   DELTA_GATED      the gated delta rule, with one decay a head (Qwen3-Next)
 *   DELTA_CHANNELS   the same, with a decay for each channel of the key (Kimi Linear)
 *   DELTA_LIGHTNING  no delta rule; a head's decay follows from its number and the
 *                    layer's (MiniMax) */
typedef enum delta_kind { DELTA_GATED, DELTA_CHANNELS, DELTA_LIGHTNING } delta_kind;

/* The parameters of linear attention. All 0: there is none. */
typedef struct delta_desc {
    delta_kind kind;
    int32_t n_heads, n_key_heads; /* heads of values and of the result; heads of queries and keys */
    int32_t d_key, d_value;
    /* head h reads key head h % n_key_heads, as in GGUF files; else head h / (n_heads /
     * n_key_heads) */
    bool cyclic;
    int32_t n_taps;   /* taps of the convolutions of queries, keys and values; 0: there are none */
    int32_t d_low;    /* rank of the products that give decay and gate; 0: full rank */
    float beta_scale; /* factor of beta; 0 means 1 */
    float lower;      /* lower bound of a decay's logarithm; 0: none */
    activation gate;  /* function of the gate on the result */
    float norm_eps;   /* epsilon of the result's norm; 0: the model's */
} delta_desc;

/* How an input's rows become one row, its embedding. */
typedef enum pooling_kind {
    POOLING_NONE, /* the model's files do not say */
    POOLING_MEAN, /* the mean of all rows */
    POOLING_CLS,  /* the first row */
    POOLING_LAST, /* the last row */
} pooling_kind;

/* A function that is applied to each element of a row. */
typedef enum row_function {
    ROW_PLAIN,
    ROW_TANH,
    ROW_GELU,
    ROW_RELU,
    ROW_SIGMOID,
    N_ROW_FUNCTIONS
} row_function;

/* An operation on a pooled row. */
typedef struct pooled_step {
    /* f(W row + bias); the row divided by its length; f(layer norm of the row, with
     * weight and bias); a softmax over the row */
    enum { POOLED_DENSE, POOLED_LENGTH, POOLED_NORM, POOLED_SOFTMAX } kind;
    int32_t n_in, n_out; /* POOLED_DENSE: width of its input and output */
    row_function f;
    bool has_bias, may_have_bias; /* a bias is required; a bias is used if the file has one */
    char name[80];                /* name of its tensors, without ".weight"; "model." as in weight_name */
} pooled_step;

#define DESC_MAX_POOLED 8

/* What a model's files say about its embeddings (sentence-transformers' modules.json,
 * GGUF's pooling_type). All 0: the files say nothing. */
typedef struct pooling_desc {
    pooling_kind kind;
    bool normalise; /* the result of the steps is divided by its length */
    /* scores of a head that replace the embedding (cross-encoders); 0: no such head */
    int32_t n_scores;
    int32_t n_steps;
    pooled_step steps[DESC_MAX_POOLED];
} pooling_desc;

typedef struct model_desc {
    char architecture[64]; /* as in the file, such as "llama" */
    char name[128];        /* the model's name for display; may be empty */
    int32_t n_layers, n_caches, n_ropes, d_model, n_vocab;
    int32_t max_positions;
    float norm_eps;
    float attention_scale; /* factor of q . k; 1 / sqrt(head width) in Llama */
    float residual_scale;  /* factor of what a layer adds; 0 means 1 */
    /* sum number n, counted from 2, is x sqrt((n - 1) / n) + y sqrt(1 / n) */
    bool residual_by_depth;
    float blend_temperature; /* temperature of steps that blend (model/steps.h) */
    activation activation;   /* function of the dense feed-forward part */
    bool ungated;            /* neither the dense part nor the experts have a gate */
    float gate_scale;        /* factor of the dense part's gate before the function; 0 means 1 */
    float down_scale;        /* factor of the dense part's result; 0 means 1 */
    bool conv1d;             /* matrices of the checkpoint are stored as [n_in, n_out] */
    bool two_sided;          /* bidirectional: rows also see later positions */
    bool tied_embeddings;
    bool no_head; /* the model gives rows but no logits: an encoder, or a decoder without its head */
    pooling_desc pooling;
    int32_t n_eos, eos[DESC_MAX_EOS]; /* tokens that end a generation */
    int32_t bos;                      /* -1: unknown */
    dtype weight_type;                /* the type in which most matrix parameters are stored */
    /* type that matrices get while loading (model/quantise_load.h); F32: their own */
    dtype quantise_to;
    /* the default compute mode for these weights: int8 for integers, f32 for 32-bit
     * floats, else bf16 */
    compute_mode auto_compute;
    bool has_fp8_kv; /* the checkpoint asks for FP8 keys and values */
    int64_t n_params, weight_bytes, weight_bytes_of[N_DTYPES];
    /* layers after the last that predict further tokens; not loaded (model/left_out.h) */
    int32_t n_next_token_layers;
    /* tensors that are not loaded: of these layers, of towers for images and sound, and
     * of the modules that left_out_names lists */
    int32_t n_left_out;
    char left_out_names[128]; /* such as "model.pooler, cls" */
    int64_t left_out_bytes;
    bool is_packed; /* weights are in the backend's layout, for packed_compute only */
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

/* Rotating elements of a layer's latents. */
static inline int32_t desc_rotary_part(const model_desc *d, const layer_desc *l) {
    return d->latent.rotary_folds && l->rope == NO_ROPE ? 0 : d->latent.d_rope;
}

/* Appends a layer and its attention cache to their lists. The caller keeps within the
 * limits, and sets the layer's other caches. */
void desc_add_layer(model_desc *d, layer_desc l, const cache_desc *c);
/* Appends a cache and returns its number. */
int16_t desc_add_cache(model_desc *d, const cache_desc *c);
/* Describes a plain decoder: n_layers layers with full attention of n_heads heads over
 * n_kv_heads, each d_head wide, rotary table 0 and a feed-forward part of d_ff.
 * Everything else is 0. */
model_desc desc_plain(int32_t n_layers, int32_t n_heads, int32_t n_kv_heads, int32_t d_head, int32_t d_ff);

/* The fewest and the most query heads of any layer that attends; both 0 if none does. */
void desc_heads(const model_desc *d, int32_t *fewest, int32_t *most);
/* The largest width of a dense feed-forward part; 0 if no layer has one. */
int32_t desc_widest_ff(const model_desc *d);
/* Whether a rotary table depends on the configured maximum length, which then belongs to
 * the numeric configuration. */
bool desc_scales_by_length(const model_desc *d);
/* Whether the model generates tokens; if not, it only gives rows for pooling. */
bool desc_gives_tokens(const model_desc *d);
/* Elements of a pooled row after the steps: of an embedding, or the number of scores. */
int32_t desc_pooled_width(const model_desc *d);
/* The first layer that attends, for summaries of a model. NULL: none does. */
const layer_desc *desc_attention_layer(const model_desc *d);

/* Adds a token that ends generation. Ignores duplicates, ids outside the vocabulary and
 * tokens beyond DESC_MAX_EOS. */
void desc_add_eos(model_desc *d, int64_t id);
void desc_drop_eos(model_desc *d, int32_t id);

/* QUIRE_INVALID if the description is inconsistent, QUIRE_UNSUPPORTED if this build
 * cannot compute it; err names the first bad number. */
quire_err desc_check(const model_desc *d, quire_error *err);

#endif
