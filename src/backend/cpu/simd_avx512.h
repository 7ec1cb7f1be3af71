/* The 16-lane machine on AVX-512: a value is one 512-bit register. Included only by
 * simd.h; simd.h and simd_avx2.h define the operations. With SIMD_EMULATE it runs through
 * SIMDe; instructions that SIMDe 0.7 lacks are written here as two halves. */
#ifndef CPU_SIMD_AVX512_H
#define CPU_SIMD_AVX512_H

#include <stdbool.h>
#include <stdint.h>

#ifdef SIMD_EMULATE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#endif
#include <immintrin.h>

typedef struct f32x16 {
    __m512 v;
} f32x16;
typedef struct i32x16 {
    __m512i v;
} i32x16;
typedef struct mask16 {
    __mmask16 v;
} mask16;

#define EACH_1(op, x)        op((x).v)
#define EACH_2(op, x, y)     op((x).v, (y).v)
#define EACH_3(op, x, y, z)  op((x).v, (y).v, (z).v)
#define EACH_SHIFT(op, x, n) op((x).v, (unsigned)(n))

static inline __m256 f_low(f32x16 x) {
    return _mm512_castps512_ps256(x.v);
}
static inline __m256 f_high(f32x16 x) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
}
static inline f32x16 f_join(__m256 low, __m256 high) {
    return (f32x16){_mm512_castpd_ps(
        _mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(low)), _mm256_castps_pd(high), 1))};
}
#ifdef SIMD_EMULATE
static inline __m256i i_low(i32x16 x) {
    return _mm512_castsi512_si256(x.v);
}
static inline __m256i i_high(i32x16 x) {
    return _mm512_extracti64x4_epi64(x.v, 1);
}
static inline i32x16 i_join(__m256i low, __m256i high) {
    return (i32x16){_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
}
#endif

/* ---- memory ---- */
static inline f32x16 f_load(const float *p) {
    return (f32x16){_mm512_loadu_ps(p)};
}
static inline void f_store(float *p, f32x16 x) {
    _mm512_storeu_ps(p, x.v);
}
/* Bypasses the caches. p must be aligned to 64 bytes. Other threads see the store after
 * f_stream_end. */
static inline void f_stream(float *p, f32x16 x) {
#ifdef SIMD_EMULATE
    _mm256_stream_ps(p, f_low(x));
    _mm256_stream_ps(p + 8, f_high(x));
#else
    _mm512_stream_ps(p, x.v);
#endif
}
static inline void f_stream_end(void) {
    _mm_sfence();
}
static inline i32x16 i_load(const int32_t *p) {
    return (i32x16){_mm512_loadu_si512(p)};
}
static inline void i_store(int32_t *p, i32x16 x) {
    _mm512_storeu_si512(p, x.v);
}
#ifdef SIMD_EMULATE
static inline f32x16 f_load_f16(const uint16_t *p) {
    return f_join(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8))));
}
/* Converts 16 codes of E4M3, not NaN, to floats times 2^-8 (core/half.h). */
static inline f32x16 f_load_e4m3(const uint8_t *p) {
    __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    words = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16((short)0xbfff));
    return f_join(_mm256_cvtph_ps(_mm256_castsi256_si128(words)),
                  _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1)));
}
static inline void f_load_e4m3_pair(const uint8_t *p, f32x16 out[2]) {
    out[0] = f_load_e4m3(p);
    out[1] = f_load_e4m3(p + 16);
}
/* Converts the first or second of each of 16 pairs of E4M3 codes, not NaN, to floats
 * times 2^-8. */
