/* The engine's use of the KV cache: which tokens of a sequence may be reused, in which namespace, and the statistics of reuse.
 *
 * A sequence belongs to the namespace of its tenant and salt. On admission its tables take the pages of the longest cached prefix. Full
 * pages are published when they are committed, the part-filled last one when the sequence ends. By the rule (docs/design.md, Determinism)
 * reuse changes no bit of what is computed after it. With the cache switched off nothing is looked up or published, and pages are free as
 * soon as they are released. The engine thread. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "engine/state.h"

/* Opens e->kv, whose pages e->mover moves. */
quire_err cache_open(engine *e);

/* Puts a new sequence into its namespace, behind the public prefix that it begins with. When no namespace is left it runs without the
 * cache. */
void cache_enter(engine *e, sequence *s);
/* Tokens that s would reuse if it were admitted now. *n_held: how many of their pages running sequences hold, so that these take no room.
 * Changes nothing. */
int32_t cache_peek(const engine *e, const sequence *s, int32_t *n_held);
/* Gives s, whose tables are empty, the pages that cache_peek found, and sets its computed tokens. */
void cache_admit(engine *e, sequence *s);
/* Counts that s reuses n tokens: of the prompt at its first admission, later of what it knew when it was preempted. */
void cache_count_reuse(engine *e, sequence *s, int32_t n);
/* Publishes the full pages among s's computed tokens, also for write-through to tiers. */
void cache_publish(engine *e, sequence *s);
/* Releases the part-filled page of s, directly after cache_admit. */
void cache_keep_whole_pages(engine *e, sequence *s);
/* Truncates s to the start of a shared page that it would continue in, when the copy of that page cannot be allocated. True when that
 * released something. */
bool cache_drop_tail(engine *e, sequence *s);

#endif
