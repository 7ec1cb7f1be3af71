#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

#define GREEDY_BELOW 1e-5f
#define N_BUCKETS 4096 /* a float's exponent and four leading bits of its fraction: monotone in the value for non-negative floats */

typedef struct candidate {
    float weight;
    int32_t id;
} candidate;

struct sampler {
    int32_t n_vocab;
    float *probs;      /* [n_vocab] weights exp((l - max) / T); 0: not kept */
    candidate *inside; /* [n_vocab] tokens of the bucket that a cut falls into */
    double mass[N_BUCKETS];
    int32_t count[N_BUCKETS];
};

quire_err sampler_open(int32_t n_vocab, sampler **out) {
    sampler *s = mem_new(1, sizeof *s);
    if (!s) {
        return QUIRE_NO_MEMORY;
    }
    s->n_vocab = n_vocab;
    s->probs = mem_new((size_t)n_vocab, sizeof *s->probs);
    s->inside = mem_new((size_t)n_vocab, sizeof *s->inside);
    if (!s->probs || !s->inside) {
        sampler_close(s);
        return QUIRE_NO_MEMORY;
    }
    *out = s;
    return QUIRE_OK;
}

void sampler_close(sampler *s) {
    if (s) {
        mem_free(s->probs);
        mem_free(s->inside);
        mem_free(s);
    }
}

static bool is_forbidden(int32_t id, const int32_t *forbidden, int32_t n_forbidden) {
    for (int32_t k = 0; k < n_forbidden; k++) {
        if (forbidden[k] == id) {
            return true;
        }
    }
    return false;
}

/* The largest logit's lowest id among the tokens allowed; refuses rows that are no logits. */
static quire_err find_best(const float *logits, int32_t n, const int32_t *forbidden, int32_t n_forbidden, int32_t *best) {
    float max = -INFINITY;
    bool bad = false;
    *best = -1;
    for (int32_t i = 0; i < n; i++) {
        bad |= !(logits[i] < INFINITY); /* NaN and +inf */
        if (logits[i] > max && !is_forbidden(i, forbidden, n_forbidden)) {
            max = logits[i];
            *best = i;
        }
    }
    return bad || *best < 0 ? QUIRE_NUMERIC : QUIRE_OK;
}

static int32_t bucket_of(float w) {
    uint32_t u;
    memcpy(&u, &w, sizeof u);
    return (int32_t)(u >> 19);
}

/* Weights exp((l - max) / T), dropped below min_p of the largest (which is 1). Returns how many are kept. */
static int32_t weigh(sampler *s, const float *logits, float max, const sampling_params *p, const int32_t *forbidden, int32_t n_forbidden) {
    int32_t n_kept = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        float w = (float)exp((double)(logits[i] - max) / (double)p->temperature);
        w = w >= p->min_p ? w : 0.0f;
        s->probs[i] = w;
        n_kept += w > 0.0f;
    }
    for (int32_t k = 0; k < n_forbidden; k++) {
        float *w = &s->probs[forbidden[k]];
        n_kept -= *w > 0.0f;
        *w = 0.0f;
    }
    return n_kept;
}

static void fill_buckets(sampler *s) {
    memset(s->mass, 0, sizeof s->mass);
    memset(s->count, 0, sizeof s->count);
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->probs[i] > 0.0f) {
            int32_t b = bucket_of(s->probs[i]);
            s->mass[b] += (double)s->probs[i];
            s->count[b]++;
        }
    }
}

/* Larger weights first, equal ones by id. */
static int by_weight(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->weight != y->weight) {
        return x->weight < y->weight ? 1 : -1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

/* The kept tokens of bucket b in order, into s->inside; those of lower buckets are dropped. Returns how many are inside. */
static int32_t open_bucket(sampler *s, int32_t b) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        int32_t of = s->probs[i] > 0.0f ? bucket_of(s->probs[i]) : -1;
        if (of == b) {
            s->inside[n++] = (candidate){s->probs[i], i};
        } else if (of < b) {
            s->probs[i] = 0.0f;
        }
    }
    qsort(s->inside, (size_t)n, sizeof *s->inside, by_weight);
    return n;
}

