/* Values of latents for the attention kernels: transposes blocks of keys, whose positions
 * are across lanes, to rows. Part of attention_kernels.inc.h;
 * attention_values_of_keys_plain defines the result.
 *
 * Eight rows of a block are transposed together. Interleaving rows that differ in the
 * highest bit of their index moves that bit below the bits of an element's position, and
 * the position's highest bit into the vector's index. After three such steps a vector has
 * all eight elements of a position. */

#if N_LANES == 4
#define TURN_BYTES 16
#else
#define TURN_BYTES 32
#endif

typedef uint8_t turn_u8 __attribute__((vector_size(16)));
typedef uint16_t turn_u16 __attribute__((vector_size(TURN_BYTES)));
typedef uint32_t turn_u32 __attribute__((vector_size(TURN_BYTES)));

#if TURN_BYTES == 32
#define TURN_LOW_16(a, b)                                                                                    \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27)
#define TURN_HIGH_16(a, b)                                                                                   \
    __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31)
#define TURN_LOW_32(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define TURN_HIGH_32(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#else
#define TURN_LOW_16(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define TURN_HIGH_16(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define TURN_LOW_32(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define TURN_HIGH_32(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif
#define TURN_LOW_8(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define TURN_HIGH_8(a, b)                                                                                    \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Turns n rows into n vectors, one bit of the row index at a time. */
#define TURN(vector, bits, n_rows, n_bits, rows)                                                             \
    do {                                                                                                     \
        UNROLL                                                                                               \
        for (int turn = 0; turn < (n_bits); turn++) {                                                        \
            vector turned[n_rows];                                                                           \
            UNROLL                                                                                           \
            for (int i = 0; i < (n_rows) / 2; i++) {                                                         \
                turned[2 * i] = TURN_LOW_##bits(rows[i], rows[i + (n_rows) / 2]);                            \
                turned[2 * i + 1] = TURN_HIGH_##bits(rows[i], rows[i + (n_rows) / 2]);                       \
            }                                                                                                \
            memcpy(rows, turned, sizeof turned);                                                             \
        }                                                                                                    \
    } while (0)

enum { TURN_LANE = 16 }; /* bytes within which an interleaving stays */

/* Transposes four 4-byte elements of all positions. row: bytes of a row. */
INLINE void turn_words(const uint8_t *keys, size_t row, uint8_t *values) {
    for (int p = 0; p < ATTN_BLOCK; p += TURN_BYTES / 4) {
        turn_u32 rows[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            memcpy(&rows[i], keys + (i * ATTN_BLOCK + p) * 4, sizeof rows[i]);
        }
        TURN(turn_u32, 32, 4, 2, rows);
        UNROLL
        for (int i = 0; i < 4; i++) {
            UNROLL
            for (int lane = 0; lane < TURN_BYTES / TURN_LANE; lane++) {
                memcpy(values + (size_t)(p + lane * 4 + i) * row,
                       (const uint8_t *)&rows[i] + lane * TURN_LANE, TURN_LANE);
            }
        }
    }
}

/* Transposes eight 2-byte elements. */
INLINE void turn_halves(const uint8_t *keys, size_t row, uint8_t *values) {
    for (int p = 0; p < ATTN_BLOCK; p += TURN_BYTES / 2) {
        turn_u16 rows[8];
        UNROLL
        for (int i = 0; i < 8; i++) {
            memcpy(&rows[i], keys + (i * ATTN_BLOCK + p) * 2, sizeof rows[i]);
        }
        TURN(turn_u16, 16, 8, 3, rows);
        UNROLL
        for (int i = 0; i < 8; i++) {
            UNROLL
            for (int lane = 0; lane < TURN_BYTES / TURN_LANE; lane++) {
                memcpy(values + (size_t)(p + lane * 8 + i) * row,
                       (const uint8_t *)&rows[i] + lane * TURN_LANE, TURN_LANE);
            }
        }
    }
}

/* Transposes eight 1-byte elements; a vector then has two positions. */
INLINE void turn_bytes(const uint8_t *keys, size_t row, uint8_t *values) {
    turn_u8 rows[8];
    UNROLL
    for (int i = 0; i < 8; i++) {
        memcpy(&rows[i], keys + i * ATTN_BLOCK, sizeof rows[i]);
    }
    TURN(turn_u8, 8, 8, 3, rows);
    UNROLL
    for (int i = 0; i < ATTN_BLOCK; i++) {
        memcpy(values + (size_t)i * row, (const uint8_t *)&rows[i / 2] + i % 2 * 8, 8);
    }
}

/* Converts quads of elements to quads of positions. */
static void turn_quads(const uint8_t *keys, int32_t row, uint8_t *values) {
    for (int32_t quad = 0; quad < row / 4; quad++) {
        UNROLL
        for (int p = 0; p < ATTN_BLOCK / 4; p++) {
            turn_u8 v;
            memcpy(&v, keys + (quad * ATTN_BLOCK + p * 4) * 4, sizeof v);
            v = __builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            memcpy(values + ((size_t)p * (size_t)row + (size_t)quad * 4) * 4, &v, sizeof v);
        }
    }
}

static void values_of_keys_kernel(dtype type, const void *keys, int32_t d_value, void *values) {
    const uint8_t *from = keys;
    uint8_t *to = values;
    const int32_t size = element_bytes(type);
    const size_t row = (size_t)size * (size_t)d_value;
    int32_t d = 0;
    if (type == DTYPE_I8) {
        turn_quads(from, attn_int8_stride(d_value), to);
        return;
    }
    for (; size == 4 && d + 4 <= d_value; d += 4) {
        turn_words(from + d * ATTN_BLOCK * 4, row, to + d * 4);
    }
    for (; size == 2 && d + 8 <= d_value; d += 8) {
        turn_halves(from + d * ATTN_BLOCK * 2, row, to + d * 2);
    }
    for (; size == 1 && d + 8 <= d_value; d += 8) {
        turn_bytes(from + d * ATTN_BLOCK, row, to + d);
    }
    for (; d < d_value; d++) {
        for (int32_t p = 0; p < ATTN_BLOCK; p++) {
            memcpy(to + (size_t)p * row + d * size, from + (d * ATTN_BLOCK + p) * size, (size_t)size);
        }
    }
}
