/* The op contract: the operations that a device implements, with the shape of every
 * operand.
 *
 * A model (src/model) is written in terms of these ops and does not depend on a device. A
 * backend implements the table `backend_ops`. Activations are opaque: a model reserves
 * buffers (`buffer`) once at open and passes them to the ops. The weights of a product
 * determine the format of the rows that it reads (f32, bf16, int8 per token, int8 per 32
 * elements), and the op converts the rows. Ops are fused so that a conversion can be part
 * of the op that writes the rows: a norm with the products that read it, a product with
 * its residual, gate with up and the activation function.
 *
 * Threads: the engine thread makes all calls, except loading calls, which run before the
 * first step. Ops may be queued; their results are ready after step_wait. step_open
 * allocates for the largest batch; ops allocate nothing.
 *
 * Law (docs/design.md, Determinism): what an op writes for a row depends, bit for bit, on
 * that row's own inputs only, never on n_rows, threads, pages or the work list.
 *
 * Letters: M rows of the batch, D d_model, H heads, G kv heads, E d_head, F d_ff, V
 * vocabulary. Activations are row-major [M, width]. */
#ifndef BACKEND_H
#define BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/thread_pool.h"
#include "core/batch.h"
#include "core/dtype.h"
#include "core/kv_layout.h"
#include "core/model_desc.h"
#include "core/quant_matrix.h"
#include "core/recurrence.h"
#include "core/tensor.h"

typedef struct backend backend;
/* packed weights [n_out, n_in] with optional bias; owned by the backend */
typedef struct linear linear;
typedef struct norm norm; /* a norm's weight and kind */
/* rows looked up by index: tokens [V, D], positions [P, D], token types [T, D] */
typedef struct embedding embedding;
typedef struct rope rope;                 /* a rotary table or its frequencies */
typedef struct experts experts;           /* the weights of a mixture of experts */
typedef struct conv_taps conv_taps;       /* the taps of a short convolution */
typedef struct head_linears head_linears; /* one linear per head */
typedef struct adapter adapter;           /* changes that a fine-tune makes to loaded weights */

/* An activation buffer, reserved at open. */
typedef struct buffer {
    int32_t id;
} buffer;
#define BUFFER_NONE ((buffer){-1})

/* A norm to load. Each row is one group of `width` elements, or several (its heads), and
 * each group has its own statistics. Weight and bias have `width` elements that all
 * groups share, or one per element of the row ([W] or [H, width]). */
typedef struct norm_spec {
    norm_kind kind;
    int32_t width;
    float eps;
    bool add_one; /* the weight is 1 + w */
    /* norm_linears and feed_forward also write norm(x) to x: norms on the residual */
    bool replaces;
    float cutoff;              /* NORM_ABOVE only; it has no weight */
    const tensor_view *weight; /* NULL: no weight */
    const tensor_view *bias;   /* NULL: none; NORM_LAYER only */
} norm_spec;

/* What an embedded row is the sum of. NULL parts are left out; at least one of the three
 * embeddings is given. */
typedef struct embed_use {
    const embedding *tokens; /* indexed by token id; an external row replaces this part and is not scaled */
    float scale;             /* multiplies the token's row */
    int32_t n_known;         /* token ids from this one on are treated as 0; 0: all ids are known */
    const embedding *positions;
    int32_t position_offset;
    /* tokens with id position_offset - 1 are padding: their position is -1, and later
     * positions do not count them */
    bool skips_padding;
    const embedding *types; /* indexed by token type */
    const norm *nm;
    buffer x;
} embed_use;

/* The first half of a feed-forward layer. */
typedef struct feed_forward_use {
    buffer x;
    const norm *nm;     /* may be NULL */
    const linear *gate; /* NULL: ungated */
    const linear *up;
    activation f;
    float limit;             /* for activations with a limit */
    const xielu_desc *xielu; /* for ACT_XIELU, which has no gate */
    buffer h;
    const linear *reader; /* the weights of the only product that reads h, or NULL */
} feed_forward_use;

/* An elementwise product. */
typedef struct multiply_use {
    activation f; /* a function of one argument */
    buffer gate;  /* [M, W], or [M, G] with one element per W / G elements of x */
    buffer x;
    int32_t column; /* first of the W columns of x */
    buffer out;     /* [M, W]; may be gate, or x if column is 0 */
    /* first column of the gate in its buffer, and number of columns; 0: all */
    int32_t gate_column, n_gates;
    bool adds; /* out += the product; requires fewer gates than W */
} multiply_use;

/* One product of a fused set: out = x W^T (+ bias). As in every product of a linear, the
 * row's adapter may change it (adapter_change). */
typedef struct linear_use {
    const linear *w;
    buffer out;
} linear_use;

/* The weights of a product. */
typedef struct linear_spec {
    const tensor_view *weight; /* [n_out, n_in] */
    const tensor_view *bias;   /* [n_out], or NULL */
    /* compute as with --compute f32 in every mode: weights and rows stay floats */
    bool exact;
    row_rounding rounding; /* rounding of the rows under fp8 compute */
    /* a quantised checkpoint left these weights unquantised: 16-bit weights are computed
     * as if `exact` under int8 */
    bool left_out;
} linear_spec;

