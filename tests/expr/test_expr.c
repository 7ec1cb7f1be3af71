/* Expressions: their meaning, what is refused, and compiled programs compared with
 * trees. */
#include "base/comma_locale.h"

#include "base/rng.h"
#include "expr/expr_case.h"

static const int32_t doc_data[CASE_N_KV] = {0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 4, 4, 4, -5, 7};
static const int32_t tree_data[3 * 4] = {1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1};
static const float slope_data[CASE_N_HEADS] = {0.5f, 0.25f, 0.125f, 1.0f, -1.0f, 2.0f, 0.0f, 3.0f};
static const attn_array arrays[] = {
    {.name = "doc", .n_dims = 1, .dims = {CASE_N_KV}, .data = doc_data},
    {.name = "tree", .n_dims = 2, .dims = {3, 4}, .data = tree_data},
    {.name = "slope", .is_float = true, .n_dims = 1, .dims = {CASE_N_HEADS}, .data = slope_data}};
enum { N_ARRAYS = 3 };

static case_result result;

/* Compiles and compares with the tree; the result of the program is in `result`. */
static void run_text(expr_kind kind, const char *text, int64_t q0) {
    quire_error err = {0};
    static attn_program p;
    if (expr_compile(kind, str_of(text), arrays, N_ARRAYS, &p, &err) != QUIRE_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    if (case_compare(kind, str_of(text), arrays, N_ARRAYS, attn_run_plain, q0, &result) != 1) {
        fail_msg("%s: the program differs from the tree", text);
    }
}

/* The text means in C what it means here, for every query and key. */
#define SAME_MASK(expression)                                                                                \
    do {                                                                                                     \
        run_text(EXPR_MASK, #expression, 5);                                                                 \
        for (int32_t i = 0; i < CASE_QUERIES; i++) {                                                         \
            for (int32_t k = 0; k < CASE_N_KV; k++) {                                                        \
                const case_point at = case_at(5, i, k);                                                      \
                int64_t q_idx = at.row[ATTN_ROW_Q_IDX], h = at.row[ATTN_ROW_H], b = at.row[ATTN_ROW_B],      \
                        kv_idx = k;                                                                          \
                int64_t n_kv = at.row[ATTN_ROW_N_KV];                                                        \
                (void)q_idx, (void)h, (void)b, (void)kv_idx, (void)n_kv;                                     \
                assert_int_equal(result.value[i][k].i, (expression) != 0);                                   \
            }                                                                                                \
        }                                                                                                    \
    } while (0)

/* Clang and gcc warn of precedence that a reader may not know; that it is C's is the
 * point. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wparentheses"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wlogical-op-parentheses"
#pragma GCC diagnostic ignored "-Wbitwise-op-parentheses"
#pragma GCC diagnostic ignored "-Wshift-op-parentheses"
#endif
TEST(integers_and_precedence_are_those_of_c) {
    SAME_MASK(q_idx >= kv_idx);
    SAME_MASK(q_idx >= kv_idx && 1 + kv_idx * 2 % 5 < 4 || q_idx == kv_idx);
    SAME_MASK((kv_idx - q_idx) / 4 == -1);
    SAME_MASK((kv_idx - q_idx) % 4 == -3);
    SAME_MASK(kv_idx & 4 ^ 2 | q_idx & 1);
    SAME_MASK(!(q_idx ^ kv_idx) & 4);
    SAME_MASK(~kv_idx + 1 == -kv_idx);
    SAME_MASK(1 << 2 + 1 == kv_idx);
    SAME_MASK(kv_idx >> 1 < 3 == 1);
    SAME_MASK(h ? kv_idx < 3 : b ? kv_idx > 7 : kv_idx == 5);
    SAME_MASK(kv_idx - 3 - 2 - 1);
    SAME_MASK(kv_idx * 7 / 3 % 5 > 2 && n_kv - kv_idx != 4);
    SAME_MASK(kv_idx != 0 && 12 / kv_idx == 3);
    SAME_MASK(kv_idx == 0 || 12 % kv_idx == 3);
    SAME_MASK(kv_idx ? 12 / kv_idx == 3 : 1);
    SAME_MASK((1.5 < (kv_idx ? 2.5 : .5)) + (kv_idx < 9) == 2);
    SAME_MASK(!0.0 && !(kv_idx - 2 ? 1.0 : 0.0));
}
#pragma GCC diagnostic pop

static float score_of(const char *text) {
    run_text(EXPR_SCORE, text, 5);
    assert_int_equal(result.faults[3][10], 0);
    return result.value[3][10].f; /* q_idx 8, h 3, b 1, kv_idx 10, score 0.25 */
}

TEST(floats_make_an_operation_one_of_floats) {
    assert_true(score_of("score / 3") == 0.25f / 3.0f);
    assert_true(score_of("kv_idx / 4 * 0.5") == 1.0f);
    assert_true(score_of("kv_idx / 4.0 * 0.5") == 1.25f);
    assert_true(score_of("score + slope[h] * (kv_idx - q_idx)") == 2.25f);
    assert_true(score_of("1 ? 2 : 3.5") == 2.0f);
    assert_true(score_of("abs(q_idx - kv_idx) / 4") == 0.0f);
    assert_true(score_of("abs(-1.5) + abs(2 - 4)") == 3.5f);
    assert_true(score_of("floor(kv_idx / 4)") == 2.0f && score_of("floor(kv_idx / 4.0 - 5)") == -3.0f);
    assert_true(score_of("min(3, 4) / 2") == 1.0f && score_of("max(3, 4.0) / 8") == 0.5f);
    assert_true(score_of("pow(2, -1)") == 0.5f && score_of("sqrt(9)") == 3.0f && score_of("exp(0)") == 1.0f);
    assert_true(score_of("-score") == -0.25f && score_of("+.5e1") == 5.0f && score_of("1. - 1e-1") == 0.9f);
    assert_true(score_of("tree[1][h]") == 1.0f && score_of("doc[kv_idx] + doc[q_idx]") == 7.0f);
}

/* A host program may have set a locale whose numbers have a decimal comma. */
COMMA_TEST(a_decimal_point_is_one_under_every_locale) {
    assert_true(score_of("1.5") == 1.5f && score_of(".5") == 0.5f && score_of("2.") == 2.0f &&
                score_of("00.25") == 0.25f);
    assert_true(score_of("1e-3") == (float)1e-3 && score_of("1.e3") == 1000.0f &&
                score_of("12.25E+1") == 122.5f);
    assert_true(score_of("123.456e2") == (float)12345.6 && score_of("3.4028234e38") == (float)3.4028234e38);
    assert_true(score_of(".00000000000000000000000000000000000001") == (float)1e-38 &&
                score_of("1.5e-99999999999") == 0.0f);
}

/* From 0 to 1. */
static double uniform(uint64_t *seed) {
    return rng_uniform((uint32_t)(rng_next(seed) >> 32));
}

TEST(functions_are_right_to_a_float) {
    uint64_t seed = 7;
    for (int i = 0; i < 200000; i++) {
        float x = (float)((uniform(&seed) - 0.5) * pow(10.0, uniform(&seed) * 16.0 - 8.0));
        float y = (float)((uniform(&seed) - 0.5) * 20.0), a = fabsf(x);
        assert_true(fabs(attn_log(a) - log((double)a)) <= 1.2e-7 * fabs(log((double)a)));
        assert_true(fabs(attn_sin(x) - sin((double)x)) <= 1.2e-7 * fabs(sin((double)x)));
        assert_true(fabs(attn_cos(x) - cos((double)x)) <= 1.2e-7 * fabs(cos((double)x)));
        double p = pow((double)a, (double)y);
        assert_true(p > 3e38 || p < 1e-37 || fabs(attn_pow(a, y) - p) <= 1.2e-7 * p);
    }
    static const float special[] = {0.0f, -0.0f, 1.0f,     -1.0f,     2.0f, -2.0f, 0.5f,   -0.5f,
                                    3.0f, -3.0f, INFINITY, -INFINITY, NAN,  1e30f, -1e30f, 1e-40f};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        for (size_t k = 0; k < sizeof special / sizeof *special; k++) {
            float got = attn_pow(special[i], special[k]), want = powf(special[i], special[k]);
            if (!(isnan(got) ? isnan(want)
                             : signbit(got) == signbit(want) && fabsf(got - want) <= 1e-6f * fabsf(want)) &&
                got != want) {
                fail_msg("pow(%g, %g) is %g, must be %g", (double)special[i], (double)special[k], (double)got,
                         (double)want);
            }
        }
        assert_true(isnan(special[i]) || attn_log(special[i]) == logf(special[i]) ||
                    isnan(logf(special[i])) || fabsf(attn_log(special[i]) - logf(special[i])) < 1e-5f);
    }
}

