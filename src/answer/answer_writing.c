/* Parses the writings of answer formats: the texts between their holes, and the marks
 * that a parser looks for. */
#include <assert.h>
#include <ctype.h>

#include "answer/answer_format.h"

/* ---- texts with holes ---- */

static bool writing_is_code(char c) {
    return (unsigned char)c < ' ' && c != '\n';
}

/* Removes the text before the first of the codes from *s, together with that code. */
static str writing_upto(str *s, const char *codes) {
    str part = {s->p, 0};
    while (part.n < s->n && strchr(codes, s->p[part.n]) == NULL) {
        part.n++;
    }
    size_t n = part.n + (part.n < s->n);
    *s = (str){s->p + n, s->n - n};
    return part;
}

static const char *writing_find(str s, char code) {
    return s.n > 0 ? memchr(s.p, code, s.n) : NULL;
}

bool writing_next(str *text, str *literal, char *hole) {
    assert(text != NULL);
    while (text->n > 0 && writing_is_code(text->p[0])) {
        *hole = text->p[0];
        *text = (str){text->p + 1, text->n - 1};
        if (*hole < EDGE_CALLS) {
            *literal = (str){"", 0};
            return true;
        }
    }
    *hole = 0;
    *literal = (str){text->p, 0};
    while (literal->n < text->n && !writing_is_code(literal->p[literal->n])) {
        literal->n++;
    }
    *text = (str){text->p + literal->n, text->n - literal->n};
    return literal->n > 0;
}

/* Without white space and quotes at its ends, and without `edges` at its beginning. */
static str writing_trim(str s, const char *edges) {
    while (s.n > 0 && (strchr(" \n\"", s.p[0]) != NULL || strchr(edges, s.p[0]) != NULL)) {
        s = (str){s.p + 1, s.n - 1};
    }
    while (s.n > 0 && strchr(" \n\"", s.p[s.n - 1]) != NULL) {
        s.n--;
    }
    return s;
}

str writing_first(str text) {
    str literal = {"", 0};
    for (char hole; literal.n == 0 && writing_next(&text, &literal, &hole);) {
    }
    return literal;
}

/* ---- writings of calls ---- */

/* Whether the opening mark is of a section: a mark of its own begins each call in it. */
static bool writing_is_section(const call_writing *w) {
    bool begins_each = w->again.p != NULL && w->again.p >= w->open.p + w->open.n;
    return (w->format->flags & FORMAT_IN_SECTION) != 0 || (w->is_head && begins_each);
}

static void writing_read_tags(str *s, call_writing *w) {
    w->tag_before = writing_upto(s, (char[]){HOLE_KEY, 0});
    w->tag_middle = writing_upto(s, (char[]){HOLE_VALUE, 0});
    w->tag_behind = writing_upto(s, (char[]){HOLE_KEY, EDGE_BETWEEN, 0});
    w->has_elements = s->p[-1] == HOLE_KEY;
    if (w->has_elements) {
        (void)writing_upto(s, (char[]){EDGE_BETWEEN, 0});
    }
    w->tag_between = writing_upto(s, (char[]){EDGE_END, 0});
}

/* The text around the arguments; in Gemma's notation the braces belong to the
 * arguments. */
static void writing_read_arguments(str *s, call_writing *w) {
    w->name_end = writing_upto(s, (char[]){HOLE_ARGUMENTS, EDGE_EACH, 0});
    if (s->p[-1] == EDGE_EACH) {
        writing_read_tags(s, w);
    }
    if (w->format->syntax == SYNTAX_GEMMA) {
        w->name_end.n--;
        *s = (str){s->p + 1, s->n - 1};
    }
}