/* What an adapter changes of one loaded object. Exactly one of w, nm and rows is set.
 *
 * w: with h the row that the product reads, as f32 in every compute mode (after the norm,
 * before quantisation), the product W h + bias becomes
 *   g (W h + scale B (A h)) + bias'
 * where `instead` and `bias` replace W and bias if they are given, and g is `factors`,
 * one per output row, or 1 (DoRA: magnitude / ||W + scale B A||). The addend is computed
 * in f32: t[r] = sum over k of A[r, k] h[k], then scale times the sum over r, ascending,
 * of B[n, r] t[r]. LoRA: Hu et al. 2021, arXiv:2106.09685; DoRA: Liu et al. 2024,
 * arXiv:2402.09353. nm: `norm` gives the norm's new weight and bias. rows: a row becomes
 * E[id] + scale B A[:, id], where `weight` replaces E if it is given. */
typedef struct adapter_change {
    const linear *w;
    const norm *nm;
    const embedding *rows;
    /* f32, f16 or bf16; both or neither. For w [rank, n_in] and [n_out, rank]; for rows
     * [rank, V] and [D, rank] */
    const tensor_view *a, *b;
    float scale;
    /* w: [n_out] factors g; NULL: all are 1 */
    const float *factors;
    const float *bias;          /* w: [n_out], replaces the bias; or NULL */
    const linear_spec *instead; /* w: replaces the weights, same shape; or NULL */
    const tensor_view *weight;  /* rows: [V, D], replaces the table; or NULL */
    const norm_spec *norm;      /* nm: the new weight and bias */
} adapter_change;

#define ROUTE_MAX_EXPERTS 1024
#define ROUTE_MAX_USED    64

/* How rows choose their experts. First groups, then experts of the chosen groups are
 * taken by highest score + bias; ties go to the lower index, and NaN loses to every
 * number. A weight is the expert's score without bias, to which renormalise, scale and
 * expert_scales apply in this order. ROUTE_SIGMOID without bias and groups, or with
 * by_logits, compares logits, because sigmoids close to 1 round to the same number.
 * Invariant, checked by experts_load: 1 <= n_used <= n_experts; all groups have the same
 * size; the chosen groups hold at least n_used experts. */
typedef struct routing {
    int32_t n_experts, n_used;       /* n_used: experts per row */
    int32_t n_identity;              /* the last so many experts have no weights and return their input */
    int32_t n_groups, n_groups_used; /* n_groups 0 or 1: no groups */
    route_score score;
    /* a group's score is the sum of its two best experts' scores (DeepSeek-V3), else the
     * best one's (V2) */
    bool group_by_best_two;
    bool by_logits; /* ROUTE_SIGMOID: choose by logit + bias */
    float cap;      /* logits are first replaced by cap * tanh(logit / cap); 0: no cap */
    /* experts outside the chosen groups compete with score 0, and so beat negative scores
     * (A.X K2), instead of coming last */
    bool closed_is_zero;
    const float *bias;          /* [n_experts] added to scores for the choice only; or NULL */
    bool renormalise;           /* divide a row's weights by their sum */
    float scale;                /* multiplies every weight */
    const float *expert_scales; /* [n_experts] multiplies each expert's weight (Gemma 4); or NULL */
    /* the weight multiplies the expert's input instead of its result (Llama 4) */
    bool scale_inputs;
    float jitter_eps; /* for ROUTE_SPARSE_MIXER */
} routing;

/* The weights of a mixture: routing->n_experts - n_identity loaded linears, all gates,
 * ups and downs of one shape each. The backend keeps the pointers to the linears, not the
 * arrays. */
typedef struct experts_weights {
    const routing *routing;
    linear *const *gate;     /* [F, D] each; NULL: ungated */
    linear *const *up;       /* [F, D] each */
    linear *const *down;     /* [D, F] each */
    const norm *result_norm; /* applied to each expert's result before its weight; NULL: none */
} experts_weights;

/* One use of a mixture; see experts() for what it computes. */
typedef struct experts_use {
    buffer x;
    const norm *nm; /* may be NULL */
    const experts *w;
    activation f;
    float limit; /* for activations with a limit */
    float scale;
    bool overwrite; /* y = scale * sum instead of y += */
    buffer y;       /* may be x's buffer */
} experts_use;

/* A layer's attention mask and score changes, as data. A zeroed struct with causal = true
 * and scale set describes a plain decoder.
 *
 * A sequence may add programs of its own (batch_seq.mods). A key is visible if both this
 * spec and the program's mask allow it. The program changes scores after this spec does:
 * s = program(cap or slope(scale q . k)). It reads q_idx, the row's position; kv_idx, the
 * key's position; h of n_heads, the query head in this layer; b, batch_seq.b; n_kv, the
 * number of keys that exist for the row: position + 1 if causal, else the sequence's
 * n_tokens. A hidden key is skipped, never multiplied by 0. A key with score -infinity
 * has weight 0 and changes nothing, unless its value is not finite, which can give NaN. A
 * row without a visible key, or with scores of -infinity only, gives zeros. Faults of a
 * mask count at keys that the spec allows, faults of scores at keys that the mask allows
 * too. */
