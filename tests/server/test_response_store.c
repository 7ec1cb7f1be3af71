/* The store of responses: what is found, by whom and for how long, and what goes first
 * when it is full. */
#include "server/response_store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "test.h"

#define NEVER     INT64_MAX
#define NO_PARENT NULL

static response_store *store_open(size_t max_bytes, int64_t max_age_us) {
    response_store *s;
    assert_int_equal(response_store_open(max_bytes, max_age_us, &s), QUIRE_OK);
    return s;
}

static void keep(response_store *s, const char *tenant, const char *id, const char *object, const char *input,
                 const char *output, response_turn *parent, int64_t now_us) {
    const response_to_keep r = {.tenant = tenant,
                                .id = id,
                                .object = str_of(object),
                                .input = str_of(input),
                                .output = str_of(output),
                                .parent = parent};
    assert_int_equal(response_store_keep(s, &r, now_us), QUIRE_OK);
}

static void keep_in_progress(response_store *s, const char *tenant, const char *id, bool replaces,
                             bool in_progress) {
    const response_to_keep r = {.tenant = tenant,
                                .id = id,
                                .object = str_of(in_progress ? "{\"a\":0}" : "{\"a\":1}"),
                                .replaces = replaces,
                                .in_progress = in_progress};
    assert_int_equal(response_store_keep(s, &r, 0), QUIRE_OK);
}

/* What one of the three reads; "-": nothing is found. Static. */
typedef quire_err (*store_reader)(response_store *, const char *, str, int64_t, strbuf *);

static const char *read_by(store_reader reader, response_store *s, const char *tenant, const char *id,
                           int64_t now_us) {
    static char text[400];
    strbuf out = {0};
    quire_err e = reader(s, tenant, str_of(id), now_us, &out);
    assert_true(e == QUIRE_OK || e == QUIRE_NOT_FOUND);
    (void)snprintf(text, sizeof text, "%s", e != QUIRE_OK ? "-" : out.n > 0 ? out.p : "");
    strbuf_deinit(&out);
    return text;
}

static const char *object_of(response_store *s, const char *tenant, const char *id, int64_t now_us) {
    return read_by(response_store_object, s, tenant, id, now_us);
}

TEST(a_response_is_found_by_its_tenant_alone) {
    response_store *s = store_open(100000, NEVER);
    keep(s, "ann", "resp_1", "{\"of\":\"ann\"}", "i", "o", NO_PARENT, 0);
    keep(s, "bob", "resp_2", "{\"of\":\"bob\"}", "i", "o", NO_PARENT, 0);
    assert_string_equal(object_of(s, "ann", "resp_1", 0), "{\"of\":\"ann\"}");
    assert_string_equal(object_of(s, "bob", "resp_1", 0), "-");
    assert_string_equal(object_of(s, "", "resp_1", 0), "-");
    assert_string_equal(read_by(response_store_input, s, "bob", "resp_1", 0), "-");
    assert_string_equal(read_by(response_store_history, s, "bob", "resp_1", 0), "-");
    assert_null(response_store_turn(s, "bob", str_of("resp_1"), 0));
    assert_false(response_store_delete(s, "bob", str_of("resp_1"), 0));
    assert_int_equal(response_store_end(s, "bob", str_of("resp_1"), str_of("x"), 0), QUIRE_NOT_FOUND);
    assert_true(response_store_delete(s, "ann", str_of("resp_1"), 0));
    assert_string_equal(object_of(s, "ann", "resp_1", 0), "-");
    assert_string_equal(object_of(s, "bob", "resp_2", 0), "{\"of\":\"bob\"}");
    response_store_close(s);
}

TEST(a_conversation_is_the_turns_before_it_the_oldest_first) {
    response_store *s = store_open(100000, NEVER);
    keep(s, "t", "a", "{}", "a1\na2", "a3", NO_PARENT, 0);
    response_turn *a = response_store_turn(s, "t", str_of("a"), 0);
    keep(s, "t", "b", "{}", "b1", "b2\nb3", a, 0);
    keep(s, "t", "other", "{}", "", "c1", a, 0); /* another branch of it */
    response_turn_drop(s, a);
    assert_string_equal(read_by(response_store_history, s, "t", "a", 0), "a1\na2\na3");
    assert_string_equal(read_by(response_store_history, s, "t", "b", 0), "a1\na2\na3\nb1\nb2\nb3");
    assert_string_equal(read_by(response_store_history, s, "t", "other", 0), "a1\na2\na3\nc1");
    assert_string_equal(read_by(response_store_input, s, "t", "b", 0), "b1");
    assert_string_equal(read_by(response_store_input, s, "t", "other", 0), "");
    response_store_close(s);
}

