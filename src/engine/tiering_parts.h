/* The internal structs of the engine's side of the tiers, for tiering.c and promotion.c only. */
#ifndef ENGINE_TIERING_PARTS_H
#define ENGINE_TIERING_PARTS_H

#include "engine/state.h"
#include "kv/tier.h"

#define MAX_PROMOTIONS 8  /* requests whose pages are fetched at once */
#define WINDOW         16 /* pages of tokens that are fetched ahead for each request */
#define ENTRY_NONE     (-1)

/* The tier key of the prefix up to the end of an index entry, computed at first use. */
typedef struct entry_name {
    kv_tier_id id;
    bool is_known;
    bool was_queued; /* its pages are queued to be written through, or were written */
} entry_name;

/* The promotion of the pages of tokens n_done..n_total of a waiting request. Pages up to n_asked have frames. */
typedef struct promotion {
    sequence *s; /* NULL: free */
    int32_t n_done, n_asked, n_total;
    kv_tier_id before; /* the key of the prefix before page n_asked; at the start of a namespace see tiering_root */
    int32_t *frames;   /* [WINDOW, n_groups], page i at i % WINDOW */
} promotion;

/* A ring of full entries whose pages are to be written through, oldest first. */
typedef struct write_queue {
    int32_t *entries; /* [cap]; NULL: write-through is off */
    int32_t cap, first, n;
} write_queue;

struct tiering {
    kv_tiers *tiers;
    kv_index_watch watch;
    entry_name *names; /* [kv_cache_cap_entries] by index entry */
    int32_t *path;     /* [max pages of a sequence] entries of a path, from its end to its root */
    kv_seq seq;        /* the position at which pages are published; its tables are empty between calls */
    promotion promotions[MAX_PROMOTIONS];
    write_queue to_write;
    bool closes;
};

/* The key of the prefix up to the end of a full entry; computes the keys of all entries before it too. */
kv_tier_id tiering_name(engine *e, int32_t entry);
/* The key of the next page's parent: `before`, or the root's key at the beginning of a namespace. */
kv_tier_id tiering_root(const engine *e, kv_tier_id before, int32_t namespace);

/* ---- promotion.c ---- */
quire_err promotion_open(engine *e, promotion *p);
void promotion_close(promotion *p);
/* Continues to fetch and publish. Ends when all pages have come or the time is up. */
void promotion_advance(engine *e, promotion *p);

#endif
