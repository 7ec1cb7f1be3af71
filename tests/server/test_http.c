/* Reading requests: framing, limits, and what is left for the next request. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "server/http.h"
#include "test.h"

#define MAX_HEAD 512
#define MAX_BODY 64

/* Feeds text in pieces of at most `piece` bytes until something other than "more" and
 * "head" comes. *used: bytes taken. */
static http_event read_all(http_request *r, const char *text, size_t piece, size_t *used) {
    size_t n = strlen(text), at = 0, took;
    http_event e = HTTP_WANTS_MORE;
    while (at < n && (e == HTTP_WANTS_MORE || e == HTTP_GOT_HEAD)) {
        size_t some = n - at < piece ? n - at : piece;
        e = http_feed(r, text + at, some, &took);
        assert_true(took <= some);
        at += took;
    }
    *used = at;
    return e;
}

static void expect_status(const char *text, int status) {
    for (size_t piece = 1; piece <= 2048; piece = piece * 7 + 1) {
        http_request r;
        size_t used;
        http_init(&r, MAX_HEAD, MAX_BODY);
        http_event e = read_all(&r, text, piece, &used);
        if (status == 0) {
            assert_int_equal(e, HTTP_GOT_ALL);
        } else if (e != HTTP_REFUSED || r.status != status) {
            print_error("event %d status %d (%s), wanted %d, for: %s\n", e, r.status, r.message, status,
                        text);
            fail();
        }
        http_deinit(&r);
    }
}

TEST(a_request_is_read_whatever_its_pieces) {
    const char *text = "POST /v1/%63ompletions?x=1 HTTP/1.1\r\nHost: h\r\nContent-Type: application/json "
                       "\r\nAuthorization:  Bearer k\r\n"
                       "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n";
    for (size_t piece = 1; piece < 200; piece++) {
        http_request r;
        size_t used;
        http_init(&r, MAX_HEAD, MAX_BODY);
        assert_int_equal(read_all(&r, text, piece, &used), HTTP_GOT_ALL);
        assert_int_equal(used, strlen(text) - strlen("GET / HTTP/1.1\r\n"));
        assert_string_equal(r.path.p, "/v1/completions");
        assert_string_equal(r.content_type.p, "application/json");
        assert_string_equal(r.authorization.p, "Bearer k");
        assert_string_equal(r.body.p, "hello");
        assert_int_equal(r.method, HTTP_POST);
        assert_true(r.keep_alive && r.has_body && r.chunks_allowed);
        http_deinit(&r);
    }
}

/* Reads a request with these headers: whether its client wants JSON, and its id. */
static void expect_wishes(const char *headers, bool json, const char *id) {
    for (size_t piece = 1; piece < 100; piece++) {
        http_request r;
        size_t used;
        char text[400];
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", headers);
        http_init(&r, MAX_HEAD, MAX_BODY);
        assert_int_equal(read_all(&r, text, piece, &used), HTTP_GOT_ALL);
        assert_int_equal(r.wants_json, json);
        assert_true(str_is((str){r.request_id.p, r.request_id.n}, id));
        http_next(&r);
        assert_true(!r.wants_json && r.request_id.n == 0);
        http_deinit(&r);
    }
}

TEST(what_a_client_accepts_and_its_id_are_kept) {
    expect_wishes("Accept: application/json\r\nX-Request-Id: one\r\n", true, "one");
    expect_wishes("X-Request-Id:  one \r\nX-Request-Id: two\r\nAccept: text/html, application/json\r\n",
                  false, "one");
    expect_wishes("Accept:\r\nX-Request-Id:\r\n", false, "");
    expect_wishes("Accept: */*\r\nAccept: */*\r\n", false, "");
}

TEST(a_chunked_body_is_put_together) {
    http_request r;
    size_t used;
    http_init(&r, MAX_HEAD, MAX_BODY);
    const char *text = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                       "chunked\r\n\r\n3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: "
                       "x\r\nContent-Length: 9\r\n\r\n";
    assert_int_equal(read_all(&r, text, 1, &used), HTTP_GOT_ALL);
    assert_int_equal(used, strlen(text));
    assert_string_equal(r.body.p, "abc0123456789");
    http_deinit(&r);
}

