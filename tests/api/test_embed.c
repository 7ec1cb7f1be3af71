/* Embeddings through quire.h: inputs as texts and ids, request bodies, errors, streams
 * that are closed early, and leaks. */
#include <math.h>
#include <pthread.h>

#include "api_world.h"
#include "request/request.h"

static quire_engine *shared;

static quire_input text_of(const char *text) {
    return (quire_input){.text = text, .n_text = strlen(text)};
}

static void expect_row(const float *a, const float *b, size_t n) {
    assert_memory_equal(a, b, n * sizeof *a);
}

TEST(rows_of_texts_and_of_their_ids_are_the_same) {
    quire_error err = {0};
    const quire_embed_options o = {.pooling = "last", .normalize = -1};
    const char *texts[] = {"The prince went", "A page table maps positions to pages.", "x"};
    quire_input inputs[6];
    int32_t *ids[3];
    for (int i = 0; i < 3; i++) {
        size_t n;
        inputs[i] = text_of(texts[i]);
        assert_int_equal(quire_tokenize(shared, texts[i], strlen(texts[i]), true, &ids[i], &n, &err),
                         QUIRE_OK);
        inputs[3 + i] = (quire_input){.ids = ids[i], .n_ids = n};
    }
    float *rows;
    size_t n_row;
    assert_int_equal(quire_embed(shared, inputs, 6, &o, &rows, &n_row, &err), QUIRE_OK);
    assert_int_equal(n_row, quire_engine_info(shared)->d_model);
    for (size_t i = 0; i < 3; i++) {
        double sum = 0;
        for (size_t k = 0; k < n_row; k++) {
            sum += (double)rows[i * n_row + k] * (double)rows[i * n_row + k];
        }
        assert_true(fabs(sum - 1.0) < 1e-5); /* normalised, since the model says nothing */
        expect_row(rows + i * n_row, rows + (3 + i) * n_row, n_row);
        quire_free(ids[i]);
    }
    quire_free(rows);
    wait_until_idle(shared);
}

TEST(more_inputs_than_a_request_holds_are_computed) {
    enum { N = 700 };
    quire_error err = {0};
    static quire_input inputs[N];
    static int32_t ids[N][3];
    for (int i = 0; i < N; i++) {
        ids[i][0] = 5;
        ids[i][1] = 1 + i % 100;
        ids[i][2] = 7;
        inputs[i] = (quire_input){.ids = ids[i], .n_ids = 3};
    }
    float *rows;
    size_t n_row;
    const quire_embed_options o = {.pooling = "mean", .dimensions = 9, .normalize = 0};
    assert_int_equal(quire_embed(shared, inputs, N, &o, &rows, &n_row, &err), QUIRE_OK);
    assert_int_equal(n_row, 9);
    for (size_t i = 100; i < N; i++) {
        expect_row(rows + i * n_row, rows + (i - 100) * n_row, n_row);
    }
    assert_true(memcmp(rows, rows + n_row, n_row * sizeof *rows) != 0);
    quire_free(rows);
    wait_until_idle(shared);
}

/* The events of one request, to its DONE: START, EMBEDDING, END of each choice in this
 * order. */
TEST(a_body_is_answered_by_a_row_for_each_input) {
    static const char body[] = "{\"input\": [\"one\", \"two and three\"], \"pooling\": \"cls\", "
                               "\"dimensions\": 4, \"model\": \"m\", "
                               "\"encoding_format\": \"float\", \"user\": \"u\"}";
    quire_error err = {0};
    quire_queue *q = queue_new(shared);
    quire_request *r;
    quire_stream *s;
    assert_int_equal(quire_request_parse(shared, QUIRE_EMBEDDINGS, body, strlen(body), &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_describe(r)->n_choices, 2);
    assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_OK);
    int seen[2] = {0}, n_prompt = 0;
    quire_event ev;
    do {
        next_event(q, &ev);
        if (ev.kind == QUIRE_EVENT_DONE) {
            break;
        }
        assert_int_equal(seen[ev.choice]++, ev.kind == QUIRE_EVENT_START       ? 0
                                            : ev.kind == QUIRE_EVENT_EMBEDDING ? 1
                                                                               : 2);
        n_prompt += ev.kind == QUIRE_EVENT_END ? ev.prompt_tokens : 0;
        assert_int_equal(ev.row != NULL, ev.kind == QUIRE_EVENT_EMBEDDING);
        assert_int_equal(ev.n_row, ev.row != NULL ? 4 : 0);
        assert_true(ev.kind != QUIRE_EVENT_END || ev.finish == QUIRE_FINISH_STOP);
    } while (true);
    assert_null(ev.error);
    assert_int_equal(ev.prompt_tokens, n_prompt);
    assert_int_equal(ev.completion_tokens, 0);
    assert_true(seen[0] == 3 && seen[1] == 3);
    quire_request *fork;
    assert_int_equal(quire_stream_fork(s, 0, QUIRE_HERE, &fork, &err), QUIRE_BAD_REQUEST);
    quire_stream_release(s);
    quire_queue_close(q);
    wait_until_idle(shared);
}

