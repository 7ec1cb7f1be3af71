#include "cli/files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "json/json.h"

quire_err files_failed(const char *path, quire_error *err) {
    return err_set(err, errno == ENOENT ? QUIRE_NOT_FOUND : QUIRE_IO, -1, "%s: %s", path, strerror(errno));
}

static quire_err check_access(const char *flag, const char *path, const char *at, int mode,
                              quire_error *err) {
    return access(at, mode) == 0 ? QUIRE_OK : err_prefix(err, files_failed(path, err), flag);
}

quire_err files_check_readable(const char *flag, const char *path, quire_error *err) {
    return !path || strcmp(path, "-") == 0 ? QUIRE_OK : check_access(flag, path, path, R_OK, err);
}

quire_err files_check_writable(const char *flag, const char *path, quire_error *err) {
    struct stat is;
    if (!path || strcmp(path, "-") == 0) {
        return QUIRE_OK;
    }
    if (stat(path, &is) == 0) {
        return S_ISDIR(is.st_mode) ? err_set(err, QUIRE_IO, -1, "%s: %s: it is a directory", flag, path)
                                   : check_access(flag, path, path, W_OK, err);
    }
    strbuf directory = {0};
    const char *slash = strrchr(path, '/');
    quire_err e = strbuf_addf(&directory, "%.*s.", slash ? (int)(slash - path) + 1 : 0, path);
    err_set(err, e, -1, "out of memory");
    if (e == QUIRE_OK) {
        e = check_access(flag, path, directory.p, W_OK | X_OK, err);
    }
    strbuf_deinit(&directory);
    return e;
}

quire_err files_check_named(const char *flag, const char *path, quire_error *err) {
    if (path && strcmp(path, "-") == 0) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "%s -: must name a file, because this cannot go to standard output; ./- is a file of that name",
            flag);
    }
    return files_check_writable(flag, path, err);
}

quire_err files_read(const char *path, strbuf *out, quire_error *err) {
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f) {
        return files_failed(path, err);
    }
    char block[65536];
    quire_err e = QUIRE_OK;
    size_t n;
    while (e == QUIRE_OK && (n = fread(block, 1, sizeof block, f)) > 0) {
        e = strbuf_add(out, block, n);
    }
    if (e != QUIRE_OK) {
        err_set(err, e, -1, "%s: %s", path, quire_err_text(e));
    } else if (ferror(f)) {
        e = files_failed(path, err);
    }
    if (!standard) {
        fclose(f);
    }
    return e;
}

quire_err files_check_text(const char *where, str text, quire_err code, quire_error *err) {
    size_t at = utf8_valid_run(text);
    if (at == text.n) {
        return QUIRE_OK;
    }
    return err_set(err, code, (int64_t)at,
                   "%s: not UTF-8 at byte %zu, 0x%02x; convert the text, for instance with iconv", where, at,
                   (unsigned)(unsigned char)text.p[at]);
}

quire_err files_read_text(const char *path, strbuf *out, quire_error *err) {
    assert(out != NULL);
    size_t before = out->n;
    TRY(files_read(path, out, err));
    return out->n == before
               ? QUIRE_OK
               : files_check_text(path, (str){out->p + before, out->n - before}, QUIRE_BAD_FILE, err);
}

void id_list_deinit(id_list *l) {
    mem_free(l->ids);
    *l = (id_list){0};
}

quire_err id_list_parse(const char *text, id_list *out, quire_error *err) {
    size_t n_text = strlen(text);
    int32_t *ids = mem_new(n_text / 2 + 1, sizeof *ids);
    TRY(mem_check_for(ids, "a list of ids", err));
    size_t n = 0;
    const char *p = text + strspn(text, " \t\n");
    while (*p) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno == ERANGE || v < 0 || v > INT32_MAX || (*end && !strchr(", \t\n", *end))) {
            mem_free(ids);
            return err_set(err, QUIRE_INVALID, p - text, "'%.*s' is not a token id; write ids as 1,2,3",
                           (int)(strcspn(p, ",") < 20 ? strcspn(p, ",") : 20), p);
        }
        ids[n++] = (int32_t)v;
        p = end + strspn(end, " \t\n");
        if (*p == ',') {
            p += 1 + strspn(p + 1, " \t\n");
        }
    }
    *out = (id_list){ids, n};
    return QUIRE_OK;
}

static quire_err read_json(const char *path, json_value **out, quire_error *err) {
    strbuf text = {0};
    quire_err e = files_read(path, &text, err);
    if (e == QUIRE_OK) {
        json_fault fault;
        if (json_read((str){text.p, text.n}, &json_limits_file, JSON_WIDE_REFUSED, out, &fault) != QUIRE_OK) {
            e = err_set(err, QUIRE_BAD_FILE, (int64_t)fault.at, "%s: not JSON at byte %zu: %s", path,
                        fault.at, text.n ? fault.what : "it is empty");
        }
    }
    strbuf_deinit(&text);
    return e;
}

/* Reads ids from a JSON array, or from an object whose "prompt" or "ids" is one. */
static quire_err ids_of_json(const char *path, const json_value *value, id_list *out, quire_error *err) {
    const json_value *list = json_is(value, JSON_KIND_OBJECT)
                                 ? json_get(value, json_has(value, "prompt") ? "prompt" : "ids")
                                 : value;
    if (!json_is(list, JSON_KIND_ARRAY)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: has no list of ids, such as [1,2,3] or {\"prompt\": [1,2,3]}", path);
    }
    size_t n = json_length(list);
    int32_t *ids = mem_new(n, sizeof *ids);
    TRY(err_set(err, mem_check(ids), -1, "%s: out of memory", path));
    for (size_t i = 0; i < n; i++) {
        const json_value *v = json_at(list, i);
        int64_t id = json_int64(v);
        if (!json_is(v, JSON_KIND_INT) || id < 0 || id > INT32_MAX) {
            mem_free(ids);
            return err_set(err, QUIRE_BAD_FILE, -1, "%s: element %zu is not a token id", path, i);
        }
        ids[i] = (int32_t)id;
    }
    *out = (id_list){ids, n};
    return QUIRE_OK;
}