static void writing_read(const char *text, call_writing *w) {
    str s = str_of(text);
    const char *each = writing_find(s, EDGE_EACH), *name = writing_find(s, HOLE_NAME);
    w->only_read = text[0] == EDGE_READS;
    w->repeats = each != NULL && name != NULL && each < name;
    w->open = writing_upto(&s, (char[]){EDGE_CALLS, 0});
    while (w->open.n > 0 && writing_is_code(w->open.p[0])) {
        w->open = (str){w->open.p + 1, w->open.n - 1};
    }
    w->is_first = w->open.n == 1 && strchr("[{", w->open.p[0]) != NULL;
    w->before = writing_upto(&s, (char[]){HOLE_NAME, HOLE_ARGUMENTS, 0});
    if (name == NULL) { /* read only: no more than its marks */
        w->close = s;
        return;
    }
    w->is_head = w->format->syntax == SYNTAX_JSON && name[-1] != '"';
    const char *head = w->before.p;
    writing_read_arguments(&s, w);
    if (w->repeats) {
        w->again = (str){each + 1, (size_t)(name - each) - 1};
        w->end = writing_upto(&s, (char[]){EDGE_BETWEEN, 0});
        w->separator = writing_upto(&s, (char[]){EDGE_END, 0});
    }
    w->close = s;
    if (w->is_head && writing_is_section(w)) { /* each call has its own opening mark */
        str first = writing_first(w->again);
        head = first.p + first.n;
    }
    w->head = w->is_head ? (str){head, (size_t)(w->name_end.p + w->name_end.n - head)} : (str){"", 0};
}

bool call_writing_at(const answer_format *calls, size_t i, call_writing *out) {
    *out = (call_writing){.format = calls};
    if (i >= FORMAT_WRITINGS || calls->writings[i] == NULL) {
        return false;
    }
    writing_read(calls->writings[i], out);
    return true;
}

bool call_written_at(const answer_format *calls, size_t i, call_writing *out) {
    size_t n = 0;
    for (size_t k = 0; call_writing_at(calls, k, out); k++) {
        if (!out->only_read && n++ == i) {
            return true;
        }
    }
    return false;
}

/* ---- marks ---- */

str format_shape_mark(const format_shape *s, mark_role role) {
    assert(s != NULL);
    for (int i = 0; i < s->n; i++) {
        if (s->marks[i].role == role) {
            return s->marks[i].text;
        }
    }
    return (str){"", 0};
}

static void shape_add(format_shape *s, mark_role role, str text) {
    bool is_known = text.n == 0 || role == ROLE_NONE;
    for (int i = 0; i < s->n && !is_known; i++) {
        is_known = s->marks[i].role == role && str_eq(s->marks[i].text, text);
    }
    if (!is_known && s->n < FORMAT_MARKS) {
        s->marks[s->n++] = (format_mark){role, text};
    }
}

/* The roles of the marks in a text. */
typedef struct shape_roles {
    mark_role first, rest, last; /* last: ROLE_NONE: as the others */
} shape_roles;

static void shape_add_all(format_shape *s, str text, const char *edges, shape_roles roles) {
    str found[4], literal;
    size_t n = 0;
    for (char hole; n < 4 && writing_next(&text, &literal, &hole);) {
        found[n] = writing_trim(literal, edges);
        n += found[n].n > 0;
    }
    for (size_t i = 0; i < n; i++) {
        bool is_last = i + 1 == n && roles.last != ROLE_NONE;
        shape_add(s, is_last ? roles.last : i == 0 ? roles.first : roles.rest, found[i]);
    }
}

/* JSON, Gemma's notation and Python, whose brackets are not marks. */
static void shape_add_calls(format_shape *s, const call_writing *w) {
    static const char edges[] = "}])";
    bool is_section = writing_is_section(w);
    str open = w->open;
    while (open.n > 0 && strchr("[{", open.p[open.n - 1]) != NULL) {
        open.n--;
    }
    shape_add(s, is_section ? ROLE_SECTION : ROLE_OPEN, open);
    if (is_section && w->is_head) {
        shape_add(s, ROLE_OPEN, writing_first(w->again));
    }
    shape_add_all(s, w->end, edges, (shape_roles){ROLE_CLOSE, ROLE_CLOSE, ROLE_NONE});
    mark_role close = is_section ? ROLE_SECTION_END : ROLE_CLOSE;
    shape_add_all(s, w->close, edges, (shape_roles){close, close, ROLE_NONE});
}

