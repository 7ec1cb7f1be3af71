/* The audit in bytes: what the memory of pages is used for, for the whole cache or for one request. Pure functions over pool, tables and
 * integers.
 *
 *   live      tokens that the sequences given can still see, each once however many share its page, padding left out
 *   reserved  the pages that hold them: every byte of a held page
 *   wasted    reserved - live: slots without a live token (a last page's end, a first page's start behind a window) and padding
 *   shared    what the same sequences would take if each had pages of its own, less what they take
 *   cached    pages that nobody holds but can be found again; free: the rest
 *
 * Always reserved + cached + free == the pool's bytes. Owner: the engine thread, as for the tables. */
#ifndef KV_AUDIT_H
#define KV_AUDIT_H

#include "core/kv_layout.h"
#include "kv/table.h"

/* How a cache's pages are cut, in integers. */
typedef struct kv_audit_shape {
    int32_t page_tokens, n_groups;
    int64_t page_bytes;
    int64_t token_bytes[KV_MAX_GROUPS]; /* of one token in a group's page, padding left out */
    int32_t windows[KV_MAX_GROUPS];     /* tokens that a group looks back, the present one included; 0: all */
} kv_audit_shape;

/* What is noted of a page while tables are read: one a page of the pool, all zero between calls. */
typedef struct kv_audit_page {
    uint16_t first, end; /* live slots are first .. end - 1, as far as read */
    int32_t n_entries;   /* table entries that name it */
} kv_audit_page;

typedef struct kv_audit {
    int64_t live_bytes, reserved_bytes, wasted_bytes, shared_bytes;
    int64_t cached_bytes, free_bytes;             /* 0 for a request: they belong to nobody */
    int64_t live_slots, wasted_slots;             /* slots of reserved pages with and without a live token */
    int64_t n_pages, n_shared_pages;              /* reserved_bytes and shared_bytes in pages */
} kv_audit;

/* The shape of a model's cache. */
void kv_audit_shape_init(const kv_layout *l, kv_audit_shape *out);

/* The whole cache: tables[s * n_groups + g] is group g's table of sequence s, and all sequences that hold pages are there. Pages held
 * without a table count as reserved and wasted. scratch: one a page of the pool, all zero, and left so. O(table entries). */
kv_audit kv_audit_all(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables, int32_t n_tables,
                      kv_audit_page *scratch);

/* The sequences of one request, in the same order. reserved counts the pages they hold, also those that others hold; shared is what the
 * request would take alone, less the pages that nobody else holds: those that go when it goes. O(table entries). */
kv_audit kv_audit_request(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables, int32_t n_tables,
                          kv_audit_page *scratch);

#endif
