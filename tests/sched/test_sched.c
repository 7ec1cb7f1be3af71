#include <stdio.h>

#include "base/rng.h"
#include "sched/sched.h"
#include "test.h"

#define MAX_SEQS 16

static const sched_limits limits = {
    .max_rows = 8, .max_out = 4, .max_seqs = 4, .max_chunk = 8, .page_tokens = 4, .max_preemptions = 8};

static sched_seq seq(int32_t n_known, int32_t n_computed) {
    return (sched_seq){.n_known = n_known,
                       .n_computed = n_computed,
                       .n_pages = (n_computed + 3) / 4,
                       .n_groups = 1,
                       .n_most = n_known + 8};
}

static void plan(const sched_limits *l, const sched_seq *running, int32_t n_running, const sched_seq *waiting,
                 int32_t n_waiting, int32_t n_free, sched_plan *p) {
    static sched_item items[MAX_SEQS];
    static uint8_t decisions[MAX_SEQS];
    p->items = items;
    p->decisions = decisions;
    sched_make_plan(l, running, n_running, waiting, n_waiting, n_free, p);
}

TEST(decodes_go_before_prefills) {
    sched_seq running[] = {seq(20, 4), seq(9, 8)};
    sched_plan p;
    plan(&limits, running, 2, NULL, 0, 100, &p);
    assert_int_equal(p.n_items, 2);
    assert_int_equal(p.items[0].seq, 1);
    assert_int_equal(p.items[0].n_rows, 1);
    assert_int_equal(p.items[1].seq, 0);
    assert_int_equal(p.items[1].n_rows, 7);
    assert_int_equal(p.n_rows, 8);
}

TEST(a_prompt_is_cut_at_the_chunk_limit) {
    sched_limits l = limits;
    l.max_chunk = 3;
    sched_seq waiting[] = {seq(20, 0), seq(2, 0)};
    sched_plan p;
    plan(&l, NULL, 0, waiting, 2, 100, &p);
    assert_int_equal(p.n_admitted, 2);
    assert_int_equal(p.items[0].n_rows, 3);
    assert_int_equal(p.items[1].n_rows, 2);
    assert_int_equal(p.n_out, 1); /* only the second reaches its last token */
}

TEST(waiting_sequences_come_in_by_arrival_while_slots_last) {
    sched_seq running[] = {seq(5, 4), seq(5, 4), seq(5, 4)};
    sched_seq waiting[] = {seq(1, 0), seq(1, 0)};
    sched_plan p;
    plan(&limits, running, 3, waiting, 2, 100, &p);
    assert_int_equal(p.n_admitted, 1);
    assert_int_equal(p.items[3].seq, 3);
}

TEST(a_sequence_is_not_admitted_without_pages_for_its_whole_prompt) {
    sched_seq waiting[] = {seq(20, 0), seq(1, 0)};
    sched_plan p;
    plan(&limits, NULL, 0, waiting, 2, 5, &p); /* 20 tokens and the next take 6 pages */
    assert_int_equal(p.n_admitted, 0);         /* and nobody overtakes it */
    plan(&limits, NULL, 0, waiting, 1, 6, &p);
    assert_int_equal(p.n_admitted, 1);
}

TEST(the_newest_is_preempted_when_pages_run_out) {
    sched_seq running[] = {seq(5, 4), seq(5, 4), seq(5, 4)};
    sched_plan p;
    plan(&limits, running, 3, NULL, 0, 1, &p); /* each needs a second page, one is free */
    assert_int_equal(p.n_preempted, 1);
    assert_int_equal(p.n_items, 2);
    assert_int_equal(p.items[0].seq, 0);
    assert_int_equal(p.items[1].seq, 1);
    assert_int_equal(p.n_pages, 2); /* the free one and the victim's */
}

TEST(nobody_is_admitted_in_a_step_that_preempts) {
    sched_seq running[] = {seq(5, 4), seq(5, 4)}, waiting[] = {seq(1, 0)};
    sched_plan p;
    plan(&limits, running, 2, waiting, 1, 0, &p);
    assert_int_equal(p.n_preempted, 1);
    assert_int_equal(p.n_admitted, 0);
}

TEST(rows_with_wanted_logits_stay_within_their_budget) {
    sched_seq waiting[] = {seq(20, 0)};
    waiting[0].wants_logits = true;
    sched_plan p;
    plan(&limits, NULL, 0, waiting, 1, 100, &p);
    assert_int_equal(p.items[0].n_rows, 4);
    assert_int_equal(p.n_out, 4);
}

static sched_seq blocked_on(sched_seq s, int32_t blocked_on) {
    s.prefix_wait = true;
    s.blocked_on = blocked_on;
    return s;
}

