#include "text/bpe.h"

#include <assert.h>

#include "base/float_bits.h"
#include "base/mem.h"
#include "base/turn.h"
#include "text/chars.h"

enum { WHOLE_UNKNOWN, WHOLE_ITSELF, WHOLE_OTHERS };

void bpe_scratch_deinit(bpe_scratch *s) {
    mem_free(s->symbols);
    mem_free(s->pairs);
    mem_free(s->links);
    mem_free(s->heap);
    strbuf_deinit(&s->affixed);
    *s = (bpe_scratch){0};
}

/* ---- symbols ---- */

/* The symbol of a character: its id, or n_tokens plus its index among the inner
 * characters; -1: none. */
static int32_t bpe_find_symbol(const bpe *b, str character) {
    assert(b != NULL);
    int32_t id = piece_table_find(b->vocab, character);
    if (id >= 0 || b->inner.slots == NULL) {
        return id;
    }
    int32_t inner = piece_table_find(&b->inner, character);
    return inner >= 0 ? b->vocab->n + inner : -1;
}

static int32_t symbol_of(const bpe *b, str character, int32_t c) {
    return c < BPE_DIRECT_CHARS ? b->direct[c] : bpe_find_symbol(b, character);
}

static quire_err add_symbol(bpe_scratch *s, int32_t id, size_t at, size_t n) {
    TRY(mem_grow(&s->symbols, &s->cap_symbols, s->n_symbols + 1, sizeof *s->symbols));
    s->symbols[s->n_symbols++] = (bpe_symbol){.id = id, .at = (uint32_t)at, .n = (uint32_t)n};
    return QUIRE_OK;
}

/* Adds the vocabulary's prefix (unless the first of its word) and suffix (the last) to a
 * character. */
static quire_err affix(const bpe *b, bpe_scratch *s, str *character, bool first, bool last) {
    strbuf_clear(&s->affixed);
    if (!first && b->prefix != NULL) {
        TRY(strbuf_add(&s->affixed, b->prefix, b->n_prefix));
    }
    TRY(strbuf_add(&s->affixed, character->p, character->n));
    if (last && b->suffix != NULL) {
        TRY(strbuf_add(&s->affixed, b->suffix, b->n_suffix));
    }
    *character = (str){s->affixed.p, s->affixed.n};
    return QUIRE_OK;
}

static bool has_all_bytes(const bpe *b, str text) {
    for (size_t i = 0; i < text.n; i++) {
        if (b->bytes[(uint8_t)text.p[i]] < 0) {
            return false;
        }
    }
    return true;
}

/* Turns the characters of word into symbols. A character outside the vocabulary becomes
 * its bytes, or else the unknown token, one for several in a row with fuse_unk. As in the
 * tokenizers library, a pending unknown token is written at the next known character, so
 * after fallback bytes. */
static quire_err bpe_begin_word(const bpe *b, str word, bpe_scratch *s) {
    bool affixes = b->prefix != NULL || b->suffix != NULL, pending = false;
    size_t len;
    for (size_t i = 0; i < word.n; i += len) {
        int32_t c = utf8_next(word.p + i, &len);
        str text = {word.p + i, len};
        TRY(turn_poll(1));
        if (affixes) {
            TRY(affix(b, s, &text, i == 0, i + len == word.n));
        }
        int32_t id = affixes ? piece_table_find(b->vocab, text) : symbol_of(b, text, c);
        if (id < 0 && !b->sentencepiece) {
            if (b->byte_fallback && has_all_bytes(b, text)) {
                for (size_t k = 0; k < text.n; k++) {
                    TRY(add_symbol(s, b->bytes[(uint8_t)text.p[k]], i, len));
                }
                continue;
            }
            if (pending && !b->fuse_unk) {
                TRY(add_symbol(s, b->unk, i, len));
            }
            pending = b->unk >= 0;
            continue;
        }
        if (pending) {
            TRY(add_symbol(s, b->unk, i, len));
            pending = false;
        }
        TRY(add_symbol(s, id, i, len));
    }
    return pending ? add_symbol(s, b->unk, word.n, 0) : QUIRE_OK;
}

