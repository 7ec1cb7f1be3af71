#include "kv/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#define BLOCK_BYTES 4096
#define PATH_BYTES  4096
/* pause after a failed write, so that a full disk is not retried at once; doubled each
 * time up to a minute */
#define FIRST_PAUSE_US 1000000
#define LAST_PAUSE_US  60000000

struct kv_file {
    kv_record_shape shape;
    size_t head_bytes;
    kv_dir dir; /* the directory; its slot numbers are those in the files */
    kv_io *io;
    int heads, pages; /* -1: not open */
    uint64_t last_stamp;
    int64_t pause_us, paused_until_us;
};

static int64_t head_at(const kv_file *f, int32_t slot) {
    return BLOCK_BYTES + (int64_t)slot * (int64_t)f->head_bytes;
}

static int64_t page_at(const kv_file *f, int32_t slot) {
    return (int64_t)slot * f->shape.page_bytes;
}

/* ---- the files ---- */

static quire_err tier_file_fail(quire_error *err, const char *path, const char *what) {
    return err_set(err, QUIRE_IO, -1, "%s: %s: %s", path, what, strerror(errno));
}

/* Locks the files for this process, until it ends. */
static quire_err tier_file_lock(int fd, const char *path, quire_error *err) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &l) != 0) {
        return errno == EACCES || errno == EAGAIN
                   ? err_set(err, QUIRE_BUSY, -1,
                             "%s: another process has it; give each process a directory of its own", path)
                   : tier_file_fail(err, path, "cannot be locked");
    }
    return QUIRE_OK;
}

/* Builds the first block of a heads file: shape and version in full, in the form of a
 * record without a page. */
static void describe_files(const kv_file *f, unsigned char *block) {
    int32_t no_tokens[256] = {0};
    kv_record r = {.key = {.tokens = no_tokens}};
    memset(block, 0, BLOCK_BYTES);
    kv_record_write(&f->shape, &r, block);
}

static quire_err tier_file_open_file(const char *dir, uint64_t name, const char *ending, int *fd,
                                     quire_error *err) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/quire-%016llx.%s", dir, (unsigned long long)name, ending) >=
        (int)sizeof path) {
        return err_set(err, QUIRE_INVALID, -1, "%s: the path is too long", dir);
    }
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return *fd >= 0 ? tier_file_lock(*fd, path, err) : tier_file_fail(err, path, "cannot be opened");
}

/* Empties the files if their first block is not right. */
static quire_err check_files(kv_file *f, const char *dir, quire_error *err) {
    unsigned char expected[BLOCK_BYTES], block[BLOCK_BYTES];
    describe_files(f, expected);
    if (pread(f->heads, block, sizeof block, 0) == BLOCK_BYTES &&
        memcmp(block, expected, sizeof block) == 0) {
        return QUIRE_OK;
    }
    if (ftruncate(f->heads, 0) != 0 || ftruncate(f->pages, 0) != 0 ||
        pwrite(f->heads, expected, sizeof expected, 0) != BLOCK_BYTES) {
        return tier_file_fail(err, dir, "cannot be written");
    }
    return QUIRE_OK;
}

static quire_err open_files(kv_file *f, const char *dir, quire_error *err) {
    uint64_t name = kv_record_shape_hash(&f->shape);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        return tier_file_fail(err, dir, "cannot be made");
    }
    TRY(tier_file_open_file(dir, name, "heads", &f->heads, err));
    TRY(tier_file_open_file(dir, name, "pages", &f->pages, err));
    return check_files(f, dir, err);
}

/* ---- adoption ---- */

/* A slot that holds a record, and the record's stamp. */
typedef struct found_slot {
    uint64_t stamp;
    int32_t slot;
} found_slot;

static int by_stamp(const void *x, const void *y) {
    uint64_t a = ((const found_slot *)x)->stamp, b = ((const found_slot *)y)->stamp;
    return (a > b) - (a < b);
}

static bool tier_file_read_head(const kv_file *f, int32_t slot, unsigned char *head, kv_record *r) {
    return pread(f->heads, head, f->head_bytes, (off_t)head_at(f, slot)) == (ssize_t)f->head_bytes &&
           kv_record_read(&f->shape, head, r);
}

