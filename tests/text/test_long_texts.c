/* Long texts and long tokens: work that grows with them yields its slice, and stops when
 * the request is cancelled. */
#include "shared.h"

#include "base/clock.h"
#include "base/turn.h"
#include "text/tokenizer_impl.h"

static int polls;

static quire_err third_poll_cancels(turn *t) {
    (void)t;
    return ++polls < 3 ? QUIRE_OK : QUIRE_CANCELLED;
}

static void begin_cancelled_turn(turn *t) {
    *t = (turn){.over = third_poll_cancels};
    polls = 0;
    turn_begin(t);
}

/* n times c, and then end. */
static strbuf run_of(size_t n, char c, const char *end) {
    strbuf b = {0};
    assert_int_equal(strbuf_reserve(&b, n), QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(strbuf_add_char(&b, c), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&b, end), QUIRE_OK);
    return b;
}

/* Four ways to look at all of the text from each of its characters, and find nothing. */
TEST(a_search_is_cancelled_between_its_starts) {
    static const char *const patterns[] = {"(?<=a)[a-z]+$(?<=b)", "(?=[a-z]*[0-9])", "(?:a|b)*+[0-9]"};
    strbuf text = run_of(60000, 'a', ""), literal = run_of(40000, 'a', "b");
    for (size_t i = 0; i < 4; i++) {
        matcher m = {0};
        regex_scratch s = {0};
        quire_error err = {0};
        match_iter it = {.subject = {text.p, text.n}};
        turn t;
        bool found;
        assert_int_equal(i < 3 ? regex_open(str_of(patterns[i]), &m.re, &err)
                               : matcher_open_literal((str){literal.p, literal.n}, &m),
                         QUIRE_OK);
        begin_cancelled_turn(&t);
        assert_int_equal(matcher_next(&m, &s, &it, &found), QUIRE_CANCELLED);
        turn_begin(NULL);
        matcher_deinit(&m);
        regex_scratch_deinit(&s);
    }
    strbuf_deinit(&text);
    strbuf_deinit(&literal);
}

/* An added token may be as long as its file. */
TEST(the_search_for_added_tokens_is_cancelled) {
    strbuf text = run_of(40000, 'a', ""), token = run_of(20000, 'a', "b");
    added_set set = {0};
    added_walk w;
    bool more;
    turn t;
    added_token a = {.id = 0, .content = {token.p, token.n}, .pattern = {token.p, token.n}};
    assert_int_equal(added_set_add(&set, &a), QUIRE_OK);
    assert_int_equal(added_set_finish(&set, 1), QUIRE_OK);
    added_walk_begin(&w, &set, &set.raw, (str){text.p, text.n}, false);
    begin_cancelled_turn(&t);
    assert_int_equal(added_walk_next(&w, &more), QUIRE_CANCELLED);
    turn_begin(NULL);
    added_set_deinit(&set);
    strbuf_deinit(&text);
    strbuf_deinit(&token);
}

/* White space is looked at once, though each of its characters is a token that takes what
 * is around it. */
TEST(white_space_that_tokens_take_is_passed_once) {
    strbuf text = run_of(60000, ' ', "a");
    added_set set = {0};
    added_walk w;
    bool more;
    added_token a = {.id = 0, .content = str_of(" "), .pattern = str_of(" "), .lstrip = true, .rstrip = true};
    assert_int_equal(added_set_add(&set, &a), QUIRE_OK);
    assert_int_equal(added_set_finish(&set, 1), QUIRE_OK);
    added_walk_begin(&w, &set, &set.raw, (str){text.p, text.n}, false);
    int64_t before = clock_thread_us();
    assert_int_equal(added_walk_next(&w, &more), QUIRE_OK);
    assert_true(more && w.id == 0 && w.done == 60000);
    assert_int_equal(added_walk_next(&w, &more), QUIRE_OK);
    assert_true(more && w.id == -1 && w.stretch_n == 1);
    assert_int_equal(added_walk_next(&w, &more), QUIRE_OK);
    assert_false(more);
    assert_true(clock_thread_us() - before < 5000000);
    added_set_deinit(&set);
    strbuf_deinit(&text);
}

