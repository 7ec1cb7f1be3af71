/* llama.cpp's completion API: which request its fields become. */
#include <stdio.h>
#include <string.h>

#include "request/request.h"
#include "test.h"

static const request_context context = {.n_vocab = 2048, .max_model_len = 1024, .has_vocabulary = true};

static quire_err parse(quire_endpoint endpoint, const char *body, quire_request **r, quire_error *err) {
    *err = (quire_error){0};
    quire_err e = request_parse(&context, endpoint, body, strlen(body), r, err);
    return e == QUIRE_OK ? request_check(*r, err) : e; /* once more, as quire_submit does */
}

static quire_request *read_as(quire_endpoint endpoint, const char *body) {
    quire_request *r;
    quire_error err;
    if (parse(endpoint, body, &r, &err) != QUIRE_OK) {
        fail_msg("%s: %s", body, err.message);
    }
    return r;
}

/* The error names the field, in its parameter and in its text, which clients see. */
static void refuse(quire_endpoint endpoint, const char *body, const char *field) {
    quire_request *r;
    quire_error err;
    assert_int_equal(parse(endpoint, body, &r, &err), QUIRE_BAD_REQUEST);
    if (strstr(err.message, field) == NULL) {
        fail_msg("%s: %s", body, err.message);
    }
}

#define WITH(fields) "{\"prompt\":\"a\"," fields "}"

TEST(what_is_left_out_has_llama_cpps_default) {
    quire_request *r = read_as(QUIRE_LLAMA_COMPLETION, "{\"prompt\":\"a\"}");
    const sampling_params *p = &r->g.sampling;
    assert_float_equal(p->temperature, 0.8, 1e-6);
    assert_float_equal(p->top_p, 0.95, 1e-6);
    assert_float_equal(p->min_p, 0.05, 1e-6);
    assert_int_equal(p->top_k, 40);
    assert_int_equal(p->max_tokens, -1);
    assert_true(r->g.skip_special && r->g.add_special && !r->g.info.stream && !r->g.more.return_tokens);
    assert_int_equal(r->g.info.logprobs, -1);
    assert_null(r->g.more.response_fields);
    quire_request_free(r);
    quire_request *of_openai = read_as(QUIRE_COMPLETIONS, "{\"prompt\":\"a\"}");
    assert_float_equal(of_openai->g.sampling.min_p, 0, 0);
    assert_int_equal(of_openai->g.sampling.max_tokens, 16);
    assert_null(of_openai->g.more.settings);
    quire_request_free(of_openai);
}

TEST(a_models_own_defaults_go_before_them) {
    request_defaults own = {.n = 1, .values = {{"temperature", 0.25}}};
    request_context with = context;
    with.defaults = &own;
    quire_request *r;
    quire_error err;
    const char *body = WITH("\"top_k\":null");
    assert_int_equal(request_parse(&with, QUIRE_LLAMA_COMPLETION, body, strlen(body), &r, &err), QUIRE_OK);
    assert_float_equal(r->g.sampling.temperature, 0.25, 0);
    assert_int_equal(r->g.sampling.top_k, 40);
    quire_request_free(r);
}

TEST(fields_have_other_names) {
    quire_request *r = read_as(QUIRE_LLAMA_COMPLETION,
                               WITH("\"n_predict\":7,\"repeat_penalty\":1.5,\"n_probs\":3,\"n_cmpl\":2,"
                                    "\"stop\":[\"x\"],\"response_fields\":[\"content\"]"));
    assert_int_equal(r->g.sampling.max_tokens, 7);
    assert_float_equal(r->g.sampling.repetition_penalty, 1.5, 0);
    assert_int_equal(r->g.info.logprobs, 3);
    assert_int_equal(r->g.info.n_choices, 2);
    assert_true(str_is(r->g.stops[0], "x"));
    assert_string_equal(r->g.more.response_fields, "[\"content\"]");
    assert_non_null(strstr(r->g.more.settings, "\"n_predict\":7,"));
    /* a field that is set later is in the settings too */
    quire_error err;
    assert_int_equal(quire_request_set(r, "n_predict", "8", &err), QUIRE_OK);
    assert_int_equal(request_check(r, &err), QUIRE_OK);
    assert_non_null(strstr(r->g.more.settings, "\"n_predict\":8,"));
    quire_request_free(r);
    r = read_as(QUIRE_LLAMA_COMPLETION,
                WITH("\"grammar\":\"root ::= \\\"a\\\"\",\"response_fields\":\"stop\""));
    assert_string_equal(r->g.more.response_fields, "[\"stop\"]");
    assert_non_null(strstr(r->g.more.settings, "\"grammar\":\"root ::= \\\"a\\\"\""));
    quire_request_free(r);
    r = read_as(QUIRE_LLAMA_COMPLETION, WITH("\"json_schema\":\"{}\"")); /* is no grammar */
    assert_non_null(strstr(r->g.more.settings, "\"grammar\":\"\""));
    quire_request_free(r);
    r = read_as(QUIRE_LLAMA_COMPLETION, WITH("\"n_probs\":0,\"n_predict\":0"));
    assert_int_equal(r->g.info.logprobs, -1);
    quire_request_free(r);
}

