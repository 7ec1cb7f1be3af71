/* Tiers store pages outside the pool and find them again by key: host memory, a file and
 * a Redis server behind one interface.
 *
 *   demote   kv_tiers_put_begin -> the caller fills the page -> kv_tiers_put_end -> in the
 *            host tier at once, written to file and Redis later
 *   promote  kv_tiers_fetch -> kv_tiers_poll until kv_tiers_is_ready -> kv_tiers_take ->
 *            kv_tiers_release
 *
 * A page is stored as a record (tier_record.h), which names its exact prefix and carries
 * checksums. A page that is missing, damaged, of another version or late is a miss, never
 * an error of a request: a tier that fails only loses its pages.
 *
 * Frames hold one record each: those of the host tier and those in transfer. A frame is
 * written by the thread that fills it, and not again until it is free, so threads that
 * write it out need no lock.
 *
 * No call except close blocks; none allocates after open. Owner: the engine thread.
 * Transfers run on their own threads, which wake `reader` when kv_tiers_poll has
 * something to process. */
#ifndef KV_TIER_H
#define KV_TIER_H

#include "kv/tier_io.h"
#include "kv/tier_record.h"
#include "quire_stats.h"

typedef struct kv_tiers kv_tiers;

typedef struct kv_tiers_options {
    kv_record_shape shape; /* the text of version is copied */
    int64_t host_bytes;    /* size of the host tier; 0: none */
    const char *file_path; /* directory of the file tier; NULL: none */
    int64_t file_bytes;
    kv_io_way file_way;
    const kv_io_calls *file_calls; /* see kv_io_open */
    const char *redis_url;         /* address of the Redis tier (tier_redis.h); NULL: none */
    int64_t redis_bytes;
    int32_t hash_bits;  /* number of bits of an id to hash, for tests; 0: all */
    const wake *reader; /* woken after transfers; outlives the tiers; NULL: none */
} kv_tiers_options;

/* Opens the tiers. QUIRE_INVALID: impossible options. Other errors: err says why a tier
 * cannot be opened. */
quire_err kv_tiers_open(const kv_tiers_options *o, kv_tiers **out, quire_error *err);
/* Finishes pending writes, then frees everything. The caller must have released all
 * frames. */
void kv_tiers_close(kv_tiers *t);

/* ---- demotion ---- */

/* The tiers that a page goes to. */
typedef enum kv_put {
    KV_PUT_ALL, /* all tiers, because the page leaves the pool */
    KV_PUT_KEPT /* only the tiers that outlive the process, because the page stays in the pool */
} kv_put;

/* Reserves frame *out for a page, and returns the memory that the caller fills before
 * kv_tiers_put_end. key is copied. Meanwhile other pages may be put, but not the same
 * one. NULL: these tiers have the page, or no frame is free (counted as dropped). */
void *kv_tiers_put_begin(kv_tiers *t, const kv_tier_key *key, kv_put to, int32_t *out);
/* Stores the page that was filled into a frame of kv_tiers_put_begin. It can be found
 * from now on. */
void kv_tiers_put_end(kv_tiers *t, int32_t frame);
/* Whether kv_tiers_put_begin would find a free frame. */
bool kv_tiers_has_room(const kv_tiers *t);

/* ---- promotion ---- */

typedef enum kv_fetch {
    KV_FETCH_STARTED, /* the caller must release frame *out */
    KV_FETCH_NOWHERE, /* no tier has the page */
    KV_FETCH_LATER    /* no frame is free now: try again */
} kv_fetch;

/* Starts to fetch the page of a key. */
kv_fetch kv_tiers_fetch(kv_tiers *t, const kv_tier_key *key, int32_t *out);
/* Processes finished transfers. Call it when `reader` is woken. */
void kv_tiers_poll(kv_tiers *t);
/* Number of pages being written or read. */
int32_t kv_tiers_n_pending(const kv_tiers *t);
/* Whether the fetch into this frame is over: the frame has the page, or it was a miss. */
bool kv_tiers_is_ready(const kv_tiers *t, int32_t frame);
/* Returns the page of a ready frame, valid until its release; NULL: it was a miss. */
const void *kv_tiers_take(const kv_tiers *t, int32_t frame);
/* Releases a frame, ready or not. */
void kv_tiers_release(kv_tiers *t, int32_t frame);

/* ---- counters ---- */

typedef enum kv_tier_kind { KV_TIER_HOST, KV_TIER_FILE, KV_TIER_REDIS, KV_N_TIERS } kv_tier_kind;

void kv_tiers_stats(const kv_tiers *t, quire_tier_stats out[KV_N_TIERS]);
/* Checks that directories, frames and counts agree. QUIRE_INTERNAL: err says what is
 * wrong. O(frames). */
quire_err kv_tiers_check(const kv_tiers *t, quire_error *err);

#endif
