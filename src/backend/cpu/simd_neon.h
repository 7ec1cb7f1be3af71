/* The 16-lane machine on NEON (ARMv8): a value is four 128-bit registers. Included only
 * by simd.h, which defines the operations. */
#ifndef CPU_SIMD_NEON_H
#define CPU_SIMD_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct f32x16 {
    float32x4_t v[4]; /* lanes 0..3, 4..7, 8..11, 12..15 */
} f32x16;
typedef struct i32x16 {
    int32x4_t v[4];
} i32x16;
typedef struct mask16 {
    uint32x4_t v[4]; /* each lane is all ones or all zeros */
} mask16;

#define EACH_1(op, x) .v[0] = op((x).v[0]), .v[1] = op((x).v[1]), .v[2] = op((x).v[2]), .v[3] = op((x).v[3])
#define EACH_2(op, x, y)                                                                                     \
    .v[0] = op((x).v[0], (y).v[0]), .v[1] = op((x).v[1], (y).v[1]), .v[2] = op((x).v[2], (y).v[2]),          \
    .v[3] = op((x).v[3], (y).v[3])

/* Defines a function's result one register at a time: r.v[i] = expression for register
 * i. */
#define NEON_EACH(type, expression)                                                                          \
    type r;                                                                                                  \
    for (int i = 0; i < 4; i++) {                                                                            \
        r.v[i] = expression;                                                                                 \
    }                                                                                                        \
    return r

/* ---- memory ---- */
static inline f32x16 f_load(const float *p) {
    NEON_EACH(f32x16, vld1q_f32(p + 4 * i));
}
static inline void f_store(float *p, f32x16 x) {
    for (int i = 0; i < 4; i++) {
        vst1q_f32(p + 4 * i, x.v[i]);
    }
}
/* An ordinary store: processors bypass the caches for whole lines by themselves. */
static inline void f_stream(float *p, f32x16 x) {
    f_store(p, x);
}
static inline void f_stream_end(void) {
}
static inline f32x16 f_load_f16(const uint16_t *p) {
    NEON_EACH(f32x16, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
}
/* Converts 16 codes of E4M3, not NaN, to floats times 2^-8 (core/half.h). */
static inline f32x16 f_load_e4m3(const uint8_t *p) {
    uint16_t halves[16];
    for (int i = 0; i < 2; i++) {
        int16x8_t words = vshlq_n_s16(vmovl_s8(vld1_s8((const int8_t *)p + 8 * i)), 7);
        vst1q_u16(halves + 8 * i, vandq_u16(vreinterpretq_u16_s16(words), vdupq_n_u16(0xbfff)));
    }
    return f_load_f16(halves);
}
static inline void f_load_e4m3_pair(const uint8_t *p, f32x16 out[2]) {
    out[0] = f_load_e4m3(p);
    out[1] = f_load_e4m3(p + 16);
}
/* Converts the first or second of each of 16 pairs of E4M3 codes, not NaN, to floats
 * times 2^-8. */
static inline f32x16 f_load_e4m3_pairs(const uint8_t *p, bool second) {
    uint16_t halves[16];
    for (int i = 0; i < 2; i++) {
        const int16x8_t pairs = vreinterpretq_s16_u8(vld1q_u8(p + 16 * i)),
                        words = second ? pairs : vshlq_n_s16(pairs, 8);
        vst1q_u16(halves + 8 * i,
                  vandq_u16(vreinterpretq_u16_s16(vshrq_n_s16(words, 1)), vdupq_n_u16(0xbf80)));
    }
    return f_load_f16(halves);
}
static inline void f_store_f16(uint16_t *p, f32x16 x) {
    for (int i = 0; i < 4; i++) {
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
    }
}
static inline i32x16 i_load(const int32_t *p) {
    NEON_EACH(i32x16, vld1q_s32(p + 4 * i));
}
static inline void i_store(int32_t *p, i32x16 x) {
    for (int i = 0; i < 4; i++) {
        vst1q_s32(p + 4 * i, x.v[i]);
    }
}
static inline i32x16 i_load_u16(const uint16_t *p) {
    NEON_EACH(i32x16, vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p + 4 * i))));
}
/* Lanes must be in 0..65535. */
static inline void i_store_u16(uint16_t *p, i32x16 x) {
    for (int i = 0; i < 4; i++) {
        vst1_u16(p + 4 * i, vmovn_u32(vreinterpretq_u32_s32(x.v[i])));
    }
}
/* Lanes must be in 0..255. */
static inline void i_store_u8(uint8_t *p, i32x16 x) {
    for (int i = 0; i < 2; i++) {
        uint16x8_t halves = vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(x.v[2 * i])),
                                         vmovn_u32(vreinterpretq_u32_s32(x.v[2 * i + 1])));
        vst1_u8(p + 8 * i, vmovn_u16(halves));
    }
}
static inline i32x16 i_load_i8(const int8_t *p) {
    int8x16_t bytes = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
    return (i32x16){{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)),
                     vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))}};
}

