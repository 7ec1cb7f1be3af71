/* Builds the merge table of a BPE vocabulary. */
#include "base/float_bits.h"
#include "base/mem.h"
#include "text/bpe.h"
#include "text/chars.h"

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
    size_t n = (size_t)b->vocab->n;
    b->whole = mem_new(n, sizeof *b->whole);
    TRY(mem_check(b->whole));
    for (size_t i = 0; i < n; i++) {
        atomic_init(&b->whole[i], 0);
    }
    return b->pairs.slots != NULL ? QUIRE_OK : pair_table_init(&b->pairs, n_merges);
}

quire_err bpe_add_merge(bpe *b, uint32_t rank, str left, str right, strbuf *scratch) {
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

/* Maps scores to ranks as unsigned numbers, highest first. Equal scores have equal ranks;
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
    for (int pass = 0; pass < 2; pass++) { /* the first pass counts an upper bound, the second adds */
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