TEST(a_wrong_body_is_refused_by_name) {
    static const struct {
        const char *body, *param, *says;
    } cases[] = {
        {"{\"input\": \"a\"}", "pooling", "does not say how"},
        {"{\"pooling\": \"last\"}", "input", "input is missing"},
        {"{\"input\": \"\", \"pooling\": \"last\"}", "input", "input is empty"},
        {"{\"input\": [], \"pooling\": \"last\"}", "input", "input has an empty array"},
        {"{\"input\": \"a\", \"pooling\": \"max\"}", "body.pooling",
         "\"mean\", \"cls\", \"last\" or \"rank\""},
        {"{\"input\": \"a\", \"pooling\": \"rank\"}", "pooling", "no scoring head"},
        {"{\"input\": \"a\", \"pooling\": 3}", "body.pooling", "a string"},
        {"{\"input\": \"a\", \"pooling\": \"last\", \"dimensions\": 0}", "dimensions", "at least 1"},
        {"{\"input\": \"a\", \"pooling\": \"last\", \"dimensions\": 100000}", "dimensions", "rows have"},
        {"{\"input\": \"a\", \"pooling\": \"last\", \"normalize\": 1}", "body.normalize", "true or false"},
        {"{\"input\": \"a\", \"pooling\": \"last\", \"encoding_format\": \"hex\"}", "body.encoding_format",
         "base64"},
        {"{\"input\": \"a\", \"pooling\": \"last\", \"token_type_ids\": [0]}", "token_type_ids", "as ids"},
        {"{\"input\": [1, 2], \"pooling\": \"last\", \"token_type_ids\": [0]}", "token_type_ids",
         "one for each id"},
        {"{\"input\": [1, 2], \"pooling\": \"last\", \"token_type_ids\": [0, 1]}", "token_type_ids",
         "no token types"},
        {"{\"input\": [1, 2], \"pooling\": \"last\", \"token_type_ids\": [0, -1]}", "token_type_ids",
         "no token types"},
        {"{\"input\": [1, 2], \"pooling\": \"last\", \"token_type_ids\": [0, \"a\"]}", "token_type_ids",
         "not an integer"},
        {"{\"input\": [[1], [2]], \"pooling\": \"last\", \"token_type_ids\": [0, 0]}", "token_type_ids",
         "an array for each"},
        {"{\"input\": [1, 999999], \"pooling\": \"last\"}", "", "out of the vocabulary"},
        {"{\"input\": \"a\", \"pooling\": \"last\", \"prompt\": \"b\", \"Pooling\": \"cls\"}", "Pooling",
         "use pooling"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quire_error err = {0};
        quire_request *r;
        if (quire_request_parse(shared, QUIRE_EMBEDDINGS, cases[i].body, strlen(cases[i].body), &r, &err) !=
                QUIRE_BAD_REQUEST ||
            strcmp(err.param, cases[i].param) != 0 || strstr(err.message, cases[i].says) == NULL) {
            fail_msg("%s: %s: %s", cases[i].body, err.param, err.message);
        }
    }
}

TEST(a_converted_model_pools_its_last_token_unless_a_request_says_otherwise) {
    static const char *const names[][2] = {{"convert", "embed"}, {"runner", "pooling"}};
    const quire_input input = text_of("The prince went");
    for (int i = 0; i < 4; i++) {
        const quire_embed_options named = {.pooling = i / 2 == 0 ? "last" : "mean", .normalize = -1};
        quire_error err = {0};
        quire_options o;
        quire_engine *e;
        float *expected, *row;
        size_t n_row;
        quire_options_init(&o);
        o.model = "models/builtin-small.gguf";
        o.n_threads = 1;
        o.n_pages = 64;
        assert_int_equal(quire_options_set(&o, names[i % 2][0], names[i % 2][1], &err), QUIRE_OK);
        assert_int_equal(quire_options_set(&o, names[1 - i % 2][0], "auto", &err), QUIRE_OK);
        assert_int_equal(quire_engine_open(&o, &e, &err), QUIRE_OK);
        assert_int_equal(quire_embed(e, &input, 1, &named, &expected, &n_row, &err), QUIRE_OK);
        assert_int_equal(quire_embed(e, &input, 1, i / 2 == 0 ? NULL : &named, &row, &n_row, &err), QUIRE_OK);
        expect_row(row, expected, n_row);
        quire_free(row);
        assert_int_equal(quire_embed(shared, &input, 1, &named, &row, &n_row, &err), QUIRE_OK);
        expect_row(row, expected, n_row);
        quire_free(row);
        quire_free(expected);
        quire_engine_close(e);
    }
}

TEST(wrong_inputs_are_refused) {
    const int32_t ids[] = {1, 2, 3}, far[] = {1, 1 << 30}, types[] = {0, 0, 1};
    const quire_input empty = {.text = ""}, out = {.ids = far, .n_ids = 2},
                      typed = {.ids = ids, .n_ids = 3, .types = types}, none = {.ids = ids},
                      fine = {.ids = ids, .n_ids = 3};
    const quire_embed_options last = {.pooling = "last", .normalize = -1},
                              odd = {.pooling = "sum", .normalize = -1},
                              wide = {.pooling = "last", .dimensions = 1 << 20, .normalize = -1},
                              below = {.pooling = "last", .dimensions = -1, .normalize = -1};
    const struct {
        const quire_input *in;
        const quire_embed_options *o;
        const char *param;
    } cases[] = {{&empty, &last, "input"},          {&out, &last, "input"},
                 {&typed, &last, "token_type_ids"}, {&none, &last, "input"},
                 {&fine, NULL, "pooling"},          {&fine, &odd, "pooling"},
                 {&fine, &wide, "dimensions"},      {&fine, &below, "dimensions"}};
    float *rows;
    size_t n_row;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quire_error err = {0};
        assert_int_equal(quire_embed(shared, cases[i].in, 1, cases[i].o, &rows, &n_row, &err),
                         QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, cases[i].param);
        assert_null(rows);
    }
    quire_error err = {0};
    assert_int_equal(quire_embed(shared, NULL, 0, &last, &rows, &n_row, &err), QUIRE_BAD_REQUEST);
    static int32_t many[1 << 16];
    const quire_input over = {.ids = many, .n_ids = (size_t)quire_engine_info(shared)->max_model_len + 1};
    assert_true(over.n_ids <= sizeof many / sizeof *many);
    assert_int_equal(quire_embed(shared, &over, 1, &last, &rows, &n_row, &err), QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "at most"));
    wait_until_idle(shared);
}