TEST(what_faults_is_what_c_would_evaluate) {
    static const struct {
        const char *text;
        unsigned at_key_0, at_key_39;
    } cases[] = {{"10 / kv_idx > 2", ATTN_FAULT_DIVISION, 0},
                 {"kv_idx && 10 % kv_idx", 0, 0},
                 {"kv_idx || 10 % kv_idx", ATTN_FAULT_DIVISION, 0},
                 {"kv_idx ? 10 / kv_idx : 0", 0, 0},
                 {"kv_idx ? 10 / kv_idx : 10 / kv_idx", ATTN_FAULT_DIVISION, 0},
                 {"doc[kv_idx + 1]", 0, ATTN_FAULT_INDEX},
                 {"doc[kv_idx - 1] || tree[3][0]", ATTN_FAULT_INDEX, ATTN_FAULT_INDEX},
                 {"tree[0][kv_idx] / 0.0 > 1 && 1 / (h - h)", ATTN_FAULT_DIVISION,
                  ATTN_FAULT_INDEX | ATTN_FAULT_DIVISION},
                 {"0 && 1 / (h - h)", 0, 0},
                 {"1 / (h - h)", ATTN_FAULT_DIVISION, ATTN_FAULT_DIVISION}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_text(EXPR_MASK, cases[i].text, 5);
        if (result.faults[3][0] != cases[i].at_key_0 || result.faults[3][39] != cases[i].at_key_39) {
            fail_msg("%s: faults %u and %u", cases[i].text, result.faults[3][0], result.faults[3][39]);
        }
    }
}

