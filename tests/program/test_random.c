/* Random programs: each gen gives what a plain request with the same prompt ids gives, in
 * text and ids, whatever runs beside it: forks in forks, joins, selects, tests, repeats,
 * turns, errors, cancelled branches, n, grammars, a pool so small that sequences are
 * preempted. 50 of them; with QUIRE_TEST_LONG 1,000. */
#include "program/program_state.h"
#include "program_world.h"

enum { MAX_NAMES = 200 };

/* A program that is being made. */
typedef struct maker {
    uint64_t random;
    strbuf json;
    int n_names, n_steps;
    bool chats;
} maker;

static uint32_t draw(maker *m, uint32_t n) {
    return (uint32_t)(rng_next(&m->random) >> 33) % n;
}

static const char *const words[] = {
    " the", " prince", " looked at",         "\n", " and said",      " \"Who", ".",
    " 42",  " of",     " \xc3\xa9t\xc3\xa9", " a", " <|endoftext|>", " yes, ", "no"};

static void put(maker *m, const char *text) {
    assert_int_equal(strbuf_add_str(&m->json, text), QUIRE_OK);
}

/* A text that reads names[0..n) now and then. */
static void put_text(maker *m, const int *names, int n) {
    put(m, "\"");
    for (uint32_t i = 0, k = 1 + draw(m, 4); i < k; i++) {
        const char *word = words[draw(m, sizeof words / sizeof *words)];
        for (const char *p = word; *p != 0; p++) {
            assert_int_equal(strbuf_addf(&m->json,
                                         *p == '"'    ? "\\\""
                                         : *p == '\n' ? "\\n"
                                                      : "%c",
                                         *p),
                             QUIRE_OK);
        }
    }
    if (n > 0 && draw(m, 3) == 0) {
        assert_int_equal(strbuf_addf(&m->json, " {{v%d}}", names[draw(m, (uint32_t)n)]), QUIRE_OK);
    }
    put(m, "\"");
}

static void put_gen(maker *m, int name) {
    assert_int_equal(strbuf_addf(&m->json, "{\"gen\": \"v%d\", \"max_tokens\": %u", name, draw(m, 9)),
                     QUIRE_OK);
    switch (draw(m, 8)) {
    case 0:
        put(m, ", \"stop\": [\" the\", \"e\", \",\"]");
        break;
    case 1:
        put(m, ", \"temperature\": 0");
        break;
    case 2:
        put(m, ", \"n\": 3");
        break;
    case 3:
        put(m, ", \"structured_outputs\": {\"regex\": \"[a-z ]{2,6}(yes|no)\"}");
        break;
    case 4:
        put(m, ", \"top_k\": 4, \"seed\": 5");
        break;
    case 5:
        put(m, draw(m, 6) == 0 ? ", \"top_p\": 7" : ", \"logit_bias\": {\"13\": 5}");
        break;
    default:
        break;
    }
    put(m, "}");
}

static void put_list(maker *m, int depth, const int *before, int n_before);

static void put_test(maker *m, const int *names, int n) {
    static const char *const tests[] = {"\"contains\": \"e\"", "\"like\": \"*a*\"",
                                        "\"matches\": \"^ [a-f]|e$\"", "\"is\": [\"\", \" the\"]"};
    assert_int_equal(strbuf_addf(&m->json, "\"{{v%d}}\", %s", names[draw(m, (uint32_t)n)], tests[draw(m, 4)]),
                     QUIRE_OK);
}

/* A step that has lists; its names are not read after it, but for those after a join. */
static void put_nested(maker *m, int depth, const int *names, int n) {
    uint32_t kind = draw(m, n > 0 ? 5 : 3);
    if (kind == 0) {
        put(m, "{\"fork\": [");
        for (uint32_t i = 0, k = 2 + draw(m, 2); i < k; i++) {
            put(m, i > 0 ? ", " : "");
            put_list(m, depth - 1, names, n);
        }
        put(m, "]}");
    } else if (kind == 1) {
        put(m, "{\"fork\": 3, \"steps\": ");
        put_list(m, depth - 1, names, n);
        put(m, "}");
    } else if (kind == 2) {
        put(m, "{\"fork\": \"item\", \"over\": [\" one\", \" two\"], \"steps\": [\"{{item}}\", {\"if\": "
               "\"{{item}}\", "
               "\"is\": \" one\", \"then\": ");
        put_list(m, depth - 1, names, n);
        put(m, "}]}");
    } else if (kind == 3) {
        put(m, "{\"if\": ");
        put_test(m, names, n);
        put(m, ", \"then\": ");
        put_list(m, depth - 1, names, n);
        put(m, ", \"else\": ");
        put_list(m, depth - 1, names, n);
        put(m, "}");
    } else {
        put(m, "{\"repeat\": 3, \"until\": ");
        put_test(m, names, n);
        put(m, ", \"steps\": ");
        put_list(m, depth - 1, names, n);
        put(m, "}");
    }
}

