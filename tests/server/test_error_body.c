/* Error bodies: OpenAI's shape, and the status of each error. */

#include "server/error_body.h"
#include "test.h"

TEST(errors_have_openais_shape) {
    strbuf b = {0};
    json_out o = {.to = &b};
    error_body(&o, &(api_error){.status = 400, .param = "top_p", .message = "top_p is \"x\""});
    assert_string_equal(b.p,
                        "{\"error\":{\"message\":\"top_p is "
                        "\\\"x\\\"\",\"type\":\"invalid_request_error\",\"param\":\"top_p\",\"code\":400}}");
    strbuf_clear(&b);
    error_body(&o, &(api_error){.status = 404, .param = "", .message = "m"});
    assert_string_equal(
        b.p, "{\"error\":{\"message\":\"m\",\"type\":\"not_found_error\",\"param\":null,\"code\":404}}");
    quire_error err = {.code = QUIRE_CONTEXT_LENGTH, .param = "messages", .message = "m"};
    api_error failure = error_of(&err);
    strbuf_clear(&b);
    error_body(&o, &failure);
    assert_string_equal(b.p, "{\"error\":{\"message\":\"m\",\"type\":\"invalid_request_error\",\"param\":"
                             "\"messages\",\"code\":\"context_length_exceeded\"}}");
    strbuf_deinit(&b);
    assert_int_equal(failure.status, 400);
    assert_int_equal(error_status(QUIRE_TOO_LARGE), 400);
    assert_int_equal(error_of(&(quire_error){.code = QUIRE_TOO_LARGE, .param = "body"}).status, 413);
    assert_int_equal(error_of(&(quire_error){.code = QUIRE_TOO_LARGE, .param = "beam_width"}).status, 400);
    failure = error_of(&(quire_error){.code = QUIRE_NOT_FOUND, .param = "previous_response_id"});
    assert_int_equal(failure.status, 400);
    assert_string_equal(failure.code, "previous_response_not_found");
    failure = error_of(&(quire_error){.code = QUIRE_NOT_FOUND, .param = "sandbox"});
    assert_int_equal(failure.status, 404);
    assert_null(failure.code);
    assert_int_equal(error_status(QUIRE_BUSY), 429);
    assert_int_equal(error_status(QUIRE_NUMERIC), 500);
    assert_int_equal(error_status(QUIRE_FAULT), 400);
}

TEST_MAIN(NULL, NULL)