TEST(a_wrong_expression_is_refused_with_its_column) {
    static const struct {
        const char *text, *message;
    } cases[] = {{"", "column 1: expected a number, a name or '(', but the expression ends"},
                 {"q_idx >= ", "column 10: expected a number, a name or '(', but the expression ends"},
                 {"q_idx = kv_idx", "column 7: '=' assigns nothing here; equality is '=='"},
                 {"q_idx kv_idx", "column 7: expected an operator or the end, not 'kv_idx'"},
                 {"q_ids > 1", "column 1: 'q_ids' is not a known name; did you mean 'q_idx'?"},
                 {"frobnicate", "column 1: 'frobnicate' is neither a variable (b, h, q_idx, kv_idx, n_heads, "
                                "n_kv) nor one of the arrays"},
                 {"score > 1", "column 1: a mask_mod cannot use score; only a score_mod can"},
                 {"kv_idx % 2.0", "column 8: '%' takes integers, but an operand is a float"},
                 {"doc[1.5]", "column 5: an index of 'doc' must be an integer, not a float"},
                 {"doc", "column 4: 'doc' has 1 dimensions but is given 0 indices"},
                 {"doc[1][2]", "column 7: 'doc' has 1 dimensions but is given more indices"},
                 {"tree[1]", "column 8: 'tree' has 2 dimensions but is given 1 indices"},
                 {"min(1)", "column 6: expected ',' and a second argument, not ')'"},
                 {"tanh(1, 2)", "column 7: expected ')' after the last argument, not ','"},
                 {"kv_idx / (2 - 2)", "column 8: an integer is divided by 0"},
                 {"007", "column 1: a number that begins with 0 would be octal in C; leave the 0 out"},
                 {"9223372036854775808", "column 1: the number does not fit in 64 bits"},
                 {"1e99", "column 1: the number does not fit in a 32-bit float"},
                 {"1e", "column 2: an exponent has no digits"},
                 {"12abc", "column 3: 'a' cannot follow a number"},
                 {"kv_idx $ 2", "column 8: '$' is not an operator"},
                 {"kv_idx \x01", "column 8: byte 0x01 cannot be part of an expression"},
                 {"h ? 1", "column 6: expected ':' and the other alternative, but the expression ends"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static attn_program p;
        quire_error err = {0};
        assert_int_equal(expr_compile(EXPR_MASK, str_of(cases[i].text), arrays, N_ARRAYS, &p, &err),
                         QUIRE_INVALID);
        assert_string_equal(err.message, cases[i].message);
    }
}

TEST(budgets_hold) {
    static attn_program p;
    static char text[EXPR_MAX_LENGTH + 2];
    quire_error err = {0};
    memset(text, ' ', EXPR_MAX_LENGTH);
    text[0] = '1';
    assert_int_equal(expr_compile(EXPR_MASK, (str){text, EXPR_MAX_LENGTH}, NULL, 0, &p, &err), QUIRE_OK);
    assert_int_equal(expr_compile(EXPR_MASK, (str){text, EXPR_MAX_LENGTH + 1}, NULL, 0, &p, &err),
                     QUIRE_INVALID);
    memset(text, '-', EXPR_MAX_LENGTH);
    assert_int_equal(expr_compile(EXPR_MASK, (str){text, EXPR_MAX_LENGTH}, NULL, 0, &p, &err), QUIRE_INVALID);
    for (int i = 0; i < EXPR_MAX_LENGTH / 2; i++) {
        memcpy(text + (size_t)2 * (size_t)i, "h+", 2);
    }
    assert_int_equal(expr_compile(EXPR_MASK, (str){text, EXPR_MAX_LENGTH - 1}, NULL, 0, &p, &err),
                     QUIRE_INVALID);
    assert_non_null(strstr(err.message, "over 512 numbers"));
    attn_array named_h = {.name = "h", .n_dims = 1, .dims = {1}, .data = doc_data},
               empty = {.name = "e", .n_dims = 1};
    assert_int_equal(expr_compile(EXPR_MASK, str_of("1"), &named_h, 1, &p, &err), QUIRE_INVALID);
    assert_int_equal(expr_compile(EXPR_MASK, str_of("1"), &empty, 1, &p, &err), QUIRE_INVALID);
    assert_int_equal(expr_compile(EXPR_MASK, str_of("1"), arrays, ATTN_PROGRAM_ARRAYS + 1, &p, &err),
                     QUIRE_INVALID);
}

/* n times `open`, kv_idx, n times `close`. */
static quire_err compile_nested(int n, const char *open, const char *close, quire_error *err) {
    static attn_program p;
    static char text[EXPR_MAX_LENGTH + 1];
    size_t length = 0;
    for (int i = 0; i < 2 * n + 1; i++) {
        length += (size_t)snprintf(text + length, sizeof text - length, "%s",
                                   i < n    ? open
                                   : i == n ? "kv_idx"
                                            : close);
    }
    return expr_compile(EXPR_SCORE, (str){text, length}, arrays, N_ARRAYS, &p, err);
}

TEST(as_many_levels_as_are_documented_and_no_more_are_read) {
    static const char *const levels[][2] = {{"(", ")"},       {"-", ""},        {"abs(", ")"}, {"doc[", "]"},
                                            {"h ? 2 : ", ""}, {"h ? ", " : 2"}, {"!", ""}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        quire_error err = {0};
        if (compile_nested(EXPR_MAX_DEPTH, levels[i][0], levels[i][1], &err) != QUIRE_OK) {
            fail_msg("64 times '%s': %s", levels[i][0], err.message);
        }
        assert_int_equal(compile_nested(EXPR_MAX_DEPTH + 1, levels[i][0], levels[i][1], &err), QUIRE_INVALID);
        assert_non_null(strstr(err.message, "over 64 levels deep"));
    }
}

TEST(as_many_parts_as_are_documented_and_no_more_are_read) {
    static attn_program p;
    static char text[EXPR_MAX_LENGTH + 1];
    quire_error err = {0};
    size_t n = (size_t)snprintf(text, sizeof text, "-kv_idx"); /* a sign, 256 names, 255 operators */
    for (int i = 0; i < EXPR_MAX_NODES / 2 - 1; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "+kv_idx");
    }
    assert_int_equal(expr_compile(EXPR_MASK, (str){text + 1, n - 1}, NULL, 0, &p, &err), QUIRE_OK);
    assert_int_equal(expr_compile(EXPR_MASK, (str){text, n}, NULL, 0, &p, &err), QUIRE_OK);
    text[n] = '\0';
    memmove(text + 1, text, n);
    text[0] = '-';
    assert_int_equal(expr_compile(EXPR_MASK, (str){text, n + 1}, NULL, 0, &p, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "over 512 numbers"));
}

