#include "text/marker.h"

#include "base/mem.h"
#include "text/tokenizer_impl.h"

/* Flags of a position in a literal, between two of its bytes. */
enum { STARTS = 1, ENDS = 2, OPENS = 4, CLOSES = 8 };

static quire_err add_token(marker *m, str content, strbuf *reversed) {
    strbuf_clear(reversed);
    for (size_t i = content.n; i-- > 0;) {
        TRY(strbuf_add_char(reversed, content.p[i]));
    }
    str back = {reversed->p, reversed->n};
    TRY(added_set_add(&m->forward, &(added_token){.content = content, .pattern = content}));
    return added_set_add(&m->backward, &(added_token){.content = back, .pattern = back});
}

quire_err marker_open(const tokenizer *t, marker *m) {
    strbuf reversed = {0};
    quire_err e = QUIRE_OK;
    for (size_t i = 0; t != NULL && i < t->added.n && e == QUIRE_OK; i++) {
        const added_token *a = &t->added.tokens[i];
        if (a->control && a->content.n > 0) {
            e = add_token(m, a->content, &reversed);
        }
    }
    strbuf_deinit(&reversed);
    TRY(e);
    TRY(added_set_finish(&m->forward, 1));
    return added_set_finish(&m->backward, 1);
}

void marker_deinit(marker *m) {
    added_set_deinit(&m->forward);
    added_set_deinit(&m->backward);
}

/* Flags tokens that begin at literal[at]. Returns whether one extends beyond the literal. */
static uint8_t look_forward(const added_trie *t, str literal, size_t at, uint8_t *flags) {
    const trie_node *node = &t->nodes[0];
    size_t i = at;
    uint8_t found = 0;
    for (; i < literal.n; i++) {
        node = added_trie_child(t, node, (uint8_t)literal.p[i]);
        if (node == NULL) {
            return found;
        }
        if (node->token >= 0) {
            flags[i + 1] |= ENDS;
            found = STARTS;
        }
    }
    return node->n_children > 0 ? found | OPENS : found;
}

/* True when literal[0..end) is the end of a longer token. */
static bool closes(const added_trie *t, str literal, size_t end) {
    const trie_node *node = &t->nodes[0];
    for (size_t i = end; i-- > 0;) {
        node = added_trie_child(t, node, (uint8_t)literal.p[i]);
        if (node == NULL) {
            return false;
        }
    }
    return node->n_children > 0;
}

/* Returns all flags together. */
static uint8_t flag_places(const marker *m, str literal, uint8_t *flags) {
    uint8_t all = 0;
    for (size_t i = 0; i < literal.n; i++) {
        uint8_t byte = (uint8_t)literal.p[i];
        if (m->forward.raw.starts[byte]) {
            flags[i] |= look_forward(&m->forward.raw, literal, i, flags);
        }
        if (m->backward.raw.starts[byte] && closes(&m->backward.raw, literal, i + 1)) {
            flags[i + 1] |= CLOSES;
        }
        all |= flags[i] | flags[i + 1];
    }
    return all;
}

static quire_err add_if(strbuf *out, bool wanted, int mark) {
    return wanted ? strbuf_add_char(out, (char)mark) : QUIRE_OK;
}

quire_err marker_write(const marker *m, str literal, strbuf *out) {
    uint8_t *flags = mem_new(literal.n + 1, sizeof *flags);
    TRY(mem_check(flags));
    uint8_t all = flag_places(m, literal, flags);
    quire_err e = add_if(out, all & CLOSES, MARK_EDGE_BEFORE);
    for (size_t i = 0; i <= literal.n && e == QUIRE_OK; i++) {
        e = add_if(out, flags[i] & CLOSES, MARK_CLOSE);
        e = e == QUIRE_OK ? add_if(out, flags[i] & ENDS, MARK_END) : e;
        e = e == QUIRE_OK ? add_if(out, flags[i] & OPENS, MARK_OPEN) : e;
        e = e == QUIRE_OK ? add_if(out, flags[i] & STARTS, MARK_START) : e;
        e = e == QUIRE_OK && i < literal.n ? strbuf_add_char(out, literal.p[i]) : e;
    }
    e = e == QUIRE_OK ? add_if(out, all & OPENS, MARK_EDGE_BEHIND) : e;
    mem_free(flags);
    return e;
}
