#include "core/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void fields_are_sorted_by_name_and_distinct_on_each_endpoint(void **state) {
    (void)state;
    int32_t n;
    const field_desc *f = params_fields(&n);
    assert_true(n > 80);
    for (int32_t i = 1; i < n; i++) {
        int order = strcmp(f[i - 1].name, f[i].name);
        assert_true(order < 0 || (order == 0 && !(f[i - 1].flags & f[i].flags & FIELD_ALL)));
    }
}

static void every_field_is_found_on_its_endpoints_and_no_other(void **state) {
    (void)state;
    int32_t n;
    const field_desc *f = params_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        assert_true(f[i].flags & FIELD_ALL);
        for (int k = 0; k < 3; k++) {
            const uint32_t endpoint = (const uint32_t[]){FIELD_COMPLETIONS, FIELD_CHAT, FIELD_EMBEDDINGS}[k];
            const field_desc *found = params_field(f[i].name, endpoint);
            if (f[i].flags & endpoint) {
                assert_ptr_equal(found, &f[i]);
            } else {
                assert_true(found == NULL || found->flags & endpoint);
            }
        }
    }
    assert_null(params_field("messages", FIELD_COMPLETIONS));
    assert_null(params_field("prompt", FIELD_CHAT));
    assert_null(params_field("input", FIELD_BOTH));
    assert_null(params_field("temperature", FIELD_EMBEDDINGS));
    assert_null(params_field("", FIELD_CHAT));
    assert_null(params_field("zzz", FIELD_CHAT));
    assert_null(params_field("tempera", FIELD_CHAT));
}

static void a_field_that_differs_between_endpoints_has_a_row_for_each(void **state) {
    (void)state;
    assert_int_equal(params_field("logprobs", FIELD_COMPLETIONS)->type, FIELD_INT);
    assert_int_equal(params_field("logprobs", FIELD_CHAT)->type, FIELD_BOOL);
    assert_string_equal(params_field("max_tokens", FIELD_COMPLETIONS)->fallback, "16");
    assert_string_equal(params_field("max_tokens", FIELD_CHAT)->fallback, "null");
}

static void every_field_has_a_meaning_and_bounds_in_order(void **state) {
    (void)state;
    int32_t n;
    const field_desc *f = params_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        assert_true(strlen(f[i].meaning) > 0 && strlen(f[i].fallback) > 0);
        assert_true(f[i].minimum <= f[i].maximum);
        assert_false((f[i].flags & FIELD_LATER) && (f[i].flags & FIELD_IGNORED));
    }
}

static void values_of_which_something_is_compiled_have_a_bound_of_bytes(void **state) {
    (void)state;
    static const char *const bounded[] = {"guided_json",     "json_schema",        "regex", "grammar",
                                          "response_format", "structured_outputs", "tools"};
    static const char *const unbounded[] = {"messages", "temperature", "top_k", "stop_token_ids", "chat_template_kwargs", "metadata"};
    for (size_t i = 0; i < sizeof bounded / sizeof *bounded; i++) {
        assert_true(params_max_bytes(params_field(bounded[i], FIELD_CHAT)) >= PARAMS_MAX_RULE_BYTES);
    }
    for (size_t i = 0; i < sizeof unbounded / sizeof *unbounded; i++) {
        assert_int_equal(params_max_bytes(params_field(unbounded[i], FIELD_CHAT)), 0);
    }
    assert_int_equal(params_max_bytes(params_field("regex", FIELD_COMPLETIONS)), PARAMS_MAX_RULE_BYTES);
}

static void sampling_starts_with_no_cut_and_no_limit(void **state) {
    (void)state;
    sampling_params p;
    memset(&p, 0xff, sizeof p);
    sampling_params_init(&p);
    assert_true(p.temperature == 1.0f && p.top_p == 1.0f && p.min_p == 0.0f);
    assert_int_equal(p.top_k, 0);
    assert_int_equal(p.max_tokens, -1);
    assert_int_equal(p.min_tokens, 0);
    assert_false(p.ignore_eos);
    assert_false(p.has_seed);
    assert_int_equal(p.n_stop_tokens, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_sorted_by_name_and_distinct_on_each_endpoint),
        cmocka_unit_test(every_field_is_found_on_its_endpoints_and_no_other),
        cmocka_unit_test(a_field_that_differs_between_endpoints_has_a_row_for_each),
        cmocka_unit_test(every_field_has_a_meaning_and_bounds_in_order),
        cmocka_unit_test(values_of_which_something_is_compiled_have_a_bound_of_bytes),
        cmocka_unit_test(sampling_starts_with_no_cut_and_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
