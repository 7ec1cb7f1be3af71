/* `quire demo radix`: nine states of a prefix tree, while a chat, a second one, few-shot
 * prompts and several responses to one question run through the real cache (quire_kv.h).
 * A token is a word. The pool holds 40 tokens and evicts the pages unused longest to make
 * room. */
#include <unistd.h>

#include "base/str.h"
#include "lab/demo/demo.h"
#include "quire_kv.h"

/* The prefix tree that `quire demo` shows: all current entries, which of them a scene
 * added or used, and evicted ones at their old position. It is read from a quire_kv_view
 * of one namespace, with pages of at most 16 tokens. Entries are in an array, parents
 * before children. */

#define DEMO_MAX_ENTRIES 256
#define DEMO_MAX_TOKENS  128 /* most tokens of a path */

typedef enum demo_mark { DEMO_KEPT, DEMO_NEW, DEMO_TOUCHED, DEMO_EVICTED } demo_mark;

typedef struct demo_entry {
    int32_t up; /* index of the parent; -1: none */
    int32_t n_tokens, tokens[QUIRE_KV_VIEW_LABEL];
    demo_mark mark;
} demo_entry;

typedef struct demo_tree {
    int32_t n;
    demo_entry entries[DEMO_MAX_ENTRIES];
} demo_tree;

/* One sequence of a scene: its prompt and its response. */
typedef struct demo_path {
    int32_t n, tokens[DEMO_MAX_TOKENS];
} demo_path;

/* One piece of a drawn line: tokens with the same mark. */
typedef struct demo_part {
    demo_mark mark;
    int32_t n, tokens[DEMO_MAX_TOKENS];
} demo_part;

/* Receives the drawing line by line. A line is a path without a branch; `last[0..depth]`
 * says for each level whether it is the last of its siblings. */
typedef quire_err demo_line_fn(void *context, int32_t depth, const bool *last, const demo_part *parts,
                               int32_t n_parts);

#define MAX_PARTS 8
#define MAX_DEPTH 32

/* ---- reading ---- */

/* The index of entry number `entry` among the first n of v's; -1: none. */
static int32_t place_of(const quire_kv_view *v, int32_t n, int32_t entry) {
    for (int32_t i = 0; i < n; i++) {
        if (v->entries[i].entry == entry) {
            return i;
        }
    }
    return -1;
}

/* Reads the tree of v and marks every entry as kept. QUIRE_INTERNAL if it does not
 * fit. */
