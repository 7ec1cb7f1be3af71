/* Builds the tries of a vocabulary, and the sets of tokens that are plain text in a JSON
 * string. Private to this room; immutable once open. */
#include "grammar/grammar_run.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/nfa.h"

/* ---- groups of characters ---- */

/* Whether character c is in the same group as c - 1. */
static bool is_joined(int c) {
    return c > 0x20 && c != 'G' && c != 'g' && isalnum(c) && isalnum(c - 1);
}

static void trie_groups_init(trie_groups *g) {
    uint8_t n = 0, last = TRIE_CONTROL;
    *g = (trie_groups){.plain = ((uint64_t)1 << (TRIE_OTHER + 1)) - 1};
    for (int c = 0; c < 128; c++) {
        if (c < 0x20 && c != '\t' && c != '\n' && c != '\r') {
            g->of[c] = TRIE_CONTROL;
        } else {
            last = (uint8_t)(last + !is_joined(c));
            g->of[c] = last;
        }
        g->words |= isalnum(c) ? (uint64_t)1 << g->of[c] : 0;
        g->plain &= c < 0x20 || c == '"' || c == '\\' ? ~((uint64_t)1 << g->of[c]) : UINT64_MAX;
    }
    for (uint8_t group = 0; group < TRIE_OTHER; group++) {
        g->start[group] = n;
        for (int c = 0; c < 128; c++) {
            if (g->of[c] == group) {
                g->bytes[n++] = (uint8_t)c;
            }
        }
    }
    g->start[TRIE_OTHER] = n;
}

/* Sets rest[i] [text.n + 1] to the groups of the text from byte i on, if a character
 * begins there. */
static void find_groups(const trie_groups *g, str text, trie_under *rest) {
    rest[text.n] = (trie_under){0};
    for (size_t i = text.n, len; i-- > 0;) {
        int32_t c = utf8_decode(text.p + i, text.n - i, &len);
        uint32_t group = c >= 128                                     ? TRIE_OTHER
                         : c >= 0                                     ? g->of[c]
                         : utf8_is_unfinished(text.p + i, text.n - i) ? TRIE_OTHER
                                                                      : TRIE_WRONG;
        rest[i] = rest[c >= 0 ? i + len : text.n];
        rest[i].groups |= (uint64_t)1 << group;
        rest[i].chars++;
    }
}

/* ---- building ---- */

/* For qsort: orders keys by bytes, then by token. */
static int trie_compare_keys(const void *x, const void *y) {
    const trie_key *a = x, *b = y;
    int c = str_compare(a->text, b->text);
    return c != 0 ? c : a->token < b->token ? -1 : 1;
}

static size_t common(str a, str b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n]) {
        n++;
    }
    return n;
}

static quire_err allocate(const trie_key *keys, size_t n, vocab_trie *out) {
    size_t n_nodes = 0;
    for (size_t i = 0; i < n; i++) {
        n_nodes += keys[i].text.n - (i > 0 ? common(keys[i - 1].text, keys[i].text) : 0);
    }
    if (n_nodes > UINT32_MAX) {
        return QUIRE_TOO_LARGE;
    }
    out->nodes = mem_new(n_nodes, sizeof *out->nodes);
    out->under = mem_new(n_nodes, sizeof *out->under);
    out->tokens = mem_new(n, sizeof *out->tokens);
    return out->nodes == NULL || out->under == NULL || out->tokens == NULL ? QUIRE_NO_MEMORY : QUIRE_OK;
}

typedef struct level { /* the children of an open node, which get blocks of keys from `at` on */
    uint32_t at, end;
} level;

typedef struct builder {
    const trie_groups *groups;
    const trie_key *keys;
    int32_t *same;
    vocab_trie *t;
    level levels[VOCAB_MAX_TOKEN + 1];
    trie_under of_key[VOCAB_MAX_TOKEN + 1];
} builder;

/* Makes the children at this depth for keys first .. first + n, which are longer and
 * equal so far. */
static void byte_trie_add_children(builder *b, uint32_t first, uint32_t n, size_t depth) {
    vocab_trie *t = b->t;
    level *l = &b->levels[depth];
    l->at = t->n;
    for (uint32_t i = first; i < first + n; i++) {
        uint8_t byte = (uint8_t)b->keys[i].text.p[depth];
        if (t->n == l->at || t->nodes[t->n - 1].byte != byte) {
            t->under[t->n].first = i;
            t->nodes[t->n++] = (trie_node){.token = -1, .byte = byte};
        }
        t->under[t->n - 1].n++;
    }
    l->end = t->n;
}

