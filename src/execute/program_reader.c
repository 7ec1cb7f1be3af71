/* Reads the steps of programs in JSON: a row for each kind of step. */
#include "execute/program_json.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "json/json_out.h"

/* The reading of a program or a list of steps. */
typedef struct step_reader {
    size_t n_steps; /* number of steps read so far */
    quire_error *err;
} step_reader;

/* Names: methods by quire_select_method, tests by step_test_kind. */
static const char *const methods[] = {"token_length_normalized", "greedy_token_selection",
                                      "unconditional_likelihood_normalized", NULL};
static const char *const tests[] = {"", "is", "contains", "like", "matches", NULL};

/* Request fields that a gen may not have, since the program sets prompts and outputs. */
static const char *const not_fields[] = {"prompt",  "messages",         "stream",   "stream_options",
                                         "echo",    "suffix",           "logprobs", "prompt_logprobs",
                                         "model",   "return_token_ids", "tools",    "prompt_logprobs_start",
                                         "best_of", "return_progress",  "explain",  NULL};

static quire_err step_read_list(step_reader *r, const json_value *v, step_list *to);

static quire_err step_reader_refuse(step_reader *r, const char *what) {
    return err_set(r->err, QUIRE_BAD_REQUEST, -1, "%s", what);
}

/* QUIRE_NO_MEMORY if p is NULL. */
static quire_err step_reader_has(step_reader *r, const void *p) {
    return mem_check_for(p, "a program", r->err);
}

/* Prefixes an error's message with its place in the program. */
static quire_err step_reader_at(step_reader *r, quire_err e, const char *what, size_t i) {
    char where[64];
    if (e != QUIRE_OK) {
        snprintf(where, sizeof where, "%s %zu", what, i);
        err_prefix(r->err, e, where);
    }
    return e;
}

/* Returns the index of a text in a NULL-terminated list, or the list's length. */
static size_t step_reader_find(const char *const *list, str text) {
    size_t i = 0;
    while (list[i] != NULL && !str_is(text, list[i])) {
        i++;
    }
    return i;
}

static quire_err step_check_members(step_reader *r, const json_value *v, const char *const *names) {
    for (json_member m = {0}; json_next(v, &m);) {
        if (names[step_reader_find(names, str_of(m.name))] == NULL) {
            return err_set(r->err, QUIRE_BAD_REQUEST, -1, "\"%.60s\" is not a member here (docs/programs.md)",
                           m.name);
        }
    }
    return QUIRE_OK;
}

/* ---- values ---- */

static quire_err step_read_text(step_reader *r, const json_value *v, step_text *to, const char *what) {
    return json_is(v, JSON_KIND_TEXT) ? step_text_read(json_str(v), to, r->err)
                                      : err_set(r->err, QUIRE_BAD_REQUEST, -1, "%s must be a string", what);
}

/* Reads a text, or an array of one or more. *n: texts in *to, even on failure. */
static quire_err step_read_texts(step_reader *r, const json_value *v, step_text **to, size_t *n,
                                 const char *what) {
    bool is_array = json_is(v, JSON_KIND_ARRAY);
    size_t count = is_array ? json_length(v) : 1;
    if (count == 0) {
        return err_set(r->err, QUIRE_BAD_REQUEST, -1, "%s is an empty array", what);
    }
    *to = mem_new(count, sizeof **to);
    TRY(step_reader_has(r, *to));
    for (; *n < count; ++*n) {
        TRY(step_read_text(r, is_array ? json_at(v, *n) : v, *to + *n, what));
    }
    return QUIRE_OK;
}

static quire_err step_read_name(step_reader *r, const json_value *v, char to[PROGRAM_NAME_BYTES]) {
    return json_is(v, JSON_KIND_TEXT) ? step_name_set(to, json_str(v), r->err)
                                      : step_reader_refuse(r, "the name of a variable must be a string");
}

static quire_err step_read_count(step_reader *r, const json_value *v, int32_t *to) {
    int64_t n;
    if (!json_whole(v, &n) || n < 1 || n > PROGRAM_MAX_TIMES) {
        return err_set(r->err, QUIRE_BAD_REQUEST, -1, "it must be a number from 1 to %d", PROGRAM_MAX_TIMES);
    }
    *to = (int32_t)n;
    return QUIRE_OK;
}

/* Fields that prefixes and choices get too: they affect rows, caching and admission. */
static const char *const common_fields[] = {"cache_salt",     "attention", "priority",
                                            "cache_priority", "cache_ttl", NULL};

