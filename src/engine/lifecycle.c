/* Opens and closes the engine. submit.c accepts requests; step.c has the steps, which a
 * team's thread runs (team.c). */
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/beam.h"
#include "engine/cache.h"
#include "engine/draft_step.h"
#include "engine/engine.h"
#include "engine/explain.h"
#include "engine/features.h"
#include "engine/rule_step.h"
#include "engine/state.h"
#include "engine/step_sample.h"
#include "engine/team.h"

#define MAX_TENANTS 1024 /* tenants with a service counter of their own */

/* ---- open and close ---- */

#define COPIES_A_CALL 64

static void copy_pages(void *b, const kv_copies *copies) {
    for (int32_t first = 0, n; first < copies->n; first += n) {
        kv_copy_pair pairs[COPIES_A_CALL];
        n = copies->n - first < COPIES_A_CALL ? copies->n - first : COPIES_A_CALL;
        for (int32_t i = 0; i < n; i++) {
            pairs[i] = (kv_copy_pair){copies->pairs[first + i].src.v, copies->pairs[first + i].dst.v};
        }
        ((backend *)b)->ops->kv_copy(b, pairs, n);
    }
}

static kv_fence read_page(void *b, page_id page, void *host) {
    ((backend *)b)->ops->kv_read_page(b, page.v, host);
    return 0;
}

static kv_fence lifecycle_write_page(void *b, page_id page, const void *host) {
    ((backend *)b)->ops->kv_write_page(b, page.v, host);
    return 0;
}

static bool discard_pages(void *b, page_id first, int32_t n) {
    const backend_ops *ops = ((backend *)b)->ops;
    return ops->kv_discard != NULL && ops->kv_discard(b, first.v, n);
}

/* Always true: backends finish copying pages before they return. */
static bool lifecycle_is_done(void *b, kv_fence fence) {
    (void)b, (void)fence;
    return true;
}

static void on_promoted(void *context, kv_seq *kv, int32_t n_tokens) {
    engine *e = context;
    e->stats.promoted_tokens += n_tokens;
    explain_promoted(sequence_of((sched_task *)(void *)((char *)kv - offsetof(sched_task, kv))), n_tokens);
}

/* Opens the tiers of e->kv, if options name any. */
static quire_err open_tiers(engine *e, quire_error *err) {
    const engine_tiers *o = &e->options.tiers;
    if (o->host_bytes == 0 && o->file_path == NULL && o->redis_url == NULL) {
        return QUIRE_OK;
    }
    kv_tiering_options k = {.tiers = {.shape = {.version = o->version, .n_version = strlen(o->version)},
                                      .host_bytes = o->host_bytes,
                                      .file_path = o->file_path,
                                      .file_bytes = o->file_bytes,
                                      .redis_url = o->redis_url,
                                      .redis_bytes = o->redis_bytes,
                                      .reader = e->in_wake},
                            .writes_through = o->write == TIER_WRITE_THROUGH,
                            .max_tokens = e->options.max_model_len,
                            .on_promoted = on_promoted,
                            .context = e};
    return kv_tiering_open(&e->kv, &k, &e->tiering, err);
}

static quire_err open_tables(engine *e) {
    int32_t n = e->options.max_requests;
    e->entries = mem_new((size_t)n, sizeof *e->entries);
    e->free_entries = mem_new((size_t)n, sizeof *e->free_entries);
    TRY(mem_check(e->entries));
    TRY(mem_check(e->free_entries));
    for (int32_t i = 0; i < n; i++) {
        e->entries[i].generation = 1; /* cancel starts at 0, which no generation equals */
        atomic_init(&e->entries[i].cancel, 0);
        e->free_entries[i] = n - 1 - i;
    }
    e->n_free_entries = n;
    return QUIRE_OK;
}

/* The most rows of one prompt in a step. */
static int32_t chunk_of(const engine_options *o, const model_desc *d) {
    bool chunked = o->prefill_chunk > 0 && !o->no_chunked_prefill && !d->two_sided;
    return chunked ? o->prefill_chunk : o->max_batched_tokens;
}

int32_t engine_most_rows(const engine_options *o, const model_desc *d) {
    int32_t chunk = chunk_of(o, d), most = chunk > 1 + DRAFT_MAX ? chunk : 1 + DRAFT_MAX;
    return most < o->max_batched_tokens ? most : o->max_batched_tokens;
}

