/* What programs of common shapes compute, counted: each distinct token after a distinct
 * prefix once. */
#include "program/program_state.h"
#include "program_world.h"

PROGRAM_TESTS(1024)

enum { MAX_LINES = 256 };

/* Ids that were computed, one sequence after the other. */
typedef struct line {
    int32_t *ids;
    size_t n;
} line;

static int line_compare(const void *a, const void *b) {
    const line *x = a, *y = b;
    for (size_t i = 0; i < x->n && i < y->n; i++) {
        if (x->ids[i] != y->ids[i]) {
            return x->ids[i] < y->ids[i] ? -1 : 1;
        }
    }
    return (x->n > y->n) - (x->n < y->n);
}

/* The nodes of the tree of all lines. */
static int64_t count_distinct(line *lines, size_t n) {
    int64_t distinct = 0;
    qsort(lines, n, sizeof *lines, line_compare);
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        while (i > 0 && same < lines[i].n && same < lines[i - 1].n &&
               lines[i].ids[same] == lines[i - 1].ids[same]) {
            same++;
        }
        distinct += (int64_t)(lines[i].n - same);
    }
    return distinct;
}

/* The line of a gen's prompt and an output, whose last token is not computed. */
static line line_of(const program_record *c, const program_value *v) {
    size_t n;
    const int32_t *ids = quire_state_ids(c->state, &n);
    size_t n_prompt = (size_t)c->prompt_tokens, n_out = v->n_ids > 0 ? v->n_ids - 1 : 0;
    line l = {.ids = mem_new(n_prompt + n_out, sizeof *ids), .n = n_prompt + n_out};
    assert_true(l.ids != NULL && n_prompt <= n);
    mem_copy(l.ids, ids, n_prompt * sizeof *ids);
    mem_copy(l.ids + n_prompt, v->ids, n_out * sizeof *ids);
    return l;
}

/* Runs a program on an empty cache. */
static void expect_counted(const char *json) {
    line lines[MAX_LINES];
    size_t n = 0;
    int64_t n_rows = 0;
    seen got;
    wait_until_idle(e);
    quire_engine_drop_cache(e);
    quire_state *s = program_of(ps, json);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_OK);
    for (size_t i = 0; i < s->root->n_records; i++) {
        const program_record *c = &s->root->records[i];
        n_rows += c->computed_tokens;
        if (c->step->kind != STEP_GEN) {
            continue;
        }
        size_t n_outputs = c->value->is_list ? c->value->n_items : 1;
        n_rows += c->completion_tokens - (int64_t)n_outputs;
        for (size_t k = 0; k < n_outputs; k++) {
            assert_true(n < MAX_LINES);
            lines[n++] = line_of(c, c->value->is_list ? c->value->items[k] : c->value);
        }
    }
    assert_int_equal(n_rows, count_distinct(lines, n));
    for (size_t i = 0; i < n; i++) {
        mem_free(lines[i].ids);
    }
    quire_state_close(s);
}

/* With this seed no two outputs begin with the same token. */
#define FIELDS "\"seed\": 11, \"fields\": {\"max_tokens\": 7, \"ignore_eos\": true, \"temperature\": 1.0}"

TEST(few_shot_examples_are_computed_once) {
    expect_counted("{" FIELDS
                   ", \"steps\": [\"Question: how many eyes has a cat?\\nA. one\\nB. two\\nAnswer: B\\n\\n"
                   "Question: how many legs has a horse?\\nA. three\\nB. four\\nAnswer: B\\n\\nQuestion:\", "
                   "{\"fork\": \"q\", \"over\": [\" who was king?\", \" where did they live?\", "
                   "\" what did the prince say to her?\", \" how?\"], "
                   "\"steps\": [\"{{q}}\\nAnswer:\", {\"gen\": \"a\"}]}]}");
}

TEST(a_loop_of_thoughts_and_tools_goes_on) {
    expect_counted(
        "{" FIELDS
        ", \"steps\": [\"Find out who came to the house. Use Search.\\n\", {\"repeat\": 4, \"steps\": "
        "[\"Thought:\", {\"gen\": \"thought\"}, \"\\nAction: Search \", {\"gen\": \"action\"}, "
        "\"\\nObservation: there is a man at the door\\n\"]}, \"Answer:\", {\"gen\": \"answer\"}]}");
}

