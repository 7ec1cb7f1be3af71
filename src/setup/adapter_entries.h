/* The entries of an adapter_store: all known adapters, loaded or not. All members but
 * atomic ones are under the store's lock. */
#ifndef SETUP_ADAPTER_ENTRIES_H
#define SETUP_ADAPTER_ENTRIES_H

#include <pthread.h>

#include "base/err.h"
#include "base/ring.h"
#include "base/sha256.h"
#include "core/adapter_ref.h"

/* The loader: how an adapter_store gets the weights of its adapters. */

struct adapter; /* defined by the backend */

/* An adapter as loaded from a file, or a blend, of which only `weights` is set. */
typedef struct loaded_adapter {
    struct adapter *weights;
    int32_t rank;
    int64_t n_bytes;
    uint8_t digest[SHA256_BYTES];
    const int32_t *invocation; /* [n_invocation] as in adapter_ref; or NULL */
    int32_t n_invocation;
    void *own; /* data of the loader */
} loaded_adapter;

/* How adapters are loaded and freed. Called from any thread, one call at a time. */
typedef struct adapter_loader {
    quire_err (*load)(void *context, const char *path, loaded_adapter *out, quire_error *err);
    quire_err (*blend)(void *context, const struct adapter *const *parts, const float *scales, int32_t n,
                       struct adapter **out, quire_error *err);
    /* Frees what load filled, or a blend. */
    void (*free)(void *context, loaded_adapter *a);
    void *context;
} adapter_loader;

typedef struct adapter_store_options {
    int32_t max_resident; /* most adapters loaded at once; at least 1 */
    int32_t max_rank;     /* largest rank of an adapter, or sum of the ranks of a blend's parts */
    const char *dir;      /* directory of adapters, each named as its file; copied; NULL: none */
} adapter_store_options;

/* An adapter or a blend. ref.holders includes the store's own reference; 0: not
 * resident. */
typedef struct adapter_entry {
    adapter_ref ref;
    char *name, *path; /* mem_new'd; a blend has no path */
    loaded_adapter loaded;
    int32_t rank; /* rank, bytes and duration of the last load; 0: never loaded */
    int64_t n_bytes;
    int64_t load_us;
    uint64_t last_used;
    int32_t n_wants; /* number of wants that name it, and of blends that contain it */
    bool is_resident;
    bool is_loading;
    bool is_listed;
    bool is_hidden;   /* not known by its name until it is loaded, when others of this name are removed */
    bool is_gone;     /* removed: freed once nothing refers to it */
    bool is_found;    /* found in the directory: removed again if it cannot be loaded */
    bool is_draining; /* gets no further holders, since its place is needed */
    /* the parts of a blend, a reference each; n_parts 0: not a blend */
    struct adapter_entry *parts[ADAPTER_MAX_PARTS];
    float scales[ADAPTER_MAX_PARTS];
    int32_t n_parts;
    float usual; /* if not listed: its scale in requests that name no adapter */
} adapter_entry;

typedef struct adapter_store {
    adapter_store_options options;
    adapter_loader loader;
    char *dir; /* real path of options.dir, mem_new'd; NULL: none */
    wake bell; /* wakes the thread */
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    /* a want waits until a reference is dropped, which rings the bell */
    atomic_bool is_short;
    pthread_mutex_t lock; /* guards the members below, and all but atomic members of entries */
    adapter_entry **entries;
    size_t n_entries, cap_entries;
    adapter_want *first, **last; /* waiting wants, oldest first */
    uint64_t clock;
    int32_t n_resident, most_resident;
    int64_t n_loads, n_evictions; /* totals */
} adapter_store;

/* Adds an entry; name and path are copied. NULL: out of memory. Under the lock. */
adapter_entry *adapters_new_entry(adapter_store *s, const char *name, const char *path);
/* The entry known by this name, or NULL. Under the lock. */
adapter_entry *adapters_find(const adapter_store *s, const char *name);
/* Whether a pending adapter_store_load will make the name known. Under the lock. */
bool adapters_is_loading(const adapter_store *s, const char *name);
/* Frees unreferenced blends, then unreferenced removed entries. Under the lock. */
void adapters_sweep(adapter_store *s);

/* ---- answers to wants ---- */

/* Wants are answered on the store's thread, which loads the adapters that they lack. */

/* Answers w if all of its entries are resident and accept holders; false: not yet. Under
 * the lock. */
bool adapters_answer(adapter_store *s, adapter_want *w);
/* Appends w to the waiting wants. True: w is answered with QUIRE_CANCELLED instead, since
 * it was cancelled or the store is closing. Under the lock. */
bool adapters_queue(adapter_store *s, adapter_want *w);
/* Releases w's claims on its entries. Under the lock. */
void adapters_release_want(adapter_want *w);
/* The function of the store's thread. */
void *adapters_run(void *store);

#endif