static void put_select(maker *m, int name) {
    static const char *const methods[] = {"token_length_normalized", "greedy_token_selection",
                                          "unconditional_likelihood_normalized"};
    assert_int_equal(
        strbuf_addf(
            &m->json,
            "{\"select\": \"v%d\", \"choices\": [\" yes\", \" no, I am\", \"es\"], \"method\": \"%s\"}", name,
            methods[draw(m, 3)]),
        QUIRE_OK);
}

static void put_list(maker *m, int depth, const int *before, int n_before) {
    int names[MAX_NAMES], n = n_before;
    mem_copy(names, before, (size_t)n * sizeof *names);
    put(m, "[");
    put_text(m, names, n);
    for (uint32_t i = 0, k = 2 + draw(m, 4); i < k && m->n_names < MAX_NAMES - 2; i++) {
        put(m, ", ");
        uint32_t kind = draw(m, 9);
        if (kind < 3) {
            names[n] = m->n_names++;
            put_gen(m, names[n++]);
        } else if (kind == 3) {
            names[n] = m->n_names++;
            put_select(m, names[n++]);
        } else if (kind == 4 && m->chats) {
            put(m, "{\"role\": \"user\", \"text\": ");
            put_text(m, names, n);
            put(m, "}");
        } else if (kind == 5 && depth > 0) {
            put_nested(m, depth, names, n);
            put(m, draw(m, 2) == 0 ? ", {\"join\": true}" : "");
        } else if (kind == 6) {
            names[n] = m->n_names++;
            assert_int_equal(strbuf_addf(&m->json, "{\"set\": \"v%d\", \"to\": ", names[n]), QUIRE_OK);
            put_text(m, names, n);
            put(m, "}");
            n++;
        } else {
            put_text(m, names, n);
        }
    }
    put(m, "]");
}

static void make_program(maker *m) {
    strbuf_clear(&m->json);
    m->n_names = 0;
    m->chats = draw(m, 4) == 0;
    assert_int_equal(strbuf_addf(&m->json, "{\"seed\": %u, \"fields\": {\"temperature\": 1.0}, \"steps\": [",
                                 draw(m, 1000)),
                     QUIRE_OK);
    put(m,
        m->chats ? "{\"role\": \"system\", \"text\": \"Be short.\"}, {\"role\": \"user\", \"steps\": " : "");
    if (m->chats) {
        put_list(m, 0, NULL, 0);
        put(m, "}, ");
    }
    put(m, "{\"fork\": 1, \"steps\": ");
    put_list(m, 2, NULL, 0);
    put(m, "}, {\"join\": true}]}");
}

/* One output of a gen, and that of a plain request: its text, and its ids but for those
 * that ended it. */
static void expect_output(const program_value *v, const outcome *plain, const char *json) {
    if (v->text.n != plain->text.n || (v->text.n > 0 && memcmp(v->text.p, plain->text.p, v->text.n) != 0)) {
        fail_msg("\"%.*s\" instead of \"%.*s\" in %s", (int)v->text.n, v->text.p, (int)plain->text.n,
                 plain->text.p, json);
    }
    assert_true(v->n_ids <= (size_t)plain->n_tokens);
    assert_true(v->n_ids == 0 || memcmp(v->ids, plain->tokens, v->n_ids * sizeof *v->ids) == 0);
    assert_true(v->finish == QUIRE_FINISH_STOP || v->n_ids == (size_t)plain->n_tokens);
    assert_int_equal(v->finish, plain->finish);
}

/* A gen against a plain request with the ids before it. */
static void expect_as_plain(quire_engine *e, quire_queue *q, const program_root *r, const program_record *c,
                            const char *json) {
    const program_value *v = c->value;
    size_t n;
    const int32_t *ids = quire_state_ids(c->state, &n);
    quire_request *plain;
    quire_error err = {0};
    response a;
    char seed[32];
    assert_true((size_t)c->prompt_tokens <= n);
    assert_int_equal(quire_request_ids(e, ids, (size_t)c->prompt_tokens, &plain, &err), QUIRE_OK);
    assert_int_equal(quire_request_set_all(plain, r->program.fields, r->program.n_fields, &err), QUIRE_OK);
    assert_int_equal(quire_request_set_all(plain, c->step->fields, c->step->n_fields, &err), QUIRE_OK);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)v->seed);
    if (v->has_seed || v->is_list) {
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)(v->is_list ? v->items[0]->seed : v->seed));
    }
    if (v->is_list ? v->items[0]->has_seed : v->has_seed) {
        assert_int_equal(quire_request_set(plain, "seed", seed, &err), QUIRE_OK);
    }
    submit_request(q, plain, &a);
    wait_done(q, &a);
    assert_int_equal(a.error.code, QUIRE_OK);
    assert_int_equal(a.completion_tokens, c->completion_tokens);
    for (int32_t i = 0; i < a.n_choices; i++) {
        expect_output(v->is_list ? v->items[i] : v, &a.choices[i], json);
    }
    quire_stream_release(a.stream);
    response_clear(&a);
}

