/* Passes over a whole row of the vocabulary, the main cost of a sampler.
 *
 * Compiled once per instruction set (cmake/rooms.cmake) under the name SAMPLER_ROWS,
 * after the functions that differ (sampler_block.h). The plain loops are written for a
 * compiler to vectorise. */
#include "sample/sampler_block.h"

/* Maps a float to an integer of the same order: a negative one has its other bits
 * inverted. */
static inline int32_t order_of(float v) {
    int32_t bits = (int32_t)float_bits(v);
    return bits ^ ((bits >> 31) & INT32_MAX);
}

static float float_of(int32_t order) {
    return float_of_bits((uint32_t)(order ^ ((order >> 31) & INT32_MAX)));
}

/* The mapped largest of x[0..n), at most a group. Sets *bad if one is NaN or +inf. */
static inline int32_t scan_group(const float *x, int32_t n, int32_t *bad) {
    int32_t largest = INT32_MIN, wrong = 0, infinity = order_of(INFINITY), least = order_of(-INFINITY);
    UNROLL for (int32_t i = 0; i < GROUP; i += LANES) {
        __builtin_prefetch(x + i + AHEAD, 0, 2);
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t order = order_of(x[i]);
        largest = order > largest ? order : largest;
        wrong |= (order >= infinity) | (order < least); /* NaN, of either sign, and +inf */
    }
    *bad |= wrong;
    return largest;
}

static bool scan(sampler *s, const float *logits) {
    int32_t most = INT32_MIN, bad = 0;
    for (int32_t g = 0; g * GROUP < s->n_vocab; g++) {
        int32_t first = g * GROUP, n = s->n_vocab - first < GROUP ? s->n_vocab - first : GROUP;
        int32_t largest = scan_group(logits + first, n, &bad);
        s->largest[g] = float_of(largest);
        most = largest > most ? largest : most;
    }
    s->max = float_of(most);
    return bad == 0;
}

static bool scan_kept(sampler *s, float *logits) {
    int32_t most = INT32_MIN, given = INT32_MIN, bad = 0;
    for (int32_t g = 0; g * GROUP < s->n_vocab; g++) {
        float *x = logits + g * GROUP;
        uint64_t set = s->bits[g];
        int32_t n = s->n_vocab - g * GROUP < GROUP ? s->n_vocab - g * GROUP : GROUP;
        int32_t largest = scan_group(x, n, &bad);
        given = largest > given ? largest : given;
        if (set != UINT64_MAX) {
            if (n == GROUP) {
                keep_only(x, set);
            }
            for (int32_t i = 0; n < GROUP && i < n; i++) {
                x[i] = set >> i & 1 ? x[i] : -INFINITY;
            }
            largest = set != 0 ? scan_group(x, n, &bad) : order_of(-INFINITY);
        }
        s->largest[g] = float_of(largest);
        most = largest > most ? largest : most;
    }
    s->given_max = float_of(given);
    s->max = float_of(most);
    return bad == 0;
}

static void weigh(float *x, int32_t n, float max, float scale) {
    for (int32_t i = 0; i < n; i++) {
        float v = (x[i] - max) * scale, w = power_of_2(v);
        x[i] = v > -126.0f ? w : 0.0f;
    }
}

#define FAR_ABOVE 16.0f /* log2 of a weight over the base from which its sum loses too many digits */

/* The weight of `base` relative to max >= base. In double, since it multiplies a block's
 * sum. */
static double weight_of_base(float base, float max, float scale) {
    double x = ((double)base - (double)max) * (double)scale;
    if (!(x > -1000.0)) {
        return 0.0;
    }
    double n = rint(x);
    return ldexp((double)power_of_2((float)(x - n)), (int)n);
}

/* Takes each block's weights relative to the base of the previous block, some logit, so
 * that one pass over the block suffices. If they come out too large, repeats with the
 * block's own largest logit, which is the base from then on. */
