/* Unpacks rows of int4 to int8, block by block, for the attention kernels; kv_rows.h
 * defines the bytes. Part of attention_kernels.inc.h.
 *
 * Codes times their multiplier are at most 15 * 16, so that two bytes of a 16-bit lane
 * are multiplied by the same number at once: m (code - zero) is that product minus m
 * zero, in bytes. Keys: lanes are positions, each with its own multiplier. Values: four
 * positions a lane, whose bytes are multiplied in two turns. */
#include "backend/cpu/kv_rows.h"

typedef uint16_t n_words __attribute__((vector_size(4 * N_LANES)));

INLINE ni n_mul_words(ni a, ni b) {
    return (ni)((n_words)a * (n_words)b);
}

/* Half h of the 16 positions of a group's keys. */
INLINE void unpack_keys(const uint8_t *codes, const uint8_t *forms, int32_t group, int h, int32_t n_quads,
                        int8_t *out) {
    const ni form =
        n_and(n_shr(n_load(forms + group / 4 * QUAD_BYTES + 4 * h * N_LANES), 8 * (group % 4)), n_set1(255));
    const ni m = n_add(n_and(form, n_set1(15)), n_set1(1)), times = n_or(m, n_shl(m, 16)),
             nibbles = n_set1_bytes(15);
    ni less = n_mul_words(m, n_shr(form, 4));
    less = n_or(less, n_shl(less, 8));
    less = n_or(less, n_shl(less, 16));
    UNROLL
    for (int32_t i = 0; i < 4; i++) {
        const ni both = n_load(codes + (4 * group + i) * QUAD_BYTES + 4 * h * N_LANES);
        const int32_t quad = 8 * group + i;
        if (quad < n_quads) {
            n_store(out + quad * QUAD_BYTES + 4 * h * N_LANES,
                    n_sub_bytes(n_mul_words(n_and(both, nibbles), times), less));
        }
        if (quad + 4 < n_quads) {
            n_store(out + (quad + 4) * QUAD_BYTES + 4 * h * N_LANES,
                    n_sub_bytes(n_mul_words(n_and(n_shr(both, 4), nibbles), times), less));
        }
    }
}

/* Multipliers of four groups of four positions' values, each the words of positions 0 and
 * 2, and of 1 and 3; and multipliers times zeros, in bytes. */
typedef struct int4_forms {
    uint32_t even[4], odd[4], less[4];
} int4_forms;

typedef uint32_t n_four_words __attribute__((vector_size(16)));
typedef uint16_t n_eight_halves __attribute__((vector_size(16)));

/* Those of the 16 bytes that end at `end`: for fewer groups the last ones. */
INLINE void find_forms(const uint8_t *end, int4_forms *out) {
    n_four_words forms;
    memcpy(&forms, end - sizeof forms, sizeof forms);
    const n_four_words even = (forms & 0x000f000f) + 0x00010001, odd = (forms >> 8 & 0x000f000f) + 0x00010001;
    const n_four_words
        less_even = (n_four_words)((n_eight_halves)even * (n_eight_halves)(forms >> 4 & 0x000f000f)),
        less_odd = (n_four_words)((n_eight_halves)odd * (n_eight_halves)(forms >> 12 & 0x000f000f)),
        less = less_even | less_odd << 8;
    memcpy(out->even, &even, sizeof even);
    memcpy(out->odd, &odd, sizeof odd);
    memcpy(out->less, &less, sizeof less);
}

/* Bytes of four positions, each times its own multiplier. The product of a word's lower
 * byte stays below the upper one. */
INLINE ni times_each(ni codes, ni even, ni odd) {
    return n_select(n_set1(0x00ff00ff), n_mul_words(codes, even), n_mul_words(codes, odd));
}

/* The elements of a group of four positions' values, with form i of forms. */
INLINE void unpack_values(const uint8_t *codes, const int4_forms *forms, int i, int8_t *out) {
    const ni even = n_set1((int32_t)forms->even[i]), odd = n_set1((int32_t)forms->odd[i]),
             less = n_set1((int32_t)forms->less[i]), nibbles = n_set1_bytes(15);
    UNROLL
    for (int h = 0; h < N_HALVES; h++) {
        const ni both = n_load(codes + 4 * h * N_LANES);
        n_store(out + 4 * h * N_LANES, n_sub_bytes(times_each(n_and(both, nibbles), even, odd), less));
        n_store(out + QUAD_BYTES + 4 * h * N_LANES,
                n_sub_bytes(times_each(n_and(n_shr(both, 4), nibbles), even, odd), less));
    }
}

static void unpack_int4_kernel(bool values, const uint8_t *block, int32_t width, int32_t row_bytes,
                               int8_t *out) {
    const int32_t n_groups = (width + INT4_GROUP - 1) / INT4_GROUP, stride = attn_int8_stride(width);
    if (!values) {
        for (int32_t g = 0; g < n_groups; g++) {
            for (int h = 0; h < N_HALVES; h++) {
                unpack_keys(block, block + n_groups * 4 * QUAD_BYTES, g, h, stride / 4, out);
            }
        }
        return;
    }
    for (int32_t quad = 0; quad < ATTN_BLOCK / 4; quad++, block += 4 * row_bytes, out += 4 * stride) {
        int4_forms forms;
        for (int32_t g = 0; g < n_groups; g++) {
            const int32_t first = g / 4 * 4, end = n_groups - first < 4 ? n_groups : first + 4;
            if (g == first) {
                find_forms(block + n_groups * QUAD_BYTES + 4 * end, &forms);
            }
            unpack_values(block + g * QUAD_BYTES, &forms, 4 + g - end, out + 2 * g * QUAD_BYTES);
        }
    }
}