TEST(a_conversation_outlives_the_responses_that_it_continues) {
    response_store *s = store_open(100000, NEVER);
    keep(s, "t", "a", "{}", "a1", "a2", NO_PARENT, 0);
    response_turn *a = response_store_turn(s, "t", str_of("a"), 0);
    assert_true(response_store_delete(s, "t", str_of("a"), 0));
    keep(s, "t", "b", "{}", "b1", "b2", a, 0);
    response_turn_drop(s, a);
    assert_string_equal(read_by(response_store_history, s, "t", "b", 0), "a1\na2\nb1\nb2");
    assert_true(response_store_delete(s, "t", str_of("b"), 0));
    assert_int_equal(response_store_count(s).bytes, 0);
    response_store_close(s);
}

TEST(a_response_leaves_when_it_is_too_old) {
    response_store *s = store_open(100000, 1000);
    keep(s, "t", "a", "{}", "", "", NO_PARENT, 0);
    keep(s, "t", "b", "{}", "", "", NO_PARENT, 600);
    assert_string_equal(object_of(s, "t", "a", 1000), "{}");
    assert_string_equal(object_of(s, "t", "a", 1001), "-"); /* its use did not make it younger */
    assert_string_equal(object_of(s, "t", "b", 1600), "{}");
    assert_string_equal(object_of(s, "t", "b", 1601), "-");
    assert_int_equal(response_store_count(s).n, 0);
    response_store_close(s);
}

TEST(what_was_not_used_for_longest_goes_first) {
    char large[1001];
    memset(large, 'x', sizeof large);
    large[1000] = '\0';
    response_store *s = store_open(4000, NEVER); /* room for three */
    keep(s, "t", "a", large, "", "", NO_PARENT, 0);
    keep(s, "t", "b", large, "", "", NO_PARENT, 1);
    keep(s, "t", "c", large, "", "", NO_PARENT, 2);
    assert_string_not_equal(object_of(s, "t", "a", 3), "-");
    keep(s, "t", "d", large, "", "", NO_PARENT, 4);
    assert_string_equal(object_of(s, "t", "b", 5), "-");
    assert_string_not_equal(object_of(s, "t", "a", 5), "-");
    assert_string_not_equal(object_of(s, "t", "c", 5), "-");
    assert_string_not_equal(object_of(s, "t", "d", 5), "-");
    response_store_close(s);
}

TEST(a_tenant_that_holds_little_loses_nothing_to_one_that_holds_much) {
    char large[1001], id[20];
    memset(large, 'x', sizeof large);
    large[1000] = '\0';
    response_store *s = store_open(20000, NEVER);
    keep(s, "small", "own", large, "", "", NO_PARENT, 0);
    for (int i = 0; i < 200; i++) {
        (void)snprintf(id, sizeof id, "r%d", i);
        keep(s, "large", id, large, "", "", NO_PARENT, 1 + i);
    }
    assert_string_not_equal(object_of(s, "small", "own", 300), "-");
    assert_string_equal(object_of(s, "large", "r0", 300), "-");
    assert_string_not_equal(object_of(s, "large", "r199", 300), "-");
    assert_true(response_store_count(s).bytes <= 20000 && response_store_count(s).n > 10);
    response_store_close(s);
}

TEST(a_store_without_room_keeps_nothing) {
    response_store *s = store_open(0, NEVER);
    keep(s, "t", "a", "{}", "", "", NO_PARENT, 0);
    assert_string_equal(object_of(s, "t", "a", 0), "-");
    response_store_close(s);
    s = store_open(50, NEVER); /* less than one takes */
    keep(s, "t", "a", "{}", "", "", NO_PARENT, 0);
    assert_int_equal(response_store_count(s).n, 0);
    assert_int_equal(response_store_count(s).bytes, 0);
    response_store_close(s);
}

TEST(responses_in_progress_are_counted_by_tenant) {
    response_store *s = store_open(100000, 10);
    keep_in_progress(s, "t", "a", false, true);
    keep_in_progress(s, "t", "b", false, true);
    keep_in_progress(s, "u", "c", false, true);
    keep_in_progress(s, "t", "a", true, true); /* in its place */
    assert_int_equal(response_store_running(s, "t"), 2);
    assert_int_equal(response_store_running(s, "u"), 1);
    assert_int_equal(response_store_running(s, "v"), 0);
    keep_in_progress(s, "t", "a", true, false);
    assert_int_equal(response_store_running(s, "t"), 1);
    assert_int_equal(response_store_end(s, "t", str_of("b"), str_of("{}"), 0), QUIRE_OK);
    assert_true(response_store_delete(s, "u", str_of("c"), 0));
    assert_int_equal(response_store_running(s, "t") + response_store_running(s, "u"), 0);
    response_store_close(s);
}

