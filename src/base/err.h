/* Forwards errors and fills quire_error. include/quire_err.h lists the errors. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "quire_err.h"

/* Returns the expression's error from the calling function, unless it is QUIRE_OK. */
#define TRY(expr)                                                                                            \
    do {                                                                                                     \
        quire_err try_e_ = (expr);                                                                           \
        if (try_e_ != QUIRE_OK) {                                                                            \
            return try_e_;                                                                                   \
        }                                                                                                    \
    } while (0)

/* Fills *err (may be NULL) with code, position and a formatted message, cut at the
 * buffer's end, and clears param; with QUIRE_OK leaves *err as it is. Returns code. */
quire_err err_set(quire_error *err, quire_err code, int64_t position, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* As err_set, for an error in the request field `param`; position is -1. */
quire_err err_set_param(quire_error *err, quire_err code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "prefix: " before the message of *err (may be NULL), which keeps its other
 * members; with QUIRE_OK leaves *err as it is. Returns code. */
quire_err err_prefix(quire_error *err, quire_err code, const char *prefix);

/* For a function that ends with a label `done:`, after which it releases what it took and
 * returns e. Unless e already holds an error, sets e to the value of the expression. Goes
 * to the label if e then holds an error. */
#define TRY_DONE(e, expr)                                                                                    \
    do {                                                                                                     \
        if ((e) != QUIRE_OK || ((e) = (expr)) != QUIRE_OK) {                                                 \
            goto done;                                                                                       \
        }                                                                                                    \
    } while (0)

#endif
