/* Samples of one prompt: a fork parent computes the prompt, and its children share its
 * pages.
 *
 * The first sample of a request is the fork parent. It alone waits, is admitted and
 * computes the prompt. The children are chained to it by next_child, in no list and
 * without pages. When the parent's prompt is computed, every child forks: it shares all
 * of the parent's pages, samples its own first token from the same logits with its own
 * noise, and then runs on its own. A page that several sequences write into is copied by
 * all but the last (kv/table.h). So a prompt is computed once and its pages are held
 * once, with or without the prefix cache. If the parent ends before its children fork,
 * its first child becomes the fork parent. The engine thread makes all calls. */
#ifndef ENGINE_FORK_H
#define ENGINE_FORK_H

#include "engine/state.h"

/* Forks every child of parent, whose prompt is computed. logits: the row after the
 * prompt, not changed. A child runs or, if no place is free, waits on its own. */
void fork_children(engine *e, sequence *parent, const float *logits);
/* Call when s is admitted. If s has sampled nothing yet, and a park holds exactly its
 * given tokens and the logits after them, s shares all pages of the park and samples from
 * these logits, so no row of its prompt is computed. s may end in this call. Does nothing
 * if s has children, since there may be no places for them. */
void fork_answer(engine *e, sequence *s);
/* Makes every child of parent wait on its own and share nothing. */
void fork_split(engine *e, sequence *parent);
/* Shares with s all pages that parent has computed. s belongs to the same request and has
 * neither pages nor a namespace. */
void fork_share(engine *e, const sequence *parent, sequence *s);
/* Makes the first child the fork parent of the others, and adds it to the waiting list.
 * parent is about to end. */
void fork_hand_on(engine *e, sequence *parent);

#endif
