/* Tiering over a KV cache: pages that leave the pool are stored in the tiers (tier.h),
 * and are fetched before a request with the same prefix is admitted.
 *
 *   demote         the index evicts a page -> the mover reads its bytes into a frame of
 *                  the tiers
 *   promote        a waiting sequence needs pages beyond those in the pool -> they are
 *                  fetched while others run -> reserved, written, published -> the
 *                  sequence is admitted and matches them like any cached page
 *   write through  (option) what a running sequence has published is written to the tiers
 *                  that outlive the process, a few pages a poll
 *
 * A page comes back byte for byte, after the prefix for which it was computed, so later
 * results do not change (docs/design.md, Determinism). A sequence waits for its pages for
 * a limited time, and then computes those that have not arrived.
 *
 * A snapshot of recurrent states at the end of a page is stored too; its pages are
 * records of further groups. Once a sequence's pages of tokens have arrived, the deepest
 * snapshot within them is fetched of which the tiers have all pages; without groups of
 * tokens, the deepest one of the prompt. A cache with tiers takes its snapshots at the
 * ends of pages.
 *
 * A record's key is a digest of the prefix up to its end (tier_record.h), which is the
 * same in every process. So a prefix is found in any order of demotion, and a process
 * finds the pages of another.
 *
 * The device may lag behind (kv_swap.h): when a poll finds the fence of a move done, the
 * demoted page is stored, or the frame of the promoted page released. Until a demoted
 * page is stored no tier has it.
 *
 * Owner: the owner of the cache. Every function except open accepts NULL, and then does
 * nothing. */
#ifndef KV_KV_TIERING_H
#define KV_KV_TIERING_H

#include "kv/kv_seq.h"
#include "kv/tier.h"

typedef struct kv_tiering kv_tiering;

typedef struct kv_tiering_options {
    kv_tiers_options tiers; /* only the version of tiers.shape is read */
    bool writes_through;
    int32_t max_tokens; /* length of the longest sequence */
    /* called when n_tokens for which s waits are in the pool and the index; may be
     * NULL */
    void (*on_promoted)(void *context, kv_seq *s, int32_t n_tokens);
    void *context;
} kv_tiering_options;

/* Opens the tiers of c, which has a mover, is still empty, and outlives them.
 * QUIRE_INVALID: c has no index. Other errors as kv_tiers_open. */
quire_err kv_tiering_open(kv_cache *c, const kv_tiering_options *o, kv_tiering **out, quire_error *err);
/* Writes cached pages to the tiers that outlive the process, for at most a few seconds,
 * and closes. No sequence may be open. */
void kv_tiering_close(kv_tiering *t);

/* Queues newly published pages of s to be written through, if that is on. O(these
 * pages). */
void kv_tiering_published(kv_tiering *t, const kv_seq *s);
/* Puts fetched pages into the pool and publishes them, and stores pages that the device
 * has read. Call it once a step; now_us as clock_us(). */
void kv_tiering_poll(kv_tiering *t, int64_t now_us);
/* Whether s, which waits at its path's root, should not be admitted yet, because pages of
 * tokens[0..n) are being fetched. The first call begins to fetch them; the wait ends when
 * they have arrived, or after wait_us. tokens must not change until then. */
bool kv_tiering_waits(kv_tiering *t, kv_seq *s, const int32_t *tokens, int32_t n, int64_t now_us,
                      int64_t wait_us);
/* Ends the wait of s. A later wait starts from the beginning. */
void kv_tiering_forget(kv_tiering *t, kv_seq *s);
/* Number of pages being read from the pool, written to tiers or read from tiers. */
int32_t kv_tiering_n_pending(const kv_tiering *t);
void kv_tiering_stats(const kv_tiering *t, quire_tier_stats out[KV_N_TIERS]);
/* Checks the tiers like kv_tiers_check. */
quire_err kv_tiering_check(const kv_tiering *t, quire_error *err);

#endif
