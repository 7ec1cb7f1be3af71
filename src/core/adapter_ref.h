/* A request's adapter: a counted handle to weights that a backend has loaded beside a
 * model's (adapter in backend.h).
 *
 * Owned by whoever loaded it, who has a reference and frees the handle only once that is
 * the last one. A request and each of its sequences have one each. Any thread. */
#ifndef CORE_ADAPTER_REF_H
#define CORE_ADAPTER_REF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

struct adapter; /* of a backend */

typedef struct adapter_ref {
    const struct adapter *weights;
    /* of all bytes that change the weights, and of the scales of a blend: with equal
     * digests, rows have equal bits */
    uint8_t digest[SHA256_BYTES];
    int32_t rank;
    /* of an activated adapter: the tokens from whose last occurrence in a prompt on rows
     * have it; the owner's. n_invocation 0: all rows have it */
    const int32_t *invocation;
    int32_t n_invocation;
    const char *name; /* the owner's, as long as ref */
    /* what its requests were, once they are over */
    atomic_llong n_requests, n_prompt_tokens, n_generated;
    atomic_int holders;
    /* Called with `owner` when only the owner's reference is left. Any thread: it neither
     * blocks nor allocates. NULL: nobody asks */
    void (*idle)(void *owner);
    void *owner; /* outlives every holder */
    /* the number of the step before which a sequence that has it was running, or waiting;
     * written by the engine thread, 0: none yet */
    atomic_llong ran_at, waited_at;
} adapter_ref;

/* Adds a reference and gives ref back. NULL is allowed here and in the next. */
static inline adapter_ref *adapter_ref_hold(adapter_ref *ref) {
    if (ref != NULL) {
        atomic_fetch_add(&ref->holders, 1);
    }
    return ref;
}

/* Drops a reference, after which ref may be gone. */
static inline void adapter_ref_drop(adapter_ref *ref) {
    if (ref != NULL) {
        void (*idle)(void *) = ref->idle;
        void *owner = ref->owner;
        if (atomic_fetch_sub(&ref->holders, 1) == 2 && idle != NULL) {
            idle(owner);
        }
    }
}

#endif
