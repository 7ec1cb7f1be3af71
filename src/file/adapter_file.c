#include "file/adapter_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/adapter_config.h"
#include "file/not_a_model.h"
#include "file/show.h"

#define CONFIG_NAME      "adapter_config.json"
#define TENSORS_NAME     "adapter_model.safetensors"
#define PICKLE_NAME      "adapter_model.bin"
#define MAX_CONFIG_BYTES (8 << 20)
#define MAX_PATH_BYTES   4096

const char *adapter_format_name(adapter_format f) {
    return f == ADAPTER_GGUF ? "GGUF" : "PEFT";
}

/* ---- bytes ---- */

static quire_err adapter_no_memory(const char *path, quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory to read the adapter", path);
}

/* Reads the n bytes of an open file; one that has fewer by now is damaged. */
static quire_err adapter_read_bytes(int fd, const char *path, size_t n, void **out, quire_error *err) {
    char *bytes = mem_new(n + 1, 1);
    size_t at = 0;
    if (bytes == NULL) {
        return adapter_no_memory(path, err);
    }
    while (at < n) {
        const ssize_t got = read(fd, bytes + at, n - at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            const int why = errno;
            mem_free(bytes);
            return got < 0 ? err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(why))
                           : err_set(err, QUIRE_BAD_FILE, -1,
                                     "%s: it was cut while it was read; load it again", path);
        }
        at += (size_t)got;
    }
    *out = bytes;
    return QUIRE_OK;
}

/* Opens a regular file of at most max_bytes, which *n gets. */
static quire_err adapter_open_regular(const char *path, int64_t max_bytes, int *fd, size_t *n,
                                      quire_error *err) {
    struct stat st;
    /* O_NONBLOCK: opening a named pipe must not block */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        const bool absent = errno == ENOENT || errno == ENOTDIR;
        return err_set(err, absent ? QUIRE_NOT_FOUND : QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    }
    quire_err e = QUIRE_OK;
    if (fstat(*fd, &st) != 0) {
        e = err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        e = err_set(err, QUIRE_BAD_FILE, -1, "%s: not a regular file", path);
    } else if (st.st_size > max_bytes) {
        e = err_set(err, QUIRE_TOO_LARGE, -1, "%s: the file has %s bytes, the limit is %s", path,
                    show_count((uint64_t)st.st_size).text, show_count((uint64_t)max_bytes).text);
    }
    if (e != QUIRE_OK) {
        (void)close(*fd);
        return e;
    }
    *n = (size_t)st.st_size;
    return QUIRE_OK;
}

static quire_err adapter_read_whole(const char *path, int64_t max_bytes, void **out, size_t *n,
                                    quire_error *err) {
    int fd;
    TRY(adapter_open_regular(path, max_bytes, &fd, n, err));
    const quire_err e = adapter_read_bytes(fd, path, *n, out, err);
    (void)close(fd);
    return e;
}

/* ---- paths ---- */

/* An adapter's path: whether it is a directory, and which; the file itself otherwise. */
static quire_err adapter_find(const char *path, char out[MAX_PATH_BYTES], bool *is_directory,
                              quire_error *err) {
    static const char *const inside[] = {"/" CONFIG_NAME, "/" TENSORS_NAME, "/" PICKLE_NAME};
    struct stat st;
    size_t n = strlen(path);
    if (n == 0 || n >= MAX_PATH_BYTES - 64) {
        return err_set(err, QUIRE_INVALID, -1, "an adapter's path must have 1 to %d bytes",
                       MAX_PATH_BYTES - 64);
    }
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        n -= str_ends((str){path, n}, inside[i]) ? strlen(inside[i]) : 0;
    }
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    (void)snprintf(out, MAX_PATH_BYTES, "%.*s", n > 0 ? (int)n : 1, path);
    if (stat(out, &st) != 0) {
        const bool absent = errno == ENOENT || errno == ENOTDIR;
        return err_set(err, absent ? QUIRE_NOT_FOUND : QUIRE_IO, -1, "%s: %s", out, strerror(errno));
    }
    *is_directory = S_ISDIR(st.st_mode);
    return QUIRE_OK;
}

/* Why a directory without its config is not an adapter that is read. */
static quire_err adapter_not_here(const char *dir, const char *name, quire_error *err) {
    const foreign is = foreign_of_directory(dir);
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "%s: a directory without %s%s%s; name the directory of a LoRA adapter (PEFT: " CONFIG_NAME
                   " and " TENSORS_NAME ") or a GGUF adapter",
                   dir, name, is.what != NULL ? ", with " : "", is.what != NULL ? is.what : "");
}

