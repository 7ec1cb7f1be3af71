/* The audit counts, in bytes, how the memory of pages is used by the whole cache or by
 * one request. Pure functions over pool, tables and integers.
 *
 *   live      tokens that the given sequences can still attend to, without padding; a
 *             token in a shared page counts once
 *   reserved  the pages that hold them: every byte of a held page
 *   wasted    reserved - live: slots without a live token (the end of a last page, the
 *             start of a first page before a window) and padding
 *   shared    bytes that sharing saves: what the same sequences would take if each had
 *             its own pages, minus what they take
 *   cached    pages that no sequence holds but a prefix can find; free: all other pages
 *
 * Invariant: reserved + cached + free == the pool's bytes. Owner: the engine thread, as
 * for the tables. */
#ifndef KV_AUDIT_H
#define KV_AUDIT_H

#include "core/kv_layout.h"
#include "kv/table.h"

/* The layout of a cache's pages, in integers. */
typedef struct kv_audit_shape {
    int32_t page_tokens, n_groups;
    int64_t page_bytes;
    int64_t token_bytes[KV_MAX_GROUPS]; /* bytes of one token in a group's page, without padding */
    int32_t windows[KV_MAX_GROUPS];     /* tokens that a group attends to, with the current one; 0: all */
} kv_audit_shape;

/* Scratch for one page of the pool while tables are read; all zero between calls. */
typedef struct kv_audit_page {
    uint16_t first, end; /* slots first .. end - 1 are live in the tables read so far */
    int32_t n_entries;   /* table entries that name the page */
} kv_audit_page;

typedef struct kv_audit {
    int64_t live_bytes, reserved_bytes, wasted_bytes, shared_bytes;
    int64_t cached_bytes, free_bytes; /* 0 in the audit of a request */
    int64_t live_slots, wasted_slots; /* slots of reserved pages, with and without a live token */
    int64_t n_pages, n_shared_pages;  /* number of pages in reserved_bytes and shared_bytes */
} kv_audit;

/* Fills the shape from a model's layout. */
void kv_audit_shape_init(const kv_layout *l, kv_audit_shape *out);

/* Audits the whole cache. tables[s * n_groups + g] is the table of sequence s in group g,
 * for all sequences that hold pages. Pages held without a table count as reserved and
 * wasted. scratch: one entry for each page of the pool, all zero before and after.
 * O(table entries). */
kv_audit kv_audit_all(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables,
                      int32_t n_tables, kv_audit_page *scratch);

/* Audits the sequences of one request; tables and scratch as in kv_audit_all. reserved
 * counts all pages that they hold, including pages that others hold too. shared is what
 * the request would take alone, minus the pages that only it holds, which become free
 * when it ends. O(table entries). */
kv_audit kv_audit_request(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables,
                          int32_t n_tables, kv_audit_page *scratch);

/* Checks the invariant of kv_pool_check, and that every page's reference count equals the
 * number of table entries that name it plus its occurrences in `others` (holders without
 * a table; may be NULL). QUIRE_INTERNAL: err names the first wrong page; QUIRE_NO_MEMORY.
 * Allocates only for pools of over 4,096 pages. Engine thread; no other thread may be
 * inside the pool. O(pages + entries). */
quire_err kv_check(const kv_pool *pool, const kv_table *const *tables, int32_t n_tables,
                   const page_id *others, int32_t n_others, quire_error *err);

/* ---- the audit file ---- */

/* The audit file (--audit) records how the pool's bytes are used: a line of JSON each
 * time that a sequence takes pages.
 *
 *   {"step":9,"request":4,"rows":16,"pages":1,"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,
 *    "shared_bytes":..,"cached_bytes":..,"free_bytes":..,
 *    "of_request":{"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,"shared_bytes":..}}
 *
 * request: the request's number in order of arrival. rows: the rows that the sequence is
 * about to compute, which count as live. pages: the pages that these rows take. The bytes
 * are those of kv_audit. The engine thread puts each line as integers into a ring that
 * was allocated at open. Another thread writes them, so a slow disk never delays a step.
 * If the ring is full, a line is lost, and {"lost":n} is written in its place. */

typedef struct audit_file audit_file;

/* Data of a line: a sequence takes n_pages for its next n_rows. */
typedef struct audit_note {
    int64_t step;
    uint64_t request;
    int32_t n_rows, n_pages;
} audit_note;

/* Opens a file for writing. QUIRE_IO: err has the reason; QUIRE_NO_MEMORY. Pass *out to
 * audit_file_close in any case. */
quire_err audit_file_open(const char *path, const kv_layout *layout, const kv_pool *pool, audit_file **out,
                          quire_error *err);
/* Writes the lines left in the ring and closes the file. Call it after the engine thread
 * has ended. NULL does nothing. */
void audit_file_close(audit_file *a);
/* Adds a line. own[0..n_own): tables of the sequence; all[0..n_all): those of every
 * running sequence. Allocates nothing. Engine thread. O(n_all table entries). */
void audit_file_note(audit_file *a, const audit_note *n, const kv_table *const *own, int32_t n_own,
                     const kv_table *const *all, int32_t n_all);

#endif
