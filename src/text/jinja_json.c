/* JSON in and out of values. */
#include <json-c/json.h>
#include <math.h>

#include "text/jinja_run.h"

enum { MAX_JSON_DEPTH = 128 }; /* under JVALUE_MAX_DEPTH */

/* ---- reading ---- */

static quire_err convert(jrun *r, json_object *v, jvalue *out);

static quire_err convert_text(jrun *r, const char *p, size_t n, jvalue *out) {
    return jrun_text(r, (str){p, n}, out);
}

static quire_err convert_array(jrun *r, json_object *v, jvalue *out) {
    jvalue *items;
    size_t n = json_object_array_length(v);
    TRY(jrun_values(r, n, &items));
    for (size_t i = 0; i < n; i++) {
        TRY(convert(r, json_object_array_get_idx(v, i), &items[i]));
    }
    return jrun_list(r, J_LIST, items, n, out);
}

static quire_err convert_object(jrun *r, json_object *v, jvalue *out) {
    jdict *d = jdict_new(&r->arena);
    if (d == NULL) {
        return jrun_no_memory(r);
    }
    json_object_object_foreach(v, name, member) {
        jvalue key, value;
        TRY(convert_text(r, name, strlen(name), &key));
        TRY(convert(r, member, &value));
        TRY(jrun_set(r, d, key, value));
    }
    *out = (jvalue){.kind = J_DICT, .u.dict = d};
    return QUIRE_OK;
}

static quire_err convert(jrun *r, json_object *v, jvalue *out) {
    switch (json_object_get_type(v)) {
    case json_type_null:
        *out = jnone();
        return QUIRE_OK;
    case json_type_boolean:
        *out = jbool(json_object_get_boolean(v));
        return QUIRE_OK;
    case json_type_double:
        *out = jfloat(json_object_get_double(v));
        return QUIRE_OK;
    case json_type_int: {
        /* json-c saturates what an int64 cannot hold, to its smallest value or to an uint64 above its largest. */
        int64_t i = json_object_get_int64(v);
        *out = i == INT64_MIN || json_object_get_uint64(v) > (uint64_t)INT64_MAX ? (jvalue){.kind = J_HUGE} : jint(i);
        return QUIRE_OK;
    }
    case json_type_string:
        return convert_text(r, json_object_get_string(v), (size_t)json_object_get_string_len(v), out);
    case json_type_array:
        return convert_array(r, v, out);
    default:
        return convert_object(r, v, out);
    }
}

quire_err jjson_read(jrun *r, str text, jvalue *out) {
    if (text.n > INT32_MAX) {
        return jrun_fail(r, QUIRE_TOO_LARGE, "%zu bytes of variables", text.n);
    }
    json_tokener *parser = json_tokener_new_ex(MAX_JSON_DEPTH);
    if (parser == NULL) {
        return jrun_no_memory(r);
    }
    json_tokener_set_flags(parser, JSON_TOKENER_STRICT);
    json_object *v = json_tokener_parse_ex(parser, text.p, (int)text.n);
    enum json_tokener_error state = json_tokener_get_error(parser);
    size_t end = json_tokener_get_parse_end(parser);
    json_tokener_free(parser);
    quire_err e = state != json_tokener_success || end != text.n
                      ? jrun_fail(r, QUIRE_INVALID, "the variables are not JSON: %s at byte %zu", json_tokener_error_desc(state), end)
                      : convert(r, v, out);
    json_object_put(v);
    return e;
}

/* ---- writing: Python's json.dumps ---- */

static quire_err memory(jrun *r, quire_err e) {
    return e == QUIRE_OK ? e : jrun_no_memory(r);
}

static quire_err write_string(str s, bool ascii, strbuf *out) {
    TRY(strbuf_add_char(out, '"'));
    for (size_t i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        switch (c) {
        case '"':
            TRY(strbuf_add_str(out, "\\\""));
            break;
        case '\\':
            TRY(strbuf_add_str(out, "\\\\"));
            break;
        case '\n':
            TRY(strbuf_add_str(out, "\\n"));
            break;
        case '\r':
            TRY(strbuf_add_str(out, "\\r"));
            break;
        case '\t':
            TRY(strbuf_add_str(out, "\\t"));
            break;
        case '\f':
            TRY(strbuf_add_str(out, "\\f"));
            break;
        case '\b':
            TRY(strbuf_add_str(out, "\\b"));
            break;
        default:
            if (c >= 0 && c < 0x20) {
                TRY(strbuf_addf(out, "\\u%04x", (unsigned)c));
            } else if (c < 0x7f || !ascii) {
                TRY(strbuf_add(out, s.p + i, size));
            } else if (c < 0x10000) {
                TRY(c == 0x7f ? strbuf_add_char(out, 0x7f) : strbuf_addf(out, "\\u%04x", (unsigned)c));
            } else {
                unsigned v = (unsigned)c - 0x10000;
                TRY(strbuf_addf(out, "\\u%04x\\u%04x", 0xd800 + (v >> 10), 0xdc00 + (v & 0x3ff)));
            }
        }
    }
    return strbuf_add_char(out, '"');
}

