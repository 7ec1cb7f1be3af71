/* The room of large bodies: shares of tenants, the line, the lane, and that all of it is
 * given back. */
#include "server/site.h"

#include "server/bodies.h"

#define KB ((size_t)1 << 10)
#define MB ((size_t)1 << 20)

/* ---- the room by itself ---- */

static int n_rings;

static void ring(void *arg) {
    (void)arg;
    n_rings++;
}

static body_room *open_room(size_t max) {
    body_room *r = calloc(1, sizeof *r);
    n_rings = 0;
    body_room_open(r, max, ring, NULL);
    return r;
}

static void close_room(body_room *r) {
    assert_int_equal(body_room_count(r).n_bytes, 0);
    assert_int_equal(body_room_count(r).n_waiting, 0);
    body_room_close(r);
    free(r);
}

static bool take(body_room *r, body_claim *c, const char *tenant, uint64_t whole, size_t n) {
    return body_room_take(r, c, str_of(tenant), whole, n);
}

TEST(a_tenant_takes_room_as_long_as_as_much_stays_free) {
    body_room *r = open_room(100);
    body_claim a[2] = {{0}}, b[2] = {{0}}, c = {0};
    assert_true(take(r, &a[0], "a", 60, 50));
    assert_false(take(r, &a[1], "a", 60, 1)); /* 51 of 100 */
    assert_true(take(r, &b[0], "b", 60, 25));
    assert_false(take(r, &b[1], "b", 60, 1)); /* 26 of the 50 that a leaves */
    assert_true(take(r, &c, "c", 60, 12));
    assert_int_equal(body_room_count(r).n_bytes, 87);
    assert_int_equal(body_room_count(r).n_waiting, 2);
    assert_int_equal(n_rings, 0);
    body_room_give(r, &a[0]);
    assert_int_equal(n_rings, 1);
    assert_false(atomic_load(&a[1].waits));
    assert_false(atomic_load(&b[1].waits)); /* 26 of 100 - 12 - 1 */
    assert_int_equal(body_room_count(r).n_bytes, 25 + 12 + 2);
    body_room_give(r, &a[1]);
    body_room_give(r, &b[0]);
    body_room_give(r, &b[1]);
    body_room_give(r, &c);
    close_room(r);
}

TEST(whoever_holds_its_share_a_tenant_more_finds_some) {
    enum { TENANTS = 8 };
    body_room *r = open_room(1000);
    body_claim first[TENANTS] = {{0}}, rest[TENANTS] = {{0}};
    for (int i = 0; i < TENANTS; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%d", i);
        assert_true(take(r, &first[i], name, 1000, 1)); /* always */
        for (int n = 0; n < 1000 && take(r, &rest[i], name, 1000, 1); n++) {
        }
        assert_true(atomic_load(&rest[i].waits));
        assert_true(body_room_count(r).n_bytes < 1000);
    }
    for (int i = 0; i < TENANTS; i++) {
        body_room_give(r, &first[i]);
        body_room_give(r, &rest[i]);
    }
    close_room(r);
}

TEST(smaller_bodies_pass_larger_ones_that_wait) {
    body_room *r = open_room(100);
    body_claim held = {0}, large = {0}, small = {0}, middle = {0};
    assert_true(take(r, &held, "a", 50, 50));
    assert_false(take(r, &large, "a", 40, 10));
    assert_false(take(r, &middle, "a", 20, 10));
    assert_false(take(r, &small, "a", 5, 5));
    body_room_give(r, &held);
    assert_false(atomic_load(&small.waits) || atomic_load(&middle.waits) || atomic_load(&large.waits));
    assert_true(take(r, &held, "a", 30, 25));
    body_room_give(r, &held);
    assert_true(take(r, &held, "a", 1, 25)); /* 50: it is full again */
    assert_false(take(r, &large, "a", 40, 10));
    assert_false(take(r, &middle, "a", 20, 10));
    assert_false(take(r, &small, "a", 5, 25));
    body_room_give(r, &held);
    assert_false(atomic_load(&small.waits)); /* the smallest has all of it, and those after it none */
    assert_true(atomic_load(&middle.waits) && atomic_load(&large.waits));
    body_room_give(r, &small);
    assert_false(atomic_load(&middle.waits) || atomic_load(&large.waits));
    body_room_give(r, &middle);
    body_room_give(r, &large);
    close_room(r);
}

