/* Snapshots store recurrent states as they are after a prefix, for requests that continue
 * from there (docs/design.md, Pages).
 *
 * A state cannot be cut like keys and values: the state after n tokens is known only if
 * it was stored at that point. A snapshot consists of the whole pages of all state groups
 * of a model. It belongs to a place in the tree, which is an entry or a namespace's
 * start, and to the tokens after it that do not fill a page (its tail). Taking one copies
 * nothing: the sequence's own pages are indexed, and the sequence copies them before it
 * writes again (kv_table_state_append). A sequence that restores a snapshot does the
 * same.
 *
 * Invariant (kv_snapshots_check): a snapshot's pages are indexed in the pool under
 * first_mark + its number, and no two snapshots have the same place and tail. So its
 * pages are held or cached together; when one is evicted the snapshot is dropped. At most
 * cap are kept; beyond that the least valuable one is dropped, by preference one that no
 * sequence holds. All have the same size, so a snapshot's value is the clock, which is
 * the value of the last dropped one, plus the tokens that it saves over the snapshot
 * before it: the value of unused ones falls behind (greedy dual size, as in evict.h).
 * Owner: the engine thread. Allocated at open. */
#ifndef KV_SNAPSHOT_H
#define KV_SNAPSHOT_H

#include "core/kv_layout.h"
#include "kv/table.h"

#define SNAPSHOT_NONE (-1)

typedef struct kv_snapshot_shape {
    int32_t page_tokens;
    int32_t n_groups;                   /* number of state groups */
    int32_t state_pages[KV_MAX_GROUPS]; /* pages of a sequence's state in each group */
    int32_t cap;                        /* most snapshots at once */
    int32_t n_places, first_mark;
} kv_snapshot_shape;

typedef struct kv_snapshot {
    int32_t place;  /* where it is in the tree; SNAPSHOT_NONE: the number is free */
    int32_t n_tail; /* tokens after the place, fewer than a page */
    int32_t next;   /* next snapshot at the same place, or next free number */
    int32_t saves;  /* tokens that a request would have to compute without it */
    int64_t value;  /* `saves` + the clock at its last use */
} kv_snapshot;

/* Called before a snapshot is dropped; must not change the snapshots. */
typedef void kv_snapshots_drop_fn(void *context, int32_t snapshot);

typedef struct kv_snapshots {
    kv_pool *pool;
    kv_snapshot_shape shape;
    kv_snapshots_drop_fn *on_drop; /* callback of the owner; NULL: none */
    void *context;
    int32_t n_pages;        /* pages of one snapshot, in all groups */
    kv_snapshot *list;      /* [cap] */
    int32_t *pages, *tails; /* [cap][n_pages], [cap][page_tokens] */
    int32_t *places;        /* [n_places] first snapshot at each place */
    int32_t n, unused;
    int64_t clock;                          /* value of the last snapshot that was dropped for another */
    int64_t n_taken, n_dropped, n_restored; /* since the open; n_taken - n_dropped == n */
} kv_snapshots;

/* Opens an empty set of snapshots. QUIRE_INVALID: a shape without pages;
 * QUIRE_NO_MEMORY. */
quire_err kv_snapshots_open(kv_snapshots *s, kv_pool *pool, const kv_snapshot_shape *shape);
int64_t kv_snapshots_bytes(const kv_snapshots *s);
/* Frees the memory. The caller unindexes the snapshots' pages in the pool. */
void kv_snapshots_close(kv_snapshots *s);

/* Returns the snapshot at a place with exactly that tail, or SNAPSHOT_NONE. O(snapshots
 * at the place), like the next call. */
int32_t kv_snapshots_find(const kv_snapshots *s, int32_t place, const int32_t *tail, int32_t n_tail);
/* Returns the snapshot whose tail is the longest prefix of tokens[0..n), at least 1
 * token; SNAPSHOT_NONE: there is none. */
int32_t kv_snapshots_deepest(const kv_snapshots *s, int32_t place, const int32_t *tokens, int32_t n);
/* Pages of a snapshot, group after group. */
const int32_t *kv_snapshots_pages(const kv_snapshots *s, int32_t snapshot);
/* Tokens of a snapshot's tail. */
const int32_t *kv_snapshots_tail(const kv_snapshots *s, int32_t snapshot);
/* Adds a snapshot of the state that tables[n_groups] hold, which saves `saves` tokens,
 * and returns its number. SNAPSHOT_NONE: the place has a snapshot with that tail already,
 * which now counts as used. O(cap) if all are in use. */
int32_t kv_snapshots_add(kv_snapshots *s, int32_t place, const int32_t *tail, int32_t n_tail, int32_t saves,
                         const kv_table *tables);
/* Returns the least valuable snapshot; SNAPSHOT_NONE: there is none. O(cap). */
int32_t kv_snapshots_least(const kv_snapshots *s);
/* Shares a snapshot's pages into empty tables that have the capacity, and sets their
 * length to n_tokens. Counts as a use. */
void kv_snapshots_restore(kv_snapshots *s, int32_t snapshot, int32_t n_tokens, kv_table *tables);
/* Drops a snapshot and unindexes its pages: cached ones become free. */
void kv_snapshots_drop(kv_snapshots *s, int32_t snapshot);
/* Drops all snapshots at a place. */
void kv_snapshots_drop_place(kv_snapshots *s, int32_t place);

/* ---- when a sequence takes snapshots ---- */

#define SNAPSHOT_MARKS 12

/* The positions at which one sequence takes snapshots: where its prompt branches off from
 * the tree, before the last token of its prompt (which every request computes itself),
 * every `interval` tokens, and where others ask for one. All zero except for interval:
 * the plan of an empty sequence. */
typedef struct kv_snapshot_plan {
    int32_t branch, prompt_end; /* positions in tokens; 0: none */
    int32_t interval;           /* distance in tokens; 0: no such snapshots */
    int32_t last;               /* all positions up to here are done */
    int32_t unit;               /* positions are rounded down to multiples of it; 0 or 1: any position */
    int32_t n_marks, marks[SNAPSHOT_MARKS];
} kv_snapshot_plan;

/* Adds a position, if necessary in place of one that is done. False: there are too
 * many. */
bool kv_snapshot_mark(kv_snapshot_plan *plan, int32_t n_tokens);

/* Returns the next position after `last`; INT32_MAX: none. */
int32_t kv_snapshot_next(const kv_snapshot_plan *plan);

/* Checks the invariant, and adds the number of indexed pages to *n_marked.
 * QUIRE_INTERNAL: err says what is wrong. O(places + pages). */
quire_err kv_snapshots_check(const kv_snapshots *s, int32_t *n_marked, quire_error *err);

#endif
