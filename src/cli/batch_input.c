#include "cli/batch_input.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "json/json_out.h"
#include "json/json_scan.h"

static bool is_regular(FILE *f) {
    struct stat s;
    return fstat(fileno(f), &s) == 0 && S_ISREG(s.st_mode);
}

/* Opens a new unnamed file in the directory of `beside`; NULL: in that for temporary
 * files. */
static FILE *nameless_file(const char *beside) {
    if (beside == NULL) {
        return tmpfile();
    }
    strbuf path = {0};
    const char *slash = strrchr(beside, '/');
    size_t n = slash ? (size_t)(slash - beside) + 1 : 0;
    FILE *f = NULL;
    if (strbuf_add(&path, beside, n) == QUIRE_OK && strbuf_add_str(&path, ".quire-XXXXXX") == QUIRE_OK) {
        int fd = mkstemp(path.p);
        if (fd >= 0) {
            (void)unlink(path.p);
            f = fdopen(fd, "w+b");
        }
    }
    strbuf_deinit(&path);
    return f;
}

/* Copies the rest of `from` to in->file. */
static quire_err copy_all(batch_input *in, FILE *from, quire_error *err) {
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, from)) > 0) {
        if (fwrite(block, 1, n, in->file) != n) {
            return err_set(err, QUIRE_IO, -1, "%s: copying it: %s", in->path, strerror(errno));
        }
    }
    return ferror(from) ? files_failed(in->path, err) : QUIRE_OK;
}

static quire_err batch_input_open_file(batch_input *in, const char *beside, quire_error *err) {
    bool standard = strcmp(in->path, "-") == 0;
    FILE *f = standard ? stdin : fopen(in->path, "rb");
    if (f == NULL) {
        return files_failed(in->path, err);
    }
    if (!standard && is_regular(f)) {
        in->file = f;
        return QUIRE_OK;
    }
    in->file = nameless_file(beside);
    quire_err e = in->file ? copy_all(in, f, err)
                           : err_set(err, QUIRE_IO, -1, "%s: copying it to the directory of %s: %s", in->path,
                                     beside ? beside : "other temporary files", strerror(errno));
    if (!standard) {
        (void)fclose(f);
    }
    return e;
}

/* Reads the next line that is not empty; *n is 0 at the end. */
static quire_err next_line(batch_input *in, sha256_sum *sum, size_t *n, quire_error *err) {
    ssize_t length;
    *n = 0;
    errno = 0;
    while (*n == 0 && (length = getline(&in->line, &in->cap, in->file)) > 0) {
        if (sum) {
            sha256_add(sum, in->line, (size_t)length);
        }
        in->number++;
        in->n_mark = in->number == 1 && length >= 3 && memcmp(in->line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        size_t end = (size_t)length - in->n_mark - (in->line[length - 1] == '\n');
        *n = strspn(in->line + in->n_mark, " \t\r\n") < end ? end : 0;
    }
    if (*n > INT32_MAX) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "%s: line %zu is longer than 2 GiB", in->path, in->number);
    }
    return *n == 0 && !feof(in->file) ? files_failed(in->path, err) : QUIRE_OK;
}

void batch_input_rewind(batch_input *in) {
    assert(in != NULL);
    rewind(in->file);
    in->n_read = in->number = 0;
}

/* Reads the file once, for n_lines and digest. */
static quire_err read_once(batch_input *in, quire_error *err) {
    sha256_sum sum;
    size_t n;
    sha256_begin(&sum);
    batch_input_rewind(in);
    TRY(next_line(in, &sum, &n, err));
    while (n > 0) {
        in->n_lines++;
        TRY(next_line(in, &sum, &n, err));
    }
    sha256_end(&sum, in->digest);
    batch_input_rewind(in);
    return QUIRE_OK;
}

quire_err batch_input_open(const char *path, const char *beside, batch_input *in, quire_error *err) {
    *in = (batch_input){.path = path};
    quire_err e = batch_input_open_file(in, beside, err);
    TRY_DONE(e, read_once(in, err));
done:
    if (e != QUIRE_OK) {
        batch_input_close(in);
    }
    return e;
}

