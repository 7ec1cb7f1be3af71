#include "hub/hub_fetch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/show.h"

#define READ_BYTES ((size_t)1 << 20)
#define PART       ".incomplete" /* huggingface_hub has used this name, too */

/* A blob that is being written. The sink is its first member. */
typedef struct fetch {
    hub_sink sink;
    const hub_file *file;
    hub_meter *meter;
    const char *repo;
    strbuf path, part;
    hub_digest digest;
    int fd, lock;
} fetch;

static bool stat_blob(const hub_repo *r, const hub_file *f, const char *suffix, struct stat *st) {
    strbuf path = {0};
    bool there = hub_repo_blob(r, f->id, suffix, &path, NULL) == QUIRE_OK && lstat(path.p, st) == 0 &&
                 S_ISREG(st->st_mode);
    strbuf_deinit(&path);
    return there;
}

bool hub_blob_is_there(const hub_repo *r, const hub_file *f) {
    struct stat st;
    return stat_blob(r, f, "", &st) && (int64_t)st.st_size == f->n_bytes;
}

int64_t hub_blob_begun(const hub_repo *r, const hub_file *f) {
    struct stat st;
    return stat_blob(r, f, PART, &st) && (int64_t)st.st_size <= f->n_bytes ? (int64_t)st.st_size : 0;
}

static quire_err hub_fetch_failed(const fetch *x, const char *what, quire_error *err) {
    return err_set(err, errno == ENOSPC || errno == EDQUOT ? QUIRE_NO_ROOM : QUIRE_IO, -1, "%s: %s: %s%s",
                   x->part.p, what, strerror(errno),
                   errno == ENOSPC || errno == EDQUOT ? "; make room (quire list, quire rm) and pull again"
                                                      : "");
}

/* ---- the sink ---- */

static quire_err restart(hub_sink *s, quire_error *err) {
    fetch *x = (fetch *)s;
    (void)atomic_fetch_sub(&x->meter->bytes, s->at);
    s->at = 0;
    s->is_joined = false;
    if (ftruncate(x->fd, 0) != 0 || lseek(x->fd, 0, SEEK_SET) != 0) {
        return hub_fetch_failed(x, "could not be emptied", err);
    }
    quire_err e = hub_digest_begin(&x->digest, x->file->id, x->file->n_bytes);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: no hash could be begun", x->part.p);
}

static quire_err hash(fetch *x, const void *p, size_t n, quire_error *err) {
    quire_err e = hub_digest_add(&x->digest, p, n);
    x->sink.at += (int64_t)n;
    (void)atomic_fetch_add(&x->meter->bytes, (int64_t)n);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: its hash failed", x->part.p);
}

static quire_err hub_fetch_add(hub_sink *s, const void *p, size_t n, quire_error *err) {
    fetch *x = (fetch *)s;
    for (size_t done = 0; done < n;) {
        ssize_t k = write(x->fd, (const char *)p + done, n - done);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return hub_fetch_failed(x, "could not be written", err);
        }
        TRY(hash(x, (const char *)p + done, (size_t)k, err));
        (void)atomic_fetch_add(&x->meter->fetched, (int64_t)k);
        done += (size_t)k;
    }
    return QUIRE_OK;
}

/* ---- the blob ---- */

/* Waits for the blob's lock. */
static quire_err take_lock(fetch *x, const hub_repo *r, quire_error *err) {
    const struct timespec tick = {.tv_nsec = 50000000};
    quire_err e = hub_lock(r, x->file->id, HUB_LOCK_EXCLUSIVE, &x->lock, err);
    if (e != QUIRE_BUSY) {
        return e;
    }
    (void)atomic_fetch_add(&x->meter->n_waiting, 1);
    while (e == QUIRE_BUSY && !atomic_load(&x->meter->stop)) {
        (void)nanosleep(&tick, NULL);
        e = hub_lock(r, x->file->id, HUB_LOCK_EXCLUSIVE, &x->lock, err);
    }
    (void)atomic_fetch_sub(&x->meter->n_waiting, 1);
    return e == QUIRE_BUSY ? QUIRE_CANCELLED : e;
}

