#include "core/params.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

void sampling_params_init(sampling_params *p) {
    *p = (sampling_params){.temperature = 1.0f,
                           .top_p = 1.0f,
                           .typical_p = 1.0f,
                           .max_tokens = -1,
                           .repetition_penalty = 1.0f,
                           .penalty_last_n = SAMPLING_PENALTIES_USUAL,
                           .dry_base = 1.75f,
                           .dry_allowed_length = 2,
                           .dry_penalty_last_n = -1,
                           .xtc_threshold = 0.1f,
                           .dynatemp_exponent = 1.0f,
                           .mirostat_tau = 5.0f,
                           .mirostat_eta = 0.1f};
}

/* Private part: the public struct and its reference count. */
typedef struct counted {
    sampling_lists lists;
    atomic_int holders;
} counted;

sampling_lists *sampling_lists_new(void) {
    counted *c = mem_new(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    atomic_init(&c->holders, 1);
    return &c->lists;
}

sampling_lists *sampling_lists_hold(sampling_lists *lists) {
    if (lists != NULL) {
        atomic_fetch_add(&((counted *)lists)->holders, 1);
    }
    return lists;
}

static void free_seqs(token_seqs *s) {
    mem_free(s->starts);
    mem_free(s->tokens);
}

void sampling_lists_drop(sampling_lists *lists) {
    if (lists == NULL || atomic_fetch_sub(&((counted *)lists)->holders, 1) > 1) {
        return;
    }
    mem_free(lists->bias_ids);
    mem_free(lists->bias);
    mem_free(lists->allowed);
    mem_free(lists->scored);
    free_seqs(&lists->bad_words);
    free_seqs(&lists->dry_breakers);
    mem_free(lists);
}

quire_err sampling_lists_set_bias(sampling_lists *lists, const int32_t *ids, const float *bias, int32_t n) {
    void *own_ids = mem_dup(ids, (size_t)n * sizeof *ids),
         *own_bias = mem_dup(bias, (size_t)n * sizeof *bias);
    if (own_ids == NULL || own_bias == NULL) {
        mem_free(own_ids);
        mem_free(own_bias);
        return QUIRE_NO_MEMORY;
    }
    mem_free(lists->bias_ids);
    mem_free(lists->bias);
    lists->bias_ids = own_ids;
    lists->bias = own_bias;
    lists->n_bias = n;
    return QUIRE_OK;
}

quire_err sampling_lists_set_allowed(sampling_lists *lists, const int32_t *ids, int32_t n) {
    void *copy = mem_dup(ids, (size_t)n * sizeof *ids);
    TRY(mem_check(copy));
    mem_free(lists->allowed);
    lists->allowed = copy;
    lists->n_allowed = n;
    lists->has_allowed = true;
    return QUIRE_OK;
}

quire_err sampling_lists_set_scored(sampling_lists *lists, const int32_t *ids, int32_t n) {
    void *copy = n > 0 ? mem_dup(ids, (size_t)n * sizeof *ids) : NULL;
    if (n > 0) {
        TRY(mem_check(copy));
    }
    mem_free(lists->scored);
    lists->scored = copy;
    lists->n_scored = n;
    return QUIRE_OK;
}

quire_err token_seqs_add(token_seqs *s, const int32_t *tokens, int32_t n) {
    assert(n >= 1);
    int32_t end = s->n > 0 ? s->starts[s->n] : 0;
    if (n > INT32_MAX - end) {
        return QUIRE_NO_MEMORY;
    }
    TRY(mem_grow(&s->starts, &s->cap_starts, (size_t)s->n + 2, sizeof *s->starts));
    TRY(mem_grow(&s->tokens, &s->cap_tokens, (size_t)end + (size_t)n, sizeof *s->tokens));
    memcpy(s->tokens + end, tokens, (size_t)n * sizeof *tokens);
    s->starts[++s->n] = end + n;
    return QUIRE_OK;
}
