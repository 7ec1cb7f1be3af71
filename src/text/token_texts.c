#include "text/token_texts.h"

#include <string.h>

#include "base/mem.h"
#include "text/chars.h"

struct token_texts {
    int32_t n;
    size_t *starts; /* [n + 1] offsets of the texts */
    strbuf bytes;
    size_t longest;
};

void token_texts_close(token_texts *t) {
    if (t != NULL) {
        mem_free(t->starts);
        strbuf_deinit(&t->bytes);
        mem_free(t);
    }
}

/* Finds the token to put before others: an ordinary token with text. */
static quire_err find_anchor(const tokenizer *t, strbuf *text, int32_t *anchor) {
    int32_t n = tokenizer_n_tokens(t);
    for (*anchor = 0; *anchor < n; ++*anchor) {
        strbuf_clear(text);
        TRY(tokenizer_decode(t, anchor, 1, true, text));
        if (text->n > 0 && !tokenizer_is_special(t, *anchor)) {
            return QUIRE_OK;
        }
    }
    return QUIRE_NOT_FOUND;
}

/* Appends what id adds after the anchor, whose text is `before`. */
static quire_err token_texts_add_after(const tokenizer *t, int32_t anchor, const strbuf *before, int32_t id,
                                       strbuf *both, strbuf *out) {
    int32_t ids[2] = {anchor, id};
    strbuf_clear(both);
    TRY(tokenizer_decode(t, ids, 2, false, both));
    size_t n = both->n > before->n && memcmp(both->p, before->p, before->n) == 0 ? both->n - before->n : 0;
    return strbuf_add(out, both->p + both->n - n, n);
}

static quire_err token_texts_fill(const tokenizer *t, token_texts *out, strbuf *before, strbuf *both) {
    int32_t anchor;
    TRY(find_anchor(t, before, &anchor));
    for (int32_t i = 0; i < out->n; i++) {
        size_t start = out->bytes.n, n;
        TRY(token_texts_add_after(t, anchor, before, i, both, &out->bytes));
        out->starts[i + 1] = out->bytes.n;
        n = out->bytes.n - start;
        out->longest = n > out->longest ? n : out->longest;
    }
    return QUIRE_OK;
}

quire_err token_texts_open(const tokenizer *t, token_texts **out) {
    token_texts *texts = mem_new(1, sizeof *texts);
    strbuf before = {0}, both = {0};
    quire_err e = QUIRE_NO_MEMORY;
    if (texts != NULL) {
        texts->n = tokenizer_n_tokens(t);
        texts->starts = mem_new((size_t)texts->n + 1, sizeof *texts->starts);
        e = texts->starts == NULL ? QUIRE_NO_MEMORY : token_texts_fill(t, texts, &before, &both);
    }
    strbuf_deinit(&before);
    strbuf_deinit(&both);
    if (e != QUIRE_OK) {
        token_texts_close(texts);
        return e;
    }
    *out = texts;
    return QUIRE_OK;
}

/* Appends the text of one token, without a table; decodes a few tokens.
 * QUIRE_NO_MEMORY. */
static quire_err token_text_add(const tokenizer *t, int32_t id, strbuf *out) {
    strbuf before = {0}, both = {0};
    int32_t anchor;
    quire_err e = find_anchor(t, &before, &anchor);
    e = e == QUIRE_NOT_FOUND ? tokenizer_decode(t, &id, 1, false, out)
        : e == QUIRE_OK      ? token_texts_add_after(t, anchor, &before, id, &both, out)
                             : e;
    strbuf_deinit(&before);
    strbuf_deinit(&both);
    return e;
}

str token_texts_of(const token_texts *t, int32_t id) {
    if (id < 0 || id >= t->n) {
        return (str){"", 0};
    }
    return (str){t->bytes.p + t->starts[id], t->starts[id + 1] - t->starts[id]};
}

size_t token_texts_longest(const token_texts *t) {
    return t->longest;
}

/* Whether the text has a U+FFFD. */
static bool has_replacement(str text) {
    size_t n = strlen(UTF8_REPLACEMENT), at = 0;
    while (at + n <= text.n && memcmp(text.p + at, UTF8_REPLACEMENT, n) != 0) {
        at++;
    }
    return at + n <= text.n;
}

/* Whether the piece is like <0xAB>. */
static bool is_byte_piece(str piece, char *byte) {
    int high = piece.n == 6 ? hex_digit(piece.p[3]) : -1, low = piece.n == 6 ? hex_digit(piece.p[4]) : -1;
    *byte = (char)(high * 16 + low);
    return high >= 0 && low >= 0 && memcmp(piece.p, "<0x", 3) == 0 && piece.p[5] == '>';
}

/* Appends a token's bytes: its text, unless that has U+FFFD for part of a character. Then
 * the piece gives them: as a byte's name, or in the byte-level alphabet. */
static quire_err token_bytes_add_bytes(const tokenizer *t, str text, int32_t id, strbuf *out) {
    str piece = tokenizer_piece(t, id);
    char byte;
    if (!has_replacement(text)) {
        return strbuf_add(out, text.p, text.n);
    }
    return is_byte_piece(piece, &byte) ? strbuf_add_char(out, byte) : byte_level_add_bytes(out, piece);
}

quire_err token_bytes_add(const tokenizer *t, const token_texts *texts, int32_t id, strbuf *out) {
    return tokenizer_is_special(t, id) ? QUIRE_OK
                                       : token_bytes_add_bytes(t, token_texts_of(texts, id), id, out);
}

quire_err token_bytes_add_one(const tokenizer *t, int32_t id, strbuf *out) {
    strbuf text = {0};
    quire_err e = token_text_add(t, id, &text);
    TRY_DONE(e, token_bytes_add_bytes(t, (str){text.p, text.n}, id, out));
done:
    strbuf_deinit(&text);
    return e;
}
