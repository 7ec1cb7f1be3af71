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
    return (tables_pieces){.n_ids = (uint64_t)t->n, .n_text = t->bytes.n, .n_slots = n_slots(t), .seed = t->seed};
}

static tables_pairs pairs_of(const pair_table *t) {
    return (tables_pairs){.n = t->n, .n_slots = n_pair_slots(t), .seed = t->seed};
}

static quire_err add_pieces(strbuf *out, const piece_table *t) {
    TRY(add_area(out, t->bytes.p, t->bytes.n));
    TRY(add_area(out, t->spans, (size_t)t->n * sizeof *t->spans));
    return add_area(out, t->slots, n_slots(t) * sizeof *t->slots);
}

quire_err tables_write(const tokenizer *t, strbuf *out) {
    const bpe *b = &t->bpe;
    tables_header h = {.version = TABLES_VERSION,
                       .vocab = pieces_of(&t->vocab),
                       .inner = pieces_of(&b->inner),
                       .pairs = pairs_of(&b->pairs),
                       .neighbours = pairs_of(&b->neighbours)};
    TRY(add_area(out, &h, sizeof h));
    TRY(add_pieces(out, &t->vocab));
    TRY(add_pieces(out, &b->inner));
    TRY(add_area(out, b->pairs.slots, n_pair_slots(&b->pairs) * sizeof *b->pairs.slots));
    return add_area(out, b->neighbours.slots, n_pair_slots(&b->neighbours) * sizeof *b->neighbours.slots);
}

/* ---- reading ---- */

typedef struct reader {
    str bytes;
    size_t at;
} reader;

/* Takes n elements of size bytes at the next multiple of ALIGN; NULL when they do not fit. */
static void *take(reader *r, uint64_t n, size_t size) {
    size_t at = size_align(r->at, ALIGN), bytes;
    if (n > SIZE_MAX || !size_mul((size_t)n, size, &bytes) || at > r->bytes.n || bytes > r->bytes.n - at) {
        return NULL;
    }
    r->at = at + bytes;
    return (void *)(uintptr_t)(r->bytes.p + at); /* borrowed tables are never written to */
}

/* True for a number of slots that a search can run over: a power of two, at least a quarter of them empty. */
static bool is_table(uint64_t n, size_t n_used) {
    return n > 0 && (n & (n - 1)) == 0 && n_used <= n / 4 * 3 && n_used < n;
}

static bool is_inside(piece_span s, const piece_table *t) {
    return s.at <= t->bytes.n && s.n <= t->bytes.n - s.at;
}

static bool check_pieces(const piece_table *t, uint64_t n_slots_) {
    size_t n_used = 0;
    bool good = true;
    for (int32_t i = 0; i < t->n; i++) {
        good &= is_inside(t->spans[i], t);
    }
    for (uint64_t i = 0; i < n_slots_; i++) {
        const piece_slot *s = &t->slots[i];
        n_used += s->id_plus_1 != 0;
        good &= s->id_plus_1 >= 0 && s->id_plus_1 <= t->n && is_inside(s->span, t);
    }
    return good && is_table(n_slots_, n_used);
}

static bool take_pieces(reader *r, tables_pieces h, piece_table *t) {
    char *text = take(r, h.n_text, 1);
    void *spans = take(r, h.n_ids, sizeof *t->spans), *slots = take(r, h.n_slots, sizeof *t->slots);
    if (text == NULL || spans == NULL || slots == NULL || h.n_ids > INT32_MAX - 0x110000 || h.n_text > UINT32_MAX ||
        h.n_slots > (uint64_t)1 << 32) {
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

/* A pair's result need not be a token: bpe.c accepts any number as a symbol, but only tokens' numbers as tokens. */
static bool take_pairs(reader *r, tables_pairs h, pair_table *t) {
    pair_slot *slots = take(r, h.n_slots, sizeof *slots);
    size_t n_used = 0;
    if (slots == NULL || h.n_slots == 0) {
        return slots != NULL;
    }
    for (uint64_t i = 0; i < h.n_slots; i++) {
        n_used += slots[i].left_plus_1 != 0;
    }
    *t = (pair_table){.slots = slots, .mask = (size_t)h.n_slots - 1, .n = n_used, .seed = h.seed, .borrowed = true};
    return is_table(h.n_slots, n_used);
}

quire_err tables_take(tokenizer *t, str bytes, quire_error *err) {
    reader r = {.bytes = bytes};
    const tables_header *h = take(&r, 1, sizeof *h);
    if (h != NULL && h->version != TABLES_VERSION) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "the vocabulary's tables were written by another version of quire: pack the model again");
    }
    bool good = h != NULL && (uintptr_t)bytes.p % ALIGN == 0 && take_pieces(&r, h->vocab, &t->vocab) &&
                take_pieces(&r, h->inner, &t->bpe.inner) && take_pairs(&r, h->pairs, &t->bpe.pairs) &&
                take_pairs(&r, h->neighbours, &t->bpe.neighbours);
    if (!good || t->vocab.slots == NULL || t->bpe.pairs.slots == NULL) {
        return err_set(err, QUIRE_BAD_FILE, -1, "the vocabulary's tables are damaged: pack the model again");
    }
    return QUIRE_OK;
}
