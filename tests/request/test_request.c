/* The fields of a request: defaults, types, ranges, and fields that exclude each
 * other. */
#include "request/request_world.h"

#include "json/json_out.h"

TEST(a_bare_completion_has_the_defaults) {
    quire_request *r = parse(QUIRE_COMPLETIONS, "{\"prompt\":\"Once\"}");
    assert_int_equal(r->g.n_prompts, 1);
    assert_int_equal(r->g.info.n_choices, 1);
    assert_true(str_is(r->g.prompts[0].text, "Once"));
    assert_null(r->g.prompts[0].ids);
    assert_true(r->g.sampling.temperature == 1.0f && r->g.sampling.top_p == 1.0f &&
                r->g.sampling.min_p == 0.0f);
    assert_int_equal(r->g.sampling.max_tokens, 16);
    assert_int_equal(r->g.sampling.top_k, 0);
    assert_false(r->g.sampling.has_seed);
    assert_true(r->g.add_special && r->g.skip_special);
    assert_false(r->g.info.stream || r->g.info.echo || r->g.include_stop || r->g.info.return_token_ids);
    assert_null(r->g.info.model);
    quire_request_free(r);
}

TEST(a_bare_chat_has_the_defaults) {
    quire_request *r = parse(QUIRE_CHAT, "{" USER "}");
    assert_string_equal(r->g.messages.json.p, "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    assert_int_equal(r->g.sampling.max_tokens, -1);
    assert_true(r->g.add_generation_prompt);
    assert_false(r->g.add_special || r->g.continue_final_message);
    assert_int_equal(r->g.info.n_choices, 1);
    assert_null(r->template_kwargs);
    quire_request_free(r);
}

TEST(every_working_field_arrives) {
    quire_request *r =
        parse(QUIRE_COMPLETIONS,
              "{\"model\":\"tiny\",\"prompt\":\"x\",\"max_tokens\":7,\"temperature\":0.5,\"top_p\":0.25,"
              "\"top_k\":3,\"min_p\":0.125,"
              "\"seed\":-5,\"stop\":[\"a\",\"b\\u0000c\"],\"stop_token_ids\":[1,2047],\"ignore_eos\":true,"
              "\"include_stop_str_in_output\":true,\"min_tokens\":2,\"stream\":true,"
              "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true,\"other\":1},"
              "\"echo\":true,"
              "\"skip_special_tokens\":false,\"return_token_ids\":true,\"add_special_tokens\":false,\"user\":"
              "\"u\",\"n\":1.0}");
    assert_string_equal(r->g.info.model, "tiny");
    assert_int_equal(r->g.sampling.max_tokens, 7);
    assert_true(r->g.sampling.temperature == 0.5f && r->g.sampling.top_p == 0.25f &&
                r->g.sampling.min_p == 0.125f);
    assert_int_equal(r->g.sampling.top_k, 3);
    assert_true(r->g.sampling.has_seed && r->g.sampling.seed == (uint64_t)-5);
    assert_int_equal(r->g.n_stops, 2);
    assert_true(str_is(r->g.stops[0], "a"));
    assert_true(str_eq(r->g.stops[1], (str){"b\0c", 3}));
    assert_int_equal(r->g.sampling.n_stop_tokens, 2);
    assert_int_equal(r->g.sampling.stop_tokens[1], 2047);
    assert_true(r->g.sampling.ignore_eos && r->g.include_stop && r->g.info.echo &&
                r->g.info.return_token_ids);
    assert_int_equal(r->g.sampling.min_tokens, 2);
    assert_true(r->g.info.stream && r->g.info.include_usage && r->g.info.continuous_usage);
    assert_false(r->g.skip_special || r->g.add_special);
    quire_request_free(r);

    r = parse(QUIRE_CHAT, "{" USER ",\"max_tokens\":9,\"max_completion_tokens\":4,\"add_generation_prompt\":"
                          "false,\"continue_final_message\":true,"
                          "\"chat_template_kwargs\":{\"x\":1},\"stop\":\"end\",\"metadata\":{\"a\":\"b\"}}");
    assert_int_equal(r->g.sampling.max_tokens, 4);
    assert_true(r->g.continue_final_message);
    assert_false(r->g.add_generation_prompt);
    assert_int_equal(json_get_int32(r->template_kwargs, "x", 0), 1);
    assert_int_equal(r->g.n_stops, 1);
    assert_true(str_is(r->g.stops[0], "end"));
    quire_request_free(r);
}

TEST(null_means_the_default) {
    int32_t n;
    const field_desc *f = request_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        bool is_apart =
            f[i].type == FIELD_PROMPT || f[i].type == FIELD_MESSAGES || !(f[i].flags & FIELD_BOTH);
        if (is_apart || strchr(f[i].name, '.') != NULL) {
            continue;
        }
        char body[256];
        bool chat = f[i].flags & FIELD_CHAT;
        snprintf(body, sizeof body, "{%s,\"%s\":null}", chat ? USER : "\"prompt\":\"x\"", f[i].name);
        quire_request *with = parse(chat ? QUIRE_CHAT : QUIRE_COMPLETIONS, body);
        quire_request *without =
            parse(chat ? QUIRE_CHAT : QUIRE_COMPLETIONS, chat ? "{" USER "}" : "{\"prompt\":\"x\"}");
        assert_memory_equal(&with->g.sampling, &without->g.sampling, sizeof with->g.sampling);
        assert_memory_equal(&with->g.info, &without->g.info, sizeof with->g.info);
        assert_int_equal(with->g.add_generation_prompt, without->g.add_generation_prompt);
        assert_int_equal(with->g.skip_special, without->g.skip_special);
        quire_request_free(with);
        quire_request_free(without);
    }
}

