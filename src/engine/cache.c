#include "engine/cache.h"

#include <assert.h>

#include "base/log.h"
#include "engine/explain.h"
#include "engine/row_pooling.h"

/* most pairs of tenant and salt with sequences or cached pages at the same time */
#define MAX_NAMESPACES 4096
#define N_EVENTS       4096 /* capacity of the ring of KV events */
/* larger pools are not audited, since that takes time in proportion to their size */
#define AUDIT_MAX_PAGES 4096
#define PROBED_FRAMES   16 /* frames copied at open to measure the cost of a copy */

/* Scopes of public prefixes. SCOPE is for requests whose keys and values depend on the
 * tokens only; SCOPE_OF_OWN, for those with an own attention mask, score change or
 * adapter, has no public prefixes. */
static const unsigned char SCOPE[] = {0}, SCOPE_OF_OWN[] = {1};

/* Releases held pages of e, between its steps, for another engine that is below its
 * floor: parks first, then running sequences. False: there are none. */
static bool cache_yield(void *context) {
    engine *e = context;
    return parks_yield_oldest(e) || scheduler_yield(&e->sched);
}

quire_err cache_open(engine *e, quire_error *err) {
    assert(e != NULL);
    kv_cache_options o = kv_cache_options_of(&e->layout, e->options.n_pages);
    o.mover = &e->mover;
    o.budget = e->options.budget;
    o.page_bytes = e->layout.page_bytes;
    if (e->options.floor_pages > 0) {
        o.floor_pages = e->options.floor_pages;
        o.fixed_bytes = e->options.fixed_bytes;
        o.yield = cache_yield;
        o.yield_context = e;
    }
    o.no_index = e->options.prefix_cache == PREFIX_CACHE_NONE;
    o.max_namespaces = MAX_NAMESPACES;
    o.n_events = N_EVENTS;
    o.granularity = e->options.prefix_cache == PREFIX_CACHE_PAGE ? KV_GRANULARITY_PAGE : KV_GRANULARITY_TOKEN;
    o.policy = e->options.eviction;
    o.snapshot_tokens = e->options.snapshot_tokens;
    o.max_snapshots = kv_most_snapshots(&e->layout, o.n_pages, e->options.snapshot_bytes);
    int64_t one = kv_snapshot_bytes(&e->layout);
    if (e->options.snapshot_bytes > 0 && e->options.snapshot_bytes < one) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "--state-snapshot-bytes %lld: a snapshot of this model's states takes %lld bytes; give "
            "at least that, or leave the flag out",
            (long long)e->options.snapshot_bytes, (long long)one);
    }
    TRY(kv_cache_open(&o, &e->kv));
    for (int32_t i = 0; e->kv.index != NULL && i < e->options.n_prefixes; i++) {
        TRY(kv_index_add_public(e->kv.index, SCOPE, sizeof SCOPE, e->options.prefixes[i].tokens,
                                e->options.prefixes[i].n_tokens));
    }
    return QUIRE_OK;
}

/* Measures the cost of copying a page, so that the first preemption has an estimate. */
static void cache_probe_swap(engine *e) {
    int64_t out_us, in_us;
    if (e->kv.swap.n_frames == 0) {
        return;
    }
    kv_cache_make_free(&e->kv, 1); /* the probe writes to page 0 */
    int32_t n = kv_swap_probe(&e->kv.swap, PROBED_FRAMES, &out_us, &in_us);
    if (n > 0) {
        copy_cost_note(&e->swap_out_cost, n, (double)out_us);
        copy_cost_note(&e->swap_in_cost, n, (double)in_us);
    }
}

static kv_cache *cache_of_drafts(const engine *e) {
    return e->drafter != NULL && e->drafter->ops->cache != NULL ? e->drafter->ops->cache(e->drafter) : NULL;
}

quire_err cache_join(engine *e) {
    kv_cache *drafts = cache_of_drafts(e);
    TRY(kv_cache_join(&e->kv));
    if (drafts != NULL && kv_cache_join(drafts) != QUIRE_OK) {
        kv_cache_leave(&e->kv);
        return QUIRE_NO_ROOM;
    }
    cache_probe_swap(e);
    return QUIRE_OK;
}

void cache_leave(engine *e) {
    kv_cache *drafts = cache_of_drafts(e);
    if (drafts != NULL) {
        kv_cache_leave(drafts);
    }
    kv_cache_leave(&e->kv);
}

void cache_claim(engine *e, bool has_work) {
    if (e->options.budget != NULL) {
        kv_budget_claim(e->options.budget, e->kv.member, has_work);
    }
}

bool cache_has_moved(engine *e) {
    const uint64_t n = e->options.budget != NULL ? kv_budget_moves(e->options.budget) : 0;
    const bool has_moved = n != e->n_moves_seen;
    e->n_moves_seen = n;
    return has_moved;
}

int64_t cache_draft_bytes(const engine *e) {
    const kv_cache *drafts = cache_of_drafts(e);
    return drafts != NULL && drafts->budget != NULL && drafts->member >= 0
               ? kv_budget_resident(drafts->budget, drafts->member)
               : 0;
}

void cache_enter(engine *e, sequence *s) {
    bool has_types = s->pooling != NULL && s->pooling->types != NULL;
    if (e->desc->two_sided || has_types) {
        /* keys and values depend on more than the prefix: other prompts can't reuse
         * them */
        return;
    }
    bool has_own = s->mods != NULL || (s->adapter != NULL && s->adapter_from == 0);
    quire_err r = kv_seq_open(&e->kv, &s->task.kv, has_own ? SCOPE_OF_OWN : SCOPE, sizeof SCOPE, s->namespace,
                              s->n_namespace, s->task.tokens, kv_seq_shareable(&s->task.kv, s->task.n_known));
    if (r == QUIRE_OK && s->task.kv.has_path && s->retains) {
        /* can't fail: the caller has checked the range */
        (void)kv_index_retain(e->kv.index, &s->task.kv.path, &s->retention);
    }
}

