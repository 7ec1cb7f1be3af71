/* SGLang's API: which request its fields become, values given once or per prompt, and
 * what is refused. */
#include "request_world.h"

static quire_request *generate(const char *body) {
    quire_request *r = parse(QUIRE_SGLANG_GENERATE, body);
    for (size_t i = 0; i < r->n_values; i++) {
        assert_false(r->values[i].field->flags & FIELD_PART);
    }
    return r;
}

static void refuse_generate(const char *body, const char *param, const char *words) {
    refuse(QUIRE_SGLANG_GENERATE, body, param, words);
}

TEST(a_request_without_parameters_has_sglangs_defaults) {
    quire_request *r = generate("{\"text\":\"x\"}");
    assert_int_equal(r->g.sampling.max_tokens, 128);
    assert_true(r->g.sampling.temperature == 1 && r->g.sampling.top_p == 1 && r->g.sampling.top_k == -1);
    assert_true(r->g.skip_special && !r->g.include_stop && !r->g.info.stream && r->g.add_special);
    assert_true(r->g.info.return_token_ids && r->g.info.logprobs < 0 && r->g.info.prompt_logprobs < 0);
    assert_true(r->g.more.request_id == NULL && !r->g.more.is_list && r->g.adapter.n == 0);
    quire_request_free(r);
}

TEST(sampling_parameters_have_sglangs_names) {
    quire_request *r =
        generate("{\"text\":\"x\",\"sampling_params\":{\"max_new_tokens\":7,\"min_new_tokens\":2,\"n\":3,"
                 "\"stop\":[\"a\",\"b\"],"
                 "\"stop_token_ids\":[9],\"temperature\":0.5,\"top_p\":0.75,\"top_k\":4,\"min_p\":0.25,"
                 "\"frequency_penalty\":1,"
                 "\"presence_penalty\":-1,\"repetition_penalty\":1.5,\"ignore_eos\":true,\"skip_special_"
                 "tokens\":false,"
                 "\"no_stop_trim\":true,\"stream_interval\":5,\"logit_bias\":{\"3\":1.5},\"sampling_seed\":6,"
                 "\"spaces_between_special_tokens\":false,\"custom_params\":{\"a\":1},\"regex\":null,\"json_"
                 "schema\":null}}");
    const sampling_params *p = &r->g.sampling;
    assert_true(p->max_tokens == 7 && p->min_tokens == 2 && r->g.info.n_samples == 3 && r->g.more.is_list);
    assert_true(r->g.n_stops == 2 && str_is(r->g.stops[1], "b") && p->n_stop_tokens == 1 &&
                p->stop_tokens[0] == 9);
    assert_true(p->temperature == 0.5f && p->top_p == 0.75f && p->top_k == 4 && p->min_p == 0.25f);
    assert_true(p->frequency_penalty == 1 && p->presence_penalty == -1 && p->repetition_penalty == 1.5f);
    assert_true(p->ignore_eos && !r->g.skip_special && r->g.include_stop && r->g.more.stream_interval == 5);
    assert_true(p->lists->n_bias == 1 && p->lists->bias_ids[0] == 3 && p->has_seed && p->seed == 6);
    quire_request_free(r);
    r = generate(
        "{\"text\":\"x\",\"sampling_params\":{\"max_new_tokens\":null,\"temperature\":1e-7,\"wings\":null}}");
    assert_true(r->g.sampling.max_tokens == -1 && r->g.sampling.temperature == 0);
    quire_request_free(r);
    r = generate("{\"text\":\"x\",\"sampling_params\":{\"max_new_tokens\":0,\"temperature\":3}}");
    assert_true(r->g.sampling.max_tokens == 0 && r->g.sampling.temperature == 3);
    quire_request_free(r);
    r = generate("{\"text\":\"x\",\"sampling_params\":null}");
    quire_request_free(r);
}

TEST(each_rule_is_one_of_the_response) {
    static const struct {
        const char *json;
        grammar_kind kind;
        request_rule_form form;
    } rules[] = {{"\"regex\":\"a+\"", GRAMMAR_REGEX, 0},
                 {"\"json_schema\":\"{}\"", GRAMMAR_SCHEMA, 0},
                 {"\"ebnf\":\"root ::= \\\"a\\\"\"", GRAMMAR_EBNF, 0},
                 {"\"structural_tag\":\"{}\"", 0, RULE_STRUCTURAL_TAG}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char body[200];
        (void)snprintf(body, sizeof body, "{\"text\":\"x\",\"sampling_params\":{%s}}", rules[i].json);
        quire_request *r = generate(body);
        assert_non_null(r->rule.field);
        assert_true(r->rule.kind == rules[i].kind && r->rule.form == rules[i].form);
        quire_request_free(r);
    }
    refuse_generate("{\"text\":\"x\",\"sampling_params\":{\"regex\":\"a\",\"ebnf\":\"root ::= \\\"a\\\"\"}}",
                    "sampling_params.ebnf", "can obey only one of them");
    refuse_generate("{\"text\":\"x\",\"sampling_params\":{\"structural_tag\":1}}",
                    "body.sampling_params.structural_tag", "a structural tag");
}

