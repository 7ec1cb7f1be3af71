/* The parts that tokenizers are made of. */
#include "shared.h"

#include "base/rng.h"
#include "text/bpe.h"
#include "text/chars.h"
#include "text/normalize.h"
#include "text/piece_model.h"
#include "text/regex.h"
#include "json/json_scan.h"

#include <utf8proc.h>

/* ---- regular expressions ---- */

/* The first match of pattern in text, "-" when there is none, "!" when the pattern is
 * refused. */
static void expect_match_as(regex_syntax syntax, const char *pattern, const char *text, const char *want) {
    matcher m = {0};
    regex_scratch s = {0};
    quire_error err = {0};
    match_iter it = {.subject = str_of(text)};
    bool found = false;
    quire_err e = regex_open_as(str_of(pattern), syntax, &m.re, &err);
    if (e == QUIRE_OK) {
        assert_int_equal(matcher_next(&m, &s, &it, &found), QUIRE_OK);
    }
    str got = e != QUIRE_OK ? str_of("!") : found ? (str){text + it.start, it.end - it.start} : str_of("-");
    if (!str_is(got, want)) {
        fail_msg("%s in \"%s\" matches \"%.*s\", not \"%s\" %s", pattern, text, (int)got.n, got.p, want,
                 err.message);
    }
    matcher_deinit(&m);
    regex_scratch_deinit(&s);
}

static void expect_match(const char *pattern, const char *text, const char *want) {
    expect_match_as(REGEX_ONIGURUMA, pattern, text, want);
}

TEST(expressions_mean_what_oniguruma_takes_them_for) {
    expect_match("[a-f&&[^aeiou]]+", "eabcdx", "bcd");
    expect_match("[^a-c&&b-z]", "bcd", "d");
    expect_match("[a[0-9]]+", "x1a2", "1a2");
    expect_match("[^[^b]]", "abc", "b");
    expect_match("[[:alpha:]]+",
                 "1\xC3\xA9"
                 "a.",
                 "\xC3\xA9"
                 "a");
    expect_match("[[:^alpha:]]+", "a1.b", "1.");
    expect_match("\\h+", "xyz1fg", "1f");
    expect_match("a{2}+", "aaaaa", "aaaa"); /* (a{2})+, not possessive */
    expect_match("a{2}+a", "aaaaa", "aaaaa");
    expect_match("xa{,2}", "xaaa", "xaa");
    expect_match("x{a", "x{a", "x{a");
    expect_match("b$", "b\nc", "b"); /* lines */
    expect_match("^c", "b\nc", "c");
    expect_match("a.c", "a\nc", "-");
    expect_match("(?m)a.c", "a\nc", "a\nc");
    expect_match("\\s", "\xE1\xA0\x8E", "-"); /* U+180E is no space */
    expect_match("\\s", "\xC2\x85", "\xC2\x85");
    expect_match("\\bthe\\b", "athe the", "the");
    expect_match("(?i:'s)", "'\xC5\xBF", "'\xC5\xBF"); /* long s */
    expect_match("[\\S]+", " ab ", "ab");
    expect_match("[^\\S]+", "a \t", " \t");
    expect_match("\\v", "\n\v", "\v");
    expect_match("\\u0061\\x{62}\\x63", "abc", "abc");
    expect_match("a++b", "aab", "aab");
    expect_match("(?<=x)y(?!z)", "yxyzxy", "y");
    expect_match("\\w+", "a\xC2\xBD.", "a\xC2\xBD"); /* but not in a class */
    expect_match("[\\w]+", "a\xC2\xBD.", "a");
    expect_match("[\\p{Word}]+", "a\xC2\xBD.", "a");
    expect_match("\\p{ Posix_Punct}+", "a$\xE2\x82\xAC.b", "$\xE2\x82\xAC.");
    expect_match("\\p{Punct}+", "a$.b", ".");
    expect_match("[\\p{Decimal Number}\\p{titlecase_letter}]+", "a1\xC2\xBD.\xC7\x85", "1");
    expect_match("\\P{Cased_Letter}\\p{^Connector-Punctuation}\\p{Assigned}+", "a_\xC2\xAAz\xCD\xB8",
                 "_\xC2\xAAz");
    expect_match("[[:punct:]]+", "a\xE2\x82\xAC.b", "\xE2\x82\xAC.");
    expect_match("[\\P{Print}]+", "a \n\tb", "\n\t");
    expect_match("\\w+", "a\xE2\x80\x8D", "a");
    /* joiners, but no Latin-1's numbers */
    expect_match_as(REGEX_RUST, "\\w+", "a\xE2\x80\x8D\xC2\xBD", "a\xE2\x80\x8D");
    expect_match_as(REGEX_RUST, "[^\\W]+", "a\xE2\x80\x8D", "a\xE2\x80\x8D");
    /* scripts, not their extensions, where the full stop is Han: */
    expect_match("\\p{Han}+", "\xE4\xB8\xAD\xE3\x80\x82\xE6\x96\x87", "\xE4\xB8\xAD");
    expect_match("[\\p{Han}a]+", "\xE4\xB8\xAD\xE3\x80\x82", "\xE4\xB8\xAD");
    expect_match("\\P{Han}+", "\xE4\xB8\xAD\xE3\x80\x82\xE6\x96\x87", "\xE3\x80\x82");
    expect_match("\\p{^hiragana}+", "\xE3\x81\x82\xE3\x83\xBC", "\xE3\x83\xBC");
}

