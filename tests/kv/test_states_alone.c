/* A model of states alone (Mamba): no group holds tokens, and the tree has tokens but no
 * pages. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/kv_seq.h"
#include "quire_kv.h"
#include "test.h"

enum { STATE = 3, SIZE = 16, PROMPT = 200 };

static int32_t tokens[2000];

static quire_kv *open_alone(int32_t n_pages) {
    quire_kv_options o;
    quire_kv *kv;
    quire_kv_options_init(&o);
    o.n_pages = n_pages;
    o.page_tokens = SIZE;
    o.n_groups = 1;
    o.state_pages[0] = STATE;
    assert_int_equal(quire_kv_open(&o, &kv), QUIRE_OK);
    for (int32_t i = 0; i < 2000; i++) {
        tokens[i] = i;
    }
    return kv;
}

static quire_kv_counts counts(const quire_kv *kv) {
    quire_error err = {.message = ""};
    if (quire_kv_check(kv, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return quire_kv_count(kv);
}

static int32_t run(quire_kv *kv, const int32_t *prompt, int32_t n, quire_kv_seq **out) {
    int32_t n_cached;
    assert_int_equal(quire_kv_seq_open(kv, "s", 1, prompt, n, out, &n_cached), QUIRE_OK);
    for (int32_t at = n_cached; at < n;) {
        const int32_t next = quire_kv_seq_next_snapshot(*out);
        at = next < n ? next : n;
        assert_int_equal(quire_kv_seq_commit(*out, at, QUIRE_KV_PAGES), QUIRE_OK);
        (void)counts(kv);
    }
    return n_cached;
}

TEST(the_same_prompt_again_computes_its_last_token_only) {
    quire_kv *kv = open_alone(100);
    quire_kv_seq *a, *b;
    assert_int_equal(run(kv, tokens, PROMPT, &a), 0);
    assert_int_equal(counts(kv).n_held, STATE);
    quire_kv_seq_close(a);
    assert_int_equal(run(kv, tokens, PROMPT, &b), PROMPT - 1);
    quire_kv_seq_close(b);
    quire_kv_clear(kv);
    assert_int_equal(counts(kv).n_free, 100);
    quire_kv_close(kv);
}

TEST(requests_that_branch_share_what_they_have_in_common) {
    quire_kv *kv = open_alone(200);
    quire_kv_seq *seqs[3];
    int32_t prompts[3][PROMPT];
    for (int i = 0; i < 3; i++) {
        memcpy(prompts[i], tokens, sizeof prompts[i]);
        for (int p = 150; p < PROMPT; p++) {
            prompts[i][p] = 1000 * (i + 1) + p;
        }
    }
    assert_int_equal(run(kv, prompts[0], PROMPT, &seqs[0]), 0);
    assert_int_equal(run(kv, prompts[1], PROMPT, &seqs[1]), 0);
    assert_int_equal(run(kv, prompts[2], PROMPT, &seqs[2]), 150);
    for (int i = 0; i < 3; i++) {
        quire_kv_seq_close(seqs[i]);
    }
    assert_int_equal(counts(kv).n_held, 0);
    quire_kv_close(kv);
}

TEST(random_sequences_leave_every_page_where_it_belongs) {
    enum { SEQS = 6, ROUNDS = 3000 };
    uint64_t seed = 41;
    quire_kv *kv = open_alone(SEQS * STATE + 20);
    quire_kv_seq *seqs[SEQS] = {NULL};
    for (int i = 0; i < ROUNDS; i++) {
        quire_kv_seq **s = &seqs[rng_next(&seed) % SEQS];
        const int32_t from = (int32_t)(rng_next(&seed) % 4) * 100, n = 1 + (int32_t)(rng_next(&seed) % 180);
        if (*s == NULL) {
            (void)run(kv, tokens + from, n, s);
        } else if (rng_next(&seed) % 3 == 0) {
            quire_kv_seq_close(*s);
            *s = NULL;
        } else if (quire_kv_seq_append(*s, tokens + from, 3) == QUIRE_OK) {
            const quire_kv_copy *copies;
            (void)quire_kv_copies(kv, &copies);
            assert_int_equal(
                quire_kv_seq_commit(*s, quire_kv_seq_length(*s),
                                    rng_next(&seed) % 2 == 0 ? QUIRE_KV_PAGES : QUIRE_KV_PAGES_AND_TAIL),
                QUIRE_OK);
        }
        (void)counts(kv);
    }
    for (int i = 0; i < SEQS; i++) {
        if (seqs[i] != NULL) {
            quire_kv_seq_close(seqs[i]);
        }
    }
    assert_int_equal(counts(kv).n_held, 0);
    quire_kv_clear(kv);
    assert_int_equal(counts(kv).n_free, SEQS * STATE + 20);
    quire_kv_close(kv);
}

/* The tree has room for few prompts: those whose states went make room for others. */
TEST(what_is_no_longer_kept_makes_room_for_others) {
    quire_kv *kv = open_alone(10 * STATE);
    quire_kv_seq *s;
    int32_t prompt[180];
    for (int32_t i = 0; i < 500; i++) {
        for (int32_t k = 0; k < 180; k++) {
            prompt[k] = 1000 * i + k;
        }
        assert_int_equal(run(kv, prompt, 180, &s), 0);
        quire_kv_seq_close(s);
        assert_int_equal(run(kv, prompt, 180, &s), 179);
        quire_kv_seq_close(s);
    }
    quire_kv_close(kv);
}

/* Namespaces live while tokens are in them, and these have no pages that could be
 * evicted. */
TEST(tenants_who_come_after_many_others_find_what_they_left) {
    enum { N_TENANTS = 100, N = 40 };
    kv_cache_options o = {.n_pages = 20 * STATE,
                          .page_tokens = SIZE,
                          .n_groups = 1,
                          .state_pages = {STATE},
                          .max_namespaces = 8,
                          .seed = 1};
    kv_copies copies = {.pairs = mem_new(STATE, sizeof *copies.pairs), .cap = STATE};
    kv_cache c;
    kv_seq s;
    quire_error err = {.message = ""};
    assert_int_equal(kv_cache_open(&o, &c), QUIRE_OK);
    assert_int_equal(kv_seq_init(&s, 1, STATE), QUIRE_OK);
    for (int32_t i = 0; i < 2 * N_TENANTS; i++) {
        int32_t tenant = i / 2;
        assert_int_equal(kv_seq_open(&c, &s, "", 0, &tenant, sizeof tenant, tokens, N), QUIRE_OK);
        assert_int_equal(kv_seq_admit(&c, &s, tokens, N - 1), QUIRE_OK);
        assert_int_equal(s.n_computed, i % 2 == 0 ? 0 : N - 1);
        kv_cache_make_free(&c, (int32_t)kv_seq_needs(&c, &s, N - 1 - s.n_computed));
        assert_int_equal(kv_seq_reserve(&c, &s, N - 1 - s.n_computed, &copies), QUIRE_OK);
        kv_seq_advance(&s, N - 1 - s.n_computed);
        kv_seq_release(&c, &s, tokens, KV_KEEP);
        kv_seq_close(&c, &s);
        copies.n = 0;
        assert_int_equal(kv_cache_check(&c, NULL, 0, &err), QUIRE_OK);
    }
    kv_index_clear(c.index); /* no one's tokens are kept */
    assert_int_equal(kv_index_count(c.index).n_entries, 0);
    assert_int_equal(kv_index_count(c.index).n_namespaces, 0);
    kv_seq_deinit(&s);
    kv_cache_close(&c);
    mem_free(copies.pairs);
}

TEST_MAIN(NULL, NULL)
