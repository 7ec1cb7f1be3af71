/* Registers of int8 numbers for the product kernels, written once for AVX2, AVX-512 and
 * NEON at the processor's own width.
 *
 * A register holds N_LANES columns, so a block of 16 columns is N_HALVES registers. As
 * integers, a lane is one column's quad: 4 int8 of successive k. It is multiplied with
 * the same quad of a row in every lane, and the products are added in int32, exactly:
 *
 *   unsigned numbers of b bits (n_dot): AVX-512 and AVX-VNNI use dpbusd. AVX2 uses
 *     maddubs and adds its int16 pairs while they cannot overflow: |x| <= 127, so
 *     2 * 127 * (2^b - 1) * run <= 32767
 *     for run 8 (b <= 4), 4 (b = 5), 2 (b = 6), 1 (b = 7). Runs can be longer for numbers
 *     less their zero, which are smaller: if each int16 starts from -zero times its own x
 *     (N_WORDS), the wrapped sum is exact. With |w| <= most,
 *     2 * 127 * most * run <= 32767
 *     for run 8 (most = 16), 4 (most = 32); and most = 43, run 4, if the magnitudes of
 *     the 8 x of an int16 add up to at most N_LARGE, or those of its 8 w to
 *     N_LARGE_NUMBERS.
 *   signed bytes (n_quad): AVX-512 and AVX-VNNI add 128 to make them unsigned, use
 *     dpbusd, and subtract 128 times the sum of x.
 *     AVX2 uses maddubs of the weights' magnitudes with x under the weights' signs. For
 *     many rows, x is complemented instead of negated, which runs on more execution
 *     units: |w| ~x = -|w| x - |w|. The difference, the sum of |w| over negative w, is
 *     the same for all rows (n_quad_lack). */
#ifndef CPU_SIMD_INT_H
#define CPU_SIMD_INT_H

#include "backend/cpu/simd.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#define QUADS 8 /* quads in a group of 32 */

/* REGISTER_n(result, name, type, instruction) defines an operation of n operands that is
 * one instruction. */
#define REGISTER_1(result, name, type, op)                                                                   \
    INLINE result name(type v) {                                                                             \
        return op(v);                                                                                        \
    }
#define REGISTER_2(result, name, type, op)                                                                   \
    INLINE result name(type a, type b) {                                                                     \
        return op(a, b);                                                                                     \
    }

/* 4 lanes on every processor. */
typedef float n_four __attribute__((vector_size(16)));
typedef int32_t n_four_ints __attribute__((vector_size(16)));

INLINE n_four n_four_of(n_four_ints v) {
    return __builtin_convertvector(v, n_four);
}

INLINE int32_t quad_of(const int8_t *x) {
    int32_t v;
    memcpy(&v, x, sizeof v);
    return v;
}

#if defined(__aarch64__)
#include "backend/cpu/simd_int_neon.h"
#elif defined(__AVX512F__) || defined(SIMD_EMULATE)

#define N_LANES        16
#define N_HALVES       1
#define N_FLOAT_ROWS   8 /* rows of a register tile of floats */

/* grouped weights: 1 if a tile converts all its sums to floats before adding the first */
#define N_FLOATS_FIRST 0

#define N_INT8_ROWS     12
#define INT8_BLOCKS     2
#define INT8_FEW_BLOCKS 4
#define INT8_CHUNK      2816 /* 90 KB, which fits in the L2 cache */
#define INT8_KEPT_ROWS  0    /* rows of a tile with converted quads in scratch; 0: not used */

#define N_GROUP_ROWS     6 /* rows x 32 columns of unpacked grouped weights: 12 float sums, 12 integer sums */
#define N_DIRECT_ROWS    6 /* the same for packed grouped weights */
#define N_SUMS_STORED    0 /* 0: float sums of unpacked grouped weights stay in registers */
#define GROUP_CHUNK      16 /* groups unpacked at a time: 18 KB, plus 6 KB of rows */
/* plain formats of this many bits are unpacked for 32 rows or more, others for 64;
 * measured on Zen 4 */
#define N_PLAIN_UNPACKED 16

#define N_DPBUSD _mm512_dpbusd_epi32

typedef __m512 nf;
typedef __m512i ni;
typedef __m256i n_bytes; /* 32 int8 */
/* sums kept over a loop: gcc moves ni, of 64-bit elements, between registers
 * needlessly */
