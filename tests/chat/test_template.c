#include "chat/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_chat_template_renders_the_conversation(void **state) {
    (void)state;
    chat_template *t;
    strbuf out = {0};
    quire_error err;
    const char *source = "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}\n{% endfor %}"
                         "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
    assert_int_equal(chat_template_open(str_of(source), &(chat_tokens){0}, &t, &err), QUIRE_OK);
    const char *variables = "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story.\"}],\"add_generation_prompt\":true}";
    assert_int_equal(chat_template_render(t, str_of(variables), &out, NULL, &err), QUIRE_OK);
    assert_true(str_is((str){out.p, out.n}, "<|user|>\nTell me a story.\n<|assistant|>\n"));
    strbuf_deinit(&out);
    chat_template_close(t);
}

static void expect_content(const char *source, chat_content want) {
    chat_template *t;
    assert_int_equal(chat_template_open(str_of(source), &(chat_tokens){0}, &t, NULL), QUIRE_OK);
    assert_int_equal(chat_template_content(t), want);
    chat_template_close(t);
}

static void a_template_shows_which_forms_of_content_it_takes(void **state) {
    (void)state;
    expect_content("{% for m in messages %}{{ m.content }}{% endfor %}", CHAT_CONTENT_TEXT);
    expect_content("{% for m in messages %}{{ m.content | tojson }}{% endfor %}", CHAT_CONTENT_TEXT);
    expect_content("{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}", CHAT_CONTENT_TEXT);
    expect_content(
        "{% for m in messages %}{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endfor %}",
        CHAT_CONTENT_PARTS);
    expect_content(
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.text }}{% endfor %}"
        "{% endif %}{% endfor %}",
        CHAT_CONTENT_BOTH);
    expect_content("{{ raise_exception('no') }}", CHAT_CONTENT_TEXT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_template_renders_the_conversation),
        cmocka_unit_test(a_template_shows_which_forms_of_content_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