typedef struct attn_spec {
    float scale;        /* multiplies q . k */
    bool causal;        /* key j is visible to row i only if j <= i; false: all keys are */
    int32_t window;     /* 0: none; else visible only if i - j < window and, if not causal, j - i < window */
    int32_t chunk;      /* 0: none; else visible only if i / chunk == j / chunk */
    float soft_cap;     /* 0: none; else s = cap * tanh(s / cap) */
    const float *sinks; /* [H] an extra unscaled logit in each head's softmax sum, or NULL */
    const float *alibi_slopes; /* [H], s += slope * (j - i), or NULL */
    /* a row reads only the keys that the last choose() selected for it, as if the
     * sequence held no others; chunks of attention are cut from that list. Not with
     * window, chunk, slopes or programs */
    bool chosen;
} attn_spec;

/* Selects the keys that a row reads, among those up to its own position.
 *
 *   CHOOSE_KEYS    the n_best keys with the highest score (DeepSeek-V3.2's index):
 *     sum over h = 0 .. H - 1, ascending, of w[h] max(q[h] . k, 0), each product and sum
 *     rounded. One selection for all heads of attention.
 *   CHOOSE_BLOCKS  the n_best / block blocks of `block` positions that hold the highest
 *     scores q[h] . k of visible keys; the row's own block and the n_own - 1 before it
 *     are always selected. Each h selects for its own KV head h.
 *   CHOOSE_POOLS   the n_best / block whole blocks whose last key has the highest score,
 *     as in CHOOSE_KEYS, and the keys after the last whole block.
 * If there are fewer, a row reads all of them. Ties go to the earlier key; NaN loses to
 * every number. */
typedef struct choose_use {
    choose_kind kind;
    int32_t cache;   /* a cache of kind LAYER_LATENT, whose latents are the keys k [n, D] */
    buffer q;        /* [M, H D] */
    buffer weights;  /* [M, H]; BUFFER_NONE: all 1 */
    int32_t n_heads; /* H */
    float scale;     /* multiplies the weights first */
    int32_t n_best;
    int32_t block, n_own;
} choose_use;

/* Number of lists per row, and of keys per list, that a selection takes. */
static inline int32_t choose_lists(choose_kind kind, int32_t n_heads) {
    return kind == CHOOSE_BLOCKS ? n_heads : 1;
}
static inline int32_t choose_room(choose_kind kind, int32_t n_best, int32_t block) {
    return kind == CHOOSE_POOLS ? n_best + block - 1 : n_best;
}

/* Scales the query at position p by 1 + slope * ln(1 + floor((p + offset) / length)), or
 * by (1 + (p + offset) / length)^power, or head h by slopes[h] * ln(p + 1) + biases[h].
 * All 0: no scaling. */
typedef struct query_scale {
    float slope, power;
    int32_t offset, length;
    const float *slopes, *biases; /* [H] each, or NULL */
} query_scale;

/* What a layer does with queries, keys and values before attention, in this order: norms
 * them, clips them, rotates queries and keys (or norms after the rotation), scales each
 * query by its position, and stores keys and values. On a GPU: one kernel with a block
 * per row and head; norms over all heads take a block per row. */
typedef struct kv_store_use {
    int32_t cache; /* its pages receive keys and values at the batch's slots */
    /* [M, H E], [M, G E], [M, G E], changed in place. k BUFFER_NONE: another layer writes
     * the cache, and only q is prepared */
    buffer q, k, v;
    /* each covers a head or the whole row, depending on its width; NULL: none */
    const norm *q_norm, *k_norm, *v_norm;
    bool norm_after_rope; /* applies to q and k */
    const rope *rope;     /* NULL: no rotation */
    /* a scale per head of keys and of values, for fp8_e4m3 pages; NULL: a scale per
     * row */
    const float *k_scales, *v_scales;
    float clip; /* clamp q, k and v to -clip .. clip; 0: no clamping */
    query_scale scale;
} kv_store_use;

/* What a layer with one latent for all heads (MLA: DeepSeek-AI 2024, arXiv:2405.04434)
 * does before attention: norms the first `rank` elements of a row's latent, multiplies
 * them by latent_scale, rotates the other elements, and stores the latent. It also
 * rotates as many elements at the end of each query head, and scales each query by its
 * position. On a GPU: like kv_store. */
typedef struct latent_store_use {
    int32_t cache; /* a cache of kind LAYER_LATENT; its pages receive latents of width L */
    buffer latent; /* [M, L], changed in place; BUFFER_NONE: another layer writes the cache */
    int32_t rank;
    buffer q;         /* [M, H Q], changed in place; the last L - rank of a head's Q elements are rotated */
    int32_t n_heads;  /* H */
    const norm *nm;   /* covers rank elements; NULL: none */
    const rope *rope; /* NULL: no rotation */
    const rope *key_rope; /* for the latent; NULL: rope */
    float latent_scale;
    query_scale scale;
} latent_store_use;

