/* Picks made ahead: of the sequences that a step ends with one plain row of logits each, the next tokens are chosen by all threads of the
 * backend at once (by this one, where there are too few logits to wake them for), before they are committed one after the other. Greedy
 * ones whose row nothing changes need no choosing where the backend has noted each row's largest logit. A pick depends on its row, history
 * and key only, so nothing else changes. The engine thread. */
#ifndef ENGINE_BATCH_SAMPLE_H
#define ENGINE_BATCH_SAMPLE_H

#include "engine/state.h"

/* A sampler for each thread of the backend. */
quire_err batch_sample_open(engine *e);
void batch_sample_close(engine *e);

/* After the forward pass, before anything is committed. */
void batch_sample_items(engine *e);
/* The pick that was made for s in this step, with its error; false: none was. */
bool batch_sample_take(sequence *s, int32_t *token, quire_err *err);
/* What the next choice of s is made with. */
sample_context batch_sample_context(const engine *e, sequence *s);

#endif
