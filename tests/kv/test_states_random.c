/* Recurrent states in random use, as an engine uses them: steps over several sequences,
 * in chunks and with drafts, whose states are copied within their rows; forks, rollbacks,
 * preemption by either way, tiers, eviction, memory that another pool takes, and
 * failures, in a pool that is full. What a sequence or a snapshot holds is compared with
 * the number of its prefix, and what an admission finds with what the device holds; the
 * cache is audited after each operation.
 * 10^5 operations; with QUIRE_TEST_LONG 10^6. QUIRE_TEST_SEED=n repeats a run. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "state_world.h"

enum { LONG_WAIT_US = 60000000 };

/* ---- a sequence's life ---- */

/* A new one: the beginning of another's tokens, or of the public ones, then random
 * ones. */
static void enter(user *u) {
    const user *like = &users[any(N_SEQS)];
    int32_t n_like = any(LEN);
    u->n_known = 1 + any(LEN - 8);
    memmove(u->tokens, like->tokens, (size_t)n_like * sizeof *u->tokens);
    for (int32_t i = n_like; i < LEN; i++) {
        u->tokens[i] = any(N_TOKENS);
    }
    if (any(3) == 0) {
        memset(u->tokens, 0, N_PUBLIC * sizeof *u->tokens);
    }
    u->tenant = any(N_TENANTS);
    assert_int_equal(
        kv_seq_open(&cache, &u->kv, "m", 1, u->tenant == 0 ? "a" : "b", 1, u->tokens, u->n_known), QUIRE_OK);
    u->is_public = u->kv.path.n_public > 0;
    for (int32_t i = any(3); i > 0; i--) {
        (void)kv_snapshot_mark(&u->kv.snapshots, 1 + any(u->n_known));
    }
    u->state = USER_WAITS;
}

/* Its pages come from the tiers, from the index, and from swap space. */
static void admit(user *u) {
    kv_held held;
    fault_arm();
    bool waits = kv_tiering_waits(tiering, &u->kv, u->tokens, u->n_known - 1, clock_us(),
                                  any(8) == 0 ? 0 : LONG_WAIT_US);
    fault_disarm();
    if (waits) {
        return;
    }
    audit(false);
    int32_t n_found = kv_seq_peek(&cache, &u->kv, u->tokens, u->n_known - 1, &held),
            n_after = kv_seq_swap_peek(&cache, &u->kv, n_found);
    assert_in_range(n_found, longest_kept(u, u->n_known - 1, true), longest_kept(u, u->n_known - 1, false));
    fault_arm();
    quire_err e = kv_seq_admit(&cache, &u->kv, u->tokens, u->n_known - 1);
    fault_disarm();
    assert_int_equal(u->kv.n_computed, e == QUIRE_OK ? n_found : 0);
    audit(false);
    if (e != QUIRE_OK) {
        return;
    }
    counts.tokens_found += n_found;
    u->state = USER_RUNS;
    check_content(u);
    bool fits = kv_cache_available(&cache) >= cache.n_token_groups * LEN / SIZE + cache.n_state_pages;
    kv_swapped did = kv_seq_swap_in(&cache, &u->kv);
    assert_true(!fits || u->kv.n_computed == n_after);
    assert_int_equal(u->kv.swap_frames, 0);
    counts.swapped_in += did.n_pages > 0;
    check_content(u);
}

static void leave(user *u) {
    kv_keep keep = any(4) == 0 ? KV_DROP : KV_KEEP;
    kv_tiering_forget(tiering, &u->kv);
    fault_arm();
    kv_seq_release(&cache, &u->kv, u->tokens, keep);
    fault_disarm();
    assert_int_equal(kv_seq_pages(&u->kv), 0);
    kv_seq_close(&cache, &u->kv);
    kv_seq_deinit(&u->kv);
    assert_int_equal(kv_seq_init(&u->kv, cache.n_groups, 1), QUIRE_OK); /* with tables to grow again */
    u->state = USER_OUT;
}

static void preempt(user *u, bool swaps) {
    int32_t from;
    if (swaps && u->kv.n_computed > 0) {
        kv_seq_swap_drop(&cache, &u->kv);
        (void)kv_seq_swap_pages(&cache, &u->kv, &from);
        (void)kv_seq_swap_out(&cache, &u->kv, from);
    }
    kv_seq_release(&cache, &u->kv, u->tokens, KV_KEEP);
    u->n_known += u->n_known == u->kv.n_computed && u->n_known < LEN;
    u->state = USER_WAITS;
}

