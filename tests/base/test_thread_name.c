#include <pthread.h>
#include <semaphore.h>

#include "base/thread_name.h"
#include "test.h"

enum { LEAST = 1, COMMON = 64, N = 70 };

typedef struct named {
    pthread_t thread;
    sem_t has_name, end;
    int32_t name;
} named;

static void *named_main(void *argument) {
    named *n = argument;
    n->name = thread_name();
    int32_t again = thread_name();
    sem_post(&n->has_name);
    sem_wait(&n->end);
    return again == n->name ? n : NULL;
}

static void start(named *n) {
    sem_init(&n->has_name, 0, 0);
    sem_init(&n->end, 0, 0);
    assert_int_equal(pthread_create(&n->thread, NULL, named_main, n), 0);
    sem_wait(&n->has_name);
}

static void end(named *n) {
    void *same;
    sem_post(&n->end);
    assert_int_equal(pthread_join(n->thread, &same), 0);
    assert_non_null(same);
    sem_destroy(&n->has_name);
    sem_destroy(&n->end);
}

TEST(live_threads_have_distinct_names_while_there_are_any) {
    named all[N];
    int32_t n_of[COMMON + 1] = {0};
    n_of[thread_name()]++;
    for (int i = 0; i < N; i++) {
        start(&all[i]);
        assert_in_range(all[i].name, LEAST, COMMON);
        n_of[all[i].name]++;
    }
    for (int32_t name = LEAST; name < COMMON; name++) {
        assert_int_equal(n_of[name], 1);
    }
    assert_int_equal(n_of[COMMON], N + 1 - (COMMON - LEAST));
    for (int i = 0; i < N; i++) {
        end(&all[i]);
    }
}

TEST(the_name_of_an_ended_thread_is_reused) {
    int32_t first = 0;
    for (int i = 0; i < 200; i++) {
        named n;
        start(&n);
        end(&n);
        first = i == 0 ? n.name : first;
        assert_int_equal(n.name, first);
        assert_int_not_equal(n.name, thread_name());
    }
}

TEST_MAIN(NULL, NULL)