/* Sets *n to the number of whole slots that both files have, at most the directory's
 * capacity. Truncates the files after them. */
static quire_err cut_files(const kv_file *f, int32_t *n, const char *dir, quire_error *err) {
    struct stat heads, pages;
    if (fstat(f->heads, &heads) != 0 || fstat(f->pages, &pages) != 0) {
        return tier_file_fail(err, dir, "cannot be read");
    }
    int64_t n_heads = (heads.st_size - BLOCK_BYTES) / (int64_t)f->head_bytes,
            n_pages = pages.st_size / f->shape.page_bytes;
    int64_t least = n_heads < n_pages ? n_heads : n_pages;
    *n = least < f->dir.cap ? (int32_t)least : f->dir.cap;
    if ((n_heads > *n && ftruncate(f->heads, (off_t)head_at(f, *n)) != 0) ||
        (n_pages > *n && ftruncate(f->pages, (off_t)page_at(f, *n)) != 0)) {
        return tier_file_fail(err, dir, "cannot be cut to its size");
    }
    return QUIRE_OK;
}

/* Puts slots 0 .. n - 1 into the directory, in the order of writing. Of records with
 * equal keys the first written is kept. A slot without a record is free. */
static void adopt(kv_file *f, found_slot *found, int32_t n, unsigned char *head) {
    kv_record r;
    for (int32_t i = 0; i < n; i++) {
        int32_t was;
        found[i] = (found_slot){0, kv_dir_take(&f->dir, &was)};
        if (tier_file_read_head(f, found[i].slot, head, &r)) {
            found[i].stamp = r.stamp;
        }
    }
    qsort(found, (size_t)n, sizeof *found, by_stamp);
    for (int32_t i = 0; i < n; i++) {
        int32_t slot = found[i].slot;
        if (!tier_file_read_head(f, slot, head, &r) || kv_dir_find(&f->dir, &r.key) != SLOT_NONE ||
            !kv_dir_fill(&f->dir, slot, &r, slot)) {
            kv_dir_give(&f->dir, slot);
        } else {
            f->last_stamp = r.stamp;
        }
    }
}

static quire_err adopt_all(kv_file *f, const char *dir, quire_error *err) {
    int32_t n;
    TRY(cut_files(f, &n, dir, err));
    found_slot *found = mem_new((size_t)n, sizeof *found);
    unsigned char *head = mem_new(1, f->head_bytes);
    if (found != NULL && head != NULL) {
        adopt(f, found, n, head);
    }
    quire_err e = found != NULL && head != NULL
                      ? QUIRE_OK
                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %d slots of %s", n, dir);
    mem_free(found);
    mem_free(head);
    return e;
}

/* ---- open and close ---- */

static quire_err tier_file_open_parts(kv_file *f, const kv_file_options *o, kv_io_done done,
                                      quire_error *err) {
    int64_t n_slots = (o->bytes - BLOCK_BYTES) / ((int64_t)f->head_bytes + f->shape.page_bytes);
    if (n_slots < 1 || f->head_bytes > BLOCK_BYTES) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s: %lld bytes hold no page of %lld; raise --kv-tier-file-bytes", o->path,
                       (long long)o->bytes, (long long)f->shape.page_bytes);
    }
    n_slots = n_slots < INT32_MAX ? n_slots : INT32_MAX - 1;
    quire_err e = kv_dir_open(&f->dir, (int32_t)n_slots, f->shape.page_tokens, o->hash_bits);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "out of memory for a directory of %lld pages in %s", (long long)n_slots,
                       o->path);
    }
    TRY(open_files(f, o->path, err));
    TRY(adopt_all(f, o->path, err));
    e = kv_io_open(o->way, o->most, o->calls, done, &f->io);
    return err_set(err, e, -1, "the threads that read and write %s could not start", o->path);
}

quire_err kv_file_open(const kv_record_shape *shape, const kv_file_options *o, kv_io_done done, kv_file **out,
                       quire_error *err) {
    *out = NULL;
    kv_file *f = mem_new(1, sizeof *f);
    TRY(mem_check_for(f, "a file tier", err));
    f->shape = *shape;
    f->head_bytes = kv_record_head_bytes(shape);
    f->heads = f->pages = -1;
    quire_err e = tier_file_open_parts(f, o, done, err);
    if (e != QUIRE_OK) {
        kv_file_close(f);
        return e;
    }
    *out = f;
    return QUIRE_OK;
}

