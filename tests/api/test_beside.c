/* Several engines in one process: each generates the same alone or next to others, and
 * they may be closed in any order. */
#include <pthread.h>

#include "api_world.h"

static const char *const paths[2] = {"models/builtin-small.gguf", "models/builtin.gguf"};

static int32_t n_beside; /* of hosts */

static quire_engine *open_beside(quire_engine *host, const char *path) {
    quire_options o;
    quire_engine *e;
    quire_error err = {0};
    quire_options_init(&o);
    o.model = path;
    o.n_pages = 256;
    o.max_seqs = 4;
    o.n_threads = 2;
    o.n_beside = n_beside;
    const quire_err r =
        host != NULL ? quire_engine_open_beside(host, &o, &e, &err) : quire_engine_open(&o, &e, &err);
    if (r != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

/* A text that the engine generates; quire_free. */
static char *generate(quire_engine *e, const char *prompt) {
    quire_error err = {0};
    quire_request *r;
    char *text;
    size_t n;
    assert_int_equal(quire_request_text(e, prompt, strlen(prompt), &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "max_tokens", "24", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "temperature", "0", &err), QUIRE_OK);
    if (quire_generate(e, r, &text, &n, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return text;
}

typedef struct asking {
    quire_engine *e;
    const char *expected;
    int n;
} asking;

static void *ask(void *arg) {
    const asking *a = arg;
    for (int i = 0; i < a->n; i++) {
        char *text = generate(a->e, "The prince");
        assert_string_equal(text, a->expected);
        quire_free(text);
    }
    return NULL;
}

/* Any of them closes first. */
static void generate_beside(char *const expected[2]) {
    quire_engine *host = open_beside(NULL, paths[0]);
    pthread_t busy;
    asking of_host = {host, expected[0], 20};
    assert_int_equal(pthread_create(&busy, NULL, ask, &of_host), 0);
    quire_engine *other = open_beside(host, paths[1]), *third = open_beside(other, paths[0]);
    asking of_other = {other, expected[1], 5}, of_third = {third, expected[0], 5};
    ask(&of_other);
    ask(&of_third);
    assert_int_equal(quire_engine_info(other)->n_threads, 2);
    pthread_join(busy, NULL);
    quire_engine_close(host);
    ask(&of_third);
    ask(&of_other);
    quire_engine_close(other);
    ask(&of_third);
    quire_engine_close(third);
}

TEST(each_generates_what_it_does_alone) {
    char *expected[2];
    for (int i = 0; i < 2; i++) {
        quire_engine *alone = open_beside(NULL, paths[i]);
        expected[i] = generate(alone, "The prince");
        quire_engine_close(alone);
    }
    assert_string_not_equal(expected[0], expected[1]);
    generate_beside(expected);
    n_beside = 2;
    generate_beside(expected);
    n_beside = 0;
    for (int i = 0; i < 2; i++) {
        quire_free(expected[i]);
    }
}

/* Their pages and, under a cap, weights and buffers are in one memory, and what closes
 * gives all back. One that does not fit is refused until another one has left. */
TEST(engines_beside_each_other_share_one_memory) {
    enum { CAP = 40 << 20 };
    quire_engine *e[3];
    quire_page_memory before = {.size = sizeof before}, m = before;
    quire_options o;
    quire_error err = {0};
    quire_options_init(&o);
    o.model = paths[0];
    o.n_threads = 2;
    o.n_beside = 64;
    assert_int_equal(quire_engine_open(&o, &e[0], &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "n_beside is 64"));
    o.n_beside = 2;
    o.models_memory_bytes = CAP;
    assert_int_equal(quire_engine_open(&o, &e[0], &err), QUIRE_OK);
    quire_engine_page_memory(e[0], &before);
    assert_true(before.max_bytes < CAP && before.model_bytes == 0 &&
                before.sure_bytes <= before.max_bytes / 6);
    assert_int_equal(quire_engine_info(e[0])->n_pages,
                     before.max_bytes / quire_engine_info(e[0])->page_bytes);
    for (int round = 0; round < 2; round++) {
        o.model = paths[1];
        assert_int_equal(quire_engine_open_beside(e[0], &o, &e[1], &err), QUIRE_OK);
        const quire_info *i = quire_engine_info(e[1]);
        quire_engine_page_memory(e[1], &m);
        assert_int_equal(m.model_bytes, i->weight_bytes + i->buffer_bytes);
        assert_int_equal(m.max_bytes + m.model_bytes, before.max_bytes);
        assert_true(i->max_model_len * i->token_bytes <= m.sure_bytes);
        o.max_model_len = 2048; /* of pages that are promised to the others */
        o.kv_dtype = QUIRE_KV_F32;
        o.max_seqs = 1024;
        o.max_batched_tokens = 8192;
        assert_int_equal(quire_engine_open_beside(e[0], &o, &e[2], &err), QUIRE_NO_MEMORY);
        assert_non_null(strstr(err.message, "that the models share"));
        quire_options_init(&o);
        o.n_threads = 2;
        quire_free(generate(e[1], "The prince"));
        quire_engine_close(e[1]);
        quire_free(generate(e[0], "The prince"));
        quire_engine_drop_cache(e[0]);
        quire_free(generate(e[0], "x")); /* a step after the caches were dropped */
        quire_engine_page_memory(e[0], &m);
        assert_true(m.model_bytes == 0 && m.max_bytes == before.max_bytes && m.used_bytes == m.own_bytes);
    }
    quire_engine_close(e[0]);
}

TEST(what_cannot_be_opened_leaves_the_host_as_it_was) {
    quire_engine *host = open_beside(NULL, paths[0]), *other;
    quire_options o;
    quire_error err = {0};
    char *before = generate(host, "The prince");
    quire_options_init(&o);
    o.model = "models/no-such-model.gguf";
    assert_int_not_equal(quire_engine_open_beside(host, &o, &other, &err), QUIRE_OK);
    assert_null(other);
    assert_non_null(strstr(err.message, "no-such-model"));
    asking again = {host, before, 2};
    ask(&again);
    quire_free(before);
    quire_engine_close(host);
}

/* Who watches a load. */
typedef struct load_watcher {
    int n, last; /* calls; the one that ends the load, 0: none */
    double part;
} load_watcher;

static bool watch_load(void *user, double part) {
    load_watcher *w = user;
    assert_true(part >= w->part && part <= 1.0);
    w->part = part;
    return ++w->n != w->last;
}

TEST(a_load_tells_how_far_it_is_and_ends_when_it_is_told_to) {
    quire_engine *host = open_beside(NULL, paths[0]), *other;
    quire_options o;
    quire_error err = {0};
    load_watcher w = {.n = 0};
    char *before = generate(host, "The prince");
    quire_options_init(&o);
    o.model = paths[1];
    o.n_pages = 64;
    o.load_progress = watch_load;
    o.load_progress_user = &w;
    assert_int_equal(quire_engine_open_beside(host, &o, &other, &err), QUIRE_OK);
    assert_true(w.n > 10 && w.part > 0.5);
    quire_engine_close(other);
    for (int last = 1; last < w.n; last += 7) {
        load_watcher ends = {.last = last};
        o.load_progress_user = &ends;
        assert_int_equal(quire_engine_open_beside(host, &o, &other, &err), QUIRE_CANCELLED);
        assert_null(other);
        assert_int_equal(ends.n, last);
    }
    asking again = {host, before, 1};
    ask(&again);
    quire_free(before);
    quire_engine_close(host);
}

TEST(a_deadline_counts_what_a_request_waited_before_it_was_submitted) {
    static const char body[] = "{\"prompt\": \"a\", \"max_tokens\": 2, \"ttft_deadline_ms\": 3600000}";
    const int64_t waits_us[] = {0, INT64_C(1000000), INT64_C(3600000000)};
    quire_engine *e = open_beside(NULL, paths[0]);
    for (int i = 0; i < 3; i++) {
        quire_error err = {0};
        char *text = NULL;
        size_t n;
        quire_request *r = request_of(e, body);
        quire_request_waited(r, waits_us[i]);
        assert_int_equal(quire_generate(e, r, &text, &n, &err), i < 2 ? QUIRE_OK : QUIRE_BUSY);
        quire_free(text);
    }
    quire_engine_close(e);
}

TEST_MAIN(NULL, NULL)
