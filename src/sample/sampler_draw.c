/* Draws a token from the kept weights, and selects the row passes that this processor
 * supports. */
#include <math.h>

#include "sample/sampler_parts.h"

#if defined(__x86_64__)
static bool sampler_draw_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("popcnt");
}

static bool sampler_draw_has_avx512(void) {
#ifdef SIMD_EMULATE /* compiled through SIMDe, for tests */
    return sampler_draw_has_avx2();
#else
    return sampler_draw_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2");
#endif
}
#endif

int32_t sampler_rows_here(const sampler_rows *all[SAMPLER_ROWS_MOST]) {
    int32_t n = 0;
    all[n++] = &sampler_rows_plain;
#if defined(__x86_64__)
    if (sampler_draw_has_avx2()) {
        all[n++] = &sampler_rows_avx2;
    }
    if (sampler_draw_has_avx512()) {
        all[n++] = &sampler_rows_avx512;
    }
#endif
    return n;
}

/* The block, of n, in whose part of the total `target` falls; where rounding exhausts the
 * walk, the last one of some weight. *before is the sum of the blocks before it. */
static int32_t sampler_draw_find_block(const double *sums, int32_t n, double target, double *before) {
    int32_t last = 0, b = 0;
    for (int32_t i = 0; i < n; i++) {
        last = sums[i] > 0.0 ? i : last;
    }
    while (b < last && *before + sums[b] <= target) {
        *before += sums[b++];
    }
    return b;
}

/* The index of the weight, of n, on which `target` falls. Some weight is not 0. */
static int32_t sampler_draw_find_place(const float *w, int32_t n, double target, double before) {
    int32_t place = 0;
    for (int32_t i = 0; i < n; i++) {
        before += (double)w[i];
        place = w[i] > 0.0f ? i : place;
        if (w[i] > 0.0f && before > target) {
            break;
        }
    }
    return place;
}

/* The same with the sums of the weights' groups. */
static int32_t find_in_groups(const float *w, int32_t n, const double *sums, double target) {
    double before = 0.0;
    int32_t first = GROUP * sampler_draw_find_block(sums, (n + GROUP - 1) / GROUP, target, &before);
    return first + sampler_draw_find_place(w + first, n - first < GROUP ? n - first : GROUP, target, before);
}

int32_t sampler_draw(sampler *s, const float *logits, float uniform) {
    if (!s->is_whole) {
        double total = s->rows->sum_blocks(s->weights, s->n_kept, s->sums);
        return s->ids[find_in_groups(s->weights, s->n_kept, s->sums, (double)uniform * total)];
    }
    double target = (double)uniform * s->total, before = 0.0;
    int32_t first =
        BLOCK * sampler_draw_find_block(s->sums, (s->n_vocab + BLOCK - 1) / BLOCK, target, &before);
    int32_t n = s->n_vocab - first < BLOCK ? s->n_vocab - first : BLOCK;
    memcpy(s->weights, logits + first, (size_t)n * sizeof *logits);
    s->rows->weigh(s->weights, n, s->max, s->scale);
    (void)s->rows->sum_blocks(s->weights, n, s->sums);
    return first + find_in_groups(s->weights, n, s->sums, target - before);
}

/* Mirostat (Basu et al. 2021): cuts so that the expected surprise of the tokens is tau,
 * and adapts to the surprise of each sample. */

enum { N_ESTIMATE = 100 }; /* likeliest tokens from which version 1 estimates the exponent of Zipf's law */

/* Likelier, or of equal ones the lower id. */
static bool comes_before(candidate a, candidate b) {
    return a.key != b.key ? a.key > b.key : a.place < b.place;
}

/* Moves c[at] down the heap of n candidates, in which none comes before those below
 * it. */
static void sift_down(candidate *c, int32_t at, int32_t n) {
    candidate moved = c[at];
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && comes_before(c[child], c[child + 1]);
        if (!comes_before(moved, c[child])) {
            break;
        }
        c[at] = c[child];
    }
    c[at] = moved;
}

/* Heapsort (Williams 1964): a step allocates nothing, and qsort may. */
static void sort_candidates(candidate *c, int32_t n) {
    for (int32_t i = n / 2; i-- > 0;) {
        sift_down(c, i, n);
    }
    while (n-- > 1) {
        candidate last = c[0];
        c[0] = c[n];
        c[n] = last;
        sift_down(c, 0, n);
    }
}

/* Sorts the kept tokens into s->inside, likeliest first, of equal ones the lowest id
 * first; returns how many. */
static int32_t sort_kept(sampler *s) {
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->inside[i].place = i;
        /* as integers, weights have their order */
        memcpy(&s->inside[i].key, &s->weights[i], sizeof *s->weights);
    }
    sort_candidates(s->inside, s->n_kept);
    return s->n_kept;
}

static float weight_at(const sampler *s, int32_t rank) {
    return s->weights[s->inside[rank].place];
}

/* Version 1: how many of the n sorted tokens stay. */
static int32_t count_by_zipf(const sampler *s, int32_t n, float mu) {
    double products = 0.0, squares = 0.0;
    for (int32_t i = 0; i < N_ESTIMATE - 1 && i < n - 1; i++) {
        double t = log((double)(i + 2) / (double)(i + 1)),
               b = log((double)weight_at(s, i) / (double)weight_at(s, i + 1));
        products += t * b;
        squares += t * t;
    }
    double exponent = products / squares, e = exponent - 1.0;
    double k = pow(e * pow(2.0, (double)mu) / (1.0 - pow((double)s->n_vocab, -e)), 1.0 / exponent);
    return !(k >= 1.0) ? 1 : k < (double)n ? (int32_t)k : n;
}

/* Version 2: the tokens before the first whose surprise is over mu. */
static int32_t count_by_surprise(const sampler *s, int32_t n, double total, float mu) {
    int32_t kept = 0;
    while (kept < n && -log2((double)weight_at(s, kept) / total) <= (double)mu) {
        kept++;
    }
    return kept > 0 ? kept : 1;
}

int32_t sampler_mirostat(sampler *s, const sampling_params *p, float uniform, float *mu) {
    int32_t n = sort_kept(s);
    double total = 0.0, kept = 0.0, cumulated = 0.0;
    for (int32_t i = 0; i < n; i++) {
        total += (double)weight_at(s, i);
    }
    n = p->mirostat == MIROSTAT_1 ? count_by_zipf(s, n, *mu) : count_by_surprise(s, n, total, *mu);
    for (int32_t i = 0; i < n; i++) {
        kept += (double)weight_at(s, i);
    }
    int32_t rank = 0;
    for (cumulated = (double)weight_at(s, 0); rank < n - 1 && cumulated <= (double)uniform * kept;) {
        cumulated += (double)weight_at(s, ++rank);
    }
    double surprise = -log2((double)weight_at(s, rank) / kept);
    *mu -= (float)((double)p->mirostat_eta * (surprise - (double)p->mirostat_tau));
    return s->ids[s->inside[rank].place];
}
