/* Products on AVX-512 with VNNI and BF16: bf16 rows with its dot instruction, all others
 * as in linear_avx512.c. */
#include "backend/cpu/linear.h"
#include "backend/cpu/simd_int.h"

#define LANES PACK_LANES

/* acc + the pair of products in each lane. */
static inline f32x16 dot_bf16(f32x16 acc, i32x16 w, i32x16 x) {
    return (f32x16){_mm512_dpbf16_ps(acc.v, (__m512bh)w.v, (__m512bh)x.v)};
}
#define LINEAR_DOT_BF16 dot_bf16

/* Converts 16 pairs of E4M3 codes, not NaN, to pairs of bf16, times 2^-8. The exponent's
 * bias grows from 7 to 119 by adding bits that a code does not have; subnormals, whose
 * exponent is 0, need a different change, which is in a table. */
static inline i32x16 bf16_of_e4m3(const uint8_t *p) {
#ifdef SIMD_EMULATE
    return (i32x16){_mm512_or_si512(i_shr(f_bits(f_load_e4m3_pairs(p, false)), 16).v,
                                    f_bits(f_load_e4m3_pairs(p, true)).v)};
#else
    static const uint16_t subnormals[32] = {0x3800 ^ 0x0000, 0x3810 ^ 0x3700, 0x3820 ^ 0x3780,
                                            0x3830 ^ 0x37c0, 0x3840 ^ 0x3800, 0x3850 ^ 0x3820,
                                            0x3860 ^ 0x3840, 0x3870 ^ 0x3860};
    const __m512i codes = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    const __m512i normal =
        _mm512_ternarylogic_epi32(_mm512_slli_epi16(codes, 4), _mm512_set1_epi16((short)0x87f0),
                                  _mm512_set1_epi16(0x3800), 0xea); /* a & b | c */
    const __mmask32 is_subnormal = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x78));
    return (i32x16){_mm512_xor_si512(
        normal, _mm512_maskz_permutexvar_epi16(is_subnormal, codes, _mm512_loadu_si512(subnormals)))};
#endif
}
#define LINEAR_PAIR_E4M3 bf16_of_e4m3

#include "backend/cpu/linear_floats.inc.h"

#include "backend/cpu/linear_scaled.inc.h"

static void quantise_bf16(const float *x, int32_t k, void *row) {
    uint16_t *out = row;
    for (int32_t i = 0; i < k; i += 16) {
        int32_t n = k - i < 16 ? k - i : 16;
        f_store_bf16(out + i, n == 16 ? f_load(x + i) : f_load_first(x + i, n));
    }
}

static void quantise_f32(const float *x, int32_t k, void *row) {
    linear_avx512.quantise[ROWS_F32](x, k, row);
}

static void quantise_token(const float *x, int32_t k, void *row) {
    linear_avx512.quantise[ROWS_TOKEN](x, k, row);
}

static void quantise_groups(const float *x, int32_t k, void *row) {
    linear_avx512.quantise[ROWS_GROUPS](x, k, row);
}

static void product(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                    void *scratch) {
    if (part->w->format == ROWS_BF16 && pack_is_scaled(part->w->layout.kind)) {
        product_scaled(PACK_E4M3, ROWS_BF16, part, x, n_rows, y, y_stride, scratch);
    } else if (part->w->format == ROWS_BF16) {
        product_floats(PACK_BF16, ROWS_BF16, part, x, n_rows, y, y_stride, scratch);
    } else {
        linear_avx512.product(part, x, n_rows, y, y_stride, scratch);
    }
}

static bool finds_rows(void) {
    return linear_avx512.finds_rows();
}

const linear_kernels linear_avx512bf16 = {
    .quantise = {[ROWS_F32] = quantise_f32,
                 [ROWS_BF16] = quantise_bf16,
                 [ROWS_TOKEN] = quantise_token,
                 [ROWS_GROUPS] = quantise_groups},
    .product = product,
    .finds_rows = finds_rows,
};