/* The ids of a state without turns are those of its texts and outputs, up to the last
 * output at least. */
static void expect_text(quire_engine *e, const quire_state *s, const char *json) {
    strbuf whole = {0};
    size_t n, n_text, least = 0;
    char *text;
    quire_error err = {0};
    const int32_t *ids = quire_state_ids(s, &n);
    for (size_t i = 0; i < s->n_parts; i++) {
        const program_part *p = &s->parts[i];
        const strbuf *t = p->kind == PART_TEXT ? &p->text->text : &p->value->text;
        assert_int_equal(strbuf_add(&whole, t->p, t->n), QUIRE_OK);
        /* the end of a stop string's last token waits for the next text */
        bool is_cut = p->kind == PART_VALUE && p->value->finish == QUIRE_FINISH_STOP;
        least = p->kind == PART_TEXT ? least : is_cut ? whole.n - t->n : whole.n;
    }
    if (n > 0 && !str_contains((str){whole.p, whole.n}, str_of("<|")) &&
        !str_contains((str){whole.p, whole.n}, str_of("\xef\xbf\xbd"))) {
        assert_int_equal(quire_detokenize(e, ids, n, true, &text, &n_text, &err), QUIRE_OK);
        /* an output does not show the part of a character that its length cuts */
        bool has_part = strstr(text, "\xef\xbf\xbd") != NULL;
        if (!has_part && (n_text > whole.n || memcmp(text, whole.p, n_text) != 0 || n_text < least)) {
            fail_msg("ids of \"%s\" for \"%s\" in %s", text, whole.p, json);
        }
        quire_free(text);
    }
    strbuf_deinit(&whole);
}

/* Runs a program; after some events a state that runs is cancelled. */
static int32_t run_random(quire_engine *e, quire_programs *ps, quire_queue *q, maker *m) {
    quire_state *s = program_of(ps, m->json.p);
    int32_t n_compared = 0;
    uint32_t cancel_at = draw(m, 3) == 0 ? 1 + draw(m, 40) : UINT32_MAX;
    quire_program_event ev = {.kind = QUIRE_PROGRAM_TEXT};
    for (uint32_t n = 0, waits = 0; ev.kind != QUIRE_PROGRAM_IDLE;) {
        if (!quire_programs_next(ps, &ev)) {
            ev.kind = QUIRE_PROGRAM_TEXT;
            quire_programs_wait(ps, 1000000);
            assert_true(waits++ < 100000);
        } else if (++n == cancel_at && ev.kind != QUIRE_PROGRAM_IDLE) {
            quire_state_cancel(ev.state);
        }
    }
    for (size_t i = 0; i < s->root->n_records; i++) {
        const program_record *c = &s->root->records[i];
        bool has_ids = c->value != NULL && c->step->kind == STEP_GEN &&
                       (c->value->is_list ? c->value->items[0] : c->value)->n_ids > 0;
        if (has_ids) { /* else a select that follows may have another token in place of the prompt's last */
            expect_as_plain(e, q, s->root, c, m->json.p);
            n_compared++;
        }
    }
    for (const quire_state *t = s->root->states; t != NULL && !m->chats; t = t->next_of_all) {
        expect_text(e, t, m->json.p);
    }
    quire_state_close(s);
    return n_compared;
}

/* An engine that guesses tokens, with a pool so small that sequences are preempted. */
static quire_engine *open_guessing(void) {
    quire_options o;
    quire_engine *e;
    quire_error err = {0};
    quire_options_init(&o);
    o.model = "models/builtin-small.gguf";
    o.n_pages = 24;
    o.max_seqs = 6;
    o.n_threads = o.n_text_threads = 1;
    o.speculative_config = "{\"method\": \"ngram\", \"num_speculative_tokens\": 4}";
    if (quire_engine_open(&o, &e, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

/* Runs n random programs, or more where few of these had anything to compare. */
static void run_all(quire_engine *e, uint64_t seed, int n) {
    quire_queue *q = queue_new(e);
    quire_programs *ps;
    maker m = {.random = seed};
    int32_t n_compared = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    assert_int_equal(quire_programs_open(e, &ps), QUIRE_OK);
    for (int i = 0; i < n || (n_compared <= n && i < 10 * n); i++) {
        make_program(&m);
        n_compared += run_random(e, ps, q, &m);
    }
    assert_true(n_compared > n);
    quire_programs_close(ps);
    wait_until_none_is_parked(e);
    quire_queue_close(q);
    wait_until_idle(e);
    quire_engine_close(e);
    strbuf_deinit(&m.json);
}

static int rounds(int n) {
    return getenv("QUIRE_TEST_LONG") != NULL ? 20 * n : n;
}

TEST(programs_are_separate_requests) {
    run_all(world_open(512, 8), rng_os_seed(), rounds(40));
}

TEST(programs_are_separate_requests_under_preemption_and_guesses) {
    run_all(open_guessing(), rng_os_seed(), rounds(10));
}

TEST_MAIN(NULL, NULL)