/* Assigns to a node the keys that end at it, and their groups to all nodes on the way.
 * Returns how many keys end. */
static uint32_t end_keys(builder *b, uint32_t node, size_t depth) {
    trie_under *u = &b->t->under[node];
    uint32_t n = 0;
    while (n < u->n && b->keys[u->first + n].text.n == depth + 1) {
        int32_t token = b->keys[u->first + n++].token;
        b->same[token] = b->t->nodes[node].token;
        b->t->nodes[node].token = token;
    }
    if (n > 0) {
        find_groups(b->groups, b->keys[u->first].text, b->of_key);
        for (size_t d = 0; d <= depth; d++) {
            trie_under *above = &b->t->under[b->levels[d].at];
            const trie_under *rest = &b->of_key[d + 1];
            above->groups |= rest->groups;
            above->chars = above->chars > rest->chars ? above->chars : rest->chars;
        }
    }
    return n;
}

static void byte_trie_add_all(builder *b, uint32_t n) {
    size_t depth = 0;
    byte_trie_add_children(b, 0, n, 0);
    b->t->n_roots = b->t->n;
    for (;;) {
        level *l = &b->levels[depth];
        if (l->at == l->end) {
            if (depth == 0) {
                return;
            }
            b->levels[--depth].at++;
            continue;
        }
        uint32_t node = l->at, ended = end_keys(b, node, depth), rest = b->t->under[node].n - ended;
        b->t->nodes[node].child = b->t->n;
        byte_trie_add_children(b, b->t->under[node].first + ended, rest, ++depth);
        b->t->nodes[node].n = (uint16_t)(b->t->n - b->t->nodes[node].child);
    }
}

/* Builds a trie of n sorted keys of 1 to VOCAB_MAX_TOKEN bytes. same[token]: the next
 * token with the same bytes. */
static quire_err trie_build(const trie_groups *g, const trie_key *keys, size_t n, int32_t *same,
                            vocab_trie *out) {
    builder *b = mem_new(1, sizeof *b);
    quire_err e = b != NULL ? allocate(keys, n, out) : QUIRE_NO_MEMORY;
    if (e == QUIRE_OK) {
        b->groups = g;
        b->keys = keys;
        b->same = same;
        b->t = out;
        for (size_t i = 0; i < n; i++) {
            out->tokens[i] = keys[i].token;
        }
        byte_trie_add_all(b, (uint32_t)n);
    }
    mem_free(b);
    return e;
}

static void trie_free(vocab_trie *t) {
    assert(t != NULL);
    mem_free(t->nodes);
    mem_free(t->under);
    mem_free(t->tokens);
}

/* ---- plain tokens ---- */

/* The number of characters; 0: the text is not plain in a JSON string. */
static uint32_t plain_length(str text) {
    uint32_t n = 0;
    for (size_t i = 0, len; i < text.n; i += len, n++) {
        int32_t c = utf8_decode(text.p + i, text.n - i, &len);
        if (c < 0x20 || c == '"' || c == '\\') {
            return 0;
        }
    }
    return n;
}

static void mark_plain(grammar_vocab *v) {
    for (int32_t t = 0; t < v->n_tokens; t++) {
        str text = vocab_text(v, t);
        uint32_t n = vocab_is_end(v, t) || text.n > VOCAB_MAX_TOKEN ? 0 : plain_length(text);
        for (uint32_t k = n; n > 0 && k <= VOCAB_PLAIN; k++) {
            v->plain[k][t / 64] |= (uint64_t)1 << (t % 64);
        }
    }
}

static bool token_trie_is_plain(const grammar_vocab *v, int32_t t) {
    return (v->plain[VOCAB_PLAIN][t / 64] >> (t % 64) & 1) != 0;
}

/* ---- inside a JSON string ---- */

typedef enum token_kind { STAYS, LEAVES, ODD, NEVER } token_kind; /* ODD: only a walk can tell */

/* Classifies a token that begins between characters inside a string. *quote: where it
 * leaves; *n_chars: if it stays, its characters, where the last may be unfinished. */
