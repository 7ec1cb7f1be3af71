#include "engine/batch_sample.h"

#include <assert.h>

#include "base/mem.h"

enum { WORTH_IT = 1 << 14 }; /* least logits in all: fewer are sampled faster than workers wake up */

quire_err batch_sample_open(engine *e) {
    const backend_ops *ops = e->b->ops;
    e->n_samplers = ops->run_tasks ? ops->n_workers(e->b) : 1;
    e->samplers = mem_new((size_t)e->n_samplers, sizeof *e->samplers);
    if (!e->samplers) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < e->n_samplers; i++) {
        TRY(sampler_open(e->desc->n_vocab, e->options.max_model_len, &e->samplers[i]));
    }
    e->sampler = e->samplers[0];
    return QUIRE_OK;
}

void batch_sample_close(engine *e) {
    for (int32_t i = 0; e->samplers && i < e->n_samplers; i++) {
        sampler_close(e->samplers[i]);
    }
    mem_free(e->samplers);
}

sample_context batch_sample_context(const engine *e, sequence *s) {
    return (sample_context){.params = &s->sampling,
                            .tokens = s->task.tokens,
                            .n_tokens = s->task.n_known,
                            .n_prompt = s->task.n_prompt,
                            .eos = e->desc->eos,
                            .n_eos = e->desc->n_eos,
                            .noise = s->sampling.temperature > 0.0f
                                         ? sample_noise_of((sample_key){s->sampling.seed, s->sample_index, (uint32_t)s->task.n_known})
                                         : (sample_noise){0}, /* greedy: nothing is drawn */
                            .mirostat_mu = &s->mirostat_mu};
}

/* Whether the item's one sample is from one row of logits that nothing else uses. */
static bool is_plain(const engine *e, int32_t item) {
    const sequence *s = planned_at(e, item);
    const sched_item *it = &e->sched.plan.items[item];
    bool reaches_end = s->task.kv.n_computed + it->n_rows == s->task.n_known;
    bool has_row = reaches_end && s->draft.n_jump_forward == 0; /* behind the last known token */
    return has_row && it->n_drafts == 0 && s->task.state != TASK_DONE && s->beams == NULL && s->next_child == NULL && s->logprobs == NULL &&
           !task_wants_logits(&s->task) && s->sampling.mirostat == MIROSTAT_OFF;
}

/* Takes the argmax that the backend has noted. False: sample from the logits. */
static bool take_argmax(const engine *e, sequence *s, int32_t out) {
    if (e->b->ops->argmax == NULL || !sampler_takes_argmax(&s->sampling, s->task.n_known - s->task.n_prompt)) {
        return false;
    }
    s->sampled = e->b->ops->argmax(e->b, out);
    s->sample_error = QUIRE_OK;
    s->is_sampled = s->sampled >= 0;
    return s->is_sampled;
}

static void sampled(void *context, int32_t task, int32_t worker) {
    engine *e = context;
    int32_t item = e->step.plain[task];
    sequence *s = planned_at(e, item);
    sample_context c = batch_sample_context(e, s);
    s->sample_error = sampler_sample(e->samplers[worker], e->b->ops->logits(e->b, e->step.out0[item]), &c, &s->sampled);
    s->is_sampled = true;
}

void batch_sample_items(engine *e) {
    int32_t n = 0;
    for (int32_t i = 0; i < e->sched.plan.n_items; i++) {
        assert(!planned_at(e, i)->is_sampled);
        if (is_plain(e, i) && !take_argmax(e, planned_at(e, i), e->step.out0[i])) {
            e->step.plain[n++] = i;
        }
    }
    if (e->n_samplers > 1 && n > 1 && (int64_t)n * e->desc->n_vocab >= WORTH_IT) {
        e->b->ops->run_tasks(e->b, sampled, e, n);
        return;
    }
    for (int32_t task = 0; task < n; task++) {
        sampled(e, task, 0);
    }
}

bool batch_sample_take(sequence *s, int32_t *token, quire_err *err) {
    bool was = s->is_sampled;
    *token = s->sampled;
    *err = s->sample_error;
    s->is_sampled = false;
    return was;
}