/* Copies the JSON of an object: only the members in `only` unless that is NULL, and
 * without the member `without`; v NULL: copies nothing. */
static quire_err step_read_object(step_reader *r, const json_value *v, const char *const *only,
                                  const char *without, char **to, size_t *n) {
    strbuf text = {0};
    json_out o = {.to = &text};
    if (v == NULL) {
        return QUIRE_OK;
    }
    json_begin(&o, '{');
    for (json_member m = {0}; json_next(v, &m);) {
        if (strcmp(m.name, without) != 0 &&
            (only == NULL || only[step_reader_find(only, str_of(m.name))] != NULL)) {
            json_add(json_name(&o, m.name), m.value);
        }
    }
    json_end(&o, '}');
    *to = o.err == QUIRE_OK ? mem_dup(text.p, text.n) : NULL;
    *n = text.n;
    strbuf_deinit(&text);
    return json_is(v, JSON_KIND_OBJECT) ? step_reader_has(r, *to)
                                        : step_reader_refuse(r, "fields and chat must be objects");
}

static quire_err step_check_fields(step_reader *r, const json_value *v) {
    for (size_t i = 0; not_fields[i] != NULL; i++) {
        if (json_has(v, not_fields[i])) {
            return err_set(r->err, QUIRE_BAD_REQUEST, -1, "a gen has no field %s", not_fields[i]);
        }
    }
    return QUIRE_OK;
}

/* Reads the lists of steps v[0..n) into to->lists; NULL gives an empty list. */
static quire_err step_read_lists(step_reader *r, const json_value *const *v, size_t n, step *to) {
    to->lists = mem_new(n, sizeof *to->lists);
    TRY(step_reader_has(r, to->lists));
    while (to->n_lists < n) {
        size_t i = to->n_lists++;
        TRY(step_reader_at(r, step_read_list(r, v[i], &to->lists[i]), "list", i));
    }
    return QUIRE_OK;
}

/* Reads the test ("is", "contains", "like" or "matches") in v of the text `value`. */
static quire_err step_read_test(step_reader *r, const json_value *value, const json_value *v, step_test *to) {
    int n = 0;
    for (int i = TEST_IS; tests[i] != NULL; i++) {
        if (json_has(v, tests[i]) && n++ == 0) {
            to->kind = (step_test_kind)i;
            TRY(step_read_texts(r, json_get(v, tests[i]), &to->texts, &to->n, tests[i]));
        }
    }
    return n == 1 ? step_read_text(r, value, &to->value, "the value that is tested")
                  : step_reader_refuse(
                        r, "a test must have one of \"is\", \"contains\", \"like\" and \"matches\"");
}

/* ---- steps ---- */

static quire_err step_read_text_step(step_reader *r, const json_value *v, step *to) {
    return step_read_text(r, json_get(v, "text"), &to->text, "text");
}

static quire_err step_read_role(step_reader *r, const json_value *v, step *to) {
    const json_value *text = json_get(v, "text"), *steps = json_get(v, "steps");
    if (step_name_set(to->role, json_get_str(v, "role"), NULL) != QUIRE_OK ||
        (text == NULL) == (steps == NULL)) {
        return step_reader_refuse(r, "a role must be a name such as \"user\", with \"text\" or \"steps\"");
    }
    TRY(step_read_lists(r, &steps, 1, to));
    step *inner = text != NULL ? step_list_add(&to->lists[0], STEP_TEXT) : NULL;
    if (text != NULL) {
        TRY(step_reader_has(r, inner));
    }
    return text != NULL ? step_read_text(r, text, &inner->text, "text") : QUIRE_OK;
}

static quire_err step_read_tokens(step_reader *r, const json_value *v, step *to) {
    const json_value *ids = json_get(v, "tokens");
    int64_t id;
    to->n_ids = json_length(ids);
    to->ids = mem_new(to->n_ids, sizeof *to->ids);
    TRY(step_reader_has(r, to->ids));
    for (size_t i = 0; i < to->n_ids; i++) {
        if (!json_whole(json_at(ids, i), &id) || id < 0 || id > INT32_MAX) {
            return step_reader_refuse(r, "they must be an array of token ids");
        }
        to->ids[i] = (int32_t)id;
    }
    return to->n_ids > 0 ? QUIRE_OK : step_reader_refuse(r, "they must be an array of one or more token ids");
}

