#include "text/marks.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/turn.h"

#define MAX_OPEN 16 /* tokens that one literal leaves open */

void text_marks_deinit(text_marks *m) {
    mem_free(m->starts.at);
    mem_free(m->ends.at);
    *m = (text_marks){0};
}

quire_err mark_list_add(mark_list *l, size_t at) {
    TRY(mem_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at));
    l->at[l->n++] = at;
    return QUIRE_OK;
}

static bool contains(const mark_list *l, size_t at) {
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (l->at[mid] == at) {
            return true;
        }
        if (l->at[mid] < at) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return false;
}

bool text_marks_allow(const text_marks *m, size_t start, size_t end) {
    return contains(&m->ends, end) && (contains(&m->starts, start) || (m->lead > 0 && contains(&m->starts, start + m->lead)));
}

/* The open tokens of the last literal that has any, and the one being read. */
typedef struct open_tokens {
    size_t at[MAX_OPEN], n;
    size_t behind; /* end of that literal */
    bool ended;
    size_t before; /* start of the literal that may close them */
} open_tokens;

static bool is_role(str name, str roles) {
    while (roles.n > 0) {
        size_t n = strlen(roles.p);
        if (str_eq(name, (str){roles.p, n})) {
            return true;
        }
        roles = (str){roles.p + n + 1, roles.n - n - 1};
    }
    return false;
}

/* Records a token that an earlier literal has left open and that may end at `end`. */
static quire_err close_tokens(const open_tokens *o, str text, size_t end, str roles, text_marks *out) {
    if (o->n == 0 || !o->ended || o->before < o->behind) {
        return QUIRE_OK;
    }
    str between = {text.p + o->behind, o->before - o->behind};
    if (between.n > 0 && !is_role(between, roles)) {
        return QUIRE_OK;
    }
    for (size_t i = 0; i < o->n; i++) {
        TRY(mark_list_add(&out->starts, o->at[i]));
    }
    return mark_list_add(&out->ends, end);
}

static void open_token(open_tokens *o, size_t at) {
    if (o->ended) {
        *o = (open_tokens){.before = o->before};
    }
    if (o->n < MAX_OPEN) {
        o->at[o->n++] = at;
    }
}

static quire_err take_mark(uint8_t mark, const strbuf *text, size_t from, str roles, open_tokens *o, text_marks *out) {
    size_t at = text->n - from;
    switch (mark) {
    case MARK_START:
        return mark_list_add(&out->starts, at);
    case MARK_END:
        return mark_list_add(&out->ends, at);
    case MARK_OPEN:
        open_token(o, at);
        return QUIRE_OK;
    case MARK_EDGE_BEHIND:
        o->behind = at;
        o->ended = true;
        return QUIRE_OK;
    case MARK_EDGE_BEFORE:
        o->before = at;
        return QUIRE_OK;
    default:
        return close_tokens(o, (str){text->n > 0 ? text->p + from : "", at}, at, roles, out);
    }
}

static int ascending(const void *x, const void *y) {
    size_t a = *(const size_t *)x, b = *(const size_t *)y;
    return (a > b) - (a < b);
}

static void sort_marks(mark_list *l) {
    if (l->n > 1) {
        qsort(l->at, l->n, sizeof *l->at, ascending);
    }
}

quire_err marks_take(str marked, str roles, strbuf *text, text_marks *out) {
    open_tokens o = {0};
    size_t from = text->n;
    for (size_t i = 0; i < marked.n;) {
        size_t run = i;
        while (run < marked.n && (uint8_t)marked.p[run] < MARK_EDGE_BEFORE) {
            run++;
        }
        TRY(strbuf_add(text, marked.p + i, run - i));
        TRY(turn_poll((uint32_t)(run - i) / 16)); /* a copy */
        i = run;
        if (i < marked.n) {
            TRY(take_mark((uint8_t)marked.p[i], text, from, roles, &o, out));
            i++;
        }
    }
    sort_marks(&out->starts);
    sort_marks(&out->ends);
    return QUIRE_OK;
}

void marks_strip(char *message) {
    char *to = message;
    for (const char *p = message; *p != '\0'; p++) {
        if ((uint8_t)*p < MARK_EDGE_BEFORE) {
            *to++ = *p;
        }
    }
    *to = '\0';
}