void cache_publish(engine *e, sequence *s) {
    if (s->task.kv.has_path) {
        kv_seq_publish(&e->kv, &s->task.kv, s->task.tokens);
        kv_tiering_published(e->tiering, &s->task.kv);
    }
}

void cache_drop(engine *e) {
    assert(e != NULL);
    int32_t n;
    bool all_went = kv_cache_drop(&e->kv, &n);
    log_line(LOG_INFO, "prefix cache dropped: %d pages, %.1f MB; %s", (int)n,
             (double)n * (double)e->layout.page_bytes / 1e6,
             all_went ? "the memory of free pages was returned to the system" : "their memory was kept");
}

void tenant_drops_free(tenant_drop *first) {
    while (first != NULL) {
        tenant_drop *next = first->next;
        mem_free(first);
        first = next;
    }
}

void cache_drop_tenants(engine *e) {
    tenant_drop *first = atomic_exchange(&e->drops, NULL);
    for (const tenant_drop *d = first; d != NULL; d = d->next) {
        int32_t n;
        kv_cache_drop_tenant(&e->kv, d->tenant, d->n, &n);
        log_line(LOG_INFO, "a tenant's prefix cache dropped: %d pages", (int)n);
    }
    tenant_drops_free(first);
}

/* ---- swap ---- */

quire_err swap_open(engine *e, quire_error *err) {
    assert(e != NULL);
    return kv_cache_add_swap(&e->kv, e->options.swap_bytes) == QUIRE_OK
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1,
                         "out of memory for %lld bytes of swap space; lower --swap-space",
                         (long long)e->options.swap_bytes);
}

/* Whether swapping out n_pages of s, from token `from` on, costs less than computing them
 * again. False while its prompt's logits are collected, since all of it is computed again
 * then. The pages before `from` have other holders, so they cost nothing. */
static bool cache_swap_pays(const engine *e, const sequence *s, int32_t from, int32_t n_pages) {
    const sched_limits *l = &e->sched.limits;
    sched_cost cost = step_cost_fit(&e->sched.step_cost);
    preempt_case c = {.n_pages = n_pages,
                      .from = from,
                      .to = s->task.kv.n_computed,
                      .max_rows = l->max_rows < l->max_chunk ? l->max_rows : l->max_chunk,
                      .program_pair_us =
                          s->task.program != 0 ? program_pair_us(&e->sched.programs, s->task.program) : 0.0};
    return n_pages > 0 && !task_wants_logits(&s->task) &&
           preempt_swaps(e->options.preempt, &c, &e->swap_out_cost, &e->swap_in_cost, &cost);
}

/* Counts the copied pages of s and, if the copy was timed, adds its cost to `learns`. */
static void note_copies(engine *e, sequence *s, copy_cost *learns, const kv_swapped *did) {
    if (did->us >= 0) {
        copy_cost_note(learns, did->n_pages, (double)did->us);
        e->stats.swap_us += did->us;
    }
    e->stats.swapped_pages += did->n_pages;
    explain_swapped(s, did->n_pages * e->layout.page_bytes);
}

void swap_out(engine *e, sequence *s) {
    int32_t from;
    kv_swapped did = {0};
    if (e->kv.swap.n_frames == 0) {
        return;
    }
    kv_seq_swap_drop(&e->kv, &s->task.kv);
    int32_t n_pages = kv_seq_swap_pages(&e->kv, &s->task.kv, &from);
    if (cache_swap_pays(e, s, from, n_pages)) {
        did = kv_seq_swap_out(&e->kv, &s->task.kv, from);
    }
    if (did.n_pages > 0) {
        note_copies(e, s, &e->swap_out_cost, &did);
        e->stats.swapped_out++;
    }
}

void swap_in(engine *e, sequence *s) {
    if (s->task.kv.swap_frames == 0) {
        return;
    }
    kv_swapped did = kv_seq_swap_in(&e->kv, &s->task.kv);
    scheduler_count_reuse(&e->sched, &s->task, did.n_found);
    if (did.n_pages > 0) {
        note_copies(e, s, &e->swap_in_cost, &did);
        e->stats.swapped_in++;
    }
}

/* ---- the audit ---- */

int32_t engine_list_tables(const engine *e) {
    assert(e != NULL);
    int32_t n = 0;
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        n += kv_seq_list_tables(&running_at(e, i)->task.kv, e->step.tables + n);
    }
    for (const engine_park *p = e->parks.oldest; p != NULL; p = p->younger) {
        n += kv_seq_list_tables(&p->kv, e->step.tables + n);
    }
    return n;
}

void engine_audit(const engine *e) {
    assert(e != NULL);
    if (e->options.n_pages > AUDIT_MAX_PAGES) {
        return;
    }
    quire_error err = {0};
    quire_err r = QUIRE_OK;
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        TRY_DONE(r, kv_seq_check(&e->kv, &running_at(e, i)->task.kv, &err));
    }
    TRY_DONE(r, kv_cache_check(&e->kv, e->step.tables, engine_list_tables(e), &err));
    TRY_DONE(r, parks_check(e, &err));
    if (e->drafter != NULL && e->drafter->ops->check != NULL) {
        r = e->drafter->ops->check(e->drafter, &err);
    }
done:
    if (r != QUIRE_OK) {
        log_line(LOG_ERROR, "page audit: %s", err.message);
    }
    assert(r == QUIRE_OK);
}
