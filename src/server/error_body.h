/* Errors as clients see them: OpenAI's error objects, the HTTP status of each error code,
 * and the error for an unknown path, which suggests the path that was probably meant.
 *
 * A path is untrusted text: it is shown percent-encoded and truncated. Any thread. */
#ifndef SERVER_ERROR_BODY_H
#define SERVER_ERROR_BODY_H

#include "base/str.h"
#include "json/json_out.h"

/* The status of a request that the operator cancelled. */
#define STATUS_CANCELLED 410

/* A failure as the client sees it. Texts are borrowed. */
typedef struct api_error {
    int status;
    const char *code;  /* OpenAI's code; NULL: the status is used, as in vLLM */
    const char *param; /* field that is wrong; NULL or "": none */
    const char *message;
    int32_t retry_after_s;  /* for 429 and 503, seconds; 0: unknown */
    const char *request_id; /* id of the response, for dialects that repeat it in errors; NULL: none */
} api_error;

/* Writes a dialect's error object. */
typedef void (*error_writer)(json_out *o, const api_error *e);

/* The HTTP status for a failed request. */
int error_status(quire_err e);
/* Converts an error to a failure as clients see it. Borrows err's texts. */
api_error error_of(const quire_error *err);
/* Writes {"error":{"message","type","param","code"}}; type: OpenAI's for the status. */
void error_body(json_out *o, const api_error *e);

/* ---- unknown paths ---- */

#define SHOWN_PATH_BYTES 132

/* Writes a path for messages and the log, 0-terminated: everything but visible ASCII, and
 * '%', '"', '<', '>' and '\', becomes %XX; a path that is too long ends in "..". */
void path_show(str path, char out[SHOWN_PATH_BYTES]);

/* Returns the path of the i-th route; NULL past the last. A path other than "/" that ends
 * with '/' is followed by a parameter. */
typedef const char *(*path_at)(size_t i);
/* Whether some route has the path. */
bool path_is_known(path_at known, str path);

/* Fills err with QUIRE_NOT_FOUND and advice, for a path that no route has. */
void unknown_path_explain(const char *method, str path, path_at known, quire_error *err);

/* A path of another API, or of a feature that this server lacks; what it is; and what to
 * use instead. It also matches longer paths that continue with '/'. */
typedef struct foreign_path {
    const char *path, *what, *instead;
} foreign_path;
extern const foreign_path foreign_paths[];
extern const size_t n_foreign_paths;
/* Whether path is `folder` or below it. */
bool path_is_in(str path, const char *folder);

#endif
