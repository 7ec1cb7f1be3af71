/* Registers of int8 numbers on NEON with dot products (ARMv8.2): 4 columns per register.
 * Included only by simd_int.h, which defines the operations. */
#ifndef CPU_SIMD_INT_NEON_H
#define CPU_SIMD_INT_NEON_H

#define N_LANES      4
#define N_HALVES     4
#define N_FLOAT_ROWS 6

#define N_FLOATS_FIRST 0

#define N_INT8_ROWS     6
#define INT8_BLOCKS     1
#define INT8_FEW_BLOCKS 1
#define INT8_CHUNK      1024
#define INT8_KEPT_ROWS  0

#define N_GROUP_ROWS     4
#define N_DIRECT_ROWS    4
#define N_SUMS_STORED    0
#define GROUP_CHUNK      32
#define N_PLAIN_UNPACKED 4 /* not measured */

typedef float32x4_t nf;
typedef int32x4_t ni;
typedef int32x4_t n_sum;
typedef int8x16x2_t n_bytes; /* 32 int8 */
typedef int32x4_t n_byte_sum;

REGISTER_1(nf, nf_load, const float *, vld1q_f32)
INLINE void nf_store(float *p, nf v) {
    vst1q_f32(p, v);
}
INLINE nf nf_load_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
REGISTER_1(nf, nf_set1, float, vdupq_n_f32)
REGISTER_2(nf, nf_mul, nf, vmulq_f32)
INLINE nf nf_fma(nf a, nf b, nf c) {
    return vfmaq_f32(c, a, b);
}
REGISTER_1(nf, nf_of, ni, vcvtq_f32_s32)
REGISTER_1(nf, nf_neg, nf, vnegq_f32)
REGISTER_1(ni, n_of, nf, vcvtnq_s32_f32)
INLINE ni n_magnitude_bits(nf v) {
    return vandq_s32(vreinterpretq_s32_f32(v), vdupq_n_s32(0x7fffffff));
}
INLINE ni n_load(const void *p) {
    return vreinterpretq_s32_u8(vld1q_u8(p));
}
INLINE void n_store(void *p, ni v) {
    vst1q_u8(p, vreinterpretq_u8_s32(v));
}
REGISTER_1(ni, n_set1, int32_t, vdupq_n_s32)
INLINE ni n_set1_bytes(int x) {
    return vreinterpretq_s32_s8(vdupq_n_s8((int8_t)x));
}
REGISTER_2(ni, n_add, ni, vaddq_s32)
REGISTER_2(ni, n_and, ni, vandq_s32)
REGISTER_2(ni, n_or, ni, vorrq_s32)
REGISTER_2(ni, n_xor, ni, veorq_s32)
REGISTER_2(ni, n_max, ni, vmaxq_s32)
INLINE ni n_shl(ni v, int n) {
    return vshlq_s32(v, vdupq_n_s32(n));
}
INLINE ni n_shr(ni v, int n) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v), vdupq_n_s32(-n)));
}
INLINE ni n_select(ni mask, ni a, ni b) {
    return vbslq_s32(vreinterpretq_u32_s32(mask), a, b);
}
INLINE ni n_of_words(const uint16_t v[8]) {
    return vreinterpretq_s32_u16(vld1q_u16(v));
}
INLINE void n_widen(ni v, ni out[2]) {
    out[0] = vreinterpretq_s32_u16(vmovl_u8(vget_low_u8(vreinterpretq_u8_s32(v))));
    out[1] = vreinterpretq_s32_u16(vmovl_u8(vget_high_u8(vreinterpretq_u8_s32(v))));
}
INLINE ni n_lookup(ni v, const int8_t table[16]) {
    return vreinterpretq_s32_s8(
        vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s32(n_and(v, n_set1_bytes(15)))));
}
INLINE ni n_load_u8(const uint8_t *p) {
    uint32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))));
}
INLINE ni n_load_i8(const uint8_t *p) {
    uint32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(bytes))));
}
/* 32 integers of -128..127 as bytes, in order. */
INLINE n_bytes n_bytes_of(const ni v[8]) {
    n_bytes bytes;
    for (int i = 0; i < 2; i++) {
        int16x8_t low = vcombine_s16(vmovn_s32(v[4 * i]), vmovn_s32(v[4 * i + 1]));
        int16x8_t high = vcombine_s16(vmovn_s32(v[4 * i + 2]), vmovn_s32(v[4 * i + 3]));
        bytes.val[i] = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
    }
    return bytes;
}
INLINE void n_store_bytes(int8_t *p, n_bytes v) {
    vst1q_s8(p, v.val[0]);
    vst1q_s8(p + 16, v.val[1]);
}

