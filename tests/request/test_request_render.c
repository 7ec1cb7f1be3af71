/* Chats rendered with templates, and recorded requests answered as the reference does. */
#include "request/request_world.h"

#include "json/json_scan.h"

/* Renders a chat body by a template. */
static quire_err render(const char *source, const char *body, strbuf *out, quire_error *err) {
    chat_form form;
    quire_error refused;
    quire_request *r;
    const chat_tokens tokens = {.bos = str_of("<s>"), .eos = str_of("</s>\"\n")};
    assert_int_equal(chat_form_open(source, (str){0}, &tokens, &form, &refused, err), QUIRE_OK);
    request_context ctx = context;
    ctx.form = &form;
    assert_int_equal(request_parse(&ctx, QUIRE_CHAT, body, strlen(body), &r, err), QUIRE_OK);
    quire_err e = request_render(r, 0, out, NULL, err);
    quire_request_free(r);
    chat_form_close(&form);
    return e;
}

static void expect_render(const char *source, const char *body, const char *want) {
    strbuf out = {0};
    quire_error err = {0};
    if (render(source, body, &out, &err) != QUIRE_OK || !str_is((str){out.p, out.n}, want)) {
        fail_msg("%s\n%s\ngot  \"%.*s\" %s\nmust \"%s\"", source, body, (int)out.n, out.n > 0 ? out.p : "",
                 err.message, want);
    }
    strbuf_deinit(&out);
}

TEST(a_chat_is_rendered_with_the_variables_of_its_template) {
    const char *all = "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ "
                      "add_generation_prompt }}{{ eos_token }}"
                      "{{ tools is none }}{{ documents is none }}{{ x }}";
    expect_render(all, "{" USER "}", "<s>user:Hi;True</s>\"\nTrueTrue");
    expect_render(all, "{" USER ",\"add_generation_prompt\":false,\"chat_template_kwargs\":{\"x\":[1]}}",
                  "<s>user:Hi;False</s>\"\nTrueTrue[1]");
    expect_render("{{ add_generation_prompt }}{{ bos_token }}",
                  "{" USER ",\"chat_template_kwargs\":{\"bos_token\":\"!\",\"x\":{}}}", "True!");
    expect_render("{{ x }}", "{" USER ",\"chat_template_kwargs\":{}}", "");
    expect_render("{{ add_generation_prompt }}{{ verbosity }}",
                  "{" USER ",\"verbosity\":\"low\",\"chat_template_kwargs\":{\"verbosity\":\"high\","
                  "\"add_generation_prompt\":false}}",
                  "Falsehigh");
    expect_render("{{ reasoning_effort }}{{ documents[0].title }}",
                  "{" USER ",\"reasoning_effort\":\"low\",\"documents\":[{\"title\":\"T\"}]}", "lowT");
}

#define CONTINUED(content)                                                                                   \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":" content      \
    "}],\"continue_final_message\":true,"                                                                    \
    "\"add_generation_prompt\":false}"

TEST(a_continued_message_stays_open) {
    const char *plain = "{% for m in messages %}[{{ m.content }}]\n{% endfor %}";
    expect_render(plain, CONTINUED("\"Once \""), "[a]\n[Once ");
    expect_render("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", CONTINUED("\"Once \""),
                  "[a][Once");
    expect_render("{% for m in messages %}{% for c in m.content %}{{ c.text }},{% endfor %}{% endfor %}",
                  CONTINUED("[{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"text\",\"text\":\"c\"}]"),
                  "a,b,c");
    strbuf out = {0};
    quire_error err;
    assert_int_equal(render("{{ messages[0].content }}", CONTINUED("\"Once\""), &out, &err),
                     QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "continue_final_message");
    assert_int_equal(out.n, 0);
    strbuf_deinit(&out);
}

TEST(what_a_template_refuses_is_a_bad_request_with_its_words) {
    strbuf out = {0};
    quire_error err;
    assert_int_equal(render("{{ raise_exception('System role not supported') }}", "{" USER "}", &out, &err),
                     QUIRE_BAD_REQUEST);
    assert_string_equal(err.message, "System role not supported");
    strbuf_deinit(&out);
}

/* Every recorded question of this endpoints: refused with the reference's param,
 * or accepted. */