/* The bound of bodies.h: a body that begins after as many bytes were taken as the
 * waiting one has does not pass it. */
TEST(a_large_body_is_passed_by_no_more_than_its_own_length) {
    body_room *r = open_room(100);
    body_claim held = {0}, large = {0};
    assert_true(take(r, &held, "a", 50, 50));
    assert_false(take(r, &large, "a", 40, 40));
    int passed = 0;
    /* one more body of 10 stands in line before room for it is given back */
    for (; atomic_load(&large.waits); passed += 10) {
        body_claim small = {0};
        assert_false(take(r, &small, "a", 10, 50));
        body_room_give(r, &held);
        if (atomic_load(&large.waits)) {
            held = small;
            held.next = NULL;
            assert_ptr_equal(r->lane, NULL);
        } else {
            body_room_give(r, &small);
            break;
        }
    }
    assert_in_range(passed, 10, 40);
    body_room_give(r, &large);
    close_room(r);
}

TEST(where_all_bodies_of_a_tenant_wait_one_at_a_time_goes_on) {
    body_room *r = open_room(100);
    body_claim a[3] = {{0}}, b = {0};
    for (int i = 0; i < 3; i++) {
        assert_true(take(r, &a[i], "a", 60 + (uint64_t)i, 16));
    }
    assert_false(take(r, &a[2], "a", 62, 16));
    assert_false(take(r, &a[1], "a", 61, 16));
    assert_true(take(r, &a[0], "a", 60, 16)); /* the last one that moved: all would stand still */
    assert_ptr_equal(r->lane, &a[0]);
    assert_true(take(r, &a[0], "a", 60, 28));
    assert_int_equal(body_room_count(r).n_bytes, 3 * 16 + 44);
    assert_true(take(r, &b, "b", 26, 26)); /* what is beyond a's share is not another tenant's */
    assert_true(atomic_load(&a[1].waits) && atomic_load(&a[2].waits));
    body_room_give(r, &b);
    body_room_give(r, &a[0]);
    assert_false(atomic_load(&a[1].waits));
    body_room_give(r, &a[1]);
    assert_false(atomic_load(&a[2].waits));
    body_room_give(r, &a[2]);
    close_room(r);
}

TEST(a_body_larger_than_the_room_is_received_and_the_next_one_after_it) {
    body_room *r = open_room(100);
    body_claim first = {0}, second = {0};
    assert_true(take(r, &first, "a", 1000, 300));
    assert_true(take(r, &first, "a", 1000, 700));
    assert_false(take(r, &second, "b", 1000, 300));
    assert_int_equal(n_rings, 0);
    body_room_give(r, &first);
    assert_int_equal(n_rings, 1);
    assert_false(atomic_load(&second.waits));
    body_room_give(r, &second);
    close_room(r);
}

enum { STORM = 24, LONGEST = 300, PIECE = 20 };

/* A body whose client sends all of it and waits for the answer: takes its next piece, or
 * ends. */
static void go_on(body_room *r, body_claim *c, int i, size_t *whole) {
    char name[2] = {(char)('a' + i % 5), 0};
    size_t left = *whole - c->held;
    if (*whole > 0 && left == 0) {
        body_room_give(r, c);
        *whole = 0;
    } else if (*whole > 0 && !atomic_load(&c->waits)) {
        (void)take(r, c, name, *whole, left < PIECE ? left : PIECE);
    }
}

/* Bodies of many sizes and tenants, whose clients come and leave for a time; then those
 * that are there go on until all have ended. */
