/* Plan of the page pool: the number of pages, with an explanation for people; and the
 * memory that the pools of several models share. Plans are plain data. */
#ifndef SETUP_POOL_PLAN_H
#define SETUP_POOL_PLAN_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "base/process.h"
#include "base/str.h"
#include "kv/budget.h"
#include "kv/most_pages.h"
#include "quire.h"

/* Memory limits of this process: how much it may still allocate, and locking what it
 * has. */

typedef enum memory_bound {
    MEMORY_UNKNOWN,
    MEMORY_OF_MACHINE,
    MEMORY_OF_CGROUP,      /* base/process.h */
    MEMORY_OF_RLIMIT_AS,   /* address space: mapped files count too */
    MEMORY_OF_RLIMIT_DATA, /* memory that is private and writable */
} memory_bound;

/* The memory that the process may still allocate, and the limit that decides it. */
typedef struct memory_room {
    int64_t bytes;                /* -1: unknown */
    memory_bound bound;           /* the limit that leaves least */
    int64_t limit;                /* in bytes; `bytes` is what it leaves */
    int64_t stack_bytes;          /* MEMORY_OF_RLIMIT_*: already subtracted for threads that start later */
    char file[CGROUP_FILE_BYTES]; /* MEMORY_OF_CGROUP: that sets the limit */
} memory_room;

/* Reads how much memory is left: what the kernel estimates as available, and what the
 * limits of cgroups, RLIMIT_AS and RLIMIT_DATA leave. pending_bytes will be needed
 * although the kernel counts them as free: mapped files, and buffers that are not touched
 * yet. The two limits of the process already include them. The kernel's files are read
 * below root, "" on a running system. Any thread. */
void memory_room_read(const char *root, int64_t pending_bytes, memory_room *out);
/* Appends, for people: "the 21.3 GB that the machine has available". Errors of
 * strbuf_add. */
quire_err memory_room_explain(const memory_room *room, strbuf *out);
/* Appends a number of bytes for people: "21.3 GB". A GB is 10^9 bytes. Errors of
 * strbuf_add. */
quire_err memory_print(int64_t bytes, strbuf *out);

/* Locks all mapped memory: weights, pages, buffers, program. late: untouched memory is
 * locked once it is touched; otherwise all of it is allocated now. QUIRE_NO_MEMORY: the
 * process may not lock so much; err says what allows it. */
quire_err memory_lock(bool late, quire_error *err);

#define POOL_MAX_PAGES ((int64_t)1 << 30)

typedef struct pool_plan {
    memory_room room; /* available memory, and the weights and buffers already in it */
    int64_t weight_bytes;
    /* part of the weights of a mapped model that does not fit into memory; otherwise 0 */
    int64_t dropped_bytes;
    int64_t buffer_bytes;  /* 0: not known, since the model is not loaded */
    int64_t aside_bytes;   /* part of the room for swap space and host tier */
    int64_t adapter_bytes; /* bytes that adapters may take (adapter_store.h) */
    int64_t rule_bytes;  /* --rule-memory-bytes; pool_plan_rules computes what is subtracted from the room */
    int64_t given_pages; /* --kv-pages; 0: as many as fit */
    /* most rows and sequences in a step of an encoder, which keeps nothing between
     * steps. 0 rows: no encoder */
    int32_t step_rows, step_seqs;
    bool has_draft;      /* a draft model, whose pages are in the same memory (kv/budget.h) */
    int64_t draft_bytes; /* its weights and, where they are known, buffers */
    int64_t cap_bytes;   /* most bytes of weights, buffers and pages: --models-memory-bytes; 0: no limit */
    double utilization;
} pool_plan;

/* The plan from options; room, weights and buffers are still to be set. */
pool_plan pool_plan_of(const quire_options *o);
/* Makes it the plan of an encoder, with steps of max_rows rows, if d is one. */
void pool_plan_encoder(pool_plan *p, const quire_options *o, const model_desc *d, int32_t max_rows);
/* How many bytes of a packed model's weights stay in memory: all, but at most seven
 * eighths of the room. The kernel drops the rest and reads it from the file again when it
 * is used, which for most experts of a mixture is rare. room: before weights are
 * subtracted. If it is unknown, or a limit of the process that already includes mapped
 * files: all. */
int64_t pool_plan_kept(const memory_room *room, int64_t weight_bytes);
/* Memory for the states of requests' rules: the option's value, but at most a sixteenth
 * of the room, or 1 MB if that is less. 0 for an encoder. */
int64_t pool_plan_rules(const pool_plan *p);
/* The number of pages: the given one, or what fits into the plan's part of the room, for
 * an encoder only what one step needs. -1: the room is unknown and none is given. */
int64_t pool_plan_pages(const pool_plan *p, const kv_layout *l);
/* The bytes for the pages of all models of a process, given_pages being of page_bytes.
 * -1: the room is unknown and no number is given. */
int64_t pool_plan_bytes(const pool_plan *p, int64_t page_bytes);
/* The same, for an engine whose sequences hold at most `most`. QUIRE_NO_MEMORY if the
 * pages cannot hold a sequence of least_tokens, QUIRE_INVALID if their number is unknown;
 * err says what to do. */
quire_err pool_plan_resolve(const pool_plan *p, const kv_layout *l, const kv_most *most, int32_t least_tokens,
                            int32_t *n_pages, quire_error *err);
/* Appends why the number is what it is: "50% (--memory-utilization, 0.5 by default) of
 * the 21.3 GB that .. beside weights (2.9 MB)". Errors of strbuf_add. */
quire_err pool_plan_explain(const pool_plan *p, strbuf *out);

/* ---- memory that models share ---- */

/* The memory for the pages of one or several models and their draft models. Its engines
 * hold references; the last drop closes it. */
typedef struct model_memory {
    kv_budget *budget; /* owned by the engine thread of the models (engine/team.h) */
    int32_t n_models;  /* most models at once; 1: a model and its draft model */
    /* fraction of the weights and buffers of further models that is subtracted from the
     * pages, as in the first model's plan */
    double part;
    atomic_int n_holders;
} model_memory;

/* Opens `bytes` of memory for n_models >= 1, with one reference. p: the first model's
 * plan. QUIRE_NO_MEMORY. */
quire_err model_memory_open(const pool_plan *p, int64_t bytes, int32_t n_models, model_memory **out);
/* Adds a reference and returns m. Any thread, like model_memory_drop. */
model_memory *model_memory_hold(model_memory *m);
/* NULL is allowed. */
void model_memory_drop(model_memory *m);
/* How much `bytes` of weights and buffers reduce the memory of pages. */
int64_t model_memory_fixed(const model_memory *m, int64_t bytes);
/* The pages of a model in m: the number of addresses, and of guaranteed pages: its
 * part of a half of m, or what a sequence of least_tokens takes if that is more. The
 * other half is for any use, including weights of further models. Errors of
 * pool_plan_resolve. */
quire_err model_memory_share(const model_memory *m, const pool_plan *p, const kv_layout *l,
                             const kv_most *most, int32_t least_tokens, int32_t *n_pages, int32_t *sure_pages,
                             quire_error *err);

#endif
