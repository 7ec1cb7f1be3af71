/* Engine options: invalid ones, those of another header version, and allowed extremes. */
#include <math.h>
#include <string.h>

#include "quire.h"
#include "test.h"

static quire_options options_for(const char *model) {
    quire_options o;
    quire_options_init(&o);
    o.model = model;
    return o;
}

static void refused(const quire_options *o, const char *what) {
    quire_error err = {0};
    quire_engine *e = NULL;
    quire_err r = quire_engine_open(o, &e, &err);
    if (r == QUIRE_OK || e != NULL || !strstr(err.message, what)) {
        fail_msg("expected a refusal about \"%s\": %s, \"%s\"", what, quire_err_name(r), err.message);
    }
    assert_int_not_equal(quire_engine_open(o, &e, NULL), QUIRE_OK); /* without a place for the message, too */
}

#define REFUSED_WITH(field, value, what)                                                                     \
    do {                                                                                                     \
        quire_options o = options_for("models/builtin-small.gguf");                                          \
        o.n_pages = 64;                                                                                      \
        o.field = (value);                                                                                   \
        refused(&o, what);                                                                                   \
    } while (0)

TEST(options_out_of_bounds_are_refused_by_name) {
    REFUSED_WITH(model, NULL, "NULL");
    REFUSED_WITH(isa, NULL, "NULL");
    REFUSED_WITH(model, "no/such/file.gguf", "no/such/file.gguf");
    REFUSED_WITH(model, "", "");
    REFUSED_WITH(compute, (quire_compute)99, "--compute 99");
    REFUSED_WITH(kv_dtype, (quire_kv_dtype)-1, "--kv-dtype");
    REFUSED_WITH(isa, "mmx", "mmx");
    REFUSED_WITH(json_additional_properties, (quire_json_properties)2, "--json-additional-properties");
    REFUSED_WITH(json_whitespace, (quire_json_space)3, "--json-whitespace");
    REFUSED_WITH(page_tokens, 0, "page");
    REFUSED_WITH(page_tokens, 24, "page");
    REFUSED_WITH(page_tokens, 512, "page");
    REFUSED_WITH(page_tokens, INT32_MIN, "page");
    REFUSED_WITH(n_pages, -1, "--kv-pages");
    REFUSED_WITH(n_pages, INT32_MAX, "--kv-pages");
    REFUSED_WITH(max_model_len, 1, "--max-model-len");
    REFUSED_WITH(max_model_len, -5, "--max-model-len");
    /* longer than it was made for is only warned of */
    REFUSED_WITH(max_model_len, 4096, "not even one request");
    REFUSED_WITH(max_model_len, 1025, "hold not even one"); /* 64 pages of 16 */
    REFUSED_WITH(max_batched_tokens, 0, "--max-num-batched-tokens");
    REFUSED_WITH(max_seqs, 0, "--max-num-seqs");
    REFUSED_WITH(max_seqs, INT32_MAX, "--max-num-seqs");
    REFUSED_WITH(prefill_chunk, -1, "--chunk");
    REFUSED_WITH(n_threads, -1, "--threads");
    REFUSED_WITH(n_text_threads, -1, "--text-threads");
    REFUSED_WITH(memory_utilization, 0.0, "--memory-utilization");
    REFUSED_WITH(memory_utilization, 1.5, "--memory-utilization");
    REFUSED_WITH(memory_utilization, (double)NAN, "--memory-utilization");
    REFUSED_WITH(chat_template, "{% if %}", "");
    quire_options o = options_for("builtin");
    char *text;
    o.memory_utilization = (double)NAN;
    assert_int_not_equal(quire_inspect(&o, true, &text, NULL), QUIRE_OK);
    assert_null(text);
}