TEST(samplers_that_other_servers_have_may_be_off) {
    static const struct {
        const char *field, *off, *on;
    } samplers[] = {{"adaptive_target", "-1", "0.5"},
                    {"dry_multiplier", "0", NULL},
                    {"dynatemp_range", "0", NULL},
                    {"min_keep", "0", "1"},
                    {"mirostat", "0", NULL},
                    {"repeat_last_n", "64", NULL},
                    {"tfs_z", "1", "0.9"},
                    {"top_a", "0", "0.2"},
                    {"typical_p", "1.0", NULL},
                    {"xtc_probability", "0", NULL}};
    static const quire_endpoint endpoints[] = {QUIRE_CHAT, QUIRE_COMPLETIONS, QUIRE_LLAMA_COMPLETION};
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++) {
        for (size_t k = 0; k < sizeof endpoints / sizeof *endpoints; k++) {
            char body[256];
            const char *begin = k == 0 ? USER : "\"prompt\":\"x\"";
            snprintf(body, sizeof body, "{%s,\"%s\":%s}", begin, samplers[i].field, samplers[i].off);
            quire_request *r = parse(endpoints[k], body);
            assert_null(r->g.info.ignored);
            quire_request_free(r);
            if (samplers[i].on != NULL) {
                snprintf(body, sizeof body, "{%s,\"%s\":%s}", begin, samplers[i].field, samplers[i].on);
                refuse(endpoints[k], body, samplers[i].field, "is not supported yet");
            }
        }
    }
    quire_request *r = parse(QUIRE_CHAT, "{" USER ",\"repeat_last_n\":64}");
    assert_int_equal(r->g.sampling.penalty_last_n, 64);
    assert_int_equal(quire_request_set(r, "repeat_last_n", "null", NULL), QUIRE_OK);
    assert_int_equal(r->g.sampling.penalty_last_n, SAMPLING_PENALTIES_USUAL);
    quire_request_free(r);
}

