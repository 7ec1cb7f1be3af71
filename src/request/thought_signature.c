#include "request/thought_signature.h"

#include <string.h>

#include "base/rng.h"

_Static_assert(QUIRE_SIGNATURE_BYTES == 2 * SHA256_BYTES, "two digits a byte");

void thought_key(const char *given, uint8_t key[SHA256_BYTES]) {
    if (given != NULL) {
        sha256(given, strlen(given), key);
        return;
    }
    for (size_t i = 0; i < SHA256_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = rng_os_seed();
        memcpy(key + i, &word, sizeof word);
    }
}

void thought_sign(const uint8_t key[SHA256_BYTES], const uint8_t digest[SHA256_BYTES],
                  char out[QUIRE_SIGNATURE_BYTES + 1]) {
    static const char digits[] = "0123456789abcdef";
    uint8_t made[SHA256_BYTES];
    hmac_sha256(key, SHA256_BYTES, digest, SHA256_BYTES, made);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = digits[made[i] >> 4];
        out[2 * i + 1] = digits[made[i] & 15];
    }
    out[QUIRE_SIGNATURE_BYTES] = '\0';
}

bool thought_is_signed(const uint8_t key[SHA256_BYTES], str text, str signature) {
    uint8_t digest[SHA256_BYTES];
    char right[QUIRE_SIGNATURE_BYTES + 1];
    unsigned differs = signature.n != QUIRE_SIGNATURE_BYTES;
    sha256(text.p, text.n, digest);
    thought_sign(key, digest, right);
    for (size_t i = 0; i < QUIRE_SIGNATURE_BYTES && i < signature.n; i++) {
        differs |= (unsigned char)(right[i] ^ signature.p[i]); /* all are compared, whatever differs first */
    }
    return differs == 0;
}
