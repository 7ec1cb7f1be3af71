/* GET /openapi.json: the server's OpenAPI 3.1 document. Routes give paths and methods,
 * the tables of fields give request bodies (quire_request_schema), pages/openapi.json
 * gives summaries, examples and response schemas; it may lack paths. Any thread. */
#include "server/routes.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "server/web_pages.h"

typedef struct openapi {
    const server *server;
    openapi_route_at at;
    const json_value *notes; /* pages/openapi.json */
    json_out *o;
} openapi;

enum { OPENAPI_NAME_BYTES = 96 };

/* Writes the name of the schema of a path's request bodies, "/v1/completions" ->
 * "v1_completions_request", to out. */
static const char *openapi_schema_name(const char *path, char out[OPENAPI_NAME_BYTES]) {
    (void)snprintf(out, OPENAPI_NAME_BYTES, "%.64s_request", path + 1);
    for (char *p = out; *p != '\0'; p++) {
        *p = isalnum((unsigned char)*p) ? *p : '_';
    }
    return out;
}

/* The first route with this endpoint's fields, which names their schema. */
static openapi_route openapi_first_of(const openapi *d, quire_endpoint endpoint) {
    openapi_route r = {0};
    for (size_t i = 0; d->at(i, &r) && !(r.has_fields && r.endpoint == endpoint); i++) {
    }
    return r;
}

/* Routes that also accept bodies in the form of another endpoint, recognised by their
 * fields. suffix: ends the name of that form's schema. */
static const struct {
    quire_endpoint of, form;
    const char *suffix;
} openapi_forms[] = {{QUIRE_TOKENIZE, QUIRE_TOKENIZE_CHAT, "/chat"},
                     {QUIRE_TOKENIZE, QUIRE_TOKENIZE_CONTENT, "/content"}};

enum { N_OPENAPI_FORMS = (int)(sizeof openapi_forms / sizeof *openapi_forms) };

/* Writes the name of the schema of a route's form i. */
static const char *openapi_form_name(const openapi_route *r, int i, char out[OPENAPI_NAME_BYTES]) {
    char path[OPENAPI_NAME_BYTES];
    (void)snprintf(path, sizeof path, "%.48s%s", r->path, openapi_forms[i].suffix);
    return openapi_schema_name(path, out);
}

/* A route's note, or the note of its endpoint's first route. */
static const json_value *openapi_note(const openapi *d, const openapi_route *r) {
    const json_value *notes = json_get(d->notes, "paths"), *own = json_get(notes, r->path);
    return own != NULL || !r->has_fields ? own : json_get(notes, openapi_first_of(d, r->endpoint).path);
}

static void openapi_write_reference(json_out *o, const char *schema) {
    strbuf text = {0};
    quire_err e = strbuf_addf(&text, "#/components/schemas/%s", schema);
    json_begin(o, '{');
    json_cstr(json_name(o, "$ref"), e == QUIRE_OK ? text.p : "");
    json_end(o, '}');
    o->err = o->err != QUIRE_OK ? o->err : e;
    strbuf_deinit(&text);
}

/* Writes an example and adds the model's name, which notes leave out. */
static void openapi_write_example(const openapi *d, const json_value *body) {
    json_begin(d->o, '{');
    json_cstr(json_name(d->o, "model"), d->server->model_name);
    for (json_member m = {0}; json_next(body, &m);) {
        json_add(json_name(d->o, m.name), m.value);
    }
    json_end(d->o, '}');
}

