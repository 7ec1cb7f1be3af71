/* Writes log lines to stderr: at once or, between start and stop, on a thread of its own.
 * log.h has the promises. */
#ifndef BASE_LOG_WRITER_H
#define BASE_LOG_WRITER_H

#include "base/str.h"

/* Writes a whole line, or queues it; an empty one was lost for lack of memory. Takes over
 * *line. n_reported: how many lost lines it reports, 0 for most; they count as lost again
 * if it is lost itself. Returns how many lines were lost before this one and not returned
 * yet; 0 when this one is lost too. Any thread; with the writer's thread running it does
 * not wait for stderr. */
int64_t log_writer_put(strbuf *line, int64_t n_reported);

#endif
