/* One step of the engine: from waiting requests to their next tokens. Read step_submit and step_collect first. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/admission_candidates.h"
#include "engine/audit_file.h"
#include "engine/batch_sample.h"
#include "engine/beam.h"
#include "engine/branch.h"
#include "engine/cache.h"
#include "engine/deadline.h"
#include "engine/draft.h"
#include "engine/explain.h"
#include "engine/finite.h"
#include "engine/fork.h"
#include "engine/lists.h"
#include "engine/output.h"
#include "engine/prefix_wait.h"
#include "engine/state.h"
#include "engine/swap.h"
#include "engine/verify.h"
#include "sample/end_tokens.h"

void step_finish(engine *e, sequence *s, finish_reason reason, quire_err error) {
    if (s->beams != NULL) {
        beam_finish(e, s->beams, reason, error);
        return;
    }
    fork_hand_on(e, s);
    kv_tiering_forget(e->tiering, &s->task.kv);
    draft_forget(e, s, true);
    kv_seq_release(&e->kv, &s->task.kv, s->task.tokens, reason == FINISH_ERROR ? KV_DROP : KV_KEEP);
    kv_seq_close(&e->kv, &s->task.kv);
    service_counters_leave(&e->service, s->task.tenant_slot);
    s->task.state = TASK_DONE;
    s->error = error;
    int64_t now_us = clock_us();
    stats_finish(e, s, reason, now_us);
    explain_end(e, s, now_us);
    out_publish(s, reason);
}

/* ---- first half ---- */

/* Enters all sequences of a group for their tenant, whose name is the part of the namespace's name before a zero byte. */
static void enter_admission(engine *e, sequence *s) {
    size_t n = 0;
    while (n < s->n_namespace && s->namespace[n] != 0) {
        n++;
    }
    for (; s != NULL; s = s->next_child) {
        s->task.tenant_slot = service_counters_enter(&e->service, s->namespace, n);
        s->task.priority = e->options.schedule == ADMISSION_PRIORITY ? s->task.priority : 0;
        explain_enter(e, s);
    }
}

/* Prefetches a sequence that another processor has just made. */
static void prefetch(const sequence *s) {
    for (size_t at = 0; at < sizeof *s; at += MEM_ALIGN) {
        __builtin_prefetch((const char *)s + at, 1);
    }
    for (int32_t i = 0; i < s->task.n_known; i += (int32_t)(MEM_ALIGN / sizeof *s->task.tokens)) {
        __builtin_prefetch(s->task.tokens + i);
    }
}

static bool is_cancelled(const engine *e, const sequence *s) {
    if (s->beams != NULL) {
        return beam_is_cancelled(e, s->beams);
    }
    return atomic_load(&e->entries[s->id.index].cancel) == s->id.generation;
}

static bool any_is_cancelled(const engine *e, const sequence *parent) {
    bool any = false;
    for (const sequence *s = parent; s != NULL; s = s->next_child) {
        any = any || is_cancelled(e, s);
    }
    return any;
}

/* Takes in submitted sequences; true when some of them are cancelled already. */
static bool ingest(engine *e) {
    sequence *s;
    bool some_cancelled = false;
    while (e->n_waiting + e->n_running < e->options.max_requests && ring_pop(e->in, &s)) {
        prefetch(s);
        some_cancelled = any_is_cancelled(e, s) || some_cancelled;
        enter_admission(e, s);
        if (s->fork_from) {
            branch_enter(e, s);
            continue;
        }
        if (s->beams != NULL) {
            beam_enter(s);
        }
        cache_enter(e, s);
        int32_t n_held;
        s->task.n_found = cache_peek(e, s, &n_held);
        list_insert(e->waiting, &e->n_waiting, s);
        if (e->options.no_fork_sharing) {
            fork_split(e, s);
        }
    }
    return some_cancelled;
}

/* Removes cancelled children from their parent's group. */
static void drop_cancelled_children(engine *e, sequence *parent) {
    for (sequence **at = &parent->next_child; *at != NULL;) {
        sequence *s = *at;
        if (!is_cancelled(e, s)) {
            at = &s->next_child;
            continue;
        }
        *at = s->next_child;
        s->next_child = NULL;
        step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
        sequence_drop(s);
    }
}