/* to[16 i + j] = from[16 i + order[j]] for both 16-byte halves i. */
INLINE void n_reorder(int8_t *to, const int8_t *from, const uint8_t order[16]) {
    for (int i = 0; i < 32; i += 16) {
        vst1q_s8(to + i, vqtbl1q_s8(vld1q_s8(from + i), vld1q_u8(order)));
    }
}

INLINE int n_run(int bits) {
    (void)bits;
    return QUADS;
}
INLINE ni n_dot_open(ni start) {
    (void)start;
    return vdupq_n_s32(0);
}
INLINE ni n_dot_add(ni sum, ni w, ni x) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
}
INLINE ni n_dot_first(bool has_start, ni start, ni w, ni x) {
    (void)has_start;
    return n_dot_add(start, w, x);
}
INLINE ni n_dot_close(ni sum, ni start) {
    return vaddq_s32(sum, start);
}

typedef struct n_quad {
    ni v;
} n_quad;
INLINE n_quad n_quad_of(ni w) {
    return (n_quad){w};
}
INLINE n_quad n_quad_lookup(ni v, const int8_t table[16]) {
    return n_quad_of(n_lookup(v, table));
}
INLINE n_sum n_quad_add(n_sum sum, n_quad w, ni x) {
    return n_dot_add(sum, w.v, x);
}
#define N_QUADS_LACK 0
INLINE void n_quad_keep(void *to, ni w) {
    n_store(to, w);
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
INLINE n_sum n_add_small(n_sum sum, ni small, ni x) {
    return n_dot_add(sum, small, x);
}
INLINE n_sum n_quad_start(int32_t times_128) {
    (void)times_128;
    return vdupq_n_s32(0);
}

INLINE int32_t n_max_lane(ni v) {
    return vmaxvq_s32(v);
}
INLINE n_four_ints n_max_lanes(const ni v[4]) {
    return (n_four_ints)vpmaxq_s32(vpmaxq_s32(v[0], v[1]), vpmaxq_s32(v[2], v[3]));
}
INLINE n_byte_sum n_byte_sum_zero(void) {
    return vdupq_n_s32(0);
}
INLINE n_byte_sum n_byte_sum_add(n_byte_sum sum, n_bytes v) {
    return vdotq_s32(vdotq_s32(sum, v.val[0], vdupq_n_s8(1)), v.val[1], vdupq_n_s8(1));
}
INLINE int32_t n_byte_sum_total(n_byte_sum sum) {
    return vaddvq_s32(sum);
}
INLINE void n_byte_sums(const n_bytes v[4], n_four_ints out[2]) {
    for (int half = 0; half < 2; half++) {
        int32x4_t sums[4];
        for (int i = 0; i < 4; i++) {
            sums[i] = vdotq_s32(vdupq_n_s32(0), v[i].val[half], vdupq_n_s8(1));
        }
        out[half] = (n_four_ints)vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3]));
    }
}
INLINE void n_store_lanes(void *to, size_t stride, const n_four_ints v[8]) {
    for (size_t half = 0; half < 2; half++, v += 4) {
        int32x4x4_t all = {{(int32x4_t)v[0], (int32x4_t)v[1], (int32x4_t)v[2], (int32x4_t)v[3]}};
        uint8_t *p = (uint8_t *)to + 16 * half;
        vst4q_lane_s32((int32_t *)(void *)p, all, 0);
        vst4q_lane_s32((int32_t *)(void *)(p + stride), all, 1);
        vst4q_lane_s32((int32_t *)(void *)(p + 2 * stride), all, 2);
        vst4q_lane_s32((int32_t *)(void *)(p + 3 * stride), all, 3);
    }
}

#endif
