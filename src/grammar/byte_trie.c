/* Builds tries of sorted keys, block of children by block. */
#include "grammar/byte_trie.h"

#include <ctype.h>

#include "base/mem.h"
#include "base/utf8.h"

/* ---- groups of characters ---- */

/* Whether character c is of the same group as the one before it. */
static bool is_joined(int c) {
    return c > 0x20 && c != 'G' && c != 'g' && isalnum(c) && isalnum(c - 1);
}

void trie_groups_init(trie_groups *g) {
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

/* rest[i]: of text from byte i on, if a character begins there; [text.n + 1]. */
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

int trie_compare_keys(const void *x, const void *y) {
    const trie_key *a = x, *b = y;
    size_t n = a->text.n < b->text.n ? a->text.n : b->text.n;
    int c = memcmp(a->text.p, b->text.p, n);
    if (c != 0) {
        return c;
    }
    return a->text.n != b->text.n ? (a->text.n < b->text.n ? -1 : 1) : (a->token < b->token ? -1 : 1);
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

typedef struct level { /* the children of an open node: blocks of keys are given to those from `at` on */
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

/* Makes the children at a depth for keys first .. first + n, which are longer and equal
 * up to there. */
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

/* Gives a node the keys that end at it, and their groups to all nodes on the way; returns
 * how many end. */
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

quire_err trie_build(const trie_groups *g, const trie_key *keys, size_t n, int32_t *same, vocab_trie *out) {
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

void trie_free(vocab_trie *t) {
    mem_free(t->nodes);
    mem_free(t->under);
    mem_free(t->tokens);
}