TEST(prompts_are_texts_or_ids) {
    quire_request *r = generate("{\"text\":[\"x\",\"y\"],\"input_ids\":null}");
    assert_true(r->g.n_prompts == 2 && str_is(r->g.prompts[1].text, "y") && r->g.more.is_list);
    quire_request_free(r);
    r = generate("{\"text\":[\"x\"]}");
    assert_true(r->g.n_prompts == 1 && r->g.more.is_list);
    quire_request_free(r);
    r = generate("{\"input_ids\":[4,5]}");
    assert_true(r->g.n_prompts == 1 && r->g.prompts[0].n_ids == 2 && !r->g.more.is_list);
    quire_request_free(r);
    r = generate("{\"input_ids\":[[4,5]]}");
    assert_true(r->g.n_prompts == 1 && r->g.prompts[0].n_ids == 2 && r->g.more.is_list);
    quire_request_free(r);
    refuse_generate("{}", "text", "text is missing");
    refuse_generate("{\"text\":null}", "text", "text is missing");
    refuse_generate("{\"text\":\"x\",\"input_ids\":[1]}", "input_ids", "give one of them");
    refuse_generate("{\"input_ids\":[1],\"text\":\"x\"}", "text", "give one of them");
    refuse_generate("{\"text\":[1]}", "body.text", "an array of strings");
    refuse_generate("{\"text\":5}", "body.text", "a string");
    refuse_generate("{\"input_ids\":\"x\"}", "body.input_ids", "token ids");
    refuse_generate("{\"input_ids\":[\"x\"]}", "body.input_ids", "token ids");
    refuse_generate("{\"input_ids\":[2048]}", "", "2048");
    refuse_generate("{\"input_ids\":[]}", "input_ids", "empty");
    refuse_generate("{\"input_ids\":[[1],2]}", "body.input_ids.1", "same type");
    refuse_generate("{\"text\":[]}", "text", "empty");
}

