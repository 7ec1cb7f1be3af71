#include "server/error_body.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

int error_status(quire_err e) {
    static const int statuses[QUIRE_N_ERRORS] = {
        [QUIRE_INVALID] = 400,
        [QUIRE_BAD_REQUEST] = 400,
        [QUIRE_UNSUPPORTED] = 400,
        [QUIRE_CONTEXT_LENGTH] = 400,
        [QUIRE_FAULT] = 400,
        /* too large for the pool or the context; for bodies see error_of */
        [QUIRE_TOO_LARGE] = 400,
        [QUIRE_UNAUTHORIZED] = 401,
        [QUIRE_NOT_FOUND] = 404,
        [QUIRE_BUSY] = 429,
        [QUIRE_NO_MEMORY] = 503,
    };
    assert(e < QUIRE_N_ERRORS);
    return statuses[e] != 0 ? statuses[e] : 500;
}

static const char *error_type(int status) {
    return status == 401   ? "authentication_error"
           : status == 403 ? "permission_error"
           : status == 404 ? "not_found_error"
           : status == 429 ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

api_error error_of(const quire_error *err) {
    bool is_body = err->code == QUIRE_TOO_LARGE && strcmp(err->param, "body") == 0;
    bool is_previous = err->code == QUIRE_NOT_FOUND && strcmp(err->param, "previous_response_id") == 0;
    return (api_error){.status = is_body       ? 413
                                 : is_previous ? 400 /* the path exists, a field is wrong; as at OpenAI */
                                               : error_status(err->code),
                       .code = err->code == QUIRE_CONTEXT_LENGTH ? "context_length_exceeded"
                               : is_previous                     ? "previous_response_not_found"
                                                                 : NULL,
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

/* ---- unknown paths ---- */

#define MAX_HINT_BYTES 256 /* longest path for which a suggestion is made */
#define BASE           "/v1"

void path_show(str path, char out[SHOWN_PATH_BYTES]) {
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        bool plain = c > ' ' && c <= '~' && strchr("%\"<>\\", c) == NULL;
        if (n + (plain ? 1 : 3) > SHOWN_PATH_BYTES - 3) {
            memcpy(out + n, "..", 2);
            n += 2;
            break;
        }
        if (plain) {
            out[n++] = (char)c;
        } else {
            out[n++] = '%';
            out[n++] = digits[c >> 4];
            out[n++] = digits[c & 15];
        }
    }
    out[n] = '\0';
}

bool path_is_known(path_at known, str path) {
    const char *route;
    bool found = false;
    for (size_t i = 0; !found && (route = known(i)) != NULL; i++) {
        size_t n = strlen(route);
        bool takes_parameter = n > 1 && route[n - 1] == '/';
        found = takes_parameter ? path.n > n && memcmp(path.p, route, n) == 0 : str_is(path, route);
    }
    return found;
}

/* ---- paths of other APIs ---- */

#define CHAT_INSTEAD "use /v1/chat/completions"
#define OWN_MODELS   "this server has only the models it was started with; GET /v1/models lists them"

const foreign_path foreign_paths[] = {
    {"/v1/complete", "Anthropic's Completions API", "use /v1/completions"},
    {"/v1/batches", "OpenAI's Batch API",
     "use `quire run MODEL --prompts FILE`, which reads its batch files"},
    {"/v1/files", "OpenAI's Files API", "use `quire run MODEL --prompts FILE` for batch files"},
    {"/v1/audio", "sound", "this server generates text only"},
    {"/v1/images", "image generation", "this server generates text only"},
    {"/v1/moderations", "moderation", "ask the model with /v1/chat/completions"},
    {"/v1/assistants", "OpenAI's Assistants API", CHAT_INSTEAD},
    {"/v1/threads", "OpenAI's Assistants API", CHAT_INSTEAD},
    {"/v1/realtime", "OpenAI's Realtime API", CHAT_INSTEAD " with \"stream\": true"},
    {"/api/pull", "managing models", OWN_MODELS},
    {"/api/push", "managing models", OWN_MODELS},
    {"/api/create", "managing models", OWN_MODELS},
    {"/api/copy", "managing models", OWN_MODELS},
    {"/api/delete", "managing models", OWN_MODELS},
    {"/api/blobs", "managing models", OWN_MODELS},
    {"/slots", "llama.cpp's own API", "use /metrics, and /debug/requests with the operator's key"},
    {"/generate_stream", "TGI's own API", "use /v1/completions with \"stream\": true"},
    {"/start_profile", "SGLang's profiler", "use /metrics, and the field `explain`"},
    {"/stop_profile", "SGLang's profiler", "use /metrics, and the field `explain`"},
    {"/concate_and_append_request", "SGLang's concatenation of requests",
     "send the joined text to /generate, whose prefix is reused"},
    {"/open_session", "SGLang's sessions", "send the whole text to /generate, whose prefix is reused"},
    {"/close_session", "SGLang's sessions", "send the whole text to /generate, whose prefix is reused"},
    {"/classify", "SGLang's classification", "use /encode, or /score"},
    {"/v1beta", "Gemini's API", CHAT_INSTEAD},
};
const size_t n_foreign_paths = sizeof foreign_paths / sizeof *foreign_paths;

bool path_is_in(str path, const char *folder) {
    size_t n = strlen(folder);
    return str_begins(path, folder) && (path.n == n || path.p[n] == '/');
}

static const foreign_path *path_find_foreign(str path) {
    for (size_t i = 0; i < n_foreign_paths; i++) {
        if (path_is_in(path, foreign_paths[i].path)) {
            return &foreign_paths[i];
        }
    }
    return NULL;
}

/* ---- the path that the client meant ---- */

/* Normalises a path: lower case, single slashes, none at the end. Returns its length, 0
 * if it is too long. */
static size_t path_normalise(str path, char out[MAX_HINT_BYTES]) {
    size_t n = 0;
    for (size_t i = 0; i < path.n; i++) {
        char c = path.p[i];
        if (c == '/' && n > 0 && out[n - 1] == '/') {
            continue;
        }
        if (n == MAX_HINT_BYTES) {
            return 0;
        }
        out[n++] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    return n > 1 && out[n - 1] == '/' ? n - 1 : n;
}

/* A suffix of a path, as it is and with "/v1" before it. */
typedef struct path_end {
    str text, with_base; /* with_base points into buffer */
    char buffer[MAX_HINT_BYTES + sizeof BASE];
} path_end;

/* Takes the suffix at byte i; false: none begins there. */
static bool path_take_end(str path, size_t i, path_end *out) {
    out->text = (str){path.p + i, path.n - i};
    if (out->text.p[0] != '/' || out->text.n < 2) {
        return false;
    }
    memcpy(out->buffer, BASE, sizeof BASE - 1);
    memcpy(out->buffer + sizeof BASE - 1, out->text.p, out->text.n);
    out->with_base = (str){out->buffer, sizeof BASE - 1 + out->text.n};
    return true;
}

/* A route's path found within the requested one. */
typedef struct meant {
    str before, path; /* the requested path is `before` followed by `path` */
    bool lacks_base;  /* the route's path is "/v1" followed by `path` */
} meant;

/* Finds the path's longest suffix that is a route, or is one with "/v1" before it. */
static bool path_find_meant(str asked, path_at known, meant *out) {
    path_end end;
    for (size_t i = 0; i < asked.n; i++) {
        bool is_end = path_take_end(asked, i, &end);
        bool is_route = is_end && path_is_known(known, end.text),
             lacks_base = is_end && !is_route && path_is_known(known, end.with_base);
        if (is_route || lacks_base) {
            *out = (meant){.before = {asked.p, i}, .path = end.text, .lacks_base = lacks_base};
            return true;
        }
    }
    return false;
}

/* Finds the longest of n suffixes that is a path of another API; NULL: none. */
static const foreign_path *path_find_foreign_end(str asked, size_t n) {
    const foreign_path *found = NULL;
    path_end end;
    for (size_t i = 0; i < asked.n && i < n && found == NULL; i++) {
        if (path_take_end(asked, i, &end)) {
            found = path_find_foreign(end.text);
            found = found == NULL ? path_find_foreign(end.with_base) : found;
        }
    }
    return found;
}

/* Whether text is "/v1", repeated any number of times. */
static bool path_is_base(str text) {
    bool is = text.n > 0 && text.n % (sizeof BASE - 1) == 0;
    for (size_t i = 0; is && i < text.n; i += sizeof BASE - 1) {
        is = memcmp(text.p + i, BASE, sizeof BASE - 1) == 0;
    }
    return is;
}

/* Writes what the client has to change to reach the path that it meant. */
static void path_advise(const meant *m, char *out, size_t size) {
    char before[SHOWN_PATH_BYTES];
    bool is_below_base = m->lacks_base || path_is_in(m->path, BASE);
    path_show(m->before, before);
    if (m->before.n == 0 && m->lacks_base) {
        snprintf(out, size, ": set the client's base URL so that it ends in " BASE);
    } else if (m->before.n == 0) {
        snprintf(out, size, ", in lower case and without further slashes");
    } else if (!is_below_base) {
        snprintf(out, size, ", without %s before it", before);
    } else if (path_is_base(m->before)) {
        snprintf(out, size,
                 ": " BASE " comes twice; the client's base URL must end in one " BASE
                 ", or in none where the client adds it");
    } else {
        snprintf(out, size,
                 ": the client's base URL must end in " BASE " right after host and port, without %s",
                 before);
    }
}

/* Writes as many routes below a folder as fit, "/v1/models, /v1/completions". */
static size_t path_list_below(str folder, path_at known, char *out, size_t size) {
    size_t n = 0;
    const char *path;
    for (size_t i = 0; (path = known(i)) != NULL; i++) {
        size_t length = strlen(path), comma = n > 0 ? 2 : 0;
        bool is_below =
            length > folder.n + 1 && memcmp(path, folder.p, folder.n) == 0 && path[folder.n] == '/';
        if (folder.n > 0 && is_below && path[length - 1] != '/' && n + length + 3 < size) {
            memcpy(out + n, ", ", comma);
            memcpy(out + n + comma, path, length + 1);
            n += comma + length;
        }
    }
    return n;
}

void unknown_path_explain(const char *method, str path, path_at known, quire_error *err) {
    char text[MAX_HINT_BYTES], shown[SHOWN_PATH_BYTES], found[SHOWN_PATH_BYTES], hint[160], advice[300];
    str asked = {text, path_normalise(path, text)};
    nearest near = {.wanted = asked};
    const char *route;
    meant m = {.path = {NULL, 0}};
    const foreign_path *foreign = path_find_foreign_end(asked, 1);
    bool is_found = foreign == NULL && path_find_meant(asked, known, &m);
    path_show(path, shown);
    for (size_t i = 0; (route = known(i)) != NULL; i++) {
        nearest_offer(&near, str_of(route));
    }
    /* a longer route that nearly matches is likelier than the path's suffix */
    is_found = is_found && (m.before.n == 0 || m.lacks_base || near.best.n <= m.path.n);
    foreign =
        foreign == NULL && !is_found && near.best.n == 0 ? path_find_foreign_end(asked, asked.n) : foreign;
    if (foreign != NULL) {
        err_set(err, QUIRE_NOT_FOUND, -1, "%s %s: %s is not served here; %s", method, shown, foreign->what,
                foreign->instead);
        return;
    }
    if (is_found) {
        path_show(m.path, found);
        path_advise(&m, advice, sizeof advice);
        snprintf(hint, sizeof hint, "it is %s%s", m.lacks_base ? BASE : "", found);
    } else if (near.best.n > 0) {
        snprintf(hint, sizeof hint, "the nearest is %.*s", (int)near.best.n, near.best.p);
    } else if (path_list_below(asked, known, found, sizeof found) > 0) {
        snprintf(hint, sizeof hint, "the paths below it are %s", found);
    } else {
        snprintf(hint, sizeof hint, "GET / with Accept: application/json lists all paths");
    }
    err_set(err, QUIRE_NOT_FOUND, -1, "%s %s: there is no such path; %s%s", method, shown, hint,
            is_found ? advice : "");
}
