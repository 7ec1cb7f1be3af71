/* Tiers store pages outside the pool and find them again by key: host memory, a file and
 * a Redis server behind one interface.
 *
 *   demote   kv_tiers_put_begin -> the caller fills the page -> kv_tiers_put_end -> in the
 *            host tier at once, written to file and Redis later
 *   promote  kv_tiers_fetch -> kv_tiers_poll until kv_tiers_is_ready -> kv_tiers_take ->
 *            kv_tiers_release
 *
 * A page is stored as a record (tier_record.h), which names its exact prefix and carries
 * checksums. A page that is missing, damaged, of another version or late is a miss and
 * nothing else: a tier that fails loses its pages, but never causes an error of a
 * request.
 *
 * Frames hold one record each: those of the host tier and those in transfer. A frame is
 * written by the thread that fills it, and not again until it is free, so threads that
 * write it out need no lock.
 *
 * No call except close blocks; none allocates after open. Owner: the engine thread.
 * Transfers run on threads of their own, which wake `reader` when kv_tiers_poll has
 * something to process. */
#ifndef KV_TIER_H
#define KV_TIER_H

#include "kv/tier_io.h"
#include "kv/tier_record.h"
#include "quire_stats.h"

typedef struct kv_tiers kv_tiers;

typedef struct kv_tiers_options {
    kv_record_shape shape; /* version is copied */
    int64_t host_bytes;    /* 0: no host tier */
    const char *file_path; /* directory of the file tier; NULL: none */
    int64_t file_bytes;
    kv_io_way file_way;
    const kv_io_calls *file_calls; /* as kv_io_open */
    const char *redis_url;         /* address of the Redis tier (tier_redis.h); NULL: none */
    int64_t redis_bytes;
    int32_t hash_bits;  /* bits of an id that are hashed, for tests; 0: all */
    const wake *reader; /* outlives the tiers; NULL: none */
} kv_tiers_options;

/* Opens the tiers. QUIRE_INVALID for impossible options; err says why a tier cannot be
 * opened. */
quire_err kv_tiers_open(const kv_tiers_options *o, kv_tiers **out, quire_error *err);
/* Finishes pending writes, then frees everything. The caller must have released all
 * frames. */
void kv_tiers_close(kv_tiers *t);

/* ---- demotion ---- */

/* Which tiers a page goes to. */
typedef enum kv_put {
    KV_PUT_ALL, /* it leaves the pool */
    KV_PUT_KEPT /* it stays in the pool: only to tiers that outlive the process */
} kv_put;

/* Reserves memory for the page's bytes in frame *out, to be filled before
 * kv_tiers_put_end; key is copied. Meanwhile other pages may be put, but not the same
 * one. NULL: these tiers have the page, or there is no free frame (counted as
 * dropped). */
void *kv_tiers_put_begin(kv_tiers *t, const kv_tier_key *key, kv_put to, int32_t *out);
/* Stores the page that frame was filled with after kv_tiers_put_begin. Before that it
 * cannot be found. */
void kv_tiers_put_end(kv_tiers *t, int32_t frame);
/* Whether kv_tiers_put_begin would find a free frame. */
bool kv_tiers_has_room(const kv_tiers *t);

/* ---- promotion ---- */

typedef enum kv_fetch {
    KV_FETCH_STARTED, /* *out is a frame that the caller must release */
    KV_FETCH_NOWHERE, /* no tier has it */
    KV_FETCH_LATER    /* no free frame now: try again */
} kv_fetch;

/* Starts to fetch the key's page. */
kv_fetch kv_tiers_fetch(kv_tiers *t, const kv_tier_key *key, int32_t *out);
/* Processes the transfers that other threads have finished. */
void kv_tiers_poll(kv_tiers *t);
/* Pages that are being written or read. */
int32_t kv_tiers_n_pending(const kv_tiers *t);
/* Whether the frame is final: it holds the page, or the page was missed. */
bool kv_tiers_is_ready(const kv_tiers *t, int32_t frame);
/* The page of a ready frame, valid until that is released; NULL if it was missed. */
const void *kv_tiers_take(const kv_tiers *t, int32_t frame);
/* Releases a frame, ready or not. */
void kv_tiers_release(kv_tiers *t, int32_t frame);

/* ---- counters ---- */

typedef enum kv_tier_kind { KV_TIER_HOST, KV_TIER_FILE, KV_TIER_REDIS, KV_N_TIERS } kv_tier_kind;

void kv_tiers_stats(const kv_tiers *t, quire_tier_stats out[KV_N_TIERS]);
/* Checks that directories, frames and counts agree; else QUIRE_INTERNAL and what is
 * wrong. O(frames). */
quire_err kv_tiers_check(const kv_tiers *t, quire_error *err);

#endif
