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

/* ---- a cut in an order: of the candidates, those with the largest keys stay ---- */

static int32_t bucket_of(uint32_t key) {
    return (int32_t)(key >> 19);
}

static int32_t finer_bucket_of(uint32_t key) {
    return (int32_t)(key >> 7 & (N_BUCKETS - 1));
}

/* Kept tokens of less than this weight become candidates, in id order, with their weights as keys; returns how many. Written without a branch a token:
 * whether one is kept cannot be guessed. There is a place more than tokens. */
static int32_t gather(sampler *s, float most) {
    int32_t n = 0;
    for (int32_t g = 0; g * GROUP < s->n_vocab; g++) {
        int32_t end = (g + 1) * GROUP < s->n_vocab ? (g + 1) * GROUP : s->n_vocab;
        for (int32_t i = s->largest[g] > 0.0f ? g * GROUP : end; i < end; i++) {
            s->inside[n] = (candidate){bits_of(s->weights[i]), i};
            n += (s->weights[i] > 0.0f) & (s->weights[i] < most);
        }
    }
    return n;
}

/* Counts and weighs the candidates by bucket. */
static void fill_buckets(sampler *s, int32_t n) {
    memset(s->mass, 0, sizeof s->mass);
    memset(s->count, 0, sizeof s->count);
    for (int32_t i = 0; i < n; i++) {
        int32_t b = bucket_of(s->inside[i].key);
        s->mass[b] += (double)s->weights[s->inside[i].id];
        s->count[b]++;
    }
}