TEST(a_body_of_known_length_is_received_where_it_lies) {
    http_request r;
    size_t used;
    uint64_t left;
    http_init(&r, MAX_HEAD, MAX_BODY);
    assert_int_equal(read_all(&r, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nab", 1, &used),
                     HTTP_WANTS_MORE);
    strbuf_deinit(&r.body);
    assert_null(http_body_place(&r, &left)); /* without memory for all of it, the rest is fed */
    assert_int_equal(left, 7);
    assert_int_equal(strbuf_add(&r.body, "ab", 2), QUIRE_OK);
    assert_int_equal(strbuf_reserve(&r.body, 7), QUIRE_OK);
    memcpy(http_body_place(&r, &left), "cdef", 4);
    assert_int_equal(http_body_received(&r, 4), HTTP_WANTS_MORE);
    assert_string_equal(r.body.p, "abcdef");
    memcpy(http_body_place(&r, &left), "ghi", 3);
    assert_int_equal(left, 3);
    assert_int_equal(http_body_received(&r, 3), HTTP_GOT_ALL);
    assert_string_equal(r.body.p, "abcdefghi");
    http_next(&r);
    assert_int_equal(read_all(&r, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nab", 1, &used),
                     HTTP_WANTS_MORE);
    r.drop_body = true;
    assert_null(http_body_place(&r, &left));
    http_deinit(&r);
}

TEST(the_next_request_starts_clean) {
    http_request r;
    size_t used;
    http_init(&r, MAX_HEAD, MAX_BODY);
    assert_int_equal(read_all(&r,
                              "POST /a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\nExpect: "
                              "100-continue\r\nContent-Length: 2\r\n\r\nhi",
                              1000, &used),
                     HTTP_GOT_ALL);
    assert_true(r.expects_continue);
    http_next(&r);
    assert_int_equal(read_all(&r, "GET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 1000, &used),
                     HTTP_GOT_ALL);
    assert_int_equal(r.authorization.n, 0);
    assert_int_equal(r.body.n, 0);
    assert_string_equal(r.path.p, "/b");
    assert_false(r.keep_alive || r.expects_continue || r.has_body);
    http_deinit(&r);
}

TEST(malformed_requests_are_refused) {
    static const char *const bad[] = {
        "HELLO\r\n\r\n",
        "G@T / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTQ/1.1\r\nHost: h\r\n\r\n",
        "GET / XTTP/1.1\r\nHost: h\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\n\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\001b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: a\r\nx-api-key: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nauthorization: Bearer a\r\nX: y\r\nAUTHORIZATION: Bearer a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Type: text/plain\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\nOrigin: http://b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nBad Name: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nName : x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nname\r\n\r\n",
        "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: "
        "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: "
        "3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3x\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n 1\r\nx\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\ry0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        expect_status(bad[i], 400);
    }
}

TEST(an_empty_length_is_malformed) {
    expect_status("POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\nabc", 400);
    expect_status("POST / HTTP/1.1\r\nContent-Length: \t \r\nHost: h\r\n\r\nabc", 400);
}

TEST(other_versions_and_expectations_are_refused) {
    expect_status("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505);
    expect_status("GET / HTTP/1.9\r\nHost: h\r\n\r\n", 505);
    expect_status("GET /\r\n\r\n", 505);
    expect_status("POST / HTTP/1.1\r\nHost: h\r\nExpect: the-moon\r\nContent-Length: 1\r\n\r\nx", 417);
    expect_status("GET / HTTP/1.0\r\n\r\n", 0);
    expect_status(
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\nx", 0);
}

TEST(names_and_values_of_a_query_are_compared_decoded) {
    assert_true(http_query_is(str_of("stream"), "stream") && http_query_is(str_of("st%72e%61%6D"), "stream"));
    assert_true(http_query_is(str_of(""), "") && http_query_is(str_of("%"), "%"));
    assert_false(http_query_is(str_of("st%72"), "st%72") || http_query_is(str_of("st%72eams"), "stream") ||
                 http_query_is(str_of("strea"), "stream") || http_query_is(str_of("strea%6"), "stream") ||
                 http_query_is(str_of("strea%00"), "strea"));
}

TEST(limits_hold_to_the_byte) {
    char text[4096], filler[1024];
    const char *form = "GET / HTTP/1.1\r\nHost: h\r\nX: %s\r\n\r\n";
    size_t fixed = strlen(form) - 2;
    memset(filler, 'a', sizeof(filler));
    filler[MAX_HEAD - fixed] = '\0';
    snprintf(text, sizeof(text), form, filler);
    assert_int_equal(strlen(text), MAX_HEAD);
    expect_status(text, 0);
    filler[MAX_HEAD - fixed] = 'a';
    filler[MAX_HEAD - fixed + 3] = '\0';
    snprintf(text, sizeof(text), form, filler);
    expect_status(text, 431);

    filler[MAX_BODY] = '\0';
    snprintf(text, sizeof(text), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", MAX_BODY,
             filler);
    expect_status(text, 0);
    snprintf(text, sizeof(text), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", MAX_BODY + 1);
    expect_status(text, 413);
    snprintf(text, sizeof(text),
             "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n%s\r\n0\r\n\r\n", filler);
    expect_status(text, 0);
    snprintf(
        text, sizeof(text),
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n%s\r\n1\r\nx\r\n0\r\n\r\n",
        filler);
    expect_status(text, 413);
}

TEST(a_dropped_body_is_read_over_and_still_limited) {
    http_request r;
    size_t used, at;
    http_init(&r, MAX_HEAD, MAX_BODY);
    const char *text =
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n";
    assert_int_equal(http_feed(&r, text, strlen(text), &at), HTTP_GOT_HEAD);
    r.drop_body = true;
    assert_int_equal(read_all(&r, text + at, 3, &used), HTTP_GOT_ALL);
    assert_int_equal(r.body.n, 0);
    assert_int_equal(r.n_body_bytes, 4);
    http_deinit(&r);
}

/* Random damage never crashes, loops or takes more than there is. */
TEST(damaged_requests_are_survived) {
    const char *good = "POST /v1/x?y HTTP/1.1\r\nHost: h\r\nContent-Type: a/b\r\nTransfer-Encoding: "
                       "chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n";
    uint64_t seed = rng_os_seed(), random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        char text[256];
        size_t n = strlen(good), at = 0, took;
        memcpy(text, good, n);
        for (int k = 0; k < 1 + round % 4; k++) {
            text[rng_next(&random) % n] = (char)rng_next(&random);
        }
        http_request r;
        http_init(&r, MAX_HEAD, MAX_BODY);
        http_event e = HTTP_WANTS_MORE;
        while (at < n && e != HTTP_REFUSED) {
            size_t some = 1 + rng_next(&random) % (n - at);
            e = http_feed(&r, text + at, some, &took);
            assert_true(took <= some);
            at += took;
            if (e == HTTP_GOT_ALL) {
                http_next(&r);
            }
            if (e == HTTP_REFUSED) {
                assert_true(r.status >= 400 && r.message != NULL);
            }
        }
        http_deinit(&r);
    }
}

TEST(a_chunk_over_the_limit_is_refused_by_its_size) {
    expect_status("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n{",
                  413);
}

/* The caller knows only at the head how much a request may send. */
TEST(a_request_may_be_given_a_lower_limit_of_its_own) {
    http_request r;
    size_t used, at;
    http_init(&r, MAX_HEAD, MAX_BODY);
    const char *text = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                       "chunked\r\n\r\n4\r\nabcd\r\n5\r\nefghi\r\n0\r\n\r\n";
    for (size_t limit = 8; limit <= 9; limit++) {
        assert_int_equal(http_feed(&r, text, strlen(text), &at), HTTP_GOT_HEAD);
        r.body_limit = limit;
        assert_int_equal(read_all(&r, text + at, 1, &used), limit == 9 ? HTTP_GOT_ALL : HTTP_REFUSED);
        assert_int_equal(r.status, limit == 9 ? 0 : 413);
        http_deinit(&r);
        http_init(&r, MAX_HEAD, MAX_BODY);
    }
    assert_int_equal(http_feed(&r, text, strlen(text), &at), HTTP_GOT_HEAD);
    r.body_limit = 9;
    assert_int_equal(read_all(&r, text + at, 1, &used), HTTP_GOT_ALL);
    http_next(&r);
    assert_int_equal(http_feed(&r, text, strlen(text), &at), HTTP_GOT_HEAD);
    assert_int_equal(r.body_limit, MAX_BODY); /* the next one has the server's again */
    http_deinit(&r);
}

TEST_MAIN(NULL, NULL)
