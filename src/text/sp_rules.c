#include "text/sp_rules.h"

#include "base/turn.h"
#include "base/utf8.h"

void sp_rules_deinit(sp_rules *r) {
    charsmap_deinit(&r->map);
    *r = (sp_rules){0};
}

/* What the start of text becomes, and how many bytes of it: a symbol, the longest rule,
 * or a character. */
static str sp_rules_next_part(const sp_rules *r, str text, size_t *n) {
    str to;
    if (r->symbols != NULL && piece_trie_longest(r->symbols, PIECE_TRIE_ROOT, text, n) >= 0) {
        return (str){text.p, *n};
    }
    if (charsmap_find(&r->map, text, CHARSMAP_LONGEST, n, &to)) {
        return to;
    }
    (void)utf8_next(text.p, n);
    return (str){text.p, *n};
}

static quire_err add_space(const sp_rules *r, strbuf *out) {
    return strbuf_add_str(out, r->escape ? SP_MARK : " ");
}

static quire_err sp_rules_add_part(const sp_rules *r, str part, strbuf *out) {
    for (size_t i = 0; i < part.n;) {
        const char *space = r->escape ? memchr(part.p + i, ' ', part.n - i) : NULL;
        size_t upto = space != NULL ? (size_t)(space - part.p) : part.n;
        TRY(strbuf_add(out, part.p + i, upto - i));
        TRY(space != NULL ? add_space(r, out) : QUIRE_OK);
        i = upto + (space != NULL);
    }
    return QUIRE_OK;
}

static str rest_of(str text, size_t n) {
    return (str){text.p + n, text.n - n};
}

quire_err sp_rules_run(const sp_rules *r, str text, strbuf *out) {
    size_t n, before = out->n;
    while (r->remove_extra && text.n > 0 && str_is(sp_rules_next_part(r, text, &n), " ")) {
        TRY(turn_poll(1));
        text = rest_of(text, n);
    }
    if (text.n == 0) {
        return QUIRE_OK;
    }
    TRY(r->dummy_prefix && !r->suffix ? add_space(r, out) : QUIRE_OK);
    bool after_space = r->remove_extra;
    for (; text.n > 0; text = rest_of(text, n)) {
        str part = sp_rules_next_part(r, text, &n);
        TRY(turn_poll((uint32_t)(n / 16 + 1)));
        while (after_space && part.n > 0 && part.p[0] == ' ') {
            part = rest_of(part, 1);
        }
        TRY(sp_rules_add_part(r, part, out));
        after_space = part.n == 0 ? after_space : r->remove_extra && part.p[part.n - 1] == ' ';
    }
    str space = str_of(r->escape ? SP_MARK : " ");
    while (r->remove_extra && out->n - before >= space.n &&
           memcmp(out->p + out->n - space.n, space.p, space.n) == 0) {
        out->n -= space.n;
    }
    return r->dummy_prefix && r->suffix ? add_space(r, out) : QUIRE_OK;
}