static int by_key(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? 1 : -1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

/* Of the n candidates those of bucket b stay, in order; those of lower buckets are left out. Returns how many are inside. */
static int32_t open_bucket(sampler *s, int32_t n, int32_t b) {
    int32_t n_inside = 0;
    for (int32_t i = 0; i < n; i++) {
        candidate c = s->inside[i];
        if (bucket_of(c.key) == b) {
            s->inside[n_inside++] = c;
        } else if (bucket_of(c.key) < b) {
            s->weights[c.id] = 0.0f;
        }
    }
    qsort(s->inside, (size_t)n_inside, sizeof *s->inside, by_key);
    return n_inside;
}

/* The bucket in which the mass from the top reaches `limit`; *above becomes the mass over it. */
static int32_t find_mass(const sampler *s, double limit, double *above) {
    int32_t b = N_BUCKETS - 1;
    while (b > 0 && (s->mass[b] <= 0.0 || *above + s->mass[b] < limit)) {
        *above += s->mass[b--];
    }
    return b;
}

/* Of the n candidates, which share a bucket, those stay where the mass before them reaches `limit`, in order; the ones that come after these are left out.
 * Buckets of the next bits of their keys save sorting the many. */
static int32_t open_finer(sampler *s, int32_t n, double limit, double *above) {
    memset(s->mass, 0, sizeof s->mass);
    for (int32_t i = 0; i < n; i++) {
        s->mass[finer_bucket_of(s->inside[i].key)] += (double)s->weights[s->inside[i].id];
    }
    int32_t b = find_mass(s, limit, above), n_inside = 0;
    for (int32_t i = 0; i < n; i++) {
        candidate c = s->inside[i];
        if (finer_bucket_of(c.key) == b) {
            s->inside[n_inside++] = c;
        } else if (finer_bucket_of(c.key) < b) {
            s->weights[c.id] = 0.0f;
        }
    }
    qsort(s->inside, (size_t)n_inside, sizeof *s->inside, by_key);
    return n_inside;
}

/* Opens the bucket in which the mass before a candidate reaches `limit`, and says the mass above. */
static int32_t open_mass(sampler *s, int32_t n, double limit, double *above) {
    fill_buckets(s, n);
    *above = 0.0;
    return open_bucket(s, n, find_mass(s, limit, above));
}

static float weight_of(int32_t bucket) {
    uint32_t bits = (uint32_t)bucket << 19;
    float least;
    memcpy(&least, &bits, sizeof least);
    return least;
}

/* As open_mass for all weights as they lie, when these are the keys. */
static int32_t open_weights(sampler *s, double limit, double *above) {
    memset(s->mass, 0, sizeof s->mass);
    for (int32_t g = 0; g * GROUP < s->n_vocab; g++) {
        int32_t end = (g + 1) * GROUP < s->n_vocab ? (g + 1) * GROUP : s->n_vocab, n_kept = 0;
        float kept[GROUP + 1];
        for (int32_t i = s->largest[g] > 0.0f ? g * GROUP : end; i < end; i++) {
            kept[n_kept] = s->weights[i];
            n_kept += s->weights[i] > 0.0f;
        }
        for (int32_t i = 0; i < n_kept; i++) {
            s->mass[bucket_of(bits_of(kept[i]))] += (double)kept[i];
        }
    }
    *above = 0.0;
    int32_t b = find_mass(s, limit, above);
    s->rows->drop_below(s, weight_of(b));
    return open_finer(s, gather(s, weight_of(b + 1)), limit, above);
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

/* The k-th largest of the groups' largest weights: at least k tokens have as much. 0 where there are fewer groups. */
static float floor_of_top_k(sampler *s, int32_t k) {
    int32_t n = 0, b = N_BUCKETS - 1, above = 0;
    if ((size_t)k > s->n_groups) {
        return 0.0f;
    }
    for (size_t g = 0; g < s->n_groups; g++) {
        s->inside[n++] = (candidate){bits_of(s->largest[g]), 0};
    }
    memset(s->count, 0, sizeof s->count);
    for (int32_t i = 0; i < n; i++) {
        s->count[bucket_of(s->inside[i].key)]++;
    }
    while (above + s->count[b] < k) {
        above += s->count[b--];
    }
    return weight_of(b); /* the least of the bucket in which the k-th lies */
}

/* Keeps the k largest weights, and all equal to the k-th. */
static void cut_top_k(sampler *s, int32_t k) {
    s->rows->drop_below(s, floor_of_top_k(s, k));
    int32_t n = gather(s, INFINITY), b = N_BUCKETS - 1, above = 0;
    fill_buckets(s, n);
    while (b >= 0 && above + s->count[b] < k) {
        above += s->count[b--];
    }
    if (b < 0) {
        return; /* no more than k are left */
    }
    n = open_bucket(s, n, b);
    uint32_t least = s->inside[k - above - 1].key;
    for (int32_t i = k - above; i < n; i++) {
        if (s->inside[i].key < least) {
            s->weights[s->inside[i].id] = 0.0f;
        }
    }
}

/* Keeps a token iff the mass before it (of larger weights, or equal ones with lower ids) is below top_p of all. The first always stays. Tokens of less than
 * (1 - top_p) / n_vocab of the whole together have less than 1 - top_p of it, so the cut lies above them. */
static void cut_top_p(sampler *s, float top_p) {
    double total = s->rows->sum(s), before, limit = (double)top_p * total;
    s->rows->drop_below(s, (float)((1.0 - (double)top_p) * total / s->n_vocab * 0.999));
    int32_t n = open_weights(s, limit, &before);
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
    double total = s->rows->sum(s), log_total = log(total), entropy = 0.0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->weights[i] > 0.0f) {
            double surprise = log_total - ((double)logits[i] - (double)s->max) / (double)s->temperature;
            entropy += (double)s->weights[i] / total * surprise;
        }
    }
    int32_t n = gather(s, INFINITY), last = 0;
    for (int32_t i = 0; i < n; i++) {
        double surprise = log_total - ((double)logits[s->inside[i].id] - (double)s->max) / (double)s->temperature;
        s->inside[i].key = 0x7fffffffu - bits_of((float)fabs(surprise - entropy));
    }
    double before, limit = (double)typical_p * total;
    n = open_mass(s, n, limit, &before);
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
    double total = s->rows->sum(s);
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
    s->rows->weigh(s, logits);
    if (p->mirostat != MIROSTAT_OFF) {
        return;
    }
    if (p->top_n_sigma > 0.0f) {
        cut_sigma(s, logits, p->top_n_sigma);
    }
    if (p->min_p > 0.0f) {
        s->rows->drop_below(s, p->min_p); /* the largest weight is 1 */
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
    int32_t n = gather(s, INFINITY);
    qsort(s->inside, (size_t)n, sizeof *s->inside, by_key);
    return n;
}
