#include "base/rng.h"

#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"

#define N_ROUNDS 10
/* Philox's multipliers for the two pairs of words, and the increments of the key in each
 * round (the golden ratio and sqrt(3) - 1, as 32-bit fractions). */
#define MULTIPLY_0 0xD2511F53u
#define MULTIPLY_1 0xCD9E8D57u
#define WEYL_0     0x9E3779B9u
#define WEYL_1     0xBB67AE85u

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < N_ROUNDS; round++) {
        uint64_t product_0 = (uint64_t)MULTIPLY_0 * c0;
        uint64_t product_1 = (uint64_t)MULTIPLY_1 * c2;
        c0 = (uint32_t)(product_1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product_1;
        c2 = (uint32_t)(product_0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product_0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t rng_next(uint64_t *state) {
    assert(state != NULL);
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t rng_os_seed(void) {
    uint64_t seed;
    ssize_t n = -1;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, &seed, sizeof seed);
        close(fd);
    }
    /* no random device, as in a bare chroot: time and process id make starts differ */
    if (n != (ssize_t)sizeof seed) {
        uint64_t state = (uint64_t)clock_us() ^ ((uint64_t)getpid() << 40) ^ (uint64_t)clock_unix_s() << 20;
        seed = rng_next(&state);
    }
    return seed;
}
