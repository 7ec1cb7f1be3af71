/* Turns of Anthropic's Messages API: which chat messages they become, and what is
 * refused. */
#include "request/read_turns.h"
#include "request/request_world.h"

#define HEAD  "{\"max_tokens\":5,\"messages\":["
#define ASKED "{\"role\":\"user\",\"content\":\"a\"}"
#define CALLED                                                                                               \
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"f\","         \
    "\"input\":{\"x\":1}}]}"
#define RESULT(rest) "{\"type\":\"tool_result\",\"tool_use_id\":\"toolu_1\"" rest "}"

/* The chat's messages of a body. */
static void expect_chat(const char *body, const char *messages) {
    quire_request *r = parse(QUIRE_MESSAGES, body);
    assert_string_equal(r->g.messages.json.p, messages);
    quire_request_free(r);
}

static void refuse_turns(const char *messages, const char *param, const char *words) {
    char body[2048];
    snprintf(body, sizeof body, HEAD "%s]}", messages);
    refuse(QUIRE_MESSAGES, body, param, words);
}

TEST(texts_and_blocks_of_a_turn_are_one_text) {
    expect_chat(HEAD ASKED "]}", "[{\"role\":\"user\",\"content\":\"a\"}]");
    expect_chat(HEAD
                "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}},"
                "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"c\"}]}",
                "[{\"role\":\"user\",\"content\":\"a\\nb\\nc\"}]");
    expect_chat(HEAD ASKED "],\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: 1\"},"
                           "{\"type\":\"text\",\"text\":\"S\"}]}",
                "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"a\"}]");
    expect_chat(HEAD
                "{\"role\":\"user\",\"content\":[{\"type\":\"document\",\"title\":\"T\",\"source\":"
                "{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":\"D\"}},"
                "{\"type\":\"document\",\"source\":{\"type\":\"content\",\"content\":[{\"type\":\"text\","
                "\"text\":\"E\"}]}},{\"type\":\"search_result\",\"source\":\"U\",\"title\":\"V\","
                "\"content\":[{\"type\":\"text\",\"text\":\"W\"}]}]}]}",
                "[{\"role\":\"user\",\"content\":\"T\\nD\\nE\\nV\\nU\\nW\"}]");
}

TEST(calls_and_results_are_those_of_a_chat) {
    expect_chat(HEAD ASKED "," CALLED ",{\"role\":\"user\",\"content\":[" RESULT(
                    ",\"content\":\"r\"") ","
                                          "{\"type\":\"text\",\"text\":\"b\"}]}]}",
                "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\","
                "\"tool_calls\":[{\"id\":\"toolu_1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                "\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":"
                "\"toolu_1\"},{\"role\":\"user\",\"content\":\"b\"}]");
    expect_chat(HEAD ASKED "," CALLED ",{\"role\":\"user\",\"content\":[" RESULT(
                    ",\"is_error\":true,\"content\":[{\"type\":\"text\",\"text\":\"r\"}]") "]}]}",
                "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\","
                "\"tool_calls\":[{\"id\":\"toolu_1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                "\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\",\"content\":\"Error: r\",\"tool_call_id\":"
                "\"toolu_1\"}]");
}

TEST(each_call_has_one_result_in_the_next_turn) {
    refuse_turns(ASKED "," CALLED, "messages[1].content", "ends with tool_use");
    refuse_turns(ASKED "," CALLED "," ASKED, "messages[2]", "no tool_result for \"toolu_1\"");
    refuse_turns(ASKED "," CALLED ",{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"assistant\","
                       "\"content\":\"t\"}," ASKED,
                 "messages[3]", "toolu_1");
    refuse_turns("{\"role\":\"user\",\"content\":[" RESULT("") "]}", "messages[0].content[0].tool_use_id",
                 "\"toolu_1\", which is no tool_use");
    refuse_turns(ASKED "," CALLED ",{\"role\":\"user\",\"content\":[" RESULT("") "," RESULT("") "]}",
                 "messages[2].content[1].tool_use_id", "unanswered");
    refuse_turns(ASKED "," CALLED
                       ",{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}," RESULT("") "]}",
                 "messages[2].content[1]", "must come first");
    refuse_turns(ASKED "," CALLED "," CALLED ",{\"role\":\"user\",\"content\":[" RESULT("") "]}",
                 "messages[2].content[0].id", "another tool_use");
}

