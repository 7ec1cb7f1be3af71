/* What becomes of a sampled token: it is appended, published, and may end its sequence. */
#include <string.h>

#include "base/clock.h"
#include "engine/beam.h"
#include "engine/features.h"
#include "engine/output.h"
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

void step_keep_row(const engine *e, sequence *s, int32_t p, const float *logits) {
    size_t n = (size_t)e->desc->n_vocab;
    if (s->logits_out) {
        memcpy(s->logits_out + (size_t)p * n, logits, n * sizeof *logits);
    }
    if (s->prompt_logprobs && p + 1 < s->task.n_prompt) {
        logprobs_report(logits, e->desc->n_vocab, s->task.tokens[p + 1], s->prompt_logprobs_width,
                        s->prompt_logprobs + (size_t)p * (size_t)s->prompt_logprobs_width);
    }
}
