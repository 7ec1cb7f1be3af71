#include "text/added.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/turn.h"
#include "text/chars.h"

/* Whether the content looks like <|user|>, also with the full-width bars that some models
 * use: then it is a control token, whatever its flags. */
static bool looks_like_control(str content) {
    return content.n > 4 && ((str_begins(content, "<|") && str_ends(content, "|>")) ||
                             (str_begins(content, "<\xEF\xBD\x9C") && str_ends(content, "\xEF\xBD\x9C>")));
}

quire_err added_set_add(added_set *a, const added_token *t) {
    assert(a != NULL);
    TRY(mem_grow(&a->tokens, &a->cap, a->n + 1, sizeof *a->tokens));
    char *content = mem_dup(t->content.p, t->content.n), *pattern = mem_dup(t->pattern.p, t->pattern.n);
    if (content == NULL || pattern == NULL) {
        mem_free(content);
        mem_free(pattern);
        return QUIRE_NO_MEMORY;
    }
    a->tokens[a->n] = *t;
    a->tokens[a->n].content.p = content;
    a->tokens[a->n].pattern.p = pattern;
    a->tokens[a->n].control = t->special || looks_like_control(t->content);
    a->finds_control = a->finds_control || (t->normalized && a->tokens[a->n].control);
    a->n++;
    return QUIRE_OK;
}

void added_set_deinit(added_set *a) {
    assert(a != NULL);
    for (size_t i = 0; i < a->n; i++) {
        mem_free((char *)a->tokens[i].content.p);
        mem_free((char *)a->tokens[i].pattern.p);
    }
    mem_free(a->tokens);
    mem_free(a->raw.nodes);
    mem_free(a->normalized.nodes);
    mem_free(a->by_id);
    *a = (added_set){0};
}

/* ---- the trie ---- */

static int compare_patterns(const void *x, const void *y) {
    const added_token *a = *(const added_token *const *)x, *b = *(const added_token *const *)y;
    int c = str_compare(a->pattern, b->pattern);
    return c != 0 ? c : (a > b) - (a < b);
}

static int compare_contents(const void *x, const void *y) {
    const added_token *a = *(const added_token *const *)x, *b = *(const added_token *const *)y;
    return str_compare(a->content, b->content);
}

/* Work to do: the patterns sorted[low..high) share their first `depth` bytes, which lead
 * to `node`. */
typedef struct trie_range {
    size_t low, high, depth, node;
} trie_range;

static quire_err added_add_children(added_trie *t, const added_token **sorted, const added_token *tokens,
                                    trie_range r, trie_range **stack, size_t *n_stack, size_t *cap_stack) {
    /* of equal patterns the first counts */
    while (r.low < r.high && sorted[r.low]->pattern.n == r.depth) {
        if (t->nodes[r.node].token < 0 && r.depth > 0) {
            t->nodes[r.node].token = (int32_t)(sorted[r.low] - tokens);
        }
        r.low++;
    }
    t->nodes[r.node].first_child = (int32_t)t->n;
    while (r.low < r.high) {
        uint8_t byte = (uint8_t)sorted[r.low]->pattern.p[r.depth];
        size_t end = r.low;
        while (end < r.high && (uint8_t)sorted[end]->pattern.p[r.depth] == byte) {
            end++;
        }
        TRY(mem_grow(&t->nodes, &t->cap, t->n + 1, sizeof *t->nodes));
        TRY(mem_grow(stack, cap_stack, *n_stack + 1, sizeof **stack));
        t->nodes[t->n] = (trie_node){.token = -1, .byte = byte};
        t->nodes[r.node].n_children++;
        (*stack)[(*n_stack)++] = (trie_range){r.low, end, r.depth + 1, t->n++};
        if (r.depth == 0) {
            t->starts[byte] = true;
        }
        r.low = end;
    }
    return QUIRE_OK;
}

