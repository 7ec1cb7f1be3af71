#include "chat/template.h"

#include "jinja/jinja.h"
#include "test.h"

TEST(a_chat_template_renders_the_conversation) {
    chat_template *t;
    strbuf out = {0};
    quire_error err;
    const char *source = "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}\n{% endfor %}"
                         "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
    assert_int_equal(chat_template_open(str_of(source), &(chat_tokens){0}, &t, &err), QUIRE_OK);
    const char *variables = "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a "
                            "story.\"}],\"add_generation_prompt\":true}";
    assert_int_equal(chat_template_render(t, str_of(variables), &out, NULL, &err), QUIRE_OK);
    assert_true(str_is((str){out.p, out.n}, "<|user|>\nTell me a story.\n<|assistant|>\n"));
    strbuf_deinit(&out);
    chat_template_close(t);
}

static void expect_content(const char *source, chat_content want) {
    chat_template *t;
    assert_int_equal(chat_template_open(str_of(source), &(chat_tokens){0}, &t, NULL), QUIRE_OK);
    assert_int_equal(chat_template_traits(t)->content[CHAT_USER], want);
    chat_template_close(t);
}

TEST(a_template_shows_which_forms_of_content_it_takes) {
    expect_content("{% for m in messages %}{{ m.content }}{% endfor %}", CHAT_CONTENT_TEXT);
    expect_content("{% for m in messages %}{{ m.content | tojson }}{% endfor %}", CHAT_CONTENT_TEXT);
    expect_content("{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}", CHAT_CONTENT_TEXT);
    expect_content("{% for m in messages %}{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% "
                   "endif %}{% endfor %}{% endfor %}",
                   CHAT_CONTENT_PARTS);
    expect_content("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in "
                   "m.content %}{{ c.text }}{% endfor %}"
                   "{% endif %}{% endfor %}",
                   CHAT_CONTENT_BOTH);
    expect_content("{{ raise_exception('no') }}", CHAT_CONTENT_TEXT);
}

/* ---- traits ---- */

static const chat_traits *open_for_traits(const char *source, chat_template **t) {
    assert_int_equal(chat_template_open(str_of(source), &(chat_tokens){0}, t, NULL), QUIRE_OK);
    return chat_template_traits(*t);
}

/* A template that writes role and content of each message, and of an assistant's what a
 * says. */
#define TALK(a)                                                                                              \
    "{% for m in messages %}{% if m.role == 'assistant' %}" a                                                \
    "{% elif m.role in ['system', 'user', 'tool'] %}<{{ m.role }}>{{ m.content }}"                           \
    "{% else %}{{ raise_exception('no such role') }}{% endif %}{% endfor %}"
#define CALLS(arguments)                                                                                     \
    TALK("{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}" arguments "{% endfor %}")
#define ARGUMENTS "c.function.arguments"

static void expect_calls(const char *source, bool text, bool loose, chat_no_text no_text) {
    chat_template *t;
    const chat_traits *traits = open_for_traits(source, &t);
    if (traits->text_arguments != text || traits->loose_arguments != loose || traits->no_text != no_text) {
        fail_msg("%s: text %d, loose %d, null %d", source, traits->text_arguments, traits->loose_arguments,
                 (int)traits->no_text);
    }
    chat_template_close(t);
}

TEST(a_template_shows_how_it_takes_arguments) {
    const chat_no_text empty = CHAT_NO_TEXT_EMPTY; /* null would be written "None" */
    expect_calls(CALLS("{% for k, v in " ARGUMENTS "|items %}<{{ k }}>{{ v }}{% endfor %}"), false, false,
                 empty);
    expect_calls(CALLS("{% for k, v in " ARGUMENTS ".items() %}{{ k }}({{ v }}){% endfor %}"), false, false,
                 empty);
    expect_calls(CALLS("{% if " ARGUMENTS " is mapping %}{% for k in " ARGUMENTS " %}{{ k }}={{ " ARGUMENTS
                       "[k] }}{% endfor %}{% endif %}"),
                 false, false, empty);
    expect_calls(CALLS("{{ " ARGUMENTS " | tojson }}"), false, false, empty);
    expect_calls(CALLS("{{ " ARGUMENTS " if " ARGUMENTS " is string else " ARGUMENTS " | tojson }}"), false,
                 true, empty);
    expect_calls(CALLS("{% if " ARGUMENTS " is string %}{{ '{' + " ARGUMENTS
                       " + '}' }}{% else %}{{ " ARGUMENTS " | tojson }}{% endif %}"),
                 false, false, empty);
    expect_calls(CALLS("{{ '>' + " ARGUMENTS " }}"), true, true, empty);
    /* an object would be written as Python does */
    expect_calls(CALLS("{{ " ARGUMENTS " }}"), true, true, empty);
    expect_calls(TALK("{{ m.content or '' }}"), false, false, CHAT_NO_TEXT_GIVEN);
    expect_calls(CALLS("{% for k in (tools or [])[0].function.parameters.properties %}{{ " ARGUMENTS
                       "[k] }}{% endfor %}"),
                 false, false, empty);
    expect_calls(
        "{% for t in tools %}{{ t.function.name }}{% endfor %}" CALLS("{{ " ARGUMENTS " | tojson }}"), false,
        false, empty);
}

