#include <stdbool.h>
#include <string.h>

#include "base/fault.h"
#include "base/rng.h"
#include "quire_kv.h"
#include "test.h"

static quire_kv *open_kv(int32_t n_pages, int32_t page_tokens, int32_t window) {
    quire_kv_options o;
    quire_kv *kv;
    quire_kv_options_init(&o);
    o.n_pages = n_pages;
    o.page_tokens = page_tokens;
    o.seed = 1;
    o.max_seqs = 6;
    if (window > 0) {
        o.n_groups = 2;
        o.windows[1] = window;
    }
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_OK);
    return kv;
}

static void check(const quire_kv *kv) {
    quire_error err = {.message = ""};
    if (quire_kv_check(kv, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static void numbers(int32_t *tokens, int32_t from, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = from + i;
    }
}

TEST(a_second_request_reuses_37_tokens_of_the_first) {
    quire_kv *kv = open_kv(64, 16, 0);
    quire_kv_seq *a, *b;
    const quire_kv_copy *copies;
    int32_t x[60], y[50], n_cached, n_pages;
    numbers(x, 0, 60);
    numbers(y, 0, 37);
    numbers(y + 37, 900, 13);
    assert_int_equal(quire_kv_seq_open(kv, "t", 1, x, 60, &a, &n_cached), QUIRE_OK);
    assert_int_equal(n_cached, 0);
    assert_int_equal(quire_kv_copies(kv, &copies), 0);
    assert_int_equal(quire_kv_seq_commit(a, 60, QUIRE_KV_PAGES_AND_TAIL), QUIRE_OK);
    assert_int_equal(quire_kv_seq_open(kv, "t", 1, y, 50, &b, &n_cached), QUIRE_OK);
    assert_int_equal(n_cached, 37);
    assert_int_equal(quire_kv_copies(kv, &copies), 1);
    const int32_t *of_a = quire_kv_seq_pages(a, 0, &n_pages);
    assert_int_equal(n_pages, 4);
    const int32_t *of_b = quire_kv_seq_pages(b, 0, &n_pages);
    assert_int_equal(n_pages, 4);
    assert_int_equal(copies[0].from, of_a[2]);
    assert_int_equal(copies[0].to, of_b[2]);
    assert_int_equal(of_a[1], of_b[1]);
    assert_int_equal(quire_kv_seq_slot(b, 0, 37), of_b[2] * 16 + 5);
    check(kv);
    quire_kv_seq_close(a);
    quire_kv_seq_close(b);
    check(kv);
    quire_kv_close(kv);
}

TEST(a_call_without_room_leaves_all_as_it_was) {
    quire_kv *kv = open_kv(8, 4, 0);
    quire_kv_seq *a, *b = NULL, *more[6];
    int32_t x[40], n_cached = -7;
    numbers(x, 0, 40);
    assert_int_equal(quire_kv_seq_open(kv, "", 0, x, 22, &a, &n_cached), QUIRE_OK);
    assert_int_equal(quire_kv_seq_append(a, x + 22, 18), QUIRE_NO_ROOM);
    assert_int_equal(quire_kv_seq_append(a, x, -1), QUIRE_INVALID);
    assert_int_equal(quire_kv_seq_append(a, x, INT32_MAX), QUIRE_INVALID);
    assert_int_equal(quire_kv_seq_length(a), 22);
    assert_int_equal(quire_kv_seq_open(kv, "", 0, x, 12, &b, &n_cached), QUIRE_NO_ROOM);
    assert_int_equal(quire_kv_seq_open(kv, "", 0, x, 0, &b, &n_cached), QUIRE_INVALID);
    char name[256] = {0};
    assert_int_equal(quire_kv_seq_open(kv, name, sizeof name, x, 1, &b, &n_cached), QUIRE_INVALID);
    assert_null(b);
    quire_kv_counts c = quire_kv_count(kv);
    assert_int_equal(c.n_held, 6);
    assert_int_equal(c.n_seqs, 1);
    assert_int_equal(c.n_namespaces, 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(quire_kv_seq_fork(a, &more[i]), QUIRE_OK);
    }
    assert_int_equal(quire_kv_seq_fork(a, &more[5]), QUIRE_NO_ROOM);
    assert_int_equal(quire_kv_seq_commit(a, 23, QUIRE_KV_PAGES), QUIRE_INVALID);
    assert_int_equal(quire_kv_seq_truncate(a, 23), QUIRE_INVALID);
    check(kv);
    quire_kv_close(kv); /* with six sequences open */
}

TEST(what_a_window_no_longer_sees_is_given_back) {
    quire_kv *kv = open_kv(64, 4, 8);
    quire_kv_seq *a;
    int32_t x[40], n_cached;
    numbers(x, 0, 40);
    assert_int_equal(quire_kv_seq_open(kv, "", 0, x, 40, &a, &n_cached), QUIRE_OK);
    assert_int_equal(quire_kv_seq_commit(a, 40, QUIRE_KV_PAGES), QUIRE_OK);
    assert_int_equal(quire_kv_seq_slot(a, 1, 31), -1);
    assert_true(quire_kv_seq_slot(a, 1, 33) >= 0);
    assert_true(quire_kv_seq_slot(a, 0, 0) >= 0);
    assert_int_equal(quire_kv_seq_truncate(a, 36), QUIRE_INVALID); /* position 36 sees 29 */
    assert_int_equal(quire_kv_seq_truncate(a, 39), QUIRE_OK);
    assert_int_equal(quire_kv_seq_length(a), 39);
    check(kv);
    quire_kv_close(kv);
}

TEST(a_public_prefix_is_held_once_for_two_spaces) {
    quire_kv *kv = open_kv(64, 16, 0);
    quire_kv_seq *a, *b, *c;
    int32_t x[60], n_cached, n;
    numbers(x, 0, 60);
    assert_int_equal(quire_kv_add_public(kv, "m", 1, x, 15), QUIRE_INVALID);
    assert_int_equal(quire_kv_add_public(kv, "m", 1, x, 40), QUIRE_OK);
    assert_int_equal(quire_kv_seq_open_public(kv, "m", 1, "alice", 5, x, 60, &a, &n_cached), QUIRE_OK);
    assert_int_equal(n_cached, 0);
    assert_int_equal(quire_kv_seq_commit(a, 60, QUIRE_KV_PAGES_AND_TAIL), QUIRE_OK);
    assert_int_equal(quire_kv_seq_open_public(kv, "m", 1, "bob", 3, x, 60, &b, &n_cached), QUIRE_OK);
    assert_int_equal(n_cached, 32);
    assert_int_equal(quire_kv_count(kv).n_held, 4 + 2);
    assert_int_equal(quire_kv_seq_pages(a, 0, &n)[1], quire_kv_seq_pages(b, 0, &n)[1]);
    assert_int_equal(quire_kv_seq_open(kv, "carol", 5, x, 60, &c, &n_cached), QUIRE_OK);
    assert_int_equal(n_cached, 0);
    check(kv);
    quire_kv_close(kv);
}

/* Without a full group no page keeps the early entries of a prefix, but its last window
 * does. */
TEST(a_long_prefix_is_reused_where_all_groups_have_windows) {
    quire_kv_options o;
    quire_kv *kv;
    quire_kv_seq *a;
    int32_t x[800], n_cached;
    numbers(x, 0, 800);
    quire_kv_options_init(&o);
    o.n_pages = 12;
    o.windows[0] = 64;
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_OK);
    assert_int_equal(quire_kv_seq_open(kv, "", 0, x, 16, &a, &n_cached), QUIRE_OK);
    for (int32_t n = 16; n < 800; n += 16) {
        assert_int_equal(quire_kv_seq_commit(a, n, QUIRE_KV_PAGES), QUIRE_OK);
        assert_int_equal(quire_kv_seq_append(a, x + n, 16), QUIRE_OK);
        check(kv);
    }
    assert_int_equal(quire_kv_seq_commit(a, 800, QUIRE_KV_PAGES_AND_TAIL), QUIRE_OK);
    assert_int_equal(quire_kv_count(kv).n_held, 4);
    quire_kv_seq_close(a);
    assert_int_equal(quire_kv_seq_open(kv, "", 0, x, 800, &a, &n_cached), QUIRE_OK);
    assert_int_equal(n_cached, 799);
    check(kv);
    quire_kv_close(kv);
}

TEST(options_out_of_range_are_refused) {
    quire_kv_options o;
    quire_kv *kv = NULL;
    quire_kv_options_init(&o);
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_INVALID); /* no pages */
    o.n_pages = 4;
    o.page_tokens = 24;
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_INVALID);
    o.page_tokens = 16;
    o.n_groups = QUIRE_KV_MAX_GROUPS + 1;
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_INVALID);
    o.n_groups = 1;
    o.windows[0] = -1;
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_INVALID);
    o.windows[0] = 0;
    o.max_seqs = 0;
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_INVALID);
    assert_null(kv);
    quire_kv_close(NULL);
    quire_kv_seq_close(NULL);
}