/* n terms, of the numbers from 2 on, joined by ||. */
static void add_terms(const char *before, const char *behind, int n, strbuf *to) {
    for (int i = 0; i < n; i++) {
        strbuf_addf(to, "%s%s%d%s", i > 0 ? " || " : "", before, i + 2, behind);
    }
}

/* More constants than there are vectors, for integers and floats, and where key code
 * reads the same ones. */
TEST(constants_beside_a_query_are_as_many_as_fit_the_text) {
    strbuf distances = {0}, scores = {0}, both = {0};
    add_terms("q_idx - kv_idx == ", "", 85, &distances);
    run_text(EXPR_MASK, distances.p, 29);
    add_terms("score == ", ".25", 100, &scores);
    run_text(EXPR_SCORE, scores.p, 5);
    strbuf_add_str(&both, "(");
    add_terms("kv_idx % ", " == 1", 40, &both);
    strbuf_add_str(&both, ") && (");
    add_terms("q_idx - kv_idx == ", "", 40, &both);
    strbuf_add_str(&both, ")");
    run_text(EXPR_MASK, both.p, 29);
    strbuf_deinit(&distances);
    strbuf_deinit(&scores);
    strbuf_deinit(&both);
}

TEST(as_many_arrays_as_are_documented_and_no_more_are_read) {
    static attn_program p;
    static attn_array many[ATTN_PROGRAM_ARRAYS + 1];
    quire_error err = {0};
    for (int i = 0; i <= ATTN_PROGRAM_ARRAYS; i++) {
        many[i] = (attn_array){.n_dims = ATTN_ARRAY_DIMS, .dims = {1, 1, 1, 1}, .data = doc_data};
        memset(many[i].name, 'a' + i, ATTN_ARRAY_NAME);
    }
    char text[ATTN_ARRAY_NAME + 13];
    snprintf(text, sizeof text, "%s[0][0][0][0]", many[ATTN_PROGRAM_ARRAYS - 1].name);
    assert_int_equal(expr_compile(EXPR_MASK, str_of(text), many, ATTN_PROGRAM_ARRAYS, &p, &err), QUIRE_OK);
    assert_int_equal(expr_compile(EXPR_MASK, str_of(text), many, ATTN_PROGRAM_ARRAYS + 1, &p, &err),
                     QUIRE_INVALID);
    many[0].n_dims = ATTN_ARRAY_DIMS + 1;
    assert_int_equal(expr_compile(EXPR_MASK, str_of(text), many, ATTN_PROGRAM_ARRAYS, &p, &err),
                     QUIRE_INVALID);
}

