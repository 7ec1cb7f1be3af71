#include "engine/explain.h"

#include <assert.h>

#include "base/clock.h"
#include "engine/state.h"
#include "sched/admission_candidates.h"
#include "sched/prefix_wait.h"

void explain_entered(engine *e, sequence *s) {
    assert(s != NULL);
    if (s->explain) {
        s->explain->is_counted = true;
        e->n_explained++;
    }
}

void explain_queued(engine *e, sequence *s) {
    assert(s != NULL);
    int32_t n_ahead = s->explain != NULL ? candidates_ahead(&e->sched, &s->task) : 0;
    for (sequence *f = s; f != NULL && f->explain != NULL; f = f->next_child) {
        f->explain->n_ahead = n_ahead;
        f->explain->order = e->options.schedule;
    }
}

/* Where x counts the time of this kind of wait, and how often it began. */
static int64_t *wait_us_of(explain *x, quire_wait wait) {
    return wait == EXPLAIN_WAIT_ADAPTER ? &x->adapter_wait_us : &x->report.wait_us[wait];
}

static int32_t *n_waits_of(explain *x, quire_wait wait) {
    return wait == EXPLAIN_WAIT_ADAPTER ? &x->n_adapter_waits : &x->report.n_waits[wait];
}

/* Adds the time since since_us to the present stage or wait; since_us becomes now_us. */
static void explain_cut(sequence *s, int64_t now_us) {
    explain *x = s->explain;
    int64_t since_us = x->since_us > 0 ? x->since_us : s->task.submitted_us;
    /* a token has the time of its step, which may be before since_us */
    int64_t us = now_us > since_us ? now_us - since_us : 0;
    x->since_us = since_us + us;
    switch (x->stage) {
    case EXPLAIN_QUEUE:
        *wait_us_of(x, x->wait) += us;
        x->report.queue_us += us;
        break;
    case EXPLAIN_PREFILL:
        x->report.prefill_us += us;
        break;
    case EXPLAIN_DECODE:
        x->report.decode_us += us;
        break;
    }
}

/* Begins this kind of wait for s. */
static void wait_for(sequence *s, quire_wait wait) {
    explain *x = s->explain;
    if (x->stage != EXPLAIN_QUEUE || x->wait != wait || *n_waits_of(x, wait) == 0) {
        ++*n_waits_of(x, wait);
    }
    x->stage = EXPLAIN_QUEUE;
    x->wait = wait;
}

/* The kind of wait of a sequence that has no more specific one. */
static quire_wait common_wait(const engine *e) {
    const sched_plan *plan = &e->sched.plan;
    if (e->sched.n_running >= e->sched.limits.max_seqs) {
        return QUIRE_WAIT_SLOT;
    }
    if (plan->n_preempted > 0) {
        return QUIRE_WAIT_PAGES;
    }
    if (plan->n_rows >= e->sched.limits.max_rows || plan->n_out >= e->sched.limits.max_out) {
        return QUIRE_WAIT_BUDGET;
    }
    return plan->n_admitted < e->sched.n_candidates ? QUIRE_WAIT_PAGES : QUIRE_WAIT_TURN;
}

void explain_waiting(engine *e) {
    assert(e != NULL);
    if (e->n_explained == 0) {
        return;
    }
    int64_t now_us = atomic_load(&e->step_started_us);
    quire_wait common = common_wait(e);
    for (int32_t i = 0; i < e->sched.n_waiting; i++) {
        sequence *s = waiting_at(e, i);
        if (!s->explain) {
            continue;
        }
        explain_cut(s, now_us);
        bool lacks_adapter = s->task.lacks_slot && common != QUIRE_WAIT_SLOT;
        quire_wait own = s->task.kv.tier_wait == KV_TIER_WAITS ? QUIRE_WAIT_TIER
                         : lacks_adapter                       ? EXPLAIN_WAIT_ADAPTER
                                                               : common;
        wait_for(s, prefix_wait_blocks(&e->sched, &s->task) ? QUIRE_WAIT_PREFIX : own);
    }
}

void explain_admitted(engine *e, sequence *s) {
    assert(s != NULL);
    explain *x = s->explain;
    if (x) {
        explain_cut(s, atomic_load(&e->step_started_us));
        x->stage = EXPLAIN_PREFILL;
        if (x->report.n_chunks + x->report.n_preemptions == 0 && s->task.kv.has_path) {
            x->n_prefix =
                kv_index_peek_pages(e->kv.index, &s->task.kv.path, s->task.tokens, task_reusable(&s->task));
        }
    }
}

