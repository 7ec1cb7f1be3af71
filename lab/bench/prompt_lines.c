#include "lab/bench/prompt_lines.h"

#include "base/err.h"
#include "base/mem.h"

typedef struct reader {
    prompt_lines *out;
    const char *name;
    int32_t number; /* of the line, from 1 */
    int32_t most;
    int32_t n_kept[PROMPT_MAX_CATEGORIES];
    quire_error *err;
} reader;

static quire_err fault(const reader *r, const char *what) {
    return err_set(r->err, QUIRE_BAD_FILE, r->number, "%s: line %d: %s", r->name, (int)r->number, what);
}

static quire_err find_category(const reader *r, str name, int32_t *out) {
    prompt_lines *p = r->out;
    for (*out = 0; *out < p->n_categories; ++*out) {
        if (str_eq(p->categories[*out], name)) {
            return QUIRE_OK;
        }
    }
    if (p->n_categories == PROMPT_MAX_CATEGORIES) {
        return fault(r, "another category; a file may have 31 of them");
    }
    p->categories[p->n_categories++] = name;
    return QUIRE_OK;
}

/* The prompt of a JSON object, which the line then owns. */
static quire_err read_object(const reader *r, str text, prompt_line *line) {
    line->json = json_document(text);
    json_value *turns = json_get(line->json, "turns"), *prompt = json_get(line->json, "prompt");
    json_value *found = turns != NULL ? json_at(turns, 0) : prompt;
    if (!json_is(line->json, JSON_KIND_OBJECT) || !json_is(found, JSON_KIND_TEXT) || json_str(found).n == 0) {
        return fault(
            r, "must be a text, or a JSON object with a text as \"prompt\" or as the first of \"turns\"");
    }
    line->text = json_str(found);
    return find_category(r, json_get_str(line->json, "category"), &line->category);
}

static quire_err read_line(reader *r, str text) {
    prompt_line line = {.text = text};
    quire_err e = text.p[0] == '{' ? read_object(r, text, &line) : QUIRE_OK;
    bool keeps = e == QUIRE_OK && (r->most == 0 || r->n_kept[line.category] < r->most);
    if (keeps && r->out->n == PROMPT_MAX_LINES) {
        e = fault(r, "a file may have 65,536 prompts");
        keeps = false;
    }
    r->n_kept[line.category] += keeps;
    if (!keeps) { /* a category borrows its name from its first line, which is kept */
        json_drop(line.json);
        return e;
    }
    r->out->lines[r->out->n++] = line;
    return QUIRE_OK;
}

static int32_t count_lines(str text) {
    int32_t n = 1;
    for (size_t i = 0; i < text.n; i++) {
        n += text.p[i] == '\n' && n < PROMPT_MAX_LINES;
    }
    return n;
}

quire_err prompt_lines_read(str text, const char *name, int32_t most, prompt_lines *out, quire_error *err) {
    reader r = {.out = out, .name = name, .most = most, .err = err};
    *out = (prompt_lines){.n_categories = 1};
    out->lines = mem_new((size_t)count_lines(text), sizeof *out->lines);
    if (out->lines == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory for its prompts", name);
    }
    for (size_t at = 0; at < text.n;) {
        const char *end = memchr(text.p + at, '\n', text.n - at);
        size_t n = end != NULL ? (size_t)(end - (text.p + at)) : text.n - at, next = at + n + 1;
        n -= n > 0 && text.p[at + n - 1] == '\r';
        r.number++;
        TRY(n > 0 ? read_line(&r, (str){text.p + at, n}) : QUIRE_OK);
        at = next;
    }
    return out->n > 0 ? QUIRE_OK : err_set(err, QUIRE_BAD_FILE, -1, "%s: there is no prompt in it", name);
}

void prompt_lines_deinit(prompt_lines *p) {
    for (int32_t i = 0; i < p->n; i++) {
        json_drop(p->lines[i].json);
    }
    mem_free(p->lines);
    *p = (prompt_lines){0};
}
