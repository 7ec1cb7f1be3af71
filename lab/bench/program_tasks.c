#include "lab/bench/program_tasks.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cli/files.h"
#include "lab/bench/figures.h"
#include "json/json_out.h"

#define TEXT_OF(s) (int)(s).n, (s).p

/* ---- data ---- */

typedef struct task_list {
    json_value **items;
    size_t n, cap;
} task_list;

struct task_texts {
    task_list maths;                      /* GSM8K: questions, and answers with their reasoning */
    task_list chats, questions, passages; /* Spec-Bench, by category */
    task_list forms;                      /* json-mode-eval: schemas, and objects that match them */
};

static quire_err task_list_add(task_list *l, json_value *v) {
    TRY(mem_grow(&l->items, &l->cap, l->n + 1, sizeof(json_value *)));
    l->items[l->n++] = json_share(v);
    return QUIRE_OK;
}

static void task_list_deinit(task_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        json_drop(l->items[i]);
    }
    mem_free(l->items);
}

static const json_value *task_item(const task_list *l, int32_t i) {
    return l->items[(size_t)i % l->n];
}

static quire_err task_take_maths(task_texts *d, json_value *line) {
    bool is_one = json_get_str(line, "question").n > 0 && json_get_str(line, "answer").n > 0;
    return is_one ? task_list_add(&d->maths, line) : QUIRE_OK;
}

static quire_err task_take_turns(task_texts *d, json_value *line) {
    const json_value *turns = json_get(line, "turns");
    str category = json_get_str(line, "category");
    if (json_str(json_at(turns, 0)).n == 0) {
        return QUIRE_OK;
    }
    if (json_str(json_at(turns, 1)).n > 0) {
        return task_list_add(&d->chats, line);
    }
    return str_is(category, "qa")    ? task_list_add(&d->questions, line)
           : str_is(category, "rag") ? task_list_add(&d->passages, line)
                                     : QUIRE_OK;
}

enum { FORM_LEAST = 4, FORM_MOST = 6 };

/* The object of a form. */
static const json_value *form_object(const json_value *form) {
    return json_get(json_at(json_get(form, "tests"), 0), "data");
}

/* Keeps a schema with a few properties if its object has all of them. */
static quire_err task_take_form(task_texts *d, json_value *line) {
    const json_value *schema = json_get(line, "schema"), *properties = json_get(schema, "properties");
    bool fits = json_length(properties) >= FORM_LEAST && json_length(properties) <= FORM_MOST &&
                json_get_str(schema, "title").n > 0;
    for (json_member m = {0}; fits && json_next(properties, &m);) {
        fits = json_has(form_object(line), m.name);
    }
    return fits ? task_list_add(&d->forms, line) : QUIRE_OK;
}

/* Calls `take` with each line of a file as JSON. */
static quire_err task_read_lines(task_texts *d, const char *directory, const char *name,
                                 quire_err (*take)(task_texts *d, json_value *line), quire_error *err) {
    strbuf path = {0}, text = {0};
    quire_err e = err_set(err, strbuf_addf(&path, "%s/%s", directory, name), -1, "out of memory for texts");
    TRY_DONE(e, files_read_text(path.p, &text, err));
    for (str rest = {text.p, text.n}; rest.n > 0 && e == QUIRE_OK;) {
        json_value *line = json_document(figures_next_line(&rest));
        e = err_set(err, take(d, line), -1, "out of memory for texts");
        json_drop(line);
    }
done:
    strbuf_deinit(&path);
    strbuf_deinit(&text);
    return e;
}

quire_err task_texts_open(const char *directory, task_texts **out, quire_error *err) {
    task_texts *d = mem_new(1, sizeof *d);
    TRY(mem_check_for(d, "texts", err));
    quire_err e = task_read_lines(d, directory, "evals/gsm8k_test_first200.jsonl", task_take_maths, err);
    TRY_DONE(e, task_read_lines(d, directory, "evals/spec_bench/question.jsonl", task_take_turns, err));
    TRY_DONE(e, task_read_lines(d, directory, "json/maskbench/JME.jsonl", task_take_form, err));
done:
    if (e == QUIRE_OK && (d->maths.n == 0 || d->chats.n == 0 || d->questions.n == 0 || d->passages.n == 0 ||
                          d->forms.n == 0)) {
        e = err_set(err, QUIRE_BAD_FILE, -1,
                    "%s: it has no questions with answers, or no turns, or no schemas with objects",
                    directory);
    }
    if (e != QUIRE_OK) {
        task_texts_close(d);
        return e;
    }
    *out = d;
    return QUIRE_OK;
}

