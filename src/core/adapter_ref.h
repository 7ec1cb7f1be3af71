/* A request's adapter: a counted handle to weights that a backend has loaded beside a
 * model's (adapter in backend.h).
 *
 * Owned by its loader, which holds a reference and frees the handle only when that is the
 * last one. A request and each of its sequences hold one each. Any thread. */
#ifndef CORE_ADAPTER_REF_H
#define CORE_ADAPTER_REF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

struct adapter; /* of a backend */

typedef struct adapter_ref {
    const struct adapter *weights;
    /* of all bytes that change the weights, and of a blend's scales: equal digests give
     * equal rows, bit for bit */
    uint8_t digest[SHA256_BYTES];
    int32_t rank;
    /* of an activated adapter: it applies from the last occurrence of these tokens in a
     * prompt on; the owner's. n_invocation 0: it applies to all rows */
    const int32_t *invocation;
    int32_t n_invocation;
    const char *name; /* the owner's, valid as long as the ref */
    /* counts of its finished requests */
    atomic_llong n_requests, n_prompt_tokens, n_generated;
    atomic_int holders;
    /* called with `owner` when only the owner's reference is left; it must neither block
     * nor allocate. Any thread. May be NULL */
    void (*idle)(void *owner);
    void *owner; /* outlives every holder */
    /* the last step before which a sequence with it was running, or waiting; written by
     * the engine thread, 0: none yet */
    atomic_llong ran_at, waited_at;
} adapter_ref;

/* Adds a reference and returns ref. NULL is allowed, here and in adapter_ref_drop. */
static inline adapter_ref *adapter_ref_hold(adapter_ref *ref) {
    if (ref != NULL) {
        atomic_fetch_add(&ref->holders, 1);
    }
    return ref;
}

/* Drops a reference; ref may be freed by then. */
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
