#include "spec/draft.h"

#include <string.h>

#define MAX_PAUSES 5 /* doublings of a pause: 1, 2, 4, 8, 16 steps */

static int32_t draft_min_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

int32_t draft_max_out(const draft_options *o, int32_t max_seqs, int32_t max_rows) {
    int64_t n = (int64_t)max_seqs * (1 + o->n_tokens) + (o->n_tokens > 0 ? 0 : DRAFT_PREDICTED);
    return n <= max_rows ? (int32_t)n : max_rows > max_seqs ? max_rows : max_seqs;
}

bool draft_by_rejection(const draft_options *o, const sampling_params *p) {
    return o->rule == DRAFT_RULE_STANDARD && p->mirostat == MIROSTAT_OFF;
}

quire_err draft_open(const draft_options *o, const draft_target *t, drafter **out, quire_error *err) {
    *out = NULL;
    if (o->method == DRAFT_METHOD_NONE) {
        return QUIRE_OK;
    }
    if (o->tree_width < 0 || o->tree_width > DRAFT_MAX_WIDTH) {
        return err_set(err, QUIRE_INVALID, -1, "draft trees of width %d: must be from 1 to %d",
                       (int)o->tree_width, DRAFT_MAX_WIDTH);
    }
    if (o->n_tokens < 1 || o->n_tokens > DRAFT_MAX) {
        return err_set(err, QUIRE_INVALID, -1, "%d speculative tokens: must be from 1 to %d",
                       (int)o->n_tokens, DRAFT_MAX);
    }
    switch (o->method) {
    case DRAFT_METHOD_MODEL:
        return draft_model_open(o, t, out, err);
    case DRAFT_METHOD_SUFFIX:
        return draft_suffix_open(o, out);
    default:
        return draft_ngram_open(o, out);
    }
}

/* As deep as s's length, and as many nodes as its branches take. */
bool draft_want(draft_seq *s, const draft_options *o, int32_t room) {
    int32_t width = o->tree_width > 1 ? o->tree_width : 1;
    if (s->pause > 0) {
        s->pause--;
        return false;
    }
    s->length = s->length == 0 ? o->n_tokens : s->length;
    s->wanted = (draft_bounds){.nodes = draft_min_i32(room, draft_min_i32(o->n_tokens, s->length * width)),
                               .depth = draft_min_i32(room, s->length),
                               .width = width};
    return true;
}

#define FIRST_GUESS 0.9f /* draft_seq.guess_first of a new sequence, */
#define FIRST_LEAST 0.1f /* and its bounds */
#define FIRST_MOST  0.98f
#define FIRST_PACE  0.125f /* part of it that a token changes */
/* its value for texts spelt at random, which often have only one spelling */
#define FIRST_ALONE 0.45f

/* guess_bounds.first of s. */
static float surely_first(const draft_seq *s) {
    float first = s->guess_first > 0.0f ? s->guess_first : FIRST_GUESS;
    return first > FIRST_ALONE ? (first - FIRST_ALONE) / (1.0f - FIRST_ALONE) : 0.0f;
}

void draft_guess(const draft_seq *s, int32_t most, const guess_worth *worth, draft_tree *out) {
    const constraint *k = s->context->constraint;
    int32_t ids[CONSTRAINT_MAX_GUESSES], parents[CONSTRAINT_MAX_GUESSES];
    const guess_bounds bounds = {draft_min_i32(most, DRAFT_MAX), surely_first(s), worth->least, worth->row};
    int32_t n =
        k->ops->guess != NULL ? k->ops->guess(k, s->context->constraint_state, &bounds, ids, parents) : 0;
    for (int32_t i = 0; i < n; i++) {
        draft_tree_add(out, parents[i], ids[i]);
    }
    draft_tree_sort(out);
}

/* The first branch was followed so far, and left unless it ended there. */
static void adapt_guess(draft_seq *s, const draft_outcome *result) {
    float first = s->guess_first > 0.0f ? s->guess_first : FIRST_GUESS;
    for (int32_t i = 0; i < result->n_first; i++) {
        first += FIRST_PACE * (1.0f - first);
    }
    if (!result->to_end || result->n_first < result->n_accepted) {
        first -= FIRST_PACE * first;
    }
    s->guess_first = first < FIRST_LEAST ? FIRST_LEAST : first > FIRST_MOST ? FIRST_MOST : first;
}

void draft_adapt(draft_seq *s, const draft_options *o, const draft_outcome *result) {
    if (s->is_guess) {
        adapt_guess(s, result);
        return;
    }
    if (result->n_accepted > 0) {
        s->n_misses = s->n_pauses = 0;
        s->length = draft_min_i32(o->n_tokens, result->to_end ? 2 * s->length : result->n_accepted + 1);
        return;
    }
    s->length = 1;
    s->n_misses++;
    if (s->n_misses >= DRAFT_PATIENCE) {
        s->pause = 1 << s->n_pauses;
        s->n_pauses = draft_min_i32(s->n_pauses + 1, MAX_PAUSES - 1);
    }
}

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
