/* The Redis tier, against a real redis-server that is killed, stopped, filled and lied
 * through: pages that were put come back, or nothing. */
#define _GNU_SOURCE /* struct timeval in hiredis' interface, prctl */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "test.h"
#include "tier_world.h"

static char directory[64], socket_path[96], url[128];
static pid_t server;

static void sleep_us(int64_t us) {
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* ---- the server ---- */

static redisContext *connect_to(void) {
    for (int i = 0; i < 6000; i++) {
        redisContext *c = redisConnectUnix(socket_path);
        redisReply *reply = c != NULL && c->err == 0 ? redisCommand(c, "PING") : NULL;
        if (reply != NULL) {
            freeReplyObject(reply);
            return c;
        }
        if (c != NULL) {
            redisFree(c);
        }
        sleep_us(10000);
    }
    return NULL;
}

static void start_server(void) {
    unlink(socket_path);
    server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it goes with the test, however that ends */
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_path, "--save", "",
               "--appendonly", "no", "--dir", directory, "--logfile", "/dev/null", (char *)NULL);
        _exit(127);
    }
    redisContext *c = connect_to();
    assert_non_null(c);
    redisFree(c);
}

static void stop_server(void) {
    int status;
    kill(server, SIGKILL);
    waitpid(server, &status, 0);
}

/* The integer, or the length of the text, that a command answers; -1: neither. */
static long long ask(const char *format, ...) {
    va_list args;
    redisContext *c = connect_to();
    va_start(args, format);
    redisReply *reply = redisvCommand(c, format, args);
    va_end(args);
    assert_non_null(reply);
    long long v = reply->type == REDIS_REPLY_INTEGER  ? reply->integer
                  : reply->type == REDIS_REPLY_STRING ? (long long)reply->len
                                                      : -1;
    freeReplyObject(reply);
    redisFree(c);
    return v;
}

/* Some key that the server holds. */
static void some_key(char key[128]) {
    redisContext *c = connect_to();
    redisReply *reply = redisCommand(c, "RANDOMKEY");
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    snprintf(key, 128, "%s", reply->str);
    freeReplyObject(reply);
    redisFree(c);
}

/* ---- tiers over it ---- */

