#include "engine/finite.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Values that are compared together. */
typedef float some_floats __attribute__((vector_size(16)));
typedef int32_t some_flags __attribute__((vector_size(16)));
enum { SOME = sizeof(some_floats) / sizeof(float) };

/* Whether every value is from `least` to the largest finite number; NaN is not. */
static bool are_from(const float *v, int32_t n, float least) {
    some_flags hold = {-1, -1, -1, -1};
    bool all = true;
    int32_t i = 0;
    for (; i + SOME <= n; i += SOME) {
        some_floats x;
        memcpy(&x, v + i, sizeof x);
        hold &= (x >= least) & (x <= FLT_MAX);
    }
    for (; i < n; i++) {
        all = all && v[i] >= least && v[i] <= FLT_MAX;
    }
    return all && (hold[0] & hold[1] & hold[2] & hold[3]) != 0;
}

/* Whether every value is finite; where logits are masked -inf is allowed. */
static bool are_numbers(const float *v, int32_t n, bool masked) {
    return are_from(v, n, masked ? -INFINITY : -FLT_MAX);
}

bool finite_rows(engine *e, const sequence *s, int32_t row0, int32_t n, int32_t out) {
    float *hidden = e->step.hidden;
    for (int32_t i = 0; i < n; i++) {
        e->b->ops->buffer_read(e->b, model_hidden(e->m), row0 + i, 1, hidden);
        if (!are_numbers(hidden, e->desc->d_model, false)) {
            return false;
        }
    }
    bool publishes = s->task.kv.has_path && s->task.kv.n_computed / e->layout.page_tokens > s->task.kv.path.n_pages;
    return !publishes || out < 0 || are_numbers(e->b->ops->logits(e->b, out), e->desc->n_vocab, true);
}
