#include "base/hmac.h"

#include <string.h>

enum { HMAC_BLOCK = 64 }; /* of SHA-256 */

void hmac_sha256(const void *key, size_t n_key, const void *bytes, size_t n, uint8_t out[SHA256_BYTES]) {
    uint8_t block[HMAC_BLOCK] = {0};
    sha256_sum s;
    if (n_key > HMAC_BLOCK) {
        sha256(key, n_key, block);
    } else if (n_key > 0) {
        memcpy(block, key, n_key);
    }
    for (int i = 0; i < HMAC_BLOCK; i++) {
        block[i] ^= 0x36;
    }
    sha256_begin(&s);
    sha256_add(&s, block, sizeof block);
    sha256_add(&s, bytes, n);
    sha256_end(&s, out);
    for (int i = 0; i < HMAC_BLOCK; i++) {
        block[i] ^= 0x36 ^ 0x5c;
    }
    sha256_begin(&s);
    sha256_add(&s, block, sizeof block);
    sha256_add(&s, out, SHA256_BYTES);
    sha256_end(&s, out);
}
