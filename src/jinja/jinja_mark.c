/* Marks in a template's literals: those that may be written. A literal that is only looked for or compared with, the name of a
 * member and the key of a dictionary stay as they are, so that they are found in a client's strings. */
#include "jinja/jinja_run.h"

/* Templates compare only short texts of their own, such as a macro's result. */
enum { MAX_COMPARED = 256 };

typedef struct mark_walk {
    const jinja_marker *marker;
    jarena *arena;
    strbuf scratch;
} mark_walk;

static quire_err mark(mark_walk *w, str *literal) {
    strbuf_clear(&w->scratch);
    TRY(w->marker->write(w->marker->context, *literal, &w->scratch));
    if (w->scratch.n == literal->n) {
        return QUIRE_OK;
    }
    return jarena_copy(w->arena, (str){w->scratch.p, w->scratch.n}, literal) ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* The index of a method's or filter's first argument that is output. Those before it are only read. */
static size_t first_written(str name) {
    static const struct {
        const char *name;
        size_t first;
    } functions[] = {{"default", 0}, {"d", 0}, {"join", 0}, {"format", 0}, {"append", 0}, {"replace", 1}, {"get", 1}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (str_is(name, functions[i].name)) {
            return functions[i].first;
        }
    }
    return SIZE_MAX;
}

static size_t first_of_call(const jnode *call) {
    if (call->a->kind == N_MEMBER) {
        return first_written(call->a->name);
    }
    return call->a->kind == N_NAME && str_is(call->a->name, "raise_exception") ? SIZE_MAX : 0;
}

static quire_err walk(mark_walk *w, jnode *node);

static quire_err walk_from(mark_walk *w, jnode **nodes, size_t first, size_t n, size_t step) {
    for (size_t i = first; i < n; i += step) {
        TRY(walk(w, nodes[i]));
    }
    return QUIRE_OK;
}

/* The parser has bounded the depth of the tree. */
static quire_err walk(mark_walk *w, jnode *node) {
    if (node == NULL) {
        return QUIRE_OK;
    }
    switch (node->kind) {
    case N_DATA:
        return mark(w, &node->name);
    case N_CONST:
        return jis(node->value, J_STRING) ? mark(w, &node->value.u.s) : QUIRE_OK;
    case N_COMPARE:
    case N_TEST:
        return QUIRE_OK;
    case N_ITEM:
        return walk(w, node->a);
    case N_DICT:
        return walk_from(w, node->items, 1, node->n, 2);
    case N_CALL:
        TRY(walk(w, node->a));
        return walk_from(w, node->items, first_of_call(node), node->n, 1);
    case N_FILTER:
        TRY(walk(w, node->a));
        return walk_from(w, node->items, first_written(node->name), node->n, 1);
    default:
        TRY(walk(w, node->a));
        TRY(walk(w, node->b));
        TRY(walk(w, node->c));
        TRY(walk(w, node->body));
        TRY(walk(w, node->otherwise));
        TRY(walk_from(w, node->items, 0, node->n, 1));
        return walk_from(w, node->more, 0, node->n_more, 1);
    }
}

quire_err jinja_mark(jnode *root, const jinja_marker *m, jarena *arena, quire_error *err) {
    mark_walk w = {.marker = m, .arena = arena};
    quire_err e = walk(&w, root);
    strbuf_deinit(&w.scratch);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for a template's literals");
}

quire_err jrun_unmarked(jrun *r, jvalue *v) {
    str s = jis(*v, J_STRING) ? v->u.s : (str){NULL, 0};
    size_t n = 0;
    for (size_t i = 0; s.n <= MAX_COMPARED && i < s.n; i++) {
        n += (uint8_t)s.p[i] >= JINJA_FIRST_MARK;
    }
    if (n == 0) {
        return QUIRE_OK;
    }
    char *bare = jarena_bytes(&r->arena, s.n - n);
    TRY(jrun_check_memory(r, bare));
    v->u.s = (str){bare, 0};
    for (size_t i = 0; i < s.n; i++) {
        if ((uint8_t)s.p[i] < JINJA_FIRST_MARK) {
            bare[v->u.s.n++] = s.p[i];
        }
    }
    return QUIRE_OK;
}
