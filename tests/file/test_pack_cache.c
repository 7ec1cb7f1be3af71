/* The pack cache: what is found, by whom it may be written, what goes first, and who
 * writes at once. */
#include "packed_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/mem.h"
#include "file/pack_cache.h"
#include "quire_hub.h"

static const char KEYS[4][PACK_KEY_BYTES] = {
    "00000000000000000000000000000001", "00000000000000000000000000000002",
    "0000000000000000000000000000000a", "ffffffffffffffffffffffffffffffff"};

typedef struct world {
    temp_dir d;
    char dir[256];
    strbuf source;
    model_file *f; /* the source, in memory */
    packed_image *image;
} world;

static world world_new(void) {
    world w = {.d = temp_new()};
    quire_error err = {0};
    (void)snprintf(w.dir, sizeof w.dir, "%s", temp_path(&w.d, "cache"));
    make_gguf(&w.source, 3, NULL);
    assert_int_equal(model_file_open_memory(w.source.p, w.source.n, "source.gguf", &w.f, &err), QUIRE_OK);
    assert_int_equal(packed_image_open(COMPUTE_INT8, &w.image), QUIRE_OK);
    tensor_view packed = *model_file_tensor(w.f, 0);
    packed.packing = 7;
    assert_int_equal(packed_image_add(w.image, &packed), QUIRE_OK);
    assert_int_equal(packed_image_metadata(w.image, w.f, str_of(""), str_of("")), QUIRE_OK);
    assert_int_equal(packed_image_key(w.image, KEYS[0], "/models/source.gguf"), QUIRE_OK);
    assert_int_equal(packed_image_finish(w.image), QUIRE_OK);
    return w;
}

/* Fails where anything but names is left. */
static void world_delete(world *w, const char *const *names) {
    for (; *names; names++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", w->dir, *names);
        assert_int_equal(unlink(path), 0);
    }
    packed_image_close(w->image);
    model_file_close(w->f);
    strbuf_deinit(&w->source);
    assert_int_equal(rmdir(w->dir), 0);
    temp_delete(&w->d, (const char *[]){NULL});
}

static const char *path_in(const world *w, const char *key, const char *suffix) {
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s%s", w->dir, key, suffix);
    return path;
}

static pack_cache open_cache(const world *w, int64_t max_bytes) {
    pack_cache c;
    quire_error err = {0};
    if (pack_cache_open(w->dir, max_bytes, &c, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return c;
}

static quire_err keep(const world *w, const pack_cache *c, const char *key, quire_error *err) {
    pack_entry *e;
    uint64_t n = packed_image_bytes(w->image);
    TRY(pack_entry_open(c, key, (int64_t)n, &e, err));
    for (uint64_t at = 0; at < n; at += 1000) {
        assert_int_equal(pack_entry_write(e, w->image, at, n - at < 1000 ? n - at : 1000, err), QUIRE_OK);
    }
    assert_int_not_equal(access(path_in(w, key, ".quire"), F_OK), 0); /* not before it is whole */
    return pack_entry_finish(e, err);
}

static bool is_there(const world *w, const char *key) {
    return access(path_in(w, key, ".quire"), F_OK) == 0;
}

/* When it was used last, in seconds. */
static void set_use(const world *w, const char *key, int64_t seconds) {
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path_in(w, key, ".quire"), times, 0), 0);
}

TEST(what_was_kept_is_found_whole) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1 << 20);
    model_file *f;
    quire_error err = {0};
    assert_int_equal(pack_cache_find(&c, KEYS[0], &f, &err), QUIRE_NOT_FOUND);
    assert_int_equal(keep(&w, &c, KEYS[0], &err), QUIRE_OK);
    assert_int_equal(pack_cache_find(&c, KEYS[1], &f, &err), QUIRE_NOT_FOUND);
    assert_int_equal(pack_cache_find(&c, KEYS[0], &f, &err), QUIRE_OK);
    assert_int_equal(packed_n_blocks(f), 1);
    assert_true(packed_block_is_whole(f, 0));
    pack_cache_remove(&c, KEYS[0]);
    assert_true(packed_block_is_whole(f, 0)); /* who has it mapped keeps it */
    model_file_close(f);
    assert_int_equal(pack_cache_find(&c, KEYS[0], &f, &err), QUIRE_NOT_FOUND);
    pack_cache_close(&c);
    world_delete(&w, (const char *[]){NULL});
}

