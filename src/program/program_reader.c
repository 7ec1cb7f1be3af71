#include "program/program_reader.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "json/json_out.h"

/* The names of methods, by quire_select_method. */
static const char *const methods[] = {"token_length_normalized", "greedy_token_selection",
                                      "unconditional_likelihood_normalized"};

/* Fields of requests that a gen may not have: the program makes the prompt, and says how
 * the answer comes. */
static const char *const not_fields[] = {"prompt",  "messages",         "stream",   "stream_options",
                                         "echo",    "suffix",           "logprobs", "prompt_logprobs",
                                         "model",   "return_token_ids", "tools",    "logprob_start_len",
                                         "best_of", "return_progress",  "explain"};

static quire_err step_read_list(const json_value *v, step_list *to, size_t *n_steps, quire_error *err);

static quire_err step_reader_refuse(quire_error *err, const char *what) {
    return err_set(err, QUIRE_BAD_REQUEST, -1, "%s", what);
}

static quire_err step_reader_no_memory(quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a program");
}

/* Puts where an error is before its message. */
static quire_err step_reader_at(quire_err e, quire_error *err, const char *what, size_t i) {
    char where[64];
    if (e != QUIRE_OK) {
        snprintf(where, sizeof where, "%s %zu", what, i);
        err_prefix(err, e, where);
    }
    return e;
}

/* Refuses members that are none of names, which NULL ends. */
static quire_err step_reader_check_members(const json_value *v, const char *const *names, quire_error *err) {
    json_member m = {0};
    while (json_next(v, &m)) {
        size_t i = 0;
        while (names[i] != NULL && strcmp(m.name, names[i]) != 0) {
            i++;
        }
        if (names[i] == NULL) {
            return err_set(err, QUIRE_BAD_REQUEST, -1, "\"%.60s\" is not a member of this; it has \"%s\"%s",
                           m.name, names[0], names[1] != NULL ? " and others (docs/programs.md)" : "");
        }
    }
    return QUIRE_OK;
}

/* ---- texts ---- */

static quire_err step_read_text(const json_value *v, step_text *out, const char *what, quire_error *err) {
    if (!json_is(v, JSON_KIND_TEXT)) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "%s must be a text", what);
    }
    return step_text_read(json_str(v), out, err);
}

/* Reads a text, or an array of 1 or more. *n counts those that are there, after a failure
 * too. */
static quire_err step_read_texts(const json_value *v, step_text **out, size_t *n, const char *what,
                                 quire_error *err) {
    bool is_array = json_is(v, JSON_KIND_ARRAY);
    size_t count = is_array ? json_length(v) : 1;
    if (count == 0) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "%s is an empty array", what);
    }
    *out = mem_new(count, sizeof **out);
    TRY(*out != NULL ? QUIRE_OK : step_reader_no_memory(err));
    for (size_t i = 0; i < count; i++) {
        TRY(step_read_text(is_array ? json_at(v, i) : v, *out + i, what, err));
        ++*n;
    }
    return QUIRE_OK;
}

static quire_err step_read_name(const json_value *v, char to[PROGRAM_NAME_BYTES], quire_error *err) {
    return json_is(v, JSON_KIND_TEXT) ? step_name_set(to, json_str(v), err)
                                      : step_reader_refuse(err, "the name of a variable must be a text");
}

/* Copies the JSON of a value, but for the member `without`. */
static quire_err step_read_json(const json_value *v, const char *without, char **out, size_t *n,
                                quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    json_member m = {0};
    if (without == NULL) {
        json_add(&o, v);
    } else {
        json_begin(&o, '{');
        while (json_next(v, &m)) {
            if (strcmp(m.name, without) != 0) {
                json_add(json_name(&o, m.name), m.value);
            }
        }
        json_end(&o, '}');
    }
    if (o.err != QUIRE_OK) {
        strbuf_deinit(&text);
        return step_reader_no_memory(err);
    }
    *out = mem_dup(text.p, text.n);
    *n = text.n;
    strbuf_deinit(&text);
    return *out != NULL ? QUIRE_OK : step_reader_no_memory(err);
}

/* ---- steps ---- */

static quire_err step_read_lists(const json_value *const *lists, size_t n, step *to, size_t *n_steps,
                                 const char *what, quire_error *err) {
    to->lists = mem_new(n, sizeof *to->lists);
    TRY(to->lists != NULL ? QUIRE_OK : step_reader_no_memory(err));
    for (to->n_lists = 0; to->n_lists < n;) {
        size_t i = to->n_lists++;
        TRY(step_reader_at(step_read_list(lists[i], &to->lists[i], n_steps, err), err, what, i));
    }
    return QUIRE_OK;
}

