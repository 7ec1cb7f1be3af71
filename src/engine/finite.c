#include "engine/finite.h"

#include <math.h>

enum { LANES = 16 }; /* values looked at together: compilers put them into vector registers */

/* Whether every value is a number; -inf is one where logits are masked. */
static bool are_numbers(const float *v, int32_t n, bool masked) {
    const float least = masked ? -3.0e38f : -INFINITY; /* below it counts as 0 */
    float sums[LANES] = {0};
    int32_t whole = n - n % LANES;
    for (int32_t i = 0; i < whole; i += LANES) {
        for (int32_t j = 0; j < LANES; j++) {
            float x = v[i + j] < least ? 0.0f : v[i + j];
            sums[j] += x * 0.0f; /* NaN for infinities and NaN, else 0 */
        }
    }
    for (int32_t i = whole; i < n; i++) {
        sums[0] += (v[i] < least ? 0.0f : v[i]) * 0.0f;
    }
    float sum = 0.0f;
    for (int32_t j = 0; j < LANES; j++) {
        sum += sums[j];
    }
    return sum == 0.0f;
}

bool finite_rows(engine *e, const sequence *s, int32_t row0, int32_t n, int32_t out) {
    float *hidden = e->step.hidden;
    for (int32_t i = 0; i < n; i++) {
        e->b->ops->act_read(e->b, model_hidden(e->m), row0 + i, 1, hidden);
        if (!are_numbers(hidden, e->desc->d_model, false)) {
            return false;
        }
    }
    bool publishes = s->cached && s->n_computed / e->layout.page_tokens > s->path.n_pages;
    return !publishes || out < 0 || are_numbers(e->b->ops->logits(e->b, out), e->desc->n_vocab, true);
}