static quire_err build_trie(added_trie *t, const added_set *a, bool normalized) {
    trie_range *stack = NULL;
    size_t n_stack = 0, cap_stack = 0, n = 0;
    const added_token **sorted = mem_new(a->n, sizeof *sorted);
    quire_err e = mem_check(sorted);
    TRY_DONE(e, mem_grow(&t->nodes, &t->cap, 1, sizeof *t->nodes));
    TRY_DONE(e, mem_grow(&stack, &cap_stack, 1, sizeof *stack));
    for (size_t i = 0; i < a->n; i++) {
        if (a->tokens[i].normalized == normalized) {
            sorted[n++] = &a->tokens[i];
        }
    }
    qsort(sorted, n, sizeof *sorted, compare_patterns);
    t->nodes[0] = (trie_node){.token = -1};
    t->n = 1;
    stack[n_stack++] = (trie_range){0, n, 0, 0};
    while (n_stack > 0 && e == QUIRE_OK) {
        trie_range r = stack[--n_stack];
        e = added_add_children(t, sorted, a->tokens, r, &stack, &n_stack, &cap_stack);
    }
done:
    mem_free(sorted);
    mem_free(stack);
    return e;
}

/* Sets `hidden`. As in the tokenizers library, a token is special by the text that it
 * decodes to: normalization may make a special token ordinary, and an ordinary one
 * special. */
static quire_err find_hidden(added_set *a) {
    const added_token **special = mem_new(a->n, sizeof *special);
    size_t n = 0;
    TRY(mem_check(special));
    for (size_t i = 0; i < a->n; i++) {
        if (a->tokens[i].special) {
            special[n++] = &a->tokens[i];
        }
    }
    qsort(special, n, sizeof *special, compare_contents);
    for (size_t i = 0; i < a->n; i++) {
        added_token key = {.content = a->tokens[i].pattern}, *wanted = &key;
        a->tokens[i].hidden =
            n > 0 && bsearch(&wanted, special, n, sizeof *special, compare_contents) != NULL;
    }
    mem_free(special);
    return QUIRE_OK;
}

quire_err added_set_finish(added_set *a, int32_t n_ids) {
    assert(n_ids >= 0);
    a->by_id = mem_new((size_t)n_ids, sizeof *a->by_id);
    TRY(mem_check(a->by_id));
    a->n_ids = n_ids;
    for (size_t i = 0; i < a->n; i++) {
        a->by_id[a->tokens[i].id] = (int32_t)i + 1;
        a->longest = a->tokens[i].pattern.n > a->longest ? a->tokens[i].pattern.n : a->longest;
    }
    TRY(build_trie(&a->raw, a, false));
    TRY(find_hidden(a));
    return build_trie(&a->normalized, a, true);
}

const added_token *added_set_get(const added_set *a, int32_t id) {
    return id >= 0 && id < a->n_ids && a->by_id[id] > 0 ? &a->tokens[a->by_id[id] - 1] : NULL;
}

int32_t added_set_find(const added_set *a, str content) {
    assert(a != NULL);
    for (size_t i = 0; i < a->n; i++) {
        if (str_eq(a->tokens[i].content, content)) {
            return a->tokens[i].id;
        }
    }
    return -1;
}

/* The child of a node for a byte; NULL if there is none. */
static const trie_node *added_trie_child(const added_trie *t, const trie_node *node, uint8_t byte) {
    assert(node != NULL);
    size_t low = (size_t)node->first_child, high = low + node->n_children;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (t->nodes[mid].byte == byte) {
            return &t->nodes[mid];
        }
        if (t->nodes[mid].byte < byte) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}

/* ---- the walk ---- */

static size_t char_before(str text, size_t at) {
    do {
        at--;
    } while (at > 0 && ((uint8_t)text.p[at] & 0xC0) == 0x80);
    return at;
}

static bool touches_word(str text, size_t start, size_t end) {
    size_t len;
    return (start > 0 && char_is_word(utf8_next(text.p + char_before(text, start), &len))) ||
           (end < text.n && char_is_word(utf8_next(text.p + end, &len)));
}

