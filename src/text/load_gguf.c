/* Loads a tokenizer from GGUF metadata: "gpt2" is byte-level BPE with listed merges, "llama" is SentencePiece's BPE with scores. */
#include "base/mem.h"
#include "text/chars.h"
#include "text/tables.h"
#include "text/tokenizer_impl.h"

#define MARK "\xE2\x96\x81" /* U+2581 */

static vocab_type type_at(const vocab *v, int32_t id) {
    return v->types == NULL ? VOCAB_NORMAL : (vocab_type)v->types[id];
}

static quire_err check(const vocab *v, quire_error *err) {
    if (v->n_tokens < 1 || (v->tokens == NULL && v->tables.n == 0)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml.tokens is missing or empty");
    }
    const int32_t ids[] = {v->bos, v->eos, v->unk, v->pad};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        if (ids[i] < -1 || ids[i] >= v->n_tokens) {
            return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml: special token %d of a vocabulary of %d", ids[i], v->n_tokens);
        }
    }
    return QUIRE_OK;
}

/* True for tokens that ordinary text may become. In SentencePiece neither bytes nor controls; in byte-level BPE only the merges decide. */
static bool is_findable(const vocab *v, int32_t id, bool sentencepiece) {
    vocab_type k = type_at(v, id);
    return sentencepiece ? k == VOCAB_NORMAL || k == VOCAB_USER_DEFINED || k == VOCAB_UNUSED : true;
}

static quire_err load_pieces(tokenizer *t, const vocab *v, bool sentencepiece, quire_error *err) {
    size_t n_bytes = 0;
    if (v->tables.n > 0) {
        TRY(tables_take(t, v->tables, err));
        return t->vocab.n == v->n_tokens
                   ? QUIRE_OK
                   : err_set(err, QUIRE_BAD_FILE, -1, "the vocabulary's tables are of another vocabulary; pack the model again");
    }
    for (int32_t i = 0; i < v->n_tokens; i++) {
        n_bytes += v->tokens[i].n;
    }
    TRY(piece_table_init(&t->vocab, v->n_tokens, (size_t)v->n_tokens, n_bytes));
    for (int32_t i = 0; i < v->n_tokens; i++) {
        bool again = type_at(v, i) == VOCAB_USER_DEFINED && piece_table_find(&t->vocab, v->tokens[i]) >= 0;
        TRY(is_findable(v, i, sentencepiece) && !again ? piece_table_add(&t->vocab, i, v->tokens[i])
                                                       : piece_table_add_hidden(&t->vocab, i, v->tokens[i]));
    }
    return QUIRE_OK;
}

static quire_err load_added(tokenizer *t, const vocab *v) {
    for (int32_t i = 0; i < v->n_tokens; i++) {
        vocab_type k = type_at(v, i);
        bool special = k == VOCAB_CONTROL || k == VOCAB_UNKNOWN;
        str text = piece_table_get(&t->vocab, i);
        if ((special || k == VOCAB_USER_DEFINED) && utf8_is_valid(text)) {
            TRY(added_set_add(&t->added, &(added_token){.id = i, .content = text, .pattern = text, .special = special}));
        }
    }
    return added_set_finish(&t->added, v->n_tokens);
}

static quire_err load_special_texts(tokenizer *t, const vocab *v) {
    t->bos = v->bos;
    t->eos = v->eos;
    str bos = tokenizer_piece(t, v->bos), eos = tokenizer_piece(t, v->eos);
    TRY(strbuf_add(&t->bos_text, bos.p, bos.n));
    TRY(strbuf_add(&t->eos_text, eos.p, eos.n));
    bool add_bos = v->add_bos == 1 && v->bos >= 0, add_eos = v->add_eos == 1 && v->eos >= 0;
    return add_bos || add_eos ? tokenizer_surround(t, add_bos ? v->bos : -1, add_eos ? v->eos : -1) : QUIRE_OK;
}

/* ---- byte-level BPE ---- */

/* Splits "left right". A side may begin with a space, but is never only a space. */
static bool split_merge(str line, str *left, str *right) {
    const char *space = line.n < 3 ? NULL : memchr(line.p + 1, ' ', line.n - 2);
    if (space == NULL) {
        return false;
    }
    *left = (str){line.p, (size_t)(space - line.p)};
    *right = (str){space + 1, line.n - left->n - 1};
    return true;
}

static quire_err load_merges(tokenizer *t, const vocab *v, quire_error *err) {
    strbuf scratch = {0};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < v->n_merges && e == QUIRE_OK; i++) {
        str left, right;
        e = split_merge(v->merges[i], &left, &right) ? bpe_add_merge(&t->bpe, (uint32_t)i, left, right, &scratch) : QUIRE_NOT_FOUND;
        if (e == QUIRE_NOT_FOUND) {
            e = err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml.merges[%d] \"%.*s\" does not join two tokens to a third", i,
                        (int)(v->merges[i].n < 80 ? v->merges[i].n : 80), v->merges[i].p);
        }
    }
    strbuf_deinit(&scratch);
    return e;
}

