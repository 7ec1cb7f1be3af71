/* Chained hashes of full pages: 64 bits that name a page of tokens behind a whole prefix in a namespace (XXH3).
 *
 * They are names for the outside (events, stores that outlive the process), never evidence: the index compares tokens, and a test with 8
 * bits of hash finds no difference (index.h). Tokens are hashed as they lie in memory. Any thread. */
#ifndef KV_HASH_H
#define KV_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash that the first page of a namespace follows; `before` is the hash of the prefix that the namespace itself stands on, 0 for none.
 */
uint64_t kv_hash_root(uint64_t before, const void *name, size_t n);
/* The hash of a page of n tokens behind `parent`. Never 0, which stands for "no hash". */
uint64_t kv_hash_page(uint64_t parent, const int32_t *tokens, int32_t n);

#endif