static void shape_add_tags(format_shape *s, const call_writing *w) {
    static const shape_roles key_ends = {ROLE_NONE, ROLE_NONE, ROLE_NAME_END};
    str value = w->tag_middle, key_end = writing_upto(&value, (char[]){EDGE_PART, 0});
    bool is_section = writing_first(w->before).n > 0;
    mark_role after = w->close.n > 0 ? ROLE_CLOSE : ROLE_SECTION_END;
    shape_add(s, is_section ? ROLE_SECTION : ROLE_OPEN, w->open);
    shape_add_all(s, w->before, "", (shape_roles){ROLE_SECTION, ROLE_SECTION, ROLE_OPEN});
    shape_add_all(s, w->name_end, "", key_ends);
    shape_add(s, ROLE_PARAMETER, writing_trim(w->tag_before, ""));
    shape_add_all(s, key_end, "", key_ends);
    shape_add(s, ROLE_VALUE, writing_trim(value, ""));
    shape_add(s, ROLE_VALUE_END, writing_trim(w->tag_behind, ""));
    shape_add_all(s, w->end, "", (shape_roles){ROLE_END, after, ROLE_NONE});
    shape_add_all(s, w->close, "", (shape_roles){ROLE_SECTION_END, ROLE_SECTION_END, ROLE_NONE});
}

/* Elements: the mark of every tag is what stands before its bracket. */
static void shape_add_elements(format_shape *s, const call_writing *w) {
    shape_add(s, ROLE_SECTION, w->open);
    shape_add_all(s, w->again, "", (shape_roles){ROLE_OPEN, ROLE_OPEN, ROLE_NONE});
    shape_add(s, ROLE_TAG, (str){w->tag_before.p, w->tag_before.n - 1});
    shape_add_all(s, w->close, "", (shape_roles){ROLE_SECTION_END, ROLE_SECTION_END, ROLE_NONE});
}