static inline f32x16 f_load_e4m3_pairs(const uint8_t *p, bool second) {
    const __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)p),
                  words = second ? pairs : _mm256_slli_epi16(pairs, 8);
    const __m256i halves = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16((short)0xbf80));
    return f_join(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                  _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
}
static inline void f_store_f16(uint16_t *p, f32x16 x) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(f_low(x), _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(f_high(x), _MM_FROUND_TO_NEAREST_INT));
}
static inline i32x16 i_load_u16(const uint16_t *p) {
    return i_join(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)),
                  _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 8))));
}
static inline void i_store_u16(uint16_t *p, i32x16 x) {
    __m256i r = _mm256_permute4x64_epi64(_mm256_packus_epi32(i_low(x), i_high(x)), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)p, r);
}
static inline i32x16 i_load_i8(const int8_t *p) {
    __m128i r = _mm_loadu_si128((const __m128i *)(const void *)p);
    return i_join(_mm256_cvtepi8_epi32(r), _mm256_cvtepi8_epi32(_mm_srli_si128(r, 8)));
}
#else
static inline f32x16 f_load_f16(const uint16_t *p) {
    return (f32x16){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p))};
}
/* Converts 16 codes of E4M3, not NaN, to floats times 2^-8 (core/half.h). */
static inline f32x16 f_load_e4m3(const uint8_t *p) {
    __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    words = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16((short)0xbfff));
    return (f32x16){_mm512_cvtph_ps(words)};
}
/* The same for 32 codes. */
static inline void f_load_e4m3_pair(const uint8_t *p, f32x16 out[2]) {
    __m512i words = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    words = _mm512_and_si512(_mm512_slli_epi16(words, 7), _mm512_set1_epi16((short)0xbfff));
    out[0] = (f32x16){_mm512_cvtph_ps(_mm512_castsi512_si256(words))};
    out[1] = (f32x16){_mm512_cvtph_ps(_mm512_extracti64x4_epi64(words, 1))};
}
/* Converts the first or second of each of 16 pairs of E4M3 codes, not NaN, to floats
 * times 2^-8. */
static inline f32x16 f_load_e4m3_pairs(const uint8_t *p, bool second) {
    const __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)p),
                  words = second ? pairs : _mm256_slli_epi16(pairs, 8);
    const __m256i halves = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16((short)0xbf80));
    return (f32x16){_mm512_cvtph_ps(halves)};
}
static inline void f_store_f16(uint16_t *p, f32x16 x) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
static inline i32x16 i_load_u16(const uint16_t *p) {
    return (i32x16){_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p))};
}
static inline void i_store_u16(uint16_t *p, i32x16 x) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(x.v));
}
static inline i32x16 i_load_i8(const int8_t *p) {
    return (i32x16){_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p))};
}
#endif