TEST(log_probabilities_of_the_prompt_begin_where_it_is_said) {
    static const struct {
        const char *json;
        int32_t own, of_prompt, start;
    } cases[] = {
        {"\"return_logprob\":true", 0, -1, -1},
        {"\"return_logprob\":false,\"logprob_start_len\":2", -1, -1, 2},
        {"\"return_logprob\":true,\"logprob_start_len\":0,\"top_logprobs_num\":3", 3, 3, 0},
        {"\"return_logprob\":true,\"logprob_start_len\":7,\"stream\":true,\"top_logprobs_num\":2", 2, 2, 7},
        {"\"return_logprob\":true,\"sampling_params\":{\"max_new_tokens\":0}", 0, 0, 0},
        {"\"return_logprob\":true,\"logprob_start_len\":-1,\"sampling_params\":{\"max_new_tokens\":0}", 0, -1,
         -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[200];
        (void)snprintf(body, sizeof body, "{\"text\":\"x\",%s}", cases[i].json);
        quire_request *r = generate(body);
        assert_int_equal(r->g.info.logprobs, cases[i].own);
        assert_int_equal(r->g.info.prompt_logprobs, cases[i].of_prompt);
        assert_int_equal(r->g.more.logprobs_start, cases[i].start);
        assert_int_equal(r->g.prompt_logprobs_start, cases[i].start > 1 ? cases[i].start : 1);
        quire_request_free(r);
    }
    quire_request *r =
        generate("{\"text\":[\"x\",\"y\"],\"return_logprob\":true,\"token_ids_logprob\":[[4,9],[4,9]]}");
    assert_true(r->g.sampling.lists->n_scored == 2 && r->g.sampling.lists->scored[1] == 9 &&
                r->g.more.n_scored == 2);
    assert_int_equal(generation_listed(&r->g, r->g.info.logprobs), 3);
    assert_int_equal(generation_listed(&r->g, r->g.info.prompt_logprobs), 0);
    quire_request_free(r);
    r = generate("{\"text\":\"x\",\"token_ids_logprob\":[4]}");
    assert_int_equal(r->g.more.n_scored, 0); /* no log-probabilities are wanted */
    quire_request_free(r);
    refuse_generate("{\"text\":\"x\",\"token_ids_logprob\":[2048],\"return_logprob\":true}",
                    "token_ids_logprob", "token_ids_logprob[0] is 2048");
    refuse_generate("{\"text\":\"x\",\"token_ids_logprob\":\"4\"}", "body.token_ids_logprob",
                    "an array of token ids");
    refuse_generate("{\"text\":[\"x\",\"y\"],\"token_ids_logprob\":[[4],[5]]}", "token_ids_logprob",
                    "differs");
    refuse_generate("{\"text\":\"x\",\"return_logprob\":1}", "body.return_logprob", "true or false");
    refuse_generate("{\"text\":\"x\",\"logprob_start_len\":-2}", "body.logprob_start_len", "from -1");
    refuse_generate("{\"text\":\"x\",\"logprob_start_len\":99999999999}", "body.logprob_start_len",
                    "from -1");
    refuse_generate("{\"text\":\"x\",\"top_logprobs_num\":21}", "body.top_logprobs_num", "from 0 to 20");
}

TEST(a_list_has_one_equal_value_for_each_prompt) {
    quire_request *r = generate("{\"text\":[\"x\",\"y\"],\"sampling_params\":[{\"top_k\":3,\"stop\":\"s\"},{"
                                "\"stop\":\"s\",\"top_k\":3}],"
                                "\"return_logprob\":[true,true],\"logprob_start_len\":[4,4],\"top_logprobs_"
                                "num\":[1,1],\"lora_path\":[\"a\","
                                "\"a\"],\"rid\":[\"one\",\"two\"]}");
    assert_true(r->g.sampling.top_k == 3 && r->g.n_stops == 1 && r->g.info.logprobs == 1);
    assert_true(r->g.more.logprobs_start == 4 && str_is(r->g.adapter, "a") && r->g.has_own_adapters);
    assert_true(r->g.more.names_prompts && memcmp(r->g.more.request_id, "one\0two", 8) == 0);
    quire_request_free(r);
    r = generate("{\"text\":[\"x\",\"y\"],\"lora_path\":[null,null],\"rid\":\"r\"}");
    assert_true(r->g.adapter.n == 0 && !r->g.more.names_prompts && strcmp(r->g.more.request_id, "r") == 0);
    quire_request_free(r);
    refuse_generate("{\"text\":[\"x\",\"y\"],\"lora_path\":[\"a\",null]}", "lora_path",
                    "lora_path[1] differs");
    refuse_generate("{\"text\":[\"x\",\"y\"],\"return_logprob\":[true]}", "return_logprob",
                    "1 elements for 2 prompts");
    refuse_generate("{\"text\":\"x\",\"sampling_params\":[]}", "sampling_params", "0 elements for 1 prompts");
    refuse_generate("{\"text\":\"x\",\"sampling_params\":[7]}", "body.sampling_params", "an object");
    refuse_generate("{\"text\":\"x\",\"lora_path\":7}", "body.lora_path", "the name of an adapter");
    refuse_generate("{\"text\":[\"x\",\"y\"],\"rid\":[\"one\"]}", "rid", "1 elements for 2 prompts");
    refuse_generate("{\"text\":[\"x\"],\"rid\":[\"\"]}", "body.rid.0", "not empty");
    refuse_generate("{\"text\":\"x\",\"rid\":\"a b\"}", "rid", "visible ASCII");
}

TEST(prompts_may_differ_in_how_they_are_sampled) {
    quire_request *r =
        generate("{\"text\":[\"x\",\"y\",\"z\"],\"sampling_params\":[{\"top_k\":3,\"max_new_tokens\":5,"
                 "\"stop\":\"s\",\"logit_bias\":{"
                 "\"1\":2}},{\"max_new_tokens\":9,\"temperature\":1e-9,\"stop\":\"s\"},{\"stop\":\"s\",\"max_"
                 "new_tokens\":0,\"sampling_"
                 "seed\":4,\"top_p\":null}],\"return_logprob\":true,\"token_ids_logprob\":[7]}");
    const sampling_params *p = r->g.each;
    assert_int_equal(r->n_each, 3);
    assert_true(p[0].top_k == 3 && p[1].top_k == -1 && p[0].temperature == 1 && p[1].temperature == 0);
    assert_true(p[0].max_tokens == 5 && p[1].max_tokens == 9 && p[2].max_tokens == 0 &&
                r->g.sampling.max_tokens == 9);
    assert_true(p[0].lists->n_bias == 1 && p[1].lists->n_bias == 0 && p[2].has_seed && !p[0].has_seed &&
                p[2].top_p == 1);
    assert_true(p[0].lists->n_scored == 1 && p[1].lists->n_scored == 1 && p[2].lists->scored[0] == 7);
    assert_true(r->g.n_stops == 1 && r->g.more.n_scored == 1);
    quire_request_free(r);
    r = generate("{\"text\":[\"x\",\"y\"],\"sampling_params\":[{\"max_new_tokens\":null},{}]}");
    assert_true(r->g.each[0].max_tokens == -1 && r->g.each[1].max_tokens == 128 &&
                r->g.sampling.max_tokens == -1);
    quire_request_free(r);
    static const char *const shared[] = {"\"n\":2",
                                         "\"stop\":\"s\"",
                                         "\"regex\":\"a\"",
                                         "\"ignore_eos\":true",
                                         "\"stop_token_ids\":[3]",
                                         "\"no_stop_trim\":true"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        char body[200];
        for (int first = 0; first < 2; first++) {
            (void)snprintf(body, sizeof body, "{\"text\":[\"x\",\"y\"],\"sampling_params\":[{%s},{%s}]}",
                           first ? "" : shared[i], first ? shared[i] : "");
            refuse_generate(body, "sampling_params", "it must be the same for all prompts of a request");
        }
    }
    refuse_generate("{\"text\":[\"x\",\"y\"],\"sampling_params\":[{\"top_k\":1},{\"top_k\":-2}]}",
                    "sampling_params.top_k", "at least -1");
    refuse_generate("{\"text\":[\"x\",\"y\"],\"sampling_params\":[{\"top_k\":1},7]}", "body.sampling_params",
                    "an object");
    refuse_generate(
        "{\"text\":[\"x\",\"y\"],\"sampling_params\":[{},{\"max_new_tokens\":3,\"min_new_tokens\":4}]}",
        "sampling_params.min_new_tokens",
        "sampling_params.min_new_tokens is 4; it must be at most sampling_params.max_new_tokens, which is 3");
    refuse_generate("{\"text\":[\"x\",\"y\"],\"sampling_params\":[{\"top_k\":1},{},{}]}", "sampling_params",
                    "3 elements for 2 prompts");
}

TEST(a_higher_priority_is_the_more_urgent) {
    quire_request *r = generate("{\"text\":\"x\",\"priority\":2147483647}");
    assert_int_equal(r->g.priority, -2147483647);
    quire_request_free(r);
}

TEST(what_is_not_run_is_refused_by_name) {
    static const char *const later[] = {"image_data",     "video_data",    "audio_data",
                                        "input_embeds",   "lora_id",       "custom_logit_processor",
                                        "session_params", "bootstrap_host"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        char body[100];
        (void)snprintf(body, sizeof body, "{\"text\":\"x\",\"%s\":\"y\"}", later[i]);
        refuse_generate(body, later[i], "is not supported yet; leave it out or give null");
        (void)snprintf(body, sizeof body, "{\"text\":\"x\",\"%s\":null}", later[i]);
        quire_request_free(generate(body));
    }
    refuse_generate("{\"text\":\"x\",\"return_hidden_states\":true}", "return_hidden_states",
                    "not supported");
    refuse_generate("{\"text\":\"x\",\"sampling_params\":{\"wings\":2}}", "sampling_params.wings",
                    "is not supported");
    refuse_generate("{\"text\":\"x\",\"sampling_params\":{\"top_p\":0}}", "sampling_params.top_p", "over 0");
    refuse_generate("{\"text\":\"x\",\"temperature\":0}", "temperature", "use sampling_params.temperature");
}

TEST(what_is_encoded_needs_no_parameters) {
    quire_request *r =
        parse(QUIRE_SGLANG_ENCODE, "{\"text\":[\"x\",\"y\"],\"pooling\":\"mean\",\"rid\":\"q\","
                                   "\"sampling_params\":{\"max_new_tokens\":3}}");
    assert_true(r->g.n_prompts == 2 && r->g.more.is_list && strcmp(r->g.more.request_id, "q") == 0);
    quire_request_free(r);
    refuse(QUIRE_SGLANG_ENCODE, "{\"pooling\":\"mean\"}", "text", "text is missing");
    refuse(QUIRE_SGLANG_ENCODE, "{\"text\":\"x\",\"image_data\":\"y\"}", "image_data", "not supported");
}

TEST_MAIN(NULL, NULL)
