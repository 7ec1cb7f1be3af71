/* Suffix drafts: guesses what most often followed the longest suffix of the sequence that
 * occurred before, in the sequence itself or in recent outputs of its namespace (prefixes
 * are shared within a namespace only, and so are these). It takes the guess with the
 * larger expected number of right tokens.
 *
 * Memory is bounded: one suffix tree of SUFFIX_NODES nodes, the last SUFFIX_OWN tokens of
 * each prompt, and the last outputs that fit into SUFFIX_TEXTS tokens. When nodes run out
 * the oldest outputs are dropped; a sequence that still finds none has no tree of its
 * own. A step indexes at most SUFFIX_WORK tokens; a long prompt gives no guesses until it
 * is indexed. Source: Oliaro et al. 2024, "SuffixDecoding". */
#ifndef SPEC_DRAFT_SUFFIX_H
#define SPEC_DRAFT_SUFFIX_H

#include "spec/draft.h"

#define SUFFIX_NODES (1 << 19)
#define SUFFIX_OWN   8192
#define SUFFIX_TEXTS (1 << 16)
#define SUFFIX_WORK  2048

quire_err draft_suffix_open(const draft_options *o, drafter **out);

#endif