/* ---- verdicts over rectangles ---- */

static attn_seen seen(const char *text, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
    static attn_program p;
    assert_int_equal(expr_compile(EXPR_MASK, str_of(text), arrays, N_ARRAYS, &p, NULL), QUIRE_OK);
    return attn_program_seen(
        &p, &(attn_rectangle){.row = {{q0, q1}, {0, 3}, {0, 0}, {4, 4}, {100, 100}}, .kv_idx = {k0, k1}});
}

TEST(rectangles_that_a_mask_empties_or_fills_are_known) {
    const char *causal = "q_idx >= kv_idx", *window = "q_idx >= kv_idx && q_idx - kv_idx < 64",
               *chunks = "q_idx / 32 == kv_idx / 32";
    assert_int_equal(seen(causal, 512, 520, 0, 255), ATTN_SEES_ALL);
    assert_int_equal(seen(causal, 512, 520, 521, 767), ATTN_SEES_NONE);
    assert_int_equal(seen(causal, 512, 520, 512, 767), ATTN_SEES_SOME);
    assert_int_equal(seen(window, 512, 520, 0, 255), ATTN_SEES_NONE);
    assert_int_equal(seen(window, 512, 520, 470, 500), ATTN_SEES_ALL);
    assert_int_equal(seen(chunks, 64, 95, 64, 95), ATTN_SEES_ALL);
    assert_int_equal(seen(chunks, 64, 95, 0, 63), ATTN_SEES_NONE);
    assert_int_equal(seen("doc[q_idx] == doc[kv_idx]", 0, 2, 3, 8), ATTN_SEES_NONE);
    assert_int_equal(seen("doc[q_idx] == doc[kv_idx]", 0, 2, 0, 1), ATTN_SEES_ALL);
    assert_int_equal(seen("kv_idx < 48 ? 1 : h == 9", 0, 2, 0, 47), ATTN_SEES_ALL);
    assert_int_equal(seen("h != 9", 0, 2, 0, 47), ATTN_SEES_ALL);
    assert_int_equal(seen("kv_idx < 48 || 1 / (h - 1)", 0, 2, 0, 47), ATTN_SEES_ALL);
    assert_int_equal(seen("kv_idx < 48 && 1 / (h - 1)", 0, 2, 0, 47), ATTN_SEES_SOME);
    /* some indices are outside */
    assert_int_equal(seen("kv_idx < 48 && doc[kv_idx] == 99", 0, 2, 30, 47), ATTN_SEES_SOME);
}

