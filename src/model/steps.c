/* Lists of steps that several families share, and queries on lists. */
#include "model/steps.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
const layer_step steps_pre_norm[] = {
    NORM(W_ATTN_NORM, X, A), ATTEND(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), ADD(A, X), END};

const layer_step steps_pre_norm_moe[] = {
    NORM(W_ATTN_NORM, X, A), ATTEND(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), ADD(A, X), END};

const layer_step steps_sandwich[] = {
    NORM(W_ATTN_NORM, X, A), ATTEND(A, A), NORM(W_ATTN_POST_NORM, A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X), END};

const layer_step steps_sandwich_moe[] = {
    NORM(W_ATTN_NORM, X, A), ATTEND(A, A), NORM(W_ATTN_POST_NORM, A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X), END};

const layer_step steps_branch_norm[] = {
    ATTEND(X, A), NORM(W_ATTN_POST_NORM, A, A), ADD(A, X),
    MLP(X, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X), END};

const layer_step steps_post_norm[] = {
    ATTEND(X, A), ADD(A, X), NORM(W_ATTN_NORM, X, X),
    MLP(X, A), ADD(A, X), NORM(W_FFN_NORM, X, X), END};

const layer_step steps_parallel[] = {
    NORM(W_ATTN_NORM, X, A), ATTEND(A, B), ADD(B, X), MLP(A, B), ADD(B, X), END};

const layer_step steps_parallel_moe[] = {
    NORM(W_ATTN_NORM, X, A), ATTEND(A, B), ADD(B, X), MOE(A, B), ADD(B, X), END};

const layer_step steps_parallel_norms[] = {
    NORM(W_ATTN_NORM, X, A), NORM(W_FFN_NORM, X, B), ATTEND(A, A), ADD(A, X), MLP(B, B), ADD(B, X), END};

const layer_step steps_delta[] = {
    NORM(W_ATTN_NORM, X, A), DELTA(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), ADD(A, X), END};

const layer_step steps_delta_moe[] = {
    NORM(W_ATTN_NORM, X, A), DELTA(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), ADD(A, X), END};

const layer_step steps_latent[] = {
    NORM(W_ATTN_NORM, X, A), LATENT(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), ADD(A, X), END};

const layer_step steps_latent_moe[] = {
    NORM(W_ATTN_NORM, X, A), LATENT(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), ADD(A, X), END};

const layer_step steps_mamba[] = {NORM(W_ATTN_NORM, X, A), MAMBA(A, A), ADD(A, X), END};

const layer_step steps_mamba_mlp[] = {
    NORM(W_ATTN_NORM, X, A), MAMBA(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MLP(A, A), ADD(A, X), END};

const layer_step steps_mamba_moe[] = {
    NORM(W_ATTN_NORM, X, A), MAMBA(A, A), ADD(A, X),
    NORM(W_FFN_NORM, X, A), MOE(A, A), ADD(A, X), END};
/* clang-format on */

void steps_set(model_desc *d, const layer_step *steps) {
    assert(d != NULL);
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].steps = steps;
    }
}

void steps_set_mixed(model_desc *d, const layer_step *dense, const layer_step *moe) {
    assert(d != NULL);
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].steps = d->layers[i].n_experts > 0 ? moe : dense;
    }
}

bool step_is_kept(const layer_step *norm) {
    bool changed = false;
    for (const layer_step *s = norm + 1; s->kind != STEP_END; s++) {
        if (changed && s->from == norm->to) {
            return true;
        }
        if (s->to == norm->to) {
            return false;
        }
        changed = changed || s->to == norm->from;
    }
    return false;
}

void steps_text(const layer_step *steps, char *out, size_t n) {
    static const char *const names[N_STEP_KINDS] = {
        [STEP_NORM] = "norm",       [STEP_ATTEND] = "attend",   [STEP_MLP] = "mlp",
        [STEP_MOE] = "moe",         [STEP_INPUT] = "input",     [STEP_ADD] = "add",
        [STEP_SCALE] = "scale",     [STEP_LAUREL] = "laurel",   [STEP_JOIN] = "join",
        [STEP_PREDICT] = "predict", [STEP_CORRECT] = "correct", [STEP_SPREAD] = "spread",
        [STEP_LATENT] = "latent",   [STEP_MIX] = "mix",         [STEP_CONV] = "conv",
        [STEP_DELTA] = "delta",     [STEP_MAMBA] = "mamba",     [STEP_SHARED] = "shared",
        [STEP_LRU] = "lru",         [STEP_BLEND] = "blend",     [STEP_GATHER] = "gather",
        [STEP_SCATTER] = "scatter", [STEP_NGRAMS] = "ngrams",   [STEP_GATE] = "gate"};
    out[0] = 0;
    for (const layer_step *s = steps; s->kind != STEP_END; s++) {
        size_t at = strlen(out);
        (void)snprintf(out + at, n - at, "%s%s%s", at > 0 ? " " : "", names[s->kind],
                       s->kind == STEP_NORM && s->to == X ? "(x)" : "");
    }
}
