#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/free_pages.h"
#include "test.h"

static free_pages *open_set(int32_t n_pages) {
    free_pages *f;
    assert_int_equal(free_pages_open(n_pages, &f), QUIRE_OK);
    return f;
}

static void expect_count(const free_pages *f, int32_t n) {
    quire_error err;
    if (free_pages_check(f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(free_pages_count(f), n);
}

static void give_back(free_pages *f, const page_id *ids, int32_t n) {
    free_batch batch = {0};
    for (int32_t i = 0; i < n; i++) {
        free_pages_add(f, &batch, ids[i]);
    }
    free_pages_return(f, &batch);
}

/* Sizes beside those at which a span, a word of marks or a region ends. */
TEST(every_page_is_found_once_at_any_size) {
    static const int32_t sizes[] = {1,   2,   63,  64,   65,   127,  128,   129,   511,
                                    512, 513, 576, 4095, 4096, 4097, 32768, 32769, 100003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int32_t n = sizes[s];
        free_pages *f = open_set(n);
        page_id *ids = mem_new((size_t)n + 1, sizeof *ids);
        uint8_t *seen = mem_new((size_t)n, sizeof *seen);
        expect_count(f, n);
        assert_false(free_pages_take(f, n + 1, ids));
        expect_count(f, n);
        for (int32_t i = 0; i < n; i += 7) {
            assert_true(free_pages_take(f, n - i < 7 ? n - i : 7, ids + i));
        }
        expect_count(f, 0);
        assert_false(free_pages_take(f, 1, ids + n));
        for (int32_t i = 0; i < n; i++) {
            assert_in_range(ids[i].v, 0, n - 1);
            assert_int_equal(seen[ids[i].v]++, 0);
            assert_false(free_pages_has(f, ids[i]));
        }
        give_back(f, ids, n);
        expect_count(f, n);
        assert_true(free_pages_take(f, n, ids)); /* of all regions at once */
        expect_count(f, 0);
        free_pages_close(f);
        mem_free(ids);
        mem_free(seen);
    }
}

/* Runs within a span, over spans and over regions, beside a plain model. */
TEST(a_run_is_taken_as_a_whole_or_not_at_all) {
    enum { N = 1000 };
    uint64_t seed = rng_os_seed(), s = seed;
    free_pages *f = open_set(N);
    bool is_free[N];
    int32_t n_free = N, n_taken = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    memset(is_free, true, sizeof is_free);
    for (int round = 0; round < 4000; round++) {
        int32_t first = (int32_t)(rng_next(&s) % N), most = N - first < 300 ? N - first : 300,
                n = 1 + (int32_t)(rng_next(&s) % (uint64_t)most);
        bool all = true;
        for (int32_t page = first; page < first + n; page++) {
            all = all && is_free[page];
        }
        assert_int_equal(free_pages_take_run(f, (page_id){first}, n), all);
        for (int32_t page = first; all && page < first + n; page++) {
            is_free[page] = false;
        }
        n_free -= all ? n : 0;
        n_taken += all;
        expect_count(f, n_free);
        for (int32_t page = 0; page < N; page++) {
            assert_int_equal(free_pages_has(f, (page_id){page}), is_free[page]);
        }
        first = (int32_t)(rng_next(&s) % N);
        for (int32_t page = first; page < N && page < first + 200; page++) {
            if (!is_free[page]) {
                give_back(f, &(page_id){page}, 1);
                is_free[page] = true;
                n_free++;
            }
        }
    }
    assert_true(n_taken > 100);
    free_pages_close(f);
}

/* Single pages scattered over all regions are one reserve. */
TEST(scattered_pages_are_gathered_all_or_none) {
    enum { N = 8192, STEP = 1000 };
    free_pages *f = open_set(N);
    page_id ids[N], got[N / STEP + 2];
    int32_t n_back = 0;
    assert_true(free_pages_take(f, N, ids));
    for (int32_t page = 5; page < N; page += STEP, n_back++) {
        give_back(f, &(page_id){page}, 1);
    }
    expect_count(f, n_back);
    assert_false(free_pages_take(f, n_back + 1, got));
    expect_count(f, n_back);
    assert_true(free_pages_take(f, n_back, got));
    int64_t sum = 0;
    for (int32_t i = 0; i < n_back; i++) {
        assert_int_equal(got[i].v % STEP, 5);
        sum += got[i].v;
    }
    assert_int_equal(sum, (int64_t)n_back * 5 + (int64_t)STEP * n_back * (n_back - 1) / 2);
    expect_count(f, 0);
    free_pages_close(f);
}

TEST(a_set_begins_again_at_its_lowest_pages_after_a_rewind) {
    enum { N = 1024 };
    free_pages *f = open_set(N);
    page_id ids[N], next[2];
    assert_true(free_pages_take(f, N, ids));
    give_back(f, &(page_id){700}, 1);
    give_back(f, &(page_id){701}, 1);
    free_pages_rewind(f);
    assert_true(free_pages_take(f, 2, next));
    assert_int_equal(next[0].v, 700);
    assert_int_equal(next[1].v, 701);
    free_pages_close(f);
}

/* A thread that takes one page and lives until it is told to end. */
typedef struct taker {
    free_pages *f;
    pthread_t thread;
    sem_t took, end;
    page_id id;
} taker;

static void *taker_main(void *argument) {
    taker *t = argument;
    bool took = free_pages_take(t->f, 1, &t->id);
    sem_post(&t->took);
    sem_wait(&t->end);
    return took ? t : NULL;
}

static void start_taker(free_pages *f, taker *t) {
    t->f = f;
    sem_init(&t->took, 0, 0);
    sem_init(&t->end, 0, 0);
    assert_int_equal(pthread_create(&t->thread, NULL, taker_main, t), 0);
    sem_wait(&t->took);
}

static void end_taker(taker *t) {
    void *took;
    sem_post(&t->end);
    assert_int_equal(pthread_join(t->thread, &took), 0);
    assert_non_null(took);
    sem_destroy(&t->took);
    sem_destroy(&t->end);
}

/* Threads are counted for each set alone: what one thread takes does not depend on how
 * many there were before it in the process. */
TEST(the_first_thread_of_every_set_takes_the_same_pages) {
    for (int32_t i = 0; i < 20; i++) {
        static const int32_t first[] = {0, 512, 256};
        free_pages *f = open_set(1024);
        taker t[3];
        for (int32_t n = 0; n < 3; n++) {
            start_taker(f, &t[n]);
            assert_int_equal(t[n].id.v, first[n]);
        }
        for (int32_t n = 0; n < 3; n++) {
            end_taker(&t[n]);
        }
        free_pages_close(f);
    }
}

TEST(a_thread_goes_on_where_one_that_has_ended_was) {
    free_pages *f = open_set(1024);
    for (int32_t i = 0; i < 20; i++) {
        taker t;
        start_taker(f, &t);
        assert_int_equal(t.id.v, i);
        end_taker(&t);
    }
    free_pages_close(f);
}

/* The last pages of a nearly full set may be another thread's: a thread does not stay
 * among them. */
TEST(a_thread_takes_pages_near_its_first_ones_before_those_that_came_back_last) {
    enum { N = 1024 };
    free_pages *f = open_set(N);
    page_id ids[N], next[2];
    assert_true(free_pages_take(f, N, ids));
    give_back(f, &(page_id){5}, 1);
    give_back(f, &(page_id){900}, 1);
    assert_true(free_pages_take(f, 1, next));
    assert_true(free_pages_take(f, 1, next + 1));
    assert_int_equal(next[0].v, 5);
    assert_int_equal(next[1].v, 900);
    free_pages_close(f);
}

enum { N_THREADS = 4, N_PAGES = 640, MAX_HELD = 70, N_ROUNDS = 40000 };

typedef struct churn {
    free_pages *f;
    uint64_t draw;
    _Atomic bool *over;
    bool missed;
} churn;

/* Takes and returns pages in random numbers, at most MAX_HELD at once. */
static void *churn_main(void *argument) {
    churn *c = argument;
    page_id held[MAX_HELD];
    while (!atomic_load(c->over)) {
        int32_t n = 1 + (int32_t)(rng_next(&c->draw) % MAX_HELD);
        if (free_pages_take(c->f, n, held)) {
            give_back(c->f, held, n);
        }
    }
    return NULL;
}

/* Takes as many pages as the others leave in any case. */
static void *certain_main(void *argument) {
    churn *c = argument;
    enum { CERTAIN = N_PAGES - (N_THREADS - 1) * MAX_HELD };
    page_id held[CERTAIN];
    for (int round = 0; round < N_ROUNDS && !c->missed; round++) {
        c->missed = !free_pages_take(c->f, CERTAIN, held);
        if (!c->missed) {
            give_back(c->f, held, CERTAIN);
        }
    }
    atomic_store(c->over, true);
    return NULL;
}

TEST(pages_that_are_free_at_every_moment_are_always_found) {
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    free_pages *f = open_set(N_PAGES);
    _Atomic bool over = false;
    churn churns[N_THREADS];
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        churns[i] = (churn){.f = f, .draw = seed + (uint64_t)i, .over = &over};
        assert_int_equal(pthread_create(&threads[i], NULL, i == 0 ? certain_main : churn_main, &churns[i]),
                         0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(churns[i].missed);
    }
    expect_count(f, N_PAGES);
    free_pages_close(f);
}

TEST_MAIN(NULL, NULL)