static void storm_of_bodies(body_room *r, size_t max, uint32_t random) {
    body_claim c[STORM] = {{0}};
    size_t whole[STORM] = {0};
    for (int step = 0; step < 400; step++) {
        random = random * 1664525u + 1013904223u;
        int i = (int)(random >> 16) % STORM;
        if (whole[i] == 0) {
            whole[i] = PIECE + (random >> 12) % (LONGEST - PIECE);
        } else if (((random >> 8) & 63) == 0) { /* the client leaves */
            body_room_give(r, &c[i]);
            whole[i] = 0;
        } else {
            go_on(r, &c[i], i, &whole[i]);
        }
        size_t beside = r->lane != NULL ? r->lane->in_lane : 0;
        assert_true(r->n_bytes <= max && beside <= LONGEST);
        assert_int_equal(body_room_count(r).n_bytes, r->n_bytes + beside);
    }
    for (int round = 0; round < STORM * LONGEST / PIECE; round++) {
        for (int i = 0; i < STORM; i++) {
            go_on(r, &c[i], i, &whole[i]);
        }
    }
    for (int i = 0; i < STORM; i++) {
        assert_int_equal(whole[i], 0);
    }
}

TEST(bodies_never_hold_more_than_they_may_and_none_stands_still) {
    static const size_t rooms[] = {10, 100, 301, 1000, 10000}; /* from less than a body to enough for all */
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        body_room *r = open_room(rooms[i]);
        for (uint32_t k = 0; k < 50; k++) {
            storm_of_bodies(r, rooms[i], k * 977 + (uint32_t)i);
        }
        close_room(r);
    }
}

/* ---- the server ---- */

static const char *const keys[] = {"ka", "kb"};

static site *start_with(size_t max_bodies, int64_t least_rate, int64_t pace_us, int64_t deadline_us) {
    server_options o;
    server_options_init(&o);
    o.max_bodies_bytes = max_bodies;
    o.body_least_rate = least_rate;
    o.body_pace_us = pace_us;
    o.body_deadline_us = deadline_us;
    o.n_loops = 3; /* which free room for each other */
    o.api_keys = keys;
    o.n_api_keys = 2;
    return start(&o, TICK_US);
}

static site *start_patient(size_t max_bodies) {
    return start_with(max_bodies, 0, 5000000, NEVER_US);
}

/* The head of a request with a body of `length` bytes, or in chunks where that is 0. */
static void say_head(int fd, const char *key, size_t length, const char *more) {
    char text[400], size[64];
    snprintf(size, sizeof size, length > 0 ? "Content-Length: %zu" : "Transfer-Encoding: chunked", length);
    snprintf(text, sizeof text,
             "POST /v1/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Type: "
             "application/json\r\n"
             "%s%s\r\n\r\n",
             key, more, size);
    say(fd, text);
}

static void say_blanks(int fd, size_t n) {
    static char blanks[64 << 10];
    memset(blanks, ' ', sizeof blanks);
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, blanks, n - at < sizeof blanks ? n - at : sizeof blanks, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

static void say_chunk(int fd, size_t n) {
    char size[32];
    snprintf(size, sizeof size, "%zx\r\n", n);
    say(fd, size);
    say_blanks(fd, n);
    say(fd, "\r\n");
}

#define BODY     "{\"prompt\":\"x\"}"
#define BAD_BODY "{\"prompt\":\"x\",\"fail\":\"parse\"}"

/* A whole request whose body has n bytes of white space before `body`. */
static void say_request(int fd, const char *key, size_t n, const char *body, const char *more) {
    say_head(fd, key, n + strlen(body), more);
    say_blanks(fd, n);
    say(fd, body);
}

static void expect_answer(const site *s, const char *key, size_t n) {
    int fd = dial(s);
    say_request(fd, key, n, BODY, CLOSE);
    expect_in(hear(fd, NULL), "HTTP/1.1 200");
    close(fd);
}

static int64_t metric(const site *s, const char *name) {
    char line[80];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at =
        strstr(ask(s, "GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer kb\r\n" CLOSE "\r\n"), line);
    assert_non_null(at);
    return atoll(at + strlen(line));
}

static void await_metric(const site *s, const char *name, int64_t n) {
    int64_t end = clock_us() + PATIENCE_US;
    while (metric(s, name) != n) {
        assert_true(clock_us() < end);
        pause_us(2000);
    }
}

#define HELD    "quire_http_body_bytes"
#define WAITING "quire_http_bodies_waiting"

TEST(bodies_that_are_announced_and_do_not_come_hold_no_room) {
    enum { N = 12 };
    site *s = start_patient(MB);
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = dial(s);
        say_head(fds[i], "ka", i % 3 == 0 ? 0 : 16 * MB, "");
        if (i % 2 == 0 && i % 3 > 0) {
            say_blanks(fds[i], 60 * KB);
        }
    }
    expect_answer(s, "kb", 700 * KB);
    expect_answer(s, "ka", 700 * KB);
    assert_int_equal(metric(s, HELD), 0);
    assert_int_equal(metric(s, WAITING), 0);
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    stop(s);
}