/* Reads a directory's config. */
static quire_err adapter_read_config(adapter_file *f, void **text, size_t *n, quire_error *err) {
    char path[MAX_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%.4000s/" CONFIG_NAME, f->path);
    const quire_err e = adapter_read_whole(path, MAX_CONFIG_BYTES, text, n, err);
    if (e == QUIRE_NOT_FOUND) {
        return adapter_not_here(f->path, CONFIG_NAME, err);
    }
    TRY(e);
    f->config_text = *text;
    return adapter_config_read(f, (str){*text, *n}, path, err);
}

/* ---- PEFT ---- */

static quire_err adapter_tensors_missing(const adapter_file *f, quire_error *err) {
    char path[MAX_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%.4000s/" PICKLE_NAME, f->path);
    if (access(path, F_OK) == 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s: a PyTorch pickle, which is a program and never run; save the adapter with "
                       "safe_serialization=True (" TENSORS_NAME ")",
                       path);
    }
    return adapter_not_here(f->path, TENSORS_NAME, err);
}

/* Reads the tensors of f->content, n bytes, and makes the digest of both files. */
static quire_err adapter_parse_peft(adapter_file *f, str config, size_t n, const char *path,
                                    quire_error *err) {
    sha256_sum sum;
    f->facts.n_bytes = (int64_t)n;
    TRY(safetensors_parse(f->content, n, path, 0, &f->tensors, err));
    sha256_begin(&sum);
    /* the length keeps bytes of one file from counting as the other's */
    const uint64_t size = config.n;
    sha256_add(&sum, &size, sizeof size);
    sha256_add(&sum, config.p, config.n);
    sha256_add(&sum, f->content, n);
    sha256_end(&sum, f->digest);
    return QUIRE_OK;
}

static quire_err adapter_open_peft(adapter_file *f, int64_t max_bytes, quire_error *err) {
    char path[MAX_PATH_BYTES];
    void *config;
    size_t n_config, n;
    TRY(adapter_read_config(f, &config, &n_config, err));
    (void)snprintf(path, sizeof path, "%.4000s/" TENSORS_NAME, f->path);
    const quire_err e = adapter_read_whole(path, max_bytes, &f->content, &n, err);
    if (e == QUIRE_NOT_FOUND) {
        return adapter_tensors_missing(f, err);
    }
    TRY(e);
    return adapter_parse_peft(f, (str){config, n_config}, n, path, err);
}

/* ---- GGUF ---- */

/* Reads f->content, n bytes. */
static quire_err adapter_parse_gguf(adapter_file *f, size_t n, bool with_digest, quire_error *err) {
    f->facts.format = ADAPTER_GGUF;
    f->facts.n_bytes = (int64_t)n;
    const str bytes = {f->content, n};
    if (!str_begins(bytes, "GGUF")) {
        const foreign is = foreign_of_content(bytes);
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s: %s%sno adapter: name the directory of a LoRA adapter (PEFT) or a GGUF adapter",
                       f->path, is.what != NULL ? is.what : "", is.what != NULL ? ", " : "");
    }
    TRY(gguf_parse(&f->keys, f->content, n, f->path, 0, &f->tensors, err));
    TRY(adapter_config_read_gguf(f, err));
    if (with_digest) {
        sha256(f->content, n, f->digest);
    }
    return QUIRE_OK;
}

static quire_err adapter_open_gguf(adapter_file *f, int64_t max_bytes, bool with_digest, quire_error *err) {
    size_t n;
    TRY(adapter_read_whole(f->path, max_bytes, &f->content, &n, err));
    return adapter_parse_gguf(f, n, with_digest, err);
}

/* ---- opening ---- */

static void adapter_file_deinit(adapter_file *f) {
    for (int32_t i = 0; i < f->n_parameters; i++) {
        mem_free(f->parameters[i]);
    }
    mem_free(f->parameters);
    mem_free(f->invocation);
    mem_free(f->invocation_text);
    adapter_patterns_deinit(&f->ranks);
    adapter_patterns_deinit(&f->alphas);
    tensor_dir_deinit(&f->tensors);
    gguf_deinit(&f->keys);
    mem_free(f->content);
    mem_free(f->config_text);
}

