/* SHA-256 (FIPS 180-4): a digest of 32 bytes without known collisions, for names that
 * must not collide. Not fast. Any thread. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

/* Computes the digest of n bytes. O(n). */
void sha256(const void *bytes, size_t n, uint8_t out[SHA256_BYTES]);

/* The state of a digest of bytes that come in pieces: begin, add any number of times,
 * end. */
typedef struct sha256_sum {
    uint32_t h[8];
    uint8_t rest[64]; /* [n_rest] bytes after the last whole block */
    size_t n_rest;
    uint64_t n;
} sha256_sum;

void sha256_begin(sha256_sum *s);
void sha256_add(sha256_sum *s, const void *bytes, size_t n);
/* Afterwards s needs sha256_begin before it is used again. */
void sha256_end(sha256_sum *s, uint8_t out[SHA256_BYTES]);

/* Computes the HMAC-SHA-256 (RFC 2104) of n bytes under a key of n_key bytes: a digest
 * that only holders of the key can compute. O(n + n_key). */
void hmac_sha256(const void *key, size_t n_key, const void *bytes, size_t n, uint8_t out[SHA256_BYTES]);

#endif