TEST(null_of_one_name_leaves_the_others) {
    quire_request *r = parse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"beam_width\":4,\"num_beams\":null,"
                                                "\"n\":3,\"num_return_sequences\":null}");
    assert_int_equal(r->g.info.beam_width, 4);
    assert_int_equal(r->n, 3);
    assert_int_equal(quire_request_set(r, "num_return_sequences", "2", NULL), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "n", "null", NULL), QUIRE_OK);
    assert_int_equal(r->n, 2);
    assert_int_equal(quire_request_set(r, "num_return_sequences", "null", NULL), QUIRE_OK);
    assert_int_equal(r->n, 1);
    quire_request_free(r);
    r = parse(QUIRE_LLAMA_COMPLETION, "{\"prompt\":\"x\",\"n_predict\":7,\"max_tokens\":null,"
                                      "\"max_completion_tokens\":null,\"n_probs\":2,\"logprobs\":null}");
    assert_int_equal(r->g.sampling.max_tokens, 7);
    assert_int_equal(r->g.info.logprobs, 2);
    quire_request_free(r);
    r = parse(QUIRE_EMBEDDINGS, "{\"input\":\"x\",\"pooling\":\"last\",\"normalize\":false,"
                                "\"use_activation\":null}");
    assert_int_equal(r->normalize, 0);
    assert_int_equal(quire_request_set(r, "normalize", "null", NULL), QUIRE_OK);
    assert_int_equal(r->normalize, -1);
    quire_request_free(r);
    r = parse(QUIRE_SCORE, "{\"text_1\":\"x\",\"queries\":null,\"text_2\":\"y\",\"items\":null,"
                           "\"pooling\":\"last\"}");
    quire_request_free(r);
}

/* The defaults of fields with readers that are not null. */
static const char *const read_defaults[][2] = {{"bad_words", "[]"},
                                               {"early_stopping", "false"},
                                               {"logit_bias", "{}"},
                                               {"json_numbers", "\"short\""},
                                               {"json_property_order", "\"schema\""},
                                               {"n", "1"},
                                               {"response_format", "{\"type\":\"text\"}"},
                                               {"stop", "[]"},
                                               {"stop_token_ids", "[]"}};

/* A field's default as JSON; null where its number lies outside its range, so that it
 * means that there is none. */
static const char *default_of(const field_desc *f, char *out, size_t n) {
    bool is_none = f->number < f->minimum || ((f->flags & FIELD_MIN_OPEN) != 0 && f->number <= f->minimum);
    const char *text = f->fallback;
    for (size_t i = 0; i < sizeof read_defaults / sizeof *read_defaults; i++) {
        text = strcmp(read_defaults[i][0], f->name) == 0 ? read_defaults[i][1] : text;
    }
    if (text != NULL || f->read != NULL || (f->type != FIELD_BOOL && is_none)) {
        return text != NULL ? text : "null";
    }
    if (f->type == FIELD_BOOL) {
        return f->number != 0 ? "true" : "false";
    }
    (void)snprintf(out, n, "%g", f->number);
    return out;
}

TEST(a_field_given_its_default_is_accepted_even_when_it_is_of_a_later_issue) {
    int32_t n;
    const field_desc *f = request_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        bool is_apart =
            f[i].type == FIELD_PROMPT || f[i].type == FIELD_MESSAGES || !(f[i].flags & FIELD_BOTH);
        if (is_apart || strchr(f[i].name, '.') != NULL) {
            continue;
        }
        char body[256], value[32];
        bool chat = f[i].flags & FIELD_CHAT;
        snprintf(body, sizeof body, "{%s,\"%s\":%s}", chat ? USER : "\"prompt\":\"x\"", f[i].name,
                 default_of(&f[i], value, sizeof value));
        quire_request_free(parse(chat ? QUIRE_CHAT : QUIRE_COMPLETIONS, body));
    }
}

TEST(lists_of_tokens_are_checked_against_the_vocabulary) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"logit_bias\":{\"x\":1}}", "logit_bias", "the key \"x\"");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"logit_bias\":{\"\":1}}", "logit_bias",
           "must be token ids");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"logit_bias\":{\"-1\":1}}", "logit_bias",
           "names the id -1");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"logit_bias\":{\"99999999999999999999\":1}}", "logit_bias",
           "the vocabulary has");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"allowed_token_ids\":[]}", "allowed_token_ids",
           "has 0 ids");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"allowed_token_ids\":[999999]}", "allowed_token_ids",
           "the vocabulary has");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"bad_words\":[\"\"]}", "", "empty text");
    quire_request *r =
        parse(QUIRE_COMPLETIONS,
              "{\"prompt\":\"x\",\"logit_bias\":{\"3\":250,\"1\":-0.5},\"allowed_token_ids\":[3,1]}");
    const sampling_lists *l = r->g.sampling.lists;
    assert_int_equal(l->n_bias, 2);
    assert_true(l->bias_ids[0] == 3 && l->bias[0] == 100.0f && l->bias_ids[1] == 1 && l->bias[1] == -0.5f);
    assert_true(l->has_allowed && l->n_allowed == 2 && l->allowed[0] == 3);
    quire_request_free(r);
}

