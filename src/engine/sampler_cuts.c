/* Sampling stages that look at the whole distribution: temperature, and what leaves the unlikely (or the likeliest) tokens out.
 *
 * Few tokens are kept of a large vocabulary, so the cuts begin with those whose logits reach a bound below which nothing can be kept: known
 * for top-k and min-p; for top-p guessed from a sample of the row and checked afterwards. Which bound it was never shows in what is kept. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/sampler_parts.h"

#define SAMPLED_GROUPS 32   /* one group of so many says where the bound of top-p may lie */
#define SMALL_VOCAB    4096 /* up to so many tokens all are looked at */
#define LEAST_WEIGHT   1.1754944e-38f /* 2^-126 */

static uint32_t bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static float weight_of(uint32_t key) {
    float w;
    memcpy(&w, &key, sizeof w);
    return w;
}

/* ---- temperature ---- */

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
    if (n_live < 2) {
        return p->temperature;
    }
    double entropy = log(sum) - weighted / sum;
    double low = fmax(0.0, (double)p->temperature - (double)p->dynatemp_range), high = (double)p->temperature + (double)p->dynatemp_range;
    return (float)(low + (high - low) * pow(fmax(0.0, entropy) / log((double)n_live), (double)p->dynatemp_exponent));
}

/* ---- a cut in an order: of the candidates, those with the largest keys stay ---- */

/* What a cut adds up from the largest key on: tokens, or their weights. */
typedef enum measure { BY_COUNT, BY_WEIGHT } measure;

/* A key's bits in rounds from the top: 11, 11 and 9. */
#define N_ROUNDS 3

static int32_t bucket_of(uint32_t key, int round) {
    static const int shifts[N_ROUNDS] = {20, 9, 0}, masks[N_ROUNDS] = {N_BUCKETS - 1, N_BUCKETS - 1, 511};
    return (int32_t)(key >> shifts[round]) & masks[round];
}

static double measure_of(const sampler *s, measure by, int32_t place) {
    return by == BY_COUNT ? 1.0 : (double)s->weights[place];
}

static uint32_t key_at(const void *keys, int32_t place) {
    uint32_t key;
    memcpy(&key, (const uint32_t *)keys + place, sizeof key);
    return key;
}

/* The bucket in which the sum from the top reaches `limit`, or the last one that has any when it never does: false. *above becomes the sum
 * over it. */
static bool find_bucket(const sampler *s, double limit, double *above, int32_t *bucket) {
    double sum = *above;
    *bucket = 0;
    for (int32_t b = N_BUCKETS - 1; b >= 0; b--) {
        if (s->mass[b] > 0.0) { /* most are empty: no addition waits for them */
            *above = sum;
            *bucket = b;
            sum += s->mass[b];
            if (sum >= limit) {
                return true;
            }
        }
    }
    return false;
}

/* Kept tokens whose keys lie in bucket b of the first round become candidates; returns how many. */
static int32_t open_bucket(sampler *s, const void *keys, int32_t b) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        uint32_t key = key_at(keys, i);
        s->inside[n] = (candidate){key, i};
        n += bucket_of(key, 0) == b;
    }
    return n;
}

/* Of n candidates those stay in whose bucket of a later round the sum reaches `limit` (the last one where rounding lets it not); returns how
 * many. */
static int32_t open_finer(sampler *s, int32_t n, int round, measure by, double limit, double *above) {
    int32_t n_inside = 0, b;
    memset(s->mass, 0, sizeof s->mass);
    for (int32_t i = 0; i < n; i++) {
        s->mass[bucket_of(s->inside[i].key, round)] += measure_of(s, by, s->inside[i].place);
    }
    (void)find_bucket(s, limit, above, &b);
    for (int32_t i = 0; i < n; i++) {
        candidate c = s->inside[i];
        s->inside[n_inside] = c;
        n_inside += bucket_of(c.key, round) == b;
    }
    return n_inside;
}

/* The kept tokens by keys (uint32 under 2^31, one a kept token), largest first, until their sum reaches `limit`: the last of them, at least
 * one. False when the sum of all does not reach the limit. Nothing is sorted, so that a row of equals costs no more than another: after all
 * rounds the candidates have one key and lie in order. */
static bool find_cut(sampler *s, const void *keys, measure by, double limit, candidate *last) {
    double above = 0.0;
    int32_t b;
    memset(s->mass, 0, sizeof s->mass);
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->mass[bucket_of(key_at(keys, i), 0)] += measure_of(s, by, i);
    }
    *last = (candidate){0, s->n_kept - 1};
    if (!find_bucket(s, limit, &above, &b)) {
        return false;
    }
    int32_t n = open_bucket(s, keys, b);
    for (int round = 1; round < N_ROUNDS; round++) {
        n = open_finer(s, n, round, by, limit, &above);
    }
    for (int32_t i = 0; i < n && (i == 0 || above < limit); i++) {
        *last = s->inside[i];
        above += measure_of(s, by, last->place);
    }
    return true;
}