static size_t skip_spaces_left(str text, size_t at, size_t least) {
    size_t len;
    while (at > least) {
        size_t before = char_before(text, at);
        if (!char_is_space(utf8_next(text.p + before, &len))) {
            break;
        }
        at = before;
    }
    return at;
}

static size_t skip_spaces_right(str text, size_t at) {
    size_t len;
    while (at < text.n && char_is_space(utf8_next(text.p + at, &len))) {
        at += len;
    }
    return at;
}

static bool may_stand(const added_walk *w, const added_token *t, size_t start, size_t end) {
    return w->marks == NULL || !t->control ||
           text_marks_allow(w->marks, w->offset + start + t->lead, w->offset + end);
}

/* Index of the longest token that begins at text[at], or -1; *end: its end. Polls its
 * work, as a token may be as long as its file. */
static quire_err longest_at(const added_walk *w, size_t at, int32_t *best, size_t *end) {
    const trie_node *node = &w->trie->nodes[0];
    size_t i = at;
    for (*best = -1; i < w->text.n; i++) {
        node = added_trie_child(w->trie, node, (uint8_t)w->text.p[i]);
        if (node == NULL) {
            break;
        }
        if (node->token >= 0 && may_stand(w, &w->set->tokens[node->token], at, i + 1)) {
            *best = node->token;
            *end = i + 1;
        }
    }
    return turn_poll((uint32_t)((i - at) / 16 + 1));
}

/* The first position from w->from on whose byte begins a token; the end if there is
 * none. */
static size_t next_start(const added_walk *w) {
    size_t at = w->from;
    while (at < w->text.n && !w->trie->starts[(uint8_t)w->text.p[at]]) {
        at++;
    }
    return at;
}

void added_walk_begin(added_walk *w, const added_set *set, const added_trie *trie, str text,
                      bool skip_special) {
    *w = (added_walk){.set = set, .trie = trie, .text = text, .skip_special = skip_special, .id = -1};
}

quire_err added_walk_next(added_walk *w, bool *more) {
    assert(w != NULL);
    w->id = -1;
    *more = true;
    while (w->trie->n > 1 && w->from < w->text.n) {
        size_t start = w->from = next_start(w), end = start + 1;
        if (start == w->text.n) {
            break;
        }
        int32_t token;
        TRY(longest_at(w, start, &token, &end));
        w->from = end;
        if (token < 0) {
            continue;
        }
        const added_token *t = &w->set->tokens[token];
        if ((w->skip_special && t->special) || (t->single_word && touches_word(w->text, start, end))) {
            continue;
        }
        start = t->lstrip ? skip_spaces_left(w->text, start, w->done) : start;
        end = t->rstrip ? skip_spaces_right(w->text, end < w->done ? w->done : end) : end;
        if (t->lstrip && end <= w->done) {
            continue; /* the previous token took its space */
        }
        w->stretch_at = w->done;
        /* the previous token may have taken the space at its start */
        w->stretch_n = start > w->done ? start - w->done : 0;
        w->done = end;
        w->id = t->id;
        return QUIRE_OK;
    }
    *more = w->done < w->text.n;
    w->stretch_at = w->done;
    w->stretch_n = w->text.n - w->done;
    w->done = w->text.n;
    return QUIRE_OK;
}

/* ---- marks ---- */

void text_marks_deinit(text_marks *m) {
    mem_free(m->runs);
    *m = (text_marks){0};
}

quire_err text_marks_add(text_marks *m, size_t start, size_t end) {
    if (start == end) {
        return QUIRE_OK;
    }
    if (m->n > 0 && m->runs[m->n - 1].end == start) {
        m->runs[m->n - 1].end = end;
        return QUIRE_OK;
    }
    TRY(mem_grow(&m->runs, &m->cap, m->n + 1, sizeof *m->runs));
    m->runs[m->n++] = (mark_run){start, end};
    return QUIRE_OK;
}

void text_marks_cut(text_marks *m, size_t n) {
    assert(m != NULL);
    while (m->n > 0 && m->runs[m->n - 1].start >= n) {
        m->n--;
    }
    if (m->n > 0 && m->runs[m->n - 1].end > n) {
        m->runs[m->n - 1].end = n;
    }
}

