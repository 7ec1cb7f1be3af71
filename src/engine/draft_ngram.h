/* Prompt lookup: what followed the last time that the sequence ended as it ends now. It looks for the longest suffix of lookup_min..lookup_max tokens that
 * stands earlier in the sequence, the latest place among equally long ones, and guesses that what follows there comes again. A repetition shorter than the
 * guess is gone round. Keeps nothing. Source: Saxena 2023, "Prompt Lookup Decoding". */
#ifndef ENGINE_DRAFT_NGRAM_H
#define ENGINE_DRAFT_NGRAM_H

#include "engine/draft.h"

quire_err draft_ngram_open(const draft_options *o, drafter **out);

/* Guesses up to `wanted` tokens behind tokens[0..n), into tokens[n..); returns how many: `wanted` or 0. 1 <= lookup_min <= lookup_max. Pure.
 * O(n lookup_max) at worst. */
int32_t draft_ngram(int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max, int32_t wanted);

#endif
