/* Chained hashes of full pages: 64 bits that name a page of tokens after a whole prefix
 * in a namespace (XXH3).
 *
 * They are names for other programs and stores (events, tiers), never proof of equality:
 * the index compares tokens, and works the same with 8 bits of hash in a test (index.h).
 * Tokens are hashed in the processor's byte order. Any thread. */
#ifndef KV_HASH_H
#define KV_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The parent hash of a namespace's first page. `before` is the hash of the public prefix
 * that the namespace begins after, 0 for none. */
uint64_t kv_hash_root(uint64_t before, const void *name, size_t n);
/* The hash of a page of n tokens after `parent`. Never 0, which means "no hash". */
uint64_t kv_hash_page(uint64_t parent, const int32_t *tokens, int32_t n);

#endif
