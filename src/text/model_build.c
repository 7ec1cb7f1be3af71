#include "text/model_build.h"

#include <assert.h>

#include "base/mem.h"

quire_err model_build_trie(const tokenizer *t, piece_trie *out) {
    assert(t != NULL);
    trie_piece *pieces = mem_new((size_t)t->vocab.n, sizeof *pieces);
    size_t n = 0;
    TRY(mem_check(pieces));
    for (int32_t i = 0; i < t->vocab.n; i++) {
        str text = piece_table_get(&t->vocab, i);
        if (text.n > 0 && piece_table_find(&t->vocab, text) == i) {
            pieces[n++] = (trie_piece){text, i};
        }
    }
    quire_err e = piece_trie_build(pieces, n, out);
    mem_free(pieces);
    return e;
}

quire_err model_note_controls(const tokenizer *t, unigram *u) {
    assert(t != NULL && u != NULL);
    u->controls = mem_new((size_t)t->vocab.n, 1);
    TRY(mem_check(u->controls));
    for (int32_t i = 0; i < t->vocab.n; i++) {
        const added_token *a = added_set_get(&t->added, i);
        u->controls[i] = a != NULL && a->control && i != t->model.unk;
    }
    return QUIRE_OK;
}

int model_find_bytes(const piece_table *pieces, bool (*is_byte)(const void *context, int32_t id),
                     const void *context, int32_t bytes[256]) {
    int n = 0;
    for (int b = 0; b < 256; b++) {
        bytes[b] = -1;
    }
    for (int32_t i = 0; i < pieces->n; i++) {
        str p = piece_table_get(pieces, i);
        if (p.n != 6 || memcmp(p.p, "<0x", 3) != 0 || p.p[5] != '>' ||
            (is_byte != NULL && !is_byte(context, i))) {
            continue;
        }
        int high = hex_digit(p.p[3]), low = hex_digit(p.p[4]);
        bool lower_case = p.p[3] >= 'a' || p.p[4] >= 'a'; /* bytes have capital digits */
        if (high >= 0 && low >= 0 && !lower_case) {
            n += bytes[high * 16 + low] < 0;
            bytes[high * 16 + low] = i;
        }
    }
    return n;
}

void model_find_word_starts(wordpiece *w, str begins, str continues) {
    w->begins = piece_trie_walk(&w->trie, PIECE_TRIE_ROOT, begins);
    w->continues = piece_trie_walk(&w->trie, PIECE_TRIE_ROOT, continues);
}

quire_err model_check_tables(const tokenizer *t, int64_t n_tokens, quire_error *err) {
    assert(t != NULL);
    return t->vocab.n == n_tokens
               ? QUIRE_OK
               : err_set(err, QUIRE_BAD_FILE, -1,
                         "the vocabulary's tables belong to another vocabulary; pack the model again");
}

str config_special(json_value *config, const char *key) {
    str s = json_get_str(config, key);
    return s.n > 0 ? s : json_get_str(json_get(config, key), "content");
}

bool config_token_id(const char *name, int64_t *id) {
    *id = 0;
    for (const char *p = name; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || *id > INT32_MAX) {
            return false;
        }
        *id = *id * 10 + (*p - '0');
    }
    return *name != '\0';
}

int32_t config_says_bos(json_value *config) {
    return json_is(json_get(config, "add_bos_token"), JSON_KIND_BOOL)
               ? json_get_bool(config, "add_bos_token", false)
               : -1;
}

quire_err config_surround(tokenizer *t, json_value *config, int32_t bos, int32_t eos, bool add_bos,
                          bool add_eos) {
    assert(t != NULL);
    t->bos = bos;
    t->eos = eos;
    str bos_text = piece_table_get(&t->vocab, bos), eos_text = piece_table_get(&t->vocab, eos);
    TRY(strbuf_add(&t->bos_text, bos_text.p, bos_text.n));
    TRY(strbuf_add(&t->eos_text, eos_text.p, eos_text.n));
    add_bos = json_get_bool(config, "add_bos_token", add_bos) && bos >= 0;
    add_eos = json_get_bool(config, "add_eos_token", add_eos) && eos >= 0;
    return add_bos || add_eos ? tokenizer_surround(t, add_bos ? bos : -1, add_eos ? eos : -1) : QUIRE_OK;
}
