/* After a step's forward pass: checks that its results are finite, and samples tokens
 * from the logits. The engine thread. */
#ifndef ENGINE_STEP_SAMPLE_H
#define ENGINE_STEP_SAMPLE_H

#include "engine/state.h"

/* Opens e->samples, with a sampler for each thread of the backend. */
quire_err step_sample_open(engine *e);

/* Samples the token of s after row->context.n_tokens from `row` and sets the row's
 * result. Stores the mirostat state before the token, for branches, and log-probabilities
 * if requested. w: the walk down the drafts of s, or NULL. Runs on the backend's thread
 * `worker`; one thread at a time per sequence. */
void step_sample_row(engine *e, sequence *s, int32_t worker, sample_row *row, const verify_walk *w);
/* The context for sampling the next token of s. */
sample_context step_sample_context(const sequence *s);
/* Takes the next result of s's line (collect.c) and its token's kind. False: none
 * left. */
bool step_take_sampled(sequence *s, sample_result *result, end_kind *end);
/* Commits s's next token: the next of its line, or sampled from `logits`, which this
 * changes. s ends without a token if its constraint is complete and no token may follow
 * (SAMPLE_OVER). w: the walk down its drafts, or NULL. */
void step_sample(engine *e, sequence *s, float *logits, const verify_walk *w);

/* Whether the last hidden states of rows row0..row0+n of the batch are finite. Runs on
 * the backend's thread `worker`. O(n d_model). */
bool step_rows_are_finite(engine *e, int32_t worker, int32_t row0, int32_t n);
/* Whether a row of logits is finite; -inf is allowed, since it masks tokens. Any thread.
 * O(n_vocab). */
bool step_logits_are_finite(const engine *e, const float *logits);
/* Whether whole pages of s can be published once n more of its rows are computed. */
bool step_may_publish(const engine *e, const sequence *s, int32_t n);

/* Checks rows [row0, row0 + n) of the batch, which are s's and counted in n_computed.
 * QUIRE_FAULT: the attention program of s had a fault in one of them. QUIRE_NUMERIC: a
 * last hidden state is not finite, so NaN and infinity never reach the prefix cache. A
 * sequence that fails ends with the error and its pages are dropped; rows of others are
 * not affected (docs/design.md, Determinism). If whole pages of s are about to be
 * published, row `out` of the logits is checked too (out -1: no row). O(n) if the thread
 * of its line has checked them (is_checked), otherwise O(n d_model), plus O(n_vocab) once
 * a page. */
quire_err step_check_rows(engine *e, const sequence *s, int32_t row0, int32_t n, int32_t out);

#endif
