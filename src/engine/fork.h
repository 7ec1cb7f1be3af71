/* Samples of one prompt: a fork parent computes the prompt, and its children share its
 * pages.
 *
 * The first sample of a request is the fork parent. It alone waits, is admitted and
 * computes the prompt. The children are chained to it by next_child, in no list and
 * without pages. When the parent's prompt is computed, every child forks: it shares all
 * of the parent's pages, samples its own first token from the same logits with its own
 * noise, and then runs on its own. A page that several sequences write into is copied by
 * all but the last (kv/table.h). So a prompt is computed once and its pages are held
 * once, with or without the prefix cache. When a parent ends before that, its first child
 * becomes the fork parent. All by the engine thread. */
#ifndef ENGINE_FORK_H
#define ENGINE_FORK_H

#include "engine/state.h"

/* Forks every child of parent, whose prompt is computed and whose last row is logits,
 * which stays unchanged. A child starts to run, or waits on its own if no place to run is
 * left. */
void fork_children(engine *e, sequence *parent, const float *logits);
/* Call when s is admitted. If s has sampled nothing after its given tokens, and a park
 * holds exactly these tokens and the logits after them, s shares all pages and samples
 * from these logits: no row of its prompt is computed. s may end by this. Does nothing
 * if s has children, for which there may be no places. */
void fork_answer(engine *e, sequence *s);
/* Makes every child wait on its own, without sharing. */
void fork_split(engine *e, sequence *parent);
/* Shares all that parent has computed with s, another sequence of the same request, which
 * has no pages and belongs to no namespace. */
void fork_share(engine *e, const sequence *parent, sequence *s);
/* Makes the first child the fork parent of the others, and lets it wait to be admitted.
 * parent ends. */
void fork_hand_on(engine *e, sequence *parent);

#endif
