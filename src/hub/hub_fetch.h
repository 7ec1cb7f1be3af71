/* Fetches one file of a repository into its blob, under the blob's lock. It resumes where
 * an earlier try ended. The blob gets its name only after its hash is verified. */
#ifndef HUB_FETCH_H
#define HUB_FETCH_H

#include <stdatomic.h>

#include "hub/hub_cache.h"
#include "hub/hub_http.h"
#include "hub/hub_name.h"
#include "quire_hub.h"

/* A client of a hub: holds the endpoint and token, follows redirects, retries after
 * failures, and turns the hub's answers into errors.
 *
 * The token is only sent to the endpoint's own scheme, host and port, never to the target
 * of a redirect, and over plain HTTP only to this machine. A client belongs to one
 * thread. */

typedef struct hub_client hub_client;

/* When *stop becomes true, a running request ends with CANCELLED. stop and o are borrowed
 * until hub_client_close. INVALID: endpoint or token. UNSUPPORTED: no libcurl. */
quire_err hub_client_open(const quire_hub_options *o, const atomic_bool *stop, hub_client **out,
                          quire_error *err);
void hub_client_close(hub_client *c);

/* The destination of received bytes. `at`: number of bytes received so far, and the
 * offset at which the next request starts. is_joined: the bytes came in several responses
 * or to several processes. */
typedef struct hub_sink {
    int64_t at;
    bool is_joined;
    bool keeps; /* received bytes are kept for a later pull after any failure */
    /* discards the bytes and sets `at` to 0 */
    quire_err (*restart)(struct hub_sink *s, quire_error *err);
    quire_err (*add)(struct hub_sink *s, const void *p, size_t n, quire_error *err); /* advances at */
} hub_sink;

typedef struct hub_target {
    const char *repo; /* "ORG/NAME" */
    const char *what; /* named in errors: a file's path, or "its list of files" */
    const char *path; /* appended to the endpoint; begins with '/' */
    const char *id;   /* hash that the hub must report for the target; NULL: any hash */
    int64_t n_bytes;  /* size of the whole target; -1: unknown */
} hub_target;

/* Gets the target's bytes from s->at on, with a few retries after temporary failures. A
 * try that brought at least 1 MiB does not count as a failure. Errors are those of
 * quire_hub_pull and of the sink. */
quire_err hub_client_get(hub_client *c, const hub_target *t, hub_sink *s, quire_error *err);

/* Appends text as percent-encoded bytes, except letters, digits and "-_.~". Slashes stay
 * if keep_slashes. NO_MEMORY. */
quire_err hub_escape(str text, bool keep_slashes, strbuf *out);

/* Whether a URL has the scheme, host and port of an endpoint, spelt the same way. */
bool hub_same_origin(const char *endpoint, const char *url);
/* Whether the endpoint's host is a name or address of the loopback interface. */
bool hub_is_loopback(const char *endpoint);

/* Progress and cancellation, shared by all fetches of a pull. */
typedef struct hub_meter {
    _Atomic int64_t bytes;   /* bytes on disk, of all files of the pull */
    _Atomic int64_t fetched; /* bytes received over the network */
    atomic_int n_files;      /* number of complete files */
    atomic_int n_waiting;    /* number of fetches that wait for another process */
    atomic_bool stop;        /* true: all fetches end with CANCELLED */
} hub_meter;

/* Whether the file's blob exists, as a regular file of the right size. */
bool hub_blob_is_there(const hub_repo *r, const hub_file *f);
/* Bytes of the file that an interrupted fetch has left. */
int64_t hub_blob_begun(const hub_repo *r, const hub_file *f);

/* Appends the hub_target.path of a file. NO_MEMORY. */
quire_err hub_address(const char *repo, const char *commit, const hub_file *f, strbuf *out, quire_error *err);

/* Fetches f into its blob, or waits while another process does. Errors are those of
 * quire_hub_pull. CANCELLED: m->stop was set. */
quire_err hub_fetch(hub_client *c, const hub_repo *r, const char *repo, const char *commit, const hub_file *f,
                    hub_meter *m, quire_error *err);

/* Computes the hash that names a blob, from bytes that come in pieces: SHA-256 for a
 * large file, SHA-1 of the git object for a small one. Uses OpenSSL. One thread. */

typedef struct hub_digest {
    void *context; /* EVP_MD_CTX; NULL: none is open */
    bool is_sha1;
} hub_digest;

/* Begins a hash of the kind of id, for a file of n_bytes. May be called again to restart.
 * NO_MEMORY. */
quire_err hub_digest_begin(hub_digest *d, const char *id, int64_t n_bytes);
quire_err hub_digest_add(hub_digest *d, const void *p, size_t n);
/* Writes the hash in hexadecimal digits, ended by a 0 byte. */
quire_err hub_digest_end(hub_digest *d, char out[HUB_DIGEST_BYTES]);
void hub_digest_deinit(hub_digest *d);

#endif