static quire_err open_scheduler(engine *e) {
    const engine_options *o = &e->options;
    scheduler_options k = {.limits = {.max_rows = o->max_batched_tokens,
                                      .max_out = draft_max_out(&o->draft, o->max_seqs, o->max_batched_tokens),
                                      .max_seqs = o->max_seqs,
                                      .max_adapters = o->max_adapters,
                                      .max_chunk = chunk_of(o, e->desc),
                                      .whole_prefills = o->no_chunked_prefill || e->desc->two_sided,
                                      .page_tokens = o->page_tokens,
                                      .max_preemptions = SCHED_MAX_PREEMPTIONS,
                                      .target_us = (double)o->step_target_us},
                           .policy = o->schedule,
                           .lambda = o->schedule_lambda,
                           .n_groups = e->kv.n_token_groups,
                           .most_rows = engine_most_rows(o, e->desc),
                           .max_tasks = o->max_requests,
                           .max_tenants = MAX_TENANTS,
                           .kv = &e->kv,
                           .hooks = sched_hooks_of(o->audit_path != NULL),
                           .context = e};
    return scheduler_open(&k, &e->sched);
}

/* Limits max_model_len so that a sequence that runs alone fits into the guaranteed pages;
 * otherwise it could wait for ever for pages. */
static void limit_length(engine *e) {
    int64_t holds = kv_most_tokens(&e->sched.limits.most, engine_sure_pages(e));
    if (e->desc->two_sided && holds >= e->sched.limits.max_rows) {
        return; /* longer prompts are refused, since a step computes a whole prompt */
    }
    e->options.max_model_len = holds < e->options.max_model_len ? (int32_t)holds : e->options.max_model_len;
}

static quire_err lifecycle_open_parts(engine *e, const kv_layout *layout, quire_error *err) {
    const engine_options *o = &e->options;
    e->layout = *layout;
    e->desc = model_description(e->m);
    e->mover = (kv_mover){.context = e->b,
                          .page_bytes = layout->page_bytes,
                          .copy = copy_pages,
                          .read = read_page,
                          .write = lifecycle_write_page,
                          .discard = discard_pages,
                          .done = lifecycle_is_done};
    TRY(open_tables(e));
    TRY(ring_open(sizeof(sequence *), size_power_of_two((size_t)o->max_requests), &e->in));
    TRY(cache_open(e, err));
    TRY(swap_open(e, err));
    TRY(open_tiers(e, err));
    TRY(open_scheduler(e));
    limit_length(e);
    TRY(parks_open(e));
    TRY(step_sample_open(e));
    TRY(batch_open(e));
    TRY(draft_step_open(e, err));
    if (o->audit_path != NULL) {
        TRY(audit_file_open(o->audit_path, layout, e->kv.pool, &e->audit_file, err));
    }
    stats_publish(e);
    quire_err r = o->no_thread ? cache_join(e) : engine_team_join(e->team, e);
    if (r == QUIRE_NO_ROOM) {
        const kv_budget_counts all = kv_budget_count(o->budget);
        return err_set(
            err, QUIRE_NO_MEMORY, -1,
            "%lld bytes of KV pages for sequences of %d tokens, and %lld of weights and buffers, do not fit "
            "into the %lld bytes that the models share, of which other models have %lld",
            (long long)(o->floor_pages * layout->page_bytes), (int)e->options.max_model_len,
            (long long)o->fixed_bytes, (long long)all.bytes, (long long)all.promised_bytes);
    }
    return r;
}

quire_err engine_open(model *m, backend *b, const kv_layout *layout, const engine_options *o, engine **out,
                      quire_error *err) {
    *out = NULL;
    engine *e = mem_new(1, sizeof *e);
    TRY(mem_check_for(e, "an engine", err));
    e->m = m;
    e->b = b;
    e->options = *o;
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->readers_lock, NULL);
    atomic_init(&e->paused, o->starts_paused);
    atomic_init(&e->drops_cache, false);
    atomic_init(&e->drops, NULL);
    atomic_init(&e->n_cancels, 0);
    atomic_init(&e->views, NULL);
    atomic_init(&e->parks.closed, NULL);
    quire_err r = QUIRE_OK;
    if (o->team != NULL) {
        e->team = engine_team_hold(o->team);
    } else {
        r = engine_team_open(&e->team);
    }
    e->in_wake = e->team != NULL ? engine_team_wake(e->team) : NULL;
    *err = (quire_error){0};
    TRY_DONE(r, lifecycle_open_parts(e, layout, err));
done:
    if (r != QUIRE_OK) {
        engine_close(e);
        return err->code != QUIRE_OK
                   ? r
                   : err_set(err, r, -1, "the engine could not start: %s", quire_err_text(r));
    }
    *out = e;
    return QUIRE_OK;
}

void engine_release(engine *e) {
    atomic_store(&e->paused, false);
    wake_ring(e->in_wake);
}

void engine_drop_cache(engine *e) {
    atomic_store(&e->drops_cache, true);
    wake_ring(e->in_wake);
}

