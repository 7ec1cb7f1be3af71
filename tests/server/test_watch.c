/* Looking at the pool over HTTP, over a stand-in for the engine: who may see what, how
 * many may look, and readers that do not read. */
#include "server/watch.h"
#include "site.h"

static server_options defaults(void) {
    server_options o;
    server_options_init(&o);
    return o;
}

static int send_get(const site *s, const char *path, const char *headers) {
    char text[2000];
    int fd = dial(s),
        n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", path, headers);
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

static const char *get(const site *s, const char *path, const char *headers) {
    char all[1000];
    snprintf(all, sizeof all, "Connection: close\r\n%s", headers);
    int fd = send_get(s, path, all);
    const char *response = hear(fd, NULL);
    close(fd);
    return response;
}

static void expect_not_in(const char *response, const char *part) {
    if (strstr(response, part) != NULL) {
        fail_msg("\"%s\" in: %.500s", part, response);
    }
}

#define TEXTS "\"text\":\"abcdefghijklmnop\"" /* tokens 0..15 as the stand-in spells them */

TEST(a_stream_begins_with_the_state_and_ends_with_the_server) {
    server_options o = defaults();
    o.shutdown_deadline_us = o.write_deadline_us = NEVER_US; /* no stream keeps a server up until then */
    site *s = start(&o, TICK_US);
    int fd = send_get(s, "/debug/pool", "");
    const char *text = hear(fd, "\"events\"");
    expect_in(text, "Content-Type: text/event-stream");
    expect_in(text, "data: {");
    expect_in(text, "\"counts\":{\"pages\":100,\"free\":97,\"held\":3,\"cached\":0");
    expect_in(text, "\"pages\":[[0,1,0,1],[1,1,1,1],[2,1,-1,1]]");
    stop(s);
    expect_in(hear(fd, NULL), "0\r\n\r\n");
    close(fd);
}

TEST(a_state_and_a_page_are_ordinary_answers) {
    site *s = start_default();
    const char *text = get(s, "/debug/pool/state", "");
    expect_in(text, "HTTP/1.1 200");
    expect_in(text, TEXTS);
    text = get(s, "/debug/pool/pages/1", "");
    expect_in(text, "{\"page\":1,\"count\":1,\"entry\":1,\"holders\":[1],\"tokens\":[16,17,");
    expect_in(get(s, "/debug/pool/pages/99", ""), "\"tokens\":[],\"text\":\"\"");
    static const char *const none[] = {"/debug/pool/pages/100",
                                       "/debug/pool/pages/",
                                       "/debug/pool/pages/-1",
                                       "/debug/pool/pages/1x",
                                       "/debug/pool/pages/99999999999999999999",
                                       "/debug/pool/pages/1/2"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        expect_in(get(s, none[i], ""), "HTTP/1.1 404");
    }
    stop(s);
}

TEST(the_page_runs_its_own_script_and_no_other) {
    site *s = start_default();
    const char *text = get(s, "/pool", "");
    expect_in(text, "HTTP/1.1 200");
    expect_in(text, "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; "
                    "base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'; script-src 'sha256-");
    expect_not_in(text, "unsafe");
    expect_not_in(text, "https://");
    stop(s);
}

TEST(texts_are_for_the_operator) {
    const char *keys[] = {"tenant-key"};
    server_options o = defaults();
    o.api_keys = keys;
    o.n_api_keys = 1;
    o.operator_key = "root-key";
    site *s = start(&o, TICK_US);
    expect_in(get(s, "/pool", ""), "HTTP/1.1 200"); /* the page itself shows nothing */
    expect_in(get(s, "/debug/pool", ""), "HTTP/1.1 401");
    expect_in(get(s, "/debug/pool/state", "Authorization: Bearer wrong\r\n"), "HTTP/1.1 401");
    const char *text = get(s, "/debug/pool/state", "Authorization: Bearer tenant-key\r\n");
    expect_in(text, "HTTP/1.1 200");
    expect_in(text, "\"texts\":false");
    expect_not_in(text, "\"text\":");
    expect_in(get(s, "/debug/pool/pages/0", "Authorization: Bearer tenant-key\r\n"), "HTTP/1.1 403");
    expect_in(get(s, "/debug/pool/state", "Authorization: Bearer root-key\r\n"), TEXTS);
    expect_in(get(s, "/debug/pool/pages/0", "Authorization: Bearer root-key\r\n"), TEXTS);
    /* it is no tenant's */
    expect_in(get(s, "/v1/models", "Authorization: Bearer root-key\r\n"), "HTTP/1.1 401");
    stop(s);
}

TEST(without_an_operators_key_nobody_with_a_key_sees_texts) {
    const char *keys[] = {"tenant-key"};
    server_options o = defaults();
    o.api_keys = keys;
    o.n_api_keys = 1;
    site *s = start(&o, TICK_US);
    expect_not_in(get(s, "/debug/pool/state", "Authorization: Bearer tenant-key\r\n"), "\"text\":");
    expect_in(get(s, "/debug/pool/pages/0", "Authorization: Bearer tenant-key\r\n"), "HTTP/1.1 403");
    stop(s);
}

/* A key file of alice and bob. */
static const char *key_file(void) {
    static char path[64];
    static const char text[] = "alice:alice-key\nbob:bob-key\n";
    snprintf(path, sizeof path, "/tmp/quire-keys-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    return path;
}

TEST(a_tenant_sees_its_own_sequences_and_counts_only) {
    server_options o = defaults();
    o.api_key_file = key_file();
    o.operator_key = "root-key";
    site *s = start(&o, TICK_US);
    unlink(o.api_key_file);
    static const char nothing[] = "\"pages\":[],\"tree\":[],\"shown\":{\"pages\":0,\"seqs\":";
    static const char *const routes[] = {"/debug/pool/state", "/debug/pool"};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        int fd = send_get(s, routes[i], "Connection: close\r\nAuthorization: Bearer alice-key\r\n");
        const char *text = hear(fd, "\"list\":[");
        expect_in(text, "\"counts\":{\"pages\":100,\"free\":97,\"held\":3");
        expect_in(text, "\"seqs\":[{\"id\":1,");
        expect_in(text, nothing);
        expect_not_in(text, "\"hash\"");
        close(fd);
        fd = send_get(s, routes[i], "Connection: close\r\nAuthorization: Bearer bob-key\r\n");
        text = hear(fd, "\"list\":[");
        expect_in(text, "\"seqs\":[],");
        expect_in(text, nothing);
        expect_in(text, "\"list\":[");
        expect_not_in(text, "\"hash\"");
        close(fd);
    }
    const char *text = get(s, "/debug/pool/state", "Authorization: Bearer root-key\r\n");
    expect_in(text, "\"seqs\":[{\"id\":1,");
    expect_in(text, "\"hash\":\"");
    stop(s);
}

/* The hash of the tree's first node, as the operator of a server of its own sees it. */
static uint64_t first_hash(void) {
    site *s = start_default();
    const char *at = strstr(get(s, "/debug/pool/state", ""), "\"hash\":\"");
    assert_non_null(at);
    uint64_t hash = strtoull(at + strlen("\"hash\":\""), NULL, 16);
    stop(s);
    return hash;
}

TEST(hashes_that_leave_the_process_are_keyed_by_it) {
    uint64_t one = first_hash(), other = first_hash();
    assert_true(one != 0);
    assert_true(one != other); /* of the same tokens */
}

TEST(other_sites_pages_do_not_reach_the_pool) {
    static const char *const paths[] = {"/pool", "/debug/pool", "/debug/pool/state", "/debug/pool/pages/0"};
    static const char *const sites[] = {"cross-site", "same-site", "Same-Origin", "x"};
    site *s = start_default();
    char header[64];
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        for (size_t k = 0; k < sizeof sites / sizeof *sites; k++) {
            snprintf(header, sizeof header, "Sec-Fetch-Site: %s\r\n", sites[k]);
            expect_in(get(s, paths[i], header), "HTTP/1.1 403");
        }
    }
    expect_in(get(s, "/pool", "Sec-Fetch-Site: none\r\n"), "HTTP/1.1 200");
    expect_in(get(s, "/debug/pool/state", "Sec-Fetch-Site: same-origin\r\n"), "HTTP/1.1 200");
    stop(s);
}

