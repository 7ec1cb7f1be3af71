/* A request's lookup of an adapter, or of a blend of several: from names to a reference,
 * which may need a file to be read.
 *
 * Owned by the caller; the adapter_source uses it from want() until it has answered. */
#ifndef CORE_ADAPTER_WANT_H
#define CORE_ADAPTER_WANT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/adapter_ref.h"
#include "quire_err.h"

#define ADAPTER_MAX_PARTS 16 /* of a blend */

struct adapter_entry; /* of the source */

/* An adapter of a blend: its name, 0-terminated, or its number in the source's list. */
typedef struct adapter_part {
    const char *name; /* NULL: by number */
    int32_t number;
    float scale;
} adapter_part;

typedef struct adapter_want {
    adapter_part parts[ADAPTER_MAX_PARTS]; /* [n_parts]; those of scale 0 do nothing */
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
