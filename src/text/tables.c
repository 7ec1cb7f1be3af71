#include "text/tables.h"

#include "base/size.h"
#include "text/tokenizer_impl.h"

#define ALIGN 64

/* ---- writing ---- */

static quire_err add_area(strbuf *out, const void *p, size_t n) {
    static const char zeros[ALIGN];
    TRY(strbuf_add(out, zeros, size_align(out->n, ALIGN) - out->n));
    return strbuf_add(out, p, n);
}

static size_t n_slots(const piece_table *t) {
    return t->slots != NULL ? (size_t)t->mask + 1 : 0;
}

static size_t n_pair_slots(const pair_table *t) {
    return t->slots != NULL ? t->mask + 1 : 0;
}

static tables_pieces pieces_of(const piece_table *t) {
    return (tables_pieces){
        .n_ids = (uint64_t)t->n, .n_text = t->bytes.n, .n_slots = n_slots(t), .seed = t->seed};
}

static tables_pairs tables_pairs_of(const pair_table *t) {
    return (tables_pairs){.n = t->n, .n_slots = n_pair_slots(t), .seed = t->seed};
}

static quire_err add_pieces(strbuf *out, const piece_table *t) {
    TRY(add_area(out, t->bytes.p, t->bytes.n));
    TRY(add_area(out, t->spans, (size_t)t->n * sizeof *t->spans));
    return add_area(out, t->slots, n_slots(t) * sizeof *t->slots);
}

quire_err tables_write(const tokenizer *t, strbuf *out) {
    static const bpe no_bpe;
    static const piece_trie no_trie;
    const piece_model *m = &t->model;
    const bpe *b = m->ops == &piece_model_bpe ? &m->bpe : &no_bpe;
    bool is_unigram = m->ops == &piece_model_unigram;
    const piece_trie *trie = is_unigram                         ? &m->unigram.trie
                             : m->ops == &piece_model_wordpiece ? &m->wordpiece.trie
                                                                : &no_trie;
    tables_header h = {.version = TABLES_VERSION,
                       .vocab = pieces_of(&t->vocab),
                       .inner = pieces_of(&b->inner),
                       .pairs = tables_pairs_of(&b->pairs),
                       .neighbours = tables_pairs_of(&b->neighbours),
                       .n_units = trie->n,
                       .n_scores = is_unigram ? (uint64_t)t->vocab.n : 0,
                       .unknown_score = is_unigram ? m->unigram.unknown_score : 0};
    TRY(add_area(out, &h, sizeof h));
    TRY(add_pieces(out, &t->vocab));
    TRY(add_pieces(out, &b->inner));
    TRY(add_area(out, b->pairs.slots, n_pair_slots(&b->pairs) * sizeof *b->pairs.slots));
    TRY(add_area(out, b->neighbours.slots, n_pair_slots(&b->neighbours) * sizeof *b->neighbours.slots));
    TRY(add_area(out, trie->units, trie->n * sizeof *trie->units));
    return add_area(out, is_unigram ? m->unigram.scores : NULL,
                    is_unigram ? (size_t)t->vocab.n * sizeof(double) : 0);
}

/* ---- reading ---- */

typedef struct reader {
    str bytes;
    size_t at;
} reader;

/* Takes n elements of `size` bytes at the next multiple of ALIGN; NULL if they do not
 * fit. */
static void *text_tables_take(reader *r, uint64_t n, size_t size) {
    size_t at = size_align(r->at, ALIGN), bytes;
    if (n > SIZE_MAX || !size_mul((size_t)n, size, &bytes) || at > r->bytes.n || bytes > r->bytes.n - at) {
        return NULL;
    }
    r->at = at + bytes;
    return (void *)(uintptr_t)(r->bytes.p + at); /* never written to, since the tables are borrowed */
}

/* Whether a search in this number of slots terminates: a power of two, at least a quarter
 * of them empty. */
static bool is_table(uint64_t n, size_t n_used) {
    return n > 0 && (n & (n - 1)) == 0 && n_used <= n / 4 * 3 && n_used < n;
}

static bool tables_is_inside(piece_span s, const piece_table *t) {
    return s.at <= t->bytes.n && s.n <= t->bytes.n - s.at;
}

static bool check_pieces(const piece_table *t, uint64_t n_slots_) {
    size_t n_used = 0;
    bool good = true;
    for (int32_t i = 0; i < t->n; i++) {
        good &= tables_is_inside(t->spans[i], t);
    }
    for (uint64_t i = 0; i < n_slots_; i++) {
        const piece_slot *s = &t->slots[i];
        n_used += s->id_plus_1 != 0;
        good &= s->id_plus_1 >= 0 && s->id_plus_1 <= t->n && tables_is_inside(s->span, t);
    }
    return good && is_table(n_slots_, n_used);
}

