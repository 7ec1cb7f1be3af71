/* Errors: one list for all rooms, the C API and HTTP responses.
 *
 * 0 is success. quire_err_text gives the meaning of a code. Calls that load or parse also
 * fill a quire_error, which says what is wrong, where, and what to do. */
#ifndef QUIRE_ERR_H
#define QUIRE_ERR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports the declarations below and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define QUIRE_ERR_LIST(X)                                                                                    \
    X(OK, "success")                                                                                         \
    X(NO_MEMORY, "out of memory")                                                                            \
    X(NO_ROOM, "not enough free pages, rows or entries")                                                     \
    X(INVALID, "invalid argument")                                                                           \
    X(BAD_FILE, "malformed file")                                                                            \
    X(BAD_REQUEST, "invalid request")                                                                        \
    X(NOT_FOUND, "not found")                                                                                \
    X(UNAUTHORIZED, "missing or wrong API key")                                                              \
    X(TOO_LARGE, "too large")                                                                                \
    X(UNSUPPORTED, "not supported")                                                                          \
    X(IO, "input or output failed")                                                                          \
    X(BUSY, "too many requests")                                                                             \
    X(CANCELLED, "cancelled")                                                                                \
    X(NUMERIC, "the model produced a value that is not finite")                                              \
    X(INTERNAL, "internal error")                                                                            \
    X(CONTEXT_LENGTH, "the conversation does not fit the context")                                           \
    X(FAULT, "the request's mask_mod or score_mod divides an integer by zero, has an index outside its "     \
             "array or a score of infinity or NaN")

typedef enum quire_err {
#define QUIRE_ERR_NAME(name, text) QUIRE_##name,
    QUIRE_ERR_LIST(QUIRE_ERR_NAME)
#undef QUIRE_ERR_NAME
        QUIRE_N_ERRORS
} quire_err;

/* An error with its message. message is complete ("FILE: what: what next"), without a
 * newline at the end. param names the wrong request field, or is empty. position: byte
 * offset in the parsed text or file, or -1. retry_after_s: with BUSY, seconds after which
 * to try again; 0: unknown. */
typedef struct quire_error {
    quire_err code;
    int64_t position;
    int32_t retry_after_s;
    char param[64];
    char message[512];
} quire_error;

/* The name ("BAD_FILE") and the meaning of an error; never NULL. Any thread. */
const char *quire_err_name(quire_err e);
const char *quire_err_text(quire_err e);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
