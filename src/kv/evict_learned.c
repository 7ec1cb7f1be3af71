#include "kv/evict_learned.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "base/size.h"

/* Learning rate of the first outcome; it falls with each outcome. */
#define RATE 0.1
/* Log odds beyond this count as certain. */
#define MAX_LOG_ODDS 30.0

quire_err kv_learned_open(kv_learned *l, int32_t n_pages) {
    *l = (kv_learned){.cap = n_pages, .age = n_pages};
    l->n_sets = (uint32_t)size_power_of_two(((size_t)n_pages + 3) / 4);
    l->trials = mem_new_huge((size_t)n_pages, sizeof *l->trials);
    l->names = mem_new_huge(l->n_sets, sizeof *l->names);
    if (l->trials == NULL || l->names == NULL) {
        kv_learned_close(l);
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

void kv_learned_close(kv_learned *l) {
    assert(l != NULL);
    mem_free(l->trials);
    mem_free(l->names);
    l->trials = NULL;
    l->names = NULL;
}

int64_t kv_learned_bytes(const kv_learned *l) {
    return l->cap * (int64_t)sizeof *l->trials + l->n_sets * (int64_t)sizeof *l->names;
}

/* ---- the model ---- */

/* log2 by linear interpolation between powers of two: the same bits on every machine,
 * unlike the C library's. v > 0. */
static double log2_lines(double v) {
    int exponent;
    double mantissa = frexp(v, &exponent);
    return exponent - 2 + 2 * mantissa;
}

/* Returns 1 / (1 + e^-z), with e^-z = (1 - z / 1024)^1024: the same bits on every
 * machine. |z| <= MAX_LOG_ODDS. */
static double logistic(double z) {
    double power = 1 - z / 1024;
    for (int32_t i = 0; i < 10; i++) {
        power *= power;
    }
    return 1 / (1 + power);
}

/* Computes all features except the tenant's, each of the order of 1. The unit of gaps is
 * the length of a trial. */
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

/* Number of the trial that began at the time in a table entry. */
static int32_t evict_learned_number_of(const kv_learned *l, uint32_t time) {
    uint32_t age = (uint32_t)l->now - (time - 1);
    return (int32_t)((l->now - age) % l->cap);
}

/* Whether the trial of a table entry is still running. */
static bool evict_learned_is_running(const kv_learned *l, uint32_t time) {
    return time != 0 && (uint32_t)l->now - (time - 1) <= (uint32_t)l->cap;
}

static kv_names *evict_learned_set_of(const kv_learned *l, uint64_t hash) {
    return &l->names[hash & (l->n_sets - 1)];
}

static uint32_t tag_of(uint64_t hash) {
    return (uint32_t)(hash >> 32);
}

/* Index of that hash in its set if a trial of it is running; else KV_NAMES_A_SET. */
static int32_t evict_learned_find(const kv_learned *l, const kv_names *set, uint64_t hash) {
    int32_t i = 0;
    while (i < KV_NAMES_A_SET &&
           !(set->tags[i] == tag_of(hash) && evict_learned_is_running(l, set->times[i]) &&
             l->trials[evict_learned_number_of(l, set->times[i])].hash == hash)) {
        i++;
    }
    return i;
}

/* Index for a new entry of a set: a free one, else that of the oldest. */
static int32_t place_for_name(const kv_learned *l, const kv_names *set) {
    int32_t oldest = 0;
    for (int32_t i = 0; i < KV_NAMES_A_SET; i++) {
        if (!evict_learned_is_running(l, set->times[i])) {
            return i;
        }
        oldest = (uint32_t)l->now - set->times[i] > (uint32_t)l->now - set->times[oldest] ? i : oldest;
    }
    return oldest;
}

/* Starts a trial of u with that number. It takes over the table entry of the page's
 * previous trial, in which the page was used again. */
static void evict_learned_begin(kv_learned *l, int32_t number, uint64_t hash, const kv_use *u) {
    kv_names *set = evict_learned_set_of(l, hash);
    int32_t i = evict_learned_find(l, set, hash);
    if (i < KV_NAMES_A_SET) {
        kv_trial *before = &l->trials[evict_learned_number_of(l, set->times[i])];
        before->was_used_again = true;
        before->hash = 0;
    } else {
        i = place_for_name(l, set);
    }
    l->trials[number] = (kv_trial){.use = *u, .hash = hash};
    set->tags[i] = tag_of(hash);
    set->times[i] = (uint32_t)l->now; /* the trial began one use ago */
}

void kv_learned_made(const kv_learned *l, uint64_t hash, int32_t depth, int32_t tenant, kv_use *u) {
    const kv_names *set = evict_learned_set_of(l, hash);
    int32_t i = hash != 0 ? evict_learned_find(l, set, hash) : KV_NAMES_A_SET;
    *u = i < KV_NAMES_A_SET ? l->trials[evict_learned_number_of(l, set->times[i])].use
                            : (kv_use){.depth = depth, .tenant = tenant};
}

void kv_learned_used(kv_learned *l, uint64_t hash, kv_use *u) {
    int32_t number = (int32_t)(l->now++ % l->cap);
    kv_trial *ends = &l->trials[number];
    if (ends->use.n_uses > 0) {
        teach(l, ends);
    }
    *ends = (kv_trial){.hash = 0};
    u->gap = u->n_uses > 0 ? l->now - u->at : 0;
    u->at = l->now;
    u->n_uses++;
    if (hash != 0) {
        evict_learned_begin(l, number, hash, u);
    }
}

void kv_learned_evicted(kv_learned *l, const kv_use *u) {
    l->age += ((double)(l->now - u->at) - l->age) / l->cap;
}
