#include "base/sha256.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK 64

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void sha256_add_block(uint32_t h[8], const uint8_t *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 |
               p[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) +
               (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t1 = v[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                      K[i] + w[i];
        uint32_t t2 =
            (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) {
        h[i] += v[i];
    }
}

void sha256_begin(sha256_sum *s) {
    *s = (sha256_sum){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                            0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(sha256_sum *s, const void *bytes, size_t n) {
    assert(s != NULL);
    const uint8_t *p = bytes;
    s->n += n;
    if (s->n_rest > 0) {
        size_t room = BLOCK - s->n_rest, taken = n < room ? n : room;
        mem_copy(s->rest + s->n_rest, p, taken);
        s->n_rest += taken;
        if (s->n_rest < BLOCK) {
            return;
        }
        sha256_add_block(s->h, s->rest);
        p += taken;
        n -= taken;
    }
    for (; n >= BLOCK; n -= BLOCK, p += BLOCK) {
        sha256_add_block(s->h, p);
    }
    mem_copy(s->rest, p, n);
    s->n_rest = n;
}

void sha256_end(sha256_sum *s, uint8_t out[SHA256_BYTES]) {
    uint8_t end[2 * BLOCK] = {0}; /* padding: the bytes left over, a one bit, zeros, and the length in bits */
    size_t n_end = s->n_rest + 9 <= BLOCK ? BLOCK : 2 * BLOCK;
    memcpy(end, s->rest, s->n_rest);
    end[s->n_rest] = 0x80;
    for (size_t i = 0; i < 8; i++) {
        end[n_end - 1 - i] = (uint8_t)(s->n << 3 >> 8 * i);
    }
    for (size_t at = 0; at < n_end; at += BLOCK) {
        sha256_add_block(s->h, end + at);
    }
    for (int i = 0; i < SHA256_BYTES; i++) {
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void sha256(const void *bytes, size_t n, uint8_t out[SHA256_BYTES]) {
    sha256_sum s;
    sha256_begin(&s);
    sha256_add(&s, bytes, n);
    sha256_end(&s, out);
}

void hmac_sha256(const void *key, size_t n_key, const void *bytes, size_t n, uint8_t out[SHA256_BYTES]) {
    uint8_t block[BLOCK] = {0};
    sha256_sum s;
    if (n_key > BLOCK) {
        sha256(key, n_key, block);
    } else if (n_key > 0) {
        memcpy(block, key, n_key);
    }
    for (int i = 0; i < BLOCK; i++) {
        block[i] ^= 0x36;
    }
    sha256_begin(&s);
    sha256_add(&s, block, sizeof block);
    sha256_add(&s, bytes, n);
    sha256_end(&s, out);
    for (int i = 0; i < BLOCK; i++) {
        block[i] ^= 0x36 ^ 0x5c;
    }
    sha256_begin(&s);
    sha256_add(&s, block, sizeof block);
    sha256_add(&s, out, SHA256_BYTES);
    sha256_end(&s, out);
}
