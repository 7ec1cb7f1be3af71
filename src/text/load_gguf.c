/* Loads a tokenizer from GGUF metadata: "gpt2" is byte-level BPE with listed merges,
 * "gemma4" the same over marked text, "llama" SentencePiece's BPE with scores, "t5" its
 * Unigram, "bert" WordPiece. What an unset flag means is as in llama.cpp. */
#include "base/mem.h"
#include "text/chars.h"
#include "text/model_build.h"
#include "text/sp_model.h"
#include "text/tables.h"

#define MARK     SP_MARK
#define MAX_WORD 100 /* characters of a BERT word */

static vocab_type type_at(const vocab *v, int32_t id) {
    return v->types == NULL ? VOCAB_NORMAL : (vocab_type)v->types[id];
}

static quire_err load_gguf_check(const vocab *v, quire_error *err) {
    if (v->n_tokens < 1 || (v->tokens == NULL && v->tables.n == 0)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml.tokens is missing or empty");
    }
    const int32_t ids[] = {v->bos, v->eos, v->unk, v->pad};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        if (ids[i] < -1 || ids[i] >= v->n_tokens) {
            return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml: special token %d of a vocabulary of %d",
                           ids[i], v->n_tokens);
        }
    }
    return QUIRE_OK;
}

/* True for tokens that ordinary text may become. In SentencePiece neither bytes nor
 * controls; in byte-level BPE only the merges decide. */
static bool load_gguf_is_findable(const vocab *v, int32_t id, bool sentencepiece) {
    vocab_type k = type_at(v, id);
    return sentencepiece ? k == VOCAB_NORMAL || k == VOCAB_USER_DEFINED || k == VOCAB_UNUSED : true;
}

static quire_err load_gguf_load_pieces(tokenizer *t, const vocab *v, bool sentencepiece, quire_error *err) {
    size_t n_bytes = 0;
    if (v->tables.n > 0) {
        TRY(tables_take(t, v->tables, err));
        return model_check_tables(t, v->n_tokens, err);
    }
    for (int32_t i = 0; i < v->n_tokens; i++) {
        n_bytes += v->tokens[i].n;
    }
    TRY(piece_table_init(&t->vocab, v->n_tokens, (size_t)v->n_tokens, n_bytes));
    for (int32_t i = 0; i < v->n_tokens; i++) {
        bool again = type_at(v, i) == VOCAB_USER_DEFINED && piece_table_find(&t->vocab, v->tokens[i]) >= 0;
        TRY(load_gguf_is_findable(v, i, sentencepiece) && !again
                ? piece_table_add(&t->vocab, i, v->tokens[i])
                : piece_table_add_hidden(&t->vocab, i, v->tokens[i]));
    }
    return QUIRE_OK;
}

static quire_err load_gguf_load_added(tokenizer *t, const vocab *v) {
    for (int32_t i = 0; i < v->n_tokens; i++) {
        vocab_type k = type_at(v, i);
        bool special = k == VOCAB_CONTROL || k == VOCAB_UNKNOWN;
        str text = piece_table_get(&t->vocab, i);
        if ((special || k == VOCAB_USER_DEFINED) && utf8_is_valid(text)) {
            TRY(added_set_add(&t->added,
                              &(added_token){.id = i, .content = text, .pattern = text, .special = special}));
        }
    }
    return added_set_finish(&t->added, v->n_tokens);
}

/* ends: what an unset flag means. */
static quire_err load_special_texts(tokenizer *t, const vocab *v, pre_start start, bool ends) {
    t->bos = v->bos;
    t->eos = v->eos;
    str bos = tokenizer_piece(t, v->bos), eos = tokenizer_piece(t, v->eos);
    TRY(strbuf_add(&t->bos_text, bos.p, bos.n));
    TRY(strbuf_add(&t->eos_text, eos.p, eos.n));
    bool starts = start == PRE_ALWAYS_STARTS || (v->add_bos < 0 ? start == PRE_STARTS : v->add_bos == 1);
    bool add_bos = starts && v->bos >= 0;
    bool add_eos = (v->add_eos < 0 ? ends : v->add_eos == 1) && v->eos >= 0;
    return add_bos || add_eos ? tokenizer_surround(t, add_bos ? v->bos : -1, add_eos ? v->eos : -1)
                              : QUIRE_OK;
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

static quire_err load_gguf_load_merges(tokenizer *t, const vocab *v, quire_error *err) {
    strbuf scratch = {0};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < v->n_merges && e == QUIRE_OK; i++) {
        str left, right;
        e = split_merge(v->merges[i], &left, &right)
                ? bpe_add_merge(&t->model.bpe, (uint32_t)i, left, right, &scratch)
                : QUIRE_NOT_FOUND;
        if (e == QUIRE_NOT_FOUND) {
            e = err_set(err, QUIRE_BAD_FILE, -1,
                        "tokenizer.ggml.merges[%d] \"%.*s\" does not join two tokens to a third", i,
                        (int)(v->merges[i].n < 80 ? v->merges[i].n : 80), v->merges[i].p);
        }
    }
    strbuf_deinit(&scratch);
    return e;
}

