/* A record: one page of keys and values outside the pool, with all that says what it is.
 *
 *   head [kv_record_head_bytes]: what it is, checksums | body [page_bytes]: the page as the backend gave it
 *
 * Names. A page belongs behind a whole prefix, which no record could hold. So each prefix of whole pages has an id, the first 128 bits of
 * a SHA-256 digest over the id of the prefix before it and its last page's tokens: all processes call the same prefix the same, and nobody
 * finds two prefixes of one name. A record carries both ids; they, its namespace, version and tokens are compared whole. What is not
 * intact, of another version or of another shape is not a record.
 *
 * Numbers lie in the processor's byte order; a file or server shared with the other order holds no records. Any thread. */
#ifndef KV_TIER_RECORD_H
#define KV_TIER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KV_VERSION_BYTES 255

/* The name of a prefix of whole pages in a namespace. */
typedef struct kv_tier_id {
    uint64_t a, b;
} kv_tier_id;

/* What the first page of a namespace follows: `before` names the public prefix that the namespace itself stands on, zeros: none. A
 * namespace of public prefixes is told from one of a tenant that has the same name. O(n). */
kv_tier_id kv_tier_id_root(kv_tier_id before, const void *namespace, size_t n_namespace, bool is_public);
/* The name of a prefix that goes on behind `parent` with a page of n tokens, KV_MAX_PAGE_TOKENS at most. O(n). */
kv_tier_id kv_tier_id_page(kv_tier_id parent, const int32_t *tokens, int32_t n);

static inline bool kv_tier_id_equal(kv_tier_id x, kv_tier_id y) {
    return x.a == y.a && x.b == y.b;
}

/* Which page: page_tokens tokens of one group, behind the prefix `parent`, in a namespace; up to its end the prefix is called id. */
typedef struct kv_tier_key {
    const void *namespace;
    size_t n_namespace; /* at most KV_NAMESPACE_BYTES */
    int32_t group;
    kv_tier_id parent, id;
    const int32_t *tokens;
} kv_tier_key;

/* What all records of a store have in common. version names the model and the numeric configuration its bytes depend on. */
typedef struct kv_record_shape {
    const char *version;
    size_t n_version; /* at most KV_VERSION_BYTES */
    int32_t page_tokens, n_groups;
    int64_t page_bytes;
} kv_record_shape;

/* A head as it is read; namespace and tokens point into it. */
typedef struct kv_record {
    kv_tier_key key;
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
/* Whether both name the same page. */
bool kv_record_same_key(const kv_record_shape *shape, const kv_tier_key *x, const kv_tier_key *y);

#endif
