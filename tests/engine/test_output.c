/* Output tables at full speed: one thread publishes as the engine does, another reads,
 * and closes the output table the moment its last end has come. */
#include <stdio.h>

#include <pthread.h>
#include <sched.h>

#include "base/mem.h"
#include "base/ring.h"
#include "engine/output.h"
#include "engine/state.h"
#include "seed.h"

#define N_INDEXES  8
#define N_LIVE     6
#define N_ROUNDS   2000
#define N_A_ROUND  25
#define MAX_TOKENS 20

/* An engine as far as output tables know one: its locks, a table of requests. */
static void fake_engine_init(engine *e) {
    *e = (engine){.options.max_requests = N_INDEXES, .n_free_entries = N_INDEXES};
    e->entries = mem_new(N_INDEXES, sizeof *e->entries);
    e->free_entries = mem_new(N_INDEXES, sizeof *e->free_entries);
    assert_true(e->entries && e->free_entries);
    assert_int_equal(pthread_mutex_init(&e->lock, NULL), 0);
    assert_int_equal(pthread_mutex_init(&e->readers_lock, NULL), 0);
    for (int32_t i = 0; i < N_INDEXES; i++) {
        e->free_entries[i] = N_INDEXES - 1 - i;
    }
}

static void fake_engine_deinit(engine *e) {
    assert_int_equal(e->n_free_entries, N_INDEXES);
    mem_free(e->entries);
    mem_free(e->free_entries);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->readers_lock);
}

/* What one sequence shows its reader: n tokens counting up from first. */
typedef struct script {
    int32_t first, n, n_read;
    bool ended;
} script;

static bool take_index(engine *e, request_id *id) {
    pthread_mutex_lock(&e->lock);
    bool free_index = e->n_free_entries > 0;
    if (free_index) {
        id->index = (uint32_t)e->free_entries[--e->n_free_entries];
        id->generation = e->entries[id->index].generation;
    }
    pthread_mutex_unlock(&e->lock);
    return free_index;
}

static sequence *begin(engine *e, engine_out *o, script *sc) {
    int32_t *prompt = mem_new(1, sizeof *prompt);
    sequence *s;
    engine_request r = {.tokens = prompt, .n_tokens = 1, .out = o, .user = sc};
    static const model_desc desc = {0};
    assert_int_equal(sequence_new(&r, NULL, &desc, 1 + MAX_TOKENS, 1, 1 + MAX_TOKENS / 16, &s), QUIRE_OK);
    mem_free(prompt);
    while (!take_index(e, &s->id)) {
        out_wake_readers(e);
        sched_yield();
    }
    out_enter(s);
    return s;
}

/* One more token of s, or its end; false when that was the end. */
static bool advance(engine *e, sequence *s) {
    const script *sc = s->user;
    int32_t n_done = s->task.n_known - 1;
    if (n_done == sc->n) {
        step_finish(e, s, FINISH_LENGTH, QUIRE_OK);
        sequence_drop(s);
        return false;
    }
    s->task.tokens[s->task.n_known++] = sc->first + n_done;
    out_publish(s, FINISH_NONE);
    return true;
}

typedef struct writer {
    engine *e;
    engine_out *out;
    script *scripts;
    uint64_t state;
} writer;

static void *write_round(void *arg) {
    writer *w = arg;
    sequence *live[N_LIVE];
    int32_t n_live = 0, next = 0;
    while (next < N_A_ROUND || n_live > 0) {
        if (next < N_A_ROUND && n_live < N_LIVE) {
            live[n_live++] = begin(w->e, w->out, &w->scripts[next++]);
        }
        int32_t i = (int32_t)(rng_next(&w->state) % (uint64_t)n_live);
        if (!advance(w->e, live[i])) {
            live[i] = live[--n_live];
        }
        if (rng_next(&w->state) % 4 == 0) {
            out_wake_readers(w->e);
        }
    }
    out_wake_readers(w->e);
    return NULL;
}

static void read_round(engine_out *o, wake *w) {
    for (int32_t n_ended = 0; n_ended < N_A_ROUND;) {
        engine_event ev;
        if (!engine_out_pop(o, &ev)) {
            assert_true(wake_wait(w, 10000000)); /* an event that nobody rings for would never come */
            continue;
        }
        script *sc = ev.user;
        assert_false(sc->ended);
        if (ev.finish == FINISH_NONE) {
            assert_int_equal(ev.token, sc->first + sc->n_read);
            assert_int_equal(ev.position, 1 + sc->n_read);
            sc->n_read++;
        } else {
            assert_int_equal(sc->n_read, sc->n);
            sc->ended = true;
            n_ended++;
        }
    }
}

