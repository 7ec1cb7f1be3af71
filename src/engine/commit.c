/* What becomes of a sampled token: it is appended, published, and may end its sequence. */
#include <string.h>

#include "base/clock.h"
#include "engine/batch_sample.h"
#include "engine/beam.h"
#include "engine/branch.h"
#include "engine/features.h"
#include "engine/output.h"
#include "engine/verify.h"
#include "sample/end_tokens.h"

void step_finish(engine *e, sequence *s, finish_reason reason, quire_err error) {
    if (s->beams != NULL) {
        beam_finish(e, s->beams, reason, error);
        return;
    }
    s->ended_us = clock_us();
    event_ended(e, s);
    kv_seq_release(&e->kv, &s->task.kv, s->task.tokens, reason == FINISH_ERROR ? KV_DROP : KV_KEEP);
    kv_seq_close(&e->kv, &s->task.kv);
    s->task.state = TASK_DONE;
    s->error = error;
    out_publish(s, reason);
}

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
    s->task.state = TASK_DECODE;
    event_token(e, s, e->step.collected_us);
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

void step_keep_row(const engine *e, sequence *s, int32_t p, const float *logits) {
    size_t n = (size_t)e->desc->n_vocab;
    if (s->logits_out) {
        memcpy(s->logits_out + (size_t)p * n, logits, n * sizeof *logits);
    }
    if (s->prompt_logprobs && p + 1 < s->task.n_prompt) {
        report(e, logits, s->task.tokens[p + 1], s->prompt_logprobs_width,
               s->prompt_logprobs + (size_t)p * (size_t)s->prompt_logprobs_width);
    }
}
