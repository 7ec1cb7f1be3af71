/* The adapters of an engine: which are known, which are loaded, and which requests wait
 * for one.
 *
 *   known --wanted--> waiting for its turn --thread--> resident --idle and room is short--> known
 *
 * Adapters are read at low priority, one at a time, in the order in which they were first
 * wanted. No lock is held while a file is read, and steps of the engine never take the
 * store's lock: sequences only count references (adapter_ref.h). At most `max_resident`
 * adapters are loaded at once. To make room, the least recently used idle one is
 * unloaded; if all are in use, the one that was wanted longest ago gets no further
 * requests until it is idle. So no request waits for ever.
 *
 * Any thread, except for open and close. */
#ifndef SETUP_ADAPTER_STORE_H
#define SETUP_ADAPTER_STORE_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "core/adapter_ref.h"
#include "quire.h"
#include "setup/adapter_entries.h"

#define ADAPTER_NAME_BYTES 255

/* An adapter in a list of options. */
typedef struct adapter_listed {
    str name; /* empty: not given */
    str path;
    float scale;
} adapter_listed;

/* Reads the next line of quire_options.lora_modules, and moves *lines past it: NAME=PATH,
 * or a JSON object with name and path, whose texts are stored in *own. False: no line is
 * left, or *err is set. */
bool adapter_names_next(const char **lines, strbuf *own, adapter_listed *out, quire_error *err);
/* Reads the next item of quire_options.loras, PATH or PATH:SCALE; items are separated by
 * newlines or commas. False: no item is left. */
bool adapter_paths_next(const char **lines, adapter_listed *out);

/* ---- adapters among options ---- */

/* Whether requests may have adapters. */
bool options_have_adapters(const quire_options *o);
/* The most adapters loaded at once. */
int32_t options_max_loaded(const quire_options *o);
/* The largest rank of an adapter in a batch; a blend's rank is the sum of its parts'. */
int32_t options_batch_rank(const quire_options *o);
/* The number of adapters in o->loras. */
int32_t options_numbered_adapters(const quire_options *o);
/* The most bytes of loaded adapters: options_max_loaded times the size of the largest
 * file that is named or in the directory. */
int64_t options_adapter_bytes(const quire_options *o);

typedef struct adapter_store adapter_store;

/* Opens a store; starts its thread. QUIRE_IO: the directory can't be read. */
quire_err adapter_store_open(const adapter_store_options *o, const adapter_loader *l, adapter_store **out,
                             quire_error *err);
/* Ends the thread and frees everything; waiting wants are answered with QUIRE_CANCELLED.
 * All references must have been dropped. NULL does nothing. */
void adapter_store_close(adapter_store *s);

/* Makes an adapter known, without reading it. is_listed: requests may name it; others
 * have only a number, 0, 1, 2 .. in the order in which they are added. QUIRE_INVALID: the
 * name is taken or not allowed. */
quire_err adapter_store_add(adapter_store *s, const char *name, const char *path, bool is_listed,
                            quire_error *err);
/* Sets the scale with which the adapter of that number applies to requests that name no
 * adapter; initially 0. At most ADAPTER_MAX_PARTS may have another. QUIRE_BAD_REQUEST:
 * there is no such number, or too many scales are set. */
quire_err adapter_store_scale(adapter_store *s, int32_t number, float scale, quire_error *err);
/* Loads an adapter and makes it known by `name`. w is answered as by want(), with a
 * reference once the adapter is loaded; its parts are ignored. in_place: the adapter
 * replaces the one of that name, which running requests keep until they end; otherwise a
 * name that is known, or that a pending load will make known, is QUIRE_INVALID. On
 * failure nothing changes. True: w is already answered. */
bool adapter_store_load(adapter_store *s, const char *name, const char *path, bool in_place, adapter_want *w);
/* Removes an adapter; it is freed when the running requests that use it have ended.
 * QUIRE_NOT_FOUND. */
quire_err adapter_store_remove(adapter_store *s, const char *name, quire_error *err);

/* An adapter's state, for listings. */
typedef struct adapter_about {
    const char *name, *path;
    bool is_listed, is_resident;
    float scale;  /* scale set by adapter_store_scale */
    int32_t rank; /* rank, bytes and duration of the last load; 0: never loaded */
    int64_t n_bytes;
    int64_t load_us;
    int32_t n_holders; /* number of requests and sequences that use it */
    bool is_activated; /* the adapter has invocation tokens */
    const adapter_ref *ref;
} adapter_about;

/* Calls visit for each known adapter, in the order in which they were added, under the
 * store's lock: visit must not block. */
void adapter_store_visit(adapter_store *s, void (*visit)(void *context, const adapter_about *a),
                         void *context);
/* Counts of resident adapters, including removed ones. */
typedef struct adapter_bounds {
    /* the limit, the present number, and the highest so far */
    int32_t max_resident, n_resident, most_resident;
    int64_t n_bytes;
    int64_t n_loads, n_evictions; /* files loaded so far, and adapters unloaded to make room */
} adapter_bounds;
adapter_bounds adapter_store_bounds(adapter_store *s);

/* The store as an adapter_source (core/adapter_ref.h). */
adapter_source adapter_store_source(adapter_store *s);

#endif