/* A user of the library with a memory of its own, whose slots hold a number made of the
 * whole prefix. */
enum { N_SEQS = 6, N_PAGES = 48, PLENTY = 400, SIZE = 4, MAX_TOKENS = 120, GROUPS = 2 };

static const int32_t zeros[8]; /* what many prompts begin with */

typedef struct user {
    quire_kv *kv;
    int n_faults;
    uint64_t slots[PLENTY * SIZE];
    quire_kv_seq *seqs[N_SEQS];
    int32_t tokens[N_SEQS][MAX_TOKENS];
    int64_t n_cached;
} user;

static uint64_t value(uint64_t before, int32_t token, int32_t group) {
    return (before + (uint64_t)token + 1) * 0x9E3779B97F4A7C15u + (uint64_t)group;
}

/* Does the copies, writes positions from..length, and reads all: every slot must hold its
 * own. */
static void compute(user *u, int32_t i, int32_t from) {
    const quire_kv_copy *copies;
    int32_t n_copies = quire_kv_copies(u->kv, &copies), n = quire_kv_seq_length(u->seqs[i]);
    for (int32_t c = 0; c < n_copies; c++) {
        memcpy(&u->slots[copies[c].to * SIZE], &u->slots[copies[c].from * SIZE], SIZE * sizeof u->slots[0]);
    }
    for (int32_t g = 0; g < GROUPS; g++) {
        uint64_t h = 0;
        for (int32_t p = 0; p < n; p++) {
            h = value(h, u->tokens[i][p], g);
            int64_t slot = quire_kv_seq_slot(u->seqs[i], g, p);
            if (p >= from) {
                u->slots[slot] = h;
            } else if (slot >= 0 && u->slots[slot] != h) {
                fail_msg("sequence %d: position %d of group %d holds something else", i, p, g);
            }
        }
    }
}

