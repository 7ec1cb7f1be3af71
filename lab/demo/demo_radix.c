/* `quire demo radix`: nine states of a prefix tree, while a chat, a second one, few-shot
 * prompts and several responses to one question run through the real cache (quire_kv.h).
 * A token is a word. The pool holds 40 tokens and evicts the pages unused longest to make
 * room. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "lab/demo/demo_parts.h"
#include "lab/demo/demo_tree.h"
#include "lab/json_line.h"

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
    ask asks[2]; /* at the same time */
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
    str words[MAX_WORDS]; /* by token */
    int32_t n_words;
    demo_tree before, now;
    demo_path paths[MAX_SEQS]; /* of this scene */
    quire_kv_seq *seqs[MAX_SEQS];
    int32_t n_seqs;
    int32_t n_prompt, n_found, n_generated;
    bool colours;
    json_out *lines; /* the state is written here as JSON */
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
        TRY(i > 0 ? strbuf_add_char(out, ' ') : QUIRE_OK);
        TRY(strbuf_add(out, d->words[p->tokens[i]].p, d->words[p->tokens[i]].n));
    }
    return QUIRE_OK;
}

/* ---- a scene ---- */

/* Commits computed tokens, as an engine does: makes the pending copies, then the pages
 * can be found. */
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

static quire_err say(demo *d, int32_t seq, const char *text) {
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
            TRY(say(d, seq++, s->asks[k].responses[i]));
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

static quire_err print_line(void *context, int32_t depth, const bool *last, const demo_part *parts,
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
    TRY(demo_tree_draw(&d->now, print_line, d));
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

static quire_err print_json(demo *d, int32_t i) {
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
        TRY(json ? print_json(d, i) : print_state(d, i));
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
    if (d == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_kv_options_init(&ko);
    ko.page_tokens = o->page_tokens > 0 ? o->page_tokens : 1;
    ko.n_pages = POOL_TOKENS / ko.page_tokens;
    d->colours = isatty(STDOUT_FILENO) == 1;
    quire_err e = quire_kv_open(&ko, &d->kv);
    e = e != QUIRE_OK ? e : quire_kv_view_open(ko.n_pages, MAX_SEQS, ko.n_pages, 1, &d->view);
    if (e == QUIRE_OK && !o->json) {
        printf("A pool of %d pages, words a page: %d; %s+ new%s, %s* touched%s, %s- evicted%s\n\n",
               (int)ko.n_pages, (int)ko.page_tokens, d->colours ? marks[DEMO_NEW].colour : "",
               d->colours ? "\033[0m" : "", d->colours ? marks[DEMO_TOUCHED].colour : "",
               d->colours ? "\033[0m" : "", d->colours ? marks[DEMO_EVICTED].colour : "",
               d->colours ? "\033[0m" : "");
    }
    e = e != QUIRE_OK ? e : play_all(d, o->json);
    quire_kv_close(d->kv);
    quire_kv_view_close(d->view);
    mem_free(d);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "the demonstration failed: %s", quire_err_text(e));
}
