/* usleep and mkdtemp are outside C11. */
#define _DEFAULT_SOURCE

/* The store of adapters, with a loader of the test's: who gets one when, how many are
 * loaded at once, and what becomes of those that are replaced, unknown or broken. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "setup/adapter_store.h"
#include "test.h"

/* What the loader makes of a path: "bad.." fails. */
struct adapter {
    char path[64];
    int32_t version;
};

static atomic_int n_alive, n_blends, most_alive, n_loads, version, is_held;

static quire_err load(void *context, const char *path, loaded_adapter *out, quire_error *err) {
    (void)context;
    atomic_fetch_add(&n_loads, 1);
    while (atomic_load(&is_held)) {
        (void)usleep(100);
    }
    if (strncmp(path, "bad", 3) == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: no adapter", path);
    }
    struct adapter *a = mem_new(1, sizeof *a);
    (void)snprintf(a->path, sizeof a->path, "%.63s", path);
    a->version = atomic_load(&version);
    *out = (loaded_adapter){.weights = a, .rank = 8, .n_bytes = 1000};
    out->digest[0] = (uint8_t)a->version;
    int alive = atomic_fetch_add(&n_alive, 1) + 1;
    if (alive > atomic_load(&most_alive)) { /* one thread loads */
        atomic_store(&most_alive, alive);
    }
    return QUIRE_OK;
}

static quire_err blend(void *context, const struct adapter *const *parts, const float *scales, int32_t n,
                       struct adapter **out, quire_error *err) {
    (void)context, (void)err;
    struct adapter *a = mem_new(1, sizeof *a);
    size_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        at += (size_t)snprintf(a->path + at, sizeof a->path - at, "%s%s*%g", i > 0 ? "+" : "", parts[i]->path,
                               (double)scales[i]);
    }
    a->version = -1;
    atomic_fetch_add(&n_blends, 1);
    *out = a;
    return QUIRE_OK;
}

static void free_adapter(void *context, loaded_adapter *l) {
    (void)context;
    atomic_fetch_sub(l->weights->version >= 0 ? &n_alive : &n_blends, 1);
    mem_free(l->weights);
}

static const adapter_loader loader = {load, blend, free_adapter, NULL};

typedef struct wish {
    adapter_want w; /* first member */
    atomic_bool is_ready;
    atomic_bool is_off;
} wish;

static void on_ready(adapter_want *w) {
    atomic_store(&((wish *)(void *)w)->is_ready, true);
}

static adapter_store *store;

static void open_store(int32_t max_resident, const char *dir) {
    quire_error err = {0};
    atomic_store(&most_alive, 0);
    atomic_store(&n_loads, 0);
    const adapter_store_options o = {.max_resident = max_resident, .max_rank = 64, .dir = dir};
    assert_int_equal(adapter_store_open(&o, &loader, &store, &err), QUIRE_OK);
}

static void close_store(void) {
    adapter_store_close(store);
    assert_int_equal(atomic_load(&n_alive), 0);
}

static void add(const char *name, const char *path) {
    quire_error err = {0};
    assert_int_equal(adapter_store_add(store, name, path, true, &err), QUIRE_OK);
}

/* Wishes for one adapter; true: it is there at once. */
static bool want(wish *w, const char *name) {
    *w = (wish){.w = {.parts = {{.name = name, .scale = 1.0f}}, .n_parts = 1, .ready = on_ready}};
    w->w.is_off = &w->is_off;
    adapter_source source = adapter_store_source(store);
    bool at_once = source.want(source.context, &w->w);
    if (at_once) { /* else on_ready has, or will have, set it */
        atomic_store(&w->is_ready, true);
    }
    return at_once;
}

static bool becomes_ready(const wish *w, int64_t us) {
    int64_t until = clock_us() + us;
    while (!atomic_load(&w->is_ready) && clock_us() < until) {
        (void)usleep(200);
    }
    return atomic_load(&w->is_ready);
}