TEST(values_that_mean_something_here_alone_are_taken) {
    quire_request *r =
        read_as(QUIRE_LLAMA_COMPLETION, WITH("\"temperature\":-3,\"top_p\":2,\"n_predict\":-2,\"n_probs\":21,"
                                             "\"frequency_penalty\":-1e300,\"presence_penalty\":5"));
    const sampling_params *p = &r->g.sampling;
    assert_true(p->temperature == 0 && p->top_p == 1 && p->presence_penalty == 5);
    assert_float_equal(p->frequency_penalty, -1e6, 0);
    assert_int_equal(p->max_tokens, -1);
    assert_int_equal(r->g.info.logprobs, 21);
    quire_request_free(r);
    r = read_as(QUIRE_LLAMA_COMPLETION, WITH("\"n_predict\":1,\"n_probs\":1000000000"));
    assert_int_equal(r->g.info.logprobs, 2048); /* the vocabulary */
    quire_request_free(r);
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"n_predict\":2000,\"n_cmpl\":2,\"n_probs\":2048"),
           "n_probs is 2048 for up to 2048 tokens");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"n_predict\":20,\"n_cmpl\":128,\"n_probs\":2048"),
           "for up to 2560 tokens");
}

TEST(prompts_are_one_or_several) {
    const struct {
        const char *body;
        int32_t n;
    } bodies[] = {{"{\"prompt\":\"a\"}", 1},
                  {"{\"prompt\":[1,2]}", 1},
                  {"{\"prompt\":[\"a\",\"b\"]}", 2},
                  {"{\"prompt\":[[1],[2]]}", 2},
                  {"{\"prompt\":[[1,2],[3],[4]]}", 3}};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        quire_request *r = read_as(QUIRE_LLAMA_COMPLETION, bodies[i].body);
        assert_int_equal(r->g.n_prompts, bodies[i].n);
        quire_request_free(r);
    }
    /* without a vocabulary a text beside ids cannot become ids */
    refuse(QUIRE_LLAMA_COMPLETION, "{\"prompt\":[\"a\",1]}", "prompt");
    refuse(QUIRE_LLAMA_COMPLETION, "{\"prompt\":[[1],[1,2048],\"a\"]}", "2048");
    refuse(QUIRE_LLAMA_COMPLETION, "{\"prompt\":[[1],{},\"a\"]}", "prompt");
    refuse(QUIRE_LLAMA_COMPLETION, "{\"prompt\":[[1],[],\"a\"]}", "prompt");
    refuse(QUIRE_LLAMA_COMPLETION, "{\"prompt\":{\"prompt_string\":\"a\"}}", "prompt");
    refuse(QUIRE_LLAMA_COMPLETION, "{}", "prompt");
}

TEST(biases_are_pairs_or_an_object) {
    static const char *const bodies[] = {
        WITH("\"logit_bias\":[[5,1.5],[7,false],[5,-500]]"),
        WITH("\"logit_bias\":{\"5\":1.5,\"7\":false,\"9\":2}"),
    };
    for (size_t i = 0; i < 2; i++) {
        quire_request *r = read_as(QUIRE_LLAMA_COMPLETION, bodies[i]);
        const sampling_lists *l = r->g.sampling.lists;
        assert_int_equal(l->n_bias, 3);
        assert_true(l->bias_ids[0] == 5 && l->bias_ids[1] == 7 && l->bias_ids[2] == (i == 0 ? 5 : 9));
        assert_float_equal(l->bias[0], 1.5, 0);
        assert_float_equal(l->bias[1], -100, 0);
        assert_float_equal(l->bias[2], i == 0 ? -100 : 2, 0);
        quire_request_free(r);
    }
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"logit_bias\":[[5]]"), "logit_bias[0]");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"logit_bias\":[[2048,1]]"), "logit_bias");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"logit_bias\":[[-1,1]]"), "logit_bias");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"logit_bias\":[[1,true]]"),
           "logit_bias has the bias true; it must be");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"logit_bias\":[[{},1]]"), "logit_bias has the token an object");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"logit_bias\":\"x\""), "logit_bias");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"logit_bias\":{\"a\":1}"), "logit_bias"); /* no vocabulary */
}

