/* Tiering over a device behind the host: pages that were evicted come back from host
 * memory or a file with the bytes that they had, though the device reads and writes them
 * late. What it holds for each token is a number made of the whole prefix. The cache and
 * the tiers are audited after each operation. */
#define _GNU_SOURCE /* mkdtemp */
#include <stdio.h>
#include <stdlib.h>

#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_tiering.h"
#include "mover_world.h"
#include "remove_directory.h"
#include "seed.h"

enum { N_PAGES = 60, LEN = 64, N_GROUPS = 2, N_TEXTS = 5, N_OPERATIONS = 600, LONG_US = 60000000 };

static kv_cache cache;
static kv_tiering *tiering;
static kv_mover mover;
static device gpu;
static kv_seq seq;
static int32_t tokens[LEN];
static int32_t n_promoted;
static bool drops;     /* the cache is dropped once in a while */
static int32_t window; /* of the second group; 0: it is full */
static wake reader;
static bool wakes; /* the tiers wake the reader */

static uint64_t content(int32_t g, int32_t n) {
    uint64_t h = (uint64_t)g + 1;
    for (int32_t k = 0; k < n; k++) {
        h = h * 0x9e3779b97f4a7c15u + (uint64_t)tokens[k] + 1;
    }
    return h;
}

static void audit(void) {
    const kv_table *tables[N_GROUPS];
    quire_error err = {.message = ""};
    bool agrees = kv_cache_check(&cache, tables, kv_seq_list_tables(&seq, tables), &err) == QUIRE_OK &&
                  kv_seq_check(&cache, &seq, &err) == QUIRE_OK && kv_tiering_check(tiering, &err) == QUIRE_OK;
    if (!agrees) {
        fail_msg("%s", err.message);
    }
}

static void on_promoted(void *context, kv_seq *s, int32_t n) {
    assert_ptr_equal(context, &cache);
    assert_ptr_equal(s, &seq);
    n_promoted += n;
}