TEST(samples_of_one_question_share_it) {
    expect_counted("{" FIELDS
                   ", \"steps\": [\"If there are 3 cars and 2 more come, how many are there? Think "
                   "step by step:\", {\"gen\": \"a\", \"n\": 5}, \" So the answer is\", {\"gen\": \"b\"}]}");
}

TEST(branches_without_text_compute_nothing_again) {
    expect_counted("{" FIELDS ", \"steps\": [\"If there are 3 cars and 2 more come, how many are there?\", "
                   "{\"fork\": 4, \"steps\": [{\"gen\": \"a\", \"max_tokens\": 1}]}]}");
}

TEST(a_tree_of_thoughts_computes_each_node_once) {
    expect_counted(
        "{" FIELDS
        ", \"steps\": [\"The prince went out. Ways to go on:\", {\"fork\": \"i\", \"over\": [\" First,\", "
        "\" Second,\", \" Third,\"], \"steps\": [\"{{i}} he\", {\"gen\": \"a\"}, {\"fork\": \"k\", \"over\": "
        "[\" and\", \" but\"], \"steps\": [\"{{k}}\", {\"gen\": \"b\"}, \" The end\", {\"gen\": "
        "\"c\"}]}]}]}");
}

TEST(a_select_computes_its_choices_and_the_row_before_each) {
    seen got;
    wait_until_idle(e);
    quire_engine_drop_cache(e);
    quire_state *s =
        program_of(ps, "{\"steps\": [\"The prince looked at her and said that she was\", {\"select\": "
                       "\"x\", \"choices\": [\" a man\", \" not there, he said\", \" old\"]}]}");
    run_to_idle(ps, &got);
    const program_record *c = &s->root->records[0];
    size_t n;
    quire_error err = {0};
    int32_t *ids;
    assert_int_equal(
        quire_tokenize(e, "The prince looked at her and said that she was", 46, true, &ids, &n, &err),
        QUIRE_OK);
    quire_free(ids);
    int64_t n_own = c->prompt_tokens - 4 * (int64_t)n;
    assert_true(n_own >= 3 * 1);
    assert_int_equal(c->computed_tokens, (int64_t)n + n_own + 3);
    quire_state_close(s);
}

TEST(a_form_computes_its_constant_parts_once) {
    expect_counted(
        "{" FIELDS
        ", \"steps\": [\"{\\n  \\\"name\\\": \\\"\", {\"gen\": \"name\"}, \"\\\",\\n  \\\"house\\\": \\\"\", "
        "{\"gen\": \"house\"}, \"\\\",\\n  \\\"age\\\": \", {\"gen\": \"age\", \"max_tokens\": 2}, \"\\n}\", "
        "{\"gen\": \"rest\"}]}");
}

TEST(a_chat_goes_on_from_its_turns) {
    expect_counted(
        "{" FIELDS
        ", \"steps\": [{\"role\": \"system\", \"text\": \"Be short.\"}, {\"role\": \"user\", \"text\": "
        "\"Who came?\"}, {\"gen\": \"a\"}, {\"role\": \"user\", \"text\": \"And who went?\"}, {\"gen\": "
        "\"b\"}, {\"role\": \"user\", \"text\": \"Tell me more\"}, {\"fork\": [[{\"role\": \"assistant\", "
        "\"steps\": [\"Well\", {\"gen\": \"c\"}]}], [{\"role\": \"assistant\", \"steps\": [\"No\", {\"gen\": "
        "\"d\"}]}]]}]}");
}

/* A gen after constant text is prepared while the one before it runs, and has its first
 * token in the step after that one's last: nothing else runs here. */
TEST(constant_text_is_made_tokens_ahead) {
    seen got;
    wait_until_idle(e);
    quire_state *s = program_of(
        ps, "{" FIELDS ", \"explain\": true, \"steps\": [{\"set\": \"x\", \"to\": \"man\"}, \"It is\", "
            "{\"gen\": \"a\"}, \" and the \", \"{{x}} said\", {\"gen\": \"b\", \"n\": 2}, \"; then\", "
            "{\"gen\": \"c\"}, \", {{c}}\", {\"gen\": \"d\"}]}");
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_OK);
    assert_int_equal(count_in_report(s, "\"steps_between\":1"), 3);
    assert_int_equal(count_in_report(s, "\"ahead\":true"), 2);
    assert_int_equal(s->root->records[3].is_ahead, false); /* it has the gen's own value */
    quire_state_close(s);
}