/* Writes a symbol that is not a token: as its bytes, or as one unknown token for it and
 * those before it. */
static quire_err write_unknown(const bpe *b, str text, bool after_unknown, token_list *out) {
    if (b->byte_fallback && has_all_bytes(b, text)) {
        for (size_t i = 0; i < text.n; i++) {
            TRY(token_list_add(out, b->bytes[(uint8_t)text.p[i]]));
        }
        return QUIRE_OK;
    }
    return b->unk < 0 || after_unknown ? QUIRE_OK : token_list_add(out, b->unk);
}

static quire_err encode_symbols(const bpe *b, str word, bpe_scratch *s, token_list *out) {
    s->n_symbols = 0;
    TRY(bpe_begin_word(b, word, s));
    TRY(bpe_merge(b, s));
    bool unknown = false;
    for (size_t i = 0; i < s->n_symbols; i++) {
        const bpe_symbol *y = &s->symbols[i];
        bool was = unknown;
        unknown = y->id < 0 || y->id >= b->vocab->n;
        TRY(unknown ? write_unknown(b, (str){word.p + y->at, y->n}, was, out) : token_list_add(out, y->id));
    }
    return QUIRE_OK;
}

/* Encodes a stretch of text that no merge crosses. Most stretches are one token; whether
 * a token's text encodes to itself is computed once. */
static quire_err bpe_encode_stretch(const bpe *b, str word, bpe_scratch *s, token_list *out) {
    int32_t id = b->prefix != NULL || b->suffix != NULL ? -1 : piece_table_find(b->vocab, word);
    uint8_t whole = id < 0 ? WHOLE_OTHERS : atomic_load_explicit(&b->whole[id], memory_order_relaxed);
    if (whole == WHOLE_ITSELF) {
        return token_list_add(out, id);
    }
    size_t before = out->n;
    TRY(encode_symbols(b, word, s, out));
    if (whole == WHOLE_UNKNOWN) {
        bool itself = out->n == before + 1 && out->ids[before] == id;
        atomic_store_explicit(&b->whole[id], itself ? WHOLE_ITSELF : WHOLE_OTHERS, memory_order_relaxed);
    }
    return QUIRE_OK;
}

static bool is_newlines(str word) {
    size_t i = 0;
    while (i < word.n && word.p[i] == '\n') {
        i++;
    }
    return i == word.n;
}

/* Encodes a word without user-defined symbols. */
static quire_err bpe_encode_word(const bpe *b, str word, bpe_scratch *s, token_list *out) {
    bool whole = b->ignore_merges || (b->whole_newlines && is_newlines(word));
    int32_t id = whole ? piece_table_find(b->vocab, word) : -1;
    if (id >= 0) {
        return token_list_add(out, id);
    }
    if (b->neighbours.slots == NULL) {
        return bpe_encode_stretch(b, word, s, out);
    }
    /* Cuts the word between two known characters that are adjacent in no piece. But not
     * between two that are not pieces themselves: one unknown token may stand for
     * both. */
    size_t start = 0, len;
    int32_t before = -1;
    for (size_t i = 0; i < word.n; i += len) {
        int32_t c = utf8_next(word.p + i, &len);
        int32_t symbol = symbol_of(b, (str){word.p + i, len}, c);
        bool is_unknown = before >= b->vocab->n && symbol >= b->vocab->n;
        if (before >= 0 && symbol >= 0 && !is_unknown &&
            pair_table_find(&b->neighbours, before, symbol) == NULL) {
            TRY(bpe_encode_stretch(b, (str){word.p + start, i - start}, s, out));
            start = i;
        }
        before = symbol;
    }
    return bpe_encode_stretch(b, (str){word.p + start, word.n - start}, s, out);
}