#ifdef SIMD_EMULATE
static inline f32x16 f_twice(__m256 v) {
    __m256 low = _mm256_unpacklo_ps(v, v), high = _mm256_unpackhi_ps(v, v);
    return f_join(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
static inline f32x16 f_twice_low(f32x16 x) {
    return f_twice(f_low(x));
}
static inline f32x16 f_twice_high(f32x16 x) {
    return f_twice(f_high(x));
}
static inline f32x16 f_lookup_256(const float *table, i32x16 codes) {
    float lanes[16];
    int32_t c[16];
    i_store(c, codes);
    for (int i = 0; i < 16; i++) {
        lanes[i] = table[c[i]];
    }
    return f_load(lanes);
}
static inline f32x16 f_swap_neighbours(f32x16 x) {
    return f_join(_mm256_permute_ps(f_low(x), 0xb1), _mm256_permute_ps(f_high(x), 0xb1));
}
static inline f32x16 f_lookup(f32x16 table, i32x16 codes) {
    float entries[16], lanes[16];
    int32_t c[16];
    f_store(entries, table);
    i_store(c, codes);
    for (int i = 0; i < 16; i++) {
        lanes[i] = entries[c[i] & 15];
    }
    return f_load(lanes);
}
#else
static inline f32x16 f_twice_low(f32x16 x) {
    return (f32x16){
        _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), x.v)};
}
static inline f32x16 f_twice_high(f32x16 x) {
    return (f32x16){_mm512_permutexvar_ps(
        _mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15), x.v)};
}
static inline f32x16 f_swap_neighbours(f32x16 x) {
    return (f32x16){_mm512_permute_ps(x.v, 0xb1)};
}
static inline f32x16 f_lookup(f32x16 table, i32x16 codes) {
    return (f32x16){_mm512_permutexvar_ps(codes.v, table.v)};
}
/* table[code lane] in each lane; codes are 0..255. */
static inline f32x16 f_lookup_256(const float *table, i32x16 codes) {
    const __mmask16 bit_5 = _mm512_test_epi32_mask(codes.v, _mm512_set1_epi32(32)),
                    bit_6 = _mm512_test_epi32_mask(codes.v, _mm512_set1_epi32(64));
    const __mmask16 bit_7 = _mm512_test_epi32_mask(codes.v, _mm512_set1_epi32(128));
    __m512 quarters[4];
    for (int i = 0; i < 4; i++, table += 64) {
        const __m512 low =
            _mm512_permutex2var_ps(_mm512_loadu_ps(table), codes.v, _mm512_loadu_ps(table + 16));
        const __m512 high =
            _mm512_permutex2var_ps(_mm512_loadu_ps(table + 32), codes.v, _mm512_loadu_ps(table + 48));
        quarters[i] = _mm512_mask_blend_ps(bit_5, low, high);
    }
    const __m512 low = _mm512_mask_blend_ps(bit_6, quarters[0], quarters[1]),
                 high = _mm512_mask_blend_ps(bit_6, quarters[2], quarters[3]);
    return (f32x16){_mm512_mask_blend_ps(bit_7, low, high)};
}
#endif

