/* What the engine's side of the tiers is made of; for tiering.c and promotion.c only. */
#ifndef ENGINE_TIERING_PARTS_H
#define ENGINE_TIERING_PARTS_H

#include "engine/state.h"
#include "kv/tier.h"

#define MAX_PROMOTIONS 8  /* requests that pages are fetched for at once */
#define WINDOW         16 /* pages of tokens that are fetched ahead for each */
#define ENTRY_NONE     (-1)

/* What the prefix up to the end of an index entry is called, once somebody has asked. */
typedef struct entry_name {
    kv_tier_id id;
    bool is_known;
    bool was_queued; /* its pages wait to be written through, or were */
} entry_name;

/* The pages of tokens n_done..n_total of a waiting request are being brought in; up to n_asked they have frames. */
typedef struct promotion {
    sequence *s; /* NULL: free */
    int32_t n_done, n_asked, n_total;
    kv_tier_id before; /* the name of the prefix before page n_asked; not of the namespace that begins there */
    int32_t *frames;   /* [WINDOW, n_groups], page i at i % WINDOW */
} promotion;

/* Full entries whose pages are to be written through, in the order of their coming: a ring. */
typedef struct write_queue {
    int32_t *entries; /* [cap]; NULL: nothing is written through */
    int32_t cap, first, n;
} write_queue;

struct tiering {
    kv_tiers *tiers;
    kv_index_watch watch;
    entry_name *names; /* [kv_cache_cap_entries] by index entry */
    int32_t *path;     /* [max pages of a sequence] entries of a path, from its end */
    kv_seq seq;        /* stands where pages are published; its tables are empty between calls */
    promotion promotions[MAX_PROMOTIONS];
    write_queue to_write;
    bool closes;
};

/* The name of the prefix up to the end of a full entry; names all before it. */
kv_tier_id tiering_name(engine *e, int32_t entry);
/* The name of the next page's parent: `before`, or what stands for it at the beginning of a namespace. */
kv_tier_id tiering_root(const engine *e, kv_tier_id before, int32_t namespace);

/* ---- promotion.c ---- */
quire_err promotion_open(engine *e, promotion *p);
void promotion_close(promotion *p);
/* Goes on fetching and publishing; ends when all came that was to come, or time is up. */
void promotion_advance(engine *e, promotion *p);

#endif
