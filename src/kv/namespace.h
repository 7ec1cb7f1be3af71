/* The table of namespaces: maps a name, and the public prefix after which the namespace
 * begins, to a small number. Names are compared whole, never by hash. A number lives
 * until its user removes it. Owner: the engine thread. */
#ifndef KV_NAMESPACE_H
#define KV_NAMESPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KV_NAMESPACE_BYTES 255
#define NAMESPACE_NONE     (-1)
#define NAMESPACE_PLAIN    (-1) /* behind: one tenant's, from the first token */
#define NAMESPACE_PUBLIC   (-2) /* behind: for public prefixes of all tenants only */

typedef struct kv_namespace {
    /* NAMESPACE_PLAIN, NAMESPACE_PUBLIC, or the number of the public prefix (kv/public.h)
     * after which it begins */
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

#endif