static quire_err step_read_gen(step_reader *r, const json_value *v, step *to) {
    TRY(step_check_fields(r, v));
    TRY(step_read_name(r, json_get(v, "gen"), to->name));
    return step_read_object(r, v, NULL, "gen", &to->fields, &to->n_fields);
}

static quire_err step_read_select(step_reader *r, const json_value *v, step *to) {
    const json_value *method = json_get(v, "method"), *choices = json_get(v, "choices");
    size_t i = method != NULL ? step_reader_find(methods, json_str(method)) : 0;
    TRY(step_read_name(r, json_get(v, "select"), to->name));
    if (methods[i] == NULL) {
        return err_set(r->err, QUIRE_BAD_REQUEST, -1, "method must be %s, %s or %s", methods[0], methods[1],
                       methods[2]);
    }
    to->method = (quire_select_method)i;
    return json_is(choices, JSON_KIND_ARRAY) && json_length(choices) <= PROGRAM_MAX_CHOICES
               ? step_read_texts(r, choices, &to->choices, &to->n_choices, "choices")
               : step_reader_refuse(r, "choices must be an array of 1 to 256 texts");
}

/* {"fork": [steps, ..]}; {"fork": 3, "steps": ..}; {"fork": "item", "over": .., "steps":
 * ..} */
static quire_err step_read_fork(step_reader *r, const json_value *v, step *to) {
    const json_value *fork = json_get(v, "fork"), *over = json_get(v, "over"), *steps = json_get(v, "steps");
    size_t n = json_length(fork);
    if (json_is(fork, JSON_KIND_ARRAY)) {
        const json_value **lists = mem_new(n, sizeof(json_value *));
        TRY(step_reader_has(r, lists));
        for (size_t i = 0; i < n; i++) {
            lists[i] = json_at(fork, i);
        }
        quire_err e = n > 0 && over == NULL && steps == NULL
                          ? step_read_lists(r, lists, n, to)
                          : step_reader_refuse(r, "it must have at least one branch, or be a name or number");
        mem_free(lists);
        return e;
    }
    if (over == NULL) {
        TRY(step_read_count(r, fork, &to->times));
    } else {
        TRY(step_read_name(r, fork, to->name));
        TRY(json_is(over, JSON_KIND_ARRAY) ? step_read_texts(r, over, &to->choices, &to->n_choices, "over")
                                           : step_read_name(r, over, to->over));
    }
    return step_read_lists(r, &steps, 1, to);
}

static quire_err step_read_join(step_reader *r, const json_value *v, step *to) {
    (void)to;
    return json_truth(json_get(v, "join")) ? QUIRE_OK : step_reader_refuse(r, "it must be true");
}

static quire_err step_read_if(step_reader *r, const json_value *v, step *to) {
    const json_value *lists[] = {json_get(v, "then"), json_get(v, "else")};
    TRY(step_read_test(r, json_get(v, "if"), v, &to->test));
    return step_read_lists(r, lists, 2, to);
}

static quire_err step_read_repeat(step_reader *r, const json_value *v, step *to) {
    const json_value *steps = json_get(v, "steps"), *until = json_get(v, "until");
    TRY(step_read_count(r, json_get(v, "repeat"), &to->times));
    if (until != NULL) {
        TRY(step_read_test(r, until, v, &to->test));
    }
    return step_read_lists(r, &steps, 1, to);
}

static quire_err step_read_set(step_reader *r, const json_value *v, step *to) {
    const json_value *split = json_get(v, "split"), *value = json_get(v, "to");
    str by = json_str(split);
    TRY(step_read_name(r, json_get(v, "set"), to->name));
    if (split != NULL) {
        if (by.n == 0 || memchr(by.p, 0, by.n) != NULL) {
            return step_reader_refuse(r, "split must be a text that separates parts");
        }
        to->split = mem_dup(by.p, by.n);
        TRY(step_reader_has(r, to->split));
    }
    to->is_list = json_is(value, JSON_KIND_ARRAY) && split == NULL;
    return to->is_list ? step_read_texts(r, value, &to->choices, &to->n_choices, "to")
                       : step_read_text(r, value, &to->text, "to");
}