/* Leaves out what comes after `last` by weight. */
static void cut_after(sampler *s, candidate last) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        float w = s->weights[i];
        uint32_t key = bits_of(w);
        s->weights[n] = w;
        s->ids[n] = s->ids[i];
        n += (key > last.key) | ((key == last.key) & (i <= last.place));
    }
    s->n_kept = n;
}

/* ---- what the cuts begin with ---- */

/* A logit that is surely below any whose weight is this. */
static float logit_below(const sampler *s, float weight) {
    double l = (double)s->max + (log2((double)weight) - 1e-3) / (double)s->scale;
    return weight > 0.0f ? (float)(l - 1e-6 * fabs(l)) : -INFINITY;
}

/* Tokens of at least this logit become the kept ones, but those of less than this weight. */
static void keep_from(sampler *s, const float *logits, float least, float least_weight) {
    int32_t n = 0;
    s->is_whole = false;
    least = fmaxf(least, logit_below(s, LEAST_WEIGHT));
    s->n_kept = s->rows->gather(s, logits, least > -FLT_MAX ? least : -FLT_MAX);
    s->rows->weigh(s->weights, s->n_kept, s->max, s->scale);
    for (int32_t i = 0; i < s->n_kept && least_weight > 0.0f; i++) {
        s->weights[n] = s->weights[i];
        s->ids[n] = s->ids[i];
        n += s->weights[i] >= least_weight;
    }
    s->n_kept = least_weight > 0.0f ? n : s->n_kept;
}

void sampler_keep_all(sampler *s, const float *logits) {
    keep_from(s, logits, -INFINITY, LEAST_WEIGHT);
}

/* A logit that at least k tokens reach: the k-th largest of the groups' largest, or a little less. */
static float bound_of_top_k(sampler *s, int32_t k) {
    int32_t n_above = 0, b = N_BUCKETS - 1;
    if ((size_t)k > s->n_groups) {
        return -INFINITY;
    }
    memcpy(s->weights, s->largest, s->n_groups * sizeof *s->weights);
    s->rows->weigh(s->weights, (int32_t)s->n_groups, s->max, s->scale);
    memset(s->mass, 0, sizeof s->mass);
    for (size_t g = 0; g < s->n_groups; g++) {
        s->mass[bucket_of(bits_of(s->weights[g]), 0)] += 1.0;
    }
    while (n_above + (int32_t)s->mass[b] < k) {
        n_above += (int32_t)s->mass[b--];
    }
    return logit_below(s, weight_of((uint32_t)b << 20));
}

/* A logit below which the tokens have this weight together at most, to judge by a sample of groups: their weight is taken for so many of its
 * standard errors more than the sample says. The bound is right above the last sampled one that may be left out: in a row whose weight lies
 * in few tokens that is right above all the others, whether the sample has some of the few or not. */
static float guess_bound(sampler *s, const float *logits, double weight, double n_errors) {
    int32_t n = 0, bound = 0;
    for (size_t g = 0; (int32_t)((g + 1) * GROUP) <= s->n_vocab; g += SAMPLED_GROUPS, n += GROUP) {
        memcpy(s->weights + n, logits + g * GROUP, GROUP * sizeof *logits);
    }
    s->rows->weigh(s->weights, n, s->max, s->scale);
    memset(s->mass, 0, sizeof s->mass);
    for (int32_t i = 0; i < n; i++) {
        s->mass[bucket_of(bits_of(s->weights[i]), 0)] += (double)s->weights[i];
    }
    double below = 0.0, squares = 0.0, share = weight * n / s->n_vocab;
    for (int32_t b = 0; b < N_BUCKETS; b++) {
        if (s->mass[b] > 0.0) {
            below += s->mass[b];
            squares += s->mass[b] * (double)weight_of((uint32_t)(b + 1) << 20);
            if (below > share || n_errors * n_errors * squares > (share - below) * (share - below)) {
                break;
            }
            bound = b + 1;
        }
    }
    return logit_below(s, weight_of((uint32_t)bound << 20));
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
        s->weights[n_kept] = s->weights[i];
        s->ids[n_kept] = s->ids[i];
        n_kept += (double)logits[s->ids[i]] >= least;
    }
    s->n_kept = n_kept;
}

/* Keeps the k largest weights, and all equal to the k-th. */
static void cut_top_k(sampler *s, int32_t k) {
    candidate last;
    if (s->n_kept > k && find_cut(s, s->weights, BY_COUNT, (double)k, &last)) {
        cut_after(s, (candidate){last.key, s->n_kept});
    }
}

/* Keeps a token iff the mass before it (of larger weights, or equal ones with lower ids) is below top_p of all that were kept. */
static void cut_top_p(sampler *s, float top_p) {
    candidate last;
    (void)find_cut(s, s->weights, BY_WEIGHT, (double)top_p * s->rows->sum_blocks(s->weights, s->n_kept, s->sums), &last);
    cut_after(s, last);
}

