/* A model description: plain numbers that say what a model is. src/model reads them from a file's metadata; every room uses them.
 *
 * Invariant after desc_check(): every count is positive; n_heads * d_head and n_layers times any width fit int32_t, any three widths
 * multiply within int64_t; n_heads is a multiple of n_kv_heads; d_head is even and at most DESC_MAX_HEAD. Plain data: copy freely. */
#ifndef CORE_MODEL_DESC_H
#define CORE_MODEL_DESC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"

#define DESC_MAX_EOS 8
#define DESC_MAX_LAYERS 1024
#define DESC_MAX_HEAD 512 /* widest head */
#define DESC_MAX_LATENT (1 << 16)              /* widest latent */
#define DESC_MAX_STATE_BYTES ((int64_t)1 << 32) /* largest state of a layer */

typedef enum rope_kind { ROPE_NONE, ROPE_PLAIN, ROPE_LINEAR, ROPE_NTK, ROPE_LLAMA3, ROPE_YARN } rope_kind;
/* The pairs of a head's elements that rotate together: (i, i + n/2), as Hugging Face stores them, or (2i, 2i + 1), as GGUF stores
 * Llama's. */
typedef enum rope_pairs { ROPE_HALVES, ROPE_NEIGHBOURS } rope_pairs;

typedef struct rope_desc {
    rope_kind kind;
    rope_pairs pairs;
    int32_t n_dims;         /* elements of a head that rotate (even, <= d_head) */
    float theta;            /* base */
    float factor;           /* linear, ntk, llama3, yarn */
    float low_freq_factor, high_freq_factor; /* llama3 */
    float beta_fast, beta_slow;              /* yarn */
    float attention_factor; /* yarn: scales cos and sin; 0: 0.1 ln(factor) + 1 */
    bool truncate;          /* yarn: correction range rounded outwards to integers */
    int32_t original_positions; /* trained length before scaling */
    const float *freq_factors;  /* [n_dims/2] divisors of the frequencies from GGUF's rope_freqs, or NULL; the file owns them */
} rope_desc;

/* The function of a gate g, and of an up product u where it is gated: f(g) * u. */
typedef enum activation {
    ACT_SILU,       /* g * sigmoid(g) */
    ACT_GELU,       /* g * (1 + erf(g / sqrt(2))) / 2 */
    ACT_GELU_TANH,  /* its approximation by tanh */
    ACT_RELU,       /* max(g, 0) */
    ACT_RELU2,      /* max(g, 0)^2 */
    ACT_GELU_QUICK, /* g * sigmoid(1.702 g) */
    ACT_SIGMOID,
    ACT_NONE,           /* g */
    ACT_SWIGLU_CLAMPED, /* gated only: ACT_GELU_QUICK of min(g, limit), times clamp(u, -limit, limit) + 1 */
} activation;
#define N_ACTIVATIONS (ACT_SWIGLU_CLAMPED + 1)

/* What a layer keeps of the past (docs/design.md, Pages). */
typedef enum layer_kind { LAYER_FULL, LAYER_WINDOW, LAYER_LATENT, LAYER_STATE } layer_kind;

typedef struct model_desc {
    char architecture[64]; /* "llama" */
    char name[128];        /* for people; may be empty */
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab;
    int32_t max_positions;
    float norm_eps;
    float attention_scale; /* 1 / sqrt(d_head) for Llama */
    activation activation;
    bool tied_embeddings;
    rope_desc rope;
    layer_kind *layer_kinds; /* [n_layers], or NULL: all LAYER_FULL; owned by the model */
    int32_t window;          /* of LAYER_WINDOW layers, 0 otherwise */
    int32_t d_latent;        /* of LAYER_LATENT layers: elements kept a token (latent rank + rotary part), 0 otherwise */
    int64_t state_bytes;     /* of LAYER_STATE layers: bytes a layer keeps for a sequence, 0 otherwise */
    int32_t n_eos, eos[DESC_MAX_EOS]; /* tokens that end a generation */
    int32_t bos;             /* -1: none known */
    dtype weight_type;       /* the type of most of the matrices' parameters */
    int64_t n_params, weight_bytes;
    bool is_packed;              /* its weights are in the backend's layout, for one compute mode only: */
    compute_mode packed_compute;
} model_desc;

/* Refuses a description that no model has or that this build cannot compute; err names the first bad number. */
quire_err desc_check(const model_desc *d, quire_error *err);

#endif
