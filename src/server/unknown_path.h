/* What a request for a path that this server does not have is told: method, path, the
 * nearest path, and what the client should set.
 *
 * A path is hostile text: it is shown percent-encoded and cut. Any thread. */
#ifndef SERVER_UNKNOWN_PATH_H
#define SERVER_UNKNOWN_PATH_H

#include "base/str.h"

#define SHOWN_PATH_BYTES 132

/* Writes a path for messages and the log: all but visible ASCII, and '%', '"', '<', '>'
 * and '\', as %XX; ".." where it is cut. */
void path_show(str path, char out[SHOWN_PATH_BYTES]);

/* The path of the i-th route; NULL past the last one. One that ends with '/', but "/",
 * continues with a parameter. */
typedef const char *(*path_at)(size_t i);
/* True for a path that some route has. */
bool path_is_known(path_at known, str path);

/* Fills err with QUIRE_NOT_FOUND for a path that no route has. */
void unknown_path_explain(const char *method, str path, path_at known, quire_error *err);

/* A path of another API, or of one that this server does not have yet, and what to use
 * instead. A path that continues behind a '/' is one too. */
typedef struct foreign_path {
    const char *path, *what, *instead;
} foreign_path;
extern const foreign_path foreign_paths[];
extern const size_t n_foreign_paths;

#endif
