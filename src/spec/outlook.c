#include "spec/outlook.h"

#include "spec/jump_forward.h"

static int32_t min_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* As many as the next draft may have, whatever becomes of the one under way: a success doubles them. */
static int32_t most_guesses(const draft_seq *s) {
    return s->guess_length == 0 ? DRAFT_MAX : min_i32(DRAFT_MAX, 2 * s->guess_length);
}

void outlook_find(draft_seq *s, const model_desc *d, int32_t n_known, int32_t most) {
    draft_outlook *o = &s->outlook;
    o->n_known = n_known;
    o->tree.n = 0;
    most = min_i32(most, DRAFT_MAX);
    o->is_forced = !s->samples_each && jump_forward_propose(s->context, d, most, &o->tree);
    if (!o->is_forced) {
        draft_guess(s->context, min_i32(most, most_guesses(s)), &o->tree);
    }
}

bool outlook_propose(draft_seq *s, const model_desc *d, int32_t most) {
    const draft_outlook *o = &s->outlook;
    if (s->context->constraint == NULL) {
        return false;
    }
    if (o->n_known != s->n_known) {
        outlook_find(s, d, s->n_known, most);
    }
    if (o->tree.n == 0) {
        return false;
    }
    s->tree = o->tree;
    s->is_guess = !o->is_forced;
    if (s->is_guess) {
        s->guess_length = s->guess_length == 0 ? DRAFT_MAX : s->guess_length;
        s->tree.n = min_i32(s->tree.n, s->guess_length);
    } else {
        s->n_jump_forward = s->tree.n;
    }
    return true;
}
