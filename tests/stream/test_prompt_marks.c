/* The places of a prompt after which a model's recurrent states are kept. */
#include "stream/prompt_marks.h"
#include "test.h"

/* <s> 0, <e> 1: control tokens; a 2, b 3: text. */
static const char json[] = "{\"added_tokens\":["
                           "{\"id\":0,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
                           "{\"id\":1,\"content\":\"<e>\",\"special\":true,\"normalized\":false}],"
                           "\"model\":{\"type\":\"BPE\",\"unk_token\":null,\"vocab\":{\"<s>\":0,\"<e>\":1,"
                           "\"a\":2,\"b\":3},\"merges\":[]}}";

static int32_t ids[1000], n_ids, marks[8];

static void put(int32_t id, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        ids[n_ids++] = id;
    }
}

/* A message with n tokens of text: <s> a, the text, <e> b. */
static void put_message(int32_t n) {
    put(0, 1);
    put(2, 1);
    put(3, n);
    put(1, 1);
    put(3, 1);
}

TEST(marks_stand_where_messages_end) {
    quire_error err = {.message = ""};
    tokenizer *t;
    vocab v = {.source = VOCAB_TOKENIZER_JSON,
               .tokenizer_json = str_of(json),
               .tokenizer_config_json = str_of("{}")};
    if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    n_ids = 0;
    put(0, 1); /* the first token is no place */
    assert_int_equal(prompt_marks(t, ids, n_ids, 5, marks), 0);
    n_ids = 0;
    put_message(50);
    put_message(20);
    put_message(3); /* its end is at the same place as its beginning */
    put_message(60);
    put(0, 1);
    put(2, 2);
    assert_int_equal(prompt_marks(t, ids, n_ids, 5, marks), 3);
    assert_int_equal(marks[0], 147);
    assert_int_equal(marks[1], 76);
    assert_int_equal(marks[2], 52);
    assert_int_equal(prompt_marks(t, ids, n_ids, 2, marks), 2);
    assert_int_equal(marks[1], 76);
    for (int i = 0; i < 20; i++) { /* so many short ones are several places */
        put_message(1);
    }
    assert_int_equal(prompt_marks(t, ids, n_ids, 8, marks), 7);
    assert_int_equal(prompt_marks(NULL, ids, n_ids, 8, marks), 0);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_stand_where_messages_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
