/* SHA-256 (FIPS 180-4): a digest of 32 bytes that nobody finds a second input for. For names that must not collide, not for speed. Any
 * thread. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

/* The digest of n bytes. O(n). */
void sha256(const void *bytes, size_t n, uint8_t out[SHA256_BYTES]);

#endif