static quire_err load_byte_level(tokenizer *t, const vocab *v, quire_error *err) {
    if ((v->n_merges < 1 || v->merges == NULL) && v->tables.n == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml.merges is missing: byte-level BPE cannot do without");
    }
    TRY(load_pieces(t, v, false, err));
    TRY(load_added(t, v));
    t->bpe.vocab = &t->vocab;
    t->bpe.unk = -1;
    TRY(tokenizer_apply_pre(t, v->pre, err));
    TRY(bpe_begin(&t->bpe, (size_t)v->n_merges));
    TRY(load_merges(t, v, err));
    TRY(bpe_finish(&t->bpe, false));
    t->decoder.steps[t->decoder.n++] = (decode_step){.kind = DECODE_BYTE_LEVEL};
    return load_special_texts(t, v);
}

/* ---- SentencePiece ---- */

static quire_err load_classes(tokenizer *t, const vocab *v) {
    t->classes = mem_new((size_t)v->n_tokens, 1);
    TRY(mem_check(t->classes));
    for (int32_t i = 0; i < v->n_tokens; i++) {
        vocab_type k = type_at(v, i);
        t->classes[i] = k == VOCAB_BYTE      ? PIECE_BYTE
                        : k == VOCAB_CONTROL ? PIECE_CONTROL
                        : k == VOCAB_UNKNOWN ? PIECE_UNKNOWN
                                             : PIECE_NORMAL;
    }
    return QUIRE_OK;
}

/* Finds <0x00>..<0xFF>, where the file says that they are bytes. */
static void find_bytes(tokenizer *t, const vocab *v) {
    static const char hex[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; b++) {
        t->bpe.bytes[b] = -1;
    }
    for (int32_t i = 0; i < v->n_tokens; i++) {
        str p = piece_table_get(&t->vocab, i);
        if (type_at(v, i) != VOCAB_BYTE || p.n != 6 || memcmp(p.p, "<0x", 3) != 0 || p.p[5] != '>') {
            continue;
        }
        const char *high = memchr(hex, p.p[3], 16), *low = memchr(hex, p.p[4], 16);
        if (high != NULL && low != NULL) {
            t->bpe.bytes[(high - hex) * 16 + (low - hex)] = i;
            t->bpe.byte_fallback = true;
        }
    }
}

static quire_err add_mark_steps(tokenizer *t, bool prefix) {
    normalizer *n = &t->normalizer;
    if (prefix) {
        norm_step *step = &n->steps[n->n++];
        *step = (norm_step){.kind = NORM_PREPEND, .content = mem_dup(MARK, 3), .n_content = 3};
        TRY(mem_check(step->content));
    }
    norm_step *step = &n->steps[n->n++];
    *step = (norm_step){.kind = NORM_REPLACE, .content = mem_dup(MARK, 3), .n_content = 3};
    decode_step *back = &t->decoder.steps[t->decoder.n++];
    *back = (decode_step){.kind = DECODE_SENTENCEPIECE, .content = mem_dup(MARK, 3), .n_content = 3, .strip_first = prefix};
    return step->content == NULL || back->content == NULL ? QUIRE_NO_MEMORY : matcher_open_literal(str_of(" "), &step->match);
}

static quire_err load_sentencepiece(tokenizer *t, const vocab *v, quire_error *err) {
    if (v->scores == NULL && v->tables.n == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml.scores is missing: a \"llama\" tokenizer cannot do without");
    }
    TRY(load_pieces(t, v, true, err));
    TRY(load_added(t, v));
    TRY(load_classes(t, v));
    t->bpe.vocab = &t->vocab;
    t->bpe.sentencepiece = true;
    t->bpe.unk = v->unk;
    find_bytes(t, v);
    TRY(add_mark_steps(t, v->add_space_prefix != 0));
    TRY(bpe_begin(&t->bpe, (size_t)v->n_tokens * 2));
    quire_err e = v->tables.n > 0 ? QUIRE_OK : bpe_derive_merges(&t->bpe, v->scores);
    if (e != QUIRE_OK) {
        return e == QUIRE_UNSUPPORTED ? err_set(err, e, -1, "tokenizer.ggml.tokens: a token of more than %d bytes", BPE_MAX_PIECE) : e;
    }
    TRY(bpe_finish(&t->bpe, true));
    return load_special_texts(t, v);
}

quire_err tokenizer_load_gguf(tokenizer *t, const vocab *v, quire_error *err) {
    TRY(check(v, err));
    if (str_is(v->model, "gpt2")) {
        return load_byte_level(t, v, err);
    }
    if (str_is(v->model, "llama")) {
        return load_sentencepiece(t, v, err);
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1, "tokenizer.ggml.model \"%.*s\" is not supported by this version",
                   (int)(v->model.n < 80 ? v->model.n : 80), v->model.p);
}