void adapter_file_close(adapter_file *f) {
    if (f != NULL) {
        adapter_file_deinit(f);
        mem_free(f->path);
        mem_free(f);
    }
}

static quire_err adapter_new_file(const char *path, adapter_file **out, quire_error *err) {
    adapter_file *f = mem_new(1, sizeof *f);
    if (f == NULL || (f->path = mem_dup(path, strlen(path))) == NULL) {
        mem_free(f);
        return adapter_no_memory(path, err);
    }
    *out = f;
    return QUIRE_OK;
}

/* Completes what was read, or frees it. */
static quire_err adapter_finish(adapter_file *f, quire_err e, adapter_file **out, quire_error *err) {
    e = e ? e : tensor_dir_finish(&f->tensors, f->path, err);
    if (e == QUIRE_OK && f->tensors.n == 0 && f->tensors.n_unread == 0) {
        e = err_set(err, QUIRE_BAD_FILE, -1, "%s: the adapter has no tensors; save it again", f->path);
    }
    if (e != QUIRE_OK) {
        adapter_file_close(f);
        return e;
    }
    *out = f;
    return QUIRE_OK;
}

quire_err adapter_file_open(const char *path, int64_t max_bytes, adapter_file **out, quire_error *err) {
    char own[MAX_PATH_BYTES];
    bool is_directory;
    adapter_file *f;
    TRY(adapter_find(path, own, &is_directory, err));
    TRY(adapter_new_file(own, &f, err));
    const quire_err e =
        is_directory ? adapter_open_peft(f, max_bytes, err) : adapter_open_gguf(f, max_bytes, true, err);
    return adapter_finish(f, e, out, err);
}

quire_err adapter_file_open_memory(str config, str content, const char *name, adapter_file **out,
                                   quire_error *err) {
    adapter_file *f;
    TRY(adapter_new_file(name, &f, err));
    f->content = mem_dup(content.p, content.n);
    f->config_text = config.p != NULL ? mem_dup(config.p, config.n) : NULL;
    if (f->content == NULL || (config.p != NULL && f->config_text == NULL)) {
        adapter_file_close(f);
        return adapter_no_memory(name, err);
    }
    config.p = f->config_text;
    quire_err e = config.p != NULL ? adapter_config_read(f, config, name, err)
                                   : adapter_parse_gguf(f, content.n, true, err);
    e = e || config.p == NULL ? e : adapter_parse_peft(f, config, content.n, name, err);
    return adapter_finish(f, e, out, err);
}

quire_err adapter_facts_read(const char *path, int64_t max_bytes, adapter_facts *out, quire_error *err) {
    char own[MAX_PATH_BYTES], tensors[MAX_PATH_BYTES];
    adapter_file f = {.path = own};
    bool is_directory;
    void *text;
    size_t n;
    struct stat st;
    TRY(adapter_find(path, own, &is_directory, err));
    quire_err e =
        is_directory ? adapter_read_config(&f, &text, &n, err) : adapter_open_gguf(&f, max_bytes, false, err);
    (void)snprintf(tensors, sizeof tensors, "%.4000s/" TENSORS_NAME, own);
    if (e == QUIRE_OK && is_directory) {
        e = stat(tensors, &st) == 0 ? QUIRE_OK : adapter_tensors_missing(&f, err);
        f.facts.n_bytes = e == QUIRE_OK ? (int64_t)st.st_size : 0;
    }
    if (e == QUIRE_OK) {
        *out = f.facts;
    }
    adapter_file_deinit(&f);
    return e;
}

/* ---- scales ---- */

quire_err adapter_file_scale(const adapter_file *f, str module, int64_t rank, float *out, quire_error *err) {
    assert(f != NULL);
    double r = (double)f->rank, alpha = f->alpha;
    if (f->facts.format == ADAPTER_GGUF) {
        *out = alpha != 0.0 ? (float)(alpha / (double)rank) : 1.0f;
        return QUIRE_OK;
    }
    (void)adapter_patterns_find(&f->ranks, module, &r);
    (void)adapter_patterns_find(&f->alphas, module, &alpha);
    if (r != (double)rank) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: module %s has rank %s, and " CONFIG_NAME
                       " says %g: its files are of different adapters, or rank_pattern lacks the module",
                       f->path, show_name(module).text, show_count((uint64_t)rank).text, r);
    }
    const double scale = f->by_root ? alpha / sqrt(r) : alpha / r;
    *out = (float)scale;
    return QUIRE_OK;
}
