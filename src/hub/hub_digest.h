/* The hash that names a blob, of bytes that come in pieces: SHA-256 of a large file,
 * SHA-1 of the git object of a small one. OpenSSL's, which use the processor's
 * instructions for them. One thread. */
#ifndef HUB_DIGEST_H
#define HUB_DIGEST_H

#include "hub/hub_name.h"

typedef struct hub_digest {
    void *context; /* EVP_MD_CTX; NULL: none is open */
    bool is_sha1;
} hub_digest;

/* Begins the hash that id is of, of a file of n_bytes. It may be called again, for
 * another start. NO_MEMORY. */
quire_err hub_digest_begin(hub_digest *d, const char *id, int64_t n_bytes);
quire_err hub_digest_add(hub_digest *d, const void *p, size_t n);
/* Writes the hexadecimal digits. */
quire_err hub_digest_end(hub_digest *d, char out[HUB_DIGEST_BYTES]);
void hub_digest_deinit(hub_digest *d);

#endif
