/* Sampling under a constraint: what its mask leaves, end tokens, and the state behind the
 * tokens. */
#include <math.h>

#include "base/rng.h"
#include "sample/constraints.h"
#include "sample/sampler.h"
#include "sample/sampler_parts.h"
#include "test.h"

enum { N_VOCAB = 2003, EOS = 2, STOP = 9 }; /* not whole words */

/* A sequence with a choice between texts of tokens. */
typedef struct world {
    choice_constraint *choice;
    sampling_params params;
    sampler *s;
    int32_t tokens[8], node;
    sample_context c;
    float logits[N_VOCAB];
} world;

static const int32_t eos[] = {EOS};

static void open_world(world *w) {
    uint64_t seed = 3;
    memset(w, 0, sizeof *w);
    w->choice = choice_new(N_VOCAB, false);
    sampling_params_init(&w->params);
    w->params.temperature = 0.0f;
    assert_int_equal(sampler_open(N_VOCAB, 16, &w->s), QUIRE_OK);
    w->c = (sample_context){.params = &w->params,
                            .tokens = w->tokens,
                            .eos = eos,
                            .n_eos = 1,
                            .constraint = &w->choice->head,
                            .constraint_state = &w->node};
    for (int32_t i = 0; i < N_VOCAB; i++) {
        w->logits[i] = (float)(rng_next(&seed) % 1000) * 5e-3f;
    }
    w->logits[EOS] = 9.0f;
    w->logits[STOP] = 8.0f;
}

static void close_world(world *w) {
    sampler_close(w->s);
    constraint_drop(&w->choice->head);
    sampling_lists_drop(w->params.lists);
}

static quire_err sample(world *w, int32_t *token) {
    float row[N_VOCAB];
    memcpy(row, w->logits, sizeof row);
    return sampler_sample(w->s, row, &w->c, token);
}

static int32_t sampled(world *w) {
    int32_t token = -1;
    assert_int_equal(sample(w, &token), QUIRE_OK);
    return token;
}

#define ADD(w, ...)                                                                                          \
    choice_add((w)->choice, (int32_t[]){__VA_ARGS__},                                                        \
               (int32_t)(sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t)))

TEST(a_sample_is_allowed_and_its_token_moves_the_state) {
    world w;
    open_world(&w);
    ADD(&w, 1999, 5);
    ADD(&w, 2002, 64, 63);
    w.logits[2002] = 3.0f;
    w.logits[1999] = 1.0f;
    assert_int_equal(sampled(&w), 2002);
    assert_int_equal(sampled(&w), 64);
    assert_int_equal(sampled(&w), 63);
    assert_int_equal(sampled(&w), EOS); /* the only text is over, whatever else is likelier */
    assert_int_equal(w.choice->nodes[w.node].token, 63);
    close_world(&w);
}

TEST(an_end_token_is_allowed_where_the_output_may_end_and_nowhere_else) {
    world w;
    open_world(&w);
    ADD(&w, 7);
    ADD(&w, 7, EOS, 8); /* as a token of the text it is not known */
    ADD(&w, 7, 11);
    w.params.n_stop_tokens = 1;
    w.params.stop_tokens[0] = STOP;
    assert_int_equal(sample_accept(&w.c, EOS), QUIRE_INVALID);
    assert_int_equal(sampled(&w), 7);
    int32_t before = w.node;
    assert_int_equal(sample_accept(&w.c, EOS), QUIRE_OK);
    assert_int_equal(w.node, before);
    assert_int_equal(sampled(&w), EOS);
    w.logits[EOS] = -1.0f;
    assert_int_equal(sampled(&w), STOP); /* the request's own stop tokens are end tokens as well */
    w.params.ignore_eos = true;          /* then it is a token like others, and the text's */
    w.params.n_stop_tokens = 0;
    w.logits[EOS] = 9.0f;
    assert_int_equal(sampled(&w), EOS);
    assert_int_equal(sampled(&w), 8);
    w.params.ignore_eos = false;
    ADD(&w, 30, EOS, 8); /* an end token is no inner token of a text */
    ADD(&w, 30, 31);
    w.node = 0;
    w.logits[30] = 7.0f;
    assert_int_equal(sampled(&w), 30);
    assert_int_equal(sampled(&w), 31);
    close_world(&w);
}

/* A rule may name an end token as its last one: a structural tag that ends in the model's
 * own mark. */
TEST(an_end_token_that_completes_the_output_is_allowed) {
    world w;
    open_world(&w);
    ADD(&w, 7, EOS);
    ADD(&w, 7, 11, STOP);
    ADD(&w, 7, 12);
    w.params.n_stop_tokens = 1;
    w.params.stop_tokens[0] = STOP;
    assert_int_equal(sample_accept(&w.c, EOS), QUIRE_INVALID);
    assert_int_equal(sampled(&w), 7);
    int32_t before = w.node;
    assert_int_equal(sample_accept(&w.c, EOS), QUIRE_OK);
    assert_int_equal(sample_accept(&w.c, STOP), QUIRE_INVALID);
    assert_int_equal(sampled(&w), EOS);
    assert_int_equal(w.node, before);
    w.params.min_tokens = 5; /* others can come */
    w.logits[11] = 7.0f;
    assert_int_equal(sampled(&w), 11);
    assert_int_equal(sampled(&w), STOP); /* all that may come, though the output is short */
    w.params.ignore_eos = true;
    w.node = before;
    assert_int_equal(sample_accept(&w.c, EOS), QUIRE_OK);
    assert_int_not_equal(w.node, before); /* a token as others */
    close_world(&w);
}

