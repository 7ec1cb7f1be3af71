/* The audit file records how the pool's bytes are used: one line of JSON each time that a sequence takes pages (--audit).
 *
 *   {"step":9,"request":4,"rows":16,"pages":1,"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,
 *    "shared_bytes":..,"cached_bytes":..,"free_bytes":..,
 *    "of_request":{"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,"shared_bytes":..}}
 *
 * request is the request's number by arrival. rows is what it is about to compute, pages what these rows take. kv/audit.h defines the
 * bytes; those rows count as live. The engine thread puts each line as integers into a ring, which was sized at open. A thread of the
 * file's own writes them, so a slow disk never delays a step. When the ring is full a line is lost, and {"lost":n} is written in its
 * place. */
#ifndef ENGINE_AUDIT_FILE_H
#define ENGINE_AUDIT_FILE_H

#include "engine/state.h"

/* Opens e->options.audit_path for writing, if it is set. Call it after the pool is open. QUIRE_IO with the reason in err;
 * QUIRE_NO_MEMORY. */
quire_err audit_file_open(engine *e, quire_error *err);
/* Writes the rest of the ring and closes the file. Call it after the engine thread has ended. */
void audit_file_close(engine *e);
/* Records that s has just taken n_pages for its next n_rows. Does nothing without a file. Allocates nothing. O(table entries of all running
 * sequences). */
void audit_file_note(engine *e, const sequence *s, int32_t n_rows, int32_t n_pages);

#endif