void explain_shared(sequence *s, quire_wait wait) {
    assert(s != NULL);
    explain *x = s->explain;
    if (x) {
        wait_for(s, wait);
        explain_cut(s, clock_us());
        x->stage = EXPLAIN_PREFILL;
        x->report.shared = s->task.kv.n_computed;
    }
}

/* The entry of the last preemption, or NULL if the list is full. */
static quire_explain_preemption *last_preemption(explain *x) {
    return x->report.n_preemptions <= QUIRE_EXPLAIN_PREEMPTIONS
               ? &x->report.preemptions[x->report.n_preemptions - 1]
               : NULL;
}

/* Adds a cost to the entry of the last preemption and to the totals. */
static void explain_add_cost(explain *x, quire_explain_preemption cost) {
    quire_explain_preemption *to[] = {&x->report.preempted, last_preemption(x)};
    for (int i = 0; i < 2 && to[i] != NULL; i++) {
        to[i]->recomputed += cost.recomputed;
        to[i]->swapped_bytes += cost.swapped_bytes;
        to[i]->us += cost.us;
    }
}

/* Ends the last preemption in x, if it is open: what was lost is computed again. */
static void explain_come_back(explain *x, int64_t now_us) {
    if (x->preempted_us > 0) {
        explain_add_cost(x, (quire_explain_preemption){.us = now_us - x->preempted_us});
        x->preempted_us = 0;
    }
}

void explain_preempted(engine *e, sequence *s) {
    assert(s != NULL);
    (void)e;
    explain *x = s->explain;
    if (!x) {
        return;
    }
    int64_t now_us = clock_us();
    explain_cut(s, now_us);
    wait_for(s, QUIRE_WAIT_PAGES);
    explain_come_back(x, now_us); /* an earlier preemption may still be open */
    x->report.n_preemptions++;
    x->preempted_us = now_us;
    x->was_computed = s->task.kv.n_computed > x->was_computed ? s->task.kv.n_computed : x->was_computed;
}

void explain_computed(engine *e, sequence *s, int32_t n) {
    assert(s != NULL);
    explain *x = s->explain;
    if (!x) {
        return;
    }
    int32_t before = s->task.kv.n_computed - n;
    if (x->report.n_chunks + x->report.n_decodes == 0 && x->report.shared == 0) {
        x->report.matched = s->task.n_reused;
        x->report.copied = s->task.n_reused % e->layout.page_tokens;
    }
    if (x->preempted_us > 0) {
        int32_t again =
            (s->task.kv.n_computed < x->was_computed ? s->task.kv.n_computed : x->was_computed) - before;
        explain_add_cost(x, (quire_explain_preemption){.recomputed = again > 0 ? again : 0});
        if (s->task.kv.n_computed >= x->was_computed) {
            explain_come_back(x, clock_us());
        }
    }
    if (s->task.state == TASK_DECODE) {
        x->report.n_decodes++;
        return;
    }
    if (x->report.n_chunks < QUIRE_EXPLAIN_CHUNKS) {
        x->report.chunks[x->report.n_chunks] = (quire_explain_chunk){e->stats.steps, n};
    }
    x->report.n_chunks++;
}

void explain_token(engine *e, sequence *s, int64_t now_us) {
    assert(s != NULL);
    explain *x = s->explain;
    if (x == NULL) {
        return;
    }
    x->last_token_step = e->stats.steps;
    x->first_token_step = x->first_token_step < 0 ? x->last_token_step : x->first_token_step;
    if (x->stage != EXPLAIN_DECODE) {
        explain_cut(s, now_us);
        x->stage = EXPLAIN_DECODE;
    }
}

void explain_drafted(sequence *s, int32_t n, bool is_forced) {
    assert(s != NULL);
    if (s->explain && (is_forced || s->draft.is_guess)) {
        *(is_forced ? &s->explain->report.n_forced : &s->explain->report.n_guessed) += n;
    }
}

void explain_promoted(sequence *s, int32_t n_tokens) {
    assert(s != NULL);
    if (s->explain) {
        s->explain->report.tier += n_tokens;
    }
}

void explain_swapped(sequence *s, int64_t bytes) {
    assert(s != NULL);
    if (s->explain) {
        explain_add_cost(s->explain, (quire_explain_preemption){.swapped_bytes = bytes});
    }
}

void explain_ended(engine *e, sequence *s) {
    assert(s != NULL);
    if (s->explain) {
        explain_cut(s, s->ended_us);
        explain_come_back(s->explain, s->ended_us);
        e->n_explained -= s->explain->is_counted ? 1 : 0;
    }
}
