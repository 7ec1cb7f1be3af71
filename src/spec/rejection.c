#include "spec/rejection.h"

#include <string.h>

double rejection_accept(const float *target, const float *draft, int32_t token) {
    double p = (double)target[token], q = (double)draft[token];
    if (q <= 0.0) {
        return 0.0;
    }
    return p >= q ? 1.0 : p / q;
}

void rejection_residual(const float *target, const float *draft, int32_t n_vocab, float *residual) {
    double total = 0.0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double d = (double)target[i] - (double)draft[i];
        total += d > 0.0 ? d : 0.0;
    }
    if (total <= 0.0) {
        memmove(residual, target, (size_t)n_vocab * sizeof *residual);
        return;
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        double d = (double)target[i] - (double)draft[i];
        residual[i] = d > 0.0 ? (float)(d / total) : 0.0f;
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
