/* sched_setaffinity() is outside POSIX. */
#define _GNU_SOURCE

#include <fenv.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/clock.h"
#include "base/thread_pool.h"
#include "test.h"

enum { MAX_TEST_TASKS = 5000 };

typedef struct job {
    _Atomic int32_t times[MAX_TEST_TASKS];
    int32_t n_workers;
    _Atomic int32_t bad_workers;
} job;

static void count_task(void *context, int32_t task, int32_t worker) {
    job *j = context;
    atomic_fetch_add(&j->times[task], 1);
    if (worker < 0 || worker >= j->n_workers) {
        atomic_fetch_add(&j->bad_workers, 1);
    }
}

TEST(every_task_is_done_exactly_once) {
    static job j;
    for (int32_t n = 1; n <= 5; n++) {
        thread_pool *t;
        assert_int_equal(thread_pool_open(n, &t), QUIRE_OK);
        assert_int_equal(thread_pool_size(t), n);
        j.n_workers = n;
        for (int32_t tasks = 0; tasks <= MAX_TEST_TASKS; tasks = tasks * 3 + 1) {
            memset(&j.times, 0, sizeof j.times);
            thread_pool_run(t, count_task, &j, tasks);
            for (int32_t i = 0; i < MAX_TEST_TASKS; i++) {
                assert_int_equal(j.times[i], i < tasks);
            }
        }
        thread_pool_close(t);
    }
    assert_int_equal(j.bad_workers, 0);
}

/* One task waits for all others. */
typedef struct wait_job {
    int32_t n_tasks, waiting_task;
    _Atomic int32_t n_done;
    _Atomic bool has_given_up;
} wait_job;

static void wait_for_the_others(void *context, int32_t task, int32_t worker) {
    (void)worker;
    wait_job *j = context;
    const struct timespec pause = {.tv_nsec = 1000000};
    int64_t deadline_us = clock_us() + 60 * 1000000;
    while (task == j->waiting_task && j->n_done < j->n_tasks - 1 && !j->has_given_up) {
        j->has_given_up = clock_us() > deadline_us;
        nanosleep(&pause, NULL);
    }
    atomic_fetch_add(&j->n_done, 1);
}

TEST(a_delayed_worker_holds_up_one_task) {
    for (int32_t n = 2; n <= 4; n++) {
        thread_pool *t;
        assert_int_equal(thread_pool_open(n, &t), QUIRE_OK);
        for (int32_t waiting_task = 0; waiting_task < 40; waiting_task++) {
            wait_job j = {.n_tasks = 40, .waiting_task = waiting_task};
            thread_pool_run(t, wait_for_the_others, &j, j.n_tasks);
            assert_false(j.has_given_up);
            assert_int_equal(j.n_done, j.n_tasks);
        }
        thread_pool_close(t);
    }
}

typedef struct sum_job {
    const int32_t *in;
    int32_t *out; /* plain memory: the thread pool must order it */
    int32_t add;
} sum_job;

static void add_part(void *context, int32_t task, int32_t worker) {
    (void)worker;
    sum_job *j = context;
    j->out[task] = j->in[task] + j->add;
}

TEST(each_run_sees_what_the_one_before_wrote) {
    enum { N = 64, RUNS = 20000 };
    static int32_t a[N], b[N];
    thread_pool *t;
    assert_int_equal(thread_pool_open(4, &t), QUIRE_OK);
    for (int32_t run = 0; run < RUNS; run++) {
        sum_job j = {run % 2 == 0 ? a : b, run % 2 == 0 ? b : a, run % 7};
        thread_pool_run(t, add_part, &j, 2 + run % (N - 1));
        if (run % 1000 == 999) { /* let the workers fall asleep now and then */
            const struct timespec pause = {.tv_nsec = 300000};
            nanosleep(&pause, NULL);
        }
    }
    int32_t c[N] = {0}, d[N] = {0};
    for (int32_t run = 0; run < RUNS; run++) {
        for (int32_t i = 0; i < 2 + run % (N - 1); i++) {
            *(run % 2 == 0 ? &d[i] : &c[i]) = (run % 2 == 0 ? c[i] : d[i]) + run % 7;
        }
    }
    assert_memory_equal(a, c, sizeof c);
    assert_memory_equal(b, d, sizeof d);
    thread_pool_close(t);
}

/* Takes a while, so that every worker gets a task. */
static void check_rounding(void *context, int32_t task, int32_t worker) {
    (void)task, (void)worker;
    _Atomic int32_t *wrong = context;
    volatile float tiny = 0x1p-126f, half = 0.5f;
    volatile float denormal = tiny * half;
    volatile float sum = denormal + denormal;
    if (denormal == 0.0f || sum != tiny || fegetround() != FE_TONEAREST) {
        atomic_fetch_add(wrong, 1);
    }
    const struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
}

TEST(every_worker_rounds_to_nearest_and_keeps_denormals) {
    _Atomic int32_t wrong = 0;
    fesetround(FE_DOWNWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, denormals are zero */
#endif
    thread_pool *t;
    assert_int_equal(thread_pool_open(3, &t), QUIRE_OK);
    thread_pool_run(t, check_rounding, &wrong, 24);
    assert_int_equal(wrong, 0);
    thread_pool_close(t);
}

static int64_t cpu_us(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec +
           u.ru_stime.tv_usec;
}

TEST(an_idle_thread_pool_uses_no_processor_time) {
    static job j = {.n_workers = 4};
    thread_pool *t;
    assert_int_equal(thread_pool_open(4, &t), QUIRE_OK);
    thread_pool_run(t, count_task, &j, 100);
    const struct timespec idle = {.tv_nsec = 100000000};
    int64_t used_us, before = cpu_us();
    do { /* until it has come to rest, which one that spins never does */
        nanosleep(&idle, NULL);
        used_us = cpu_us() - before;
        before += used_us;
    } while (used_us > 2000);
    thread_pool_close(t);
}

TEST(the_affinity_bounds_the_processors) {
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int32_t cpus = thread_pool_cpus();
    assert_true(cpus >= 1 && cpus <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(thread_pool_cpus(), 1);
    thread_pool *t;
    assert_int_equal(thread_pool_open(0, &t), QUIRE_OK);
    assert_int_equal(thread_pool_size(t), 1);
    thread_pool_close(t);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

TEST(impossible_sizes_are_refused) {
    thread_pool *t = NULL;
    assert_int_equal(thread_pool_open(-1, &t), QUIRE_INVALID);
    assert_int_equal(thread_pool_open(1 << 20, &t), QUIRE_INVALID);
    assert_null(t);
    thread_pool_close(NULL);
}

TEST_MAIN(NULL, NULL)