/* Waits for the answer, which is an adapter of that path. */
static void gets(wish *w, const char *path) {
    assert_true(becomes_ready(w, 20000000));
    assert_int_equal(w->w.error.code, QUIRE_OK);
    assert_string_equal(w->w.ref->weights->path, path);
}

static void drop(wish *w) {
    adapter_ref_drop(w->w.ref);
    w->w.ref = NULL;
}

/* Waits until the store's thread has looked at the wishes so far. Before it does it frees
 * blends that are idle: one of an adapter that is there and stays. */
static void await_look(const char *name) {
    wish w = {.w = {.parts = {{.name = name, .scale = 0.5f}}, .n_parts = 1, .ready = on_ready}};
    adapter_source source = adapter_store_source(store);
    assert_true(source.want(source.context, &w.w) && w.w.ref != NULL);
    drop(&w);
    for (int64_t until = clock_us() + 20000000; atomic_load(&n_blends) > 0;) {
        assert_true(clock_us() < until);
        (void)usleep(200);
    }
}

TEST(those_that_wait_for_one_file_load_it_once) {
    wish w[5];
    open_store(2, NULL);
    add("sql", "p1");
    atomic_store(&is_held, 1);
    for (int i = 0; i < 5; i++) {
        assert_false(want(&w[i], "sql"));
    }
    atomic_store(&is_held, 0);
    for (int i = 0; i < 5; i++) {
        gets(&w[i], "p1");
        assert_true(w[i].w.ref == w[0].w.ref && w[i].w.load_us > 0);
        assert_string_equal(w[i].w.ref->name, "sql");
    }
    assert_int_equal(atomic_load(&n_loads), 1);
    wish again;
    assert_true(want(&again, "sql")); /* it is there */
    assert_int_equal(again.w.load_us, 0);
    drop(&again);
    for (int i = 0; i < 5; i++) {
        drop(&w[i]);
    }
    close_store();
}

TEST(unknown_names_and_broken_files_fail_their_requests_only) {
    wish unknown, bad, good;
    open_store(2, NULL);
    add("good", "p");
    add("bad", "bad file");
    assert_true(want(&unknown, "nobody"));
    assert_int_equal(unknown.w.error.code, QUIRE_NOT_FOUND);
    (void)want(&bad, "bad");
    (void)want(&good, "good");
    assert_true(becomes_ready(&bad, 20000000));
    assert_int_equal(bad.w.error.code, QUIRE_BAD_FILE);
    assert_non_null(strstr(bad.w.error.message, "bad file: no adapter"));
    gets(&good, "p");
    drop(&good);
    assert_int_equal(adapter_store_bounds(store).n_resident, 1); /* the broken one takes no room */
    quire_error err = {0};
    assert_int_equal(adapter_store_add(store, "good", "q", true, &err), QUIRE_INVALID);
    assert_int_equal(adapter_store_add(store, "a\nb", "q", true, &err), QUIRE_INVALID);
    assert_int_equal(adapter_store_remove(store, "nobody", &err), QUIRE_NOT_FOUND);
    close_store();
}

TEST(room_is_made_of_the_idle_one_that_was_used_longest_ago) {
    wish w;
    open_store(2, NULL);
    add("a", "pa");
    add("b", "pb");
    add("c", "pc");
    const char *order[] = {"a", "b", "a", "c", "a", "b", "c"}; /* b goes for c, c for b, a for c */
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        (void)want(&w, order[i]);
        assert_true(becomes_ready(&w, 20000000));
        drop(&w);
    }
    assert_int_equal(atomic_load(&n_loads), 5);
    assert_int_equal(atomic_load(&most_alive), 2);
    close_store();
}

TEST(where_all_are_in_use_one_gets_no_further_requests_until_it_is_free) {
    wish a, b, c, more_a, more_b;
    open_store(2, NULL);
    add("a", "pa");
    add("b", "pb");
    add("c", "pc");
    (void)want(&a, "a");
    gets(&a, "pa");
    (void)want(&b, "b");
    gets(&b, "pb");
    assert_false(want(&c, "c")); /* a was used longest ago: it drains */
    await_look("b");
    assert_true(want(&more_b, "b"));
    assert_false(want(&more_a, "a"));
    assert_false(becomes_ready(&c, 20000));
    drop(&more_b);
    drop(&a);
    gets(&c, "pc");
    assert_false(becomes_ready(&more_a, 20000)); /* both places are in use again */
    drop(&b);
    gets(&more_a, "pa");
    drop(&c);
    drop(&more_a);
    assert_int_equal(atomic_load(&most_alive), 2);
    close_store();
}

