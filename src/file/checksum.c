#include "file/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t checksum(const void *bytes, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        return checksum_avx2(bytes, n);
    }
#endif
    return XXH3_64bits(bytes, n);
}
