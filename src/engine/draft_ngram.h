/* Prompt lookup: what followed the last time that the sequence ended as it ends now. It looks for the longest suffix of
 * lookup_min..lookup_max tokens that stands earlier in the sequence, the latest place among equally long ones, and guesses that what
 * follows there comes again. A repetition shorter than the guess is gone round. Where branches are wanted, the places that come next and go
 * on with another token give one each: the first branch takes half of the tokens, the next half of what is left, the last all. Keeps
 * nothing. Source: Saxena 2023, "Prompt Lookup Decoding". */
#ifndef ENGINE_DRAFT_NGRAM_H
#define ENGINE_DRAFT_NGRAM_H

#include "engine/draft.h"

quire_err draft_ngram_open(const draft_options *o, drafter **out);

/* Guesses what comes behind tokens[0..n), into an empty tree: as many tokens as are wanted, or none. 1 <= lookup_min <= lookup_max. Pure.
 * O(n (lookup_max + width)) at worst. */
void draft_ngram(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max, const draft_bounds *wanted, draft_tree *out);

#endif
