/* A record is one page of keys and values outside the pool, with everything that
 * identifies it.
 *
 *   head [kv_record_head_bytes]: key, stamp, checksums | body [page_bytes]: the page as the backend gave it
 *
 * Ids. A page belongs after a whole prefix, which is too long for a record. So each
 * prefix of whole pages has an id: the first 128 bits of a SHA-256 digest over the id of
 * the prefix before it and the tokens of its last page. All processes compute the same id
 * for a prefix, and nobody can feasibly find two prefixes with the same id. A record
 * carries its parent's id and its own. These, its namespace, version and tokens are
 * compared in full. Bytes that are damaged, of another version or of another shape are
 * not a record.
 *
 * Numbers are in the CPU's byte order; a machine of the other order finds no records in a
 * shared file or server. Any thread. */
#ifndef KV_TIER_RECORD_H
#define KV_TIER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KV_VERSION_BYTES 255

/* Id of a prefix of whole pages in a namespace. */
typedef struct kv_tier_id {
    uint64_t a, b;
} kv_tier_id;

/* Returns the id that precedes the first page of a namespace. before: id of the public
 * prefix after which the namespace begins; zeros: none. A namespace of public prefixes
 * has another id than a tenant's namespace of the same name. O(n). */
kv_tier_id kv_tier_id_root(kv_tier_id before, const void *namespace, size_t n_namespace, bool is_public);
/* Returns the id of the prefix `parent` extended by a page of n <= KV_MAX_PAGE_TOKENS
 * tokens. O(n). */
kv_tier_id kv_tier_id_page(kv_tier_id parent, const int32_t *tokens, int32_t n);

static inline bool kv_tier_id_equal(kv_tier_id x, kv_tier_id y) {
    return x.a == y.a && x.b == y.b;
}

/* Key of a page: page_tokens tokens of one group, after the prefix `parent`, in a
 * namespace. id: the prefix up to the page's end. */
typedef struct kv_tier_key {
    const void *namespace;
    size_t n_namespace; /* bytes of namespace, at most KV_NAMESPACE_BYTES */
    int32_t group;
    kv_tier_id parent, id;
    const int32_t *tokens;
} kv_tier_key;

/* What all records of a store have in common. version names the model and the numeric
 * configuration, on which a page's bytes depend. */
typedef struct kv_record_shape {
    const char *version;
    size_t n_version; /* bytes of version, at most KV_VERSION_BYTES */
    int32_t page_tokens, n_groups;
    int64_t page_bytes;
} kv_record_shape;

/* A parsed head; its namespace and tokens point into the head's bytes. */
typedef struct kv_record {
    kv_tier_key key;
    uint64_t stamp; /* grows with each write */
    uint64_t sum;   /* checksum of the body */
} kv_record;

/* Bytes of a head, a multiple of 64. */
size_t kv_record_head_bytes(const kv_record_shape *shape);
/* Hash of the whole shape, for names of files and Redis keys. */
uint64_t kv_record_shape_hash(const kv_record_shape *shape);
/* Checksum of a body. */
uint64_t kv_record_sum(const void *body, size_t n);
/* Writes a record's head to head[kv_record_head_bytes]. */
void kv_record_write(const kv_record_shape *shape, const kv_record *record, unsigned char *head);
/* Sets the checksum of the body in a head that was written without it. */
void kv_record_seal(const kv_record_shape *shape, uint64_t sum, unsigned char *head);
/* Parses head, aligned to 8 bytes, into *out. False: it is damaged or not of this shape.
 * Does not read the body. */
bool kv_record_read(const kv_record_shape *shape, const unsigned char *head, kv_record *out);
/* Whether both keys name the same page. */
bool kv_record_same_key(const kv_record_shape *shape, const kv_tier_key *x, const kv_tier_key *y);

#endif