TEST(the_longest_input_has_a_row) {
    quire_error err = {0};
    size_t n = (size_t)quire_engine_info(shared)->max_model_len, n_row;
    int32_t *ids = mem_new(n, sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        ids[i] = 1 + (int32_t)(i * 7 % 1000);
    }
    const quire_input whole = {.ids = ids, .n_ids = n};
    const quire_embed_options o = {.pooling = "mean", .normalize = -1};
    float *rows;
    if (quire_embed(shared, &whole, 1, &o, &rows, &n_row, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    quire_free(rows);
    mem_free(ids);
    wait_until_idle(shared);
}

/* Streams that are cancelled, released or closed at any moment leave nothing. */
TEST(streams_may_end_at_any_moment) {
    uint64_t seed = 3;
    quire_error err = {0};
    static const char body[] =
        "{\"input\": [\"one two three four five six\", [1,2,3,4,5,6,7,8,9], \"x\"], \"pooling\": \"mean\"}";
    static const char mixed[] = "{\"input\": [[1,2,3,4,5,6,7,8,9], [3,4]], \"pooling\": \"mean\"}";
    quire_request *r;
    /* of two kinds */
    assert_int_equal(quire_request_parse(shared, QUIRE_EMBEDDINGS, body, strlen(body), &r, &err),
                     QUIRE_BAD_REQUEST);
    for (int i = 0; i < 60; i++) {
        quire_queue *q = queue_new(shared);
        quire_stream *s;
        assert_int_equal(quire_request_parse(shared, QUIRE_EMBEDDINGS, mixed, strlen(mixed), &r, &err),
                         QUIRE_OK);
        assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_OK);
        int n = (int)(rng_next(&seed) % 8);
        quire_event ev = {0};
        for (int k = 0; k < n && ev.kind != QUIRE_EVENT_DONE; k++) {
            next_event(q, &ev);
        }
        if (i % 3 == 0) {
            quire_stream_cancel(s);
        } else if (i % 3 == 1) {
            quire_stream_release(s);
        }
        quire_queue_close(q);
    }
    wait_until_idle(shared);
}

/* Rows and texts in the same steps, each as it is alone. */
TEST(texts_and_rows_run_beside_each_other) {
    enum { N = 12 };
    static const char text[] =
        "{\"prompt\": \"The prince went to\", \"max_tokens\": 40, \"temperature\": 0, \"ignore_eos\": true}";
    static const char *const inputs[] = {"The prince went to the sea.", "A page",
                                         "x y z x y z x y z x y z x y z x y z x y z"};
    static const char *const poolings[] = {"mean", "last", "cls"};
    float *alone[N], *row;
    size_t n_row;
    quire_error err = {0};
    response before, beside[N / 2];
    quire_queue *q = queue_new(shared);
    complete(shared, q, &before, text);
    for (int i = 0; i < N; i++) {
        const quire_input in = text_of(inputs[i % 3]);
        const quire_embed_options o = {.pooling = poolings[i / 3 % 3], .normalize = i % 2};
        assert_int_equal(quire_embed(shared, &in, 1, &o, &alone[i], &n_row, &err), QUIRE_OK);
    }
    for (int i = 0; i < N / 2; i++) {
        submit(shared, q, &beside[i], text);
    }
    for (int i = 0; i < N; i++) { /* while the texts grow */
        const quire_input in = text_of(inputs[i % 3]);
        const quire_embed_options o = {.pooling = poolings[i / 3 % 3], .normalize = i % 2};
        assert_int_equal(quire_embed(shared, &in, 1, &o, &row, &n_row, &err), QUIRE_OK);
        expect_row(row, alone[i], n_row);
        quire_free(row);
        quire_free(alone[i]);
    }
    for (int i = 0; i < N / 2; i++) {
        wait_done(q, &beside[i]);
        assert_memory_equal(beside[i].choices[0].tokens, before.choices[0].tokens, 40 * sizeof(int32_t));
        quire_stream_release(beside[i].stream);
        response_clear(&beside[i]);
    }
    response_clear(&before);
    quire_queue_close(q);
    wait_until_idle(shared);
}

TEST(an_error_names_its_input) {
    enum { N = 300 };
    static const int32_t good[] = {1, 2}, bad[] = {1, 1 << 30};
    static quire_input inputs[N];
    quire_error err = {0};
    float *rows;
    size_t n_row;
    const quire_embed_options o = {.pooling = "last", .normalize = -1};
    for (int i = 0; i < N; i++) {
        inputs[i] = (quire_input){.ids = i == 280 ? bad : good, .n_ids = 2};
    }
    assert_int_equal(quire_embed(shared, inputs, N, &o, &rows, &n_row, &err), QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "input[280]: token id"));
    static int32_t many[1 << 16];
    inputs[280] = (quire_input){.ids = many, .n_ids = (size_t)quire_engine_info(shared)->max_model_len + 1};
    assert_int_equal(quire_embed(shared, inputs, N, &o, &rows, &n_row, &err), QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "input[280]: the input has"));
    wait_until_idle(shared);
}