TEST(without_any_key_texts_are_for_this_machine_and_for_no_other_web_page) {
    site *s = start_default();
    expect_in(get(s, "/debug/pool/state", ""), TEXTS);
    expect_not_in(get(s, "/debug/pool/state", "Origin: http://elsewhere.example\r\n"), "\"text\":");
    char text[200];
    int fd = dial(s),
        n = snprintf(text, sizeof text,
                     "GET /debug/pool/state HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n");
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    expect_in(hear(fd, NULL), "HTTP/1.1 403");
    close(fd);
    fd = dial(s);
    n = snprintf(text, sizeof text,
                 "GET /debug/pool/state HTTP/1.1\r\nHost: label\r\nConnection: close\r\n\r\n");
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    expect_not_in(hear(fd, NULL), "\"text\":");
    close(fd);
    stop(s);
    server_options o = defaults();
    o.host = "0.0.0.0"; /* others may connect */
    s = start(&o, TICK_US);
    expect_in(get(s, "/debug/pool/state", ""), "\"texts\":false");
    stop(s);
}

TEST(more_watchers_than_allowed_are_turned_away) {
    site *s = start_default();
    int fds[WATCH_MAX];
    for (int i = 0; i < WATCH_MAX; i++) {
        fds[i] = send_get(s, "/debug/pool", "");
        expect_in(hear(fds[i], "\"events\""), "HTTP/1.1 200");
    }
    expect_in(get(s, "/debug/pool", ""), "HTTP/1.1 503");
    expect_in(get(s, "/debug/pool/state", ""), "HTTP/1.1 503");
    expect_in(get(s, "/health", ""), "HTTP/1.1 200");
    close(fds[0]);
    int64_t end = clock_us() + PATIENCE_US;
    while (strstr(get(s, "/debug/pool/state", ""), "HTTP/1.1 200") == NULL) {
        assert_true(clock_us() < end);
    }
    for (int i = 1; i < WATCH_MAX; i++) {
        close(fds[i]);
    }
    stop(s);
}