quire_err id_list_read(const char *path, id_list *out, quire_error *err) {
    json_value *value;
    TRY(read_json(path, &value, err));
    quire_err e = ids_of_json(path, value, out, err);
    json_drop(value);
    return e;
}

quire_err id_lists_read(const char *path, id_list **out, size_t *n, quire_error *err) {
    json_value *value;
    TRY(read_json(path, &value, err));
    quire_err e = QUIRE_OK;
    size_t wanted = json_is(value, JSON_KIND_ARRAY) ? json_length(value) : 0;
    *n = 0;
    *out = mem_new(wanted, sizeof **out);
    if (!*out) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", path);
    } else if (!json_is(value, JSON_KIND_ARRAY)) {
        e = err_set(err, QUIRE_BAD_FILE, -1, "%s: must be a list of id lists, such as [[1,2],[3,4,5]]", path);
    }
    while (e == QUIRE_OK && *n < wanted) {
        e = ids_of_json(path, json_at(value, *n), &(*out)[*n], err);
        *n += e == QUIRE_OK;
    }
    json_drop(value);
    return e;
}

quire_err npy_write(const char *path, const float *values, size_t n_rows, size_t n_columns,
                    quire_error *err) {
    char header[128];
    memset(header, ' ', sizeof header);
    /* version 1.0; a dictionary of 118 bytes follows, so that the values start at byte
     * 128 */
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int n = snprintf(header + 10, sizeof header - 10,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", n_rows, n_columns);
    header[10 + n] = ' ';
    header[sizeof header - 1] = '\n';
    FILE *f = fopen(path, "wb");
    if (!f) {
        return files_failed(path, err);
    }
    bool good = fwrite(header, 1, sizeof header, f) == sizeof header &&
                fwrite(values, sizeof *values * n_columns, n_rows, f) == n_rows;
    if (fclose(f) != 0 || !good) {
        return err_set(err, QUIRE_IO, -1, "%s: could not be written: %s", path, strerror(errno));
    }
    return QUIRE_OK;
}

/* ---- text on standard output ---- */

void text_out_init(text_out *t) {
    *t = (text_out){.is_terminal = isatty(STDOUT_FILENO) != 0};
}

void text_out_deinit(text_out *t) {
    strbuf_deinit(&t->shown);
    *t = (text_out){0};
}

static quire_err cli_text_out_print(str text, quire_error *err) {
    if ((text.n == 0 || fwrite(text.p, 1, text.n, stdout) == text.n) && fflush(stdout) == 0) {
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_IO, -1, "standard output could not be written: %s", strerror(errno));
}

quire_err text_out_add(text_out *t, str piece, quire_error *err) {
    if (!t->is_terminal) {
        return cli_text_out_print(piece, err);
    }
    strbuf_clear(&t->shown);
    if (visible_add(&t->seen, piece.p, piece.n, &t->shown) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for what is printed");
    }
    return t->shown.n > 0 ? cli_text_out_print((str){t->shown.p, t->shown.n}, err) : QUIRE_OK;
}

quire_err text_out_end_line(text_out *t, quire_error *err) {
    strbuf_clear(&t->shown);
    if (visible_end(&t->seen, &t->shown) != QUIRE_OK || strbuf_add_char(&t->shown, '\n') != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for what is printed");
    }
    return cli_text_out_print((str){t->shown.p, t->shown.n}, err);
}

quire_err text_out_print(str text, quire_error *err) {
    text_out t;
    text_out_init(&t);
    quire_err e = text_out_add(&t, text, err);
    TRY_DONE(e, text_out_end_line(&t, err));
done:
    text_out_deinit(&t);
    return e;
}

quire_err text_out_finish(strbuf *text, quire_err e, quire_error *err) {
    assert(text != NULL);
    if (e == QUIRE_OK) {
        e = text_out_print((str){text->p, text->n}, err);
    }
    strbuf_deinit(text);
    return e;
}

/* Handler of SIGPIPE, from standard output or a socket. Calls only async-signal-safe
 * functions. */
static void on_closed_pipe(int signal_number) {
    static const char message[] = "quire: standard output could not be written: the pipe was closed\n";
    (void)signal_number;
    int before = errno;
    struct pollfd output = {.fd = STDOUT_FILENO};
    if (poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP))) {
        ssize_t n = write(STDERR_FILENO, message, sizeof message - 1);
        (void)n;
        _exit(1);
    }
    errno = before;
}

void standard_files_open(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            /* open returns the lowest free number, which is fd; writes to it still
             * fail */
            int opened = open("/dev/null", O_RDONLY);
            (void)opened;
        }
    }
    struct sigaction action = {.sa_handler = on_closed_pipe};
    sigaction(SIGPIPE, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit fails instead */
}

int standard_files_finish(int status) {
    bool failed = ferror(stdout) != 0;
    bool flushed = fflush(stdout) == 0;
    if (status != 0 || (!failed && flushed)) {
        return status;
    }
    log_line(LOG_ERROR, "standard output could not be written: %s",
             flushed ? "its disk is full, or it was closed" : strerror(errno));
    return 1;
}
