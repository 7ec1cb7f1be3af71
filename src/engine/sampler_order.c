/* A cut in an order: of the kept tokens, those with the largest keys stay. Nothing is sorted, so that a row of equals costs no more than
 * another. */
#include "engine/sampler_parts.h"

#define ROUND_BITS 7 /* of a key, that the candidates left are told apart by in one round */

static double measure_of(const sampler *s, measure by, int32_t place) {
    return by == BY_COUNT ? 1.0 : (double)s->weights[place];
}

static uint32_t key_at(const void *keys, int32_t place) {
    uint32_t key;
    memcpy(&key, (const uint32_t *)keys + place, sizeof key);
    return key;
}

/* The bucket of n in which the sum from the top reaches `limit`, or the last one that has any when it never does: false. *above becomes the
 * sum over it. */
static bool find_bucket(const sampler *s, int32_t n, double limit, double *above, int32_t *bucket) {
    double sum = *above;
    *bucket = 0;
    for (int32_t b = n - 1; b >= 0; b--) {
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

/* Of n candidates those stay in whose bucket, by the bits of key - base from `shift` on, the sum reaches `limit`, the last bucket where it does
 * not: false. */
static bool open_bucket(sampler *s, int32_t *n, uint32_t base, int shift, measure by, double limit, double *above) {
    int32_t n_inside = 0, bucket;
    const uint32_t mask = (1u << ROUND_BITS) - 1;
    memset(s->mass, 0, (mask + 1) * sizeof *s->mass);
    for (int32_t i = 0; i < *n; i++) {
        s->mass[(s->inside[i].key - base) >> shift & mask] += measure_of(s, by, s->inside[i].place);
    }
    bool reached = find_bucket(s, (int32_t)mask + 1, limit, above, &bucket);
    for (int32_t i = 0; i < *n; i++) {
        candidate c = s->inside[i];
        s->inside[n_inside] = c;
        n_inside += ((c.key - base) >> shift & mask) == (uint32_t)bucket;
    }
    *n = n_inside;
    return reached;
}

/* The last one of n candidates whose keys have the bits from n_bits on in common, counted from base. */
static candidate find_last(sampler *s, int32_t n, uint32_t base, int n_bits, measure by, double limit, double above) {
    while (n > 1 && n_bits > 0) {
        n_bits = n_bits > ROUND_BITS ? n_bits - ROUND_BITS : 0;
        (void)open_bucket(s, &n, base, n_bits, by, limit, &above); /* all have one key in the end, and lie in order */
    }
    candidate last = s->inside[0];
    for (int32_t i = 0; i < n && (i == 0 || above < limit); i++) {
        last = s->inside[i];
        above += measure_of(s, by, last.place);
    }
    return last;
}

bool sampler_find_inside(sampler *s, int32_t n, weight_range inside, double limit, double above, candidate *last) {
    uint32_t base = sampler_bits_of(inside.low);
    int shift = 0;
    while ((sampler_bits_of(inside.high) - base) >> shift >= 1u << ROUND_BITS) {
        shift++;
    }
    if (above >= limit || !open_bucket(s, &n, base, shift, BY_WEIGHT, limit, &above)) {
        return false;
    }
    *last = find_last(s, n, base, shift, BY_WEIGHT, limit, above);
    return true;
}

bool sampler_find_cut(sampler *s, const void *keys, measure by, double limit, candidate *last) {
    double above = 0.0;
    int32_t b, n = 0;
    memset(s->mass, 0, sizeof s->mass);
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->mass[key_at(keys, i) >> FIRST_SHIFT] += measure_of(s, by, i);
    }
    *last = (candidate){0, s->n_kept - 1};
    if (!find_bucket(s, N_BUCKETS, limit, &above, &b)) {
        return false;
    }
    for (int32_t i = 0; i < s->n_kept; i++) {
        uint32_t key = key_at(keys, i);
        s->inside[n] = (candidate){key, i};
        n += (int32_t)(key >> FIRST_SHIFT) == b;
    }
    *last = find_last(s, n, 0, FIRST_SHIFT, by, limit, above);
    return true;
}

void sampler_cut_after(sampler *s, candidate last) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        float w = s->weights[i];
        uint32_t key = sampler_bits_of(w);
        s->weights[n] = w;
        s->ids[n] = s->ids[i];
        n += (key > last.key) | ((key == last.key) & (i <= last.place));
    }
    s->n_kept = n;
}