/* At the end of what is computed, or with an empty state. */
static void fork_to(user *to, const user *from) {
    int32_t n = any(4) == 0 ? 0 : from->kv.n_computed;
    if (to->state != USER_OUT || !kv_seq_can_truncate(&cache, &from->kv, n)) {
        return;
    }
    for (int32_t g = 0; g < cache.n_groups; g++) {
        assert_int_equal(kv_table_reserve(&to->kv.tables[g], from->kv.tables[g].n_pages), QUIRE_OK);
    }
    memcpy(to->tokens, from->tokens, sizeof to->tokens);
    for (int32_t i = n; i < LEN; i++) {
        to->tokens[i] = any(N_TOKENS);
    }
    to->tenant = from->tenant;
    to->is_public = from->is_public;
    to->n_known = n + 1 < LEN ? n + 1 : LEN;
    kv_seq_fork(&cache, &from->kv, n, &to->kv);
    assert_int_equal(to->kv.n_computed, n);
    to->state = USER_RUNS;
    check_content(to);
}

/* To where there is a snapshot. */
static void roll_back(user *u) {
    int32_t n = any(u->kv.n_computed + 1);
    bool goes = false;
    for (; !goes && n > 0; n -= !goes) {
        goes = kv_seq_sees_back(&cache, &u->kv, n) &&
               (n == u->kv.n_computed || kv_index_restore(cache.index, &u->kv.path, u->tokens, n,
                                                          u->kv.tables + cache.n_token_groups) == QUIRE_OK);
        counts.restored += goes && n < u->kv.n_computed;
    }
    goes = goes || any(4) == 0;
    if (goes) {
        kv_seq_truncate(&cache, &u->kv, n);
        for (int32_t i = n; i < LEN; i++) {
            u->tokens[i] = any(N_TOKENS);
        }
        u->n_known = n + 1 < LEN ? n + 1 : LEN;
        check_content(u);
    }
}

/* A waiting one asks a running one for a snapshot where they part. */
static void wait_for_prefix(const user *waits, user *runs) {
    int32_t n = 0, most = waits->n_known < runs->n_known ? waits->n_known : runs->n_known;
    while (n < most && waits->tokens[n] == runs->tokens[n]) {
        n++;
    }
    if (waits->state == USER_WAITS && runs->state == USER_RUNS && n > runs->kv.n_computed) {
        (void)kv_snapshot_mark(&runs->kv.snapshots, n);
    }
}

/* ---- a step ---- */

/* Reserves u's rows: known tokens, and drafts after the last. False: it computes none. */
static bool plan(user *u) {
    int32_t n_left = u->n_known - u->kv.n_computed, free_before;
    if (u->state != USER_RUNS || n_left <= 0 || any(4) == 0) {
        return false;
    }
    u->n_rows = any(2) == 0 ? n_left : 1 + any(n_left);
    u->n_drafts =
        u->n_rows == n_left && u->n_known + MAX_DRAFTS < LEN && any(2) == 0 ? any(MAX_DRAFTS + 1) : 0;
    for (int32_t i = 0; i < u->n_drafts; i++) {
        u->tokens[u->n_known + i] = any(N_TOKENS);
    }
    u->n_rows += u->n_drafts;
    int32_t needs = (int32_t)kv_seq_needs(&cache, &u->kv, u->n_rows), n_pages = kv_seq_pages(&u->kv),
            n_copies = copies.n;
    kv_cache_make_free(&cache, any(8) == 0 ? 0 : needs);
    needs = (int32_t)kv_seq_needs(&cache, &u->kv, u->n_rows); /* fewer if its own snapshot went */
    free_before = kv_pool_counts(cache.pool).n_free;
    fault_arm();
    quire_err e = kv_seq_reserve(&cache, &u->kv, u->n_rows, &copies);
    fault_disarm();
    if (e == QUIRE_NO_ROOM && kv_seq_take_over(&cache, &u->kv)) {
        free_before = kv_pool_counts(cache.pool).n_free;
        needs = (int32_t)kv_seq_needs(&cache, &u->kv, u->n_rows);
        e = kv_seq_reserve(&cache, &u->kv, u->n_rows, &copies);
    }
    counts.no_room += e == QUIRE_NO_ROOM;
    assert_int_equal(kv_pool_counts(cache.pool).n_free, free_before - (e == QUIRE_OK ? needs : 0));
    assert_true(e == QUIRE_OK || (kv_seq_pages(&u->kv) == n_pages && copies.n == n_copies));
    return e == QUIRE_OK;
}

/* Copies of the states: after each row that a draft follows, or where snapshots are
 * due. */
static void copy_states(user *u) {
    int32_t end = u->kv.n_computed + u->n_rows, known = end - u->n_drafts;
    fault_arm();
    if (u->n_drafts == 0) {
        kv_seq_copy_due(&cache, &u->kv, u->n_rows);
    } else {
        int32_t n_left_out = u->n_drafts - kv_seq_copy_states(&cache, &u->kv, known, end);
        u->n_drafts -= n_left_out;
        u->n_rows -= n_left_out;
        if (n_left_out > 0) {
            kv_seq_give_back(&cache, &u->kv, end - n_left_out);
        }
    }
    fault_disarm();
    counts.copies += u->kv.n_copies;
}

