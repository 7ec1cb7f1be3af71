/* Prompt lookup: guesses what followed the last time that the sequence ended as it ends
 * now. It searches for the longest suffix of lookup_min..lookup_max tokens that occurs
 * earlier in the sequence, and takes the latest of equally long ones. The guess is what
 * follows there; a repetition shorter than the guess is repeated. Where branches are
 * wanted, the next matches that continue with another token give one branch each: the
 * first branch takes half of the tokens, the next half of what is left, the last all.
 * Keeps no state. Source: Saxena 2023, "Prompt Lookup Decoding". */
#ifndef SPEC_DRAFT_NGRAM_H
#define SPEC_DRAFT_NGRAM_H

#include "spec/draft.h"

quire_err draft_ngram_open(const draft_options *o, drafter **out);

/* Guesses the tokens after tokens[0..n) into an empty tree: as many as are wanted, or
 * none. 1 <= lookup_min <= lookup_max. Pure. O(n (lookup_max + width)) at worst. */
void draft_ngram(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max,
                 const draft_bounds *wanted, draft_tree *out);

#endif