TEST(the_held_are_passed_over_and_hold_up_nobody) {
    sched_seq running[] = {seq(20, 4)},
              waiting[] = {blocked_on(seq(20, 4), 0), seq(2, 0), blocked_on(seq(20, 4), 0)};
    sched_limits l = limits;
    l.max_chunk = 4;
    sched_plan p;
    plan(&l, running, 1, waiting, 3, 100, &p);
    assert_int_equal(p.n_admitted, 1);
    assert_int_equal(p.n_items, 2);
    assert_int_equal(p.items[1].seq, 2);
}

TEST(the_held_wait_for_one_that_is_admitted_in_the_same_plan_but_not_for_one_that_is_not) {
    sched_seq waiting[] = {seq(4, 0), blocked_on(seq(20, 4), 0), seq(2, 0)};
    sched_plan p;
    plan(&limits, NULL, 0, waiting, 3, 100, &p);
    assert_int_equal(p.n_admitted, 2);
    assert_int_equal(p.items[0].seq, 0);
    assert_int_equal(p.items[1].seq, 2);
    /* the second is held: the third waits for nobody who runs */
    sched_seq chain[] = {seq(2, 0), blocked_on(seq(4, 0), 0), blocked_on(seq(5, 0), 1)};
    plan(&limits, NULL, 0, chain, 3, 100, &p);
    assert_int_equal(p.n_admitted, 2);
    assert_int_equal(p.items[1].seq, 2);
}

/* ---- whom to preempt ---- */

static sched_seq running_seq(int32_t n_known, int32_t n_computed, int32_t n_preempted) {
    sched_seq s = seq(n_known, n_computed);
    s.n_preempted = n_preempted;
    return s;
}

TEST(of_the_newest_the_one_that_computed_least_goes) {
    sched_limits l = limits;
    l.max_seqs = 8;
    /* the second has least, but is not one of the newest four */
    sched_seq running[] = {seq(5, 4), seq(3, 2), seq(21, 20), seq(9, 8), seq(30, 5), seq(41, 40)};
    sched_plan p;
    plan(&l, running, 6, NULL, 0, 0, &p);
    assert_int_equal(p.decisions[0], SCHED_PLANNED);
    assert_int_equal(p.decisions[1], SCHED_PLANNED);   /* its page has room */
    assert_int_equal(p.decisions[4], SCHED_PREEMPTED); /* for the first: 5 tokens, and 2 pages */
    assert_int_equal(p.decisions[2], SCHED_PLANNED);   /* the second of these pages */
    assert_int_equal(p.decisions[3], SCHED_PLANNED);
    assert_int_equal(p.decisions[5], SCHED_PREEMPTED); /* for the fourth */
    assert_int_equal(p.n_preempted, 2);
}

TEST(who_was_preempted_often_is_spared) {
    sched_seq running[] = {seq(5, 4), running_seq(9, 8, 0), running_seq(6, 5, 8)};
    running[2].n_most = 8; /* its pages suffice to its end */
    sched_plan p;
    plan(&limits, running, 3, NULL, 0, 0, &p);
    assert_int_equal(p.n_preempted, 1);
    assert_int_equal(p.decisions[1], SCHED_PREEMPTED);
    assert_int_equal(p.decisions[2], SCHED_PLANNED);
}

TEST(what_was_promised_is_not_given_to_others) {
    sched_seq running[] = {running_seq(5, 4, 0), running_seq(9, 8, 8)}, waiting[] = {seq(3, 0)};
    running[1].n_most = 24; /* 4 pages more */
    sched_plan p;
    /* all that is free: the first finds nothing, and nobody to take it from */
    plan(&limits, running, 2, waiting, 1, 4, &p);
    assert_int_equal(p.decisions[0], SCHED_IDLE);
    assert_int_equal(p.decisions[1], SCHED_PLANNED);
    assert_int_equal(p.n_preempted + p.n_admitted, 0);
    plan(&limits, running, 2, waiting, 1, 6, &p);
    assert_int_equal(p.decisions[0], SCHED_PLANNED);
    assert_int_equal(p.n_admitted, 1);
}

TEST(an_aged_one_waits_for_all_pages_that_it_may_need) {
    sched_seq running[] = {seq(3, 2)}, waiting[] = {running_seq(4, 0, 8), seq(1, 0)};
    waiting[0].n_most = 40;
    sched_plan p;
    plan(&limits, running, 1, waiting, 2, 9, &p);
    assert_int_equal(p.n_admitted, 0);
    plan(&limits, running, 1, waiting, 2, 10, &p);
    assert_int_equal(p.n_admitted, 1); /* and there is nothing left for the other */
    plan(&limits, NULL, 0, waiting, 2, 9, &p);
    assert_int_equal(p.n_admitted, 1); /* alone it needs no promise */
}