void batch_input_close(batch_input *in) {
    assert(in != NULL);
    if (in->file) {
        (void)fclose(in->file);
    }
    free(in->line);
    *in = (batch_input){0};
}

quire_err batch_input_next(batch_input *in, str *line, quire_error *err) {
    size_t n;
    TRY(next_line(in, NULL, &n, err));
    if (n == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: ends after %zu of %zu lines: it was changed while it was read", in->path,
                       in->n_read, in->n_lines);
    }
    in->n_read++;
    *line = (str){in->line + in->n_mark, n};
    return QUIRE_OK;
}

/* Lines of a file of prompts, and their response lines. A line is one of
 *   - {"prompt": "text"} or {"prompt": [1,2,3]} or {"ids": [1,2,3]}, with request fields
 *     by their API names; its response is {"index", "id" if given, "text", "token_ids",
 *     "finish_reason", "usage"}, or "choices" of those if a prompt is a list;
 *   - {"custom_id", "method", "url", "body"}, OpenAI's batch format; its response is
 *     {"id", "custom_id", "response": {"status_code", "body"}, "error"}.
 * An error in a line becomes its response. One thread. */

/* ---- reading ---- */

/* The members that determine a line's kind, as JSON; empty: absent or null. */
typedef struct line_parts {
    str id, custom_id, url, method, body, messages;
} line_parts;

/* Finds line_parts in a line, an object, without building a tree, since the line may be
 * long. */
static quire_err find_parts(str text, line_parts *out) {
    const struct {
        const char *name;
        str *to;
    } parts[] = {{"id", &out->id},         {"custom_id", &out->custom_id}, {"url", &out->url},
                 {"method", &out->method}, {"body", &out->body},           {"messages", &out->messages}};
    json_scan s = {.text = text};
    strbuf scratch = {0};
    bool more = true;
    quire_err e = json_scan_open(&s, '{');
    while (e == QUIRE_OK && more) {
        str name, span;
        e = json_scan_next(&s, &scratch, &name, &span, &more);
        for (size_t i = 0; e == QUIRE_OK && more && i < sizeof parts / sizeof *parts; i++) {
            if (str_is(name, parts[i].name) && !str_is(span, "null")) {
                *parts[i].to = span;
            }
        }
    }
    strbuf_deinit(&scratch);
    return e;
}

/* The text of a JSON string; empty for other values. */
static str batch_line_text_of(str span, strbuf *scratch) {
    str text;
    json_scan s = {.text = span};
    return json_scan_string(&s, scratch, &text) == QUIRE_OK ? text : (str){"", 0};
}

/* Reads the body of an OpenAI line, by its url. */
static quire_err read_openai(const line_parts *line, batch_line *l, quire_error *fault, quire_error *err) {
    enum { SHOWN = 60 };
    strbuf of_url = {0}, of_method = {0};
    str url = batch_line_text_of(line->url, &of_url), method = batch_line_text_of(line->method, &of_method);
    l->is_openai = true;
    if (method.n > 0 && !str_is(method, "POST")) {
        err_set_param(fault, QUIRE_BAD_REQUEST, "method", "method is %.*s; it must be POST",
                      method.n < SHOWN ? (int)method.n : SHOWN, method.p);
    } else if (str_is(url, "/v1/chat/completions")) {
        l->endpoint = QUIRE_CHAT;
    } else if (!str_is(url, "/v1/completions")) {
        err_set_param(fault, QUIRE_BAD_REQUEST, "url",
                      "url is %.*s; it must be /v1/completions or /v1/chat/completions",
                      url.n == 0      ? (int)strlen("missing")
                      : url.n < SHOWN ? (int)url.n
                                      : SHOWN,
                      url.n > 0 ? url.p : "missing");
    }
    strbuf_deinit(&of_url);
    strbuf_deinit(&of_method);
    if (fault->code == QUIRE_OK && (line->body.n == 0 || line->body.p[0] != '{')) {
        err_set_param(fault, QUIRE_BAD_REQUEST, "body", "body is missing; it must be a request to the API");
    }
    return fault->code == QUIRE_OK
               ? err_set(err, strbuf_add(&l->body, line->body.p, line->body.n), -1, "out of memory")
               : QUIRE_OK;
}