TEST(options_are_set_by_their_flags_names) {
    quire_options o = options_for("models/builtin-small.gguf");
    quire_error err = {0};
    assert_int_equal(quire_options_set(&o, "--max-num-seqs", "7", &err), QUIRE_OK);
    assert_int_equal(quire_options_set(&o, "kv_cache_dtype", "fp8", &err), QUIRE_OK);
    assert_int_equal(quire_options_set(&o, "swap-space", "2", &err), QUIRE_OK);
    assert_int_equal(quire_options_set(&o, "mlock", "true", &err), QUIRE_OK);
    assert_int_equal(o.max_seqs, 7);
    assert_int_equal(o.kv_dtype, QUIRE_KV_FP8_E4M3);
    assert_int_equal(o.swap_bytes, (int64_t)2 << 30);
    assert_true(o.lock_memory);
    assert_int_equal(quire_options_set(&o, "max-num-seqs", "none", &err), QUIRE_INVALID);
    assert_int_equal(o.max_seqs, 7);
    assert_int_equal(quire_options_set(&o, "max-num-sequences", "7", &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "max-num-sequences: no such option"));
    quire_options older;
    quire_options_init_sized(&older, offsetof(quire_options, max_seqs)); /* its header has no such member */
    assert_int_equal(quire_options_set(&older, "max-num-seqs", "7", &err), QUIRE_INVALID);
}

TEST(options_are_set_by_short_names_and_words_and_never_by_nothing) {
    quire_options o = options_for("models/builtin-small.gguf");
    quire_error err = {0};
    assert_int_equal(quire_options_set(&o, "-t", "3", &err), QUIRE_OK);
    assert_int_equal(quire_options_set(&o, "ctk", "f16", &err), QUIRE_OK);
    assert_int_equal(o.n_threads, 3);
    assert_int_equal(o.kv_dtype, QUIRE_KV_F16);
    assert_int_equal(quire_options_set(&o, "max-num-seqs", NULL, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "max-num-seqs: needs a value"));
    assert_int_equal(quire_options_set(&o, "model", NULL, &err), QUIRE_INVALID);
    assert_string_equal(o.model, "models/builtin-small.gguf");
    assert_int_equal(quire_options_set(&o, "enable-prefix-caching", "maybe", &err), QUIRE_INVALID);
    assert_int_equal(quire_options_set(&o, "no-enable-prefix-caching", "false", &err), QUIRE_OK);
    assert_int_equal(o.prefix_cache, QUIRE_PREFIX_CACHE_TOKEN);
    assert_int_equal(quire_options_set(&o, "no-enable-prefix-caching", "true", &err), QUIRE_OK);
    assert_int_equal(o.prefix_cache, QUIRE_PREFIX_CACHE_NONE);
    assert_int_equal(quire_options_set(&o, "mlock", NULL, &err), QUIRE_OK);
    assert_true(o.lock_memory);
}

/* What a program compiled with another version's header hands over: `size` bytes of
 * options, initialised by this library. */
static quire_err open_sized(size_t size, unsigned char *bytes, quire_error *err) {
    quire_options *o = (quire_options *)bytes;
    quire_engine *e = NULL;
    o->model = "models/builtin-small.gguf";
    quire_err r = quire_engine_open(o, &e, err);
    if (r == QUIRE_OK) {
        assert_int_equal(quire_engine_info(e)->page_tokens, 16); /* a default */
        quire_engine_close(e);
    }
    char *text = NULL;
    int64_t n;
    assert_int_equal(quire_inspect(o, true, &text, NULL), r);
    quire_free(text);
    assert_int_equal(o->size, size);
    if (r != QUIRE_OK) {
        assert_int_equal(quire_pack(o, "/nonexistent/packed", &n, NULL), QUIRE_INVALID);
    }
    return r;
}

