/* Top-p where no other cut came before: by the weight of all tokens, with few of them looked at.
 *
 * A sample of the row says from which weight on tokens may be kept, and from which on they surely are: only those between are put in order.
 * Both are guesses, by the sample's standard error, and checked: what is kept never depends on them. Where the tokens that were gathered do
 * not suffice, a more careful guess follows, and in the end all are looked at. */
#include <math.h>

#include "sample/sampler_parts.h"

#define SAMPLED_GROUPS 48                                            /* one group of so many is in the sample */
#define SMALL_VOCAB    4096                                          /* up to so many tokens all are looked at */
#define FIRST_BUCKET   ((int32_t)((127u - 40) << 23 >> FIRST_SHIFT)) /* of 2^-40: what weighs less counts as nothing in a guess */
#define LAST_BUCKET    ((int32_t)(127u << 23 >> FIRST_SHIFT))        /* of 1, the most there is */

/* Weights from one to below another. */
typedef struct weight_range {
    float low, high;
} weight_range;

/* s->mass becomes the weights of the sample by buckets, from FIRST_BUCKET on; returns how many tokens it has. */
static int32_t take_sample(sampler *s, const float *logits) {
    int32_t n = 0;
    for (size_t g = 0; (int32_t)((g + 1) * GROUP) <= s->n_vocab; g += SAMPLED_GROUPS, n += GROUP) {
        memcpy(s->weights + n, logits + g * GROUP, GROUP * sizeof *logits);
    }
    s->rows->weigh(s->weights, n, s->max, s->scale);
    memset(s->mass + FIRST_BUCKET, 0, (LAST_BUCKET - FIRST_BUCKET + 1) * sizeof *s->mass);
    for (int32_t i = 0; i < n; i++) {
        s->mass[sampler_bits_of(s->weights[i]) >> FIRST_SHIFT] += (double)s->weights[i];
    }
    return n;
}

/* Where the unlikeliest tokens that have this weight together end, give or take so many standard errors. The low end is right above the
 * last sampled one that may be left out: in a row whose weight lies in few tokens that is right above all the others, whether the sample
 * has some of the few or not. */
static weight_range guess(sampler *s, const float *logits, double weight, double n_errors) {
    double share = weight * take_sample(s, logits) / s->n_vocab, below = 0.0, squares = 0.0;
    weight_range r = {sampler_weight_of((uint32_t)FIRST_BUCKET << FIRST_SHIFT), INFINITY};
    bool is_low = true;
    for (int32_t b = FIRST_BUCKET; b <= LAST_BUCKET && r.high == INFINITY; b++) {
        if (s->mass[b] > 0.0) {
            float end = sampler_weight_of((uint32_t)(b + 1) << FIRST_SHIFT);
            below += s->mass[b];
            squares += s->mass[b] * (double)end;
            double left = share - below;
            bool is_far = n_errors * n_errors * squares <= left * left;
            is_low = is_low && left >= 0.0 && is_far;
            r.low = is_low ? end : r.low;
            r.high = left < 0.0 && is_far ? end : r.high;
        }
    }
    return r;
}

/* Finds the cut among the kept tokens of less than this weight. */
static bool find_below(sampler *s, float high, double limit, candidate *last) {
    int32_t n_inside;
    double above = s->rows->divide(s, high, &n_inside);
    return sampler_find_inside(s, n_inside, BY_WEIGHT, limit, above, last);
}

/* Cuts where the guess is right: with all that may be kept the limit is reached. The high end may be wrong. */
static bool cut_inside(sampler *s, const float *logits, weight_range guessed, double limit) {
    candidate last;
    sampler_keep_from(s, logits, sampler_logit_below(s, guessed.low), 0.0f);
    if (!find_below(s, guessed.high, limit, &last) && !find_below(s, INFINITY, limit, &last)) {
        return false;
    }
    sampler_order_equals(s, logits, false, &last);
    s->rows->drop_after(s->weights, s->n_kept, sampler_weight_of(last.key), last.place);
    return true;
}

void sampler_cut_top_p(sampler *s, const float *logits, float top_p) {
    static const double n_errors[] = {2.0, 8.0};
    double limit = (double)top_p * s->total;
    candidate last;
    for (int i = 0; i < 2 && s->n_vocab > SMALL_VOCAB; i++) {
        if (cut_inside(s, logits, guess(s, logits, s->total - limit, n_errors[i]), limit)) {
            return;
        }
    }
    sampler_keep_all(s, logits);
    (void)sampler_find_cut(s, s->weights, BY_WEIGHT, limit, &last);
    sampler_order_equals(s, logits, false, &last);
    sampler_cut_after(s, last);
}
