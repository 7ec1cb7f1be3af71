#include "kv/tier_record.h"

#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "base/size.h"
#include "core/kv_layout.h"
#include "kv/namespace.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC 0x32564b4552495551u /* "QUIREKV2" in little-endian order: also distinguishes byte orders */

/* The fixed part of a head; version, namespace and tokens follow, then zeros. Has no
 * padding. */
typedef struct head_fields {
    uint64_t magic, head_sum; /* head_sum: checksum of the whole head with this field 0 */
    uint64_t page_bytes, sum, stamp;
    kv_tier_id parent, id;
    int32_t page_tokens, n_groups, group;
    uint16_t n_version, n_namespace;
} head_fields;

_Static_assert(sizeof(head_fields) == 88, "the head's fixed part is written as it lies in memory");

/* ---- ids ---- */

typedef enum id_of { ID_OF_PAGE, ID_OF_NAMESPACE, ID_OF_PUBLIC_NAMESPACE } id_of;

/* Id made from the kind, the id before it, and n bytes, at most a page of tokens. */
static kv_tier_id tier_record_digest(id_of what, kv_tier_id before, const void *bytes, size_t n) {
    struct {
        uint64_t what;
        kv_tier_id before;
        unsigned char bytes[KV_MAX_PAGE_TOKENS * sizeof(int32_t)];
    } in = {.what = what, .before = before};
    uint8_t out[SHA256_BYTES];
    kv_tier_id id;
    mem_copy(in.bytes, bytes, n);
    sha256(&in, sizeof in - sizeof in.bytes + n, out);
    memcpy(&id, out, sizeof id);
    return id;
}

_Static_assert(KV_NAMESPACE_BYTES <= KV_MAX_PAGE_TOKENS * sizeof(int32_t), "a space's name has room");

kv_tier_id kv_tier_id_root(kv_tier_id before, const void *namespace, size_t n_namespace, bool is_public) {
    return tier_record_digest(is_public ? ID_OF_PUBLIC_NAMESPACE : ID_OF_NAMESPACE, before, namespace,
                              n_namespace);
}

kv_tier_id kv_tier_id_page(kv_tier_id parent, const int32_t *tokens, int32_t n) {
    return tier_record_digest(ID_OF_PAGE, parent, tokens, (size_t)n * sizeof *tokens);
}

/* ---- heads ---- */

size_t kv_record_head_bytes(const kv_record_shape *shape) {
    size_t n = sizeof(head_fields) + shape->n_version + KV_NAMESPACE_BYTES +
               (size_t)shape->page_tokens * sizeof(int32_t);
    return size_align(size_align(n, sizeof(int32_t)), 64);
}

uint64_t kv_record_shape_hash(const kv_record_shape *shape) {
    const uint64_t numbers[] = {MAGIC, (uint64_t)shape->page_tokens, (uint64_t)shape->n_groups,
                                (uint64_t)shape->page_bytes};
    return XXH3_64bits_withSeed(shape->version, shape->n_version, XXH3_64bits(numbers, sizeof numbers));
}

uint64_t kv_record_sum(const void *body, size_t n) {
    return XXH3_64bits(body, n);
}

/* Offset of the tokens. They end the head, so they are aligned whatever the names. */
static size_t tokens_at(const kv_record_shape *shape) {
    return kv_record_head_bytes(shape) - (size_t)shape->page_tokens * sizeof(int32_t);
}

static uint64_t head_sum(const kv_record_shape *shape, const unsigned char *head) {
    XXH3_state_t state;
    const uint64_t zero = 0;
    size_t at = offsetof(head_fields, head_sum), after = at + sizeof zero;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, head, at);
    XXH3_64bits_update(&state, &zero, sizeof zero);
    XXH3_64bits_update(&state, head + after, kv_record_head_bytes(shape) - after);
    return XXH3_64bits_digest(&state);
}

void kv_record_write(const kv_record_shape *shape, const kv_record *record, unsigned char *head) {
    const kv_tier_key *key = &record->key;
    head_fields f = {.magic = MAGIC,
                     .page_bytes = (uint64_t)shape->page_bytes,
                     .sum = record->sum,
                     .stamp = record->stamp,
                     .parent = key->parent,
                     .id = key->id,
                     .page_tokens = shape->page_tokens,
                     .n_groups = shape->n_groups,
                     .group = key->group,
                     .n_version = (uint16_t)shape->n_version,
                     .n_namespace = (uint16_t)key->n_namespace};
    memset(head, 0, kv_record_head_bytes(shape));
    memcpy(head + sizeof f, shape->version, shape->n_version);
    mem_copy(head + sizeof f + shape->n_version, key->namespace, key->n_namespace);
    memcpy(head + tokens_at(shape), key->tokens, (size_t)shape->page_tokens * sizeof(int32_t));
    memcpy(head, &f, sizeof f);
    f.head_sum = head_sum(shape, head);
    memcpy(head, &f, sizeof f);
}

void kv_record_seal(const kv_record_shape *shape, uint64_t sum, unsigned char *head) {
    head_fields f;
    memcpy(&f, head, sizeof f);
    f.sum = sum;
    memcpy(head, &f, sizeof f);
    f.head_sum = head_sum(shape, head);
    memcpy(head, &f, sizeof f);
}

bool kv_record_read(const kv_record_shape *shape, const unsigned char *head, kv_record *out) {
    head_fields f;
    memcpy(&f, head, sizeof f);
    if (f.magic != MAGIC || f.head_sum != head_sum(shape, head) ||
        f.page_bytes != (uint64_t)shape->page_bytes || f.page_tokens != shape->page_tokens ||
        f.n_groups != shape->n_groups || f.group < 0 || f.group >= f.n_groups ||
        f.n_version != shape->n_version || f.n_namespace > KV_NAMESPACE_BYTES ||
        memcmp(head + sizeof f, shape->version, shape->n_version) != 0) {
        return false;
    }
    *out = (kv_record){.key = {.namespace = head + sizeof f + f.n_version,
                               .n_namespace = f.n_namespace,
                               .group = f.group,
                               .parent = f.parent,
                               .id = f.id,
                               .tokens = (const int32_t *)(const void *)(head + tokens_at(shape))},
                       .stamp = f.stamp,
                       .sum = f.sum};
    return true;
}

bool kv_record_same_key(const kv_record_shape *shape, const kv_tier_key *x, const kv_tier_key *y) {
    return x->group == y->group && x->n_namespace == y->n_namespace &&
           kv_tier_id_equal(x->parent, y->parent) && kv_tier_id_equal(x->id, y->id) &&
           (x->n_namespace == 0 || memcmp(x->namespace, y->namespace, x->n_namespace) == 0) &&
           memcmp(x->tokens, y->tokens, (size_t)shape->page_tokens * sizeof *x->tokens) == 0;
}
