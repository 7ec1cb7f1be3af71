/* llama.cpp's form of errors. */
#include "server/routes.h"
#include "test.h"

static void expect_error(const api_error *e, const char *wanted) {
    strbuf text = {0};
    json_out o = {.to = &text};
    llama_error(&o, e);
    assert_int_equal(o.err, QUIRE_OK);
    assert_string_equal(text.p, wanted);
    strbuf_deinit(&text);
}

TEST(an_error_has_its_status_its_text_and_llama_cpps_type) {
    static const struct {
        int status;
        const char *type;
    } kinds[] = {{400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},       {429, "unavailable_error"},    {500, "server_error"},
                 {501, "not_supported_error"},   {503, "unavailable_error"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        strbuf wanted = {0};
        assert_int_equal(strbuf_addf(&wanted,
                                     "{\"error\":{\"code\":%d,\"message\":\"a \\\"b\\\"\",\"type\":\"%s\"}}",
                                     kinds[i].status, kinds[i].type),
                         QUIRE_OK);
        expect_error(&(api_error){.status = kinds[i].status, .param = "prompt", .message = "a \"b\""},
                     wanted.p);
        strbuf_deinit(&wanted);
    }
}

TEST(a_prompt_that_is_too_long_has_a_type_of_its_own) {
    expect_error(&(api_error){.status = 400, .param = "input_tokens", .message = "m"},
                 "{\"error\":{\"code\":400,\"message\":\"m\",\"type\":\"exceed_context_size_error\"}}");
}

TEST_MAIN(NULL, NULL)