/* ---- models of other kinds, by their context ---- */

/* A cross-encoder: two token types, a head of three scores, no head of logits, no
 * vocabulary. */
static const request_context scorer = {.n_vocab = 100,
                                       .max_model_len = 64,
                                       .no_tokens = true,
                                       .pooling = {.kind = POOLING_CLS, .normalise = true, .n_scores = 3},
                                       .n_row = 3,
                                       .n_token_types = 2};

static quire_err parse_with(const request_context *c, quire_endpoint endpoint, const char *body,
                            quire_request **out, quire_error *err) {
    *err = (quire_error){0};
    return request_parse(c, endpoint, body, strlen(body), out, err);
}

TEST(scores_are_neither_cut_nor_normalised) {
    quire_error err;
    quire_request *r;
    assert_int_equal(parse_with(&scorer, QUIRE_EMBEDDINGS,
                                "{\"input\": [[1,2,3],[4,5]], \"token_type_ids\": [[0,0,1],[1,0]]}", &r,
                                &err),
                     QUIRE_OK);
    assert_true(r->g.pooling.kind == POOLING_CLS && r->g.pooling.dimensions == 0 && !r->g.pooling.normalise);
    assert_true(r->g.prompts[0].types[2] == 1 && r->g.prompts[1].types[0] == 1 &&
                r->g.prompts[1].types[1] == 0);
    quire_request_free(r);
    assert_int_equal(
        parse_with(&scorer, QUIRE_EMBEDDINGS, "{\"input\": [1,2], \"pooling\": \"rank\"}", &r, &err),
        QUIRE_OK);
    assert_true(r->g.pooling.kind == POOLING_CLS);
    quire_request_free(r);
    assert_int_equal(
        parse_with(&scorer, QUIRE_EMBEDDINGS, "{\"input\": [1,2], \"token_type_ids\": [0,2]}", &r, &err),
        QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "has 2 types, counted from 0"));
    assert_int_equal(
        parse_with(&scorer, QUIRE_EMBEDDINGS, "{\"input\": [1,2], \"normalize\": true}", &r, &err),
        QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "normalize");
    assert_int_equal(parse_with(&scorer, QUIRE_EMBEDDINGS, "{\"input\": [1,2], \"dimensions\": 2}", &r, &err),
                     QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "3 scores"));
    assert_int_equal(parse_with(&scorer, QUIRE_EMBEDDINGS, "{\"input\": \"a\"}", &r, &err),
                     QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "no vocabulary"));
}

