#include "engine/draft_step.h"

#include <assert.h>

#include "base/mem.h"
#include "engine/cache.h"
#include "engine/explain.h"
#include "engine/rule_step.h"
#include "engine/step_sample.h"
#include "spec/draft.h"
#include "spec/jump_forward.h"

#define GUESSES_KEPT 0.98f /* decay of engine.guessed and guessed_right at each guess */
#define MOST_DOUBT   2.5f

_Static_assert(DRAFT_MAX <= sizeof((quire_stats *)0)->draft_accepted_at / sizeof(int64_t),
               "there is a counter for each depth");
_Static_assert(ENGINE_NAMESPACE_BYTES <= KV_NAMESPACE_BYTES, "drafters have room for a namespace's name");

quire_err draft_step_open(engine *e, quire_error *err) {
    assert(e != NULL);
    int32_t most = e->options.draft.n_tokens;
    e->drafted = mem_new((size_t)e->sched.limits.max_seqs, sizeof(draft_seq *));
    e->predicting.n_tokens = most > 0 ? most : DRAFT_PREDICTED;
    const draft_target target = {e->desc, &e->layout, &e->samples, e->sched.limits.max_seqs,
                                 e->sched.limits.max_rows};
    return e->drafted != NULL ? draft_open(&e->options.draft, &target, &e->drafter, err) : QUIRE_NO_MEMORY;
}

void draft_step_close(engine *e) {
    assert(e != NULL);
    if (e->drafter) {
        e->drafter->ops->close(e->drafter);
    }
    mem_free((void *)e->drafted);
}

/* Whether drafts can follow s's last token: it was sampled, and is the only one not yet
 * computed. Not for a beam, whose next token the search chooses, nor in a step in which
 * children are forked from s, since they would share pages that contain s's drafts. */
static bool can_draft(const sequence *s) {
    return s->beams == NULL && s->next_child == NULL && s->task.n_known - s->task.kv.n_computed == 1 &&
           s->task.n_known > s->task.n_prompt;
}

/* A guess costs one row of the forward pass and one row of sampling. If recent guesses
 * were right less often than estimated, the estimate is lowered. */
guess_worth step_guess_worth(const engine *e) {
    const sched_cost *c = &e->sched.limits.cost;
    bool is_known = c->step_us + c->row_us > 0.0;
    double row_us = is_known ? c->row_us + e->sample_row_us : 0.0, one = c->step_us + row_us;
    float cost = one > 0 ? (float)(row_us / one) * e->guessed : 0.0f;
    float doubt = e->guessed_right < cost ? cost / e->guessed_right : 1.0f;
    return outlook_worth(e->sched.n_running, c->step_us, row_us, doubt < MOST_DOUBT ? doubt : MOST_DOUBT);
}

/* Whether the request's rules alone force or guess some of the next `most` tokens of
 * s. */
static bool has_outlook(const engine *e, sequence *s, int32_t most) {
    draft_seq *d = &s->draft;
    if (e->options.ablations.no_jump_forward) {
        return false;
    }
    if (s->constraint != NULL) {
        guess_worth worth = step_guess_worth(e);
        return outlook_propose(d, e->desc, most, &worth);
    }
    if (!d->samples_each &&
        jump_forward_propose(&s->context, e->desc, most < DRAFT_MAX ? most : DRAFT_MAX, &d->tree)) {
        d->n_jump_forward = d->tree.n;
    }
    return d->n_jump_forward > 0;
}

/* Replaces the constraint's guesses in d's tree by the next ids of its prediction. False:
 * the prediction offers none in this step. */
static bool draft_step_predict(const engine *e, draft_seq *d, int32_t n_expected, int32_t room) {
    if (d->n_jump_forward > 0 || !draft_want(d, &e->predicting, n_expected < room ? n_expected : room)) {
        return false;
    }
    d->tree.n = 0;
    d->is_guess = false;
    d->is_predicted = true;
    prediction_draft(d->prediction, d->wanted.depth, &d->tree);
    return true;
}

/* Cuts the draft of sequence `task` to the part that its constraint allows. Tasks count
 * the drafter's sequences first, then those with predictions. */