/* ---- the time of a step ---- */

TEST(prefills_leave_the_decodes_their_pace) {
    sched_limits l = {.max_rows = 512,
                      .max_out = 8,
                      .max_seqs = 8,
                      .max_chunk = 512,
                      .page_tokens = 16,
                      .max_preemptions = 8};
    l.cost = (sched_cost){.step_us = 1000, .row_us = 100};
    sched_seq running[] = {seq(9, 8), seq(5000, 16)};
    sched_plan p;
    plan(&l, running, 2, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 512); /* no target: all the rows there are */
    l.target_us = 5100;
    plan(&l, running, 2, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 41);
    l.target_us = 1; /* twice the decodes' 1,100 us is what it may always be */
    plan(&l, running, 2, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 12);
    plan(&l, running + 1, 1, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 512); /* nothing decodes, nobody is kept waiting */
    l.cost = (sched_cost){.step_us = 0, .row_us = 1, .pair_us = 100};
    plan(&l, running, 2, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 2); /* a prefill whose row alone takes longer still goes on */
}

static sched_seq with_drafts(sched_seq s, int32_t n) {
    s.n_drafts = n;
    return s;
}

TEST(drafts_ride_behind_decodes_and_leave_prefills_half_of_the_rows) {
    sched_limits l = limits;
    l.max_rows = 12;
    l.max_out = 12;
    sched_seq running[] = {with_drafts(seq(7, 6), 3), with_drafts(seq(6, 5), 4), seq(20, 4)};
    sched_plan p;
    plan(&l, running, 2, NULL, 0, 100, &p); /* nobody else wants rows */
    assert_int_equal(p.items[0].n_rows, 4);
    assert_int_equal(p.items[0].n_drafts, 3);
    assert_int_equal(p.items[1].n_rows, 5);
    assert_int_equal(p.items[1].n_drafts, 4);
    assert_int_equal(p.n_out, 9);
    plan(&l, running, 3, NULL, 0, 100, &p); /* 10 rows left by decodes: 5 for drafts, 5 for the prompt */
    assert_int_equal(p.items[0].n_drafts, 3);
    assert_int_equal(p.items[1].n_drafts, 2);
    assert_int_equal(p.items[2].n_rows, 5);
    assert_int_equal(p.n_rows, 12);
    l.max_out = 4;
    plan(&l, running, 2, NULL, 0, 100, &p); /* two decodes take two of four rows of logits */
    assert_int_equal(p.items[0].n_drafts, 2);
    assert_int_equal(p.items[1].n_drafts, 0);
    assert_int_equal(p.n_out, 4);
    running[0].is_jump_forward = true; /* want none */
    plan(&l, running, 2, NULL, 0, 100, &p);
    assert_int_equal(p.items[0].n_drafts, 3);
    assert_int_equal(p.items[1].n_drafts, 2);
    assert_int_equal(p.n_out, 4);
}

TEST(nobody_gives_pages_up_for_drafts) {
    sched_limits l = limits;
    l.max_rows = l.max_out = 32;
    sched_seq running[] = {with_drafts(seq(7, 6), 3), seq(8, 6)}, waiting[] = {seq(3, 0)};
    sched_plan p;
    plan(&l, running, 2, NULL, 0, 0, &p);
    assert_int_equal(p.n_preempted, 0);
    assert_int_equal(p.items[0].n_drafts, 1); /* the page's last place */
    assert_int_equal(p.items[0].n_rows, 2);
    assert_int_equal(p.n_pages, 0);
    plan(&l, running, 2, NULL, 0, 1, &p);
    assert_int_equal(p.items[0].n_drafts, 3);
    assert_int_equal(p.n_pages, 1);
    plan(&l, running, 2, waiting, 1, 1, &p); /* the page goes to the one that waits */
    assert_int_equal(p.n_admitted, 1);
    assert_int_equal(p.items[0].n_drafts, 1);
}

/* A workload played by the plan alone, to the end, with every promise checked on the way.
 * Prompts of one family are the same up to `common`, in whole pages; the pages of a
 * family that somebody computed are found by all until they are evicted, which happens at
 * random. */
typedef struct player {
    sched_limits l;
    sched_seq running[MAX_SEQS], waiting[MAX_SEQS];
    int32_t ends[MAX_SEQS * 2], order[MAX_SEQS * 2];
    int32_t r_id[MAX_SEQS], w_id[MAX_SEQS], n_running, n_waiting, n_pages, n_steps;
    int32_t family[MAX_SEQS * 2], common[MAX_SEQS * 2], cached[4]; /* tokens of each family that are cached */
    bool disturbed; /* something was evicted or preempted: pages may have to be computed again */
} player;