/* Ends cancelled sequences. There are none unless engine_cancel was called since the last time, or a sequence was cancelled before it was
 * taken in. */
static void drop_cancelled(engine *e, bool some_came_so) {
    unsigned n_cancels = atomic_load(&e->n_cancels);
    if (n_cancels == e->n_cancels_seen && !some_came_so) {
        return;
    }
    e->n_cancels_seen = n_cancels;
    sequence **lists[2] = {e->running, e->waiting};
    int32_t *counts[2] = {&e->n_running, &e->n_waiting};
    for (int k = 0; k < 2; k++) {
        for (int32_t i = 0; i < *counts[k]; i++) {
            drop_cancelled_children(e, lists[k][i]);
            if (is_cancelled(e, lists[k][i])) {
                step_finish(e, lists[k][i], FINISH_CANCELLED, QUIRE_CANCELLED);
            }
        }
        list_drop_done(lists[k], counts[k]);
    }
}

/* Fills *d in place, since a copy of it would stall on what was just written. */
static void describe(const engine *e, const sequence *s, sched_seq *d) {
    memset(d, 0, sizeof *d);
    d->n_known = s->task.n_known;
    d->n_computed = s->task.kv.n_computed;
    d->n_groups = e->layout.n_groups;
    d->n_most = s->task.n_max;
    d->n_preempted = s->task.n_preempted;
    d->wants_logits = task_wants_logits(&s->task);
    d->n_pages = kv_seq_pages(&s->task.kv);
    if (s->beams != NULL) {
        beam_describe(e, s, d);
        return;
    }
    d->n_pages -= kv_seq_copied_tails(&e->kv, &s->task.kv); /* they are taken again, as copies */
}

/* Pages of s that preempting it does not free, since others hold them too; without tails that are not among d's pages. */
static int32_t shared_pages(const engine *e, const sequence *s, const sched_seq *d) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        const kv_table *t = &s->task.kv.tables[g];
        int32_t n_kept = t->n_pages - kv_table_copies_tail(e->kv.pool, t, e->layout.page_tokens);
        for (int32_t i = 0; i < n_kept; i++) {
            n += kv_seq_holders(&e->kv, &s->task.kv, g, i) != 1;
        }
    }
    return n < d->n_pages ? n : d->n_pages;
}

/* Counts what preempting each running sequence frees, where pages are so few that one may be preempted. */
static void describe_shares(engine *e, int32_t n_waiting) {
    int32_t n_growing = e->limits.max_rows / e->layout.page_tokens + 2 * (e->n_running + n_waiting + 1);
    if (kv_cache_available(&e->kv) >= n_growing * e->layout.n_groups) {
        return;
    }
    for (int32_t i = 0; i < e->n_running; i++) {
        if (e->running[i]->beams == NULL) {
            e->step.running[i].n_shared = shared_pages(e, e->running[i], &e->step.running[i]);
        }
    }
}

void step_preempt(engine *e, sequence *s) {
    if (s->beams != NULL) {
        beam_preempt(e, s);
        return;
    }
    explain_preempted(s);
    swap_out(e, s);
    kv_seq_release(&e->kv, &s->task.kv, s->task.tokens, KV_KEEP);
    kv_tiering_forget(e->tiering, &s->task.kv);
    draft_forget(e, s, false);
    s->task.state = TASK_WAITING;
    s->task.n_preempted++;
    list_insert(e->waiting, &e->n_waiting, s);
    e->stats.preemptions++;
}

static void preempt_planned(engine *e) {
    int32_t kept = 0, n = e->n_running;
    for (int32_t i = 0; i < n && e->step.plan.n_preempted > 0; i++) {
        if (e->step.plan.decisions[i] == SCHED_PREEMPTED) {
            step_preempt(e, e->running[i]);
        } else {
            e->running[kept++] = e->running[i];
        }
        e->n_running = kept;
    }
}