static void constrain(void *context, int32_t task, int32_t worker) {
    engine *e = context;
    draft_seq *d = task < e->n_drafted ? e->drafted[task]
                                       : e->drafted[e->sched.limits.max_seqs - 1 - (task - e->n_drafted)];
    if (d->context->constraint != NULL) {
        work_room *had = work_room_enter(&e->rule_room);
        draft_constrain(d, e->step.states + (size_t)worker * DRAFT_MAX * CONSTRAINT_MAX_STATE_BYTES);
        (void)work_room_enter(had);
    }
}

#define PREFETCHED_AHEAD 8 /* sequences, whose outlooks another thread may have written */

/* Number of ids of its prediction that s is expected to follow next; 0: none. */
static int32_t draft_step_expects(const sequence *s) {
    prediction_walk *w = s->draft.prediction;
    return w == NULL ? 0 : prediction_expects(w, s->task.tokens, s->task.n_prompt, s->task.n_known);
}

void draft_step_propose(engine *e) {
    int32_t n = 0, n_predicted = 0;
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        sequence *s = running_at(e, i);
        if (i + PREFETCHED_AHEAD < e->sched.n_running) {
            sequence_prefetch(running_at(e, i + PREFETCHED_AHEAD));
            sequence_prefetch_drafts(running_at(e, i + PREFETCHED_AHEAD));
        }
        draft_seq *d = &s->draft;
        int32_t room = s->task.n_max - s->task.n_known - 1; /* the last token is not computed */
        d->tree.n = d->n_jump_forward = 0;
        d->is_guess = d->is_predicted = false;
        d->wanted = (draft_bounds){0};
        d->distributions = NULL;
        d->n_known = s->task.n_known;
        if (s->task.sits_out || !can_draft(s) || room <= 0) {
            continue;
        }
        bool is_known = has_outlook(e, s, room);
        int32_t n_expected = draft_step_expects(s);
        if (n_expected > 0 && draft_step_predict(e, d, n_expected, room)) {
            e->drafted[e->sched.limits.max_seqs - ++n_predicted] = d;
        } else if (n_expected == 0 && !is_known && e->drafter && draft_want(d, &e->options.draft, room)) {
            e->drafted[n++] = d;
        }
    }
    e->n_drafted = n;
    if (n > 0) {
        e->drafter->ops->propose(e->drafter, e->drafted, n);
    }
    if (n + n_predicted > 0) {
        sample_tasks(&e->samples, constrain, e, n + n_predicted);
    }
}

/* Moves the keys and values of s's next token from the slot at index `place` of its
 * tables to the slot of its position. */
static void draft_step_take_place(engine *e, const sequence *s, int32_t place) {
    kv_move_pair pairs[KV_MAX_GROUPS];
    if (place == s->task.kv.n_computed) {
        return; /* always so with recurrent states */
    }
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        pairs[g] = (kv_move_pair){.src = {kv_seq_slot(&e->kv, &s->task.kv, g, place)},
                                  .dst = {kv_seq_slot(&e->kv, &s->task.kv, g, s->task.kv.n_computed)},
                                  .group = g};
    }
    e->b->ops->kv_move(e->b, pairs, s->task.kv.n_tables);
}

static void note_guess(engine *e, const draft_outcome *o) {
    e->guessed = e->guessed * GUESSES_KEPT + (float)o->n;
    e->guessed_right = e->guessed_right * GUESSES_KEPT + (float)o->n_accepted;
}

/* Adapts the draft length to the outcome, and counts it. s may have ended already. */
static void draft_step_report(engine *e, sequence *s, const draft_outcome *o) {
    quire_stats *st = &e->stats;
    explain_drafted(s, o->n_accepted, o->is_jump_forward);
    if (o->is_jump_forward) {
        st->jump_forward_tokens += o->n_accepted;
        return;
    }
    st->drafts++;
    st->draft_tokens += o->n;
    st->draft_accepted += o->n_accepted;
    for (int32_t i = 0; i < o->n_accepted; i++) {
        st->draft_accepted_at[i]++;
    }
    /* the drafter did not make the other drafts */
    bool is_drafters = !s->draft.is_guess && !s->draft.is_predicted;
    s->draft.n_agreed += is_drafters ? o->n_first : 0;
    if (!e->options.ablations.fixed_draft_length) {
        draft_adapt(&s->draft, s->draft.is_predicted ? &e->predicting : &e->options.draft, o);
        if (s->draft.is_guess) {
            note_guess(e, o);
        }
    }
}