TEST(min_tokens_delays_an_end_only_while_another_token_can_come) {
    world w;
    open_world(&w);
    ADD(&w, 7);
    ADD(&w, 7, 11);
    w.params.min_tokens = 5;
    assert_int_equal(sampled(&w), 7);
    assert_int_equal(sampled(&w), 11); /* it could have ended */
    assert_int_equal(sampled(&w), EOS);
    close_world(&w);
}

TEST(an_output_without_a_next_token_is_over_or_an_error) {
    world w;
    int32_t token = -1;
    float row[N_VOCAB], *probs;
    open_world(&w);
    ADD(&w, 7);
    w.params.ignore_eos = true;
    assert_int_equal(sampled(&w), 7);
    for (int warm = 0; warm < 2; warm++) {
        w.params.temperature = (float)warm;
        w.params.top_p = 0.9f;
        assert_int_equal(sampled(&w), SAMPLE_OVER);
    }
    memcpy(row, w.logits, sizeof row);
    assert_int_equal(sampler_distribution(w.s, row, &w.c, &probs), QUIRE_BAD_REQUEST);
    w.choice->nodes[w.node].is_end = false; /* a dead end */
    assert_int_equal(sample(&w, &token), QUIRE_BAD_REQUEST);
    w.choice->nodes[w.node].is_end = true;
    for (int32_t i = 0; i < N_VOCAB; i++) {
        w.logits[i] = -INFINITY;
    }
    assert_int_equal(sample(&w, &token), QUIRE_NUMERIC); /* the model's fault */
    close_world(&w);
}

TEST(logits_that_are_no_numbers_are_refused_behind_the_mask_too) {
    world w;
    int32_t token = -1;
    open_world(&w);
    ADD(&w, 7);
    w.logits[1234] = NAN;
    assert_int_equal(sample(&w, &token), QUIRE_NUMERIC);
    w.logits[1234] = 0.0f;
    w.choice->mask_error = QUIRE_TOO_LARGE;
    assert_int_equal(sample(&w, &token), QUIRE_TOO_LARGE);
    assert_int_equal(w.node, 0);
    close_world(&w);
}

/* The mask comes before all else: the distribution is that of allowed_token_ids with the
 * same tokens. */
TEST(a_mask_leaves_what_allowed_ids_would) {
    static const int32_t some[] = {3, 63, 64, 700, 701, 1500, 2001, 2002};
    world w;
    float rows[2][N_VOCAB], own[N_VOCAB], *probs;
    open_world(&w);
    for (int32_t i = 0; i < 8; i++) {
        choice_add(w.choice, &some[i], 1);
    }
    for (int kind = 0; kind < 4; kind++) {
        w.params.temperature = 0.8f;
        w.params.top_p = kind == 1 ? 0.7f : 1.0f;
        w.params.top_k = kind == 2 ? 3 : 0;
        w.params.min_p = kind == 3 ? 0.2f : 0.0f;
        memcpy(rows[0], w.logits, sizeof rows[0]);
        memcpy(rows[1], w.logits, sizeof rows[1]);
        assert_int_equal(sampler_distribution(w.s, rows[0], &w.c, &probs), QUIRE_OK);
        memcpy(own, probs, sizeof own);
        assert_int_equal(w.node, 0); /* a distribution appends nothing */
        sampling_params p = w.params;
        p.lists = sampling_lists_new();
        assert_true(p.lists && sampling_lists_set_allowed(p.lists, some, 8) == QUIRE_OK);
        sample_context plain = {.params = &p, .tokens = w.tokens};
        assert_int_equal(sampler_distribution(w.s, rows[1], &plain, &probs), QUIRE_OK);
        assert_memory_equal(own, probs, sizeof own);
        assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
        sampling_lists_drop(p.lists);
    }
    close_world(&w);
}