void task_texts_close(task_texts *d) {
    if (d != NULL) {
        task_list_deinit(&d->maths);
        task_list_deinit(&d->chats);
        task_list_deinit(&d->questions);
        task_list_deinit(&d->passages);
        task_list_deinit(&d->forms);
        mem_free(d);
    }
}

/* ---- texts ---- */

enum { N_SHOTS = 5 };

static str task_turn(const task_list *l, int32_t i, size_t turn) {
    return json_str(json_at(json_get(task_item(l, i), "turns"), turn));
}

/* The text after the last "#### ". */
static str task_result(const task_texts *d, int32_t i) {
    str answer = json_get_str(task_item(&d->maths, i), "answer");
    size_t at = answer.n;
    while (at > 0 && answer.p[at - 1] != ' ') {
        at--;
    }
    return (str){answer.p + at, answer.n - at};
}

/* Writes a question in MMLU's format, with its result among those of the next
 * questions. */
static quire_err text_add_choices(const task_texts *d, int32_t i, strbuf *out) {
    str question = json_get_str(task_item(&d->maths, i), "question");
    TRY(strbuf_addf(out, "%.*s", TEXT_OF(question)));
    for (int32_t k = 0; k < 4; k++) {
        str result = task_result(d, i + (k - i % 4 + 4) % 4);
        TRY(strbuf_addf(out, "\n%c. %.*s", "ABCD"[k], TEXT_OF(result)));
    }
    return strbuf_add_str(out, "\nAnswer:");
}

static quire_err text_of_mmlu(const task_texts *d, const task_place *at, strbuf *out) {
    if (at->branch >= 0) {
        return text_add_choices(d, N_SHOTS + at->item, out);
    }
    TRY(strbuf_add_str(out, "The following are multiple choice questions (with answers) about "
                            "arithmetic.\n\n"));
    for (int32_t i = 0; i < N_SHOTS; i++) {
        TRY(text_add_choices(d, i, out));
        TRY(strbuf_addf(out, " %c\n\n", "ABCD"[i % 4]));
    }
    return QUIRE_OK;
}

static quire_err text_add_shots(const task_texts *d, strbuf *out) {
    for (int32_t i = 0; i < N_SHOTS; i++) {
        str question = json_get_str(task_item(&d->maths, i), "question"),
            answer = json_get_str(task_item(&d->maths, i), "answer");
        TRY(strbuf_addf(out, "Question: %.*s\nAnswer: %.*s\n\n", TEXT_OF(question), TEXT_OF(answer)));
    }
    return strbuf_add_str(out, "Question: ");
}

static quire_err text_add_maths(const task_texts *d, int32_t item, strbuf *out) {
    str question = json_get_str(task_item(&d->maths, N_SHOTS + item), "question");
    return strbuf_addf(out, "%.*s\nAnswer:", TEXT_OF(question));
}

static quire_err text_of_gsm8k(const task_texts *d, const task_place *at, strbuf *out) {
    return at->branch < 0 ? text_add_shots(d, out) : text_add_maths(d, at->item, out);
}

static quire_err text_of_question(const task_texts *d, const task_place *at, strbuf *out) {
    str question = task_turn(&d->questions, at->item, 0);
    return at->branch < 0 ? strbuf_add_str(out, "Answer each question in one word.\n\nQuestion: ")
                          : strbuf_addf(out, "%.*s\nAnswer:", TEXT_OF(question));
}

/* Sentence n of a passage, up to ". "; the rest if it has fewer. */
static str task_sentence(str passage, int32_t n) {
    size_t begin = 0, end = 0;
    for (int32_t i = 0; i <= n && end < passage.n; i++) {
        begin = end;
        while (end < passage.n && !(end > begin && passage.p[end] == ' ' && passage.p[end - 1] == '.')) {
            end++;
        }
    }
    return (str){passage.p + begin, end - begin};
}