static kv_tiers *open_tiers(int32_t n_host, int32_t n_pages) {
    kv_tiers *t;
    quire_error err = {.message = ""};
    kv_tiers_options o = {.shape = shape,
                          .host_bytes = n_host * record_bytes(),
                          .redis_url = url,
                          .redis_bytes = n_pages * record_bytes()};
    if (kv_tiers_open(&o, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return t;
}

static quire_tier_stats redis_stats(const kv_tiers *t) {
    quire_tier_stats s[KV_N_TIERS];
    kv_tiers_stats(t, s);
    return s[KV_TIER_REDIS];
}

/* Puts p once the server is reached; it is there then. */
static void put_for_sure(kv_tiers *t, const prefix *p) {
    int64_t end = clock_us() + 60000000; /* only what never comes takes so long */
    while (!get(t, p)) {
        put(t, p);
        settle(t);
        assert_true(clock_us() < end);
    }
}

static void flush_all(void) {
    (void)ask("FLUSHALL");
}

/* ---- ---- */

TEST(pages_come_back_as_they_were_put) {
    kv_tiers *t = open_tiers(0, 1000);
    prefix p = random_prefix();
    put_for_sure(t, &p);
    int32_t n_got = 0;
    for (int i = 0; i < 2000; i++) {
        p = random_prefix();
        if (below(2) == 0) {
            put(t, &p);
        } else {
            n_got += get(t, &p);
        }
    }
    settle(t);
    assert_true(n_got > 100);
    assert_int_equal(redis_stats(t).errors, 0);
    kv_tiers_close(t);
    flush_all();
}

TEST(others_find_what_one_has_put) {
    kv_tiers *a = open_tiers(0, 1000), *b = open_tiers(10, 1000);
    prefix p = {.n_pages = 1};
    put_for_sure(a, &p);
    for (p.n_pages = 2; p.n_pages <= MAX_DEPTH; p.n_pages++) {
        put_for_sure(a, &p);
    }
    p.n_pages = 1;
    put_for_sure(b, &p); /* it is up now */
    for (p.n_pages = 1; p.n_pages <= MAX_DEPTH; p.n_pages++) {
        assert_true(get(b, &p));
    }
    kv_tiers_options o = {.shape = shape, .redis_url = url, .redis_bytes = 1 << 20};
    kv_tiers *c;
    quire_error err;
    o.shape.version = "model 2, f32";
    assert_int_equal(kv_tiers_open(&o, &c, &err), QUIRE_OK);
    for (int i = 0; i < 50; i++) {
        for (p.n_pages = 1; p.n_pages <= MAX_DEPTH; p.n_pages++) {
            assert_false(get(c, &p));
        }
        sleep_us(2000);
    }
    kv_tiers_close(a);
    kv_tiers_close(b);
    kv_tiers_close(c);
    flush_all();
}

/* Many pages are asked for before the first is answered. */
TEST(a_chain_is_asked_for_at_once) {
    kv_tiers *t = open_tiers(0, 1000);
    prefix p = {.n_pages = 1};
    int32_t frames[MAX_DEPTH];
    unsigned char expected[PAGE_BYTES];
    for (; p.n_pages <= MAX_DEPTH; p.n_pages++) {
        put_for_sure(t, &p);
    }
    for (int32_t i = 0; i < MAX_DEPTH; i++) {
        p.n_pages = i + 1;
        kv_tier_key key = key_of(&p);
        assert_int_equal(kv_tiers_fetch(t, &key, &frames[i]), KV_FETCH_STARTED);
    }
    settle(t);
    for (int32_t i = 0; i < MAX_DEPTH; i++) {
        p.n_pages = i + 1;
        content(&p, expected);
        const void *body = kv_tiers_take(t, frames[i]);
        assert_non_null(body);
        assert_memory_equal(body, expected, PAGE_BYTES);
        kv_tiers_release(t, frames[i]);
    }
    kv_tiers_close(t);
    flush_all();
}

/* Each of two processes has the beginning of a prefix and puts what follows it: what one
 * put, the other finds. */
TEST(what_two_have_put_is_one_prefix) {
    kv_tiers *a = open_tiers(10, 1000), *b = open_tiers(10, 1000);
    prefix p = {.n_pages = 1};
    put_for_sure(a, &p);
    put_for_sure(b, &p);
    p.n_pages = 2;
    put_for_sure(a, &p);
    assert_true(get(b, &p));
    p.n_pages = 3;
    put_for_sure(b, &p);
    assert_true(get(a, &p));
    assert_int_equal(ask("DBSIZE"), 3);
    kv_tiers_close(a);
    kv_tiers_close(b);
    flush_all();
}

/* A record that is whole, but not the one that its key says. */
TEST(a_record_under_another_key_is_not_taken_and_goes) {
    kv_tiers *t = open_tiers(0, 1000);
    prefix p = {.n_pages = 2}, q = {.n_pages = 2};
    char keys[2][128];
    q.tokens[0] = 1; /* its second page has the same tokens as p's */
    put_for_sure(t, &p);
    some_key(keys[0]);
    assert_int_equal(ask("RENAME %s %s", keys[0], "p"), -1);
    put_for_sure(t, &q);
    do {
        some_key(keys[1]);
    } while (strcmp(keys[1], "p") == 0);
    assert_int_equal(ask("RENAME %s %s", "p", keys[1]), -1);
    assert_false(get(t, &q));
    assert_int_equal(ask("DBSIZE"), 0);
    assert_int_equal(redis_stats(t).errors, 1);
    kv_tiers_close(t);
}

TEST(what_was_put_longest_ago_is_deleted_beyond_the_cap) {
    kv_tiers *t = open_tiers(0, 5);
    prefix p = {.n_pages = 1};
    for (int32_t i = 0; i < 12; i++) {
        p.tokens[0] = i;
        put_for_sure(t, &p);
        assert_true(ask("DBSIZE") <= 5);
    }
    assert_int_equal(redis_stats(t).bytes, 5 * record_bytes());
    for (int32_t i = 0; i < 12; i++) {
        p.tokens[0] = i;
        assert_int_equal(get(t, &p), i >= 7);
    }
    kv_tiers_close(t);
    flush_all();
}

/* ---- a server that lies ---- */

TEST(any_byte_changed_is_a_miss) {
    kv_tiers *t = open_tiers(0, 1000);
    prefix p = {.n_pages = 1};
    char key[128];
    for (int64_t i = 0; i < record_bytes(); i++) {
        put_for_sure(t, &p);
        some_key(key);
        assert_int_equal(ask("STRLEN %s", key), record_bytes());
        redisContext *c = connect_to();
        redisReply *reply = redisCommand(c, "GETRANGE %s %lld %lld", key, (long long)i, (long long)i);
        char byte = (char)(reply->str[0] ^ (1 << below(8)));
        freeReplyObject(reply);
        freeReplyObject(redisCommand(c, "SETRANGE %s %lld %b", key, (long long)i, &byte, (size_t)1));
        redisFree(c);
        assert_false(get(t, &p));
        assert_int_equal(ask("EXISTS %s", key), 0); /* and it is gone, so that it can be put again */
    }
    assert_int_equal(redis_stats(t).errors, record_bytes());
    kv_tiers_close(t);
    flush_all();
}

TEST(values_of_other_lengths_and_kinds_are_misses) {
    kv_tiers *t = open_tiers(0, 1000);
    prefix p = {.n_pages = 1};
    char key[128], *big = mem_new(1 << 20, 1);
    put_for_sure(t, &p);
    some_key(key);
    (void)ask("SET %s %s", key, "short");
    assert_false(get(t, &p));
    (void)ask("SET %s %b", key, big, (size_t)1 << 20);
    assert_false(get(t, &p));
    (void)ask("DEL %s", key);
    (void)ask("RPUSH %s %s", key, "a list");
    assert_false(get(t, &p));
    put(t, &p); /* what is there is in the way; no harm */
    settle(t);
    assert_false(get(t, &p));
    (void)ask("DEL %s", key);
    put_for_sure(t, &p);
    kv_tiers_close(t);
    mem_free(big);
    flush_all();
}

TEST(a_full_server_takes_nothing_in) {
    kv_tiers *t = open_tiers(0, 1000);
    prefix p = {.n_pages = 1}, q = {.n_pages = 1, .namespace = 1};
    put_for_sure(t, &p);
    (void)ask("CONFIG SET maxmemory 1");
    put(t, &q);
    settle(t);
    assert_false(get(t, &q));
    assert_true(redis_stats(t).errors > 0);
    assert_true(get(t, &p));
    (void)ask("CONFIG SET maxmemory 0");
    put_for_sure(t, &q);
    kv_tiers_close(t);
    flush_all();
}

/* ---- a server that fails ---- */

/* How often this thread gave up its processor by itself: it waited for something. */
static int64_t n_waits(void) {
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_THREAD, &u), 0);
    return u.ru_nvcsw;
}

