/* Predictions: where a sequence is in its prediction, and what of it counts. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "spec/draft.h"
#include "spec/prediction.h"
#include "test.h"

enum { N_PROMPT = 3, MAX = 64 };

/* A sequence of three given tokens, and the walk through its prediction. */
typedef struct walked {
    prediction_walk *w;
    int32_t tokens[MAX], n;
} walked;

static void walk_open(walked *x, const int32_t *ids, int32_t n) {
    prediction *p;
    *x = (walked){.tokens = {1, 2, 3}, .n = N_PROMPT};
    assert_int_equal(prediction_new(ids, n, &p), QUIRE_OK);
    assert_int_equal(prediction_walk_open(p, N_PROMPT, &x->w), QUIRE_OK);
    prediction_drop(p); /* the walk holds it */
}

/* How many ids are expected after one more token. */
static int32_t generate(walked *x, int32_t token) {
    x->tokens[x->n++] = token;
    return prediction_expects(x->w, x->tokens, N_PROMPT, x->n);
}

/* The next expected id; -1: none. */
static int32_t next_id(const walked *x) {
    return x->w->is_lost || x->w->at == x->w->text->n ? -1 : x->w->text->ids[x->w->at];
}

TEST(the_ids_after_those_that_were_generated_are_drafted) {
    static const int32_t ids[] = {10, 11, 12, 13, 14};
    walked x;
    draft_tree draft = {0};
    walk_open(&x, ids, 5);
    assert_int_equal(prediction_expects(x.w, x.tokens, N_PROMPT, x.n), 5); /* from its beginning */
    assert_int_equal(generate(&x, 10), 4);
    prediction_draft(x.w, 3, &draft);
    assert_int_equal(draft.n, 3);
    assert_memory_equal(draft.tokens, ids + 1, 3 * sizeof *ids);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(draft.parents[i], i - 1);
    }
    x.tokens[x.n++] = 11;
    x.tokens[x.n++] = 12; /* two at once */
    assert_int_equal(generate(&x, 13), 1);
    assert_int_equal(generate(&x, 14), 0);
    assert_int_equal(generate(&x, 15), 0);
    prediction_walk_close(x.w);
}

TEST(a_lost_sequence_is_found_by_its_last_generated_tokens) {
    static const int32_t ids[] = {10, 11, 12, 13, 20, 21, 13, 20, 22, 30, 31};
    walked x;
    walk_open(&x, ids, 11);
    assert_int_equal(generate(&x, 10), 10);
    assert_int_equal(generate(&x, 99), 0); /* not 11 */
    assert_int_equal(generate(&x, 13), 0); /* one token is not enough */
    assert_int_equal(generate(&x, 20), 6); /* 13 20 stands twice: the first from there on */
    assert_int_equal(next_id(&x), 21);
    assert_int_equal(generate(&x, 77), 0);
    assert_int_equal(generate(&x, 10), 0);
    assert_int_equal(generate(&x, 11), 9); /* back to what stands before the place */
    assert_int_equal(next_id(&x), 12);
    assert_int_equal(generate(&x, 31), 0);
    assert_int_equal(generate(&x, 13), 0);
    assert_int_equal(generate(&x, 20), 6);
    assert_int_equal(generate(&x, 22), 2); /* 13 20 22 stands once */
    prediction_walk_close(x.w);

    /* the longer match counts, wherever it is */
    static const int32_t two[] = {1, 5, 6, 7, 40, 9, 6, 7, 41};
    walk_open(&x, two, 9);
    generate(&x, 9);
    generate(&x, 5);
    generate(&x, 6);
    assert_int_equal(generate(&x, 7), 5);
    assert_int_equal(next_id(&x), 40);
    prediction_walk_close(x.w);
}

/* What was given is not what was generated: its tokens find nothing. */
TEST(the_prompt_finds_no_place) {
    static const int32_t ids[] = {8, 2, 3, 50, 51};
    walked x;
    walk_open(&x, ids, 5);
    assert_int_equal(prediction_expects(x.w, x.tokens, N_PROMPT, x.n), 5);
    assert_int_equal(generate(&x, 50), 0); /* 3 50 would be a match */
    assert_int_equal(generate(&x, 51), 0);
    assert_int_equal(x.w->at, 5); /* found, at its end */
    prediction_walk_close(x.w);
}