TEST(expressions_without_a_translation_are_refused) {
    static const char *const patterns[] = {"(*LIMIT_MATCH=1)a",
                                           "(*UTF)a",
                                           "a(?~b)",
                                           "\\g<1>",
                                           "(?x)a b",
                                           "[a",
                                           "(a",
                                           "a)",
                                           "\\",
                                           "[]",
                                           "[b-a]",
                                           "\\pL",
                                           "\\Ga",
                                           "[[:nope:]]",
                                           "\\x{110000}",
                                           "a\xFF",
                                           "(?P<n>a)",
                                           "\\C"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        expect_match(patterns[i], "a", "!");
    }
}

/* ---- JSON ---- */

TEST(a_json_string_gives_its_characters) {
    static const struct {
        const char *json, *want; /* NULL: malformed */
    } cases[] = {{"\"ab\"", "ab"},
                 {"\"a\\n\\u00e9\\\"\"", "a\n\xC3\xA9\""},
                 {"\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80"},
                 {"\"\\ud83dx\"", NULL}, /* half of a pair */
                 {"\"a", NULL},
                 {"\"\\u12\"", NULL},
                 {"\"\\q\"", NULL},
                 {"\"a\nb\"", NULL},
                 {"a", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_scan s = {.text = str_of(cases[i].json)};
        strbuf scratch = {0};
        str got;
        quire_err e = json_scan_string(&s, &scratch, &got);
        assert_int_equal(e, cases[i].want == NULL ? QUIRE_BAD_FILE : QUIRE_OK);
        assert_true(e != QUIRE_OK || str_is(got, cases[i].want));
        strbuf_deinit(&scratch);
    }
}

TEST(a_json_value_is_passed_over_whole) {
    json_scan s = {.text = str_of("{\"a\":[1,{\"b\":\"]}\\\"\"}],\"c\":-7}")};
    strbuf scratch = {0};
    str key, span;
    bool more;
    int64_t n;
    assert_int_equal(json_scan_open(&s, '{'), QUIRE_OK);
    assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    assert_int_equal(json_scan_key(&s, &scratch, &key), QUIRE_OK);
    assert_int_equal(json_scan_span(&s, &span), QUIRE_OK);
    assert_true(str_is(span, "[1,{\"b\":\"]}\\\"\"}]"));
    assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    assert_true(more);
    assert_int_equal(json_scan_key(&s, &scratch, &key), QUIRE_OK);
    assert_int_equal(json_scan_int(&s, &n), QUIRE_OK);
    assert_int_equal(n, -7);
    assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    assert_false(more);
    strbuf_deinit(&scratch);
}

/* ---- UTF-8 ---- */

TEST(wrong_utf8_becomes_one_replacement_for_each_maximal_part) {
    static const struct {
        const char *bytes, *want;
    } cases[] = {{"\xC0\x80", "??"},
                 {"\xE0\x80\x80", "???"},
                 {"\xF0\x9F\x98", "?"},
                 {"\xF0\x9F\x98"
                  "a",
                  "?a"},
                 {"\xED\xA0\x80", "???"},
                 {"\xF4\x90\x80\x80", "????"},
                 {"\xE6\xBC\xA2", "\xE6\xBC\xA2"},
                 {"a\x80", "a?"},
                 {"\xE6\xE6\xBC\xA2", "?\xE6\xBC\xA2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strbuf out = {0}, want = {0};
        assert_int_equal(utf8_add_lossy(&out, str_of(cases[i].bytes)), QUIRE_OK);
        for (const char *p = cases[i].want; *p != '\0'; p++) {
            assert_int_equal(*p == '?' ? strbuf_add_str(&want, UTF8_REPLACEMENT) : strbuf_add_char(&want, *p),
                             QUIRE_OK);
        }
        assert_true(str_eq((str){out.p, out.n}, (str){want.p, want.n}));
        strbuf_deinit(&out);
        strbuf_deinit(&want);
    }
}

TEST(a_buffer_without_room_still_ends_where_it_did) {
    quire_err (*const adds[])(strbuf *, str) = {utf8_add_lossy, byte_level_add};
    char piece[513];
    memset(piece, 'a', sizeof piece);
    piece[512] = '\x80';
    for (size_t i = 0; i < sizeof adds / sizeof *adds; i++) {
        strbuf b = {.max = 515};
        assert_int_equal(strbuf_add_str(&b, "ab"), QUIRE_OK);
        assert_int_equal(adds[i](&b, (str){piece, sizeof piece}), QUIRE_TOO_LARGE);
        assert_string_equal(b.p, "ab");
        strbuf_deinit(&b);
    }
}

TEST(every_byte_has_its_own_visible_character) {
    for (int32_t b = 0; b < 256; b++) {
        int32_t c = byte_level_char((uint8_t)b);
        assert_true(c > 0x20 && c < BYTE_LEVEL_CHARS);
        assert_int_equal(byte_level_byte(c), b);
    }
    assert_int_equal(byte_level_char(' '), 0x120);
    assert_int_equal(byte_level_byte(' '), -1);
    assert_int_equal(byte_level_byte(BYTE_LEVEL_CHARS), -1);
}

TEST(long_runs_of_marks_are_ordered_as_short_ones_are) {
    normalizer n = {.steps = {{.kind = NORM_NFD}}, .n = 1};
    norm_scratch s = {0};
    regex_scratch rs = {0};
    strbuf text = {0};
    str out;
    assert_int_equal(strbuf_add_char(&text, 'a'), QUIRE_OK);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(utf8_add(&text, i % 2 == 0 ? 0x301 : 0x323), QUIRE_OK); /* classes 230 and 220 */
    }
    assert_int_equal(normalizer_run(&n, (str){text.p, text.n}, &s, &rs, &out), QUIRE_OK);
    assert_int_equal(out.n, text.n);
    for (size_t i = 0; i < 1000; i++) {
        size_t len;
        assert_int_equal(utf8_next(out.p + 1 + 2 * i, &len), i < 500 ? 0x323 : 0x301);
    }
    strbuf_deinit(&text);
    norm_scratch_deinit(&s);
}

/* ---- merging ---- */

typedef struct toy {
    piece_table vocab;
    bpe b;
    float scores[64];
} toy;

/* a..d and n random joins of what is there. */
static void toy_init(toy *t, uint64_t *seed, bool sentencepiece, int32_t n) {
    *t = (toy){0};
    assert_int_equal(piece_table_init(&t->vocab, 64, 64, 1024), QUIRE_OK);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(piece_table_add(&t->vocab, i, (str){&"abcd"[i], 1}), QUIRE_OK);
    }
    t->b = (bpe){.vocab = &t->vocab, .unk = -1, .sentencepiece = sentencepiece};
    assert_int_equal(bpe_begin(&t->b, 64), QUIRE_OK);
    strbuf scratch = {0};
    int32_t next = 4;
    for (int32_t i = 0; i < n; i++) {
        char joined[64];
        str l = piece_table_get(&t->vocab, (int32_t)(rng_next(seed) % (uint64_t)next));
        str r = piece_table_get(&t->vocab, (int32_t)(rng_next(seed) % (uint64_t)next));
        if (l.n + r.n > sizeof joined) {
            continue;
        }
        memcpy(joined, l.p, l.n);
        memcpy(joined + l.n, r.p, r.n);
        char left[64], right[64];
        memcpy(left, l.p, l.n);
        memcpy(right, r.p, r.n);
        if (piece_table_find(&t->vocab, (str){joined, l.n + r.n}) < 0) {
            t->scores[next] = -(float)(rng_next(seed) % 8);
            assert_int_equal(piece_table_add(&t->vocab, next++, (str){joined, l.n + r.n}), QUIRE_OK);
        }
        if (!sentencepiece) {
            assert_int_equal(bpe_add_merge(&t->b, (uint32_t)i, (str){left, l.n}, (str){right, r.n}, &scratch),
                             QUIRE_OK);
        }
    }
    if (sentencepiece) {
        assert_int_equal(bpe_derive_merges(&t->b, t->scores), QUIRE_OK);
    }
    assert_int_equal(bpe_finish(&t->b, sentencepiece), QUIRE_OK);
    strbuf_deinit(&scratch);
}

