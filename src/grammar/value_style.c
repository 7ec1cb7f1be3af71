/* Spellings of words, strings and names other than those of plain JSON. */
#include "grammar/parts.h"
#include "grammar/value_shape.h"

bool style_is_plain(const schema *s) {
    return s->style == STYLE_JSON && s->avoid == DFA_ANY;
}

const char *style_word(const schema *s, const char *json) {
    bool is_python = s->style == STYLE_PYTHON;
    return !is_python ? json : *json == 'n' ? "None" : *json == 't' ? "True" : "False";
}

static uint32_t value_style_literal(schema *s, str text, uint32_t next) {
    return build_bytes(s->b, text, next);
}

/* The same, where special tokens are themselves. */
static uint32_t quote(schema *s, uint32_t next) {
    return parts_emit_text(s->parts, s->arguments->quote, next);
}

/* ---- strings ---- */

static uint32_t avoiding(schema *s, const string_part *p) {
    return dfa_combine(s->dfas, p->dfa, s->avoid, DFA_AND);
}

uint32_t style_raw_string(schema *s, const string_part *p, uint32_t also, uint32_t next) {
    return schema_text(s, dfa_combine(s->dfas, avoiding(s, p), also, DFA_AND), p, NFA_RAW, next);
}

static uint32_t python_string(schema *s, const string_part *p, uint32_t next) {
    static const char quotes[] = "\"'";
    uint32_t ways[2];
    for (int i = 0; i < 2; i++) {
        str mark = {quotes + i, 1};
        uint32_t body = schema_text(s, dfa_quoted(s->dfas, p->dfa, quotes[i]), p, NFA_RAW,
                                    value_style_literal(s, mark, next));
        ways[i] = body == NFA_FAIL_NODE ? body : value_style_literal(s, mark, body);
    }
    return build_split(s->b, ways, 2);
}

static uint32_t json_string(schema *s, const string_part *p, uint32_t next) {
    uint32_t text = schema_text(s, avoiding(s, p), p, p->dfa == DFA_ANY ? NFA_JSON : NFA_PLAIN,
                                value_style_literal(s, str_of("\""), next));
    return text == NFA_FAIL_NODE ? text : value_style_literal(s, str_of("\""), text);
}

uint32_t style_string(schema *s, const string_part *p, uint32_t next) {
    switch (s->style) {
    case STYLE_PYTHON:
        return python_string(s, p, next);
    case STYLE_GEMMA: {
        uint32_t text = style_raw_string(s, p, DFA_ANY, quote(s, next));
        return text == NFA_FAIL_NODE ? text : quote(s, text);
    }
    default:
        return json_string(s, p, next);
    }
}

/* ---- names ---- */

bool style_is_word(str name) {
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (uint8_t)c >= 0x80;
        if (!is_letter && (i == 0 || !((c >= '0' && c <= '9') || c == '-' || c == '.'))) {
            return false;
        }
    }
    return name.n > 0;
}

uint32_t style_name(schema *s, str name, uint32_t next) {
    if (s->style == STYLE_GEMMA) {
        return style_is_word(name) ? value_style_literal(s, name, next) : NFA_FAIL_NODE;
    }
    if (s->style == STYLE_PYTHON) {
        return python_string(s, &(string_part){dfa_names(s->dfas, &name, 1), 0, NFA_NONE, false}, next);
    }
    return dfa_accepts(s->dfas, s->avoid, name) ? schema_json_name(s, name, next) : NFA_FAIL_NODE;
}

uint32_t style_open_names(schema *s) {
    return s->style == STYLE_GEMMA    ? dfa_pattern(s->dfas, str_of(STYLE_WORDS))
           : s->style == STYLE_PYTHON ? dfa_pattern(s->dfas, str_of("^[^\\x00-\\x08\\x0B\\x0C\\x0E-\\x1F]*$"))
                                      : s->avoid;
}

uint32_t style_open_name(schema *s, const open_way *w, uint32_t next) {
    static const char quotes[] = "\"'";
    uint32_t ways[2], n = s->style == STYLE_PYTHON ? 2 : 1;
    if (s->style == STYLE_GEMMA) {
        return schema_open_name(s, w, w->names, NFA_RAW, next);
    }
    for (uint32_t i = 0; i < n; i++) {
        str mark = {quotes + i, 1};
        uint32_t names = n > 1 ? dfa_quoted(s->dfas, w->names, quotes[i]) : w->names;
        uint32_t text =
            schema_open_name(s, w, names, n > 1 ? NFA_RAW : NFA_JSON, value_style_literal(s, mark, next));
        ways[i] = text == NFA_FAIL_NODE ? text : value_style_literal(s, mark, text);
    }
    return build_split(s->b, ways, n);
}
