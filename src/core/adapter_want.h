/* A request's wish for an adapter, or for a blend of several: from its name to a
 * reference, which may take the reading of a file.
 *
 * Owned by who wishes; whoever answers (adapter_source) uses it from want() until it was
 * answered. */
#ifndef CORE_ADAPTER_WANT_H
#define CORE_ADAPTER_WANT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/adapter_ref.h"
#include "quire_err.h"

#define ADAPTER_MAX_PARTS 16 /* of a blend */

struct adapter_entry; /* of the source */

/* An adapter of a blend: its name, 0-terminated, or its number among those of the
 * source's list. */
typedef struct adapter_part {
    const char *name; /* NULL: `number` says which */
    int32_t number;
    float scale;
} adapter_part;

typedef struct adapter_want {
    adapter_part parts[ADAPTER_MAX_PARTS]; /* [n_parts] of which those of scale 0 do nothing */
    int32_t n_parts;
    const atomic_bool *is_off; /* set: nobody needs the answer, which is QUIRE_CANCELLED then; or NULL */
    /* Called once the answer is there, unless want() gave it at once. Any thread. */
    void (*ready)(struct adapter_want *w);

    /* The answer. */
    adapter_ref *ref;  /* with a reference, the wisher's to drop; NULL: no adapter, or an error */
    quire_error error; /* code QUIRE_OK: none */
    int64_t load_us;   /* how long it waited for files to be read; 0: they were there */

    /* The source's, until it has answered. */
    struct adapter_entry *entries[ADAPTER_MAX_PARTS];
    int32_t n_entries;
    int64_t wanted_us;
    struct adapter_want *next;
} adapter_want;

/* Where requests find their adapters. */
typedef struct adapter_source {
    /* Answers w. True: the answer is there. False: it comes later, by w->ready. */
    bool (*want)(void *context, adapter_want *w);
    /* Answers w with QUIRE_CANCELLED if it waits still. */
    void (*cancel)(void *context, adapter_want *w);
    /* Loads the file at path under the name and answers w, whose parts are not read
     * (adapter_store_load). Otherwise as want(). */
    bool (*load)(void *context, const char *name, const char *path, bool in_place, adapter_want *w);
    /* Sets the parts of a request that names no adapter. */
    void (*usual)(void *context, adapter_want *w);
    /* Whether a name may be one of an adapter: it is known, or could be found. Does not
     * block. */
    bool (*knows)(void *context, const char *name);
    void *context;
} adapter_source;

#endif
