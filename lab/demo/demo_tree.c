#include "lab/demo/demo_tree.h"

#include <string.h>

#define MAX_PARTS 8
#define MAX_DEPTH 32

/* ---- reading ---- */

/* The index of entry number `entry` among the first n of v's; -1 for none. */
static int32_t place_of(const quire_kv_view *v, int32_t n, int32_t entry) {
    for (int32_t i = 0; i < n; i++) {
        if (v->entries[i].entry == entry) {
            return i;
        }
    }
    return -1;
}

quire_err demo_tree_read(const quire_kv_view *v, demo_tree *out) {
    if (v->n_entries > DEMO_MAX_ENTRIES || v->n_entries_shown != v->n_entries) {
        return QUIRE_INTERNAL;
    }
    out->n = v->n_entries;
    for (int32_t i = 0; i < out->n; i++) {
        const quire_kv_view_entry *e = &v->entries[i];
        demo_entry *to = &out->entries[i];
        *to = (demo_entry){
            .up = e->up < 0 ? -1 : place_of(v, i, e->up), .n_tokens = e->n_tokens, .mark = DEMO_KEPT};
        if (e->n_tokens > QUIRE_KV_VIEW_LABEL) {
            return QUIRE_INTERNAL;
        }
        memcpy(to->tokens, e->label, (size_t)e->n_tokens * sizeof *e->label);
    }
    return QUIRE_OK;
}

/* ---- marking ---- */

/* Finds an entry of t behind `up` that was not evicted and has e's tokens, with at most
 * n_more others behind them; -1: none. */
static int32_t find(const demo_tree *t, int32_t up, const demo_entry *e, int32_t n_more) {
    for (int32_t i = 0; i < t->n; i++) {
        const demo_entry *x = &t->entries[i];
        if (x->mark != DEMO_EVICTED && x->up == up && x->n_tokens >= e->n_tokens &&
            x->n_tokens - e->n_tokens <= n_more &&
            memcmp(x->tokens, e->tokens, (size_t)e->n_tokens * sizeof *e->tokens) == 0) {
            return i;
        }
    }
    return -1;
}

/* Collects the tokens up to the end of entry i; -1 when they do not fit. */
static int32_t path_to(const demo_tree *t, int32_t i, int32_t tokens[DEMO_MAX_TOKENS]) {
    const demo_entry *e = &t->entries[i];
    int32_t n = e->up < 0 ? 0 : path_to(t, e->up, tokens);
    if (n < 0 || n + e->n_tokens > DEMO_MAX_TOKENS) {
        return -1;
    }
    memcpy(tokens + n, e->tokens, (size_t)e->n_tokens * sizeof *tokens);
    return n + e->n_tokens;
}

static bool is_on_a_path(const demo_tree *t, int32_t i, const demo_path *paths, int32_t n_paths) {
    int32_t tokens[DEMO_MAX_TOKENS], n = path_to(t, i, tokens);
    for (int32_t k = 0; n > 0 && k < n_paths; k++) {
        if (paths[k].n >= n && memcmp(paths[k].tokens, tokens, (size_t)n * sizeof *tokens) == 0) {
            return true;
        }
    }
    return false;
}

quire_err demo_tree_mark(const demo_tree *before, const demo_path *paths, int32_t n, demo_tree *now) {
    int32_t in_before[DEMO_MAX_ENTRIES], in_now[DEMO_MAX_ENTRIES], n_now = now->n;
    for (int32_t i = 0; i < n_now; i++) {
        demo_entry *e = &now->entries[i];
        in_before[i] =
            e->up >= 0 && in_before[e->up] < 0 ? -1 : find(before, e->up < 0 ? -1 : in_before[e->up], e, 0);
        e->mark = in_before[i] < 0 ? DEMO_NEW : is_on_a_path(now, i, paths, n) ? DEMO_TOUCHED : DEMO_KEPT;
    }
    for (int32_t i = 0; i < before->n; i++) {
        const demo_entry *e = &before->entries[i];
        int32_t up = e->up < 0 ? -1 : in_now[e->up];
        if (e->mark == DEMO_EVICTED) { /* it was evicted a scene ago */
            in_now[i] = -1;
            continue;
        }
        /* a part-filled page that grew is gone from its old entry, but not evicted */
        in_now[i] = find(now, up, e, QUIRE_KV_VIEW_LABEL);
        if (in_now[i] >= 0) {
            continue;
        }
        if (now->n == DEMO_MAX_ENTRIES) {
            return QUIRE_INTERNAL;
        }
        in_now[i] = now->n;
        now->entries[now->n] = *e;
        now->entries[now->n].up = up;
        now->entries[now->n++].mark = DEMO_EVICTED;
    }
    return QUIRE_OK;
}

int32_t demo_tree_count(const demo_tree *t, demo_mark mark) {
    int32_t n = 0;
    for (int32_t i = 0; i < t->n; i++) {
        n += t->entries[i].mark == mark ? t->entries[i].n_tokens : 0;
    }
    return n;
}

/* ---- drawing ---- */

typedef struct drawing {
    const demo_tree *t;
    demo_line_fn *fn;
    void *context;
    bool last[MAX_DEPTH];
} drawing;

static int32_t first_child(const demo_tree *t, int32_t up, int32_t from) {
    for (int32_t i = from; i < t->n; i++) {
        if (t->entries[i].up == up) {
            return i;
        }
    }
    return -1;
}

/* Collects the line that starts at entry i; *end is its last entry. */
static quire_err collect(const demo_tree *t, int32_t i, demo_part *parts, int32_t *n_parts, int32_t *end) {
    *n_parts = 0;
    for (;;) {
        const demo_entry *e = &t->entries[i];
        if (*n_parts == 0 || parts[*n_parts - 1].mark != e->mark) {
            if (*n_parts == MAX_PARTS) {
                return QUIRE_INTERNAL;
            }
            parts[(*n_parts)++] = (demo_part){.mark = e->mark};
        }
        demo_part *p = &parts[*n_parts - 1];
        if (p->n + e->n_tokens > DEMO_MAX_TOKENS) {
            return QUIRE_INTERNAL;
        }
        memcpy(p->tokens + p->n, e->tokens, (size_t)e->n_tokens * sizeof *e->tokens);
        p->n += e->n_tokens;
        *end = i;
        int32_t child = first_child(t, i, 0);
        if (child < 0 || first_child(t, i, child + 1) >= 0) {
            return QUIRE_OK;
        }
        i = child;
    }
}

static quire_err draw_children(drawing *d, int32_t up, int32_t depth) {
    demo_part parts[MAX_PARTS];
    int32_t n_parts, end;
    if (depth == MAX_DEPTH) {
        return QUIRE_INTERNAL;
    }
    for (int32_t i = first_child(d->t, up, 0), next; i >= 0; i = next) {
        next = first_child(d->t, up, i + 1);
        d->last[depth] = next < 0;
        TRY(collect(d->t, i, parts, &n_parts, &end));
        TRY(d->fn(d->context, depth, d->last, parts, n_parts));
        TRY(draw_children(d, end, depth + 1));
    }
    return QUIRE_OK;
}

quire_err demo_tree_draw(const demo_tree *t, demo_line_fn *fn, void *context) {
    drawing d = {.t = t, .fn = fn, .context = context};
    return draw_children(&d, -1, 0);
}
