/* Removes the drafts that a sequence's constraint forbids (sample/constraint.h). */
#ifndef SPEC_DRAFT_CONSTRAIN_H
#define SPEC_DRAFT_CONSTRAIN_H

#include "spec/draft.h"

/* Drops those nodes of s's tree that its constraint forbids after the tokens before them,
 * with all below them. A branch of first children that was drawn under the constraint
 * stays as it is. states: [DRAFT_MAX][CONSTRAINT_MAX_STATE_BYTES] scratch memory, aligned
 * as for any object: the state after each node. O(nodes) */
void draft_constrain(draft_seq *s, uint8_t *states);

#endif
