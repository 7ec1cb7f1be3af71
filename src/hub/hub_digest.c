#include "hub/hub_digest.h"

#include <openssl/evp.h>
#include <stdio.h>

quire_err hub_digest_begin(hub_digest *d, const char *id, int64_t n_bytes) {
    d->context = d->context != NULL ? d->context : EVP_MD_CTX_new();
    d->is_sha1 = strlen(id) == 40;
    if (d->context == NULL ||
        EVP_DigestInit_ex(d->context, d->is_sha1 ? EVP_sha1() : EVP_sha256(), NULL) != 1) {
        return QUIRE_NO_MEMORY;
    }
    char head[32]; /* git hashes "blob SIZE", a 0 byte and the content */
    int n = snprintf(head, sizeof head, "blob %lld", (long long)n_bytes);
    return d->is_sha1 ? hub_digest_add(d, head, (size_t)n + 1) : QUIRE_OK;
}

quire_err hub_digest_add(hub_digest *d, const void *p, size_t n) {
    return EVP_DigestUpdate(d->context, p, n) == 1 ? QUIRE_OK : QUIRE_INTERNAL;
}

quire_err hub_digest_end(hub_digest *d, char out[HUB_DIGEST_BYTES]) {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (EVP_DigestFinal_ex(d->context, bytes, &n) != 1 || n > (HUB_DIGEST_BYTES - 1) / 2) {
        return QUIRE_INTERNAL;
    }
    for (unsigned int i = 0; i < n; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
    return QUIRE_OK;
}

void hub_digest_deinit(hub_digest *d) {
    EVP_MD_CTX_free(d->context);
    d->context = NULL;
}