/* Kinds of steps, each by the member that names it; the first row that matches counts. */
static const struct step_row {
    step_kind kind;
    quire_err (*read)(step_reader *r, const json_value *v, step *to);
    const char *members[8]; /* members that the step may have; a gen may also have request fields */
} step_rows[] = {
    {STEP_GEN, step_read_gen, {"gen"}},
    {STEP_SELECT, step_read_select, {"select", "choices", "method"}},
    {STEP_ROLE, step_read_role, {"role", "text", "steps"}},
    {STEP_FORK, step_read_fork, {"fork", "over", "steps"}},
    {STEP_JOIN, step_read_join, {"join"}},
    {STEP_IF, step_read_if, {"if", "is", "contains", "like", "matches", "then", "else"}},
    {STEP_REPEAT, step_read_repeat, {"repeat", "until", "is", "contains", "like", "matches", "steps"}},
    {STEP_SET, step_read_set, {"set", "to", "split"}},
    {STEP_TOKENS, step_read_tokens, {"tokens"}},
    {STEP_TEXT, step_read_text_step, {"text"}},
};

static quire_err step_read_row(step_reader *r, const json_value *v, const struct step_row *row,
                               step_list *to) {
    step *s = step_list_add(to, row->kind);
    TRY(step_reader_has(r, s));
    if (row->kind != STEP_GEN) {
        TRY(step_check_members(r, v, row->members));
    }
    return row->read(r, v, s);
}

static quire_err step_read_one(step_reader *r, const json_value *v, step_list *to) {
    if (++r->n_steps > PROGRAM_MAX_STEPS) {
        return err_set(r->err, QUIRE_TOO_LARGE, -1, "a program has more than %zu steps", PROGRAM_MAX_STEPS);
    }
    if (json_is(v, JSON_KIND_TEXT)) {
        step *s = step_list_add(to, STEP_TEXT);
        TRY(step_reader_has(r, s));
        return step_text_read(json_str(v), &s->text, r->err);
    }
    for (size_t i = 0; i < sizeof step_rows / sizeof *step_rows; i++) {
        const struct step_row *row = &step_rows[i];
        if (json_has(v, row->members[0])) {
            return err_prefix(r->err, step_read_row(r, v, row, to), row->members[0]);
        }
    }
    return step_reader_refuse(
        r, "a step must be a text, or an object with one of gen, select, role, fork, join, "
           "if, repeat, set, tokens and text");
}

static int step_names_compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Refuses two gens or selects of the same name in one list. */
static quire_err step_check_names(step_reader *r, const step_list *l) {
    const char **names = mem_new(l->n, sizeof(char *));
    size_t n = 0;
    quire_err e = step_reader_has(r, names);
    for (size_t i = 0; e == QUIRE_OK && i < l->n; i++) {
        names[n] = l->items[i]->name;
        n += l->items[i]->kind == STEP_GEN || l->items[i]->kind == STEP_SELECT ? 1 : 0;
    }
    if (e == QUIRE_OK) {
        qsort(names, n, sizeof *names, step_names_compare);
    }
    for (size_t i = 1; e == QUIRE_OK && i < n; i++) {
        e = strcmp(names[i - 1], names[i]) != 0
                ? QUIRE_OK
                : err_set(r->err, QUIRE_BAD_REQUEST, -1, "two steps of one list have the name %s", names[i]);
    }
    mem_free(names);
    return e;
}

static quire_err step_read_list(step_reader *r, const json_value *v, step_list *to) {
    if (v != NULL && !json_is(v, JSON_KIND_ARRAY)) {
        return step_reader_refuse(r, "steps must be an array");
    }
    for (size_t i = 0; i < json_length(v); i++) {
        TRY(step_reader_at(r, step_read_one(r, json_at(v, i), to), "step", i));
    }
    return step_check_names(r, to);
}

/* ---- whole programs ---- */

/* Reads an input: a text or an array of texts, in which braces are literal. */
static quire_err step_read_input(step_reader *r, const json_member *m, step *to) {
    to->is_input = true;
    to->is_list = json_is(m->value, JSON_KIND_ARRAY);
    size_t n = to->is_list ? json_length(m->value) : 1;
    TRY(step_name_set(to->name, str_of(m->name), r->err));
    to->choices = mem_new(n, sizeof *to->choices);
    TRY(step_reader_has(r, to->choices));
    for (; to->n_choices < n; to->n_choices++) {
        const json_value *v = to->is_list ? json_at(m->value, to->n_choices) : m->value;
        step_text *text = to->is_list ? &to->choices[to->n_choices] : &to->text;
        if (!json_is(v, JSON_KIND_TEXT)) {
            return step_reader_refuse(r, "inputs must be texts or arrays of texts");
        }
        TRY(step_reader_has(r, step_text_plain(json_str(v), text) == QUIRE_OK ? text : NULL));
    }
    return QUIRE_OK;
}