typedef int32_t n_sum __attribute__((vector_size(64)));

REGISTER_1(nf, nf_load, const float *, _mm512_loadu_ps)
INLINE void nf_store(float *p, nf v) {
    _mm512_storeu_ps(p, v);
}
INLINE nf nf_load_f16(const uint16_t *p) {
    return f_load_f16(p).v;
}
REGISTER_1(nf, nf_set1, float, _mm512_set1_ps)
REGISTER_2(nf, nf_mul, nf, _mm512_mul_ps)
INLINE nf nf_fma(nf a, nf b, nf c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE nf nf_of(ni v) {
    return i_to_f((i32x16){v}).v;
}
INLINE nf nf_neg(nf v) {
    return f_neg((f32x16){v}).v;
}
INLINE ni n_of(nf v) {
    return f_to_i((f32x16){v}).v;
}
INLINE ni n_magnitude_bits(nf v) {
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}
REGISTER_1(ni, n_load, const void *, _mm512_loadu_si512)
INLINE void n_store(void *p, ni v) {
    _mm512_storeu_si512(p, v);
}
REGISTER_1(ni, n_set1, int32_t, _mm512_set1_epi32)
INLINE ni n_of_words(const uint16_t v[32]) {
    return n_load(v);
}
/* Widens bytes to words: out[0] the first 8 of each 16, out[1] the last 8. */
INLINE void n_widen(ni v, ni out[2]) {
    out[0] = _mm512_unpacklo_epi8(v, _mm512_setzero_si512());
    out[1] = _mm512_unpackhi_epi8(v, _mm512_setzero_si512());
}
INLINE ni n_set1_bytes(int x) {
    return _mm512_set1_epi8((char)x);
}
REGISTER_2(ni, n_add, ni, _mm512_add_epi32)
REGISTER_2(ni, n_and, ni, _mm512_and_si512)
REGISTER_2(ni, n_or, ni, _mm512_or_si512)
REGISTER_2(ni, n_xor, ni, _mm512_xor_si512)
REGISTER_2(ni, n_max, ni, _mm512_max_epi32)
INLINE ni n_shl(ni v, int n) {
    return _mm512_slli_epi32(v, (unsigned)n);
}
INLINE ni n_shr(ni v, int n) {
    return _mm512_srli_epi32(v, (unsigned)n);
}
/* Bits of a where mask is set, else of b. */
INLINE ni n_select(ni mask, ni a, ni b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}
/* n_table is a table of 16 bytes; n_pick looks up the low four bits of bytes whose bit 7
 * is 0. */
INLINE ni n_table(const int8_t table[16]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
}
REGISTER_2(ni, n_pick, ni, _mm512_shuffle_epi8)
/* N_LANES bytes as integers. */
INLINE ni n_load_i8(const uint8_t *p) {
    return i_load_i8((const int8_t *)p).v;
}
INLINE ni n_load_u8(const uint8_t *p) {
    return _mm512_and_si512(n_load_i8(p), _mm512_set1_epi32(255));
}
INLINE __m256i n_upper(ni v) {
    return _mm512_extracti64x4_epi64(v, 1);
}
INLINE __m256i n_lower(ni v) {
    return _mm512_castsi512_si256(v);
}
INLINE __m256i n_max_halves(ni v) {
    return _mm256_max_epi32(n_lower(v), n_upper(v));
}
/* 32 integers of -128..127 as bytes, in order. */
INLINE n_bytes n_bytes_of(const ni v[2]) {
    ni words = _mm512_packs_epi32(v[0], v[1]);
    ni bytes = _mm512_packs_epi16(words, words);
    return n_lower(
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0), bytes));
}

#else

#define N_LANES      8
#define N_HALVES     2
#define N_FLOAT_ROWS 6

#ifdef __clang__
#define N_FLOATS_FIRST 0
#else
#define N_FLOATS_FIRST 1 /* with 16 registers, gcc then spills fewer sums, clang more */
#endif

#define N_INT8_ROWS     6 /* rows x 16 columns: 12 sums, 4 registers of weights; the rest is reloaded */
#define INT8_BLOCKS     1
#define INT8_FEW_BLOCKS 2
#define INT8_CHUNK      1024 /* 16 KB: half of the L1 cache */
#ifdef __AVXVNNI__
#define INT8_KEPT_ROWS 6
#else
#define INT8_KEPT_ROWS 4 /* 8 sums, 4 registers of weights */
#endif