/* Adds all members of a line but "id". "ids" becomes "prompt". */
static quire_err batch_line_add_members(str text, body *b) {
    json_scan s = {.text = text};
    strbuf scratch = {0}, name = {0};
    bool more = true;
    quire_err e = json_scan_open(&s, '{');
    while (e == QUIRE_OK && more) {
        str key, span;
        TRY_DONE(e, json_scan_next(&s, &scratch, &key, &span, &more));
        if (more && !str_is(key, "id")) {
            strbuf_clear(&name);
            e = str_is(key, "ids") ? strbuf_add_str(&name, "prompt") : strbuf_add(&name, key.p, key.n);
            TRY_DONE(e, body_set(b, name.p, span));
        }
    }
done:
    strbuf_deinit(&scratch);
    strbuf_deinit(&name);
    return e;
}

/* Builds a request from the flags' fields, overridden by the line's. */
static quire_err batch_line_read_plain(const cli_options *o, const session *s, str text,
                                       const line_parts *line, batch_line *l, quire_error *err) {
    body b = {0};
    l->endpoint = line->messages.n > 0 ? QUIRE_CHAT : QUIRE_COMPLETIONS;
    quire_err e = request_begin(o, &b, err);
    if (e == QUIRE_OK && batch_line_add_members(text, &b) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    TRY_DONE(e, request_complete(s, l->endpoint, &b, err));
    if (body_write(&b, &l->body) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
done:
    body_deinit(&b);
    return e;
}

void batch_line_deinit(batch_line *l) {
    strbuf_deinit(&l->body);
    strbuf_deinit(&l->id);
    *l = (batch_line){0};
}

quire_err batch_line_read(const cli_options *o, const session *s, size_t number, str text, batch_line *l,
                          quire_error *fault, quire_error *err) {
    json_fault where = {.what = "another kind of value"};
    line_parts line = {0};
    *l = (batch_line){.endpoint = QUIRE_COMPLETIONS};
    quire_err e = json_check(text, &json_limits_file, NULL, &where);
    if (e != QUIRE_NO_MEMORY && (e != QUIRE_OK || json_scan_peek(&(json_scan){.text = text}) != '{')) {
        err_set(fault, QUIRE_BAD_REQUEST, -1, "line %zu is not a JSON object: %s", number, where.what);
        return QUIRE_OK;
    }
    if (e == QUIRE_OK) {
        e = find_parts(text, &line);
    }
    bool is_openai = line.custom_id.n > 0 || line.body.n > 0;
    str id = is_openai ? line.custom_id : line.id;
    if (e == QUIRE_OK && id.n > 0) {
        e = strbuf_add(&l->id, id.p, id.n);
    }
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "out of memory for line %zu", number);
    }
    return is_openai ? read_openai(&line, l, fault, err) : batch_line_read_plain(o, s, text, &line, l, err);
}

/* ---- answering ---- */

/* The HTTP status that a server would send for this error. */
static int status_of(const quire_error *error) {
    return error->code == QUIRE_OK         ? 200
           : error->code == QUIRE_INTERNAL ? 500
           : error->code == QUIRE_BUSY     ? 429
                                           : 400;
}

static void add_error(json_out *o, const quire_error *error) {
    int status = status_of(error);
    json_begin(json_name(o, "error"), '{');
    json_cstr(json_name(o, "message"), error->message);
    json_cstr(json_name(o, "type"), status == 500 ? "internal_error" : "invalid_request_error");
    json_cstr(json_name(o, "param"), error->param[0] ? error->param : NULL);
    json_int(json_name(o, "code"), status);
    json_end(o, '}');
}

static void add_usage(json_out *o, const response *a) {
    json_begin(json_name(o, "usage"), '{');
    json_int(json_name(o, "prompt_tokens"), a->prompt_tokens);
    json_int(json_name(o, "completion_tokens"), a->completion_tokens);
    json_int(json_name(o, "total_tokens"), a->prompt_tokens + a->completion_tokens);
    json_end(o, '}');
}

