/* Defaults of sampling fields: where an engine gets those of its model, and which fields
 * of a request they apply to. */
/* realpath */
#define _XOPEN_SOURCE 700

#include <limits.h>
#include <unistd.h>

#include "request/request.h"

#include "../file/make_files.h"
#include "base/log.h"

static const request_defaults recommended = {
    .n = 4, .values = {{"temperature", 0.6}, {"top_k", 20}, {"top_p", 0.95}, {"repetition_penalty", 1.1}}};
static const request_context context = {
    .n_vocab = 100, .max_model_len = 64, .has_vocabulary = true, .defaults = &recommended};

static quire_request *parse(quire_endpoint endpoint, const char *body) {
    quire_request *r;
    quire_error err = {0};
    if (request_parse(&context, endpoint, body, strlen(body), &r, &err) != QUIRE_OK) {
        fail_msg("%s: %s", body, err.message);
    }
    return r;
}

static void samples_with(const quire_request *r, float temperature, int32_t top_k, float top_p,
                         float repetition_penalty) {
    assert_true(r->g.sampling.temperature == temperature);
    assert_int_equal(r->g.sampling.top_k, top_k);
    assert_true(r->g.sampling.top_p == top_p);
    assert_true(r->g.sampling.repetition_penalty == repetition_penalty);
    assert_true(r->g.sampling.min_p == 0.0f); /* of which nothing is recommended */
}

TEST(what_a_request_leaves_out_is_as_recommended) {
    static const int32_t ids[] = {1, 2};
    quire_error err = {0};
    quire_request *r = parse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\"}");
    samples_with(r, 0.6f, 20, 0.95f, 1.1f);
    quire_request_free(r);
    r = parse(QUIRE_CHAT,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":null,\"top_k\":null}");
    samples_with(r, 0.6f, 20, 0.95f, 1.1f);
    quire_request_free(r);
    assert_int_equal(request_ids(&context, ids, 2, &r, &err), QUIRE_OK);
    samples_with(r, 0.6f, 20, 0.95f, 1.1f);
    quire_request_free(r);
}

TEST(what_a_request_says_goes_before) {
    quire_error err = {0};
    quire_request *copy,
        *r = parse(QUIRE_COMPLETIONS,
                   "{\"prompt\":\"x\",\"temperature\":1,\"top_k\":0,\"top_p\":1.0,\"repetition_penalty\":1}");
    samples_with(r, 1.0f, 0, 1.0f, 1.0f);
    assert_int_equal(quire_request_set(r, "temperature", "null", &err), QUIRE_OK);
    samples_with(r, 0.6f, 0, 1.0f, 1.0f);
    assert_int_equal(request_copy(r, &copy, &err), QUIRE_OK);
    samples_with(copy, 0.6f, 0, 1.0f, 1.0f);
    quire_request_free(copy);
    quire_request_free(r);
}

TEST(a_search_draws_nothing_and_so_has_no_use_for_them) {
    quire_error err = {0};
    quire_request *r = parse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"beam_width\":4,\"n\":2}");
    samples_with(r, 1.0f, 0, 1.0f, 1.1f);
    assert_int_equal(quire_request_set(r, "beam_width", "null", &err), QUIRE_OK);
    assert_int_equal(request_check(r, &err), QUIRE_OK);
    samples_with(r, 0.6f, 20, 0.95f, 1.1f);
    quire_request_free(r);
    /* asked for: refused as before */
    static const char body[] = "{\"prompt\":\"x\",\"beam_width\":4,\"top_k\":20}";
    assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, body, strlen(body), &r, &err),
                     QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "top_k");
}

/* ---- an engine ---- */

static const char *const names[] = {"config.json",
                                    "generation_config.json",
                                    "model.safetensors",
                                    "tokenizer.json",
                                    "tokenizer_config.json",
                                    "packed",
                                    NULL};

/* The small built-in model as a directory, with this generation_config.json. */
static temp_dir model_with(const char *config) {
    temp_dir d = temp_new();
    for (int i = 0; names[i] != NULL; i++) {
        char here[PATH_MAX], from[PATH_MAX + 96];
        assert_non_null(getcwd(here, sizeof here));
        snprintf(from, sizeof from, "%s/models/builtin-small-hf/%s", here, names[i]);
        if (strcmp(names[i], "generation_config.json") != 0 && strcmp(names[i], "packed") != 0) {
            assert_int_equal(symlink(from, temp_path(&d, names[i])), 0);
        }
    }
    write_text(&d, "generation_config.json", config);
    return d;
}

static quire_err open_with(const char *path, const char *from, quire_engine **e, quire_error *err) {
    quire_options o;
    quire_options_init(&o);
    o.model = path;
    o.n_pages = 8;
    o.n_threads = 1;
    o.generation_config = from;
    *err = (quire_error){.message = ""};
    return quire_engine_open(&o, e, err);
}

