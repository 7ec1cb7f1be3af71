/* Tiers: pages outside the pool, found again by what they hold. Host memory, a file, a Redis server, under one front.
 *
 *   demote:   kv_tiers_put_begin -> the caller fills the page -> kv_tiers_put_end -> host at once, file and Redis written behind
 *   promote:  kv_tiers_fetch -> kv_tiers_poll until kv_tiers_is_ready -> kv_tiers_take -> kv_tiers_release
 *
 * A page is kept as a record (tier_record.h), which says exactly behind what it belongs and carries checksums. What is missing, damaged, of
 * another version, or slow is a miss and nothing else: a tier that fails costs what it held, never an error of a request.
 *
 * Frames hold one record each: what the host tier keeps and what is on its way. A frame is written by whoever fills it and never again
 * until nobody needs it, so threads that write it out need no lock.
 *
 * Nothing here blocks or allocates after open but close. Owner: the engine thread; transfers run on threads of their own, which ring
 * `reader` when kv_tiers_poll has news. */
#ifndef KV_TIER_H
#define KV_TIER_H

#include "kv/tier_io.h"
#include "kv/tier_record.h"

typedef struct kv_tiers kv_tiers;

typedef struct kv_tiers_options {
    kv_record_shape shape; /* version is copied */
    int64_t host_bytes;    /* 0: no host tier */
    const char *file_path; /* directory of the file tier; NULL: none */
    int64_t file_bytes;
    kv_io_way file_way;
    const kv_io_calls *file_calls; /* as kv_io_open */
    const char *redis_url;         /* of the Redis tier (tier_redis.h); NULL: none */
    int64_t redis_bytes;
    int32_t hash_bits;  /* of an id say where to look, for tests; 0: all */
    const wake *reader; /* outlives the tiers; NULL: nobody */
} kv_tiers_options;

/* QUIRE_INVALID for options no store has; err says what a tier that cannot be opened lacks. */
quire_err kv_tiers_open(const kv_tiers_options *o, kv_tiers **out, quire_error *err);
/* Finishes what is being written, then frees everything. No frame may be in the caller's hands. */
void kv_tiers_close(kv_tiers *t);

/* ---- demotion ---- */

/* Which tiers a page goes to. */
typedef enum kv_put {
    KV_PUT_ALL, /* it leaves the pool */
    KV_PUT_KEPT /* it stays there: to those that outlive the process only */
} kv_put;

/* Room for the page's bytes, to be filled before kv_tiers_put_end. NULL: these tiers have it, or there is no room now (counted as
 * dropped). */
void *kv_tiers_put_begin(kv_tiers *t, const kv_tier_key *key, kv_put to);
/* Hands the page that put_begin gave room for to the tiers. */
void kv_tiers_put_end(kv_tiers *t, const kv_tier_key *key);

/* ---- promotion ---- */

typedef enum kv_fetch {
    KV_FETCH_STARTED, /* *out is the caller's until released */
    KV_FETCH_NOWHERE, /* no tier has it, and none need be asked */
    KV_FETCH_LATER    /* no room now */
} kv_fetch;

/* Starts bringing in the key's page. */
kv_fetch kv_tiers_fetch(kv_tiers *t, const kv_tier_key *key, int32_t *out);
/* Takes in what the other threads have finished. */
void kv_tiers_poll(kv_tiers *t);
/* Pages that are being written or read now. */
int32_t kv_tiers_n_pending(const kv_tiers *t);
/* Whether the frame will change no more: it holds the page, or the page was missed. */
bool kv_tiers_is_ready(const kv_tiers *t, int32_t frame);
/* The page of a ready frame, until that is released; NULL if it was missed. */
const void *kv_tiers_take(const kv_tiers *t, int32_t frame);
/* At any time, ready or not. */
void kv_tiers_release(kv_tiers *t, int32_t frame);

/* ---- counters ---- */

typedef enum kv_tier_kind { KV_TIER_HOST, KV_TIER_FILE, KV_TIER_REDIS, KV_N_TIERS } kv_tier_kind;

typedef struct kv_tier_stats {
    bool is_open;
    int64_t hits, misses; /* pages asked for: given; not there, damaged or too late */
    int64_t puts;         /* pages taken in */
    int64_t dropped;      /* pages not taken in for lack of room or of time */
    int64_t errors;       /* transfers that failed, records found damaged */
    int64_t bytes;        /* held now, for Redis: put there by this process */
} kv_tier_stats;

void kv_tiers_stats(const kv_tiers *t, kv_tier_stats out[KV_N_TIERS]);
/* Proves that directories, frames and counts agree; QUIRE_INTERNAL and what does not otherwise. O(frames). */
quire_err kv_tiers_check(const kv_tiers *t, quire_error *err);

#endif