TEST(one_that_drains_for_a_cancelled_want_is_given_again) {
    wish a, c, more;
    open_store(1, NULL);
    add("a", "pa");
    add("c", "pc");
    (void)want(&a, "a");
    gets(&a, "pa");
    assert_false(want(&c, "c"));
    for (int64_t until = clock_us() + 20000000; want(&more, "a");) { /* until a drains */
        assert_true(clock_us() < until);
        drop(&more);
        (void)usleep(200);
    }
    assert_false(becomes_ready(&c, 0));
    adapter_source source = adapter_store_source(store);
    source.cancel(source.context, &c.w);
    assert_true(becomes_ready(&c, 0));
    assert_int_equal(c.w.error.code, QUIRE_CANCELLED);
    gets(&more, "pa");
    drop(&more);
    drop(&a);
    close_store();
}

TEST(a_replaced_adapter_stays_with_its_requests) {
    wish old, other, fails, now;
    open_store(4, NULL);
    add("a", "p1");
    (void)want(&old, "a");
    gets(&old, "p1");
    atomic_fetch_add(&old.w.ref->n_requests, 7);
    other = (wish){.w = {.ready = on_ready}};
    assert_true(adapter_store_load(store, "a", "p2", false, &other.w));
    assert_int_equal(other.w.error.code, QUIRE_INVALID);
    fails = (wish){.w = {.ready = on_ready}};
    assert_false(adapter_store_load(store, "a", "bad one", true, &fails.w));
    assert_true(becomes_ready(&fails, 20000000));
    assert_int_equal(fails.w.error.code, QUIRE_BAD_FILE);
    assert_true(want(&now, "a")); /* as it was */
    assert_string_equal(now.w.ref->weights->path, "p1");
    drop(&now);
    atomic_fetch_add(&version, 1);
    other = (wish){.w = {.ready = on_ready}};
    assert_false(adapter_store_load(store, "a", "p2", true, &other.w));
    gets(&other, "p2");
    assert_int_equal(atomic_load(&other.w.ref->n_requests), 7);
    assert_true(want(&now, "a"));
    assert_string_equal(now.w.ref->weights->path, "p2");
    assert_string_equal(old.w.ref->weights->path, "p1");
    assert_memory_not_equal(now.w.ref->digest, old.w.ref->digest, SHA256_BYTES);
    drop(&now);
    drop(&other);
    assert_int_equal(atomic_load(&n_alive), 2);
    drop(&old);
    for (int i = 0; atomic_load(&n_alive) > 1 && i < 20000; i++) {
        (void)usleep(500);
    }
    assert_int_equal(atomic_load(&n_alive), 1); /* nobody has the old one any more */
    quire_error err = {0};
    assert_int_equal(adapter_store_remove(store, "a", &err), QUIRE_OK);
    assert_true(want(&now, "a"));
    assert_int_equal(now.w.error.code, QUIRE_NOT_FOUND);
    close_store();
}

static bool load_as(wish *w, const char *name, const char *path, bool in_place) {
    *w = (wish){.w = {.ready = on_ready}};
    return adapter_store_load(store, name, path, in_place, &w->w);
}

