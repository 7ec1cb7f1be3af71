/* Unknown members of a body: those that would change the output on another server are
 * told apart from those that would not. */

#include "request/request_field.h"
#include "request/request_foreign.h"
#include "test.h"

TEST(other_servers_features_are_known_in_every_spelling) {
    static const char *const names[] = {"guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "guided_decoding_backend",
                                        "guided_whitespace_pattern",
                                        "guidedJson",
                                        "guided_x_of_tomorrow",
                                        "regex",
                                        "json_schema",
                                        "jsonSchema",
                                        "json-schema",
                                        "grammar",
                                        "grammar_lazy",
                                        "ebnf",
                                        "lora",
                                        "lora_name",
                                        "lora_path",
                                        "lora_request",
                                        "adapter_id",
                                        "structural_tag",
                                        "logits_processors",
                                        "custom_logit_processor",
                                        "samplers",
                                        "sampler_order",
                                        "sampling_params",
                                        "tfs_z",
                                        "top_a",
                                        "negative_prompt",
                                        "cfg_scale",
                                        "response_schema",
                                        "dry_range",
                                        "format",
                                        "options",
                                        "extra_body",
                                        "generation_config",
                                        "system",
                                        "enable_thinking",
                                        "repeat_last_n"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *instead;
        if (!foreign_changes_generation(str_of(names[i]), FIELD_COMPLETIONS, &instead) ||
            !foreign_changes_generation(str_of(names[i]), FIELD_CHAT, &instead)) {
            fail_msg("%s is not known", names[i]);
        }
    }
}

TEST(another_spelling_of_a_field_names_the_field) {
    static const char *const respelt[][2] = {{"maxTokens", "max_tokens"},
                                             {"top-p", "top_p"},
                                             {"Temperature", "temperature"},
                                             {"responseFormat", "response_format"},
                                             {"repeat_penalty", "repetition_penalty"},
                                             {"n_predict", "max_tokens"},
                                             {"max_new_tokens", "max_tokens"},
                                             {"stop_sequences", "stop"},
                                             {"random_seed", "seed"}};
    for (size_t i = 0; i < sizeof respelt / sizeof *respelt; i++) {
        const char *instead;
        assert_true(foreign_changes_generation(str_of(respelt[i][0]), FIELD_COMPLETIONS, &instead));
        assert_string_equal(instead, respelt[i][1]);
    }
}

TEST(what_changes_nothing_is_left_alone) {
    static const char *const names[] = {
        "",     "_",   "id_slot",        "cache_prompt", "timings_per_token", "metadata",
        "user", "rid", "return_timings", "dryness",      "regexp_notes",      "messages_"};
    const char *instead;
    for (size_t i = 0; i + 1 < sizeof names / sizeof *names; i++) {
        if (foreign_changes_generation(str_of(names[i]), FIELD_COMPLETIONS, &instead)) {
            fail_msg("%s", names[i]);
        }
    }
    char longest[200];
    memset(longest, 'a', sizeof longest);
    assert_false(foreign_changes_generation((str){longest, sizeof longest}, FIELD_CHAT, &instead));
    /* another spelling of a chat's field */
    assert_true(foreign_changes_generation(str_of("messages_"), FIELD_CHAT, &instead));
}

TEST_MAIN(NULL, NULL)
