/* A request's adapter: a counted handle to weights that a backend has loaded beside a
 * model's (adapter in backend.h).
 *
 * Owned by its loader, which holds a reference and frees the handle only when that is the
 * last one. A request and each of its sequences hold one each. Any thread. */
#ifndef CORE_ADAPTER_REF_H
#define CORE_ADAPTER_REF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "quire_err.h"

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

/* ---- lookups of adapters ---- */

/* A request's lookup of an adapter, or of a blend of several: from names to a reference,
 * which may need a file to be read.
 *
 * Owned by the caller; the adapter_source uses it from want() until it has answered. */

#define ADAPTER_MAX_PARTS 16 /* of a blend */

struct adapter_entry; /* of the source */

/* An adapter of a blend: its name, 0-terminated, or its number in the source's list. */
typedef struct want_part {
    const char *name; /* NULL: by number */
    int32_t number;
    float scale;
} want_part;

typedef struct adapter_want {
    want_part parts[ADAPTER_MAX_PARTS]; /* [n_parts]; those of scale 0 do nothing */
    int32_t n_parts;
    const atomic_bool *is_off; /* true: the answer is no longer needed, and is QUIRE_CANCELLED; or NULL */
    /* Called once with the answer, unless want() gave it at once. Any thread. */
    void (*ready)(struct adapter_want *w);

    /* The answer. */
    adapter_ref *ref;  /* with a reference for the caller to drop; NULL: no adapter, or an error */
    quire_error error; /* code QUIRE_OK: none */
    int64_t load_us;   /* how long it waited for files to be read; 0: they were loaded already */

    /* The source's, until it has answered. */
    struct adapter_entry *entries[ADAPTER_MAX_PARTS];
    int32_t n_entries;
    int64_t wanted_us;
    struct adapter_want *next;
} adapter_want;

/* Where requests find their adapters. */
typedef struct adapter_source {
    /* Answers w. True: answered. False: w->ready will be called. */
    bool (*want)(void *context, adapter_want *w);
    /* Answers w with QUIRE_CANCELLED if it is still waiting. */
    void (*cancel)(void *context, adapter_want *w);
    /* Loads the file at path under the name and answers w, ignoring its parts
     * (adapter_store_load). Otherwise as want(). */
    bool (*load)(void *context, const char *name, const char *path, bool in_place, adapter_want *w);
    /* Sets the parts of a request that names no adapter. */
    void (*usual)(void *context, adapter_want *w);
    /* Whether a name may be an adapter's: it is known, or could be found. Does not
     * block. */
    bool (*knows)(void *context, const char *name);
    void *context;
} adapter_source;

#endif
