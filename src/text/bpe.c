#include "text/bpe.h"

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

int32_t bpe_find_symbol(const bpe *b, str character) {
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

/* A character with the vocabulary's prefix (not first in its word) and suffix (last). */
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
 * bytes, or else the unknown token; several in a row become one with fuse_unk. A pending
 * unknown token is written when the next known character comes, and so after fallback
 * bytes, as in the tokenizers library. */
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

/* Writes a symbol that is not a token, at the end: its bytes, or one unknown token for it
 * and those before it. */
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

/* Encodes a stretch of text that no merge crosses. Most are one token: whether a token's
 * text encodes to itself is computed once. */
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
    /* The word is cut between two known characters that are adjacent in no piece. */
    size_t start = 0, len;
    int32_t before = -1;
    for (size_t i = 0; i < word.n; i += len) {
        int32_t c = utf8_next(word.p + i, &len);
        int32_t symbol = symbol_of(b, (str){word.p + i, len}, c);
        if (before >= 0 && symbol >= 0 && pair_table_find(&b->neighbours, before, symbol) == NULL) {
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
            TRY(done < i ? bpe_encode_word(b, (str){word.p + done, i - done}, s, out) : QUIRE_OK);
            TRY(token_list_add(out, id));
            done = i + len;
        }
    }
    return done < word.n ? bpe_encode_word(b, (str){word.p + done, word.n - done}, s, out) : QUIRE_OK;
}
