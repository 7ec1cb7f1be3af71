/* The file tier: survives its process, gives back no byte that was not written, and a
 * disk that fails costs reuse only. */
#define _GNU_SOURCE /* RLIMIT_FSIZE's signal, nftw */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "test.h"
#include "tier_world.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* several to many times as slow */
enum { SLOWER = 8 };
#else
enum { SLOWER = 1 };
#endif

static char directory[64];

/* ---- the directory ---- */

/* The path of the file that ends so; "" when there is none. */
static const char *find_file(const char *ending) {
    static char path[400];
    DIR *d = opendir(directory);
    path[0] = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        size_t n = strlen(e->d_name), k = strlen(ending);
        if (n > k && strcmp(e->d_name + n - k, ending) == 0) {
            snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
    return path;
}

static void empty_directory(void) {
    for (int i = 0; i < 2; i++) {
        while (find_file(i ? ".pages" : ".heads")[0] != 0) {
            assert_int_equal(unlink(find_file(i ? ".pages" : ".heads")), 0);
        }
    }
}

static int64_t size_of(const char *ending) {
    struct stat st;
    return stat(find_file(ending), &st) == 0 ? st.st_size : 0;
}

/* ---- tiers over it ---- */

typedef struct way {
    kv_io_way way;
    const kv_io_calls *calls;
    int32_t n_host, hash_bits;
} way;

static kv_tiers *open_file(const way *w, int32_t n_pages) {
    kv_tiers *t;
    quire_error err = {.message = ""};
    kv_tiers_options o = {.shape = shape,
                          .host_bytes = w->n_host * record_bytes(),
                          .hash_bits = w->hash_bits,
                          .file_path = directory,
                          .file_bytes = 4096 + n_pages * record_bytes(),
                          .file_way = w->way,
                          .file_calls = w->calls};
    if (kv_tiers_open(&o, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return t;
}

static quire_tier_stats file_stats(const kv_tiers *t) {
    quire_tier_stats s[KV_N_TIERS];
    kv_tiers_stats(t, s);
    return s[KV_TIER_FILE];
}

static bool has_uring(void) {
    kv_io *io;
    ring *r;
    assert_int_equal(ring_open(sizeof(kv_job), 2, &r), QUIRE_OK);
    bool has = kv_io_open(KV_IO_URING, 2, NULL, (kv_io_done){.ring = r}, &io) == QUIRE_OK;
    if (has) {
        kv_io_close(io);
    } else {
        print_message("SKIP: io_uring is not allowed here\n");
    }
    ring_close(r);
    return has;
}

/* Calls f with every way to transfer that there is here. */
static void each_way(void (*f)(const way *w)) {
    f(&(way){.way = KV_IO_THREADS});
    if (has_uring()) {
        f(&(way){.way = KV_IO_URING});
    }
    empty_directory();
}

/* Follows every prefix from its beginning, as a new process does. Each page found is the
 * right one. Returns how many were. */
static int32_t walk_all(kv_tiers *t) {
    int32_t n_found = 0;
    unsigned char expected[PAGE_BYTES];
    for (int32_t i = 0; i < N_NAMESPACES * N_GROUPS * (1 << MAX_DEPTH); i++) {
        prefix p = {.namespace = i % N_NAMESPACES, .group = i / N_NAMESPACES % N_GROUPS};
        for (int32_t k = 0; k < MAX_DEPTH; k++) {
            p.tokens[k * PAGE_TOKENS] = i / (N_NAMESPACES * N_GROUPS) >> k & 1;
        }
        for (p.n_pages = 1; p.n_pages <= MAX_DEPTH; p.n_pages++) {
            kv_tier_key key = key_of(&p);
            int32_t frame;
            if (kv_tiers_fetch(t, &key, &frame) != KV_FETCH_STARTED) {
                break;
            }
            settle(t);
            const void *body = kv_tiers_take(t, frame);
            if (body != NULL) {
                content(&p, expected);
                assert_memory_equal(body, expected, PAGE_BYTES);
            }
            kv_tiers_release(t, frame);
            if (body == NULL) {
                break;
            }
            n_found++;
        }
    }
    return n_found;
}

/* All prefixes, whole chains first. */
static void put_all(kv_tiers *t) {
    for (int32_t i = 0; i < N_NAMESPACES * N_GROUPS * (1 << MAX_DEPTH); i++) {
        prefix p = {.namespace = i % N_NAMESPACES, .group = i / N_NAMESPACES % N_GROUPS};
        for (int32_t k = 0; k < MAX_DEPTH; k++) {
            p.tokens[k * PAGE_TOKENS] = i / (N_NAMESPACES * N_GROUPS) >> k & 1;
        }
        for (p.n_pages = 1; p.n_pages <= MAX_DEPTH; p.n_pages++) {
            put(t, &p);
            settle(t);
        }
    }
}

enum {
    ALL = N_NAMESPACES * N_GROUPS * (2 + 4 + 8 + 16),
    WALKED = N_NAMESPACES * N_GROUPS * (1 << MAX_DEPTH) * MAX_DEPTH
};

/* ---- ---- */

static void random_pages(const way *w) {
    static const int32_t sizes[] = {1, 7, 100};
    for (int s = 0; s < 3; s++) {
        empty_directory();
        kv_tiers *t = open_file(w, sizes[s]);
        int32_t n_got = 0;
        for (int32_t i = 0; i < 3000 / SLOWER; i++) {
            prefix p = random_prefix();
            if (below(2) == 0) {
                put(t, &p);
                if (below(2) == 0) {
                    settle(t);
                }
            } else {
                n_got += get(t, &p);
            }
        }
        settle(t);
        quire_tier_stats st = file_stats(t);
        assert_true(n_got > 0 || sizes[s] == 1);
        assert_int_equal(st.errors, 0);
        assert_true(w->n_host > 0 || st.hits == n_got);
        kv_tiers_close(t);
        assert_true(size_of(".heads") + size_of(".pages") <= 4096 + sizes[s] * record_bytes());
    }
}

TEST(pages_come_back_as_they_were_put_in_the_file) {
    each_way(random_pages);
    random_pages(&(way){.way = KV_IO_AUTO, .n_host = 10});
    random_pages(&(way){.way = KV_IO_AUTO, .hash_bits = 1});
    empty_directory();
}

static void reopened(const way *w) {
    empty_directory();
    kv_tiers *t = open_file(w, 1000);
    put_all(t);
    kv_tiers_close(t);
    for (int i = 0; i < 2; i++) {
        t = open_file(w, 1000);
        assert_int_equal(file_stats(t).bytes, ALL * record_bytes());
        assert_int_equal(walk_all(t), WALKED);
        assert_int_equal(file_stats(t).errors, 0);
        kv_tiers_close(t);
    }
    t = open_file(w, 20); /* the cap has shrunk */
    assert_int_equal(file_stats(t).bytes, 20 * record_bytes());
    assert_true(walk_all(t) > 0);
    kv_tiers_close(t);
    assert_true(size_of(".heads") + size_of(".pages") <= 4096 + 20 * record_bytes());
    t = open_file(w, 1000);
    put_all(t);
    assert_int_equal(walk_all(t), WALKED);
    kv_tiers_close(t);
}

TEST(the_next_start_adopts_the_file) {
    each_way(reopened);
}

TEST(what_was_written_last_is_forgotten_last_after_a_start) {
    const way w = {.way = KV_IO_AUTO};
    kv_tiers *t = open_file(&w, 3);
    prefix p[4] = {0};
    for (int32_t i = 0; i < 4; i++) {
        p[i].n_pages = 1;
        p[i].tokens[0] = i;
        put(t, &p[i]);
        settle(t);
    }
    kv_tiers_close(t); /* slots hold 3, 1, 2 */
    t = open_file(&w, 3);
    assert_false(get(t, &p[0]));
    put(t, &p[0]); /* takes the place of 1 */
    settle(t);
    assert_true(get(t, &p[0]) && get(t, &p[2]) && get(t, &p[3]));
    assert_false(get(t, &p[1]));
    kv_tiers_close(t);
    empty_directory();
}

/* A page that stays in the pool goes to the file alone; when it leaves, to host memory,
 * and is not written again. */
TEST(what_is_written_through_takes_no_host_memory_until_it_leaves_the_pool) {
    kv_tiers *t = open_file(&(way){.way = KV_IO_AUTO, .n_host = 10}, 10);
    quire_tier_stats s[KV_N_TIERS];
    prefix p = {.n_pages = 1};
    kv_tier_key key = key_of(&p);
    int32_t frame;
    void *body = kv_tiers_put_begin(t, &key, KV_PUT_KEPT, &frame);
    assert_non_null(body);
    content(&p, body);
    kv_tiers_put_end(t, frame);
    settle(t);
    kv_tiers_stats(t, s);
    assert_true(s[KV_TIER_HOST].puts == 0 && s[KV_TIER_HOST].bytes == 0 && s[KV_TIER_FILE].puts == 1);
    assert_null(kv_tiers_put_begin(t, &key, KV_PUT_KEPT, &frame)); /* it is there */
    check(t);
    assert_true(put(t, &p));
    settle(t);
    kv_tiers_stats(t, s);
    assert_true(s[KV_TIER_HOST].puts == 1 && s[KV_TIER_FILE].puts == 1);
    assert_true(get(t, &p));
    kv_tiers_close(t);
    empty_directory();
}

TEST(another_version_is_kept_out_and_kept) {
    const way w = {.way = KV_IO_AUTO};
    kv_tiers *t = open_file(&w, 1000), *u;
    put_all(t);
    kv_tiers_close(t);
    kv_tiers_options o = {.shape = shape, .file_path = directory, .file_bytes = 4096 + 1000 * record_bytes()};
    quire_error err;
    o.shape.version = "model 2, f32";
    assert_int_equal(kv_tiers_open(&o, &u, &err), QUIRE_OK);
    assert_int_equal(walk_all(u), 0);
    kv_tiers_close(u);
    t = open_file(&w, 1000);
    assert_int_equal(walk_all(t), WALKED);
    kv_tiers_close(t);
    empty_directory();
}

TEST(a_second_process_is_told_that_the_file_is_taken) {
    kv_tiers *t = open_file(&(way){.way = KV_IO_AUTO}, 10), *u;
    kv_tiers_options o = {.shape = shape, .file_path = directory, .file_bytes = 1 << 20};
    pid_t child = fork();
    if (child == 0) {
        quire_error err;
        quire_err e = kv_tiers_open(&o, &u, &err);
        _exit(e == QUIRE_BUSY && u == NULL && strstr(err.message, "another process") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    kv_tiers_close(t);
    empty_directory();
}

TEST(a_directory_that_cannot_be_is_an_error_at_open) {
    kv_tiers *t;
    quire_error err = {.message = ""};
    kv_tiers_options o = {.shape = shape, .file_path = "/proc/no/such", .file_bytes = 1 << 20};
    assert_int_equal(kv_tiers_open(&o, &t, &err), QUIRE_IO);
    assert_non_null(strstr(err.message, "/proc/no/such"));
    o.file_path = directory;
    o.file_bytes = 4096 + record_bytes() - 1;
    assert_int_equal(kv_tiers_open(&o, &t, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "--kv-tier-file-bytes"));
}

/* ---- damage ---- */

/* Three records of one chain and one of another. */
static void write_few(void) {
    empty_directory();
    kv_tiers *t = open_file(&(way){.way = KV_IO_THREADS}, 10);
    prefix p = {.n_pages = 1}, q = {.namespace = 1, .n_pages = 1};
    for (; p.n_pages <= 3; p.n_pages++) {
        put(t, &p);
    }
    put(t, &q);
    settle(t);
    kv_tiers_close(t);
}

static unsigned char *read_whole(const char *path, size_t *n) {
    int fd = open(path, O_RDONLY);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    unsigned char *p = mem_new(1, (size_t)st.st_size);
    *n = (size_t)st.st_size;
    assert_int_equal(read(fd, p, *n), *n);
    close(fd);
    return p;
}

static void write_whole(const char *path, const unsigned char *p, size_t n) {
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    close(fd);
}

static int32_t walk_file(void) {
    kv_tiers *t = open_file(&(way){.way = KV_IO_THREADS}, 10);
    int32_t n = walk_all(t);
    settle(t);
    kv_tiers_close(t);
    return n;
}

/* Every 13th byte, with QUIRE_TEST_LONG every one of the pages and every fifth of the
 * heads. */
TEST(any_byte_changed_costs_a_page_and_gives_none_that_is_wrong) {
    write_few();
    size_t n[2];
    char paths[2][400];
    unsigned char *whole[2];
    int32_t all = walk_file(), n_lost = 0, n_changed = 0;
    for (int f = 0; f < 2; f++) {
        snprintf(paths[f], sizeof paths[f], "%s", find_file(f ? ".pages" : ".heads"));
        whole[f] = read_whole(paths[f], &n[f]);
    }
    for (int f = 0; f < 2; f++) {
        size_t step =
            /* odd, so that it comes by every field's bytes */
            getenv("QUIRE_TEST_LONG") ? (f == 0 ? 3 : 1) * (size_t)SLOWER * 2 - 1 : 13;
        for (size_t i = 0; i < n[f]; i += step) {
            unsigned char was = whole[f][i];
            whole[f][i] ^= (unsigned char)(1 << below(8));
            write_whole(paths[f], whole[f], n[f]);
            write_whole(paths[1 - f], whole[1 - f], n[1 - f]);
            int32_t found = walk_file();
            assert_true(found < all);
            n_lost += all - found;
            n_changed++;
            whole[f][i] = was;
        }
    }
    assert_true(n_changed > (getenv("QUIRE_TEST_LONG") ? 500 / SLOWER : 50) && n_lost >= n_changed);
    mem_free(whole[0]);
    mem_free(whole[1]);
    empty_directory();
}

TEST(a_file_cut_short_anywhere_loses_what_was_cut) {
    write_few();
    int32_t all = walk_file();
    for (int f = 0; f < 2; f++) {
        for (int64_t cut = 1; cut < size_of(f ? ".pages" : ".heads"); cut += 37 * SLOWER) {
            write_few();
            const char *path = find_file(f ? ".pages" : ".heads");
            assert_int_equal(truncate(path, size_of(f ? ".pages" : ".heads") - cut), 0);
            assert_true(walk_file() < all);
        }
    }
    empty_directory();
}

/* While it is open: what is read then is found out by its checksum, or is not there. */
static void cut_while_open(const way *w) {
    empty_directory();
    kv_tiers *t = open_file(w, 1000);
    put_all(t);
    assert_int_equal(truncate(find_file(".pages"), 100 * PAGE_BYTES), 0);
    assert_true(walk_all(t) < WALKED);
    quire_tier_stats s = file_stats(t);
    assert_true(s.errors > 0 && s.misses >= s.errors && s.bytes < ALL * record_bytes());
    for (int i = 0; i < MAX_DEPTH; i++) { /* and it goes on: each walk finds out one page more of a chain */
        put_all(t);
        walk_all(t);
    }
    put_all(t);
    assert_int_equal(walk_all(t), WALKED);
    kv_tiers_close(t);
}

TEST(a_file_cut_short_while_it_is_open_is_missed_and_written_again) {
    each_way(cut_while_open);
}

/* ---- a disk that fails ---- */

static _Atomic int writes_left; /* until the disk is full */

static ssize_t full_pwrite(int fd, const void *p, size_t n, off_t at) {
    if (writes_left-- <= 0) {
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, p, n, at);
}

static ssize_t odd_pread(int fd, void *p, size_t n, off_t at) {
    static _Atomic unsigned turn;
    if (turn++ % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return pread(fd, p, n > 50 ? 50 : n, at);
}

static ssize_t odd_pwrite(int fd, const void *p, size_t n, off_t at) {
    static _Atomic unsigned turn;
    if (turn++ % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return pwrite(fd, p, n > 50 ? 50 : n, at);
}

static ssize_t bad_pread(int fd, void *p, size_t n, off_t at) {
    (void)fd, (void)p, (void)n, (void)at;
    errno = EIO;
    return -1;
}

TEST(a_full_disk_costs_what_did_not_fit) {
    static const kv_io_calls calls = {pread, full_pwrite};
    for (int n = 0; n < 12; n++) {
        empty_directory();
        writes_left = n;
        kv_tiers *t = open_file(&(way){.way = KV_IO_THREADS, .calls = &calls}, 1000);
        prefix p = {.n_pages = 1};
        for (; p.n_pages <= MAX_DEPTH; p.n_pages++) {
            put(t, &p);
            settle(t);
        }
        quire_tier_stats s = file_stats(t);
        assert_int_equal(s.puts, n / 2 < MAX_DEPTH ? n / 2 : MAX_DEPTH);
        assert_int_equal(s.errors, n < 2 * MAX_DEPTH);
        /* after a failure it is left alone for a while */
        assert_int_equal(s.puts + s.errors + s.dropped, MAX_DEPTH);
        int32_t found = walk_all(t);
        assert_int_equal(found, s.puts == 0 ? 0 : walk_file());
        kv_tiers_close(t);
        assert_int_equal(walk_file(), found);
    }
    empty_directory();
}

TEST(transfers_that_are_interrupted_go_on) {
    static const kv_io_calls calls = {odd_pread, odd_pwrite};
    kv_tiers *t = open_file(&(way){.way = KV_IO_THREADS, .calls = &calls}, 1000);
    put_all(t);
    assert_int_equal(walk_all(t), WALKED);
    assert_int_equal(file_stats(t).errors, 0);
    kv_tiers_close(t);
    empty_directory();
}

TEST(a_disk_that_cannot_be_read_is_a_miss) {
    static const kv_io_calls calls = {bad_pread, pwrite};
    kv_tiers *t = open_file(&(way){.way = KV_IO_THREADS, .calls = &calls}, 1000);
    prefix p = {.n_pages = 1};
    put(t, &p);
    settle(t);
    assert_false(get(t, &p));
    assert_int_equal(file_stats(t).errors, 1);
    assert_int_equal(file_stats(t).bytes, 0);
    kv_tiers_close(t);
    empty_directory();
}

/* A limit on the size of files, which the kernel enforces on both ways. */
static void limited(const way *w) {
    struct rlimit was, small;
    empty_directory();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, SIG_IGN);
    kv_tiers *t = open_file(w, 1000);
    small = was;
    small.rlim_cur = 20 * PAGE_BYTES + 50;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 100; i++) {
        prefix p = random_prefix();
        put(t, &p);
    }
    settle(t);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_true(file_stats(t).errors > 0);
    walk_all(t);
    kv_tiers_close(t);
    t = open_file(w, 1000);
    walk_all(t);
    kv_tiers_close(t);
}

TEST(a_limit_of_the_system_is_a_full_disk) {
    each_way(limited);
}

/* ---- death ---- */

/* A child writes until it is killed, and counts what it has put. */
static void write_for_ever(const way *w, atomic_int *n_put) {
    kv_tiers *t = open_file(w, 40); /* far less than there is: slots are overwritten all the time */
    for (;;) {
        prefix p = random_prefix();
        for (int32_t n = p.n_pages, i = 1; i <= n; i++) {
            p.n_pages = i;
            put(t, &p);
            kv_tiers_poll(t);
            atomic_fetch_add(n_put, 1);
        }
    }
}

static void killed(const way *w) {
    int32_t n_found = 0;
    atomic_int *n_put = mmap(NULL, sizeof *n_put, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(n_put != MAP_FAILED);
    empty_directory();
    for (int i = 0; i < 40 / SLOWER; i++) {
        int32_t most = below(200), us = below(2000);
        atomic_store(n_put, 0);
        pid_t child = fork();
        if (child == 0) {
            write_for_ever(w, n_put);
        }
        while (atomic_load(n_put) < most) {
            nanosleep(&(struct timespec){0, 10000}, NULL);
        }
        nanosleep(&(struct timespec){0, us * 1000L}, NULL); /* anywhere in the next */
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        kv_tiers *t = open_file(w, 40);
        n_found += walk_all(t);
        kv_tiers_close(t);
    }
    assert_true(n_found > 100 / SLOWER / SLOWER);
    munmap(n_put, sizeof *n_put);
}

TEST(a_process_killed_while_it_writes_leaves_no_wrong_byte) {
#if defined(__SANITIZE_THREAD__)
    print_message("SKIP: a child that starts threads is not supported by ThreadSanitizer\n");
    return;
#endif
    each_way(killed);
}

#ifdef QUIRE_DEBUG
static int32_t count_open_files(void) {
    int32_t n = 0;
    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static void opened_short_of_memory(const way *w) {
    kv_tiers_options o = {.shape = shape,
                          .host_bytes = 8 * record_bytes(),
                          .file_path = directory,
                          .file_bytes = 4096 + 8 * record_bytes(),
                          .file_way = w->way,
                          .redis_url = "unix:///nowhere",
                          .redis_bytes = 8 * record_bytes()};
    int32_t n_files = count_open_files();
    kv_tiers *t;
    for (int64_t point = 1;; point++) {
        quire_error err = {.message = ""};
        fault_at(point);
        quire_err e = kv_tiers_open(&o, &t, &err);
        bool happened = fault_happened();
        fault_at(0);
        assert_int_equal(e != QUIRE_OK, happened);
        if (!happened) {
            kv_tiers_close(t);
            assert_true(point > 20);
            return;
        }
        assert_null(t);
        assert_true(strlen(err.message) > 0);
        assert_int_equal(count_open_files(), n_files);
    }
}
#endif

/* Every allocation of opening all tiers fails once: it is told, and nothing stays
 * open. */
TEST(tiers_that_cannot_be_opened_leave_nothing_behind) {
#ifdef QUIRE_DEBUG
    each_way(opened_short_of_memory);
    empty_directory();
#else
    skip();
#endif
}

int main(void) {
    draw_seed();
    snprintf(directory, sizeof directory, "/tmp/quire-tier-%ld", (long)getpid());
    int failed = tests_run(NULL, NULL);
    rmdir(directory);
    return failed;
}
