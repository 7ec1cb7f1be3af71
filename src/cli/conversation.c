/* declares realpath, which is outside C11 */

#define _XOPEN_SOURCE 700

#include "cli/conversation.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/files.h"
#include "json/json_out.h"

static void conversation_forget(conversation *c) {
    for (size_t i = 0; i < c->n; i++) {
        strbuf_deinit(&c->messages[i].text);
    }
    c->n = c->first = 0;
}

void conversation_deinit(conversation *c) {
    conversation_forget(c);
    mem_free(c->messages);
    strbuf_deinit(&c->system);
    *c = (conversation){0};
}

void conversation_clear(conversation *c) {
    conversation_forget(c);
}

quire_err conversation_set_system(conversation *c, str text) {
    strbuf copy = {0};
    TRY(strbuf_add(&copy, text.p, text.n));
    strbuf_deinit(&c->system);
    c->system = copy;
    c->has_system = text.n > 0;
    return QUIRE_OK;
}

quire_err conversation_add(conversation *c, conversation_role role, str text) {
    conversation_message m = {.role = role};
    TRY(strbuf_add(&m.text, text.p, text.n));
    if (mem_grow(&c->messages, &c->cap, c->n + 1, sizeof *c->messages) != QUIRE_OK) {
        strbuf_deinit(&m.text);
        return QUIRE_NO_MEMORY;
    }
    c->messages[c->n++] = m;
    return QUIRE_OK;
}

void conversation_drop_last(conversation *c) {
    assert(c != NULL);
    strbuf_deinit(&c->messages[--c->n].text);
}

size_t conversation_next_turn(const conversation *c, size_t at) {
    do {
        at++;
    } while (at < c->n && c->messages[at].role != CONVERSATION_USER);
    return at < c->n ? at : c->n;
}

/* ---- as JSON ---- */

static void conversation_write_message(json_out *o, const char *role, const strbuf *text) {
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), role);
    json_text(json_name(o, "content"), text->n > 0 ? text->p : "", text->n);
    json_end(o, '}');
}

static void write_messages(const conversation *c, size_t from, json_out *o) {
    json_begin(o, '[');
    if (c->has_system) {
        conversation_write_message(o, "system", &c->system);
    }
    for (size_t i = from; i < c->n; i++) {
        conversation_write_message(o, c->messages[i].role == CONVERSATION_USER ? "user" : "assistant",
                                   &c->messages[i].text);
    }
    json_end(o, ']');
}

quire_err conversation_write(const conversation *c, size_t from, strbuf *out) {
    json_out o = {.to = out};
    write_messages(c, from, &o);
    return o.err;
}

static quire_err conversation_write_file(int fd, str text) {
    while (text.n > 0) {
        ssize_t n = write(fd, text.p, text.n);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return QUIRE_IO;
        }
        text = (str){text.p + n, text.n - (size_t)n};
    }
    return QUIRE_OK;
}

/* Writes the text, syncs it to the disk and closes fd. False: errno has the reason. */
static bool write_and_close(int fd, str text) {
    /* fsync of a device fails with EINVAL */
    bool written = conversation_write_file(fd, text) == QUIRE_OK && (fsync(fd) == 0 || errno == EINVAL);
    int cause = errno;
    bool closed = close(fd) == 0;
    errno = written ? errno : cause;
    return written && closed;
}

/* Writes the text to a new file beside path, which then replaces path atomically. */
static bool replace_file(const char *path, str text) {
    strbuf part = {0};
    const char *slash = strrchr(path, '/');
    bool named = strbuf_add(&part, path, slash ? (size_t)(slash - path) + 1 : 0) == QUIRE_OK &&
                 strbuf_add_str(&part, ".quire-XXXXXX") == QUIRE_OK;
    errno = ENOMEM;
    int fd = named ? mkstemp(part.p) : -1; /* mkstemp makes it readable by its owner only */
    bool done = fd >= 0 && write_and_close(fd, text) && rename(part.p, path) == 0;
    int cause = errno;
    if (fd >= 0 && !done) {
        (void)unlink(part.p);
    }
    strbuf_deinit(&part);
    errno = cause;
    return done;
}

/* Writes to a new file or, with may_exist, to an existing device or pipe. */
static bool conversation_write_plain(const char *path, str text, bool may_exist) {
    struct stat is;
    bool exists = stat(path, &is) == 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (may_exist ? 0 : O_EXCL), 0600);
    bool done = fd >= 0 && write_and_close(fd, text);
    int cause = errno;
    if (fd >= 0 && !done && !exists) {
        (void)unlink(path);
    }
    errno = cause;
    return done;
}

