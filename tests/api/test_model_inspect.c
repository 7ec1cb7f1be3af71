/* `quire inspect` in both forms, on real files and on files whose words and numbers are chosen to embarrass it; and options that no one
 * should give. */
#include "model/make_model.h"

#include <math.h>

#include "json/json.h"

#include "quire.h"
#include "base/utf8.h"

static quire_options options_for(const char *model) {
    quire_options o;
    quire_options_init(&o);
    o.model = model;
    return o;
}

static char *inspect(const quire_options *o, bool json) {
    char *text;
    quire_error err = {0};
    if (quire_inspect(o, json, &text, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_non_null(text);
    return text;
}

static json_value *inspect_json(const quire_options *o) {
    char *text = inspect(o, true);
    json_value *v = json_document(str_of(text));
    assert_non_null(v);
    assert_true(utf8_is_valid(str_of(text)));
    quire_free(text);
    return v;
}

static int64_t number(json_value *o, const char *key) {
    json_value *v = json_get(o, key);
    assert_true(json_is(v, JSON_KIND_INT));
    return json_int64(v);
}

static json_value *plan_of(json_value *o, const char *kv_dtype) {
    json_value *plan = json_get(o, "memory_plan");
    for (size_t i = 0; i < json_length(plan); i++) {
        json_value *one = json_at(plan, i);
        if (str_is(json_get_str(one, "kv_dtype"), kv_dtype)) {
            return one;
        }
    }
    fail_msg("no plan for %s", kv_dtype);
    return NULL;
}

static void the_builtin_model_is_summed_up(void **state) {
    (void)state;
    quire_options o = options_for("builtin");
    json_value *v = inspect_json(&o);
    assert_int_equal(number(v, "n_layers"), 6);
    assert_int_equal(number(v, "n_vocab"), 2048);
    int64_t d = number(v, "d_model"), ff = number(v, "d_ff"), kv = number(v, "n_kv_heads") * number(v, "d_head");
    int64_t matrices = 2048 * d + 6 * (2 * d * d + 2 * kv * d + 3 * ff * d), norms = 13 * d;
    assert_int_equal(number(v, "n_params"), matrices + norms);
    assert_int_equal(number(v, "weight_bytes"), matrices / 32 * 34 + norms * 4);
    json_value *types = json_get(v, "weight_bytes_by_type");
    assert_int_equal(number(types, "Q8_0"), matrices / 32 * 34);
    assert_int_equal(number(types, "F32"), norms * 4);
    json_value *f32 = plan_of(v, "F32"), *f16 = plan_of(v, "F16"), *bf16 = plan_of(v, "BF16");
    assert_int_equal(number(f32, "token_bytes"), 2 * 6 * kv * 4);
    assert_int_equal(number(f16, "token_bytes"), 2 * 6 * kv * 2);
    assert_int_equal(number(bf16, "page_bytes"), 16 * number(bf16, "token_bytes"));
    assert_int_equal(number(plan_of(v, "I8"), "token_bytes"), 2 * 6 * (kv + 4 * number(v, "n_kv_heads")));
    assert_int_equal(number(f16, "n_tokens"), 16 * number(f16, "n_pages"));
    assert_int_equal(number(f16, "full_length_requests"), number(f16, "n_pages") / 128);
    quire_options hf = options_for("models/builtin-hf");
    json_value *w = inspect_json(&hf);
    assert_string_equal(json_get_str(w, "format").p, "huggingface");
    assert_int_equal(number(w, "n_params"), number(v, "n_params"));
    assert_int_equal(number(w, "max_positions"), number(v, "max_positions"));
    assert_int_equal(number(plan_of(w, "F16"), "page_bytes"), number(f16, "page_bytes"));
    json_drop(w);
    json_drop(v);
    char *text = inspect(&o, false);
    assert_non_null(strstr(text, "6 layers"));
    assert_non_null(strstr(text, "tied head"));
    assert_non_null(strstr(text, "int8 by default"));
    quire_free(text);
}

/* A file on disk with the plan's numbers; its tensors need not be theirs, since nothing is loaded. */
static json_value *inspect_plan(const model_plan *p, const char *text_has) {
    temp_dir dir = temp_new();
    strbuf b = {0};
    put_plan(&b, p);
    write_file(temp_path(&dir, "m.gguf"), b.p, b.n);
    quire_options o = options_for(temp_path(&dir, "m.gguf"));
    json_value *v = inspect_json(&o);
    char *text = inspect(&o, false);
    assert_non_null(strstr(text, text_has));
    assert_null(strstr(text, "nan"));
    quire_free(text);
    strbuf_deinit(&b);
    temp_delete(&dir, (const char *[]){"m.gguf", NULL});
    return v;
}

static void numbers_of(model_plan *p, uint32_t n_layers, uint32_t n_heads, uint32_t n_kv_heads) {
    plan_llama(p);
    set_u32(p, "llama.block_count", n_layers);
    set_u32(p, "llama.attention.head_count", n_heads);
    set_u32(p, "llama.attention.head_count_kv", n_kv_heads);
    set_u32(p, "llama.embedding_length", n_heads * 128);
    set_u32(p, "llama.context_length", 4096);
}

/* Worked examples 8, 16 and 17. */
static void bytes_a_token_are_those_of_the_worked_examples(void **state) {
    (void)state;
    static const struct {
        uint32_t n_layers, n_heads, n_kv_heads;
        int64_t token_bytes;
    } cases[] = {{32, 32, 32, 524288}, {32, 32, 8, 131072}, {80, 64, 8, 327680}, {80, 64, 64, 2621440}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_plan p;
        numbers_of(&p, cases[i].n_layers, cases[i].n_heads, cases[i].n_kv_heads);
        json_value *v = inspect_plan(&p, "4096");
        assert_int_equal(number(plan_of(v, "F16"), "token_bytes"), cases[i].token_bytes);
        assert_int_equal(number(plan_of(v, "F16"), "page_bytes"), cases[i].token_bytes * 16);
        assert_int_equal(number(plan_of(v, "F32"), "token_bytes"), cases[i].token_bytes * 2);
        json_drop(v);
    }
}

static void hostile_words_stay_harmless(void **state) {
    (void)state;
    static const char *const names[] = {"bad \xff\xfe bytes", "esc \x1b[31mred", "\"quotes\" and \\", "line\nfeed", "\xc3\xa9t\xc3\xa9"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        model_plan p;
        plan_llama(&p);
        set_str(&p, "general.name", names[i]);
        set_str(&p, "tokenizer.ggml.pre", names[i]);
        json_value *v = inspect_plan(&p, "architecture    llama");
        json_drop(v);
    }
    model_plan p;
    char longest[400];
    plan_llama(&p);
    memset(longest, 0, sizeof longest);
    for (int i = 0; i < 130; i++) {
        memcpy(longest + 1 + 3 * i, "\xe2\x82\xac", 3); /* a character lies across the cut */
    }
    longest[0] = 'x';
    set_str(&p, "general.name", longest);
    json_value *v = inspect_plan(&p, "x\xe2\x82\xac");
    json_drop(v);
}

static void a_file_without_weights_is_no_division_by_zero(void **state) {
    (void)state;
    model_plan p;
    plan_llama(&p);
    set_u32(&p, "llama.vocab_size", 40);
    p.n_tensors = 0;
    json_value *v = inspect_plan(&p, "0 parameters");
    assert_int_equal(number(v, "n_params"), 0);
    json_drop(v);
}

/* ---- options ---- */

static void refused(const quire_options *o, const char *what) {
    quire_error err = {0};
    quire_engine *e = NULL;
    quire_err r = quire_engine_open(o, &e, &err);
    if (r == QUIRE_OK || e != NULL || !strstr(err.message, what)) {
        fail_msg("expected a refusal about \"%s\": %s, \"%s\"", what, quire_err_name(r), err.message);
    }
    assert_int_not_equal(quire_engine_open(o, &e, NULL), QUIRE_OK); /* without a place for the message, too */
}

#define REFUSED_WITH(field, value, what)                                                                                                   \
    do {                                                                                                                                   \
        quire_options o = options_for("models/builtin-small.gguf");                                                                        \
        o.n_pages = 64;                                                                                                                    \
        o.field = (value);                                                                                                                 \
        refused(&o, what);                                                                                                                 \
    } while (0)

static void options_out_of_bounds_are_refused_by_name(void **state) {
    (void)state;
    REFUSED_WITH(model, NULL, "NULL");
    REFUSED_WITH(compute, NULL, "NULL");
    REFUSED_WITH(model, "no/such/file.gguf", "no/such/file.gguf");
    REFUSED_WITH(model, "", "");
    REFUSED_WITH(compute, "fp64", "--compute");
    REFUSED_WITH(kv_dtype, "q4", "--kv-dtype");
    REFUSED_WITH(isa, "mmx", "mmx");
    REFUSED_WITH(page_tokens, 0, "page");
    REFUSED_WITH(page_tokens, 24, "page");
    REFUSED_WITH(page_tokens, 512, "page");
    REFUSED_WITH(page_tokens, INT32_MIN, "page");
    REFUSED_WITH(n_pages, -1, "--kv-pages");
    REFUSED_WITH(n_pages, INT32_MAX, "--kv-pages");
    REFUSED_WITH(max_model_len, 1, "--max-model-len");
    REFUSED_WITH(max_model_len, -5, "--max-model-len");
    REFUSED_WITH(max_model_len, 4096, "2048");
    REFUSED_WITH(max_model_len, 1025, "hold not even one"); /* 64 pages of 16 */
    REFUSED_WITH(max_batched_tokens, 0, "--max-num-batched-tokens");
    REFUSED_WITH(max_seqs, 0, "--max-num-seqs");
    REFUSED_WITH(max_seqs, INT32_MAX, "--max-num-seqs");
    REFUSED_WITH(prefill_chunk, -1, "--prefill-chunk");
    REFUSED_WITH(n_threads, -1, "--threads");
    REFUSED_WITH(n_text_threads, 0, "text threads");
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

/* What a program compiled with another version's header hands over: `size` bytes of options, initialised by this library. */
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

static void options_of_another_header_are_read_by_their_size(void **state) {
    (void)state;
    static const size_t fewer[] = {offsetof(quire_options, compute), offsetof(quire_options, audit), sizeof(quire_options)};
    quire_error err = {0};
    for (size_t i = 0; i < sizeof fewer / sizeof *fewer; i++) { /* an older program: what it does not know has its default */
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

static void options_without_a_size_are_refused(void **state) {
    (void)state;
    static const size_t wrong[] = {
        0, 1, sizeof(size_t), offsetof(quire_options, model) + sizeof(char *) - 1, sizeof(quire_options) - 1, 4104, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        quire_options o = options_for("builtin-small");
        o.size = wrong[i];
        refused(&o, "quire_options.size");
    }
}

static void the_version_is_the_header_s(void **state) {
    (void)state;
    assert_string_equal(quire_version(), QUIRE_VERSION);
}

static void extreme_options_that_are_allowed_work(void **state) {
    (void)state;
    static const struct {
        int32_t page_tokens, n_pages, max_batched_tokens, max_seqs, prefill_chunk, max_model_len;
    } cases[] = {
        {1, 2, 1, 1, 1, 2}, {256, 1, 1, 8, 0, 0}, {1, 100, 3, 2, 2, 100}, {16, 1, 512, 1, 1 << 20, 0}, {16, 200, 1 << 12, 300, 7, 2048}};
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_builtin_model_is_summed_up),
        cmocka_unit_test(bytes_a_token_are_those_of_the_worked_examples),
        cmocka_unit_test(hostile_words_stay_harmless),
        cmocka_unit_test(a_file_without_weights_is_no_division_by_zero),
        cmocka_unit_test(options_out_of_bounds_are_refused_by_name),
        cmocka_unit_test(options_of_another_header_are_read_by_their_size),
        cmocka_unit_test(options_without_a_size_are_refused),
        cmocka_unit_test(the_version_is_the_header_s),
        cmocka_unit_test(extreme_options_that_are_allowed_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
