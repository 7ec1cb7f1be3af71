/* The sampler's passes for x86-64 processors with AVX2. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "engine/sampler_block.h"

/* 8 at a time, all written, those that are meant moved to the front: the same steps whatever there is, as no branch could be guessed. */
static inline int32_t append_group(const sampler *s, int32_t *ids, int32_t n, int32_t first, const float *x, side which, float bound) {
    const __m256 all = _mm256_set1_ps(bound);
    __m256i base = _mm256_set1_epi32(first);
    size_t end = (size_t)n;
    UNROLL for (int i = 0; i < GROUP; i += 8) {
        unsigned set = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), all, _CMP_GE_OQ)) ^ (which == FROM ? 0 : 255);
        __m256i members = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)&s->members[set]));
        _mm256_storeu_si256((__m256i *)(ids + end), _mm256_add_epi32(members, base));
        base = _mm256_add_epi32(base, _mm256_set1_epi32(8));
        end += (size_t)__builtin_popcount(set);
    }
    return (int32_t)end;
}

#define REGISTERS 2 /* that go through the polynomial side by side, as each step of it waits for the one before */
#define EACH      UNROLL for (int u = 0; u < REGISTERS; u++)

/* power_of_2 of as many numbers as the registers hold, in their place. */
static inline void power_of_2_each(__m256 *x) {
    static const float c[] = {POWER_OF_2};
    const __m256 magic = _mm256_set1_ps(ROUNDS_TO_WHOLE), least = _mm256_set1_ps(-126.0f);
    __m256 n[REGISTERS], p[REGISTERS];
    EACH x[u] = _mm256_max_ps(x[u], least);
    EACH n[u] = _mm256_add_ps(x[u], magic);
    EACH x[u] = _mm256_sub_ps(x[u], _mm256_sub_ps(n[u], magic));
    EACH p[u] = _mm256_fmadd_ps(x[u], _mm256_set1_ps(c[0]), _mm256_set1_ps(c[1]));
    EACH p[u] = _mm256_fmadd_ps(p[u], x[u], _mm256_set1_ps(c[2]));
    EACH p[u] = _mm256_fmadd_ps(p[u], x[u], _mm256_set1_ps(c[3]));
    EACH p[u] = _mm256_fmadd_ps(p[u], x[u], _mm256_set1_ps(c[4]));
    EACH p[u] = _mm256_fmadd_ps(p[u], x[u], _mm256_set1_ps(c[5]));
    EACH {
        __m256i bits = _mm256_add_epi32(_mm256_castps_si256(p[u]), _mm256_slli_epi32(_mm256_castps_si256(n[u]), 23));
        x[u] = _mm256_castsi256_ps(bits);
    }
}

static float largest_of_lanes(__m256 x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

static block_scan scan_block(const float *x, float base, float scale, float *largest) {
    __m256 all = _mm256_set1_ps(-INFINITY), nan = _mm256_setzero_ps(), sums[2] = {nan, nan};
    for (int32_t g = 0; g < BLOCK; g += GROUP) {
        __m256 most = _mm256_set1_ps(-INFINITY);
        for (int32_t i = g; i < g + GROUP; i += 8 * REGISTERS) {
            __m256 v[REGISTERS];
            _mm_prefetch((const char *)(x + i + AHEAD), _MM_HINT_T0);
            EACH v[u] = _mm256_loadu_ps(x + i + 8 * u);
            most = _mm256_max_ps(_mm256_max_ps(v[0], v[1]), most);
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(v[0], v[1], _CMP_UNORD_Q));
            EACH v[u] = _mm256_mul_ps(_mm256_sub_ps(v[u], _mm256_set1_ps(base)), _mm256_set1_ps(scale));
            power_of_2_each(v);
            EACH sums[u] = _mm256_add_ps(sums[u], v[u]);
        }
        all = _mm256_max_ps(all, most);
        largest[g / GROUP] = largest_of_lanes(most);
    }
    float lanes[LANES];
    _mm256_storeu_ps(lanes, sums[0]);
    _mm256_storeu_ps(lanes + 8, sums[1]);
    return (block_scan){.largest = largest_of_lanes(all), .sum = sum_of_lanes(lanes), .is_nan = _mm256_movemask_ps(nan) != 0};
}

#define SAMPLER_ROWS sampler_rows_avx2
#include "engine/sampler_rows.inc.h"
#endif