static int32_t prefix_wait(const player *g) {
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_running; i++) {
        n += g->running[i].n_pages;
    }
    return n;
}

TEST(whole_prefills_wait_until_a_step_holds_them) {
    sched_limits l = limits;
    l.whole_prefills = true;
    sched_seq running[] = {seq(5, 4), seq(5, 4), seq(9, 8)}, waiting[] = {seq(7, 0), seq(1, 0)};
    sched_plan p;
    /* 8 rows, 2 of them taken: 6 are left for 7, and the one after keeps its place */
    plan(&l, running, 2, waiting, 2, 100, &p);
    assert_int_equal(p.n_admitted, 0);
    assert_int_equal(p.n_rows, 2);
    plan(&l, running, 1, waiting, 2, 100, &p);
    assert_int_equal(p.n_admitted, 1);
    assert_int_equal(p.items[1].n_rows, 7);
    l.whole_prefills = false;
    plan(&l, running, 2, waiting, 2, 100, &p);
    assert_int_equal(p.items[2].n_rows, 6);
}

/* Prefills beside decodes stay within the target or the decodes' own time again, but for
 * a lone row. Drafts come on top with what they attend to. */
static void check_time(const player *g, const sched_plan *p) {
    double n_decodes = 0, decode_pairs = 0, n_drafts = 0, draft_pairs = 0;
    for (int32_t i = 0; i < p->n_items && p->items[i].seq < g->n_running; i++) {
        const sched_seq *s = &g->running[p->items[i].seq];
        n_decodes += s->n_known - s->n_computed == 1;
        decode_pairs += s->n_known - s->n_computed == 1 ? s->n_known : 0;
        n_drafts += p->items[i].n_drafts;
        for (int32_t k = 1; k <= p->items[i].n_drafts; k++) {
            draft_pairs += s->n_known + k;
        }
    }
    double decodes_us = sched_predict_us(&g->l.cost, n_decodes, decode_pairs),
           us = sched_predict_us(&g->l.cost, p->n_rows - n_drafts, p->n_pairs - draft_pairs);
    double most = g->l.target_us > 2 * decodes_us ? g->l.target_us : 2 * decodes_us;
    int32_t n_ready = 0; /* that were admitted with one token to compute, which counts as a decode */
    for (int32_t i = p->n_items - p->n_admitted; i < p->n_items; i++) {
        n_ready += p->items[i].n_rows == 1;
    }
    if (g->l.target_us > 0 && n_decodes > 0 && p->n_rows - n_drafts > n_decodes + 1 && n_ready == 0) {
        assert_true(us <= most + 1e-6);
    }
}

static void check_plan(const player *g, const sched_plan *p) {
    bool seen[2 * MAX_SEQS] = {false};
    int32_t rows = 0, pages = 0, back = 0, n_back = 0, out = 0;
    double pairs = 0;
    for (int32_t i = 0; i < p->n_items; i++) {
        int32_t k = p->items[i].seq;
        const sched_seq *s = k < g->n_running ? &g->running[k] : &g->waiting[k - g->n_running];
        assert_false(seen[k]);
        seen[k] = true;
        assert_true(k >= g->n_running || p->decisions[k] == SCHED_PLANNED);
        int32_t own = p->items[i].n_rows - p->items[i].n_drafts;
        assert_in_range(own, 1, s->n_known - s->n_computed);
        assert_true(own <= g->l.max_chunk);
        assert_in_range(p->items[i].n_drafts, 0, k < g->n_running ? s->n_drafts : 0);
        out += (s->wants_logits ? own : own == s->n_known - s->n_computed) + p->items[i].n_drafts;
        rows += p->items[i].n_rows;
        pages += (s->n_computed + p->items[i].n_rows + g->l.page_tokens - 1) / g->l.page_tokens - s->n_pages;
        for (int32_t t = s->n_computed; t < s->n_computed + p->items[i].n_rows; t++) {
            pairs += t + 1;
        }
    }
    for (int32_t i = 0; i < g->n_running; i++) {
        bool goes = p->decisions[i] == SCHED_PREEMPTED;
        back += goes ? g->running[i].n_pages : 0;
        n_back += goes;
        assert_true(!goes || (i > 0 && g->running[i].n_preempted < g->l.max_preemptions));
    }
    assert_int_equal(n_back, p->n_preempted);
    check_time(g, p);
    assert_true(pairs == p->n_pairs);
    assert_int_equal(rows, p->n_rows);
    assert_int_equal(out, p->n_out);
    assert_true(rows <= g->l.max_rows && p->n_out <= g->l.max_out && p->n_items <= g->l.max_seqs);
    assert_true(pages <= g->n_pages - prefix_wait(g) + back);
    assert_true(p->n_items > 0); /* progress in every step */
    for (int32_t i = 0; i < p->n_items; i++) {
        int32_t k = p->items[i].seq - g->n_running;
        assert_true(k < 0 || i >= p->n_items - p->n_admitted); /* the admitted are the last items */
        /* admitted though held: whom it waits for neither runs nor is admitted */
        if (k >= 0 && g->waiting[k].prefix_wait) {
            assert_true(g->waiting[k].blocked_on >= g->n_running);
            for (int32_t j = 0; j < p->n_items; j++) {
                assert_int_not_equal(p->items[j].seq, g->waiting[k].blocked_on);
            }
        }
    }
}

