/* Names of spaces: bytes, and the public prefix that a space lies behind, -> a small number that lives as long as someone uses it. Compared
 * whole, never by hash. The engine thread's. */
#ifndef KV_NAMESPACE_H
#define KV_NAMESPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KV_SPACE_NAME_BYTES 255
#define SPACE_NONE          (-1)
#define SPACE_PLAIN         (-1) /* behind: of one tenant, from the first token */
#define SPACE_PUBLIC        (-2) /* behind: of all tenants, for public prefixes only */

typedef struct kv_space {
    int32_t behind;  /* SPACE_PLAIN, SPACE_PUBLIC, or the number of the public prefix (kv/public.h) that it lies behind */
    int32_t root;    /* whatever the user keeps for it */
    int32_t n_paths; /* users; the user counts */
    int32_t next;    /* in its bucket, or in the list of unused slots */
    uint8_t n_name;
    unsigned char name[KV_SPACE_NAME_BYTES];
} kv_space;

typedef struct kv_spaces {
    kv_space *slots;  /* [cap] */
    int32_t *buckets; /* [cap] first slot of each */
    int32_t cap, n, unused;
} kv_spaces;

quire_err kv_spaces_open(kv_spaces *s, int32_t cap);
void kv_spaces_close(kv_spaces *s);
/* The number of the space of that name (n <= KV_SPACE_NAME_BYTES) and place, or SPACE_NONE. */
int32_t kv_spaces_find(const kv_spaces *s, int32_t behind, const void *name, size_t n);
/* A new one, which is not there yet; SPACE_NONE when all cap are in use. */
int32_t kv_spaces_add(kv_spaces *s, int32_t behind, const void *name, size_t n);
void kv_spaces_remove(kv_spaces *s, int32_t number);

#endif
