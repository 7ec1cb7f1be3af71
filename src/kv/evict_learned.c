#include "kv/evict_learned.h"

#include <math.h>

#include "base/mem.h"

/* How far the first outcome moves a weight; later ones less and less. */
#define RATE 0.1
/* Log odds beyond this are as good as certain. */
#define MAX_LOG_ODDS 30.0

quire_err kv_learned_open(kv_learned *l, int32_t n_pages) {
    *l = (kv_learned){.cap = n_pages, .age = n_pages};
    l->trials = mem_new_huge((size_t)n_pages, sizeof *l->trials);
    l->buckets = mem_new_huge((size_t)n_pages, sizeof *l->buckets);
    if (l->trials == NULL || l->buckets == NULL) {
        kv_learned_close(l);
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

void kv_learned_close(kv_learned *l) {
    mem_free(l->trials);
    mem_free(l->buckets);
    l->trials = NULL;
    l->buckets = NULL;
}

int64_t kv_learned_bytes(const kv_learned *l) {
    return l->cap * (int64_t)(sizeof *l->trials + sizeof *l->buckets);
}

/* ---- the model ---- */

/* log2 with straight lines between powers of two: the same bits on every machine, unlike the library's. v > 0. */
static double log2_lines(double v) {
    int exponent;
    double mantissa = frexp(v, &exponent);
    return exponent - 2 + 2 * mantissa;
}

/* 1 / (1 + e^-z), with e^-z = (1 - z / 1024)^1024: the same bits on every machine. |z| <= MAX_LOG_ODDS. */
static double logistic(double z) {
    double power = 1 - z / 1024;
    for (int32_t i = 0; i < 10; i++) {
        power *= power;
    }
    return 1 / (1 + power);
}

/* All features but the tenant's, each of the order of 1. Gaps are measured by what a trial lasts. */
static void features_of(const kv_learned *l, const kv_use *u, double *x) {
    double gap = u->gap > 0 ? log2_lines((double)u->gap / l->cap) / 4 : 0;
    x[0] = 1;
    x[1] = u->n_uses == 1;
    x[2] = log2_lines((double)u->n_uses) / 4;
    x[3] = log2_lines(1.0 + u->depth) / 8;
    x[4] = gap;
    x[5] = gap * gap;
}

static int32_t weight_of_tenant(const kv_use *u) {
    return KV_LEARNED_FEATURES + u->tenant % KV_LEARNED_TENANTS;
}

static double probability(const kv_learned *l, const kv_use *u, const double *x) {
    double z = l->weights[weight_of_tenant(u)];
    for (int32_t i = 0; i < KV_LEARNED_FEATURES; i++) {
        z += l->weights[i] * x[i];
    }
    return logistic(fmax(-MAX_LOG_ODDS, fmin(z, MAX_LOG_ODDS)));
}

double kv_learned_probability(const kv_learned *l, const kv_use *u) {
    double x[KV_LEARNED_FEATURES];
    features_of(l, u, x);
    return probability(l, u, x);
}

double kv_learned_value(const kv_learned *l, const kv_use *u) {
    if (u->n_uses == 0) {
        return 0;
    }
    double p = kv_learned_probability(l, u);
    return (double)u->at + l->age * 2 * p / (p + l->mean);
}

static void move_weight(kv_learned *l, int32_t i, double gradient) {
    if (gradient < 0 || gradient > 0) {
        l->squares[i] += gradient * gradient;
        l->weights[i] -= RATE * gradient / sqrt(l->squares[i]);
    }
}

static void teach(kv_learned *l, const kv_trial *t) {
    double x[KV_LEARNED_FEATURES], outcome = t->was_used_again ? 1 : 0;
    features_of(l, &t->use, x);
    double error = probability(l, &t->use, x) - outcome;
    for (int32_t i = 0; i < KV_LEARNED_FEATURES; i++) {
        move_weight(l, i, error * x[i]);
    }
    move_weight(l, weight_of_tenant(&t->use), error);
    l->mean += (outcome - l->mean) / l->cap;
}

/* ---- trials ---- */

static int32_t *bucket_of(const kv_learned *l, uint64_t hash) {
    return &l->buckets[hash % (uint64_t)l->cap];
}

/* The link that names the trial of that hash, or the 0 that ends its bucket. */
static int32_t *find(const kv_learned *l, uint64_t hash) {
    int32_t *link = bucket_of(l, hash);
    while (*link != 0 && l->trials[*link - 1].hash != hash) {
        link = &l->trials[*link - 1].next;
    }
    return link;
}

/* Takes its name from the trial that link names. */
static kv_trial *take_name(kv_learned *l, int32_t *link) {
    kv_trial *t = &l->trials[*link - 1];
    *link = t->next;
    t->hash = 0;
    return t;
}

static void begin(kv_learned *l, int32_t number, uint64_t hash, const kv_use *u) {
    int32_t *bucket = bucket_of(l, hash);
    l->trials[number] = (kv_trial){.use = *u, .hash = hash, .next = *bucket};
    *bucket = number + 1;
}

static void end(kv_learned *l, int32_t number) {
    kv_trial *t = &l->trials[number];
    if (t->use.n_uses > 0) {
        teach(l, t);
    }
    if (t->hash != 0) {
        (void)take_name(l, find(l, t->hash));
    }
    t->use.n_uses = 0;
}

void kv_learned_made(const kv_learned *l, uint64_t hash, int32_t depth, int32_t tenant, kv_use *u) {
    int32_t number = hash != 0 ? *find(l, hash) : 0;
    *u = number != 0 ? l->trials[number - 1].use : (kv_use){.depth = depth, .tenant = tenant};
}

void kv_learned_used(kv_learned *l, uint64_t hash, kv_use *u) {
    int32_t number = (int32_t)(l->now++ % l->cap);
    end(l, number);
    u->gap = u->n_uses > 0 ? l->now - u->at : 0;
    u->at = l->now;
    u->n_uses++;
    if (hash != 0) {
        int32_t *link = find(l, hash);
        if (*link != 0) {
            take_name(l, link)->was_used_again = true;
        }
        begin(l, number, hash, u);
    }
}

void kv_learned_evicted(kv_learned *l, const kv_use *u) {
    l->age += ((double)(l->now - u->at) - l->age) / l->cap;
}
