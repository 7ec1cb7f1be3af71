#include "cli/batch_input.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files.h"

static bool is_regular(FILE *f) {
    struct stat s;
    return fstat(fileno(f), &s) == 0 && S_ISREG(s.st_mode);
}

/* Opens a new file without a name. */
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

/* Copies the rest of `from`. */
static quire_err copy_all(batch_input *in, FILE *from, quire_error *err) {
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, from)) > 0) {
        if (fwrite(block, 1, n, in->file) != n) {
            return err_set(err, QUIRE_IO, -1, "%s: its copy: %s", in->path, strerror(errno));
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
                           : err_set(err, QUIRE_IO, -1, "%s: its copy beside %s: %s", in->path,
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

/* The first reading. */
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
