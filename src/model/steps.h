/* The steps of a layer: what it computes, in order. `describe` gives every layer such a
 * list; decoder_layers.c binds the lists to weights and to the backend's ops.
 *
 * A list works on three rows of the model's width: X, the residual, and its branches A
 * and B, which last as long as the layer. A step reads one row and writes one; ADD adds
 * to it.
 *
 *   NORM(role, X, A)  ATTEND(A, A)  ADD(A, X)     x += attend(norm(x))
 *   NORM(role, X, X)                              norms the residual
 * Steps only define the order. A layer's parameters are in layer_desc, those that all
 * layers share in model_desc: norm, attend, moe, activation, residual_scale.
 *
 * A new kind of layer is a new kind of step: a value of step_kind, a name in steps.c, and
 * a function in decoder_layers.c's table. */
#ifndef MODEL_STEPS_H
#define MODEL_STEPS_H

#include "core/model_desc.h"
#include "model/weight_names.h"

typedef enum step_kind {
    STEP_END,
    STEP_NORM,
    STEP_ATTEND,
    STEP_LATENT, /* attention to one latent for all heads */
    STEP_MLP,
    STEP_MOE,    /* a mixture of experts, with its shared expert */
    STEP_INPUT,  /* f(row gate^T) * the layer's own input, times out^T (Gemma 4) */
    STEP_ADD,    /* adds the row times model_desc.residual_scale to the residual */
    STEP_SCALE,  /* multiplies by a number in the file (Gemma 4) */
    STEP_LAUREL, /* row + norm(row left^T right^T) (Gemma 3n) */
    /* sets the residual x to sqrt(1 - s^2) x + s row, s = sigmoid(weight / temperature)
     * per element (Muse Spark) */
    STEP_BLEND,
    STEP_JOIN,    /* adds to the residual and divides the sum by sqrt(2) */
    STEP_PREDICT, /* predicts all streams from one; the residual is then the active one (AltUp) */
    STEP_CORRECT, /* corrects all streams by the residual, which is then the active one */
    STEP_SPREAD,  /* adds to all streams but the first */
    STEP_MIX,     /* adds to the residual as layer_desc.mixes says (MiniMax) */
    STEP_CONV,    /* a gated short convolution (LFM2) */
    STEP_DELTA,   /* linear attention */
    STEP_MAMBA,   /* Mamba's mixer */
    STEP_SHARED,  /* a block whose weights several layers share (Zamba 2) */
    STEP_LRU,     /* a gated linear recurrence (RecurrentGemma) */
    STEP_GATHER,  /* makes the row from all streams, with coefficients of W_HYPER_* or W_GATED_* */
    STEP_SCATTER, /* writes the row to all streams, as the last STEP_GATHER computed */
    STEP_NGRAMS,  /* adds n-gram embeddings of the last tokens to all streams */
    STEP_GATE,    /* row * sigmoid(silu(row down^T) up^T) of low rank (A.X K2) */
    N_STEP_KINDS
} step_kind;

typedef enum step_row { X, A, B, N_STEP_ROWS } step_row;

struct layer_step {
    step_kind kind;
    step_row from, to;
    /* STEP_NORM: the norm; STEP_BLEND: the weight; STEP_GATHER, STEP_GATE: the first of
     * several */
    weight_role norm;
    /* the second one of its kind in the layer: its weights have the names of
     * arch_names.second, and its cache is CACHE_SECOND */
    bool second;
};