TEST(a_name_that_is_being_loaded_is_taken_until_that_ends) {
    wish first, second, other, now;
    open_store(4, NULL);
    atomic_store(&is_held, 1);
    assert_false(load_as(&first, "a", "p1", false));
    assert_true(load_as(&second, "a", "p2", false));
    assert_int_equal(second.w.error.code, QUIRE_INVALID);
    assert_non_null(strstr(second.w.error.message, "'a' is being loaded by another request"));
    assert_false(load_as(&second, "a", "p2", true));
    assert_false(load_as(&other, "b", "bad one", false));
    atomic_store(&is_held, 0);
    gets(&first, "p1");
    gets(&second, "p2"); /* replaces the first, as it says */
    assert_true(want(&now, "a"));
    assert_string_equal(now.w.ref->weights->path, "p2");
    drop(&now);
    drop(&first);
    drop(&second);
    assert_true(becomes_ready(&other, 20000000));
    assert_int_equal(other.w.error.code, QUIRE_BAD_FILE);
    atomic_store(&is_held, 1);
    assert_false(load_as(&other, "b", "p3", false)); /* the name is free after the failure */
    adapter_source source = adapter_store_source(store);
    source.cancel(source.context, &other.w);
    assert_int_equal(other.w.error.code, QUIRE_CANCELLED);
    assert_false(load_as(&other, "b", "p4", false)); /* and after the end of who asked */
    atomic_store(&is_held, 0);
    gets(&other, "p4");
    drop(&other);
    close_store();
}

TEST(blends_are_by_number_and_scale_and_equal_ones_are_one) {
    wish w[4];
    quire_error err = {0};
    open_store(4, NULL);
    assert_int_equal(adapter_store_add(store, "x", "px", false, &err), QUIRE_OK);
    assert_int_equal(adapter_store_add(store, "y", "py", false, &err), QUIRE_OK);
    adapter_source source = adapter_store_source(store);
    for (int i = 0; i < 4; i++) {
        w[i] =
            (wish){.w = {.parts = {{.number = 0, .scale = 1.0f}, {.number = 1, .scale = i < 2 ? 0.5f : 0.0f}},
                         .n_parts = 2,
                         .ready = on_ready}};
        w[i].w.parts[0].scale = i == 3 ? 0.0f : 1.0f;
        if (source.want(source.context, &w[i].w)) {
            atomic_store(&w[i].is_ready, true);
        }
        assert_true(becomes_ready(&w[i], 20000000));
    }
    assert_string_equal(w[0].w.ref->weights->path, "px*1+py*0.5");
    assert_true(w[0].w.ref == w[1].w.ref);
    assert_string_equal(w[2].w.ref->weights->path, "px"); /* alone and as it is */
    assert_null(w[3].w.ref);                              /* none does anything */
    assert_memory_not_equal(w[0].w.ref->digest, w[2].w.ref->digest, SHA256_BYTES);
    wish beyond = {.w = {.parts = {{.number = 2, .scale = 1.0f}}, .n_parts = 1, .ready = on_ready}};
    assert_true(source.want(source.context, &beyond.w));
    assert_int_equal(beyond.w.error.code, QUIRE_BAD_REQUEST);
    for (int i = 0; i < 3; i++) {
        drop(&w[i]);
    }
    close_store();
}

static void make_file(const char *dir, const char *name) {
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fclose(f);
}

