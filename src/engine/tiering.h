/* The engine's side of the tiers: pages that leave the pool are stored elsewhere, and come back before a request with the same prefix is
 * admitted.
 *
 *   demote:        the index evicts a page -> its bytes are read from the backend into a frame of the tiers
 *   promote:       a waiting request reaches beyond what the pool holds -> its next pages are fetched while others run
 *                  -> reserved, written, published -> the request is admitted and matches them like any cached page
 *   write through: (option) what a running sequence has published is written to the tiers that outlive the process, a few pages a step
 *
 * A page comes back byte for byte, behind the prefix that it was computed for, so nothing that is computed after it changes
 * (docs/design.md, Determinism). A request waits for its pages for a limited time and then computes what has not come. All by the engine
 * thread; with no tier open every function does nothing.
 *
 * A record's key is the hash of the prefix up to its end (kv/tier_record.h), which is the same in every process. So a page that was demoted
 * early is found behind one that is demoted late, and a process finds the pages of another. */
#ifndef ENGINE_TIERING_H
#define ENGINE_TIERING_H

#include "engine/state.h"

/* Opens the tiers. Call it before the cache is open, whose index has n_entries entries and uses the watch. */
quire_err tiering_open(engine *e, int32_t n_entries, quire_error *err);
void tiering_close(engine *e);
/* The callbacks for the index, or NULL. */
const kv_index_watch *tiering_watch(engine *e);

/* Queues the published pages of s to be written through, if that is on. O(pages published since). */
void tiering_published(engine *e, const sequence *s);
/* Takes in fetched pages and publishes them. Once a step. */
void tiering_poll(engine *e);
/* Whether the waiting s should not be admitted yet because its pages are being fetched. The first call begins to fetch them. */
bool tiering_waits(engine *e, sequence *s);
void tiering_stats(const engine *e, kv_tier_stats out[KV_N_TIERS]);
/* Ends the wait of s; a later wait begins anew. */
void tiering_forget(engine *e, sequence *s);

#endif