/* Commits a jump-forward token. */
static void draft_step_take_forced(engine *e, sequence *s, int32_t token) {
    sample_result r = {.token = token};
    end_kind end;
    if (!step_take_sampled(s, &r, &end)) {
        r.error = sample_accept(&s->context, token);
        end = end_token_kind(&s->sampling, e->desc, token);
    }
    if (r.error == QUIRE_OK) {
        step_commit(e, s, token, end);
    } else {
        step_finish(e, s, FINISH_ERROR, r.error == QUIRE_INVALID ? QUIRE_INTERNAL : r.error);
    }
}

/* Whether the next token can be taken: it was already sampled, or its mask is ready or
 * can be made now. Otherwise the rest of the draft is dropped. */
static bool draft_step_goes_on(sequence *s) {
    return s->n_line > 0 || rule_step_prepare(s);
}

/* Counts the accepted drafts of the prediction among s's tokens from `first` on. */
static void count_predicted(sequence *s, int32_t first, const draft_outcome *o) {
    bool is = s->draft.is_predicted;
    prediction_count(s->draft.prediction, is ? o->n : 0, is ? o->n_accepted : 0, s->task.n_known - first,
                     s->predicted + (first - s->task.n_prompt));
}

void draft_step_verify(engine *e, int32_t item, int32_t out) {
    sequence *s = planned_at(e, item);
    const int32_t first = s->task.n_known;
    /* place: index of the first draft in the tables */
    const int32_t n = e->sched.plan.items[item].n_drafts, place = s->task.kv.n_computed;
    const int32_t row = e->step.batch_seqs[item].row0 + e->sched.plan.items[item].n_rows - n;
    verify_walk w = verify_begin(&s->draft, n, n > 0 && draft_by_rejection(&e->options.draft, &s->sampling));
    for (;;) {
        int32_t known = s->task.n_known, behind = verify_row(&w, out);
        if (behind < 0) {
            draft_step_take_forced(e, s, s->draft.tree.tokens[w.at + 1]);
        } else {
            step_sample(e, s, e->b->ops->logits(e->b, behind), &w);
        }
        bool is_over =
            n == 0 || s->task.n_known == known || (s->task.state != TASK_DONE && !draft_step_goes_on(s));
        if (is_over || !verify_advance(&w, s->task.tokens[known]) || s->task.state == TASK_DONE) {
            break;
        }
        draft_step_take_place(e, s, place + w.at);
        kv_seq_advance(&s->task.kv, 1);
        quire_err checked = step_check_rows(e, s, row + w.at, 1, verify_row(&w, out));
        if (checked != QUIRE_OK) {
            step_finish(e, s, FINISH_ERROR, checked);
            break;
        }
        cache_publish(e, s);
        kv_seq_forget(&e->kv, &s->task.kv);
    }
    if (s->predicted != NULL) {
        count_predicted(s, first, &w.outcome);
    }
    if (n == 0) {
        return; /* the tables hold exactly what was computed */
    }
    draft_step_report(e, s, &w.outcome);
    if (s->task.state != TASK_DONE) {
        kv_seq_trim(&e->kv, &s->task.kv);
    }
}

static void draft_step_forget(engine *e, sequence *s, bool over) {
    s->draft.tree.n = s->draft.n_jump_forward = 0;
    s->draft.n_known = s->task.n_known;
    if (e->drafter && e->drafter->ops->forget) {
        e->drafter->ops->forget(e->drafter, &s->draft, over);
    }
}

void draft_step_preempted(engine *e, sequence *s) {
    draft_step_forget(e, s, false);
}

void draft_step_ended(engine *e, sequence *s) {
    draft_step_forget(e, s, true);
}