/* Sequences and what they hold, as a number. */
static uint64_t digest_of(const user *u) {
    uint64_t h = (uint64_t)quire_kv_count(u->kv).n_held * 31 + (uint64_t)quire_kv_count(u->kv).n_seqs;
    for (int32_t i = 0; i < N_SEQS; i++) {
        for (int32_t g = 0; u->seqs[i] != NULL && g < GROUPS; g++) {
            int32_t n;
            const int32_t *pages = quire_kv_seq_pages(u->seqs[i], g, &n);
            h = value(h, quire_kv_seq_length(u->seqs[i]), n);
            for (int32_t k = 0; k < n; k++) {
                h = value(h, pages[k], k);
            }
        }
    }
    return h;
}

#ifdef QUIRE_DEBUG
/* Whether a fault made this call fail. Then all must be as it was, and the call is to be
 * made again. */
static bool failed_by_fault(user *u, quire_err e, uint64_t digest_before) {
    if (!fault_happened()) {
        return false;
    }
    fault_at(0);
    u->n_faults++;
    assert_true(e == QUIRE_NO_MEMORY || e == QUIRE_NO_ROOM);
    assert_true(digest_of(u) == digest_before);
    check(u->kv);
    return true;
}
#else
static bool failed_by_fault(user *u, quire_err e, uint64_t digest_before) {
    (void)u;
    (void)e;
    (void)digest_before;
    return false;
}
#endif

static quire_err open_seq(user *u, size_t n_namespace, int32_t i, int32_t n, int32_t *n_cached) {
    uint64_t before = digest_of(u);
    quire_kv_seq *seq = NULL;
    quire_err e =
        quire_kv_seq_open_public(u->kv, "model", 5, "ab", n_namespace, u->tokens[i], n, &seq, n_cached);
    if (failed_by_fault(u, e, before)) {
        assert_null(seq);
        e = quire_kv_seq_open_public(u->kv, "model", 5, "ab", n_namespace, u->tokens[i], n, &seq, n_cached);
        assert_int_equal(e, QUIRE_OK);
    }
    u->seqs[i] = seq;
    return e;
}

static quire_err append(user *u, int32_t i, const int32_t *tokens, int32_t n) {
    uint64_t before = digest_of(u);
    quire_err e = quire_kv_seq_append(u->seqs[i], tokens, n);
    if (failed_by_fault(u, e, before)) {
        e = quire_kv_seq_append(u->seqs[i], tokens, n);
        assert_int_equal(e, QUIRE_OK);
    }
    return e;
}

