#include "server/error_body.h"

#include <string.h>

int error_status(quire_err e) {
    switch (e) {
    case QUIRE_INVALID:
    case QUIRE_BAD_REQUEST:
    case QUIRE_UNSUPPORTED:
    case QUIRE_CONTEXT_LENGTH:
    case QUIRE_FAULT:
    /* for the pool or the context; a body that is too large is different (error_of) */
    case QUIRE_TOO_LARGE:
        return 400;
    case QUIRE_UNAUTHORIZED:
        return 401;
    case QUIRE_NOT_FOUND:
        return 404;
    case QUIRE_BUSY:
        return 429;
    case QUIRE_NO_MEMORY:
        return 503;
    default:
        return 500;
    }
}

static const char *error_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

api_error error_of(const quire_error *err) {
    bool is_body = err->code == QUIRE_TOO_LARGE && strcmp(err->param, "body") == 0;
    return (api_error){.status = is_body ? 413 : error_status(err->code),
                       .code = err->code == QUIRE_CONTEXT_LENGTH ? "context_length_exceeded" : NULL,
                       .param = err->param,
                       .message = err->message,
                       .retry_after_s = err->retry_after_s};
}

void error_body(json_out *o, const api_error *e) {
    json_raw(o, "{\"error\":{");
    json_cstr(json_name(o, "message"), e->message);
    json_cstr(json_name(o, "type"), error_type(e->status));
    json_cstr(json_name(o, "param"), e->param != NULL && e->param[0] != '\0' ? e->param : NULL);
    json_name(o, "code");
    if (e->code != NULL) {
        json_cstr(o, e->code);
    } else {
        json_int(o, e->status);
    }
    json_raw(o, "}}");
}