TEST(what_is_far_away_is_not_searched) {
    enum { N = 3 * PREDICTION_REACH };
    int32_t *ids = mem_new(N, sizeof *ids);
    for (int far = 0; far < 2; far++) {
        memset(ids, 0, N * sizeof *ids);
        int32_t at = PREDICTION_REACH - 2 + (far ? 1 : 0); /* the match ends one id later */
        ids[at] = 40;
        ids[at + 1] = 41;
        walked x;
        walk_open(&x, ids, N);
        generate(&x, 40);
        assert_int_equal(generate(&x, 41), far ? 0 : N - at - 2);
        prediction_walk_close(x.w);
    }
    mem_free(ids);
}

/* The place that a search over all of them finds; -1: none. */
static int32_t find_plainly(const prediction_walk *w, const int32_t *generated, int32_t n) {
    int32_t longest = PREDICTION_LOOKUP_MIN - 1, found = -1;
    for (int32_t place = 1; place <= w->text->n; place++) {
        int32_t length = draft_agreement(w->text->ids, place, generated, n, PREDICTION_LOOKUP_MAX);
        if (length > longest || (length == longest && found >= 0 && found < w->at)) {
            longest = length;
            found = place;
        }
    }
    return found;
}

TEST(the_index_finds_what_a_search_over_all_places_finds) {
    enum { N = PREDICTION_PLACES };
    uint64_t seed = 17;
    int n_found = 0, n_lost = 0;
    for (int round = 0; round < 400; round++) {
        int32_t ids[N], kinds = 1 + round % 5;
        walked x;
        for (int32_t i = 0; i < N; i++) {
            ids[i] = (int32_t)(rng_next(&seed) % (uint64_t)kinds);
        }
        walk_open(&x, ids, (int32_t)(rng_next(&seed) % (N + 1)));
        while (x.n < MAX) {
            bool was_lost = x.w->is_lost;
            prediction_walk before = {.text = x.w->text, .at = x.w->at};
            generate(&x, (int32_t)(rng_next(&seed) % (uint64_t)(kinds + 1)));
            if (was_lost) {
                int32_t place = find_plainly(&before, x.tokens + N_PROMPT, x.n - N_PROMPT);
                assert_int_equal(x.w->is_lost, place < 0);
                assert_int_equal(x.w->at, place < 0 ? before.at : place);
                n_found += place >= 0;
                n_lost += place < 0;
            }
        }
        prediction_walk_close(x.w);
    }
    assert_true(n_found > 1000 && n_lost > 1000);
}

/* Of 40 41 repeated, with 39 before one of them, which makes that match the longest. */
TEST(of_places_after_the_same_ids_the_nearest_are_compared) {
    for (int32_t far = 0; far < 2; far++) {
        int32_t ids[3 * PREDICTION_PLACES + 6], n = 0;
        for (int32_t i = 0; i < PREDICTION_PLACES - 1 + far; i++) {
            ids[n++] = 40;
            ids[n++] = 41;
            ids[n++] = 50;
        }
        int32_t place = n + 3;
        ids[n++] = 39;
        ids[n++] = 40;
        ids[n++] = 41;
        ids[n++] = 60;
        walked x;
        walk_open(&x, ids, n);
        x.tokens[x.n++] = 39;
        x.tokens[x.n++] = 40;
        generate(&x, 41); /* three at once */
        assert_false(x.w->is_lost);
        assert_int_equal(x.w->at, far ? 2 : place);
        prediction_walk_close(x.w);
    }
}

TEST(an_empty_prediction_expects_nothing) {
    walked x;
    prediction_token after[2];
    walk_open(&x, NULL, 0);
    assert_int_equal(prediction_expects(x.w, x.tokens, N_PROMPT, x.n), 0);
    assert_int_equal(generate(&x, 5), 0);
    assert_int_equal(generate(&x, 6), 0);
    prediction_count(x.w, 0, 0, 2, after);
    assert_int_equal(after[1].counts.n_accepted + after[1].counts.n_rejected, 0);
    prediction_walk_close(x.w);
}

