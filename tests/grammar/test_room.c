/* Limits on work for masks and accepted tokens: by configurations within a step, by
 * configurations and bytes in total. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/turn.h"
#include "grammar_case.h"

#define MOST 200000u

/* A rule of each kind that costs much for its length. */
static const struct {
    grammar_kind kind;
    const char *text;
} hostile[] = {
    {GRAMMAR_REGEX, "([^0]{0,120}[^1]{0,121}[^2]{0,122}[^3]{0,123}){1,40}(z1|y)"},
    {GRAMMAR_REGEX, "(.{0,400}){0,400}x"},
    {GRAMMAR_EBNF, "root ::= s\ns ::= s s | [a-z] | \"\""},
    {GRAMMAR_EBNF, "root ::= s\ns ::= s s s | s s | \"a\" | \"b\" s \"b\""},
    {GRAMMAR_EBNF, "root ::= p+\np ::= [a-z] p [a-z] | [a-z]?"},
    {GRAMMAR_EBNF, "root ::= p+\np ::= \"a\" p \"a\" | \"b\" p \"b\" | \"c\" p \"c\" | \"x\" p \"x\" | \"0\" "
                   "p \"0\" | [a-z]? | \" \" p \" \""},
};
#define N_HOSTILE (sizeof hostile / sizeof *hostile)
#define WORDS     ((CASE_TOKENS + 63) / 64)

static quire_err mask_in_room(grammar_case *c, grammar_state s, uint64_t *bits, work_room *room) {
    work_room *had = work_room_enter(room);
    quire_err e = grammar_mask(c->r, s, bits);
    (void)work_room_enter(had);
    return e;
}

static quire_err accept_in_room(grammar_case *c, grammar_state *s, int32_t token, work_room *room) {
    work_room *had = work_room_enter(room);
    quire_err e = grammar_accept(c->r, s, token);
    (void)work_room_enter(had);
    return e;
}

/* A token of a mask; -1: there is none. */
static int32_t any_of(const uint64_t *bits, uint32_t at) {
    for (int32_t i = 0; i < CASE_TOKENS; i++) {
        int32_t t = (int32_t)((uint32_t)i * 7 + at) % CASE_TOKENS;
        if ((bits[t / 64] >> (t % 64) & 1) != 0 && t != CASE_END) {
            return t;
        }
    }
    return -1;
}

/* One goes on within steps and outside of them where a step has no room, the other only
 * outside: the masks are the same. */
TEST(masks_that_a_step_began_are_those_that_it_did_not) {
    for (size_t k = 0; k < N_HOSTILE; k++) {
        grammar_case in = case_open(hostile[k].kind, hostile[k].text, NULL),
                     out = case_open(hostile[k].kind, hostile[k].text, NULL);
        grammar_state a = grammar_start(in.r), b = grammar_start(out.r);
        int64_t n_busy = 0;
        work_room room = {0};
        for (uint32_t i = 0; i < 12; i++) {
            uint64_t got[WORDS], want[WORDS];
            work_room_fill(&room, i % 3 == 0 ? 500 : MOST, INT64_MAX / 2);
            quire_err e = mask_in_room(&in, a, got, &room);
            n_busy += e == QUIRE_BUSY;
            e = e == QUIRE_BUSY ? grammar_mask(in.r, a, got) : e;
            assert_int_equal(grammar_mask(out.r, b, want), e);
            if (e != QUIRE_OK) {
                assert_int_equal(e, QUIRE_TOO_LARGE);
                assert_non_null(grammar_run_why(in.r));
                break;
            }
            assert_memory_equal(got, want, sizeof want);
            int32_t t = any_of(want, i);
            if (t < 0) {
                break;
            }
            e = accept_in_room(&in, &a, t, &room);
            e = e == QUIRE_BUSY ? grammar_accept(in.r, &a, t) : e;
            assert_int_equal(grammar_accept(out.r, &b, t), e);
            assert_int_equal(grammar_is_final(in.r, a), grammar_is_final(out.r, b));
            if (e != QUIRE_OK) {
                break;
            }
        }
        assert_true(atomic_load(&room.largest) <= MOST);
        assert_true(n_busy > 0); /* the case is one */
        case_close(&in);
        case_close(&out);
    }
}