TEST(rectangles_of_masks_with_bits_and_floats_are_known) {
    const char *blocks = "(q_idx & ~63) == (kv_idx & ~63)", *window = "q_idx - kv_idx < 64.0";
    assert_int_equal(seen(blocks, 64, 127, 64, 127), ATTN_SEES_ALL);
    assert_int_equal(seen(blocks, 64, 127, 0, 63), ATTN_SEES_NONE);
    assert_int_equal(seen(blocks, 64, 127, 0, 64), ATTN_SEES_SOME);
    assert_int_equal(seen("(-64 & kv_idx - 70) < 0", 0, 2, 0, 69), ATTN_SEES_ALL);
    assert_int_equal(seen("((q_idx - kv_idx) & 15) < 16", 0, 2, 0, 69), ATTN_SEES_ALL);
    assert_int_equal(seen("(kv_idx & kv_idx - 5) < 0", 0, 2, 0, 69), ATTN_SEES_NONE);
    assert_int_equal(seen(window, 512, 520, 0, 255), ATTN_SEES_NONE);
    assert_int_equal(seen(window, 512, 520, 470, 500), ATTN_SEES_ALL);
    assert_int_equal(seen(window, 512, 520, 440, 500), ATTN_SEES_SOME);
    assert_int_equal(seen("kv_idx - 100 >= -.5", 0, 2, 100, 200), ATTN_SEES_ALL);
    assert_int_equal(seen("h == 9 ? 0.0 : 1.5", 0, 2, 0, 69), ATTN_SEES_ALL);
    assert_int_equal(seen("kv_idx != 0.0 / 0.0", 0, 2, 0, 69), ATTN_SEES_SOME); /* a NaN has no range */
    assert_int_equal(seen("slope[h] < 9.0", 0, 2, 0, 69), ATTN_SEES_SOME);
}

/* Verdicts over the parts of a rectangle, against every point (case_seen_agrees). */
TEST(no_verdict_contradicts_a_point) {
    static const char *const masks[] = {"(q_idx & ~7) == (kv_idx & ~7)",
                                        "(q_idx - kv_idx & ~7) == -8",
                                        "(q_idx - kv_idx & 7) < 3",
                                        "(-8 & kv_idx - q_idx) >= 0",
                                        "(kv_idx & q_idx) > 8",
                                        "(kv_idx - 9 & kv_idx) > 8",
                                        "q_idx - kv_idx < 4.0",
                                        "q_idx - kv_idx >= -.5",
                                        "kv_idx == 8.0 || kv_idx != q_idx + 0.0",
                                        "(kv_idx < 8 ? 0.0 : kv_idx < 16 ? 1.5 : -2.5) <= -0.0",
                                        "16777217 + kv_idx == 16777216.0",
                                        "n_kv - kv_idx <= 4",
                                        "kv_idx < n_kv - 36 || h == n_heads - 1"};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        for (int64_t q0 = 0; q0 < 40; q0 += 9) {
            run_text(EXPR_MASK, masks[i], q0);
        }
    }
}

