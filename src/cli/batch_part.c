/* declares realpath, which is outside C11 */
#define _XOPEN_SOURCE 700

#include "cli/batch_part.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files.h"
#include "json/json.h"

static quire_err batch_part_failed(const char *path, quire_error *err) {
    return err_set(err, QUIRE_IO, -1, "--out %s: %s", path, strerror(errno));
}

bool batch_part_wanted(const char *out) {
    struct stat s;
    return strcmp(out, "-") != 0 && (stat(out, &s) != 0 || S_ISREG(s.st_mode));
}

/* ---- names ---- */

/* Appends the target of OUT if it is a link to an existing file, otherwise OUT. */
static quire_err add_target(const char *out, strbuf *to) {
    struct stat s;
    char *real = lstat(out, &s) == 0 && S_ISLNK(s.st_mode) ? realpath(out, NULL) : NULL;
    quire_err e = strbuf_add_str(to, real ? real : out);
    free(real);
    return e;
}

static quire_err set_names(const char *out, batch_part *p, quire_error *err) {
    *p = (batch_part){.in_order = true};
    quire_err e = add_target(out, &p->target);
    TRY_DONE(e, strbuf_addf(&p->path, "%s.part", p->target.p));
    TRY_DONE(e, strbuf_addf(&p->info, "%s.info", p->path.p));
done:
    return err_set(err, e, -1, "--out %s: out of memory", out);
}

static quire_err cli_batch_part_check(const batch_part *p, bool resume, quire_error *err) {
    struct stat part, target;
    bool has_part = stat(p->path.p, &part) == 0 && part.st_size > 0;
    if (has_part && !resume) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s holds the answers of a run that did not end: continue with --resume, or delete it",
                       p->path.p);
    }
    if (!has_part && resume && stat(p->target.p, &target) == 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--resume: there is %s, but no %s to continue: that run has ended; leave --resume out "
                       "to start over",
                       p->target.p, p->path.p);
    }
    return QUIRE_OK;
}

quire_err batch_part_check(const char *out, bool resume, quire_error *err) {
    batch_part p;
    if (!batch_part_wanted(out)) {
        return resume ? err_set(err, QUIRE_INVALID, -1,
                                "--resume: --out %s is not a file that can be continued", out)
                      : QUIRE_OK;
    }
    quire_err e = set_names(out, &p, err);
    TRY_DONE(e, cli_batch_part_check(&p, resume, err));
done:
    batch_part_close(&p);
    return e;
}

/* ---- opening ---- */

/* Locks the part. The lock ends with the process, or when the part is closed. */
static quire_err batch_part_lock(batch_part *p, quire_error *err) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fileno(p->file), F_SETLK, &l) != 0) {
        return errno == EACCES || errno == EAGAIN
                   ? err_set(err, QUIRE_BUSY, -1, "%s: another process is writing it", p->path.p)
                   : batch_part_failed(p->path.p, err);
    }
    return QUIRE_OK;
}

/* Gives f the permissions of the file `from`, if that exists. */
static void take_mode(FILE *f, const char *from) {
    struct stat s;
    if (stat(from, &s) == 0) {
        (void)fchmod(fileno(f), s.st_mode & 0777);
    }
}

static quire_err write_about(const batch_part *p, str about, quire_error *err) {
    FILE *f = fopen(p->info.p, "wb");
    if (f == NULL) {
        return batch_part_failed(p->info.p, err);
    }
    bool good = fwrite(about.p, 1, about.n, f) == about.n && fputc('\n', f) != EOF;
    return fclose(f) == 0 && good ? QUIRE_OK : batch_part_failed(p->info.p, err);
}

/* Compares the settings of the resumed run (then) with this one's. QUIRE_INVALID: they
 * differ. */
static quire_err batch_part_compare(const batch_part *p, const json_value *then, const json_value *now,
                                    quire_error *err) {
    for (json_member m = {0}; json_next(now, &m);) {
        if (strcmp(m.name, "prompts") == 0 || json_same(json_get(then, m.name), m.value)) {
            continue;
        }
        if (strcmp(m.name, "sha256") == 0) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--resume: %s answers other prompts (those of %s when that run began); delete it "
                           "to start over",
                           p->path.p, json_get_str(then, "prompts").p);
        }
        return err_set(err, QUIRE_INVALID, -1,
                       "--resume: %s was started with a different %s (see %s); give the same, or delete %s "
                       "to start over",
                       p->path.p, m.name, p->info.p, p->path.p);
    }
    return QUIRE_OK;
}