TEST(a_tenant_that_holds_its_share_does_not_hold_up_another) {
    enum { N = 6 };
    static const size_t held[N] = {192 * KB, 384 * KB, 512 * KB, 512 * KB, 512 * KB, 512 * KB};
    site *s = start_patient(MB);
    int fds[N];
    for (int i = 0; i < N; i++) { /* two get room for all that they send, a third for a part of it */
        fds[i] = dial(s);
        say_head(fds[i], "ka", i % 2 == 0 ? 0 : 16 * MB, "");
        if (i % 2 == 0) {
            say_chunk(fds[i], 190 * KB);
        } else {
            say_blanks(fds[i], 190 * KB);
        }
        await_metric(s, HELD, (int64_t)held[i]);
    }
    await_metric(s, WAITING, N - 2);
    assert_int_equal(metric(s, HELD), 512 * KB);
    for (int i = 0; i < 3; i++) {
        expect_answer(s, "kb", 150 * KB);
    }
    assert_int_equal(metric(s, WAITING), N - 2);
    int next = dial(s);
    say_request(next, "ka", 100 * KB, BODY, CLOSE);
    await_metric(s, WAITING, N - 1);
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    expect_in(hear(next, NULL), "HTTP/1.1 200");
    close(next);
    await_metric(s, HELD, 0);
    stop(s);
}

TEST(a_body_that_comes_too_slowly_is_refused_with_the_reason_and_its_room_is_free) {
    site *s = start_with(MB, (int64_t)(64 * KB), 200000, NEVER_US);
    for (int chunks = 0; chunks < 2; chunks++) {
        int fd = dial(s);
        say_head(fd, "ka", chunks ? 0 : 16 * MB, "");
        if (chunks) {
            say_chunk(fd, 700 * KB);
        } else {
            say_blanks(fd, 700 * KB);
        }
        const char *response = hear(fd, NULL);
        expect_in(response, "HTTP/1.1 408");
        expect_in(response, "the body came too slowly: ");
        expect_in(response, "65536 bytes a second");
        close(fd);
        await_metric(s, HELD, 0);
        assert_int_equal(metric(s, "quire_http_slow_bodies_total"), chunks + 1);
    }
    stop(s);
}

TEST(a_small_body_may_come_slowly) {
    site *s = start_with(MB, (int64_t)(64 * KB), 10000, NEVER_US);
    int fd = dial(s);
    say_head(fd, "ka", 60 * KB + strlen(BODY), CLOSE);
    say_blanks(fd, 60 * KB);
    pause_us(50000); /* five times as long as a large one may send nothing */
    say(fd, BODY);
    expect_in(hear(fd, NULL), "HTTP/1.1 200");
    close(fd);
    stop(s);
}

TEST(a_body_that_finds_no_room_in_time_is_told_to_come_again) {
    site *s = start_with(200 * KB, 0, 5000000, 3000000);
    fake_hold(s->engine, true); /* answers do not begin, so the first keeps its room */
    int first = dial(s), second = dial(s);
    say_request(first, "ka", 300 * KB, BODY, CLOSE);
    await(fake_parses, s->engine, 1);
    say_request(second, "ka", 300 * KB, BODY, CLOSE);
    const char *response = hear(second, NULL);
    expect_in(response, "HTTP/1.1 503");
    expect_in(response, "Retry-After: 1");
    expect_in(response, "too many large bodies");
    fake_hold(s->engine, false);
    expect_in(hear(first, NULL), "HTTP/1.1 200");
    close(first);
    close(second);
    await_metric(s, HELD, 0);
    stop(s);
}

/* Chunks that end at the largest allowed size: the last one's mark is read all the same,
 * and so is the chunk that is too much. */
