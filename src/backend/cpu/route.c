/* Routing: from a row's logits to its experts and their weights. One source for all
 * instruction sets, since only exp is a kernel. */
#include <string.h>

#include "backend/cpu/experts.h"
#include "backend/cpu/math.h"
#include "core/math_plain.h"

#define LANES       16
#define SERIAL_ROWS 8      /* most rows that the caller routes itself */
#define LEAST_SUM   1e-20f /* added to a sum of weights, since all may be 0 */

static float without_nan(float x) {
    return isnan(x) ? -INFINITY : x;
}

/* The n best of scores[0..n_scores), best first; ties go to the lower index. No score is
 * NaN; n <= n_scores. */
static void route_choose(const float *scores, int32_t n_scores, int32_t n, int32_t *out) {
    int32_t n_out = 0;
    for (int32_t i = 0; i < n_scores; i++) {
        int32_t at = n_out;
        while (at > 0 && scores[i] > scores[out[at - 1]]) {
            at--;
        }
        if (at < n) {
            n_out += n_out < n;
            memmove(out + at + 1, out + at, sizeof *out * (size_t)(n_out - 1 - at));
            out[at] = i;
        }
    }
}

/* The sum in the order that norms use (math.h). */
static float sum_of(const float *x, int32_t n) {
    float lanes[LANES] = {0};
    for (int32_t i = 0; i < n; i++) {
        lanes[i % LANES] += x[i];
    }
    return plain_tree_sum(lanes);
}

/* x[i] = exp(x[i] - largest); returns the sum, NaN if any element is NaN. */
static float exp_from(const math_kernels *math, float largest, int32_t n, float *x) {
    for (int32_t i = 0; i < n; i++) {
        x[i] -= largest;
    }
    math->exp(x, n, x);
    return sum_of(x, n);
}

static void route_softmax(const math_kernels *math, int32_t n, float *x) {
    float largest = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    float sum = exp_from(math, largest, n, x);
    for (int32_t i = 0; i < n; i++) {
        x[i] /= sum;
    }
}

static void sigmoid(const math_kernels *math, int32_t n, float *x) {
    for (int32_t i = 0; i < n; i++) {
        x[i] = -x[i];
    }
    math->exp(x, n, x);
    for (int32_t i = 0; i < n; i++) {
        x[i] = 1.0f / (1.0f + x[i]);
    }
}

/* Excludes experts outside the best groups from the choice. */
static void close_groups(const routing *r, float *choice) {
    float scores[ROUTE_MAX_EXPERTS];
    int32_t best[ROUTE_MAX_EXPERTS], size = r->n_experts / r->n_groups;
    bool is_open[ROUTE_MAX_EXPERTS] = {false};
    for (int32_t g = 0; g < r->n_groups; g++) {
        const float *group = choice + g * size;
        float first = -INFINITY, second = -INFINITY;
        for (int32_t i = 0; i < size; i++) {
            second = group[i] > first ? first : group[i] > second ? group[i] : second;
            first = group[i] > first ? group[i] : first;
        }
        scores[g] = without_nan(r->group_by_best_two && size > 1 ? first + second : first);
    }
    route_choose(scores, r->n_groups, r->n_groups_used, best);
    for (int32_t i = 0; i < r->n_groups_used; i++) {
        is_open[best[i]] = true;
    }
    for (int32_t e = 0; e < r->n_experts; e++) {
        choice[e] = is_open[e / size] ? choice[e] : r->closed_is_zero ? 0.0f : -INFINITY;
    }
}

static void sort_ascending(int32_t *ids, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        int32_t id = ids[i], at = i;
        for (; at > 0 && ids[at - 1] > id; at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = id;
    }
}

/* Computes the weights of the chosen experts, in their order, from the scores. */
static void route_weigh(const math_kernels *math, const routing *r, const float *scores,
                        const int32_t *chosen, float *weights) {
    for (int32_t i = 0; i < r->n_used; i++) {
        weights[i] = scores[chosen[i]];
    }
    if (r->score == ROUTE_SOFTMAX_CHOSEN) {
        route_softmax(math, r->n_used, weights);
    }
    if (r->renormalise) {
        float sum = LEAST_SUM;
        for (int32_t i = 0; i < r->n_used; i++) {
            sum += weights[i];
        }
        for (int32_t i = 0; i < r->n_used; i++) {
            weights[i] /= sum;
        }
    }
}