static quire_err demo_tree_read(const quire_kv_view *v, demo_tree *out) {
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

/* Finds a child of `up` in t that was not evicted and has e's tokens, with at most n_more
 * others after them. Returns -1 if there is none. */
static int32_t demo_radix_find(const demo_tree *t, int32_t up, const demo_entry *e, int32_t n_more) {
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

/* Collects the tokens of the path to the end of entry i. Returns their number, or -1 if
 * they do not fit. */
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

/* Adds to `now` the entries that only `before` has, as evicted, and marks the others:
 * new, or touched if one of paths[0..n) contains them. */
static quire_err demo_tree_mark(const demo_tree *before, const demo_path *paths, int32_t n, demo_tree *now) {
    int32_t in_before[DEMO_MAX_ENTRIES], in_now[DEMO_MAX_ENTRIES], n_now = now->n;
    for (int32_t i = 0; i < n_now; i++) {
        demo_entry *e = &now->entries[i];
        in_before[i] = e->up >= 0 && in_before[e->up] < 0
                           ? -1
                           : demo_radix_find(before, e->up < 0 ? -1 : in_before[e->up], e, 0);
        e->mark = in_before[i] < 0 ? DEMO_NEW : is_on_a_path(now, i, paths, n) ? DEMO_TOUCHED : DEMO_KEPT;
    }
    for (int32_t i = 0; i < before->n; i++) {
        const demo_entry *e = &before->entries[i];
        int32_t up = e->up < 0 ? -1 : in_now[e->up];
        if (e->mark == DEMO_EVICTED) { /* it was evicted in an earlier scene */
            in_now[i] = -1;
            continue;
        }
        /* a part-filled page that grew is gone from its old entry, but not evicted */
        in_now[i] = demo_radix_find(now, up, e, QUIRE_KV_VIEW_LABEL);
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

/* The number of tokens in entries with this mark. */
static int32_t demo_tree_count(const demo_tree *t, demo_mark mark) {
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

/* Collects the pieces of the line that starts at entry i. *end is its last entry. */
static quire_err demo_radix_collect(const demo_tree *t, int32_t i, demo_part *parts, int32_t *n_parts,
                                    int32_t *end) {
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
        TRY(demo_radix_collect(d->t, i, parts, &n_parts, &end));
        TRY(d->fn(d->context, depth, d->last, parts, n_parts));
        TRY(draw_children(d, end, depth + 1));
    }
    return QUIRE_OK;
}

static quire_err demo_tree_draw(const demo_tree *t, demo_line_fn *fn, void *context) {
    drawing d = {.t = t, .fn = fn, .context = context};
    return draw_children(&d, -1, 0);
}

#define POOL_TOKENS    40
#define MAX_WORDS      256
#define MAX_PAGE_WORDS 4
#define MAX_SEQS       4

#define SYSTEM   "You are a helpful assistant. "
#define CHAT_A_1 SYSTEM "User: Hello! "
#define SAID_A_1 "Assistant: Hi there! "
#define CHAT_A_2 CHAT_A_1 SAID_A_1 "User: Plan my trip. "
#define SAID_A_2 "Assistant: Where to? "
#define CHAT_A_3 CHAT_A_2 SAID_A_2 "User: To the sea. "
#define CHAT_B_1 SYSTEM "User: What is a quire? "
#define SAID_B_1 "Assistant: Twenty-four sheets. "
#define CHAT_B_2 CHAT_B_1 SAID_B_1 "User: Why so few? "
#define SHOTS    "Q: 2+2? A: 4. Q: 3+5? A: 8. "
#define PUZZLE   "Puzzle: A pen costs 3. Five pens? Think step by step. "

/* A prompt and its responses. With several, the prompt's sequence is forked. */
typedef struct ask {
    const char *prompt, *responses[3];
} ask;

typedef struct scene {
    const char *title;
    ask asks[2]; /* these run at the same time */
} scene;

static const scene scenes[] = {
    {"nothing is cached", {{NULL, {NULL}}}},
    {"chat A begins", {{CHAT_A_1, {SAID_A_1}}}},
    {"chat A goes on: all that was said is found", {{CHAT_A_2, {SAID_A_2}}}},
    {"chat B begins: it has the instructions in common, and the node splits where they part",
     {{CHAT_B_1, {SAID_B_1}}}},
    {"chat B goes on", {{CHAT_B_2, {"Assistant: They fold well."}}}},
    {"a question with examples: room is made by the end of chat A, which was unused longest",
     {{SHOTS "Q: 7+1? ", {"A: 8."}}}},
    {"two more with the same examples, at once",
     {{SHOTS "Q: 9+4? ", {"A: 13."}}, {SHOTS "Q: 6+6? ", {"A: 12."}}}},
    {"chat A comes back: what was evicted is computed again, chat B goes",
     {{CHAT_A_3, {"Assistant: Pack light."}}}},
    {"three answers to one puzzle share its words",
     {{PUZZLE, {"5 times 3 is 15.", "3+3+3+3+3 makes 15.", "Each costs 3: that is 15."}}}},
};
enum { N_SCENES = (int)(sizeof scenes / sizeof *scenes) };

typedef struct demo {
    quire_kv *kv;
    quire_kv_view *view;
    str words[MAX_WORDS]; /* token id → word */
    int32_t n_words;
    demo_tree before, now;
    demo_path paths[MAX_SEQS]; /* of the current scene */
    quire_kv_seq *seqs[MAX_SEQS];
    int32_t n_seqs;
    int32_t n_prompt, n_found, n_generated;
    bool colours;
    json_out *lines; /* the states as JSON */
} demo;

/* ---- words ---- */

static quire_err token_of(demo *d, str word, int32_t *out) {
    for (*out = 0; *out < d->n_words; ++*out) {
        if (str_eq(d->words[*out], word)) {
            return QUIRE_OK;
        }
    }
    if (d->n_words == MAX_WORDS) {
        return QUIRE_INTERNAL;
    }
    d->words[d->n_words++] = word;
    return QUIRE_OK;
}

/* Adds a text's words to a path. */
static quire_err add_words(demo *d, const char *text, demo_path *path) {
    for (const char *p = text + strspn(text, " "); *p != '\0';) {
        size_t n = strcspn(p, " ");
        if (path->n == DEMO_MAX_TOKENS) {
            return QUIRE_INTERNAL;
        }
        TRY(token_of(d, (str){p, n}, &path->tokens[path->n++]));
        p += n;
        p += strspn(p, " ");
    }
    return QUIRE_OK;
}

static quire_err join_words(const demo *d, const demo_part *p, strbuf *out) {
    strbuf_clear(out);
    for (int32_t i = 0; i < p->n; i++) {
        if (i > 0) {
            TRY(strbuf_add_char(out, ' '));
        }
        TRY(strbuf_add(out, d->words[p->tokens[i]].p, d->words[p->tokens[i]].n));
    }
    return QUIRE_OK;
}

/* ---- a scene ---- */

/* Commits computed tokens as an engine does: makes the pending copies; then the pages can
 * be found. */
static quire_err commit(demo *d, quire_kv_seq *seq, quire_kv_commit what) {
    const quire_kv_copy *copies;
    (void)quire_kv_copies(d->kv, &copies);
    return quire_kv_seq_commit(seq, quire_kv_seq_length(seq), what);
}

static quire_err open_ask(demo *d, const ask *a) {
    int32_t n_found, first = d->n_seqs;
    demo_path *prompt = &d->paths[first];
    prompt->n = 0;
    TRY(add_words(d, a->prompt, prompt));
    TRY(quire_kv_seq_open(d->kv, "demo", 4, prompt->tokens, prompt->n, &d->seqs[first], &n_found));
    d->n_seqs++;
    d->n_prompt += prompt->n;
    d->n_found += n_found;
    TRY(commit(d, d->seqs[first], QUIRE_KV_PAGES));
    for (int32_t i = 1; i < 3 && a->responses[i] != NULL; i++) {
        d->paths[d->n_seqs] = *prompt;
        TRY(quire_kv_seq_fork(d->seqs[first], &d->seqs[d->n_seqs]));
        d->n_seqs++;
    }
    return QUIRE_OK;
}

static quire_err demo_radix_say(demo *d, int32_t seq, const char *text) {
    demo_path *path = &d->paths[seq];
    int32_t n_before = path->n;
    TRY(add_words(d, text, path));
    d->n_generated += path->n - n_before;
    TRY(quire_kv_seq_append(d->seqs[seq], path->tokens + n_before, path->n - n_before));
    return commit(d, d->seqs[seq], QUIRE_KV_PAGES);
}

static quire_err play(demo *d, const scene *s) {
    d->n_seqs = d->n_prompt = d->n_found = d->n_generated = 0;
    for (int32_t k = 0; k < 2 && s->asks[k].prompt != NULL; k++) {
        TRY(open_ask(d, &s->asks[k]));
    }
    for (int32_t k = 0, seq = 0; k < 2 && s->asks[k].prompt != NULL; k++) {
        for (int32_t i = 0; i < 3 && s->asks[k].responses[i] != NULL; i++) {
            TRY(demo_radix_say(d, seq++, s->asks[k].responses[i]));
        }
    }
    for (int32_t i = 0; i < d->n_seqs; i++) {
        TRY(commit(d, d->seqs[i], QUIRE_KV_PAGES_AND_TAIL));
        quire_kv_seq_close(d->seqs[i]);
    }
    d->before = d->now;
    quire_kv_look(d->kv, d->view);
    TRY(demo_tree_read(d->view, &d->now));
    return demo_tree_mark(&d->before, d->paths, d->n_seqs, &d->now);
}

/* ---- showing it ---- */

static const struct {
    const char *name, *sign, *colour;
} marks[] = {[DEMO_KEPT] = {"kept", "", ""},
             [DEMO_NEW] = {"new", "+", "\033[32m"},
             [DEMO_TOUCHED] = {"touched", "*", "\033[34m"},
             [DEMO_EVICTED] = {"evicted", "-", "\033[31m"}};

static quire_err demo_radix_print_line(void *context, int32_t depth, const bool *last, const demo_part *parts,
                                       int32_t n_parts) {
    const demo *d = context;
    strbuf text = {0};
    quire_err e = QUIRE_OK;
    printf("   ");
    for (int32_t i = 0; i < depth; i++) {
        printf(last[i] ? "   " : "│  ");
    }
    printf(last[depth] ? "└─" : "├─");
    for (int32_t i = 0; i < n_parts && e == QUIRE_OK; i++) {
        e = join_words(d, &parts[i], &text);
        printf(" %s%s%s%s%s", d->colours ? marks[parts[i].mark].colour : "", marks[parts[i].mark].sign,
               parts[i].mark != DEMO_KEPT ? " " : "", text.p != NULL ? text.p : "",
               d->colours && parts[i].mark != DEMO_KEPT ? "\033[0m" : "");
    }
    printf("\n");
    strbuf_deinit(&text);
    return e;
}

static quire_err print_state(demo *d, int32_t i) {
    const quire_kv_view *v = d->view;
    printf("%d  %s\n", (int)i + 1, scenes[i].title);
    printf("   prompts %d, found %d, computed %d, generated %d | new %d, touched %d, evicted %d | %d of %d "
           "pages free, %d cached | nodes %d\n",
           (int)d->n_prompt, (int)d->n_found, (int)(d->n_prompt - d->n_found), (int)d->n_generated,
           (int)demo_tree_count(&d->now, DEMO_NEW), (int)demo_tree_count(&d->now, DEMO_TOUCHED),
           (int)demo_tree_count(&d->now, DEMO_EVICTED), (int)v->n_free, (int)v->n_pages, (int)v->n_cached,
           (int)v->n_nodes);
    TRY(demo_tree_draw(&d->now, demo_radix_print_line, d));
    printf("\n");
    return QUIRE_OK;
}

static quire_err add_json_line(void *context, int32_t depth, const bool *last, const demo_part *parts,
                               int32_t n_parts) {
    (void)last;
    const demo *d = context;
    strbuf text = {0};
    quire_err e = QUIRE_OK;
    json_out *o = d->lines;
    json_begin(json_item(o), '{');
    json_int(json_name(o, "depth"), depth);
    json_begin(json_name(o, "parts"), '[');
    for (int32_t i = 0; i < n_parts && e == QUIRE_OK; i++) {
        e = join_words(d, &parts[i], &text);
        json_begin(json_item(o), '{');
        json_cstr(json_name(o, "mark"), marks[parts[i].mark].name);
        json_int(json_name(o, "tokens"), parts[i].n);
        json_cstr(json_name(o, "text"), text.p != NULL ? text.p : "");
        json_end(o, '}');
    }
    json_end(o, ']');
    json_end(o, '}');
    strbuf_deinit(&text);
    return e;
}

static quire_err demo_radix_print_json(demo *d, int32_t i) {
    const quire_kv_view *v = d->view;
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {{"state", i + 1},
                   {"prompt_tokens", d->n_prompt},
                   {"found", d->n_found},
                   {"computed", d->n_prompt - d->n_found},
                   {"generated", d->n_generated},
                   {"new", demo_tree_count(&d->now, DEMO_NEW)},
                   {"touched", demo_tree_count(&d->now, DEMO_TOUCHED)},
                   {"evicted", demo_tree_count(&d->now, DEMO_EVICTED)},
                   {"pages", v->n_pages},
                   {"free", v->n_free},
                   {"held", v->n_held},
                   {"cached", v->n_cached},
                   {"nodes", v->n_nodes}};
    json_line line;
    json_out *state = json_line_begin(&line);
    json_cstr(json_name(state, "title"), scenes[i].title);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        json_int(json_name(state, numbers[k].name), numbers[k].value);
    }
    json_begin(json_name(state, "tree"), '[');
    d->lines = state;
    quire_err e = demo_tree_draw(&d->now, add_json_line, d);
    json_end(state, ']');
    json_line_print(&line);
    return e;
}

static quire_err play_all(demo *d, bool json) {
    for (int32_t i = 0; i < N_SCENES; i++) {
        TRY(play(d, &scenes[i]));
        TRY(json ? demo_radix_print_json(d, i) : print_state(d, i));
    }
    return QUIRE_OK;
}

quire_err demo_radix(const demo_options *o, quire_error *err) {
    quire_kv_options ko;
    if (o->page_tokens > MAX_PAGE_WORDS) {
        return err_set(err, QUIRE_INVALID, -1, "--page-size %d: must be a power of two from 1 to %d here",
                       (int)o->page_tokens, MAX_PAGE_WORDS);
    }
    demo *d = mem_new(1, sizeof *d);
    TRY(mem_check_for(d, "the measurement", err));
    quire_kv_options_init(&ko);
    ko.page_tokens = o->page_tokens > 0 ? o->page_tokens : 1;
    ko.n_pages = POOL_TOKENS / ko.page_tokens;
    d->colours = isatty(STDOUT_FILENO) == 1;
    quire_err e = quire_kv_open(&ko, &d->kv);
    TRY_DONE(e, quire_kv_view_open(ko.n_pages, MAX_SEQS, ko.n_pages, 1, &d->view));
    if (!o->cli.json) {
        printf("A pool of %d pages, words a page: %d; %s+ new%s, %s* touched%s, %s- evicted%s\n\n",
               (int)ko.n_pages, (int)ko.page_tokens, d->colours ? marks[DEMO_NEW].colour : "",
               d->colours ? "\033[0m" : "", d->colours ? marks[DEMO_TOUCHED].colour : "",
               d->colours ? "\033[0m" : "", d->colours ? marks[DEMO_EVICTED].colour : "",
               d->colours ? "\033[0m" : "");
    }
    TRY_DONE(e, play_all(d, o->cli.json));
done:
    quire_kv_close(d->kv);
    quire_kv_view_close(d->view);
    mem_free(d);
    return err_set(err, e, -1, "the demonstration failed: %s", quire_err_text(e));
}
