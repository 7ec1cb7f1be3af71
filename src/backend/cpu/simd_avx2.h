/* The 16-lane machine on AVX2, FMA and F16C: a value is a pair of 256-bit registers.
 * Included by simd.h only, which defines the operations. */
#ifndef CPU_SIMD_AVX2_H
#define CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct f32x16 {
    __m256 a, b; /* lanes 0..7, 8..15 */
} f32x16;
typedef struct i32x16 {
    __m256i a, b;
} i32x16;
typedef struct mask16 {
    __m256 a, b; /* each lane is all ones or all zeros */
} mask16;

#define EACH_1(op, x)        op((x).a), op((x).b)
#define EACH_2(op, x, y)     op((x).a, (y).a), op((x).b, (y).b)
#define EACH_3(op, x, y, z)  op((x).a, (y).a, (z).a), op((x).b, (y).b, (z).b)
#define EACH_SHIFT(op, x, n) op((x).a, n), op((x).b, n)

static inline __m256 f_low(f32x16 v) {
    return v.a;
}
static inline __m256 f_high(f32x16 v) {
    return v.b;
}
static inline f32x16 f_join(__m256 low, __m256 high) {
    return (f32x16){low, high};
}

/* ---- memory ---- */
static inline f32x16 f_load(const float *p) {
    return (f32x16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void f_store(float *p, f32x16 v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
/* Bypasses the caches. p must be aligned to 64 bytes. Other threads see the store after
 * f_stream_end. */
static inline void f_stream(float *p, f32x16 v) {
    _mm256_stream_ps(p, v.a);
    _mm256_stream_ps(p + 8, v.b);
}
static inline void f_stream_end(void) {
    _mm_sfence();
}
static inline f32x16 f_load_f16(const uint16_t *p) {
    return (f32x16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}
/* Converts 16 codes of E4M3, not NaN, to halves of 2^-8 times their value
 * (core/half.h). */
static inline __m256i e4m3_halves(const uint8_t *p) {
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16((short)0xbfff));
}
/* The same as floats. */
static inline f32x16 f_load_e4m3(const uint8_t *p) {
    const __m256i words = e4m3_halves(p);
    return (f32x16){_mm256_cvtph_ps(_mm256_castsi256_si128(words)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1))};
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
    return (f32x16){_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
static inline void f_store_f16(uint16_t *p, f32x16 v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
static inline i32x16 i_load(const int32_t *p) {
    return (i32x16){_mm256_loadu_si256((const __m256i *)(const void *)p),
                    _mm256_loadu_si256((const __m256i *)(const void *)(p + 8))};
}
static inline void i_store(int32_t *p, i32x16 v) {
    _mm256_storeu_si256((__m256i *)(void *)p, v.a);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), v.b);
}
static inline i32x16 i_load_u16(const uint16_t *p) {
    return (i32x16){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)),
                    _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}
/* Lanes must be in 0..65535. */
static inline void i_store_u16(uint16_t *p, i32x16 v) {
    __m256i r = _mm256_permute4x64_epi64(_mm256_packus_epi32(v.a, v.b), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)p, r);
}
static inline i32x16 i_load_i8(const int8_t *p) {
    __m128i r = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (i32x16){_mm256_cvtepi8_epi32(r), _mm256_cvtepi8_epi32(_mm_srli_si128(r, 8))};
}

/* Duplicates each lane of the first, or of the last, 8 lanes. */
static inline f32x16 f_twice(__m256 v) {
    __m256 low = _mm256_unpacklo_ps(v, v), high = _mm256_unpackhi_ps(v, v);
    return (f32x16){_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
static inline f32x16 f_twice_low(f32x16 v) {
    return f_twice(v.a);
}
static inline f32x16 f_twice_high(f32x16 v) {
    return f_twice(v.b);
}
/* Swaps lanes 2i and 2i + 1. */
static inline f32x16 f_swap_neighbours(f32x16 v) {
    return (f32x16){_mm256_permute_ps(v.a, 0xb1), _mm256_permute_ps(v.b, 0xb1)};
}
/* Lane i = table's lane c, where c is the low four bits of codes' lane i. */
static inline __m256 f_lookup_half(f32x16 table, __m256i codes) {
    __m256 low = _mm256_permutevar8x32_ps(table.a, codes), high = _mm256_permutevar8x32_ps(table.b, codes);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
}
static inline f32x16 f_lookup(f32x16 table, i32x16 codes) {
    return (f32x16){f_lookup_half(table, codes.a), f_lookup_half(table, codes.b)};
}

/* table[code lane] in each lane; codes are 0..255. */
static inline f32x16 f_lookup_256(const float *table, i32x16 codes) {
    return (f32x16){_mm256_i32gather_ps(table, codes.a, 4), _mm256_i32gather_ps(table, codes.b, 4)};
}

/* Reorders lanes: even ones to a, odd ones to b. bf16 widens to this order with half the
 * instructions. */
#define SIMD_APART
static inline f32x16 f_apart(f32x16 v) {
    __m256 outer = _mm256_permute2f128_ps(v.a, v.b, 0x20), inner = _mm256_permute2f128_ps(v.a, v.b, 0x31);
    return (f32x16){_mm256_shuffle_ps(outer, inner, 0x88), _mm256_shuffle_ps(outer, inner, 0xdd)};
}
static inline f32x16 f_together(f32x16 v) {
    __m256 low = _mm256_unpacklo_ps(v.a, v.b), high = _mm256_unpackhi_ps(v.a, v.b);
    return (f32x16){_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
static inline f32x16 f_load_bf16_apart(const uint16_t *p) {
    __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return (f32x16){_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
                    _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int32_t)0xffff0000)))};
}

/* ---- floats ---- */
static inline f32x16 f_set1(float x) {
    return (f32x16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline f32x16 f_zero(void) {
    return (f32x16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
LANEWISE_2(f32x16, f_add, f32x16, _mm256_add_ps)
LANEWISE_2(f32x16, f_sub, f32x16, _mm256_sub_ps)
LANEWISE_2(f32x16, f_mul, f32x16, _mm256_mul_ps)
LANEWISE_2(f32x16, f_div, f32x16, _mm256_div_ps)
LANEWISE_2(f32x16, f_max, f32x16, _mm256_max_ps)
LANEWISE_2(f32x16, f_min, f32x16, _mm256_min_ps)
/* x * y + z, rounded once. */
LANEWISE_3(f32x16, f_fma, f32x16, _mm256_fmadd_ps)
/* z - x * y, rounded once. */
LANEWISE_3(f32x16, f_fnma, f32x16, _mm256_fnmadd_ps)
/* Rounds to the nearest integer, ties to even. */
static inline f32x16 f_round(f32x16 x) {
    return (f32x16){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                    _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

/* ---- conversions ---- */
/* Rounds to the nearest integer, ties to even. INT32_MIN if it does not fit. */
LANEWISE_1(i32x16, f_to_i, f32x16, _mm256_cvtps_epi32)
LANEWISE_1(f32x16, i_to_f, i32x16, _mm256_cvtepi32_ps)
LANEWISE_1(i32x16, f_bits, f32x16, _mm256_castps_si256)
LANEWISE_1(f32x16, f_of_bits, i32x16, _mm256_castsi256_ps)

/* ---- integers; shifts by the same count in every lane ---- */
static inline i32x16 i_set1(int32_t x) {
    return (i32x16){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
LANEWISE_2(i32x16, i_add, i32x16, _mm256_add_epi32)
LANEWISE_2(i32x16, i_sub, i32x16, _mm256_sub_epi32)
LANEWISE_2(i32x16, i_and, i32x16, _mm256_and_si256)
LANEWISE_2(i32x16, i_or, i32x16, _mm256_or_si256)
LANEWISE_2(i32x16, i_xor, i32x16, _mm256_xor_si256)
LANEWISE_SHIFT(i_shl, _mm256_slli_epi32)
LANEWISE_SHIFT(i_shr, _mm256_srli_epi32)
LANEWISE_SHIFT(i_sar, _mm256_srai_epi32)

/* ---- masks; comparisons with NaN are false, except m_nan ---- */
static inline mask16 m_first(int32_t n) {
    __m256i k = _mm256_set1_epi32(n);
    return (mask16){
        _mm256_castsi256_ps(_mm256_cmpgt_epi32(k, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))),
        _mm256_castsi256_ps(_mm256_cmpgt_epi32(k, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)))};
}
/* The lanes whose bits are set. */
static inline mask16 m_of_bits(uint16_t bits) {
    const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), high = _mm256_slli_epi32(low, 8),
                  all = _mm256_set1_epi32(bits);
    return (mask16){_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low)),
                    _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, high), high))};
}
static inline mask16 m_lt(f32x16 x, f32x16 y) {
    return (mask16){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
static inline mask16 m_le(f32x16 x, f32x16 y) {
    return (mask16){_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)};
}
static inline mask16 m_nan(f32x16 x) {
    return (mask16){_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)};
}
LANEWISE_2(mask16, m_and, mask16, _mm256_and_ps)
/* Lanes of x that are not in y. */
static inline mask16 m_without(mask16 x, mask16 y) {
    return (mask16){_mm256_andnot_ps(y.a, x.a), _mm256_andnot_ps(y.b, x.b)};
}
static inline bool m_all(mask16 x) {
    return _mm256_movemask_ps(_mm256_and_ps(x.a, x.b)) == 0xff;
}
/* m ? x : y. */
static inline f32x16 f_select(mask16 m, f32x16 x, f32x16 y) {
    return (f32x16){_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}
static inline i32x16 i_select(mask16 m, i32x16 x, i32x16 y) {
    return f_bits(f_select(m, f_of_bits(x), f_of_bits(y)));
}

/* Loads the first n lanes, others 0; touches only n elements. */
static inline f32x16 f_load_first(const float *p, int32_t n) {
    mask16 m = m_first(n);
    return (f32x16){_mm256_maskload_ps(p, _mm256_castps_si256(m.a)),
                    _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
static inline void f_store_first(float *p, int32_t n, f32x16 v) {
    mask16 m = m_first(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), v.a);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), v.b);
}

#endif
