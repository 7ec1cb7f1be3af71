/* Request bodies of endpoints that render or tokenize a prompt without generating. */
#include "base/rng.h"
#include "request_world.h"

static quire_endpoint form_of(quire_endpoint endpoint, const char *body) {
    quire_request *r = parse(endpoint, body);
    quire_endpoint form = quire_request_describe(r)->endpoint;
    quire_request_free(r);
    return form;
}

TEST(a_body_is_of_the_form_that_its_fields_name) {
    assert_int_equal(form_of(QUIRE_TOKENIZE, "{\"prompt\":\"x\"}"), QUIRE_TOKENIZE);
    assert_int_equal(form_of(QUIRE_TOKENIZE, "{\"prompt\":\"x\",\"messages\":null}"), QUIRE_TOKENIZE);
    assert_int_equal(form_of(QUIRE_TOKENIZE, "{\"prompt\":\"\"}"), QUIRE_TOKENIZE);
    assert_int_equal(form_of(QUIRE_TOKENIZE, "{" USER "}"), QUIRE_TOKENIZE_CHAT);
    assert_int_equal(form_of(QUIRE_TOKENIZE, "{\"model\":\"m\"," USER ",\"tools\":[]}"), QUIRE_TOKENIZE_CHAT);
    assert_int_equal(form_of(QUIRE_TOKENIZE, "{\"content\":\"x\"}"), QUIRE_TOKENIZE_CONTENT);
    assert_int_equal(form_of(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"content\":\"y\"}"), QUIRE_COMPLETIONS);
}

TEST(a_forms_fields_have_its_defaults) {
    quire_request *r = parse(QUIRE_TOKENIZE, "{\"prompt\":\"x\"}");
    assert_true(r->g.add_special && !r->g.special_is_text && r->g.more.prompt_only);
    assert_true(r->g.info.return_token_ids && !r->g.more.token_texts);
    quire_request_free(r);
    r = parse(QUIRE_TOKENIZE, "{\"prompt\":\"x\",\"add_special_tokens\":false,\"return_token_strs\":true}");
    assert_true(!r->g.add_special && r->g.more.token_texts);
    quire_request_free(r);
    r = parse(QUIRE_TOKENIZE, "{\"content\":\"x\"}");
    assert_false(r->g.add_special);
    quire_request_free(r);
    r = parse(QUIRE_TOKENIZE, "{\"content\":\"x\",\"add_special\":true,\"parse_special\":false,"
                              "\"with_pieces\":true}");
    assert_true(r->g.add_special && r->g.special_is_text && r->g.more.token_texts);
    quire_request_free(r);
}

/* What concerns the response of a generation is checked and dropped. */
TEST(a_conversation_has_one_choice_and_no_stream) {
    quire_request *r = parse(QUIRE_TOKENIZE, "{" USER ",\"n\":4,\"stream\":true,\"logprobs\":true}");
    const quire_request_info *i = quire_request_describe(r);
    assert_true(!i->stream && i->n_choices == 1 && i->logprobs < 0 && i->prompt_logprobs < 0);
    quire_request_free(r);
    refuse(QUIRE_TOKENIZE, "{" USER ",\"temperature\":9}", "temperature", "from 0 to 2");
}

TEST(wrong_bodies_are_refused_by_name) {
    refuse(QUIRE_TOKENIZE, "{}", "prompt", "give text or messages");
    refuse(QUIRE_TOKENIZE, "{\"prompt\":null}", "body.prompt", "must be a string");
    refuse(QUIRE_TOKENIZE, "{\"prompt\":[1]}", "body.prompt", "must be a string");
    refuse(QUIRE_TOKENIZE, "{\"prompt\":\"x\"," USER "}", "prompt", "and messages are both given");
    refuse(QUIRE_TOKENIZE, "{\"content\":7}", "body.content", "must be a string");
    refuse(QUIRE_TOKENIZE, "{\"messages\":[]}", "", "empty");
    refuse(QUIRE_DETOKENIZE, "{}", "tokens", "missing");
    refuse(QUIRE_DETOKENIZE, "{\"tokens\":\"x\"}", "body.tokens", "an array of token ids");
    refuse(QUIRE_DETOKENIZE, "{\"tokens\":[-5]}", "body.tokens.0", "at least 0");
    refuse(QUIRE_DETOKENIZE, "{\"tokens\":[2048]}", "", "out of the vocabulary");
    refuse(QUIRE_APPLY_TEMPLATE, "{}", "body.messages", "missing");
}

TEST(no_ids_have_an_empty_text) {
    quire_request *r = parse(QUIRE_DETOKENIZE, "{\"tokens\":[]}");
    assert_int_equal(r->g.n_prompts, 1);
    assert_int_equal(r->g.prompts[0].n_ids, 0);
    assert_non_null(r->g.prompts[0].ids);
    quire_request_free(r);
}

