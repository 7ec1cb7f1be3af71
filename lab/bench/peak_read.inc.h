/* Reads memory in whole registers: included by peak_avx2.c and peak_avx512.c, which
 * define `vec`, VEC_LOAD, VEC_ADD, VEC_ZERO and vec_sum. */

#define PER_ROUND 256 /* bytes of a stream per round */

/* Callers pass n_streams and `ahead` as constants, so that no branch is left inside. */
static inline __attribute__((always_inline)) uint64_t read_streams(const uint8_t *p, size_t n,
                                                                   size_t n_streams, int32_t ahead) {
    enum { N = PER_ROUND / sizeof(vec) };
    size_t share = n / n_streams;
    vec sums[N];
    UNROLL
    for (size_t i = 0; i < N; i++) {
        sums[i] = VEC_ZERO();
    }
    for (size_t at = 0; at < share; at += PER_ROUND) {
        UNROLL
        for (size_t s = 0; s < n_streams; s++) {
            const uint8_t *from = p + s * share + at;
            UNROLL
            for (size_t line = 0; ahead > 0 && line < PER_ROUND; line += 64) {
                __builtin_prefetch(from + ahead + line);
            }
            UNROLL
            for (size_t i = 0; i < N; i++) {
                sums[i] = VEC_ADD(sums[i], VEC_LOAD(from + i * sizeof(vec)));
            }
        }
    }
    vec sum = sums[0];
    UNROLL
    for (size_t i = 1; i < N; i++) {
        sum = VEC_ADD(sum, sums[i]);
    }
    return vec_sum(sum);
}

static uint64_t read_memory(const uint8_t *p, size_t n, const peak_way *way) {
    switch (way->n_streams) {
    case 2:
        return way->ahead_bytes > 0 ? read_streams(p, n, 2, way->ahead_bytes) : read_streams(p, n, 2, 0);
    case 4:
        return way->ahead_bytes > 0 ? read_streams(p, n, 4, way->ahead_bytes) : read_streams(p, n, 4, 0);
    case 8:
        return way->ahead_bytes > 0 ? read_streams(p, n, 8, way->ahead_bytes) : read_streams(p, n, 8, 0);
    default:
        return way->ahead_bytes > 0 ? read_streams(p, n, 1, way->ahead_bytes) : read_streams(p, n, 1, 0);
    }
}
