/* Writes the JSON Schema of an endpoint's bodies from the rows of its fields. It allows
 * what read_field.c accepts. */
#include <math.h>
#include <string.h>

#include "request/request_read.h"

/* Whether null stands for the default: it does unless the field is required. */
static bool schema_takes_null(const field_desc *f) {
    return f->type != FIELD_PROMPT && f->type != FIELD_MESSAGES && (f->flags & FIELD_REQUIRED) == 0;
}

/* Writes "type":[first,second,"null"]; second may be NULL. */
static void schema_write_type(json_out *o, const field_desc *f, const char *first, const char *second) {
    json_begin(json_name(o, "type"), '[');
    json_cstr(json_item(o), first);
    if (second != NULL) {
        json_cstr(json_item(o), second);
    }
    if (schema_takes_null(f)) {
        json_cstr(json_item(o), "null");
    }
    json_end(o, ']');
}

/* Writes a number, without a fraction if it is whole. */
static void schema_write_number(json_out *o, double v) {
    if (v == floor(v) && fabs(v) < 1e15) {
        json_int(o, (int64_t)v);
    } else {
        json_exact(o, v);
    }
}

/* Integers without a range are limited to 64 bits. */
static void schema_write_bounds(json_out *o, const field_desc *f) {
    bool is_whole = f->type != FIELD_NUMBER;
    if (is_whole && f->minimum <= -FIELD_NO_LIMIT) {
        json_int(json_name(o, "minimum"), INT64_MIN);
    } else if (f->minimum > -FIELD_NO_LIMIT) {
        schema_write_number(json_name(o, f->flags & FIELD_MIN_OPEN ? "exclusiveMinimum" : "minimum"),
                            f->minimum);
    }
    if (is_whole && f->maximum >= FIELD_NO_LIMIT) {
        json_int(json_name(o, "maximum"), INT64_MAX);
    } else if (f->maximum < FIELD_NO_LIMIT && (f->flags & FIELD_CUT) == 0) {
        schema_write_number(json_name(o, "maximum"), f->maximum);
    }
}

/* Writes "items":{"type":..}, with the row's range for integers. */
static void schema_write_items(json_out *o, const field_desc *f, const char *type) {
    json_begin(json_name(o, "items"), '{');
    json_cstr(json_name(o, "type"), type);
    if (f->type == FIELD_INTS) {
        schema_write_bounds(o, f);
    }
    json_end(o, '}');
}

/* The schema of a token id. */
static void schema_write_id(json_out *o, const request_context *ctx) {
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), "integer");
    json_int(json_name(o, "minimum"), 0);
    json_int(json_name(o, "maximum"), ctx->n_vocab - 1);
    json_end(o, '}');
}

static void schema_write_ids(json_out *o, const request_context *ctx, int n_least) {
    json_cstr(json_name(o, "type"), "array");
    json_int(json_name(o, "minItems"), n_least);
    schema_write_id(json_name(o, "items"), ctx);
}

/* The schema of an array of texts and ids, as llama.cpp takes prompts; is_many: or an
 * array of such arrays. */
static void schema_write_mixed(json_out *o, const request_context *ctx, bool is_many) {
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "type"), "array");
    json_int(json_name(o, "minItems"), 1);
    json_begin(json_name(o, "items"), '{');
    json_begin(json_name(o, "anyOf"), '[');
    json_raw(json_item(o), "{\"type\":\"string\"}");
    schema_write_id(json_item(o), ctx);
    if (is_many) {
        schema_write_mixed(o, ctx, false);
    }
    json_end(o, ']');
    json_end(o, '}');
    json_end(o, '}');
}

/* Begins the schema of an array of up to REQUEST_MAX_PROMPTS prompts, up to its items. */
static void schema_begin_prompts(json_out *o) {
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "type"), "array");
    json_int(json_name(o, "minItems"), 1);
    json_int(json_name(o, "maxItems"), REQUEST_MAX_PROMPTS);
    json_begin(json_name(o, "items"), '{');
}

/* The schema of a conversation; is_batch: of an array of them. */
static void schema_write_messages(json_out *o, bool is_batch) {
    json_cstr(json_name(o, "type"), "array");
    json_int(json_name(o, "minItems"), 1);
    json_begin(json_name(o, "items"), '{');
    if (is_batch) {
        schema_write_messages(o, false);
    } else {
        json_raw(o,
                 "\"type\":\"object\",\"properties\":{\"role\":{\"type\":\"string\"},\"content\":{\"type\":"
                 "[\"string\",\"array\",\"null\"]}},\"required\":[\"role\"]");
    }
    json_end(o, '}');
}

