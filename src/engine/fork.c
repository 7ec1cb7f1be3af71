#include "engine/fork.h"

#include <string.h>

#include "base/clock.h"
#include "engine/cache.h"
#include "engine/explain.h"
#include "engine/step_sample.h"

/* Adds s to the waiting list, to be admitted on its own. */
static void wait_alone(engine *e, sequence *s) {
    cache_enter(e, s);
    scheduler_wait(&e->sched, &s->task);
}

void fork_share(engine *e, const sequence *parent, sequence *s) {
    kv_seq_fork(&e->kv, &parent->task.kv, parent->task.kv.n_computed,
                &s->task.kv); /* allocates nothing: the tables have room for the whole sequence */
    s->task.n_reused = 0;
    /* after an admission, a reader of its progress may be reading these members */
    if (s->task.n_admitted == 0) {
        s->task.n_cached = parent->task.n_cached;
        s->task.queue_us = parent->task.queue_us;
        s->task.n_admitted = 1;
    }
    explain_shared(s, QUIRE_WAIT_PREFIX);
}

void fork_children(engine *e, sequence *parent, const float *logits) {
    sequence *s = parent->next_child;
    parent->next_child = NULL;
    for (sequence *next; s != NULL; s = next) {
        next = s->next_child;
        s->next_child = NULL;
        if (e->sched.n_running == e->sched.limits.max_seqs) {
            s->task.deadline_us = 0; /* another sample has produced the request's first token */
            wait_alone(e, s);
            continue;
        }
        fork_share(e, parent, s);
        memcpy(e->step.forked, logits, (size_t)e->desc->n_vocab * sizeof *logits);
        step_sample(e, s, e->step.forked, NULL);
        if (s->task.state == TASK_DONE) {
            sequence_drop(s);
        } else {
            scheduler_run(&e->sched, &s->task);
        }
    }
}

/* Releases the pages of s, which was just admitted, and gives it the cached pages of its
 * first n tokens. */
static void admit_anew(engine *e, sequence *s, int32_t n) {
    kv_seq_release(&e->kv, &s->task.kv, s->task.tokens, KV_DROP);
    (void)kv_seq_admit(&e->kv, &s->task.kv, s->task.tokens, n);
}

void fork_answer(engine *e, sequence *s) {
    sched_task *t = &s->task;
    kv_held held;
    bool may = e->parks.n_rows > 0 && t->kv.has_path && t->n_known == s->n_given && t->n_preempted == 0 &&
               !s->no_tokens && s->next_child == NULL && s->pooling == NULL && s->beams == NULL &&
               !t->wants_prompt_logits && kv_seq_shareable(&t->kv, t->n_known) == t->n_known;
    if (!may || kv_seq_peek(&e->kv, &t->kv, t->tokens, t->n_known, &held) < t->n_known) {
        return;
    }
    admit_anew(e, s, t->n_known);
    const float *row = parks_find_row(e, s);
    if (row == NULL) {
        admit_anew(e, s, t->n_known - 1);
        return;
    }
    scheduler_count_reuse(&e->sched, t, t->kv.n_computed);
    e->step.collected_us = clock_us();
    memcpy(e->step.forked, row, (size_t)e->desc->n_vocab * sizeof *row);
    step_sample(e, s, e->step.forked, NULL);
}

void fork_split(engine *e, sequence *parent) {
    sequence *s = parent->next_child;
    parent->next_child = NULL;
    for (sequence *next; s != NULL; s = next) {
        next = s->next_child;
        s->next_child = NULL;
        s->task.deadline_us = 0; /* the parent's first token is the request's */
        wait_alone(e, s);
    }
}

void fork_hand_on(engine *e, sequence *parent) {
    sequence *s = parent->next_child;
    parent->next_child = NULL;
    for (sequence *f = s; f != NULL && parent->task.n_admitted > 0; f = f->next_child) {
        /* the request was admitted before: it runs to its end even past the deadline */
        f->task.deadline_us = 0;
    }
    if (s != NULL) {
        wait_alone(e, s);
    }
}