TEST(names_find_files_in_the_directory_and_none_outside) {
    char root[] = "/tmp/quire-adapters-XXXXXX", dir[64], out[128];
    assert_non_null(mkdtemp(root));
    (void)snprintf(dir, sizeof dir, "%s/dir", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    (void)snprintf(out, sizeof out, "%s/dix", root); /* as long as dir */
    assert_int_equal(mkdir(out, 0700), 0);
    make_file(out, "secret");
    make_file(dir, "sql.gguf");
    make_file(dir, "plain");
    make_file(dir, ".hidden");
    (void)snprintf(out, sizeof out, "%s/link", dir);
    assert_int_equal(symlink("../dix/secret", out), 0);
    open_store(2, dir);
    wish w;
    (void)want(&w, "plain");
    assert_true(becomes_ready(&w, 20000000));
    assert_int_equal(w.w.error.code, QUIRE_OK);
    drop(&w);
    (void)want(&w, "sql");
    assert_true(becomes_ready(&w, 20000000));
    assert_non_null(strstr(w.w.ref->weights->path, "/dir/sql.gguf"));
    drop(&w);
    const char *hostile[] = {"../dix/secret", "link",   "/etc/passwd", ".hidden", "..", ".", "",
                             "a/../plain",    "plain/", "./plain",     "dir//x",  "no"};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        assert_true(want(&w, hostile[i]));
        assert_int_equal(w.w.error.code, QUIRE_NOT_FOUND);
    }
    close_store();
    char command[200];
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

TEST(lists_have_names_and_paths_or_objects) {
    const char *lines = "a=x/y\n {\"name\":\"b c\",\"path\":\"p=1\",\"base_model_name\":\"m\"}\n\nd=e=f ";
    const char *wanted[][2] = {{"a", "x/y"}, {"b c", "p=1"}, {"d", "e=f"}};
    strbuf own = {0};
    quire_error err = {0};
    adapter_listed l;
    for (int i = 0; i < 3; i++) {
        assert_true(adapter_names_next(&lines, &own, &l, &err));
        assert_true(str_is(l.name, wanted[i][0]) && str_is(l.path, wanted[i][1]));
    }
    assert_false(adapter_names_next(&lines, &own, &l, &err));
    assert_int_equal(err.code, QUIRE_OK);
    const char *wrong[] = {"a", "=x", "a=", "{\"name\":\"a\"}", "{", "{}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *p = wrong[i];
        err = (quire_error){0};
        assert_false(adapter_names_next(&p, &own, &l, &err));
        assert_int_equal(err.code, QUIRE_INVALID);
    }
    strbuf_deinit(&own);
    const char *paths = "a.gguf,b:0.5\nc:d:-2\n,C:\\x,";
    const float scales[] = {1.0f, 0.5f, -2.0f, 1.0f};
    const char *names[] = {"a.gguf", "b", "c:d", "C:\\x"};
    for (int i = 0; i < 4; i++) {
        assert_true(adapter_paths_next(&paths, &l));
        assert_true(str_is(l.path, names[i]) && l.scale == scales[i]);
    }
    assert_false(adapter_paths_next(&paths, &l));
}

/* ---- many at once ---- */

enum { N_NAMES = 50, N_THREADS = 6, N_ROUNDS = 300, CAP = 8 };
static char names[N_NAMES][8];

static void *use_many(void *arg) {
    uint64_t seed = *(const uint64_t *)arg;
    for (int i = 0; i < N_ROUNDS; i++) {
        /* about as Zipf has it: the first names are wanted most */
        uint64_t r = rng_next(&seed) % 1000 + 1;
        int k = (int)(1000 / r) % N_NAMES;
        wish w;
        if (!want(&w, names[k]) && rng_next(&seed) % 8 == 0) {
            atomic_store(&w.is_off, true);
            adapter_source source = adapter_store_source(store);
            source.cancel(source.context, &w.w);
        }
        if (!becomes_ready(&w, 60000000)) {
            return (void *)1;
        }
        if (w.w.error.code == QUIRE_OK && strcmp(w.w.ref->weights->path, names[k]) != 0) {
            return (void *)2;
        }
        (void)usleep((useconds_t)(rng_next(&seed) % 300));
        drop(&w);
    }
    return NULL;
}

TEST(many_threads_share_few_places_and_all_get_theirs) {
    uint64_t seeds[N_THREADS], seed = rng_os_seed();
    pthread_t threads[N_THREADS];
    printf("seed %llu\n", (unsigned long long)seed);
    open_store(CAP, NULL);
    for (int i = 0; i < N_NAMES; i++) {
        (void)snprintf(names[i], sizeof names[i], "n%d", i);
        add(names[i], names[i]);
    }
    for (int i = 0; i < N_THREADS; i++) {
        seeds[i] = rng_next(&seed);
        assert_int_equal(pthread_create(&threads[i], NULL, use_many, &seeds[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        void *fault;
        pthread_join(threads[i], &fault);
        assert_null(fault);
    }
    assert_true(adapter_store_bounds(store).most_resident <= CAP && atomic_load(&most_alive) <= CAP);
    close_store();
}

TEST_MAIN(NULL, NULL)
