#include "spec/rejection.h"

#include <stddef.h>

/* The probability with which the drafter drew token i. */
static double drawn_with(const rejection_draft *d, int32_t i) {
    return d->distribution != NULL ? (double)d->distribution[i] : i == d->token;
}

double rejection_accept(const float *target, const rejection_draft *draft) {
    double p = (double)target[draft->token], q = drawn_with(draft, draft->token);
    if (q <= 0.0) {
        return 0.0;
    }
    return p >= q ? 1.0 : p / q;
}

void rejection_residual(float *target, const rejection_draft *draft, int32_t n_vocab) {
    double total = 0.0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double d = (double)target[i] - drawn_with(draft, i);
        total += d > 0.0 ? d : 0.0;
    }
    for (int32_t i = 0; i < n_vocab && total > 0.0; i++) {
        double d = (double)target[i] - drawn_with(draft, i);
        target[i] = d > 0.0 ? (float)(d / total) : 0.0f;
    }
}

int32_t rejection_draw(const float *distribution, int32_t n_vocab, double u) {
    double total = 0.0, cumulated = 0.0;
    int32_t last = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        total += (double)distribution[i];
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        cumulated += (double)distribution[i];
        if (distribution[i] > 0.0f) {
            last = i;
            if (cumulated > u * total) {
                break;
            }
        }
    }
    return last;
}