/* Puts and gets for a while; nothing comes back wrong, and nothing but a read's end is
 * waited for. */
static void go_on(kv_tiers *t, int64_t us) {
    int64_t end = clock_us() + us, waited = 0;
    while (clock_us() < end) {
        prefix p = random_prefix();
        kv_tier_key key = key_of(&p);
        int32_t frame;
        int64_t before = n_waits();
        put(t, &p);
        bool started = kv_tiers_fetch(t, &key, &frame) == KV_FETCH_STARTED;
        kv_tiers_poll(t);
        waited += n_waits() - before;
        if (started) {
            kv_tiers_release(t, frame); /* whatever became of it */
        }
        (void)get(t, &p);
    }
    assert_int_equal(waited, 0);
}

TEST(a_server_that_is_killed_and_comes_back_is_used_again) {
    kv_tiers *t = open_tiers(0, 1000);
    prefix p = {.n_pages = 1};
    for (int i = 0; i < 4; i++) {
        put_for_sure(t, &p);
        int status;
        pid_t killer = fork();
        if (killer == 0) { /* in the middle of a transfer */
            sleep_us(below(30000));
            kill(server, SIGKILL);
            _exit(0);
        }
        go_on(t, 60000);
        waitpid(killer, &status, 0);
        waitpid(server, &status, 0);
        go_on(t, 100000);
        assert_true(redis_stats(t).errors > 0);
        start_server();
    }
    put_for_sure(t, &p);
    kv_tiers_close(t);
    flush_all();
}