TEST(logprobs_are_a_number_in_completions_and_a_flag_in_chat) {
    quire_request *r =
        parse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"logprobs\":2,\"echo\":true,\"max_tokens\":0}");
    assert_int_equal(r->g.info.logprobs, 2);
    assert_int_equal(r->g.info.prompt_logprobs, 2);
    quire_request_free(r);
    r = parse(QUIRE_CHAT, "{" USER ",\"logprobs\":true,\"top_logprobs\":3,\"prompt_logprobs\":1}");
    assert_int_equal(r->g.info.logprobs, 3);
    assert_int_equal(r->g.info.prompt_logprobs, 1);
    quire_request_free(r);
    r = parse(QUIRE_CHAT, "{" USER ",\"logprobs\":false}");
    assert_int_equal(r->g.info.logprobs, -1);
    quire_request_free(r);
    r = parse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"prompt_logprobs\":1,\"prompt_logprobs_start\":0}");
    assert_int_equal(r->g.prompt_logprobs_start, 1);
    quire_request_free(r);
    r = parse(QUIRE_CHAT, "{" USER ",\"prompt_logprobs\":1,\"prompt_logprobs_start\":99999999999}");
    assert_int_equal(r->g.prompt_logprobs_start, INT32_MAX);
    quire_request_free(r);
    refuse(QUIRE_CHAT, "{" USER ",\"prompt_logprobs_start\":-1}", "prompt_logprobs_start", "at least 0");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"logprobs\":21}", "logprobs", "from 0 to 20");
    refuse(QUIRE_CHAT, "{" USER ",\"top_logprobs\":2}", "top_logprobs", "set logprobs to true");
    refuse(QUIRE_CHAT, "{" USER ",\"logprobs\":true,\"top_logprobs\":21}", "logprobs", "from 0 to 20");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs",
           "cannot be streamed");
}

TEST(n_and_best_of_multiply_the_choices) {
    quire_request *r = parse(QUIRE_COMPLETIONS, "{\"prompt\":[\"x\",\"y\"],\"n\":2,\"best_of\":5}");
    assert_true(r->g.info.n_choices == 10 && r->g.info.n_samples == 5 && r->g.info.n_best == 2);
    quire_request_free(r);
    r = parse(QUIRE_CHAT, "{" USER ",\"n\":3,\"stream\":true}");
    assert_true(r->g.info.n_choices == 3 && r->g.info.n_samples == 3 && r->g.info.n_best == 3);
    quire_request_free(r);
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"n\":0}", "", "n is 0");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"n\":3,\"best_of\":2}", "best_of",
           "at least n, which is 3");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"best_of\":2,\"stream\":true}", "best_of",
           "cannot be streamed");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[\"x\",\"y\"],\"n\":1000}", "n", "2000 answers in all");
}

/* The number of beams, and of results, that a body's members ask for. */
static void expect_beams(const char *members, int32_t width, int32_t n) {
    for (int chat = 0; chat < 2; chat++) {
        char body[512];
        snprintf(body, sizeof body, "{%s%s}", chat ? USER "," : "\"prompt\":\"x\",", members);
        if (chat && strstr(members, "best_of") != NULL) {
            continue; /* completions only */
        }
        quire_request *r = parse(chat ? QUIRE_CHAT : QUIRE_COMPLETIONS, body);
        assert_int_equal(r->g.info.beam_width, width);
        assert_true(r->g.info.n_samples == n && r->g.info.n_best == n && r->g.info.n_choices == n);
        quire_request_free(r);
    }
}

