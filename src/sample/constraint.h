/* A constraint says which tokens may come next, so that the whole output obeys a rule: a
 * grammar, or a choice of texts.
 *
 *   init --> accept(token) --> accept(token) --> ..; in each state mask, forced, is_final
 *
 * Immutable once made, and reference-counted: the sequences of a request share it. Any
 * thread; its caches have their own locks. The state of an output is state_bytes plain
 * bytes that the caller owns: copying the bytes copies the state, and states of equal
 * outputs allow the same tokens. One thread per state. No call but close uses the
 * allocator: mask and accept grow into reserved memory, within a budget.
 *
 * The sampling code handles end tokens (sample_accept). In a final state all are allowed;
 * otherwise only one that the constraint accepts like any token, leading to a final
 * state. */
#ifndef SAMPLE_CONSTRAINT_H
#define SAMPLE_CONSTRAINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/model_desc.h"
#include "core/params.h"

#define CONSTRAINT_MAX_STATE_BYTES 1024

typedef struct constraint constraint;

#define CONSTRAINT_MAX_GUESSES 32 /* most tokens in a draft */

/* Bounds on the tokens to guess. If `least` is over a half, the guesses have no branches,
 * since no two tokens at one position are likely enough. */
typedef struct guess_bounds {
    int32_t nodes; /* most tokens, up to CONSTRAINT_MAX_GUESSES */
    /* if several tokens spell the same text: probability that the likeliest is right,
     * else it may be any of them */
    float first;
    float least; /* least joint probability of a guess and its ancestors */
    /* cost of a token if there are several spellings, as a fraction of what a correct
     * guess saves */
    float row;
} guess_bounds;

typedef struct constraint_ops {
    /* Initialises the state of an empty output; it is aligned for any type. */
    void (*init)(const constraint *c, void *state);
    /* Sets bit t % 64 of bits[t / 64] to whether token t may come next, for all n_vocab
     * tokens; bits beyond are undefined. QUIRE_TOO_LARGE, QUIRE_NO_MEMORY: a budget of
     * the constraint, or a shared one, is exceeded. QUIRE_BUSY: it does not fit into the
     * calling thread's work_room. */
    quire_err (*mask)(const constraint *c, const void *state, uint64_t *bits);
    /* Appends a token to the state. QUIRE_INVALID: it may not come next. Other errors as
     * in mask. Errors leave the state unchanged. */
    quire_err (*accept)(const constraint *c, void *state, int32_t token);
    /* Writes up to `most` tokens that must come next and returns how many: in the state
     * before each, the mask has only that token, and the state is not final. It may find
     * fewer than there are. NULL: never any. */
    int32_t (*forced)(const constraint *c, const void *state, int32_t *ids, int32_t most);
    /* Writes a draft, and returns its size: tokens that are likely to come next, as a
     * tree within bounds. Each may follow its parent (-1: the state). NULL: no drafts. */
    int32_t (*guess)(const constraint *c, const void *state, const guess_bounds *bounds, int32_t *ids,
                     int32_t *parents);
    /* Whether the output may end in this state. */
    bool (*is_final)(const constraint *c, const void *state);
    /* Frees the constraint; called when the last reference is dropped. */
    void (*close)(constraint *c);
    /* Why a call last failed with QUIRE_TOO_LARGE or QUIRE_NO_MEMORY: a constant phrase,
     * or NULL. This member may be NULL. */
    const char *(*why)(const constraint *c);
} constraint_ops;

/* The first member of every constraint's own struct. */
struct constraint {
    const constraint_ops *ops;
    int32_t n_vocab;
    size_t state_bytes; /* at most CONSTRAINT_MAX_STATE_BYTES */
    atomic_int holders;
};

/* Initialises a constraint's common part, with one reference. */
static inline void constraint_init(constraint *c, const constraint_ops *ops, int32_t n_vocab,
                                   size_t state_bytes) {
    c->ops = ops;
    c->n_vocab = n_vocab;
    c->state_bytes = state_bytes;
    atomic_init(&c->holders, 1);
}

/* Adds a reference and returns c. NULL is allowed, also in constraint_drop. */
static inline constraint *constraint_hold(constraint *c) {
    if (c != NULL) {
        atomic_fetch_add(&c->holders, 1);
    }
    return c;
}

/* Drops a reference; the last one closes the constraint. */
static inline void constraint_drop(constraint *c) {
    if (c != NULL && atomic_fetch_sub(&c->holders, 1) == 1) {
        c->ops->close(c);
    }
}

/* Why c's last call failed, as a phrase (constraint_ops.why); or NULL. */
static inline const char *constraint_why(const constraint *c) {
    return c->ops->why != NULL ? c->ops->why(c) : NULL;
}

/* The number of 64-bit words in a mask of n_vocab bits. */
static inline int32_t constraint_words(int32_t n_vocab) {
    return (n_vocab + 63) / 64;
}

/* ---- end tokens ---- */

/* End tokens end a sequence: the model's end-of-sequence tokens, unless the request
 * ignores them, and the request's own stop tokens. Pure. */

typedef enum end_kind { END_NONE, END_EOS, END_STOP_TOKEN } end_kind;

static inline bool end_token_is_one_of(int32_t token, const int32_t *list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (list[i] == token) {
            return true;
        }
    }
    return false;
}

/* Classifies a token; an ignored end-of-sequence token is END_NONE. O(end tokens). */
static inline end_kind end_token_kind(const sampling_params *p, const model_desc *d, int32_t token) {
    if (!p->ignore_eos && end_token_is_one_of(token, d->eos, d->n_eos)) {
        return END_EOS;
    }
    return end_token_is_one_of(token, p->stop_tokens, p->n_stop_tokens) ? END_STOP_TOKEN : END_NONE;
}
/* Whether min_tokens bans this token: any end token, also an ignored one. */
bool end_token_is_delayed(const sampling_params *p, const model_desc *d, int32_t token);
/* Writes the end tokens to out and returns how many there are. out NULL: only counts. */
int32_t end_tokens_list(const sampling_params *p, const model_desc *d, int32_t *out);

#endif
