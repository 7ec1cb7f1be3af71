#include "text/model_build.h"

#include "base/mem.h"

quire_err model_build_trie(const tokenizer *t, piece_trie *out) {
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
        bool lower_case = p.p[3] >= 'a' || p.p[4] >= 'a'; /* bytes are written in capitals */
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
    return t->vocab.n == n_tokens
               ? QUIRE_OK
               : err_set(err, QUIRE_BAD_FILE, -1,
                         "the vocabulary's tables are of another vocabulary; pack the model again");
}
