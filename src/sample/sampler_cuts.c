/* Sampling stages over the whole distribution: temperature, and the cuts that drop the
 * unlikely (or the likeliest) tokens.
 *
 * Few tokens are kept of a large vocabulary. So the cuts begin with the tokens whose
 * logits reach a bound below which none can be kept. The bound is known for top-k and
 * min-p; for top-p alone sampler_cuts.c guesses it. */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "sample/sampler_parts.h"

#define LEAST_TEMPERATURE 1e-5f /* that a dynamic one may have among kept tokens */

/* ---- temperature ---- */

/* The dynamic temperature of n live tokens whose weights exp(x), x the logit less the
 * largest, have this sum, and weights times x that one. */
static float cuts_dynamic(const sampling_params *p, double sum, double weighted, int32_t n) {
    if (n < 2) {
        return p->temperature;
    }
    double entropy = log(sum) - weighted / sum;
    double low = fmax(0.0, (double)p->temperature - (double)p->dynatemp_range),
           high = (double)p->temperature + (double)p->dynatemp_range;
    double part = fmin(fmax(0.0, entropy) / log((double)n), 1.0); /* rounding may lead over 1 */
    return (float)fmin(low + (high - low) * pow(part, (double)p->dynatemp_exponent), (double)FLT_MAX);
}

float sampler_temperature(const sampler *s, const float *logits, const sampling_params *p) {
    if (p->dynatemp_range <= 0.0f) {
        return p->temperature;
    }
    double sum = 0.0, weighted = 0.0; /* of exp(l - max), and of that times (l - max) */
    int32_t n_live = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        double x = (double)logits[i] - (double)s->max, w = exp(x);
        if (logits[i] > -INFINITY) {
            sum += w;
            weighted += w * x;
            n_live++;
        }
    }
    return cuts_dynamic(p, sum, weighted, n_live);
}

/* ---- the tokens that the cuts begin with ---- */

float sampler_logit_below(const sampler *s, float weight) {
    double l = (double)s->max + (log2((double)weight) - 1e-3) / (double)s->scale;
    return weight > 0.0f ? (float)(l - 1e-6 * fabs(l)) : -INFINITY;
}

void sampler_keep_from(sampler *s, const float *logits, float least, float least_weight) {
    int32_t n = 0;
    s->is_whole = false;
    least = fmaxf(least, sampler_logit_below(s, LEAST_WEIGHT));
    s->n_kept = s->rows->gather(s, logits, least > -FLT_MAX ? least : -FLT_MAX);
    s->rows->weigh(s->weights, s->n_kept, s->max, s->scale);
    for (int32_t i = 0; i < s->n_kept && least_weight > 0.0f; i++) {
        n = sampler_keep(s, n, i, s->weights[i] >= least_weight);
    }
    s->n_kept = least_weight > 0.0f ? n : s->n_kept;
}

void sampler_keep_all(sampler *s, const float *logits) {
    sampler_keep_from(s, logits, -INFINITY, LEAST_WEIGHT);
}

/* A logit that at least k tokens reach: the k-th largest of the groups' largest, or a
 * little less. */
static float bound_of_top_k(sampler *s, int32_t k) {
    int32_t n_above = 0, b = N_BUCKETS - 1;
    if ((size_t)k > s->n_groups) {
        return -INFINITY;
    }
    memcpy(s->weights, s->largest, s->n_groups * sizeof *s->weights);
    s->rows->weigh(s->weights, (int32_t)s->n_groups, s->max, s->scale);
    memset(s->mass, 0, sizeof s->mass);
    for (size_t g = 0; g < s->n_groups; g++) {
        s->mass[float_bits(s->weights[g]) >> FIRST_SHIFT & (N_BUCKETS - 1)] += 1.0;
    }
    while (n_above + (int32_t)s->mass[b] < k) {
        n_above += (int32_t)s->mass[b--];
    }
    return sampler_logit_below(s, float_of_bits((uint32_t)b << FIRST_SHIFT));
}

/* ---- the cuts ---- */

/* Keeps logits of at least the best one less n standard deviations of the live ones. */
static void cut_sigma(sampler *s, const float *logits, float n) {
    double sum = 0.0, squares = 0.0;
    int32_t n_live = 0, n_kept = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (logits[i] > -INFINITY) {
            sum += (double)logits[i];
            n_live++;
        }
    }
    double mean = sum / n_live;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        double d = (double)logits[i] - mean;
        squares += logits[i] > -INFINITY ? d * d : 0.0;
    }
    double least = (double)s->max - (double)n * sqrt(squares / n_live);
    for (int32_t i = 0; i < s->n_kept; i++) {
        n_kept = sampler_keep(s, n_kept, i, (double)logits[s->ids[i]] >= least);
    }
    s->n_kept = n_kept;
}