TEST(wrong_fields_and_missing_features_are_refused_by_name) {
    static const char *const fields[][2] = {{"n_predict", "1.5"},
                                            {"n_probs", "-1"},
                                            {"n_probs", "\"x\""},
                                            {"temperature", "\"x\""},
                                            {"top_p", "0"},
                                            {"repeat_penalty", "0"},
                                            {"response_fields", "[1]"},
                                            {"return_tokens", "1"},
                                            {"timings_per_token", "\"x\""},
                                            {"post_sampling_probs", "true"},
                                            {"return_progress", "1"},
                                            {"min_keep", "2"},
                                            {"lora", "[{\"id\":0,\"scale\":1}]"},
                                            {"grammar_lazy", "true"},
                                            {"grammar", "{}"},
                                            {"json_schema", "3"},
                                            {"stop", "[\"\"]"}};
    char body[200];
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"%s\":%s}", fields[i][0], fields[i][1]);
        refuse(QUIRE_LLAMA_COMPLETION, body, fields[i][0]);
    }
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"grammar\":\"root ::= \\\"a\\\"\",\"json_schema\":{}"),
           "json_schema");
}

TEST(fields_without_effect_are_taken_and_named) {
    quire_request *r = read_as(QUIRE_LLAMA_COMPLETION,
                               WITH("\"cache_prompt\":false,\"id_slot\":3,\"n_keep\":5,\"n_indent\":4,"
                                    "\"t_max_predict_ms\":9,\"grammar\":\"\",\"min_keep\":0,\"lora\":[],"
                                    "\"input_prefix\":\"x\""));
    assert_string_equal(r->g.info.ignored, "n_indent, t_max_predict_ms, input_prefix");
    assert_null(r->rule.field);
    quire_request_free(r);
}

static void expect_order(const char *fields, const char *stages) {
    static const char letters[] = {0, 't', 's', 'm', 'k', 'y', 'p', 'x'};
    char body[300], found[SAMPLING_N_STAGES + 1] = "";
    (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", fields);
    quire_request *r = read_as(QUIRE_LLAMA_COMPLETION, body);
    for (int i = 0; r->g.sampling.order[i] != SAMPLING_END; i++) {
        found[i] = letters[r->g.sampling.order[i]];
    }
    if (strcmp(found, stages) != 0) {
        fail_msg("%s: %s in place of %s", fields, found, stages);
    }
    quire_request_free(r);
}

TEST(samplers_run_in_llama_cpps_order_or_in_the_one_that_is_named) {
    expect_order("\"seed\":1", "kpmt");
    expect_order("\"temperature\":0", ""); /* one token is taken */
    expect_order("\"temperature\":1", "kpm");
    expect_order("\"min_p\":0,\"temperature\":1", ""); /* the usual order */
    expect_order("\"samplers\":[\"temperature\",\"top_k\",\"top_p\"]", "");
    expect_order("\"samplers\":[\"min_p\",\"temperature\",\"top_k\"]", "mtk");
    expect_order("\"samplers\":\"edkypmxt\",\"typical_p\":0.5,\"xtc_probability\":0.5", "kypmxt");
    expect_order("\"samplers\":[],\"dry_multiplier\":1", "");
    expect_order("\"samplers\":[\"top_p\",\"penalties\"],\"repeat_last_n\":0,\"repeat_penalty\":2", "");
    expect_order("\"samplers\":\"pk\",\"mirostat\":2", "");
}

TEST(samplers_that_are_left_out_are_off) {
    quire_request *r =
        read_as(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":[\"top_k\",\"infill\"],\"temperature\":0.5,"
                                             "\"repeat_penalty\":1.5,\"dry_multiplier\":1,\"top_k\":7"));
    const sampling_params *p = &r->g.sampling;
    assert_true(p->top_k == 7 && p->temperature == 1 && p->top_p == 1 && p->min_p == 0);
    assert_true(p->repetition_penalty == 1 && p->dry_multiplier == 0);
    assert_string_equal(r->g.info.ignored, "samplers.infill");
    assert_non_null(strstr(r->g.more.settings, "\"samplers\":[\"top_k\"]"));
    quire_request_free(r);
}