TEST(every_instruction_set_masks_the_same) {
    const sampler_rows *all[SAMPLER_ROWS_MOST];
    int32_t n_all = sampler_rows_here(all);
    uint64_t seed = 11;
    for (int32_t n = 1; n < 260; n++) {
        sampler *s;
        float given[260], row[260];
        assert_int_equal(sampler_open(n, 1, &s), QUIRE_OK);
        for (int32_t i = 0; i < (n + 63) / 64; i++) {
            uint64_t kind = rng_next(&seed) % 4;
            s->bits[i] = kind == 0 ? UINT64_MAX : kind == 1 ? 0 : rng_next(&seed);
        }
        for (int32_t i = 0; i < 260; i++) {
            given[i] = (float)(rng_next(&seed) % 1000);
        }
        for (int32_t k = 0; k < n_all; k++) {
            float most = -INFINITY, given_most = -INFINITY;
            memcpy(row, given, sizeof row);
            assert_true(all[k]->scan_kept(s, row));
            for (int32_t i = 0; i < 260; i++) {
                bool stays = i >= n || (s->bits[i / 64] >> (i % 64) & 1) != 0;
                assert_true(stays ? row[i] == given[i] : row[i] == -INFINITY);
                most = i < n && stays ? fmaxf(most, given[i]) : most;
                given_most = i < n ? fmaxf(given_most, given[i]) : given_most;
            }
            assert_true(s->max == most && s->given_max == given_most);
            for (int32_t g = 0; g < (n + 63) / 64; g++) { /* as a scan of what is left finds */
                float largest = -INFINITY;
                for (int32_t i = 64 * g; i < n && i < 64 * g + 64; i++) {
                    largest = fmaxf(largest, row[i]);
                }
                assert_true(s->largest[g] == largest);
            }
            row[n - 1] = NAN;
            s->bits[(n - 1) / 64] &= ~((uint64_t)1 << ((n - 1) % 64)); /* where the mask would hide it */
            assert_false(all[k]->scan_kept(s, row));
        }
        sampler_close(s);
    }
}

/* A noted argmax that the constraint allows takes no mask; one that it forbids does. */
TEST(an_allowed_argmax_is_taken_without_a_mask) {
    world w;
    sample_pool pool;
    open_world(&w);
    assert_int_equal(sample_pool_open(N_VOCAB, 16, 1, NULL, NULL, &pool), QUIRE_OK);
    ADD(&w, 7, 8);
    for (int32_t argmax = 7; argmax >= 6; argmax--) { /* 7, then 6 where 8 would be right */
        sample_result result = NOT_SAMPLED;
        float logits[N_VOCAB];
        memcpy(logits, w.logits, sizeof logits);
        sample_row row = {
            .logits = logits, .context = w.c, .result = &result, .knows_argmax = true, .argmax = argmax};
        sample_batch(&pool, &row, 1);
        assert_int_equal(result.error, QUIRE_OK);
        assert_int_equal(result.token, argmax == 7 ? 7 : 8);
        assert_int_equal(atomic_load(&w.choice->n_masks), argmax == 7 ? 0 : 1);
    }
    sample_pool_close(&pool);
    close_world(&w);
}

static void run_on(void *threads, thread_pool_fn fn, void *context, int32_t n_tasks) {
    thread_pool_run(threads, fn, context, n_tasks);
}

/* Long outputs of many sequences that share a constraint, sampled on several threads:
 * each obeys it, and is what it is alone. */
TEST(rows_of_a_batch_keep_states_of_their_own) {
    enum { N_ROWS = 24, N_STEPS = 60 };
    static float logits[N_ROWS][N_VOCAB];
    static int32_t out[2][N_ROWS][N_STEPS];
    constraint *c = brackets_new(N_VOCAB);
    sampling_params params[N_ROWS];
    brackets_state states[N_ROWS];
    thread_pool *threads;
    sample_pool pool;
    assert_int_equal(thread_pool_open(3, &threads), QUIRE_OK);
    assert_int_equal(sample_pool_open(N_VOCAB, N_STEPS, thread_pool_size(threads), run_on, threads, &pool),
                     QUIRE_OK);
    for (int together = 0; together < 2; together++) {
        uint64_t seed = 5;
        for (int32_t i = 0; i < N_ROWS; i++) {
            sampling_params_init(&params[i]);
            params[i].temperature = i % 3 == 0 ? 0.0f : 1.5f;
            params[i].seed = (uint64_t)i;
            c->ops->init(c, &states[i]);
        }
        for (int32_t k = 0; k < N_STEPS; k++) {
            sample_row rows[N_ROWS];
            sample_result results[N_ROWS];
            for (int32_t i = 0; i < N_ROWS; i++) {
                for (int32_t t = 0; t < N_VOCAB; t++) {
                    logits[i][t] = (float)(rng_next(&seed) % 1000) * 5e-3f;
                }
                results[i] = NOT_SAMPLED;
                rows[i] = (sample_row){.logits = logits[i],
                                       .context = {&params[i], out[together][i], .n_tokens = k,
                                                   .constraint = c, .constraint_state = &states[i]},
                                       .result = &results[i]};
            }
            for (int32_t i = 0; i < N_ROWS; i += together ? N_ROWS : 1) {
                sample_batch(&pool, rows + i, together ? N_ROWS : 1);
            }
            for (int32_t i = 0; i < N_ROWS; i++) {
                assert_int_equal(results[i].error, QUIRE_OK);
                out[together][i][k] = results[i].token;
            }
        }
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    for (int32_t i = 0; i < N_ROWS; i++) {
        bool is_final;
        assert_int_equal(constraint_obeyed(c, out[0][i], N_STEPS, &is_final), N_STEPS);
    }
    sample_pool_close(&pool);
    thread_pool_close(threads);
    constraint_drop(c);
}

TEST_MAIN(NULL, NULL)
