/* The audit in bytes: how the memory of pages is used, by the whole cache or by one
 * request. Pure functions over pool, tables and integers.
 *
 *   live      tokens that the given sequences can still attend to, each once however many
 *             share its page, without padding
 *   reserved  the pages that hold them: every byte of a held page
 *   wasted    reserved - live: slots without a live token (the end of a last page, the
 *             start of a first page before a window) and padding
 *   shared    what the same sequences would take if each had its own pages, minus what
 *             they take
 *   cached    pages that no sequence holds but a prefix can find; free: the rest
 *
 * Always reserved + cached + free == the pool's bytes. Owner: the engine thread, as for
 * the tables. */
#ifndef KV_AUDIT_H
#define KV_AUDIT_H

#include "core/kv_layout.h"
#include "kv/table.h"

/* The layout of a cache's pages, in integers. */
typedef struct kv_audit_shape {
    int32_t page_tokens, n_groups;
    int64_t page_bytes;
    int64_t token_bytes[KV_MAX_GROUPS]; /* bytes of one token in a group's page, without padding */
    int32_t windows[KV_MAX_GROUPS];     /* tokens that a group attends to, the present one included; 0: all */
} kv_audit_shape;

/* Scratch for one page while tables are read: one for each page of the pool, all zero
 * between calls. */
typedef struct kv_audit_page {
    uint16_t first, end; /* live slots in the tables read so far are first .. end - 1 */
    int32_t n_entries;   /* table entries that name it */
} kv_audit_page;

typedef struct kv_audit {
    int64_t live_bytes, reserved_bytes, wasted_bytes, shared_bytes;
    int64_t cached_bytes, free_bytes; /* 0 for a request: they belong to no sequence */
    int64_t live_slots, wasted_slots; /* slots of reserved pages with and without a live token */
    int64_t n_pages, n_shared_pages;  /* reserved_bytes and shared_bytes in pages */
} kv_audit;

/* Fills the shape of a model's cache. */
void kv_audit_shape_init(const kv_layout *l, kv_audit_shape *out);

/* Audits the whole cache. tables[s * n_groups + g] is group g's table of sequence s; all
 * sequences that hold pages must be there. Pages held without a table count as reserved
 * and wasted. scratch has one entry for each page of the pool, all zero, and is zero
 * again afterwards. O(table entries). */
kv_audit kv_audit_all(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables,
                      int32_t n_tables, kv_audit_page *scratch);

/* Audits the sequences of one request, in the same order. reserved counts all pages they
 * hold, also those that others hold. shared is what the request would take alone, less
 * the pages that only it holds, which are freed when it ends. O(table entries). */
kv_audit kv_audit_request(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables,
                          int32_t n_tables, kv_audit_page *scratch);

/* The check of a whole cache: the pool's reference counts equal the entries of the block
 * tables (docs/design.md, Pages). */

/* Checks kv_pool_check's invariant, and that every page's count equals the number of
 * table entries that name it plus its occurrences in `others` (holders without a table;
 * may be NULL). Else QUIRE_INTERNAL and the first wrong page; QUIRE_NO_MEMORY. Allocates
 * only for pools of more than 4,096 pages. The engine thread; no other thread may be
 * inside the pool. O(pages + entries). */
quire_err kv_check(const kv_pool *pool, const kv_table *const *tables, int32_t n_tables,
                   const page_id *others, int32_t n_others, quire_error *err);

/* ---- the audit file ---- */

/* The audit file records how the pool's bytes are used: one line of JSON each time that a
 * sequence takes pages (--audit).
 *
 *   {"step":9,"request":4,"rows":16,"pages":1,"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,
 *    "shared_bytes":..,"cached_bytes":..,"free_bytes":..,
 *    "of_request":{"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,"shared_bytes":..}}
 *
 * request is the request's number by arrival. rows is what it is about to compute, pages
 * what these rows take. kv/audit.h defines the bytes; those rows count as live. The
 * engine thread puts each line as integers into a ring, which was sized at open. A
 * separate thread writes them, so a slow disk never delays a step. If the ring is full, a
 * line is lost, and {"lost":n} is written in its place. */

typedef struct audit_file audit_file;

/* A sequence takes n_pages for its next n_rows. */
typedef struct audit_note {
    int64_t step;
    uint64_t request;
    int32_t n_rows, n_pages;
} audit_note;

/* Opens a file for writing. QUIRE_IO with the reason in err; QUIRE_NO_MEMORY. After a
 * failure too *out is closed with audit_file_close. */
quire_err audit_file_open(const char *path, const kv_layout *layout, const kv_pool *pool, audit_file **out,
                          quire_error *err);
/* Writes the rest of the ring and closes the file. Call it after the engine thread has
 * ended. NULL does nothing. */
void audit_file_close(audit_file *a);
/* Records a note: own[0..n_own) are the tables of the sequence, all[0..n_all) those of
 * every running sequence. Allocates nothing. O(n_all table entries). The engine
 * thread. */
void audit_file_note(audit_file *a, const audit_note *n, const kv_table *const *own, int32_t n_own,
                     const kv_table *const *all, int32_t n_all);

#endif
