/* Draws a token from the kept weights, and chooses the passes for this processor. */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "sample/sampler_parts.h"

#if defined(__x86_64__)
static bool sampler_draw_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("popcnt");
}

static bool sampler_draw_has_avx512(void) {
#ifdef SIMD_EMULATE /* through SIMDe, for tests */
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

/* Index of the block, of n, in whose share of the total `target` falls; if rounding
 * leaves none, the last one with a weight. *before: sum of the blocks before it. */
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

/* Index of the weight, of n, in whose share `target` falls. Some weight is not 0. */
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

/* Like sampler_draw_find_place, using the sums of groups of weights. */
static int32_t find_in_groups(const float *w, int32_t n, const double *sums, double target) {
    double before = 0.0;
    int32_t first = GROUP * sampler_draw_find_block(sums, (n + GROUP - 1) / GROUP, target, &before);
    return first + sampler_draw_find_place(w + first, n - first < GROUP ? n - first : GROUP, target, before);
}

int32_t sampler_draw(sampler *s, const float *logits, float uniform) {
    assert(s->n_kept >= 0 && s->n_kept <= s->n_vocab);
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

/* Mirostat (Basu et al. 2021): cuts so that the expected surprise is tau, and adapts to
 * the surprise of each sample. */

/* version 1 estimates the exponent of Zipf's law from this many of the likeliest
 * tokens */
enum { N_ESTIMATE = 100 };

/* Whether a is likelier than b, or as likely with a lower id. */
static bool comes_before(candidate a, candidate b) {
    return a.key != b.key ? a.key > b.key : a.place < b.place;
}

/* Restores the heap of n candidates below c[at]; its top comes after all others. */
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

/* Heapsort (Williams 1964), since qsort may allocate and a step must not. */
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

/* Sorts the kept tokens into s->inside, likeliest first, of equals the lowest id. Returns
 * how many. */
static int32_t sort_kept(sampler *s) {
    for (int32_t i = 0; i < s->n_kept; i++) {
        s->inside[i].place = i;
        /* positive floats have the order of their bits */
        memcpy(&s->inside[i].key, &s->weights[i], sizeof *s->weights);
    }
    sort_candidates(s->inside, s->n_kept);
    return s->n_kept;
}

static float weight_at(const sampler *s, int32_t rank) {
    return s->weights[s->inside[rank].place];
}

/* Version 1: how many of the n sorted tokens to keep. */
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

/* Version 2: counts the tokens before the first whose surprise exceeds mu; at least 1. */
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

/* Finds where to cut when the tokens with the largest keys are kept. Nothing large is
 * sorted, so rows of equal logits cost no more than others. */

#define ROUND_BUCKETS 128 /* buckets per round: few, since all are cleared and scanned */
#define FEW           16  /* up to this many candidates are sorted */

static double measure_of(const sampler *s, measure by, int32_t place) {
    return by == BY_COUNT ? 1.0 : (double)s->weights[place];
}

/* Finds the bucket in which the sum from the top reaches `limit`; if none, returns false
 * and the last one in use. *above: sum of the buckets above it. */
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

/* Reduces n candidates, with keys in least..most, to the bucket in which the sum reaches
 * `limit`. If the sum does not reach it, returns false and keeps the last bucket. */
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

/* The range of the keys of n > 0 candidates; true if they differ. */
static bool sampler_order_find_range(const candidate *c, int32_t n, uint32_t *least, uint32_t *most) {
    *least = UINT32_MAX;
    *most = 0;
    for (int32_t i = 0; i < n; i++) {
        *least = c[i].key < *least ? c[i].key : *least;
        *most = c[i].key > *most ? c[i].key : *most;
    }
    return *least < *most;
}

/* Insertion sort by key, largest first; equals keep their order. */
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
    assert(n >= 0 && n <= s->n_vocab);
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
        reached = true; /* a bucket that reached it may miss it when added up again, by rounding */
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

/* Maps a logit to a key of the same order; equal logits have equal keys. */
static uint32_t sampler_order_rank_of(float logit) {
    uint32_t bits = float_bits(logit + 0.0f); /* turns -0 into 0 */
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
    assert(s->n_kept <= s->n_vocab);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        uint32_t key = float_bits(s->weights[i]);
        n = sampler_keep(s, n, i, (key > last.key) | ((key == last.key) & (i <= last.place)));
    }
    s->n_kept = n;
}
