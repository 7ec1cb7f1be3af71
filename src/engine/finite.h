/* Checks that what a step computed for a sequence is finite, before any of it is published: NaN and infinity never reach the prefix cache.
 * A sequence that fails ends with QUIRE_NUMERIC and its pages are dropped. Rows of other sequences are not affected (docs/design.md,
 * Determinism). The engine thread. */
#ifndef ENGINE_FINITE_H
#define ENGINE_FINITE_H

#include "engine/state.h"

/* Whether the last hidden states of rows row0..row0+n of the batch are finite. The rows are s's and counted in n_computed. Where whole
 * pages of s are about to be published, row `out` of the logits is checked too, in which -inf is allowed since it masks tokens (out -1: no
 * row). O(n d_model), and O(n_vocab) once a page. */
bool finite_rows(engine *e, const sequence *s, int32_t row0, int32_t n, int32_t out);

#endif