TEST(beam_search_goes_by_the_names_of_vllm_and_transformers) {
    expect_beams("\"n\":3", 0, 3);
    expect_beams("\"beam_width\":4", 4, 1);
    expect_beams("\"num_beams\":4,\"num_return_sequences\":2", 4, 2);
    expect_beams("\"n\":2,\"beam_width\":4,\"stream\":true", 4, 2);
    expect_beams("\"use_beam_search\":true,\"n\":3", 3, 3);
    expect_beams("\"use_beam_search\":true,\"n\":2,\"best_of\":5,\"stream\":true", 5, 2);
    expect_beams("\"use_beam_search\":true,\"n\":2,\"beam_width\":6", 6, 2);
    expect_beams("\"use_beam_search\":true", 1, 1);
    expect_beams("\"num_beams\":1", 0, 1); /* transformers' word for no search */
    expect_beams("\"num_beams\":1,\"use_beam_search\":true", 1, 1);
    expect_beams("\"beam_width\":4,\"num_beams\":2", 2, 1); /* the last of two names counts */
    expect_beams("\"beam_width\":4,\"num_beams\":null", 4, 1);
    expect_beams("\"beam_width\":4,\"temperature\":0,\"top_p\":1,\"top_k\":-1,\"min_p\":0", 4, 1);
    expect_beams("\"length_penalty\":0.5,\"early_stopping\":true,\"temperature\":0.7", 0, 1);
    quire_request *r = parse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"beam_width\":6,\"num_beam_groups\":3,"
                                                "\"diversity_penalty\":0.5,\"length_penalty\":-1}");
    assert_true(r->g.beams.n_groups == 3 && r->g.beams.diversity_penalty == 0.5f &&
                r->g.beams.length_penalty == -1.0f);
    assert_int_equal(r->g.beams.stopping, BEAM_STOPPING_LIKELY);
    quire_request_free(r);
    static const struct {
        const char *value;
        beam_stopping stopping;
    } words[] = {{"true", BEAM_STOPPING_EARLY},
                 {"false", BEAM_STOPPING_LIKELY},
                 {"\"never\"", BEAM_STOPPING_NEVER},
                 {"null", BEAM_STOPPING_LIKELY}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"beam_width\":2,\"early_stopping\":%s}",
                 words[i].value);
        r = parse(QUIRE_COMPLETIONS, body);
        assert_int_equal(r->g.beams.stopping, words[i].stopping);
        assert_true(r->g.beams.length_penalty == 1.0f && r->g.beams.n_groups == 1);
        quire_request_free(r);
    }
}

TEST(what_beam_search_excludes_is_refused_by_name) {
    static const char *const cases[][3] = {
        {"\"beam_width\":0", "beam_width", "beam_width is 0; it must be from 1 to 128"},
        {"\"beam_width\":129", "beam_width", "from 1 to 128"},
        {"\"num_beams\":0", "num_beams", "from 1 to 128"},
        {"\"beam_width\":true", "body.beam_width", "must be an integer"},
        {"\"use_beam_search\":1", "body.use_beam_search", "must be true or false"},
        {"\"use_beam_search\":true,\"n\":129", "n", "at most 128"},
        {"\"use_beam_search\":true,\"best_of\":500", "best_of", "at most 128"},
        {"\"beam_width\":4,\"n\":5", "n", "n is 5; it must be at most the number of beams, which is 4"},
        {"\"beam_width\":4,\"best_of\":5", "best_of", "both mean the number of beams"},
        {"\"beam_width\":4,\"num_beam_groups\":3", "num_beam_groups",
         "must divide the number of beams, which is 4"},
        {"\"beam_width\":4,\"num_beam_groups\":0", "num_beam_groups", "from 1 to 128"},
        {"\"beam_width\":4,\"diversity_penalty\":1", "diversity_penalty", "set num_beam_groups"},
        {"\"beam_width\":4,\"diversity_penalty\":-1", "diversity_penalty", "at least 0"},
        {"\"beam_width\":4,\"length_penalty\":33", "length_penalty", "from -32 to 32"},
        {"\"beam_width\":4,\"early_stopping\":\"always\"", "body.early_stopping", "[true,false,\"never\"]"},
        {"\"beam_width\":4,\"early_stopping\":1", "body.early_stopping", "[true,false,\"never\"]"},
        {"\"beam_width\":4,\"temperature\":0.7", "temperature", "give 0 or 1"},
        {"\"beam_width\":4,\"top_p\":0.9", "top_p", "leave top_p out"},
        {"\"beam_width\":4,\"top_k\":40", "top_k", "draws no tokens"},
        {"\"beam_width\":4,\"min_p\":0.1", "min_p", "draws no tokens"},
        {"\"beam_width\":4,\"typical_p\":0.5", "typical_p", "draws no tokens"},
        {"\"beam_width\":4,\"top_n_sigma\":1", "top_n_sigma", "draws no tokens"},
        {"\"beam_width\":4,\"xtc_probability\":0.5", "xtc_probability", "draws no tokens"},
        {"\"beam_width\":4,\"dynatemp_range\":0.5", "dynatemp_range", "draws no tokens"},
        {"\"beam_width\":4,\"mirostat\":2", "mirostat", "draws no tokens"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\":\"x\",%s}", cases[i][0]);
        refuse(QUIRE_COMPLETIONS, body, cases[i][1], cases[i][2]);
    }
    refuse(QUIRE_CHAT, "{" USER ",\"beam_width\":4,\"temperature\":0.5}", "temperature", "give 0 or 1");
}