/* Residual streams: N streams of D elements side by side, [M, N D].
 *
 * hyper_weights computes the coefficients of hyper-connections in place from x [M, N (N +
 * 2)]. With z = scale x + base, where scale has one element for the first N columns, one
 * for the next N and one for the last N x N:
 *   read[s] = sigmoid(z) + eps;  write[s] = 2 sigmoid(z)
 *   mix [N, N] = softmax(z of a row) + eps; every column is divided by its sum + eps,
 *   then n_rounds - 1 times every row and every column. */
typedef struct hyper_use {
    buffer x;
    int32_t n, n_rounds; /* n: N, from 1 to DESC_MAX_STREAMS */
    float eps;
    const float *scale, *base; /* [3], [N (N + 2)] */
} hyper_use;

/* out [M, D] = sum over s, ascending, of weights[column + s] streams[s], by fma. weights
 * BUFFER_NONE: the plain sum times 1 / N. */
typedef struct streams_read_use {
    buffer streams;
    int32_t n;
    buffer weights;
    int32_t column;
    buffer out;
} streams_read_use;

/* streams[t] = (mixed: sum over s, ascending, of weights[mix + s N + t] streams[s], else
 * streams[t]) + gain f(weights[column + t]) y, by fma, y last. */
typedef struct streams_write_use {
    buffer streams;
    int32_t n;
    buffer weights;
    int32_t column;
    bool is_mixed;
    int32_t mix;  /* first column of the mixing weights */
    activation f; /* a function of one argument */
    float gain;
    buffer y; /* [M, D] */
} streams_write_use;

/* out [M, N]: sigmoid(sign(g) sqrt(max(|g|, 1e-6))), where g = scale times the sum over
 * d, ascending, of a[s D + d] b[s D + d], by fma. */
typedef struct stream_gates_use {
    buffer a, b; /* [M, N D] */
    int32_t n;
    float scale;
    buffer out;
} stream_gates_use;

/* A product with separate weights for each head: out[m, h] = [in[m, h] W_h^T, the last
 * n_kept elements of in[m, h]]. Sums as in norm_linears. */
typedef struct head_products_use {
    const head_linears *w; /* [N, K] for each of H heads */
    int32_t n_kept;        /* elements at the end of a head that are copied to out, after the product */
    buffer in;             /* [M, H (K + n_kept)] */
    buffer out;            /* [M, H (N + n_kept)] */
} head_products_use;

/* Recurrences. A state belongs to a sequence and a cache of kind LAYER_STATE. It is kept
 * in f32 or bf16 (kv_types.state) in the cache's units (kv_state_unit), in batch_seq's
 * pages. In bf16, each S below and each input that a convolution keeps is rounded to
 * nearest even before it is read. An op reads the state (zeros at position 0), processes
 * the sequence's rows in order, and writes back the state after the last row; after a row
 * with a snapshot it also writes the state to the snapshot's pages. So the state after n
 * tokens depends on these tokens only, however they were split into steps. A row that is
 * not finite leaves a state that is not finite. */

/* A causal convolution of each channel with its own taps. With K taps, state s of channel
 * c is its last K - 1 inputs:
 *   out[t, c] = f(bias[c] + sum over j = 0 .. K - 1, ascending, of
 *                 w[c, j] x[t - K + 1 + j, c]), by fma from bias[c] or 0
 * The state has units of CONV_UNIT channels (core/recurrence.h). Channel c of this use is
 * in unit `unit` + c / CONV_UNIT, so that several uses can share a cache. */
typedef struct conv_use {
    int32_t cache, unit;
    const conv_taps *w;
    activation f; /* a function of one argument */
    buffer x;     /* [M, C] */
    buffer out;   /* [M, C]; may be x */
} conv_use;

/* Pools the keys of n adjacent positions into one. The row at position p, where p + 1 is
 * a multiple of n, gets for each channel c
 *   (sum of e[j] x[j, c]) / (sum of e[j]),  e[j] = exp(gate[j, c] + bias[j, c] - max),
 * over j = 0 .. n - 1, ascending, for the n rows up to its own; other rows get 0. The
 * state has units of CONV_UNIT channels of the last n - 1 rows: [n - 1][2][CONV_UNIT], x
 * and gate, oldest first. */
typedef struct pool_use {
    int32_t cache;
    int32_t n;
    buffer x, gate;    /* [M, C] */
    const float *bias; /* [n, C] */
    buffer out;        /* [M, C]; may be x */
} pool_use;

/* Looks up embeddings of n-grams (ngram_desc). A row of external embeddings counts as
 * `end`. The state is one unit: the ids of the last n - 1 tokens, + 1; 0 before the first
 * token, which counts as `end`. */
typedef struct ngram_use {
    int32_t cache;
    const ngram_desc *d;
    /* [n_rows, d_head] in tables of rows_each rows; the last table may have fewer */
    const embedding *const *tables;
    int32_t rows_each;
    buffer out; /* [M, (n - 1) n_heads d_head]: the rows in ascending order of i */
} ngram_use;

/* How a head's state decays from row to row. With t[h] = softplus(decay[h] + bias[h])
 * clamped to t_min .. t_max, or 1 if decay is BUFFER_NONE:
 *   DECAY_SOFTPLUS  a = exp(-rate[h] t)
 *   DECAY_BOUNDED   a = exp(lower sigmoid(rate[h] (decay + bias)))
 * per_channel: a decay for each channel of the key; decay and bias then have Dk elements
 * per head. */
