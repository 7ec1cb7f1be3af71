#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/ring.h"
#include "test.h"

TEST(a_ring_before_the_wait_is_not_lost_and_many_count_as_one) {
    wake w;
    assert_int_equal(wake_init(&w), QUIRE_OK);
    assert_false(wake_wait(&w, 0));
    wake_ring(&w);
    wake_ring(&w);
    assert_true(wake_wait(&w, 0));
    assert_false(wake_wait(&w, 0));
    wake_deinit(&w);
    wake_deinit(&w);
}

TEST(a_wake_that_was_never_opened_closes_nothing) {
    wake w, closed = {0};
    assert_int_equal(wake_init(&w), QUIRE_OK);
    closed.fd = w.fd;
    wake_deinit(&closed);
    wake_ring(&w);
    assert_true(wake_wait(&w, 0));
    wake_deinit(&w);
    assert_false(w.is_open);
}

TEST(a_wait_ends_at_its_time) {
    wake w;
    assert_int_equal(wake_init(&w), QUIRE_OK);
    int64_t start = clock_us();
    assert_false(wake_wait(&w, 3000));
    assert_true(clock_us() - start >= 3000);
    wake_deinit(&w);
}

static void *ring_later(void *argument) {
    const struct timespec t = {.tv_nsec = 2000000};
    nanosleep(&t, NULL);
    wake_ring(argument);
    return NULL;
}

TEST(another_thread_wakes_a_wait_without_end) {
    wake w;
    assert_int_equal(wake_init(&w), QUIRE_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ring_later, &w), 0);
    assert_true(wake_wait(&w, -1));
    pthread_join(thread, NULL);
    wake_deinit(&w);
}

TEST_MAIN(NULL, NULL)
