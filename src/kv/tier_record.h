/* A record: one page of keys and values outside the pool, with all that says what it is.
 *
 *   head [kv_record_head_bytes]: what it is, checksums | body [page_bytes]: the page as the backend gave it
 *
 * Names. A page belongs behind a whole prefix, which no record could hold. So each record has an id of 128 random bits, and carries that of
 * the record before it: who has found the record of a prefix by comparing its tokens, and then one whose parent is that record and whose
 * own tokens agree, has found the longer prefix. Hashes say where to look and are never believed; space, version and tokens are compared
 * whole. What is not intact, of another version or of another shape is not a record.
 *
 * Numbers lie in the processor's byte order; a file or server shared with the other order holds no records. Any thread. */
#ifndef KV_TIER_RECORD_H
#define KV_TIER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KV_VERSION_BYTES 255

/* 128 random bits; zeros stand for "nothing before it", the beginning of a space. */
typedef struct kv_tier_id {
    uint64_t a, b;
} kv_tier_id;

/* Stands for "not known yet"; no record has it. */
#define KV_TIER_ID_UNKNOWN ((kv_tier_id){UINT64_MAX, UINT64_MAX})

static inline bool kv_tier_id_equal(kv_tier_id x, kv_tier_id y) {
    return x.a == y.a && x.b == y.b;
}

/* Which page: page_tokens tokens of one group, behind the record `parent`, in a space. */
typedef struct kv_tier_key {
    const void *space;
    size_t n_space; /* at most KV_SPACE_NAME_BYTES */
    int32_t group;
    kv_tier_id parent;
    const int32_t *tokens;
    uint64_t hash; /* of the prefix up to here (kv/hash.h): where to look */
} kv_tier_key;

/* What all records of a store have in common. version names the model and the numeric configuration its bytes depend on. */
typedef struct kv_record_shape {
    const char *version;
    size_t n_version; /* at most KV_VERSION_BYTES */
    int32_t page_tokens, n_groups;
    int64_t page_bytes;
} kv_record_shape;

/* A head as it is read; space and tokens point into it. */
typedef struct kv_record {
    kv_tier_key key;
    kv_tier_id id;
    uint64_t stamp; /* grows with the time of writing */
    uint64_t sum;   /* the body's checksum */
} kv_record;

/* A multiple of 64. */
size_t kv_record_head_bytes(const kv_record_shape *shape);
/* A hash of the whole shape, for names of files and keys. */
uint64_t kv_record_shape_hash(const kv_record_shape *shape);
/* The checksum of a body. */
uint64_t kv_record_sum(const void *body, size_t n);
/* Fills head[kv_record_head_bytes]. */
void kv_record_write(const kv_record_shape *shape, const kv_record *record, unsigned char *head);
/* Whether head (aligned to 8 bytes) is intact and of this shape; *out says what it holds. The body is not looked at. */
bool kv_record_read(const kv_record_shape *shape, const unsigned char *head, kv_record *out);
/* Whether both name the same page; parents are compared, hashes are not. */
bool kv_record_same_key(const kv_record_shape *shape, const kv_tier_key *x, const kv_tier_key *y);

#endif
