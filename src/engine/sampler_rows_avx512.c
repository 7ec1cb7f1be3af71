/* The sampler's passes for x86-64 processors with AVX-512. With SIMD_EMULATE through SIMDe, for tests. */
#if defined(__x86_64__)
#ifdef SIMD_EMULATE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#endif
#include <immintrin.h>

#include "engine/sampler_block.h"

static inline uint64_t reaches(const float *x, float bound) {
    const __m512 all = _mm512_set1_ps(bound);
    uint64_t bits = 0;
    UNROLL for (int i = 0; i < GROUP / LANES; i++) {
        bits |= (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(x + LANES * i), all, _CMP_GE_OQ) << LANES * i;
    }
    return bits;
}

#define REGISTERS 4 /* a group, that goes through the polynomial side by side, as each step of it waits for the one before */
#define EACH      UNROLL for (int u = 0; u < REGISTERS; u++)

_Static_assert(REGISTERS *LANES == GROUP, "registers hold a group");

/* power_of_2 of as many numbers as the registers hold, in their place. */
static inline void power_of_2_each(__m512 *x) {
    static const float c[] = {POWER_OF_2};
    const __m512 magic = _mm512_set1_ps(ROUNDS_TO_WHOLE), least = _mm512_set1_ps(-126.0f);
    __m512 n[REGISTERS], p[REGISTERS];
    EACH x[u] = _mm512_max_ps(x[u], least);
    EACH n[u] = _mm512_add_ps(x[u], magic);
    EACH x[u] = _mm512_sub_ps(x[u], _mm512_sub_ps(n[u], magic));
    EACH p[u] = _mm512_fmadd_ps(x[u], _mm512_set1_ps(c[0]), _mm512_set1_ps(c[1]));
    EACH p[u] = _mm512_fmadd_ps(p[u], x[u], _mm512_set1_ps(c[2]));
    EACH p[u] = _mm512_fmadd_ps(p[u], x[u], _mm512_set1_ps(c[3]));
    EACH p[u] = _mm512_fmadd_ps(p[u], x[u], _mm512_set1_ps(c[4]));
    EACH p[u] = _mm512_fmadd_ps(p[u], x[u], _mm512_set1_ps(c[5]));
    EACH {
        __m512i bits = _mm512_add_epi32(_mm512_castps_si512(p[u]), _mm512_slli_epi32(_mm512_castps_si512(n[u]), 23));
        x[u] = _mm512_castsi512_ps(bits);
    }
}

static float largest_of_lanes(__m512 x) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(x), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)));
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
            _mm_prefetch((const char *)(x + g + LANES * u + AHEAD), _MM_HINT_T0);
            v[u] = _mm512_loadu_ps(x + g + LANES * u);
        }
        __m512 most = _mm512_max_ps(_mm512_max_ps(v[0], v[1]), _mm512_max_ps(v[2], v[3]));
        nan |= (uint32_t)_mm512_cmp_ps_mask(v[0], v[1], _CMP_UNORD_Q) | _mm512_cmp_ps_mask(v[2], v[3], _CMP_UNORD_Q);
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

#define SAMPLER_ROWS sampler_rows_avx512
#include "engine/sampler_rows.inc.h"
#endif