TEST(options_of_another_header_are_read_by_their_size) {
    static const size_t fewer[] = {offsetof(quire_options, compute), offsetof(quire_options, audit),
                                   sizeof(quire_options)};
    quire_error err = {0};
    /* an older program: what it does not know has its default */
    for (size_t i = 0; i < sizeof fewer / sizeof *fewer; i++) {
        _Alignas(quire_options) unsigned char bytes[sizeof(quire_options) + 64];
        memset(bytes, 0xa5, sizeof bytes);
        quire_options_init_sized((quire_options *)bytes, fewer[i]);
        for (size_t k = fewer[i]; k < sizeof bytes; k++) {
            assert_int_equal(bytes[k], 0xa5); /* nothing is written past the caller's struct */
        }
        if (open_sized(fewer[i], bytes, &err) != QUIRE_OK) {
            fail_msg("%zu bytes: %s", fewer[i], err.message);
        }
    }
    _Alignas(quire_options) unsigned char newer[sizeof(quire_options) + 64]; /* a newer program */
    memset(newer, 0xa5, sizeof newer);
    quire_options_init_sized((quire_options *)newer, sizeof newer);
    assert_int_equal(open_sized(sizeof newer, newer, &err), QUIRE_OK);
    newer[sizeof newer - 1] = 1; /* it sets an option that only its header has */
    assert_int_equal(open_sized(sizeof newer, newer, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "does not know"));
}

TEST(options_without_a_size_are_refused) {
    static const size_t wrong[] = {0,
                                   1,
                                   sizeof(size_t),
                                   offsetof(quire_options, model) + sizeof(char *) - 1,
                                   sizeof(quire_options) - 1,
                                   4104,
                                   SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        quire_options o = options_for("builtin-small");
        o.size = wrong[i];
        refused(&o, "quire_options.size");
    }
}

TEST(the_version_is_the_header_s) {
    assert_string_equal(quire_version(), QUIRE_VERSION);
}

TEST(extreme_options_that_are_allowed_work) {
    static const struct {
        int32_t page_tokens, n_pages, max_batched_tokens, max_seqs, prefill_chunk, max_model_len;
    } cases[] = {{1, 2, 1, 1, 1, 2},
                 {256, 1, 1, 8, 0, 0},
                 {1, 100, 3, 2, 2, 100},
                 {16, 1, 512, 1, 1 << 20, 0},
                 {16, 200, 1 << 12, 300, 7, 2048}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quire_options o = options_for("models/builtin-small.gguf");
        quire_engine *e;
        quire_queue *q;
        quire_request *r;
        quire_stream *s;
        quire_event ev = {0};
        quire_error err = {0};
        o.page_tokens = cases[i].page_tokens;
        o.n_pages = cases[i].n_pages;
        o.max_batched_tokens = cases[i].max_batched_tokens;
        o.max_seqs = cases[i].max_seqs;
        o.prefill_chunk = cases[i].prefill_chunk;
        o.max_model_len = cases[i].max_model_len;
        assert_int_equal(quire_engine_open(&o, &e, &err), QUIRE_OK);
        int32_t room = quire_engine_info(e)->max_model_len, n_tokens = 0;
        assert_true(room <= o.page_tokens * o.n_pages);
        assert_int_equal(quire_queue_open(e, &q), QUIRE_OK);
        assert_int_equal(quire_request_ids(e, (int32_t[]){7}, 1, &r, &err), QUIRE_OK);
        assert_int_equal(quire_request_set(r, "max_tokens", room < 41 ? "1" : "40", &err), QUIRE_OK);
        assert_int_equal(quire_request_set(r, "ignore_eos", "true", &err), QUIRE_OK);
        assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_OK);
        while (ev.kind != QUIRE_EVENT_DONE) {
            if (!quire_queue_next(q, &ev)) {
                quire_queue_wait(q, -1);
                ev.kind = QUIRE_EVENT_START;
                continue;
            }
            n_tokens += ev.kind == QUIRE_EVENT_DELTA ? ev.n_tokens : 0;
        }
        assert_int_equal(ev.finish, QUIRE_FINISH_LENGTH);
        assert_int_equal(n_tokens, room < 41 ? 1 : 40);
        quire_queue_close(q);
        quire_engine_close(e);
    }
}

TEST_MAIN(NULL, NULL)