static token_kind token_trie_kind_of(str text, size_t *quote, uint32_t *n_chars) {
    *n_chars = 0;
    for (size_t i = 0, len; i < text.n; i += len) {
        ++*n_chars;
        int32_t c = utf8_decode(text.p + i, text.n - i, &len);
        if (c == '"') {
            *quote = i;
            return LEAVES;
        }
        if (c == '\\') {
            if (i + 1 == text.n) {
                return STAYS;
            }
            if (text.p[i + 1] == 0 || strchr("\"\\/bfnrtu", text.p[i + 1]) == NULL) {
                return NEVER;
            }
            if (text.p[i + 1] == 'u') {
                return ODD;
            }
            len = 2;
        } else if (c < 0) {
            return utf8_is_unfinished(text.p + i, text.n - i) ? STAYS : NEVER;
        } else if (c < 0x20) {
            return NEVER;
        }
    }
    return STAYS;
}

static void set_bit(uint64_t *bits, int32_t t) {
    bits[t / 64] |= (uint64_t)1 << (t % 64);
}

static void token_trie_add_body(grammar_vocab *v, int32_t t, uint32_t n_chars) {
    set_bit(v->body, t);
    for (uint32_t k = n_chars; k <= VOCAB_PLAIN; k++) {
        set_bit(v->within[k], t);
    }
    if (n_chars > VOCAB_PLAIN) {
        v->longer[v->n_longer++] = (vocab_long){n_chars, t};
    }
}

static int compare_long(const void *x, const void *y) {
    const vocab_long *a = x, *b = y;
    return a->chars != b->chars  ? (a->chars < b->chars ? -1 : 1)
           : a->token < b->token ? -1
                                 : a->token > b->token;
}

/* Builds the tries for strings. keys: of all tokens, sorted. */
static quire_err build_string_tries(grammar_vocab *v, const trie_key *keys, size_t n) {
    trie_key *own = mem_new(n * 3, sizeof *own), *odd = own + n, *tails = own + 2 * n;
    size_t n_quoted = 0, n_odd = 0, n_tails = 0, quote = 0;
    v->longer = mem_new(n, sizeof *v->longer);
    TRY(mem_check(own));
    for (size_t i = 0; i < n && v->longer != NULL; i++) {
        uint32_t n_chars;
        token_kind kind = token_trie_kind_of(keys[i].text, &quote, &n_chars);
        int32_t t = keys[i].token;
        if (kind == STAYS) {
            token_trie_add_body(v, t, n_chars);
        }
        if (kind == STAYS || kind == NEVER) {
            continue;
        }
        own[n_quoted++] = keys[i];
        if (kind == ODD || n_chars - 1 > UINT8_MAX) {
            odd[n_odd++] = keys[i];
        } else {
            v->before[t] = (uint8_t)(n_chars - 1);
            v->most_before = n_chars - 1 > v->most_before ? n_chars - 1 : v->most_before;
            tails[n_tails++] = (trie_key){{keys[i].text.p + quote, keys[i].text.n - quote}, t};
        }
    }
    qsort(tails, n_tails, sizeof *tails, trie_compare_keys);
    quire_err e = mem_check(v->longer);
    TRY_DONE(e, trie_build(&v->groups, own, n_quoted, v->same, &v->quoted));
    TRY_DONE(e, trie_build(&v->groups, odd, n_odd, v->same, &v->odd));
    TRY_DONE(e, trie_build(&v->groups, tails, n_tails, v->same_tail, &v->tails));
    qsort(v->longer, v->n_longer, sizeof *v->longer, compare_long);
done:
    mem_free(own);
    return e;
}

/* ---- tokens that may contain a complete name ---- */

static uint32_t n_quotes(str text) {
    uint32_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        n += text.p[i] == '"' || text.p[i] == '\'';
    }
    return n;
}

static bool has_quotes(str text) {
    return n_quotes(text) >= 2;
}
static bool has_three(str text) {
    return n_quotes(text) >= 3;
}
static bool has_beginning(str text) {
    return n_quotes((str){text.p, text.n - 1}) > 0;
}