/* Duplicates each lane of the first, or of the last, 8 lanes. */
static inline f32x16 f_twice_low(f32x16 x) {
    return (f32x16){{vzip1q_f32(x.v[0], x.v[0]), vzip2q_f32(x.v[0], x.v[0]), vzip1q_f32(x.v[1], x.v[1]),
                     vzip2q_f32(x.v[1], x.v[1])}};
}
static inline f32x16 f_twice_high(f32x16 x) {
    return (f32x16){{vzip1q_f32(x.v[2], x.v[2]), vzip2q_f32(x.v[2], x.v[2]), vzip1q_f32(x.v[3], x.v[3]),
                     vzip2q_f32(x.v[3], x.v[3])}};
}
/* Swaps lanes 2i and 2i + 1. */
LANEWISE_1(f32x16, f_swap_neighbours, f32x16, vrev64q_f32)
/* Lane i = table's lane c, where c is the low four bits of codes' lane i: the four bytes
 * from 4 c on. */
static inline float32x4_t neon_lookup(f32x16 table, int32x4_t codes) {
    const uint32x4_t c = vandq_u32(vreinterpretq_u32_s32(codes), vdupq_n_u32(15));
    const uint32x4_t at = vmlaq_n_u32(vdupq_n_u32(0x03020100), c, 0x04040404);
    uint8x16x4_t bytes;
    for (int i = 0; i < 4; i++) {
        bytes.val[i] = vreinterpretq_u8_f32(table.v[i]);
    }
    return vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_u32(at)));
}
static inline f32x16 f_lookup(f32x16 table, i32x16 codes) {
    NEON_EACH(f32x16, neon_lookup(table, codes.v[i]));
}
/* table[code lane] in each lane; codes are 0..255. */
static inline f32x16 f_lookup_256(const float *table, i32x16 codes) {
    float lanes[16];
    int32_t c[16];
    i_store(c, codes);
    for (int i = 0; i < 16; i++) {
        lanes[i] = table[c[i]];
    }
    return f_load(lanes);
}