static quire_err check_about(const batch_part *p, str about, quire_error *err) {
    strbuf text = {0};
    quire_err e = files_read(p->info.p, &text, err);
    json_value *then = e == QUIRE_OK ? json_document((str){text.p, text.n}) : NULL;
    json_value *now = json_document(about);
    if (e == QUIRE_OK && (!json_is(then, JSON_KIND_OBJECT) || json_get_str(then, "prompts").n == 0)) {
        e = err_set(err, QUIRE_BAD_FILE, -1, "%s: does not say what %s answers; delete both to start over",
                    p->info.p, p->path.p);
    } else if (e == QUIRE_OK) {
        e = batch_part_compare(p, then, now, err);
    }
    json_drop(now);
    json_drop(then);
    strbuf_deinit(&text);
    return e;
}

/* Opens and locks the part file of a new or a resumed run. */
static quire_err batch_part_open_file(batch_part *p, bool resume, str about, quire_error *err) {
    struct stat s;
    int fd = open(p->path.p, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    p->file = fd >= 0 ? fdopen(fd, "r+b") : NULL;
    if (p->file == NULL) {
        return batch_part_failed(p->path.p, err);
    }
    TRY(batch_part_lock(p, err));
    TRY(cli_batch_part_check(p, resume, err)); /* checked again, since another process may have begun */
    p->is_ours = true;
    if (fstat(fd, &s) == 0 && s.st_size > 0) {
        return check_about(p, about, err);
    }
    take_mode(p->file, p->target.p);
    return write_about(p, about, err);
}

quire_err batch_part_open(const char *out, bool resume, str about, batch_part *p, quire_error *err) {
    quire_err e = set_names(out, p, err);
    TRY_DONE(e, batch_part_open_file(p, resume, about, err));
done:
    if (e != QUIRE_OK) {
        batch_part_close(p);
    }
    return e;
}

void batch_part_close(batch_part *p) {
    assert(p != NULL);
    struct stat s;
    if (p->is_ours && fstat(fileno(p->file), &s) == 0 && s.st_size == 0) {
        (void)unlink(p->path.p);
        (void)unlink(p->info.p);
    }
    if (p->file) {
        (void)fclose(p->file); /* can't lose data: every line is already written */
    }
    free(p->line);
    strbuf_deinit(&p->target);
    strbuf_deinit(&p->path);
    strbuf_deinit(&p->info);
    *p = (batch_part){0};
}

/* ---- lines ---- */

static quire_err no_response(const batch_part *p, quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1,
                   "%s: line %zu is not an answer: the file is damaged; delete it to start over", p->path.p,
                   p->n_read + 1);
}

/* Reads a response line's index, and whether it is an error. False: it is not a
 * response. */
static bool read_response(str line, size_t *index, bool *is_error) {
    bool good = false;
    json_fault fault;
    json_value *v = NULL, *number;
    int64_t n = -1;
    if (json_read(line, &json_limits_file, JSON_WIDE_REAL, &v, &fault) == QUIRE_OK) {
        number = json_get(v, "index");
        str id = json_get_str(v, "id");
        if (json_is(number, JSON_KIND_INT)) {
            n = json_int64(number);
            *is_error = json_has(v, "error");
        } else if (json_has(v, "custom_id") && id.n > 0 && sscanf(id.p, "batch_req-%" SCNd64, &n) == 1) {
            *is_error = json_int64(json_get(json_get(v, "response"), "status_code")) != 200;
        }
        good = n >= 0;
        *index = good ? (size_t)n : 0;
    }
    json_drop(v);
    return good;
}

/* Reads a line with its newline, of *n bytes; 0 at the end. Removes an incomplete last
 * line. */
static quire_err batch_part_read_line(batch_part *p, size_t *n, quire_error *err) {
    errno = 0;
    ssize_t length = getline(&p->line, &p->cap, p->file);
    *n = length > 0 && p->line[length - 1] == '\n' ? (size_t)length : 0;
    return length < 0 && !feof(p->file) ? batch_part_failed(p->path.p, err) : QUIRE_OK;
}

