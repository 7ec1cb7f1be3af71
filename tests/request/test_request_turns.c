/* Text that ends a chat's response although the request does not name it: the next
 * turn. */

#include <string.h>

#include "request/request.h"
#include "test.h"

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static const request_context context = {.n_vocab = 2048, .max_model_len = 1024, .has_vocabulary = true};

static quire_request *parse_by(const request_context *ctx, quire_endpoint endpoint, const char *body) {
    quire_request *r;
    quire_error err = {0};
    assert_int_equal(request_parse(ctx, endpoint, body, strlen(body), &r, &err), QUIRE_OK);
    assert_int_equal(request_check(r, &err), QUIRE_OK); /* once more, as quire_submit does */
    return r;
}

/* The strings and the token of a form without template end the answers of chats, after
 * those of the request. */
TEST(the_next_turn_ends_an_answer) {
    const chat_form form = {.name = "plain", .stops = {{"\nuser:", 6}}, .n_stops = 1, .end_token = 7};
    request_context ctx = context;
    ctx.form = &form;
    char sixteen[512] = "{" USER ",\"stop\":[\"a\"";
    for (int i = 1; i < PARAMS_MAX_STOP; i++) {
        strcat(sixteen, ",\"b\"");
    }
    strcat(sixteen, "]}");
    quire_request *r = parse_by(&ctx, QUIRE_CHAT, sixteen);
    assert_int_equal(r->g.n_stops, PARAMS_MAX_STOP + 1);
    assert_true(str_is(r->g.stops[0], "a") && str_is(r->g.stops[PARAMS_MAX_STOP], "\nuser:"));
    assert_int_equal(r->g.sampling.n_stop_tokens, 1);
    assert_int_equal(r->g.sampling.stop_tokens[0], 7);
    quire_request_free(r);
    char ids[1024] = "{" USER ",\"stop_token_ids\":[8";
    for (int i = 1; i < PARAMS_MAX_STOP_TOKENS; i++) {
        strcat(ids, ",9");
    }
    strcat(ids, "]}");
    r = parse_by(&ctx, QUIRE_CHAT, ids);
    assert_int_equal(r->g.sampling.n_stop_tokens, PARAMS_MAX_STOP_TOKENS + 1);
    quire_request_free(r);
    r = parse_by(&ctx, QUIRE_CHAT,
                 "{" USER ",\"ignore_eos\":true,\"stop\":\"a\",\"add_special_tokens\":false}");
    assert_int_equal(r->g.n_stops, 1);
    assert_int_equal(r->g.sampling.n_stop_tokens, 0);
    quire_request_free(r);
    r = parse_by(&ctx, QUIRE_COMPLETIONS, "{\"prompt\":\"x\"}");
    assert_int_equal(r->g.n_stops + r->g.sampling.n_stop_tokens, 0);
    quire_request_free(r);
}

TEST_MAIN(NULL, NULL)
