/* The file of the lines that a person typed: one entry a line, the newest last. Several
 * processes may use one file at once.
 *
 * In an entry a newline is written \n and a backslash \\. Each call opens and locks the
 * file (flock), so that none makes another wait for long. The file and the directories
 * that lead to it are made as needed, for their owner only. */
#ifndef CLI_INPUT_HISTORY_H
#define CLI_INPUT_HISTORY_H

#include "base/str.h"

/* a file over this loses its oldest entries, to half of it */
#define INPUT_HISTORY_MAX_BYTES   ((size_t)1 << 20)
#define INPUT_HISTORY_ENTRY_BYTES ((size_t)1 << 16) /* a longer entry is not written */

/* Called with each entry, the oldest first; the bytes are borrowed. Its error ends the
 * reading. */
typedef quire_err (*input_history_take)(void *user, str entry);

/* Reads the newest entries, of INPUT_HISTORY_MAX_BYTES at most. A file that does not
 * exist has none. Bytes that are no UTF-8 become U+FFFD. IO: err names the file. */
quire_err input_history_read(const char *path, input_history_take take, void *user, quire_error *err);
/* Appends an entry. IO: err names the file. */
quire_err input_history_add(const char *path, str entry, quire_error *err);

#endif
