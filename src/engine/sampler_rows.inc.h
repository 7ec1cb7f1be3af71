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

/* e^x for x <= 0, within 3e-7 of it, 0 from -87 down: 2^n times a polynomial in the rest, |rest| <= ln 2 / 2 (Taylor's, of degree 6). */
static inline float exp_below(float x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float y = x < -87.0f ? -87.0f : x;
    float n = (y * 1.44269504f + magic) - magic;
    float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits = ((int32_t)n + 127) * (1 << 23);
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    float power = p * scale;
    return x < -87.0f ? 0.0f : power;
}

static void weigh(sampler *s, const float *logits) {
    const float inverse = 1.0f / s->temperature, max = s->max;
    for (int32_t g = 0; g * GROUP < s->n_vocab; g++) {
        int32_t first = g * GROUP, n = s->n_vocab - first < GROUP ? s->n_vocab - first : GROUP, most = 0;
        float *w = s->weights + first;
        for (int32_t i = 0; i < n; i++) {
            w[i] = exp_below((logits[first + i] - max) * inverse);
        }
        for (int32_t i = 0; i < n; i++) {
            int32_t order = order_of(w[i]);
            most = order > most ? order : most;
        }
        memcpy(&s->largest[g], &most, sizeof most);
    }
}

/* The weights of one group in a fixed order. */
static double sum_group(const float *w, int32_t n) {
    double sums[LANES] = {0};
    for (int32_t i = 0; i < n; i += LANES) {
        int32_t rest = n - i < LANES ? n - i : LANES;
        for (int32_t j = 0; j < rest; j++) {
            sums[j] += (double)w[i + j];
        }
    }
    for (int32_t width = LANES / 2; width > 0; width /= 2) {
        for (int32_t j = 0; j < width; j++) {
            sums[j] += sums[j + width];
        }
    }
    return sums[0];
}

static double sum(sampler *s) {
    double total = 0.0;
    for (int32_t g = 0; g * GROUP < s->n_vocab; g++) {
        int32_t first = g * GROUP, n = s->n_vocab - first < GROUP ? s->n_vocab - first : GROUP;
        s->sums[g] = s->largest[g] > 0.0f ? sum_group(s->weights + first, n) : 0.0;
        total += s->sums[g];
    }
    return total;
}

static void drop_below(sampler *s, float least) {
    for (int32_t g = 0; g * GROUP < s->n_vocab; g++) {
        int32_t first = g * GROUP, n = s->n_vocab - first < GROUP ? s->n_vocab - first : GROUP;
        float *w = s->weights + first;
        if (s->largest[g] < least) {
            memset(w, 0, (size_t)n * sizeof *w);
            s->largest[g] = 0.0f;
            continue;
        }
        for (int32_t i = 0; i < n; i++) {
            w[i] = w[i] < least ? 0.0f : w[i];
        }
    }
}

const sampler_rows SAMPLER_ROWS = {scan, weigh, sum, drop_below};
