/* The audit file: how the pool's bytes are used, one line of JSON for each time that a sequence takes pages (--audit).
 *
 *   {"step":9,"request":4,"rows":16,"pages":1,"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,
 *    "shared_bytes":..,"cached_bytes":..,"free_bytes":..,
 *    "of_request":{"live_bytes":..,"reserved_bytes":..,"wasted_bytes":..,"shared_bytes":..}}
 *
 * request is the request's number by arrival, rows what it is about to compute, pages what that takes; the bytes are kv/audit.h's, with
 * those rows counted as live. The engine's thread makes lines as integers and puts them into a ring that was sized at open; a thread of its
 * own writes them, so a slow disk never holds up a step. When the ring is full a line is lost, and {"lost":n} stands in its place. */
#ifndef ENGINE_AUDIT_FILE_H
#define ENGINE_AUDIT_FILE_H

#include "engine/state.h"

/* Opens e->options.audit_path for writing, if there is one. After the pool. QUIRE_IO and why in err; QUIRE_NO_MEMORY. */
quire_err audit_file_open(engine *e, quire_error *err);
/* Writes what is left. The engine's thread has ended. */
void audit_file_close(engine *e);
/* s has just taken n_pages for its next n_rows. Does nothing without a file. Allocates nothing. O(table entries of all that run). */
void audit_file_note(engine *e, const sequence *s, int32_t n_rows, int32_t n_pages);

#endif
