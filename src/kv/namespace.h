/* Namespaces, public prefixes and chained hashes of the index.
 *
 * The table of namespaces maps a name, and the public prefix after which the namespace
 * begins, to a small number. Names are compared whole, never by hash. A number lives
 * until its user removes it. Owner: the engine thread. */
#ifndef KV_NAMESPACE_H
#define KV_NAMESPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* ---- chained hashes ---- */

/* Chained hashes of full pages: 64 bits that name a page of tokens after a whole prefix
 * in a namespace (XXH3).
 *
 * They are names for other programs and stores (events, tiers), never proof of equality:
 * the index compares tokens, and works the same with 8 bits of hash in a test (index.h).
 * Tokens are hashed in the processor's byte order. Any thread. */

/* The parent hash of a namespace's first page. `before` is the hash of the public prefix
 * that the namespace begins after, 0 for none. */
uint64_t kv_hash_root(uint64_t before, const void *name, size_t n);
/* The hash of a page of n tokens after `parent`. Never 0, which means "no hash". */
uint64_t kv_hash_page(uint64_t parent, const int32_t *tokens, int32_t n);

/* ---- namespaces and public prefixes of the index ---- */

#define KV_NAMESPACE_BYTES 255
#define NAMESPACE_NONE     (-1)
#define NAMESPACE_PLAIN    (-1) /* behind: one tenant's, from the first token */
#define NAMESPACE_PUBLIC   (-2) /* behind: for public prefixes of all tenants only */

typedef struct kv_namespace {
    /* NAMESPACE_PLAIN, NAMESPACE_PUBLIC, or number of the public prefix after which it
     * begins */
    int32_t behind;
    int32_t root;    /* the user's data */
    int32_t n_paths; /* paths in it; the user counts them */
    int32_t next;    /* in its bucket, or in the list of unused slots */
    uint8_t n_name;
    unsigned char name[KV_NAMESPACE_BYTES];
} kv_namespace;

typedef struct kv_namespaces {
    kv_namespace *slots; /* [cap] */
    int32_t *buckets;    /* [cap] first slot of each */
    int32_t cap, n, unused;
} kv_namespaces;

quire_err kv_namespaces_open(kv_namespaces *s, int32_t cap);
void kv_namespaces_close(kv_namespaces *s);
/* The number of the namespace with that name (n <= KV_NAMESPACE_BYTES) and `behind`, or
 * NAMESPACE_NONE. */
int32_t kv_namespaces_find(const kv_namespaces *s, int32_t behind, const void *name, size_t n);
/* Adds a namespace, which is not there yet; NAMESPACE_NONE when all cap are in use. */
int32_t kv_namespaces_add(kv_namespaces *s, int32_t behind, const void *name, size_t n);
void kv_namespaces_remove(kv_namespaces *s, int32_t number);

/* ---- public prefixes ----
 *
 * Token sequences that an operator names for all tenants to share, such
 * as a common system prompt. A prefix belongs to a scope: bytes with everything else that
 * must agree (model, adapter, numeric configuration). Only its whole pages are public.
 * Owner: the engine thread. */

#define PUBLIC_NONE (-1)

typedef struct kv_public {
    unsigned char *scope;
    size_t n_scope;
    int32_t *tokens;
    int32_t n; /* a multiple of page_tokens */
} kv_public;

/* Zeroed: none. */
typedef struct kv_publics {
    kv_public *list;
    size_t cap;
    int32_t n;
} kv_publics;

void kv_publics_close(kv_publics *p);
/* Adds the whole pages of tokens[0..n), copied. QUIRE_INVALID when there are none;
 * QUIRE_OK also when the prefix is there already. */
quire_err kv_publics_add(kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens, int32_t n,
                         int32_t page_tokens);
/* The number of the longest prefix in that scope with which tokens[0..n) begin, or
 * PUBLIC_NONE. O(all prefixes + its length). */
int32_t kv_publics_find(const kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens,
                        int32_t n);

#endif