/* ---- floats ---- */
static inline f32x16 f_set1(float x) {
    NEON_EACH(f32x16, vdupq_n_f32(x));
}
static inline f32x16 f_zero(void) {
    return f_set1(0.0f);
}
LANEWISE_2(f32x16, f_add, f32x16, vaddq_f32)
LANEWISE_2(f32x16, f_sub, f32x16, vsubq_f32)
LANEWISE_2(f32x16, f_mul, f32x16, vmulq_f32)
LANEWISE_2(f32x16, f_div, f32x16, vdivq_f32)
/* By comparison: NEON's own maximum treats NaN and zeros differently. */
static inline float32x4_t neon_max(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
LANEWISE_2(f32x16, f_max, f32x16, neon_max)
static inline f32x16 f_min(f32x16 x, f32x16 y) {
    NEON_EACH(f32x16, vbslq_f32(vcltq_f32(x.v[i], y.v[i]), x.v[i], y.v[i]));
}
/* x * y + z, rounded once. */
static inline f32x16 f_fma(f32x16 x, f32x16 y, f32x16 z) {
    NEON_EACH(f32x16, vfmaq_f32(z.v[i], x.v[i], y.v[i]));
}
/* z - x * y, rounded once. */
static inline f32x16 f_fnma(f32x16 x, f32x16 y, f32x16 z) {
    NEON_EACH(f32x16, vfmsq_f32(z.v[i], x.v[i], y.v[i]));
}
/* Rounds to the nearest integer, ties to even. */
LANEWISE_1(f32x16, f_round, f32x16, vrndnq_f32)
/* Adds lanes in the order given in simd.h. */
static inline float f_tree_sum(f32x16 x) {
    float32x4_t q = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    float32x2_t d = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}
static inline float f_tree_max(f32x16 x) {
    float32x4_t q = neon_max(neon_max(x.v[0], x.v[2]), neon_max(x.v[1], x.v[3]));
    q = neon_max(q, vextq_f32(q, q, 2));
    q = neon_max(q, vextq_f32(q, q, 1));
    return vgetq_lane_f32(q, 0);
}

/* ---- conversions ---- */
/* Rounds to the nearest integer, ties to even. INT32_MIN if it does not fit, as on
 * x86. */
static inline int32x4_t neon_to_i(float32x4_t x) {
    return vbslq_s32(vcltq_f32(vabsq_f32(x), vdupq_n_f32(0x1p31f)), vcvtnq_s32_f32(x),
                     vdupq_n_s32(INT32_MIN));
}
LANEWISE_1(i32x16, f_to_i, f32x16, neon_to_i)
LANEWISE_1(f32x16, i_to_f, i32x16, vcvtq_f32_s32)
LANEWISE_1(i32x16, f_bits, f32x16, vreinterpretq_s32_f32)
LANEWISE_1(f32x16, f_of_bits, i32x16, vreinterpretq_f32_s32)

/* ---- integers; shifts by the same count in every lane ---- */
static inline i32x16 i_set1(int32_t x) {
    NEON_EACH(i32x16, vdupq_n_s32(x));
}
LANEWISE_2(i32x16, i_add, i32x16, vaddq_s32)
LANEWISE_2(i32x16, i_sub, i32x16, vsubq_s32)
LANEWISE_2(i32x16, i_and, i32x16, vandq_s32)
LANEWISE_2(i32x16, i_or, i32x16, vorrq_s32)
LANEWISE_2(i32x16, i_xor, i32x16, veorq_s32)
static inline i32x16 i_shl(i32x16 x, int n) {
    NEON_EACH(i32x16, vshlq_s32(x.v[i], vdupq_n_s32(n)));
}
static inline i32x16 i_shr(i32x16 x, int n) {
    NEON_EACH(i32x16, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x.v[i]), vdupq_n_s32(-n))));
}
static inline i32x16 i_sar(i32x16 x, int n) {
    NEON_EACH(i32x16, vshlq_s32(x.v[i], vdupq_n_s32(-n)));
}

/* ---- masks; comparisons with NaN are false, except m_nan ---- */
static inline mask16 m_first(int32_t n) {
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    NEON_EACH(mask16, vcgtq_s32(vdupq_n_s32(n), vld1q_s32(lanes + 4 * i)));
}
static inline mask16 m_of_bits(uint16_t bits) {
    static const uint32_t lanes[16] = {1,   2,   4,    8,    16,   32,   64,    128,
                                       256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    NEON_EACH(mask16, vtstq_u32(vdupq_n_u32(bits), vld1q_u32(lanes + 4 * i)));
}
LANEWISE_2(mask16, m_lt, f32x16, vcltq_f32)
LANEWISE_2(mask16, m_le, f32x16, vcleq_f32)
static inline mask16 m_nan(f32x16 x) {
    NEON_EACH(mask16, vmvnq_u32(vceqq_f32(x.v[i], x.v[i])));
}
LANEWISE_2(mask16, m_and, mask16, vandq_u32)
/* Lanes of x that are not in y. */
LANEWISE_2(mask16, m_without, mask16, vbicq_u32)
static inline bool m_all(mask16 x) {
    return vminvq_u32(vandq_u32(vandq_u32(x.v[0], x.v[1]), vandq_u32(x.v[2], x.v[3]))) != 0;
}
/* m ? x : y. */
static inline f32x16 f_select(mask16 m, f32x16 x, f32x16 y) {
    NEON_EACH(f32x16, vbslq_f32(m.v[i], x.v[i], y.v[i]));
}
static inline i32x16 i_select(mask16 m, i32x16 x, i32x16 y) {
    NEON_EACH(i32x16, vbslq_s32(m.v[i], x.v[i], y.v[i]));
}

/* Loads the first n lanes, others 0; touches only n elements. */
static inline f32x16 f_load_first(const float *p, int32_t n) {
    float lanes[16] = {0};
    memcpy(lanes, p, sizeof *p * (size_t)(n < 16 ? n : 16));
    return f_load(lanes);
}
static inline void f_store_first(float *p, int32_t n, f32x16 x) {
    float lanes[16];
    f_store(lanes, x);
    memcpy(p, lanes, sizeof *p * (size_t)(n < 16 ? n : 16));
}

#undef NEON_EACH

#endif
