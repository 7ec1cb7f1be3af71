/* Snapshots: recurrent states as they were behind a prefix, for requests that go on from there (docs/design.md, Pages).
 *
 * A state cannot be cut like keys and values: what it was after n tokens is known only if it was kept then. A snapshot is the whole pages
 * of all state groups of a model, and stands at a place of the tree: an entry, or a namespace's start, and the tokens behind it that do not
 * fill a page (its tail). Nothing is copied to take one: the sequence's own pages are marked, and the sequence copies them before it writes
 * again (kv_table_state_append); whoever restores one does the same.
 *
 * Invariant (kv_snapshots_check): a snapshot's pages are indexed in the pool under first_mark + its number, and no two snapshots have the
 * same place and tail. So its pages are held or cached together; when one is evicted all go. At most cap are kept: beyond that the one
 * longest unused goes. Owner: the engine thread. Sized at open. */
#ifndef KV_SNAPSHOT_H
#define KV_SNAPSHOT_H

#include "core/kv_layout.h"
#include "kv/table.h"

#define SNAPSHOT_NONE (-1)

typedef struct kv_snapshot_shape {
    int32_t page_tokens;
    int32_t n_groups;                   /* state groups */
    int32_t state_pages[KV_MAX_GROUPS]; /* of a sequence's state, each group's */
    int32_t cap;                        /* snapshots at once */
    int32_t n_places, first_mark;
} kv_snapshot_shape;

typedef struct kv_snapshot {
    int32_t place;          /* SNAPSHOT_NONE: this number is not in use */
    int32_t n_tail;         /* tokens behind the place, fewer than a page */
    int32_t next;           /* at the same place; or the next unused number */
    int32_t older, younger; /* by last use */
} kv_snapshot;

typedef struct kv_snapshots {
    kv_pool *pool;
    kv_snapshot_shape shape;
    int32_t n_pages;        /* of one snapshot, all groups */
    kv_snapshot *list;      /* [cap] */
    int32_t *pages, *tails; /* [cap][n_pages], [cap][page_tokens] */
    int32_t *places;        /* [n_places] the first there */
    int32_t n, unused, oldest, youngest;
} kv_snapshots;

/* QUIRE_INVALID for a shape without pages; QUIRE_NO_MEMORY. */
quire_err kv_snapshots_open(kv_snapshots *s, kv_pool *pool, const kv_snapshot_shape *shape);
int64_t kv_snapshots_bytes(const kv_snapshots *s);
/* The pool's marks are the caller's to take away. */
void kv_snapshots_close(kv_snapshots *s);

/* The one at a place with exactly that tail, or SNAPSHOT_NONE. O(snapshots at the place), as the next. */
int32_t kv_snapshots_find(const kv_snapshots *s, int32_t place, const int32_t *tail, int32_t n_tail);
/* The one whose tail is the longest prefix of tokens[0..n), 1 token at least; SNAPSHOT_NONE if there is none. */
int32_t kv_snapshots_deepest(const kv_snapshots *s, int32_t place, const int32_t *tokens, int32_t n);
/* Its tail's tokens. */
const int32_t *kv_snapshots_tail(const kv_snapshots *s, int32_t snapshot);
/* Keeps the state that tables[n_groups] hold, and says under which number. SNAPSHOT_NONE when it is there already: that becomes the
 * youngest. */
int32_t kv_snapshots_add(kv_snapshots *s, int32_t place, const int32_t *tail, int32_t n_tail, const kv_table *tables);
/* Shares its pages into empty tables with room for them, whose length becomes n_tokens; it becomes the youngest. */
void kv_snapshots_restore(kv_snapshots *s, int32_t snapshot, int32_t n_tokens, kv_table *tables);
/* Its pages are marked no more: cached ones become free. */
void kv_snapshots_drop(kv_snapshots *s, int32_t snapshot);
void kv_snapshots_drop_place(kv_snapshots *s, int32_t place);

/* ---- when ---- */

/* Where one sequence leaves snapshots: where its prompt branches off from what was there before, before the last token of its prompt (which
 * every request computes itself), and every interval tokens. Zeroed but for interval: of an empty sequence. */
typedef struct kv_snapshot_plan {
    int32_t branch, prompt_end; /* tokens; 0: no such point */
    int32_t interval;           /* 0: none on the way */
    int32_t last;               /* up to here all is done */
} kv_snapshot_plan;

/* The next point, over last; INT32_MAX if there is none. */
int32_t kv_snapshot_next(const kv_snapshot_plan *plan);

/* Proves the invariant; adds the number of marked pages to *n_marked. QUIRE_INTERNAL and what is wrong otherwise. O(places + pages). */
quire_err kv_snapshots_check(const kv_snapshots *s, int32_t *n_marked, quire_error *err);

#endif
