/* Parses request bodies for a model with 2,048 ids and a context of 1,024 tokens, and
 * checks the errors of bodies that are refused. */
#ifndef TESTS_API_REQUEST_WORLD_H
#define TESTS_API_REQUEST_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request/request.h"
#include "test.h"

static const request_context context = {.n_vocab = 2048, .max_model_len = 1024, .has_vocabulary = true};

static inline quire_request *parse(quire_endpoint endpoint, const char *body) {
    quire_request *r;
    quire_error err = {0};
    if (request_parse(&context, endpoint, body, strlen(body), &r, &err) != QUIRE_OK) {
        fail_msg("%s: %s", body, err.message);
    }
    return r;
}

/* Expects an error with this param and with these words in its message. */
static inline void refuse_by(const request_context *ctx, quire_endpoint endpoint, const char *body,
                             const char *param, const char *words) {
    quire_request *r = (quire_request *)1;
    quire_error err = {0};
    quire_err e = request_parse(ctx, endpoint, body, strlen(body), &r, &err);
    if (e == QUIRE_OK) {
        fail_msg("accepted: %s", body);
    }
    assert_null(r);
    assert_int_equal(e, QUIRE_BAD_REQUEST);
    assert_int_equal(err.code, e);
    if (strcmp(err.param, param) != 0 || strstr(err.message, words) == NULL) {
        fail_msg("%s\nparam \"%s\", expected \"%s\"\nmessage \"%s\", expected \"%s\"", body, err.param, param,
                 err.message, words);
    }
}

static inline void refuse(quire_endpoint endpoint, const char *body, const char *param, const char *words) {
    refuse_by(&context, endpoint, body, param, words);
}

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

#endif