/* What a and b, of one family or not, begin with alike. */
static int32_t alike(const player *g, int32_t a, int32_t b) {
    int32_t n = g->common[a] < g->common[b] ? g->common[a] : g->common[b];
    return g->family[a] == g->family[b] ? n : 0;
}

static int32_t whole_pages(const player *g, int32_t n) {
    return n - n % g->l.page_tokens;
}

/* Whether id, which has or finds n_computed tokens, would gain a page by waiting for
 * `other`. */
static bool gains(const player *g, int32_t id, const sched_seq *s, int32_t other, const sched_seq *o) {
    int32_t n = alike(g, id, other);
    n = n < s->n_known - 1 ? n : s->n_known - 1;
    return whole_pages(g, n) > s->n_computed && whole_pages(g, o->n_computed) <= s->n_computed;
}

/* No two items compute the same page. */
static void check_nothing_twice(const player *g, const sched_plan *p) {
    for (int32_t i = 0; i < p->n_items && !g->disturbed; i++) {
        for (int32_t j = 0; j < p->n_items; j++) {
            int32_t a = p->items[i].seq, b = p->items[j].seq, w = a - g->n_running, v = b - g->n_running;
            int32_t id = w < 0 ? g->r_id[a] : g->w_id[w], other = v < 0 ? g->r_id[b] : g->w_id[v];
            const sched_seq *s = w < 0 ? &g->running[a] : &g->waiting[w],
                            *o = v < 0 ? &g->running[b] : &g->waiting[v];
            assert_true(other >= id || !gains(g, id, s, other, o));
        }
    }
}

/* Looks the waiting ones up: what they find, and whom they wait for; as the engine does,
 * but by brute force. */
static void look_up(player *g) {
    for (int32_t i = 0; i < g->n_waiting; i++) {
        int32_t id = g->w_id[i];
        sched_seq *s = &g->waiting[i];
        int32_t most = g->common[id] < s->n_known - 1 ? g->common[id] : s->n_known - 1;
        s->n_computed = whole_pages(g, g->cached[g->family[id]] < most ? g->cached[g->family[id]] : most);
        s->prefix_wait = false;
        for (int32_t k = 0; k < g->n_running + i && !s->prefix_wait; k++) {
            int32_t other = k < g->n_running ? g->r_id[k] : g->w_id[k - g->n_running];
            const sched_seq *o = k < g->n_running ? &g->running[k] : &g->waiting[k - g->n_running];
            s->prefix_wait = other < id && gains(g, id, s, other, o) && (k < g->n_running || !o->prefix_wait);
            s->blocked_on = k;
        }
    }
}

/* Gives the running ones that decode up to `most` drafts. */
static void draft(player *g, int32_t most) {
    for (int32_t i = 0; i < g->n_running; i++) {
        sched_seq *s = &g->running[i];
        int32_t room = g->ends[g->r_id[i]] - s->n_known - 1, n = most > 0 ? (g->n_steps + i) % most : 0;
        s->n_drafts = s->n_known - s->n_computed > 1 ? 0 : n < room ? n : room;
    }
}

static void insert_waiting(player *g, sched_seq s, int32_t id) {
    int32_t at = g->n_waiting++;
    for (; at > 0 && g->w_id[at - 1] > id; at--) {
        g->waiting[at] = g->waiting[at - 1];
        g->w_id[at] = g->w_id[at - 1];
    }
    g->waiting[at] = s;
    g->w_id[at] = id;
}

static void insert_running(player *g, sched_seq s, int32_t id) {
    int32_t at = g->n_running++;
    for (; at > 0 && g->r_id[at - 1] > id; at--) {
        g->running[at] = g->running[at - 1];
        g->r_id[at] = g->r_id[at - 1];
    }
    g->running[at] = s;
    g->r_id[at] = id;
}

