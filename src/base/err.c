#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define ERR_NAME(name, text) #name,
    QUIRE_ERR_LIST(ERR_NAME)
#undef ERR_NAME
};

static const char *const texts[] = {
#define ERR_TEXT(name, text) text,
    QUIRE_ERR_LIST(ERR_TEXT)
#undef ERR_TEXT
};

const char *quire_err_name(quire_err e) {
    return (unsigned)e < QUIRE_N_ERRORS ? names[e] : "UNKNOWN";
}

const char *quire_err_text(quire_err e) {
    return (unsigned)e < QUIRE_N_ERRORS ? texts[e] : "unknown error";
}

static void err_fill(quire_error *err, quire_err code, int64_t position, const char *param,
                     const char *format, va_list args) {
    if (err == NULL || code == QUIRE_OK) {
        return;
    }
    err->code = code;
    err->position = position;
    (void)snprintf(err->param, sizeof err->param, "%s", param);
    if (vsnprintf(err->message, sizeof err->message, format, args) < 0) {
        err->message[0] = '\0';
    }
}

quire_err err_set(quire_error *err, quire_err code, int64_t position, const char *format, ...) {
    va_list args;
    va_start(args, format);
    err_fill(err, code, position, "", format, args);
    va_end(args);
    return code;
}

quire_err err_set_param(quire_error *err, quire_err code, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    err_fill(err, code, -1, param, format, args);
    va_end(args);
    return code;
}

quire_err err_prefix(quire_error *err, quire_err code, const char *prefix) {
    if (err != NULL && code != QUIRE_OK) {
        char message[sizeof err->message];
        memcpy(message, err->message, sizeof message);
        size_t n = strlen(prefix);
        if (n > sizeof message - 3) {
            n = sizeof message - 3;
        }
        (void)snprintf(err->message, sizeof err->message, "%.*s: %.*s", (int)n, prefix,
                       (int)(sizeof message - n - 3), message);
    }
    return code;
}
