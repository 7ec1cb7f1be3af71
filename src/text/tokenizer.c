#include "text/tokenizer_impl.h"

#include "base/mem.h"
#include "text/utf8.h"

void token_list_deinit(token_list *l) {
    mem_free(l->ids);
    *l = (token_list){0};
}

quire_err token_list_add(token_list *l, int32_t id) {
    if (l->n == l->cap && !mem_grow_((void **)&l->ids, &l->cap, l->n + 1, sizeof *l->ids)) {
        return QUIRE_NO_MEMORY;
    }
    l->ids[l->n++] = id;
    return QUIRE_OK;
}

quire_err tokenizer_open(const vocab *v, tokenizer **out, quire_error *err) {
    if (v->source == VOCAB_NONE) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "the model has no vocabulary: text cannot be tokenized; give prompts as token ids");
    }
    tokenizer *t = mem_new(1, sizeof *t);
    if (t == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the tokenizer");
    }
    t->bos = t->eos = -1;
    quire_err e = v->source == VOCAB_GGUF ? tokenizer_load_gguf(t, v, err) : tokenizer_load_json(t, v, err);
    if (e != QUIRE_OK) {
        tokenizer_close(t);
        return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory for the tokenizer") : e;
    }
    *out = t;
    return QUIRE_OK;
}

void tokenizer_close(tokenizer *t) {
    if (t == NULL) {
        return;
    }
    added_set_deinit(&t->added);
    normalizer_deinit(&t->normalizer);
    pretokenizer_deinit(&t->pretokenizer);
    bpe_deinit(&t->bpe);
    decoder_deinit(&t->decoder);
    postprocessor_deinit(&t->post);
    piece_table_deinit(&t->vocab);
    mem_free(t->classes);
    strbuf_deinit(&t->bos_text);
    strbuf_deinit(&t->eos_text);
    mem_free(t);
}

/* ---- encoding ---- */

typedef struct encode_scratch {
    strbuf clean; /* the text, when it had to be made valid */
    regex_scratch regex;
    norm_scratch norm;
    pre_scratch pre;
    bpe_scratch bpe;
} encode_scratch;

static void encode_scratch_deinit(encode_scratch *s) {
    strbuf_deinit(&s->clean);
    regex_scratch_deinit(&s->regex);
    norm_scratch_deinit(&s->norm);
    pre_scratch_deinit(&s->pre);
    bpe_scratch_deinit(&s->bpe);
}

static quire_err encode_pieces(const tokenizer *t, str text, bool first, encode_scratch *s, token_list *out) {
    const piece_list *pieces;
    TRY(pretokenizer_run(&t->pretokenizer, text, first, &s->pre, &s->regex, &pieces));
    for (size_t i = 0; i < pieces->n; i++) {
        TRY(bpe_encode(&t->bpe, (str){pieces->text.p + pieces->pieces[i].at, pieces->pieces[i].n}, &s->bpe, out));
    }
    return QUIRE_OK;
}

/* A stretch between tokens that are found in the raw text. */
static quire_err encode_stretch(const tokenizer *t, str text, bool first, bool skip_special, encode_scratch *s, token_list *out) {
    added_walk w;
    TRY(normalizer_run(&t->normalizer, text, &s->norm, &s->regex, &text));
    added_walk_begin(&w, &t->added, &t->added.normalized, text, skip_special);
    while (added_walk_next(&w)) {
        if (w.stretch_n > 0) {
            TRY(encode_pieces(t, (str){text.p + w.stretch_at, w.stretch_n}, first && w.stretch_at == 0, s, out));
        }
        if (w.id >= 0) {
            TRY(token_list_add(out, w.id));
        }
    }
    return QUIRE_OK;
}

/* The ids of a text's content, without what the post-processor puts around it. */
static quire_err encode_content(const tokenizer *t, str text, encode_special special, encode_scratch *s, token_list *out) {
    if (!utf8_is_valid(text)) {
        strbuf_clear(&s->clean);
        TRY(utf8_add_lossy(&s->clean, text));
        text = (str){s->clean.p, s->clean.n};
    }
    added_walk w;
    bool skip_special = special == ENCODE_PLAIN;
    added_walk_begin(&w, &t->added, &t->added.raw, text, skip_special);
    while (added_walk_next(&w)) {
        if (w.stretch_n > 0) {
            TRY(encode_stretch(t, (str){text.p + w.stretch_at, w.stretch_n}, w.stretch_at == 0, skip_special, s, out));
        }
        if (w.id >= 0) {
            TRY(token_list_add(out, w.id));
        }
    }
    return QUIRE_OK;
}

/* Appends ids with their segment. */
static quire_err add_all(const int32_t *ids, size_t n, int32_t type, token_list *out, token_list *types) {
    for (size_t i = 0; i < n; i++) {
        TRY(token_list_add(out, ids[i]));
        if (types != NULL) {
            TRY(token_list_add(types, type));
        }
    }
    return QUIRE_OK;
}

/* Appends what the template makes of a and b; its first n_skip tokens are left out. */
static quire_err add_template(const post_template *p, const token_list *a, const token_list *b, size_t n_skip, token_list *out,
                              token_list *types) {
    if (p->n == 0) {
        TRY(add_all(a->ids, a->n, 0, out, types));
        return add_all(b->ids, b->n, 1, out, types);
    }
    for (size_t i = 0; i < p->n; i++) {
        const post_part *part = &p->parts[i];
        if (part->kind == POST_TOKENS) {
            size_t skip = n_skip < part->n_ids ? n_skip : part->n_ids;
            TRY(add_all(part->ids + skip, part->n_ids - skip, part->type_id, out, types));
            n_skip -= skip;
        } else {
            const token_list *l = part->kind == POST_A ? a : b;
            TRY(add_all(l->ids, l->n, part->type_id, out, types));
            n_skip = 0;
        }
    }
    return QUIRE_OK;
}