TEST(a_server_that_hangs_is_left_alone) {
    kv_tiers *t = open_tiers(0, 1000);
    prefix p = {.n_pages = 1};
    put_for_sure(t, &p);
    kill(server, SIGSTOP);
    assert_false(get(t, &p)); /* until the timeout */
    kv_tier_key key = key_of(&p);
    int32_t frame;
    assert_int_equal(kv_tiers_fetch(t, &key, &frame), KV_FETCH_NOWHERE); /* nobody waits for it again */
    go_on(t, 300000);
    kill(server, SIGCONT);
    put_for_sure(t, &p);
    kill(server, SIGSTOP);
    kv_tiers_close(t); /* does not wait for ever */
    kill(server, SIGCONT);
    flush_all();
}

/* ---- a server that is none ---- */

typedef enum lie {
    LIE_TRICKLE,
    LIE_ENDLESS,
    LIE_NOISE,
    LIE_DEEP,
    LIE_WIDE,
    LIE_NUMBERS,
    LIE_NOTHING,
    LIE_RECORD,
    LIE_HANG_UP,
    LIE_ERROR,
    N_LIES
} lie;

static bool say(int fd, const void *p, size_t n) {
    return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static atomic_int *n_trickles; /* shared with the process that lies: answers of that kind begun */

/* What it answers to everything but PING; false: it hangs up. */
static bool answer(int fd, lie what) {
    static char bytes[1 << 16];
    char text[64];
    switch (what) {
    case LIE_TRICKLE: /* a byte just before each time that the other side would stop waiting */
        atomic_fetch_add(n_trickles, 1);
        while (say(fd, "$900000\r\n", 9)) {
            sleep_us(100000);
        }
        return false;
    case LIE_ENDLESS:
        while (say(fd, "$1000000000\r\n", 13) && say(fd, bytes, sizeof bytes)) {
        }
        return false;
    case LIE_NOISE:
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (char)below(256);
        }
        return say(fd, bytes, 1 + (size_t)below(5000));
    case LIE_DEEP:
        for (int i = 0; i < 1000 && say(fd, "*1\r\n", 4); i++) {
        }
        return true;
    case LIE_WIDE:
        return say(fd, "*1000000\r\n", 10);
    case LIE_NUMBERS:
        return say(fd, ":1\r\n", 4);
    case LIE_NOTHING:
        return say(fd, "$-1\r\n", 5);
    case LIE_RECORD:
        snprintf(text, sizeof text, "$%lld\r\n", (long long)record_bytes());
        return say(fd, text, strlen(text)) && say(fd, bytes, (size_t)record_bytes()) && say(fd, "\r\n", 2);
    case LIE_ERROR:
        return say(fd, "-ERR no\r\n", 9);
    default:
        return false;
    }
}

