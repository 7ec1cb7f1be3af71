/* What may stand around the answer that a rule binds: for each way in which formats write
 * reasoning, and in which an answer begins. */

#include "answer/marked_letters.h"
#include "answer/reasoning_frame.h"
#include "test.h"

/* The letters; marks of several formats are special tokens, written as \1 to \7 here. */
enum { N_MARKS = 7 };
static const char *const mark_texts[N_MARKS] = {"<think>",     "</think>", "<tool_call>", "<|channel|>",
                                                "<|message|>", "<|end|>",  "<|start|>"};
static grammar_mark list[N_MARKS];
static grammar_marks marks = {list, N_MARKS};

static int open_vocab(void **state) {
    (void)state;
    for (int32_t i = 1; i <= N_MARKS; i++) {
        list[i - 1] = (grammar_mark){str_of(mark_texts[i - 1]), i, i != 3};
    }
    return open_marked_letters(&marks);
}

typedef struct frame_case {
    const char *format, *calls;
    output_start start;
    const char *good[4], *bad[6];
} frame_case;

static grammar *compile(const frame_case *c) {
    const reasoning_frame frame = {reasoning_format_named(c->format),
                                   c->calls != NULL ? call_format_named(c->calls) : NULL, c->start};
    const grammar_part answer = part_rule(GRAMMAR_REGEX, str_of("[0-9]+"), NULL);
    part_arena a = {0};
    quire_error err = {0};
    grammar *g = NULL;
    grammar_part all = reasoning_frame_around(&a, &frame, &marks, &answer);
    assert_int_equal(a.failed, QUIRE_OK);
    if (grammar_compile_parts(&all, &marks, NULL, &g, &err) != QUIRE_OK) {
        fail_msg("%s: %s", c->format, err.message);
    }
    part_arena_deinit(&a);
    return g;
}

TEST(the_rule_binds_behind_the_reasoning_of_every_form) {
    static const frame_case cases[] = {
        {"qwen3",
         "hermes",
         OUTPUT_START_REASONING,
         {"hm </think>\0021", "\002\n\n12"},
         {"1", "hm\002", "hm\002x", "hm\003\0021", "\002\n\n\n1", "a\001\0021"}},
        /* no mark of calls: a token that is shown */
        {"qwen3", NULL, OUTPUT_START_REASONING, {"hm\003\0021"}, {"12"}},
        {"qwen3", NULL, OUTPUT_START_MARKED, {"12", "\001hm\n\002\n1"}, {"hm\0021", "\0011", "\0021"}},
        {"qwen3", NULL, OUTPUT_START_CONTENT, {"12"}, {"\001hm\0021", "hm\0021"}},
        {"qwen3", NULL, OUTPUT_START_UNKNOWN, {"hm\0021", "\001hm\0021"}, {"12"}},
        {"hunyuan_a13b",
         NULL,
         OUTPUT_START_UNKNOWN,
         {"12", "\001hm\002<answer>1</answer>", "<answer>1"},
         {"hm\0021", "<answer>"}},
        {"apriel",
         NULL,
         OUTPUT_START_MARKED,
         {"1[END FINAL RESPONSE]", "<thinking>x</thinking>1",
          "Here are my reasoning steps:[BEGIN FINAL RESPONSE]1"},
         {"[END FINAL RESPONSE]1", "x"}},
        {"granite",
         NULL,
         OUTPUT_START_MARKED,
         {"Here's my thought process: x Here is my response:1", "1"},
         {"Here is my response:1"}},
        {"openai_gptoss",
         NULL,
         OUTPUT_START_UNKNOWN,
         {"\004final\0051", "\004analysis\005hm\006\007assistant\004final\0051"},
         {"1", "\004analysis\0051", "\004analysis\005hm\006\004final\0051", "\004final\005x"}},
        {"minimax_m2_append_think", NULL, OUTPUT_START_REASONING, {"1"}, {"x\0021"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        grammar *g = compile(&cases[i]);
        for (size_t k = 0; k < 4 && cases[i].good[k] != NULL; k++) {
            if (!takes(g, cases[i].good[k])) {
                fail_msg("case %zu (%s) must take '%s'", i, cases[i].format, cases[i].good[k]);
            }
        }
        for (size_t k = 0; k < 6 && cases[i].bad[k] != NULL; k++) {
            if (takes(g, cases[i].bad[k])) {
                fail_msg("case %zu (%s) must not take '%s'", i, cases[i].format, cases[i].bad[k]);
            }
        }
        grammar_drop(g);
    }
}

TEST_MAIN(open_vocab, close_vocab)
