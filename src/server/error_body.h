/* Errors as clients see them: OpenAI's error objects, the HTTP status of each error code,
 * and the answer for an unknown path: method, path, the nearest path, and what the client
 * should set.
 *
 * A path is hostile text: it is shown percent-encoded and cut. Any thread. */
#ifndef SERVER_ERROR_BODY_H
#define SERVER_ERROR_BODY_H

#include "base/str.h"
#include "json/json_out.h"

/* The status of a request that the operator cancelled. */
#define STATUS_CANCELLED 410

/* A failure as the client sees it. Texts are borrowed. */
typedef struct api_error {
    int status;
    const char *code;  /* OpenAI's code; NULL: the status in its place, as in vLLM */
    const char *param; /* NULL or "": none */
    const char *message;
    int32_t retry_after_s;  /* with 429 and 503; 0: unknown */
    const char *request_id; /* id of the response, for dialects that repeat it; NULL: none */
} api_error;

/* Writes a dialect's error object. */
typedef void (*error_writer)(json_out *o, const api_error *e);

/* The HTTP status for a failed request. */
int error_status(quire_err e);
/* The error object for a failed request. Borrows err's texts. */
api_error error_of(const quire_error *err);
/* Writes {"error":{"message","type","param","code"}}; type: OpenAI's for the status. */
void error_body(json_out *o, const api_error *e);

/* ---- unknown paths ---- */

#define SHOWN_PATH_BYTES 132

/* Writes a path for messages and the log: as %XX everything except visible ASCII, and
 * also '%', '"', '<', '>' and '\'; with ".." where it is cut. */
void path_show(str path, char out[SHOWN_PATH_BYTES]);

/* The path of the i-th route; NULL past the last one. A path other than "/" that ends
 * with '/' continues with a parameter. */
typedef const char *(*path_at)(size_t i);
/* True for a path that some route has. */
bool path_is_known(path_at known, str path);

/* Fills err with QUIRE_NOT_FOUND for a path that no route has. */
void unknown_path_explain(const char *method, str path, path_at known, quire_error *err);

/* A path of another API, or one that this server does not have yet, and what to use
 * instead. It also stands for longer paths that continue with '/'. */
typedef struct foreign_path {
    const char *path, *what, *instead;
} foreign_path;
extern const foreign_path foreign_paths[];
extern const size_t n_foreign_paths;
/* True when path is `folder` or below it. */
bool path_is_in(str path, const char *folder);

#endif