#define N_GROUP_ROWS     5 /* rows x 16 columns: 10 integer sums, 2 registers of weights, x, a product */
#define N_DIRECT_ROWS    4
#define N_SUMS_STORED    1
#define GROUP_CHUNK      32
#define N_PLAIN_UNPACKED 8

#ifdef __AVXVNNI__
#define N_DPBUSD _mm256_dpbusd_avx_epi32
#endif

typedef __m256 nf;
typedef __m256i ni;
typedef __m256i n_bytes;
typedef int32_t n_sum __attribute__((vector_size(32)));

REGISTER_1(nf, nf_load, const float *, _mm256_loadu_ps)
INLINE void nf_store(float *p, nf v) {
    _mm256_storeu_ps(p, v);
}
INLINE nf nf_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
REGISTER_1(nf, nf_set1, float, _mm256_set1_ps)
REGISTER_2(nf, nf_mul, nf, _mm256_mul_ps)
INLINE nf nf_fma(nf a, nf b, nf c) {
    return _mm256_fmadd_ps(a, b, c);
}
REGISTER_1(nf, nf_of, ni, _mm256_cvtepi32_ps)
INLINE nf nf_neg(nf v) {
    return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f));
}
REGISTER_1(ni, n_of, nf, _mm256_cvtps_epi32)
INLINE ni n_magnitude_bits(nf v) {
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}
INLINE ni n_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE void n_store(void *p, ni v) {
    _mm256_storeu_si256((__m256i *)p, v);
}
REGISTER_1(ni, n_set1, int32_t, _mm256_set1_epi32)
INLINE ni n_set1_bytes(int x) {
    return _mm256_set1_epi8((char)x);
}
REGISTER_2(ni, n_add, ni, _mm256_add_epi32)
REGISTER_2(ni, n_and, ni, _mm256_and_si256)
REGISTER_2(ni, n_or, ni, _mm256_or_si256)
REGISTER_2(ni, n_xor, ni, _mm256_xor_si256)
REGISTER_2(ni, n_max, ni, _mm256_max_epi32)
INLINE ni n_shl(ni v, int n) {
    return _mm256_slli_epi32(v, n);
}
INLINE ni n_shr(ni v, int n) {
    return _mm256_srli_epi32(v, n);
}
INLINE ni n_select(ni mask, ni a, ni b) {
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}
INLINE ni n_of_words(const uint16_t v[16]) {
    __m128i halves[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
#define INSERT(i)                                                                                            \
    halves[0] = _mm_insert_epi16(halves[0], v[i], i);                                                        \
    halves[1] = _mm_insert_epi16(halves[1], v[8 + (i)], i);
    INSERT(0)
    INSERT(1)
    INSERT(2)
    INSERT(3)
    INSERT(4)
    INSERT(5)
    INSERT(6)
    INSERT(7)
#undef INSERT
    return _mm256_inserti128_si256(_mm256_castsi128_si256(halves[0]), halves[1], 1);
}
INLINE void n_widen(ni v, ni out[2]) {
    out[0] = _mm256_unpacklo_epi8(v, _mm256_setzero_si256());
    out[1] = _mm256_unpackhi_epi8(v, _mm256_setzero_si256());
}
INLINE ni n_table(const int8_t table[16]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
}
REGISTER_2(ni, n_pick, ni, _mm256_shuffle_epi8)
INLINE ni n_load_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
INLINE ni n_load_i8(const uint8_t *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
INLINE __m256i n_max_halves(ni v) {
    return v;
}
INLINE n_bytes n_bytes_of(const ni v[4]) {
    ni bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#endif

#if !defined(__aarch64__)
/* Replaces each byte of v by the table's entry for its low four bits; bit 7 must be 0,
 * bits 4 to 6 are ignored. */
INLINE ni n_lookup(ni v, const int8_t table[16]) {
    return n_pick(n_table(table), v);
}
#endif

#if defined(N_DPBUSD)

/* A sum of products of unsigned numbers: n_dot_open, n_dot_add for at most n_run quads,
 * n_dot_close. */
INLINE int n_run(int bits) {
    (void)bits;
    return QUADS;
}
INLINE ni n_dot_open(ni start) {
    return start;
}
INLINE ni n_dot_add(ni sum, ni w, ni x) {
    return N_DPBUSD(sum, w, x);
}
/* n_dot_open and n_dot_add for the first quad; has_start: start is not 0. */
INLINE ni n_dot_first(bool has_start, ni start, ni w, ni x) {
    (void)has_start;
    return n_dot_add(start, w, x);
}
/* Returns start + the sum. */
INLINE ni n_dot_close(ni sum, ni start) {
    (void)start;
    return sum;
}

/* A quad of signed weights, converted to be multiplied with a quad of a row. */
typedef struct n_quad {
    ni v;
} n_quad;
INLINE n_quad n_quad_of(ni w) {
    return (n_quad){n_xor(w, n_set1_bytes(-128))};
}
/* n_quad_of(n_lookup(v, table)); converts only the table, which is constant in a loop. */
INLINE n_quad n_quad_lookup(ni v, const int8_t table[16]) {
    return (n_quad){n_pick(n_quad_of(n_table(table)).v, v)};
}
INLINE n_sum n_quad_add(n_sum sum, n_quad w, ni x) {
    return (n_sum)N_DPBUSD((ni)sum, w.v, x);
}
/* Converts quads once for many rows, to the form whose products are cheapest.
 * N_QUADS_LACK: their sums must be corrected by n_lack_sum of what n_quad_lack
 * accumulates in int16, for 127 quads at most. */
#define N_QUADS_LACK 0
INLINE void n_quad_keep(void *to, ni w) {
    n_store(to, n_quad_of(w).v);
}
INLINE n_quad n_quad_kept(const void *from) {
    return (n_quad){n_load(from)};
}
INLINE n_sum n_quad_add_kept(n_sum sum, n_quad w, ni x) {
    return n_quad_add(sum, w, x);
}
INLINE ni n_quad_lack(ni pairs, ni w) {
    (void)w;
    return pairs;
}
INLINE ni n_lack_sum(ni pairs) {
    return pairs;
}
/* sum + products of quads of unsigned 7-bit numbers and quads of signed bytes. */
INLINE n_sum n_add_small(n_sum sum, ni small, ni x) {
    return (n_sum)N_DPBUSD((ni)sum, small, x);
}
/* Start value of a sum of n_quad_add, from -128 times the sum of x. */
INLINE n_sum n_quad_start(int32_t times_128) {
    return (n_sum)n_set1(times_128);
}

#elif !defined(__aarch64__)

INLINE int n_run(int bits) {
    return bits == 7 ? 1 : bits == 6 ? 2 : bits == 5 ? 4 : 8;
}
INLINE ni n_dot_open(ni start) {
    (void)start;
    return _mm256_setzero_si256();
}
/* The asm hides the addition: compilers that see all additions build a tree that needs
 * too many registers. */
INLINE ni n_dot_added(ni sum, ni pairs) {
    __asm__("vpaddw %1, %0, %0" : "+x"(sum) : "x"(pairs));
    return sum;
}
INLINE ni n_dot_add(ni sum, ni w, ni x) {
    return n_dot_added(sum, _mm256_maddubs_epi16(w, x));
}
INLINE ni n_dot_first(bool has_start, ni start, ni w, ni x) {
    const ni pairs = _mm256_maddubs_epi16(w, x);
    return has_start ? n_dot_added(pairs, start) : pairs;
}
INLINE ni n_dot_close(ni sum, ni start) {
    return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), start);
}

/* With |x| <= 127 a pair of products is at most 2 * 128 * 127 = 32512. */
typedef struct n_quad {
    ni v, magnitude;
} n_quad;
INLINE n_quad n_quad_of(ni w) {
    return (n_quad){w, _mm256_abs_epi8(w)};
}
INLINE n_quad n_quad_lookup(ni v, const int8_t table[16]) {
    return n_quad_of(n_lookup(v, table));
}
INLINE n_sum n_quad_add(n_sum sum, n_quad w, ni x) {
    ni pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.v));
    sum = (n_sum)_mm256_add_epi32((ni)sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    __asm__("" : "+x"(sum)); /* as in n_dot_add */
    return sum;
}
/* Signs as masks. Pairs are at least -2 * 128 * 128 = -32768. */
#define N_QUADS_LACK 1
INLINE void n_quad_keep(void *to, ni w) {
    n_store(to, _mm256_cmpgt_epi8(_mm256_setzero_si256(), w));
    n_store((ni *)to + 1, _mm256_abs_epi8(w));
}
INLINE n_quad n_quad_kept(const void *from) {
    return (n_quad){n_load(from), n_load((const ni *)from + 1)};
}
INLINE n_sum n_quad_add_kept(n_sum sum, n_quad w, ni x) {
    ni pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_xor_si256(x, w.v));
    sum = (n_sum)_mm256_add_epi32((ni)sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    __asm__("" : "+x"(sum)); /* as in n_dot_add */
    return sum;
}
INLINE ni n_quad_lack(ni pairs, ni w) {
    const ni signs = _mm256_cmpgt_epi8(_mm256_setzero_si256(), w);
    return _mm256_add_epi16(pairs, _mm256_maddubs_epi16(_mm256_abs_epi8(w), signs));
}
INLINE ni n_lack_sum(ni pairs) {
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(-1));
}
INLINE n_sum n_add_small(n_sum sum, ni small, ni x) {
    return (n_sum)_mm256_add_epi32((ni)sum,
                                   _mm256_madd_epi16(_mm256_maddubs_epi16(small, x), _mm256_set1_epi16(1)));
}
INLINE n_sum n_quad_start(int32_t times_128) {
    (void)times_128;
    return (n_sum)_mm256_setzero_si256();
}

