/* The engine's side of the prefix cache: what a sequence reuses when it is admitted, and what it publishes for others. All by the engine
 * thread.
 *
 * A sequence belongs to the namespace of its tenant and salt. On admission its tables take the pages of the longest cached prefix. Full
 * pages are published when they are committed, the part-filled last one when the sequence ends. By the rule (docs/design.md, Determinism)
 * reuse changes no bit of what is computed after it. With the cache switched off nothing is looked up or published, and pages are free as
 * soon as they are released. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "engine/state.h"

quire_err cache_open(engine *e);
void cache_close(engine *e);
/* The capacity of e's index in entries, before or after it is opened. */
int32_t cache_cap_entries(const engine *e);

/* Sets the time against which the retention of pages is measured. Once a step. */
void cache_set_time(engine *e, int64_t now_us);
/* Puts a new sequence into its namespace, behind the public prefix that it begins with. When no namespace is left it runs without the
 * cache. */
void cache_enter(engine *e, sequence *s);
/* Tokens of s that may be reused, wherever they are: not the last known one, and none whose logits are wanted. */
int32_t cache_reusable(const sequence *s);
/* Tokens that s would reuse if it were admitted now. *n_held: how many of their pages running sequences hold, so that these take no room.
 * Changes nothing. */
int32_t cache_peek(const engine *e, const sequence *s, int32_t *n_held);
/* Gives s, whose tables are empty, the pages that cache_peek found, and sets n_computed. */
void cache_take(engine *e, sequence *s);
/* Publishes the full pages among s's computed tokens. */
void cache_publish(engine *e, sequence *s);

/* Releases the pages that lie behind every window of s's groups. Works with or without the cache. */
void cache_forget(engine *e, sequence *s);

/* What becomes of a sequence's pages when it releases them. */
typedef enum cache_keep { CACHE_KEEP, CACHE_DROP /* their values may be wrong, or no sequence can reuse them */ } cache_keep;

/* Releases all of s's pages. Its path is at its namespace's root again. */
void cache_release(engine *e, sequence *s, cache_keep keep);
/* Takes s, which is over, out of its namespace. Its pages were released before. */
void cache_leave(engine *e, sequence *s);

/* Pages that can be allocated: free ones and cached ones. */
int32_t cache_available(const engine *e);
/* Evicts until n pages are free, as far as possible. */
void cache_make_free(engine *e, int32_t n);
/* Whether s can be truncated to its first n tokens, n at most n_computed: no page that a window sees from there was released. */
bool cache_can_go_back(const engine *e, const sequence *s, int32_t n);
/* Truncates s to its first n tokens and releases the pages behind them. */
void cache_go_back(engine *e, sequence *s, int32_t n);
/* Releases the part-filled page of s, directly after cache_take. */
void cache_keep_whole_pages(engine *e, sequence *s);
/* Whether s can continue after its first n tokens: no page that a window of its groups sees from there was released. */
bool cache_can_go_back(const engine *e, const sequence *s, int32_t n);
/* Truncates s to the start of a shared page that it would continue in, when the copy of that page cannot be allocated. True when that
 * released something. */
bool cache_drop_tail(engine *e, sequence *s);
/* Saves that copy where only the cache shares the page with s: removes the page from the cache, so that s writes on in it. True when that
 * saved a copy. */
bool cache_take_over_tail(engine *e, sequence *s);

#endif