quire_err batch_part_next(batch_part *p, size_t *index, bool *is_error, bool *more, quire_error *err) {
    assert(p != NULL);
    off_t before = ftello(p->file);
    size_t n;
    TRY(batch_part_read_line(p, &n, err));
    *more = n > 0;
    if (n > 0) {
        if (!read_response((str){p->line, n - 1}, index, is_error)) {
            return no_response(p, err);
        }
        p->in_order = p->in_order && *index == p->n_read;
        p->n = ++p->n_read;
        return QUIRE_OK;
    }
    /* removes the bytes after the last newline, an incomplete line */
    return fseeko(p->file, before, SEEK_SET) == 0 && ftruncate(fileno(p->file), before) == 0
               ? QUIRE_OK
               : batch_part_failed(p->path.p, err);
}

quire_err batch_part_add(batch_part *p, size_t index, str line, quire_error *err) {
    assert(p != NULL);
    bool good =
        fwrite(line.p, 1, line.n, p->file) == line.n && fputc('\n', p->file) != EOF && fflush(p->file) == 0;
    if (!good) {
        return err_set(err, QUIRE_IO, -1,
                       "--out %s: could not be written: %s; it keeps %zu answers; continue with --resume",
                       p->path.p, strerror(errno), p->n);
    }
    p->in_order = p->in_order && index == p->n;
    p->n++;
    return QUIRE_OK;
}

/* ---- the end ---- */

/* Appends the line at offset `at` to `to`. */
static quire_err copy_line(batch_part *p, off_t at, FILE *to, quire_error *err) {
    size_t n;
    if (fseeko(p->file, at, SEEK_SET) != 0) {
        return batch_part_failed(p->path.p, err);
    }
    TRY(batch_part_read_line(p, &n, err));
    return n > 0 && fwrite(p->line, 1, n, to) == n ? QUIRE_OK : batch_part_failed(p->target.p, err);
}

/* Copies the lines to `to` in the order of their prompts. The offset of a line that comes
 * before its turn is stored, and the line read again later. */
static quire_err copy_in_order(batch_part *p, FILE *to, quire_error *err) {
    /* 1 + offset of the line of prompt i, at i mod BATCH_AHEAD; 0: not read yet */
    off_t places[BATCH_AHEAD] = {0};
    size_t next = 0, index = 0, n;
    bool is_error;
    off_t at = 0;
    for (p->n_read = 0; p->n_read < p->n; p->n_read++) {
        if (fseeko(p->file, at, SEEK_SET) != 0) {
            return batch_part_failed(p->path.p, err);
        }
        TRY(batch_part_read_line(p, &n, err));
        if (n == 0 || !read_response((str){p->line, n - 1}, &index, &is_error) || index < next ||
            index - next >= BATCH_AHEAD) {
            return no_response(p, err);
        }
        places[index % BATCH_AHEAD] = at + 1;
        at += (off_t)n;
        for (off_t *place; *(place = &places[next % BATCH_AHEAD]) > 0; next++) {
            TRY(copy_line(p, *place - 1, to, err));
            *place = 0;
        }
    }
    return next == p->n ? QUIRE_OK : no_response(p, err);
}

/* Writes the responses in order to a new file, which then replaces the part. */
static quire_err batch_part_put_in_order(batch_part *p, quire_error *err) {
    strbuf path = {0};
    FILE *f = NULL;
    quire_err e = strbuf_addf(&path, "%s.sorted", p->path.p) == QUIRE_OK
                      ? QUIRE_OK
                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    if (e == QUIRE_OK && (f = fopen(path.p, "w+b")) == NULL) {
        e = batch_part_failed(path.p, err);
    }
    TRY_DONE(e, copy_in_order(p, f, err));
    if (fflush(f) != 0 || fsync(fileno(f)) != 0) {
        TRY_DONE(e, batch_part_failed(path.p, err));
    }
    take_mode(f, p->path.p);
    e = rename(path.p, p->path.p) == 0 ? QUIRE_OK : batch_part_failed(path.p, err);
done:
    if (f != NULL) {
        (void)fclose(f);
    }
    if (e != QUIRE_OK && path.n > 0) {
        (void)unlink(path.p);
    }
    strbuf_deinit(&path);
    return e;
}

quire_err batch_part_finish(batch_part *p, quire_error *err) {
    assert(p != NULL);
    quire_err e = p->in_order ? (fsync(fileno(p->file)) == 0 ? QUIRE_OK : batch_part_failed(p->path.p, err))
                              : batch_part_put_in_order(p, err);
    if (e == QUIRE_OK && rename(p->path.p, p->target.p) != 0) {
        e = batch_part_failed(p->target.p, err);
    }
    if (e == QUIRE_OK) {
        (void)unlink(p->info.p);
    }
    return e;
}
