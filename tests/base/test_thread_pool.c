/* sched_setaffinity() is outside POSIX. */
#define _GNU_SOURCE

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/clock.h"
#include "base/thread_pool.h"

enum { MAX_TEST_PARTS = 5000 };

typedef struct job {
    _Atomic int32_t times[MAX_TEST_PARTS];
    int32_t n_members;
    _Atomic int32_t bad_members;
} job;

static void count_part(void *context, int32_t part, int32_t member) {
    job *j = context;
    atomic_fetch_add(&j->times[part], 1);
    if (member < 0 || member >= j->n_members) {
        atomic_fetch_add(&j->bad_members, 1);
    }
}

static void every_part_is_done_exactly_once(void **state) {
    (void)state;
    static job j;
    for (int32_t n = 1; n <= 5; n++) {
        team *t;
        assert_int_equal(team_open(n, &t), QUIRE_OK);
        assert_int_equal(team_size(t), n);
        j.n_members = n;
        for (int32_t parts = 0; parts <= MAX_TEST_PARTS; parts = parts * 3 + 1) {
            memset(&j.times, 0, sizeof j.times);
            team_run(t, count_part, &j, parts);
            for (int32_t i = 0; i < MAX_TEST_PARTS; i++) {
                assert_int_equal(j.times[i], i < parts);
            }
        }
        team_close(t);
    }
    assert_int_equal(j.bad_members, 0);
}

typedef struct sum_job {
    const int32_t *in;
    int32_t *out; /* plain memory: the team must order it */
    int32_t add;
} sum_job;

static void add_part(void *context, int32_t part, int32_t member) {
    (void)member;
    sum_job *j = context;
    j->out[part] = j->in[part] + j->add;
}

static void each_run_sees_what_the_one_before_wrote(void **state) {
    (void)state;
    enum { N = 64, RUNS = 20000 };
    static int32_t a[N], b[N];
    team *t;
    assert_int_equal(team_open(4, &t), QUIRE_OK);
    for (int32_t run = 0; run < RUNS; run++) {
        sum_job j = {run % 2 == 0 ? a : b, run % 2 == 0 ? b : a, run % 7};
        team_run(t, add_part, &j, 2 + run % (N - 1));
        if (run % 1000 == 999) { /* let the members fall asleep now and then */
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
    team_close(t);
}

/* Takes a while, so that every member gets a part. */
static void check_rounding(void *context, int32_t part, int32_t member) {
    (void)part, (void)member;
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

static void every_member_rounds_to_nearest_and_keeps_denormals(void **state) {
    (void)state;
    _Atomic int32_t wrong = 0;
    fesetround(FE_DOWNWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, denormals are zero */
#endif
    team *t;
    assert_int_equal(team_open(3, &t), QUIRE_OK);
    team_run(t, check_rounding, &wrong, 24);
    assert_int_equal(wrong, 0);
    team_close(t);
}

static int64_t cpu_us(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

static void an_idle_team_uses_no_processor_time(void **state) {
    (void)state;
    static job j = {.n_members = 4};
    team *t;
    assert_int_equal(team_open(4, &t), QUIRE_OK);
    team_run(t, count_part, &j, 100);
    const struct timespec idle = {.tv_nsec = 100000000};
    int64_t used_us, before = cpu_us();
    do { /* until it has come to rest, which one that spins never does */
        nanosleep(&idle, NULL);
        used_us = cpu_us() - before;
        before += used_us;
    } while (used_us > 2000);
    team_close(t);
}

static void the_affinity_bounds_the_processors(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int32_t cpus = team_cpus();
    assert_true(cpus >= 1 && cpus <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(team_cpus(), 1);
    team *t;
    assert_int_equal(team_open(0, &t), QUIRE_OK);
    assert_int_equal(team_size(t), 1);
    team_close(t);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    team *t = NULL;
    assert_int_equal(team_open(-1, &t), QUIRE_INVALID);
    assert_int_equal(team_open(1 << 20, &t), QUIRE_INVALID);
    assert_null(t);
    team_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_done_exactly_once),
        cmocka_unit_test(each_run_sees_what_the_one_before_wrote),
        cmocka_unit_test(every_member_rounds_to_nearest_and_keeps_denormals),
        cmocka_unit_test(an_idle_team_uses_no_processor_time),
        cmocka_unit_test(the_affinity_bounds_the_processors),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
