#include "kv/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t kv_hash_root(uint64_t before, const void *name, size_t n) {
    return XXH3_64bits_withSeed(name, n, before);
}

uint64_t kv_hash_page(uint64_t parent, const int32_t *tokens, int32_t n) {
    uint64_t h = XXH3_64bits_withSeed(tokens, (size_t)n * sizeof *tokens, parent);
    return h != 0 ? h : 1;
}
