/* Names of spaces: bytes -> a small number that lives as long as someone uses it. Compared whole, never by hash. The engine thread's. */
#ifndef KV_SPACE_H
#define KV_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KV_SPACE_NAME_BYTES 255
#define SPACE_NONE          (-1)

typedef struct kv_space {
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
/* The number of the space of that name (n <= KV_SPACE_NAME_BYTES), or SPACE_NONE. */
int32_t kv_spaces_find(const kv_spaces *s, const void *name, size_t n);
/* A new one, for a name that is not there; SPACE_NONE when all cap are in use. */
int32_t kv_spaces_add(kv_spaces *s, const void *name, size_t n);
void kv_spaces_remove(kv_spaces *s, int32_t number);

#endif