/* The same of the kept tokens alone, after other cuts. */
static void cut_sigma_kept(sampler *s, const float *logits, float n) {
    double sum = 0.0, squares = 0.0, most = -INFINITY;
    int32_t n_kept = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        sum += (double)logits[s->ids[i]];
        most = fmax(most, (double)logits[s->ids[i]]);
    }
    for (int32_t i = 0; i < s->n_kept; i++) {
        double d = (double)logits[s->ids[i]] - sum / s->n_kept;
        squares += d * d;
    }
    double least = most - (double)n * sqrt(squares / s->n_kept);
    for (int32_t i = 0; i < s->n_kept; i++) {
        n_kept = sampler_keep(s, n_kept, i, (double)logits[s->ids[i]] >= least);
    }
    s->n_kept = n_kept;
}

/* Keeps the weights of at least this part of the largest kept one. */
static void cut_min_p(sampler *s, float min_p) {
    float most = 0.0f;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        most = fmaxf(most, s->weights[i]);
    }
    for (int32_t i = 0; i < s->n_kept; i++) {
        n = sampler_keep(s, n, i, s->weights[i] >= min_p * most);
    }
    s->n_kept = n;
}

/* Keeps the k largest logits, and all equal to the k-th. */
static void cut_top_k(sampler *s, const float *logits, int32_t k) {
    candidate last;
    if (s->n_kept > k && sampler_find_cut(s, s->weights, BY_COUNT, (double)k, &last)) {
        sampler_order_equals(s, logits, true, &last);
        sampler_cut_after(s, last);
    }
}

/* Keeps a token iff the mass before it (of larger logits, or equal ones with lower ids)
 * is below top_p of all that were kept. */
static void cut_top_p(sampler *s, const float *logits, float top_p) {
    candidate last;
    (void)sampler_find_cut(s, s->weights, BY_WEIGHT,
                           (double)top_p * s->rows->sum_blocks(s->weights, s->n_kept, s->sums), &last);
    sampler_order_equals(s, logits, false, &last);
    sampler_cut_after(s, last);
}

static double surprise_of(const sampler *s, const float *logits, int32_t id, double log_total) {
    /* ln 2 */
    return log_total - ((double)logits[id] - (double)s->max) * (double)s->scale * 0.6931471805599453;
}

/* A key that is larger for a surprise nearer to the entropy. */
static uint32_t nearness_of(double surprise, double entropy) {
    return 0x7fffffffu - float_bits((float)fabs(surprise - entropy));
}

/* Keeps the tokens whose surprise is nearest to the entropy, until they together have
 * this probability; all as near as the last one stay. */
static void cut_typical(sampler *s, const float *logits, float typical_p) {
    double total = s->rows->sum_blocks(s->weights, s->n_kept, s->sums), log_total = log(total), entropy = 0.0;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        /* the least weight may stand for none */
        double w = s->weights[i] > LEAST_WEIGHT ? (double)s->weights[i] : 0.0;
        entropy += w * surprise_of(s, logits, s->ids[i], log_total);
    }
    entropy /= total;
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->keys[i] = nearness_of(surprise_of(s, logits, s->ids[i], log_total), entropy);
    }
    candidate last;
    (void)sampler_find_cut(s, s->keys, BY_WEIGHT, (double)typical_p * total, &last);
    for (int32_t i = 0; i < s->n_kept; i++) {
        n = sampler_keep(s, n, i, s->keys[i] >= last.key);
    }
    s->n_kept = n;
}

/* Drops all tokens of at least this probability except the least likely of them, the last
 * one of equals. */
static void cut_top_choices(sampler *s, float threshold) {
    double all = s->rows->sum_blocks(s->weights, s->n_kept, s->sums);
    double least = fmax((double)threshold * all, (double)LEAST_WEIGHT); /* kept ones may have none */
    int32_t last = -1, n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        if ((double)s->weights[i] >= least && (last < 0 || s->weights[i] <= s->weights[last])) {
            last = i;
        }
    }
    for (int32_t i = 0; i < s->n_kept; i++) {
        n = sampler_keep(s, n, i, i == last || (double)s->weights[i] < least);
    }
    s->n_kept = n;
}

/* Gives the kept tokens the weights of the request's temperature. */
static void cuts_temper(sampler *s, const float *logits, const sampling_params *p) {
    double sum = 0.0, weighted = 0.0;
    float temperature = p->temperature;
    for (int32_t i = 0; i < s->n_kept; i++) {
        double x = (double)logits[s->ids[i]] - (double)s->max;
        sum += exp(x);
        weighted += exp(x) * x;
    }
    if (p->dynatemp_range > 0.0f) {
        temperature = fmaxf(cuts_dynamic(p, sum, weighted, s->n_kept), LEAST_TEMPERATURE);
    }
    s->scale = LOG2_E / temperature;
    float most = -INFINITY;
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->weights[i] = logits[s->ids[i]];
        most = fmaxf(most, s->weights[i]);
    }
    s->max = most; /* it may have been cut: some weight stays 1 */
    s->rows->weigh(s->weights, s->n_kept, s->max, s->scale);
}

static bool has_top_k(const sampler *s, const sampling_params *p) {
    return p->top_k > 0 && p->top_k < s->n_vocab;
}

