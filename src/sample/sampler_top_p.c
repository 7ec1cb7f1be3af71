/* Top-p without another cut before it: uses the weight of all tokens, but reads few of
 * them.
 *
 * A sample of the row gives two bounds: the weight below which no token is kept, and the
 * weight above which all are. Only the tokens between them are ordered. Both bounds are
 * guesses, by the sample's standard error, and are checked: what is kept never depends on
 * them. Where the gathered tokens do not suffice, a more careful guess follows, and at
 * last all tokens are used. */
#include <math.h>

#include "sample/sampler_parts.h"

/* one group of this many is in the sample */
#define SAMPLED_GROUPS 48
/* in vocabularies up to this size all tokens are used */
#define SMALL_VOCAB 4096
/* bucket of 2^-40: smaller weights count as nothing in a guess */
#define FIRST_BUCKET ((int32_t)((127u - 40) << 23 >> FIRST_SHIFT))
#define LAST_BUCKET  ((int32_t)(127u << 23 >> FIRST_SHIFT)) /* bucket of 1, the largest weight */

/* A range of weights: from one to below another. */
typedef struct weight_range {
    float low, high;
} weight_range;

/* Sets s->mass to the weights of the sample by buckets, from FIRST_BUCKET on; returns the
 * number of its tokens. */
static int32_t take_sample(sampler *s, const float *logits) {
    int32_t n = 0;
    for (size_t g = 0; (int32_t)((g + 1) * GROUP) <= s->n_vocab; g += SAMPLED_GROUPS, n += GROUP) {
        memcpy(s->weights + n, logits + g * GROUP, GROUP * sizeof *logits);
    }
    s->rows->weigh(s->weights, n, s->max, s->scale);
    memset(s->mass + FIRST_BUCKET, 0, (LAST_BUCKET - FIRST_BUCKET + 1) * sizeof *s->mass);
    for (int32_t i = 0; i < n; i++) {
        s->mass[float_bits(s->weights[i]) >> FIRST_SHIFT] += (double)s->weights[i];
    }
    return n;
}

/* The range in which the unlikeliest tokens that together have this weight end, plus or
 * minus so many standard errors. The low end is right above the last sampled token that
 * may be dropped: in a row whose weight is in few tokens that is right above all the
 * others, whether or not the sample has some of the few. */
static weight_range sampler_top_p_guess(sampler *s, const float *logits, double weight, double n_errors) {
    double share = weight * take_sample(s, logits) / s->n_vocab, below = 0.0, squares = 0.0;
    weight_range r = {float_of_bits((uint32_t)FIRST_BUCKET << FIRST_SHIFT), INFINITY};
    bool is_low = true;
    for (int32_t b = FIRST_BUCKET; b <= LAST_BUCKET && r.high == INFINITY; b++) {
        if (s->mass[b] > 0.0) {
            float end = float_of_bits((uint32_t)(b + 1) << FIRST_SHIFT);
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

/* Cuts if the guess is right: the tokens that may be kept reach the limit. The high end
 * may be wrong. */
static bool cut_inside(sampler *s, const float *logits, weight_range guessed, double limit) {
    candidate last;
    sampler_keep_from(s, logits, sampler_logit_below(s, guessed.low), 0.0f);
    if (!find_below(s, guessed.high, limit, &last) && !find_below(s, INFINITY, limit, &last)) {
        return false;
    }
    sampler_order_equals(s, logits, false, &last);
    s->rows->drop_after(s->weights, s->n_kept, float_of_bits(last.key), last.place);
    return true;
}

void sampler_cut_top_p(sampler *s, const float *logits, float top_p) {
    static const double n_errors[] = {2.0, 8.0};
    double limit = (double)top_p * s->total;
    candidate last;
    for (int i = 0; i < 2 && s->n_vocab > SMALL_VOCAB; i++) {
        if (cut_inside(s, logits, sampler_top_p_guess(s, logits, s->total - limit, n_errors[i]), limit)) {
            return;
        }
    }
    sampler_keep_all(s, logits);
    (void)sampler_find_cut(s, s->weights, BY_WEIGHT, limit, &last);
    sampler_order_equals(s, logits, false, &last);
    sampler_cut_after(s, last);
}