static quire_err fork_seq(user *u, int32_t i, int32_t j) {
    uint64_t before = digest_of(u);
    quire_err e = quire_kv_seq_fork(u->seqs[i], &u->seqs[j]);
    if (failed_by_fault(u, e, before)) {
        e = quire_kv_seq_fork(u->seqs[i], &u->seqs[j]);
        assert_int_equal(e, QUIRE_OK);
    }
    return e;
}

static void start(user *u, uint64_t *s, int32_t i) {
    int32_t n = 1 + (int32_t)(rng_next(s) % 40), n_cached;
    for (int32_t p = 0; p < n; p++) {
        u->tokens[i][p] = rng_next(s) % 8 == 0;
    }
    if (open_seq(u, 1 + rng_next(s) % 2, i, n, &n_cached) != QUIRE_OK) {
        return;
    }
    u->n_cached += n_cached;
    compute(u, i, n_cached);
    assert_int_equal(quire_kv_seq_commit(u->seqs[i], n, QUIRE_KV_PAGES), QUIRE_OK);
}

static void step(user *u, uint64_t *s) {
    int32_t i = (int32_t)(rng_next(s) % N_SEQS), j = (int32_t)(rng_next(s) % N_SEQS);
    if (u->seqs[i] == NULL) {
        start(u, s, i);
        return;
    }
    int32_t length = quire_kv_seq_length(u->seqs[i]), more = 1 + (int32_t)(rng_next(s) % 6);
    switch (rng_next(s) % 8) {
    case 0:
        assert_int_equal(quire_kv_seq_commit(u->seqs[i], length, QUIRE_KV_PAGES_AND_TAIL), QUIRE_OK);
        quire_kv_seq_close(u->seqs[i]);
        u->seqs[i] = NULL;
        return;
    case 1:
        if (u->seqs[j] == NULL && fork_seq(u, i, j) == QUIRE_OK) {
            memcpy(u->tokens[j], u->tokens[i], sizeof u->tokens[j]);
        }
        return;
    case 2:
        (void)quire_kv_seq_truncate(u->seqs[i], (int32_t)(rng_next(s) % (uint64_t)(length + 1)));
        return;
    default:
        for (int32_t p = 0; p < more && length + more <= MAX_TOKENS; p++) {
            u->tokens[i][length + p] = rng_next(s) % 8 == 0;
        }
        if (length + more <= MAX_TOKENS && append(u, i, u->tokens[i] + length, more) == QUIRE_OK) {
            compute(u, i, length);
            assert_int_equal(quire_kv_seq_commit(u->seqs[i], length + more, QUIRE_KV_PAGES), QUIRE_OK);
        }
        return;
    }
}

TEST(random_use_never_mixes_up_what_slots_hold) {
    static user u;
    uint64_t seed = rng_os_seed(), s = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    u.kv = open_kv(N_PAGES, SIZE, 11);
    assert_int_equal(quire_kv_add_public(u.kv, "model", 5, zeros, 8), QUIRE_OK);
    for (int n = 0; n < 6000; n++) {
        step(&u, &s);
        check(u.kv);
    }
    assert_true(u.n_cached > 200);
    quire_kv_clear(u.kv);
    check(u.kv);
    assert_int_equal(quire_kv_count(u.kv).n_cached, 0);
    quire_kv_close(u.kv);
}

#ifdef QUIRE_DEBUG
/* The same work once for every point in it that may fail, which then does: everything
 * must be as it was, and the next try succeed. */
TEST(each_allocation_and_reserve_may_fail_once) {
    static user u;
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    int n_faults = 0;
    for (int64_t point = 0;; point++) {
        uint64_t s = seed;
        quire_kv_options o;
        memset(&u, 0, sizeof u);
        quire_kv_options_init(&o);
        o.n_pages = PLENTY; /* nothing fails but by a fault */
        o.page_tokens = SIZE;
        o.seed = 1;
        o.max_seqs = N_SEQS;
        o.n_groups = GROUPS;
        o.windows[1] = 11;
        fault_at(point);
        quire_err e = quire_kv_open(&o, &u.kv);
        if (fault_happened()) {
            assert_int_equal(e, QUIRE_NO_MEMORY);
            n_faults++;
            continue;
        }
        e = quire_kv_add_public(u.kv, "model", 5, zeros, 8);
        if (failed_by_fault(&u, e, digest_of(&u))) {
            assert_int_equal(quire_kv_add_public(u.kv, "model", 5, zeros, 8), QUIRE_OK);
        }
        for (int n = 0; n < 120; n++) {
            step(&u, &s);
            assert_false(fault_happened()); /* in none but the calls that may say so */
        }
        fault_at(0);
        check(u.kv);
        n_faults += u.n_faults;
        int fired = u.n_faults;
        quire_kv_close(u.kv);
        if (point > 0 && fired == 0) {
            break; /* there is no such point */
        }
    }
    print_message("%d points\n", n_faults);
    assert_true(n_faults > 100);
}
#else
TEST(each_allocation_and_reserve_may_fail_once) {
    print_message("SKIP: no fault injection in this build\n");
}
#endif