static quire_err step_read_role(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"role", "text", "steps", NULL};
    str role = json_get_str(v, "role");
    TRY(step_reader_check_members(v, names, err));
    if (step_name_set(to->role, role, NULL) != QUIRE_OK) {
        return step_reader_refuse(err, "role must be a name as \"user\"");
    }
    const json_value *text = json_get(v, "text"), *steps = json_get(v, "steps");
    if ((text == NULL) == (steps == NULL)) {
        return step_reader_refuse(err, "role needs \"text\" or \"steps\", and one of them");
    }
    if (steps != NULL) {
        return step_read_lists(&steps, 1, to, n_steps, "role", err);
    }
    to->lists = mem_new(1, sizeof *to->lists);
    to->n_lists = to->lists != NULL ? 1 : 0;
    step *inner = to->lists != NULL ? step_list_add(&to->lists[0], STEP_TEXT) : NULL;
    return inner != NULL ? step_read_text(text, &inner->text, "text", err) : step_reader_no_memory(err);
}

static quire_err step_read_tokens(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"tokens", NULL};
    const json_value *ids = json_get(v, "tokens");
    int64_t id;
    (void)n_steps;
    TRY(step_reader_check_members(v, names, err));
    to->n_ids = json_length(ids);
    to->ids = mem_new(to->n_ids, sizeof *to->ids);
    TRY(to->ids != NULL ? QUIRE_OK : step_reader_no_memory(err));
    for (size_t i = 0; i < to->n_ids; i++) {
        if (!json_whole(json_at(ids, i), &id) || id < 0 || id > INT32_MAX) {
            return step_reader_refuse(err, "tokens must be an array of token ids");
        }
        to->ids[i] = (int32_t)id;
    }
    return to->n_ids > 0 ? QUIRE_OK
                         : step_reader_refuse(err, "tokens must be an array of one token id or more");
}

static quire_err step_check_fields(const json_value *v, quire_error *err) {
    for (size_t i = 0; i < sizeof not_fields / sizeof *not_fields; i++) {
        if (json_has(v, not_fields[i])) {
            return err_set(err, QUIRE_BAD_REQUEST, -1, "a gen has no field %s", not_fields[i]);
        }
    }
    return QUIRE_OK;
}

static quire_err step_read_gen(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    (void)n_steps;
    TRY(step_check_fields(v, err));
    TRY(step_read_name(json_get(v, "gen"), to->name, err));
    return step_read_json(v, "gen", &to->fields, &to->n_fields, err);
}

static quire_err step_read_select(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"select", "choices", "method", NULL};
    const json_value *method = json_get(v, "method");
    (void)n_steps;
    TRY(step_reader_check_members(v, names, err));
    TRY(step_read_name(json_get(v, "select"), to->name, err));
    for (size_t i = 0; method != NULL && i <= sizeof methods / sizeof *methods; i++) {
        if (i == sizeof methods / sizeof *methods) {
            return err_set(err, QUIRE_BAD_REQUEST, -1, "method must be %s, %s or %s", methods[0], methods[1],
                           methods[2]);
        }
        if (str_is(json_str(method), methods[i])) {
            to->method = (quire_select_method)i;
            break;
        }
    }
    return json_is(json_get(v, "choices"), JSON_KIND_ARRAY)
               ? step_read_texts(json_get(v, "choices"), &to->choices, &to->n_choices, "choices", err)
               : step_reader_refuse(err, "choices must be an array of texts");
}

/* {"fork": [steps, ..]}; {"fork": 3, "steps": ..}; {"fork": "item", "over": .., "steps":
 * ..} */
