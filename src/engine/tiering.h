/* The engine's side of the tiers: pages that leave the pool are kept elsewhere, and come back before a request that begins like them is
 * admitted.
 *
 *   demote:  the index says that a page goes -> its bytes are read from the backend into a frame of the tiers
 *   promote: a waiting request reaches past what the pool holds -> its next pages are fetched while others run
 *            -> reserved, written, published -> the request is admitted and matches them as it would any cached page
 *   written through, if so asked: what a running sequence has published goes to the tiers that outlive the process, a few pages a step
 *
 * A page comes back byte for byte, behind the very prefix it left, so nothing that is computed after it changes (docs/design.md,
 * Determinism). A request waits for its pages for a limited time and then computes what has not come. All by the engine thread; with no
 * tier open every function does nothing.
 *
 * Records go by the name of the prefix up to their end (kv/tier_record.h), which is the same in every process: what was demoted early is
 * found behind what is demoted late, and what one process left behind what another did. */
#ifndef ENGINE_TIERING_H
#define ENGINE_TIERING_H

#include "engine/state.h"

/* Before the cache, whose index has n_entries entries: it watches that. */
quire_err tiering_open(engine *e, int32_t n_entries, quire_error *err);
void tiering_close(engine *e);
/* What the index is to tell, or NULL. */
const kv_index_watch *tiering_watch(engine *e);

/* The pages of s that stand in the index by now are written through, if that is wanted. O(pages that came since). */
void tiering_published(engine *e, const sequence *s);
/* Once a step: takes in what was fetched and publishes it. */
void tiering_poll(engine *e);
/* Whether the waiting s should not be admitted yet because pages for it are on their way. The first call begins to fetch them. */
bool tiering_waits(engine *e, sequence *s);
void tiering_stats(const engine *e, kv_tier_stats out[KV_N_TIERS]);
/* s waits no more, or is not to be waited for; a later wait begins anew. */
void tiering_forget(engine *e, sequence *s);

#endif
