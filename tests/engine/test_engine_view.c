/* Looks at a running engine from other threads. */
#include <pthread.h>

#include "engine/engine_view.h"
#include "harness.h"
#include "test.h"

static harness_options small_model;

static const quire_kv_view *look(engine_view *w, int32_t page, uint64_t after) {
    engine_view_ask(w, page, after);
    const quire_kv_view *v = NULL;
    while (v == NULL) {
        assert_true(wake_wait(engine_view_reader(w), 20000000));
        wake_ring(engine_view_reader(w)); /* get takes it back */
        v = engine_view_get(w);
    }
    assert_int_equal(v->n_free + v->n_held + v->n_cached, v->n_pages);
    return v;
}

/* An engine that holds itself after N_STEPS steps, with a request in their middle. */
enum { N_STEPS = 12 };
static struct {
    const backend_ops *own; /* what is wrapped */
    backend_ops ops;
    engine *e;
    int32_t n; /* steps that are left */
} held;

static void hold_in_step(backend *b) {
    held.own->step_wait(b);
    if (held.e != NULL && --held.n == 0) {
        atomic_store(&held.e->paused, true);
    }
}

static const backend_ops *hold_wrap(const backend_ops *ops, const model_desc *d) {
    (void)d;
    held.own = ops;
    held.ops = *ops;
    held.ops.step_wait = hold_in_step;
    return &held.ops;
}

TEST(a_look_shows_what_runs_and_what_it_left) {
    harness h = {0};
    harness_options o = small_model;
    uint64_t seed = 11;
    int32_t prompt[40];
    engine_view *w;
    o.wrap = hold_wrap;
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, 40, prompt);
    assert_int_equal(engine_view_open(h.e, &w), QUIRE_OK);
    assert_null(engine_view_get(w));
    assert_int_equal(look(w, -1, 0)->n_free, 1024);
    harness_run r = {.prompt = prompt, .n_prompt = 40, .sampling = greedy(400)};
    held.n = N_STEPS;
    held.e = h.e;
    harness_submit(&h, &r);
    const quire_kv_view *v;
    bool is_held;
    do {
        is_held = atomic_load(&h.e->paused); /* before the look */
        v = look(w, 0, 0);
    } while (!is_held);
    assert_int_equal(v->n_seqs, 1);
    assert_true(v->seqs[0].n_tokens >= 48);
    assert_int_equal(v->seqs[0].id, 1);
    assert_int_equal(v->n_held, v->seqs[0].n_pages);
    assert_true(v->n_entries_shown >= 3);
    assert_int_equal(v->pages[v->entries[0].page].holders[0], 0);
    assert_memory_equal(v->entries[0].label, prompt, 8 * sizeof *prompt);
    int32_t first = v->entries[0].page;
    v = look(w, first, 0);
    assert_int_equal(v->n_page_tokens, 16);
    assert_memory_equal(v->page_token, prompt, 16 * sizeof *prompt);
    harness_wait(&h, 1);
    while (look(w, -1, 0)->n_held > 0) {
    }
    v = look(w, -1, 0);
    assert_int_equal(v->n_cached, (439 + 15) / 16); /* 440 tokens, the last of which was never computed */
    assert_int_equal(v->n_events + (int32_t)v->n_events_lost, 439 / 16);
    assert_int_equal(look(w, -1, v->last_event)->n_events, 0);
    engine_view_close(w);
    harness_close(&h);
}

TEST(a_look_may_be_dropped_while_it_is_asked_for) {
    harness h = {0};
    harness_open(&small_model, &h);
    for (int i = 0; i < 200; i++) {
        engine_view *w;
        assert_int_equal(engine_view_open(h.e, &w), QUIRE_OK);
        engine_view_ask(w, i, 0);
        engine_view_ask(w, i, 0); /* the same ask */
        engine_view_close(w);
    }
    harness_close(&h);
}

/* ---- many at once, while requests run ---- */

#define N_LOOKERS 4
#define N_LOOKS   200

static void *look_often(void *arg) {
    harness *h = arg;
    engine_view *w;
    if (engine_view_open(h->e, &w) != QUIRE_OK) {
        return NULL;
    }
    long n_good = 0;
    for (int i = 0; i < N_LOOKS; i++) {
        const quire_kv_view *v = NULL;
        engine_view_ask(w, i % 50, 0);
        while ((v = engine_view_get(w)) == NULL) {
            wake_wait(engine_view_reader(w), 1000);
        }
        int64_t unshared = 0;
        for (int32_t s = 0; s < v->n_seqs; s++) {
            unshared += v->seqs[s].n_pages;
        }
        n_good += v->n_free + v->n_held + v->n_cached == v->n_pages && unshared == v->n_unshared;
    }
    engine_view_close(w);
    return (void *)n_good;
}

TEST(looking_changes_no_token) {
    uint64_t seed = 5;
    int32_t prompts[8][60], alone[8][40];
    pthread_t threads[N_LOOKERS];
    for (int round = 0; round < 2; round++) {
        harness h = {0};
        harness_run runs[8];
        harness_open(&small_model, &h);
        for (int i = 0; round == 0 && i < 8; i++) {
            random_prompt(&seed, h.n_vocab, 60, prompts[i]);
        }
        for (int i = 0; round == 1 && i < N_LOOKERS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, look_often, &h), 0);
        }
        for (int i = 0; i < 8; i++) {
            runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = 60, .sampling = greedy(40)};
            harness_submit(&h, &runs[i]);
        }
        harness_wait(&h, 8);
        for (int i = 0; round == 1 && i < N_LOOKERS; i++) {
            void *n_good;
            pthread_join(threads[i], &n_good);
            assert_int_equal((long)n_good, N_LOOKS);
        }
        for (int i = 0; i < 8; i++) {
            if (round == 0) {
                memcpy(alone[i], runs[i].tokens, sizeof alone[i]);
            } else {
                assert_memory_equal(alone[i], runs[i].tokens, sizeof alone[i]);
            }
        }
        harness_close(&h);
    }
}

int main(void) {
    small_model = harness_defaults;
    small_model.path = "models/builtin-small.gguf";
    return tests_run(NULL, NULL);
}