void kv_file_close(kv_file *f) {
    if (f == NULL) {
        return;
    }
    kv_io_close(f->io);
    if (f->heads >= 0) {
        close(f->heads);
    }
    if (f->pages >= 0) {
        close(f->pages);
    }
    kv_dir_close(&f->dir);
    mem_free(f);
}

const kv_dir *kv_file_dir(const kv_file *f) {
    return &f->dir;
}

uint64_t kv_file_last_stamp(const kv_file *f) {
    return f->last_stamp;
}

int64_t kv_file_bytes(const kv_file *f) {
    return f->dir.n_filled * ((int64_t)f->head_bytes + f->shape.page_bytes);
}

void kv_file_touch(kv_file *f, int32_t slot) {
    kv_dir_touch(&f->dir, slot);
}

/* ---- transfers ---- */

bool kv_file_write(kv_file *f, int32_t frame, unsigned char *head, unsigned char *body) {
    int32_t was, slot = clock_us() >= f->paused_until_us ? kv_dir_take(&f->dir, &was) : SLOT_NONE;
    if (slot == SLOT_NONE) {
        return false;
    }
    kv_job job = {.kind = KV_JOB_FILE_WRITE,
                  .frame = frame,
                  .slot = slot,
                  .n_parts = 2,
                  .parts = {{f->pages, body, (size_t)f->shape.page_bytes, page_at(f, slot)},
                            {f->heads, head, f->head_bytes, head_at(f, slot)}}};
    if (!kv_io_submit(f->io, &job)) {
        kv_dir_give(&f->dir, slot);
        return false;
    }
    return true;
}

bool kv_file_read(kv_file *f, int32_t slot, int32_t frame, unsigned char *head, unsigned char *body) {
    kv_job job = {.kind = KV_JOB_FILE_READ,
                  .frame = frame,
                  .slot = slot,
                  .n_parts = 1,
                  .parts = {{f->pages, body, (size_t)f->shape.page_bytes, page_at(f, slot)},
                            {-1, head, f->head_bytes, 0}}};
    kv_record r = {.key = kv_dir_key(&f->dir, slot), .sum = f->dir.slots[slot].sum};
    kv_record_write(&f->shape, &r, head);
    if (!kv_io_submit(f->io, &job)) {
        return false;
    }
    kv_dir_pin(&f->dir, slot);
    return true;
}

/* Ends a write: the record can now be found, unless the write failed or an equal record
 * was written before. */
static void finish_write(kv_file *f, const kv_job *job) {
    kv_record r;
    if (job->result == QUIRE_OK) {
        f->pause_us = 0;
    } else {
        f->pause_us = f->pause_us == 0                  ? FIRST_PAUSE_US
                      : f->pause_us < LAST_PAUSE_US / 2 ? 2 * f->pause_us
                                                        : LAST_PAUSE_US;
        f->paused_until_us = clock_us() + f->pause_us;
    }
    if (job->result != QUIRE_OK || !kv_record_read(&f->shape, job->parts[1].p, &r) ||
        kv_dir_find(&f->dir, &r.key) != SLOT_NONE || !kv_dir_fill(&f->dir, job->slot, &r, job->slot)) {
        kv_dir_give(&f->dir, job->slot);
    }
}

static void finish_read(kv_file *f, kv_job *job) {
    kv_dir_unpin(&f->dir, job->slot);
    const kv_io_part *body = &job->parts[0];
    if (job->result == QUIRE_OK && kv_record_sum(body->p, body->n) != f->dir.slots[job->slot].sum) {
        job->result = QUIRE_BAD_FILE;
    }
    if (job->result != QUIRE_OK && f->dir.slots[job->slot].n_pins == 0) {
        kv_dir_drop(&f->dir, job->slot);
    }
}

void kv_file_finish(kv_file *f, kv_job *job) {
    if (job->kind == KV_JOB_FILE_WRITE) {
        finish_write(f, job);
    } else {
        finish_read(f, job);
    }
}
