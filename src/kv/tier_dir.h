/* A directory: which records a tier holds in its slots, found by key, forgotten longest unused first.
 *
 *   free --take--> taken --fill--> filled --take (the oldest)--> taken        taken --give--> free      filled --drop--> free
 *
 * A filled slot can be found. One that is pinned is not taken until it is unpinned. Keys are compared whole. Everything is sized at open.
 * Owner: the engine thread. */
#ifndef KV_TIER_DIR_H
#define KV_TIER_DIR_H

#include "kv/namespace.h"
#include "kv/tier_record.h"

#define SLOT_NONE (-1)

typedef struct kv_dir_slot {
    kv_tier_id parent, id;
    uint64_t sum;
    int32_t namespace, group;
    int32_t value;          /* the user's */
    int32_t next;           /* in its bucket, or in the list of free slots */
    int32_t older, younger; /* in the order of use; to itself: not in it */
    int32_t n_pins;
    bool is_filled;
} kv_dir_slot;

typedef struct kv_dir {
    kv_dir_slot *slots; /* [cap + 1]; slots[cap] is the sentinel of the order of use */
    int32_t *tokens;    /* [cap, page_tokens] */
    int32_t *buckets;
    kv_namespaces namespaces;   /* n_paths: filled slots in it */
    uint64_t hash_mask; /* of the id, which decides the bucket */
    int32_t page_tokens, cap, n_buckets, n_filled, made, unused;
} kv_dir;

/* cap slots; hash_bits of the id decide the bucket, for tests (0: all). */
quire_err kv_dir_open(kv_dir *d, int32_t cap, int32_t page_tokens, int32_t hash_bits);
void kv_dir_close(kv_dir *d);

/* The slot that holds the key's page, or SLOT_NONE. O(1). */
int32_t kv_dir_find(const kv_dir *d, const kv_tier_key *key);
/* It was of use: the last to be forgotten now. */
void kv_dir_touch(kv_dir *d, int32_t slot);
/* A slot to fill: a free one, or the longest unused, which is forgotten (*was tells what its value was; -1: it was free).
 * SLOT_NONE when all others are pinned or taken. */
int32_t kv_dir_take(kv_dir *d, int32_t *was);
/* Puts a record into a taken slot. false, and the slot is still only taken: there are too many namespaces. */
bool kv_dir_fill(kv_dir *d, int32_t slot, const kv_record *record, int32_t value);
/* A taken slot becomes free. */
void kv_dir_give(kv_dir *d, int32_t slot);
/* A filled, unpinned slot becomes free. */
void kv_dir_drop(kv_dir *d, int32_t slot);
void kv_dir_pin(kv_dir *d, int32_t slot);
void kv_dir_unpin(kv_dir *d, int32_t slot);
/* The namespace, name and tokens of a filled slot's key, borrowed. */
kv_tier_key kv_dir_key(const kv_dir *d, int32_t slot);

/* Proves that order, buckets and counts agree; QUIRE_INTERNAL and what is wrong otherwise. O(cap). */
quire_err kv_dir_check(const kv_dir *d, quire_error *err);

#endif