quire_err bpe_encode(const bpe *b, str word, bpe_scratch *s, token_list *out) {
    if (word.n > INT32_MAX) {
        return QUIRE_TOO_LARGE;
    }
    if (b->symbols == NULL) {
        return bpe_encode_word(b, word, s, out);
    }
    size_t done = 0, len;
    for (size_t i = 0; i < word.n; i += len) {
        (void)utf8_next(word.p + i, &len);
        int32_t id = piece_trie_longest(b->symbols, PIECE_TRIE_ROOT, (str){word.p + i, word.n - i}, &len);
        if (id >= 0) {
            if (done < i) {
                TRY(bpe_encode_word(b, (str){word.p + done, i - done}, s, out));
            }
            TRY(token_list_add(out, id));
            done = i + len;
        }
    }
    return done < word.n ? bpe_encode_word(b, (str){word.p + done, word.n - done}, s, out) : QUIRE_OK;
}

/* Builds the merge table of a BPE vocabulary. */

static void fill_direct(bpe *b) {
    for (int32_t c = 0; c < BPE_DIRECT_CHARS; c++) {
        char bytes[4];
        b->direct[c] = bpe_find_symbol(b, (str){bytes, utf8_encode(c, bytes)});
    }
    for (int32_t c = 0; c < 256 && !b->sentencepiece; c++) {
        static const char hex[] = "0123456789ABCDEF";
        char name[6] = {'<', '0', 'x', hex[c >> 4], hex[c & 15], '>'};
        b->bytes[c] = b->byte_fallback ? piece_table_find(b->vocab, (str){name, sizeof name}) : -1;
    }
}

quire_err bpe_begin(bpe *b, size_t n_merges) {
    assert(b != NULL);
    size_t n = (size_t)b->vocab->n;
    b->whole = mem_new(n, sizeof *b->whole);
    TRY(mem_check(b->whole));
    for (size_t i = 0; i < n; i++) {
        atomic_init(&b->whole[i], 0);
    }
    return b->pairs.slots != NULL ? QUIRE_OK : pair_table_init(&b->pairs, n_merges);
}

quire_err bpe_add_merge(bpe *b, uint32_t rank, str left, str right, strbuf *scratch) {
    assert(b != NULL);
    str rest = right;
    if (b->prefix != NULL && rest.n >= b->n_prefix && memcmp(rest.p, b->prefix, b->n_prefix) == 0) {
        rest = (str){rest.p + b->n_prefix, rest.n - b->n_prefix};
    }
    strbuf_clear(scratch);
    TRY(strbuf_add(scratch, left.p, left.n));
    TRY(strbuf_add(scratch, rest.p, rest.n));
    int32_t l = piece_table_find(b->vocab, left), r = piece_table_find(b->vocab, right);
    int32_t made = piece_table_find(b->vocab, (str){scratch->p, scratch->n});
    return l < 0 || r < 0 || made < 0 ? QUIRE_NOT_FOUND : pair_table_put(&b->pairs, l, r, rank, made);
}

/* Maps a score to an unsigned rank, highest score first. Equal scores have equal ranks;
 * NaN is last. */
