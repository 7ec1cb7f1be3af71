#include "text/json_vocab.h"

#include <assert.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/json_scan.h"

#define MAX_SCORE 1e30 /* limit for a piece's score, so that sums stay finite */

void json_vocab_deinit(json_vocab *r) {
    assert(r != NULL);
    mem_free(r->entries);
    strbuf_deinit(&r->own);
    strbuf_deinit(&r->scratch);
    for (int i = 0; i < 4; i++) {
        strbuf_deinit(&r->texts[i]);
    }
}

str json_vocab_text(const json_vocab *r, const json_entry *e) {
    return (str){(e->own ? r->own.p : r->file.p) + e->at, e->n};
}

/* Adds an entry; `piece` was read with r->scratch. */
static quire_err add_entry(json_vocab *r, str piece, int64_t id, double score) {
    if (id < 0 || id > INT32_MAX - 1 || piece.n > UINT32_MAX) {
        return QUIRE_BAD_FILE;
    }
    TRY(mem_grow(&r->entries, &r->cap, r->n + 1, sizeof *r->entries));
    bool own = piece.p == r->scratch.p;
    size_t at = own ? r->own.n : (size_t)(piece.p - r->file.p);
    if (own) {
        TRY(strbuf_add(&r->own, piece.p, piece.n));
    }
    r->entries[r->n++] = (json_entry){at, (uint32_t)piece.n, own, (int32_t)id, score};
    r->max_id = id > r->max_id ? id : r->max_id;
    return QUIRE_OK;
}

/* Reads [["piece", score], ...]; an entry's id is its index. */
static quire_err read_scored_vocab(json_vocab *r, json_scan *s) {
    bool more;
    TRY(json_scan_open(s, '['));
    for (;;) {
        TRY(json_scan_more(s, ']', &more));
        if (!more) {
            return QUIRE_OK;
        }
        str piece;
        json_scan_value score;
        TRY(json_scan_open(s, '['));
        TRY(json_scan_more(s, ']', &more));
        TRY(json_scan_string(s, &r->scratch, &piece));
        TRY(json_scan_more(s, ']', &more));
        TRY(more ? json_scan_number(s, &score) : QUIRE_BAD_FILE);
        double value = c_locale_strtod(score.text.p, NULL); /* a bracket ends the number */
        TRY(json_scan_more(s, ']', &more));
        if (more || !(value >= -MAX_SCORE && value <= MAX_SCORE)) {
            return QUIRE_BAD_FILE;
        }
        TRY(add_entry(r, piece, (int64_t)r->n, value));
    }
}

/* Reads {"piece": id, ...}. */
static quire_err json_vocab_read_vocab(json_vocab *r, json_scan *s) {
    bool more;
    TRY(json_scan_open(s, '{'));
    for (;;) {
        TRY(json_scan_more(s, '}', &more));
        if (!more) {
            return QUIRE_OK;
        }
        str piece;
        int64_t id;
        TRY(json_scan_key(s, &r->scratch, &piece));
        TRY(json_scan_int(s, &id));
        TRY(add_entry(r, piece, id, 0));
    }
}

/* Reads a string or null into texts[i]. */
static quire_err json_vocab_read_text(json_vocab *r, json_scan *s, int i, str *out) {
    str text;
    if (json_scan_peek(s) != '"') {
        return json_scan_span(s, &text);
    }
    TRY(json_scan_string(s, &r->scratch, &text));
    strbuf_clear(&r->texts[i]);
    TRY(strbuf_add(&r->texts[i], text.p, text.n));
    *out = (str){r->texts[i].p, r->texts[i].n};
    return QUIRE_OK;
}

static quire_err json_vocab_read_flag(json_scan *s, bool *out) {
    str span;
    TRY(json_scan_span(s, &span));
    *out = str_is(span, "true");
    return QUIRE_OK;
}

