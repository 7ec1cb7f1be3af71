/* The budget of a model's reasoning as a constraint: marks of letters and of special
 * tokens, another constraint beside it, copies of states. */
#include <string.h>

#include "answer/grammar_constraint.h"
#include "answer/thinking_budget.h"
#include "base/rng.h"
#include "core/params.h"
#include "sample/sampler.h"
#include "test.h"
#include "text/tokenizer.h"

typedef struct world {
    tokenizer *t;
    marked_vocab *v;
    int32_t n;
    constraint *c;
} world;

enum { LETTERS, THINK, HARMONY };

static const char *const added[] = {
    [LETTERS] = "",
    [THINK] = "{\"id\":50,\"content\":\"<think>\",\"special\":true,\"normalized\":false},"
              "{\"id\":51,\"content\":\"</think>\",\"special\":false,\"normalized\":false}",
    [HARMONY] = "{\"id\":50,\"content\":\"<|channel|>\",\"special\":true,\"normalized\":false},"
                "{\"id\":51,\"content\":\"<|message|>\",\"special\":true,\"normalized\":false},"
                "{\"id\":52,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false},"
                "{\"id\":53,\"content\":\"<|start|>\",\"special\":true,\"normalized\":false}",
};

/* A token for each letter and sign of marks, some of two, and special tokens: none, the
 * marks themselves, or harmony's. */