TEST(an_id_counts_once) {
    static const int32_t ids[] = {10, 11, 12, 13, 14, 15};
    walked x;
    draft_tree draft = {0};
    prediction_token after[4];
    walk_open(&x, ids, 6);
    generate(&x, 10);
    prediction_draft(x.w, 4, &draft);
    prediction_count(x.w, 4, 2, 3, after); /* 11 12 are taken, then 99 in the place of 13 */
    assert_int_equal(after[0].counts.n_accepted, 1);
    assert_int_equal(after[0].counts.n_rejected, 3); /* if the answer ends with 11 */
    assert_int_equal(after[1].counts.n_accepted, 2);
    assert_int_equal(after[1].counts.n_rejected, 2);
    assert_memory_equal(&after[2].counts, &after[1].counts, sizeof after[1].counts);
    assert_int_equal(after[1].n_taken, 3);
    assert_int_equal(after[2].n_taken, 0);
    x.tokens[x.n++] = 11;
    x.tokens[x.n++] = 12;
    generate(&x, 99);
    prediction_count(x.w, 0, 0, 1, after); /* a step without a draft */
    assert_int_equal(after[0].counts.n_rejected, 2);
    generate(&x, 12);
    assert_int_equal(generate(&x, 13), 2);
    draft.n = 0;
    prediction_draft(x.w, 2, &draft);
    prediction_count(x.w, 2, 2, 2, after); /* 14, which was rejected once, and 15 */
    assert_int_equal(after[1].counts.n_accepted, 4);
    assert_int_equal(after[1].counts.n_rejected, 1); /* 13 was never taken */
    x.tokens[x.n++] = 14;
    generate(&x, 15);
    generate(&x, 10);
    assert_int_equal(generate(&x, 11), 4); /* the answer repeats itself */
    draft.n = 0;
    prediction_draft(x.w, 2, &draft);
    prediction_count(x.w, 2, 1, 2, after);
    assert_int_equal(after[1].counts.n_accepted, 4);
    assert_int_equal(after[1].counts.n_rejected, 1);
    prediction_walk_close(x.w);
}

/* Of five tokens, four of them drafts, the first three remain: the ids of the others were
 * drafted in vain until they are taken again. */
TEST(what_was_taken_back_is_rejected) {
    static const int32_t ids[] = {10, 11, 12, 13, 14, 15};
    walked x;
    prediction_walk *again;
    draft_tree draft = {0};
    prediction_token tokens[5] = {{{0}, 0}};
    walk_open(&x, ids, 6);
    generate(&x, 10);
    prediction_draft(x.w, 4, &draft);
    prediction_count(x.w, 4, 4, 4, tokens + 1);
    assert_int_equal(tokens[4].counts.n_accepted, 4);
    assert_int_equal(prediction_walk_open(x.w->text, N_PROMPT, &again), QUIRE_OK);
    prediction_take_over(again, x.w, tokens, 3);
    assert_int_equal(again->counts.n_accepted, 2);
    assert_int_equal(again->counts.n_rejected, 2);
    memcpy(x.tokens + N_PROMPT, ids, sizeof ids);
    assert_int_equal(prediction_expects(again, x.tokens, N_PROMPT, N_PROMPT + 3), 3);
    draft.n = 0;
    prediction_draft(again, 2, &draft);
    prediction_count(again, 2, 2, 2, tokens + 3);
    assert_int_equal(tokens[4].counts.n_accepted, 4);
    assert_int_equal(tokens[4].counts.n_rejected, 0);
    prediction_walk_close(again);
    prediction_walk_close(x.w);
}

TEST(a_step_has_rows_for_a_prediction_without_a_method) {
    const draft_options none = {0}, five = {.method = DRAFT_METHOD_NGRAM, .n_tokens = 5};
    assert_int_equal(draft_max_out(&none, 1, 512), 1 + DRAFT_PREDICTED);
    assert_int_equal(draft_max_out(&none, 8, 10), 10);
    assert_int_equal(draft_max_out(&five, 8, 512), 48);
}

TEST_MAIN(NULL, NULL)
