/* A request's adapter: a counted handle to weights that a backend has loaded beside the
 * model's (struct adapter in backend.h).
 *
 * The loader owns the handle. It holds one reference and frees the handle when no other
 * is left. A request and each of its sequences hold one reference each. Any thread. */
#ifndef CORE_ADAPTER_REF_H
#define CORE_ADAPTER_REF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "quire_err.h"

struct adapter; /* defined by the backend */

typedef struct adapter_ref {
    const struct adapter *weights;
    /* digest of all bytes that change the weights, and of a blend's scales: equal digests
     * give equal rows, bit for bit */
    uint8_t digest[SHA256_BYTES];
    int32_t rank;
    /* invocation tokens of an activated adapter (aLoRA), owned by the loader: it applies
     * from their last occurrence in the prompt on. n_invocation 0: to all rows */
    const int32_t *invocation;
    int32_t n_invocation;
    const char *name; /* owned by the loader; valid as long as the ref */
    /* totals of the adapter's finished requests */
    atomic_llong n_requests, n_prompt_tokens, n_generated;
    atomic_int holders;
    /* called with `owner` when only the loader's reference is left. Must not block or
     * allocate. Any thread. May be NULL */
    void (*idle)(void *owner);
    void *owner; /* outlives every reference */
    /* number of the last step before which a sequence with this adapter was running, or
     * waiting; 0: none yet. Written by the engine thread */
    atomic_llong ran_at, waited_at;
} adapter_ref;

/* Adds a reference and returns ref. NULL is allowed, here and in adapter_ref_drop. */
static inline adapter_ref *adapter_ref_hold(adapter_ref *ref) {
    if (ref != NULL) {
        atomic_fetch_add(&ref->holders, 1);
    }
    return ref;
}

/* Drops a reference, after which ref may be freed. */
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

/* A request's lookup of an adapter, or of a blend of several: names are resolved to a
 * reference, for which files may have to be read.
 *
 * Owned by the caller; the adapter_source uses it from want() until it has answered. */

#define ADAPTER_MAX_PARTS 16 /* most adapters in a blend */

struct adapter_entry; /* defined by the adapter_source */

/* One adapter of a blend, given by name or by its number in the source's list. */
typedef struct want_part {
    const char *name; /* 0-terminated; NULL: use number */
    int32_t number;
    float scale;
} want_part;

typedef struct adapter_want {
    want_part parts[ADAPTER_MAX_PARTS]; /* [n_parts]; parts of scale 0 are ignored */
    int32_t n_parts;
    /* may be NULL; once true, the caller needs no answer and gets QUIRE_CANCELLED */
    const atomic_bool *is_off;
    /* Called once with the answer, unless want() returned it at once. Any thread. */
    void (*ready)(struct adapter_want *w);

    /* The answer: */
    adapter_ref *ref;  /* the caller drops this reference; NULL: no adapter, or an error */
    quire_error error; /* QUIRE_OK if there is none */
    int64_t load_us;   /* time spent waiting for files to be read; 0: they were loaded already */

    /* Used by the source until it has answered: */
    struct adapter_entry *entries[ADAPTER_MAX_PARTS];
    int32_t n_entries;
    int64_t wanted_us;
    struct adapter_want *next;
} adapter_want;

/* The interface through which requests find their adapters. Any thread. */
typedef struct adapter_source {
    /* Looks w's adapters up. True: w has its answer. False: w->ready will be called. */
    bool (*want)(void *context, adapter_want *w);
    /* Answers w with QUIRE_CANCELLED if it is still waiting. */
    void (*cancel)(void *context, adapter_want *w);
    /* Loads the file at path under this name and answers w like want(); w's parts are
     * ignored (adapter_store_load). */
    bool (*load)(void *context, const char *name, const char *path, bool in_place, adapter_want *w);
    /* Sets w's parts to the default for a request that names no adapter. */
    void (*usual)(void *context, adapter_want *w);
    /* Whether this may be an adapter's name: known, or found in a file. Does not
     * block. */
    bool (*knows)(void *context, const char *name);
    void *context;
} adapter_source;

#endif
