/* The nearest name to a mistyped one. */

#include "base/str.h"
#include "test.h"

static size_t edits(const char *a, const char *b) {
    assert_int_equal(edit_distance(str_of(a), str_of(b)), edit_distance(str_of(b), str_of(a)));
    return edit_distance(str_of(a), str_of(b));
}

TEST(edits_insert_delete_replace_and_swap) {
    assert_int_equal(edits("", ""), 0);
    assert_int_equal(edits("port", "port"), 0);
    assert_int_equal(edits("port", "ports"), 1);
    assert_int_equal(edits("port", "prt"), 1);
    assert_int_equal(edits("port", "pork"), 1);
    assert_int_equal(edits("port", "prot"), 1);
    assert_int_equal(edits("", "abc"), 3);
    assert_int_equal(edits("kitten", "sitting"), 3);
    assert_int_equal(edits("ca", "abc"), 3); /* a pair is swapped once */
}

TEST(a_text_that_is_too_long_is_near_to_nothing) {
    char text[EDIT_MAX + 1];
    memset(text, 'x', sizeof text);
    assert_int_equal(edit_distance((str){text, EDIT_MAX}, (str){text, EDIT_MAX}), 0);
    assert_true(edit_distance((str){text, EDIT_MAX + 1}, (str){text, EDIT_MAX + 1}) == SIZE_MAX);
    nearest n = {.wanted = {text, EDIT_MAX + 1}};
    nearest_offer(&n, n.wanted);
    assert_int_equal(n.best.n, 0);
}

TEST(the_best_name_is_the_first_of_the_nearest) {
    nearest n = {.wanted = str_of("--max-tokns")};
    nearest_offer_all(&n, "--host --max-model-len --max-tokens --max-tokans");
    assert_int_equal(n.distance, 1);
    assert_true(str_is(n.best, "--max-tokens"));
}

TEST(a_name_that_differs_by_more_than_a_third_is_not_offered) {
    nearest n = {.wanted = str_of("frobnicate")};
    nearest_offer_all(&n, "run serve tokenize logits inspect pack");
    assert_int_equal(n.best.n, 0);
    n = (nearest){.wanted = str_of("T5ForConditionalGeneration")}; /* more than two letters differ */
    nearest_offer_all(&n, "Mllama5ForConditionalGeneration");
    assert_int_equal(n.best.n, 0);
    nearest_offer_all(&n, "mT5ForConditionalGenerations");
    assert_int_equal(n.distance, 2);
    n = (nearest){.wanted = str_of("x")};
    nearest_offer_all(&n, "y");
    assert_int_equal(n.best.n, 0);
}

TEST_MAIN(NULL, NULL)