/* What the engine says of its defaults, and whether a request has them. */
static void engine_has(const char *path, const char *from, const char *defaults, float temperature,
                       int32_t top_k) {
    quire_engine *e;
    quire_error err;
    quire_request *r;
    if (open_with(path, from, &e, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(quire_engine_info(e)->generation_defaults, defaults);
    assert_int_equal(quire_engine_info(e)->generation_config != NULL, defaults[0] != 0);
    assert_int_equal(quire_request_parse(e, QUIRE_COMPLETIONS, "{\"prompt\":[1]}", 14, &r, &err), QUIRE_OK);
    assert_true(r->g.sampling.temperature == temperature);
    assert_int_equal(r->g.sampling.top_k, top_k);
    quire_request_free(r);
    quire_engine_close(e);
}

TEST(an_engine_takes_them_from_the_model_a_file_or_nowhere) {
    temp_dir d =
        model_with("{\"eos_token_id\": 0, \"temperature\": 0.25, \"top_k\": 7, \"do_sample\": true}");
    temp_dir other = temp_new();
    quire_options o;
    quire_error err = {0};
    int64_t n;
    write_text(&other, "generation_config.json", "{\"top_k\": 9}");
    engine_has(d.path, "auto", "temperature 0.25, top_k 7", 0.25f, 7);
    engine_has(d.path, "none", "", 1.0f, 0);
    engine_has(d.path, "vllm", "", 1.0f, 0);
    engine_has(d.path, other.path, "top_k 9", 1.0f, 9);
    engine_has("builtin-small", temp_path(&other, "generation_config.json"), "top_k 9", 1.0f, 9);
    engine_has("builtin-small", "auto", "", 1.0f, 0);
    quire_options_init(&o);
    o.model = d.path;
    if (quire_pack(&o, temp_path(&d, "packed"), &n, &err) != QUIRE_OK) { /* they go into a packed model */
        fail_msg("%s", err.message);
    }
    engine_has(temp_path(&d, "packed"), "auto", "temperature 0.25, top_k 7", 0.25f, 7);
    temp_delete(&d, names);
    temp_delete(&other, names);
}

TEST(values_that_no_request_may_have_are_refused_with_file_and_field) {
    static const struct {
        const char *generation, *words;
    } cases[] = {{"{\"temperature\": -1}", "temperature is -1"},
                 {"{\"temperature\": 1e300}", "temperature is"},
                 {"{\"top_k\": 2.5}", "top_k is 2.5"},
                 {"{\"top_k\": 1e18}", "top_k is"},
                 {"{\"top_p\": 0}", "top_p is 0"},
                 {"{\"top_p\": 1.5}", "top_p is 1.5"},
                 {"{\"min_p\": -0.5}", "min_p is -0.5"},
                 {"{\"min_p\": \"x\"}", "min_p is a text"},
                 {"{\"repetition_penalty\": 0}", "repetition_penalty is 0"},
                 {"{\"top_k\": 99999999999999999999}", "top_k is"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        temp_dir d = model_with(cases[i].generation);
        quire_engine *e;
        quire_error err;
        assert_int_equal(open_with(d.path, "auto", &e, &err), QUIRE_BAD_FILE);
        assert_null(e);
        if (strstr(err.message, cases[i].words) == NULL ||
            strstr(err.message, temp_path(&d, "generation_config.json")) == NULL || err.param[0] != 0) {
            fail_msg("%s: %s (%s)", cases[i].generation, err.message, err.param);
        }
        engine_has(d.path, "none", "", 1.0f, 0);
        temp_delete(&d, names);
    }
    quire_engine *e;
    quire_error err;
    assert_int_equal(open_with("builtin-small", "/nowhere", &e, &err), QUIRE_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nowhere"));
    assert_int_equal(open_with("builtin-small", NULL, &e, &err), QUIRE_INVALID);
}

static void read_refused(const char *json, const char *words) {
    request_defaults d;
    quire_error err = {0};
    assert_int_equal(request_defaults_read(&d, json, &err), QUIRE_INVALID);
    if (strstr(err.message, words) == NULL) {
        fail_msg("%s: %s", json, err.message);
    }
    request_defaults_deinit(&d);
}

TEST(an_option_gives_defaults_of_seed_and_length_too) {
    static const request_default of_model[] = {{"temperature", 0.6}, {"top_k", 20}};
    request_defaults d;
    quire_error err = {0};
    const char *twice = "{\"temperature\":0.25,\"seed\":7,\"max_tokens\":9,\"temperature\":1}";
    assert_int_equal(request_defaults_read(&d, twice, &err), QUIRE_INVALID);
    request_defaults_deinit(&d);
    assert_int_equal(request_defaults_read(&d, "{\"temperature\":0.25,\"seed\":7,\"max_tokens\":9}", &err),
                     QUIRE_OK);
    assert_int_equal(request_defaults_add(&d, of_model, 2, "file", &err), QUIRE_OK);
    assert_string_equal(d.text.p, "temperature 0.25, seed 7, max_tokens 9, top_k 20");
    request_context own = context;
    own.defaults = &d;
    static const struct {
        quire_endpoint endpoint;
        const char *body;
        bool has_seed;
        int32_t max_tokens;
    } cases[] = {
        {QUIRE_COMPLETIONS, "{\"prompt\":\"x\"}", true, 9},
        {QUIRE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"seed\":null}", true, 9},
        {QUIRE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_completion_tokens\":4}",
         true, 4},
        {QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"seed\":-1,\"max_tokens\":3}", false, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quire_request *r;
        assert_int_equal(
            request_parse(&own, cases[i].endpoint, cases[i].body, strlen(cases[i].body), &r, &err), QUIRE_OK);
        assert_true(r->g.sampling.temperature == 0.25f && r->g.sampling.top_k == 20);
        assert_int_equal(r->g.sampling.has_seed, cases[i].has_seed);
        assert_int_equal(r->g.sampling.seed, cases[i].has_seed ? 7 : 0);
        assert_int_equal(r->g.sampling.max_tokens, cases[i].max_tokens);
        quire_request_free(r);
    }
    request_defaults_deinit(&d);
    read_refused("[]", "a JSON object");
    read_refused("{", "defaults of requests: ");
    read_refused("{\"colour\":1}", "colour can have no default");
    read_refused("{\"seed\":\"x\"}", "seed must be a number");
    read_refused("{\"top_p\":2}", "top_p is 2");
    read_refused("{\"max_tokens\":0}", "at least 1");
}

int main(void) {
    log_set_level(LOG_ERROR);
    return tests_run(NULL, NULL);
}