static bool tables_take_pieces(reader *r, tables_pieces h, piece_table *t) {
    char *text = text_tables_take(r, h.n_text, 1);
    void *spans = text_tables_take(r, h.n_ids, sizeof *t->spans),
         *slots = text_tables_take(r, h.n_slots, sizeof *t->slots);
    if (text == NULL || spans == NULL || slots == NULL || h.n_ids > INT32_MAX - 0x110000 ||
        h.n_text > UINT32_MAX || h.n_slots > (uint64_t)1 << 32) {
        return false;
    }
    if (h.n_slots == 0) {
        return h.n_ids == 0;
    }
    *t = (piece_table){.bytes = {.p = text, .n = (size_t)h.n_text},
                       .spans = spans,
                       .n = (int32_t)h.n_ids,
                       .slots = slots,
                       .mask = (uint32_t)(h.n_slots - 1),
                       .seed = h.seed,
                       .borrowed = true};
    return check_pieces(t, h.n_slots);
}

/* Takes a table of pairs. A result may be any number: bpe.c treats it as a symbol, and
 * outputs only numbers of tokens. */
static bool take_pairs(reader *r, tables_pairs h, pair_table *t) {
    pair_slot *slots = text_tables_take(r, h.n_slots, sizeof *slots);
    size_t n_used = 0;
    if (slots == NULL || h.n_slots == 0) {
        return slots != NULL;
    }
    for (uint64_t i = 0; i < h.n_slots; i++) {
        n_used += slots[i].left_plus_1 != 0;
    }
    *t = (pair_table){
        .slots = slots, .mask = (size_t)h.n_slots - 1, .n = n_used, .seed = h.seed, .borrowed = true};
    return is_table(h.n_slots, n_used);
}

static bool take_bpe(reader *r, const tables_header *h, bpe *b) {
    return tables_take_pieces(r, h->inner, &b->inner) && take_pairs(r, h->pairs, &b->pairs) &&
           take_pairs(r, h->neighbours, &b->neighbours) && b->pairs.slots != NULL;
}

/* Skips the BPE tables, which must be empty, and takes the trie. */
static bool take_trie(reader *r, const tables_header *h, int32_t n_ids, piece_trie *out) {
    bpe none = {0};
    bool empty = take_bpe(r, h, &none) ||
                 (none.inner.slots == NULL && none.pairs.slots == NULL && none.neighbours.slots == NULL);
    trie_unit *units = empty ? text_tables_take(r, h->n_units, sizeof *units) : NULL;
    if (units == NULL) {
        return false;
    }
    *out = (piece_trie){.units = units, .n = (size_t)h->n_units, .borrowed = true};
    bool good = piece_trie_check(out);
    for (size_t i = 0; i < out->n && good; i++) {
        good = units[i].id >= -1 && units[i].id < n_ids;
    }
    return good;
}

static bool take_unigram(reader *r, const tables_header *h, int32_t n_ids, unigram *u) {
    if (!take_trie(r, h, n_ids, &u->trie) || h->n_scores != (uint64_t)n_ids) {
        return false;
    }
    u->scores = text_tables_take(r, h->n_scores, sizeof *u->scores);
    u->borrowed = true;
    u->unknown_score = h->unknown_score;
    return u->scores != NULL;
}

static bool take_model(reader *r, const tables_header *h, int32_t n_ids, piece_model *m) {
    return m->ops == &piece_model_bpe         ? take_bpe(r, h, &m->bpe)
           : m->ops == &piece_model_unigram   ? take_unigram(r, h, n_ids, &m->unigram)
           : m->ops == &piece_model_wordpiece ? take_trie(r, h, n_ids, &m->wordpiece.trie)
                                              : true;
}

quire_err tables_take(tokenizer *t, str bytes, quire_error *err) {
    reader r = {.bytes = bytes};
    const tables_header *h = text_tables_take(&r, 1, sizeof *h);
    if (h != NULL && h->version != TABLES_VERSION) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "the vocabulary's tables were written by another version of quire: pack the model again");
    }
    bool good = h != NULL && (uintptr_t)bytes.p % ALIGN == 0 && tables_take_pieces(&r, h->vocab, &t->vocab) &&
                t->vocab.slots != NULL && take_model(&r, h, t->vocab.n, &t->model);
    if (!good) {
        return err_set(err, QUIRE_BAD_FILE, -1, "the vocabulary's tables are damaged: pack the model again");
    }
    return QUIRE_OK;
}
