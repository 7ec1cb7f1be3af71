/* The audit file records how the pool's bytes are used: one line of JSON each time that a
 * sequence takes pages (--audit).
 *
 *   {"step":9,"request":4,"rows":16,"pages":1,"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,
 *    "shared_bytes":..,"cached_bytes":..,"free_bytes":..,
 *    "of_request":{"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,"shared_bytes":..}}
 *
 * request is the request's number by arrival. rows is what it is about to compute, pages
 * what these rows take. kv/audit.h defines the bytes; those rows count as live. The
 * engine thread puts each line as integers into a ring, which was sized at open. A thread
 * of the file's own writes them, so a slow disk never delays a step. When the ring is
 * full a line is lost, and {"lost":n} is written in its place. */
#ifndef KV_AUDIT_FILE_H
#define KV_AUDIT_FILE_H

#include "kv/audit.h"

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
