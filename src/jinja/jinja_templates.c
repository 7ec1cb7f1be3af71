/* Templates that extend, include and import others by name, and their blocks. */
#include <assert.h>
#include <stdio.h>

#include "jinja/jinja_run.h"

enum { MAX_EXTENDED = 100 /* longest chain of templates that extend one another */ };

/* ---- finding a template ---- */

/* The template with this name; NULL: none. */
static quire_err jinja_templates_find(jrun *r, jvalue name, const jinja_program **out) {
    const jinja_set *set = r->program->set;
    str s;
    *out = NULL;
    TRY(jrun_want_text(r, name, "a template's name", &s));
    if (set == NULL) {
        TRY(jrun_fail(r, QUIRE_BAD_REQUEST, "no loader for this environment specified"));
    }
    for (size_t i = 0; i < set->n && *out == NULL; i++) {
        *out = str_eq(set->named[i].name, s) ? set->named[i].program : NULL;
    }
    return QUIRE_OK;
}

/* The error if a name, or every name in a list, is unknown. */
static quire_err jinja_templates_not_found(jrun *r, jvalue name) {
    const jinja_set *set = r->program->set;
    char names[200];
    size_t n = 0;
    str s;
    for (size_t i = 0; i < set->n && n + set->named[i].name.n + 3 < sizeof names; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s", i > 0 ? ", " : "",
                              (int)set->named[i].name.n, set->named[i].name.p);
    }
    name.safe = false;
    TRY(jrun_to_text(r, name, &s));
    return jrun_fail(r, QUIRE_BAD_REQUEST, "there is no template named %.*s; there are: %.*s",
                     (int)(s.n < 80 ? s.n : 80), s.p, (int)n, names);
}

/* The template that an expression names; if it is a list, the first that exists. */
static quire_err jinja_templates_find_any(jrun *r, const jnode *node, jscope *scope,
                                          const jinja_program **out) {
    jvalue name;
    const jvalue *names = &name;
    size_t n = 1;
    TRY(jeval(r, node->a, scope, &name));
    r->at = node;
    if (jis(name, J_LIST) || jis(name, J_TUPLE)) {
        TRY(jrun_items(r, name, &names, &n));
    }
    *out = NULL;
    for (size_t i = 0; i < n && *out == NULL; i++) {
        TRY(jinja_templates_find(r, names[i], out));
    }
    return *out != NULL || node->ignores_missing ? QUIRE_OK : jinja_templates_not_found(r, name);
}

/* ---- executing a template ---- */

static quire_err add_blocks(jrun *r, jtemplate *t, const jinja_program *p) {
    for (size_t i = 0; i < p->n_blocks; i++) {
        if (!jarena_grow(&r->arena, &t->blocks, &t->cap, t->n_blocks, sizeof *t->blocks)) {
            TRY(jrun_no_memory(r));
        }
        t->blocks[t->n_blocks++] = p->blocks[i];
    }
    return QUIRE_OK;
}

quire_err jexec_template(jrun *r, const jinja_program *p, jscope *root) {
    assert(r != NULL);
    jtemplate *t = jarena_new(&r->arena, sizeof *t), *before = r->template;
    jout *out = r->out;
    quire_err e = QUIRE_OK;
    TRY(jrun_check_memory(r, t));
    t->root = root;
    r->template = t;
    for (int n = 0; p != NULL; n++) {
        t->parent = NULL;
        r->out = out;
        if (n == MAX_EXTENDED) {
            e = jrun_fail(r, QUIRE_BAD_REQUEST, "more than %d templates extend one another", MAX_EXTENDED);
        }
        TRY_DONE(e, add_blocks(r, t, p));
        TRY_DONE(e, jexec(r, p->root, root));
        p = t->parent;
    }
done:
    r->out = out;
    r->template = before;
    return e;
}

/* From here on, the template defines blocks and variables, and its output is dropped. */
quire_err jexec_extends(jrun *r, const jnode *node, jscope *scope) {
    assert(r != NULL);
    const jinja_program *parent;
    if (r->template->parent != NULL) {
        TRY(jrun_fail(r, QUIRE_BAD_REQUEST, "extended multiple times"));
    }
    TRY(jinja_templates_find_any(r, node, scope, &parent));
    r->template->parent = parent;
    r->out = NULL;
    return QUIRE_OK;
}

/* Makes the outermost scope for another template, which sees all of this one's variables
 * or none. */
static quire_err other_root(jrun *r, const jnode *node, jscope *scope, jscope **out) {
    return jscope_new(r, node->with_context ? scope : NULL, out);
}

quire_err jexec_include(jrun *r, const jnode *node, jscope *scope) {
    const jinja_program *p;
    jscope *root;
    TRY(jinja_templates_find_any(r, node, scope, &p));
    TRY(other_root(r, node, scope, &root));
    return p == NULL || r->out == NULL ? QUIRE_OK : jexec_template(r, p, root);
}