TEST(a_template_shows_what_no_text_beside_calls_must_be) {
    expect_calls(
        TALK("{{ m.content + '' }}{% for c in m.tool_calls or [] %}{{ " ARGUMENTS " | tojson }}{% endfor %}"),
        false, false, CHAT_NO_TEXT_EMPTY);
    expect_calls(TALK("{% if m.content is none %}{% for c in m.tool_calls %}{{ " ARGUMENTS
                      " | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}"),
                 false, false, CHAT_NO_TEXT_NULL);
    expect_calls(TALK("{% if m.content is not none %}<{{ m.content }}>{% endif %}{% for c in m.tool_calls or "
                      "[] %}{{ " ARGUMENTS " | tojson }}{% endfor %}"),
                 false, false, CHAT_NO_TEXT_GIVEN);
}

static void expect_role(const char *source, bool developer, bool function) {
    chat_template *t;
    const chat_traits *traits = open_for_traits(source, &t);
    if (traits->developer != developer || traits->function != function) {
        fail_msg("%s: developer %d, function %d", source, traits->developer, traits->function);
    }
    chat_template_close(t);
}

TEST(a_template_knows_the_roles_that_it_does_not_treat_as_any_name) {
    expect_role(TALK("{{ m.content }}"), false, false);
    expect_role("{% for m in messages %}{% if m.role != 'developer' %}<{{ m.role }}>{{ m.content }}{% endif "
                "%}{% endfor %}",
                false, false);
    expect_role("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}", false, false);
    expect_role("{% for m in messages %}{{ m.role | upper }}: {{ m.content }}{% endfor %}", false, false);
    expect_role("{% for m in messages %}{% if m.role == 'developer' %}D:{% endif %}<{{ m.role }}>{{ "
                "m.content }}{% endfor %}",
                true, false);
    expect_role("{% for m in messages %}{% if m.role in ['developer', 'user', 'assistant', 'function'] %}<{{ "
                "m.role }}>{{ m.content }}{% "
                "endif %}{% endfor %}",
                true, true);
    expect_role("{% for m in messages %}{% if m.role in ['system', 'tool'] %}{{ raise_exception('no') }}{% "
                "endif %}<{{ m.role }}>{{ "
                "m.content }}{% endfor %}",
                true, true);
}

static void expect_reasoning(const char *source, const char *want) {
    chat_template *t;
    const chat_traits *traits = open_for_traits(source, &t);
    if (want == NULL) {
        assert_null(traits->reasoning);
    } else {
        assert_non_null(traits->reasoning);
        assert_string_equal(traits->reasoning, want);
    }
    chat_template_close(t);
}

TEST(a_template_shows_the_name_that_it_reads_reasoning_from) {
    expect_reasoning(TALK("{{ m.content }}"), NULL);
    expect_reasoning(
        TALK(
            "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"),
        "reasoning_content");
    expect_reasoning(TALK("{{ m.get('reasoning', '') or m.get('reasoning_content', '') }}{{ m.content }}"),
                     "reasoning");
    expect_reasoning(TALK("{% if 'thinking' in m and m.tool_calls %}{{ m.thinking }}{% endif %}"),
                     "thinking");
    expect_reasoning(
        TALK("{% if loop.last and not add_generation_prompt %}{{ m.reasoning_content }}{% endif %}"),
        "reasoning_content");
    expect_reasoning(
        TALK("{% if enable_thinking is defined and enable_thinking %}{{ m.reasoning_content }}{% endif %}"),
        "reasoning_content");
}

