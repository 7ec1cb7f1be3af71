/* Computes the least number of tokens that a text of a given length can have, so that a
 * server can refuse a text without tokenizing it. */
#include "base/utf8.h"
#include "text/chars.h"
#include "text/tokenizer_impl.h"

static bool is_byte_level(const tokenizer *t) {
    for (int32_t i = 0; i < t->pretokenizer.n; i++) {
        if (t->pretokenizer.steps[i].kind == PRE_BYTE_LEVEL) {
            return true;
        }
    }
    for (int32_t i = 0; i < t->normalizer.n; i++) {
        if (t->normalizer.steps[i].kind == NORM_BYTE_LEVEL) {
            return true;
        }
    }
    return false;
}

/* True when every byte has a token, so that no character is dropped or merged with others
 * into one unknown token. */
static quire_err spells_all(const tokenizer *t, bool byte_level, bool *all) {
    strbuf b = {0};
    quire_err e = QUIRE_OK;
    const int32_t *bytes = t->model.ops->bytes(&t->model);
    *all = t->model.ops->spells && (byte_level || bytes != NULL);
    for (int i = 0; i < 256 && *all && e == QUIRE_OK; i++) {
        if (!byte_level) {
            *all = bytes[i] >= 0;
            continue;
        }
        const char byte = (char)i;
        strbuf_clear(&b);
        e = byte_level_add(&b, (str){&byte, 1});
        *all = e == QUIRE_OK && piece_table_find(&t->vocab, (str){b.p, b.n}) >= 0;
    }
    strbuf_deinit(&b);
    return e;
}

static size_t n_chars(str s) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        n += ((uint8_t)s.p[i] & 0xC0) != 0x80;
    }
    return n;
}

/* In bytes of normalized text, except for added tokens, which may be found in the raw
 * text. A character of a byte-level piece is a byte. */
static size_t longest_token(const tokenizer *t, bool byte_level) {
    size_t longest = 1;
    for (int32_t i = 0; i < t->vocab.n; i++) {
        str piece = piece_table_get(&t->vocab, i);
        size_t n = byte_level ? n_chars(piece) : piece.n;
        longest = n > longest ? n : longest;
    }
    for (size_t i = 0; i < t->added.n; i++) {
        size_t n = t->added.tokens[i].content.n;
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* Whether an id has several texts, as in a malformed file; a merge into it may then make
 * it of any length. */
static bool has_id_of_several(const piece_table *t) {
    for (size_t i = 0; t->slots != NULL && i <= t->mask; i++) {
        const piece_slot *s = &t->slots[i];
        if (s->id_plus_1 > 0 && t->spans[s->id_plus_1 - 1].at != s->span.at) {
            return true;
        }
    }
    return false;
}

quire_err tokenizer_find_max_bytes(const tokenizer *t, size_t *max) {
    bool byte_level = is_byte_level(t), all;
    size_t shrinks = normalizer_shrinks(&t->normalizer);
    *max = 0;
    TRY(spells_all(t, byte_level, &all));
    for (size_t i = 0; i < t->added.n; i++) {
        /* which take any number of blanks */
        all = all && !t->added.tokens[i].lstrip && !t->added.tokens[i].rstrip;
    }
    if (all && shrinks > 0 && !pretokenizer_deletes(&t->pretokenizer) && !has_id_of_several(&t->vocab)) {
        *max = shrinks * longest_token(t, byte_level);
    }
    return QUIRE_OK;
}