TEST(what_is_no_block_is_refused_by_its_place) {
    refuse_turns("1", "messages[0]", "must be an object");
    refuse_turns("{\"content\":\"a\"}", "messages[0].role", "is missing");
    refuse_turns("{\"role\":\"tool\",\"content\":\"a\"}", "messages[0].role", "\"tool\"");
    refuse_turns("{\"role\":\"user\"}", "messages[0].content", "is missing");
    refuse_turns("{\"role\":\"user\",\"content\":null}", "messages[0].content", "null");
    refuse_turns("{\"role\":\"user\",\"content\":[1]}", "messages[0].content[0]", "is 1");
    refuse_turns("{\"role\":\"user\",\"content\":[{}]}", "messages[0].content[0].type", "is missing");
    refuse_turns("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}",
                 "messages[0].content[0].text", "must be a string");
    refuse_turns("{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}", "messages[0].content[0].type",
                 "\"image\"");
    refuse_turns("{\"role\":\"user\",\"content\":[{\"type\":\"thinking\"}]}", "messages[0].content[0].type",
                 "\"thinking\"");
    refuse_turns("{\"role\":\"user\",\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"base64\"}}]}",
                 "messages[0].content[0].source.type", "only text");
    refuse_turns(ASKED "," CALLED ",{\"role\":\"user\",\"content\":[" RESULT(
                     ",\"content\":[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"image\"}]") "]}",
                 "messages[2].content[0].content[1].type", "\"image\"");
    refuse_turns(ASKED ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"i\","
                       "\"name\":\"f\",\"input\":[]}]}",
                 "messages[1].content[0].input", "must be an object");
    refuse(QUIRE_MESSAGES, HEAD ASKED "],\"system\":[{\"type\":\"tool_use\"}]}", "system[0].type",
           "tool_use");
    refuse(QUIRE_MESSAGES, HEAD ASKED "],\"system\":1}", "system", "is 1");
}

TEST(reasoning_goes_back_where_its_signature_is_right) {
    uint8_t digest[SHA256_BYTES];
    char signature[QUIRE_SIGNATURE_BYTES + 1], body[1024];
    static const char format[] =
        HEAD ASKED ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"%s\","
                   "\"signature\":\"%s\"},{\"type\":\"redacted_thinking\",\"data\":\"..\"},"
                   "{\"type\":\"text\",\"text\":\"t\"}]}," ASKED "]}";
    sha256("hm", 2, digest);
    thought_sign(context.thought_key, digest, signature);
    snprintf(body, sizeof body, format, "hm", signature);
    expect_chat(body, "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"t\","
                      "\"reasoning_content\":\"hm\"},{\"role\":\"user\",\"content\":\"a\"}]");
    snprintf(body, sizeof body, format, "hm!", signature);
    refuse(QUIRE_MESSAGES, body, "messages[1].content[0].signature",
           "Invalid `signature` in `thinking` block");
    signature[0] = signature[0] == '0' ? '1' : '0';
    snprintf(body, sizeof body, format, "hm", signature);
    refuse(QUIRE_MESSAGES, body, "messages[1].content[0].signature", "Invalid `signature`");
    snprintf(body, sizeof body, format, "hm", "");
    refuse(QUIRE_MESSAGES, body, "messages[1].content[0].signature", "Invalid `signature`");
}

TEST(an_assistants_turn_at_the_end_is_continued) {
    quire_request *r = parse(QUIRE_MESSAGES, HEAD ASKED ",{\"role\":\"assistant\",\"content\":\"Once \"}]}");
    assert_true(r->g.continue_final_message);
    assert_false(r->g.add_generation_prompt);
    quire_request_free(r);
    r = parse(QUIRE_MESSAGES, HEAD ASKED "]}");
    assert_false(r->g.continue_final_message);
    assert_true(r->g.add_generation_prompt);
    quire_request_free(r);
    refuse_turns(ASKED ",{\"role\":\"assistant\",\"content\":[]}", "messages[1].content", "no text");
}

TEST_MAIN(NULL, NULL)