/* Opens the part that was fetched before, hashes it, and moves to its end. */
static quire_err open_part(fetch *x, quire_error *err) {
    struct stat st;
    x->fd = open(x->part.p, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (x->fd < 0 || fstat(x->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        errno = x->fd >= 0 ? EEXIST : errno;
        return hub_fetch_failed(x, "could not be opened", err);
    }
    if ((int64_t)st.st_size > x->file->n_bytes) {
        return restart(&x->sink, err);
    }
    char *piece = mem_new(READ_BYTES, 1);
    quire_err e = mem_check_for(piece, "a piece of a file", err);
    TRY_DONE(e, hub_digest_begin(&x->digest, x->file->id, x->file->n_bytes));
    while (x->sink.at < (int64_t)st.st_size) {
        ssize_t n = read(x->fd, piece, READ_BYTES);
        TRY_DONE(e, n > 0 ? hash(x, piece, (size_t)n, err) : hub_fetch_failed(x, "could not be read", err));
        TRY_DONE(e, atomic_load(&x->meter->stop) ? QUIRE_CANCELLED : QUIRE_OK);
    }
done:
    mem_free(piece);
    return e;
}

/* Gives the blob its name if that is its hash. BAD_FILE, without a message, if not. */
static quire_err prove(fetch *x, quire_error *err) {
    char found[HUB_DIGEST_BYTES];
    struct stat st; /* where locks do not work, another process may have cut it */
    quire_err e = hub_digest_end(&x->digest, found);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%s: its hash failed", x->part.p);
    }
    if (strcmp(found, x->file->id) != 0 || fstat(x->fd, &st) != 0 ||
        (int64_t)st.st_size != x->file->n_bytes) {
        return QUIRE_BAD_FILE;
    }
    if (fdatasync(x->fd) != 0 || rename(x->part.p, x->path.p) != 0) {
        return hub_fetch_failed(x, "could not be put in place", err);
    }
    return QUIRE_OK;
}

/* The path of a request for the file. */
quire_err hub_address(const char *repo, const char *commit, const hub_file *f, strbuf *out,
                      quire_error *err) {
    quire_err e = strbuf_addf(out, "/%s/resolve/%s/", repo, commit);
    TRY_DONE(e, hub_escape(str_of(f->path), true, out));
done:
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: out of memory", f->path);
}

/* Fetches the missing part and verifies the whole file. If a file that came in several
 * pieces fails, it is fetched once more from the start. */
static quire_err get(fetch *x, hub_client *c, const char *path, quire_error *err) {
    const hub_target t = {x->repo, x->file->path, path, x->file->id, x->file->n_bytes};
    for (bool again = false;; again = true) {
        x->sink.is_joined = x->sink.at > 0;
        if (x->sink.at < x->file->n_bytes) {
            TRY(hub_client_get(c, &t, &x->sink, err));
        }
        quire_err e = prove(x, err);
        if (e != QUIRE_BAD_FILE) {
            return e;
        }
        bool is_joined = x->sink.is_joined;
        TRY(restart(&x->sink, err));
        if (again || !is_joined) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "%s: what came as %s does not have the hash that the hub lists (%.12s..); it was "
                           "dropped: pull "
                           "again, and if that fails too, the hub's copy is damaged",
                           x->repo, show_name(str_of(x->file->path)).text, x->file->id);
        }
    }
}

static quire_err hub_fetch_run(fetch *x, hub_client *c, const hub_repo *r, const char *commit,
                               quire_error *err) {
    TRY(take_lock(x, r, err));
    if (hub_blob_is_there(r, x->file)) { /* another process was first */
        (void)atomic_fetch_add(&x->meter->bytes, x->file->n_bytes);
        return QUIRE_OK;
    }
    TRY(open_part(x, err));
    strbuf path = {0};
    quire_err e = hub_address(x->repo, commit, x->file, &path, err);
    TRY_DONE(e, get(x, c, path.p, err));
done:
    strbuf_deinit(&path);
    return e;
}

quire_err hub_fetch(hub_client *c, const hub_repo *r, const char *repo, const char *commit, const hub_file *f,
                    hub_meter *m, quire_error *err) {
    fetch x = {.sink = {.keeps = true, .restart = restart, .add = hub_fetch_add},
               .file = f,
               .meter = m,
               .repo = repo,
               .fd = -1,
               .lock = -1};
    quire_err e = hub_repo_blob(r, f->id, "", &x.path, err);
    TRY_DONE(e, hub_repo_blob(r, f->id, PART, &x.part, err));
    TRY_DONE(e, hub_fetch_run(&x, c, r, commit, err));
done:
    if (x.fd >= 0) {
        if (e != QUIRE_OK && x.sink.at == 0) {
            (void)unlink(x.part.p); /* nothing came; the lock is still held */
        }
        (void)close(x.fd);
    }
    hub_unlock(x.lock);
    hub_digest_deinit(&x.digest);
    strbuf_deinit(&x.path);
    strbuf_deinit(&x.part);
    if (e == QUIRE_OK) {
        (void)atomic_fetch_add(&m->n_files, 1);
    }
    return e;
}

quire_err hub_digest_begin(hub_digest *d, const char *id, int64_t n_bytes) {
    assert(d != NULL);
    d->context = d->context != NULL ? d->context : EVP_MD_CTX_new();
    d->is_sha1 = strlen(id) == 40;
    if (d->context == NULL ||
        EVP_DigestInit_ex(d->context, d->is_sha1 ? EVP_sha1() : EVP_sha256(), NULL) != 1) {
        return QUIRE_NO_MEMORY;
    }
    char head[32]; /* git hashes "blob SIZE", a 0 byte and the content */
    int n = snprintf(head, sizeof head, "blob %lld", (long long)n_bytes);
    return d->is_sha1 ? hub_digest_add(d, head, (size_t)n + 1) : QUIRE_OK;
}

quire_err hub_digest_add(hub_digest *d, const void *p, size_t n) {
    assert(d != NULL);
    return EVP_DigestUpdate(d->context, p, n) == 1 ? QUIRE_OK : QUIRE_INTERNAL;
}

quire_err hub_digest_end(hub_digest *d, char out[HUB_DIGEST_BYTES]) {
    assert(d != NULL);
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (EVP_DigestFinal_ex(d->context, bytes, &n) != 1 || n > (HUB_DIGEST_BYTES - 1) / 2) {
        return QUIRE_INTERNAL;
    }
    for (unsigned int i = 0; i < n; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
    return QUIRE_OK;
}

void hub_digest_deinit(hub_digest *d) {
    assert(d != NULL);
    EVP_MD_CTX_free(d->context);
    d->context = NULL;
}