/* ---- random expressions ---- */

static int32_t pick(uint64_t *seed, int32_t n) {
    return (int32_t)(rng_next(seed) % (uint64_t)n);
}

/* Writes a random expression to text; floats are allowed where the context takes them. */
static void random_text(uint64_t *seed, int32_t depth, bool floats, bool score, strbuf *to) {
    static const char *const any[] = {"+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "&&", "||"},
                             *const ints[] = {"%", "&", "|", "^", "<<", ">>"};
    static const char *const leaves[] = {"q_idx", "kv_idx", "h", "b", "n_kv", "n_heads",
                                         "0",     "1",      "3", "7", "40"};
    static const char *const functions[] = {"tanh", "exp", "log", "sqrt", "floor", "sin", "cos"};
    int32_t form = depth == 0 ? pick(seed, 3) : pick(seed, 12);
    if (form == 0 && floats) {
        strbuf_addf(to, score ? "score" : "%d.5", (int)pick(seed, 9));
    } else if (form < 3) {
        strbuf_add_str(to, leaves[pick(seed, sizeof leaves / sizeof *leaves)]);
    } else if (form == 3) {
        const char *array = floats && pick(seed, 2) == 0 ? "slope[" : "doc[";
        strbuf_add_str(to, array);
        random_text(seed, depth - 1, false, score, to);
        strbuf_add_str(to, "]");
    } else if (form == 4) {
        strbuf_add_str(to, pick(seed, 2) == 0 ? "(-" : "(!");
        random_text(seed, depth - 1, floats, score, to);
        strbuf_add_str(to, ")");
    } else if (form == 5 && floats) {
        strbuf_addf(to, "%s(", functions[pick(seed, sizeof functions / sizeof *functions)]);
        random_text(seed, depth - 1, true, score, to);
        strbuf_add_str(to, ")");
    } else if (form == 6) {
        strbuf_add_str(to, pick(seed, 2) == 0 ? "min(" : "max(");
        random_text(seed, depth - 1, floats, score, to);
        strbuf_add_str(to, ", ");
        random_text(seed, depth - 1, floats, score, to);
        strbuf_add_str(to, ")");
    } else if (form == 7) {
        strbuf_add_str(to, "(");
        random_text(seed, depth - 1, true, score, to);
        strbuf_add_str(to, " ? ");
        random_text(seed, depth - 1, floats, score, to);
        strbuf_add_str(to, " : ");
        random_text(seed, depth - 1, floats, score, to);
        strbuf_add_str(to, ")");
    } else {
        bool whole = form == 8;
        strbuf_add_str(to, "(");
        random_text(seed, depth - 1, floats && !whole, score, to);
        strbuf_addf(to, " %s ", whole ? ints[pick(seed, 6)] : any[pick(seed, 12)]);
        random_text(seed, depth - 1, floats && !whole, score, to);
        strbuf_add_str(to, ")");
    }
}

TEST(programs_give_what_their_trees_give) {
    int32_t n_compiled = 0, n_faults = 0, n = 3000;
    for (int32_t i = 0; i < n; i++) {
        uint64_t seed = (uint64_t)(i + 1);
        strbuf text = {0};
        expr_kind kind = i % 2 == 0 ? EXPR_MASK : EXPR_SCORE;
        random_text(&seed, 2 + i % 4, kind == EXPR_SCORE || i % 4 == 0, kind == EXPR_SCORE, &text);
        int agree =
            case_compare(kind, (str){text.p, text.n}, arrays, N_ARRAYS, attn_run_plain, i % 30, &result);
        if (agree == 0) {
            fail_msg("seed %d: %s", (int)(i + 1), text.p);
        }
        n_compiled += agree == 1;
        n_faults += agree == 1 && result.faults[0][0] != 0;
        strbuf_deinit(&text);
    }
    printf("%d of %d random expressions compiled, %d with faults at a point\n", (int)n_compiled, (int)n,
           (int)n_faults);
    assert_true(n_compiled > n / 2 && n_faults > n / 20);
}

TEST_MAIN(NULL, NULL)
