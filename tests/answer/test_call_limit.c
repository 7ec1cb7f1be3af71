#include "answer/output_events.h"
#include "test.h"

#include <string.h>

/* Passes calls "NAME ARGUMENTS|NAME ARGUMENTS", the arguments in pieces of n bytes; "!"
 * after the last: it does not end. Writes what the reader gets as "NAME ARGUMENTS;". */
static void pass(call_limit *l, const char *calls, size_t n, strbuf *out) {
    output_events found = {0};
    const str none = {"", 0};
    int32_t call = 0;
    strbuf_clear(out);
    for (const char *at = calls; *at != 0; call++) {
        size_t name = strcspn(at, " "), end = strcspn(at, "|!");
        assert_int_equal(output_events_add(&found, OUTPUT_CALL_BEGIN, call, (str){at, name}, none), QUIRE_OK);
        for (size_t i = name + 1; i < end; i += n) {
            assert_int_equal(output_events_add(&found, OUTPUT_ARGUMENTS, call,
                                               (str){at + i, end - i < n ? end - i : n}, none),
                             QUIRE_OK);
            assert_int_equal(call_limit_pass(l, &found), QUIRE_OK);
            for (size_t k = 0; k < found.n; k++) {
                str text = output_event_text(&found, k);
                assert_int_equal(strbuf_add(out, text.p, text.n), QUIRE_OK);
                assert_int_equal(strbuf_add_str(out, found.items[k].kind == OUTPUT_CALL_BEGIN ? " "
                                                     : found.items[k].kind == OUTPUT_CALL_END ? ";"
                                                                                              : ""),
                                 QUIRE_OK);
            }
            output_events_clear(&found);
        }
        if (at[end] != '!') {
            assert_int_equal(output_events_add(&found, OUTPUT_CALL_END, call, none, none), QUIRE_OK);
        }
        at += end + (at[end] != 0);
    }
    assert_int_equal(call_limit_pass(l, &found), QUIRE_OK);
    assert_int_equal(call_limit_flush(l, &found), QUIRE_OK);
    for (size_t k = 0; k < found.n; k++) {
        str text = output_event_text(&found, k);
        assert_int_equal(strbuf_add(out, text.p, text.n), QUIRE_OK);
        assert_int_equal(strbuf_add_str(out, found.items[k].kind == OUTPUT_CALL_BEGIN ? " "
                                             : found.items[k].kind == OUTPUT_CALL_END ? ";"
                                                                                      : ""),
                         QUIRE_OK);
    }
    output_events_deinit(&found);
    strbuf_add_str(out, "");
}

static void expect(call_limit l, const char *calls, const char *want, bool is_over) {
    for (size_t n = 1; n < 40; n += 3) {
        call_limit one = l;
        strbuf out = {0};
        pass(&one, calls, n, &out);
        assert_string_equal(out.p, want);
        assert_int_equal(one.is_over, is_over);
        call_limit_deinit(&one);
        strbuf_deinit(&out);
    }
}

TEST(an_answer_has_no_call_twice) {
    const call_limit distinct = {.is_distinct = true};
    expect(distinct, "f {\"a\":1}|f {\"a\":2}|g {\"a\":1}", "f {\"a\":1};f {\"a\":2};g {\"a\":1};", false);
    expect(distinct, "f {\"a\":1}|f {\"a\":1}|f {\"a\":2}", "f {\"a\":1};", true);
    expect(distinct, "f {\"a\": 1}|f { \"a\" :\n1 }", "f {\"a\": 1};", true);
    expect(distinct, "f {\"a\":\"x y\"}|f {\"a\":\"xy\"}|f {\"a\":\"x\\\" \"}|f {\"a\":\"x\\\"\"}",
           "f {\"a\":\"x y\"};f {\"a\":\"xy\"};f {\"a\":\"x\\\" \"};f {\"a\":\"x\\\"\"};", false);
    expect(distinct, "f {}|fg {}|f {}", "f {};fg {};", true);
    expect(distinct, "f {\"a\":12}|f {\"a\":1!", "f {\"a\":12};f {\"a\":1", false);
    expect((call_limit){0}, "f {}|f {}|f {}", "f {};f {};f {};", false);
}

TEST(an_answer_ends_where_a_call_too_many_begins) {
    expect((call_limit){.most = 2}, "f {}|f {}|f {}", "f {};f {};", true);
    expect((call_limit){.most = 2}, "f {}|f {}", "f {};f {};", false);
    expect((call_limit){.most = 2, .is_distinct = true}, "f {\"a\":1}|f {\"a\":2}|f {\"a\":3}",
           "f {\"a\":1};f {\"a\":2};", true);
}

TEST_MAIN(NULL, NULL)