/* Merges by the definition: look at all pairs, take the best, again. */
static size_t merge_plainly(const toy *t, const char *word, size_t n, int32_t *ids) {
    for (size_t i = 0; i < n; i++) {
        ids[i] = word[i] - 'a';
    }
    for (;;) {
        const pair_slot *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const pair_slot *p = pair_table_find(&t->b.pairs, ids[i], ids[i + 1]);
            if (p != NULL && (best == NULL || p->rank < best->rank)) {
                best = p;
                at = i;
            }
        }
        if (best == NULL) {
            return n;
        }
        ids[at] = best->id;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

/* Words of few symbols, of many, and of runs of one: each is merged in another way
 * (bpe.c). */
TEST(each_way_to_merge_is_merging_by_definition) {
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    bpe_scratch s = {0};
    for (int round = 0; round < 400; round++) {
        toy t;
        toy_init(&t, &seed, round % 2 == 1, 30);
        for (int k = 0; k < 20; k++) {
            char word[300];
            int32_t want[300];
            token_list got = {0};
            size_t n = 1 + rng_next(&seed) % (k % 2 == 0 ? 40 : sizeof word), run = k % 3 == 0 ? 40 : 1;
            for (size_t i = 0; i < n; i++) {
                word[i] =
                    i == 0 || rng_next(&seed) % run == 0 ? (char)('a' + rng_next(&seed) % 4) : word[i - 1];
            }
            assert_int_equal(bpe_encode(&t.b, (str){word, n}, &s, &got), QUIRE_OK);
            size_t n_want = merge_plainly(&t, word, n, want);
            assert_int_equal(got.n, n_want);
            assert_memory_equal(got.ids, want, n_want * sizeof *want);
            token_list_deinit(&got);
        }
        bpe_deinit(&t.b);
        piece_table_deinit(&t.vocab);
    }
    bpe_scratch_deinit(&s);
}

/* Normal forms pass over ASCII: what they make of a text is what utf8proc makes of all of
 * it. */
TEST(normal_forms_of_texts_with_ascii_are_those_of_the_whole) {
    static const int32_t chars[] = {'a',    'e',    ' ',    'A',    '~',    0x301,  0x323,  0xE9,
                                    0x1EB9, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xFB01, 0x3099, 0x304B};
    static const int options[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                  UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    static const norm_kind forms[] = {NORM_NFC, NORM_NFD, NORM_NFKC, NORM_NFKD};
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    norm_scratch s = {0};
    regex_scratch rs = {0};
    strbuf text = {0};
    for (int round = 0; round < 20000; round++) {
        strbuf_clear(&text);
        for (size_t n = 1 + rng_next(&seed) % 12; n > 0; n--) {
            assert_int_equal(utf8_add(&text, chars[rng_next(&seed) % (sizeof chars / sizeof *chars)]),
                             QUIRE_OK);
        }
        normalizer norm = {.n = 1, .steps = {{.kind = forms[round % 4]}}};
        utf8proc_uint8_t *whole = NULL;
        utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text.p, (utf8proc_ssize_t)text.n, &whole,
                                          (utf8proc_option_t)(UTF8PROC_STABLE | options[round % 4]));
        str got;
        assert_true(n > 0);
        assert_int_equal(normalizer_run(&norm, (str){text.p, text.n}, &s, &rs, &got), QUIRE_OK);
        assert_int_equal(got.n, n);
        assert_memory_equal(got.p, whole, (size_t)n);
        free(whole);
    }
    strbuf_deinit(&text);
    norm_scratch_deinit(&s);
    regex_scratch_deinit(&rs);
}

/* Unknown words in a row are one token, but an added token between them is no word, also
 * where its id is the same. */
TEST(unknown_words_are_one_as_far_as_they_follow_each_other) {
    enum { UNKNOWN = 1, KNOWN = 2 };
    piece_table few = {0};
    piece_model m;
    model_scratch s = {0};
    token_list ids = {0};
    assert_int_equal(piece_table_init(&few, 3, 3, 16), QUIRE_OK);
    assert_int_equal(piece_table_add(&few, KNOWN, str_of("ab")), QUIRE_OK);
    piece_model_init(&m, &piece_model_words, &few, UNKNOWN);
    assert_int_equal(token_list_add(&ids, UNKNOWN), QUIRE_OK); /* added, as the next one but two */
    assert_int_equal(m.ops->encode(&m, str_of("x"), &s, &ids), QUIRE_OK);
    assert_int_equal(m.ops->encode(&m, str_of("y"), &s, &ids), QUIRE_OK);
    assert_int_equal(token_list_add(&ids, UNKNOWN), QUIRE_OK);
    assert_int_equal(m.ops->encode(&m, str_of("x"), &s, &ids), QUIRE_OK);
    assert_int_equal(m.ops->encode(&m, str_of("ab"), &s, &ids), QUIRE_OK);
    assert_int_equal(m.ops->encode(&m, str_of("x"), &s, &ids), QUIRE_OK);
    const int32_t want[] = {UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, KNOWN, UNKNOWN};
    assert_int_equal(ids.n, sizeof want / sizeof *want);
    assert_memory_equal(ids.ids, want, sizeof want);
    token_list_deinit(&ids);
    model_scratch_deinit(&s);
    piece_model_deinit(&m);
    piece_table_deinit(&few);
}

/* So are unknown characters, also where they are parts of a piece. */
TEST(unknown_characters_in_a_row_are_one_token) {
    enum { UNKNOWN = 0, KNOWN = 1, PIECE = 2 };
    piece_table few = {0};
    piece_model m;
    model_scratch s = {0};
    token_list ids = {0};
    assert_int_equal(piece_table_init(&few, 3, 3, 16), QUIRE_OK);
    assert_int_equal(piece_table_add(&few, KNOWN, str_of("a")), QUIRE_OK);
    assert_int_equal(piece_table_add(&few, PIECE, str_of("x>y")), QUIRE_OK);
    piece_model_init(&m, &piece_model_bpe, &few, UNKNOWN);
    m.bpe.sentencepiece = true;
    assert_int_equal(bpe_begin(&m.bpe, 8), QUIRE_OK);
    assert_int_equal(bpe_derive_merges(&m.bpe, NULL), QUIRE_OK);
    assert_int_equal(bpe_finish(&m.bpe, true), QUIRE_OK);
    assert_int_equal(m.ops->encode(&m, str_of("a>>?>a>"), &s, &ids), QUIRE_OK);
    const int32_t want[] = {KNOWN, UNKNOWN, KNOWN, UNKNOWN};
    assert_int_equal(ids.n, sizeof want / sizeof *want);
    assert_memory_equal(ids.ids, want, sizeof want);
    token_list_deinit(&ids);
    model_scratch_deinit(&s);
    piece_model_deinit(&m);
    piece_table_deinit(&few);
}

/* An empty text may have no address: under UBSan nothing is added to one. */
TEST(an_empty_text_is_searched_and_replaced) {
    char literal[] = "ab";
    matcher m = {.literal = literal, .n_literal = 2};
    match_iter it = {.subject = {NULL, 0}};
    regex_scratch s = {0};
    strbuf out = {0};
    bool found = true;
    assert_int_equal(matcher_next(&m, &s, &it, &found), QUIRE_OK);
    assert_false(found);
    assert_int_equal(matcher_replace(&m, &s, (str){NULL, 0}, str_of("x"), &out), QUIRE_OK);
    assert_int_equal(out.n, 0);
    assert_int_equal(matcher_replace(&m, &s, str_of("abcab"), str_of("x"), &out), QUIRE_OK);
    assert_string_equal(out.p, "xcx");
    strbuf_deinit(&out);
    regex_scratch_deinit(&s);
}

/* A search that is paced, a few starts at a time, finds the same as one over all starts:
 * fillers between the matches are longer or shorter than a pace, and of characters of one
 * to four bytes. */
TEST(a_paced_search_finds_every_match) {
    static const char *const fillers[] = {"a", "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\n"};
    static const char *const patterns[] = {"x+", "(?<![x])x+(?!x)", "x++(?=[^x]|$)", "[x-z]{2,}?(?!x)"};
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 200; round++) {
        strbuf text = {0}, want = {0}, got = {0};
        for (uint64_t n = rng_next(&seed) % 6; n > 0; n--) {
            for (uint64_t k = 1 + rng_next(&seed) % (n % 2 == 0 ? 20 : 2000); k > 0; k--) {
                assert_int_equal(strbuf_add_str(&text, fillers[rng_next(&seed) % 5]), QUIRE_OK);
            }
            assert_int_equal(strbuf_addf(&want, " %zu..%zu", text.n, text.n + 2), QUIRE_OK);
            assert_int_equal(strbuf_add_str(&text, "xx"), QUIRE_OK);
        }
        matcher m = {0};
        regex_scratch s = {0};
        quire_error err = {0};
        match_iter it = {.subject = {text.p, text.n}};
        assert_int_equal(regex_open(str_of(patterns[round % 4]), &m.re, &err), QUIRE_OK);
        for (bool found = true; found;) {
            assert_int_equal(matcher_next(&m, &s, &it, &found), QUIRE_OK);
            assert_int_equal(found ? strbuf_addf(&got, " %zu..%zu", it.start, it.end) : QUIRE_OK, QUIRE_OK);
        }
        assert_true(str_eq((str){got.p, got.n}, (str){want.p, want.n}));
        matcher_deinit(&m);
        regex_scratch_deinit(&s);
        strbuf_deinit(&text);
        strbuf_deinit(&want);
        strbuf_deinit(&got);
    }
}

TEST_MAIN(NULL, NULL)
