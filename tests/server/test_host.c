/* What a Host header names. */
#include <stdio.h>

#include "server/auth.h"
#include "test.h"

static void expect_kind(const char *const *headers, size_t n, host_kind kind) {
    for (size_t i = 0; i < n; i++) {
        str name = {"", 0};
        if (host_parse(str_of(headers[i]), &name) != kind) {
            fail_msg("%s: kind %d, not %d", headers[i], (int)host_parse(str_of(headers[i]), NULL), (int)kind);
        }
    }
}

TEST(loopback_is_compared_as_a_whole) {
    static const char *const mine[] = {"127.0.0.1",      "127.0.0.1:8000", "127.1.2.3:1", "localhost",
                                       "LocalHost:8000", "[::1]",          "[::1]:8000"};
    expect_kind(mine, sizeof mine / sizeof *mine, HOST_LOOPBACK);
    static const char *const names[] = {"127.evil.com", "127.0.0.1.evil.com", "localhost.evil.com:8000",
                                        "a.b",          "localhost.",         "127.0.0.1.",
                                        "127.1",        "127.0.0.01"};
    expect_kind(names, sizeof names / sizeof *names, HOST_NAME);
}

TEST(addresses_and_names_are_told_apart) {
    static const char *const addresses[] = {"192.168.1.5",    "0.0.0.0:80", "8.8.8.8",
                                            "[fe80::1]:8000", "[::]",       "128.0.0.1"};
    expect_kind(addresses, sizeof addresses / sizeof *addresses, HOST_ADDRESS);
    static const char *const labels[] = {"quire", "quire:8000", "x", "127", "localhost2"};
    expect_kind(labels, sizeof labels / sizeof *labels, HOST_LABEL);
}

TEST(what_is_neither_is_malformed) {
    static const char *const bad[] = {"",
                                      ":8000",
                                      "127.0.0.1:80x",
                                      "127.0.0.1:800000",
                                      "localhost:evil.com",
                                      "localhost:1:2",
                                      "[::1",
                                      "[]",
                                      "[127.0.0.1]",
                                      "[::1].evil.com",
                                      "[::1]x",
                                      "[localhost]",
                                      "::1",
                                      "[::1%lo]"};
    expect_kind(bad, sizeof bad / sizeof *bad, HOST_MALFORMED);
    char longest[300];
    snprintf(longest, sizeof longest, "%0*d", 299, 0);
    assert_int_equal(host_parse(str_of(longest), NULL), HOST_MALFORMED);
    assert_int_equal(host_parse((str){"localhost\0.evil.com", 19}, NULL), HOST_MALFORMED);
}

TEST_MAIN(NULL, NULL)