/* Whether a stage needs every live token's weight. */
static bool needs_all(const sampling_params *p) {
    return p->mirostat != MIROSTAT_OFF || p->top_n_sigma > 0.0f || p->typical_p < 1.0f ||
           p->xtc_probability > 0.0f;
}

bool sampler_wants_masses(const sampling_params *p) {
    return p->order[0] == SAMPLING_END && !needs_all(p) && p->min_p <= 0.0f && p->top_k <= 0;
}

/* Collects the tokens that may be kept; this covers min-p completely. */
static void sampler_cuts_begin(sampler *s, const float *logits, const sampling_params *p) {
    float least = -INFINITY;
    if (!needs_all(p) && has_top_k(s, p)) {
        least = bound_of_top_k(s, p->top_k);
    }
    float min_p = p->mirostat == MIROSTAT_OFF ? p->min_p : 0.0f;
    if (min_p > 0.0f) {
        least = fmaxf(least, sampler_logit_below(s, min_p)); /* the largest weight is 1 */
    }
    sampler_keep_from(s, logits, least, fmaxf(min_p, LEAST_WEIGHT));
}

static void cut_by_chance(sampler *s, const sample_context *c) {
    const sampling_params *p = c->params;
    if (p->xtc_probability > 0.0f && p->xtc_threshold <= 0.5f && c->noise.xtc <= p->xtc_probability) {
        cut_top_choices(s, p->xtc_threshold);
    }
}

/* Runs one stage on what those before it kept. */
static void cuts_run_stage(sampler *s, const float *logits, const sample_context *c, sampling_stage stage) {
    const sampling_params *p = c->params;
    if (stage == SAMPLING_TEMPERATURE) {
        cuts_temper(s, logits, p);
    } else if (stage == SAMPLING_TOP_N_SIGMA && p->top_n_sigma > 0.0f) {
        cut_sigma_kept(s, logits, p->top_n_sigma);
    } else if (stage == SAMPLING_MIN_P && p->min_p > 0.0f) {
        cut_min_p(s, p->min_p);
    } else if (stage == SAMPLING_TOP_K && has_top_k(s, p)) {
        cut_top_k(s, logits, p->top_k);
    } else if (stage == SAMPLING_TYPICAL_P && p->typical_p < 1.0f) {
        cut_typical(s, logits, p->typical_p);
    } else if (stage == SAMPLING_TOP_P && p->top_p < 1.0f) {
        cut_top_p(s, logits, p->top_p);
    } else if (stage == SAMPLING_XTC) {
        cut_by_chance(s, c);
    }
}

/* Keeps the live tokens of at least this logit, those that have no weight with the least
 * one: a later stage may raise it, or count it. */
static void cuts_keep_far(sampler *s, const float *logits, float least) {
    s->is_whole = false;
    s->n_kept = s->rows->gather(s, logits, fmaxf(least, -FLT_MAX));
    s->rows->weigh(s->weights, s->n_kept, s->max, s->scale);
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->weights[i] = fmaxf(s->weights[i], LEAST_WEIGHT);
    }
}

/* The stages that the request names, in its order. */
static void cuts_run_in_order(sampler *s, const float *logits, const sample_context *c) {
    const sampling_params *p = c->params;
    bool is_top_k = p->order[0] == SAMPLING_TOP_K && has_top_k(s, p);
    cuts_keep_far(s, logits, is_top_k ? bound_of_top_k(s, p->top_k) : -INFINITY);
    for (int32_t i = 0; i < SAMPLING_N_STAGES && p->order[i] != SAMPLING_END; i++) {
        cuts_run_stage(s, logits, c, (sampling_stage)p->order[i]);
    }
}

void sampler_cut(sampler *s, const float *logits, const sample_context *c) {
    const sampling_params *p = c->params;
    if (p->order[0] != SAMPLING_END) {
        cuts_run_in_order(s, logits, c);
        return;
    }
    if (sampler_wants_masses(p)) {
        s->is_whole = p->top_p >= 1.0f;
        if (!s->is_whole) {
            sampler_cut_top_p(s, logits, p->top_p);
        }
        return;
    }
    sampler_cuts_begin(s, logits, p);
    if (p->mirostat != MIROSTAT_OFF) {
        return;
    }
    if (p->top_n_sigma > 0.0f) {
        cut_sigma(s, logits, p->top_n_sigma);
    }
    if (has_top_k(s, p)) {
        cut_top_k(s, logits, p->top_k);
    }
    if (p->typical_p < 1.0f) {
        cut_typical(s, logits, p->typical_p);
    }
    if (p->top_p < 1.0f) {
        cut_top_p(s, logits, p->top_p);
    }
    cut_by_chance(s, c);
}

/* Top-p without another cut before it: uses the weight of all tokens, but reads few of
 * them.
 *
 * A sample of the row gives two bounds: the weight below which no token is kept, and the
 * weight above which all are. Only the tokens between them are ordered. Both bounds are
 * guesses, by the sample's standard error, and are checked: what is kept never depends on
 * them. Where the gathered tokens do not suffice, a more careful guess follows, and at
 * last all tokens are used. */

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
    assert(top_p >= 0.0f);
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
