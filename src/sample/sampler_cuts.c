/* Sampling stages over the whole distribution: temperature, and the cuts that drop
 * unlikely (or the likeliest) tokens.
 *
 * Few tokens of a large vocabulary are kept. So cuts start with the tokens whose logits
 * reach a bound below which none can be kept. Top-k and min-p define that bound; for
 * top-p alone it is guessed. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "sample/sampler_parts.h"

#define LEAST_TEMPERATURE 1e-5f /* lowest dynamic temperature among kept tokens */

/* The dynamic temperature of n live tokens. Their weights are exp(x), x being the logit
 * minus the largest; sum adds up the weights, weighted the products x exp(x). */
static float cuts_dynamic(const sampling_params *p, double sum, double weighted, int32_t n) {
    if (n < 2) {
        return p->temperature;
    }
    double entropy = log(sum) - weighted / sum;
    double low = fmax(0.0, (double)p->temperature - (double)p->dynatemp_range),
           high = (double)p->temperature + (double)p->dynatemp_range;
    double part = fmin(fmax(0.0, entropy) / log((double)n), 1.0); /* rounding may give more than 1 */
    return (float)fmin(low + (high - low) * pow(part, (double)p->dynatemp_exponent), (double)FLT_MAX);
}

float sampler_temperature(const sampler *s, const float *logits, const sampling_params *p) {
    if (p->dynatemp_range <= 0.0f) {
        return p->temperature;
    }
    double sum = 0.0, weighted = 0.0; /* of exp(x), and of x exp(x) */
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

/* ---- candidates for the cuts ---- */

/* A logit that is certainly below every logit with this weight. */
static float sampler_logit_below(const sampler *s, float weight) {
    double l = (double)s->max + (log2((double)weight) - 1e-3) / (double)s->scale;
    return weight > 0.0f ? (float)(l - 1e-6 * fabs(l)) : -INFINITY;
}

/* Keeps the tokens with at least this logit and this weight. */
static void sampler_keep_from(sampler *s, const float *logits, float least, float least_weight) {
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

/* A logit that at least k tokens reach: the k-th largest of the groups' maxima, or
 * slightly less. */
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

/* Keeps logits of at least the largest minus n standard deviations of the live ones. */
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

/* Like cut_sigma, among the kept tokens only. */
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

/* Keeps weights of at least min_p times the largest kept one. */
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

/* Keeps the k largest logits and all that equal the k-th. */
static void cut_top_k(sampler *s, const float *logits, int32_t k) {
    candidate last;
    if (s->n_kept > k && sampler_find_cut(s, s->weights, BY_COUNT, (double)k, &last)) {
        sampler_order_equals(s, logits, true, &last);
        sampler_cut_after(s, last);
    }
}

/* Keeps a token if the mass before it (larger logits, or equal ones with lower ids) is
 * below top_p of all kept tokens. */
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

/* A key that is larger the nearer a surprise is to the entropy. */
static uint32_t nearness_of(double surprise, double entropy) {
    return 0x7fffffffu - float_bits((float)fabs(surprise - entropy));
}

/* Keeps the tokens whose surprise is nearest to the entropy until they reach this
 * probability together, and all that are as near as the last one. */
static void cut_typical(sampler *s, const float *logits, float typical_p) {
    double total = s->rows->sum_blocks(s->weights, s->n_kept, s->sums), log_total = log(total), entropy = 0.0;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        /* LEAST_WEIGHT may stand for 0 */
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

/* XTC: drops all tokens of at least this probability except the least likely of them, the
 * last of equals. */
static void cut_top_choices(sampler *s, float threshold) {
    double all = s->rows->sum_blocks(s->weights, s->n_kept, s->sums);
    double least = fmax((double)threshold * all, (double)LEAST_WEIGHT); /* kept tokens may have weight 0 */
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

/* Gives the kept tokens their weights at the request's temperature. */
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
    s->max = most; /* the largest logit may have been cut; this way one weight is 1 */
    s->rows->weigh(s->weights, s->n_kept, s->max, s->scale);
}

static bool has_top_k(const sampler *s, const sampling_params *p) {
    return p->top_k > 0 && p->top_k < s->n_vocab;
}

/* Whether a stage needs the weights of all live tokens. */
static bool needs_all(const sampling_params *p) {
    return p->mirostat != MIROSTAT_OFF || p->top_n_sigma > 0.0f || p->typical_p < 1.0f ||
           p->xtc_probability > 0.0f;
}

bool sampler_wants_masses(const sampling_params *p) {
    return p->order[0] == SAMPLING_END && !needs_all(p) && p->min_p <= 0.0f && p->top_k <= 0;
}

/* Collects the candidates for the cuts, and applies min-p. */
static void sampler_cuts_begin(sampler *s, const float *logits, const sampling_params *p) {
    float least = -INFINITY;
    if (!needs_all(p) && has_top_k(s, p)) {
        least = bound_of_top_k(s, p->top_k);
    }
    float min_p = p->mirostat == MIROSTAT_OFF ? p->min_p : 0.0f;
    if (min_p > 0.0f) {
        least = fmaxf(least, sampler_logit_below(s, min_p)); /* since the largest weight is 1 */
    }
    sampler_keep_from(s, logits, least, fmaxf(min_p, LEAST_WEIGHT));
}

static void cut_by_chance(sampler *s, const sample_context *c) {
    const sampling_params *p = c->params;
    if (p->xtc_probability > 0.0f && p->xtc_threshold <= 0.5f && c->noise.xtc <= p->xtc_probability) {
        cut_top_choices(s, p->xtc_threshold);
    }
}

/* Runs one stage on what earlier ones kept. */
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

/* Keeps the live tokens of at least this logit, with at least LEAST_WEIGHT: a later stage
 * may raise the weight, or count the token. */
static void cuts_keep_far(sampler *s, const float *logits, float least) {
    s->is_whole = false;
    s->n_kept = s->rows->gather(s, logits, fmaxf(least, -FLT_MAX));
    s->rows->weigh(s->weights, s->n_kept, s->max, s->scale);
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->weights[i] = fmaxf(s->weights[i], LEAST_WEIGHT);
    }
}

/* Runs the stages in the order that the request names. */
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

/* Top-p as the only cut: needs the sum of all weights, but reads few of them.
 *
 * A sample of the row yields two guesses: a weight below which no token is kept, and one
 * above which all are; only tokens between them are ordered. The guesses are checked, so
 * they never affect what is kept. If the collected tokens do not suffice, a more careful
 * guess follows, and in the end all tokens are used. */

/* every SAMPLED_GROUPS-th group is in the sample */
#define SAMPLED_GROUPS 48
/* up to this vocabulary size, all tokens are used */
#define SMALL_VOCAB 4096
/* bucket of 2^-40; a guess ignores smaller weights */
#define FIRST_BUCKET ((int32_t)((127u - 40) << 23 >> FIRST_SHIFT))
#define LAST_BUCKET  ((int32_t)(127u << 23 >> FIRST_SHIFT)) /* bucket of 1, the largest weight */

/* A range of weights: low included, high excluded. */
typedef struct weight_range {
    float low, high;
} weight_range;

/* Sums the sampled tokens' weights by bucket in s->mass, from FIRST_BUCKET on. Returns
 * the number of sampled tokens. */
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

/* Guesses the weight at which the least likely tokens of this total end, plus or minus
 * n_errors standard errors. The low end is just above the last sampled token that may be
 * dropped. If a few tokens have most of the weight, that is above all the others, whether
 * or not any of the few is in the sample. */
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

/* Finds the cut among the kept tokens with weights below `high`. */
static bool find_below(sampler *s, float high, double limit, candidate *last) {
    int32_t n_inside;
    double above = s->rows->divide(s, high, &n_inside);
    return sampler_find_inside(s, n_inside, BY_WEIGHT, limit, above, last);
}

/* Cuts, if the guessed low end is right: the tokens above it reach the limit. The high
 * end may be wrong. */
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

/* Sampling stages that change single logits, by the request's lists and its history. */

static void allow_only(sampler *s, float *logits, const sampling_lists *l) {
    sampler_unmark(s);
    for (int32_t i = 0; i < l->n_allowed; i++) {
        sampler_mark(s, l->allowed[i]);
    }
    for (int32_t id = 0; id < s->n_vocab; id++) {
        if (s->marks[id] != s->mark) {
            logits[id] = -INFINITY;
        }
    }
}

/* Whether tokens[0..n_tokens) ends with these n tokens. */
static bool ends_with(const int32_t *tokens, int32_t n_tokens, const int32_t *these, int32_t n) {
    return n <= n_tokens && (n == 0 || memcmp(tokens + n_tokens - n, these, (size_t)n * sizeof *these) == 0);
}

static void ban_words(float *logits, const sample_context *c) {
    const token_seqs *words = &c->params->lists->bad_words;
    for (int32_t i = 0; i < words->n; i++) {
        const int32_t *word = words->tokens + words->starts[i];
        int32_t before = words->starts[i + 1] - words->starts[i] - 1;
        if (ends_with(c->tokens, c->n_tokens, word, before)) {
            logits[word[before]] = -INFINITY;
        }
    }
}

static void keep_going(float *logits, const sample_context *c) {
    for (int32_t i = 0; i < c->n_eos; i++) {
        logits[c->eos[i]] = -INFINITY;
    }
    for (int32_t i = 0; i < c->params->n_stop_tokens; i++) {
        logits[c->params->stop_tokens[i]] = -INFINITY;
    }
}

/* limit for a logit that a penalty changes: it stays finite, so its token may still be
 * drawn */
#define CHANGED_MAX 1e30f

/* Index of the first token that penalties count. usual: the value of penalty_last_n if
 * the request gives none. */
static int32_t first_counted(const sample_context *c, int32_t usual) {
    int32_t n = c->params->penalty_last_n;
    return n == SAMPLING_PENALTIES_USUAL ? usual : n < 0 || n > c->n_tokens ? 0 : c->n_tokens - n;
}

static void penalise_seen(sampler *s, float *logits, const sample_context *c) {
    float r = c->params->repetition_penalty;
    sampler_unmark(s);
    for (int32_t i = first_counted(c, 0); i < c->n_tokens; i++) {
        float *l = &logits[c->tokens[i]];
        if (sampler_mark(s, c->tokens[i])) {
            *l = *l > 0.0f ? fminf(*l / r, CHANGED_MAX) : *l > -INFINITY ? fmaxf(*l * r, -CHANGED_MAX) : *l;
        }
    }
}

static void penalise_output(sampler *s, float *logits, const sample_context *c) {
    int32_t first = first_counted(c, c->n_prompt);
    sampler_unmark(s);
    for (int32_t i = first; i < c->n_tokens; i++) {
        int32_t id = c->tokens[i];
        s->counts[id] = sampler_mark(s, id) ? 1 : s->counts[id] + 1;
    }
    for (int32_t i = first; i < c->n_tokens; i++) {
        int32_t id = c->tokens[i];
        if (s->counts[id] > 0) {
            logits[id] -= c->params->frequency_penalty * (float)s->counts[id];
            logits[id] -= c->params->presence_penalty;
            s->counts[id] = 0; /* each token once */
        }
    }
}

/* ---- DRY: penalises tokens that would extend a repetition ---- */

/* Marks the first token of each breaker; counts is 1 if it is a breaker by itself.
 * Returns the end of the breakers that have several tokens, which requests list first. */
static int32_t mark_breakers(sampler *s, const token_seqs *breakers) {
    int32_t n_long = 0;
    sampler_unmark(s);
    for (int32_t i = 0; i < breakers->n; i++) {
        int32_t first = breakers->tokens[breakers->starts[i]];
        bool is_new = sampler_mark(s, first), is_one = breakers->starts[i + 1] - breakers->starts[i] == 1;
        s->counts[first] = is_one || (!is_new && s->counts[first] != 0);
        n_long = is_one ? n_long : i + 1;
    }
    return n_long;
}

/* How many tokens of the window come after the end of the newest complete breaker; n if
 * there is none. */
static int32_t since_breaker(sampler *s, const int32_t *window, int32_t n, const token_seqs *breakers) {
    int32_t n_long = mark_breakers(s, breakers);
    for (int32_t distance = 0; distance < n; distance++) {
        int32_t at = n - 1 - distance;
        if (s->marks[window[at]] != s->mark) {
            continue;
        }
        int32_t longest = s->counts[window[at]] != 0 ? 0 : -1;
        for (int32_t i = 0; i < n_long; i++) {
            const int32_t *b = breakers->tokens + breakers->starts[i];
            int32_t tail = breakers->starts[i + 1] - breakers->starts[i] - 1;
            if (tail > longest && tail <= distance &&
                memcmp(window + at, b, ((size_t)tail + 1) * sizeof *b) == 0) {
                longest = tail;
            }
        }
        if (longest >= 0) {
            return distance - longest;
        }
    }
    return n;
}

/* repeats[k] for 1 <= k < n: length of the longest common suffix of window[0..n) and
 * window[0 .. n - k) (the Z function, Gusfield 1997, from the end). */
static void measure_repeats(const int32_t *window, int32_t n, int32_t *repeats) {
    int32_t left = 0, right = 0; /* [left, right): the match that reaches furthest */
    for (int32_t k = 1; k < n; k++) {
        int32_t m = 0;
        if (k < right) {
            m = repeats[k - left] < right - k ? repeats[k - left] : right - k;
        }
        while (k + m < n && window[n - 1 - m] == window[n - 1 - k - m]) {
            m++;
        }
        repeats[k] = m;
        if (k + m > right) {
            left = k;
            right = k + m;
        }
    }
}

/* Bans tokens that followed an earlier occurrence of the last n - 1 tokens
 * (no_repeat_ngram_size n). */
static void ban_repeats(sampler *s, float *logits, const sample_context *c) {
    int32_t before = c->params->no_repeat_ngram_size - 1, n = c->n_tokens;
    if (before >= n) {
        return;
    }
    measure_repeats(c->tokens, n, s->repeats);
    s->repeats[n] = 0;
    for (int32_t k = 1; k <= n - before; k++) {
        if (s->repeats[k] >= before) {
            logits[c->tokens[n - k]] = -INFINITY;
        }
    }
}

static void penalise_repeats(sampler *s, float *logits, const sample_context *c) {
    static const token_seqs none = {0};
    const sampling_params *p = c->params;
    const token_seqs *breakers = p->lists != NULL ? &p->lists->dry_breakers : &none;
    int32_t n = p->dry_penalty_last_n >= 0 && p->dry_penalty_last_n < c->n_tokens ? p->dry_penalty_last_n
                                                                                  : c->n_tokens;
    const int32_t *window = c->tokens + c->n_tokens - n;
    if (p->dry_base < 1.0f || n <= p->dry_allowed_length) {
        return;
    }
    int32_t limit = since_breaker(s, window, n, breakers);
    if (limit < p->dry_allowed_length) {
        return;
    }
    measure_repeats(window, n, s->repeats);
    sampler_unmark(s);
    for (int32_t k = 1; k < n; k++) {
        int32_t length = s->repeats[k] < limit ? s->repeats[k] : limit, next = window[n - k];
        if (length >= p->dry_allowed_length && (sampler_mark(s, next) || length > s->counts[next])) {
            s->counts[next] = length;
        }
    }
    /* tokens that are breakers by themselves are not penalised */
    for (int32_t i = 0; i < breakers->n; i++) {
        if (breakers->starts[i + 1] - breakers->starts[i] == 1) {
            s->counts[breakers->tokens[breakers->starts[i]]] = -1;
        }
    }
    /* dry_base^most stays finite: exp(88.72) is the largest float */
    double most = p->dry_base > 1.0f ? 88.7228391 / log((double)p->dry_base) : (double)n;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = window[i];
        if (s->marks[id] == s->mark && s->counts[id] >= 0) {
            double exponent = (double)(s->counts[id] - p->dry_allowed_length);
            double penalty =
                (double)p->dry_multiplier * pow((double)p->dry_base, exponent < most ? exponent : most);
            logits[id] -= (float)fmin(penalty, (double)CHANGED_MAX);
            s->counts[id] = -1; /* each token once */
        }
    }
}

bool sampler_may_change(const sampling_params *p, int32_t n_output) {
    return p->lists != NULL || p->no_repeat_ngram_size > 0 || n_output < p->min_tokens ||
           p->repetition_penalty != 1.0f || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f ||
           p->dry_multiplier != 0.0f;
}

bool sampler_change(sampler *s, float *logits, const sample_context *c) {
    const sampling_params *p = c->params;
    if (!sampler_may_change(p, c->n_tokens - c->n_prompt)) {
        return false;
    }
    if (p->lists != NULL && p->lists->has_allowed) {
        allow_only(s, logits, p->lists);
    }
    if (p->lists != NULL) {
        ban_words(logits, c);
    }
    if (p->no_repeat_ngram_size > 0 && c->n_tokens >= p->no_repeat_ngram_size - 1) {
        ban_repeats(s, logits, c);
    }
    if (c->n_tokens - c->n_prompt < p->min_tokens && (c->constraint == NULL || s->goes_on)) {
        keep_going(logits, c);
    }
    for (int32_t i = 0; p->lists != NULL && i < p->lists->n_bias; i++) {
        logits[p->lists->bias_ids[i]] += p->lists->bias[i];
    }
    if (p->repetition_penalty != 1.0f) {
        penalise_seen(s, logits, c);
    }
    if (p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f) {
        penalise_output(s, logits, c);
    }
    if (p->dry_multiplier != 0.0f && c->n_tokens > 0) {
        penalise_repeats(s, logits, c);
    }
    return true;
}