static quire_err step_read_fork(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"fork", "over", "steps", NULL};
    const json_value *fork = json_get(v, "fork"), *over = json_get(v, "over"), *steps = json_get(v, "steps");
    int64_t n;
    TRY(step_reader_check_members(v, names, err));
    if (json_is(fork, JSON_KIND_ARRAY)) {
        size_t n_lists = json_length(fork);
        if (n_lists == 0 || n_lists > PROGRAM_MAX_TIMES || over != NULL || steps != NULL) {
            return step_reader_refuse(
                err, "fork must have one branch or more, or a name or number with \"steps\"");
        }
        const json_value **lists = mem_new(n_lists, sizeof(json_value *));
        TRY(lists != NULL ? QUIRE_OK : step_reader_no_memory(err));
        for (size_t i = 0; i < n_lists; i++) {
            lists[i] = json_at(fork, i);
        }
        quire_err e = step_read_lists(lists, n_lists, to, n_steps, "branch", err);
        mem_free(lists);
        return e;
    }
    if (json_whole(fork, &n)) {
        if (n < 1 || n > PROGRAM_MAX_TIMES || over != NULL) {
            return step_reader_refuse(err, "fork must be a number of branches from 1 to 65536");
        }
        to->times = (int32_t)n;
    } else {
        TRY(step_read_name(fork, to->name, err));
        TRY(json_is(over, JSON_KIND_ARRAY) ? step_read_texts(over, &to->choices, &to->n_choices, "over", err)
                                           : step_read_name(over, to->over, err));
    }
    return step_read_lists(&steps, 1, to, n_steps, "branch", err);
}

static quire_err step_read_join(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"join", NULL};
    (void)to, (void)n_steps;
    TRY(step_reader_check_members(v, names, err));
    return json_truth(json_get(v, "join")) ? QUIRE_OK : step_reader_refuse(err, "join must be true");
}

/* Reads a test: a value, and one of "is", "contains" and "like". */
static quire_err step_read_test(const json_value *value, const json_value *v, step_test *to,
                                quire_error *err) {
    static const char *const kinds[] = {"is", "contains", "like"};
    for (size_t i = 0; i < 3; i++) {
        if (json_has(v, kinds[i])) {
            if (to->kind != TEST_NONE) {
                return step_reader_refuse(err, "a test must have one of \"is\", \"contains\" and \"like\"");
            }
            to->kind = (step_test_kind)(i + 1);
            TRY(step_read_texts(json_get(v, kinds[i]), &to->texts, &to->n, kinds[i], err));
        }
    }
    return to->kind != TEST_NONE
               ? step_read_text(value, &to->value, "the value that is tested", err)
               : step_reader_refuse(err, "a test must have \"is\", \"contains\" or \"like\"");
}

static quire_err step_read_if(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"if", "is", "contains", "like", "then", "else", NULL};
    const json_value *lists[] = {json_get(v, "then"), json_get(v, "else")};
    TRY(step_reader_check_members(v, names, err));
    TRY(step_read_test(json_get(v, "if"), v, &to->test, err));
    return step_read_lists(lists, 2, to, n_steps, "if", err);
}

static quire_err step_read_repeat(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"repeat", "until", "is", "contains", "like", "steps", NULL};
    const json_value *steps = json_get(v, "steps"), *until = json_get(v, "until");
    int64_t n;
    TRY(step_reader_check_members(v, names, err));
    if (!json_whole(json_get(v, "repeat"), &n) || n < 1 || n > PROGRAM_MAX_TIMES) {
        return step_reader_refuse(err, "repeat must be how often at most, from 1 to 65536");
    }
    to->times = (int32_t)n;
    TRY(until != NULL ? step_read_test(until, v, &to->test, err) : QUIRE_OK);
    return step_read_lists(&steps, 1, to, n_steps, "repeat", err);
}

static quire_err step_read_set(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"set", "to", "split", NULL};
    const json_value *split = json_get(v, "split");
    (void)n_steps;
    TRY(step_reader_check_members(v, names, err));
    TRY(step_read_name(json_get(v, "set"), to->name, err));
    if (split != NULL) {
        str by = json_str(split);
        if (by.n == 0 || memchr(by.p, 0, by.n) != NULL) {
            return step_reader_refuse(err, "split must be a text that separates parts");
        }
        to->split = mem_dup(by.p, by.n);
        TRY(to->split != NULL ? QUIRE_OK : step_reader_no_memory(err));
    }
    to->is_list = json_is(json_get(v, "to"), JSON_KIND_ARRAY) && split == NULL;
    return to->is_list ? step_read_texts(json_get(v, "to"), &to->choices, &to->n_choices, "to", err)
                       : step_read_text(json_get(v, "to"), &to->text, "to", err);
}

static quire_err step_read_text_step(const json_value *v, step *to, size_t *n_steps, quire_error *err) {
    static const char *const names[] = {"text", NULL};
    (void)n_steps;
    TRY(step_reader_check_members(v, names, err));
    return step_read_text(json_get(v, "text"), &to->text, "text", err);
}

