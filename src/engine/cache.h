/* The engine's side of the prefix cache: what a sequence reuses when it is admitted, and what it leaves for others. All by the engine
 * thread.
 *
 * A sequence stands in the namespace of its tenant, narrowed by its salt. On admission its tables take the pages of the longest cached
 * prefix; full pages are published when they are committed, the part-filled last one when it ends. By the rule (docs/design.md,
 * Determinism) reuse changes no bit of what is computed after it. With the cache switched off nothing is looked up or published, and pages
 * are free as soon as they are released. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "engine/state.h"

quire_err cache_open(engine *e);
void cache_close(engine *e);
/* How many entries e's index has, or will have, numbers for. */
int32_t cache_cap_entries(const engine *e);

/* Once a step: what time it is, for pages that are kept for a while only. */
void cache_set_time(engine *e, int64_t now_us);
/* Puts a new sequence into its namespace, behind the public prefix that it begins with; when no namespace is left it runs without the
 * cache. */
void cache_enter(engine *e, sequence *s);
/* Tokens of s that may be reused, wherever they are: all but the last known one, and none whose logits are wanted. */
int32_t cache_reusable(const sequence *s);
/* Tokens that s would not have to compute if it were admitted now, and how many pages of these it would share with sequences that run, so
 * that they take no room. Changes nothing. */
int32_t cache_peek(const engine *e, const sequence *s, int32_t *n_held);
/* Gives s, whose tables are empty, what cache_peek promised: pages, and n_computed. */
void cache_take(engine *e, sequence *s);
/* Makes the full pages among s's computed tokens findable. */
void cache_publish(engine *e, sequence *s);

/* Gives back the pages that no window of s's groups sees any more. With or without the cache. */
void cache_forget(engine *e, sequence *s);

/* What becomes of a sequence's pages when it gives them up. */
typedef enum cache_keep { CACHE_KEEP, CACHE_DROP /* their values are not to be trusted, or of use to nobody */ } cache_keep;

/* Gives up all of s's pages; it stands at its namespace's root again. */
void cache_release(engine *e, sequence *s, cache_keep keep);
/* s is over: out of its namespace. Its pages were given up before. */
void cache_leave(engine *e, sequence *s);

/* Pages that can be had: free ones and cached ones. */
int32_t cache_available(const engine *e);
/* Evicts until n pages are free, as far as possible. */
void cache_make_free(engine *e, int32_t n);
/* Whether s could go on from its first n tokens: no window sees a page from there that was given back. n at most n_computed. */
bool cache_can_go_back(const engine *e, const sequence *s, int32_t n);
/* It does: what is computed behind them is given back. */
void cache_go_back(engine *e, sequence *s, int32_t n);
/* s, which was just given its pages by cache_take, gives back the one that is not full. */
void cache_keep_whole_pages(engine *e, sequence *s);
/* Whether s could go on from n of its tokens: no window of its groups sees a page from there that was given back. */
bool cache_can_go_back(const engine *e, const sequence *s, int32_t n);
/* s cannot have the page that continuing inside a shared page takes: back to the page's start. True when that gave something back. */
bool cache_drop_tail(engine *e, sequence *s);
/* The same for a page that only the cache can find beside s: it leaves the cache, and s writes on in it. True when that saved a copy. */
bool cache_take_over_tail(engine *e, sequence *s);

#endif