static quire_err save_text(const char *path, str text, bool replace, quire_error *err) {
    struct stat is;
    bool is_file = replace && stat(path, &is) == 0 && S_ISREG(is.st_mode);
    char *target = is_file ? realpath(path, NULL) : NULL; /* resolves links, so that the target is replaced */
    bool may = !is_file || access(path, W_OK) == 0;
    bool done = !may      ? false
                : is_file ? replace_file(target ? target : path, text)
                          : conversation_write_plain(path, text, replace);
    int cause = errno;
    free(target);
    if (!done && !replace && cause == EEXIST) {
        return err_set(err, QUIRE_INVALID, -1, "%s exists; name another file, or replace it with /save! %s",
                       path, path);
    }
    errno = cause;
    return done ? QUIRE_OK : files_failed(path, err);
}

quire_err conversation_save(const conversation *c, const char *path, bool replace, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text, .indent = 2};
    json_begin(&o, '{');
    json_name(&o, "messages");
    write_messages(c, 0, &o);
    json_end(&o, '}');
    json_raw(&o, "\n");
    quire_err e = err_set(err, o.err, -1, "%s: out of memory", path);
    if (e == QUIRE_OK) {
        e = save_text(path, (str){text.p, text.n}, replace, err);
    }
    strbuf_deinit(&text);
    return e;
}

/* ---- reading ---- */

/* Adds v, the i-th message of the file at path. */
static quire_err load_message(conversation *c, const char *path, const json_value *v, size_t i,
                              quire_error *err) {
    str role = json_get_str(v, "role"), content = json_get_str(v, "content");
    bool is_system = str_is(role, "system"), is_user = str_is(role, "user");
    if (!json_is(json_get(v, "content"), JSON_KIND_TEXT) ||
        (!is_system && !is_user && !str_is(role, "assistant"))) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: message %zu must have a \"role\" of system, user or assistant, and a string as "
                       "its \"content\"",
                       path, i);
    }
    if (is_system ? i > 0 : c->n == 0 && !is_user) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: message %zu: %s", path, i,
                       is_system ? "the system message must be the first"
                                 : "the first message after the system message must be the user's");
    }
    quire_err e = is_system
                      ? conversation_set_system(c, content)
                      : conversation_add(c, is_user ? CONVERSATION_USER : CONVERSATION_ASSISTANT, content);
    return err_set(err, e, -1, "%s: out of memory", path);
}

static quire_err load_messages(conversation *c, const char *path, const json_value *file, quire_error *err) {
    const json_value *list = json_is(file, JSON_KIND_OBJECT) ? json_get(file, "messages") : file;
    if (!json_is(list, JSON_KIND_ARRAY)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: has no list of messages, such as {\"messages\": [..]}",
                       path);
    }
    for (size_t i = 0; i < json_length(list); i++) {
        TRY(load_message(c, path, json_at(list, i), i, err));
    }
    return QUIRE_OK;
}

quire_err conversation_load(conversation *c, const char *path, quire_error *err) {
    strbuf text = {0};
    json_value *file = NULL;
    json_fault fault;
    conversation loaded = {0};
    quire_err e = files_read_text(path, &text, err);
    if (e == QUIRE_OK && json_read((str){text.n > 0 ? text.p : "", text.n}, &json_limits_file, JSON_WIDE_KEPT,
                                   &file, &fault) != QUIRE_OK) {
        e = err_set(err, QUIRE_BAD_FILE, (int64_t)fault.at, "%s: not JSON at byte %zu: %s", path, fault.at,
                    text.n ? fault.what : "it is empty");
    }
    TRY_DONE(e, load_messages(&loaded, path, file, err));
done:
    if (e == QUIRE_OK) {
        conversation_deinit(c);
        *c = loaded;
    } else {
        conversation_deinit(&loaded);
    }
    json_drop(file);
    strbuf_deinit(&text);
    return e;
}

enum { MOST_ROOM = 512 }; /* tokens kept free for an answer */

static int32_t positive(int32_t n) {
    return n > 1 ? n : 1;
}

context_fit context_fit_begin(const conversation *c, int32_t context_tokens, int32_t max_tokens) {
    int32_t room = context_tokens / 8 < MOST_ROOM ? context_tokens / 8 : MOST_ROOM;
    room = max_tokens > 0 && max_tokens < room ? max_tokens : room;
    return (context_fit){.from = c->first, .limit = positive(context_tokens - positive(room))};
}

bool context_fit_next(const conversation *c, int32_t context_tokens, context_fit *fit) {
    assert(c != NULL && fit != NULL);
    size_t next = conversation_next_turn(c, fit->from);
    if (next < c->n) {
        *fit = (context_fit){.from = next, .limit = positive(context_tokens - context_tokens / 4)};
        return true;
    }
    bool was_limited = fit->limit > 0;
    fit->limit = 0;
    return was_limited;
}