static quire_err load_byte_level(tokenizer *t, const vocab *v, quire_error *err) {
    pre_start start = PRE_AS_SAID;
    str pre = str_is(v->model, "gemma4") ? v->model : v->pre;
    if ((v->n_merges < 1 || v->merges == NULL) && v->tables.n == 0 && !str_is(pre, "kimi-k2")) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tokenizer.ggml.merges is missing: byte-level BPE cannot do without");
    }
    piece_model_init(&t->model, &piece_model_bpe, &t->vocab, -1);
    TRY(load_gguf_load_pieces(t, v, false, err));
    TRY(load_gguf_load_added(t, v));
    TRY(tokenizer_apply_pre(t, pre, &start, err));
    TRY(bpe_begin(&t->model.bpe, (size_t)v->n_merges));
    TRY(load_gguf_load_merges(t, v, err));
    TRY(bpe_finish(&t->model.bpe, t->decoder.n > 0));
    if (t->decoder.n == 0) { /* else the pre-tokenizer has brought its own */
        t->decoder.steps[t->decoder.n++] = (decode_step){.kind = DECODE_BYTE_LEVEL};
    }
    return load_special_texts(t, v, start, false);
}

/* ---- SentencePiece ---- */

static quire_err load_gguf_load_classes(tokenizer *t, const vocab *v) {
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

static bool load_gguf_is_byte(const void *context, int32_t id) {
    return type_at(context, id) == VOCAB_BYTE;
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
    *back = (decode_step){
        .kind = DECODE_SENTENCEPIECE, .content = mem_dup(MARK, 3), .n_content = 3, .strip_first = prefix};
    return step->content == NULL || back->content == NULL ? QUIRE_NO_MEMORY
                                                          : matcher_open_literal(str_of(" "), &step->match);
}

static quire_err load_sentencepiece(tokenizer *t, const vocab *v, quire_error *err) {
    piece_model_init(&t->model, &piece_model_bpe, &t->vocab, v->unk);
    TRY(load_gguf_load_pieces(t, v, true, err));
    TRY(load_gguf_load_added(t, v));
    TRY(load_gguf_load_classes(t, v));
    t->model.bpe.sentencepiece = true;
    t->model.bpe.byte_fallback = model_find_bytes(&t->vocab, load_gguf_is_byte, v, t->model.bpe.bytes) > 0;
    TRY(add_mark_steps(t, v->add_space_prefix != 0));
    TRY(bpe_begin(&t->model.bpe, (size_t)v->n_tokens * 2));
    quire_err e = v->tables.n > 0 ? QUIRE_OK : bpe_derive_merges(&t->model.bpe, v->scores);
    if (e != QUIRE_OK) {
        return e == QUIRE_UNSUPPORTED
                   ? err_set(err, e, -1, "tokenizer.ggml.tokens: a token of more than %d bytes",
                             BPE_MAX_PIECE)
                   : e;
    }
    TRY(bpe_finish(&t->model.bpe, true));
    return load_special_texts(t, v, PRE_STARTS, false);
}

/* ---- "t5": SentencePiece's Unigram ---- */

static quire_err fill_t5(const vocab *v, sp_model *m) {
    m->pieces = mem_new((size_t)v->n_tokens, sizeof *m->pieces);
    TRY(mem_check(m->pieces));
    m->n = (size_t)v->n_tokens;
    m->kind = SP_UNIGRAM;
    m->byte_fallback = true; /* where the file has bytes */
    m->dummy_prefix = v->add_space_prefix != 0;
    m->remove_extra = v->remove_extra_whitespaces == 1;
    m->charsmap = v->charsmap;
    m->unk = v->unk;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        m->pieces[i] = (sp_piece){.text = v->tokens != NULL ? v->tokens[i] : (str){"", 0},
                                  .score = v->scores != NULL ? v->scores[i] : 0,
                                  .type = type_at(v, i) == VOCAB_UNDEFINED ? VOCAB_UNUSED : type_at(v, i)};
        m->unk = m->unk < 0 && m->pieces[i].type == VOCAB_UNKNOWN ? i : m->unk;
    }
    return QUIRE_OK;
}

