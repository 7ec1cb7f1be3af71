/* A directory maps keys to the slots of a tier that hold their records, and evicts the
 * least recently used one.
 *
 *   free --take--> taken --fill--> filled --take (the oldest)--> taken
 *   taken --give--> free    filled --drop--> free
 *
 * A filled slot can be found. A pinned one is not taken until it is unpinned. Keys are
 * compared whole. Everything is allocated at open. Owner: the engine thread. */
#ifndef KV_TIER_DIR_H
#define KV_TIER_DIR_H

#include "kv/namespace.h"
#include "kv/tier_record.h"

#define SLOT_NONE (-1)

typedef struct kv_dir_slot {
    kv_tier_id parent, id;
    uint64_t sum;
    int32_t namespace, group;
    int32_t value;          /* the user's data */
    int32_t next;           /* in its bucket, or in the list of free slots */
    int32_t older, younger; /* links in the order of use; to itself: not in that list */
    int32_t n_pins;
    bool is_filled;
} kv_dir_slot;

typedef struct kv_dir {
    kv_dir_slot *slots; /* [cap + 1]; slots[cap] is the sentinel of the order of use */
    int32_t *tokens;    /* [cap, page_tokens] */
    int32_t *buckets;
    kv_namespaces namespaces; /* n_paths: filled slots in it */
    uint64_t hash_mask;       /* the bits of the id that select the bucket */
    int32_t page_tokens, cap, n_buckets, n_filled, made, unused;
} kv_dir;

/* Opens a directory of cap slots; hash_bits of the id decide the bucket, for tests (0:
 * all). */
quire_err kv_dir_open(kv_dir *d, int32_t cap, int32_t page_tokens, int32_t hash_bits);
void kv_dir_close(kv_dir *d);

/* The slot that holds the key's page, or SLOT_NONE. O(1). */
int32_t kv_dir_find(const kv_dir *d, const kv_tier_key *key);
/* Makes the slot the most recently used. */
void kv_dir_touch(kv_dir *d, int32_t slot);
/* A slot to fill: a free one, or the least recently used, which is evicted (*was is its
 * old value; -1: it was free). SLOT_NONE when all others are pinned or taken. */
int32_t kv_dir_take(kv_dir *d, int32_t *was);
/* Puts a record into a taken slot. False: there are too many namespaces, and the slot
 * stays taken. */
bool kv_dir_fill(kv_dir *d, int32_t slot, const kv_record *record, int32_t value);
/* Frees a taken slot. */
void kv_dir_give(kv_dir *d, int32_t slot);
/* Frees a filled, unpinned slot. */
void kv_dir_drop(kv_dir *d, int32_t slot);
void kv_dir_pin(kv_dir *d, int32_t slot);
void kv_dir_unpin(kv_dir *d, int32_t slot);
/* The key of a filled slot; its namespace's name and tokens belong to the directory. */
kv_tier_key kv_dir_key(const kv_dir *d, int32_t slot);

/* Checks that order, buckets and counts agree; else QUIRE_INTERNAL and what is wrong.
 * O(cap). */
quire_err kv_dir_check(const kv_dir *d, quire_error *err);

#endif