TEST(samplers_that_cannot_run_so_are_refused) {
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":[\"tfs_z\"]"), "samplers[0] is \"tfs_z\"");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":[\"top_k\",\"top_k\"]"), "samplers[1]");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":\"kq\""), "samplers[1] is not a sampler's letter");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":[1]"), "samplers[0] is 1; it must be");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":[\"\"]"), "samplers[0] is \"\"");
    refuse(QUIRE_LLAMA_COMPLETION,
           WITH("\"samplers\":[\"a\303\251\303\251\303\251\303\251\303\251\303\251\303\251"
                "\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251"
                "\303\251\303\251\303\251\"]"),
           "\303\251\"...; it must be"); /* cut between characters */
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":{}"), "samplers");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":\"ke\",\"repeat_penalty\":2"),
           "top_k before penalties");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"samplers\":\"de\",\"repeat_penalty\":2,\"dry_multiplier\":1"),
           "dry before penalties");
    refuse(QUIRE_LLAMA_COMPLETION, WITH("\"repeat_last_n\":-2"), "repeat_last_n");
}

TEST(a_prompt_that_is_not_cached_has_a_salt_of_its_own) {
    quire_request *r[3];
    quire_error err;
    for (int i = 0; i < 3; i++) {
        r[i] = read_as(QUIRE_LLAMA_COMPLETION, i == 0 ? WITH("\"cache_prompt\":true,\"cache_salt\":\"s\"")
                                                      : WITH("\"cache_prompt\":false,\"cache_salt\":\"s\""));
    }
    assert_true(str_is(r[0]->g.cache_salt, "s"));
    assert_true(r[1]->g.cache_salt.n == 32 && !str_eq(r[1]->g.cache_salt, r[2]->g.cache_salt));
    assert_int_equal(quire_request_set(r[1], "cache_prompt", "true", &err), QUIRE_OK);
    assert_int_equal(request_check(r[1], &err), QUIRE_OK);
    assert_int_equal(r[1]->g.cache_salt.n, 0);
    for (int i = 0; i < 3; i++) {
        quire_request_free(r[i]);
    }
}

TEST(infill_has_a_gap_between_two_texts) {
    quire_request *r =
        read_as(QUIRE_LLAMA_INFILL,
                "{\"input_prefix\":\"b\",\"input_suffix\":\"\",\"input_extra\":[{\"text\":\"t\"}]}");
    assert_int_equal(r->g.n_prompts, 1);
    assert_true(str_is(r->fill.before, "b") && r->fill.after.n == 0 && r->fill.is_in_repository);
    assert_int_equal(r->fill.n_files, 1);
    assert_true(str_is(r->fill.files[0].text, "t") && r->fill.files[0].name.p == NULL);
    assert_string_equal(r->fill.field, "input_suffix");
    quire_request_free(r);
    r = read_as(QUIRE_LLAMA_INFILL, "{\"input_prefix\":\"b\",\"input_suffix\":\"c\",\"prompt\":\"p\"}");
    assert_true(str_is(r->g.prompts[0].text, "p"));
    quire_request_free(r);
    refuse(QUIRE_LLAMA_INFILL, "{\"input_prefix\":\"b\"}", "input_suffix");
    refuse(QUIRE_LLAMA_INFILL, "{\"input_suffix\":\"b\",\"prompt\":\"x\"}", "input_prefix");
    refuse(QUIRE_LLAMA_INFILL, "{\"input_prefix\":7,\"input_suffix\":\"\"}", "input_prefix");
    refuse(QUIRE_LLAMA_INFILL, "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"prompt\":[1]}", "prompt");
    refuse(QUIRE_LLAMA_INFILL, "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[{}]}",
           "input_extra[0]");
    refuse(QUIRE_LLAMA_INFILL,
           "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[{\"text\":\"\",\"filename\":1}]}",
           "input_extra[0]");
}

TEST_MAIN(NULL, NULL)