TEST(the_models_own_way_is_the_default) {
    request_context c = scorer;
    quire_error err;
    quire_request *r;
    c.pooling = (pooling_desc){.kind = POOLING_MEAN};
    for (int own = 0; own < 2; own++) {
        c.pooling.normalise = own;
        assert_int_equal(parse_with(&c, QUIRE_EMBEDDINGS, "{\"input\": [1,2]}", &r, &err), QUIRE_OK);
        assert_true(r->g.pooling.kind == POOLING_MEAN && r->g.pooling.normalise == (bool)own);
        quire_request_free(r);
        assert_int_equal(parse_with(&c, QUIRE_EMBEDDINGS,
                                    "{\"input\": [1,2], \"pooling\": \"last\", \"normalize\": false}", &r,
                                    &err),
                         QUIRE_OK);
        assert_true(r->g.pooling.kind == POOLING_LAST && !r->g.pooling.normalise);
        quire_request_free(r);
    }
}

TEST(a_model_of_rows_refuses_requests_for_text) {
    quire_error err;
    quire_request *r;
    assert_int_equal(parse_with(&scorer, QUIRE_COMPLETIONS, "{\"prompt\": [1,2]}", &r, &err),
                     QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "scores, not text"));
    assert_int_equal(parse_with(&scorer, QUIRE_CHAT,
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", &r, &err),
                     QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "scores, not text"));
}