/* clang-format off */
#define NORM(role, from, to) {STEP_NORM, from, to, role, false}
#define ATTEND(from, to)     {STEP_ATTEND, from, to, 0, false}
#define LATENT(from, to)     {STEP_LATENT, from, to, 0, false}
#define MLP(from, to)        {STEP_MLP, from, to, 0, false}
#define MOE(from, to)        {STEP_MOE, from, to, 0, false}
#define INPUT(from, to)      {STEP_INPUT, from, to, 0, false}
#define ADD(from, to)        {STEP_ADD, from, to, 0, false}
#define SCALE(row)           {STEP_SCALE, row, row, 0, false}
#define LAUREL(from, to)     {STEP_LAUREL, from, to, 0, false}
#define JOIN(from, to)       {STEP_JOIN, from, to, 0, false}
#define PREDICT(row)         {STEP_PREDICT, row, row, 0, false}
#define CORRECT(row)         {STEP_CORRECT, row, row, 0, false}
#define SPREAD(row)          {STEP_SPREAD, row, row, 0, false}
#define BLEND(role, from, to) {STEP_BLEND, from, to, role, false}
#define MIX(from, to)        {STEP_MIX, from, to, 0, false}
#define CONV(from, to)       {STEP_CONV, from, to, 0, false}
#define DELTA(from, to)      {STEP_DELTA, from, to, 0, false}
#define MAMBA(from, to)      {STEP_MAMBA, from, to, 0, false}
#define SHARED(from, to)     {STEP_SHARED, from, to, 0, false}
#define LRU(from, to)        {STEP_LRU, from, to, 0, false}
#define GATHER(role, to)     {STEP_GATHER, X, to, role, false}
#define SCATTER(from)        {STEP_SCATTER, from, from, 0, false}
#define GATE(role, row)      {STEP_GATE, row, row, role, false}
#define NGRAMS               {STEP_NGRAMS, X, X, 0, false}
#define END                  {STEP_END, X, X, 0, false}
#define SECOND(step, from, to, role) {step, from, to, role, true}
/* clang-format on */

/* Lists that several families use; those of a single family are in its file. */
extern const layer_step steps_pre_norm[];     /* x += attend(norm(x)); x += mlp(norm(x)): Llama */
extern const layer_step steps_pre_norm_moe[]; /* the same with experts: Mixtral */
/* x += norm(attend(norm(x))); x += norm(mlp(norm(x))): Gemma 2 */
extern const layer_step steps_sandwich[];
extern const layer_step steps_sandwich_moe[];
extern const layer_step steps_branch_norm[]; /* x += norm(attend(x)); x += norm(mlp(x)): OLMo 2 */
extern const layer_step steps_post_norm[];   /* x = norm(x + attend(x)); x = norm(x + mlp(x)): BERT */
extern const layer_step steps_parallel[];    /* h = norm(x); x += attend(h) + mlp(h): GPT-J */
extern const layer_step steps_parallel_moe[];
extern const layer_step steps_parallel_norms[]; /* x += attend(norm(x)) + mlp(norm(x)): GPT-NeoX */

extern const layer_step steps_delta[]; /* x += delta(norm(x)); x += mlp(norm(x)): Qwen3.5 */
extern const layer_step steps_delta_moe[];
/* like steps_pre_norm with latent attention: DeepSeek's dense layers */
extern const layer_step steps_latent[];
extern const layer_step steps_latent_moe[];
extern const layer_step steps_mamba[];     /* x += mamba(norm(x)): Mamba */
extern const layer_step steps_mamba_mlp[]; /* x += mamba(norm(x)); x += mlp(norm(x)): Bamba */
extern const layer_step steps_mamba_moe[]; /* the same with experts: Granite 4 */

/* Gives every layer this list, which must be static, since descriptions are copied. */
void steps_set(model_desc *d, const layer_step *steps);
/* Gives layers with experts one list and all others another. */
void steps_set_mixed(model_desc *d, const layer_step *dense, const layer_step *moe);

/* Whether the result of a list's norm is read after the row that it norms has changed. If
 * so it is stored; otherwise each reader computes it. */
bool step_is_kept(const layer_step *norm);

/* Writes the kinds in order: "norm attend add norm mlp add"; "norm(x)" for a norm of the
 * residual itself. Truncated to n bytes. */
void steps_text(const layer_step *steps, char *out, size_t n);

#endif
