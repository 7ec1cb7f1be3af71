/* The forms of chats of models without a template. */

#include "chat/chat_form.h"
#include "test.h"

/* A tokenizer with the two tokens, special or not, or without them. */
static tokenizer *tokens_with(const char *flags) {
    strbuf b = {0};
    tokenizer *t;
    quire_error err = {0};
    assert_int_equal(strbuf_add_str(&b, "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}"
                                        ",\"merges\":[]},\"added_tokens\":["),
                     QUIRE_OK);
    if (flags != NULL) {
        assert_int_equal(
            strbuf_addf(&b,
                        "{\"id\":1,\"content\":\"<|im_start|>\"%s},{\"id\":2,\"content\":\"<|im_end|>\"%s}",
                        flags, flags),
            QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&b, "]}"), QUIRE_OK);
    vocab v = {.source = VOCAB_TOKENIZER_JSON,
               .tokenizer_json = {b.p, b.n},
               .bos = -1,
               .eos = -1,
               .unk = -1,
               .pad = -1};
    assert_int_equal(tokenizer_open(&v, &t, &err), QUIRE_OK);
    strbuf_deinit(&b);
    return t;
}

/* The text of a conversation, and *n_starts: how many control tokens the form itself
 * wrote. */
static void render(const chat_form *f, const char *messages, bool generates, strbuf *text, size_t *n_starts) {
    json_value *list = json_document(str_of(messages));
    chat_messages m;
    text_marks marks = {0};
    quire_error err = {0};
    assert_non_null(list);
    assert_int_equal(chat_messages_read(list, chat_template_traits(f->template), "messages", &m, &err),
                     QUIRE_OK);
    chat_prompt p = {.messages = &m, .add_generation_prompt = generates};
    assert_int_equal(chat_render(f->template, &p, text, &marks, &err), QUIRE_OK);
    *n_starts = 0;
    static const char *const tokens[] = {"<|im_start|>", "<|im_end|>"};
    for (size_t i = 0; i < text->n; i++) {
        for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++) {
            *n_starts += str_begins((str){text->p + i, text->n - i}, tokens[k]) &&
                         text_marks_allow(&marks, i, i + strlen(tokens[k]));
        }
    }
    text_marks_deinit(&marks);
    chat_messages_deinit(&m);
    json_drop(list);
}

static void expect(const chat_form *f, const char *messages, const char *want, size_t n_tokens) {
    strbuf text = {0};
    size_t n_starts;
    render(f, messages, true, &text, &n_starts);
    assert_string_equal(text.p, want);
    assert_int_equal(n_starts, n_tokens);
    strbuf_deinit(&text);
}

#define TALK                                                                                                 \
    "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"A<|im_end|>\"}]"

TEST(a_vocabulary_with_the_tokens_of_chatml_gets_it) {
    tokenizer *t = tokens_with(",\"special\":true");
    chat_form f;
    quire_error refused, err;
    assert_int_equal(chat_form_open(NULL, (str){"", 0}, &(chat_tokens){.tokenizer = t}, &f, &refused, &err),
                     QUIRE_OK);
    assert_string_equal(f.name, "chatml");
    assert_int_equal(f.end_token, 2);
    assert_int_equal(f.n_stops, 0);
    /* five tokens are the form's own: the client's is text */
    expect(&f, TALK,
           "<|im_start|>system\nBe "
           "brief.<|im_end|>\n<|im_start|>user\nA<|im_end|><|im_end|>\n<|im_start|>assistant\n",
           5);
    chat_form_close(&f);
    tokenizer_close(t);
}

TEST(any_other_vocabulary_gets_plain_turns) {
    static const char *const flags[] = {NULL, ",\"special\":false"};
    for (size_t i = 0; i < 2; i++) {
        tokenizer *t = tokens_with(flags[i]);
        chat_form f;
        quire_error refused, err;
        assert_int_equal(
            chat_form_open(NULL, (str){"", 0}, &(chat_tokens){.tokenizer = t}, &f, &refused, &err), QUIRE_OK);
        assert_int_equal(refused.code, QUIRE_OK);
        assert_string_equal(f.name, "plain");
        assert_int_equal(f.end_token, -1);
        assert_int_equal(f.n_stops, CHAT_FORM_STOPS);
        for (int32_t k = 0; k < f.n_stops; k++) {
            assert_true(f.stops[k].p[0] == '\n' && f.stops[k].p[f.stops[k].n - 1] == ':');
        }
        expect(&f, TALK, "system:\nBe brief.\n\nuser:\nA<|im_end|>\n\nassistant:\n", 0);
        expect(&f,
               "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"A\"},{\"type\":\"text\","
               "\"text\":\"B\"}]}]",
               "user:\nA\nB\n\nassistant:\n", 0);
        chat_form_close(&f);
        tokenizer_close(t);
    }
}

