#include "sched/model_turn.h"

#include <assert.h>

static int32_t turn_least_served(const turn_claim *claims, int32_t n) {
    int32_t least = 0;
    for (int32_t i = 1; i < n; i++) {
        least = claims[i].served_us < claims[least].served_us ? i : least;
    }
    return least;
}

/* The longest step of the others, which c would wait for. */
static double longest_step_beside(const turn_claim *claims, int32_t n, const turn_claim *c) {
    double longest = 0.0;
    for (int32_t i = 0; i < n; i++) {
        longest = &claims[i] != c && claims[i].step_us > longest ? claims[i].step_us : longest;
    }
    return longest;
}

/* Whether the deadline is met only if c goes now. One that is missed anyway does not
 * count. */
static bool is_urgent(const turn_claim *claims, int32_t n, const turn_claim *c, int64_t now_us) {
    const double left = (double)(c->deadline_us - now_us);
    return c->deadline_us > 0 && left >= 0.0 && left < c->step_us + longest_step_beside(claims, n, c);
}

int32_t turn_choose(const turn_claim *claims, int32_t n, int64_t now_us) {
    assert(n >= 1);
    const int32_t least = turn_least_served(claims, n);
    int32_t first = least;
    int64_t earliest = INT64_MAX;
    for (int32_t i = 0; i < n; i++) {
        const turn_claim *c = &claims[i];
        const bool may = c->served_us - claims[least].served_us <= TURN_MOST_AHEAD_US;
        if (may && c->deadline_us < earliest && is_urgent(claims, n, c, now_us)) {
            first = i;
            earliest = c->deadline_us;
        }
    }
    return first;
}

double turn_resume(double served_us, const turn_claim *others, int32_t n, double most_us) {
    assert(n >= 0);
    const double least = n > 0 ? others[turn_least_served(others, n)].served_us : most_us;
    return served_us > least ? served_us : least;
}

double turn_pass(double served_us, double taken_us) {
    return served_us > taken_us ? served_us : taken_us;
}
