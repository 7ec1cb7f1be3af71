/* Which turns are sent where the context has no room for all. */

#include "cli/conversation.h"
#include "test.h"

enum { CONTEXT = 1000 };

static conversation talk;

static void say(conversation_role role) {
    assert_int_equal(conversation_add(&talk, role, str_of("text")), QUIRE_OK);
}

/* Turns of two messages, and a message that waits for its answer. */
static void begin(int n_turns) {
    for (int i = 0; i < n_turns; i++) {
        say(CONVERSATION_USER);
        say(CONVERSATION_ASSISTANT);
    }
    say(CONVERSATION_USER);
}

static int end(void **state) {
    (void)state;
    conversation_deinit(&talk);
    return 0;
}

TEST_WITHIN(the_first_plan_leaves_room_for_an_answer, NULL, end) {
    begin(2);
    talk.first = 2;
    context_fit fit = context_fit_begin(&talk, CONTEXT, 0);
    assert_int_equal(fit.from, 2); /* what was left out stays so */
    assert_int_equal(fit.limit, CONTEXT - CONTEXT / 8);
    assert_int_equal(context_fit_begin(&talk, CONTEXT, 20).limit, CONTEXT - 20);
    assert_int_equal(context_fit_begin(&talk, CONTEXT, 900).limit, CONTEXT - CONTEXT / 8);
    assert_int_equal(context_fit_begin(&talk, 100000, 0).limit, 100000 - 512);
    assert_int_equal(context_fit_begin(&talk, 2, 0).limit, 1);
}

TEST_WITHIN(further_plans_leave_out_a_turn_each_and_the_last_takes_what_fits, NULL, end) {
    begin(2);
    context_fit fit = context_fit_begin(&talk, CONTEXT, 0);
    assert_true(context_fit_next(&talk, CONTEXT, &fit));
    assert_int_equal(fit.from, 2);
    assert_int_equal(fit.limit, CONTEXT - CONTEXT / 4);
    assert_true(context_fit_next(&talk, CONTEXT, &fit));
    assert_int_equal(fit.from, 4);
    assert_int_equal(fit.limit, CONTEXT - CONTEXT / 4);
    assert_true(context_fit_next(&talk, CONTEXT, &fit));
    assert_int_equal(fit.from, 4);
    assert_int_equal(fit.limit, 0);
    assert_false(context_fit_next(&talk, CONTEXT, &fit));
}

TEST_WITHIN(a_turn_is_left_out_whole, NULL, end) {
    say(CONVERSATION_USER);
    say(CONVERSATION_USER);
    say(CONVERSATION_ASSISTANT);
    say(CONVERSATION_ASSISTANT);
    say(CONVERSATION_USER);
    assert_int_equal(conversation_next_turn(&talk, 0), 1);
    assert_int_equal(conversation_next_turn(&talk, 1), 4);
    assert_int_equal(conversation_next_turn(&talk, 4), 5);
}

TEST_MAIN(NULL, NULL)
