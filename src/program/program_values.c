/* memmem, which always takes linear time, is outside POSIX. */
#define _GNU_SOURCE
/* Texts, values and variables of programs: references, limits, expansion of texts. */
#include "program/program_state.h"

#include <assert.h>

#include "base/mem.h"

#define WORK_PER_BYTE 4    /* units of work allowed per byte of text allowed */
#define MAX_VARIABLES 1024 /* most variables of one state */
#define LOOKUP_WORK   16   /* units of work for looking up a variable */

/* ---- texts ---- */

quire_err program_count_bytes(program_root *r, size_t n, quire_error *err) {
    assert(r != NULL);
    r->n_bytes += (int64_t)n;
    return r->n_bytes <= r->limits.max_bytes
               ? QUIRE_OK
               : err_set(err, QUIRE_TOO_LARGE, -1,
                         "the program makes more than %lld bytes of texts, tokens and lists",
                         (long long)r->limits.max_bytes);
}

quire_err program_count_items(program_root *r, size_t n, quire_error *err) {
    return program_count_bytes(r, n * (sizeof(program_value *) + sizeof(program_value)), err);
}

int64_t program_work_left(const program_root *r) {
    const int64_t most = INT64_MAX / (2 * WORK_PER_BYTE);
    return WORK_PER_BYTE * (r->limits.max_bytes < most ? r->limits.max_bytes : most) - r->n_work;
}

quire_err program_count_work(program_root *r, size_t n, quire_error *err) {
    assert(r != NULL);
    r->n_work += (int64_t)n;
    return program_work_left(r) >= 0
               ? QUIRE_OK
               : err_set(err, QUIRE_TOO_LARGE, -1,
                         "the program compares too much text, or its calls have too many fields");
}

static program_text *program_text_new(void) {
    program_text *t = mem_new(1, sizeof *t);
    if (t != NULL) {
        t->refs = 1;
    }
    return t;
}

program_text *program_text_share(program_text *t) {
    t->refs++;
    return t;
}

void program_text_drop(program_text *t) {
    if (t != NULL && --t->refs == 0) {
        strbuf_deinit(&t->text);
        mem_free(t->plain);
        mem_free(t);
    }
}

/* ---- values ---- */

program_value *program_value_new(void) {
    program_value *v = mem_new(1, sizeof *v);
    if (v != NULL) {
        v->refs = 1;
        v->choice = v->record = -1;
    }
    return v;
}

program_value *program_value_share(program_value *v) {
    v->refs++;
    return v;
}

void program_value_drop(program_value *v) {
    if (v == NULL || --v->refs > 0) {
        return;
    }
    for (size_t i = 0; i < v->n_items; i++) {
        program_value_drop(v->items[i]);
    }
    strbuf_deinit(&v->text);
    mem_free(v->items);
    mem_free(v->ids);
    mem_free(v->error);
    mem_free(v->scores);
    mem_free(v);
}

program_value *program_value_failed(const quire_error *why) {
    program_value *v = program_value_new();
    quire_error *copy = mem_new(1, sizeof *copy);
    if (v == NULL || copy == NULL) {
        program_value_drop(v);
        mem_free(copy);
        return NULL;
    }
    *copy = *why;
    v->error = copy;
    return v;
}

program_value *program_value_of(str text) {
    program_value *v = program_value_new();
    if (v != NULL && strbuf_add(&v->text, text.p, text.n) != QUIRE_OK) {
        program_value_drop(v);
        return NULL;
    }
    return v;
}

quire_err program_value_add(program_value *list, program_value *item) {
    TRY(mem_check(item));
    quire_err e = mem_grow(&list->items, &list->cap_items, list->n_items + 1, sizeof(program_value *));
    if (e != QUIRE_OK) {
        program_value_drop(item);
        return e;
    }
    list->is_list = true;
    list->items[list->n_items++] = item;
    return QUIRE_OK;
}

/* Returns the offset of the first separator in the text from `at` on, or text.n. */
static size_t value_find(str text, size_t at, str separator) {
    const char *found = memmem(text.p + at, text.n - at, separator.p, separator.n);
    return found != NULL ? (size_t)(found - text.p) : text.n;
}

quire_err program_value_split(program_root *r, str text, const char *separator, program_value **out,
                              quire_error *err) {
    program_value *list = program_value_new();
    size_t n = strlen(separator);
    quire_err e = mem_check_for(list, "a list", err);
    for (size_t begin = 0, end; e == QUIRE_OK && begin < text.n; begin = end + n) {
        end = value_find(text, begin, (str){separator, n});
        e = end > begin ? program_count_items(r, 1, err) : QUIRE_OK;
        if (e == QUIRE_OK && end > begin) {
            e = err_set(err, program_value_add(list, program_value_of((str){text.p + begin, end - begin})),
                        -1, "out of memory for a list");
        }
    }
    if (e != QUIRE_OK) {
        program_value_drop(list);
        return e;
    }
    list->is_list = true;
    *out = list;
    return QUIRE_OK;
}

/* ---- variables ---- */

/* Hashes a name with the program's random number: clients cannot choose equal hashes. */
static uint32_t variable_hash(const quire_state *s, const char *name) {
    const uint64_t h = str_hash(s->root->number, str_of(name));
    return (uint32_t)(h ^ h >> 32);
}

program_variable *program_variable_find(quire_state *s, const char *name) {
    HASH_INDEX_EACH(&s->names, variable_hash(s, name), i) {
        if (strcmp(s->variables[i].name, name) == 0) {
            return &s->variables[i];
        }
    }
    return NULL;
}

const program_value *program_state_find(const quire_state *s, const char *name) {
    const program_variable *v = program_variable_find((quire_state *)s, name);
    return v != NULL ? v->value : NULL;
}