static void apply_plan(player *g, const sched_plan *p) {
    int32_t n_before = g->n_running;
    for (int32_t i = 0; i < p->n_items; i++) {
        int32_t k = p->items[i].seq;
        sched_seq *s = k < g->n_running ? &g->running[k] : &g->waiting[k - g->n_running];
        int32_t accepted = p->items[i].n_drafts > 0 ? (g->n_steps + k) % (p->items[i].n_drafts + 1) : 0;
        s->n_known += accepted;
        s->n_computed += p->items[i].n_rows - p->items[i].n_drafts + accepted;
        int32_t id = k < g->n_running ? g->r_id[k] : g->w_id[k - g->n_running];
        int32_t found = whole_pages(g, s->n_computed < g->common[id] ? s->n_computed : g->common[id]);
        g->cached[g->family[id]] = found > g->cached[g->family[id]] ? found : g->cached[g->family[id]];
        s->n_pages = (s->n_computed + g->l.page_tokens - 1) / g->l.page_tokens;
        s->n_known += s->n_computed == s->n_known;
    }
    int32_t stay = 0;
    for (int32_t i = 0; i < n_before; i++) {
        sched_seq s = g->running[i];
        if (p->decisions[i] == SCHED_PREEMPTED) {
            s.n_computed = s.n_pages = 0;
            s.n_preempted++;
            insert_waiting(g, s, g->r_id[i]);
        } else {
            g->running[stay] = s;
            g->r_id[stay++] = g->r_id[i];
        }
    }
    g->n_running = stay;
    for (int32_t i = p->n_items - p->n_admitted; i < p->n_items; i++) {
        int32_t k = p->items[i].seq - n_before;
        insert_running(g, g->waiting[k], g->w_id[k]);
        g->w_id[k] = -1;
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < g->n_waiting; i++) {
        if (g->w_id[i] >= 0) {
            g->waiting[kept] = g->waiting[i];
            g->w_id[kept++] = g->w_id[i];
        }
    }
    g->n_waiting = kept;
    kept = 0;
    for (int32_t i = 0; i < g->n_running; i++) {
        if (g->running[i].n_known < g->ends[g->r_id[i]]) {
            g->running[kept] = g->running[i];
            g->r_id[kept++] = g->r_id[i];
        }
    }
    g->n_running = kept;
}

static int32_t n_held_in(const player *g) {
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_waiting; i++) {
        n += g->waiting[i].prefix_wait;
    }
    return n;
}

TEST(random_workloads_end_whatever_the_pool) {
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    int64_t n_held = 0;
    for (int round = 0; round < 4000; round++) {
        player g = {.l = limits};
        g.l.max_rows = 1 + (int32_t)(rng_next(&seed) % 24);
        g.l.max_seqs = 1 + (int32_t)(rng_next(&seed) % 8);
        g.l.max_out = g.l.max_seqs;
        g.l.max_chunk = 1 + (int32_t)(rng_next(&seed) % (uint64_t)g.l.max_rows);
        g.l.page_tokens = 1 << (rng_next(&seed) % 4);
        g.l.max_preemptions = (int32_t)(rng_next(&seed) % 4) * 4;
        g.l.target_us = (double)(rng_next(&seed) % 3) * 20;
        g.l.cost = (sched_cost){(double)(rng_next(&seed) % 10), (double)(rng_next(&seed) % 4),
                                (double)(rng_next(&seed) % 2)};
        int32_t longest = 0;
        for (int32_t i = 0; i < 12; i++) {
            int32_t n_prompt = 1 + (int32_t)(rng_next(&seed) % 40);
            g.ends[i] = n_prompt + 1 + (int32_t)(rng_next(&seed) % 40);
            longest = g.ends[i] > longest ? g.ends[i] : longest;
            g.family[i] = (int32_t)(rng_next(&seed) % 4);
            g.common[i] = (int32_t)(rng_next(&seed) % (uint64_t)(n_prompt + 1));
            sched_seq s = {.n_known = n_prompt,
                           .n_groups = 1,
                           .n_most = g.ends[i],
                           .wants_logits = rng_next(&seed) % 5 == 0};
            insert_waiting(&g, s, i);
        }
        g.n_pages = (longest + g.l.page_tokens - 1) / g.l.page_tokens + (int32_t)(rng_next(&seed) % 8);
        while (g.n_running + g.n_waiting > 0) {
            sched_plan p;
            if (round % 2 && rng_next(&seed) % 8 == 0) {
                g.cached[rng_next(&seed) % 4] = 0; /* evicted */
                g.disturbed = true;
            }
            look_up(&g);
            draft(&g, round % 3 == 0 ? 5 : 0);
            plan(&g.l, g.running, g.n_running, g.waiting, g.n_waiting, g.n_pages - prefix_wait(&g), &p);
            check_plan(&g, &p);
            g.disturbed = g.disturbed || p.n_preempted > 0;
            check_nothing_twice(&g, &p);
            n_held += n_held_in(&g);
            apply_plan(&g, &p);
            assert_true(prefix_wait(&g) <= g.n_pages);
            assert_true(g.n_steps++ < 100000);
        }
    }
    assert_true(n_held > 1000); /* that was what it was about */
}