TEST(a_report_comes_with_a_row) {
    static const char body[] = "{\"input\": [5,6,7,8,9], \"pooling\": \"mean\", \"explain\": true}";
    quire_error err = {0};
    quire_queue *q = queue_new(shared);
    quire_request *r;
    quire_stream *s;
    quire_event ev;
    assert_int_equal(quire_request_parse(shared, QUIRE_EMBEDDINGS, body, strlen(body), &r, &err), QUIRE_OK);
    assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_OK);
    do {
        next_event(q, &ev);
    } while (ev.kind != QUIRE_EVENT_END);
    assert_non_null(ev.explain);
    assert_int_equal(ev.explain->n_chunks, 1);
    assert_int_equal(ev.explain->chunks[0].tokens, 5);
    assert_int_equal(ev.explain->n_decodes, 0);
    assert_int_equal(ev.explain->decode_us, 0);
    quire_queue_close(q);
    wait_until_idle(shared);
}

/* ---- under load ---- */

enum { LOAD_ROWS = 24, LOAD_TEXTS = 10, LOAD_THREADS = 3, LOAD_TOKENS = 120, LOAD_IDS = 70 };

/* What every thread asks for: inputs of many lengths, which share beginnings, and what
 * their rows are when nothing else runs. */
typedef struct load {
    quire_engine *e;
    int32_t ids[LOAD_ROWS][LOAD_IDS];
    quire_input inputs[LOAD_ROWS];
    quire_embed_options how[LOAD_ROWS];
    float *alone[LOAD_ROWS];
    size_t n_row[LOAD_ROWS];
    int rounds;
} load;

static void load_make(load *l) {
    uint64_t seed = 11;
    static const char *const poolings[] = {"mean", "last", "cls"};
    for (size_t i = 0; i < LOAD_ROWS; i++) {
        size_t n = 1 + (size_t)(rng_next(&seed) % LOAD_IDS);
        for (size_t k = 0; k < n; k++) {
            l->ids[i][k] = k < 40 && i % 3 != 0 ? 5 + (int32_t)k : 5 + (int32_t)(rng_next(&seed) % 900);
        }
        l->inputs[i] = (quire_input){.ids = l->ids[i], .n_ids = n};
        l->how[i] = (quire_embed_options){
            .pooling = poolings[i % 3], .dimensions = i % 4 == 0 ? 7 : 0, .normalize = (int)(i % 2)};
    }
}

typedef struct load_client {
    const load *l;
    uint64_t seed;
} load_client;

/* Asks for rows in an order of its own. Returns NULL, or what was wrong. */
static void *load_rows(void *user) {
    load_client *c = user;
    const load *l = c->l;
    for (int i = 0; i < l->rounds; i++) {
        size_t k = (size_t)(rng_next(&c->seed) % LOAD_ROWS), n_row;
        float *row;
        quire_error err;
        if (quire_embed(l->e, &l->inputs[k], 1, &l->how[k], &row, &n_row, &err) != QUIRE_OK) {
            return "a row was refused";
        }
        bool same = n_row == l->n_row[k] && memcmp(row, l->alone[k], n_row * sizeof *row) == 0;
        quire_free(row);
        if (!same) {
            return "a row is another one than alone";
        }
    }
    return NULL;
}

/* Texts, each alone and then all at once beside the threads that ask for rows. Returns
 * how many texts were preempted. */
static int64_t load_run(load *l) {
    response before[LOAD_TEXTS], beside[LOAD_TEXTS];
    pthread_t threads[LOAD_THREADS];
    load_client clients[LOAD_THREADS];
    quire_stats stats;
    char text[128];
    quire_options o;
    quire_error err;
    quire_options_init(&o);
    o.model = "models/builtin-small.gguf";
    o.n_pages = 20; /* a text needs 8 pages in the end, so six do not fit */
    o.max_seqs = 6;
    o.max_batched_tokens = 16; /* inputs come in chunks, between which their pages may be taken */
    o.max_model_len = 160;
    o.n_threads = 1;
    assert_int_equal(quire_engine_open(&o, &l->e, &err), QUIRE_OK);
    quire_queue *q = queue_new(l->e);
    for (int i = 0; i < 2 * LOAD_TEXTS; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"prompt\": \"A\", \"max_tokens\": %d, \"seed\": %d, \"ignore_eos\": true}",
                       LOAD_TOKENS, i % LOAD_TEXTS);
        if (i < LOAD_TEXTS) {
            complete(l->e, q, &before[i], text);
        } else {
            submit(l->e, q, &beside[i - LOAD_TEXTS], text);
        }
    }
    for (int i = 0; i < LOAD_THREADS; i++) {
        clients[i] = (load_client){l, (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, load_rows, &clients[i]), 0);
    }
    for (int i = 0; i < LOAD_TEXTS; i++) {
        wait_done(q, &beside[i]);
        assert_memory_equal(beside[i].choices[0].tokens, before[i].choices[0].tokens,
                            LOAD_TOKENS * sizeof(int32_t));
        quire_stream_release(beside[i].stream);
        response_clear(&beside[i]);
        response_clear(&before[i]);
    }
    for (int i = 0; i < LOAD_THREADS; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        if (wrong != NULL) {
            fail_msg("%s", (const char *)wrong);
        }
    }
    quire_queue_close(q);
    wait_until_idle(l->e);
    quire_engine_stats(l->e, &stats);
    quire_engine_close(l->e);
    return stats.preemptions;
}

