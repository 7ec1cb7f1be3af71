/* The lists in a request's sampling parameters, which have no small limit: token ids that
 * are allowed, banned or biased. Made once, then read-only and reference-counted: request
 * and sequences share them. Any thread. */
#ifndef CORE_SAMPLING_LISTS_H
#define CORE_SAMPLING_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* n sequences of tokens, stored one after the other: sequence i is tokens[starts[i] ..
 * starts[i + 1]). */
typedef struct token_seqs {
    int32_t n;
    int32_t *starts, *tokens;
    size_t cap_starts, cap_tokens;
} token_seqs;

typedef struct sampling_lists {
    int32_t n_bias, *bias_ids; /* logit_bias */
    float *bias;
    bool has_allowed; /* allowed_token_ids; only these may be chosen */
    int32_t n_allowed, *allowed;
    token_seqs bad_words;
    token_seqs dry_breakers;
} sampling_lists;

/* New empty lists with one reference; NULL without memory. */
sampling_lists *sampling_lists_new(void);
sampling_lists *sampling_lists_hold(sampling_lists *lists);
/* Drops a reference; the last one frees the lists. NULL is allowed. */
void sampling_lists_drop(sampling_lists *lists);

/* Only while the maker has the one reference. QUIRE_NO_MEMORY leaves the lists
 * unchanged. */
quire_err sampling_lists_set_bias(sampling_lists *lists, const int32_t *ids, const float *bias, int32_t n);
quire_err sampling_lists_set_allowed(sampling_lists *lists, const int32_t *ids, int32_t n);
/* Adds a sequence of n >= 1 tokens. O(n) on average. */
quire_err token_seqs_add(token_seqs *s, const int32_t *tokens, int32_t n);

#endif