#ifdef QUIRE_DEBUG
/* A sequence whose prefix is cached opens whole or not at all, whichever allocation
 * fails. */
TEST(opening_behind_a_cached_prefix_reports_every_fault) {
    int32_t tokens[400] = {0}, n_cached, n_faults = 0; /* so long that tables grow when they are filled */
    quire_kv *kv = open_kv(256, 4, 0);
    quire_kv_seq *seq;
    assert_int_equal(quire_kv_seq_open(kv, "a", 1, tokens, 400, &seq, &n_cached), QUIRE_OK);
    assert_int_equal(quire_kv_seq_commit(seq, 400, QUIRE_KV_PAGES), QUIRE_OK);
    quire_kv_seq_close(seq);
    for (int64_t point = 1;; point++) {
        fault_at(point);
        quire_err e = quire_kv_seq_open(kv, "a", 1, tokens, 400, &seq, &n_cached);
        bool failed = fault_happened();
        fault_at(0);
        assert_int_equal(e == QUIRE_OK, !failed);
        check(kv);
        if (!failed) {
            break;
        }
        n_faults++;
    }
    assert_int_equal(n_cached, 399);
    assert_true(n_faults > 3);
    quire_kv_seq_close(seq);
    quire_kv_close(kv);
}

/* Commits n_fine times, then without memory, up to the next snapshot each time; how many
 * commits it takes to the end. */
static int32_t commits_to_the_end(int32_t n_fine) {
    int32_t tokens[100] = {0}, n_cached, n_commits = 0;
    quire_kv_options o;
    quire_kv *kv;
    quire_kv_seq *seq;
    quire_kv_options_init(&o);
    o.n_pages = 256;
    o.page_tokens = 4;
    o.n_groups = 2;
    o.state_pages[1] = 2;
    o.snapshot_tokens = 2;
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_OK);
    assert_int_equal(quire_kv_seq_open(kv, "a", 1, tokens, 100, &seq, &n_cached), QUIRE_OK);
    for (int32_t done = 0; done < 100 && n_commits < 200; n_commits++) {
        int32_t next = quire_kv_seq_next_snapshot(seq);
        done = next < 100 ? next : 100;
        fault_at(n_commits < n_fine ? 0 : 1);
        assert_int_equal(quire_kv_seq_commit(seq, done, QUIRE_KV_PAGES), QUIRE_OK);
        fault_at(0);
    }
    check(kv);
    quire_kv_seq_close(seq);
    quire_kv_close(kv);
    return n_commits;
}

TEST(a_commit_without_memory_moves_on_to_the_next_snapshot) {
    for (int32_t n_fine = 0; n_fine < 50; n_fine++) { /* with some of them the list of copies is full then */
        assert_in_range(commits_to_the_end(n_fine), 1, 60);
    }
}
#endif

/* A window of one token looks back to none; yet a page that is gone cannot be written on
 * in. */
TEST(a_sequence_is_not_truncated_into_a_released_page) {
    int32_t tokens[16] = {0}, n_cached;
    quire_kv_options o;
    quire_kv *kv;
    quire_kv_seq *seq;
    quire_kv_options_init(&o);
    o.n_pages = 16;
    o.page_tokens = 4;
    o.n_groups = 2;
    o.windows[1] = 1;
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_OK);
    assert_int_equal(quire_kv_seq_open(kv, "a", 1, tokens, 14, &seq, &n_cached), QUIRE_OK);
    assert_int_equal(quire_kv_seq_commit(seq, 14, QUIRE_KV_PAGES), QUIRE_OK);
    assert_int_equal(quire_kv_seq_truncate(seq, 6), QUIRE_INVALID);
    assert_int_equal(quire_kv_seq_truncate(seq, 13), QUIRE_OK);
    assert_int_equal(quire_kv_seq_truncate(seq, 8), QUIRE_OK); /* a page's start */
    assert_int_equal(quire_kv_seq_append(seq, tokens, 3), QUIRE_OK);
    check(kv);
    quire_kv_seq_close(seq);
    quire_kv_close(kv);
}

TEST_MAIN(NULL, NULL)