TEST(packed_forms_are_listed_and_removed_by_name) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1 << 20);
    quire_packed_form *forms;
    size_t n;
    int64_t bytes = -1;
    quire_error err = {0};
    assert_int_equal(quire_packed_list("/nowhere/at/all", &forms, &n, &err), QUIRE_OK);
    assert_true(n == 0 && access("/nowhere", F_OK) != 0);
    assert_int_equal(quire_packed_list(NULL, &forms, &n, &err), QUIRE_OK);
    assert_int_equal(n, 0);
    assert_int_equal(keep(&w, &c, KEYS[0], &err), QUIRE_OK);
    assert_int_equal(keep(&w, &c, KEYS[1], &err), QUIRE_OK); /* whose bytes say that it is the first's */
    set_use(&w, KEYS[0], 1000);
    assert_int_equal(quire_packed_list(w.dir, &forms, &n, &err), QUIRE_OK);
    assert_int_equal(n, 2);
    const quire_packed_form *good = &forms[1], *odd = &forms[0];
    assert_string_equal(good->name + strlen("packed:"), KEYS[0]);
    assert_string_equal(good->source, "/models/source.gguf");
    assert_string_equal(good->compute, "int8");
    assert_true(good->is_whole && good->used_unix_s == 1000 &&
                good->bytes == (int64_t)packed_image_bytes(w.image));
    assert_true(!odd->is_whole && odd->source[0] == '\0');
    mem_free(forms);
    assert_int_equal(quire_packed_remove(w.dir, "packed:0", &bytes, &err), QUIRE_INVALID);
    assert_int_equal(quire_packed_remove(w.dir, "packed:", &bytes, &err), QUIRE_NOT_FOUND);
    assert_int_equal(quire_packed_remove(w.dir, "packed:ff", &bytes, &err), QUIRE_NOT_FOUND);
    assert_int_equal(quire_packed_remove(w.dir, "../x", &bytes, &err), QUIRE_INVALID);
    assert_true(is_there(&w, KEYS[0]) && is_there(&w, KEYS[1]) && bytes == 0);
    assert_int_equal(quire_packed_remove(w.dir, "packed:00000000000000000000000000000001", &bytes, &err),
                     QUIRE_OK);
    assert_true(!is_there(&w, KEYS[0]) && is_there(&w, KEYS[1]) &&
                bytes == (int64_t)packed_image_bytes(w.image));
    assert_int_equal(keep(&w, &c, KEYS[0], &err), QUIRE_OK);
    assert_int_equal(quire_packed_remove(w.dir, "packed", &bytes, &err), QUIRE_OK);
    assert_int_equal(bytes, 2 * packed_image_bytes(w.image));
    assert_true(!is_there(&w, KEYS[0]) && !is_there(&w, KEYS[1]));
    pack_cache_close(&c);
    world_delete(&w, (const char *[]){NULL});
}

TEST(entries_that_are_cut_or_no_packed_models_are_removed) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1 << 20);
    model_file *f;
    quire_error err = {0};
    assert_int_equal(keep(&w, &c, KEYS[0], &err), QUIRE_OK);
    assert_int_equal(truncate(path_in(&w, KEYS[0], ".quire"), 5000), 0);
    assert_int_equal(pack_cache_find(&c, KEYS[0], &f, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "cut short"));
    assert_false(is_there(&w, KEYS[0]));
    write_file(path_in(&w, KEYS[0], ".quire"), w.source.p, w.source.n); /* a model, but not packed */
    assert_int_equal(chmod(path_in(&w, KEYS[0], ".quire"), 0600), 0);
    assert_int_equal(pack_cache_find(&c, KEYS[0], &f, &err), QUIRE_UNSUPPORTED);
    assert_false(is_there(&w, KEYS[0]));
    assert_int_equal(keep(&w, &c, KEYS[1], &err), QUIRE_OK); /* under another name */
    assert_int_equal(pack_cache_find(&c, KEYS[1], &f, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "something else"));
    assert_false(is_there(&w, KEYS[1]));
    assert_int_equal(mkdir(path_in(&w, KEYS[1], ".quire"), 0700), 0);
    assert_int_not_equal(pack_cache_find(&c, KEYS[1], &f, &err), QUIRE_OK);
    assert_int_equal(rmdir(path_in(&w, KEYS[1], ".quire")), 0);
    pack_cache_close(&c);
    world_delete(&w, (const char *[]){NULL});
}

