#include <pthread.h>
#include <sched.h>

#include "base/ring.h"
#include "test.h"

typedef struct entry {
    uint32_t producer, number;
    unsigned char rest[21]; /* an odd size, so that cells are not all of one word */
} entry;

TEST(entries_come_out_in_order_until_it_is_empty) {
    ring *r;
    assert_int_equal(ring_open(sizeof(entry), 4, &r), QUIRE_OK);
    entry e = {0}, got;
    assert_false(ring_pop(r, &got));
    for (uint32_t lap = 0; lap < 10; lap++) {
        for (uint32_t i = 0; i < 4; i++) {
            e.number = 4 * lap + i;
            assert_true(ring_push(r, &e));
        }
        assert_false(ring_push(r, &e));
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(ring_pop(r, &got));
            assert_int_equal(got.number, 4 * lap + i);
        }
        assert_false(ring_pop(r, &got));
    }
    ring_close(r);
}

TEST(a_ring_of_one_holds_one) {
    ring *r;
    int v = 7, got = 0;
    assert_int_equal(ring_open(sizeof v, 1, &r), QUIRE_OK);
    for (int lap = 0; lap < 5; lap++) {
        assert_true(ring_push(r, &v));
        assert_false(ring_push(r, &v));
        assert_true(ring_pop(r, &got));
        assert_false(ring_pop(r, &got));
    }
    assert_int_equal(got, 7);
    ring_close(r);
}

TEST(impossible_sizes_are_refused) {
    ring *r = NULL;
    assert_int_equal(ring_open(0, 4, &r), QUIRE_INVALID);
    assert_int_equal(ring_open(8, 0, &r), QUIRE_INVALID);
    assert_int_equal(ring_open(8, 3, &r), QUIRE_INVALID);
    assert_int_equal(ring_open(SIZE_MAX, 4, &r), QUIRE_TOO_LARGE);
    assert_int_equal(ring_open(8, SIZE_MAX / 2 + 1, &r), QUIRE_NO_MEMORY);
    assert_null(r);
    ring_close(NULL);
}

enum { N_PRODUCERS = 4, N_ENTRIES = 20000 };

typedef struct producer {
    ring *r;
    uint32_t number;
} producer;

static void *produce(void *argument) {
    const producer *p = argument;
    for (uint32_t i = 0; i < N_ENTRIES; i++) {
        entry e = {.producer = p->number, .number = i};
        for (size_t j = 0; j < sizeof e.rest; j++) {
            e.rest[j] = (unsigned char)(i + j);
        }
        while (!ring_push(p->r, &e)) {
            sched_yield();
        }
    }
    return NULL;
}

TEST(many_producers_lose_nothing_and_keep_their_order) {
    ring *r;
    assert_int_equal(ring_open(sizeof(entry), 64, &r), QUIRE_OK);
    pthread_t threads[N_PRODUCERS];
    producer producers[N_PRODUCERS];
    for (uint32_t i = 0; i < N_PRODUCERS; i++) {
        producers[i] = (producer){r, i};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    uint32_t next[N_PRODUCERS] = {0};
    for (int n = 0; n < N_PRODUCERS * N_ENTRIES;) {
        entry e;
        if (!ring_pop(r, &e)) {
            sched_yield();
            continue;
        }
        assert_true(e.producer < N_PRODUCERS);
        assert_int_equal(e.number, next[e.producer]);
        for (size_t j = 0; j < sizeof e.rest; j++) {
            assert_int_equal(e.rest[j], (unsigned char)(e.number + j));
        }
        next[e.producer]++;
        n++;
    }
    for (int i = 0; i < N_PRODUCERS; i++) {
        pthread_join(threads[i], NULL);
    }
    ring_close(r);
}

TEST_MAIN(NULL, NULL)