static quire_err text_of_react(const task_texts *d, const task_place *at, strbuf *out) {
    bool is_prompt = at->branch < 0;
    str question = task_turn(&d->questions, at->item, 0),
        passage = task_turn(&d->passages, is_prompt ? 0 : at->item + 1, 0);
    if (!is_prompt && at->round == 0) {
        return strbuf_addf(out, "%.*s\nThought 1:", TEXT_OF(question));
    }
    if (!is_prompt) {
        str found = task_sentence(passage, at->round);
        return strbuf_addf(out, "\nObservation %d: %.*s\nThought %d:", (int)at->round, TEXT_OF(found),
                           (int)at->round + 1);
    }
    TRY(strbuf_add_str(out, "Solve a question answering task with interleaving Thought, Action and "
                            "Observation steps. Action is Search[entity], Lookup[keyword] or "
                            "Finish[answer].\n"));
    for (int32_t i = 0; i < 4; i++) {
        str found = task_sentence(passage, i);
        TRY(strbuf_addf(out, "Observation %d: %.*s\n", (int)i + 1, TEXT_OF(found)));
    }
    return strbuf_add_str(out, "\nQuestion: ");
}

static quire_err text_of_consistency(const task_texts *d, const task_place *at, strbuf *out) {
    if (at->branch >= 0) {
        return QUIRE_OK;
    }
    TRY(strbuf_add_str(out, "Question: "));
    return text_add_maths(d, 0, out);
}

static quire_err answer_of_maths(const task_texts *d, const task_place *at, strbuf *out) {
    str answer = json_get_str(task_item(&d->maths, N_SHOTS + at->item), "answer");
    return strbuf_add(out, answer.p, answer.n);
}

/* All branches answer the first question. */
static quire_err answer_of_consistency(const task_texts *d, const task_place *at, strbuf *out) {
    (void)at;
    return answer_of_maths(d, &(task_place){0}, out);
}

static quire_err text_of_tree(const task_texts *d, const task_place *at, strbuf *out) {
    static const char *const names[] = {"Ann", "Bob", "Carl", "Dora"};
    if (at->branch < 0) {
        str question = json_get_str(task_item(&d->maths, 0), "question");
        return strbuf_addf(out, "%.*s\nPropose plans, and judge their steps.\n", TEXT_OF(question));
    }
    return at->inner >= 0   ? strbuf_addf(out, "%s's judgement:", names[at->inner])
           : at->round == 0 ? strbuf_addf(out, "%s's plan:", names[at->branch])
                            : strbuf_add_str(out, "Next step:");
}

/* The name of property n of a form; NULL: it has fewer. */
static const char *form_name(const json_value *form, int32_t n) {
    json_member m = {0};
    for (int32_t i = 0; i <= n; i++) {
        if (!json_next(json_get(json_get(form, "schema"), "properties"), &m)) {
            return NULL;
        }
    }
    return m.name;
}

/* Writes a schema; then for each subject its properties' names, each before its value. */
static quire_err text_of_form(const task_texts *d, const task_place *at, strbuf *out) {
    const json_value *form = task_item(&d->forms, 0);
    const char *name = form_name(form, at->round);
    json_out o = {.to = out};
    if (at->branch < 0) {
        TRY(strbuf_add_str(out, "Fill in an object of this schema for each subject.\n"));
        json_add(&o, json_get(form, "schema"));
        TRY(o.err);
        return strbuf_add_str(out, "\n\nSubject: ");
    }
    if (at->round == 0) {
        str title = json_get_str(json_get(task_item(&d->forms, at->item), "schema"), "title");
        return strbuf_addf(out, "%.*s\nObject: {\"%s\": ", TEXT_OF(title), name);
    }
    return name != NULL ? strbuf_addf(out, ", \"%s\": ", name) : QUIRE_OK;
}

static quire_err answer_of_form(const task_texts *d, const task_place *at, strbuf *out) {
    const json_value *form = task_item(&d->forms, 0);
    json_out o = {.to = out};
    json_add(&o, json_get(form_object(form), form_name(form, at->round)));
    return o.err;
}

/* A user's turns, from one conversation after another. */
static quire_err text_of_chat(const task_texts *d, const task_place *at, strbuf *out) {
    str turn = task_turn(&d->chats, at->item + at->round / 2, (size_t)at->round % 2);
    return at->branch < 0
               ? strbuf_add_str(out, "A chat between a user and an assistant, who gives helpful, detailed "
                                     "and polite answers to the user's questions.\nUser: ")
               : strbuf_addf(out, "%s%.*s\nAssistant:", at->round == 0 ? "" : "\nUser: ", TEXT_OF(turn));
}

