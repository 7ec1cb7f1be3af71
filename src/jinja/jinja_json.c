/* Reads JSON into values and writes values as JSON. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "jinja/jinja_big.h"
#include "jinja/jinja_run.h"
#include "json/json_check.h"
#include "json/json_scan.h"

/* ---- reading: text that json_check accepted, so that only memory can fail ---- */

static const json_limits limits = {.max_depth = 128, /* less than JVALUE_MAX_DEPTH */
                                   .max_values = (size_t)1 << 26,
                                   .max_containers = (size_t)1 << 22,
                                   .max_names = (size_t)1 << 24,
                                   /* of equal names the last counts, as in Python */
                                   .names = JSON_NAMES_LAST,
                                   .takes_nul = true};

static quire_err jinja_json_convert(jrun *r, json_scan *s, jvalue *out);

static quire_err convert_text(jrun *r, json_scan *s, bool is_name, jvalue *out) {
    strbuf scratch = {0};
    str text = {0}, copy = {0};
    quire_err e = is_name ? json_scan_key(s, &scratch, &text) : json_scan_string(s, &scratch, &text);
    bool is_over = e == QUIRE_CANCELLED || e == QUIRE_TOO_LARGE,
         copied = e == QUIRE_OK && jarena_copy_as(&r->arena, text, JINJA_INPUT, &copy);
    strbuf_deinit(&scratch);
    *out = jstring(copy);
    return copied ? jrun_step(r, copy.n / 64) : is_over ? jrun_over(r, e) : jrun_no_memory(r);
}

static quire_err convert_array(jrun *r, json_scan *s, jvalue *out) {
    jvalue *items = NULL;
    size_t n = 0, cap = 0;
    bool more;
    TRY(json_scan_open(s, '['));
    for (;;) {
        TRY(json_scan_more(s, ']', &more));
        if (!more) {
            return jrun_list(r, J_LIST, items, n, out);
        }
        TRY(jrun_step(r, 1));
        if (!jarena_grow(&r->arena, &items, &cap, n, sizeof *items)) {
            TRY(jrun_no_memory(r));
        }
        TRY(jinja_json_convert(r, s, &items[n]));
        n++;
    }
}

/* Gives a text that counts as the template's (jinja_words) the template's origin. */
static quire_err own(jrun *r, str name, jvalue *v) {
    const jinja_words *w = &r->program->own;
    bool is =
        w->member != NULL && jis(*v, J_STRING) && str_is(name, w->member) && jname_in(v->u.s, w->words, w->n);
    return is ? jrun_text(r, v->u.s, v) : QUIRE_OK;
}

static quire_err convert_object(jrun *r, json_scan *s, jvalue *out) {
    jdict *d;
    bool more;
    TRY(jrun_dict(r, &d));
    TRY(json_scan_open(s, '{'));
    for (;;) {
        jvalue key, value;
        TRY(json_scan_more(s, '}', &more));
        if (!more) {
            break;
        }
        TRY(convert_text(r, s, true, &key));
        TRY(jinja_json_convert(r, s, &value));
        TRY(own(r, key.u.s, &value));
        TRY(jrun_set(r, d, key, value));
    }
    *out = (jvalue){.kind = J_DICT, .u.dict = d};
    return QUIRE_OK;
}

static quire_err convert_number(jrun *r, json_scan *s, jvalue *out) {
    char digits[64];
    json_scan_value v;
    TRY(json_scan_number(s, &v));
    if (v.is_integer) {
        bool negative = v.text.p[0] == '-';
        *out = v.fits ? jint(v.value)
                      : jbig_parse(&r->arena, (str){v.text.p + negative, v.text.n - negative}, 10, negative);
        return jis(*out, J_MISSING) ? jrun_too_big(r) : QUIRE_OK;
    }
    if (v.text.n < sizeof digits) {
        memcpy(digits, v.text.p, v.text.n);
        digits[v.text.n] = 0;
        *out = jfloat(strtod(digits, NULL));
        return QUIRE_OK;
    }
    char *copy = mem_dup(v.text.p, v.text.n);
    TRY(jrun_check_memory(r, copy));
    *out = jfloat(strtod(copy, NULL));
    mem_free(copy);
    return QUIRE_OK;
}

