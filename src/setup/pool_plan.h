/* Plans the page pool: the number of pages, with an explanation for people; and the
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

/* Memory of this process: how much it may still allocate, and locking what it has. */

typedef enum memory_bound {
    MEMORY_UNKNOWN,
    MEMORY_OF_MACHINE,
    MEMORY_OF_CGROUP,      /* base/process.h */
    MEMORY_OF_RLIMIT_AS,   /* address space: mapped files count too */
    MEMORY_OF_RLIMIT_DATA, /* private writable memory */
} memory_bound;

/* How much memory the process may still allocate, and which limit decides that. */
typedef struct memory_room {
    int64_t bytes;                /* memory still to be allocated; -1: unknown */
    memory_bound bound;           /* the limit that leaves the least */
    int64_t limit;                /* value of that limit, in bytes */
    int64_t stack_bytes;          /* MEMORY_OF_RLIMIT_*: already subtracted for stacks of later threads */
    char file[CGROUP_FILE_BYTES]; /* MEMORY_OF_CGROUP: the file that has the limit */
} memory_room;

/* Reads how much memory is left: the least of what the kernel estimates as available and
 * what cgroups, RLIMIT_AS and RLIMIT_DATA leave. pending_bytes: mapped files and buffers
 * not yet touched, which the kernel counts as free although they will be needed; the two
 * RLIMITs already include them. root: prefix of the kernel's files, "" on a running
 * system. Any thread. */
void memory_room_read(const char *root, int64_t pending_bytes, memory_room *out);
/* Appends, for people: "the 21.3 GB that the machine has available". Errors of
 * strbuf_add. */
quire_err memory_room_explain(const memory_room *room, strbuf *out);
/* A number of bytes for people: "21.3 GB". A GB is 10^9 bytes. */
typedef struct memory_text {
    char text[32];
} memory_text;
memory_text memory_show(int64_t bytes);

/* Locks all mapped memory: weights, pages, buffers, program. late: untouched memory is
 * locked when it is first touched; otherwise all of it is allocated now. QUIRE_NO_MEMORY:
 * the process may not lock so much; err says how to allow it. */
quire_err memory_lock(bool late, quire_error *err);

#define POOL_MAX_PAGES ((int64_t)1 << 30)

typedef struct pool_plan {
    memory_room room; /* memory that is left after weights and buffers */
    int64_t weight_bytes;
    /* bytes of a mapped model's weights that do not fit into memory; otherwise 0 */
    int64_t dropped_bytes;
    int64_t buffer_bytes;  /* bytes of buffers; 0: unknown, since the model is not loaded */
    int64_t aside_bytes;   /* bytes of the room for swap space and host tier */
    int64_t adapter_bytes; /* options_adapter_bytes */
    int64_t rule_bytes;    /* --rule-memory-bytes; pool_plan_rules has the bytes subtracted from the room */
    int64_t given_pages;   /* --kv-pages; 0: as many as fit */
    /* for an encoder, which keeps nothing between steps: most rows and sequences of a
     * step. Otherwise 0 */
    int32_t step_rows, step_seqs;
    bool has_draft;      /* there is a draft model, whose pages share the memory (kv/budget.h) */
    int64_t draft_bytes; /* the draft model's weights and, if known, buffers */
    int64_t cap_bytes;   /* most bytes of weights, buffers and pages: --models-memory-bytes; 0: no limit */
    double utilization;
} pool_plan;

/* The plan from options; the caller sets room, weights and buffers. */
pool_plan pool_plan_of(const quire_options *o);
/* If d is an encoder, makes *p the plan of an encoder with steps of max_rows rows. */
void pool_plan_encoder(pool_plan *p, const quire_options *o, const model_desc *d, int32_t max_rows);
/* The bytes of a packed model's mapped weights that stay in memory: at most seven eighths
 * of room, from which weights are not yet subtracted. The kernel drops the rest and reads
 * it from the file again when it is used, which is rare for most experts of a mixture.
 * All, if room is unknown or its limit includes mapped files. */
int64_t pool_plan_kept(const memory_room *room, int64_t weight_bytes);
/* Bytes of memory for requests' constraints: the option's value, but at most a sixteenth
 * of the room or 1 MB, whichever is more. 0 for an encoder. */
int64_t pool_plan_rules(const pool_plan *p);
/* The number of pages: the given one, or as many as fit into the plan's part of the room;
 * for an encoder at most what one step needs. -1: the room is unknown and no number is
 * given. */
int64_t pool_plan_pages(const pool_plan *p, const kv_layout *l);
/* The bytes for the pages of all models of a process; a page of p->given_pages has
 * page_bytes. -1: the room is unknown and no number is given. */
int64_t pool_plan_bytes(const pool_plan *p, int64_t page_bytes);
/* As pool_plan_pages, for an engine whose sequences hold at most `most` pages.
 * QUIRE_NO_MEMORY: the pages cannot hold a sequence of least_tokens tokens.
 * QUIRE_INVALID: their number is unknown. err says what to do. */
quire_err pool_plan_resolve(const pool_plan *p, const kv_layout *l, const kv_most *most, int32_t least_tokens,
                            int32_t *n_pages, quire_error *err);
/* Appends the reason for the number of pages: "50% (--memory-utilization, 0.5 by default)
 * of the 21.3 GB that .. beside weights (2.9 MB)". Errors of strbuf_add. */
quire_err pool_plan_explain(const pool_plan *p, strbuf *out);

/* ---- memory that models share ---- */

/* The memory for the pages of one or several models and their draft models. Its engines
 * hold references; the last drop closes it. */
typedef struct model_memory {
    kv_budget *budget; /* its owner is the models' engine thread (engine/team.h) */
    int32_t n_models;  /* most models at once; 1: one model and its draft model */
    /* fraction of further models' weights and buffers that is subtracted from the memory
     * of pages, as in the first model's plan */
    double part;
    atomic_int n_holders;
} model_memory;

/* Opens `bytes` bytes of memory for n_models >= 1 models; the caller gets one reference.
 * p: the first model's plan. QUIRE_NO_MEMORY. */
quire_err model_memory_open(const pool_plan *p, int64_t bytes, int32_t n_models, model_memory **out);
/* Adds a reference and returns m. Any thread, like model_memory_drop. */
model_memory *model_memory_hold(model_memory *m);
/* Drops a reference. NULL is allowed. */
void model_memory_drop(model_memory *m);
/* By how many bytes `bytes` of weights and buffers reduce the memory of pages. */
int64_t model_memory_fixed(const model_memory *m, int64_t bytes);
/* The pages of a model in m. *n_pages: most pages. *sure_pages: guaranteed pages, an
 * equal share of half of m, or what a sequence of least_tokens tokens takes if that is
 * more. The other half is for any use, including weights of further models. Errors of
 * pool_plan_resolve. */
quire_err model_memory_share(const model_memory *m, const pool_plan *p, const kv_layout *l,
                             const kv_most *most, int32_t least_tokens, int32_t *n_pages, int32_t *sure_pages,
                             quire_error *err);

#endif