/* Writes the schema of a route's bodies: its endpoint's, or any of its forms. */
static void openapi_write_fields_of(const openapi *d, const openapi_route *r) {
    char name[OPENAPI_NAME_BYTES];
    json_out *o = d->o;
    openapi_route first = openapi_first_of(d, r->endpoint);
    bool has_forms = false;
    for (int i = 0; i < N_OPENAPI_FORMS; i++) {
        has_forms = has_forms || openapi_forms[i].of == r->endpoint;
    }
    if (!has_forms) {
        openapi_write_reference(o, openapi_schema_name(first.path, name));
        return;
    }
    json_begin(o, '{');
    json_begin(json_name(o, "anyOf"), '[');
    openapi_write_reference(json_item(o), openapi_schema_name(first.path, name));
    for (int i = 0; i < N_OPENAPI_FORMS; i++) {
        if (openapi_forms[i].of == r->endpoint) {
            openapi_write_reference(json_item(o), openapi_form_name(&first, i, name));
        }
    }
    json_end(o, ']');
    json_end(o, '}');
}

static void openapi_write_body(const openapi *d, const openapi_route *r, const json_value *note) {
    json_out *o = d->o;
    json_begin(json_name(o, "requestBody"), '{');
    json_bool(json_name(o, "required"), true);
    json_begin(json_name(o, "content"), '{');
    json_begin(json_name(o, "application/json"), '{');
    json_name(o, "schema");
    if (r->has_fields) {
        openapi_write_fields_of(d, r);
    } else if (json_has(note, "body")) {
        json_add(o, json_get(note, "body"));
    } else {
        json_raw(o, "{\"type\":\"object\"}");
    }
    if (json_has(note, "examples")) {
        json_begin(json_name(o, "examples"), '{');
        for (json_member m = {0}; json_next(json_get(note, "examples"), &m);) {
            json_begin(json_name(o, m.name), '{');
            json_name(o, "value");
            openapi_write_example(d, m.value);
            json_end(o, '}');
        }
        json_end(o, '}');
    }
    json_end(o, '}');
    json_end(o, '}');
    json_end(o, '}');
}

/* Writes the responses of a note: "content" for 200, and the schema of errors. */
static void openapi_write_responses(const openapi *d, const json_value *note) {
    json_out *o = d->o;
    json_begin(json_name(o, "responses"), '{');
    json_raw(json_name(o, "200"), "{\"description\":\"success\"");
    if (json_has(note, "content")) {
        json_add(json_name(o, "content"), json_get(note, "content"));
    }
    json_raw(o, "}");
    json_raw(json_name(o, "default"), "{\"description\":\"an error\"");
    if (json_has(note, "error")) {
        json_raw(json_name(o, "content"), "{\"application/json\":{\"schema\":");
        openapi_write_reference(o, json_get_str(note, "error").p);
        json_raw(o, "}}");
    }
    json_raw(o, "}");
    json_end(o, '}');
}

/* Writes the parameters of a path, which are in braces. */
static void openapi_write_parameters(json_out *o, const char *path) {
    const char *from = strchr(path, '{');
    if (from == NULL) {
        return;
    }
    json_begin(json_name(o, "parameters"), '[');
    for (; from != NULL; from = strchr(from, '{')) {
        from++;
        json_begin(json_item(o), '{');
        json_text(json_name(o, "name"), from, strcspn(from, "}"));
        json_cstr(json_name(o, "in"), "path");
        json_bool(json_name(o, "required"), true);
        json_raw(json_name(o, "schema"), "{\"type\":\"string\"}");
        json_end(o, '}');
    }
    json_end(o, ']');
}

static void openapi_write_operation(const openapi *d, const openapi_route *r, const char *path,
                                    const json_value *note, const char *method) {
    str summary = json_get_str(note, "summary");
    json_out *o = d->o;
    json_begin(json_name(o, method), '{');
    if (summary.n > 0) {
        json_text(json_name(o, "summary"), summary.p, summary.n);
    }
    openapi_write_parameters(o, path);
    if (r->takes_json && strcmp(method, "post") == 0) {
        openapi_write_body(d, r, note);
    }
    openapi_write_responses(d, note);
    if (r->needs_key) {
        json_raw(json_name(o, "security"), "[{\"key\":[]},{}]");
    }
    json_end(o, '}');
}