typedef enum decay_kind { DECAY_SOFTPLUS, DECAY_BOUNDED } decay_kind;

/* Linear attention with a matrix S [Dk, Dv] per head: Mamba-2, lightning attention, and
 * the gated delta rule (scalar gates: GDN; a gate per channel: KDA). H value heads, G
 * heads of queries and keys; head h reads key head h / (H / G), or h % G if cyclic. For
 * each row:
 *   q, k = x / sqrt(sum x^2 + qk_eps) if qk_eps > 0; q = q_scale q
 *   u = v, times t[h] if values_by_time
 *   with beta: u = beta_scale sigmoid(beta[h]) (u - S^T (a k))
 *   S[i, :] = a[i] S[i, :] + k[i] u
 *   out = S^T q
 *   with skip: out += skip[h] v
 * Sums over i ascend, by fma; value columns are independent of each other. A unit of the
 * state is one head: [Dv / 16 rounded up][Dk][16] floats. */
typedef struct linear_attention_use {
    int32_t cache;
    int32_t n_heads, n_key_heads, d_key, d_value; /* H, G, Dk, Dv */
    bool cyclic;
    buffer q, k, v; /* [M, G Dk], [M, G Dk], [M, H Dv] */
    float qk_eps, q_scale;
    decay_kind decay_kind;
    bool per_channel;
    buffer decay;              /* [M, H], or [M, H Dk] if per_channel; BUFFER_NONE: t is 1 */
    const float *rate;         /* [H] */
    const float *decay_bias;   /* [H], or [H Dk] if per_channel; NULL: 0 */
    float lower, t_min, t_max; /* t_max 0: t is not clamped */
    bool values_by_time;
    buffer beta; /* [M, H]; BUFFER_NONE: no delta rule */
    float beta_scale;
    const float *skip; /* [H], or NULL */
    buffer out;        /* [M, H Dv]; may be v */
} linear_attention_use;

/* Mamba's selective scan: C channels with N states each. For each row and channel:
 *   t = softplus(dt[c] + dt_bias[c])
 *   S[n] = exp(t a[c, n]) S[n] + (t x[c]) b[n]
 *   out[c] = sum over n, ascending, of S[n] c[n], + skip[c] x[c]
 * A unit of the state is 16 channels: [N][16] floats. */
typedef struct scan_use {
    int32_t cache;
    int32_t n_channels, n_states;
    buffer x, dt;         /* [M, C] */
    buffer b, c;          /* [M, N] */
    const float *a;       /* [C, N], negative */
    const float *dt_bias; /* [C], or NULL */
    const float *skip;    /* [C], or NULL */
    buffer out;           /* [M, C]; may be x */
} scan_use;

/* A gated linear recurrence (RG-LRU: De et al. 2024, arXiv:2402.19427): C channels in
 * blocks of W = C / n_blocks. For each row and channel c of block k:
 *   i = sigmoid(input_bias[c] + sum over j, ascending, of x[k W + j] input[k][j][c])
 *   r = sigmoid(the same with decay)
 *   l = -rate[c] r; S = exp(l) S + sqrt(1 - exp(2 l)) (i x[c]); at position 0 S = i x[c]
 *   out[c] = S
 * A unit of the state is 16 channels of a block (lru_units), fewer in a block's last
 * unit. Gates are stored by unit. */
typedef struct lru_use {
    int32_t cache;
    int32_t n_channels, n_blocks;
    buffer x;           /* [M, C] */
    const float *gates; /* [units][W + 1][2][16]: input and decay; row W has the biases */
    const float *rate;  /* [units][16] */
    buffer out;         /* [M, C]; not x */
} lru_use;

/* One copy of a whole page inside the pool: dst = src. */
typedef struct kv_copy_pair {
    int32_t src, dst;
} kv_copy_pair;

/* Copies one token's slot to another within a group, in every plane, for accepted nodes
 * of a draft tree. */
typedef struct kv_move_pair {
    kv_slot src, dst;
    int32_t group;
} kv_move_pair;

/* Limits by which buffers are sized. */
typedef struct step_limits {
    int32_t max_rows, max_seqs, max_out, max_partials;
    int32_t fewest_heads, most_heads; /* query heads of attention layers; most_heads 0: unknown */
    int32_t max_adapters;             /* most in a batch; 0: no rows have adapters */
    int32_t max_rank; /* most of an adapter's A and B; a blend has the sum of its parts' ranks */
} step_limits;

/* How to open a backend: the numeric configuration and the machine. */
typedef struct backend_options {
    compute_mode compute;
    /* "auto", "plain", "avx2", "avxvnni", "avx512", "amx", "avx512bf16", "neon",
     * "i8mm" */
    const char *isa;
    int32_t n_threads;    /* 0: one for each core that the process may use */
    const char *cpu_bind; /* "auto", "none" (or NULL), or a list of processors to pin threads to: "0-3,8" */
} backend_options;