static world open_world(int special) {
    world w = {0};
    strbuf b = {0};
    quire_error err = {0};
    int32_t n = 0;
    strbuf_add_str(&b, "{\"added_tokens\":[");
    strbuf_add_str(&b, added[special]);
    strbuf_add_str(&b, "],\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (const char *p = " </>abcdefghijklmnopqrstuvwxyz"; *p != 0; p++) {
        strbuf_addf(&b, "\"%c\":%d,", *p, n++);
    }
    strbuf_addf(&b, "\"k>\":%d,\">a\":%d,\"ab\":%d},\"merges\":[\"k >\",\"> a\",\"a b\"]}}", n, n + 1, n + 2);
    vocab v = {.source = VOCAB_TOKENIZER_JSON,
               .tokenizer_json = {b.p, b.n},
               .bos = -1,
               .eos = -1,
               .unk = -1,
               .pad = -1};
    if (tokenizer_open(&v, &w.t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    w.n = 64;
    assert_int_equal(marked_vocab_open(w.t, w.n, &w.v), QUIRE_OK);
    strbuf_deinit(&b);
    return w;
}

static void close_world(world *w) {
    constraint_drop(w->c);
    marked_vocab_close(w->v);
    tokenizer_close(w->t);
}

static void set_budget_of(world *w, const char *format, output_start start, int32_t budget,
                          constraint *inner) {
    const reasoning_frame frame = {reasoning_format_named(format), NULL, start};
    quire_error err = {0};
    constraint_drop(w->c);
    w->c = NULL;
    if (thinking_budget_open(&frame, budget, w->t, w->v, inner, &w->c, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static void set_budget(world *w, output_start start, int32_t budget, constraint *inner) {
    set_budget_of(w, "qwen3", start, budget, inner);
}

static constraint *compile(const world *w, const grammar_part *all) {
    quire_error err = {0};
    grammar *g;
    constraint *c;
    if (grammar_compile_parts(all, &w->v->marks, NULL, &g, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(grammar_constraint_open(g, w->v->vocab, NULL, 0, &c), QUIRE_OK);
    grammar_drop(g);
    return c;
}

/* A regex after the frame, as a constraint. */
static constraint *regex_of(const world *w, const char *format, output_start start, const char *text) {
    const reasoning_frame frame = {reasoning_format_named(format), NULL, start};
    const grammar_part answer = part_rule(GRAMMAR_REGEX, str_of(text), NULL);
    part_arena a = {0};
    grammar_part all = reasoning_frame_around(&a, &frame, &w->v->marks, &answer);
    constraint *c = compile(w, &all);
    part_arena_deinit(&a);
    return c;
}

static constraint *regex(const world *w, output_start start, const char *text) {
    return regex_of(w, "qwen3", start, text);
}

typedef struct state {
    _Alignas(16) uint8_t bytes[CONSTRAINT_MAX_STATE_BYTES];
} state;

static bool is_allowed(const world *w, const state *s, int32_t token, int32_t *n) {
    uint64_t bits[1];
    assert_int_equal(w->c->ops->mask(w->c, s->bytes, bits), QUIRE_OK);
    *n = __builtin_popcountll(bits[0]);
    return (bits[0] >> token & 1) != 0;
}

/* Appends a text, token by token as the tokenizer has it; each must be in the mask.
 * Returns how many are taken. */
static size_t append(const world *w, state *s, const char *text) {
    token_list ids = {0};
    quire_error err = {0};
    size_t i = 0;
    int32_t n;
    assert_int_equal(
        tokenizer_encode(w->t, str_of(text), (encode_options){.special = ENCODE_PARSE}, &ids, &err),
        QUIRE_OK);
    for (; i < ids.n; i++) {
        bool allowed = is_allowed(w, s, ids.ids[i], &n);
        assert_int_equal(allowed, w->c->ops->accept(w->c, s->bytes, ids.ids[i]) == QUIRE_OK);
        if (!allowed) {
            break;
        }
    }
    token_list_deinit(&ids);
    return i;
}

static state start(const world *w) {
    state s = {{0}};
    w->c->ops->init(w->c, s.bytes);
    return s;
}

/* The text of the tokens that are forced here. */
static void forced_is(const world *w, const state *s, const char *text) {
    int32_t ids[64], most = 64, n = w->c->ops->forced(w->c, s->bytes, ids, most);
    strbuf out = {0};
    for (int32_t i = 0; i < n; i++) {
        str piece = tokenizer_piece(w->t, ids[i]);
        assert_int_equal(strbuf_add(&out, piece.p, piece.n), QUIRE_OK);
    }
    assert_string_equal(out.p != NULL ? out.p : "", text);
    strbuf_deinit(&out);
}

TEST(the_closing_mark_is_forced_when_the_budget_is_spent) {
    for (int special = 0; special < 2; special++) {
        world w = open_world(special);
        set_budget(&w, OUTPUT_START_REASONING, 3, NULL);
        state s = start(&w);
        int32_t n;
        assert_int_equal(append(&w, &s, "xy"), 2);
        forced_is(&w, &s, "");
        assert_true(w.c->ops->is_final(w.c, s.bytes)); /* a model may end */
        assert_int_equal(append(&w, &s, "z"), 1);
        forced_is(&w, &s, "</think>");
        assert_false(w.c->ops->is_final(w.c, s.bytes));
        (void)is_allowed(&w, &s, 0, &n);
        assert_int_equal(n, 1);
        assert_int_equal(append(&w, &s, "x"), 0);
        assert_true(append(&w, &s, "</think>xyzxyzxyz") > 9);
        forced_is(&w, &s, "");
        assert_true(w.c->ops->is_final(w.c, s.bytes));
        set_budget(&w, OUTPUT_START_REASONING, 0, NULL);
        s = start(&w);
        forced_is(&w, &s, "</think>");
        close_world(&w);
    }
}

TEST(reasoning_that_ends_by_itself_is_left_alone) {
    for (int special = 0; special < 2; special++) {
        world w = open_world(special);
        set_budget(&w, OUTPUT_START_REASONING, 12, NULL);
        state s = start(&w);
        /* the mark may end inside a token */
        assert_true(append(&w, &s, "x</</think>abxyzxyzxyzxyzxyz") > 15);
        forced_is(&w, &s, "");
        close_world(&w);
    }
}

TEST(an_opening_mark_begins_the_count_at_the_beginning_only) {
    for (int special = 0; special < 2; special++) {
        world w = open_world(special);
        set_budget(&w, OUTPUT_START_MARKED, 2, NULL);
        state s = start(&w);
        assert_true(append(&w, &s, " <think>x") > 2);
        forced_is(&w, &s, ""); /* what stands before the reasoning is not counted */
        assert_int_equal(append(&w, &s, "y"), 1);
        forced_is(&w, &s, "</think>");
        s = start(&w);
        (void)append(&w, &s, "x<think>xyxyxy");
        forced_is(&w, &s, "");
        if (!special) {
            s = start(&w);
            (void)append(&w, &s, "<thin x <think>xyxy");
            forced_is(&w, &s, "");
        }
        close_world(&w);
    }
}

TEST(the_rule_behind_the_reasoning_is_obeyed_too) {
    for (int special = 0; special < 2; special++) {
        world w = open_world(special);
        set_budget(&w, OUTPUT_START_REASONING, 4, regex(&w, OUTPUT_START_REASONING, "ab{2}c"));
        state s = start(&w);
        (void)append(&w, &s, "xyxy");
        forced_is(&w, &s, "</think>");
        (void)append(&w, &s, "</think>");
        assert_int_equal(append(&w, &s, "x"), 0);
        assert_int_equal(append(&w, &s, "abbc"), 3);
        assert_true(w.c->ops->is_final(w.c, s.bytes));
        set_budget(&w, OUTPUT_START_REASONING, 9, regex(&w, OUTPUT_START_REASONING, "ab{2}c"));
        s = start(&w);
        assert_true(append(&w, &s, "x</think>abbc") >= 5);
        assert_true(w.c->ops->is_final(w.c, s.bytes));
        set_budget(&w, OUTPUT_START_CONTENT, 4, regex(&w, OUTPUT_START_CONTENT, "ab{2}c"));
        s = start(&w);
        assert_int_equal(append(&w, &s, "x"), 0);
        assert_int_equal(append(&w, &s, "abbc"), 3);
        close_world(&w);
    }
}

/* Random outputs: what is forced is alone in the mask, a copied state goes on as its
 * original, and no output thinks longer than it may. */
TEST(states_are_a_function_of_the_output) {
    uint64_t r = 7;
    for (int round = 0; round < 200; round++) {
        world w = open_world(round % 2);
        output_start begins = round % 3 == 0 ? OUTPUT_START_MARKED : OUTPUT_START_REASONING;
        set_budget(&w, begins, (int32_t)(rng_next(&r) % 9),
                   round % 5 == 0 ? NULL : regex(&w, begins, "(ab? )*c"));
        state s = start(&w), copy;
        int32_t out[40], n_out = 0, n, want[64];
        for (; n_out < 40; n_out++) {
            int32_t n_want = w.c->ops->forced(w.c, s.bytes, want, 64),
                    token = (int32_t)(rng_next(&r) % (uint64_t)w.n);
            for (int tries = 0; !is_allowed(&w, &s, token, &n) && tries < 500 && n > 0; tries++) {
                token = (int32_t)(rng_next(&r) % (uint64_t)w.n);
            }
            if (n == 0 || !is_allowed(&w, &s, token, &n)) {
                break;
            }
            assert_true(n_want == 0 || (n == 1 && token == want[0]));
            copy = s;
            assert_int_equal(w.c->ops->accept(w.c, s.bytes, token), QUIRE_OK);
            assert_int_equal(w.c->ops->accept(w.c, copy.bytes, token), QUIRE_OK);
            assert_memory_equal(s.bytes, copy.bytes, w.c->state_bytes);
            out[n_out] = token;
        }
        copy = start(&w);
        for (int32_t i = 0; i < n_out; i++) {
            assert_int_equal(w.c->ops->accept(w.c, copy.bytes, out[i]), QUIRE_OK);
        }
        assert_memory_equal(s.bytes, copy.bytes, w.c->state_bytes);
        close_world(&w);
    }
}

/* Harmony: a thought, then a message with this header: as a required call, or an
 * answer. */
static constraint *message(const world *w, const char *header) {
    const str end = str_of("<|end|>");
    const grammar_part parts[] = {part_text(str_of("<|channel|>analysis<|message|>")), part_until(&end, 1),
                                  part_text(str_of("<|start|>assistant<|channel|>")),
                                  part_text(str_of(header))};
    part_arena a = {0};
    grammar_part all = part_sequence(&a, parts, 4);
    constraint *c = compile(w, &all);
    part_arena_deinit(&a);
    return c;
}

TEST(only_what_the_rule_takes_of_the_mark_is_forced) {
    static const struct {
        const char *header, *forced;
    } cases[] = {{"final<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"},
                 {"commentary to", "<|end|><|start|>assistant<|channel|>"},
                 {"find", "<|end|><|start|>assistant<|channel|>fin"}};
    world w = open_world(HARMONY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_budget_of(&w, "openai_gptoss", OUTPUT_START_UNKNOWN, 2, message(&w, cases[i].header));
        state s = start(&w);
        /* two are all that may come */
        assert_int_equal(append(&w, &s, "<|channel|>analysis<|message|>xyz"), 12);
        forced_is(&w, &s, cases[i].forced);
        assert_int_equal(append(&w, &s, "<|end|><|start|>assistant<|channel|>"), 12);
        (void)append(&w, &s, cases[i].header);
        forced_is(&w, &s, "");
        assert_true(w.c->ops->is_final(w.c, s.bytes));
    }
    close_world(&w);
}

/* A format whose reasoning is part of the answer: a rule binds all of it, and the budget
 * does not keep it from its end. */
TEST(a_rule_without_reasoning_ends_where_it_says) {
    static const char *const rules[][2] = {{"a", "a"}, {"ab{2}c", "abbc"}, {"[a-c]{6}", "abcabc"}};
    world w = open_world(THINK);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        set_budget_of(&w, "minimax_m2_append_think", OUTPUT_START_REASONING, 0,
                      regex_of(&w, "minimax_m2_append_think", OUTPUT_START_REASONING, rules[i][0]));
        state s = start(&w);
        assert_false(w.c->ops->is_final(w.c, s.bytes));
        (void)append(&w, &s, rules[i][1]);
        assert_true(w.c->ops->is_final(w.c, s.bytes));
    }
    close_world(&w);
}

/* Such a rule may take the closing mark too: the answer does not end within it, and no
 * guess leads past where it must come. */
TEST(a_rule_that_takes_the_mark_neither_ends_nor_guesses_past_it) {
    const char *format = "minimax_m2_append_think";
    const guess_bounds bounds = {16, 1.0f, 0.5f, 0.0f};
    int32_t ids[CONSTRAINT_MAX_GUESSES], parents[CONSTRAINT_MAX_GUESSES];
    world w = open_world(LETTERS);
    set_budget_of(&w, format, OUTPUT_START_REASONING, 2,
                  regex_of(&w, format, OUTPUT_START_REASONING, "[a-z<>/]*"));
    state s = start(&w);
    assert_int_equal(append(&w, &s, "x"), 1);
    assert_true(w.c->ops->is_final(w.c, s.bytes));
    assert_int_equal(append(&w, &s, "y"), 1);
    forced_is(&w, &s, "</think>");
    assert_false(w.c->ops->is_final(w.c, s.bytes));
    assert_true(append(&w, &s, "</think>") > 0);
    assert_true(w.c->ops->is_final(w.c, s.bytes));
    for (int32_t budget = 2; budget <= 50; budget += 48) {
        set_budget_of(&w, format, OUTPUT_START_REASONING, budget,
                      regex_of(&w, format, OUTPUT_START_REASONING, "(xyzxyzxyz|xyzxyzxya)[a-z<>/]*"));
        s = start(&w);
        assert_int_equal(w.c->ops->guess(w.c, s.bytes, &bounds, ids, parents), budget == 2 ? 2 : 8);
    }
    close_world(&w);
}

/* The mark's last token may be an end token of the request: the answer then ends with the
 * reasoning. */
TEST(the_mark_may_be_a_stop_token) {
    world w = open_world(THINK);
    set_budget(&w, OUTPUT_START_REASONING, 2, NULL);
    sampling_params p;
    sampling_params_init(&p);
    p.n_stop_tokens = 1;
    p.stop_tokens[0] = 51;
    state s = start(&w);
    sample_context c = {.params = &p, .constraint = w.c, .constraint_state = s.bytes};
    assert_int_equal(thinking_budget_check(w.c, &p, &(model_desc){0}, &(quire_error){0}), QUIRE_OK);
    assert_int_equal(append(&w, &s, "xy"), 2);
    assert_int_equal(sample_accept(&c, 51), QUIRE_OK);
    assert_int_equal(sample_accept(&c, 5), QUIRE_INVALID);
    float row[64] = {0};
    int32_t token;
    sampler *drawn;
    assert_int_equal(sampler_open(w.n, 16, &drawn), QUIRE_OK);
    assert_int_equal(sampler_sample(drawn, row, &c, &token), QUIRE_OK);
    assert_int_equal(token, 51);
    sampler_close(drawn);
    for (int needed = 0; needed < 2; needed++) { /* with a rule: where it wants nothing more */
        set_budget(&w, OUTPUT_START_REASONING, 2, regex(&w, OUTPUT_START_REASONING, needed ? "a+" : "a*"));
        assert_int_equal(thinking_budget_check(w.c, &p, &(model_desc){0}, &(quire_error){0}),
                         needed ? QUIRE_BAD_REQUEST : QUIRE_OK);
    }
    close_world(&w);
}

TEST(a_mark_that_the_request_forbids_is_refused) {
    static const char *const params[] = {"stop_token_ids", "bad_words", "allowed_token_ids"};
    world w = open_world(LETTERS);
    set_budget(&w, OUTPUT_START_REASONING, 2, NULL);
    int32_t n;
    const int32_t *mark = thinking_budget_mark(w.c, &n);
    assert_true(n > 3);
    for (int kind = 0; kind < 3; kind++) {
        for (int bad = 0; bad < 2; bad++) {
            sampling_params p;
            quire_error err = {0};
            sampling_params_init(&p);
            p.lists = sampling_lists_new();
            p.n_stop_tokens = kind == 0;
            p.stop_tokens[0] = bad ? mark[1] : mark[n - 1];
            int32_t word[] = {mark[1], bad ? mark[2] : 5};
            assert_int_equal(kind == 1 ? token_seqs_add(&p.lists->bad_words, word, 2) : QUIRE_OK, QUIRE_OK);
            assert_int_equal(
                kind == 2 ? sampling_lists_set_allowed(p.lists, mark, bad ? n - 1 : n) : QUIRE_OK, QUIRE_OK);
            quire_err e = thinking_budget_check(w.c, &p, &(model_desc){0}, &err);
            assert_int_equal(e, bad ? QUIRE_BAD_REQUEST : QUIRE_OK);
            assert_true(!bad || strcmp(err.param, params[kind]) == 0);
            sampling_lists_drop(p.lists);
        }
    }
    close_world(&w);
}

TEST(a_vocabulary_that_cannot_write_the_mark_is_refused) {
    world w = open_world(false);
    const reasoning_frame frame = {reasoning_format_named("mistral"), NULL, OUTPUT_START_REASONING};
    quire_error err = {0};
    constraint *c = NULL;
    assert_int_equal(thinking_budget_open(&frame, 3, w.t, w.v, NULL, &c, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "[/THINK]"));
    close_world(&w);
}

TEST_MAIN(NULL, NULL)