static void by_scores(const math_kernels *math, const routing *r, const float *logits, int32_t *chosen,
                      float *weights) {
    float scores[ROUTE_MAX_EXPERTS], choice[ROUTE_MAX_EXPERTS];
    const bool by_logits = r->by_logits || (r->bias == NULL && r->n_groups <= 1);
    const float *from = r->score == ROUTE_SIGMOID && by_logits ? logits : scores;
    memcpy(scores, logits, sizeof *scores * (size_t)r->n_experts);
    if (r->cap > 0.0f) {
        math->scale_cap(1.0f, r->cap, r->n_experts, scores);
    }
    if (r->score == ROUTE_SOFTMAX) {
        route_softmax(math, r->n_experts, scores);
    } else if (r->score == ROUTE_SIGMOID) {
        sigmoid(math, r->n_experts, scores);
    }
    for (int32_t e = 0; e < r->n_experts; e++) {
        choice[e] = without_nan(r->bias != NULL ? from[e] + r->bias[e] : from[e]);
    }
    if (r->n_groups > 1) {
        close_groups(r, choice);
    }
    route_choose(choice, r->n_experts, r->n_used, chosen);
    sort_ascending(chosen, r->n_used);
    route_weigh(math, r, scores, chosen, weights);
}

/* The best logit except `taken`; ties go to the lowest index. *weight is its share of the
 * softmax over the logits near it. */
static int32_t mix_one(const math_kernels *math, const routing *r, const float *logits, int32_t taken,
                       float *weight) {
    float near[ROUTE_MAX_EXPERTS];
    int32_t best = taken == 0;
    for (int32_t e = 0; e < r->n_experts; e++) {
        best = e != taken && without_nan(logits[e]) > without_nan(logits[best]) ? e : best;
    }
    float most = logits[best];
    for (int32_t e = 0; e < r->n_experts; e++) {
        float magnitude = fabsf(logits[e]);
        bool is_far = (most - logits[e]) / (magnitude < most ? most : magnitude) > 2.0f * r->jitter_eps;
        near[e] = e == taken || is_far ? -INFINITY : logits[e];
    }
    *weight = 1.0f / exp_from(math, most, r->n_experts, near);
    return best;
}

static void by_mixing(const math_kernels *math, const routing *r, const float *logits, int32_t *chosen,
                      float *weights) {
    float first_weight, second_weight;
    int32_t first = mix_one(math, r, logits, -1, &first_weight),
            second = mix_one(math, r, logits, first, &second_weight);
    bool ascends = first < second;
    chosen[0] = ascends ? first : second;
    chosen[1] = ascends ? second : first;
    weights[0] = ascends ? first_weight : second_weight;
    weights[1] = ascends ? second_weight : first_weight;
}

typedef struct route_job {
    const cpu_backend *b;
    const routing *r;
    buffer logits;
} route_job;

static void route_row(void *context, int32_t row, int32_t worker) {
    const route_job *job = context;
    const routing *r = job->r;
    const float *logits = cpu_act_row(job->b, job->logits, row);
    int32_t *chosen = job->b->experts_state->chosen + (int64_t)row * r->n_used;
    float *weights = job->b->experts_state->weights + (int64_t)row * r->n_used;
    (void)worker;
    (r->score == ROUTE_SPARSE_MIXER ? by_mixing : by_scores)(job->b->math, r, logits, chosen, weights);
    for (int32_t i = 0; i < r->n_used; i++) {
        weights[i] *= r->scale;
        weights[i] *= r->expert_scales != NULL ? r->expert_scales[chosen[i]] : 1.0f;
    }
}

void cpu_route(backend *base, const routing *r, buffer logits) {
    cpu_backend *b = (cpu_backend *)base;
    cpu_experts_state *s = b->experts_state;
    route_job job = {b, r, logits};
    assert(s != NULL && r->n_experts <= s->n_experts && r->n_used <= s->n_used &&
           b->buffers[logits.id].width >= r->n_experts);
    s->step = b->step;
    s->chosen_from = r->n_experts;
    s->chosen_used = r->n_used;
    s->is_input_scaled = r->scale_inputs;
    if (b->batch->n_rows > SERIAL_ROWS) {
        thread_pool_run(b->thread_pool, route_row, &job, b->batch->n_rows);
        return;
    }
    for (int32_t row = 0; row < b->batch->n_rows; row++) {
        route_row(&job, row, 0);
    }
}