/* Writes a path template, with the methods of its note or else of its route. */
static void openapi_write_template(const openapi *d, const openapi_route *r, const char *path,
                                   const json_value *note) {
    static const struct {
        const char *name, *member;
    } methods[] = {{"GET", "get"}, {"POST", "post"}, {"DELETE", "delete"}};
    str own = json_get_str(note, "allow");
    json_begin(json_name(d->o, path), '{');
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strstr(own.n > 0 ? own.p : r->allow, methods[i].name) != NULL) {
            openapi_write_operation(d, r, path, note, methods[i].member);
        }
    }
    json_end(d->o, '}');
}

/* Writes the paths of a route: the templates in its note, or one with {id} if the route
 * is a prefix. */
static void openapi_write_path(const openapi *d, const openapi_route *r) {
    char path[OPENAPI_NAME_BYTES];
    const json_value *note = openapi_note(d, r), *templates = json_get(note, "templates");
    for (size_t i = 0; i < json_length(templates); i++) {
        const char *template = json_str(json_at(templates, i)).p;
        openapi_write_template(d, r, template, json_get(json_get(d->notes, "paths"), template));
    }
    if (templates == NULL) {
        str given = json_get_str(note, "template");
        (void)snprintf(path, sizeof path, "%s%s", given.n > 0 ? given.p : r->path,
                       given.n == 0 && r->is_prefix ? "{id}" : "");
        openapi_write_template(d, r, path, note);
    }
}

/* Writes the schema of an endpoint's bodies as a component. */
static void openapi_write_fields(const openapi *d, quire_endpoint endpoint, const char *name) {
    char *text;
    size_t n;
    quire_error err;
    quire_err e = quire_request_schema(d->server->engine, endpoint, &text, &n, &err);
    if (e != QUIRE_OK) {
        d->o->err = e;
        return;
    }
    json_raw_part(json_name(d->o, name), (str){text, n});
    quire_free(text);
}

/* Writes the schemas of a route's endpoint and of its forms. */
static void openapi_write_schemas(const openapi *d, const openapi_route *r) {
    char name[OPENAPI_NAME_BYTES];
    openapi_write_fields(d, r->endpoint, openapi_schema_name(r->path, name));
    for (int i = 0; i < N_OPENAPI_FORMS; i++) {
        if (openapi_forms[i].of == r->endpoint) {
            openapi_write_fields(d, openapi_forms[i].form, openapi_form_name(r, i, name));
        }
    }
}

static void openapi_write_components(const openapi *d) {
    openapi_route r;
    json_out *o = d->o;
    json_begin(json_name(o, "components"), '{');
    json_raw(json_name(o, "securitySchemes"), "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}");
    json_begin(json_name(o, "schemas"), '{');
    for (json_member m = {0}; json_next(json_get(d->notes, "schemas"), &m);) {
        json_add(json_name(o, m.name), m.value);
    }
    for (size_t i = 0; d->at(i, &r); i++) {
        if (r.has_fields && strcmp(openapi_first_of(d, r.endpoint).path, r.path) == 0) {
            openapi_write_schemas(d, &r);
        }
    }
    json_end(o, '}');
    json_end(o, '}');
}

void openapi_write(const server *s, openapi_route_at at, json_out *o) {
    json_value *notes = json_document(str_of(page_openapi_notes()));
    openapi d = {.server = s, .at = at, .notes = notes, .o = o};
    openapi_route r;
    if (notes == NULL) {
        o->err = QUIRE_NO_MEMORY;
        return;
    }
    json_begin(o, '{');
    json_cstr(json_name(o, "openapi"), "3.1.0");
    json_raw(json_name(o, "info"), "{\"title\":\"Quire\",\"version\":\"" QUIRE_VERSION "\"}");
    json_begin(json_name(o, "paths"), '{');
    for (size_t i = 0; at(i, &r); i++) {
        openapi_write_path(&d, &r);
    }
    json_end(o, '}');
    openapi_write_components(&d);
    json_end(o, '}');
    json_drop(notes);
}
