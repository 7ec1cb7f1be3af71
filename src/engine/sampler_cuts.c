/* Sampling stages that look at the whole distribution: temperature, and what leaves the unlikely (or the likeliest) tokens out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler_parts.h"

static uint32_t bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
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

static void weigh(sampler *s, const float *logits) {
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->weights[i] = (float)exp(((double)logits[i] - (double)s->max) / (double)s->temperature);
    }
}

static double sum_weights(const sampler *s) {
    double sum = 0.0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        sum += (double)s->weights[i];
    }
    return sum;
}

/* ---- a cut in an order: the tokens with the largest keys stay ---- */

static int32_t bucket_of(uint32_t key) {
    return (int32_t)(key >> 19);
}

/* Counts and weighs the kept tokens by bucket. */
static void fill_buckets(sampler *s) {
    memset(s->mass, 0, sizeof s->mass);
    memset(s->count, 0, sizeof s->count);
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->weights[i] > 0.0f) {
            int32_t b = bucket_of(s->keys[i]);
            s->mass[b] += (double)s->weights[i];
            s->count[b]++;
        }
    }
}

static int by_key(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? 1 : -1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

/* The kept tokens of bucket b in order, into s->inside; those of lower buckets are left out. Returns how many are inside. */
static int32_t open_bucket(sampler *s, int32_t b) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        int32_t of = s->weights[i] > 0.0f ? bucket_of(s->keys[i]) : -1;
        if (of == b) {
            s->inside[n++] = (candidate){s->keys[i], i};
        } else if (of < b) {
            s->weights[i] = 0.0f;
        }
    }
    qsort(s->inside, (size_t)n, sizeof *s->inside, by_key);
    return n;
}

/* Finds the bucket in which the n-th largest key lies, opens it, and says how many keys lie above; false when no more than n are kept. */
static bool open_nth(sampler *s, int32_t n, int32_t *n_above, int32_t *n_inside) {
    fill_buckets(s);
    int32_t b = N_BUCKETS - 1, above = 0;
    while (b >= 0 && above + s->count[b] < n) {
        above += s->count[b--];
    }
    if (b < 0) {
        return false;
    }
    *n_above = above;
    *n_inside = open_bucket(s, b);
    return true;
}

/* Finds the bucket in which the mass before a token reaches `limit`, opens it, and says the mass above. */
static int32_t open_mass(sampler *s, double limit, double *above) {
    fill_buckets(s);
    int32_t b = N_BUCKETS - 1;
    *above = 0.0;
    while (b > 0 && (s->count[b] == 0 || *above + s->mass[b] < limit)) {
        *above += s->mass[b--];
    }
    return open_bucket(s, b);
}

static void order_by_weight(sampler *s) {
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->keys[i] = bits_of(s->weights[i]);
    }
}

/* ---- the cuts ---- */

/* Keeps logits of at least the best one less n standard deviations of the live ones. */
static void cut_sigma(sampler *s, const float *logits, float n) {
    double sum = 0.0, squares = 0.0;
    int32_t n_live = 0;
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
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if ((double)logits[i] < least) {
            s->weights[i] = 0.0f;
        }
    }
}

static void cut_min_p(sampler *s, float min_p) {
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->weights[i] < min_p) { /* the largest weight is 1 */
            s->weights[i] = 0.0f;
        }
    }
}

/* Keeps the k largest weights, and all equal to the k-th. */
static void cut_top_k(sampler *s, int32_t k) {
    int32_t n_above, n_inside;
    order_by_weight(s);
    if (!open_nth(s, k, &n_above, &n_inside)) {
        return;
    }
    uint32_t least = s->inside[k - n_above - 1].key;
    for (int32_t i = k - n_above; i < n_inside; i++) {
        if (s->inside[i].key < least) {
            s->weights[s->inside[i].id] = 0.0f;
        }
    }
}

/* Keeps a token iff the mass before it (of larger weights, or equal ones with lower ids) is below top_p of all. The first always stays. */
static void cut_top_p(sampler *s, float top_p) {
    order_by_weight(s);
    double before, limit = (double)top_p * sum_weights(s);
    int32_t n = open_mass(s, limit, &before);
    bool first = before == 0.0;
    for (int32_t i = 0; i < n; i++) {
        float *w = &s->weights[s->inside[i].id];
        double mass = (double)*w;
        if (before >= limit && !first) {
            *w = 0.0f;
        }
        first = false;
        before += mass;
    }
}

/* Keeps the tokens whose surprise is nearest to the entropy, until they together have this probability; all as near as the last one stay. */
static void cut_typical(sampler *s, const float *logits, float typical_p) {
    double total = sum_weights(s), log_total = log(total), entropy = 0.0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->weights[i] > 0.0f) {
            double surprise = log_total - ((double)logits[i] - (double)s->max) / (double)s->temperature;
            entropy += (double)s->weights[i] / total * surprise;
        }
    }
    for (int32_t i = 0; i < s->n_vocab; i++) {
        double surprise = log_total - ((double)logits[i] - (double)s->max) / (double)s->temperature;
        s->keys[i] = 0x7fffffffu - bits_of((float)fabs(surprise - entropy));
    }
    double before, limit = (double)typical_p * total;
    int32_t n = open_mass(s, limit, &before), last = 0;
    while (last < n - 1 && before + (double)s->weights[s->inside[last].id] < limit) {
        before += (double)s->weights[s->inside[last++].id];
    }
    for (int32_t i = last + 1; i < n; i++) {
        if (s->inside[i].key < s->inside[last].key) {
            s->weights[s->inside[i].id] = 0.0f;
        }
    }
}

/* Leaves out all tokens of at least this probability but the least likely of them, the last one of equals. */
static void cut_top_choices(sampler *s, float threshold) {
    double total = sum_weights(s);
    int32_t last = -1, n_live = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        n_live += s->weights[i] > 0.0f;
        if ((double)s->weights[i] >= (double)threshold * total && (last < 0 || s->weights[i] <= s->weights[last])) {
            last = i;
        }
    }
    for (int32_t i = 0; last >= 0 && n_live >= 2 && i < s->n_vocab; i++) {
        if (i != last && (double)s->weights[i] >= (double)threshold * total) {
            s->weights[i] = 0.0f;
        }
    }
}

void sampler_cut(sampler *s, const float *logits, const sample_context *c) {
    const sampling_params *p = c->params;
    weigh(s, logits);
    if (p->mirostat != MIROSTAT_OFF) {
        return;
    }
    if (p->top_n_sigma > 0.0f) {
        cut_sigma(s, logits, p->top_n_sigma);
    }
    if (p->min_p > 0.0f) {
        cut_min_p(s, p->min_p);
    }
    if (p->top_k > 0 && p->top_k < s->n_vocab) {
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

/* ---- for mirostat ---- */

int32_t sampler_sort(sampler *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->weights[i] > 0.0f) {
            s->inside[n++] = (candidate){bits_of(s->weights[i]), i};
        }
    }
    qsort(s->inside, (size_t)n, sizeof *s->inside, by_key);
    return n;
}