static bool token_trie_is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool token_trie_has_word(str text) {
    size_t i = 0;
    while (i < text.n && token_trie_is_word(text.p[i])) {
        i++;
    }
    while (i < text.n && !token_trie_is_word(text.p[i])) {
        i++;
    }
    while (i < text.n && token_trie_is_word(text.p[i])) {
        i++;
    }
    return i < text.n;
}

/* Builds a trie of the tokens for which is_in holds. keys: of all tokens, sorted. */
static quire_err build_some(grammar_vocab *v, const trie_key *keys, size_t n, bool (*is_in)(str text),
                            vocab_trie *out) {
    trie_key *some = mem_new(n, sizeof *some);
    size_t n_some = 0;
    TRY(mem_check(some));
    for (size_t i = 0; i < n; i++) {
        if (is_in(keys[i].text)) {
            some[n_some++] = keys[i];
        }
    }
    quire_err e = trie_build(&v->groups, some, n_some, v->same, out);
    mem_free(some);
    return e;
}

static bool token_trie_is_space(str text) {
    size_t n = 0;
    while (n < text.n && strchr(" \n\t\r", text.p[n]) != NULL && text.p[n] != 0) {
        n++;
    }
    return n == text.n;
}

/* Builds the trie of tokens that are not white space. keys: of all tokens, sorted;
 * overwritten. */
static quire_err build_others(grammar_vocab *v, trie_key *keys, size_t n) {
    size_t n_others = 0;
    v->spaces = mem_new(n, sizeof *v->spaces);
    TRY(mem_check(v->spaces));
    for (size_t i = 0; i < n; i++) {
        if (token_trie_is_space(keys[i].text)) {
            v->spaces[v->n_spaces++] = keys[i].token;
        } else {
            keys[n_others++] = keys[i];
        }
    }
    return trie_build(&v->groups, keys, n_others, v->same, &v->others);
}

static quire_err build_tries(grammar_vocab *v) {
    trie_key *keys = mem_new((size_t)v->n_tokens, sizeof *keys), *rest = NULL;
    size_t n = 0, n_rest = 0;
    TRY(mem_check(keys));
    for (int32_t t = 0; t < v->n_tokens; t++) {
        str text = vocab_text(v, t);
        if (text.n > 0 && text.n <= VOCAB_MAX_TOKEN && !vocab_is_end(v, t)) {
            keys[n++] = (trie_key){text, t};
            v->longest = text.n > v->longest ? (uint32_t)text.n : v->longest;
        }
    }
    qsort(keys, n, sizeof *keys, trie_compare_keys);
    quire_err e = trie_build(&v->groups, keys, n, v->same, &v->all);
    TRY_DONE(e, build_string_tries(v, keys, n));
    rest = mem_new(n, sizeof *rest);
    TRY_DONE(e, mem_check(rest));
    for (size_t i = 0; i < n; i++) {
        if (!token_trie_is_plain(v, keys[i].token)) {
            rest[n_rest++] = keys[i];
        }
    }
    TRY_DONE(e, trie_build(&v->groups, rest, n_rest, v->same, &v->rest));
    TRY_DONE(e, build_some(v, keys, n, has_quotes, &v->quotes));
    TRY_DONE(e, build_some(v, keys, n, has_three, &v->thrice));
    TRY_DONE(e, build_some(v, keys, n, has_beginning, &v->begins));
    TRY_DONE(e, build_some(v, keys, n, token_trie_has_word, &v->words));
    TRY_DONE(e, build_others(v, keys, n));
done:
    mem_free(rest);
    mem_free(keys);
    return e;
}

/* ---- opening ---- */

/* The effective text of a token: empty if it has the byte that begins special tokens
 * without being one, so that tokens of single bytes cannot spell one. */
static str token_trie_counted(str text) {
    bool is_mark = text.n == 1 + NFA_MARK_DIGITS && (uint8_t)text.p[0] == NFA_MARK_BYTE;
    return text.n == 0 || is_mark || memchr(text.p, (int)NFA_MARK_BYTE, text.n) == NULL ? text : (str){"", 0};
}