quire_err engine_drop_tenant(engine *e, const char *tenant, size_t n) {
    tenant_drop *d = mem_new(1, sizeof *d + n);
    TRY(mem_check(d));
    d->n = n;
    memcpy(d->tenant, tenant, n);
    d->next = atomic_load(&e->drops);
    while (!atomic_compare_exchange_weak(&e->drops, &d->next, d)) {
    }
    wake_ring(e->in_wake);
    return QUIRE_OK;
}

engine_team *engine_team_of(const engine *e) {
    return e->team;
}

void engine_stop(engine *e) {
    if (e != NULL && e->team != NULL) {
        engine_team_leave(e->team, e);
    }
}

void engine_close(engine *e) {
    if (!e) {
        return;
    }
    engine_stop(e);
    if (e->in != NULL) {
        intake_cancel_all(e); /* sequences submitted since engine_stop */
    }
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->readers_lock);
    tenant_drops_free(atomic_exchange(&e->drops, NULL));
    parks_close(e);
    audit_file_close(e->audit_file);
    draft_step_close(e);
    batch_close(e);
    scheduler_close(&e->sched);
    sample_pool_close(&e->samples);
    kv_tiering_close(e->tiering);
    kv_cache_close(&e->kv);
    engine_team_drop(e->team);
    ring_close(e->in);
    mem_free(e->entries);
    mem_free(e->free_entries);
    mem_free(e);
}

/* The scheduler's hooks (sched/scheduler.h): pages outside the pool, drafts, beams,
 * deadlines, and the events of features.h. The context of every hook is the engine. */

static bool sched_hooks_is_ready(void *context, sched_task *t) {
    engine *e = context;
    return rule_step_may_run(e, sequence_of(t)) &&
           !kv_tiering_waits(e->tiering, &t->kv, t->tokens, task_reusable(t), e->sched.now_us,
                             e->options.tiers.wait_us);
}

static void sched_hooks_describe(void *context, const sched_task *t, sched_seq *d) {
    const sequence *s = sequence_of(t);
    const engine *e = context;
    /* recurrent states follow one line of tokens: only a tree's first branch is
     * computed */
    int32_t n_drafts = e->kv.n_state_pages > 0 ? draft_tree_first_branch(&s->draft.tree) : s->draft.tree.n;
    d->n_drafts = t->state == TASK_WAITING ? 0 : n_drafts;
    d->is_jump_forward = d->n_drafts > 0 && s->draft.n_jump_forward > 0;
    if (s->beams != NULL) {
        beam_describe(context, s, d);
    }
}

static void admitted(void *context, sched_task *t) {
    event_admitted(context, sequence_of(t));
}

static bool sched_hooks_preempt(void *context, sched_task *t) {
    sequence *s = sequence_of(t);
    if (s->beams != NULL) {
        beam_preempt(context, s);
        return true;
    }
    s->n_preempted++;
    event_preempted(context, s);
    return false;
}

static void sched_hooks_settle(void *context) {
    beam_settle(context);
}

static void reserved(void *context, const sched_task *t, int32_t n_rows, int32_t n_pages) {
    const engine *e = context;
    const kv_table *own[KV_MAX_GROUPS];
    audit_note note = {.step = e->stats.steps, .request = t->arrival, .n_rows = n_rows, .n_pages = n_pages};
    if (n_pages > 0) {
        int32_t n_own = kv_seq_list_tables(&t->kv, own), n = engine_list_tables(e);
        audit_file_note(e->audit_file, &note, own, n_own, e->step.tables, n);
    }
}

/* Ends the sequence and all samples of its prompt with QUIRE_BUSY. after_s: seconds until
 * a retry may succeed. */
static void sched_hooks_refuse(void *context, sched_task *t, int32_t after_s) {
    engine *e = context;
    sequence *s = sequence_of(t);
    while (s->next_child != NULL) {
        sequence *next = s->next_child;
        s->next_child = next->next_child;
        next->next_child = NULL;
        next->retry_after_s = after_s;
        step_finish(e, next, FINISH_ERROR, QUIRE_BUSY);
        sequence_drop(next);
    }
    s->retry_after_s = after_s;
    step_finish(e, s, FINISH_ERROR, QUIRE_BUSY);
    e->stats.deadlines_refused++;
}

/* Empties parks until one sequence's most pages of a step are available. */
static void sched_hooks_yield(void *context) {
    engine *e = context;
    parks_yield(e, kv_most_pages(&e->sched.limits.most, e->sched.limits.max_rows));
}

#define HOOKS                                                                                                \
    .is_ready = sched_hooks_is_ready, .describe = sched_hooks_describe, .admitted = admitted,                \
    .preempt = sched_hooks_preempt, .settle = sched_hooks_settle, .refuse = sched_hooks_refuse,              \
    .yield = sched_hooks_yield

const sched_hooks *sched_hooks_of(bool audits) {
    static const sched_hooks plain = {HOOKS}, audited = {HOOKS, .reserved = reserved};
    return audits ? &audited : &plain;
}