const program_task program_tasks[N_PROGRAM_TASKS] = {
    /* questions after the same five shots; each answer is a letter */
    {"mmlu5", 4.4, 600, 24, 60, 1, 1, 0, 0, text_of_mmlu, NULL},
    /* the same, with reasoning */
    {"gsm8k", 4.5, 500, 16, 50, 48, 1, 0, 0, text_of_gsm8k, answer_of_maths},
    /* short questions after one instruction */
    {"questions", 0, 16, 8, 12, 4, 1, 0, 0, text_of_question, NULL},
    /* agents with the same instructions */
    {"react", 5.6, 400, 6, 40, 48, 5, 0, 0, text_of_react, NULL},
    /* several answers to one question */
    {"self-consistency", 0, 300, 8, 1, 64, 1, 0, 1, text_of_consistency, answer_of_consistency},
    /* branches of branches */
    {"tree-of-thought", 0, 160, 4, 8, 24, 2, 3, 1, text_of_tree, NULL},
    /* fields between constant text */
    {"json-form", 0, 240, 8, 8, 6, FORM_MOST, 0, 0, text_of_form, answer_of_form},
    /* users with the same system prompt */
    {"chats", 0, 120, 4, 40, 48, 6, 0, 0, text_of_chat, NULL},
    /* nothing shared, and nothing concurrent */
    {"one-chat", 0, 120, 1, 40, 48, 6, 0, 0, text_of_chat, NULL},
};

/* ---- programs ---- */

enum { MAX_OUTER = 32, MAX_ITEMS = 1000 };

typedef struct task_writer {
    const program_task *t;
    const task_texts *d;
    const quire_engine *e;
    json_out o;
    uint64_t seed;             /* generator of drawn ids */
    int32_t firsts[MAX_OUTER]; /* first tokens of the branches written so far */
    int32_t n_firsts, item;    /* item: the next item of the data */
} task_writer;

static void task_write_ids(task_writer *w, const int32_t *ids, size_t n) {
    json_begin(json_item(&w->o), '{');
    json_ints(json_name(&w->o, "tokens"), ids, n);
    json_end(&w->o, '}');
}

static quire_err task_draw(task_writer *w, int32_t n, quire_error *err) {
    const int32_t n_vocab = quire_engine_info(w->e)->n_vocab;
    int32_t *ids = mem_new((size_t)n, sizeof *ids);
    TRY(mem_check_for(ids, "a program", err));
    for (int32_t i = 0; i < n; i++) {
        /* the first ids of a vocabulary are its special tokens and bytes */
        ids[i] = 300 + (int32_t)(rng_next(&w->seed) % (uint64_t)(n_vocab - 300));
    }
    task_write_ids(w, ids, (size_t)n);
    mem_free(ids);
    return QUIRE_OK;
}

/* Tokenises the text at a place into [*n] ids; NULL: no text. Free with quire_free. */
static quire_err task_tokenize(const task_writer *w, task_text make, const task_place *at, int32_t **ids,
                               size_t *n, quire_error *err) {
    strbuf text = {0};
    quire_err e = err_set(err, make(w->d, at, &text), -1, "out of memory for a program");
    *ids = NULL;
    *n = 0;
    if (e == QUIRE_OK && text.n > 0) {
        e = quire_tokenize(w->e, text.p, text.n, at->branch < 0, ids, n, err);
    }
    strbuf_deinit(&text);
    return e;
}

/* Whether a branch begins like an earlier one. Concurrent branches would compute such a
 * beginning more than once. */
static bool task_is_alike(const task_writer *w, int32_t first) {
    for (int32_t i = 0; i < w->n_firsts; i++) {
        if (w->firsts[i] == first) {
            return true;
        }
    }
    return false;
}

/* Adds the text at a place. *is_there: whether there is one. Sets w->item to the item
 * that it is about. */
