/* A constraint says which tokens may come next in an output, so that the whole of it
 * obeys a rule: a grammar, a choice of texts.
 *
 *   init --> accept(token) --> accept(token) --> ..., and in each state: mask, forced, is_final
 *
 * A constraint is made once, then read-only and reference-counted: the sequences of a
 * request share it. Any thread, several at once; what it caches it guards itself. Its
 * state after an output is state_bytes plain bytes, which the caller owns: a copy of the
 * bytes is a copy of the state, and equal outputs lead to states that allow the same. One
 * thread a state. No call but `close` allocates.
 *
 * End tokens are handled by the sampling code (sample_accept): in a final state all are
 * allowed; otherwise only one that the constraint accepts like any token, if the state
 * after it is final. */
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

#define CONSTRAINT_MAX_GUESSES 32 /* tokens */

/* Which guesses are worthwhile. With `least` over a half they form a line, since no two
 * tokens at one place are then likely enough. */
typedef struct guess_bounds {
    int32_t nodes; /* at most, up to CONSTRAINT_MAX_GUESSES */
    /* probability that the likeliest of the tokens that spell the same text is right;
     * otherwise it may be any of them */
    float first;
    float least; /* least joint probability of a guess and those before it */
    /* cost of a token, as a fraction of what a correct guess saves, if there are several
     * spellings */
    float row;
} guess_bounds;

typedef struct constraint_ops {
    /* Writes the state of an empty output, aligned as for any object. */
    void (*init)(const constraint *c, void *state);
    /* Sets bit t % 64 of bits[t / 64] to whether token t may come next, for each of the
     * n_vocab tokens; the last word's others are free. QUIRE_TOO_LARGE, QUIRE_NO_MEMORY:
     * past a budget of the constraint, or a shared one. QUIRE_BUSY: it does not fit into
     * the calling thread's work_room, if that has one. */
    quire_err (*mask)(const constraint *c, const void *state, uint64_t *bits);
    /* Appends a token. QUIRE_INVALID: it may not come next. QUIRE_TOO_LARGE as above. The
     * state is unchanged after an error. */
    quire_err (*accept)(const constraint *c, void *state, int32_t token);
    /* Writes the tokens that must come next, at most `most`, and returns how many: in
     * each state before one of them the mask has that token alone, and the state is not
     * final. It may return fewer than there are. NULL: never any. */
    int32_t (*forced)(const constraint *c, const void *state, int32_t *ids, int32_t most);
    /* Writes tokens that are likely to come next, each of which may after its parent (-1:
     * the state), as a tree within bounds, and returns how many: a draft. NULL: it has
     * none. */
    int32_t (*guess)(const constraint *c, const void *state, const guess_bounds *bounds, int32_t *ids,
                     int32_t *parents);
    /* Whether the output may end here. */
    bool (*is_final)(const constraint *c, const void *state);
    /* Frees the constraint, when the last reference is dropped. */
    void (*close)(constraint *c);
    /* Why a call last failed with QUIRE_TOO_LARGE or QUIRE_NO_MEMORY: a constant phrase,
     * or NULL. The member itself may be NULL. */
    const char *(*why)(const constraint *c);
} constraint_ops;

/* The first member of every constraint's own struct. */
struct constraint {
    const constraint_ops *ops;
    int32_t n_vocab;
    size_t state_bytes; /* at most CONSTRAINT_MAX_STATE_BYTES */
    atomic_int holders;
};

/* Initialises the common part of a constraint, with one reference. */
static inline void constraint_init(constraint *c, const constraint_ops *ops, int32_t n_vocab,
                                   size_t state_bytes) {
    c->ops = ops;
    c->n_vocab = n_vocab;
    c->state_bytes = state_bytes;
    atomic_init(&c->holders, 1);
}

/* Adds a reference and returns c. NULL is allowed here and in the next function. */
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

/* Why c's last call failed (`why`), or NULL. */
static inline const char *constraint_why(const constraint *c) {
    return c->ops->why != NULL ? c->ops->why(c) : NULL;
}

/* Words of a mask of n_vocab bits. */
static inline int32_t constraint_words(int32_t n_vocab) {
    return (n_vocab + 63) / 64;
}

/* ---- end tokens ---- */

/* End tokens complete a sequence: the model's end-of-sequence tokens, unless the request
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

/* The kind of token under these parameters; an ignored end-of-sequence token is END_NONE.
 * O(end tokens). */
static inline end_kind end_token_kind(const sampling_params *p, const model_desc *d, int32_t token) {
    if (!p->ignore_eos && end_token_is_one_of(token, d->eos, d->n_eos)) {
        return END_EOS;
    }
    return end_token_is_one_of(token, p->stop_tokens, p->n_stop_tokens) ? END_STOP_TOKEN : END_NONE;
}
/* Whether min_tokens bans the token at first: it bans all end tokens, including ignored
 * ones. */
bool end_token_is_delayed(const sampling_params *p, const model_desc *d, int32_t token);
/* Lists the end tokens and returns how many there are. NULL: only counts them. */
int32_t end_tokens_list(const sampling_params *p, const model_desc *d, int32_t *out);

#endif