/* The member that names a step, in the order in which they are looked for. */
static const struct step_row {
    const char *name;
    step_kind kind;
    quire_err (*read)(const json_value *v, step *to, size_t *n_steps, quire_error *err);
} step_rows[] = {{"gen", STEP_GEN, step_read_gen},          {"select", STEP_SELECT, step_read_select},
                 {"role", STEP_ROLE, step_read_role},       {"fork", STEP_FORK, step_read_fork},
                 {"join", STEP_JOIN, step_read_join},       {"if", STEP_IF, step_read_if},
                 {"repeat", STEP_REPEAT, step_read_repeat}, {"set", STEP_SET, step_read_set},
                 {"tokens", STEP_TOKENS, step_read_tokens}, {"text", STEP_TEXT, step_read_text_step}};

static quire_err step_read_one(const json_value *v, step_list *to, size_t *n_steps, quire_error *err) {
    if (++*n_steps > PROGRAM_MAX_STEPS) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "a program has more than %zu steps", PROGRAM_MAX_STEPS);
    }
    if (json_is(v, JSON_KIND_TEXT)) {
        step *s = step_list_add(to, STEP_TEXT);
        return s != NULL ? step_text_read(json_str(v), &s->text, err) : step_reader_no_memory(err);
    }
    for (size_t i = 0; i < sizeof step_rows / sizeof *step_rows; i++) {
        if (json_has(v, step_rows[i].name)) {
            step *s = step_list_add(to, step_rows[i].kind);
            quire_err e = s != NULL ? step_rows[i].read(v, s, n_steps, err) : step_reader_no_memory(err);
            return e == QUIRE_OK ? e : err_prefix(err, e, step_rows[i].name);
        }
    }
    return step_reader_refuse(
        err, "a step must be a text, or an object with one of gen, select, role, fork, join, if, "
             "repeat, set, tokens and text");
}

static int step_names_compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two gens, selects or sets of one list may not have one name. */
static quire_err step_check_names(const step_list *l, quire_error *err) {
    const char **names = mem_new(l->n, sizeof(char *));
    size_t n = 0;
    quire_err e = QUIRE_OK;
    TRY(names != NULL ? QUIRE_OK : step_reader_no_memory(err));
    for (size_t i = 0; i < l->n; i++) {
        bool has = l->items[i]->kind == STEP_GEN || l->items[i]->kind == STEP_SELECT;
        names[n] = l->items[i]->name;
        n += has ? 1 : 0;
    }
    qsort(names, n, sizeof *names, step_names_compare);
    for (size_t i = 1; e == QUIRE_OK && i < n; i++) {
        e = strcmp(names[i - 1], names[i]) != 0
                ? QUIRE_OK
                : err_set(err, QUIRE_BAD_REQUEST, -1, "two steps of one list have the name %s", names[i]);
    }
    mem_free(names);
    return e;
}

/* NULL is an empty list. */
static quire_err step_read_list(const json_value *v, step_list *to, size_t *n_steps, quire_error *err) {
    if (v != NULL && !json_is(v, JSON_KIND_ARRAY)) {
        return step_reader_refuse(err, "steps must be an array");
    }
    for (size_t i = 0; i < json_length(v); i++) {
        TRY(step_reader_at(step_read_one(json_at(v, i), to, n_steps, err), err, "step", i));
    }
    return step_check_names(to, err);
}

/* ---- whole programs ---- */

/* Reads an input: a text or an array of texts, taken as they are. */
static quire_err step_read_input(const json_member *m, step *to, quire_error *err) {
    to->is_input = true;
    to->is_list = json_is(m->value, JSON_KIND_ARRAY);
    size_t n = to->is_list ? json_length(m->value) : 1;
    TRY(step_name_set(to->name, str_of(m->name), err));
    to->choices = mem_new(n, sizeof *to->choices);
    TRY(to->choices != NULL ? QUIRE_OK : step_reader_no_memory(err));
    for (; to->n_choices < n; to->n_choices++) {
        const json_value *v = to->is_list ? json_at(m->value, to->n_choices) : m->value;
        if (!json_is(v, JSON_KIND_TEXT)) {
            return err_set(err, QUIRE_BAD_REQUEST, -1, "input %s must be a text or an array of texts",
                           to->name);
        }
        step_text *text = to->is_list ? &to->choices[to->n_choices] : &to->text;
        TRY(step_text_plain(json_str(v), text) == QUIRE_OK ? QUIRE_OK : step_reader_no_memory(err));
    }
    return QUIRE_OK;
}

