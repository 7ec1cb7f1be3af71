#include "engine/branch.h"

#include <string.h>

#include "engine/explain.h"
#include "engine/output.h"

/* Copies the fork parent's sampling state at the fork position: that of mirostat. */
static void take_mirostat(sequence *s, const sequence *fork_from) {
    const sampling_params *a = &s->sampling, *b = &fork_from->sampling;
    bool same = a->mirostat == b->mirostat && a->mirostat_tau == b->mirostat_tau &&
                a->mirostat_eta == b->mirostat_eta;
    if (!s->mus || !same || s->task.n_prompt != fork_from->task.n_prompt) {
        return;
    }
    int32_t n = s->fork_position - s->task.n_prompt;
    memcpy(s->mus, fork_from->mus, (size_t)n * sizeof *s->mus);
    s->mirostat_mu = s->fork_position < fork_from->task.n_known ? fork_from->mus[n] : fork_from->mirostat_mu;
    for (int32_t i = s->fork_position; i < s->task.n_known; i++) {
        s->mus[i - s->task.n_prompt] = s->mirostat_mu; /* given tokens do not change mu */
    }
}

/* For a branch that replaces its fork parent: copies the counts of shared tokens. */
static void branch_take_counts(sequence *s, const sequence *fork_from) {
    prediction_walk *w = s->draft.prediction, *from = fork_from->draft.prediction;
    if (w == NULL || from == NULL || w->text != from->text || !s->fork_replaces ||
        s->task.n_prompt != fork_from->task.n_prompt) {
        return;
    }
    int32_t n = s->fork_position - s->task.n_prompt;
    memcpy(s->predicted, fork_from->predicted, (size_t)n * sizeof *s->predicted);
    prediction_take_over(w, from, s->predicted, n);
    for (int32_t i = n; i < s->task.n_known - s->task.n_prompt; i++) {
        s->predicted[i].counts = w->counts;
    }
}

/* Number of leading tokens whose pages s can share with its fork parent; 0: none. */
static int32_t shareable(const engine *e, const sequence *s, const sequence *fork_from) {
    bool runs = fork_from->task.state == TASK_PREFILL || fork_from->task.state == TASK_DECODE;
    bool has_place = e->sched.n_running - (s->fork_replaces ? 1 : 0) < e->sched.limits.max_seqs;
    bool same_namespace = s->n_namespace == fork_from->n_namespace &&
                          memcmp(s->namespace, fork_from->namespace, s->n_namespace) == 0;
    bool same_weights =
        s->task.adapter == fork_from->task.adapter && s->adapter_from == fork_from->adapter_from;
    if (!runs || !has_place || !same_namespace || !same_weights) {
        return 0;
    }
    int32_t n =
        s->fork_position < fork_from->task.kv.n_computed ? s->fork_position : fork_from->task.kv.n_computed;
    /* the last token is computed for its logits */
    n = n < s->task.n_known || s->no_tokens ? n : s->task.n_known - 1;
    return kv_seq_can_truncate(&e->kv, &fork_from->task.kv, n) ? n : 0;
}

static void share_pages(engine *e, sequence *s, const sequence *fork_from, int32_t n) {
    /* allocates nothing: the tables have room for the whole sequence */
    kv_seq_fork(&e->kv, &fork_from->task.kv, n, &s->task.kv);
    s->task.n_reused = n;
    s->task.n_admitted = 2;
    s->task.n_cached = s->fork_replaces ? fork_from->task.n_cached : n;
    e->sched.counts.known_tokens_queried += s->task.n_known;
    e->sched.counts.known_tokens_reused += n;
    if (n < s->task.n_known) {
        scheduler_run(&e->sched, &s->task);
    }
    explain_shared(s, QUIRE_WAIT_TURN);
}

bool branch_enter(engine *e, sequence *s) {
    sequence *fork_from = s->fork_from;
    for (sequence *f = s; f != NULL; f = f->next_child) {
        take_mirostat(f, fork_from);
        branch_take_counts(f, fork_from);
    }
    if (s->fork_replaces) { /* the branch takes over the fork parent's place in the order of arrival */
        s->task.arrival = fork_from->task.arrival;
        s->task.priority = fork_from->task.priority;
        s->last_token_us = fork_from->last_token_us;
        atomic_store_explicit(&s->first_token_us,
                              atomic_load_explicit(&fork_from->first_token_us, memory_order_relaxed),
                              memory_order_relaxed);
    }
    int32_t n = shareable(e, s, fork_from);
    if (n > 0) {
        share_pages(e, s, fork_from, n);
    } else {
        s->task.n_admitted = 1;
    }
    if (s->fork_replaces) {
        if (n > 0) {
            /* so that only the branch holds the part-filled page, and need not copy it */
            kv_seq_release(&e->kv, &fork_from->task.kv, fork_from->task.tokens, KV_DROP);
        }
        engine_cancel(e, fork_from->id);
    }
    if (s->task.n_known > s->fork_position) {
        out_publish(s, FINISH_NONE); /* the given tokens */
    }
    s->fork_from = NULL;
    sequence_drop(fork_from);
    return n > 0;
}