TEST(a_template_that_insists_on_short_ids_is_found_out) {
    chat_template *t;
    static const char insists[] =
        CALLS("{% if c.id | length != 9 %}{{ raise_exception('9') }}{% endif %}{{ " ARGUMENTS " | tojson }}");
    assert_true(open_for_traits(insists, &t)->short_ids);
    chat_template_close(t);
    assert_false(open_for_traits(CALLS("{{ c.id }}{{ " ARGUMENTS " | tojson }}"), &t)->short_ids);
    chat_template_close(t);
    assert_false(open_for_traits("{{ raise_exception('never') }}", &t)->short_ids);
    chat_template_close(t);
}

static void expect_needs_ids(const char *source, bool want) {
    chat_template *t;
    assert_int_equal(open_for_traits(source, &t)->needs_ids, want);
    chat_template_close(t);
}

TEST(a_template_that_needs_ids_of_calls_is_found_out) {
    expect_needs_ids(CALLS("{{ 'id ' + c.id }}{{ " ARGUMENTS " | tojson }}"), true);
    expect_needs_ids(CALLS("{% if c.id %}{{ " ARGUMENTS " | tojson }}{% endif %}"), true);
    expect_needs_ids(CALLS("{{ c.id }}{{ " ARGUMENTS " | tojson }}"), false);
    expect_needs_ids(TALK("{{ m.content }}"), false);
}

static void expect_reasoning_part(const char *source, bool want) {
    chat_template *t;
    assert_int_equal(open_for_traits(source, &t)->reasoning_part, want);
    chat_template_close(t);
}

TEST(a_template_that_reads_reasoning_from_a_part_is_found_out) {
#define PARTS_OF(thinking)                                                                                   \
    TALK("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == "     \
         "'text' %}{{ p.text }}" thinking "{% endif %}{% endfor %}{% endif %}")
    expect_reasoning_part(PARTS_OF("{% else %}[THINK]{{ p.thinking }}[/THINK]"), true);
    expect_reasoning_part(PARTS_OF(""), false);
    expect_reasoning_part(PARTS_OF("{% elif p.type != 'text' %}{{ raise_exception('no') }}"), false);
    expect_reasoning_part(TALK("{{ m.content }}"), false);
    expect_reasoning_part(TALK("{{ m.content | tojson }}"), false);
    expect_reasoning_part(PARTS_OF("{% else %}{{ p.thinking }}") TALK("{{ m.reasoning }}"), false);
}

/* A template that takes most of a render's steps each time. */
TEST(a_slow_template_is_probed_in_the_steps_of_one_render) {
    jinja_program *program;
    const char *slow = "{% for i in range(3000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}{% for m "
                       "in messages %}{{ m.content }}{% endfor %}";
    int64_t left = JINJA_MAX_STEPS;
    strbuf out = {0};
    assert_int_equal(jinja_open(str_of(slow), (jinja_options){0}, &program, NULL), QUIRE_OK);
    assert_int_equal(jinja_render_within(program, str_of("{}"), &left, &out, NULL), QUIRE_OK);
    int64_t one = JINJA_MAX_STEPS - left;
    assert_true(one > JINJA_MAX_STEPS / 40 && one < JINJA_MAX_STEPS);
    for (quire_err e = QUIRE_OK; e == QUIRE_OK;) {
        int64_t before = left;
        e = jinja_render_within(program, str_of("{}"), &left, &out, NULL);
        assert_int_equal(e, before >= one ? QUIRE_OK : QUIRE_TOO_LARGE);
    }
    assert_true(left >= 0 && left < one);
    const chat_traits traits = chat_template_find_traits(program);
    assert_int_equal(traits.content[CHAT_USER], CHAT_CONTENT_TEXT);
    assert_null(traits.reasoning);
    assert_false(traits.developer || traits.short_ids);
    strbuf_deinit(&out);
    jinja_close(program);
}

TEST(contents_are_probed_for_each_role) {
    chat_template *t;
    const chat_traits *traits = open_for_traits("{% for m in messages %}{% if m.role == 'system' %}{{ "
                                                "m.content | trim }}{% elif m.content is string %}{{ "
                                                "m.content }}{% elif m.role == 'tool' %}"
                                                "{{ m.content | tojson }}{% else %}{% for p in m.content "
                                                "%}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
                                                &t);
    assert_int_equal(traits->content[CHAT_SYSTEM], CHAT_CONTENT_TEXT);
    assert_int_equal(traits->content[CHAT_USER], CHAT_CONTENT_BOTH);
    assert_int_equal(traits->content[CHAT_ASSISTANT], CHAT_CONTENT_BOTH);
    assert_int_equal(traits->content[CHAT_TOOL], CHAT_CONTENT_TEXT);
    chat_template_close(t);
}

TEST_MAIN(NULL, NULL)
