/* Spellings of words, strings and names other than those of plain JSON. */
#include "grammar/parts.h"
#include "grammar/value_shape.h"

#define LONGEST_COUNTED 16 /* characters that a dfa counts */

bool style_is_plain(const schema *s) {
    return s->style == STYLE_JSON && s->avoid == DFA_ANY;
}

const char *style_word(const schema *s, const char *json) {
    bool is_python = s->style == STYLE_PYTHON;
    return !is_python ? json : *json == 'n' ? "None" : *json == 't' ? "True" : "False";
}

static uint32_t literal(schema *s, str text, uint32_t next) {
    return build_bytes(s->b, text, next);
}

/* The same, where special tokens are themselves. */
static uint32_t quote(schema *s, uint32_t next) {
    return parts_emit_text(s->parts, s->arguments->quote, next);
}

static bool has_length(const string_part *p) {
    return p->min > 0 || p->max != NFA_NONE;
}

/* Whether the length is counted apart and not by the text's dfa: nothing else is asked of the text, or it is too long for a dfa. */
static bool is_long(const string_part *p) {
    uint32_t last = p->max != NFA_NONE ? p->max : p->min;
    return p->dfa == DFA_ANY && has_length(p) && last > LONGEST_COUNTED;
}

/* ---- characters, counted ---- */

/* The class of characters from `lo` on without those in `not` (ascending). */
static uint32_t class_without(schema *s, uint32_t lo, const uint32_t * not, uint32_t n) {
    nfa_range ranges[16];
    uint32_t n_ranges = 0;
    for (uint32_t i = 0; i < n && n_ranges < 15; i++) {
        if (not [i] > lo) {
            ranges[n_ranges++] = (nfa_range){lo, not [i] - 1};
        }
        lo = not [i] >= lo ? not [i] + 1 : lo;
    }
    ranges[n_ranges++] = (nfa_range){lo, NFA_MAX_CHAR};
    return build_class(s->b, ranges, n_ranges);
}

/* p.min to p.max characters of what values may hold. More than fit into a number of the machine never come. */
static uint32_t text_of_length(schema *s, const string_part *p, nfa_mode mode, uint32_t next) {
    nfa *a = &s->b->a;
    uint32_t placed = dfa_place(s->dfas, s->avoid);
    nfa_text *t = NFA_PUSH(s->b, a->texts);
    if (t == NULL) {
        return NFA_FAIL_NODE;
    }
    *t = (nfa_text){.first = a->dfas.p[placed], .n = s->dfas->all.p[s->avoid].states.n, .min = p->min, .max = p->max};
    uint32_t most = NFA_NONE / t->n - 1;
    t->max = p->max == NFA_NONE || p->max < most ? p->max : most;
    if (p->min > most) {
        (void)build_fail(s->b, QUIRE_TOO_LARGE, -1, "a string of at least %u characters", p->min);
    }
    return build_node(s->b, NFA_TEXT, mode, a->texts.n - 1, 0, next);
}

/* p.min to p.max characters of a Python string in these quotes, some of them behind a backslash. */
static uint32_t python_text_of_length(schema *s, const string_part *p, char quote, uint32_t next) {
    static const char escaped[] = "\"'\\nrt";
    nfa_range ranges[sizeof escaped - 1];
    const uint32_t not [] = {(uint8_t)quote, '\\'};
    for (uint32_t i = 0; i < sizeof escaped - 1; i++) {
        ranges[i] = (nfa_range){(uint8_t)escaped[i], (uint8_t)escaped[i]};
    }
    uint32_t class = class_without(s, 0x20, not, 2), class_escaped = build_class(s->b, ranges, sizeof escaped - 1);
    uint32_t plain = build_node(s->b, NFA_CLASS, NFA_RAW, class, 0, NFA_RETURN_NODE);
    uint32_t behind = build_node(s->b, NFA_CLASS, NFA_RAW, class_escaped, 0, NFA_RETURN_NODE);
    return build_repeat(s->b, build_split2(s->b, plain, literal(s, str_of("\\"), behind)), p->min, p->max, next);
}

/* ---- strings ---- */

static uint32_t string_of_dfa(schema *s, uint32_t x, uint32_t next) {
    return dfa_is_empty(s->dfas, x) ? NFA_FAIL_NODE : build_node(s->b, NFA_STRING, NFA_RAW, dfa_place(s->dfas, x), 0, next);
}

static uint32_t avoiding(schema *s, const string_part *p) {
    return dfa_combine(s->dfas, string_dfa(s, p), s->avoid, DFA_AND);
}

uint32_t style_raw_string(schema *s, const string_part *p, uint32_t also, uint32_t next) {
    if (is_long(p) && also == DFA_ANY) {
        return text_of_length(s, p, NFA_RAW, next);
    }
    return string_of_dfa(s, dfa_combine(s->dfas, avoiding(s, p), also, DFA_AND), next);
}

static uint32_t python_string(schema *s, const string_part *p, uint32_t next) {
    static const char quotes[] = "\"'";
    uint32_t ways[2];
    for (int i = 0; i < 2; i++) {
        str mark = {quotes + i, 1};
        uint32_t end = literal(s, mark, next), body;
        if (is_long(p)) {
            body = python_text_of_length(s, p, quotes[i], end);
        } else {
            body = string_of_dfa(s, dfa_quoted(s->dfas, string_dfa(s, p), quotes[i]), end);
        }
        ways[i] = body == NFA_FAIL_NODE ? body : literal(s, mark, body);
    }
    return build_split(s->b, ways, 2);
}

static uint32_t json_string(schema *s, const string_part *p, uint32_t next) {
    if (is_long(p)) {
        return literal(s, str_of("\""), text_of_length(s, p, NFA_JSON, literal(s, str_of("\""), next)));
    }
    return schema_string(s, avoiding(s, p), p->dfa == DFA_ANY ? NFA_JSON : NFA_PLAIN, next);
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
        return style_is_word(name) ? literal(s, name, next) : NFA_FAIL_NODE;
    }
    if (s->style == STYLE_PYTHON) {
        return python_string(s, &(string_part){dfa_names(s->dfas, &name, 1), 0, NFA_NONE, false}, next);
    }
    return dfa_accepts(s->dfas, s->avoid, name) ? schema_json_name(s, name, next) : NFA_FAIL_NODE;
}

uint32_t style_open_name(schema *s, uint32_t names, uint32_t next) {
    if (s->style == STYLE_GEMMA) {
        names = dfa_combine(s->dfas, names, dfa_pattern(s->dfas, str_of("^[A-Za-z_][A-Za-z0-9_]{0,63}$")), DFA_AND);
        return string_of_dfa(s, names, next);
    }
    if (s->style == STYLE_PYTHON) {
        return python_string(s, &(string_part){names, 0, NFA_NONE, false}, next);
    }
    return schema_string(s, dfa_combine(s->dfas, names, s->avoid, DFA_AND), NFA_JSON, next);
}