/* Executes a template to get its names. */
static quire_err load_module(jrun *r, const jnode *node, jscope *scope, jmodule **out) {
    const jinja_program *p;
    jscope *root;
    jvalue text;
    jout written = jrun_out(r), *before = r->out;
    jmodule *m = jarena_new(&r->arena, sizeof *m);
    TRY(jrun_check_memory(r, m));
    TRY(jinja_templates_find_any(r, node, scope, &p));
    TRY(other_root(r, node, scope, &root));
    r->out = &written;
    quire_err e = jexec_template(r, p, root);
    r->out = before;
    TRY(jrun_take_text(r, e, &written, &text));
    m->text = text.u.s;
    TRY(jrun_dict(r, &m->names));
    for (size_t i = 0; i < root->n; i++) {
        str name = root->bindings[i].name;
        if (name.p[0] != '_') {
            TRY(jrun_set(r, m->names, jstring(name), root->bindings[i].value));
        }
    }
    *out = m;
    return QUIRE_OK;
}

quire_err jexec_import(jrun *r, const jnode *node, jscope *scope) {
    jmodule *m;
    TRY(load_module(r, node, scope, &m));
    if (node->kind == N_IMPORT) {
        return jscope_set(r, scope, node->name, (jvalue){.kind = J_MODULE, .u.module = m});
    }
    for (size_t i = 0; i < node->n; i++) {
        jvalue v;
        const jvalue *found;
        TRY(jrun_get(r, m->names, jstring(node->names[i]), &found));
        if (found != NULL) {
            v = *found;
        } else {
            TRY(jrun_make_undefined(
                r, &v, "the template imported on line %u does not export the requested name '%.*s'",
                (unsigned)node->line, (int)(node->names[i].n < 80 ? node->names[i].n : 80),
                node->names[i].p));
        }
        TRY(jscope_set(r, scope, node->items[i]->name, v));
    }
    return QUIRE_OK;
}

/* ---- blocks ---- */

/* Index of the first block with this name from `from` on; n_blocks: none. */
static size_t jinja_templates_find_block(const jtemplate *t, str name, size_t from) {
    while (from < t->n_blocks && !str_eq(t->blocks[from]->name, name)) {
        from++;
    }
    return from;
}

static quire_err make_ref(jrun *r, jkind kind, jtemplate *t, size_t block, jvalue *out) {
    jblock_ref *b = jarena_new(&r->arena, sizeof *b);
    TRY(jrun_check_memory(r, b));
    *b = (jblock_ref){t, block};
    *out = (jvalue){.kind = (uint8_t)kind, .u.block = b};
    return QUIRE_OK;
}

/* Executes a block. In it, `super` is the block that it overrides. */
static quire_err jinja_templates_run_block(jrun *r, jtemplate *t, size_t block, jscope *around) {
    const jnode *node = t->blocks[block];
    size_t above = jinja_templates_find_block(t, node->name, block + 1);
    jscope *scope;
    jvalue super;
    int n = (int)(node->name.n < 80 ? node->name.n : 80);
    if (node->required && above == t->n_blocks && jinja_templates_find_block(t, node->name, 0) == block) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "Required block '%.*s' not found", n, node->name.p);
    }
    TRY(jscope_new(r, around, &scope));
    TRY(above < t->n_blocks
            ? make_ref(r, J_BLOCK, t, above, &super)
            : jrun_make_undefined(r, &super, "there is no parent block called '%.*s'.", n, node->name.p));
    TRY(jscope_set(r, scope, str_of("super"), super));
    return jexec(r, node->body, scope);
}

quire_err jexec_block(jrun *r, const jnode *node, jscope *scope) {
    assert(r != NULL);
    jtemplate *t = r->template;
    if (r->out == NULL) { /* this template extends another one, which renders the block */
        return QUIRE_OK;
    }
    return jinja_templates_run_block(r, t, jinja_templates_find_block(t, node->name, 0),
                                     node->scoped ? scope : t->root);
}

quire_err jblock_self(jrun *r, jvalue *out) {
    assert(r != NULL);
    return make_ref(r, J_SELF, r->template, 0, out);
}

quire_err jblock_member(jrun *r, jvalue object, str name, jvalue *out) {
    jtemplate *t = object.u.block->template;
    bool super = jis(object, J_BLOCK);
    size_t at = object.u.block->block,
           found = super ? jinja_templates_find_block(t, t->blocks[at]->name, at + 1)
                         : jinja_templates_find_block(t, name, 0);
    *out = (jvalue){.kind = J_MISSING};
    return found < t->n_blocks ? make_ref(r, J_BLOCK, t, found, out) : QUIRE_OK;
}

quire_err jblock_call(jrun *r, const jblock_ref *b, const jargs *args, jvalue *out) {
    assert(r != NULL && args != NULL);
    jout text = jrun_out(r), *before = r->out;
    if (args->n > 0) {
        TRY(jrun_fail(r, QUIRE_BAD_REQUEST, "a block takes no arguments"));
    }
    r->out = &text;
    quire_err e = jrun_enter(r, b->template->blocks[b->block]);
    TRY_DONE(e, jinja_templates_run_block(r, b->template, b->block, b->template->root));
done:
    r->depth--;
    r->out = before;
    TRY(jrun_take_text(r, e, &text, out));
    out->safe = r->autoescape;
    return QUIRE_OK;
}