TEST(a_chunked_body_may_have_the_largest_size_and_no_more) {
    server_options o;
    server_options_init(&o);
    o.max_body_bytes = MB;
    o.api_keys = keys;
    o.n_api_keys = 2;
    site *s = start(&o, TICK_US);
    char last[64];
    int n = snprintf(last, sizeof last, "%zx\r\n%s\r\n", strlen(BODY), BODY);
    assert_in_range(n, 1, sizeof last - 1);
    for (int too_much = 0; too_much < 2; too_much++) {
        int fd = dial(s);
        say_head(fd, "ka", 0, CLOSE);
        say_chunk(fd, MB / 2);
        say_chunk(fd, MB / 2 - strlen(BODY));
        say(fd, last);
        if (too_much) {
            say_chunk(fd, 1);
        }
        say(fd, "0\r\n\r\n");
        expect_in(hear(fd, NULL), too_much ? "HTTP/1.1 413" : "HTTP/1.1 200");
        await_metric(s, HELD, 0);
        close(fd);
    }
    stop(s);
}

/* ---- all of it is given back ---- */

TEST(room_is_given_back_where_the_connection_stays) {
    site *s = start_patient(MB);
    int fd = dial(s);
    static const struct {
        const char *body, *status;
    } rows[] = {{BAD_BODY, "HTTP/1.1 400"},
                {BODY, "HTTP/1.1 200"},
                {"{\"prompt\":\"x\",\"fail\":\"submit\"}", "HTTP/1.1 "},
                {"[]", "HTTP/1.1 400"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        say_request(fd, "ka", 700 * KB, rows[i].body, "");
        expect_in(hear(fd, "\r\n\r\n"), rows[i].status);
        await_metric(s, HELD, 0);
    }
    say_request(fd, "ka", 900 * KB, BAD_BODY, ""); /* pipelined */
    say_request(fd, "ka", 900 * KB, BODY, CLOSE);
    expect_in(hear(fd, NULL), "HTTP/1.1 200");
    await_metric(s, HELD, 0);
    close(fd);
    stop(s);
}

TEST(room_is_given_back_by_bodies_that_are_refused_or_left) {
    server_options o;
    server_options_init(&o);
    o.max_bodies_bytes = 8 * MB;
    o.max_body_bytes = 4 * MB;
    o.api_keys = keys;
    o.n_api_keys = 2;
    site *s = start(&o, TICK_US);
    int look = dial(s), chunk = dial(s), grows = dial(s), ends = dial(s), leaves = dial(s);
    say_head(look, "ka", 4 * MB, ""); /* its beginning is refused: its rest is skipped */
    say(look, "{\"fail\":\"look\",");
    say_blanks(look, 2 * MB);
    say_head(chunk, "ka", 0, "");
    say_chunk(chunk, 300 * KB);
    say(chunk, "no number\r\n");
    expect_in(hear(chunk, NULL), "HTTP/1.1 400");
    say_head(grows, "ka", 0, "");
    for (int i = 0; i < 20; i++) {
        say_chunk(grows, 200 * KB);
    }
    say(grows, "fffff\r\n");
    expect_in(hear(grows, NULL), "HTTP/1.1 413");
    say_head(ends, "ka", 2 * MB, "");
    say_blanks(ends, 500 * KB);
    shutdown(ends, SHUT_WR);
    expect_in(hear(ends, NULL), "HTTP/1.1 400");
    say_head(leaves, "ka", 2 * MB, "");
    say_blanks(leaves, 500 * KB);
    close(leaves);
    await_metric(s, HELD, 0);
    int fds[] = {look, chunk, grows, ends};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        close(fds[i]);
    }
    stop(s);
}

/* body_room_close sees whether some is left. */
TEST(a_server_stops_while_bodies_hold_room_and_wait_for_it) {
    enum { N = 5 };
    for (int held = 0; held < 2; held++) {
        site *s = start_patient(400 * KB);
        fake_hold(s->engine, held);
        int fds[N];
        for (int i = 0; i < N; i++) {
            fds[i] = dial(s);
            say_request(fds[i], "ka", 150 * KB, BODY, "");
            if (!held) {
                close(fds[i]);
            }
        }
        if (held) {
            await_metric(s, WAITING, N - 1);
        }
        for (int i = 0; i < N && held; i++) {
            close(fds[i]);
        }
        stop(s);
    }
}

TEST_MAIN(NULL, NULL)