#define N_WORDS         1
#define N_LARGE         762 /* 43 * 762 <= 32767 */
#define N_LARGE_NUMBERS 258 /* 127 * 258 <= 32767 */

/* Words of row_group for 4 groups. */
typedef struct n_row_words {
    n_four_ints pairs_8, pairs_32[2], large;
} n_row_words;

/* out[h]: for the halves h of 4 groups, the int16 sums of pairs 0 and 1 of their
 * quads. */
INLINE void n_half_pairs(const ni v[4], __m128i out[2]) {
    const ni a = _mm256_add_epi16(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1])),
             b = _mm256_add_epi16(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3])),
             sums = _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    out[0] = _mm256_castsi256_si128(sums);
    out[1] = _mm256_extracti128_si256(sums, 1);
}
INLINE __m128i n_times_minus(__m128i v, int shift) {
    return _mm_sub_epi16(_mm_setzero_si128(), _mm_slli_epi16(v, shift));
}
/* sums[h]: the sums of the halves h of q. */
INLINE n_row_words n_words_of(const n_bytes q[4], n_four_ints sums[2]) {
    const __m256i ones = _mm256_set1_epi8(1);
    const __m128i most = _mm_set1_epi16(N_LARGE);
    ni pairs[4], magnitudes[4];
    __m128i s[2], m[2];
    UNROLL
    for (int i = 0; i < 4; i++) {
        pairs[i] = _mm256_maddubs_epi16(ones, q[i]);
        magnitudes[i] = _mm256_maddubs_epi16(_mm256_abs_epi8(q[i]), ones);
    }
    n_half_pairs(pairs, s);
    n_half_pairs(magnitudes, m);
    sums[0] = (n_four_ints)_mm_madd_epi16(s[0], _mm_set1_epi16(1));
    sums[1] = (n_four_ints)_mm_madd_epi16(s[1], _mm_set1_epi16(1));
    return (n_row_words){
        .pairs_8 = (n_four_ints)n_times_minus(_mm_add_epi16(s[0], s[1]), 3),
        .pairs_32 = {(n_four_ints)n_times_minus(s[0], 5), (n_four_ints)n_times_minus(s[1], 5)},
        .large = (((n_four_ints)_mm_cmpgt_epi16(m[0], most) != 0) & 1) |
                 (((n_four_ints)_mm_cmpgt_epi16(m[1], most) != 0) & 2)};
}
/* Start value of an int16 sum over numbers raised by `zero`, from the one for numbers
 * raised by `has`. */