/* Rows from several threads beside texts that do not all fit into the pool; with
 * QUIRE_TEST_LONG 20 times as many. */
TEST(rows_under_load_are_those_of_an_idle_engine) {
    load l = {.e = shared, .rounds = getenv("QUIRE_TEST_LONG") ? 500 : 25};
    load_make(&l);
    for (size_t i = 0; i < LOAD_ROWS; i++) {
        quire_error err = {0};
        assert_int_equal(quire_embed(shared, &l.inputs[i], 1, &l.how[i], &l.alone[i], &l.n_row[i], &err),
                         QUIRE_OK);
    }
    int64_t n_preempted = 0;
    for (int i = 0; i < 10 && n_preempted == 0; i++) { /* none is where texts came one after the other */
        n_preempted = load_run(&l);
    }
    assert_true(n_preempted > 0);
    for (size_t i = 0; i < LOAD_ROWS; i++) {
        quire_free(l.alone[i]);
    }
}

/* The engine's places are taken until a row is read: what comes then is refused, and what
 * was there is right. */
TEST(a_full_engine_refuses_rows_and_loses_none) {
    enum { N = 1024 };
    static int32_t ids[N][2];
    static quire_input inputs[N];
    const quire_embed_options o = {.pooling = "mean", .normalize = 0};
    quire_error err = {0};
    quire_stats stats;
    quire_event ev;
    float *alone, *row;
    size_t n_row;
    for (int i = 0; i < N; i++) {
        ids[i][0] = 5 + i % 7;
        ids[i][1] = 9 + i % 11;
        inputs[i] = (quire_input){.ids = ids[i], .n_ids = 2};
    }
    /* every pair once */
    assert_int_equal(quire_embed(shared, inputs, 77, &o, &alone, &n_row, &err), QUIRE_OK);
    quire_engine *e = world_open(64, 8);
    quire_queue *q = queue_new(e);
    quire_request *r;
    quire_stream *s;
    assert_int_equal(quire_request_embed(e, inputs, N, &o, &r, &err), QUIRE_OK);
    assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_OK);
    do {
        const struct timespec tick = {.tv_nsec = 1000000};
        (void)nanosleep(&tick, NULL);
        quire_engine_stats(e, &stats);
    } while (stats.step_rows < N); /* each input has been in a step */
    wait_until_idle(e);
    assert_int_equal(quire_embed(e, inputs, 1, &o, &row, &n_row, &err), QUIRE_BUSY);
    assert_non_null(strstr(err.message, "the most this server takes"));
    int n_rows = 0;
    for (next_event(q, &ev); ev.kind != QUIRE_EVENT_DONE; next_event(q, &ev)) {
        if (ev.kind == QUIRE_EVENT_EMBEDDING) {
            expect_row(ev.row, alone + (size_t)(ev.choice % 77) * n_row, n_row);
            n_rows++;
        }
    }
    assert_true(ev.error == NULL && n_rows == N);
    quire_stream_release(s);
    assert_int_equal(quire_embed(e, inputs, 1, &o, &row, &n_row, &err), QUIRE_OK);
    expect_row(row, alone, n_row);
    quire_free(row);
    quire_free(alone);
    quire_queue_close(q);
    wait_until_idle(e);
    quire_engine_close(e);
}

ENGINE_FIXTURES(shared, 256, 16)
TEST_MAIN(open_shared, close_shared)
