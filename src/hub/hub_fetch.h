/* Fetches one file of a repository into its blob: under the blob's lock, from where an
 * earlier try ended; it gets its name only after its hash is verified. */
#ifndef HUB_FETCH_H
#define HUB_FETCH_H

#include "hub/hub_cache.h"
#include "hub/hub_client.h"
#include "hub/hub_name.h"

/* State shared by the fetches of a pull. */
typedef struct hub_meter {
    _Atomic int64_t bytes;   /* there, of all files */
    _Atomic int64_t fetched; /* came over the network */
    atomic_int n_files;      /* done */
    atomic_int n_waiting;    /* fetches that wait for another process */
    atomic_bool stop;        /* ends all of them */
} hub_meter;

/* Whether the blob exists, as a regular file of the right size. */
bool hub_blob_is_there(const hub_repo *r, const hub_file *f);
/* How many bytes of it an interrupted fetch has left. */
int64_t hub_blob_begun(const hub_repo *r, const hub_file *f);

/* Appends where the hub has a file, after the endpoint, as hub_target.path. NO_MEMORY. */
quire_err hub_address(const char *repo, const char *commit, const hub_file *f, strbuf *out, quire_error *err);

/* Errors of quire_hub_pull; CANCELLED: the meter requested it. */
quire_err hub_fetch(hub_client *c, const hub_repo *r, const char *repo, const char *commit, const hub_file *f,
                    hub_meter *m, quire_error *err);

/* The hash that names a blob, of bytes that come in pieces: SHA-256 of a large file,
 * SHA-1 of the git object of a small one. OpenSSL's, which use the processor's
 * instructions for them. One thread. */

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
