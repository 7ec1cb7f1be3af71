/* The engine's use of the KV cache: which tokens of a sequence may be reused, in which
 * namespace, and the statistics of reuse.
 *
 * A sequence belongs to the namespace of its tenant and salt. On admission its tables
 * take the pages of the longest cached prefix. Full pages are published when they are
 * committed, the part-filled last one when the sequence ends. By the rule
 * (docs/design.md, Determinism) reuse changes no bit of what is computed after it. With
 * the cache switched off nothing is looked up or published, and pages are free as soon as
 * they are released. The engine thread. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "engine/state.h"

/* Opens e->kv, whose pages e->mover moves. QUIRE_INVALID, with err: snapshot_bytes is
 * less than one snapshot. Other errors do not set err. */
quire_err cache_open(engine *e, quire_error *err);

/* Joins the page pools of e and of its draft model to their memory budget, if they have
 * one; e may run afterwards. Called by the budget's owner. QUIRE_NO_ROOM: they do not fit
 * beside others (kv/budget.h). */
quire_err cache_join(engine *e);
/* Removes these pools from the budget; e runs no steps after that. Called by the budget's
 * owner. */
void cache_leave(engine *e);
/* Sets whether e claims its floor, as an engine with work does. */
void cache_claim(engine *e, bool has_work);
/* Whether memory of pages has moved between e and other engines since the last call. */
bool cache_has_moved(engine *e);
/* The memory of the draft model's pages, if it shares a budget. */
int64_t cache_draft_bytes(const engine *e);

/* Puts a new sequence into its namespace, after the public prefix with which it begins.
 * If no namespace is left, it runs without the cache. */
void cache_enter(engine *e, sequence *s);
/* Publishes the full pages among s's computed tokens, also for write-through to tiers,
 * and a snapshot of its states where one is due. */
void cache_publish(engine *e, sequence *s);

/* Drops the cached pages and gives the memory of free ones back to the system. Called
 * between steps. */
void cache_drop(engine *e);
/* A tenant whose cached pages are to be dropped (engine_drop_tenant). */
typedef struct tenant_drop {
    struct tenant_drop *next;
    size_t n;
    char tenant[]; /* [n] */
} tenant_drop;
/* Drops the cached pages of all listed tenants. Engine thread. */
void cache_drop_tenants(engine *e);
void tenant_drops_free(tenant_drop *first);

/* ---- swap ---- */
/* A preempted sequence is swapped out if measured costs say that it pays (step_cost.h).
 *
 *   preempted: swap_out, then the pages are released        admitted: scheduler_admit, then swap_in
 *
 * Pages come back byte for byte. Without swap space every function does nothing. */

/* Gives e->kv, which is open and still empty, swap space. On failure err says why. */
quire_err swap_open(engine *e, quire_error *err);
/* Copies what s has computed, if there is room and --preemption-mode allows it. s still
 * holds its pages. */
void swap_out(engine *e, sequence *s);
/* Copies the pages back if kv_seq_swap_peek said so, directly after scheduler_admit: s
 * continues where it was preempted. */
void swap_in(engine *e, sequence *s);

#endif