static uint32_t bpe_build_rank_of(float score) {
    if (score != score) {
        return UINT32_MAX;
    }
    uint32_t bits = float_bits(score == 0 ? 0.0f : score);
    uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

/* Finds the characters inside pieces that are not pieces themselves. */
static quire_err find_inner_chars(bpe *b) {
    size_t n = 0, len;
    for (int pass = 0; pass < 2; pass++) { /* pass 0 counts an upper bound, pass 1 adds */
        if (pass == 1) {
            TRY(piece_table_init(&b->inner, (int32_t)(n < 0x110000 ? n : 0x110000), n, 4 * n));
        }
        int32_t id = 0;
        for (int32_t t = 0; t < b->vocab->n; t++) {
            str p = piece_table_get(b->vocab, t);
            for (size_t i = 0; i < p.n && piece_table_find(b->vocab, p) >= 0; i += len) {
                bool valid = utf8_decode(p.p + i, p.n - i, &len) >= 0;
                str c = {p.p + i, len};
                if (!valid || piece_table_find(b->vocab, c) >= 0) {
                    continue;
                }
                n += pass == 0;
                if (pass == 1 && piece_table_find(&b->inner, c) < 0) {
                    TRY(piece_table_add(&b->inner, id++, c));
                }
            }
        }
    }
    return QUIRE_OK;
}

quire_err bpe_derive_merges(bpe *b, const float *scores) {
    TRY(find_inner_chars(b));
    for (int32_t t = 0; t < b->vocab->n; t++) {
        str p = piece_table_get(b->vocab, t);
        size_t len;
        if (p.n == 0 || piece_table_find(b->vocab, p) != t || !utf8_is_valid(p)) {
            continue;
        }
        if (p.n > BPE_MAX_PIECE) {
            return QUIRE_UNSUPPORTED;
        }
        for (size_t i = 0; i < p.n; i += len) {
            (void)utf8_next(p.p + i, &len);
            str left = {p.p, i + len}, right = {p.p + i + len, p.n - i - len};
            if (right.n == 0) {
                break;
            }
            int32_t l = bpe_find_symbol(b, left), r = l < 0 ? -1 : bpe_find_symbol(b, right);
            if (r >= 0) {
                TRY(pair_table_put(&b->pairs, l, r, bpe_build_rank_of(scores != NULL ? scores[t] : 0.0f), t));
            }
        }
    }
    return QUIRE_OK;
}

static quire_err find_neighbours(bpe *b) {
    TRY(pair_table_init(&b->neighbours, 4096));
    for (int32_t t = 0; t < b->vocab->n; t++) {
        str p = piece_table_get(b->vocab, t);
        size_t len;
        int32_t before = -1;
        for (size_t i = 0; i < p.n; i += len) {
            bool valid = utf8_decode(p.p + i, p.n - i, &len) >= 0;
            int32_t symbol = valid ? bpe_find_symbol(b, (str){p.p + i, len}) : -1;
            if (before >= 0 && symbol >= 0) {
                TRY(pair_table_put(&b->neighbours, before, symbol, 0, 0));
            }
            before = symbol;
        }
    }
    return QUIRE_OK;
}

quire_err bpe_finish(bpe *b, bool long_words) {
    assert(b != NULL);
    fill_direct(b);
    long_words &= b->neighbours.slots == NULL;
    return long_words && b->prefix == NULL && b->suffix == NULL ? find_neighbours(b) : QUIRE_OK;
}

void bpe_deinit(bpe *b) {
    pair_table_deinit(&b->pairs);
    pair_table_deinit(&b->neighbours);
    piece_table_deinit(&b->inner);
    mem_free(b->prefix);
    mem_free(b->suffix);
    mem_free((void *)b->whole);
    *b = (bpe){0};
}

/* The merges of one word. For a few symbols, as in most words, the best pair is searched
 * each time. For a long word a heap holds the pairs; if the same pair is everywhere, as
 * in a megabyte of one letter, sweeps that merge all its occurrences come first. All ways
 * make the same merges in the same order: lowest rank first, of equal ones the
 * leftmost. */

enum { FEW_SYMBOLS = 48, HEAP_WAYS = 4 };
enum { SWEEP_PART = 8 }; /* sweeps go on while each removes more than 1/SWEEP_PART of the symbols */
enum { GONE = -2 };

static const bpe_pair no_pair = {0, -1};

static bpe_pair find_pair(const bpe *b, int32_t left, int32_t right) {
    const pair_slot *p = left < 0 || right < 0 ? NULL : pair_table_find(&b->pairs, left, right);
    return p == NULL ? no_pair : (bpe_pair){p->rank, p->id};
}

static bool merges_before(bpe_pair a, bpe_pair b) {
    return a.id >= 0 && (b.id < 0 || a.rank < b.rank);
}

/* Index of the first of the best pairs; n_symbols if there is none. */
static size_t best_pair(const bpe_scratch *s) {
    size_t best = s->n_symbols;
    bpe_pair found = no_pair;
    for (size_t i = 0; i + 1 < s->n_symbols; i++) {
        if (merges_before(s->pairs[i], found)) {
            found = s->pairs[best = i];
        }
    }
    return best;
}

static quire_err find_pairs(const bpe *b, bpe_scratch *s) {
    size_t n = s->n_symbols;
    TRY(mem_grow(&s->pairs, &s->cap_pairs, n, sizeof *s->pairs));
    for (size_t i = 0; i + 1 < n; i++) {
        TRY(turn_poll(1));
        s->pairs[i] = find_pair(b, s->symbols[i].id, s->symbols[i + 1].id);
    }
    if (n > 0) {
        s->pairs[n - 1] = no_pair;
    }
    return QUIRE_OK;
}

static void merge_few(const bpe *b, bpe_scratch *s) {
    bpe_symbol *y = s->symbols;
    bpe_pair *p = s->pairs;
    for (size_t i = best_pair(s); i < s->n_symbols; i = best_pair(s)) {
        size_t n = --s->n_symbols;
        y[i] = (bpe_symbol){p[i].id, y[i].at, y[i].n + y[i + 1].n};
        memmove(y + i + 1, y + i + 2, (n - i - 1) * sizeof *y);
        memmove(p + i + 1, p + i + 2, (n - i - 1) * sizeof *p);
        p[i] = i + 1 < n ? find_pair(b, y[i].id, y[i + 1].id) : no_pair;
        if (i > 0) {
            p[i - 1] = find_pair(b, y[i - 1].id, y[i].id);
        }
    }
}

/* Merges the pairs of the lowest rank from left to right, until a new pair has a rank as
 * low (then *all is false). */
static quire_err bpe_merge_sweep(const bpe *b, bpe_scratch *s, uint32_t rank, bool *all) {
    bpe_symbol *y = s->symbols;
    bpe_pair *p = s->pairs, bound = {rank, 0};
    size_t n = s->n_symbols, to = 0;
    *all = true;
    for (size_t i = 0; i < n; to++) {
        TRY(turn_poll(1));
        if (!*all || p[i].id < 0 || p[i].rank != rank) {
            y[to] = y[i];
            p[to] = p[i++];
            continue;
        }
        bpe_symbol made = {p[i].id, y[i].at, y[i].n + y[i + 1].n};
        i += 2;
        bpe_pair after = i < n ? find_pair(b, made.id, y[i].id) : no_pair;
        bpe_pair before = to > 0 ? find_pair(b, y[to - 1].id, made.id) : no_pair;
        y[to] = made;
        p[to] = after;
        if (to > 0) {
            p[to - 1] = before;
        }
        *all =
            (after.id < 0 || merges_before(bound, after)) && (before.id < 0 || merges_before(bound, before));
    }
    s->n_symbols = to;
    return QUIRE_OK;
}

/* Sweeps while each removes a good part of the symbols. */
static quire_err merge_by_sweeps(const bpe *b, bpe_scratch *s) {
    bool goes_on = true;
    while (goes_on && s->n_symbols > FEW_SYMBOLS) {
        size_t before = s->n_symbols, best = best_pair(s);
        if (best == before) {
            return QUIRE_OK;
        }
        TRY(bpe_merge_sweep(b, s, s->pairs[best].rank, &goes_on));
        goes_on = goes_on && s->n_symbols <= before - before / SWEEP_PART;
    }
    return QUIRE_OK;
}

/* ---- a heap of pairs' keys, the smallest on top ---- */

static uint64_t bpe_merge_key_of(uint32_t rank, size_t at) {
    return (uint64_t)rank << 32 | (uint32_t)at;
}

/* Inserts key into the heap from position i downwards; the key at i is overwritten. */
static void sink(uint64_t *heap, size_t n, size_t i, uint64_t key) {
    for (size_t child = HEAP_WAYS * i + 1; child < n; child = HEAP_WAYS * i + 1) {
        size_t end = child + HEAP_WAYS < n ? child + HEAP_WAYS : n, least = child;
        for (size_t k = child + 1; k < end; k++) {
            least = heap[k] < heap[least] ? k : least;
        }
        if (heap[least] >= key) {
            break;
        }
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = key;
}

static quire_err bpe_merge_push(bpe_scratch *s, size_t at) {
    if (s->pairs[at].id < 0) {
        return QUIRE_OK;
    }
    TRY(mem_grow(&s->heap, &s->cap_heap, s->n_heap + 1, sizeof *s->heap));
    uint64_t key = bpe_merge_key_of(s->pairs[at].rank, at);
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / HEAP_WAYS] > key; i = (i - 1) / HEAP_WAYS) {
        s->heap[i] = s->heap[(i - 1) / HEAP_WAYS];
    }
    s->heap[i] = key;
    return QUIRE_OK;
}