TEST(places_and_pages_are_kept_for_those_that_come_beside) {
    sched_seq running[] = {seq(5, 4)}, waiting[] = {seq(4, 0), seq(1, 0)};
    sched_plan p;
    waiting[0].n_beside = 2; /* with it the four places are full */
    waiting[0].n_behind = 3;
    plan(&limits, running, 1, waiting, 2, 100, &p);
    assert_int_equal(p.n_admitted, 1);
    waiting[0].n_beside = 3;
    plan(&limits, running, 1, waiting, 2, 100, &p);
    assert_int_equal(p.n_admitted, 0);
    running[0].n_beside = 3;
    waiting[0].n_beside = 0;
    plan(&limits, running, 1, waiting, 2, 100, &p);
    assert_int_equal(p.n_admitted, 0);
    running[0].n_beside = 0;
    /* one for the running, two for its five tokens, three after */
    plan(&limits, running, 1, waiting, 1, 5, &p);
    assert_int_equal(p.n_admitted, 0);
    plan(&limits, running, 1, waiting, 1, 6, &p);
    assert_int_equal(p.n_admitted, 1);
}

TEST(what_is_promised_to_one_that_has_aged_includes_those_beside) {
    sched_seq running[] = {seq(5, 4), seq(9, 8)};
    sched_plan p;
    running[0].n_preempted = limits.max_preemptions;
    plan(&limits, running, 2, NULL, 0, 4, &p); /* it may need three pages beyond its own */
    assert_int_equal(p.n_items, 2);
    running[0].n_behind = 1;
    plan(&limits, running, 2, NULL, 0, 4, &p);
    assert_int_equal(p.n_items, 1);
    assert_int_equal(p.items[0].seq, 0);
}

TEST(a_group_is_preempted_together_and_never_for_one_of_its_own) {
    sched_limits l = limits;
    l.max_seqs = 5;
    sched_seq running[] = {seq(5, 4), seq(9, 8), seq(9, 8), seq(9, 9), seq(40, 39)};
    sched_plan p;
    for (int32_t i = 1; i < 4; i++) {
        running[i].group = 7;
        running[i].n_shared = i > 1 ? 2 : 0; /* the first page is counted with the first of them */
    }
    /* the first takes the page; the next takes those of the last, not of its own group,
     * which computed less */
    plan(&l, running, 5, NULL, 0, 1, &p);
    assert_int_equal(p.n_preempted, 1);
    assert_int_equal(p.decisions[4], SCHED_PREEMPTED);
    assert_true(p.decisions[1] == SCHED_PLANNED && p.decisions[2] == SCHED_PLANNED &&
                p.decisions[3] == SCHED_IDLE);
    plan(&l, running, 4, NULL, 0, 0, &p); /* for the first the whole group goes */
    assert_int_equal(p.n_preempted, 3);
    assert_int_equal(p.n_items, 1);
    sched_seq only[] = {running[1], running[2], running[3]};
    plan(&l, only, 3, NULL, 0, 1, &p); /* one has rows: the others wait for pages and keep theirs */
    assert_int_equal(p.n_preempted, 0);
    assert_int_equal(p.n_items, 1);
}

TEST(one_with_nothing_to_compute_is_passed_over) {
    sched_seq running[] = {seq(5, 5), seq(5, 4)};
    sched_plan p;
    for (int32_t max_out = 0; max_out < 2; max_out++) {
        sched_limits l = limits;
        l.max_out = max_out;
        plan(&l, running, 2, NULL, 0, 4, &p);
        assert_int_equal(p.n_items, max_out);
        assert_int_equal(p.n_preempted, 0);
    }
    plan(&limits, running, 2, NULL, 0, 0, &p);
    assert_int_equal(p.n_preempted, 1); /* the last gives way */
    assert_int_equal(p.decisions[1], SCHED_PREEMPTED);
}

/* A sequence that ends with its prompt: its rows are pooled. */
static sched_seq pooled_seq(int32_t n_known, int32_t n_computed) {
    sched_seq s = seq(n_known, n_computed);
    s.no_logits = true;
    s.n_most = n_known;
    return s;
}