static quire_err convert_any(jrun *r, json_scan *s, jvalue *out) {
    str word;
    switch (json_scan_peek(s)) {
    case '"':
        return convert_text(r, s, false, out);
    case '[':
        return convert_array(r, s, out);
    case '{':
        return convert_object(r, s, out);
    case 't':
    case 'f':
    case 'n':
        TRY(json_scan_word(s, &word));
        *out = word.p[0] == 'n' ? jnone() : jbool(word.p[0] == 't');
        return QUIRE_OK;
    default:
        return convert_number(r, s, out);
    }
}

static quire_err jinja_json_convert(jrun *r, json_scan *s, jvalue *out) {
    TRY(convert_any(r, s, out));
    out->is_input = true;
    return QUIRE_OK;
}

quire_err jjson_read(jrun *r, str text, jvalue *out) {
    json_fault fault;
    quire_err e = json_check(text, &limits, NULL, &fault);
    if (e == QUIRE_NO_MEMORY || e == QUIRE_CANCELLED) {
        return e == QUIRE_CANCELLED ? jrun_over(r, e) : jrun_no_memory(r);
    }
    if (e != QUIRE_OK) {
        return jrun_fail(r, e == QUIRE_TOO_LARGE ? e : QUIRE_INVALID,
                         "the variables are not JSON: %s at byte %zu", fault.what, fault.at);
    }
    json_scan s = {.text = text};
    return jinja_json_convert(r, &s, out);
}

/* ---- writing: Python's json.dumps ---- */

/* Writes a character that must be escaped. */
static quire_err write_escape(int32_t c, jout *out) {
    /* characters with a one-letter escape, and the letters */
    static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *short_form = c > 0 && c < 0x80 ? strchr(plain, c) : NULL;
    if (short_form != NULL) {
        return jout_f(out, "\\%c", letters[short_form - plain]);
    }
    if (c < 0x10000) {
        return jout_f(out, "\\u%04x", (unsigned)c);
    }
    unsigned v = (unsigned)c - 0x10000;
    return jout_f(out, "\\u%04x\\u%04x", 0xd800 + (v >> 10), 0xdc00 + (v & 0x3ff));
}

static bool jinja_json_is_plain(char c, bool ascii) {
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\' && ((unsigned char)c < 0x7f || !ascii);
}

/* Writes the characters between the quotes. An escape has its character's origin. */
static quire_err jinja_json_write_inside(str s, bool ascii, jout *out) {
    jorigins origins = jarena_origins(out->arena, s);
    for (size_t i = 0; i < s.n;) {
        size_t start = i, size;
        while (i < s.n && jinja_json_is_plain(s.p[i], ascii)) {
            i++;
        }
        if (i > start) {
            TRY(jout_add(out, (str){s.p + start, i - start}));
        }
        if (i < s.n) {
            int32_t c = jchar_at(s.p + i, s.n - i, &size);
            out->origin = jorigins_at(origins, i);
            TRY(c >= 0 ? write_escape(c, out) : jout_add(out, (str){s.p + i, size}));
            i += size;
        }
    }
    return QUIRE_OK;
}

static quire_err write_string(str s, bool ascii, jout *out) {
    uint8_t origin = out->origin;
    TRY(jout_char(out, '"'));
    TRY(jinja_json_write_inside(s, ascii, out));
    out->origin = origin;
    return jout_char(out, '"');
}