/* Moves the waiting sequences that have an item to the running ones. */
static void admit(engine *e) {
    const sched_plan *plan = &e->step.plan;
    for (int32_t i = plan->n_items - plan->n_admitted; i < plan->n_items; i++) {
        sequence *s = e->step.seqs[i];
        cache_admit(e, s);
        swap_in(e, s);
        s->task.state = s->task.n_known - s->task.kv.n_computed == 1 ? TASK_DECODE : TASK_PREFILL;
        explain_admitted(e, s);
        list_insert(e->running, &e->n_running, s);
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < e->n_waiting; i++) {
        if (e->waiting[i]->task.state == TASK_WAITING) {
            e->waiting[kept++] = e->waiting[i];
        }
    }
    e->n_waiting = kept;
}

/* Plans the step and moves sequences between the lists; step.seqs names the planned ones. */
static void plan_step(engine *e) {
    step_arrays *a = &e->step;
    int32_t n_waiting = admission_candidates_find(e);
    draft_propose(e);
    for (int32_t i = 0; i < e->n_running; i++) {
        describe(e, e->running[i], &a->running[i]);
        a->running[i].n_drafts = e->running[i]->draft.tree.n;
        a->running[i].is_jump_forward = e->running[i]->draft.n_jump_forward > 0;
    }
    describe_shares(e, n_waiting);
    for (int32_t i = 0; i < n_waiting; i++) {
        describe(e, a->candidates[i], &a->waiting[i]);
        int32_t n_cached = cache_peek(e, a->candidates[i], &a->waiting[i].n_pages);
        a->waiting[i].n_computed = kv_seq_swap_peek(&e->kv, &a->candidates[i]->task.kv, n_cached);
        prefix_wait_find(e, a->candidates, i);
    }
    e->limits.cost = step_cost_fit(&e->step_cost);
    sched_make_plan(&e->limits, a->running, e->n_running, a->waiting, n_waiting, kv_cache_available(&e->kv), &a->plan);
    for (int32_t i = 0; i < a->plan.n_items; i++) {
        int32_t k = a->plan.items[i].seq;
        a->seqs[i] = k < e->n_running ? e->running[k] : a->candidates[k - e->n_running];
    }
    admit(e);
    preempt_planned(e);
    beam_settle(e);
    explain_waiting(e, n_waiting);
}

/* Reserves pages for n more tokens of s in every group, or in none. */
static quire_err reserve_pages(engine *e, sequence *s, int32_t n) {
    int32_t n_pages = e->audit_file != NULL ? (int32_t)kv_seq_needs(&e->kv, &s->task.kv, n) : 0;
    TRY(kv_seq_reserve(&e->kv, &s->task.kv, n, &e->step.copies));
    audit_file_note(e, s, n, n_pages);
    return QUIRE_OK;
}

/* Pages that the planned items take. */
static int32_t pages_needed(const engine *e) {
    int32_t n = 0;
    for (int32_t i = 0; i < e->step.plan.n_items; i++) {
        n += (int32_t)kv_seq_needs(&e->kv, &e->step.seqs[i]->task.kv, e->step.plan.items[i].n_rows);
    }
    return n;
}

/* Reserves pages for every planned item; one that finds none after all is left out, and planned again in the next step. */
static void reserve_step(engine *e) {
    step_arrays *a = &e->step;
    int32_t kept = 0;
    a->copies.n = 0;
    kv_cache_make_free(&e->kv, pages_needed(e));
    for (int32_t i = 0; i < a->plan.n_items; i++) {
        sequence *s = a->seqs[i];
        int32_t n = a->plan.items[i].n_rows;
        quire_err r = reserve_pages(e, s, n);
        if (r == QUIRE_NO_ROOM && a->plan.items[i].n_drafts > 0) {
            n = a->plan.items[i].n_rows -= a->plan.items[i].n_drafts;
            a->plan.items[i].n_drafts = 0;
            r = reserve_pages(e, s, n);
        }
        if (r == QUIRE_NO_ROOM && cache_drop_tail(e, s)) {
            kv_cache_make_free(&e->kv, pages_needed(e));
            r = reserve_pages(e, s, n);
        }
        if (r == QUIRE_NO_ROOM && kv_seq_take_over_tail(&e->kv, &s->task.kv)) {
            r = reserve_pages(e, s, n);
        }
        if (r == QUIRE_OK) {
            a->plan.items[kept] = a->plan.items[i];
            a->seqs[kept++] = s;
        }
    }
    a->plan.n_items = kept;
    for (int32_t i = 0; i < a->copies.n; i++) {
        a->copy_pairs[i] = (kv_copy_pair){a->copies.pairs[i].src.v, a->copies.pairs[i].dst.v};
    }
    if (a->copies.n > 0) {
        e->b->ops->kv_copy(e->b, a->copy_pairs, a->copies.n);
    }
}