/* ---- render ---- */

static bool renders(quire_endpoint endpoint, const char *body, const char *words) {
    quire_request *r = parse(endpoint, body);
    bool has = strstr(quire_request_describe_more(r)->render, words) != NULL;
    quire_request_free(r);
    return has;
}

TEST(a_rendered_request_has_its_sampling) {
    assert_true(
        renders(QUIRE_COMPLETIONS_RENDER, "{\"prompt\":\"x\",\"temperature\":0.7}", "\"temperature\":0.7,"));
    assert_true(renders(QUIRE_COMPLETIONS_RENDER, "{\"prompt\":\"x\"}", "\"max_tokens\":16"));
    assert_true(
        renders(QUIRE_COMPLETIONS_RENDER, "{\"prompt\":\"x\",\"stop\":[\"a\\\"\"]}", "\"stop\":[\"a\\\"\"]"));
    assert_true(
        renders(QUIRE_COMPLETIONS_RENDER, "{\"prompt\":\"x\",\"bad_words\":\"a\"}", "\"bad_words\":[\"a\"]"));
    assert_true(renders(QUIRE_CHAT_RENDER, "{" USER ",\"stream\":true,\"seed\":7,\"n\":3}", "\"seed\":7"));
    assert_true(renders(QUIRE_CHAT_RENDER, "{" USER ",\"stream\":true,\"n\":3}", "\"stream\":true"));
    assert_true(renders(QUIRE_CHAT_RENDER, "{" USER ",\"n\":3}", "\"n\":3"));
    assert_false(renders(QUIRE_CHAT_RENDER, "{" USER "}", "max_tokens"));
    refuse(QUIRE_CHAT_RENDER, "{" USER ",\"top_p\":2}", "top_p", "at most 1");
}

/* ---- several chats ---- */

TEST(several_conversations_share_their_fields) {
    quire_request *r = parse(QUIRE_CHAT_BATCH, "{\"messages\":[[{\"role\":\"user\",\"content\":\"a\"}],"
                                               "[{\"role\":\"user\",\"content\":\"b\"}]],\"n\":2}");
    assert_int_equal(quire_request_describe(r)->n_choices, 4);
    assert_int_equal(r->g.n_prompts, 2);
    quire_request_free(r);
    refuse(QUIRE_CHAT_BATCH, "{" USER "}", "body.messages.0", "not a conversation");
    refuse(QUIRE_CHAT_BATCH, "{\"messages\":[]}", "messages", "0 conversations");
    refuse(QUIRE_CHAT_BATCH, "{\"messages\":[[]]}", "body.messages.0", "not a conversation");
    refuse(QUIRE_CHAT_BATCH, "{\"messages\":[[{\"content\":\"a\"}]]}", "body.messages.0.0.role", "role");
    refuse(QUIRE_CHAT_BATCH, "{}", "body.messages", "missing");
    refuse(QUIRE_CHAT_BATCH, "{\"messages\":[[{\"role\":\"user\",\"content\":\"a\"}]],\"stream\":true}",
           "stream", "cannot be streamed");
}

/* ---- hostile bodies of every endpoint that reads texts ---- */

TEST(truncated_and_mutated_bodies_of_any_endpoint_never_crash) {
    static const char body[] =
        "{\"model\":\"t\",\"prompt\":\"a\",\"content\":\"b\",\"tokens\":[1,2],\"input\":[\"a\",\"b\"],"
        "\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"b\"}],\"text_1\":[\"a\"],\"text_2\":[\"b\"],\"top_"
        "n\":1,"
        "\"messages\":[[{\"role\":\"user\",\"content\":\"\\u00e9\"}]],\"truncate_prompt_tokens\":3,"
        "\"encoding_format\":\"base64\",\"pooling\":\"mean\",\"request_id\":\"x\",\"vllm_xargs\":{\"a\":1}}";
    const size_t n = sizeof body - 1;
    char copy[sizeof body];
    uint64_t seed = rng_os_seed(), rng = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        quire_request *r;
        quire_error err = {0};
        quire_endpoint endpoint =
            (quire_endpoint)(QUIRE_TOKENIZE + round % (QUIRE_CHAT_BATCH + 1 - QUIRE_TOKENIZE));
        size_t length = round % 3 == 0 ? rng_next(&rng) % n : n;
        memcpy(copy, body, sizeof body);
        for (uint64_t k = rng_next(&rng) % 4; k > 0; k--) {
            copy[rng_next(&rng) % n] = (char)("\"{}[],:0-e.\\u\xff\0 tn"[rng_next(&rng) % 18]);
        }
        quire_err e = request_parse(&context, endpoint, copy, length, &r, &err);
        assert_true(e == QUIRE_OK || (e == QUIRE_BAD_REQUEST && err.message[0] != '\0' && r == NULL));
        quire_request_free(r);
    }
}

TEST_MAIN(NULL, NULL)
