/* The file of a packed model while it is written: under a name of its own, which becomes
 * the final one when all is there. */
#ifndef FILE_PACKED_WRITE_H
#define FILE_PACKED_WRITE_H

#include "file/packed_image.h"

/* One thread. */
typedef struct packed_writer packed_writer;

/* path: the model's final name. A file there stays until packed_writer_finish.
 * QUIRE_INVALID where that file is neither empty nor a packed model. */
quire_err packed_writer_open(const char *path, packed_writer **out, quire_error *err);
/* Writes a finished image, renames the file to its final name and frees w. A failure
 * frees w too. */
quire_err packed_writer_finish(packed_writer *w, const packed_image *i, quire_error *err);
/* Frees w and deletes what it has written. NULL is allowed. */
void packed_writer_discard(packed_writer *w);

#endif