TEST(a_sequence_without_logits_takes_rows_and_pages_of_its_prompt_only) {
    sched_limits l = limits;
    sched_plan p;
    for (int whole = 0; whole < 2; whole++) {
        sched_seq waiting[] = {pooled_seq(4, 0), pooled_seq(3, 0), seq(1, 0)}, decode[] = {seq(5, 4)};
        l.max_out = 1;
        l.whole_prefills = whole;
        plan(&l, NULL, 0, waiting, 3, 100, &p);
        assert_int_equal(p.n_admitted, 3);
        assert_int_equal(p.n_rows, 8);
        assert_int_equal(p.n_out, 1); /* the third's */
        plan(&l, NULL, 0, waiting, 1, 1, &p);
        assert_int_equal(p.n_admitted, 1);
        assert_int_equal(p.n_pages, 1);
        plan(&l, decode, 1, waiting, 2, 100, &p); /* all logits are taken */
        assert_int_equal(p.n_admitted, 2);
        assert_int_equal(p.items[1].n_rows, 4);
        assert_int_equal(p.items[2].n_rows, 3);
    }
}

/* ---- rows with programs ---- */

static sched_seq with_program(sched_seq s, double pair_us, double pairs) {
    s.has_program = true;
    s.program_pair_us = pair_us;
    s.program_pairs = pairs;
    return s;
}

static const sched_limits timed = {.max_rows = 512,
                                   .max_out = 64,
                                   .max_seqs = 64,
                                   .max_chunk = 512,
                                   .page_tokens = 4,
                                   .max_preemptions = 8,
                                   .target_us = 100000,
                                   .cost = {.step_us = 1000, .row_us = 10, .pair_us = 0.01}};

TEST(a_prefill_with_a_costly_program_keeps_the_step_within_its_target) {
    for (int32_t decodes = 0; decodes <= 1; decodes++) {
        for (int32_t at = 0; at < 2000; at += 250) {
            sched_seq running[] = {with_program(seq(3000, at), 5.0, 1e12), seq(40, 39)};
            sched_plan p;
            plan(&timed, running, 1 + decodes, NULL, 0, 10000, &p);
            double us = sched_predict_us(&timed.cost, p.n_rows, p.n_pairs) + p.program_us;
            assert_int_equal(p.n_items, 1 + decodes);
            assert_in_range((int64_t)us, 80000, 100000);
        }
    }
}

TEST(programs_do_not_cut_what_has_none) {
    sched_seq running[] = {seq(3000, 0), with_program(seq(3000, 0), 5.0, 1e12)};
    sched_plan p;
    plan(&timed, running, 1, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 512);
    plan(&timed, running, 2, NULL, 0, 10000, &p);
    assert_int_equal(p.items[p.items[0].seq == 0 ? 0 : 1].n_rows, 512);
    sched_limits no_target = timed;
    no_target.target_us = 0;
    plan(&no_target, running + 1, 1, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 512);
}

TEST(a_program_of_unknown_cost_begins_with_few_pairs_and_always_goes_on) {
    sched_plan p;
    sched_seq fresh = with_program(seq(3000, 0), 0.0, 64.0), deep = with_program(seq(3000, 1000), 0.0, 64.0);
    plan(&timed, &fresh, 1, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 10); /* 55 pairs, 66 would be too many */
    plan(&timed, &deep, 1, NULL, 0, 10000, &p);
    assert_int_equal(p.n_rows, 1);
    plan(&timed, NULL, 0, &fresh, 1, 10000, &p);
    assert_int_equal(p.n_rows, 10);
}

/* Twelve decodes of 30 ms each: three a step, and each has its turn. */
TEST(decodes_with_costly_programs_take_turns) {
    enum { N = 12 };
    sched_seq running[N + 1];
    int32_t n_rows[N + 1] = {0};
    sched_limits l = timed;
    for (int32_t i = 0; i < N; i++) {
        running[i] = with_program(seq(1000, 999), 30.0, 1e12);
    }
    running[N] = seq(10, 9);
    for (int32_t step = 0; step < N; step++) {
        sched_plan p;
        plan(&l, running, N + 1, NULL, 0, 10000, &p);
        assert_int_equal(p.n_program_decodes, 3);
        assert_int_equal(p.n_items, 4);
        for (int32_t i = 0; i < p.n_items; i++) {
            n_rows[p.items[i].seq]++;
        }
        l.program_turn += (uint32_t)p.n_program_decodes;
    }
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(n_rows[i], 3);
    }
    assert_int_equal(n_rows[N], N); /* one without a program has a row in each step */
}

TEST(drafts_with_a_costly_program_are_cut_to_the_time_that_is_left) {
    sched_seq s = with_program(seq(1000, 999), 30.0, 1e12);
    sched_plan p;
    s.n_drafts = 8;
    plan(&timed, &s, 1, NULL, 0, 10000, &p);
    assert_int_equal(p.items[0].n_drafts, 2);
}

TEST_MAIN(NULL, NULL)
