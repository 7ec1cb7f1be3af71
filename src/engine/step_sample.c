#include "engine/step_sample.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/finite.h"
#include "engine/branch.h"

static void run_tasks(void *threads, thread_pool_fn fn, void *context, int32_t n_tasks) {
    backend *b = threads;
    b->ops->run_tasks(b, fn, context, n_tasks);
}

quire_err step_sample_open(engine *e) {
    const backend_ops *ops = e->b->ops;
    int32_t n_workers = ops->run_tasks != NULL ? ops->n_workers(e->b) : 1;
    return sample_pool_open(e->desc->n_vocab, e->options.max_model_len, n_workers, run_tasks, e->b, &e->samples);
}

sample_context step_sample_context(const sequence *s) {
    sample_context c = s->context;
    c.n_tokens = s->task.n_known;
    return c;
}

/* Whether the item's one sample is from one row of logits that nothing else uses. */
static bool is_plain(const engine *e, int32_t item) {
    const sequence *s = planned_at(e, item);
    const sched_item *it = &e->sched.plan.items[item];
    bool reaches_end = s->task.kv.n_computed + it->n_rows == s->task.n_known;
    bool has_row = reaches_end && s->draft.n_jump_forward == 0 && s->pooling == NULL; /* behind the last known token */
    return has_row && it->n_drafts == 0 && s->task.state != TASK_DONE && s->beams == NULL && s->next_child == NULL && s->logprobs == NULL &&
           !task_wants_logits(&s->task) && s->sampling.mirostat == MIROSTAT_OFF;
}

/* The argmax that the backend has noted, where nothing but a constraint could change it; -1: there is none. */
static int32_t find_argmax(const engine *e, const sequence *s, int32_t out) {
    bool takes = e->b->ops->argmax != NULL && sampler_takes_argmax(&s->sampling, s->task.n_known - s->task.n_prompt);
    return takes ? e->b->ops->argmax(e->b, out) : -1;
}

void step_sample_plain(engine *e) {
    step_arrays *a = &e->step;
    int32_t n = 0;
    for (int32_t i = 0; i < e->sched.plan.n_items; i++) {
        sequence *s = planned_at(e, i);
        assert(s->sampled.token < 0);
        if (!is_plain(e, i)) {
            continue;
        }
        int32_t argmax = find_argmax(e, s, a->out0[i]);
        if (argmax >= 0 && s->constraint == NULL) {
            s->sampled.token = argmax;
        } else {
            a->plain[n++] = (sample_row){.logits = e->b->ops->logits(e->b, a->out0[i]),
                                         .context = step_sample_context(s),
                                         .result = &s->sampled,
                                         .knows_argmax = argmax >= 0,
                                         .argmax = argmax};
        }
    }
    sample_batch(&e->samples, a->plain, n);
}

/* What was sampled for s already, if anything. */
static sample_result take_sampled(sequence *s) {
    sample_result result = s->sampled;
    s->sampled = NOT_SAMPLED;
    if (s->n_line > 0) {
        result = *s->line++;
        s->n_line--;
    }
    return result;
}

void step_sample(engine *e, sequence *s, float *logits, const verify_walk *w) {
    sample_result result = take_sampled(s);
    branch_note_mirostat(s);
    if (s->logprobs) {
        memcpy(e->step.raw, logits, (size_t)e->desc->n_vocab * sizeof *logits);
    }
    if (result.token == NOT_SAMPLED.token && result.error == QUIRE_OK) {
        int64_t start_ns = clock_ns();
        sample_row row = {.logits = logits, .context = step_sample_context(s), .result = &result};
        if (w != NULL && verify_is_judged(w)) {
            verify_judge(w, &e->samples, &row);
        } else {
            sample_batch(&e->samples, &row, 1);
        }
        e->profile.sample_ns += clock_ns() - start_ns;
    }
    if (result.error != QUIRE_OK) {
        step_finish(e, s, FINISH_ERROR, result.error);
        return;
    }
    if (result.token == SAMPLE_OVER) {
        s->stopped_by_eos = true;
        step_finish(e, s, FINISH_STOP, QUIRE_OK);
        return;
    }
    if (s->logprobs) {
        logprobs_report(e->step.raw, e->desc->n_vocab, result.token, s->logprobs_width,
                        s->logprobs + (size_t)(s->task.n_known - s->task.n_prompt) * (size_t)s->logprobs_width);
    }
    step_commit(e, s, result.token);
}

quire_err step_check_rows(engine *e, const sequence *s, int32_t row0, int32_t n, int32_t out) {
    float *hidden = e->step.hidden;
    const atomic_uint *faults = s->mods != NULL ? e->step.rows.faults : NULL;
    for (int32_t i = 0; i < n && faults != NULL; i++) {
        if (atomic_load(&faults[row0 + i]) != 0) {
            return QUIRE_FAULT;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        e->b->ops->buffer_read(e->b, model_hidden(e->m), row0 + i, 1, hidden);
        if (!finite_from(hidden, e->desc->d_model, -FLT_MAX)) {
            return QUIRE_NUMERIC;
        }
    }
    bool publishes = s->task.kv.has_path && s->task.kv.n_computed / e->layout.page_tokens > s->task.kv.path.n_pages;
    bool finite = !publishes || out < 0 || finite_from(e->b->ops->logits(e->b, out), e->desc->n_vocab, -INFINITY);
    return finite ? QUIRE_OK : QUIRE_NUMERIC;
}