/* Writes choice i: text, token ids, finish reason. id: the response's id. */
static void add_choice(json_out *o, const response *a, size_t i, const char *id, bool message) {
    const response_choice *c = &a->choices[i];
    const strbuf *said = a->has_parts ? &c->content : &c->text;
    str text = {said->n > 0 ? said->p : "", said->n};
    answer_place at = {
        .response_id = id, .choice = i, .names_call = a->names_call, .old_calls = a->old_calls};
    if (message) {
        answer_parts_write_message(&c->parts, at, (str){"", 0}, text, json_name(o, "message"));
    } else {
        json_text(json_name(o, "text"), text.p, text.n);
        answer_parts_write(&c->parts, at, o);
    }
    const char *called = answer_parts_finish_name(&c->parts, at, c->finish);
    json_ints(json_name(o, "token_ids"), c->tokens, c->n_tokens);
    json_cstr(json_name(o, "finish_reason"), called != NULL ? called : response_finish_name(c->finish));
    json_name(o, "stop_reason");
    if (c->stop_string == NULL && c->stop_token >= 0) {
        json_int(o, c->stop_token);
    } else {
        json_cstr(o, c->stop_string);
    }
}

static void add_choices(json_out *o, const response *a, const char *id, bool message) {
    json_begin(json_name(o, "choices"), '[');
    for (size_t i = 0; i < a->n_choices; i++) {
        json_begin(json_item(o), '{');
        json_int(json_name(o, "index"), (int64_t)i);
        add_choice(o, a, i, id, message);
        json_end(o, '}');
    }
    json_end(o, ']');
}

static void plain_response(json_out *o, const response *a, size_t index, const strbuf *id) {
    char response_id[48];
    snprintf(response_id, sizeof response_id, "%zu", index);
    json_begin(o, '{');
    json_int(json_name(o, "index"), (int64_t)index);
    if (id->n > 0) {
        json_raw(json_name(o, "id"), id->p);
    }
    if (a->error.code != QUIRE_OK) {
        add_error(o, &a->error);
    } else {
        if (a->n_choices == 1) {
            add_choice(o, a, 0, response_id, false);
        } else {
            add_choices(o, a, response_id, false);
        }
        add_usage(o, a);
    }
    json_end(o, '}');
}

/* Writes the body of an OpenAI response: a completion or an error. */
static void batch_line_add_body(json_out *o, const batch_line *l, size_t index, const response *a,
                                const char *model) {
    int status = status_of(&a->error);
    bool chat = l->endpoint == QUIRE_CHAT;
    char id[48];
    json_begin(json_name(o, "body"), '{');
    if (status != 200) {
        add_error(o, &a->error);
    } else {
        snprintf(id, sizeof id, "%s-%zu", chat ? "chatcmpl" : "cmpl", index);
        json_cstr(json_name(o, "id"), id);
        json_cstr(json_name(o, "object"), chat ? "chat.completion" : "text_completion");
        json_int(json_name(o, "created"), clock_unix_s());
        json_cstr(json_name(o, "model"), model);
        add_choices(o, a, id, chat);
        add_usage(o, a);
    }
    json_end(o, '}');
}

static void openai_response(json_out *o, const batch_line *l, size_t index, const response *a,
                            const char *model) {
    char id[48];
    json_begin(o, '{');
    snprintf(id, sizeof id, "batch_req-%zu", index);
    json_cstr(json_name(o, "id"), id);
    json_raw(json_name(o, "custom_id"), l->id.n > 0 ? l->id.p : "null");
    json_begin(json_name(o, "response"), '{');
    json_int(json_name(o, "status_code"), status_of(&a->error));
    snprintf(id, sizeof id, "req-%zu", index);
    json_cstr(json_name(o, "request_id"), id);
    batch_line_add_body(o, l, index, a, model);
    json_end(o, '}');
    json_raw(json_name(o, "error"), "null");
    json_end(o, '}');
}

quire_err batch_line_response(const batch_line *l, size_t index, const response *a, const char *model,
                              strbuf *out) {
    json_out o = {.to = out};
    if (l->is_openai) {
        openai_response(&o, l, index, a, model);
    } else {
        plain_response(&o, a, index, &l->id);
    }
    return o.err;
}