/* Finds a variable, or adds it with a NULL value. QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. */
static quire_err variable_want(quire_state *s, const char *name, program_variable **out, quire_error *err) {
    *out = program_variable_find(s, name);
    if (*out != NULL) {
        return QUIRE_OK;
    }
    if (s->n_variables == MAX_VARIABLES) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "a state has more than %d variables", MAX_VARIABLES);
    }
    const uint32_t hash = variable_hash(s, name);
    TRY(err_set(err, mem_grow(&s->variables, &s->cap_variables, s->n_variables + 1, sizeof *s->variables), -1,
                "out of memory for a variable"));
    TRY(err_set(err, hash_index_add(&s->names, hash, (uint32_t)s->n_variables), -1,
                "out of memory for a variable"));
    *out = &s->variables[s->n_variables++];
    **out = (program_variable){.value = NULL, .hash = hash};
    strcpy((*out)->name, name);
    return QUIRE_OK;
}

static quire_err variable_set(quire_state *s, const char *name, program_value *v, bool is_own,
                              quire_error *err) {
    program_variable *to = NULL;
    TRY(variable_want(s, name, &to, err));
    program_value *before = to->value;
    to->value = program_value_share(v);
    to->is_own = is_own;
    program_value_drop(before);
    return QUIRE_OK;
}

quire_err program_variable_set(quire_state *s, const char *name, program_value *v, quire_error *err) {
    return variable_set(s, name, v, true, err);
}

quire_err program_variable_give(quire_state *s, const char *name, program_value *v, quire_error *err) {
    return variable_set(s, name, v, false, err);
}

/* Appends the text of a value, a list's items one per line. QUIRE_BAD_REQUEST: the value
 * is an error, which err repeats. */
static quire_err program_value_text(const program_value *v, const char *name, strbuf *to, quire_error *err) {
    assert(v != NULL);
    if (v->error != NULL) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "variable %s has no value: %s", name, v->error->message);
    }
    quire_err e = v->is_list ? QUIRE_OK : strbuf_add(to, v->text.p, v->text.n);
    for (size_t i = 0; e == QUIRE_OK && i < v->n_items; i++) {
        e = i > 0 ? strbuf_add_char(to, '\n') : QUIRE_OK;
        if (e == QUIRE_OK) {
            TRY(program_value_text(v->items[i], name, to, err));
        }
    }
    return err_set(err, e, -1, "out of memory for a text");
}

/* Finds the value of a piece that names a variable. QUIRE_BAD_REQUEST: it has none. */
static quire_err piece_value(const quire_state *s, const step_piece *p, const program_value **out,
                             quire_error *err) {
    const program_value *v = program_state_find(s, p->name);
    if (v == NULL) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "variable %s is not set here", p->name);
    }
    if (p->item >= 0 && v->error == NULL) {
        if (!v->is_list || (size_t)p->item >= v->n_items) {
            return err_set(err, QUIRE_BAD_REQUEST, -1,
                           v->is_list
                               ? "variable %s has %zu items; there is no item %d"
                               : "variable %s is a single text, not a list of %zu items with an item %d",
                           p->name, v->n_items, (int)p->item);
        }
        v = v->items[p->item];
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err text_add_piece(const quire_state *s, const step_piece *p, program_text *to,
                                quire_error *err) {
    size_t begin = to->text.n;
    if (p->text != NULL) {
        return err_set(err, strbuf_add(&to->text, p->text, p->n), -1, "out of memory for a text");
    }
    const program_value *v = NULL;
    TRY(piece_value(s, p, &v, err));
    TRY(program_value_text(v, p->name, &to->text, err));
    if (to->text.n == begin) {
        return QUIRE_OK;
    }
    TRY(err_set(err, mem_grow(&to->plain, &to->cap_plain, 2 * (to->n_plain + 1), sizeof *to->plain), -1,
                "out of memory for a text"));
    to->plain[2 * to->n_plain] = begin;
    to->plain[2 * to->n_plain + 1] = to->text.n;
    to->n_plain++;
    return QUIRE_OK;
}

bool program_text_is_constant(const quire_state *s, const step_text *t, const char *const *names, size_t n) {
    assert(t != NULL);
    for (size_t i = 0; i < t->n; i++) {
        const step_piece *piece = &t->pieces[i];
        if (piece->text == NULL && program_state_find(s, piece->name) == NULL) {
            return false;
        }
        for (size_t k = 0; piece->text == NULL && k < n; k++) {
            if (strcmp(names[k], piece->name) == 0) {
                return false;
            }
        }
    }
    return true;
}

/* Appends a text with its variables expanded. QUIRE_BAD_REQUEST: one is not set. */
static quire_err program_text_add(const quire_state *s, const step_text *t, program_text *to,
                                  quire_error *err) {
    quire_err e = QUIRE_OK;
    for (size_t i = 0; e == QUIRE_OK && i < t->n; i++) {
        e = text_add_piece(s, &t->pieces[i], to, err);
    }
    return e;
}

quire_err program_text_expand(const quire_state *s, const step_text *t, program_text **out,
                              quire_error *err) {
    program_text *made = program_text_new();
    TRY(mem_check_for(made, "a text", err));
    made->text.max = s->root->limits.max_bytes > 0 ? (size_t)s->root->limits.max_bytes : 0;
    quire_err e = program_count_work(s->root, t->n * LOOKUP_WORK, err);
    TRY_DONE(e, program_text_add(s, t, made, err));
    e = program_count_bytes(s->root, made->text.n + 2 * made->n_plain * sizeof *made->plain, err);
done:
    if (e != QUIRE_OK) {
        program_text_drop(made);
        return e;
    }
    *out = made;
    return QUIRE_OK;
}