/* Kinds of ops in a trace. */
typedef enum op_kind {
    OP_EMBED,
    OP_NORM_LINEARS,
    OP_ROPE_STORE,
    OP_ATTENTION,
    OP_LINEAR_ADD,
    OP_FEED_FORWARD,
    OP_NORM_ADD,
    OP_NORM_ROWS,
    OP_MULTIPLY,
    OP_SCALE_ROWS,
    OP_ROUTE,
    OP_EXPERTS,
    OP_CONV,
    OP_LINEAR_ATTENTION,
    OP_SCAN,
    OP_HEAD_PRODUCTS,
    OP_CHOOSE,
    OP_LRU,
    OP_PLACE,
    OP_POOL,
    OP_NGRAMS,
    OP_HYPER_WEIGHTS,
    OP_STREAMS_READ,
    OP_STREAMS_WRITE,
    OP_STREAM_GATES,
    OP_HEAD,
    N_OPS
} op_kind;

/* One op that ran. bytes: the least that it must read: packed weights, the pages of the
 * work list (shared pages once), and states (read and written). operations:
 * multiplications and additions of products and attention. Both are 0 for ops that touch
 * only activations. */
typedef struct op_time {
    op_kind kind;
    int32_t n_rows;
    int64_t start_ns, ns; /* clock_ns() at its start, and its duration */
    int64_t rows_ns;      /* part of ns spent on input rows: norm and conversion */
    int64_t bytes, operations;
} op_time;

/* Ops in the order in which they ran; those beyond cap are dropped. The caller owns it
 * and resets n. */
typedef struct op_trace {
    op_time *ops;
    int32_t n, cap;
} op_trace;

