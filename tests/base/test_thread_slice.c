/* syscall() is outside POSIX. */
#define _DEFAULT_SOURCE

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread_slice.h"
#include "test.h"

enum { NICE = 3, US = 300, OTHER_US = 20000 };

/* The system's sched_attr, whose header does not go with pthread.h everywhere. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attributes;

/* In microseconds; 0 where the system has no slices of threads. */
static int32_t slice_us(void) {
    attributes a = {.size = sizeof a};
    return syscall(SYS_sched_getattr, 0, &a, (unsigned)sizeof a, 0) == 0 ? (int32_t)(a.runtime / 1000) : 0;
}

static void *slice_of_thread(void *to) {
    *(int32_t *)to = slice_us();
    return NULL;
}

TEST(a_thread_has_the_slice_that_it_set_and_gives_it_to_those_it_starts) {
    int32_t started = -1;
    pthread_t thread;
    thread_set_slice(0);
    int32_t own = slice_us();
    thread_set_slice(US);
    if (slice_us() == own) {
        print_message("SKIP: this kernel has no slices of threads\n");
        skip();
    }
    assert_int_equal(slice_us(), US);
    assert_int_equal(pthread_create(&thread, NULL, slice_of_thread, &started), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(started, US);
    thread_set_slice(OTHER_US);
    assert_int_equal(slice_us(), OTHER_US);
    thread_set_slice(0);
    assert_int_equal(slice_us(), own);
}

TEST(its_priority_stays) {
    assert_int_equal(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICE), 0);
    int nice = getpriority(PRIO_PROCESS, 0);
    thread_set_slice(US);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), nice);
}

TEST_MAIN(NULL, NULL)
