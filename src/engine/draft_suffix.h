/* Suffix drafts: what most often followed the longest end of the sequence that occurred before, in the sequence itself or in recent outputs
 * of its namespace (prefixes are shared within a namespace only, and so are these). Of the two guesses it takes the one that is expected to
 * be longer right.
 *
 * Memory is bounded: one suffix tree of SUFFIX_NODES nodes, of a sequence's prompt the last SUFFIX_OWN tokens, and the last outputs that
 * fit into SUFFIX_TEXTS tokens. When nodes run out the oldest outputs go; a sequence that finds none even so does without a tree of its
 * own. A step indexes at most SUFFIX_WORK tokens: a long prompt is not guessed from until it is in. Source: Oliaro et al. 2024,
 * "SuffixDecoding". */
#ifndef ENGINE_DRAFT_SUFFIX_H
#define ENGINE_DRAFT_SUFFIX_H

#include "engine/draft.h"

#define SUFFIX_NODES (1 << 19)
#define SUFFIX_OWN   8192
#define SUFFIX_TEXTS (1 << 16)
#define SUFFIX_WORK  2048

quire_err draft_suffix_open(const draft_options *o, drafter **out);

#endif