size_t text_marks_find(const text_marks *m, size_t at) {
    assert(m != NULL);
    size_t low = 0, high = m->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (m->runs[mid].end > at) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return low;
}

bool text_marks_allow(const text_marks *m, size_t start, size_t end) {
    size_t i = text_marks_find(m, start);
    return i == m->n || m->runs[i].start >= end;
}

/* ---- fill-in-the-middle ---- */

#define BAR  "\xEF\xBD\x9C" /* U+FF5C */
#define LINE "\xE2\x96\x81" /* U+2581 */

typedef struct fim_spelling {
    const char *pre, *suf, *mid; /* mid NULL: none, and the suffix comes first */
} fim_spelling;

static const fim_spelling fim_spellings[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<" BAR "fim" LINE "begin" BAR ">", "<" BAR "fim" LINE "hole" BAR ">", "<" BAR "fim" LINE "end" BAR ">"},
    {LINE "<PRE>", LINE "<SUF>", LINE "<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"[PREFIX]", "[SUFFIX]", NULL},
};

static const char *const fim_repos[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                        "<reponame>"};
static const char *const fim_files[] = {"<|file_sep|>", "<file_sep>"};

/* Where spellings are looked up. */
typedef struct fim_vocabulary {
    const added_set *added;
    const piece_table *pieces;
} fim_vocabulary;

static int32_t fim_look_up(const fim_vocabulary *t, str piece) {
    int32_t id = added_set_find(t->added, piece);
    return id >= 0 ? id : piece_table_find(t->pieces, piece);
}

static int32_t fim_find_one(const fim_vocabulary *t, const char *const *texts, size_t n) {
    int32_t id = -1;
    for (size_t i = 0; i < n && id < 0; i++) {
        id = fim_look_up(t, str_of(texts[i]));
    }
    return id;
}

/* Whether the three ids are different tokens. */
static bool fim_are_apart(int32_t a, int32_t b, int32_t c) {
    return a >= 0 && b >= 0 && c >= 0 && a != b && b != c && a != c;
}

static void fim_find_spelling(const fim_vocabulary *t, fim_marks *m) {
    for (size_t i = 0; i < sizeof fim_spellings / sizeof *fim_spellings; i++) {
        const fim_spelling *s = &fim_spellings[i];
        int32_t pre = fim_look_up(t, str_of(s->pre)), suf = fim_look_up(t, str_of(s->suf));
        int32_t mid = s->mid != NULL ? fim_look_up(t, str_of(s->mid)) : -1;
        bool is_whole = s->mid != NULL ? fim_are_apart(pre, suf, mid) : pre >= 0 && suf >= 0;
        if (is_whole) {
            m->pre = pre;
            m->suf = suf;
            m->mid = mid;
            m->suffix_first = s->mid == NULL;
            return;
        }
    }
}

fim_marks fim_find(const vocab *v, const added_set *added, const piece_table *pieces) {
    const fim_vocabulary all = {added, pieces}, *t = &all;
    fim_marks m = {.pre = -1, .suf = -1, .mid = -1, .repo = -1, .file = -1};
    bool is_keyed = v->source == VOCAB_GGUF && fim_are_apart(v->fim_pre, v->fim_suf, v->fim_mid);
    if (is_keyed) {
        m.pre = v->fim_pre;
        m.suf = v->fim_suf;
        m.mid = v->fim_mid;
    } else {
        fim_find_spelling(t, &m);
    }
    if (m.pre >= 0) {
        m.repo = fim_find_one(t, fim_repos, sizeof fim_repos / sizeof *fim_repos);
        m.file = fim_find_one(t, fim_files, sizeof fim_files / sizeof *fim_files);
    }
    return m;
}

bool fim_is_mark(const fim_marks *m, int32_t id) {
    return id >= 0 && (id == m->pre || id == m->suf || id == m->mid || id == m->repo || id == m->file);
}