static quire_err jinja_json_write_float(double f, jout *out) {
    if (isfinite(f)) {
        return jfloat_write(f, out);
    }
    return jout_str(out, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
}

static quire_err jinja_json_break_line(const jjson_style *style, int level, jout *out) {
    if (!style->indented) {
        return QUIRE_OK;
    }
    TRY(jout_char(out, '\n'));
    for (int i = 0; i < level; i++) {
        TRY(jout_add(out, style->indent));
    }
    return QUIRE_OK;
}

static quire_err write_value(jrun *r, jvalue v, const jjson_style *style, int level, jout *out);

static quire_err write_array(jrun *r, const jlist *l, const jjson_style *style, int level, jout *out) {
    TRY(jrun_memory(r, jout_char(out, '[')));
    for (size_t i = 0; i < l->n; i++) {
        TRY(jrun_memory(r, i > 0 ? jout_add(out, style->item_separator) : QUIRE_OK));
        TRY(jrun_memory(r, jinja_json_break_line(style, level + 1, out)));
        TRY(write_value(r, l->items[i], style, level + 1, out));
    }
    TRY(jrun_memory(r, l->n > 0 ? jinja_json_break_line(style, level, out) : QUIRE_OK));
    return jrun_memory(r, jout_char(out, ']'));
}

static quire_err jinja_json_write_key(jrun *r, jvalue key, const jjson_style *style, jout *out) {
    switch (key.kind) {
    case J_STRING:
        return jrun_memory(r, write_string(key.u.s, style->ascii, out));
    case J_NONE:
        return jrun_memory(r, jout_str(out, "\"null\""));
    case J_BOOL:
        return jrun_memory(r, jout_str(out, key.u.b ? "\"true\"" : "\"false\""));
    case J_INT:
    case J_HUGE:
    case J_FLOAT:
        TRY(jrun_memory(r, jout_char(out, '"')));
        TRY(write_value(r, key, style, 0, out));
        return jrun_memory(r, jout_char(out, '"'));
    default:
        return jrun_fail(r, QUIRE_BAD_REQUEST, "keys must be str, int, float, bool or None, not %s",
                         jvalue_type(key));
    }
}

/* Lists the entries in their order, or sorted by key: by insertion, since dictionaries
 * are small. */
static quire_err jjson_order(jrun *r, const jdict *d, bool sort, size_t **order) {
    assert(d != NULL);
    *order = jarena_new(&r->arena, (d->n + 1) * sizeof **order);
    TRY(jrun_check_memory(r, *order));
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

static quire_err jinja_json_write_object(jrun *r, const jdict *d, const jjson_style *style, int level,
                                         jout *out) {
    size_t *order;
    TRY(jjson_order(r, d, style->sort_keys, &order));
    TRY(jrun_memory(r, jout_char(out, '{')));
    for (size_t i = 0; i < d->n; i++) {
        const jentry *entry = &d->entries[order[i]];
        TRY(jrun_memory(r, i > 0 ? jout_add(out, style->item_separator) : QUIRE_OK));
        TRY(jrun_memory(r, jinja_json_break_line(style, level + 1, out)));
        TRY(jinja_json_write_key(r, entry->key, style, out));
        TRY(jrun_memory(r, jout_add(out, style->key_separator)));
        TRY(write_value(r, entry->value, style, level + 1, out));
    }
    TRY(jrun_memory(r, d->n > 0 ? jinja_json_break_line(style, level, out) : QUIRE_OK));
    return jrun_memory(r, jout_char(out, '}'));
}

static quire_err write_kind(jrun *r, jvalue v, const jjson_style *style, int level, jout *out) {
    switch (v.kind) {
    case J_NONE:
        return jrun_memory(r, jout_str(out, "null"));
    case J_BOOL:
        return jrun_memory(r, jout_str(out, v.u.b ? "true" : "false"));
    case J_INT:
        return jrun_memory(r, jout_f(out, "%lld", (long long)v.u.i));
    case J_FLOAT:
        return jrun_memory(r, jinja_json_write_float(v.u.f, out));
    case J_STRING:
        return jrun_memory(r, write_string(v.u.s, style->ascii, out));
    case J_LIST:
    case J_TUPLE:
        return write_array(r, v.u.list, style, level, out);
    case J_DICT:
        return jinja_json_write_object(r, v.u.dict, style, level, out);
    case J_HUGE:
        return jrun_memory(r, jvalue_write(v, out));
    default:
        return jrun_fail(r, QUIRE_BAD_REQUEST, "Object of type %s is not JSON serializable", jvalue_type(v));
    }
}

static quire_err write_value(jrun *r, jvalue v, const jjson_style *style, int level, jout *out) {
    uint8_t around = out->origin;
    TRY(jrun_step(r, 1));
    out->origin = v.is_input ? JINJA_INPUT : JINJA_TEMPLATE;
    TRY(write_kind(r, v, style, level, out));
    out->origin = around;
    return QUIRE_OK;
}

quire_err jjson_write(jrun *r, jvalue v, const jjson_style *style, jout *out) {
    return write_value(r, v, style, 0, out);
}