static quire_err load_t5(tokenizer *t, const vocab *v, quire_error *err) {
    sp_model m;
    sp_model_init(&m, "tokenizer.ggml");
    quire_err e = fill_t5(v, &m);
    e = e != QUIRE_OK ? e : sp_model_build(&m, v->tables, t, err);
    sp_model_deinit(&m);
    return e != QUIRE_OK ? e : load_special_texts(t, v, PRE_AS_SAID, true);
}

/* ---- "bert": WordPiece, with a mark before what begins a word ---- */

static quire_err load_gguf_add_step(normalizer *n, norm_kind kind) {
    n->steps[n->n++] = (norm_step){.kind = kind};
    return QUIRE_OK;
}

static quire_err add_bert_steps(tokenizer *t, const vocab *v, quire_error *err) {
    bool lower = v->lowercase != 0;
    TRY(load_gguf_add_step(&t->normalizer, NORM_BERT_CLEAN));
    TRY(load_gguf_add_step(&t->normalizer, NORM_BERT_CHINESE));
    if (v->strip_accents >= 0 ? v->strip_accents == 1 : lower) {
        TRY(load_gguf_add_step(&t->normalizer, NORM_NFD));
        TRY(load_gguf_add_step(&t->normalizer, NORM_DROP_NONSPACING));
    }
    if (lower) {
        TRY(load_gguf_add_step(&t->normalizer, NORM_LOWERCASE));
    }
    TRY(pretokenizer_add_chars(&t->pretokenizer, CLASS_SPACE, 0, SPLIT_REMOVED, err));
    TRY(pretokenizer_add_chars(&t->pretokenizer, CLASS_PUNCTUATION, 0, SPLIT_ISOLATED, err));
    decode_step *back = &t->decoder.steps[t->decoder.n++];
    *back = (decode_step){.kind = DECODE_WORDPIECE,
                          .cleanup = true,
                          .marks_words = true,
                          .content = mem_dup(MARK, 3),
                          .n_content = 3};
    return mem_check(back->content);
}

/* [CLS] A [SEP], and [CLS] A [SEP] B [SEP]. */
static quire_err surround_bert(tokenizer *t, const vocab *v) {
    int32_t cls = v->bos >= 0 ? v->bos : tokenizer_find(t, str_of("[CLS]"));
    int32_t sep = v->sep >= 0 ? v->sep : v->eos >= 0 ? v->eos : tokenizer_find(t, str_of("[SEP]"));
    for (int two = 0; two < 2; two++) {
        post_template *p = two ? &t->post.pair : &t->post.single;
        if (cls >= 0 && v->add_bos != 0) {
            TRY(post_template_add(p, POST_TOKENS, 0, &cls, 1));
        }
        for (int i = 0; i <= two; i++) {
            TRY(post_template_add(p, i == 0 ? POST_A : POST_B, i, NULL, 0));
            if (sep >= 0 && v->add_eos != 0) {
                TRY(post_template_add(p, POST_TOKENS, i, &sep, 1));
            }
        }
    }
    return QUIRE_OK;
}

static quire_err load_bert(tokenizer *t, const vocab *v, quire_error *err) {
    wordpiece *w = &t->model.wordpiece;
    piece_model_init(&t->model, &piece_model_wordpiece, &t->vocab, v->unk);
    TRY(load_gguf_load_pieces(t, v, true, err));
    for (int32_t i = 0; i < t->vocab.n && t->model.unk < 0; i++) {
        t->model.unk = str_is(piece_table_get(&t->vocab, i), "[UNK]") ? i : -1;
    }
    if (t->model.unk < 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tokenizer.ggml.tokens: a \"bert\" tokenizer without an unknown token");
    }
    TRY(load_gguf_load_added(t, v));
    TRY(add_bert_steps(t, v, err));
    w->unk = t->model.unk;
    w->max_chars = MAX_WORD;
    if (w->trie.units == NULL) {
        TRY(model_build_trie(t, &w->trie));
    }
    model_find_word_starts(w, str_of(MARK), (str){"", 0});
    w->mark = str_of(MARK);
    TRY(load_special_texts(t, v, PRE_AS_SAID, false));
    postprocessor_deinit(&t->post);
    return surround_bert(t, v);
}

quire_err tokenizer_load_gguf(tokenizer *t, const vocab *v, quire_error *err) {
    TRY(load_gguf_check(v, err));
    if (str_is(v->model, "gpt2") || str_is(v->model, "gemma4")) {
        return load_byte_level(t, v, err);
    }
    if (str_is(v->model, "llama")) {
        return load_sentencepiece(t, v, err);
    }
    if (str_is(v->model, "t5")) {
        return load_t5(t, v, err);
    }
    if (str_is(v->model, "bert")) {
        return load_bert(t, v, err);
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "tokenizer.ggml.model \"%.*s\" is not supported by this version",
                   (int)(v->model.n < 80 ? v->model.n : 80), v->model.p);
}
