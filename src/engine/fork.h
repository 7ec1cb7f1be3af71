/* Samples of one prompt. The first of a group leads: it alone waits, is admitted and computes the prompt; the others hang on it, in no list
 * and without pages. When the parent's prompt is computed, every other forks: it shares all of the parent's pages, chooses its own first
 * token from the same logits with its own noise, and runs from then on by itself. A page that several write into is copied by all but the
 * last (kv/table.h). So a prompt is computed once and its pages are held once, with or without the prefix cache. A parent that ends before
 * hands the lead on. All by the engine thread. */
#ifndef ENGINE_FORK_H
#define ENGINE_FORK_H

#include "engine/state.h"

/* The parent's prompt is computed and logits is its last row, which stays as it is: every child forks and starts to run, or waits by itself
 * where no place to run is left. choose picks a child's first token from a row that it may change. */
void fork_children(engine *e, sequence *parent, const float *logits, void (*choose)(engine *e, sequence *s, float *logits));
/* Every child waits by itself: without sharing. */
void fork_split(engine *e, sequence *parent);
/* s, which has no pages and stands in no namespace, takes part in all that another sequence of the same request has computed. */
void fork_share(engine *e, const sequence *parent, sequence *s);
/* The parent ends: its first child leads the others, and waits to be admitted. */
void fork_hand_on(engine *e, sequence *parent);

#endif