static void open_world(const char *directory, int64_t host_bytes, bool writes_through, bool is_prompt) {
    kv_cache_options o = {.n_pages = N_PAGES,
                          .page_tokens = PAGE_WORDS,
                          .n_groups = N_GROUPS,
                          .max_namespaces = 2,
                          .seed = 1,
                          .mover = &mover};
    o.windows[1] = window;
    kv_tiering_options k = {.tiers = {.shape = {.version = "v", .n_version = 1},
                                      .host_bytes = host_bytes,
                                      .file_path = directory},
                            .writes_through = writes_through,
                            .max_tokens = LEN,
                            .on_promoted = on_promoted,
                            .context = &cache};
    quire_error err = {.message = ""};
    k.tiers.file_bytes = directory != NULL ? 1 << 20 : 0;
    k.tiers.reader = wakes ? &reader : NULL;
    memset(&gpu, 0, sizeof gpu);
    gpu.is_prompt = is_prompt;
    mover = device_mover(&gpu);
    assert_int_equal(kv_cache_open(&o, &cache), QUIRE_OK);
    if (kv_tiering_open(&cache, &k, &tiering, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(kv_seq_init(&seq, N_GROUPS, LEN / PAGE_WORDS + 1), QUIRE_OK);
}

static void close_world(void) {
    kv_seq_deinit(&seq);
    kv_tiering_close(tiering);
    tiering = NULL;
    kv_cache_close(&cache);
    for (; gpu.n_done < gpu.n_given; device_do(&gpu)) { /* what is left touches no frame */
        assert_null(gpu.calls[gpu.n_done % DEVICE_CALLS].host);
    }
}

/* tokens of one of a few texts that begin alike, at most LEN of them. */
static void choose_text(int32_t text) {
    for (int32_t i = 0; i < LEN; i++) {
        tokens[i] = i < 10 + 3 * text ? 7 : text + i % 3;
    }
}

/* Drops what is cached, also while pages move in both directions. */
static void drop_at_times(void) {
    if (drops && any(20) == 0) {
        int32_t n_dropped, n_cached = kv_pool_counts(cache.pool).n_cached;
        assert_true(kv_cache_drop(&cache, &n_dropped));
        assert_int_equal(n_dropped, n_cached);
        audit();
    }
}

/* One request: waits for its pages and computes the rest. checks: the device catches up,
 * and all is as it must be. Returns the tokens that it found. */
static int32_t request(int32_t n, int64_t wait_us, bool checks) {
    kv_copies copies = {.pairs = mem_new(N_GROUPS, sizeof *copies.pairs), .cap = N_GROUPS};
    assert_int_equal(kv_seq_open(&cache, &seq, "s", 1, "a", 1, tokens, n), QUIRE_OK);
    while (kv_tiering_waits(tiering, &seq, tokens, n - 1, clock_us(), wait_us)) {
        audit();
        kv_tiering_poll(tiering, clock_us());
        audit();
        drop_at_times();
    }
    assert_int_equal(kv_seq_admit(&cache, &seq, tokens, n - 1), QUIRE_OK);
    int32_t n_found = seq.n_computed;
    kv_cache_make_free(&cache, (int32_t)kv_seq_needs(&cache, &seq, n - n_found));
    assert_int_equal(kv_seq_reserve(&cache, &seq, n - n_found, &copies), QUIRE_OK);
    device_copy(&gpu, &copies);
    for (int32_t p = n_found; p < n; p++) {
        for (int32_t g = 0; g < N_GROUPS; g++) {
            device_store(&gpu, seq.tables[g].pages[p / PAGE_WORDS].v, p % PAGE_WORDS, content(g, p + 1));
        }
    }
    kv_seq_advance(&seq, n - n_found);
    kv_seq_publish(&cache, &seq, tokens);
    kv_tiering_published(tiering, &seq);
    audit();
    if (checks) {
        device_finish(&gpu);
        for (int32_t p = 0; p < n; p++) {
            for (int32_t g = 0; g < N_GROUPS; g++) {
                assert_true(gpu.pages[seq.tables[g].pages[p / PAGE_WORDS].v][p % PAGE_WORDS] ==
                            content(g, p + 1));
            }
        }
    }
    kv_tiering_forget(tiering, &seq);
    kv_seq_release(&cache, &seq, tokens, KV_KEEP);
    kv_seq_close(&cache, &seq);
    audit();
    mem_free(copies.pairs);
    return n_found;
}

static void play(const char *directory, int64_t host_bytes, bool writes_through, bool is_prompt) {
    open_world(directory, host_bytes, writes_through, is_prompt);
    n_promoted = 0;
    drops = true;
    int64_t end_us = clock_us() + 60 * INT64_C(1000000); /* a file may be slow on a busy machine */
    for (int32_t i = 0; i < N_OPERATIONS || (n_promoted == 0 && clock_us() < end_us); i++) {
        choose_text(any(N_TEXTS));
        (void)request(1 + any(LEN), any(8) == 0 ? 0 : LONG_US, any(3) == 0);
        for (int k = any(60); k > 0; k--) {
            kv_tiering_poll(tiering, clock_us());
        }
        audit();
        if (any(3) == 0) {
            kv_cache_make_free(&cache, 1 + any(N_PAGES));
            audit();
        }
        drop_at_times();
    }
    assert_true(n_promoted > 0);
    drops = false;
    close_world();
}

TEST(pages_come_back_from_host_memory_as_they_were) {
    for (int i = 0; i < 2; i++) {
        play(NULL, 1 << 20, false, i == 1);
        play(NULL, 1 << 15, false, i == 1);
    }
}

TEST(pages_come_back_from_a_file_as_they_were) {
    char directory[] = "/tmp/quire_tiering_XXXXXX";
    assert_non_null(mkdtemp(directory));
    for (int i = 0; i < 4; i++) {
        play(directory, i % 2 == 0 ? 0 : 1 << 15, i / 2 == 1, false);
        empty_directory(directory);
    }
    rmdir(directory);
}

/* What is cached at closing is written to the file, and the next cache finds all of
 * it. */
TEST(a_closed_cache_leaves_its_pages_in_the_file) {
    char directory[] = "/tmp/quire_tiering_XXXXXX";
    assert_non_null(mkdtemp(directory));
    choose_text(0);
    open_world(directory, 0, false, false);
    assert_int_equal(request(LEN, LONG_US, false), 0);
    close_world();
    open_world(directory, 0, false, false);
    assert_int_equal(request(LEN, LONG_US, true), LEN - PAGE_WORDS);
    close_world();
    empty_directory(directory);
    rmdir(directory);
}

/* Until the device has read a demoted page, no tier has it: who asks meanwhile computes
 * it, and it is stored once. */
TEST(a_page_is_stored_when_the_device_has_read_it) {
    quire_tier_stats s[KV_N_TIERS];
    choose_text(0);
    open_world(NULL, 1 << 20, false, false);
    assert_int_equal(request(9, LONG_US, false), 0);
    kv_index_clear(cache.index);
    kv_tiering_stats(tiering, s);
    assert_int_equal(s[KV_TIER_HOST].puts, 0);
    assert_int_equal(request(9, LONG_US, false), 0);
    kv_index_clear(cache.index);
    for (int i = 0; i < 100; i++) {
        kv_tiering_poll(tiering, clock_us());
    }
    kv_tiering_stats(tiering, s);
    assert_int_equal(s[KV_TIER_HOST].puts, 2 * N_GROUPS);
    assert_int_equal(request(9, LONG_US, true), 8);
    choose_text(1);
    tokens[0] = 8;
    assert_int_equal(request(9, LONG_US, false), 0);
    kv_index_clear(cache.index);
    assert_true(gpu.n_done < gpu.n_given);
    close_world(); /* waits for what is being read */
}

/* Opens a world with a file that is written through, where the device does all at once
 * and the reader is woken. */
static void open_written_through(char *directory) {
    assert_non_null(mkdtemp(directory));
    assert_int_equal(wake_init(&reader), QUIRE_OK);
    wakes = true;
    open_world(directory, 0, true, true);
}

static void close_written_through(const char *directory) {
    close_world();
    wakes = false;
    wake_deinit(&reader);
    empty_directory(directory);
    rmdir(directory);
}

/* A request of n tokens that fetches nothing. */
static void compute(int32_t n) {
    seq.tier_wait = KV_TIER_WAIT_OVER;
    assert_int_equal(request(n, 0, false), 0);
}

/* Polls as an idle engine does, which sleeps until it is woken, until the file has n
 * pages. */
static void poll_until_written(int64_t n) {
    quire_tier_stats s[KV_N_TIERS] = {{0}};
    for (kv_tiering_poll(tiering, clock_us()); s[KV_TIER_FILE].puts < n;
         kv_tiering_poll(tiering, clock_us())) {
        audit();
        kv_tiering_stats(tiering, s);
        assert_true(s[KV_TIER_FILE].puts >= n || wake_wait(&reader, LONG_US / 6));
    }
}

/* Pages that are stored already, or removed meanwhile, head the queue: nothing is under
 * way that would wake the engine for those after. */
TEST(writing_through_goes_on_behind_pages_that_are_stored) {
    char directory[] = "/tmp/quire_tiering_XXXXXX";
    const int64_t n_pages = LEN / PAGE_WORDS * N_GROUPS;
    open_written_through(directory);
    choose_text(0);
    compute(LEN);
    poll_until_written(n_pages);
    kv_index_clear(cache.index);
    audit();
    while (wake_wait(&reader, 50000)) { /* what was rung for these */
    }
    compute(LEN); /* queued once more */
    choose_text(1);
    tokens[0] = 8;
    compute(LEN);
    poll_until_written(2 * n_pages);
    close_written_through(directory);
}

/* Another text with the same beginning is cached, whose window has moved on: what is
 * found of it ends within a page, and behind the whole pages before that end the window
 * has a hole. */
TEST(pages_come_back_where_a_window_cannot_go_on_behind_whole_pages) {
    enum { N = 40, N_SHARED = 22, N_OTHER = 24 };
    char directory[] = "/tmp/quire_tiering_XXXXXX";
    kv_copies none = {0};
    window = 6;
    open_written_through(directory);
    choose_text(0);
    compute(N);
    poll_until_written(N / PAGE_WORDS * N_GROUPS);
    kv_index_clear(cache.index);
    audit();
    tokens[N_SHARED] += 100;
    assert_int_equal(kv_seq_open(&cache, &seq, "s", 1, "a", 1, tokens, N_OTHER), QUIRE_OK);
    assert_int_equal(kv_seq_reserve(&cache, &seq, N_OTHER, &none), QUIRE_OK);
    kv_seq_advance(&seq, N_OTHER);
    kv_seq_publish(&cache, &seq, tokens);
    kv_seq_forget(&cache, &seq);
    audit();
    assert_int_equal(kv_pool_counts(cache.pool).n_cached, 4); /* those behind its window */
    assert_int_equal(kv_index_evict(cache.index, kv_cache_available(&cache)), QUIRE_OK);
    audit();
    kv_seq_release(&cache, &seq, tokens, KV_KEEP);
    kv_seq_close(&cache, &seq);
    audit();
    tokens[N_SHARED] -= 100;
    assert_int_equal(request(N, LONG_US, false), N - PAGE_WORDS); /* all but the page of the last token */
    close_written_through(directory);
    window = 0;
}

TEST(a_cache_that_cannot_have_tiers_is_refused) {
    quire_error err;
    kv_tiering_options k = {.tiers = {.shape = {.version = "v", .n_version = 1}, .host_bytes = 1 << 20},
                            .max_tokens = LEN};
    kv_cache_options o = {.n_pages = 8, .page_tokens = 4, .n_groups = 2, .no_index = true, .mover = &mover};
    assert_int_equal(kv_cache_open(&o, &cache), QUIRE_OK);
    assert_int_equal(kv_tiering_open(&cache, &k, &tiering, &err), QUIRE_INVALID);
    assert_null(tiering);
    kv_cache_close(&cache);
}

TEST_MAIN_SEEDED(NULL, NULL)