/* How many of the tokens that the template begins with the content begins with too: they are there already. */
static size_t n_already_there(const post_template *p, const token_list *content) {
    size_t n = 0;
    for (size_t i = 0; i < p->n && p->parts[i].kind == POST_TOKENS; i++) {
        for (size_t k = 0; k < p->parts[i].n_ids; k++) {
            if (n >= content->n || content->ids[n] != p->parts[i].ids[k]) {
                return 0;
            }
            n++;
        }
    }
    return n;
}

typedef enum around { AROUND_NOTHING, AROUND_ONCE, AROUND_ALWAYS } around;

static quire_err encode_texts(const tokenizer *t, str text, const str *pair, encode_special special, around how, encode_scratch *s,
                              token_list lists[2], token_list *out, token_list *types) {
    TRY(encode_content(t, text, special, s, &lists[0]));
    if (pair != NULL) {
        TRY(encode_content(t, *pair, special, s, &lists[1]));
    }
    static const post_template none;
    const post_template *p = how == AROUND_NOTHING ? &none : pair != NULL ? &t->post.pair : &t->post.single;
    return add_template(p, &lists[0], &lists[1], how == AROUND_ONCE ? n_already_there(p, &lists[0]) : 0, out, types);
}

static quire_err encode(const tokenizer *t, str text, const str *pair, encode_special special, around how, token_list *out,
                        token_list *types, quire_error *err) {
    encode_scratch s = {0};
    token_list lists[2] = {{0}, {0}};
    size_t before = out->n, before_types = types != NULL ? types->n : 0;
    quire_err e = encode_texts(t, text, pair, special, how, &s, lists, out, types);
    encode_scratch_deinit(&s);
    token_list_deinit(&lists[0]);
    token_list_deinit(&lists[1]);
    if (e == QUIRE_OK) {
        return QUIRE_OK;
    }
    out->n = before;
    if (types != NULL) {
        types->n = before_types;
    }
    const char *what = e == QUIRE_NO_MEMORY     ? "out of memory while tokenizing"
                       : e == QUIRE_BAD_REQUEST ? "the tokenizer's regular expressions take too long on this text"
                                                : "the text is too large to tokenize";
    return err_set(err, e, -1, "%s", what);
}

quire_err tokenizer_encode(const tokenizer *t, str text, encode_options options, token_list *out, quire_error *err) {
    return encode(t, text, NULL, options.special, options.add_special ? AROUND_ONCE : AROUND_NOTHING, out, NULL, err);
}

quire_err tokenizer_encode_pair(const tokenizer *t, str text, const str *pair, encode_special special, token_list *out, token_list *types,
                                quire_error *err) {
    return encode(t, text, pair, special, AROUND_ALWAYS, out, types, err);
}

/* ---- decoding ---- */

quire_err tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special, strbuf *out) {
    decode_state s;
    size_t before = out->n;
    decode_begin(&s, &t->decoder, DECODE_WHOLE);
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        str text;
        piece_class class;
        if (tokenizer_decodes(t, ids[i], skip_special, &text, &class)) {
            e = decode_add(&s, text, class, out);
        }
    }
    e = e != QUIRE_OK ? e : decode_finish(&s, out);
    decode_deinit(&s);
    if (e != QUIRE_OK) {
        out->n = before;
    }
    return e;
}

bool tokenizer_decodes(const tokenizer *t, int32_t id, bool skip_special, str *text, piece_class *class) {
    const added_token *a = added_set_get(&t->added, id);
    *text = a != NULL ? a->pattern : piece_table_get(&t->vocab, id);
    *class = t->classes == NULL || text->n == 0 ? PIECE_NORMAL : (piece_class)t->classes[id];
    /* As in the tokenizers library, which knows special tokens by what they decode to: one that normalizing changes is not skipped. */
    return text->n > 0 && !(skip_special && a != NULL && a->special && str_eq(a->pattern, a->content));
}

/* ---- what it knows ---- */

int32_t tokenizer_n_tokens(const tokenizer *t) {
    return t->vocab.n;
}

str tokenizer_piece(const tokenizer *t, int32_t id) {
    return piece_table_get(&t->vocab, id);
}

int32_t tokenizer_find(const tokenizer *t, str piece) {
    int32_t id = added_set_find(&t->added, piece);
    return id >= 0 ? id : piece_table_find(&t->vocab, piece);
}

bool tokenizer_is_special(const tokenizer *t, int32_t id) {
    const added_token *a = added_set_get(&t->added, id);
    return a != NULL && a->special;
}

int32_t tokenizer_bos(const tokenizer *t) {
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t) {
    return t->eos;
}

str tokenizer_bos_text(const tokenizer *t) {
    return (str){t->bos_text.n > 0 ? t->bos_text.p : "", t->bos_text.n};
}

str tokenizer_eos_text(const tokenizer *t) {
    return (str){t->eos_text.n > 0 ? t->eos_text.p : "", t->eos_text.n};
}

quire_err tokenizer_surround(tokenizer *t, int32_t bos, int32_t eos) {
    for (int two = 0; two < 2; two++) {
        post_template *p = two ? &t->post.pair : &t->post.single;
        if (bos >= 0) {
            TRY(post_template_add(p, POST_TOKENS, 0, &bos, 1));
        }
        TRY(post_template_add(p, POST_A, 0, NULL, 0));
        if (two) {
            TRY(post_template_add(p, POST_B, 1, NULL, 0));
        }
        if (eos >= 0) {
            TRY(post_template_add(p, POST_TOKENS, 0, &eos, 1));
        }
    }
    return QUIRE_OK;
}