/* SentencePiece's Unigram gets a text as one piece. */
TEST(a_long_piece_is_cancelled_in_its_middle) {
    strbuf text = run_of(40000, 'a', ""), longest = run_of(20000, 'a', "b");
    double scores[2] = {-1, -2};
    trie_piece pieces[2] = {{str_of("a"), 0}, {{longest.p, longest.n}, 1}};
    unigram u = {.scores = scores, .borrowed = true, .unk = -1};
    unigram_scratch s = {0};
    token_list ids = {0};
    turn t;
    assert_int_equal(piece_trie_build(pieces, 2, &u.trie), QUIRE_OK);
    begin_cancelled_turn(&t);
    assert_int_equal(unigram_encode(&u, (str){text.p, text.n}, &s, &ids), QUIRE_CANCELLED);
    turn_begin(NULL);
    piece_trie_deinit(&u.trie);
    unigram_deinit(&u);
    unigram_scratch_deinit(&s);
    token_list_deinit(&ids);
    strbuf_deinit(&text);
    strbuf_deinit(&longest);
}

/* A word that is as long as a text, of tokens of one letter and a longer one. */
TEST(a_long_word_is_cancelled_in_its_middle) {
    strbuf text = run_of(40000, 'a', ""), longest = run_of(20000, 'a', "b");
    trie_piece pieces[2] = {{str_of("a"), 0}, {{longest.p, longest.n}, 1}};
    wordpiece w = {.max_chars = 1000000};
    token_list ids = {0};
    turn t;
    assert_int_equal(piece_trie_build(pieces, 2, &w.trie), QUIRE_OK);
    begin_cancelled_turn(&t);
    assert_int_equal(wordpiece_encode(&w, (str){text.p, text.n}, &ids), QUIRE_CANCELLED);
    turn_begin(NULL);
    wordpiece_deinit(&w);
    token_list_deinit(&ids);
    strbuf_deinit(&text);
    strbuf_deinit(&longest);
}

TEST(normalizing_is_cancelled) {
    static const norm_kind kinds[] = {NORM_PRECOMPILED, NORM_SENTENCEPIECE};
    strbuf text = run_of(400000, 'a', "");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        normalizer n = {.n = 1, .steps = {{.kind = kinds[i]}}};
        norm_scratch s = {0};
        regex_scratch rs = {0};
        turn t;
        str out;
        begin_cancelled_turn(&t);
        assert_int_equal(normalizer_run(&n, (str){text.p, text.n}, &s, &rs, &out), QUIRE_CANCELLED);
        turn_begin(NULL);
        norm_scratch_deinit(&s);
        regex_scratch_deinit(&rs);
    }
    strbuf_deinit(&text);
}

TEST(cutting_is_cancelled) {
    static const pre_step steps[] = {{.kind = PRE_METASPACE, .delimiter = 0x2581},
                                     {.kind = PRE_METASPACE, .delimiter = ' ', .split = true},
                                     {.kind = PRE_FIXED, .length = 3},
                                     {.kind = PRE_SCRIPTS}};
    strbuf text = run_of(400000, ' ', "");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        pretokenizer p = {.n = 1, .steps = {steps[i]}};
        pre_scratch s = {0};
        regex_scratch rs = {0};
        const piece_list *pieces;
        turn t;
        begin_cancelled_turn(&t);
        assert_int_equal(pretokenizer_run(&p, (str){text.p, text.n}, 0, &s, &rs, &pieces), QUIRE_CANCELLED);
        turn_begin(NULL);
        pre_scratch_deinit(&s);
        regex_scratch_deinit(&rs);
    }
    strbuf_deinit(&text);
}

TEST_MAIN(NULL, NULL)
