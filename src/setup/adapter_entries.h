/* The entries of an adapter_store: all known adapters, and which are loaded. Under the
 * store's lock, except atomic members. */
#ifndef SETUP_ADAPTER_ENTRIES_H
#define SETUP_ADAPTER_ENTRIES_H

#include <pthread.h>

#include "base/err.h"
#include "base/ring.h"
#include "base/sha256.h"
#include "core/adapter_ref.h"

/* The loader from which an adapter_store gets the weights of its adapters. */

struct adapter; /* of a backend */

/* What a loader read from a file. */
typedef struct loaded_adapter {
    struct adapter *weights;
    int32_t rank;
    int64_t n_bytes;
    uint8_t digest[SHA256_BYTES];
    const int32_t *invocation; /* [n_invocation]; or NULL */
    int32_t n_invocation;
    void *own; /* the loader's */
} loaded_adapter;

/* How adapters are loaded and freed. Any thread, one at a time. */
typedef struct adapter_loader {
    quire_err (*load)(void *context, const char *path, loaded_adapter *out, quire_error *err);
    quire_err (*blend)(void *context, const struct adapter *const *parts, const float *scales, int32_t n,
                       struct adapter **out, quire_error *err);
    /* Frees what load made, or a blend, of which weights alone is set. */
    void (*free)(void *context, loaded_adapter *a);
    void *context;
} adapter_loader;

typedef struct adapter_store_options {
    int32_t max_resident; /* at least 1 */
    int32_t max_rank;     /* for all parts of a blend together */
    const char *dir;      /* directory whose entries are adapters by name; copied; NULL: none */
} adapter_store_options;

/* An adapter. ref.holders counts the store's own reference, and is 0 while it is not
 * resident. */
typedef struct adapter_entry {
    adapter_ref ref;
    char *name, *path; /* mem_new'd; a blend has no path */
    loaded_adapter loaded;
    int32_t rank;    /* from its last load */
    int64_t n_bytes; /* likewise */
    int64_t load_us; /* likewise */
    uint64_t last_used;
    int32_t n_wants; /* wants that name it, and blends that contain it */
    bool is_resident;
    bool is_loading;
    bool is_listed;
    bool is_hidden;   /* it gets its name once it is loaded; others with this name are then removed */
    bool is_gone;     /* removed: it is freed once nothing refers to it */
    bool is_found;    /* from the directory: forgotten if it cannot be loaded */
    bool is_draining; /* it gets no further holders: its room is needed */
    /* parts of a blend, each with a reference; n_parts 0: not a blend */
    struct adapter_entry *parts[ADAPTER_MAX_PARTS];
    float scales[ADAPTER_MAX_PARTS];
    int32_t n_parts;
    float usual; /* if not listed: its scale for requests that name no adapter */
} adapter_entry;

typedef struct adapter_store {
    adapter_store_options options;
    adapter_loader loader;
    char *dir; /* real path of the directory, mem_new'd; NULL: none */
    wake bell; /* the thread's */
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    /* a want waits for a reference to be dropped; the drop rings the bell */
    atomic_bool is_short;
    pthread_mutex_t lock; /* guards the following members, and entries except their atomic members */
    adapter_entry **entries;
    size_t n_entries, cap_entries;
    adapter_want *first, **last; /* wants that wait, oldest first */
    uint64_t clock;
    int32_t n_resident, most_resident;
    int64_t n_loads, n_evictions; /* so far */
} adapter_store;

/* Adds an entry; both texts are copied. NULL: out of memory. */
adapter_entry *adapters_new_entry(adapter_store *s, const char *name, const char *path);
/* The entry that is known by the name, or NULL. */
adapter_entry *adapters_find(const adapter_store *s, const char *name);
/* Whether a load by command that makes the name known is running or waiting. */
bool adapters_is_loading(const adapter_store *s, const char *name);
/* Frees removed entries without references, and idle blends. Under the lock. */
void adapters_sweep(adapter_store *s);

/* ---- answers to wants ---- */

/* Answers the wants of an adapter_store, on a thread that loads the adapters that they
 * lack. */

/* Answers w, whose entries are set, if all of them are resident and accept holders. Under
 * the lock. */
bool adapters_answer(adapter_store *s, adapter_want *w);
/* Appends w to the waiting wants. True: w was cancelled, or the store is closing, and w
 * is answered with QUIRE_CANCELLED. Under the lock. */
bool adapters_queue(adapter_store *s, adapter_want *w);
/* Releases w's entries. Under the lock. */
void adapters_release_want(adapter_want *w);
/* The store's thread. */
void *adapters_run(void *store);

#endif
