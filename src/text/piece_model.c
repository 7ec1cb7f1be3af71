#include "text/piece_model.h"

#include "base/turn.h"

void wordpiece_deinit(wordpiece *w) {
    piece_trie_deinit(&w->trie);
}

static bool wordpiece_is_too_long(const wordpiece *w, str word) {
    int32_t n = 0;
    for (size_t i = 0; i < word.n && n <= w->max_chars; i++) {
        n += ((uint8_t)word.p[i] & 0xC0) != 0x80;
    }
    return n > w->max_chars;
}

quire_err wordpiece_encode(const wordpiece *w, str word, token_list *out) {
    size_t before = out->n, n = 0;
    int32_t node = w->begins;
    bool good = !wordpiece_is_too_long(w, word);
    for (str rest = word; good && rest.n > 0; rest = (str){rest.p + n, rest.n - n}) {
        bool misled = rest.p > word.p && w->mark.n > 0 && rest.n >= w->mark.n &&
                      memcmp(rest.p, w->mark.p, w->mark.n) == 0;
        int32_t id = node < 0 || misled ? -1 : piece_trie_longest(&w->trie, node, rest, &n);
        good = id >= 0;
        TRY(turn_poll(1));
        TRY(good ? token_list_add(out, id) : QUIRE_OK);
        node = w->continues;
    }
    if (good) {
        return QUIRE_OK;
    }
    out->n = before;
    return token_list_add(out, w->unk);
}

void model_scratch_deinit(model_scratch *s) {
    bpe_scratch_deinit(&s->bpe);
    unigram_scratch_deinit(&s->unigram);
}

void piece_model_init(piece_model *m, const piece_model_ops *ops, const piece_table *vocab, int32_t unk) {
    *m = (piece_model){.ops = ops, .vocab = vocab, .unk = unk};
    if (ops == &piece_model_bpe) {
        m->bpe = (bpe){.vocab = vocab, .unk = unk};
    } else if (ops == &piece_model_unigram) {
        m->unigram = (unigram){.vocab = vocab, .unk = unk};
    } else if (ops == &piece_model_wordpiece) {
        m->wordpiece = (wordpiece){.unk = unk, .begins = -1, .continues = -1};
    }
}

void piece_model_deinit(piece_model *m) {
    if (m->ops != NULL && m->ops->deinit != NULL) {
        m->ops->deinit(m);
    }
    *m = (piece_model){0};
}

/* ---- BPE ---- */

static quire_err encode_bpe(const piece_model *m, str piece, model_scratch *s, token_list *out) {
    return bpe_encode(&m->bpe, piece, &s->bpe, out);
}

static const int32_t *bytes_of_bpe(const piece_model *m) {
    return m->bpe.byte_fallback ? m->bpe.bytes : NULL;
}

static void deinit_bpe(piece_model *m) {
    bpe_deinit(&m->bpe);
}

const piece_model_ops piece_model_bpe = {
    .name = "BPE", .encode = encode_bpe, .bytes = bytes_of_bpe, .spells = true, .deinit = deinit_bpe};

/* ---- Unigram ---- */

static quire_err encode_unigram(const piece_model *m, str piece, model_scratch *s, token_list *out) {
    return unigram_encode(&m->unigram, piece, &s->unigram, out);
}

static const int32_t *bytes_of_unigram(const piece_model *m) {
    return m->unigram.byte_fallback ? m->unigram.bytes : NULL;
}

static void deinit_unigram(piece_model *m) {
    unigram_deinit(&m->unigram);
}

const piece_model_ops piece_model_unigram = {.name = "Unigram",
                                             .encode = encode_unigram,
                                             .bytes = bytes_of_unigram,
                                             .spells = true,
                                             .deinit = deinit_unigram};

/* ---- WordPiece ---- */

static quire_err encode_wordpiece(const piece_model *m, str piece, model_scratch *s, token_list *out) {
    (void)s;
    return wordpiece_encode(&m->wordpiece, piece, out);
}

static const int32_t *no_bytes(const piece_model *m) {
    (void)m;
    return NULL;
}

static void deinit_wordpiece(piece_model *m) {
    wordpiece_deinit(&m->wordpiece);
}

const piece_model_ops piece_model_wordpiece = {
    .name = "WordPiece", .encode = encode_wordpiece, .bytes = no_bytes, .deinit = deinit_wordpiece};

/* ---- WordLevel: a word is a token, or unknown ---- */

static quire_err encode_wordlevel(const piece_model *m, str piece, model_scratch *s, token_list *out) {
    (void)s;
    int32_t id = piece_table_find(m->vocab, piece);
    return token_list_add(out, id >= 0 ? id : m->unk);
}

const piece_model_ops piece_model_wordlevel = {
    .name = "WordLevel", .encode = encode_wordlevel, .bytes = no_bytes};

/* ---- SentencePiece's words ---- */

static quire_err encode_words(const piece_model *m, str piece, model_scratch *s, token_list *out) {
    int32_t id = piece_table_find(m->vocab, piece);
    if (id >= 0) {
        return token_list_add(out, id);
    }
    if (!m->words.byte_fallback) {
        /* an added token in between is no word */
        bool follows = s->after_unknown > 0 && s->after_unknown == out->n;
        TRY(follows ? QUIRE_OK : token_list_add(out, m->unk));
        s->after_unknown = out->n;
        return QUIRE_OK;
    }
    for (size_t i = 0; i < piece.n; i++) {
        int32_t byte = m->words.bytes[(uint8_t)piece.p[i]];
        TRY(token_list_add(out, byte >= 0 ? byte : m->unk));
    }
    return QUIRE_OK;
}

static const int32_t *bytes_of_words(const piece_model *m) {
    return m->words.byte_fallback ? m->words.bytes : NULL;
}

const piece_model_ops piece_model_words = {.name = "words", .encode = encode_words, .bytes = bytes_of_words};