/* The first position whose logits are wanted, as are those of all after it. */
static int32_t first_wanted(const sequence *s) {
    int32_t sampled = verify_first(s);
    return task_wants_logits(&s->task) && s->task.logits_first < sampled ? s->task.logits_first : sampled;
}

/* Fills n rows of tokens[0..n), the first of which is at s's index p0: tokens, positions, slots, and which logits are wanted. */
static void fill_rows(engine *e, const sequence *s, const int32_t *tokens, int32_t p0, int32_t n) {
    step_arrays *a = &e->step;
    int32_t row0 = a->rows.n_rows, wanted = first_wanted(s) - p0;
    a->rows.n_rows += n;
    for (int32_t i = 0; i < n; i++) {
        a->tokens[row0 + i] = tokens[i];
        a->positions[row0 + i] = p0 + i;
    }
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        kv_seq_slots(&e->kv, &s->task.kv, g, p0, n, a->slots[g] + row0);
    }
    for (int32_t i = wanted > 0 ? wanted : 0; i < n; i++) {
        a->out_rows[a->rows.n_out++] = row0 + i;
    }
}

/* Fills the rows of one item: its known tokens, then its drafts, in adjacent slots whatever their positions. */
static void fill_item(engine *e, int32_t item) {
    step_arrays *a = &e->step;
    const sequence *s = a->seqs[item];
    const draft_tree *tree = &s->draft.tree;
    int32_t row0 = a->rows.n_rows, n = a->plan.items[item].n_rows, n_drafts = a->plan.items[item].n_drafts, n_own = n - n_drafts;
    bool branches = false;
    a->out0[item] = a->rows.n_out;
    fill_rows(e, s, s->task.tokens + s->task.kv.n_computed, s->task.kv.n_computed, n_own);
    if (n_drafts > 0) {
        fill_rows(e, s, tree->tokens, s->task.n_known, n_drafts);
    }
    for (int32_t i = 0; i < n_drafts; i++) {
        a->parents[row0 + n_own + i] = n_own + tree->parents[i];
        branches = branches || tree->parents[i] != i - 1;
        a->positions[row0 + n_own + i] = s->task.n_known - 1 + tree->depths[i];
    }
    batch_seq *q = &a->batch_seqs[a->rows.n_seqs++];
    q->row0 = row0;
    q->n_rows = n;
    q->n_tokens = s->task.kv.n_computed + n;
    q->parents = branches ? a->parents + row0 : NULL;
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        q->pages[g] = &s->task.kv.tables[g].pages->v;
    }
}

static void fill_batch(engine *e) {
    step_arrays *a = &e->step;
    a->rows.n_rows = a->rows.n_seqs = a->rows.n_out = 0;
    for (int32_t i = 0; i < a->plan.n_items; i++) {
        fill_item(e, i);
    }
    if (e->options.no_cascade) {
        a->rows.n_work =
            batch_plan_work(a->batch_seqs, a->rows.n_seqs, a->cascade.limits.tile_rows, a->cascade.items, a->cascade.max_items);
    } else {
        cascade_plan(&a->cascade, &a->rows);
    }
}

/* No sequence found pages: preempts the newest with its group, so that the others try again. The first one is never preempted, so in the
 * end a step has rows. */