static void shape_add_harmony(format_shape *s) {
    static const struct {
        mark_role role;
        const char *text;
    } marks[] = {{ROLE_START, "<|start|>"},         {ROLE_CHANNEL, "<|channel|>"},
                 {ROLE_CONSTRAIN, "<|constrain|>"}, {ROLE_MESSAGE, "<|message|>"},
                 {ROLE_MESSAGE_END, "<|end|>"},     {ROLE_MESSAGE_END, "<|return|>"},
                 {ROLE_MESSAGE_END, "<|call|>"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        shape_add(s, marks[i].role, str_of(marks[i].text));
    }
}

/* The text around an answer or, in tags, between two parameters. */
static void shape_add_read(format_shape *s, str text) {
    str before = writing_upto(&text, (char[]){HOLE_ANSWER, HOLE_VALUE, 0});
    bool is_answer = text.p[-1] == HOLE_ANSWER;
    mark_role role = is_answer ? ROLE_DROP : ROLE_NEXT;
    shape_add(s, role, before);
    shape_add(s, role, writing_upto(&text, (char[]){HOLE_KEY, 0}));
}

/* ---- flags ---- */

static unsigned flags_of_json(const call_writing *w) {
    bool is_keyed = !w->is_head && w->again.n > 1 && w->again.p[w->again.n - 2] == '{';
    bool in_section = (w->format->flags & FORMAT_IN_SECTION) != 0;
    bool is_listed = !w->is_head && w->name_end.n > 0;
    return (w->is_head ? FORMAT_HEAD : 0u) | (is_listed ? FORMAT_LISTED : 0u) |
           (is_keyed ? FORMAT_KEYED : 0u) | (w->is_first || in_section ? FORMAT_BARE : 0u) |
           (str_begins(w->separator, ";") ? FORMAT_SEMICOLON : 0u);
}

static unsigned flags_of_tags(const call_writing *w) {
    str value = w->tag_middle;
    (void)writing_upto(&value, (char[]){EDGE_PART, 0});
    bool has_lines = str_begins(w->tag_behind, "\n");
    return (has_lines ? FORMAT_VALUE_LINES : 0u) | (value.n > 0 ? FORMAT_VALUE_APART : 0u) |
           (writing_first(w->name_end).n == 0 ? FORMAT_NAME_TO_TAG : 0u);
}

static unsigned flags_of_python(const call_writing *w) {
    bool has_brackets = w->is_first || str_begins(w->before, "[");
    return (w->is_first ? FORMAT_BARE_FIRST : 0u) | (has_brackets ? 0u : FORMAT_LINES);
}

static void shape_add_writing(format_shape *s, const call_writing *w) {
    switch (w->format->syntax) {
    case SYNTAX_TAGS:
        s->flags |= flags_of_tags(w);
        shape_add_tags(s, w);
        return;
    case SYNTAX_ELEMENTS:
        shape_add_elements(s, w);
        return;
    case SYNTAX_HARMONY:
        shape_add_harmony(s);
        return;
    case SYNTAX_GEMMA:
        shape_add_calls(s, w);
        shape_add(s, ROLE_QUOTE, w->tag_behind);
        return;
    default:
        s->flags |= w->format->syntax == SYNTAX_JSON ? flags_of_json(w) : flags_of_python(w);
        shape_add_calls(s, w);
    }
}

void answer_format_shape(const answer_format *calls, format_shape *out) {
    call_writing w;
    *out = (format_shape){.flags = calls->flags};
    for (size_t i = 0; call_writing_at(calls, i, &w); i++) {
        str text = str_of(calls->writings[i]);
        if (writing_find(text, EDGE_CALLS) != NULL) {
            shape_add_writing(out, &w);
        } else {
            shape_add_read(out, (str){text.p + 1, text.n - 1});
        }
    }
}

/* ---- names ---- */

/* Whether a head that ends in this name reads as a name with a call's number. */
static bool name_is_numbered(str name) {
    size_t n = name.n;
    while (n > 0 && isdigit((unsigned char)name.p[n - 1])) {
        n--;
    }
    return n > 0 && n < name.n && name.p[n - 1] == ':';
}

static bool name_is_python(str name) {
    bool fits = !isdigit((unsigned char)name.p[0]) && strchr(".-", name.p[0]) == NULL;
    for (size_t i = 0; fits && i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        fits = isalnum(c) || c >= 0x80 || strchr("_.-", c) != NULL;
    }
    return fits;
}

bool call_writing_takes(const call_writing *w, str name) {
    assert(w != NULL);
    bool has_number = writing_find(w->name_end, HOLE_NUMBER) != NULL;
    bool is_all = (w->format->flags & FORMAT_HEAD_FIRST) != 0 && str_is(name, "all");
    if (!call_is_name(name) || is_all || (w->is_head && !has_number && name_is_numbered(name))) {
        return false;
    }
    return w->format->syntax != SYNTAX_PYTHON || name_is_python(name);
}

/* ---- reasoning ---- */

static void reasoning_read(const char *text, reasoning_marks *m) {
    str s = str_of(text), before;
    if (writing_find(s, HOLE_TEXT) != NULL) {
        m->open[m->n] = writing_upto(&s, (char[]){HOLE_TEXT, 0});
        m->close[m->n++] = writing_upto(&s, (char[]){EDGE_PART, 0});
    }
    if (writing_find(s, EDGE_PART) != NULL) {
        m->next = writing_upto(&s, (char[]){EDGE_PART, 0});
    }
    before = writing_upto(&s, (char[]){HOLE_ANSWER, 0});
    if (before.n > 0) {
        m->before[m->n_before++] = before;
    }
    if (s.n > 0) {
        m->behind[m->n_behind++] = s;
    }
}

void reasoning_format_marks(const answer_format *reasoning, reasoning_marks *out) {
    *out = (reasoning_marks){0};
    for (size_t i = 0; i < REASONING_SPELLINGS && reasoning->writings[i] != NULL; i++) {
        reasoning_read(reasoning->writings[i], out);
    }
}