TEST(a_response_in_progress_is_replaced_until_it_has_ended) {
    response_store *s = store_open(100000, 10);
    keep_in_progress(s, "t", "a", false, true);
    assert_true(response_store_in_progress(s, "t", str_of("a"), 1000)); /* it does not age */
    keep_in_progress(s, "t", "a", true, true);
    keep_in_progress(s, "t", "a", true, false);
    assert_string_equal(object_of(s, "t", "a", 0), "{\"a\":1}");
    assert_false(response_store_in_progress(s, "t", str_of("a"), 0));
    assert_int_equal(response_store_end(s, "t", str_of("a"), str_of("{\"a\":2}"), 0), QUIRE_NOT_FOUND);
    keep_in_progress(s, "t", "b", false, true);
    assert_int_equal(response_store_end(s, "t", str_of("b"), str_of("{\"a\":2}"), 0), QUIRE_OK);
    keep_in_progress(s, "t", "b", true, false); /* it ended before: this comes too late */
    assert_string_equal(object_of(s, "t", "b", 0), "{\"a\":2}");
    keep_in_progress(s, "t", "c", false, true);
    assert_true(response_store_delete(s, "t", str_of("c"), 0));
    keep_in_progress(s, "t", "c", true, false);
    assert_string_equal(object_of(s, "t", "c", 0), "-");
    response_store_close(s);
}

/* ---- any order of all calls ---- */

enum { N_TENANTS = 3, N_IDS = 40, N_CALLS = 20000 };

/* Each response has an object that says whose it is, so a wrong one shows. */
static void call_any(response_store *s, uint64_t *seed, int64_t now_us, response_turn **held) {
    static const char *const tenants[N_TENANTS] = {"", "ann", "bob"};
    uint64_t word = rng_next(seed);
    const char *tenant = tenants[word % N_TENANTS];
    char id[20], object[600];
    (void)snprintf(id, sizeof id, "r%d", (int)((word >> 8) % N_IDS));
    int pad = (int)(word >> 16 & 255), call = (int)(word >> 24 & 7);
    (void)snprintf(object, sizeof object, "%s/%s/%*d", tenant, id, pad + 1, 0);
    if (call <= 2) {
        const response_to_keep r = {.tenant = tenant,
                                    .id = id,
                                    .object = str_of(object),
                                    .input = str_of(object),
                                    .parent = call > 0 ? *held : NULL,
                                    .replaces = (word >> 40 & 7) == 0,
                                    .in_progress = (word >> 44 & 3) == 0};
        assert_int_equal(response_store_keep(s, &r, now_us), QUIRE_OK);
    } else if (call == 3) {
        (void)response_store_delete(s, tenant, str_of(id), now_us);
    } else if (call == 4) {
        (void)response_store_end(s, tenant, str_of(id), str_of(object), now_us);
    } else if (call == 5) {
        response_turn *t = response_store_turn(s, tenant, str_of(id), now_us);
        if (*held != NULL) {
            response_turn_drop(s, *held);
        }
        *held = t;
    } else {
        const char *found = object_of(s, tenant, id, now_us);
        char begin[30];
        (void)snprintf(begin, sizeof begin, "%s/%s/", tenant, id);
        if (strcmp(found, "-") != 0 && strncmp(found, begin, strlen(begin)) != 0) {
            fail_msg("%s's %s is %s", tenant, id, found);
        }
    }
}

TEST(calls_in_any_order_keep_the_bound_and_leave_nothing_behind) {
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    enum { MAX_BYTES = 12000 };
    response_store *s = store_open(MAX_BYTES, 3000);
    response_turn *held = NULL;
    for (int64_t i = 0; i < N_CALLS; i++) {
        call_any(s, &seed, i, &held);
    }
    if (held != NULL) {
        response_turn_drop(s, held);
    }
    /* all that is in progress ends, and all that is over goes by its age */
    static const char *const tenants[N_TENANTS] = {"", "ann", "bob"};
    for (int t = 0; t < N_TENANTS; t++) {
        for (int i = 0; i < N_IDS; i++) {
            char id[20];
            (void)snprintf(id, sizeof id, "r%d", i);
            (void)response_store_end(s, tenants[t], str_of(id), str_of("{}"), N_CALLS);
        }
    }
    assert_true(response_store_count(s).bytes <= MAX_BYTES);
    assert_string_equal(object_of(s, "", "none", 10 * N_CALLS), "-");
    assert_int_equal(response_store_count(s).n, 0);
    assert_int_equal(response_store_count(s).bytes, 0);
    response_store_close(s);
}

static void *call_from_thread(void *arg) {
    response_turn *held = NULL;
    uint64_t seed = (uint64_t)(uintptr_t)&held;
    for (int64_t i = 0; i < N_CALLS / 4; i++) {
        char id[20];
        (void)snprintf(id, sizeof id, "r%d", (int)(rng_next(&seed) % N_IDS));
        const response_to_keep r = {.tenant = "t", .id = id, .object = str_of("{}"), .parent = held};
        assert_int_equal(response_store_keep(arg, &r, i), QUIRE_OK);
        response_turn_drop(arg, held);
        held = response_store_turn(arg, "t", str_of(id), i);
        (void)response_store_delete(arg, "t", str_of("r1"), i);
    }
    response_turn_drop(arg, held);
    return NULL;
}

TEST(threads_share_a_store) {
    pthread_t threads[3];
    response_store *s = store_open(8000, NEVER);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call_from_thread, s), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(response_store_count(s).bytes >= 0 && response_store_count(s).n <= N_IDS);
    response_store_close(s);
}

TEST_MAIN(NULL, NULL)
