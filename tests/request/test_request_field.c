/* The table of fields: its order and rows, and that a new request has every default. */
#include <string.h>

#include "endpoints.h"
#include "request/request_read.h"
#include "test.h"

TEST(fields_are_sorted_by_name_and_distinct_on_each_endpoint) {
    int32_t n;
    const field_desc *f = request_fields(&n);
    assert_true(n > 80);
    for (int32_t i = 1; i < n; i++) {
        int order = strcmp(f[i - 1].name, f[i].name);
        assert_true(order < 0 || (order == 0 && !(f[i - 1].flags & f[i].flags & FIELD_ENDPOINTS)));
    }
}

TEST(every_field_is_found_on_its_endpoints_and_no_other) {
    int32_t n;
    const field_desc *f = request_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        assert_true(f[i].flags & FIELD_ENDPOINTS);
        for (quire_endpoint e = 0; endpoint_facts_of(e).path != NULL; e++) {
            if (endpoint_facts_of(e).is_form) {
                continue; /* of two rows the first counts */
            }
            const uint32_t endpoint = request_dialects[e].fields;
            const field_desc *found = request_field(f[i].name, endpoint);
            if (f[i].flags & endpoint) {
                assert_ptr_equal(found, &f[i]);
            } else {
                assert_true(found == NULL || found->flags & endpoint);
            }
        }
    }
    assert_null(request_field("messages", FIELD_COMPLETIONS));
    assert_null(request_field("prompt", FIELD_CHAT));
    assert_null(request_field("input", FIELD_BOTH));
    assert_null(request_field("temperature", FIELD_EMBEDDINGS));
    assert_null(request_field("", FIELD_CHAT));
    assert_null(request_field("zzz", FIELD_CHAT));
    assert_null(request_field("tempera", FIELD_CHAT));
}

TEST(a_field_that_differs_between_endpoints_has_a_row_for_each) {
    assert_int_equal(request_field("logprobs", FIELD_COMPLETIONS)->type, FIELD_INT);
    assert_int_equal(request_field("logprobs", FIELD_CHAT)->type, FIELD_BOOL);
    assert_true(request_field("max_tokens", FIELD_COMPLETIONS)->number == 16);
    assert_true(request_field("max_tokens", FIELD_CHAT)->number == -1);
}

TEST(every_field_has_a_meaning_and_bounds_in_order) {
    int32_t n;
    const field_desc *f = request_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        const bool is_stored = (f[i].flags & (FIELD_LATER | FIELD_IGNORED)) == 0,
                   by_place = is_stored && f[i].read == NULL;
        assert_true(strlen(f[i].meaning) > 0 && (f[i].fallback == NULL) == is_stored);
        assert_true(!by_place || (f[i].place > 0 && (f[i].type == FIELD_BOOL || f[i].type == FIELD_INT ||
                                                     f[i].type == FIELD_NUMBER)));
        assert_true(is_stored || f[i].read == NULL);
        assert_true(f[i].minimum <= f[i].maximum);
        assert_false((f[i].flags & FIELD_LATER) && (f[i].flags & FIELD_IGNORED));
    }
}

TEST(values_of_which_something_is_compiled_have_a_bound_of_bytes) {
    static const char *const bounded[] = {"guided_json",     "json_schema",        "regex", "grammar",
                                          "response_format", "structured_outputs", "tools"};
    static const char *const unbounded[] = {"messages",       "temperature",          "top_k",
                                            "stop_token_ids", "chat_template_kwargs", "metadata"};
    for (size_t i = 0; i < sizeof bounded / sizeof *bounded; i++) {
        assert_true(request_field_max_bytes(request_field(bounded[i], FIELD_CHAT)) >= PARAMS_MAX_RULE_BYTES);
    }
    for (size_t i = 0; i < sizeof unbounded / sizeof *unbounded; i++) {
        assert_int_equal(request_field_max_bytes(request_field(unbounded[i], FIELD_CHAT)), 0);
    }
    assert_int_equal(request_field_max_bytes(request_field("regex", FIELD_COMPLETIONS)),
                     PARAMS_MAX_RULE_BYTES);
}

/* Setting every field to null changes nothing in a new request: what readers make of it
 * is what the request has. */
TEST(a_new_request_has_every_default) {
    static const request_context context = {
        .n_vocab = 8, .max_model_len = 8, .has_vocabulary = true, .json_space = GRAMMAR_SPACE_LINES};
    for (quire_endpoint endpoint = 0; endpoint_facts_of(endpoint).path != NULL; endpoint++) {
        quire_request *r, before;
        int32_t n;
        const field_desc *f = request_fields(&n);
        assert_int_equal(request_new(&context, endpoint, &r, NULL), QUIRE_OK);
        memcpy(&before, r, sizeof before);
        for (int32_t i = 0; i < n; i++) {
            if ((f[i].flags & dialect_of(&r->g)->fields) != 0 && f[i].type != FIELD_PROMPT &&
                f[i].type != FIELD_MESSAGES) {
                assert_int_equal(request_set_field(r, &f[i], NULL, NULL), QUIRE_OK);
                if (memcmp(r, &before, sizeof before) != 0) {
                    fail_msg("endpoint %u: null for %s changes a new request", (unsigned)endpoint, f[i].name);
                }
            }
        }
        quire_request_free(r);
    }
}

/* The rows and sampling_params_init say the same of sampling, but for the 16 tokens of a
 * completion. */
TEST(a_new_request_samples_as_the_engine_does_by_default) {
    static const request_context context = {.n_vocab = 8, .max_model_len = 8, .has_vocabulary = true};
    for (int endpoint = QUIRE_COMPLETIONS; endpoint <= QUIRE_CHAT; endpoint++) {
        quire_request *r;
        sampling_params p;
        sampling_params_init(&p);
        p.max_tokens = endpoint == QUIRE_COMPLETIONS ? 16 : p.max_tokens;
        assert_int_equal(request_new(&context, (quire_endpoint)endpoint, &r, NULL), QUIRE_OK);
        assert_memory_equal(&r->g.sampling, &p, sizeof p);
        quire_request_free(r);
    }
}

/* The server's table of writers is held to the same facts
 * (tests/server/test_writers.c). */
TEST(every_endpoint_has_a_dialect) {
    for (quire_endpoint e = 0; endpoint_facts_of(e).path != NULL; e++) {
        const dialect *d = &request_dialects[e];
        assert_int_equal(!d->gives_rows && !d->prompt_only, endpoint_facts_of(e).gives_text);
        assert_int_equal(d->gives_rows, endpoint_facts_of(e).gives_rows);
        assert_int_equal(d->prompt_only, endpoint_facts_of(e).prompt_only);
        assert_true(d->prompt != NULL && d->check != NULL && d->too_long != NULL);
        assert_true((d->required != NULL && d->listed_bytes > 0) || d->gives_rows || d->prompt_only);
        assert_true(d->fields != 0 && (d->base != 0) == (d->assemble != NULL));
        for (quire_endpoint other = 0; other < e; other++) { /* those of one path have the same fields */
            if (endpoint_facts_of(e).is_form || endpoint_facts_of(other).is_form) {
                continue;
            }
            bool shares = (d->fields & request_dialects[other].fields) != 0;
            assert_int_equal(shares, strcmp(endpoint_facts_of(e).path, endpoint_facts_of(other).path) == 0);
        }
    }
}

TEST_MAIN(NULL, NULL)