static uint64_t pop(bpe_scratch *s) {
    uint64_t top = s->heap[0];
    if (--s->n_heap > 0) {
        sink(s->heap, s->n_heap, 0, s->heap[s->n_heap]);
    }
    return top;
}

static quire_err fill_heap(bpe_scratch *s) {
    size_t n = s->n_symbols;
    TRY(mem_grow(&s->heap, &s->cap_heap, n, sizeof *s->heap));
    TRY(mem_grow(&s->links, &s->cap_links, n, sizeof *s->links));
    s->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        s->links[i] = (bpe_link){(int32_t)i - 1, (int32_t)i + 1};
        if (s->pairs[i].id >= 0) {
            s->heap[s->n_heap++] = bpe_merge_key_of(s->pairs[i].rank, i);
        }
    }
    for (size_t i = s->n_heap / HEAP_WAYS + 1; i-- > 0;) {
        if (i < s->n_heap) {
            sink(s->heap, s->n_heap, i, s->heap[i]);
        }
    }
    return QUIRE_OK;
}

/* Merges symbol i with the one after it. */
static quire_err merge_at(const bpe *b, bpe_scratch *s, int32_t i) {
    int32_t n = (int32_t)s->n_symbols, gone = s->links[i].next, before = s->links[i].prev,
            after = s->links[gone].next;
    bpe_symbol *y = s->symbols;
    y[i] = (bpe_symbol){s->pairs[i].id, y[i].at, y[i].n + y[gone].n};
    y[gone].id = GONE;
    s->pairs[gone] = no_pair;
    s->pairs[i] = no_pair;
    s->links[i].next = after;
    if (after < n) {
        s->links[after].prev = i;
        s->pairs[i] = find_pair(b, y[i].id, y[after].id);
        TRY(bpe_merge_push(s, (size_t)i));
    }
    if (before >= 0) {
        s->pairs[before] = find_pair(b, y[before].id, y[i].id);
        TRY(bpe_merge_push(s, (size_t)before));
    }
    return QUIRE_OK;
}

static quire_err merge_by_heap(const bpe *b, bpe_scratch *s) {
    TRY(fill_heap(s));
    while (s->n_heap > 0) {
        TRY(turn_poll(1));
        uint64_t key = pop(s);
        size_t at = (uint32_t)key;
        /* else one of the two has merged with another symbol since */
        if (s->pairs[at].id >= 0 && s->pairs[at].rank == key >> 32) {
            TRY(merge_at(b, s, (int32_t)at));
        }
    }
    size_t to = 0;
    for (size_t i = 0; i < s->n_symbols; i = (size_t)s->links[i].next) {
        s->symbols[to++] = s->symbols[i];
    }
    s->n_symbols = to;
    return QUIRE_OK;
}

quire_err bpe_merge(const bpe *b, bpe_scratch *s) {
    TRY(find_pairs(b, s));
    if (s->n_symbols > FEW_SYMBOLS) {
        TRY(merge_by_sweeps(b, s));
    }
    if (s->n_symbols > FEW_SYMBOLS) {
        return merge_by_heap(b, s);
    }
    merge_few(b, s);
    return QUIRE_OK;
}