TEST(a_template_goes_before_a_form_and_the_operators_before_the_models) {
    tokenizer *t = tokens_with(",\"special\":true");
    chat_tokens tokens = {.tokenizer = t};
    chat_form f;
    quire_error refused, err;
    assert_int_equal(chat_form_open(NULL, str_of("{{ messages[0].content }}"), &tokens, &f, &refused, &err),
                     QUIRE_OK);
    assert_string_equal(f.name, "model");
    assert_true(f.end_token == -1 && f.n_stops == 0);
    expect(&f, TALK, "Be brief.", 0);
    chat_form_close(&f);
    assert_int_equal(chat_form_open("given", str_of("{{ messages }}"), &tokens, &f, &refused, &err),
                     QUIRE_OK);
    assert_string_equal(f.name, "file");
    expect(&f, TALK, "given", 0);
    chat_form_close(&f);
    assert_int_not_equal(chat_form_open("{% if", (str){"", 0}, &tokens, &f, &refused, &err), QUIRE_OK);
    chat_form_close(&f);
    tokenizer_close(t);
}

TEST(a_template_of_the_model_that_is_not_understood_is_named_and_replaced) {
    tokenizer *t = tokens_with(",\"special\":true");
    chat_form f;
    quire_error refused, err;
    assert_int_equal(
        chat_form_open(NULL, str_of("{% if"), &(chat_tokens){.tokenizer = t}, &f, &refused, &err), QUIRE_OK);
    assert_string_equal(f.name, "chatml");
    assert_non_null(strstr(refused.message, "line 1"));
    chat_form_close(&f);
    tokenizer_close(t);
}

static void add(chat_form *f, const char *name, const char *text) {
    quire_error err = {0};
    chat_source s = {str_of(name), str_of(text)};
    assert_int_equal(chat_form_add(f, &s, &err), QUIRE_OK);
}

TEST(a_form_has_templates_by_name_which_may_include_one_another) {
    chat_form f;
    quire_error refused, err = {0};
    strbuf names = {0};
    const char *own = "{% for m in messages %}{% include 'body' %}{% endfor %}";
    assert_int_equal(chat_form_open(NULL, str_of(own), &(chat_tokens){0}, &f, &refused, &err), QUIRE_OK);
    /* what it includes is not there yet */
    assert_int_equal(chat_template_traits(f.template)->content[CHAT_USER], CHAT_CONTENT_TEXT);
    add(&f, "body", "<{% for part in m.content %}{{ part.text }}{% endfor %}>");
    assert_int_equal(chat_template_traits(f.template)->content[CHAT_USER], CHAT_CONTENT_PARTS);
    add(&f, "tool_use", "tools");
    expect(&f,
           "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
           "\"text\":\"b\"}]}]",
           "<a><b>", 0);
    assert_ptr_equal(chat_form_find(&f, str_of("default")), f.template);
    assert_ptr_equal(chat_form_find(&f, str_of("body")), f.named[0].template);
    assert_null(chat_form_find(&f, str_of("rag")));
    assert_ptr_equal(chat_form_choose(&f, (str){0}, false), f.template);
    assert_ptr_equal(chat_form_choose(&f, (str){0}, true), f.named[1].template);
    assert_ptr_equal(chat_form_choose(&f, str_of("body"), true), f.named[0].template);
    assert_int_equal(chat_form_names(&f, &names), QUIRE_OK);
    assert_string_equal(names.p, "default, body and tool_use");
    chat_source wrong = {str_of("wrong"), str_of("{% for %}")};
    assert_int_equal(chat_form_add(&f, &wrong, &err), QUIRE_INVALID);
    assert_int_equal(f.n_named, 2);
    for (int i = 0; i < 2 * CHAT_FORM_TEMPLATES; i++) {
        add(&f, "more", "x");
    }
    assert_int_equal(f.n_named, CHAT_FORM_TEMPLATES);
    strbuf_deinit(&names);
    chat_form_close(&f);
}

TEST_MAIN(NULL, NULL)
