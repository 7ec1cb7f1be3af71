/* Automata are memoised: equal patterns, lists and combinations are one, so the schemas
 * of many tools share them. */
#include "grammar/dfa.h"

/* What was requested. */
typedef struct dfa_key {
    uint32_t kind, x, y;
    str text;
} dfa_key;

typedef enum memo_kind { MEMO_PATTERN, MEMO_NAMES, MEMO_LENGTH, MEMO_COMBINE, MEMO_QUOTED } memo_kind;

static dfa_key dfa_memo_key_of(const dfa_pool *p, const dfa_made *m) {
    const char *text = m->n_text > 0 ? (const char *)p->made_texts.p + m->text : "";
    return (dfa_key){m->kind, m->x, m->y, {text, m->n_text}};
}

static uint32_t dfa_memo_hash_of(const dfa_key *k) {
    const uint32_t words[] = {k->kind, k->x, k->y};
    return (uint32_t)str_hash(str_hash(STR_HASH_START, (str){(const char *)words, sizeof words}), k->text);
}

/* Whether it was made before; *x: its number. */
static bool dfa_memo_find(const dfa_pool *p, const dfa_key *k, uint32_t *x) {
    uint32_t hash = dfa_memo_hash_of(k);
    if (p->b->failed != QUIRE_OK) {
        return false;
    }
    HASH_INDEX_EACH(&p->index, hash, i) {
        dfa_key other = dfa_memo_key_of(p, &p->made.p[i]);
        if (!build_step(p->b, 1)) {
            return false;
        }
        if (other.kind == k->kind && other.x == k->x && other.y == k->y && str_eq(other.text, k->text)) {
            *x = p->made.p[i].dfa;
            return true;
        }
    }
    return false;
}

/* Notes what was made; returns x. */
static uint32_t dfa_memo_note(dfa_pool *p, const dfa_key *k, uint32_t x) {
    uint32_t first = p->made_texts.n;
    for (size_t i = 0; i < k->text.n; i++) {
        uint8_t *byte = NFA_PUSH(p->b, p->made_texts);
        if (byte != NULL) {
            *byte = (uint8_t)k->text.p[i];
        }
    }
    dfa_made *m = NFA_PUSH(p->b, p->made);
    if (m != NULL) {
        *m = (dfa_made){k->kind, k->x, k->y, first, (uint32_t)k->text.n, x};
        (void)build_index(p->b, &p->index, dfa_memo_hash_of(k), p->made.n - 1);
    }
    return x;
}

uint32_t dfa_pattern(dfa_pool *p, str regex) {
    const dfa_key k = {MEMO_PATTERN, 0, 0, regex};
    uint32_t x;
    return dfa_memo_find(p, &k, &x) ? x : dfa_memo_note(p, &k, dfa_make_pattern(p, regex));
}

uint32_t dfa_names(dfa_pool *p, const str *names, uint32_t n) {
    strbuf text = {0};
    uint32_t x = DFA_ANY;
    quire_err e = QUIRE_OK;
    for (uint32_t i = 0; i < n; i++) {
        TRY_DONE(e, strbuf_add(&text, &names[i].n, sizeof names[i].n));
        TRY_DONE(e, strbuf_add(&text, names[i].p, names[i].n));
    }
    const dfa_key k = {MEMO_NAMES, n, 0, {text.p != NULL ? text.p : "", text.n}};
    x = dfa_memo_find(p, &k, &x) ? x : dfa_memo_note(p, &k, dfa_make_names(p, names, n));
done:
    if (e != QUIRE_OK) {
        (void)build_fail(p->b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
    }
    strbuf_deinit(&text);
    return x;
}

uint32_t dfa_length(dfa_pool *p, uint32_t min, uint32_t max) {
    const dfa_key k = {MEMO_LENGTH, min, max, {"", 0}};
    uint32_t x;
    return dfa_memo_find(p, &k, &x) ? x : dfa_memo_note(p, &k, dfa_make_length(p, min, max));
}

uint32_t dfa_combine(dfa_pool *p, uint32_t x, uint32_t y, dfa_op op) {
    const dfa_key k = {MEMO_COMBINE + ((uint32_t)op << 8), x, y, {"", 0}};
    uint32_t both;
    return dfa_memo_find(p, &k, &both) ? both : dfa_memo_note(p, &k, dfa_make_combined(p, x, y, op));
}

uint32_t dfa_quoted(dfa_pool *p, uint32_t x, char quote) {
    const dfa_key k = {MEMO_QUOTED, x, (uint8_t)quote, {"", 0}};
    uint32_t q;
    return dfa_memo_find(p, &k, &q) ? q : dfa_memo_note(p, &k, dfa_make_quoted(p, x, quote));
}