TEST(recorded_questions_are_answered_as_the_reference_does) {
    const char *shared = getenv("QUIRE_SHARED");
    char path[4096];
    snprintf(path, sizeof path, "%s/golden/api/vllm-0.32.0.jsonl", shared != NULL ? shared : "../shared");
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        print_message("SKIP: no %s\n", path);
        skip();
    }
    int refused = 0, accepted = 0, later = 0;
    size_t cap = 0;
    char *line = NULL;
    while (getline(&line, &cap, f) > 0) {
        json_value *record = json_document(str_of(line));
        const char *where = json_get_str(record, "path").p;
        str text = json_get_str(record, "raw");
        if (json_get(record, "body") != NULL) {
            assert_int_equal(json_scan_member(str_of(line), "body", &text), QUIRE_OK);
        }
        bool chat = strcmp(where, "/v1/chat/completions") == 0;
        int status = (int)json_int64(json_get(record, "status"));
        const char *name = json_get_str(record, "name").p;
        if ((!chat && strcmp(where, "/v1/completions") != 0) || (status != 200 && status != 400) ||
            strstr(name, "content type") != NULL) {
            json_drop(record);
            continue;
        }
        quire_request *r;
        quire_error err = {0};
        quire_err e =
            request_parse(&context, chat ? QUIRE_CHAT : QUIRE_COMPLETIONS, text.p, text.n, &r, &err);
        quire_request_free(r);
        /* of use with logprobs only, a later issue */
        bool no_tokens = strcmp(name, "completion: echo, no new tokens") == 0;
        if (e != QUIRE_OK && (no_tokens || strstr(err.message, "not supported yet") != NULL)) {
            later++;
        } else if (status == 200) {
            if (e != QUIRE_OK) {
                fail_msg("%s: refused: %s", name, err.message);
            }
            accepted++;
        } else if (e == QUIRE_OK) { /* what only a tokenised prompt shows */
            bool harmless = strcmp(name, "chat: tool_choice without tools") == 0 ||
                            strcmp(name, "completion: truncate_prompt_tokens = 0") == 0 ||
                            /* cut here, like one that exceeds what the prompt leaves */
                            strcmp(name, "completion: max_tokens huge") == 0;
            harmless = harmless || strstr(name, "prompt too long") != NULL ||
                       strstr(name, "no room") != NULL || strstr(name, "n 2 greedy") != NULL ||
                       strstr(name, "structured bad") != NULL || strstr(name, "suffix = ") != NULL;
            if (!harmless) {
                fail_msg("%s: accepted; the reference answers %d", name, (int)status);
            }
        } else {
            json_value *error = json_get(json_get(record, "json"), "error");
            const char *param = json_get_str(error, "param").p;
            bool same = strcmp(param, err.param) == 0;
            /* the reference names a class of its own there */
            if (!same && strcmp(name, "chat: content number") != 0) {
                fail_msg("%s: param \"%s\", the reference's is \"%s\": %s", name, err.param, param,
                         err.message);
            }
            refused++;
        }
        json_drop(record);
    }
    free(line);
    fclose(f);
    print_message("accepted %d, refused alike %d, later %d\n", accepted, refused, later);
    assert_true(accepted >= 40 && refused >= 30);
}

/* What a copy after request_drop_texts has of a body. */
static void expect_copy_without_texts(quire_endpoint endpoint, const char *body, size_t n_text) {
    quire_request *r = parse(endpoint, body), *copy;
    quire_error err = {0};
    assert_int_not_equal(request_text_bytes(r), 0);
    request_drop_texts(r);
    assert_int_equal(request_text_bytes(r), n_text);
    assert_null(r->given_messages);
    assert_int_equal(request_copy(r, &copy, &err), QUIRE_OK);
    quire_request_free(r);
    assert_float_equal(copy->g.sampling.temperature, 0.25f, 0);
    assert_int_equal(copy->g.n_stops, 1);
    assert_true(str_is(copy->g.stops[0], "some stop"));
    assert_int_equal(request_text_bytes(copy), 0);
    quire_request_free(copy);
}

TEST(a_request_without_its_texts_can_be_copied) {
    const char *fields = "\"temperature\":0.25,\"stop\":\"some stop\"";
    static const struct {
        quire_endpoint endpoint;
        const char *texts;
        size_t n_text;
    } cases[] = {
        {QUIRE_CHAT, USER, 0},
        {QUIRE_COMPLETIONS, "\"prompt\":[\"a b\",\"c\"]", 0},
        {QUIRE_COMPLETIONS, "\"echo\":true,\"prompt\":[\"a b\",\"c\"]", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        snprintf(body, sizeof body, "{%s,%s}", cases[i].texts, fields);
        expect_copy_without_texts(cases[i].endpoint, body, cases[i].n_text);
    }
}

TEST_MAIN(NULL, NULL)