static bool scan_masses(sampler *s, const float *logits, float scale) {
    float max = -INFINITY, base = logits[0], padded[BLOCK];
    int32_t n_blocks = (s->n_vocab + BLOCK - 1) / BLOCK;
    for (int32_t b = 0; b < n_blocks; b++) {
        const float *x = logits + b * BLOCK;
        float *largest = s->largest + b * (BLOCK / GROUP);
        int32_t n = s->n_vocab - b * BLOCK;
        if (n < BLOCK) { /* the last block is shorter */
            memcpy(padded, x, (size_t)n * sizeof *x);
            for (int32_t i = n; i < BLOCK; i++) {
                padded[i] = -INFINITY;
            }
            x = padded;
        }
        block_scan found = scan_block(x, base, scale, largest);
        if (found.is_nan || found.largest == INFINITY) {
            return false;
        }
        if (found.largest > -INFINITY && !((found.largest - base) * scale <= FAR_ABOVE)) {
            base = found.largest;
            found = scan_block(x, base, scale, largest);
        }
        s->bases[b] = base;
        s->sums[b] = found.largest > -INFINITY ? (double)found.sum : 0.0;
        max = found.largest > max ? found.largest : max;
    }
    s->max = max;
    s->total = 0.0;
    double weight = 0.0;
    for (int32_t b = 0; b < n_blocks && max > -INFINITY; b++) {
        weight = b > 0 && s->bases[b] == s->bases[b - 1] ? weight : weight_of_base(s->bases[b], max, scale);
        s->sums[b] *= weight;
        s->total += s->sums[b];
    }
    return true;
}

static int32_t gather(sampler *s, const float *logits, float least) {
    int32_t n = 0, n_groups = s->n_vocab / GROUP;
    for (int32_t g = 0; g < n_groups; g++) {
        if (s->largest[g] >= least) {
            const float *x = logits + g * GROUP;
            n = append(s->ids, s->weights, n, g * GROUP, x, reaches(x, least));
        }
    }
    for (int32_t i = n_groups * GROUP; i < s->n_vocab; i++) {
        s->ids[n] = i;
        s->weights[n] = logits[i];
        n += logits[i] >= least;
    }
    return n;
}

/* The sum of a group's partial sums, in a fixed order. */
static inline double sum_of_doubles(double *lanes) {
    UNROLL for (int32_t width = LANES / 2; width > 0; width /= 2) {
        UNROLL for (int32_t j = 0; j < width; j++) {
            lanes[j] += lanes[j + width];
        }
    }
    return lanes[0];
}

/* The sum of a group of weights, in double. */
static inline double sum_group(const float *w) {
    double lanes[LANES];
    for (int32_t j = 0; j < LANES; j++) {
        lanes[j] = (double)w[j];
    }
    for (int32_t i = LANES; i < GROUP; i += LANES) {
        for (int32_t j = 0; j < LANES; j++) {
            lanes[j] += (double)w[i + j];
        }
    }
    return sum_of_doubles(lanes);
}

static double sum_blocks(float *w, int32_t n, double *sums) {
    double total = 0.0;
    for (int32_t i = n; i % GROUP != 0; i++) {
        w[i] = 0.0f;
    }
    for (int32_t first = 0; first < n; first += GROUP) {
        sums[first / GROUP] = sum_group(w + first);
        total += sums[first / GROUP];
    }
    return total;
}

static double divide(sampler *s, float high, int32_t *n_inside) {
    double above = 0.0;
    int32_t n = 0;
    for (int32_t i = s->n_kept; i % GROUP != 0; i++) {
        s->weights[i] = 0.0f;
    }
    for (int32_t first = 0; first < s->n_kept; first += GROUP) {
        const float *w = s->weights + first;
        float x[GROUP];
        for (int32_t j = 0; j < GROUP; j++) {
            x[j] = w[j] >= high ? w[j] : 0.0f;
        }
        above += sum_group(x);
        n = append_inside(s->inside, n, first, w, ~reaches(w, high));
    }
    while (n > 0 && s->inside[n - 1].place >= s->n_kept) {
        n--;
    }
    *n_inside = n;
    return above;
}

static void drop_after(float *w, int32_t n, float last, int32_t place) {
    for (int32_t i = 0; i < n; i++) {
        bool stays = (w[i] > last) | ((w[i] == last) & (i <= place));
        w[i] = stays ? w[i] : 0.0f;
    }
}

const sampler_rows SAMPLER_ROWS = {scan,  scan_kept,  scan_masses, gather,
                                   weigh, sum_blocks, divide,      drop_after};
