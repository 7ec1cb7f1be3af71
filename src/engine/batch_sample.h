/* Samples a step's plain sequences, those with one row of logits each, on all threads of the backend at once.
 *
 * The tokens are sampled first and then committed one after the other. The engine thread samples alone where there are too few logits to
 * wake the workers for. A greedy row that no option changes takes the argmax that the backend has noted, if it has. A sample depends on its
 * row, history and key only, so the number of threads changes no token. The engine thread calls all functions. */
#ifndef ENGINE_BATCH_SAMPLE_H
#define ENGINE_BATCH_SAMPLE_H

#include "engine/state.h"

/* Opens a sampler for each thread of the backend. */
quire_err batch_sample_open(engine *e);
void batch_sample_close(engine *e);

/* Samples the plain items of the step. Call it after the forward pass, before anything is committed. */
void batch_sample_items(engine *e);
/* Takes the token that batch_sample_items sampled for s in this step, with its error. False: there is none. */
bool batch_sample_take(sequence *s, int32_t *token, quire_err *err);
/* The context with which the next token of s is sampled. */
sample_context batch_sample_context(const engine *e, sequence *s);

#endif