/* Keeps the k largest weights, and all equal to the k-th. More than k are kept now. */
static void cut_top_k(sampler *s, int32_t k) {
    fill_buckets(s);
    int32_t b = N_BUCKETS - 1, above = 0;
    while (above + s->count[b] < k) {
        above += s->count[b--];
    }
    int32_t n = open_bucket(s, b);
    float least = s->inside[k - above - 1].weight;
    for (int32_t i = k - above; i < n; i++) {
        if (s->inside[i].weight < least) {
            s->probs[s->inside[i].id] = 0.0f;
        }
    }
}

/* Keeps a token iff the mass before it (of larger weights, or equal ones with lower ids) is below top_p of all. The first always stays. */
static void cut_top_p(sampler *s, float top_p) {
    fill_buckets(s);
    double total = 0.0, before = 0.0;
    for (int32_t i = N_BUCKETS - 1; i >= 0; i--) {
        total += s->mass[i];
    }
    double limit = (double)top_p * total;
    int32_t b = N_BUCKETS - 1;
    while (b > 0 && (s->count[b] == 0 || before + s->mass[b] < limit)) {
        before += s->mass[b--];
    }
    int32_t n = open_bucket(s, b);
    bool first = before == 0.0;
    for (int32_t i = 0; i < n; i++) {
        if (before >= limit && !first) {
            s->probs[s->inside[i].id] = 0.0f;
        }
        first = false;
        before += (double)s->inside[i].weight;
    }
}

/* Leaves the final distribution's weights in s->probs and their sum in *total. */
static quire_err distribute(sampler *s, const float *logits, const sampling_params *p, const int32_t *forbidden, int32_t n_forbidden,
                            double *total) {
    int32_t best;
    TRY(find_best(logits, s->n_vocab, forbidden, n_forbidden, &best));
    if (p->temperature < GREEDY_BELOW) {
        memset(s->probs, 0, (size_t)s->n_vocab * sizeof *s->probs);
        s->probs[best] = 1.0f;
        *total = 1.0;
        return QUIRE_OK;
    }
    int32_t n_kept = weigh(s, logits, logits[best], p, forbidden, n_forbidden);
    if (p->top_k > 0 && p->top_k < n_kept) {
        cut_top_k(s, p->top_k);
    }
    if (p->top_p < 1.0f) {
        cut_top_p(s, p->top_p);
    }
    *total = 0.0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        *total += (double)s->probs[i];
    }
    return QUIRE_OK;
}

enum { NOISE_TOKEN = 1 }; /* what a draw is for: part of the counter */

quire_err sampler_pick(sampler *s, const float *logits, const sampling_params *p, sample_key key, const int32_t *forbidden, int32_t n_forbidden,
                       int32_t *token) {
    double total;
    if (p->temperature < GREEDY_BELOW) {
        return find_best(logits, s->n_vocab, forbidden, n_forbidden, token);
    }
    TRY(distribute(s, logits, p, forbidden, n_forbidden, &total));
    uint32_t counter[4] = {key.position, key.sample_index, NOISE_TOKEN, 0}, words[4];
    uint32_t seed[2] = {(uint32_t)key.seed, (uint32_t)(key.seed >> 32)};
    rng_philox(counter, seed, words);
    double target = (double)rng_uniform(words[0]) * total, cumulated = 0.0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        cumulated += (double)s->probs[i];
        if (s->probs[i] > 0.0f) {
            *token = i; /* the last one kept stands where rounding lets the walk run out */
            if (cumulated > target) {
                break;
            }
        }
    }
    return QUIRE_OK;
}

quire_err sampler_distribution(sampler *s, const float *logits, const sampling_params *p, const int32_t *forbidden, int32_t n_forbidden,
                               const float **probs) {
    double total;
    TRY(distribute(s, logits, p, forbidden, n_forbidden, &total));
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->probs[i] = (float)((double)s->probs[i] / total);
    }
    *probs = s->probs;
    return QUIRE_OK;
}
