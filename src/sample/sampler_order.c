/* Cuts by order: keeps the tokens with the largest keys. Nothing is sorted, so a row of
 * equal logits costs no more than another. */
#include <float.h>
#include <math.h>

#include "sample/sampler_parts.h"

#define ROUND_BUCKETS 128 /* buckets of one round over the candidates: few, as all are cleared and scanned */
#define FEW           16  /* candidates that are few enough to sort */

static double measure_of(const sampler *s, measure by, int32_t place) {
    return by == BY_COUNT ? 1.0 : (double)s->weights[place];
}

/* The bucket in which the sum from the top reaches `limit`; where it never does, the last
 * one in use, and false. *above is the sum of the buckets over it. */
static bool find_bucket(const double *mass, double limit, double *above, uint32_t *bucket) {
    double sum = *above;
    for (uint32_t b = ROUND_BUCKETS; b-- > 0;) {
        if (mass[b] > 0.0) {
            *above = sum;
            *bucket = b;
            sum += mass[b];
            if (sum >= limit) {
                return true;
            }
        }
    }
    return false;
}

/* Reduces n candidates with keys from `least` to `most` to those of the bucket in which
 * the sum reaches `limit`; where it does not, to those of the last bucket, and false. */
static bool open_bucket(sampler *s, int32_t *n, uint32_t least, uint32_t most, measure by, double limit,
                        double *above) {
    double mass[ROUND_BUCKETS] = {0};
    int32_t n_inside = 0;
    uint32_t bucket = 0;
    int shift = 0;
    while ((most - least) >> shift >= ROUND_BUCKETS) {
        shift++;
    }
    for (int32_t i = 0; i < *n; i++) {
        mass[(s->inside[i].key - least) >> shift] += measure_of(s, by, s->inside[i].place);
    }
    bool reached = find_bucket(mass, limit, above, &bucket);
    for (int32_t i = 0; i < *n; i++) {
        candidate c = s->inside[i];
        s->inside[n_inside] = c;
        n_inside += (c.key - least) >> shift == bucket;
    }
    *n = n_inside;
    return reached;
}

/* Whether the keys of n > 0 candidates differ; and their range. */
static bool sampler_order_find_range(const candidate *c, int32_t n, uint32_t *least, uint32_t *most) {
    *least = UINT32_MAX;
    *most = 0;
    for (int32_t i = 0; i < n; i++) {
        *least = c[i].key < *least ? c[i].key : *least;
        *most = c[i].key > *most ? c[i].key : *most;
    }
    return *least < *most;
}

/* Sorts by keys, largest first; equals stay in order. */
static void sort_few(candidate *c, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        candidate moved = c[i];
        int32_t j = i;
        for (; j > 0 && c[j - 1].key < moved.key; j--) {
            c[j] = c[j - 1];
        }
        c[j] = moved;
    }
}

bool sampler_find_inside(sampler *s, int32_t n, measure by, double limit, double above, candidate *last) {
    uint32_t least, most;
    bool reached = false;
    s->n_equal = 0;
    if (n == 0 || above >= limit) {
        return false;
    }
    while (n > FEW && sampler_order_find_range(s->inside, n, &least, &most)) {
        if (!open_bucket(s, &n, least, most, by, limit, &above) && !reached) {
            return false;
        }
        reached = true; /* a bucket's sum, added up again, may miss the limit by rounding */
    }
    if (n <= FEW) {
        sort_few(s->inside, n);
    }
    for (int32_t i = 0; i < n && above < limit; i++) {
        *last = s->inside[i];
        above += measure_of(s, by, last->place);
    }
    for (int32_t i = 0; i < n; i++) {
        candidate c = s->inside[i];
        s->inside[s->n_equal] = c;
        s->n_equal += c.key == last->key;
    }
    return reached || above >= limit;
}

bool sampler_find_cut(sampler *s, const void *keys, measure by, double limit, candidate *last) {
    *last = (candidate){0, s->n_kept - 1};
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->inside[i].place = i;
        memcpy(&s->inside[i].key, (const uint32_t *)keys + i, sizeof s->inside[i].key);
    }
    return sampler_find_inside(s, s->n_kept, by, fmax(limit, DBL_MIN), 0.0, last);
}

/* A key that is larger for larger logits, and equal for equal ones. */
static uint32_t sampler_order_rank_of(float logit) {
    uint32_t bits = float_bits(logit + 0.0f); /* -0 becomes 0 */
    return bits >> 31 != 0 ? ~bits : bits | 1u << 31;
}

void sampler_order_equals(sampler *s, const float *logits, bool ties_stay, candidate *last) {
    int32_t n = s->n_equal, n_stay = 0;
    for (int32_t i = 0; i < n; i++) {
        candidate *c = &s->inside[i];
        n_stay += c->place <= last->place;
        c->key = sampler_order_rank_of(logits[s->ids[c->place]]);
    }
    candidate cut;
    if (n_stay < n && sampler_find_inside(s, n, BY_COUNT, n_stay, 0.0, &cut)) {
        for (int32_t i = 0; i < s->n_kept; i++) {
            uint32_t rank = sampler_order_rank_of(logits[s->ids[i]]);
            bool stays = rank > cut.key || (rank == cut.key && (ties_stay || i <= cut.place));
            s->weights[i] = float_bits(s->weights[i]) != last->key || stays ? s->weights[i] : 0.0f;
        }
    }
    last->place = s->n_kept - 1;
}

void sampler_cut_after(sampler *s, candidate last) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        uint32_t key = float_bits(s->weights[i]);
        n = sampler_keep(s, n, i, (key > last.key) | ((key == last.key) & (i <= last.place)));
    }
    s->n_kept = n;
}