INLINE ni n_word_start(const int16_t pairs[2], int has, int zero) {
    int32_t word;
    memcpy(&word, pairs, sizeof word);
    const ni v = n_set1(word);
    return zero < has ? _mm256_srai_epi16(v, __builtin_ctz((unsigned)(has / zero)))
                      : _mm256_slli_epi16(v, __builtin_ctz((unsigned)(zero / has)));
}
/* The same for an int32 sum; zero >= has. */
INLINE ni n_word_sum(const int16_t pairs[2], int has, int zero) {
    return _mm256_madd_epi16(n_word_start(pairs, has, has), _mm256_set1_epi16((short)(zero / has)));
}

/* Adds the magnitudes of w that an int16 sum accumulates. */
INLINE ni n_add_magnitudes(ni sum, ni w) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_set1_epi8(1)));
}
/* Bits 1 and 2: halves with such a sum over N_LARGE_NUMBERS. */
INLINE int32_t n_large_numbers(const ni sums[2]) {
    const ni most = _mm256_set1_epi16(N_LARGE_NUMBERS);
    return (_mm256_movemask_epi8(_mm256_cmpgt_epi16(sums[0], most)) != 0) |
           (_mm256_movemask_epi8(_mm256_cmpgt_epi16(sums[1], most)) != 0) << 1;
}