static quire_err copy_texts(grammar_vocab *v, const str *texts, const int32_t *ends) {
    size_t total = 0;
    for (int32_t t = 0; t < v->n_tokens; t++) {
        v->starts[t] = (uint32_t)total;
        total += token_trie_counted(texts[t]).n;
        if (total > UINT32_MAX) {
            return QUIRE_TOO_LARGE;
        }
    }
    v->starts[v->n_tokens] = (uint32_t)total;
    v->bytes = mem_new(total, 1);
    TRY(mem_check(v->bytes));
    for (int32_t t = 0; t < v->n_tokens; t++) {
        str text = token_trie_counted(texts[t]);
        mem_copy(v->bytes + v->starts[t], text.p, text.n);
    }
    mem_copy(v->ends, ends, (size_t)v->n_ends * sizeof *ends);
    return QUIRE_OK;
}

static quire_err token_trie_fill(grammar_vocab *v, const str *texts, const int32_t *ends) {
    v->ends = mem_new((size_t)v->n_ends, sizeof *v->ends);
    v->same = mem_new((size_t)v->n_tokens, sizeof *v->same);
    v->same_tail = mem_new((size_t)v->n_tokens, sizeof *v->same_tail);
    v->before = mem_new((size_t)v->n_tokens, sizeof *v->before);
    v->starts = mem_new((size_t)v->n_tokens + 1, sizeof *v->starts);
    v->n_words = ((size_t)v->n_tokens + 63) / 64;
    v->body = mem_new(v->n_words, sizeof *v->body);
    TRY(mem_check(v->same_tail));
    TRY(mem_check(v->before));
    TRY(mem_check(v->body));
    TRY(mem_check(v->ends));
    TRY(mem_check(v->same));
    TRY(mem_check(v->starts));
    for (int i = 0; i <= VOCAB_PLAIN; i++) {
        v->plain[i] = mem_new(v->n_words, sizeof *v->plain[i]);
        TRY(mem_check(v->plain[i]));
        v->within[i] = mem_new(v->n_words, sizeof *v->within[i]);
        TRY(mem_check(v->within[i]));
    }
    TRY(copy_texts(v, texts, ends));
    trie_groups_init(&v->groups);
    memset(v->same, 0xFF, (size_t)v->n_tokens * sizeof *v->same);
    memset(v->same_tail, 0xFF, (size_t)v->n_tokens * sizeof *v->same_tail);
    mark_plain(v);
    return build_tries(v);
}

quire_err grammar_vocab_open(const str *texts, int32_t n, const int32_t *ends, int32_t n_ends,
                             grammar_vocab **out) {
    *out = NULL;
    if (n <= 0 || n_ends < 0) {
        return QUIRE_INVALID;
    }
    for (int32_t i = 0; i < n_ends; i++) {
        if (ends[i] < 0 || ends[i] >= n) {
            return QUIRE_INVALID;
        }
    }
    grammar_vocab *v = mem_new(1, sizeof *v);
    TRY(mem_check(v));
    v->refs = 1;
    v->n_tokens = n;
    v->n_ends = n_ends;
    quire_err e = token_trie_fill(v, texts, ends);
    if (e != QUIRE_OK) {
        grammar_vocab_drop(v);
        return e;
    }
    *out = v;
    return QUIRE_OK;
}

grammar_vocab *grammar_vocab_share(grammar_vocab *v) {
    if (v != NULL) {
        atomic_fetch_add(&v->refs, 1);
    }
    return v;
}

void grammar_vocab_drop(grammar_vocab *v) {
    if (v == NULL || atomic_fetch_sub(&v->refs, 1) > 1) {
        return;
    }
    for (int i = 0; i <= VOCAB_PLAIN; i++) {
        mem_free(v->plain[i]);
        mem_free(v->within[i]);
    }
    vocab_trie *tries[] = {&v->all,    &v->rest,   &v->quoted, &v->odd,    &v->tails,
                           &v->others, &v->quotes, &v->thrice, &v->begins, &v->words};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        trie_free(tries[i]);
    }
    mem_free(v->ends);
    mem_free(v->same);
    mem_free(v->starts);
    mem_free(v->bytes);
    mem_free(v->body);
    mem_free(v->spaces);
    mem_free(v->same_tail);
    mem_free(v->before);
    mem_free(v->longer);
    mem_free(v);
}

int32_t grammar_vocab_size(const grammar_vocab *v) {
    return v->n_tokens;
}

str grammar_vocab_text(const grammar_vocab *v, int32_t token) {
    return vocab_text(v, token);
}

size_t grammar_mask_words(const grammar_vocab *v) {
    return v->n_words;
}