TEST(every_token_arrives_once_and_in_order_and_the_end_last) {
    engine e;
    fake_engine_init(&e);
    for (int round = 0; round < N_ROUNDS; round++) {
        script scripts[N_A_ROUND] = {0};
        wake reader;
        writer w = {.e = &e, .scripts = scripts, .state = seed + (uint64_t)round};
        pthread_t thread;
        for (int i = 0; i < N_A_ROUND; i++) {
            scripts[i] = (script){.first = i * 100, .n = (int32_t)(rng_next(&w.state) % MAX_TOKENS)};
        }
        assert_int_equal(wake_init(&reader), QUIRE_OK);
        assert_int_equal(engine_out_open(&e, &reader, &w.out), QUIRE_OK);
        assert_int_equal(pthread_create(&thread, NULL, write_round, &w), 0);
        read_round(w.out, &reader);
        engine_out_close(w.out); /* the writer may still be inside the publishing of the last end */
        wake_deinit(&reader);
        pthread_join(thread, NULL);
    }
    fake_engine_deinit(&e);
}

/* A index in the table stays taken until its end was read: otherwise another request
 * would write over it on the output table. */
TEST(a_reader_that_reads_nothing_fills_the_table) {
    engine e;
    engine_out *o;
    wake reader;
    script scripts[N_INDEXES] = {0};
    request_id id;
    engine_event ev;
    fake_engine_init(&e);
    assert_int_equal(wake_init(&reader), QUIRE_OK);
    assert_int_equal(engine_out_open(&e, &reader, &o), QUIRE_OK);
    for (int i = 0; i < N_INDEXES; i++) {
        assert_false(advance(&e, begin(&e, o, &scripts[i])));
    }
    assert_false(take_index(&e, &id));
    out_wake_readers(&e);
    for (int i = 0; i < N_INDEXES; i++) {
        assert_true(engine_out_pop(o, &ev));
        assert_ptr_equal(ev.user, &scripts[i]);
        assert_int_equal(e.n_free_entries, i + 1);
    }
    assert_false(engine_out_pop(o, &ev));
    engine_out_close(o);
    wake_deinit(&reader);
    fake_engine_deinit(&e);
}

/* Marks are looked at by index, so a reader that comes late reads ends in another order
 * than they came in: each says how many came before it. */
TEST(ends_that_are_read_late_say_in_which_order_they_came) {
    static const int32_t order[N_INDEXES] = {5, 2, 7, 0, 3, 6, 1, 4};
    engine e;
    engine_out *o;
    wake reader;
    script scripts[N_INDEXES] = {0};
    sequence *all[N_INDEXES];
    fake_engine_init(&e);
    assert_int_equal(wake_init(&reader), QUIRE_OK);
    assert_int_equal(engine_out_open(&e, &reader, &o), QUIRE_OK);
    for (uint64_t round = 0; round < 2; round++) {
        bool was_read[N_INDEXES] = {false}, as_they_came = true;
        for (int i = 0; i < N_INDEXES; i++) {
            all[i] = begin(&e, o, &scripts[i]);
        }
        for (int i = 0; i < N_INDEXES; i++) {
            assert_false(advance(&e, all[order[i]]));
        }
        out_wake_readers(&e);
        for (uint64_t i = 0; i < N_INDEXES; i++) {
            engine_event ev;
            assert_true(engine_out_pop(o, &ev));
            assert_in_range(ev.n_ended_before, round * N_INDEXES, round * N_INDEXES + N_INDEXES - 1);
            uint64_t index = ev.n_ended_before - round * N_INDEXES;
            assert_false(was_read[index]);
            was_read[index] = true;
            assert_ptr_equal(ev.user, &scripts[order[index]]);
            as_they_came = as_they_came && index == i;
        }
        assert_false(as_they_came); /* else this shows nothing */
    }
    engine_out_close(o);
    wake_deinit(&reader);
    fake_engine_deinit(&e);
}

TEST_MAIN_SEEDED(NULL, NULL)
