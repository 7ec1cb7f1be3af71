/* A directory maps keys to the slots of a tier that hold their records, and evicts the
 * least recently used record.
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
    int32_t value;          /* data of the user */
    int32_t next;           /* next in its bucket, or in the list of free slots */
    int32_t older, younger; /* neighbours in the order of use; the slot itself: it is not in that list */
    int32_t n_pins;
    bool is_filled;
} kv_dir_slot;

typedef struct kv_dir {
    kv_dir_slot *slots; /* [cap + 1]; slots[cap] is the sentinel of the order of use */
    int32_t *tokens;    /* [cap, page_tokens] tokens of each slot's page */
    int32_t *buckets;
    kv_namespaces namespaces; /* n_paths counts its filled slots */
    uint64_t hash_mask;       /* bits of the id that select the bucket */
    int32_t page_tokens, cap, n_buckets, n_filled, made, unused;
} kv_dir;

/* Opens a directory of cap slots. hash_bits: number of bits of the id that select the
 * bucket, for tests; 0: all. QUIRE_NO_MEMORY. */
quire_err kv_dir_open(kv_dir *d, int32_t cap, int32_t page_tokens, int32_t hash_bits);
void kv_dir_close(kv_dir *d);

/* Returns the slot that holds the key's page, or SLOT_NONE. O(1). */
int32_t kv_dir_find(const kv_dir *d, const kv_tier_key *key);
/* Makes a filled slot the most recently used. */
void kv_dir_touch(kv_dir *d, int32_t slot);
/* Takes a slot to fill: a free one, or the least recently used, which is evicted. *was:
 * its old value; -1: it was free. SLOT_NONE: all slots are pinned or taken. */
int32_t kv_dir_take(kv_dir *d, int32_t *was);
/* Fills a taken slot with a record. False: there are too many namespaces; the slot stays
 * taken. */
bool kv_dir_fill(kv_dir *d, int32_t slot, const kv_record *record, int32_t value);
/* Frees a taken slot. */
void kv_dir_give(kv_dir *d, int32_t slot);
/* Frees a filled, unpinned slot. */
void kv_dir_drop(kv_dir *d, int32_t slot);
/* Count a pin of a filled slot; kv_dir_take does not evict it while it has any. */
void kv_dir_pin(kv_dir *d, int32_t slot);
void kv_dir_unpin(kv_dir *d, int32_t slot);
/* Returns the key of a filled slot; borrows name and tokens from the directory. */
kv_tier_key kv_dir_key(const kv_dir *d, int32_t slot);

/* Checks that order, buckets and counts agree. QUIRE_INTERNAL: err says what is wrong.
 * O(cap). */
quire_err kv_dir_check(const kv_dir *d, quire_error *err);

#endif
