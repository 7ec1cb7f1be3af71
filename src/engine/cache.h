/* The engine's use of the KV cache: which tokens of a sequence may be reused, in which
 * namespace, and the statistics of reuse.
 *
 * A sequence belongs to the namespace of its tenant and salt. On admission its tables
 * take the pages of the longest cached prefix. Full pages are published when they are
 * committed, the part-filled last one when the sequence ends. Reuse changes no bit of
 * what is computed after it (docs/design.md, Determinism). With the cache switched off
 * nothing is looked up or published, and released pages are free at once. The engine
 * thread makes all calls. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "engine/state.h"

/* Opens e->kv; e->mover moves its pages. QUIRE_INVALID: snapshot_bytes is less than one
 * snapshot; only this error sets err. */
quire_err cache_open(engine *e, quire_error *err);

/* Adds the page pools of e and of its draft model to their memory budget, if they have
 * one; e may run afterwards. Called by the budget's owner. QUIRE_NO_ROOM: the budget
 * lacks room for them (kv/budget.h). */
quire_err cache_join(engine *e);
/* Removes these pools; e runs no steps after that. Called by the budget's owner. */
void cache_leave(engine *e);
/* Sets whether e claims its floor, as an engine with work does. */
void cache_claim(engine *e, bool has_work);
/* Whether page memory has moved between e and other engines since the last call. */
bool cache_has_moved(engine *e);
/* The memory of the draft model's pages, if it shares a budget. */
int64_t cache_draft_bytes(const engine *e);

/* Gives a new sequence a path in its namespace, after the longest public prefix with
 * which it begins. If every namespace is in use, it runs without the cache. */
void cache_enter(engine *e, sequence *s);
/* Publishes the full pages of s's computed tokens, queues them for write-through to
 * tiers, and takes a snapshot of its states where one is due. */
void cache_publish(engine *e, sequence *s);

/* Drops cached pages and gives free pages' memory back to the system. Between steps. */
void cache_drop(engine *e);
/* A tenant whose cached pages are to be dropped (engine_drop_tenant). */
typedef struct tenant_drop {
    struct tenant_drop *next;
    size_t n;
    char tenant[]; /* [n] */
} tenant_drop;
/* Drops the cached pages of all listed tenants. Engine thread. */
void cache_drop_tenants(engine *e);
/* Frees a list of drops. */
void tenant_drops_free(tenant_drop *first);

/* ---- swap ---- */
/* Preempted sequences are swapped out if that is faster than recomputing (step_cost.h).
 *
 *   preempted: swap_out, then the pages are released        admitted: scheduler_admit, then swap_in
 *
 * Every byte of a page is restored. Without swap space the functions do nothing. */

/* Allocates swap space for e->kv, which is open and empty. On failure err says why. */
quire_err swap_open(engine *e, quire_error *err);
/* Copies what s has computed, if there is room and --preemption-mode allows it. s still
 * holds its pages. */
void swap_out(engine *e, sequence *s);
/* Copies the pages back if kv_seq_swap_peek found them; s continues where it was
 * preempted. Called directly after scheduler_admit. */
void swap_in(engine *e, sequence *s);

#endif