TEST(what_others_may_write_is_not_used) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1 << 20), again;
    model_file *f;
    quire_error err = {0};
    struct stat st;
    assert_int_equal(stat(w.dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(keep(&w, &c, KEYS[0], &err), QUIRE_OK);
    assert_int_equal(stat(path_in(&w, KEYS[0], ".quire"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(chmod(path_in(&w, KEYS[0], ".quire"), 0620), 0);
    assert_int_equal(pack_cache_find(&c, KEYS[0], &f, &err), QUIRE_UNSUPPORTED);
    assert_false(is_there(&w, KEYS[0]));
    pack_cache_close(&c);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chmod(w.dir, i == 0 ? 0770 : 0707), 0);
        assert_int_equal(pack_cache_open(w.dir, 1 << 20, &again, &err), QUIRE_UNSUPPORTED);
        assert_non_null(strstr(err.message, "other users may write there"));
        pack_cache_close(&again);
    }
    if (geteuid() == 0) {
        assert_int_equal(chmod(w.dir, 0700), 0);
        assert_int_equal(chown(w.dir, 1234, 1234), 0);
        assert_int_equal(pack_cache_open(w.dir, 1 << 20, &again, &err), QUIRE_UNSUPPORTED);
        assert_non_null(strstr(err.message, "belongs to another user"));
        pack_cache_close(&again);
    }
    world_delete(&w, (const char *[]){NULL});
}

TEST(a_directory_that_cannot_be_is_an_error_that_names_it) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1);
    quire_error err = {0};
    pack_cache_close(&c);
    write_file(path_in(&w, "file", ""), "x", 1);
    char inside[600];
    (void)snprintf(inside, sizeof inside, "%s/deeper", path_in(&w, "file", ""));
    const char *const paths[] = {inside, path_in(&w, "file", ""), "", "/proc/no/such"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(pack_cache_open(paths[i], 1, &c, &err), QUIRE_IO);
        assert_non_null(strstr(err.message, paths[i]));
        pack_cache_close(&c);
    }
    world_delete(&w, (const char *[]){"file", NULL});
}

TEST(the_least_recently_used_entries_go_first) {
    world w = world_new();
    int64_t n = (int64_t)packed_image_bytes(w.image);
    pack_cache c = open_cache(&w, 2 * n + n / 2);
    model_file *f;
    quire_error err = {0};
    write_file(path_in(&w, "notes", ""), "what belongs to someone else", 28);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(keep(&w, &c, KEYS[i], &err), QUIRE_OK);
        set_use(&w, KEYS[i], 1000 + i);
    }
    /* which is a use: now the other is older */
    assert_int_equal(pack_cache_find(&c, KEYS[0], &f, &err), QUIRE_OK);
    model_file_close(f);
    assert_int_equal(keep(&w, &c, KEYS[2], &err), QUIRE_OK);
    assert_true(is_there(&w, KEYS[0]) && !is_there(&w, KEYS[1]) && is_there(&w, KEYS[2]));
    c.max_bytes = n - 1;
    assert_int_equal(keep(&w, &c, KEYS[3], &err), QUIRE_NO_ROOM);
    assert_non_null(strstr(err.message, "--pack-cache-bytes"));
    assert_true(is_there(&w, KEYS[0]) && is_there(&w, KEYS[2])); /* nothing went for what cannot fit */
    c.max_bytes = n;
    assert_int_equal(keep(&w, &c, KEYS[3], &err), QUIRE_OK);
    assert_true(!is_there(&w, KEYS[0]) && !is_there(&w, KEYS[2]) && is_there(&w, KEYS[3]));
    pack_cache_close(&c);
    char name[64];
    (void)snprintf(name, sizeof name, "%s.quire", KEYS[3]);
    world_delete(&w, (const char *[]){name, "notes", NULL});
}

TEST(no_entry_takes_the_last_of_the_disk) {
    world w = world_new();
    pack_cache c = open_cache(&w, INT64_MAX);
    pack_entry *e;
    quire_error err = {0};
    assert_int_equal(keep(&w, &c, KEYS[0], &err), QUIRE_OK);
    assert_int_equal(pack_entry_open(&c, KEYS[1], INT64_MAX / 2, &e, &err), QUIRE_NO_ROOM);
    assert_non_null(strstr(err.message, "stay free"));
    assert_true(is_there(&w, KEYS[0]));
    pack_cache_remove(&c, KEYS[0]);
    pack_cache_close(&c);
    world_delete(&w, (const char *[]){NULL});
}