TEST(a_used_up_room_still_takes_what_is_built) {
    grammar_case c = case_open(GRAMMAR_REGEX, "(abc|ab|x)+", NULL);
    uint64_t bits[WORDS];
    work_room room = {0};
    grammar_state s = grammar_start(c.r), behind = s;
    work_room_fill(&room, MOST, 0);
    assert_int_equal(mask_in_room(&c, s, bits, &room), QUIRE_BUSY);
    assert_int_equal(accept_in_room(&c, &behind, 1, &room), QUIRE_BUSY);
    assert_int_equal(behind.id, s.id);
    assert_int_equal(grammar_mask(c.r, s, bits), QUIRE_OK);
    assert_int_equal(mask_in_room(&c, s, bits, &room), QUIRE_OK);
    assert_int_equal(accept_in_room(&c, &behind, any_of(bits, 0), &room), QUIRE_OK);
    assert_int_equal(atomic_load(&room.largest), 0);
    case_close(&c);
}

/* ---- threads outside ---- */

typedef struct slow_turn {
    turn head;
    grammar_case *c;
    int32_t n_over;
    int32_t n_entered; /* of these, with the run free for a step */
    bool is_off;
} slow_turn;

/* At the end of a slice a step can use the run. */
static quire_err over(turn *t) {
    slow_turn *s = (slow_turn *)t;
    work_room room = {0};
    work_room_fill(&room, MOST, INT64_MAX / 2);
    s->n_over++;
    grammar_state first = grammar_start(s->c->r);
    s->n_entered += accept_in_room(s->c, &first, 1, &room) != QUIRE_BUSY;
    return s->is_off ? QUIRE_CANCELLED : QUIRE_OK;
}

TEST(a_thread_outside_takes_turns_and_leaves_the_run_to_steps_between_them) {
    grammar_case c = case_open(hostile[0].kind, hostile[0].text, NULL);
    slow_turn t = {.head = {.over = over}, .c = &c};
    grammar_state s = grammar_start(c.r);
    uint64_t bits[WORDS];
    assert_int_equal(grammar_accept_bytes(c.r, &s, str_of("abcabc"), NULL), QUIRE_OK);
    turn_begin(&t.head);
    quire_err e = grammar_mask(c.r, s, bits);
    turn_begin(NULL);
    assert_int_equal(e, QUIRE_OK);
    assert_true(t.n_over > 2);
    assert_int_equal(t.n_entered, t.n_over);
    case_close(&c);
}

TEST(a_thread_outside_ends_where_nobody_wants_the_mask) {
    grammar_case c = case_open(hostile[1].kind, hostile[1].text, NULL);
    slow_turn t = {.head = {.over = over}, .c = &c, .is_off = true};
    grammar_state s = grammar_start(c.r);
    uint64_t bits[WORDS];
    assert_int_equal(grammar_accept_bytes(c.r, &s, str_of("abcabc"), NULL), QUIRE_OK);
    turn_begin(&t.head);
    quire_err e = grammar_mask(c.r, s, bits);
    turn_begin(NULL);
    assert_int_equal(e, QUIRE_CANCELLED);
    assert_int_equal(t.n_over, 1);
    assert_int_equal(grammar_mask(c.r, s, bits), QUIRE_OK); /* another goes on from there */
    case_close(&c);
}

typedef struct beside {
    grammar_case *c;
    atomic_bool is_over;
    grammar_state s;
} beside;

static void *build_outside(void *arg) {
    beside *b = arg;
    uint64_t bits[WORDS];
    assert_int_equal(grammar_mask(b->c->r, b->s, bits), QUIRE_OK);
    atomic_store(&b->is_over, true);
    return NULL;
}

TEST(steps_do_not_wait_for_a_thread_outside) {
    grammar_case c = case_open(hostile[0].kind, hostile[0].text, NULL);
    beside b = {.c = &c, .s = grammar_start(c.r)};
    uint64_t bits[WORDS];
    pthread_t thread;
    work_room room = {0};
    assert_int_equal(grammar_accept_bytes(c.r, &b.s, str_of("abcabc"), NULL), QUIRE_OK);
    assert_int_equal(pthread_create(&thread, NULL, build_outside, &b), 0);
    quire_err e = QUIRE_BUSY;
    while (e == QUIRE_BUSY) { /* each call returns at once, until it is there */
        work_room_fill(&room, 100, INT64_MAX / 2);
        bool was_over = atomic_load(&b.is_over);
        e = mask_in_room(&c, b.s, bits, &room);
        assert_true(!was_over || e == QUIRE_OK);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&room.largest) <= 100);
    case_close(&c);
}

/* ---- memory ---- */

