/* The entries of an adapter_store: the adapters that there are, and what is loaded. Under
 * the store's lock, but for what is atomic. */
#ifndef SETUP_ADAPTER_ENTRIES_H
#define SETUP_ADAPTER_ENTRIES_H

#include <pthread.h>

#include "base/ring.h"
#include "core/adapter_want.h"
#include "setup/adapter_loader.h"

/* An adapter. ref.holders counts the store's own reference, and is 0 while it is not
 * resident. */
typedef struct adapter_entry {
    adapter_ref ref;
    char *name, *path; /* mem_new'd; a blend has no path */
    loaded_adapter loaded;
    int32_t rank;    /* as it was loaded last */
    int64_t n_bytes; /* likewise */
    int64_t load_us; /* likewise */
    uint64_t last_used;
    int32_t n_wants; /* wants that name it, and blends that are made of it */
    bool is_resident;
    bool is_loading;
    bool is_listed;
    bool is_hidden;   /* it gets its name once it is loaded; others of this name are then gone */
    bool is_gone;     /* it is unknown, and freed once nobody has it */
    bool is_found;    /* of the directory: it is forgotten where it can't be loaded */
    bool is_draining; /* it gets no further holders: its room is needed */
    /* of a blend: what it is made of, with a reference to each; n_parts 0: it is none */
    struct adapter_entry *parts[ADAPTER_MAX_PARTS];
    float scales[ADAPTER_MAX_PARTS];
    int32_t n_parts;
    float usual; /* the scale for requests that name no adapter, where it is not listed */
} adapter_entry;

typedef struct adapter_store {
    adapter_store_options options;
    adapter_loader loader;
    char *dir; /* its real path, mem_new'd; NULL: none */
    wake bell; /* the thread's */
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    /* somebody waits for a reference to be dropped: the bell is rung then */
    atomic_bool is_short;
    pthread_mutex_t lock; /* guards what follows, and entries but for what is atomic */
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
/* Frees entries that are gone and that nobody has, as well as idle blends. Under the
 * lock. */
void adapters_sweep(adapter_store *s);
/* Drops the weights of a resident entry that nobody has. */
void adapters_unload(adapter_store *s, adapter_entry *e);

#endif