/* Computes the rows: a state becomes that of the next token, and is copied where
 * asked. */
static void forward(const user *u) {
    int32_t copy = 0, n0 = u->kv.n_computed;
    if (any(2) == 0) {
        check_content(u);
    }
    for (int32_t row = 0; row < u->n_rows; row++) {
        uint64_t number = prefix_number(u, n0 + row + 1);
        for (int32_t g = 0; g < cache.n_token_groups; g++) {
            device_store(&gpu, u->kv.tables[g].pages[(n0 + row) / SIZE].v, (n0 + row) % SIZE,
                         token_word(number, g));
        }
        const batch_snapshot *c = &cache.state_copies.list[u->kv.copies0 + copy];
        if (copy < u->kv.n_copies && c->row == row) {
            assert_true(row < u->n_rows - 1);
            store_state((const page_id *)(const void *)c->pages, number, 0, cache.n_state_pages);
            copy++;
        }
    }
    assert_int_equal(copy, u->kv.n_copies);
    uint64_t number = prefix_number(u, n0 + u->n_rows);
    for (int32_t i = 0; i < cache.n_state_pages; i++) {
        device_store(&gpu, state_page(u, i).v, 0, state_word(number, i));
    }
}

/* The last point among the computed tokens where a snapshot is due and a state is there;
 * 0: none. */
static int32_t last_due(const user *u) {
    kv_snapshot_plan p = u->kv.snapshots;
    int32_t last = 0;
    for (int32_t n = kv_snapshot_next(&p); n <= u->kv.n_computed; n = kv_snapshot_next(&p)) {
        bool is_there = u->kv.tables[cache.n_token_groups].n_tokens == n;
        for (int32_t k = 0; k < u->kv.n_copies; k++) {
            is_there =
                is_there || cache.state_copies.list[u->kv.copies0 + k].row == n - u->kv.n_copied_from - 1;
        }
        last = is_there ? n : last;
        p.last = n;
    }
    return last;
}

static void publish(user *u) {
    int32_t n = last_due(u);
    kv_seq_publish(&cache, &u->kv, u->tokens);
    kv_tiering_published(tiering, &u->kv);
    bool is_kept = u->kv.path.n_pages == u->kv.n_computed / SIZE && cache.n_token_groups > 0 &&
                   (!u->is_public || n >= N_PUBLIC || n % SIZE == 0);
    if (n > 0 && is_kept) {
        device_finish(&gpu);
        assert_true(is_state_kept(prefix_number(u, n)));
    }
    kv_seq_forget(&cache, &u->kv);
}

/* What rejected drafts left in pages that stay. */
static void scrub(const user *u) {
    for (int32_t g = 0; g < cache.n_token_groups; g++) {
        for (int32_t p = u->kv.n_computed; p < u->kv.tables[g].n_pages * SIZE; p++) {
            device_store(&gpu, u->kv.tables[g].pages[p / SIZE].v, p % SIZE, 0);
        }
    }
}

/* Takes the rows: known ones, then drafts up to the first that is rejected, and a token
 * after them. */
static void collect(user *u) {
    int32_t n_known_rows = u->n_rows - u->n_drafts, n_accepted = u->n_drafts > 0 ? any(u->n_drafts + 1) : 0;
    kv_seq_advance(&u->kv, n_known_rows);
    publish(u);
    for (int32_t i = 0; i < n_accepted; i++) {
        u->n_known++;
        kv_seq_advance(&u->kv, 1);
        publish(u);
    }
    counts.accepted += n_accepted;
    counts.rejected += u->n_drafts - n_accepted;
    kv_seq_trim(&cache, &u->kv);
    kv_seq_settle(&cache, &u->kv);
    scrub(u);
    if (u->kv.n_computed == u->n_known && u->n_known < LEN) {
        u->tokens[u->n_known++] = any(N_TOKENS);
    }
}

static void step(void) {
    bool runs[N_SEQS];
    copies.n = 0;
    for (int32_t i = 0; i < N_SEQS; i++) {
        runs[i] = plan(&users[i]);
    }
    for (int32_t i = 0; i < N_SEQS; i++) {
        if (runs[i]) {
            copy_states(&users[i]);
        }
    }
    audit(true);
    device_copy(&gpu, &copies);
    for (int32_t i = 0; i < N_SEQS; i++) {
        if (runs[i]) {
            forward(&users[i]);
        }
    }
    for (int32_t i = 0; i < N_SEQS; i++) {
        if (runs[i]) {
            collect(&users[i]);
            audit(true);
        }
    }
}

/* ---- random use ---- */

