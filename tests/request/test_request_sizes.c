/* Values too large for their field are refused before anything is built from them,
 * however long the body is. */
#include "request/request.h"

#include <string.h>

#include "base/clock.h"
#include "test.h"
#include "json/json.h"

static const request_context context = {.n_vocab = 2048, .max_model_len = 1024, .has_vocabulary = true};

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

#define N_TRIES 8 /* of a comparison of processor times, which others disturb now and then */

static void add(strbuf *b, const char *text) {
    assert_int_equal(strbuf_add_str(b, text), QUIRE_OK);
}

static void repeat(strbuf *b, const char *piece, size_t n) {
    assert_int_equal(strbuf_reserve(b, n * strlen(piece)), QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        add(b, piece);
    }
}

/* A body up to the value of a field. */
static strbuf begin(const char *field) {
    strbuf b = {0};
    assert_int_equal(strbuf_addf(&b, "{" USER ",\"prompt\":\"x\",\"%s\":", field), QUIRE_OK);
    return b;
}

/* The error of a body, which is freed; code OK: it is a request. */
static quire_error error_of(strbuf *b, quire_endpoint endpoint) {
    quire_request *r;
    quire_error err = {0};
    (void)request_parse(&context, endpoint, b->p, b->n, &r, &err);
    quire_request_free(r);
    strbuf_deinit(b);
    return err;
}

static bool is_of_size(const quire_error *err) {
    return strstr(err->message, "not counting white space") != NULL;
}

static bool begins_with(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

TEST(a_value_with_a_byte_over_its_fields_bound_is_refused_by_name) {
    int32_t n, n_bounded = 0;
    const field_desc *f = request_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        size_t most = request_field_max_bytes(&f[i]);
        if (most == 0) {
            continue;
        }
        n_bounded++;
        for (size_t over = 0; over < 2; over++) {
            strbuf b = begin(f[i].name);
            add(&b, "\"");
            repeat(&b, "a", most + over);
            add(&b, "\"}");
            quire_endpoint endpoint = 0;
            while (!(f[i].flags & request_dialects[endpoint].fields)) {
                endpoint++; /* every field has one */
            }
            const quire_error err = error_of(&b, endpoint);
            if (is_of_size(&err) != (over > 0)) {
                fail_msg("%s, %zu over: %s", f[i].name, over, err.message);
            }
            assert_true(over == 0 || err.code == QUIRE_BAD_REQUEST);
            assert_true(over == 0 || begins_with(err.message, f[i].name));
            assert_true(over == 0 || strcmp(err.param, f[i].type == FIELD_OBJECT ? "" : f[i].name) == 0);
        }
    }
    assert_true(n_bounded >= 14);
}

TEST(white_space_and_escapes_do_not_count) {
    strbuf b = begin("json_schema");
    add(&b, "{\"enum\":[");
    for (int i = 0; i < 40000; i++) {
        assert_int_equal(
            strbuf_addf(&b, "\n                                                    \"\\u0041\\u0042%d\",", i),
            QUIRE_OK);
    }
    add(&b, "1]}}");
    assert_true(b.n > 2 * PARAMS_MAX_RULE_BYTES);
    const quire_error err = error_of(&b, QUIRE_COMPLETIONS);
    assert_int_equal(err.code, QUIRE_OK);
}

TEST(other_members_have_no_part_in_a_fields_bound) {
    strbuf b = begin("regex");
    add(&b, "\"a\",\"user\":\"");
    repeat(&b, "a", 2 * PARAMS_MAX_RULE_BYTES);
    add(&b, "\",\"metadata\":{\"regex\":\"");
    repeat(&b, "a", 2 * PARAMS_MAX_RULE_BYTES);
    add(&b, "\"}}");
    const quire_error err = error_of(&b, QUIRE_COMPLETIONS);
    assert_int_equal(err.code, QUIRE_OK);
}

TEST(tools_and_single_fields_set_by_name_have_the_same_bounds) {
    quire_request *r;
    quire_error err = {0};
    strbuf b = {0};
    assert_int_equal(request_parse(&context, QUIRE_CHAT, "{" USER "}", strlen("{" USER "}"), &r, &err),
                     QUIRE_OK);
    add(&b, "[\"");
    repeat(&b, "a", PARAMS_MAX_TOOLS_BYTES);
    add(&b, "\"]");
    assert_int_equal(quire_request_tools(r, b.p, b.n, &err), QUIRE_BAD_REQUEST);
    assert_true(is_of_size(&err) && begins_with(err.message, "tools"));
    assert_int_equal(quire_request_set(r, "guided_json", b.p, &err), QUIRE_BAD_REQUEST);
    assert_true(is_of_size(&err) && begins_with(err.message, "guided_json"));
    quire_request_free(r);
    strbuf_deinit(&b);
}

/* {"type": "object", "properties": {"p": {..}, ..}} of over 10 MB; quote: how it writes
 * quotes. */
static void add_large_schema(strbuf *b, const char *quote) {
    assert_int_equal(
        strbuf_addf(b, "{%stype%s:%sobject%s,%sproperties%s:{", quote, quote, quote, quote, quote, quote),
        QUIRE_OK);
    for (int i = 0; i < 40000; i++) {
        assert_int_equal(strbuf_addf(b, "%s%sp%d%s: {%stype%s: %sstring%s, %spattern%s: %s^a%0200d[0-9]+$%s}",
                                     i > 0 ? "," : "", quote, i, quote, quote, quote, quote, quote, quote,
                                     quote, quote, i, quote),
                         QUIRE_OK);
    }
    add(b, "}}");
}

/* Processor time of a whole read of a document, without a request of it. */
static int64_t us_of_reading(str text) {
    int64_t from = clock_thread_us();
    json_value *v = json_document(text);
    int64_t us = clock_thread_us() - from;
    assert_non_null(v);
    json_drop(v);
    return us;
}

/* Less than what a read of the body as a document takes, before a schema is built of
 * it. */
TEST(a_schema_of_10_mb_is_refused_before_its_document_is_built) {
    static const struct {
        const char *field, *before, *behind, *quote;
    } spellings[] = {
        {"guided_json", "", "", "\""},
        {"guided_json", "\"", "\"", "\\\""},
        {"json_schema", "", "", "\""},
        {"structured_outputs", "{\"json\":", "}", "\""},
        {"structured_outputs", "{\"json\":\"", "\"}", "\\\""},
        {"response_format", "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":", "}}",
         "\""},
        {"tools", "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":", "}}]", "\""},
        {"functions", "[{\"name\":\"f\",\"parameters\":", "}]", "\""},
    };
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        strbuf b = begin(spellings[i].field);
        add(&b, spellings[i].before);
        add_large_schema(&b, spellings[i].quote);
        add(&b, spellings[i].behind);
        add(&b, "}");
        assert_true(b.n > 10000000);
        int64_t us = INT64_MAX, reading_us = 0;
        for (int try = 0; try < N_TRIES && us >= reading_us; try++) {
            quire_error err = {0};
            quire_request *r;
            reading_us = us_of_reading((str){b.p, b.n});
            int64_t from = clock_thread_us();
            (void)request_parse(&context, QUIRE_CHAT, b.p, b.n, &r, &err);
            us = clock_thread_us() - from;
            quire_request_free(r);
            assert_true(is_of_size(&err) && begins_with(err.message, spellings[i].field));
        }
        print_message("%s, %zu bytes: %lld us; a read takes %lld us\n", spellings[i].field, b.n,
                      (long long)us, (long long)reading_us);
        assert_true(us < reading_us);
        strbuf_deinit(&b);
    }
}

TEST_MAIN(NULL, NULL)