/* In one piece, whatever its form; a copy, as a fork gets it, has its own. */
TEST(a_prediction_is_a_text_or_parts_of_text) {
    static const char *const bodies[] = {
        "{" USER ",\"prediction\":{\"type\":\"content\",\"content\":\"if (a) b\"}}",
        "{" USER ",\"prediction\":{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":\"if (a)\"},"
        "{\"type\":\"text\",\"text\":\"\"},{\"type\":\"text\",\"text\":\" b\"}]}}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        quire_error err = {0};
        quire_request *r = parse(QUIRE_CHAT, bodies[i]), *copy;
        assert_true(str_is(r->g.prediction, "if (a) b") && r->g.more.has_prediction);
        assert_true(request_text_bytes(r) >= 8 + strlen("if (a) b"));
        assert_int_equal(request_copy(r, &copy, &err), QUIRE_OK);
        quire_request_free(r);
        assert_true(str_is(copy->g.prediction, "if (a) b") && copy->g.more.has_prediction);
        assert_int_equal(quire_request_set(copy, "prediction", "null", &err), QUIRE_OK);
        assert_true(copy->g.prediction.n == 0 && !copy->g.more.has_prediction);
        quire_request_free(copy);
    }
    quire_request *none = parse(QUIRE_CHAT, "{" USER ",\"prediction\":null}");
    assert_false(none->g.more.has_prediction);
    quire_request_free(none);
    refuse(QUIRE_CHAT, "{" USER ",\"prediction\":{\"type\":\"text\",\"content\":\"a\"}}", "prediction",
           "prediction.type must be \"content\"");
    refuse(QUIRE_CHAT, "{" USER ",\"prediction\":{\"type\":\"content\",\"content\":[{\"type\":\"text\"}]}}",
           "prediction", "prediction.content[0]");
    refuse(QUIRE_CHAT, "{" USER ",\"prediction\":{\"type\":\"content\",\"content\":null}}", "prediction",
           "prediction.content must be");
    refuse(QUIRE_CHAT, "{" USER ",\"beam_width\":2,\"prediction\":{\"type\":\"content\",\"content\":\"a\"}}",
           "prediction", "beam search");
}

TEST(a_field_of_a_later_issue_is_refused_by_name) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"prompt_embeds\":\"end\"}", "prompt_embeds",
           "not supported yet");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"suffix\":\"end\",\"echo\":true}", "echo",
           "cannot be used with suffix");
    refuse(QUIRE_CHAT, "{" USER ",\"functions\":[{\"name\":\"\"}]}", "functions", "functions[0].name");
}

