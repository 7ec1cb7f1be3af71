/* Quantises floats to int8, 32 at a time, for activation rows and for heads of keys,
 * values and queries. Needs simd_int.h. */
#ifndef CPU_ROUND_INT8_INC_H
#define CPU_ROUND_INT8_INC_H

#define ROUND_NUMBERS   32
#define ROUND_REGISTERS (ROUND_NUMBERS / N_LANES)

/* The largest magnitude of each lane, as integers, which order like the floats, with NaN
 * above infinity. */
INLINE ni magnitudes32(const float *x) {
    ni largest = n_magnitude_bits(nf_load(x));
    UNROLL
    for (int i = 1; i < ROUND_REGISTERS; i++) {
        largest = n_max(largest, n_magnitude_bits(nf_load(x + i * N_LANES)));
    }
    return largest;
}

/* The largest magnitude of x[0..n). Copies the last n % 32 numbers to tail, followed by
 * zeros. */
INLINE int32_t largest_magnitude(const float *x, int32_t n, float tail[ROUND_NUMBERS]) {
    const int32_t whole = n / ROUND_NUMBERS * ROUND_NUMBERS;
    memset(tail, 0, ROUND_NUMBERS * sizeof *tail);
    memcpy(tail, x + whole, (size_t)(n - whole) * sizeof *x);
    ni largest = magnitudes32(tail);
    for (int32_t i = 0; i < whole; i += ROUND_NUMBERS) {
        largest = n_max(largest, magnitudes32(x + i));
    }
    return n_max_lane(largest);
}

/* x * inverse, ties to even; inverse 0 gives zeros for any x. */
INLINE n_bytes rounded32(const float *x, float inverse) {
    ni v[ROUND_REGISTERS];
    UNROLL
    for (int i = 0; i < ROUND_REGISTERS; i++) {
        v[i] = inverse != 0.0f ? n_of(nf_mul(nf_load(x + i * N_LANES), nf_set1(inverse))) : n_set1(0);
    }
    return n_bytes_of(v);
}

/* Quantises n numbers, a multiple of 32, to q. Returns their sum. */
INLINE int32_t round_all(const float *x, float inverse, int32_t n, int8_t *q) {
    n_byte_sum sum = n_byte_sum_zero();
    for (int32_t i = 0; i < n; i += ROUND_NUMBERS) {
        n_bytes v = rounded32(x + i, inverse);
        n_store_bytes(q + i, v);
        sum = n_byte_sum_add(sum, v);
    }
    return n_byte_sum_total(sum);
}

#endif