static quire_err step_read_inputs(const json_value *v, program_steps *to, quire_error *err) {
    json_member m = {0};
    if (v != NULL && !json_is(v, JSON_KIND_OBJECT)) {
        return step_reader_refuse(err, "inputs must be an object");
    }
    while (json_next(v, &m)) {
        step *s = step_list_add(&to->inputs, STEP_SET);
        TRY(s != NULL ? step_read_input(&m, s, err) : step_reader_no_memory(err));
    }
    return QUIRE_OK;
}

static quire_err step_read_object(const json_value *v, const char *name, char **out, size_t *n,
                                  quire_error *err) {
    const json_value *o = json_get(v, name);
    if (o == NULL) {
        return QUIRE_OK;
    }
    return json_is(o, JSON_KIND_OBJECT) ? step_read_json(o, NULL, out, n, err)
                                        : err_set(err, QUIRE_BAD_REQUEST, -1, "%s must be an object", name);
}

static quire_err step_read_program(const json_value *v, program_steps *to, quire_error *err) {
    static const char *const names[] = {"steps", "inputs", "fields",  "chat", "model",
                                        "seed",  "stream", "explain", "id",   NULL};
    size_t n_steps = 0;
    int64_t seed = 0;
    if (!json_is(v, JSON_KIND_OBJECT) || !json_is(json_get(v, "steps"), JSON_KIND_ARRAY)) {
        return step_reader_refuse(err, "a program must be an object with an array \"steps\"");
    }
    TRY(step_reader_check_members(v, names, err));
    to->stream = json_get_bool(v, "stream", false);
    to->explain = json_get_bool(v, "explain", false);
    to->has_seed = json_get(v, "seed") != NULL;
    if (to->has_seed && (!json_whole(json_get(v, "seed"), &seed) || seed < 0)) {
        return step_reader_refuse(err, "seed must be an integer from 0 on");
    }
    to->seed = (uint64_t)seed;
    str model = json_get_str(v, "model");
    if (model.n > 0 && (to->model = mem_dup(model.p, model.n)) == NULL) {
        return step_reader_no_memory(err);
    }
    TRY(step_read_object(v, "fields", &to->fields, &to->n_fields, err));
    TRY(step_check_fields(json_get(v, "fields"), err));
    TRY(step_read_object(v, "chat", &to->chat, &to->n_chat, err));
    TRY(step_read_inputs(json_get(v, "inputs"), to, err));
    return step_read_list(json_get(v, "steps"), &to->steps, &n_steps, err);
}

/* Parses the JSON of a program or its steps. */
static quire_err step_parse_json(str json, json_value **out, quire_error *err) {
    static const json_limits limits = {.max_depth = 64,
                                       .max_values = (size_t)1 << 18,
                                       .max_containers = (size_t)1 << 17,
                                       .max_names = (size_t)1 << 18};
    json_fault fault;
    if (json.n > PROGRAM_MAX_BYTES) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "a program has %zu bytes; it may have %zu", json.n,
                       PROGRAM_MAX_BYTES);
    }
    quire_err e = json_read(json, &limits, JSON_WIDE_REFUSED, out, &fault);
    return e == QUIRE_OK ? e
                         : err_set(err, e == QUIRE_BAD_FILE ? QUIRE_BAD_REQUEST : e, (int64_t)fault.at,
                                   "the program is no valid JSON: at byte %zu: %s", fault.at, fault.what);
}

quire_err program_read(str json, program_steps *out, quire_error *err) {
    json_value *v = NULL;
    *out = (program_steps){0};
    TRY(step_parse_json(json, &v, err));
    quire_err e = step_read_program(v, out, err);
    json_drop(v);
    if (e != QUIRE_OK) {
        program_steps_deinit(out);
    }
    return e;
}

quire_err program_read_steps(str json, step_list *to, quire_error *err) {
    json_value *v = NULL;
    step_list read = {0};
    size_t n_steps = 0;
    TRY(step_parse_json(json, &v, err));
    quire_err e = step_read_list(v, &read, &n_steps, err);
    json_drop(v);
    e = e == QUIRE_OK ? step_list_move(&read, to) : e;
    step_list_deinit(&read);
    return e;
}

quire_err program_check_fields(str json, quire_error *err) {
    json_value *v = NULL;
    TRY(step_parse_json(json, &v, err));
    quire_err e = json_is(v, JSON_KIND_OBJECT) ? step_check_fields(v, err)
                                               : step_reader_refuse(err, "fields must be an object");
    json_drop(v);
    return e;
}