/* The op table. NULL: the backend lacks the op, and models that need it are refused. */
typedef struct backend_ops {
    const char *name; /* "cpu" */
    uint32_t packing; /* version of linear_packed's layout */
    void (*close)(backend *b);
    /* One line for users: "cpu, avx2, 2 threads bound to 0-1". Valid until close. */
    const char *(*describe)(const backend *b);

    /* ---- loading: each call makes an object that the backend owns until close. The
     * tensor's bytes may be freed afterwards, unless its view says that they stay ---- */
    /* Packs a weight for the compute mode and the weight's type. I8 weights have one
     * scale per row; under int8 both are kept unchanged. A weight that is already packed
     * (linear_packed, with the same mode and `exact`) is used in place. */
    quire_err (*linear_load)(backend *b, const linear_spec *spec, linear **out, quire_error *err);
    /* The loaded weights as linear_load accepts them, without the bias: *n_bytes aligned
     * to 64, in the layout of version *packing. */
    const void *(*linear_packed)(const linear *l, size_t *n_bytes, uint32_t *packing);
    /* QUIRE_BAD_FILE: the weight or bias has another length than the spec's. */
    quire_err (*norm_load)(backend *b, const norm_spec *spec, norm **out, quire_error *err);
    /* QUIRE_INVALID: the routing breaks its invariant. QUIRE_BAD_FILE: the experts'
     * shapes differ. err names the number or the expert. */
    quire_err (*experts_load)(backend *b, const experts_weights *w, experts **out, quire_error *err);
    quire_err (*embedding_load)(backend *b, const tensor_view *weight, embedding **out, quire_error *err);
    /* A table over the rows of loaded weights, packed from a tensor of this type, without
     * memory of its own. QUIRE_UNSUPPORTED: the packed form does not hold the tensor's
     * values exactly. NULL: never supported. */
    quire_err (*embedding_of)(backend *b, const linear *w, dtype type, embedding **out);
    /* The loaded rows, in the loaded tensor's type. Not for tables of embedding_of. */
    const void *(*embedding_rows)(const embedding *e, size_t *n_bytes);
    /* Groups n_heads loaded linears of one shape. The backend keeps the pointers, not the
     * array. QUIRE_BAD_FILE: the shapes differ. */
    quire_err (*head_linears_load)(backend *b, linear *const *w, int32_t n_heads, head_linears **out,
                                   quire_error *err);
    /* Taps [C, K] or [C, 1, K], 2 <= K <= CONV_MAX_TAPS; bias [C] or NULL. */
    quire_err (*conv_load)(backend *b, const tensor_view *weight, const tensor_view *bias, conv_taps **out,
                           quire_error *err);
    /* max_positions: length of the tables. */
    quire_err (*rope_load)(backend *b, const rope_desc *d, int32_t max_positions, rope **out,
                           quire_error *err);
    /* Bytes of device memory used by loaded weights. */
    int64_t (*weight_bytes)(const backend *b);

    /* ---- adapters: immutable once made. Any thread, even while steps run; they take no
     * lock that a step takes ---- */
    /* Packs n changes to objects of this backend, at most one per object. Copies what it
     * needs. QUIRE_BAD_FILE: a shape does not fit the object. QUIRE_UNSUPPORTED: the
     * object cannot be changed in this way. err names the tensor. */
    quire_err (*adapter_load)(backend *b, const adapter_change *changes, int32_t n, adapter **out,
                              quire_error *err);
    /* Makes an adapter that adds the addends of n others, each times its scale, in this
     * order. It shares their memory: free it first. QUIRE_UNSUPPORTED: several parts
     * replace weights, biases or norms of one object, or have factors. */
    quire_err (*adapter_blend)(backend *b, const adapter *const *parts, const float *scales, int32_t n,
                               adapter **out, quire_error *err);
    /* Frees an adapter that no running batch uses. NULL is allowed. */
    void (*adapter_free)(backend *b, adapter *a);
    /* Bytes that it owns, without shared memory. */
    int64_t (*adapter_bytes)(const adapter *a);
    /* Writes row r [n_in] of the weights as f32, with the values that products use (after
     * quantisation). The norms of DoRA are computed from them. */
    void (*linear_row)(const backend *b, const linear *w, int32_t r, float *out);

    /* ---- memory ---- */
    /* Makes step_open reserve room for selections of n_lists lists per row (choose_lists)
     * of `room` keys (choose_room). */
    void (*choose_reserve)(backend *b, int32_t n_lists, int32_t room);
    /* Reserves an activation of `width` f32 elements per row; step_open sets the number
     * of rows. */
    buffer (*buffer_reserve)(backend *b, int32_t width);
    /* Allocates every buffer. Called once, after the model has reserved its activations.
     * n_vocab 0: no logits. */
    quire_err (*step_open)(backend *b, const step_limits *limits, const kv_layout *layout, int32_t n_vocab,
                           quire_error *err);
    /* Bytes that step_open allocated, without KV memory. */
    int64_t (*step_bytes)(const backend *b);
    /* Reserves n_pages pages of KV memory in the layout given to step_open. Their content
     * is undefined. */
    quire_err (*kv_open)(backend *b, int32_t n_pages, quire_error *err);

    /* ---- pages ---- */
    /* Returns the memory of n pages from `first` on to the system until they are written
     * again; their content becomes undefined. False: the system refused and nothing
     * changed. NULL: the device keeps its memory. */
    bool (*kv_discard)(backend *b, int32_t first, int32_t n);
    void (*kv_copy)(backend *b, const kv_copy_pair *pairs, int32_t n);
    void (*kv_move)(backend *b, const kv_move_pair *pairs, int32_t n);
    /* Copies K and V of positions 0..n_tokens to host arrays k and v [n_tokens, G, E], as
     * f32 of exactly the stored values. Latents [n_tokens, L] go to k, and v is unused.
     * pages: the sequence's block table in the cache's group. */
    void (*kv_gather)(backend *b, int32_t cache, const int32_t *pages, int32_t n_tokens, float *k, float *v);
    /* Copies a page (page_bytes of the layout) to or from host memory. */
    void (*kv_read_page)(backend *b, int32_t page, void *host);
    void (*kv_write_page)(backend *b, int32_t page, const void *host);

    /* ---- a step: begin, ops, wait ---- */
    /* The batch must stay unchanged until step_wait returns. Buffers lose their content;
     * debug builds fill them with NaN. */
    void (*step_begin)(backend *b, const batch *batch);
    void (*step_wait)(backend *b);

    /* x [M, D] = norm(scale * tokens[id] + positions[position + position_offset] +
     * types[type]), added in this order. Ids, positions and types must be within their
     * tables. If padding is skipped, all rows of a sequence are in the batch and
     * adjacent. On a GPU: one kernel, a block per row, including the norm. */
    void (*embed)(backend *b, const embed_use *use);
    /* n products of the same rows: h = norm(x) [M, D] (nm NULL: h = x), then out_i = h
     * W_i^T. x is set to h if the norm replaces. */
    void (*norm_linears)(backend *b, buffer x, const norm *nm, const linear_use *uses, int32_t n);
    /* Prepares queries, keys and values, and writes keys and values to pages. */
    void (*kv_store)(backend *b, const kv_store_use *use);
    /* Prepares latents and queries, and writes latents to pages. */
    void (*latent_store)(backend *b, const latent_store_use *use);
    /* out [M, H E] = softmax(scale q K^T, masked) V over the cache's pages, by the
     * batch's work list. Values may have another width than keys: q [M, H Ek], out [M, H
     * Ev]. In a cache of latents, [n, L], each latent is the key of all heads and its
     * first Ev elements are their value. On a GPU: programs are compiled into the kernel,
     * once per pair of texts; which chunks a mask hides or shows entirely is computed
     * once a step for all layers. */
    void (*attention)(backend *b, int32_t cache, buffer q, const attn_spec *spec, buffer out);
    /* x [M, D] += scale * (a W^T + bias). */
    void (*linear_add)(backend *b, buffer a, const linear_use *w, float scale, buffer x);
    /* h [M, F] = f(norm(x) gate^T) * (norm(x) up^T); without gate h = f(norm(x) up^T).
     * Each product adds its bias first. x is set to norm(x) if the norm replaces. With a
     * reader, h may be stored in that product's format, which nothing else can read;
     * otherwise h is f32. On a GPU: one product over the columns of gate and up side by
     * side, f in its epilogue. */
    void (*feed_forward)(backend *b, const feed_forward_use *use);
    /* x [M, D] += scale * norm(y); nm NULL: y itself. y is unchanged. For norms after
     * attention and feed-forward. On a GPU: one kernel, a block per row, which a backend
     * may fuse with the product that wrote y. */
    void (*norm_add)(backend *b, buffer y, const norm *nm, float scale, buffer x);
    /* out [M, D] = norm(x). out may be x. On a GPU: like norm_add. */
    void (*norm_rows)(backend *b, buffer x, const norm *nm, buffer out);
    /* out [M, W] = f(gate) * x[:, column .. column + W], or += if it adds. On a GPU: one
     * thread per element, memory-bound. */
    void (*multiply)(backend *b, const multiply_use *use);
    /* x [M, D] *= scale. On a GPU: like multiply. */
    void (*scale_rows)(backend *b, float scale, buffer x);
    /* Chooses the experts and weights of every row from its logits [M, n_experts], for
     * the next experts(). A row with a NaN gets some experts, with weights that may be
     * NaN. On a GPU the choice stays in device memory: the host does not wait for it. */
    void (*route)(backend *b, const routing *r, buffer logits);
    /* y [M, D] += scale * the sum, over the experts that route() chose for the row,
     * ascending, of weight * norm((f(h gate^T) * (h up^T)) down^T) with h = norm(x) (nm
     * NULL: h = x); f(h up^T) without gate; the outer norm only if w has a result_norm.
     * Each product adds its linear's bias. w has the routing that route() used. An
     * expert's weights are read once for all its rows, and only if it has rows. On a GPU:
     * one grouped product for gate and up and one for down, over rows sorted by
     * expert. */
    void (*experts)(backend *b, const experts_use *use);
    /* The recurrences. On a GPU: a block per sequence and head (or range of channels),
     * with the state in registers or shared memory throughout the op. */
    void (*conv)(backend *b, const conv_use *use);
    void (*linear_attention)(backend *b, const linear_attention_use *use);
    void (*scan)(backend *b, const scan_use *use);
    /* Selects keys for the attention ops that follow in this step. On a GPU: scores by
     * blocks of keys, then a radix select per row; attention gathers tokens by slot. */
    void (*choose)(backend *b, const choose_use *use);
    /* Products per head. On a GPU: one batched product with a batch per head. */
    void (*head_products)(backend *b, const head_products_use *use);
    void (*lru)(backend *b, const lru_use *use);
    void (*pool)(backend *b, const pool_use *use);
    void (*ngrams)(backend *b, const ngram_use *use);
    /* Residual streams. On a GPU: a block per row, memory-bound. */
    void (*hyper_weights)(backend *b, const hyper_use *use);
    void (*streams_read)(backend *b, const streams_read_use *use);
    void (*streams_write)(backend *b, const streams_write_use *use);
    void (*stream_gates)(backend *b, const stream_gates_use *use);
    /* out[:, column .. column + W] = x [M, W]. On a GPU: like multiply. */
    void (*place)(backend *b, buffer x, int32_t column, buffer out);
    /* Logits [n_out, V] of the batch's out_rows: scale * (norm(x) W^T + bias),
     * soft-capped if cap > 0, in the backend's own buffer. */
    void (*head)(backend *b, buffer x, const norm *nm, const linear *w, float scale, float soft_cap);

    /* ---- results, after step_wait ---- */
    /* Row i of the logits: host memory [V], valid until the next step_begin. The caller
     * may change it. */
    float *(*logits)(backend *b, int32_t i);
    /* The id of the largest logit of row i; ties go to the lowest id. head() computes it,
     * so this call reads no logits. -1: a logit is NaN or infinite. NULL: the backend
     * does not compute it. */
    int32_t (*argmax)(const backend *b, int32_t i);
    /* Copies rows row0..row0+n of an activation to the host, f32 [n, width]: hidden
     * states for drafters, pooling and tests. */
    void (*buffer_read)(backend *b, buffer a, int32_t row0, int32_t n, float *out);
    /* Writes rows of an activation from host memory, for tests and external inputs. */
    void (*buffer_write)(backend *b, buffer a, int32_t row0, int32_t n, const float *in);
    /* Runs fn for every task on the backend's n_workers compute threads, which are idle
     * between steps. One caller at a time among all backends that share the threads. Both
     * are NULL if the backend has no such threads. */
    void (*run_tasks)(backend *b, thread_pool_fn fn, void *context, int32_t n_tasks);
    int32_t (*n_workers)(const backend *b);
    /* Makes b compute on the threads of `with`, another backend of the same device, from
     * now on. Either may close first. Call after loading and before step_open. NULL if
     * run_tasks is. */
    void (*share_threads)(backend *b, const backend *with);
    /* Mark the calling thread as a compute thread between enter and leave: it is pinned
     * if the others are. The thread that runs steps calls enter. Both are NULL if
     * run_tasks is. */
    void (*enter)(backend *b);
    void (*leave)(backend *b);
    /* Starts timing every op into *to; NULL stops. Call between steps; takes effect with
     * the next one. Costs nothing while off. */
    void (*trace)(backend *b, op_trace *to);
} backend_ops;

/* The first member of every backend's own struct. */
struct backend {
    const backend_ops *ops;
    compute_mode compute;
};

/* Opens the CPU backend. QUIRE_UNSUPPORTED: this processor lacks options->isa.
 * QUIRE_INVALID: unknown name. */
quire_err backend_cpu_open(const backend_options *options, backend **out, quire_error *err);

#endif
