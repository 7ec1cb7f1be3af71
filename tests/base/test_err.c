#include <string.h>

#include "base/err.h"
#include "test.h"

TEST(every_error_has_a_name_and_a_meaning) {
    assert_string_equal(quire_err_name(QUIRE_OK), "OK");
    assert_string_equal(quire_err_name(QUIRE_BAD_FILE), "BAD_FILE");
    assert_string_equal(quire_err_text(QUIRE_BAD_FILE), "malformed file");
    assert_string_equal(quire_err_name(QUIRE_N_ERRORS), "UNKNOWN");
    assert_non_null(quire_err_text((quire_err)-1));
}

TEST(setting_fills_code_position_and_message) {
    quire_error err;
    assert_int_equal(err_set(&err, QUIRE_BAD_FILE, 17, "%s: tensor %d is cut short", "m.gguf", 3),
                     QUIRE_BAD_FILE);
    assert_int_equal(err.code, QUIRE_BAD_FILE);
    assert_int_equal(err.position, 17);
    assert_string_equal(err.message, "m.gguf: tensor 3 is cut short");
    assert_string_equal(err.param, "");
    assert_int_equal(err_set_param(&err, QUIRE_BAD_REQUEST, "top_p", "top_p is %g", 1.5), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "top_p");
    assert_int_equal(err.position, -1);
    assert_int_equal(err_set(NULL, QUIRE_IO, 0, "nobody listens"), QUIRE_IO);
}

TEST(success_leaves_an_error_as_it_is) {
    quire_error err = {.code = QUIRE_IO, .position = 3, .message = "earlier"};
    assert_int_equal(err_set(&err, QUIRE_OK, 17, "out of memory"), QUIRE_OK);
    assert_int_equal(err_set_param(&err, QUIRE_OK, "top_p", "out of range"), QUIRE_OK);
    assert_int_equal(err_prefix(&err, QUIRE_OK, "m.gguf"), QUIRE_OK);
    assert_int_equal(err.code, QUIRE_IO);
    assert_int_equal(err.position, 3);
    assert_string_equal(err.message, "earlier");
}

TEST(a_long_message_is_cut_at_the_buffers_end) {
    quire_error err;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    err_set(&err, QUIRE_INVALID, -1, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(err_prefix(&err, QUIRE_INVALID, "a.json"), QUIRE_INVALID);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_memory_equal(err.message, "a.json: xxx", 11);
    err_prefix(&err, QUIRE_INVALID, text);
    assert_true(strlen(err.message) < sizeof err.message);
}

TEST(a_prefix_stands_before_the_message) {
    quire_error err;
    err_set(&err, QUIRE_BAD_FILE, -1, "not a number");
    assert_int_equal(err_prefix(&err, err.code, "config.json"), QUIRE_BAD_FILE);
    assert_string_equal(err.message, "config.json: not a number");
    assert_int_equal(err_prefix(NULL, QUIRE_IO, "x"), QUIRE_IO);
}

static quire_err forwarder(quire_err e, int *reached) {
    TRY(e);
    *reached = 1;
    return QUIRE_OK;
}

TEST(try_forwards_failures_only) {
    int reached = 0;
    assert_int_equal(forwarder(QUIRE_NO_ROOM, &reached), QUIRE_NO_ROOM);
    assert_int_equal(reached, 0);
    assert_int_equal(forwarder(QUIRE_OK, &reached), QUIRE_OK);
    assert_int_equal(reached, 1);
}

TEST_MAIN(NULL, NULL)