TEST(two_writers_of_an_entry_do_not_meet) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1 << 20);
    pack_entry *first, *second;
    quire_error err = {0};
    int64_t n = (int64_t)packed_image_bytes(w.image);
    assert_int_equal(pack_entry_open(&c, KEYS[0], n, &first, &err), QUIRE_OK);
    assert_int_equal(pack_entry_open(&c, KEYS[0], n, &second, &err), QUIRE_BUSY);
    /* which leaves the first one's file */
    assert_int_equal(pack_entry_open(&c, KEYS[1], n, &second, &err), QUIRE_OK);
    pack_entry_discard(second);
    assert_int_equal(pack_entry_write(first, w.image, 0, (uint64_t)n, &err), QUIRE_OK);
    assert_int_equal(pack_entry_finish(first, &err), QUIRE_OK);
    assert_true(is_there(&w, KEYS[0]));
    pack_cache_remove(&c, KEYS[0]);
    pack_cache_close(&c);
    world_delete(&w, (const char *[]){NULL});
}

TEST(what_a_killed_writer_left_is_removed_by_the_next) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1 << 20);
    quire_error err = {0};
    write_file(path_in(&w, KEYS[0], ".quire.part"), "half of", 7);
    write_file(path_in(&w, KEYS[1], ".quire.part"), "half of", 7);
    int fd = open(path_in(&w, KEYS[1], ".quire.part"), O_WRONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0); /* this writer lives */
    assert_int_equal(keep(&w, &c, KEYS[2], &err), QUIRE_OK);
    assert_int_not_equal(access(path_in(&w, KEYS[0], ".quire.part"), F_OK), 0);
    assert_int_equal(access(path_in(&w, KEYS[1], ".quire.part"), F_OK), 0);
    close(fd);
    assert_int_equal(keep(&w, &c, KEYS[1], &err), QUIRE_OK); /* a longer one over what was left */
    pack_cache_remove(&c, KEYS[1]);
    pack_cache_remove(&c, KEYS[2]);
    pack_cache_close(&c);
    world_delete(&w, (const char *[]){NULL});
}

/* ---- names ---- */

static void name_of(const char *path, const char *form, char key[PACK_KEY_BYTES]) {
    model_file *f;
    quire_error err = {0};
    if (model_file_open(path, &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(pack_cache_key(f, form, key));
    assert_int_equal(strspn(key, "0123456789abcdef"), PACK_KEY_BYTES - 1);
    model_file_close(f);
}

TEST(every_change_of_a_source_changes_its_name) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1);
    char key[PACK_KEY_BYTES], other[PACK_KEY_BYTES], path[512];
    (void)snprintf(path, sizeof path, "%s", path_in(&w, "m.gguf", ""));
    write_file(path, w.source.p, w.source.n);
    name_of(path, "int8", key);
    name_of(path, "int8", other);
    assert_string_equal(key, other);
    name_of(path, "bf16", other);
    assert_string_not_equal(key, other);
    assert_false(pack_cache_key(w.f, "int8", other)); /* it is in memory */
    enum { LARGE = 1 << 20, ODD = 100000 };
    struct stat st;
    char *bytes = mem_new(LARGE, 1), changed = 1;
    memcpy(bytes, w.source.p, w.source.n);
    write_file(path, bytes, LARGE);
    name_of(path, "int8", key);
    assert_int_equal(stat(path, &st), 0);
    /* where a sample is taken, and where none is: the size and, set back, the time are
     * the old ones */
    for (int i = 0; i < 2; i++) {
        int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, &changed, 1, i == 0 ? LARGE - 1 : ODD), 1);
        close(fd);
        assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
        name_of(path, "int8", other);
        assert_string_not_equal(key, other);
        memcpy(key, other, sizeof key);
    }
    mem_free(bytes);
    pack_cache_close(&c);
    world_delete(&w, (const char *[]){"m.gguf", NULL});
}

TEST(a_source_that_was_written_just_now_is_not_named) {
    world w = world_new();
    pack_cache c = open_cache(&w, 1);
    model_file *f;
    quire_error err = {0};
    char path[512];
    (void)snprintf(path, sizeof path, "%s", path_in(&w, "m.gguf", ""));
    write_file(path, w.source.p, w.source.n);
    struct timespec ahead;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &ahead), 0);
    ahead.tv_sec += 3600; /* as a file whose clock is ahead, or one that is written while we look */
    assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){ahead, ahead}, 0), 0);
    assert_int_equal(model_file_open(path, &f, &err), QUIRE_OK);
    assert_false(pack_cache_can_name(f));
    model_file_close(f);
    assert_int_equal(model_file_open("models/builtin.gguf", &f, &err), QUIRE_OK);
    assert_true(pack_cache_can_name(f));
    model_file_close(f);
    pack_cache_close(&c);
    world_delete(&w, (const char *[]){"m.gguf", NULL});
}

TEST_MAIN(NULL, NULL)