/* The schema of a text, of ids, or of a prompt in all its forms, by the field's
 * reader. */
static void schema_write_prompt(json_out *o, const request_context *ctx, const field_desc *f) {
    static const char text[] = "\"type\":\"string\",\"minLength\":1";
    bool loads = (f->flags & FIELD_OLLAMA_ROWS) != 0; /* a null or empty input only loads the model */
    bool texts_alone = f->read == request_read_sglang_text, ids_alone = f->read == request_read_sglang_ids;
    if (f->read == request_read_text) {
        json_raw(o,
                 loads ? ",\"anyOf\":[{\"type\":\"string\"},{\"enum\":[null,[]]}]" : ",\"type\":\"string\"");
        return;
    }
    if (f->read == request_read_tokens) {
        schema_write_ids(o, ctx, 0);
        return;
    }
    json_begin(json_name(o, "anyOf"), '[');
    if (loads) {
        json_raw(json_item(o), "{\"enum\":[null,\"\",[]]}");
    }
    if (texts_alone || ids_alone) {
        json_raw(json_item(o), "{\"enum\":[null]}"); /* null is allowed, since the other field may be given */
    }
    if (ctx->has_vocabulary && !ids_alone) {
        json_begin(json_item(o), '{');
        json_raw(o, text);
        json_end(o, '}');
        schema_begin_prompts(o);
        json_raw(o, text);
        json_end(o, '}');
        json_end(o, '}');
        if (f->read == request_read_llama_prompt) {
            schema_write_mixed(o, ctx, true);
        }
    }
    if (!texts_alone) {
        json_begin(json_item(o), '{');
        schema_write_ids(o, ctx, 1);
        json_end(o, '}');
        schema_begin_prompts(o);
        schema_write_ids(o, ctx, 1);
        json_end(o, '}');
        json_end(o, '}');
    }
    json_end(o, ']');
}

static void schema_write_field(json_out *o, const request_context *ctx, uint32_t endpoint,
                               const field_desc *f);

/* Whether m is a row for a member of the object field f on this endpoint: it is named
 * "f.MEMBER". */
static bool schema_is_member(const field_desc *m, const field_desc *f, uint32_t endpoint) {
    size_t n = strlen(f->name);
    return strncmp(m->name, f->name, n) == 0 && m->name[n] == '.' && request_field(m->name, endpoint) == m;
}

/* Writes the schemas of the members of f that have rows. */
static void schema_write_members(json_out *o, const request_context *ctx, uint32_t endpoint,
                                 const field_desc *f) {
    int32_t n_fields;
    size_t n = strlen(f->name);
    bool has = false;
    const field_desc *fields = request_fields(&n_fields);
    for (int32_t i = 0; i < n_fields; i++) {
        const field_desc *m = &fields[i];
        if (schema_is_member(m, f, endpoint)) {
            if (!has) {
                json_begin(json_name(o, "properties"), '{');
            }
            has = true;
            json_name(o, m->name + n + 1);
            schema_write_field(o, ctx, endpoint, m);
        }
    }
    if (has) {
        json_end(o, '}');
    }
}

/* Writes the type and members of a FIELD_ANY whose members have rows. An array or null is
 * allowed too. */
static void schema_write_forms(json_out *o, const request_context *ctx, uint32_t endpoint,
                               const field_desc *f) {
    int32_t n_fields;
    bool has = false;
    const field_desc *fields = request_fields(&n_fields);
    for (int32_t i = 0; i < n_fields && !has; i++) {
        has = schema_is_member(&fields[i], f, endpoint);
    }
    if (has) {
        json_raw(json_name(o, "type"), "[\"object\",\"array\",\"null\"]");
        schema_write_members(o, ctx, endpoint, f);
    }
}