/* The same when nothing was left out before: by the weight of all tokens, with few of them looked at. Where the tokens that reach the guessed
 * bound do not suffice, a more careful guess follows, and in the end all are looked at. */
static void cut_top_p_first(sampler *s, const float *logits, float top_p) {
    static const double n_errors[] = {2.0, 8.0};
    double limit = (double)top_p * s->total;
    candidate last;
    for (int i = 0; i < 2 && s->n_vocab > SMALL_VOCAB; i++) {
        keep_from(s, logits, guess_bound(s, logits, s->total - limit, n_errors[i]), 0.0f);
        if (find_cut(s, s->weights, BY_WEIGHT, limit, &last)) {
            cut_after(s, last);
            return;
        }
    }
    sampler_keep_all(s, logits);
    (void)find_cut(s, s->weights, BY_WEIGHT, limit, &last);
    cut_after(s, last);
}

static double surprise_of(const sampler *s, const float *logits, int32_t id, double log_total) {
    return log_total - ((double)logits[id] - (double)s->max) * (double)s->scale * 0.6931471805599453; /* ln 2 */
}

/* Larger for what is nearer to the entropy. */
static uint32_t nearness_of(double surprise, double entropy) {
    return 0x7fffffffu - bits_of((float)fabs(surprise - entropy));
}

/* Keeps the tokens whose surprise is nearest to the entropy, until they together have this probability; all as near as the last one stay. */
static void cut_typical(sampler *s, const float *logits, float typical_p) {
    double total = s->rows->sum_blocks(s->weights, s->n_kept, s->sums), log_total = log(total), entropy = 0.0;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        entropy += (double)s->weights[i] / total * surprise_of(s, logits, s->ids[i], log_total);
    }
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->keys[i] = nearness_of(surprise_of(s, logits, s->ids[i], log_total), entropy);
    }
    candidate last;
    (void)find_cut(s, s->keys, BY_WEIGHT, (double)typical_p * total, &last);
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->weights[n] = s->weights[i];
        s->ids[n] = s->ids[i];
        n += s->keys[i] >= last.key;
    }
    s->n_kept = n;
}

/* Leaves out all tokens of at least this probability but the least likely of them, the last one of equals. */
static void cut_top_choices(sampler *s, float threshold) {
    double least = (double)threshold * s->rows->sum_blocks(s->weights, s->n_kept, s->sums);
    int32_t last = -1, n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        if ((double)s->weights[i] >= least && (last < 0 || s->weights[i] <= s->weights[last])) {
            last = i;
        }
    }
    for (int32_t i = 0; i < s->n_kept; i++) {
        bool stays = i == last || (double)s->weights[i] < least;
        s->weights[n] = s->weights[i];
        s->ids[n] = s->ids[i];
        n += stays;
    }
    s->n_kept = n;
}

static bool has_top_k(const sampler *s, const sampling_params *p) {
    return p->top_k > 0 && p->top_k < s->n_vocab;
}

/* Whether a stage needs every live token's weight. */
static bool needs_all(const sampling_params *p) {
    return p->mirostat != MIROSTAT_OFF || p->top_n_sigma > 0.0f || p->typical_p < 1.0f || p->xtc_probability > 0.0f;
}

bool sampler_wants_masses(const sampling_params *p) {
    return !needs_all(p) && p->min_p <= 0.0f && p->top_k <= 0;
}

/* Keeps all that may stay: min-p is done with it. */
static void begin(sampler *s, const float *logits, const sampling_params *p) {
    float least = -INFINITY;
    if (!needs_all(p) && has_top_k(s, p)) {
        least = bound_of_top_k(s, p->top_k);
    }
    if (p->min_p > 0.0f) {
        least = fmaxf(least, logit_below(s, p->min_p)); /* the largest weight is 1 */
    }
    keep_from(s, logits, least, fmaxf(p->min_p, LEAST_WEIGHT));
}

void sampler_cut(sampler *s, const float *logits, const sample_context *c) {
    const sampling_params *p = c->params;
    if (sampler_wants_masses(p)) {
        s->is_whole = p->top_p >= 1.0f;
        if (!s->is_whole) {
            cut_top_p_first(s, logits, p->top_p);
        }
        return;
    }
    begin(s, logits, p);
    if (p->mirostat != MIROSTAT_OFF) {
        return;
    }
    if (p->top_n_sigma > 0.0f) {
        cut_sigma(s, logits, p->top_n_sigma);
    }
    if (has_top_k(s, p)) {
        cut_top_k(s, p->top_k);
    }
    if (p->typical_p < 1.0f) {
        cut_typical(s, logits, p->typical_p);
    }
    if (p->top_p < 1.0f) {
        cut_top_p(s, p->top_p);
    }
    if (p->xtc_probability > 0.0f && p->xtc_threshold <= 0.5f && c->noise.xtc <= p->xtc_probability) {
        cut_top_choices(s, p->xtc_threshold);
    }
}
