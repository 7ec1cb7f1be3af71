/* What is not a number never reaches the prefix cache: one look at what a step computed for a sequence, before any of it is published. A
 * sequence that fails it ends with QUIRE_NUMERIC and its pages are dropped; rows of others are not touched by it (docs/design.md,
 * Determinism). The engine thread. */
#ifndef ENGINE_FINITE_H
#define ENGINE_FINITE_H

#include "engine/state.h"

/* Whether the last hidden states of rows row0..row0+n of the batch, which are s's and counted in n_computed, are made of numbers; and,
 * where whole pages of s are about to be published, so is row `out` of the logits (-1: none is looked at). O(n d_model), and O(n_vocab)
 * once a page. */
bool finite_rows(engine *e, const sequence *s, int32_t row0, int32_t n, int32_t out);

#endif
