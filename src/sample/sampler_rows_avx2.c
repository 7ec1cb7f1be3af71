/* The sampler's passes for x86-64 processors with AVX2. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "sample/sampler_append.h"

/* Packing to bytes works within the halves of a register; the permutation restores the
 * order. */
static inline uint64_t reaches(const float *x, float bound) {
    const __m256 all = _mm256_set1_ps(bound);
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    uint64_t bits = 0;
    UNROLL for (int half = 0; half < 2; half++) {
        __m256i m[4];
        UNROLL for (int i = 0; i < 4; i++) {
            m[i] =
                _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(x + 32 * half + 8 * i), all, _CMP_GE_OQ));
        }
        __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(m[0], m[1]), _mm256_packs_epi32(m[2], m[3]));
        uint32_t set = (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(bytes, in_order));
        bits |= (uint64_t)set << 32 * half;
    }
    return bits;
}

static inline void keep_only(float *x, uint64_t set) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    UNROLL for (int i = 0; i < GROUP; i += 8) {
        __m256i in = _mm256_and_si256(_mm256_set1_epi32((int32_t)(set >> i & 0xff)), bit);
        __m256 drops = _mm256_castsi256_ps(_mm256_cmpeq_epi32(in, _mm256_setzero_si256()));
        _mm256_storeu_ps(x + i, _mm256_blendv_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(-INFINITY), drops));
    }
}

/* registers per pass through the polynomial: they overlap, since its steps are
 * sequential */
#define REGISTERS 2
#define EACH      UNROLL for (int u = 0; u < REGISTERS; u++)

/* power_of_2 of each number, in place. */
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
        __m256i bits =
            _mm256_add_epi32(_mm256_castps_si256(p[u]), _mm256_slli_epi32(_mm256_castps_si256(n[u]), 23));
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
        UNROLL_TWICE for (int32_t i = g; i < g + GROUP; i += 8 * REGISTERS) {
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
    return (block_scan){
        .largest = largest_of_lanes(all), .sum = sum_of_lanes(lanes), .is_nan = _mm256_movemask_ps(nan) != 0};
}

#define SAMPLER_ROWS sampler_rows_avx2
#include "sample/sampler_rows.inc.h"
#endif
