/* The adapters of an engine: those known by name, those loaded, and the requests that
 * wait for one.
 *
 *   known --wanted--> waiting for its turn --thread--> resident --idle and room is short--> known
 *
 * The store's own thread has them read at low priority, one after the other in the order
 * in which they were first wanted. No lock is held while a file is read, and a step of
 * the engine never takes the store's lock: sequences only count references
 * (adapter_ref.h). At most `max_resident` are loaded at once. To make room, the least
 * recently used idle one is unloaded; if all are in use, the one that was wanted longest
 * ago gets no further request until it is free. So no request waits for ever.
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

/* Names of adapters and their files: checks of names, and their lookup in a directory
 * without leaving it. */

#define ADAPTER_NAME_BYTES 255

/* One adapter of a list. */
typedef struct adapter_listed {
    str name; /* empty: not given */
    str path;
    float scale;
} adapter_listed;

/* Reads the next line, and moves *lines past it: NAME=PATH, or a JSON object with name
 * and path, whose texts are kept in *own. False: no line is left, or *err is set. */
bool adapter_names_next(const char **lines, strbuf *own, adapter_listed *out, quire_error *err);
/* Reads the next line, or part between commas: PATH or PATH:SCALE. */
bool adapter_paths_next(const char **lines, adapter_listed *out);

/* ---- adapters among options ---- */

/* What the options specify about adapters: whether there are any, their number, and their
 * memory. */

/* Whether requests may have adapters. */
bool options_have_adapters(const quire_options *o);
/* How many may be loaded at once. */
int32_t options_max_loaded(const quire_options *o);
/* The largest rank of a batch's adapters: of a blend, the sum of its parts'. */
int32_t options_batch_rank(const quire_options *o);
/* How many adapters o->loras has. */
int32_t options_numbered_adapters(const quire_options *o);
/* The most bytes that loaded adapters may take: their largest number times the largest
 * file that is named or in the directory. */
int64_t options_adapter_bytes(const quire_options *o);

typedef struct adapter_store adapter_store;

/* Opens a store. IO: the directory can't be read. */
quire_err adapter_store_open(const adapter_store_options *o, const adapter_loader *l, adapter_store **out,
                             quire_error *err);
/* Ends the thread and frees everything; waiting wants are answered QUIRE_CANCELLED. No
 * reference is left. NULL does nothing. */
void adapter_store_close(adapter_store *s);

/* Makes an adapter known, without reading it. INVALID: the name is taken or not allowed.
 * is_listed: requests may name it; others are known by their number only: 0, 1, 2 .. in
 * the order of their adding. */
quire_err adapter_store_add(adapter_store *s, const char *name, const char *path, bool is_listed,
                            quire_error *err);
/* Sets the scale with which the adapter of that number applies to requests that name
 * none; 0 until then. At most ADAPTER_MAX_PARTS may have a scale other than 0.
 * BAD_REQUEST: no such number, or too many. */
quire_err adapter_store_scale(adapter_store *s, int32_t number, float scale, quire_error *err);
/* Loads an adapter under a name. w, whose parts are not read, is answered as by
 * want(), with a reference once the adapter is known by the name. in_place: replaces
 * the adapter of that name, whose requests keep it until they end; otherwise a name that
 * is known, or that a pending load will make known, is INVALID. On failure nothing
 * changes. True: w has already been answered. */
bool adapter_store_load(adapter_store *s, const char *name, const char *path, bool in_place, adapter_want *w);
/* Removes an adapter; running requests keep it until they end, and then it is freed.
 * NOT_FOUND. */
quire_err adapter_store_remove(adapter_store *s, const char *name, quire_error *err);

/* An adapter, for lists. */
typedef struct adapter_about {
    const char *name, *path;
    bool is_listed, is_resident;
    float scale;       /* as adapter_store_scale has it */
    int32_t rank;      /* as it was loaded last; 0: it never was */
    int64_t n_bytes;   /* likewise */
    int64_t load_us;   /* likewise: how long that took */
    int32_t n_holders; /* requests and sequences that use it */
    bool is_activated; /* it has invocation tokens */
    const adapter_ref *ref;
} adapter_about;

/* Calls visit for each adapter that is known, in the order of their adding, under the
 * store's lock: visit does not block. */
void adapter_store_visit(adapter_store *s, void (*visit)(void *context, const adapter_about *a),
                         void *context);
/* The resident adapters, including removed ones. */
typedef struct adapter_bounds {
    /* the limit, the present number, and the highest so far */
    int32_t max_resident, n_resident, most_resident;
    int64_t n_bytes;
    int64_t n_loads, n_evictions; /* files loaded so far, and adapters unloaded to make room */
} adapter_bounds;
adapter_bounds adapter_store_bounds(adapter_store *s);

/* The store as a source (core/adapter_ref.h). */
adapter_source adapter_store_source(adapter_store *s);

#endif
