/* HMAC-SHA-256 (RFC 2104): a digest of a text that only who has the key can make. Any
 * thread. */
#ifndef BASE_HMAC_H
#define BASE_HMAC_H

#include "base/sha256.h"

/* The digest of n bytes under a key of n_key bytes. O(n + n_key). */
void hmac_sha256(const void *key, size_t n_key, const void *bytes, size_t n, uint8_t out[SHA256_BYTES]);

#endif
