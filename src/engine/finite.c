#include "engine/finite.h"

#include <string.h>

enum { LANES = 16 }; /* values looked at together: compilers put them into vector registers */

#define INFINITY_BITS 0x7f800000 /* what is not a number, and infinity, has these bits or more beside its sign */
#define MINUS_INF     (INT32_MIN + INFINITY_BITS)

/* Less than 0 unless it is a number, or -inf where that may be. */
static inline int32_t fault_of(float v, bool masked) {
    int32_t bits;
    memcpy(&bits, &v, sizeof bits);
    int32_t fault = INFINITY_BITS - 1 - (bits & INT32_MAX);
    return masked && bits == MINUS_INF ? 0 : fault;
}

static inline bool are_all(const float *v, int32_t n, bool masked) {
    int32_t faults[LANES] = {0}, fault = 0, whole = n - n % LANES;
    for (int32_t i = 0; i < whole; i += LANES) {
        for (int32_t j = 0; j < LANES; j++) {
            faults[j] |= fault_of(v[i + j], masked);
        }
    }
    for (int32_t i = whole; i < n; i++) {
        fault |= fault_of(v[i], masked);
    }
    for (int32_t j = 0; j < LANES; j++) {
        fault |= faults[j];
    }
    return fault >= 0;
}

/* Whether every value is a number; -inf is one where logits are masked. */
static bool are_numbers(const float *v, int32_t n, bool masked) {
    return masked ? are_all(v, n, true) : are_all(v, n, false);
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