TEST(runs_begin_with_few_addresses) {
    enum { N = 24 };
    grammar_case c = case_open(GRAMMAR_JSON_OBJECT, "", NULL);
    grammar *g[N];
    grammar_run *r[N];
    quire_error err = {0};
    size_t before = 0, after = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &before), 1);
    (void)fclose(f);
    for (int i = 0; i < N; i++) {
        assert_int_equal(grammar_compile(GRAMMAR_JSON_OBJECT, str_of(""), NULL, &g[i], &err), QUIRE_OK);
        assert_int_equal(grammar_run_open(g[i], c.v, 0, &r[i]), QUIRE_OK);
    }
    f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &after), 1);
    (void)fclose(f);
    assert_true((after - before) * 4096 < (size_t)N * (16u << 20));
    for (int i = 0; i < N; i++) {
        grammar_run_close(r[i]);
        grammar_drop(g[i]);
    }
    case_close(&c);
}

/* A grammar whose every `(` is a state of its own. */
static grammar *nest_grammar(void) {
    grammar *g = NULL;
    quire_error err = {0};
    assert_int_equal(
        grammar_compile(GRAMMAR_EBNF, str_of("root ::= \"\" | \"(\" root \")\"\n"), NULL, &g, &err),
        QUIRE_OK);
    return g;
}

static quire_err nest(grammar_run *r, int n) {
    grammar_state s = grammar_start(r);
    quire_err e = QUIRE_OK;
    for (int i = 0; i < n && e == QUIRE_OK; i++) {
        e = grammar_accept_bytes(r, &s, str_of("("), NULL);
    }
    return e;
}

TEST(a_tenant_over_its_share_loses_its_own_run) {
    enum { ROOM = 4 << 20, MANY = 1 << 20, N = 6 };
    grammar_memory *m = NULL;
    grammar_vocab *v = case_vocab(1);
    grammar *g[N];
    grammar_run *r[N];
    assert_int_equal(grammar_memory_open(ROOM, &m), QUIRE_OK);
    size_t had = 0;
    for (int i = 0; i < 4; i++) { /* one tenant takes all that it gets */
        g[i] = nest_grammar();
        quire_err e = grammar_run_open_in(g[i], v, m, 1, &r[i]);
        assert_true(e == QUIRE_OK || e == QUIRE_NO_MEMORY);
        if (e == QUIRE_OK) {
            assert_int_equal(nest(r[i], MANY), QUIRE_NO_MEMORY);
            assert_non_null(strstr(grammar_run_why(r[i]), "share"));
        }
        had = grammar_memory_used(m);
        assert_true(had <= ROOM / 2);
    }
    assert_true(had > ROOM / 4);
    for (int i = 4; i < N; i++) { /* others have room all the same, each less */
        g[i] = nest_grammar();
        assert_int_equal(grammar_run_open_in(g[i], v, m, (uint64_t)i, &r[i]), QUIRE_OK);
        assert_int_equal(nest(r[i], 1000), QUIRE_OK);
        assert_int_equal(nest(r[i], MANY), QUIRE_NO_MEMORY);
        assert_true(grammar_memory_used(m) < ROOM);
    }
    for (int i = 0; i < N; i++) {
        grammar_run_close(r[i]);
        grammar_drop(g[i]);
    }
    assert_int_equal(grammar_memory_used(m), 0);
    grammar_memory_close(m);
    grammar_vocab_drop(v);
}

TEST(what_is_too_large_is_named) {
    static const struct {
        const char *text, *why;
    } rows[] = {{"root ::= \"\" | \"(\" root \")\"\n", "states"},
                {"root ::= s\ns ::= s s s | s s | \"a\" | \"b\" s \"b\"", "ambiguous"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        grammar_case c = case_open(GRAMMAR_EBNF, rows[i].text, NULL);
        grammar_state s = grammar_start(c.r);
        quire_err e = QUIRE_OK;
        assert_null(grammar_run_why(c.r));
        for (int n = 0; n < 2000000 && e == QUIRE_OK; n++) {
            e = grammar_accept_bytes(c.r, &s, str_of(i == 0 ? "(" : "a"), NULL);
        }
        assert_int_equal(e, QUIRE_TOO_LARGE);
        if (strstr(grammar_run_why(c.r), rows[i].why) == NULL) {
            fail_msg("%s", grammar_run_why(c.r));
        }
        case_close(&c);
    }
}

TEST_MAIN(NULL, NULL)