static void preempt_newest(engine *e) {
    sched_plan *plan = &e->step.plan;
    const sequence *victim = e->running[e->n_running - 1], *first = e->running[0];
    plan->n_preempted = 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        const sequence *s = e->running[i];
        bool goes = s == victim || (s->beams != NULL && s->beams == victim->beams);
        plan->decisions[i] = goes && s != first && (s->beams == NULL || s->beams != first->beams) ? SCHED_PREEMPTED : SCHED_IDLE;
        plan->n_preempted += plan->decisions[i] == SCHED_PREEMPTED;
    }
    preempt_planned(e);
    beam_settle(e);
}

bool step_submit(engine *e) {
    int64_t start_ns = clock_ns();
    drop_cancelled(e, ingest(e));
    kv_tiering_poll(e->tiering, start_ns / 1000);
    if (e->n_running + e->n_waiting == 0) {
        return false;
    }
    int64_t now_us = clock_us();
    atomic_store(&e->step_started_us, now_us);
    kv_cache_set_time(&e->kv, now_us);
    deadline_check(e, now_us);
    beam_resume(e);
    plan_step(e);
    reserve_step(e);
    if (e->step.plan.n_items == 0) {
        if (e->step.plan.n_preempted == 0 && e->n_running > 1) {
            preempt_newest(e);
        }
        atomic_store(&e->step_started_us, 0);
        return false;
    }
    stats_pages(e);
    fill_batch(e);
    e->stats.plan_ns += clock_ns() - start_ns;
    model_forward(e->m, &e->step.rows);
    return true;
}

/* ---- second half ---- */

/* Whether s ends with the token that it just got, and why. */
static finish_reason finish_of(const engine *e, sequence *s, int32_t token) {
    end_kind end = end_token_kind(&s->sampling, e->desc, token);
    if (end != END_NONE) {
        s->stopped_by_eos = end == END_EOS;
        return FINISH_STOP;
    }
    return s->task.n_known == s->task.n_max ? FINISH_LENGTH : FINISH_NONE;
}

/* Log-probabilities under a row of raw logits: the token's, then those of the width - 1 likeliest. */
static void report(const engine *e, const float *raw, int32_t token, int32_t width, token_logprob *out) {
    double normalizer = logprobs_normalizer(raw, e->desc->n_vocab);
    out[0] = logprobs_of(raw, e->desc->n_vocab, normalizer, token);
    logprobs_top(raw, e->desc->n_vocab, normalizer, width - 1, out + 1);
}

void step_commit(engine *e, sequence *s, int32_t token) {
    s->task.tokens[s->task.n_known++] = token;
    service_counters_add(&e->service, s->task.tenant_slot, SERVICE_OUTPUT_WEIGHT);
    s->task.state = TASK_DECODE;
    stats_token(e, s, e->step.collected_us);
    explain_token(s, e->step.collected_us);
    finish_reason reason = finish_of(e, s, token);
    if (reason != FINISH_NONE) {
        step_finish(e, s, reason, QUIRE_OK);
    } else {
        out_publish(s, FINISH_NONE);
    }
}

void step_sample(engine *e, sequence *s, float *logits) {
    int32_t token;
    branch_note_mirostat(s);
    if (s->logprobs) {
        memcpy(e->step.raw, logits, (size_t)e->desc->n_vocab * sizeof *logits);
    }
    quire_err err;
    if (!batch_sample_take(s, &token, &err)) {
        int64_t start_ns = clock_ns();
        sample_context c = batch_sample_context(e, s);
        err = verify_sample(e, s, logits, &c, &token);
        e->stats.sample_ns += clock_ns() - start_ns;
    }
    if (err != QUIRE_OK) {
        step_finish(e, s, FINISH_ERROR, err);
        return;
    }
    if (s->logprobs) {
        report(e, e->step.raw, token, s->logprobs_width,
               s->logprobs + (size_t)(s->task.n_known - s->task.n_prompt) * (size_t)s->logprobs_width);
    }
    step_commit(e, s, token);
}

