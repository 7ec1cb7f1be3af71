#include "spec/draft_constrain.h"

#include <string.h>

void draft_constrain(draft_seq *s, uint8_t *states) {
    draft_tree kept = {0};
    int32_t to[DRAFT_MAX]; /* a node's number in `kept`; DRAFT_ROOT: it is dropped */
    for (int32_t i = 0; i < s->tree.n; i++) {
        int32_t parent = s->tree.parents[i], at = parent == DRAFT_ROOT ? DRAFT_ROOT : to[parent];
        sample_context c = *s->context;
        c.rule = NULL; /* which is of its own state */
        const void *before =
            at == DRAFT_ROOT ? c.constraint_state : states + (size_t)at * CONSTRAINT_MAX_STATE_BYTES;
        to[i] = DRAFT_ROOT;
        if (parent != DRAFT_ROOT && at == DRAFT_ROOT) {
            continue;
        }
        c.constraint_state = states + (size_t)kept.n * CONSTRAINT_MAX_STATE_BYTES;
        memcpy(c.constraint_state, before, c.constraint->state_bytes);
        if (sample_accept(&c, s->tree.tokens[i]) == QUIRE_OK) {
            to[i] = draft_tree_add(&kept, at, s->tree.tokens[i]);
        }
    }
    s->tree = kept;
}