static quire_err write_float(double f, strbuf *out) {
    if (isfinite(f)) {
        return jfloat_write(f, out);
    }
    return strbuf_add_str(out, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
}

static quire_err break_line(const jjson_style *style, int level, strbuf *out) {
    if (!style->indented) {
        return QUIRE_OK;
    }
    TRY(strbuf_add_char(out, '\n'));
    for (int i = 0; i < level; i++) {
        TRY(strbuf_add(out, style->indent.p, style->indent.n));
    }
    return QUIRE_OK;
}

static quire_err write_value(jrun *r, jvalue v, const jjson_style *style, int level, strbuf *out);

static quire_err write_array(jrun *r, const jlist *l, const jjson_style *style, int level, strbuf *out) {
    TRY(memory(r, strbuf_add_char(out, '[')));
    for (size_t i = 0; i < l->n; i++) {
        TRY(memory(r, i > 0 ? strbuf_add(out, style->item_separator.p, style->item_separator.n) : QUIRE_OK));
        TRY(memory(r, break_line(style, level + 1, out)));
        TRY(write_value(r, l->items[i], style, level + 1, out));
    }
    TRY(memory(r, l->n > 0 ? break_line(style, level, out) : QUIRE_OK));
    return memory(r, strbuf_add_char(out, ']'));
}

static quire_err write_key(jrun *r, jvalue key, const jjson_style *style, strbuf *out) {
    switch (key.kind) {
    case J_STRING:
        return memory(r, write_string(key.u.s, style->ascii, out));
    case J_NONE:
        return memory(r, strbuf_add_str(out, "\"null\""));
    case J_BOOL:
        return memory(r, strbuf_add_str(out, key.u.b ? "\"true\"" : "\"false\""));
    case J_INT:
    case J_FLOAT:
        TRY(memory(r, strbuf_add_char(out, '"')));
        TRY(write_value(r, key, style, 0, out));
        return memory(r, strbuf_add_char(out, '"'));
    default:
        return jrun_fail(r, QUIRE_BAD_REQUEST, "keys must be str, int, float, bool or None, not %s", jvalue_type(key));
    }
}

/* The order of the entries: as they are, or (insertion sort of numbers of entries; dictionaries are small) by key. */
static quire_err entry_order(jrun *r, const jdict *d, bool sort, size_t **order) {
    *order = jarena_new(&r->arena, (d->n + 1) * sizeof **order);
    if (*order == NULL) {
        return jrun_no_memory(r);
    }
    for (size_t i = 0; i < d->n; i++) {
        size_t at = i;
        for (; sort && at > 0; at--) {
            int cmp;
            TRY(jrun_step(r, 1));
            TRY(jop_order(r, "<", d->entries[(*order)[at - 1]].key, d->entries[i].key, &cmp));
            if (cmp <= 0) {
                break;
            }
            (*order)[at] = (*order)[at - 1];
        }
        (*order)[at] = i;
    }
    return QUIRE_OK;
}

static quire_err write_object(jrun *r, const jdict *d, const jjson_style *style, int level, strbuf *out) {
    size_t *order;
    TRY(entry_order(r, d, style->sort_keys, &order));
    TRY(memory(r, strbuf_add_char(out, '{')));
    for (size_t i = 0; i < d->n; i++) {
        const jentry *entry = &d->entries[order[i]];
        TRY(memory(r, i > 0 ? strbuf_add(out, style->item_separator.p, style->item_separator.n) : QUIRE_OK));
        TRY(memory(r, break_line(style, level + 1, out)));
        TRY(write_key(r, entry->key, style, out));
        TRY(memory(r, strbuf_add(out, style->key_separator.p, style->key_separator.n)));
        TRY(write_value(r, entry->value, style, level + 1, out));
    }
    TRY(memory(r, d->n > 0 ? break_line(style, level, out) : QUIRE_OK));
    return memory(r, strbuf_add_char(out, '}'));
}

static quire_err write_value(jrun *r, jvalue v, const jjson_style *style, int level, strbuf *out) {
    TRY(jrun_step(r, 1));
    switch (v.kind) {
    case J_NONE:
        return memory(r, strbuf_add_str(out, "null"));
    case J_BOOL:
        return memory(r, strbuf_add_str(out, v.u.b ? "true" : "false"));
    case J_INT:
        return memory(r, strbuf_addf(out, "%lld", (long long)v.u.i));
    case J_FLOAT:
        return memory(r, write_float(v.u.f, out));
    case J_STRING:
        return memory(r, write_string(v.u.s, style->ascii, out));
    case J_LIST:
    case J_TUPLE:
        return write_array(r, v.u.list, style, level, out);
    case J_DICT:
        return write_object(r, v.u.dict, style, level, out);
    case J_HUGE:
        return jrun_fail(r, QUIRE_UNSUPPORTED, "integers of more than 64 bits are not supported");
    default:
        return jrun_fail(r, QUIRE_BAD_REQUEST, "Object of type %s is not JSON serializable", jvalue_type(v));
    }
}

quire_err jjson_write(jrun *r, jvalue v, const jjson_style *style, strbuf *out) {
    return write_value(r, v, style, 0, out);
}