/* Stores what the request wants of the prompt's row p. */
static void keep_row(const engine *e, sequence *s, int32_t p, const float *logits) {
    size_t n = (size_t)e->desc->n_vocab;
    if (s->logits_out) {
        memcpy(s->logits_out + (size_t)p * n, logits, n * sizeof *logits);
    }
    if (s->prompt_logprobs && p + 1 < s->task.n_prompt) {
        report(e, logits, s->task.tokens[p + 1], s->prompt_logprobs_width,
               s->prompt_logprobs + (size_t)p * (size_t)s->prompt_logprobs_width);
    }
}

/* Commits one item's rows; samples when they reach the last known token. */
static void collect_item(engine *e, int32_t item) {
    sequence *s = e->step.seqs[item];
    int32_t n = e->step.plan.items[item].n_rows - e->step.plan.items[item].n_drafts;
    int32_t out = e->step.out0[item]; /* the next wanted row; at the end the one to sample from */
    if (s->task.state == TASK_DONE) {
        return; /* another beam of its search failed */
    }
    int32_t wanted = first_wanted(s);
    for (int32_t p = wanted > s->task.kv.n_computed ? wanted : s->task.kv.n_computed; p < s->task.kv.n_computed + n; p++) {
        if (task_wants_logits(&s->task) && p >= s->task.logits_first) {
            keep_row(e, s, p, e->b->ops->logits(e->b, out));
        }
        out += p + 1 < s->task.n_known;
    }
    /* tokens that preemption repeats do not count again */
    service_counters_add(&e->service, s->task.tenant_slot, s->task.n_known == s->task.n_prompt ? SERVICE_PROMPT_WEIGHT * (double)n : 0.0);
    kv_seq_advance(&s->task.kv, n);
    explain_computed(e, s, n);
    /* no sampling from a row that a jump-forward token follows */
    bool has_row = s->task.kv.n_computed == s->task.n_known && s->draft.n_jump_forward == 0;
    if (!finite_rows(e, s, e->step.batch_seqs[item].row0, n, has_row ? out : -1)) {
        step_finish(e, s, FINISH_ERROR, QUIRE_NUMERIC);
        return;
    }
    if (beam_publishes(s)) {
        cache_publish(e, s);
    }
    kv_seq_forget(&e->kv, &s->task.kv);
    if (s->task.kv.n_computed == s->task.n_known && s->beams != NULL) {
        beam_take(e, s, e->b->ops->logits(e->b, out));
    } else if (s->task.kv.n_computed == s->task.n_known) {
        if (s->next_child != NULL) {
            fork_children(e, s, e->b->ops->logits(e->b, out), step_sample);
        }
        verify_item(e, item, out);
    }
}

#define PREFETCHED_AHEAD 6 /* sequences */

/* Prefetches the last tokens of the sequence of a later item. */
static void prefetch_ahead(const engine *e, int32_t item) {
    if (item + PREFETCHED_AHEAD < e->step.plan.n_items) {
        sequence *s = e->step.seqs[item + PREFETCHED_AHEAD];
        __builtin_prefetch(s->task.tokens + s->task.n_known, 1);
    }
}

void step_collect(engine *e) {
    e->b->ops->step_wait(e->b);
    int64_t start_ns = clock_ns(), sampled_ns = e->stats.sample_ns;
    batch_sample_items(e);
    e->stats.sample_ns += clock_ns() - start_ns;
    e->step.collected_us = clock_us();
    for (int32_t i = 0; i < e->step.plan.n_items; i++) {
        prefetch_ahead(e, i);
        collect_item(e, i);
    }
    list_drop_done(e->running, &e->n_running);
    e->stats.steps++;
    e->stats.step_rows += e->step.rows.n_rows;
    int64_t us = clock_us() - atomic_exchange(&e->step_started_us, 0);
    e->stats.step_us += us;
    e->stats.commit_ns += clock_ns() - start_ns - (e->stats.sample_ns - sampled_ns);
    if (e->step.rows.n_rows == e->step.plan.n_rows) { /* the step computed all that was planned */
        step_cost_note(&e->step_cost, e->step.plan.n_rows, e->step.plan.n_pairs, (double)us);
    }
}
