/* For fuzz targets, which define LLVMFuzzerTestOneInput for libFuzzer or driver.c to
 * call. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef uint64_t fuzz_sum;

/* Reads the first bytes, the last and some between: a sanitizer checks the range. */
static inline void fuzz_read(fuzz_sum *sum, const void *p, size_t n) {
    const uint8_t *bytes = p;
    size_t stride = n / 64 + 1;
    for (size_t i = 0; i < n; i += stride) {
        *sum += bytes[i];
    }
    *sum += n > 0 ? bytes[n - 1] : 0;
}

/* Uses the sum, so that the compiler does not remove the reads. */
static inline void fuzz_keep(fuzz_sum sum) {
    volatile fuzz_sum kept = sum;
    (void)kept;
}

static inline void fuzz_check(int holds) {
    if (!holds) {
        abort();
    }
}

#endif
