/* Namespaces, public prefixes and chained hashes of the index.
 *
 * The table of namespaces maps a name, and the public prefix after which the namespace
 * begins, to a small number. Names are compared whole, never by hash. A number stays
 * valid until its user removes it. Owner: the engine thread. */
#ifndef KV_NAMESPACE_H
#define KV_NAMESPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* ---- chained hashes ---- */

/* Chained hashes of full pages: 64 bits (XXH3) that name a page of tokens after a whole
 * prefix in a namespace.
 *
 * They are names for other programs and stores (events, tiers), never proof of equality:
 * the index compares tokens, and works the same with hashes of 8 bits in a test
 * (index.h). Tokens are hashed in the CPU's byte order. Any thread. */

/* Returns the parent hash of a namespace's first page. before: hash of the public prefix
 * after which the namespace begins; 0: none. */
uint64_t kv_hash_root(uint64_t before, const void *name, size_t n);
/* Returns the hash of a page of n tokens after `parent`. Never 0, which means "no
 * hash". */
uint64_t kv_hash_page(uint64_t parent, const int32_t *tokens, int32_t n);

/* ---- namespaces and public prefixes of the index ---- */

#define KV_NAMESPACE_BYTES 255
#define NAMESPACE_NONE     (-1)
#define NAMESPACE_PLAIN    (-1) /* value of `behind`: a tenant's, begins at the first token */
#define NAMESPACE_PUBLIC   (-2) /* value of `behind`: only public prefixes, for all tenants */

typedef struct kv_namespace {
    /* NAMESPACE_PLAIN, NAMESPACE_PUBLIC, or the number of the public prefix after which
     * it begins */
    int32_t behind;
    int32_t root;    /* data of the user */
    int32_t n_paths; /* number of paths in it, counted by the user */
    int32_t next;    /* next in its bucket, or in the list of unused slots */
    uint8_t n_name;
    unsigned char name[KV_NAMESPACE_BYTES];
} kv_namespace;

typedef struct kv_namespaces {
    kv_namespace *slots; /* [cap] */
    int32_t *buckets;    /* [cap] first slot of each bucket */
    int32_t cap, n, unused;
} kv_namespaces;

quire_err kv_namespaces_open(kv_namespaces *s, int32_t cap);
void kv_namespaces_close(kv_namespaces *s);
/* Returns the number of the namespace with that name (n <= KV_NAMESPACE_BYTES) and
 * `behind`, or NAMESPACE_NONE. */
int32_t kv_namespaces_find(const kv_namespaces *s, int32_t behind, const void *name, size_t n);
/* Adds a namespace that does not exist yet. NAMESPACE_NONE: all cap are in use. */
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

/* All zero: there are none. */
typedef struct kv_publics {
    kv_public *list;
    size_t cap;
    int32_t n;
} kv_publics;

void kv_publics_close(kv_publics *p);
/* Adds a copy of the whole pages of tokens[0..n). QUIRE_INVALID: there are none;
 * QUIRE_NO_MEMORY. QUIRE_OK also if the prefix exists already. */
quire_err kv_publics_add(kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens, int32_t n,
                         int32_t page_tokens);
/* Returns the number of the longest prefix of that scope with which tokens[0..n) begin,
 * or PUBLIC_NONE. O(number of prefixes + its length). */
int32_t kv_publics_find(const kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens,
                        int32_t n);

#endif