TEST(values_that_clients_always_send_and_that_mean_nothing_are_taken) {
    static const char *const harmless[] = {"\"tool_choice\":\"auto\"",
                                           "\"tool_choice\":\"none\"",
                                           "\"function_call\":\"auto\"",
                                           "\"tools\":[]",
                                           "\"parallel_tool_calls\":true",
                                           "\"parallel_tool_calls\":false",
                                           "\"reasoning_effort\":\"low\"",
                                           "\"verbosity\":\"high\"",
                                           "\"response_format\":{\"type\":\"text\"}",
                                           "\"truncate_prompt_tokens\":-1",
                                           "\"truncate_prompt_tokens\":100",
                                           "\"include_reasoning\":false",
                                           "\"guided_json\":null"};
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        char body[256];
        snprintf(body, sizeof body, "{" USER ",%s}", harmless[i]);
        quire_request *r = parse(QUIRE_CHAT, body);
        assert_null(r->g.info.ignored);
        quire_request_free(r);
    }
    refuse(QUIRE_CHAT, "{" USER ",\"reasoning_effort\":5}", "body.reasoning_effort", "must be a string");
    refuse(QUIRE_CHAT, "{" USER ",\"truncate_prompt_tokens\":-2}", "truncate_prompt_tokens", "at least -1");
}

TEST(unknown_members_that_would_change_what_is_generated_are_refused_by_name) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"guided_x\":{\"a\":1}}", "guided_x",
           "guided_x is not supported; leave it out");
    refuse(QUIRE_CHAT, "{" USER ",\"loras\":\"x\"}", "loras", "loras is not supported");
    refuse(QUIRE_CHAT, "{" USER ",\"lora\":\"x\"}", "body.lora", "must be an array");
    refuse(QUIRE_CHAT, "{" USER ",\"lora\":[{\"id\":0,\"scale\":\"x\"}]}", "lora",
           "lora[0] must be an object {\"id\": N, \"scale\": X}");
    refuse(QUIRE_CHAT, "{" USER ",\"repeat_penalty\":1.1}", "repeat_penalty", "use repetition_penalty");
}

TEST(other_unknown_members_are_named_and_mean_nothing) {
    quire_request *r =
        parse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"unknown_field\":[1],\"stream_options.include_usage\":5,"
                                 "\"a\\r\\nSet-Cookie: b\":1,\"absent\":null}");
    assert_string_equal(r->g.info.ignored, "unknown_field, stream_options.include_usage, a??Set-Cookie:?b");
    quire_request_free(r);
    r = parse(QUIRE_CHAT, "{" USER ",\"prompt\":5,\"stream\":true,\"stream_options\":{\"x\":1}}");
    assert_string_equal(r->g.info.ignored, "prompt, stream_options.x");
    quire_request_free(r);
    char body[8000] = "{\"prompt\":\"x\"";
    for (int i = 0; i < 300; i++) {
        snprintf(body + strlen(body), sizeof body - strlen(body), ",\"member_%d\":1", i);
    }
    strcat(body, "}");
    r = parse(QUIRE_COMPLETIONS, body);
    assert_true(strlen(r->g.info.ignored) <= 200);
    quire_request_free(r);
}

TEST(wrong_types_name_the_field_under_body) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":\"ten\"}", "body.max_tokens",
           "max_tokens is \"ten\"; it must be an integer");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":1.5}", "body.max_tokens",
           "max_tokens is 1.5; it must be an integer");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":1e400}", "body.max_tokens",
           "max_tokens has a number too large for a double");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"seed\":9223372036854775808}", "body.seed",
           "seed has an integer that does not fit in 64 bits: 9223372036854775808");
    quire_request_free(parse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"other\":9223372036854775808}"));
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"temperature\":\"hot\"}", "body.temperature",
           "temperature is \"hot\"; it must be a number");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"temperature\":true}", "body.temperature",
           "it must be a number");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"seed\":-99999999999999999999999}", "body.seed",
           "seed has an integer that does not fit in 64 bits");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"seed\":1.5}", "body.seed",
           "seed is 1.5; it must be an integer");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stream\":\"yes\"}", "body.stream",
           "it must be true or false");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stop\":[\"a\",5]}", "body.stop.1",
           "stop[1] is 5; it must be a string");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stop\":{}}", "body.stop", "stop is an object");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stop_token_ids\":[null]}", "body.stop_token_ids.0",
           "stop_token_ids[0] is null");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"user\":5}", "body.user", "user is 5; it must be a string");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stream\":true,\"stream_options\":{\"include_usage\":1}}",
           "body.stream_options.include_usage", "true or false");
    /* The list of ignored names has grown before the member that is wrong. */
    refuse(QUIRE_COMPLETIONS,
           "{\"prompt\":\"x\",\"unknown_field\":1,\"stream\":true,\"stream_options\":{\"x\":1,\"include_"
           "usage\":1}}",
           "body.stream_options.include_usage", "true or false");
}

