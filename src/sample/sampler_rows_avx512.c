/* The sampler's passes for x86-64 processors with AVX-512. Tests compile it with
 * SIMD_EMULATE, through SIMDe. */
#if defined(__x86_64__)
#ifdef SIMD_EMULATE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#endif
#include <immintrin.h>

#include "sample/sampler_block.h"

static inline uint64_t reaches(const float *x, float bound) {
    const __m512 all = _mm512_set1_ps(bound);
    uint64_t bits = 0;
    UNROLL for (int i = 0; i < GROUP / LANES; i++) {
        bits |= (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(x + LANES * i), all, _CMP_GE_OQ) << LANES * i;
    }
    return bits;
}

static inline void keep_only(float *x, uint64_t set) {
    UNROLL for (int i = 0; i < GROUP / LANES; i++) {
        __m512 kept = _mm512_mask_blend_ps((__mmask16)(set >> LANES * i), _mm512_set1_ps(-INFINITY),
                                           _mm512_loadu_ps(x + LANES * i));
        _mm512_storeu_ps(x + LANES * i, kept);
    }
}

/* registers evaluated together: each hides the latency of the others' steps, which depend
 * on one another */
#define REGISTERS 4
#define EACH      UNROLL for (int u = 0; u < REGISTERS; u++)

_Static_assert(REGISTERS *LANES == GROUP, "registers hold a group");

/* power_of_2 of each number, in place. */
static inline void power_of_2_each(__m512 *x) {
    static const float c[] = {POWER_OF_2};
    const __m512 magic = _mm512_set1_ps(ROUNDS_TO_WHOLE), least = _mm512_set1_ps(-126.0f);
    __m512 n[REGISTERS], p[REGISTERS];
    EACH x[u] = _mm512_max_ps(x[u], least);
    EACH n[u] = _mm512_add_ps(x[u], magic);
    EACH n[u] = _mm512_sub_ps(n[u], magic);
    EACH x[u] = _mm512_sub_ps(x[u], n[u]);
    EACH p[u] = _mm512_fmadd_ps(x[u], _mm512_set1_ps(c[0]), _mm512_set1_ps(c[1]));
    EACH p[u] = _mm512_fmadd_ps(p[u], x[u], _mm512_set1_ps(c[2]));
    EACH p[u] = _mm512_fmadd_ps(p[u], x[u], _mm512_set1_ps(c[3]));
    EACH p[u] = _mm512_fmadd_ps(p[u], x[u], _mm512_set1_ps(c[4]));
    EACH p[u] = _mm512_fmadd_ps(p[u], x[u], _mm512_set1_ps(c[5]));
    EACH x[u] = _mm512_scalef_ps(p[u], n[u]);
}

static float largest_of_lanes(__m512 x) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(x),
                             _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

static block_scan scan_block(const float *x, float base, float scale, float *largest) {
    __m512 all = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    uint32_t nan = 0;
    for (int32_t g = 0; g < BLOCK; g += GROUP) {
        __m512 v[REGISTERS];
        EACH {
            _mm_prefetch((const char *)(x + g + LANES * u + AHEAD), _MM_HINT_T1);
            v[u] = _mm512_loadu_ps(x + g + LANES * u);
        }
        __m512 most = _mm512_max_ps(_mm512_max_ps(v[0], v[1]), _mm512_max_ps(v[2], v[3]));
        nan |= (uint32_t)_mm512_cmp_ps_mask(v[0], v[1], _CMP_UNORD_Q) |
               _mm512_cmp_ps_mask(v[2], v[3], _CMP_UNORD_Q);
        EACH v[u] = _mm512_mul_ps(_mm512_sub_ps(v[u], _mm512_set1_ps(base)), _mm512_set1_ps(scale));
        power_of_2_each(v);
        EACH sum = _mm512_add_ps(sum, v[u]);
        all = _mm512_max_ps(all, most);
        largest[g / GROUP] = largest_of_lanes(most);
    }
    float lanes[LANES];
    _mm512_storeu_ps(lanes, sum);
    return (block_scan){.largest = largest_of_lanes(all), .sum = sum_of_lanes(lanes), .is_nan = nan != 0};
}

#ifdef SIMD_EMULATE /* two instructions that SIMDe 0.7 lacks */
static void compress_places(uint64_t set, uint8_t places[GROUP]) {
    memset(places, 0, GROUP);
    for (; set != 0; set &= set - 1) {
        *places++ = (uint8_t)__builtin_ctzll(set);
    }
}

static __m512i widen_places(const uint8_t *places) {
    int32_t wide[LANES];
    for (int i = 0; i < LANES; i++) {
        wide[i] = places[i];
    }
    return _mm512_loadu_si512(wide);
}
#else
/* Moves the indexes in a set to the front, in order. */
static inline void compress_places(uint64_t set, uint8_t places[GROUP]) {
    static const _Alignas(GROUP) uint8_t all[GROUP] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    _mm512_storeu_si512(places, _mm512_maskz_compress_epi8(set, _mm512_load_si512(all)));
}

static inline __m512i widen_places(const uint8_t *places) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)places));
}
#endif

/* x[places[i]], for indexes within a group. */
static inline __m512 take(const float *x, __m512i places) {
    __m512 low = _mm512_permutex2var_ps(_mm512_loadu_ps(x), places, _mm512_loadu_ps(x + LANES));
    __m512 high =
        _mm512_permutex2var_ps(_mm512_loadu_ps(x + 2 * LANES), places, _mm512_loadu_ps(x + 3 * LANES));
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(places, _mm512_set1_epi32(2 * LANES)), low, high);
}

static int32_t append(int32_t *ids, float *values, int32_t n, int32_t first, const float *x, uint64_t set) {
    uint8_t bytes[GROUP];
    int32_t n_more = __builtin_popcountll(set);
    compress_places(set, bytes);
    for (int32_t i = 0; i < n_more; i += LANES) {
        __m512i places = widen_places(bytes + i);
        _mm512_storeu_si512(ids + n + i, _mm512_add_epi32(places, _mm512_set1_epi32(first)));
        _mm512_storeu_ps(values + n + i, take(x, places));
    }
    return n + n_more;
}

/* A candidate is two words: its key and its index. */
static int32_t append_inside(candidate *inside, int32_t n, int32_t first, const float *w, uint64_t set) {
    const __m512i in_pairs = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i further = _mm512_add_epi32(in_pairs, _mm512_set1_epi32(LANES / 2));
    uint8_t bytes[GROUP];
    int32_t n_more = __builtin_popcountll(set);
    compress_places(set, bytes);
    for (int32_t i = 0; i < n_more; i += LANES) {
        __m512i places = widen_places(bytes + i), keys = _mm512_castps_si512(take(w, places));
        places = _mm512_add_epi32(places, _mm512_set1_epi32(first));
        _mm512_storeu_si512(inside + n + i, _mm512_permutex2var_epi32(keys, in_pairs, places));
        _mm512_storeu_si512(inside + n + i + LANES / 2, _mm512_permutex2var_epi32(keys, further, places));
    }
    return n + n_more;
}

#define SAMPLER_ROWS sampler_rows_avx512
#include "sample/sampler_rows.inc.h"
#endif