TEST(a_watcher_that_does_not_read_holds_nobody_up) {
    server_options o = defaults();
    o.write_deadline_us = o.shutdown_deadline_us = NEVER_US;
    site *s = start(&o, TICK_US);
    int deaf = socket(AF_INET, SOCK_STREAM, 0), small = 2048;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(s->server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(deaf, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(connect(deaf, (struct sockaddr *)&at, sizeof at), 0);
    static const char request[] = "GET /debug/pool HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_int_equal(send(deaf, request, sizeof request - 1, MSG_NOSIGNAL), (ssize_t)(sizeof request - 1));
    for (int i = 0; i < 10; i++) {
        expect_in(get(s, "/debug/pool/state", ""), "\"events\"");
    }
    close(deaf);
    stop(s);
}

TEST(pipelined_looks_are_answered_in_order) {
    site *s = start_default();
    static const char both[] = "GET /debug/pool/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET "
                               "/debug/pool/pages/0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
                               "GET /version HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    int fd = dial(s);
    assert_int_equal(send(fd, both, sizeof both - 1, MSG_NOSIGNAL), (ssize_t)(sizeof both - 1));
    const char *text = hear(fd, NULL), *state_at = strstr(text, "\"counts\""),
               *page_at = strstr(text, "{\"page\":0"), *version_at = strstr(text, "{\"version\"");
    assert_true(state_at != NULL && page_at != NULL && version_at != NULL && state_at < page_at &&
                page_at < version_at);
    close(fd);
    stop(s);
}

/* Probes whether the client is still there are interim responses, and have no place
 * inside a stream. */
TEST(a_stream_after_a_half_close_is_not_probed) {
    site *s = start_default();
    static const char both[] = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                               "application/json\r\nContent-Length: 16\r\n\r\n"
                               "{\"max_tokens\":9}GET /debug/pool HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    int fd = dial(s);
    assert_int_equal(send(fd, both, sizeof both - 1, MSG_NOSIGNAL), (ssize_t)(sizeof both - 1));
    shutdown(fd, SHUT_WR);
    expect_in(hear(fd, "\"events\""), "data: {");
    poll(NULL, 0, 700); /* over several probes */
    stop(s);
    expect_not_in(hear(fd, NULL), "100 Continue");
    close(fd);
}

TEST(a_sandbox_takes_small_json_bodies_only) {
    site *s = start_default();
    static char text[4000];
    static const char open[] = "POST /pool/sandbox HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: "
                               "application/json\r\nContent-Length: 13\r\n\r\n{\"do\":\"open\"}";
    int fd = dial(s);
    assert_int_equal(send(fd, open, sizeof open - 1, MSG_NOSIGNAL), (ssize_t)(sizeof open - 1));
    expect_in(hear(fd, NULL), "\"counts\":{\"pages\":64,\"free\":64");
    close(fd);
    fd = dial(s);
    int n = snprintf(text, sizeof text,
                     "POST /pool/sandbox HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: "
                     "application/json\r\nContent-Length: "
                     "2000\r\n\r\n%2000s",
                     " ");
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    expect_in(hear(fd, NULL), "HTTP/1.1 413");
    close(fd);
    expect_in(get(s, "/pool/sandbox", ""), "HTTP/1.1 405");
    stop(s);
}

TEST_MAIN(NULL, NULL)
