/* Prompts: which tokens remain when one is cut, and the positions after which a model's
 * recurrent states are kept. */
#include "stream/prompt_ids.h"
#include "test.h"

/* Cuts ids 0..n-1, whose types are 10 more, and returns what remains. */
static token_list cut(const generation *g, int32_t max_len, int32_t n, bool *is_cut) {
    token_list ids = {0}, types = {0};
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(token_list_add_all(&ids, &i, 1), QUIRE_OK);
        assert_int_equal(token_list_add_all(&types, &(int32_t){i + 10}, 1), QUIRE_OK);
    }
    quire_error err = {0};
    assert_int_equal(prompt_cut(g, max_len, NULL, false, &ids, &types, is_cut, &err), QUIRE_OK);
    assert_int_equal(types.n, ids.n);
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_equal(types.ids[i], ids.ids[i] + 10);
    }
    token_list_deinit(&types);
    return ids;
}

static void expect(generation g, int32_t max_len, int32_t n, int32_t first, int32_t left) {
    bool is_cut;
    token_list ids = cut(&g, max_len, n, &is_cut);
    assert_int_equal(is_cut, left < n);
    assert_int_equal(ids.n, left);
    for (int32_t i = 0; i < left; i++) {
        assert_int_equal(ids.ids[i], first + i);
    }
    token_list_deinit(&ids);
}

static generation asks(quire_endpoint endpoint, int32_t truncate, int32_t keeps_end) {
    generation g = {.truncate_prompt_tokens = truncate, .keeps_end = keeps_end};
    g.info.endpoint = endpoint;
    g.sampling.max_tokens = -1;
    return g;
}

TEST(a_prompt_keeps_its_end_and_an_input_its_beginning) {
    expect(asks(QUIRE_COMPLETIONS, 3, -1), 100, 8, 5, 3);
    expect(asks(QUIRE_EMBEDDINGS, 3, -1), 100, 8, 0, 3);
    expect(asks(QUIRE_COMPLETIONS, 3, 0), 100, 8, 0, 3);
    expect(asks(QUIRE_EMBEDDINGS, 3, 1), 100, 8, 5, 3);
    expect(asks(QUIRE_COMPLETIONS, 0, -1), 100, 8, 8, 0);
}

TEST(a_prompt_that_fits_is_as_it_was) {
    expect(asks(QUIRE_COMPLETIONS, GENERATION_UNCUT, -1), 4, 8, 0, 8);
    expect(asks(QUIRE_COMPLETIONS, 8, -1), 100, 8, 0, 8);
    expect(asks(QUIRE_COMPLETIONS, -1, -1), 9, 8, 0, 8);
}

TEST(as_many_as_fit_leave_room_for_the_answer) {
    generation g = asks(QUIRE_COMPLETIONS, -1, -1);
    expect(g, 6, 8, 3, 5);
    expect(asks(QUIRE_EMBEDDINGS, -1, -1), 6, 8, 0, 6);
    g.sampling.max_tokens = 4;
    expect(g, 6, 8, 6, 2);
    g.sampling.max_tokens = 600;
    expect(g, 6, 8, 3, 5);
}

/* ---- marks ---- */

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

TEST_MAIN(NULL, NULL)