/* ---- floats ---- */
static inline f32x16 f_set1(float x) {
    return (f32x16){_mm512_set1_ps(x)};
}
static inline f32x16 f_zero(void) {
    return (f32x16){_mm512_setzero_ps()};
}
LANEWISE_2(f32x16, f_add, f32x16, _mm512_add_ps)
LANEWISE_2(f32x16, f_sub, f32x16, _mm512_sub_ps)
LANEWISE_2(f32x16, f_mul, f32x16, _mm512_mul_ps)
LANEWISE_2(f32x16, f_div, f32x16, _mm512_div_ps)
#ifdef SIMD_EMULATE /* SIMDe's versions return the other operand for NaN */
static inline f32x16 f_max(f32x16 x, f32x16 y) {
    return f_join(_mm256_max_ps(f_low(x), f_low(y)), _mm256_max_ps(f_high(x), f_high(y)));
}
static inline f32x16 f_min(f32x16 x, f32x16 y) {
    return f_join(_mm256_min_ps(f_low(x), f_low(y)), _mm256_min_ps(f_high(x), f_high(y)));
}
static inline f32x16 f_round(f32x16 x) {
    return f_join(_mm256_round_ps(f_low(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                  _mm256_round_ps(f_high(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
LANEWISE_2(f32x16, f_max, f32x16, _mm512_max_ps)
LANEWISE_2(f32x16, f_min, f32x16, _mm512_min_ps)
static inline f32x16 f_round(f32x16 x) {
    return (f32x16){_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
#endif
LANEWISE_3(f32x16, f_fma, f32x16, _mm512_fmadd_ps)
LANEWISE_3(f32x16, f_fnma, f32x16, _mm512_fnmadd_ps)

/* ---- conversions ---- */
#ifdef SIMD_EMULATE
static inline i32x16 f_to_i(f32x16 x) {
    return i_join(_mm256_cvtps_epi32(f_low(x)), _mm256_cvtps_epi32(f_high(x)));
}
static inline f32x16 i_to_f(i32x16 x) {
    return f_join(_mm256_cvtepi32_ps(i_low(x)), _mm256_cvtepi32_ps(i_high(x)));
}
#else
LANEWISE_1(i32x16, f_to_i, f32x16, _mm512_cvtps_epi32)
LANEWISE_1(f32x16, i_to_f, i32x16, _mm512_cvtepi32_ps)
#endif
LANEWISE_1(i32x16, f_bits, f32x16, _mm512_castps_si512)
LANEWISE_1(f32x16, f_of_bits, i32x16, _mm512_castsi512_ps)

/* ---- integers ---- */
static inline i32x16 i_set1(int32_t x) {
    return (i32x16){_mm512_set1_epi32(x)};
}
LANEWISE_2(i32x16, i_add, i32x16, _mm512_add_epi32)
LANEWISE_2(i32x16, i_sub, i32x16, _mm512_sub_epi32)
LANEWISE_2(i32x16, i_and, i32x16, _mm512_and_si512)
LANEWISE_2(i32x16, i_or, i32x16, _mm512_or_si512)
LANEWISE_2(i32x16, i_xor, i32x16, _mm512_xor_si512)
#ifdef SIMD_EMULATE
static inline i32x16 i_shl(i32x16 x, int n) {
    return i_join(_mm256_slli_epi32(i_low(x), n), _mm256_slli_epi32(i_high(x), n));
}
static inline i32x16 i_shr(i32x16 x, int n) {
    return i_join(_mm256_srli_epi32(i_low(x), n), _mm256_srli_epi32(i_high(x), n));
}
static inline i32x16 i_sar(i32x16 x, int n) {
    return i_join(_mm256_srai_epi32(i_low(x), n), _mm256_srai_epi32(i_high(x), n));
}
#else
LANEWISE_SHIFT(i_shl, _mm512_slli_epi32)
LANEWISE_SHIFT(i_shr, _mm512_srli_epi32)
LANEWISE_SHIFT(i_sar, _mm512_srai_epi32)
#endif

/* ---- masks ---- */
static inline mask16 m_first(int32_t n) {
    return (mask16){(__mmask16)(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u)};
}
static inline mask16 m_of_bits(uint16_t bits) {
    return (mask16){bits};
}
static inline mask16 m_lt(f32x16 x, f32x16 y) {
    return (mask16){_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ)};
}
static inline mask16 m_le(f32x16 x, f32x16 y) {
    return (mask16){_mm512_cmp_ps_mask(x.v, y.v, _CMP_LE_OQ)};
}
static inline mask16 m_nan(f32x16 x) {
    return (mask16){_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q)};
}
static inline mask16 m_and(mask16 x, mask16 y) {
    return (mask16){(__mmask16)(x.v & y.v)};
}
static inline mask16 m_without(mask16 x, mask16 y) {
    return (mask16){(__mmask16)(x.v & ~(uint32_t)y.v)};
}
static inline bool m_all(mask16 x) {
    return x.v == 0xffff;
}
static inline f32x16 f_select(mask16 m, f32x16 x, f32x16 y) {
    return (f32x16){_mm512_mask_blend_ps(m.v, y.v, x.v)};
}
static inline i32x16 i_select(mask16 m, i32x16 x, i32x16 y) {
    return (i32x16){_mm512_mask_blend_epi32(m.v, y.v, x.v)};
}

#ifdef SIMD_EMULATE
static inline f32x16 f_load_first(const float *p, int32_t n) {
    float lanes[16] = {0};
    for (int32_t i = 0; i < n && i < 16; i++) {
        lanes[i] = p[i];
    }
    return f_load(lanes);
}
static inline void f_store_first(float *p, int32_t n, f32x16 x) {
    float lanes[16];
    f_store(lanes, x);
    for (int32_t i = 0; i < n && i < 16; i++) {
        p[i] = lanes[i];
    }
}
#else
static inline f32x16 f_load_first(const float *p, int32_t n) {
    return (f32x16){_mm512_maskz_loadu_ps(m_first(n).v, p)};
}
static inline void f_store_first(float *p, int32_t n, f32x16 x) {
    _mm512_mask_storeu_ps(p, m_first(n).v, x.v);
}
#endif

#endif