static quire_err step_read_program(step_reader *r, const json_value *v, program_steps *to) {
    static const char *const names[] = {"steps", "inputs", "fields",  "chat", "model",
                                        "seed",  "stream", "explain", NULL};
    const json_value *seed = json_get(v, "seed"), *inputs = json_get(v, "inputs"),
                     *model = json_get(v, "model");
    int64_t number = 0;
    if (!json_is(v, JSON_KIND_OBJECT) || !json_is(json_get(v, "steps"), JSON_KIND_ARRAY)) {
        return step_reader_refuse(r, "a program must be an object with an array named \"steps\"");
    }
    TRY(step_check_members(r, v, names));
    to->stream = json_get_bool(v, "stream", false);
    to->explain = json_get_bool(v, "explain", false);
    to->has_seed = seed != NULL;
    if ((seed != NULL && (!json_whole(seed, &number) || number < 0)) ||
        (inputs != NULL && !json_is(inputs, JSON_KIND_OBJECT)) ||
        (model != NULL && !json_is(model, JSON_KIND_TEXT))) {
        return step_reader_refuse(
            r, "seed must be an integer of at least 0, inputs an object, and model a string");
    }
    to->seed = (uint64_t)number;
    to->model = model != NULL ? mem_dup(json_str(model).p, json_str(model).n) : NULL;
    if (model != NULL) {
        TRY(step_reader_has(r, to->model));
    }
    TRY(step_read_object(r, json_get(v, "fields"), NULL, "", &to->fields, &to->n_fields));
    TRY(step_read_object(r, json_get(v, "fields"), common_fields, "", &to->common, &to->n_common));
    TRY(step_check_fields(r, json_get(v, "fields")));
    TRY(step_read_object(r, json_get(v, "chat"), NULL, "", &to->chat, &to->n_chat));
    for (json_member m = {0}; json_next(inputs, &m);) {
        step *s = step_list_add(&to->inputs, STEP_SET);
        TRY(step_reader_has(r, s));
        TRY(step_read_input(r, &m, s));
    }
    return step_read_list(r, json_get(v, "steps"), &to->steps);
}

/* Parses the JSON of a program or its steps. */
static quire_err step_parse_json(str json, json_value **out, quire_error *err) {
    static const json_limits limits = {.max_depth = 64,
                                       .max_values = (size_t)1 << 18,
                                       .max_containers = (size_t)1 << 17,
                                       .max_names = (size_t)1 << 18};
    json_fault fault;
    if (json.n > PROGRAM_MAX_BYTES) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the program has %zu bytes; at most %zu are allowed", json.n,
                       PROGRAM_MAX_BYTES);
    }
    quire_err e = json_read(json, &limits, JSON_WIDE_REFUSED, out, &fault);
    return e == QUIRE_OK ? e
                         : err_set(err, e == QUIRE_BAD_FILE ? QUIRE_BAD_REQUEST : e, (int64_t)fault.at,
                                   "the program is not valid JSON at byte %zu: %s", fault.at, fault.what);
}

quire_err program_read(str json, program_steps *out, quire_error *err) {
    step_reader r = {.err = err};
    json_value *v = NULL;
    *out = (program_steps){0};
    TRY(step_parse_json(json, &v, err));
    quire_err e = step_read_program(&r, v, out);
    json_drop(v);
    if (e != QUIRE_OK) {
        program_steps_deinit(out);
    }
    return e;
}

quire_err program_read_steps(str json, step_list *to, quire_error *err) {
    step_reader r = {.err = err};
    json_value *v = NULL;
    step_list read = {0};
    TRY(step_parse_json(json, &v, err));
    quire_err e = step_read_list(&r, v, &read);
    json_drop(v);
    TRY_DONE(e, step_list_move(&read, to));
done:
    step_list_deinit(&read);
    return e;
}

quire_err program_check_fields(str json, quire_error *err) {
    step_reader r = {.err = err};
    json_value *v = NULL;
    TRY(step_parse_json(json, &v, err));
    quire_err e = json_is(v, JSON_KIND_OBJECT) ? step_check_fields(&r, v)
                                               : step_reader_refuse(&r, "fields must be an object");
    json_drop(v);
    return e;
}