static quire_err task_add_text(task_writer *w, task_place at, bool *is_there, quire_error *err) {
    bool is_first = at.branch >= 0 && at.round == 0 && at.inner < 0;
    int32_t *ids;
    size_t n;
    *is_there = true;
    if (w->d == NULL) {
        return task_draw(w, at.branch < 0 ? w->t->n_prompt : w->t->n_added, err);
    }
    at.item = w->item;
    TRY(task_tokenize(w, w->t->text, &at, &ids, &n, err));
    while (is_first && n > 0 && task_is_alike(w, ids[0])) {
        quire_free(ids);
        if (++at.item == MAX_ITEMS) {
            return err_set(err, QUIRE_INVALID, -1, "%s: fewer than %d items begin with different tokens",
                           w->t->name, (int)w->t->outer);
        }
        TRY(task_tokenize(w, w->t->text, &at, &ids, &n, err));
    }
    w->item = at.item;
    *is_there = n > 0;
    if (n > 0) {
        task_write_ids(w, ids, n);
    }
    if (n > 0 && is_first) {
        w->firsts[w->n_firsts++] = ids[0];
    }
    quire_free(ids);
    return QUIRE_OK;
}

/* Adds a gen of as many tokens as the data's own answer has, if there is one. */
static quire_err task_add_gen(task_writer *w, task_place at, quire_error *err) {
    char name[16];
    size_t n = (size_t)w->t->n_generated;
    if (w->d != NULL && w->t->answer != NULL) {
        int32_t *ids;
        at.item = w->item;
        TRY(task_tokenize(w, w->t->answer, &at, &ids, &n, err));
        quire_free(ids);
    }
    (void)snprintf(name, sizeof name, "x%d", (int)at.round);
    json_begin(json_item(&w->o), '{');
    json_cstr(json_name(&w->o, "gen"), name);
    json_int(json_name(&w->o, "max_tokens"), (int64_t)n);
    json_end(&w->o, '}');
    return QUIRE_OK;
}

/* Begins a fork, whose branches follow; ends it. */
static void task_begin_fork(task_writer *w) {
    json_begin(json_item(&w->o), '{');
    json_begin(json_name(&w->o, "fork"), '[');
}

static void task_end_fork(task_writer *w) {
    json_end(&w->o, ']');
    json_end(&w->o, '}');
}

/* Adds a round. *goes_on false: the branch has no text for this round, and nothing is
 * added. */
static quire_err task_add_round(task_writer *w, task_place at, bool *goes_on, quire_error *err) {
    TRY(task_add_text(w, at, goes_on, err));
    *goes_on = *goes_on || at.round == 0;
    if (!*goes_on) {
        return QUIRE_OK;
    }
    TRY(task_add_gen(w, at, err));
    if (w->t->inner > 0) {
        task_begin_fork(w);
        for (at.inner = 0; at.inner < w->t->inner; at.inner++) {
            bool is_there;
            json_begin(json_item(&w->o), '[');
            TRY(task_add_text(w, at, &is_there, err));
            TRY(task_add_gen(w, at, err));
            json_end(&w->o, ']');
        }
        task_end_fork(w);
    }
    return QUIRE_OK;
}

static quire_err task_add_branches(task_writer *w, quire_error *err) {
    for (int32_t i = 0; i < w->t->outer; i++) {
        bool goes_on = true;
        json_begin(json_item(&w->o), '[');
        for (int32_t round = 0; round < w->t->rounds && goes_on; round++) {
            TRY(task_add_round(w, (task_place){i, 0, round, -1}, &goes_on, err));
        }
        json_end(&w->o, ']');
        w->item += (w->t->rounds + 1) / 2; /* skips the items that this chat used */
    }
    return QUIRE_OK;
}

quire_err program_task_write(const program_task *t, const task_texts *d, const quire_engine *e, strbuf *to,
                             quire_error *err) {
    task_writer w = {.t = t, .d = d, .e = e, .o = {.to = to}, .seed = 17};
    json_out *o = &w.o;
    json_begin(o, '{');
    json_int(json_name(o, "seed"), 7);
    json_begin(json_name(o, "fields"), '{');
    json_number(json_name(o, "temperature"), t->temperature);
    json_bool(json_name(o, "ignore_eos"), true);
    json_end(o, '}');
    json_begin(json_name(o, "steps"), '[');
    bool is_there;
    TRY(task_add_text(&w, (task_place){-1, 0, 0, -1}, &is_there, err));
    task_begin_fork(&w);
    TRY(task_add_branches(&w, err));
    task_end_fork(&w);
    json_end(o, ']');
    json_end(o, '}');
    return err_set(err, o->err, -1, "out of memory for a program");
}
