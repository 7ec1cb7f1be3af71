#include "server/error_body.h"

int error_status(quire_err e) {
    switch (e) {
    case QUIRE_INVALID:
    case QUIRE_BAD_REQUEST:
    case QUIRE_UNSUPPORTED:
    case QUIRE_TOO_LARGE: return 400;
    case QUIRE_UNAUTHORIZED: return 401;
    case QUIRE_NOT_FOUND: return 404;
    case QUIRE_BUSY: return 429;
    default: return 500;
    }
}

static const char *error_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void error_body(json_out *o, int status, const char *param, const char *message) {
    json_raw(o, "{\"error\":{\"message\":");
    json_string(o, message);
    json_raw(o, ",\"type\":");
    json_string(o, error_type(status));
    json_raw(o, ",\"param\":");
    json_string(o, param != NULL && param[0] != '\0' ? param : NULL);
    json_raw(o, ",\"code\":");
    json_int(o, status);
    json_raw(o, "}}");
}