static void operate_on(user *u) {
    if (u->state == USER_OUT) {
        enter(u);
    } else if (u->state == USER_WAITS) {
        admit(u);
    } else {
        switch (any(8)) {
        case 0:
        case 1:
            leave(u);
            break;
        case 2:
            preempt(u, any(2) == 0);
            break;
        case 3:
            roll_back(u);
            break;
        case 4:
            (void)kv_seq_take_over(&cache, &u->kv);
            break;
        default:
            fork_to(&users[any(N_SEQS)], u);
        }
    }
}

static void operate(void) {
    int32_t n_dropped, n_cached;
    switch (any(32)) {
    case 0:
        kv_cache_make_free(&cache, 1 + any(cache.n_pages));
        break;
    case 1:
        n_cached = kv_pool_counts(cache.pool).n_cached;
        if (any(4) == 0) {
            assert_true(kv_cache_drop(&cache, &n_dropped));
            assert_int_equal(n_dropped, n_cached);
        } else if (any(4) == 0) {
            const char *const tenant = any(2) == 0 ? "a" : "b";
            kv_cache_drop_tenant(&cache, tenant, 1, &n_dropped);
            assert_int_equal(n_dropped, n_cached - kv_pool_counts(cache.pool).n_cached);
            kv_cache_drop_tenant(&cache, tenant, 1, &n_dropped);
            assert_int_equal(n_dropped, 0);
        }
        break;
    case 2:
        if (budget != NULL) {
            rival_turn();
        }
        break;
    case 3:
        wait_for_prefix(&users[any(N_SEQS)], &users[any(N_SEQS)]);
        break;
    default:
        if (any(2) == 0) {
            step();
        } else {
            operate_on(&users[any(N_SEQS)]);
        }
    }
    fault_arm();
    kv_tiering_poll(tiering, clock_us());
    fault_disarm();
    for (int32_t i = 0; i < N_SEQS; i++) {
        if (any(16) == 0) {
            check_content(&users[i]);
        }
    }
}

static void play(const state_options *o) {
    int32_t n = getenv("QUIRE_TEST_LONG") != NULL ? 100000 : 10000;
    open_world(o);
    for (int32_t k = 0; k < n; k++) {
        operate();
        audit(false);
    }
    close_world();
}

TEST(states_are_those_of_their_prefixes) {
    play(&(state_options){.n_pages = 60, .n_groups = 2, .state_pages = {0, 3}});
    play(&(state_options){
        .n_pages = 44, .n_groups = 2, .state_pages = {0, 2}, .max_snapshots = 3, .interval = 5});
}

TEST(states_beside_windows_are_those_of_their_prefixes) {
    play(&(state_options){.n_pages = 64, .n_groups = 4, .windows = {0, 6}, .state_pages = {0, 0, 1, 2}});
    play(&(state_options){.n_pages = 40,
                          .n_groups = 2,
                          .windows = {5},
                          .state_pages = {0, 2},
                          .policy = KV_EVICT_GDSF,
                          .n_frames = 24});
}

TEST(states_are_those_of_their_prefixes_where_another_pool_takes_memory) {
    play(&(state_options){
        .n_pages = 64, .n_groups = 2, .state_pages = {0, 3}, .n_frames = 30, .has_rival = true});
    play(&(state_options){.n_pages = 60,
                          .n_groups = 3,
                          .windows = {0, 6},
                          .state_pages = {0, 0, 2},
                          .host_bytes = 1 << 14,
                          .has_rival = true});
}

TEST(states_alone_are_those_of_their_prefixes) {
    play(&(state_options){.n_pages = 24, .n_groups = 1, .state_pages = {2}, .n_frames = 6});
}

TEST(states_come_back_from_swap_space_as_they_were) {
    play(&(state_options){.n_pages = 56,
                          .n_groups = 3,
                          .state_pages = {0, 1, 2},
                          .interval = 8,
                          .policy = KV_EVICT_LFU,
                          .n_frames = 40});
}

TEST(states_come_back_from_tiers_as_they_were) {
    play(&(state_options){.n_pages = 52, .n_groups = 2, .state_pages = {0, 3}, .host_bytes = 1 << 15});
    play(&(state_options){.n_pages = 60,
                          .n_groups = 3,
                          .windows = {0, 6},
                          .state_pages = {0, 0, 2},
                          .host_bytes = 1 << 13,
                          .n_frames = 24});
}

/* Over all of the tests before. */
TEST(everything_happened) {
    assert_true(counts.tokens_found > 0 && counts.copies > 0 && counts.accepted > 0 && counts.rejected > 0);
    assert_true(counts.restored > 0 && counts.no_room > 0 && counts.swapped_in > 0 && counts.promoted > 0);
#ifdef QUIRE_DEBUG
    assert_true(counts.faults > 0);
#endif
}

int main(void) {
    const char *given = getenv("QUIRE_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    return tests_run(NULL, NULL);
}
