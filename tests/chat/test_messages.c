/* Conversations: read into the form that a template takes, and rendered. */
#include "chat/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chat/render.h"

#define PATH "body.messages"

static quire_err read_messages(const char *array, chat_content form, chat_messages *out, quire_error *err) {
    json_value *v = json_document(str_of(array));
    assert_non_null(v);
    quire_err e = chat_messages_read(v, form, PATH, out, err);
    json_drop(v);
    return e;
}

static void expect_messages(const char *array, chat_content form, const char *want) {
    chat_messages m;
    assert_int_equal(read_messages(array, form, &m, NULL), QUIRE_OK);
    assert_string_equal(m.json.p, want);
    assert_int_equal(m.json.n, strlen(want));
    chat_messages_deinit(&m);
}

static void content_parts_become_one_text(void **state) {
    (void)state;
    expect_messages("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hello \"},{\"type\":\"input_text\",\"text\":\"you\"},"
                    "\"there\"]},{\"role\":\"assistant\",\"name\":\"n\"},{\"content\":null,\"role\":\"king\"}]",
                    CHAT_CONTENT_TEXT,
                    "[{\"role\":\"user\",\"content\":\"Hello \\nyou\\nthere\"},{\"role\":\"assistant\",\"name\":\"n\",\"content\":\"\"},"
                    "{\"content\":\"\",\"role\":\"king\"}]");
}

#define PART(text) "{\"type\":\"text\",\"text\":\"" text "\"}"

static void content_takes_the_form_that_the_template_takes(void **state) {
    (void)state;
    const char *array = "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[\"b\",\"c\"]},{\"role\":\"user\"}]";
    expect_messages(array, CHAT_CONTENT_TEXT,
                    "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\\nc\"},"
                    "{\"role\":\"user\",\"content\":\"\"}]");
    expect_messages(array, CHAT_CONTENT_BOTH,
                    "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[" PART("b") "," PART(
                        "c") "]},"
                             "{\"role\":\"user\",\"content\":\"\"}]");
    expect_messages(array, CHAT_CONTENT_PARTS,
                    "[{\"role\":\"user\",\"content\":[" PART("a") "]},{\"role\":\"user\",\"content\":[" PART("b") "," PART(
                        "c") "]},"
                             "{\"role\":\"user\",\"content\":[]}]");
}

static void the_end_of_the_last_text_is_noted(void **state) {
    (void)state;
    chat_messages m;
    assert_int_equal(
        read_messages("[{\"role\":\"king\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\\\"\"}]", CHAT_CONTENT_TEXT, &m, NULL),
        QUIRE_OK);
    assert_string_equal(m.json.p + m.last_end, "\"}]");
    chat_messages_deinit(&m);
    assert_int_equal(
        read_messages("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[]}]", CHAT_CONTENT_PARTS, &m, NULL),
        QUIRE_OK);
    assert_int_equal(m.last_end, 0);
    chat_messages_deinit(&m);
}

static void a_refused_message_is_named_below_its_path(void **state) {
    (void)state;
    chat_messages m;
    quire_error err;
    assert_int_equal(read_messages("[{\"role\":\"user\"},5]", CHAT_CONTENT_TEXT, &m, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, PATH ".1");
    assert_string_equal(err.message, "messages[1] is 5; it must be an object");
    assert_int_equal(m.json.n + m.last_end, 0);
    assert_null(m.json.p);
    assert_int_equal(
        read_messages("[{\"role\":\"user\",\"content\":[\"a\",{\"type\":\"text\",\"text\":[]}]}]", CHAT_CONTENT_BOTH, &m, &err),
        QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, PATH ".0.content.1.text");
    assert_null(m.json.p);
}

/* ---- rendering ---- */

#define BOTH "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ add_generation_prompt }}{{ x }}"

static quire_err render(const char *source, bool continues, const char *kwargs, strbuf *out, quire_error *err) {
    chat_template *t;
    chat_messages m;
    json_value *more = json_document(str_of(kwargs));
    assert_int_equal(chat_template_open(str_of(source), &(chat_tokens){0}, &t, err), QUIRE_OK);
    assert_int_equal(
        read_messages("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b \"}]", CHAT_CONTENT_TEXT, &m, err),
        QUIRE_OK);
    chat_prompt p = {.messages = &m, .kwargs = more, .continue_final_message = continues};
    quire_err e = chat_render(t, &p, out, NULL, err);
    chat_messages_deinit(&m);
    chat_template_close(t);
    json_drop(more);
    return e;
}

static void variables_of_the_caller_go_before_the_prompts_own(void **state) {
    (void)state;
    strbuf out = {0};
    assert_int_equal(render(BOTH, false, "null", &out, NULL), QUIRE_OK);
    assert_string_equal(out.p, "[a][b ]False");
    strbuf_clear(&out);
    assert_int_equal(render(BOTH, false, "{\"x\":3,\"add_generation_prompt\":\"go\"}", &out, NULL), QUIRE_OK);
    assert_string_equal(out.p, "[a][b ]go3");
    strbuf_deinit(&out);
}

static void a_continued_text_ends_where_the_last_message_does(void **state) {
    (void)state;
    strbuf out = {0};
    quire_error err;
    assert_int_equal(render(BOTH, true, "null", &out, NULL), QUIRE_OK);
    assert_string_equal(out.p, "[a][b ");
    strbuf_clear(&out);
    assert_int_equal(render("{{ messages[0].content }}", true, "null", &out, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "continue_final_message");
    assert_string_equal(out.p, "");
    strbuf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_parts_become_one_text),
        cmocka_unit_test(content_takes_the_form_that_the_template_takes),
        cmocka_unit_test(the_end_of_the_last_text_is_noted),
        cmocka_unit_test(a_refused_message_is_named_below_its_path),
        cmocka_unit_test(variables_of_the_caller_go_before_the_prompts_own),
        cmocka_unit_test(a_continued_text_ends_where_the_last_message_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
