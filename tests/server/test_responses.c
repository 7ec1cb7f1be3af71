/* Which tokens' log-probabilities Responses list, for events as an answer's parser gives
 * them. */
#include "server/fake_quire.h"
#include "server/response.h"
#include "test.h"

#define TICK_US 1000

typedef struct listing {
    loop_model model;
    served_model served;
    token_text texts[8];
    quire_request_info info;
    quire_request_more more;
    response a;
    response_choice c;
} listing;

static void listing_open(listing *l) {
    *l = (listing){.served.engine = fake_open(TICK_US), .info.has_parts = true};
    l->model = (loop_model){.m = &l->served, .token_texts = l->texts, .n_token_texts = 8};
    l->a = (response){.model = &l->model,
                      .info = &l->info,
                      .more = &l->more,
                      .writer = &responses_writer,
                      .choices = &l->c,
                      .n_choices = 1};
}

static void listing_close(listing *l) {
    answer_parts_deinit(&l->c.parts);
    strbuf_deinit(&l->c.text);
    response_deinit_logprobs(&l->c.logprobs);
    fake_close(l->served.engine);
}

/* A token whose own text is n_decoded bytes, and the part that it brings; NULL: none. */
static void take(listing *l, int32_t token, char *name, const char *text, size_t n_decoded,
                 quire_part_kind kind, const char *part) {
    quire_part p = {.kind = kind, .text = part, .n_text = part != NULL ? strlen(part) : 0};
    quire_logprob number = {.token = token};
    l->texts[token % 8] = (token_text){name, strlen(name)};
    quire_event ev = {.kind = QUIRE_EVENT_DELTA,
                      .text = text,
                      .n_text = strlen(text),
                      .n_decoded = n_decoded,
                      .tokens = &token,
                      .n_tokens = 1,
                      .logprobs = &number,
                      .n_logprobs = 1,
                      .parts = &p,
                      .n_parts = part != NULL};
    assert_int_equal(answer_parts_take(&l->c.parts, &ev, &l->c.text), QUIRE_OK);
    assert_int_equal(response_take_logprobs(&l->a, &l->c, &ev), QUIRE_OK);
}

static void take_text(listing *l, int32_t token, char *text, const char *part) {
    take(l, token, text, text, strlen(text), QUIRE_PART_CONTENT, part);
}

/* The texts of the listed tokens, each after a |. */
static void expect_listed(listing *l, const char *expected) {
    char found[256] = "";
    const strbuf *list = &l->c.logprobs.content;
    static const char name[] = "{\"token\":\"";
    for (const char *at = list->n > 0 ? list->p : ""; (at = strstr(at, name)) != NULL;) {
        at += strlen(name);
        strncat(found, "|", sizeof found - strlen(found) - 1);
        strncat(found, at, (size_t)(strstr(at, "\",") - at));
    }
    assert_string_equal(found, expected);
}

TEST(text_that_was_held_back_is_listed_with_what_follows) {
    listing l;
    listing_open(&l);
    take_text(&l, 0, ":\n", ":"); /* the space waits, with that of the next token */
    take_text(&l, 1, "    ", NULL);
    take_text(&l, 2, "return", "\n    return");
    take_text(&l, 3, ".<", ".");
    take_text(&l, 4, "thi", NULL);
    take_text(&l, 5, "ng", "<thing");
    expect_listed(&l, "|:\\n|    |return|.<|thi|ng");
    listing_close(&l);
}

TEST(equal_tokens_are_listed_once_each) {
    listing l;
    listing_open(&l);
    take_text(&l, 0, "<", NULL);
    take_text(&l, 1, "<", "<");
    take_text(&l, 2, "b", "<b");
    expect_listed(&l, "|<|<|b");
    listing_close(&l);
}

TEST(marks_before_text_are_not_listed) {
    listing l;
    listing_open(&l);
    take(&l, 0, "m", "m", 1, QUIRE_PART_REASONING, "m");
    take_text(&l, 1, "</thi", NULL);
    take_text(&l, 2, "nk>", NULL);
    take_text(&l, 3, "\n", NULL);
    take_text(&l, 4, "Three.", "\nThree.");
    expect_listed(&l, "|\\n|Three.");
    take(&l, 5, "}", "}", 1, QUIRE_PART_CALL_END, "");
    take_text(&l, 6, "\n</tool_call>", NULL);
    take_text(&l, 7, "Four.", "\nFour."); /* no token wrote this line */
    expect_listed(&l, "|\\n|Three.|Four.");
    listing_close(&l);
}

TEST(a_hidden_mark_is_not_listed_and_a_part_of_a_character_is) {
    listing l;
    listing_open(&l);
    l.model.n_token_texts = 7; /* the special token has none here */
    take(&l, FAKE_SPECIAL, "", "", 0, QUIRE_PART_CONTENT, NULL);
    take_text(&l, 0, "Hello", "Hello");
    expect_listed(&l, "|Hello");
    take(&l, 1, "half", "", 0, QUIRE_PART_CONTENT, NULL);
    take(&l, 2, "rest", "\xc3\xa9", 2, QUIRE_PART_CONTENT, "\xc3\xa9");
    expect_listed(&l, "|Hello|half|rest");
    take(&l, 3, "st", "", 2, QUIRE_PART_CONTENT, NULL); /* may begin a stop string */
    take(&l, 4, "ay", "stay", 2, QUIRE_PART_CONTENT, "stay");
    expect_listed(&l, "|Hello|half|rest|st|ay");
    listing_close(&l);
}

TEST(runs_count_as_memory_and_not_as_text) {
    listing l;
    listing_open(&l);
    take_text(&l, 0, "a", "a");
    assert_int_equal(l.c.parts.n_bytes, 0);
    assert_int_equal(answer_parts_bytes(&l.c.parts), sizeof(answer_run));
    take(&l, 1, "b", "b", 1, QUIRE_PART_REASONING, "b");
    assert_int_equal(answer_parts_bytes(&l.c.parts), 1 + 2 * sizeof(answer_run));
    answer_parts_clear(&l.c.parts);
    assert_int_equal(answer_parts_bytes(&l.c.parts), 0);
    listing_close(&l);
}

TEST_MAIN(NULL, NULL)
