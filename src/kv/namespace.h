/* Names of namespaces: bytes, and the public prefix that a namespace lies behind, -> a small number that lives as long as someone uses it.
 * Compared whole, never by hash. The engine thread's. */
#ifndef KV_NAMESPACE_H
#define KV_NAMESPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KV_NAMESPACE_BYTES 255
#define NAMESPACE_NONE          (-1)
#define NAMESPACE_PLAIN         (-1) /* behind: of one tenant, from the first token */
#define NAMESPACE_PUBLIC        (-2) /* behind: of all tenants, for public prefixes only */

typedef struct kv_namespace {
    int32_t behind;  /* NAMESPACE_PLAIN, NAMESPACE_PUBLIC, or the number of the public prefix (kv/public.h) that it lies behind */
    int32_t root;    /* whatever the user keeps for it */
    int32_t n_paths; /* users; the user counts */
    int32_t next;    /* in its bucket, or in the list of unused slots */
    uint8_t n_name;
    unsigned char name[KV_NAMESPACE_BYTES];
} kv_namespace;

typedef struct kv_namespaces {
    kv_namespace *slots;  /* [cap] */
    int32_t *buckets; /* [cap] first slot of each */
    int32_t cap, n, unused;
} kv_namespaces;

quire_err kv_namespaces_open(kv_namespaces *s, int32_t cap);
void kv_namespaces_close(kv_namespaces *s);
/* The number of the namespace of that name (n <= KV_NAMESPACE_BYTES) and place, or NAMESPACE_NONE. */
int32_t kv_namespaces_find(const kv_namespaces *s, int32_t behind, const void *name, size_t n);
/* A new one, which is not there yet; NAMESPACE_NONE when all cap are in use. */
int32_t kv_namespaces_add(kv_namespaces *s, int32_t behind, const void *name, size_t n);
void kv_namespaces_remove(kv_namespaces *s, int32_t number);

#endif