/* So are turns, which the template writes around constant text: also where an answer's
 * own turn begins with text, and where a list of steps is repeated without a test. Not
 * where a turn has the answer's text, or a part of it. */
TEST(constant_turns_are_made_tokens_ahead) {
    seen got;
    wait_until_idle(e);
    quire_state *s = program_of(
        ps, "{" FIELDS ", \"explain\": true, \"steps\": [{\"role\": \"user\", \"text\": \"Who came?\"}, "
            "{\"repeat\": 3, \"steps\": [{\"gen\": \"a\"}, {\"role\": \"user\", \"steps\": [\"And\", "
            "\" then?\"]}]}, {\"role\": \"assistant\", \"steps\": [\"Well,\", {\"gen\": \"b\"}, \" so\", "
            "{\"gen\": \"c\"}]}, {\"role\": \"user\", \"text\": \"{{c_calls}}\"}, {\"gen\": \"d\"}]}");
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_BAD_REQUEST); /* answers are not split here */
    static const bool ahead[] = {false, true, true, true, true};
    assert_int_equal(s->root->n_records, sizeof ahead / sizeof *ahead);
    for (size_t i = 0; i < s->root->n_records; i++) {
        const program_record *c = &s->root->records[i];
        assert_int_equal(c->is_ahead, ahead[i]);
    }
    assert_int_equal(count_in_report(s, "\"steps_between\":1,"), 4);
    quire_state_close(s);
}

/* A chat of two gens, with `between` before the second one: its ids. mem_new'd. */
static int32_t *ids_of_chat(const char *between, bool is_ahead, size_t *n) {
    char json[512];
    seen got;
    snprintf(json, sizeof json,
             "{" FIELDS
             ", \"steps\": [{\"role\": \"user\", \"text\": \"Who <|im_end|> came?\"}, {\"gen\": \"a\"}, "
             "{\"role\": \"user\", \"text\": \"And <|im_end|> who\\n went?\"}, %s {\"role\": \"assistant\", "
             "\"steps\": [\"Well,\", {\"gen\": \"b\"}]}]}",
             between);
    quire_state *s = program_of(ps, json);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_OK);
    assert_int_equal(s->root->records[1].is_ahead, is_ahead);
    const int32_t *ids = quire_state_ids(s, n);
    int32_t *copy = mem_new(*n, sizeof *copy);
    mem_copy(copy, ids, *n * sizeof *ids);
    quire_state_close(s);
    return copy;
}

TEST(turns_that_are_made_tokens_ahead_have_the_same_tokens) {
    size_t n, n_late;
    int32_t *ids = ids_of_chat("", true, &n),
            *late = ids_of_chat("{\"set\": \"x\", \"to\": \"\"},", false, &n_late);
    assert_int_equal(n, n_late);
    assert_memory_equal(ids, late, n * sizeof *ids);
    mem_free(ids);
    mem_free(late);
}

/* A stop string that ends within a token leaves text that is tokenised with what follows:
 * the tokens made ahead do not fit then. */
TEST(tokens_made_ahead_are_dropped_where_a_stop_string_cuts_one) {
    int32_t n_ahead = 0, n_dropped = 0;
    seen got;
    quire_state *s = program_of(
        ps, "{" FIELDS ", \"steps\": [\"It is\", {\"fork\": 16, \"steps\": [{\"gen\": \"a\", \"stop\": "
            "[\"e\", \"a\"]}, \"nd then\", {\"gen\": \"b\"}]}]}");
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_OK);
    for (const quire_state *t = s->first; t != NULL; t = t->next) {
        strbuf whole = {0};
        size_t n, n_text;
        char *text;
        quire_error err = {0};
        const int32_t *ids = quire_state_ids(t, &n);
        for (size_t i = 0; i < t->n_parts; i++) {
            const strbuf *part =
                t->parts[i].text != NULL ? &t->parts[i].text->text : &t->parts[i].value->text;
            assert_int_equal(strbuf_add(&whole, part->p, part->n), QUIRE_OK);
        }
        assert_int_equal(quire_detokenize(e, ids, n, true, &text, &n_text, &err), QUIRE_OK);
        assert_string_equal(text, whole.p);
        quire_free(text);
        strbuf_deinit(&whole);
        *(s->root->records[t->record].is_ahead ? &n_ahead : &n_dropped) += 1;
    }
    assert_true(n_ahead > 0 && n_dropped > 0);
    quire_state_close(s);
}
