/* The internal structs of tiering, for kv_tiering.c and kv_tiering_promotion.c only. */
#ifndef KV_KV_TIERING_PARTS_H
#define KV_KV_TIERING_PARTS_H

#include "kv/kv_tiering.h"

#define MAX_PROMOTIONS 8   /* sequences whose pages are fetched at once */
#define WINDOW         16  /* pages of tokens that are fetched ahead for each */
#define MAX_MOVES      256 /* moves that the device has not done yet */
#define ENTRY_NONE     (-1)

/* The tier key of the prefix up to the end of an index entry, computed at first use. */
typedef struct entry_name {
    kv_tier_id id;
    bool is_known;
    bool was_queued; /* its pages are queued to be written through, or were written */
} entry_name;

/* The promotion of the pages of tokens n_done..n_total of a waiting sequence. Pages up to
 * n_asked have frames. */
typedef struct promotion {
    kv_seq *s; /* NULL: free */
    const int32_t *tokens;
    int32_t n_done, n_asked, n_total;
    /* the key of the prefix before page n_asked; at the start of a namespace see
     * tiering_root */
    kv_tier_id before;
    int32_t *frames; /* [WINDOW, n_groups], page i at i % WINDOW */
} promotion;

/* A ring of full entries whose pages are to be written through, oldest first. */
typedef struct write_queue {
    int32_t *entries; /* [cap]; NULL: write-through is off */
    int32_t cap, first, n;
} write_queue;

/* A move between a page and a frame of the tiers, under way on the device. */
typedef struct frame_move {
    kv_fence fence;
    int32_t frame;
    bool is_put;   /* the page is stored when it is done; else the frame is released */
    kv_tier_id id; /* of a page that is put */
    int32_t group;
} frame_move;

struct kv_tiering {
    kv_cache *c;
    kv_tiers *tiers;
    kv_index_watch watch;
    entry_name *names; /* [kv_index_cap_entries] by index entry */
    int32_t *path;     /* [max pages of a sequence] entries of a path, from its end to its root */
    kv_seq seq;        /* the position at which pages are published; its tables are empty between calls */
    promotion promotions[MAX_PROMOTIONS];
    write_queue to_write;
    frame_move moves[MAX_MOVES]; /* a ring, oldest first */
    int32_t first_move, n_moves;
    const wake *reader;
    void (*on_promoted)(void *context, kv_seq *s, int32_t n_tokens);
    void *context;
    bool are_kept; /* a tier outlives the process */
    bool closes;
};

/* The key of the prefix up to the end of a full entry; computes the keys of all entries
 * before it too. */
kv_tier_id tiering_name(kv_tiering *t, int32_t entry);
/* The key of the next page's parent: `before`, or the root's key at the beginning of a
 * namespace. */
kv_tier_id tiering_root(const kv_tiering *t, kv_tier_id before, int32_t namespace);
/* Ends a move, which the mover was just given: at once if it is done, else in a later
 * poll. Waits for the device where too many are under way. */
void tiering_end_move(kv_tiering *t, const frame_move *m);

/* ---- kv_tiering_promotion.c ---- */
quire_err promotion_open(const kv_tiering *t, promotion *p);
void promotion_close(promotion *p);
/* Continues to fetch and publish. Ends when all pages have come or the time is up. */
void promotion_advance(kv_tiering *t, promotion *p, int64_t now_us);

#endif