#endif

#ifndef N_WORDS
#define N_WORDS 0
INLINE ni n_add_magnitudes(ni sum, ni w) {
    (void)w;
    return sum;
}
INLINE int32_t n_large_numbers(const ni sums[2]) {
    (void)sums;
    return 0;
}
#endif

typedef uint8_t n_octets __attribute__((vector_size(4 * N_LANES)));

INLINE ni n_sub_bytes(ni a, ni b) {
    return (ni)((n_octets)a - (n_octets)b);
}

INLINE n_quad n_quad_load(const int8_t *w) {
    return n_quad_of(n_load(w));
}

/* The floats with the bits of v. */
INLINE nf nf_bits(ni v) {
    nf f;
    memcpy(&f, &v, sizeof f);
    return f;
}

#if defined(__x86_64__)
INLINE void n_store_bytes(int8_t *p, n_bytes v) {
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}
/* to[16 i + j] = from[16 i + order[j]] for both 16-byte halves i. */
INLINE void n_reorder(int8_t *to, const int8_t *from, const uint8_t order[16]) {
    const __m256i places = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)order));
    n_store_bytes(to, _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(const void *)from), places));
}
/* The largest lane. */
INLINE int32_t n_max_lane(ni v) {
    __m256i h = n_max_halves(v);
    __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
/* The largest lane of each of 4 registers. */
INLINE n_four_ints n_max_lanes(const ni v[4]) {
    __m256i a = n_max_halves(v[0]), b = n_max_halves(v[1]), c = n_max_halves(v[2]), d = n_max_halves(v[3]);
    __m256i ab = _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    __m256i cd = _mm256_max_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    __m256i all = _mm256_max_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return (n_four_ints)_mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}
/* Sum of any number of bytes, kept in 8 lanes. */
typedef __m256i n_byte_sum;
INLINE n_byte_sum n_byte_sum_zero(void) {
    return _mm256_setzero_si256();
}
INLINE n_byte_sum n_byte_sum_add(n_byte_sum sum, n_bytes v) {
    return _mm256_add_epi32(
        sum, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v), _mm256_set1_epi16(1)));
}
INLINE int32_t n_byte_sum_total(n_byte_sum sum) {
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    q = _mm_hadd_epi32(q, q);
    return _mm_cvtsi128_si32(_mm_hadd_epi32(q, q));
}
/* For each of 4 registers, the sums of its first and last 16 bytes. */
INLINE void n_byte_sums(const n_bytes v[4], n_four_ints out[2]) {
    n_byte_sum sums[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        sums[i] = n_byte_sum_add(n_byte_sum_zero(), v[i]);
    }
    __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    out[0] = (n_four_ints)_mm256_castsi256_si128(all);
    out[1] = (n_four_ints)_mm256_extracti128_si256(all, 1);
}
INLINE __m256i n_pair(n_four_ints low, n_four_ints high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)low), (__m128i)high, 1);
}
/* Stores lane i of the 8, in order, at to + i * stride. */
INLINE void n_store_lanes(void *to, size_t stride, const n_four_ints v[8]) {
    __m256i a = n_pair(v[0], v[4]), b = n_pair(v[1], v[5]), c = n_pair(v[2], v[6]), d = n_pair(v[3], v[7]);
    __m256i ab[] = {_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)};
    __m256i cd[] = {_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d)};
    UNROLL
    for (int i = 0; i < 2; i++) {
        uint8_t *p = (uint8_t *)to + 2 * (size_t)i * stride;
        _mm256_storeu_si256((__m256i *)(void *)p, _mm256_unpacklo_epi64(ab[i], cd[i]));
        _mm256_storeu_si256((__m256i *)(void *)(p + stride), _mm256_unpackhi_epi64(ab[i], cd[i]));
    }
}
#endif

#endif