/* A process that greets like a server and then lies. */
static pid_t start_liar(const char *path, lie what) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    unlink(path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 &&
                listen(listener, 8) == 0);
    pid_t child = fork();
    if (child == 0) {
        static char asked[1 << 16];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int fd = accept(listener, NULL, NULL);
            bool goes_on = fd >= 0;
            for (ssize_t n = 1; goes_on && n > 0;) {
                n = recv(fd, asked, sizeof asked - 1, 0);
                asked[n > 0 ? n : 0] = 0;
                goes_on = strstr(asked, "PING") != NULL ? say(fd, "+PONG\r\n", 7) : n > 0 && answer(fd, what);
            }
            close(fd);
        }
    }
    close(listener);
    return child;
}

TEST(a_server_that_lies_gives_nothing_and_holds_nobody_up) {
    char was[sizeof url], path[sizeof socket_path + 8];
    memcpy(was, url, sizeof url);
    snprintf(path, sizeof path, "%s.lies", socket_path);
    snprintf(url, sizeof url, "unix://%s", path);
    n_trickles = mmap(NULL, sizeof *n_trickles, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(n_trickles != MAP_FAILED);
    for (lie what = 0; what < N_LIES; what++) {
        pid_t liar = start_liar(path, what);
        kv_tiers *t = open_tiers(0, 100);
        go_on(t, 300000);
        assert_int_equal(redis_stats(t).hits, 0);
        prefix p = {.n_pages = 1};
        for (int i = 0; i < 200; i++) { /* many that wait, but for a few answers at most */
            p.tokens[0] = i;
            put(t, &p);
        }
        kv_tiers_close(t);
        assert_true(atomic_load(n_trickles) < 100);
        kill(liar, SIGKILL);
        int status;
        waitpid(liar, &status, 0);
    }
    munmap(n_trickles, sizeof *n_trickles);
    unlink(path);
    memcpy(url, was, sizeof url);
}

TEST(no_server_at_all_is_no_error) {
    char was[sizeof url];
    memcpy(was, url, sizeof url);
    snprintf(url, sizeof url, "redis://127.0.0.1:1/3");
    kv_tiers *t = open_tiers(0, 10);
    go_on(t, 100000);
    assert_int_equal(redis_stats(t).hits, 0);
    kv_tiers_close(t);
    memcpy(url, was, sizeof url);
}

TEST(other_urls_are_refused) {
    static const char *const bad[] = {"",
                                      "localhost",
                                      "http://localhost",
                                      "redis://",
                                      "redis://:0",
                                      "redis://h:",
                                      "redis://h:0",
                                      "redis://h:65536",
                                      "redis://h:1x",
                                      "redis://h/x",
                                      "redis://h/-1",
                                      "redis://nocolon@h",
                                      "unix://relative",
                                      "rediss://h:6379"};
    static const char *const good[] = {"redis://h",          "redis://h/",        "redis://h:1",
                                       "redis://h:65535/15", "redis://:secret@h", "redis://me:secret@h:1/2",
                                       "unix:///x"};
    kv_tiers_options o = {.shape = shape, .redis_bytes = 1 << 20};
    kv_tiers *t;
    quire_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.redis_url = bad[i];
        assert_int_equal(kv_tiers_open(&o, &t, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.message, "--kv-tier-redis"));
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        o.redis_url = good[i];
        assert_int_equal(kv_tiers_open(&o, &t, &err), QUIRE_OK);
        kv_tiers_close(t);
    }
    o.redis_bytes = record_bytes() - 1;
    assert_int_equal(kv_tiers_open(&o, &t, &err), QUIRE_INVALID);
}

int main(void) {
    draw_seed();
    if (system("redis-server --version >/dev/null 2>&1") != 0) {
        printf("SKIP: redis-server is not installed\n");
        return 0;
    }
    snprintf(directory, sizeof directory, "/tmp/quire-redis-%ld", (long)getpid());
    snprintf(socket_path, sizeof socket_path, "%s/socket", directory);
    snprintf(url, sizeof url, "unix://%s", socket_path);
    mkdir(directory, 0700);
    start_server();
    int failed = tests_run(NULL, NULL);
    stop_server();
    unlink(socket_path);
    rmdir(directory);
    return failed;
}