static quire_err read_model_member(void *user, json_scan *s, str key) {
    json_vocab *r = user;
    str span;
    char first = json_scan_peek(s);
    if (str_is(key, "vocab") && (first == '{' || first == '[') && r->n == 0) {
        size_t start = s->at;
        TRY(first == '{' ? json_vocab_read_vocab(r, s) : read_scored_vocab(r, s));
        r->is_scored = first == '[';
        r->vocab = (str){s->text.p + start, s->at - start};
        return QUIRE_OK;
    }
    if (str_is(key, "type")) {
        return json_vocab_read_text(r, s, 0, &r->type);
    }
    if (str_is(key, "unk_token")) {
        return json_vocab_read_text(r, s, 1, &r->unk);
    }
    if (str_is(key, "continuing_subword_prefix")) {
        r->has_prefix = first == '"';
        return json_vocab_read_text(r, s, 2, &r->prefix);
    }
    if (str_is(key, "end_of_word_suffix")) {
        return json_vocab_read_text(r, s, 3, &r->suffix);
    }
    int64_t *number = str_is(key, "unk_id")                     ? &r->unk_id
                      : str_is(key, "max_input_chars_per_word") ? &r->max_chars
                                                                : NULL;
    if (number != NULL && first != 'n') {
        return json_scan_int(s, number);
    }
    bool *flag = str_is(key, "fuse_unk")        ? &r->fuse_unk
                 : str_is(key, "byte_fallback") ? &r->byte_fallback
                 : str_is(key, "ignore_merges") ? &r->ignore_merges
                                                : NULL;
    if (flag != NULL) {
        return json_vocab_read_flag(s, flag);
    }
    TRY(json_scan_span(s, &span));
    if (str_is(key, "merges")) {
        r->merges = span;
    }
    if (str_is(key, "dropout")) {
        r->has_dropout = !str_is(span, "null") && !str_is(span, "0.0") && !str_is(span, "0");
    }
    return QUIRE_OK;
}

static quire_err read_top_member(void *user, json_scan *s, str key) {
    json_vocab *r = user;
    str span;
    if (str_is(key, "model") && r->type.n == 0) {
        return json_scan_members(s, read_model_member, r);
    }
    TRY(json_scan_span(s, &span));
    str *to = str_is(key, "added_tokens")     ? &r->added
              : str_is(key, "normalizer")     ? &r->normalizer
              : str_is(key, "pre_tokenizer")  ? &r->pretokenizer
              : str_is(key, "post_processor") ? &r->post
              : str_is(key, "decoder")        ? &r->decoder
                                              : NULL;
    if (to != NULL) {
        *to = span;
    }
    return QUIRE_OK;
}

quire_err json_vocab_read(json_vocab *r, str file, quire_error *err) {
    *r = (json_vocab){.file = file, .max_id = -1, .unk_id = -1, .max_chars = -1};
    json_scan s = {.text = r->file, .of_model = true};
    quire_err e = json_scan_members(&s, read_top_member, r);
    if (e == QUIRE_OK && json_scan_peek(&s) != '\0') {
        e = QUIRE_BAD_FILE;
    }
    if (e == QUIRE_BAD_FILE || e == QUIRE_TOO_LARGE) {
        return err_set(err, QUIRE_BAD_FILE, (int64_t)s.at, "tokenizer.json: malformed at byte %zu", s.at);
    }
    return e;
}

quire_err json_vocab_strip(str file, strbuf *out, quire_error *err) {
    json_vocab r;
    quire_err e = json_vocab_read(&r, file, err);
    str spans[] = {r.vocab, r.merges};
    /* vocab and merges in their order in the file */
    int first = r.vocab.p == NULL || (r.merges.p != NULL && r.merges.p < r.vocab.p);
    const char *from = file.p, *end = file.p + file.n;
    for (int i = 0; i < 2 && e == QUIRE_OK; i++) {
        str span = spans[(first + i) % 2];
        if (span.p != NULL) {
            TRY_DONE(e, strbuf_add(out, from, (size_t)(span.p - from)));
            TRY_DONE(e, strbuf_add_str(out, span.p == r.vocab.p ? "{}" : "[]"));
            from = span.p + span.n;
        }
    }
    TRY_DONE(e, strbuf_add(out, from, (size_t)(end - from)));
done:
    json_vocab_deinit(&r);
    return e;
}
