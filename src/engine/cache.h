/* The engine's use of the KV cache: which tokens of a sequence may be reused, in whose namespace, and the statistics of reuse.
 *
 * A sequence lives in the namespace of its tenant, narrowed by its salt. On admission its tables take the pages of the longest cached
 * prefix; full pages are published when they are committed, the part-filled last one when it ends. By the rule (docs/design.md,
 * Determinism) reuse changes no bit of what is computed after it. With the cache switched off nothing is looked up or published, and pages
 * are free as soon as they are released. The engine thread. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "engine/state.h"

/* The options of e's KV cache; those of tiers are added when it is opened. */
kv_cache_options cache_options(const engine *e);
/* Opens e->kv. After tiering_open, which is told what leaves the cache. */
quire_err cache_open(engine *e);

/* Puts a new sequence into its namespace, behind the public prefix that it begins with; when no namespace is left it runs without the
 * cache. */
void cache_enter(engine *e, sequence *s);
/* Tokens that s would not have to compute if it were admitted now, and how many pages of these it would share with sequences that run, so
 * that they take no room. Changes nothing. */
int32_t cache_peek(const engine *e, const sequence *s, int32_t *n_held);
/* Gives s, whose tables are empty, what cache_peek promised: pages, and its computed tokens. */
void cache_admit(engine *e, sequence *s);
/* Makes the full pages among s's computed tokens findable, also for tiers. */
void cache_publish(engine *e, sequence *s);
/* s, which was just admitted, gives back the page that is not full. */
void cache_keep_whole_pages(engine *e, sequence *s);
/* s cannot have the page that continuing inside a shared page takes: back to the page's start. True when that gave something back. */
bool cache_drop_tail(engine *e, sequence *s);

#endif
