/* Passes over a whole row of the vocabulary, the sampler's cost: compiled once for each instruction set (cmake/rooms.cmake), under the name SAMPLER_ROWS.
 * Written so that a compiler puts the plain loops into vector registers; each element is one exactly defined operation and sums have a fixed order, so every
 * machine gets the same bits. */
#include <math.h>
#include <string.h>

#include "engine/sampler_parts.h"

enum { LANES = 16 };

/* Floats as integers of the same order: negative ones have their other bits turned round. */
static inline int32_t order_of(float v) {
    int32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits ^ ((bits >> 31) & INT32_MAX);
}

static float float_of(int32_t order) {
    int32_t bits = order ^ ((order >> 31) & INT32_MAX);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static bool scan(sampler *s, const float *logits) {
    int32_t most = INT32_MIN, bad = 0, infinity = order_of(INFINITY), least = order_of(-INFINITY);
    for (int32_t g = 0; g * GROUP < s->n_vocab; g++) {
        int32_t first = g * GROUP, n = s->n_vocab - first < GROUP ? s->n_vocab - first : GROUP, largest = INT32_MIN;
        for (int32_t i = 0; i < n; i++) {
            int32_t order = order_of(logits[first + i]);
            largest = order > largest ? order : largest;
            bad |= (order >= infinity) | (order < least); /* NaN, of either sign, and +inf */
        }
        s->largest[g] = float_of(largest);
        most = largest > most ? largest : most;
    }
    s->max = float_of(most);
    return bad == 0;
}

/* 2^x for x <= 0, within 2e-7 of it; not less than 2^-127: 2^n times a polynomial in the rest, |rest| <= 1/2 (a minimax fit). */
static inline float power_of_2(float x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number, which is then in the low bits */
    float y = x > -126.0f ? x : -126.0f;
    float rounded = y + magic;
    float r = y - (rounded - magic);
    float p = fmaf(r, 1.3264726e-3f, 9.6715130e-3f);
    p = fmaf(p, r, 5.5507336e-2f);
    p = fmaf(p, r, 2.4022242e-1f);
    p = fmaf(p, r, 6.9314700e-1f);
    p = fmaf(p, r, 1.0f);
    uint32_t bits, n;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&n, &rounded, sizeof n);
    bits += n << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static void weigh(float *x, int32_t n, float max, float scale) {
    for (int32_t i = 0; i < n; i++) {
        float v = (x[i] - max) * scale, w = power_of_2(v);
        x[i] = v > -126.0f ? w : 0.0f;
    }
}

/* One block: its largest logit, and its weights' sum against that one, in a fixed order. False for what is no number. The next block is
 * fetched meanwhile. */
static bool scan_block(const float *x, float scale, float *largest, float *sum) {
    int32_t most = INT32_MIN, least = INT32_MAX;
    for (int32_t i = 0; i < BLOCK; i++) {
        int32_t order = order_of(x[i]);
        most = order > most ? order : most;
        least = order < least ? order : least;
    }
    float max = *largest = float_of(most), sums[LANES] = {0};
    if (most >= order_of(INFINITY) || least < order_of(-INFINITY) || max == -INFINITY) {
        *sum = 0.0f;
        return max == -INFINITY && least == most;
    }
    for (int32_t i = 0; i < BLOCK; i += GROUP) {
        float w[GROUP];
        for (int32_t j = 0; j < GROUP; j += LANES) {
            __builtin_prefetch(x + i + j + BLOCK);
        }
        for (int32_t j = 0; j < GROUP; j++) {
            w[j] = power_of_2((x[i + j] - max) * scale);
        }
        for (int32_t j = 0; j < LANES; j++) {
            sums[j] += (w[j] + w[j + LANES]) + (w[j + 2 * LANES] + w[j + 3 * LANES]);
        }
    }
    for (int32_t width = LANES / 2; width > 0; width /= 2) {
        for (int32_t j = 0; j < width; j++) {
            sums[j] += sums[j + width];
        }
    }
    *sum = sums[0];
    return true;
}

static bool scan_masses(sampler *s, const float *logits, float scale) {
    float max = -INFINITY, sum;
    int32_t n_blocks = (s->n_vocab + BLOCK - 1) / BLOCK;
    for (int32_t b = 0; b < n_blocks; b++) {
        const float *x = logits + b * BLOCK;
        int32_t n = s->n_vocab - b * BLOCK;
        if (n < BLOCK) { /* the last one */
            memcpy(s->weights, x, (size_t)n * sizeof *x);
            for (int32_t i = n; i < BLOCK; i++) {
                s->weights[i] = -INFINITY;
            }
            x = s->weights;
        }
        if (!scan_block(x, scale, &s->largest[b], &sum)) {
            return false;
        }
        s->sums[b] = (double)sum;
        max = s->largest[b] > max ? s->largest[b] : max;
    }
    s->max = max;
    s->total = 0.0;
    for (int32_t b = 0; b < n_blocks && max > -INFINITY; b++) {
        s->sums[b] *= (double)power_of_2((s->largest[b] - max) * scale);
        s->total += s->sums[b];
    }
    return true;
}

/* Bit i: whether logit i of 32 is at least the bound. */
static inline uint32_t reaches(const float *x, float bound) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) {
        bits |= (uint32_t)(x[i] >= bound) << i;
    }
    return bits;
}

/* Without a branch a token, as whether one is kept cannot be guessed: so many places are written in any case, those too many written over
 * by the next. */
static int32_t gather(sampler *s, const float *logits, float least) {
    int32_t n = 0, i = 0;
    for (; i + 32 <= s->n_vocab; i += 32) {
        uint32_t bits = reaches(logits + i, least);
        if (bits == 0) {
            continue;
        }
        int32_t end = n + __builtin_popcount(bits);
        do {
            for (int j = 0; j < PAST_END; j++) {
                s->ids[n + j] = i + __builtin_ctz(bits | 1u << 31);
                bits &= bits - 1;
            }
            n += PAST_END;
        } while (n < end);
        n = end;
    }
    for (; i < s->n_vocab; i++) {
        s->ids[n] = i;
        n += logits[i] >= least;
    }
    for (i = 0; i < n; i++) {
        s->weights[i] = logits[s->ids[i]];
    }
    return n;
}

static double sum_blocks(const float *w, int32_t n, double *sums) {
    double total = 0.0;
    for (int32_t first = 0; first < n; first += GROUP) {
        double lanes[LANES] = {0};
        int32_t end = first + GROUP < n ? first + GROUP : n, i = first;
        for (; i + LANES <= end; i += LANES) {
            for (int32_t j = 0; j < LANES; j++) {
                lanes[j] += (double)w[i + j];
            }
        }
        for (int32_t j = 0; i + j < end; j++) {
            lanes[j] += (double)w[i + j];
        }
        for (int32_t width = LANES / 2; width > 0; width /= 2) {
            for (int32_t j = 0; j < width; j++) {
                lanes[j] += lanes[j + width];
            }
        }
        sums[first / GROUP] = lanes[0];
        total += lanes[0];
    }
    return total;
}

const sampler_rows SAMPLER_ROWS = {scan, scan_masses, gather, weigh, sum_blocks};