/* Writes the keywords for f's type and range. */
static void schema_write_kind(json_out *o, const request_context *ctx, uint32_t endpoint,
                              const field_desc *f) {
    switch (f->type) {
    case FIELD_BOOL:
        schema_write_type(o, f, "boolean", NULL);
        break;
    case FIELD_INT:
    case FIELD_NUMBER:
        schema_write_type(o, f, f->type == FIELD_INT ? "integer" : "number", NULL);
        schema_write_bounds(o, f);
        break;
    case FIELD_STRING:
        schema_write_type(o, f, "string", NULL);
        if (request_field_max_bytes(f) > 0) {
            json_int(json_name(o, "maxLength"), (int64_t)request_field_max_bytes(f));
        }
        break;
    case FIELD_STRINGS:
        schema_write_type(o, f, "string", "array");
        schema_write_items(o, f, "string");
        break;
    case FIELD_INTS:
        schema_write_type(o, f, "array", NULL);
        schema_write_items(o, f, "integer");
        break;
    case FIELD_OBJECT:
        schema_write_type(o, f, "object", NULL);
        schema_write_members(o, ctx, endpoint, f);
        break;
    case FIELD_ARRAY:
        schema_write_type(o, f, "array", NULL);
        break;
    case FIELD_PROMPT:
        schema_write_prompt(o, ctx, f);
        break;
    case FIELD_MESSAGES:
        schema_write_messages(o, (f->flags & FIELD_CHAT_BATCH) != 0);
        break;
    case FIELD_ANY:
        schema_write_forms(o, ctx, endpoint, f);
        break;
    }
}

/* Writes "enum": the values of a JSON array and, if the field takes null, null. */
static void schema_write_enum(json_out *o, const field_desc *f, str values) {
    json_begin(json_name(o, "enum"), '[');
    json_raw_part(json_item(o), values);
    if (schema_takes_null(f) && !str_is(values, "null")) {
        json_raw(json_item(o), "null");
    }
    json_end(o, ']');
}

/* Writes the default of a row that stores a number: the server's if it has one, else the
 * API's. A row for which null means none has a default below its range. */
static void schema_write_default(json_out *o, const request_context *ctx, const field_desc *f) {
    const double *own = request_defaults_find(ctx->defaults, f->name);
    double value = own != NULL ? *own : f->number;
    if (f->fallback != NULL) {
        json_raw(json_name(o, "default"), f->fallback);
    } else if (f->place > 0 && f->type == FIELD_BOOL) {
        json_bool(json_name(o, "default"), value != 0);
    } else if (own != NULL || (f->place > 0 && value >= f->minimum)) {
        schema_write_number(json_name(o, "default"), value);
    }
}

static void schema_write_meaning(json_out *o, const field_desc *f) {
    static const char later[] = ". Not implemented: only the default is accepted.",
                      ignored[] = ". Accepted without effect.";
    const char *end = f->flags & FIELD_LATER ? later : f->flags & FIELD_IGNORED ? ignored : "";
    json_texts(json_name(o, "description"), str_of(f->meaning), str_of(end));
}

static void schema_write_field(json_out *o, const request_context *ctx, uint32_t endpoint,
                               const field_desc *f) {
    json_begin(o, '{');
    schema_write_meaning(o, f);
    if (f->flags & FIELD_LATER) {
        schema_write_enum(o, f, str_of(f->fallback));
    } else {
        schema_write_kind(o, ctx, endpoint, f);
    }
    if (f->choices != NULL) {
        schema_write_enum(o, f, (str){f->choices + 1, strlen(f->choices) - 2});
    }
    schema_write_default(o, ctx, f);
    json_end(o, '}');
}

/* Whether f is a field of the body itself, and the row that the endpoint uses. */
static bool schema_has_row(const field_desc *f, uint32_t endpoint) {
    return strchr(f->name, '.') == NULL && request_field(f->name, endpoint) == f;
}

/* Whether a body without the field is refused. A chat does not require its prompt field,
 * since it has messages. */
static bool schema_requires(const field_desc *f, const dialect *d) {
    return schema_has_row(f, d->fields) && (f->flags & FIELD_REQUIRED) &&
           !(d->is_chat && f->type == FIELD_PROMPT);
}

void request_schema(const request_context *ctx, quire_endpoint endpoint, json_out *o) {
    int32_t n;
    uint32_t flag = request_dialects[endpoint].fields;
    const field_desc *fields = request_fields(&n);
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), "object");
    json_begin(json_name(o, "properties"), '{');
    for (int32_t i = 0; i < n; i++) {
        if (schema_has_row(&fields[i], flag)) {
            json_name(o, fields[i].name);
            schema_write_field(o, ctx, flag, &fields[i]);
        }
    }
    json_end(o, '}');
    json_begin(json_name(o, "required"), '[');
    for (int32_t i = 0; i < n; i++) {
        if (schema_requires(&fields[i], &request_dialects[endpoint])) {
            json_cstr(json_item(o), fields[i].name);
        }
    }
    json_end(o, ']');
    json_end(o, '}');
}
