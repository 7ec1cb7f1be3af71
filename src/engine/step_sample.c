#include "engine/step_sample.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/float_bits.h"
#include "engine/branch.h"

static void step_sample_run_tasks(void *threads, thread_pool_fn fn, void *context, int32_t n_tasks) {
    backend *b = threads;
    b->ops->run_tasks(b, fn, context, n_tasks);
}

quire_err step_sample_open(engine *e) {
    assert(e != NULL);
    const backend_ops *ops = e->b->ops;
    int32_t n_workers = ops->run_tasks != NULL ? ops->n_workers(e->b) : 1;
    return sample_pool_open(e->desc->n_vocab, e->options.max_model_len, n_workers, step_sample_run_tasks,
                            e->b, &e->samples);
}

sample_context step_sample_context(const sequence *s) {
    sample_context c = s->context;
    c.n_tokens = s->task.n_known;
    return c;
}

void step_sample_row(engine *e, sequence *s, int32_t worker, sample_row *row, const verify_walk *w) {
    size_t n_vocab = (size_t)e->desc->n_vocab, k = (size_t)(row->context.n_tokens - s->task.n_prompt);
    float *raw = e->step.raw + n_vocab * (size_t)worker;
    branch_note_mirostat(s, row->context.n_tokens);
    if (s->logprobs != NULL) {
        memcpy(raw, row->logits, n_vocab * sizeof *raw);
    }
    if (w != NULL && verify_is_judged(w)) {
        verify_judge(w, &e->samples, row);
    } else {
        sample_on(&e->samples, worker, row);
    }
    if (s->logprobs != NULL && row->result->error == QUIRE_OK && row->result->token >= 0) {
        logprobs_report(raw, e->desc->n_vocab, row->result->token, &s->sampling, s->logprobs_width,
                        s->logprobs + k * (size_t)s->logprobs_width);
    }
}

bool step_take_sampled(sequence *s, sample_result *result, end_kind *end) {
    if (s->n_line == 0) {
        return false;
    }
    *result = *s->line++;
    s->n_line--;
    *end = s->n_line == 0 ? (end_kind)s->line_end : END_NONE;
    return true;
}

void step_sample(engine *e, sequence *s, float *logits, const verify_walk *w) {
    sample_result result = NOT_SAMPLED;
    end_kind end;
    if (!step_take_sampled(s, &result, &end)) {
        int64_t start_ns = clock_ns();
        sample_row row = {.logits = logits, .context = step_sample_context(s), .result = &result};
        step_sample_row(e, s, 0, &row, w);
        e->profile.sample_ns += clock_ns() - start_ns;
        end = end_token_kind(&s->sampling, e->desc, result.token);
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
    step_commit(e, s, result.token, end);
}

bool step_rows_are_finite(engine *e, int32_t worker, int32_t row0, int32_t n) {
    assert(e != NULL);
    float *hidden = e->step.hidden + (size_t)e->desc->d_model * (size_t)worker;
    bool finite = true;
    for (int32_t i = 0; i < n && finite; i++) {
        e->b->ops->buffer_read(e->b, model_hidden(e->m), row0 + i, 1, hidden);
        finite = finite_from(hidden, e->desc->d_model, -FLT_MAX);
    }
    return finite;
}

bool step_logits_are_finite(const engine *e, const float *logits) {
    return finite_from(logits, e->desc->n_vocab, -INFINITY);
}

bool step_may_publish(const engine *e, const sequence *s, int32_t n) {
    return s->task.kv.has_path &&
           (s->task.kv.n_computed + n) / e->layout.page_tokens > s->task.kv.path.n_pages;
}

quire_err step_check_rows(engine *e, const sequence *s, int32_t row0, int32_t n, int32_t out) {
    assert(s != NULL);
    const atomic_uint *faults = s->mods != NULL ? e->step.rows.faults : NULL;
    for (int32_t i = 0; i < n && faults != NULL; i++) {
        if (atomic_load(&faults[row0 + i]) != 0) {
            return QUIRE_FAULT;
        }
    }
    bool finite = s->is_checked || step_rows_are_finite(e, 0, row0, n);
    if (finite && !s->is_checked && out >= 0 && step_may_publish(e, s, 0)) {
        finite = step_logits_are_finite(e, e->b->ops->logits(e->b, out));
    }
    return finite ? QUIRE_OK : QUIRE_NUMERIC;
}
