#include "cli/body.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "json/json_out.h"

void body_deinit(body *b) {
    assert(b != NULL);
    for (size_t i = 0; i < b->n; i++) {
        mem_free(b->members[i].name);
        strbuf_deinit(&b->members[i].json);
    }
    mem_free(b->members);
    *b = (body){0};
}

static body_member *body_find(const body *b, const char *name) {
    for (size_t i = 0; i < b->n; i++) {
        if (strcmp(b->members[i].name, name) == 0) {
            return &b->members[i];
        }
    }
    return NULL;
}

bool body_has(const body *b, const char *name) {
    return body_find(b, name) != NULL;
}

str body_get(const body *b, const char *name) {
    const body_member *m = body_find(b, name);
    return m != NULL ? (str){m->json.p, m->json.n} : (str){"", 0};
}

void body_unset(body *b, const char *name) {
    body_member *m = body_find(b, name);
    if (m != NULL) {
        mem_free(m->name);
        strbuf_deinit(&m->json);
        size_t n_behind = (size_t)(b->members + b->n - (m + 1));
        memmove(m, m + 1, n_behind * sizeof *m);
        b->n--;
    }
}

/* Sets a member. Takes over json, even on failure. */
static quire_err body_put(body *b, const char *name, strbuf json) {
    body_member *m = body_find(b, name);
    char *copy = m != NULL ? NULL : mem_dup(name, strlen(name));
    if (m == NULL &&
        (copy == NULL || mem_grow(&b->members, &b->cap, b->n + 1, sizeof *b->members) != QUIRE_OK)) {
        mem_free(copy);
        strbuf_deinit(&json);
        return QUIRE_NO_MEMORY;
    }
    if (m == NULL) {
        m = &b->members[b->n++];
        *m = (body_member){.name = copy};
    }
    strbuf_deinit(&m->json);
    m->json = json;
    return QUIRE_OK;
}

quire_err body_set(body *b, const char *name, str json) {
    strbuf copy = {0};
    TRY(strbuf_add(&copy, json.p, json.n));
    return body_put(b, name, copy);
}

quire_err body_set_int(body *b, const char *name, int64_t v) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, v);
    return body_set(b, name, str_of(text));
}

quire_err body_set_text(body *b, const char *name, str text) {
    strbuf json = {0};
    json_out o = {.to = &json};
    json_text(&o, text.p, text.n);
    if (o.err != QUIRE_OK) {
        strbuf_deinit(&json);
        return o.err;
    }
    return body_put(b, name, json);
}

quire_err body_add_text(body *b, const char *name, const char *text) {
    const body_member *m = body_find(b, name);
    strbuf json = {0};
    json_out o = {.to = &json};
    o.err = m != NULL ? strbuf_add(&json, m->json.p, m->json.n - 1) : strbuf_add_char(&json, '[');
    json_cstr(json_item(&o), text);
    json_end(&o, ']');
    if (o.err != QUIRE_OK) {
        strbuf_deinit(&json);
        return o.err;
    }
    return body_put(b, name, json);
}

quire_err body_add_number(body *b, const char *name, const char *key, double v) {
    const body_member *m = body_find(b, name);
    json_value *object = m != NULL ? json_document((str){m->json.p, m->json.n}) : NULL;
    strbuf json = {0};
    json_out o = {.to = &json};
    json_begin(&o, '{');
    for (json_member old = {0}; json_is(object, JSON_KIND_OBJECT) && json_next(object, &old);) {
        if (strcmp(old.name, key) != 0) {
            json_add(json_name(&o, old.name), old.value);
        }
    }
    json_exact(json_name(&o, key), v);
    json_end(&o, '}');
    json_drop(object);
    if (o.err != QUIRE_OK) {
        strbuf_deinit(&json);
        return o.err;
    }
    return body_put(b, name, json);
}

quire_err body_set_all(body *b, const body *from) {
    assert(from != NULL);
    for (size_t i = 0; i < from->n; i++) {
        TRY(body_set(b, from->members[i].name, (str){from->members[i].json.p, from->members[i].json.n}));
    }
    return QUIRE_OK;
}

quire_err body_write(const body *b, strbuf *out) {
    json_out o = {.to = out};
    json_begin(&o, '{');
    for (size_t i = 0; i < b->n; i++) {
        json_raw(json_name(&o, b->members[i].name), b->members[i].json.p);
    }
    json_end(&o, '}');
    return o.err;
}