TEST(values_out_of_range_say_what_the_range_is) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"top_p\":1.5}", "top_p",
           "top_p is 1.5; it must be over 0 and at most 1");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"top_p\":0}", "top_p",
           "top_p is 0; it must be over 0 and at most 1");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"temperature\":-1}", "temperature",
           "temperature is -1; it must be from 0 to 2");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"temperature\":3}", "temperature",
           "temperature is 3; it must be from 0 to 2");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":0}", "max_tokens",
           "max_tokens is 0; it must be at least 1");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":-1}", "max_tokens",
           "max_tokens is -1; it must be at least 0");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"top_k\":-2}", "", "top_k is -2; it must be at least -1");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"min_p\":2}", "", "min_p is 2; it must be from 0 to 1");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stop\":[\"\"]}", "", "stop has an empty string");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stop_token_ids\":[2048]}", "stop_token_ids",
           "the vocabulary has 2048 ids");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stop_token_ids\":[-1]}", "stop_token_ids",
           "stop_token_ids is -1; it must be at least 0");
}

TEST(a_max_tokens_over_the_context_is_cut) {
    static const char *const given[] = {"1024", "1025", "100000", "3000000000", "18446744073709551616",
                                        "1e12", "1e300"};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"prompt\":\"x\",\"min_tokens\":1000,\"max_tokens\":%s}", given[i]);
        quire_request *r = parse(QUIRE_COMPLETIONS, text);
        assert_int_equal(r->g.sampling.max_tokens, 1024);
        quire_request_free(r);
        snprintf(text, sizeof text, "{" USER ",\"max_tokens\":7,\"max_completion_tokens\":%s}", given[i]);
        r = parse(QUIRE_CHAT, text);
        assert_int_equal(r->g.sampling.max_tokens, 1024);
        quire_request_free(r);
    }
}

TEST(integers_of_any_size_keep_their_digits) {
    quire_request *r = parse(
        QUIRE_CHAT,
        "{" USER ",\"metadata\":{\"a\":99999999999999999999},\"chat_template_kwargs\":"
        "{\"x\":[18446744073709551615,-99999999999999999999]},\"tools\":[{\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{\"maximum\":"
        "18446744073709551615}}}}}]}");
    const json_value *x = json_get(r->template_kwargs, "x");
    assert_true(str_is(json_wide_str(json_at(x, 0)), "18446744073709551615"));
    assert_true(str_is(json_wide_str(json_at(x, 1)), "-99999999999999999999"));
    strbuf text = {0};
    json_add(&(json_out){.to = &text}, r->tools);
    assert_non_null(strstr(text.p, "\"maximum\":18446744073709551615}"));
    strbuf_deinit(&text);
    quire_request_free(r);
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"temperature\":18446744073709551616}", "temperature",
           "temperature is 18446744073709551616; it must be from 0 to 2");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stop_token_ids\":[18446744073709551616]}",
           "stop_token_ids", "stop_token_ids is 18446744073709551616; it must be");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"logit_bias\":{\"18446744073709551616\":1}}", "logit_bias",
           "the id 18446744073709551616;");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[18446744073709551616]}", "body.prompt.0", "18446744073709551616");
}

TEST(fields_are_checked_against_each_other) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"stream_options\":{\"include_usage\":true}}",
           "stream_options", "needs stream");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"min_tokens\":17}", "min_tokens",
           "at most max_tokens, which is 16");
    refuse(QUIRE_CHAT, "{" USER ",\"continue_final_message\":true}", "continue_final_message",
           "cannot both be true");
    refuse(QUIRE_CHAT, "{" USER ",\"min_tokens\":2147483647}", "min_tokens", "a sequence has at most");
    quire_request_free(parse(QUIRE_CHAT, "{" USER ",\"min_tokens\":17}"));
}

TEST_MAIN(NULL, NULL)
