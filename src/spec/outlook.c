#include "spec/outlook.h"

#include "spec/jump_forward.h"

static int32_t outlook_min_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

void outlook_find(draft_seq *s, const model_desc *d, int32_t n_known, int32_t most,
                  const guess_worth *worth) {
    draft_outlook *o = &s->outlook;
    o->n_known = n_known;
    o->tree.n = 0;
    most = outlook_min_i32(most, DRAFT_MAX);
    o->is_forced = !s->samples_each && jump_forward_propose(s->context, d, most, &o->tree);
    if (!o->is_forced) {
        draft_guess(s, most, worth, &o->tree);
    }
}

bool outlook_propose(draft_seq *s, const model_desc *d, int32_t most, const guess_worth *worth) {
    const draft_outlook *o = &s->outlook;
    if (s->context->constraint == NULL) {
        return false;
    }
    if (o->n_known != s->n_known) {
        outlook_find(s, d, s->n_known, most, worth);
    }
    if (o->tree.n == 0) {
        return false;
    }
    s->tree = o->tree;
    s->is_guess = !o->is_forced;
    s->n_jump_forward = o->is_forced ? s->tree.n : 0;
    return true;
}
