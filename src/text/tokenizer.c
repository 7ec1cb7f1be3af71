#include "text/tokenizer.h"

#include <assert.h>

#include "base/mem.h"
#include "base/turn.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "text/tokenizer_impl.h"

static quire_err (*const loaders[])(tokenizer *t, const vocab *v, quire_error *err) = {
    [VOCAB_GGUF] = tokenizer_load_gguf,
    [VOCAB_TOKENIZER_JSON] = tokenizer_load_json,
    [VOCAB_SENTENCEPIECE] = tokenizer_load_sentencepiece,
    [VOCAB_RANKS] = tokenizer_load_ranks,
    [VOCAB_TEKKEN] = tokenizer_load_tekken,
};

/* The token before the text in a post-processor's template, if it is the only one; else
 * -1. */
static int32_t tokenizer_first_of(const post_template *p) {
    bool is_one = p->is_set && p->n > 1 && p->parts[0].kind == POST_TOKENS && p->parts[0].n_ids == 1 &&
                  p->parts[1].kind == POST_A;
    return is_one ? p->parts[0].ids[0] : -1;
}

/* Sets t->start: the BOS of chats. */
static quire_err find_start(tokenizer *t) {
    int32_t first = tokenizer_first_of(&t->post.single);
    first = t->bos < 0 || first == t->bos ? first : -1;
    t->start = t->says_bos < 0 ? first : t->says_bos == 1 ? t->bos : -1;
    if (t->start < 0) {
        return QUIRE_OK;
    }
    TRY(post_template_add(&t->post.start, POST_TOKENS, 0, &t->start, 1));
    return post_template_add(&t->post.start, POST_A, 0, NULL, 0);
}

quire_err tokenizer_open(const vocab *v, tokenizer **out, quire_error *err) {
    assert(v != NULL);
    if (v->source == VOCAB_NONE) {
        return err_set(err, QUIRE_NOT_FOUND, -1,
                       "the model has no vocabulary: text cannot be tokenized; give prompts as token ids");
    }
    tokenizer *t = mem_new(1, sizeof *t);
    TRY(mem_check_for(t, "a tokenizer", err));
    t->bos = t->eos = t->says_bos = t->start = -1;
    quire_err e = loaders[v->source](t, v, err);
    TRY_DONE(e, find_start(t));
    TRY_DONE(e, tokenizer_find_max_bytes(t, &t->max_bytes) == QUIRE_OK ? QUIRE_OK : QUIRE_NO_MEMORY);
    t->fim = fim_find(v, &t->added, &t->vocab);
done:
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
    piece_model_deinit(&t->model);
    decoder_deinit(&t->decoder);
    postprocessor_deinit(&t->post);
    piece_trie_deinit(&t->symbols);
    piece_table_deinit(&t->vocab);
    mem_free(t->classes);
    strbuf_deinit(&t->bos_text);
    strbuf_deinit(&t->eos_text);
    mem_free(t);
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

enum { CHARACTER_BYTES = 4 }; /* of one character in UTF-8 */

/* The state of an encoding. */
typedef struct encode_run {
    const tokenizer *t;
    encode_options options;
    strbuf clean; /* the text as valid UTF-8, if it had to be converted */
    regex_scratch regex;
    norm_scratch norm, norm_part;
    pre_scratch pre;
    model_scratch model;
} encode_run;

static void encode_run_deinit(encode_run *r) {
    strbuf_deinit(&r->clean);
    regex_scratch_deinit(&r->regex);
    norm_scratch_deinit(&r->norm);
    norm_scratch_deinit(&r->norm_part);
    pre_scratch_deinit(&r->pre);
    model_scratch_deinit(&r->model);
}

static quire_err tokenizer_check_room(const encode_run *r, const token_list *out) {
    return r->options.max_tokens > 0 && out->n > r->options.max_tokens ? QUIRE_NO_ROOM : QUIRE_OK;
}

static bool has_control(const tokenizer *t, const token_list *l, size_t from) {
    for (size_t i = from; i < l->n; i++) {
        const added_token *a = added_set_get(&t->added, l->ids[i]);
        if (a != NULL && a->control && a->id != t->model.unk) {
            return true;
        }
    }
    return false;
}

/* Appends the ids of a piece. With marks, merges must not produce a control token: such a
 * piece is encoded character by character, and a character that is a control token as
 * unknown. */
static quire_err encode_piece(encode_run *r, str piece, token_list *out) {
    const piece_model *m = &r->t->model;
    size_t before = out->n, len;
    TRY(m->ops->encode(m, piece, &r->model, out));
    if (r->options.marks == NULL || !has_control(r->t, out, before)) {
        return QUIRE_OK;
    }
    out->n = before;
    for (size_t i = 0; i < piece.n; i += len) {
        utf8_next(piece.p + i, &len);
        before = out->n;
        TRY(m->ops->encode(m, (str){piece.p + i, len}, &r->model, out));
        if (has_control(r->t, out, before)) {
            out->n = before;
            if (m->unk >= 0) {
                TRY(token_list_add(out, m->unk));
            }
        }
    }
    return QUIRE_OK;
}

static quire_err encode_pieces(encode_run *r, str text, size_t front, token_list *out) {
    const piece_list *pieces;
    TRY(pretokenizer_run(&r->t->pretokenizer, text, front, &r->pre, &r->regex, &pieces));
    for (size_t i = 0; i < pieces->n; i++) {
        TRY(turn_poll((uint32_t)pieces->pieces[i].n));
        TRY(encode_piece(r, (str){pieces->text.p + pieces->pieces[i].at, pieces->pieces[i].n}, out));
        TRY(tokenizer_check_room(r, out));
    }
    return QUIRE_OK;
}

/* The end of the part that begins at `at`: the next border of a run, at most `end`.
 * *client: whether the part comes from the client. */
static size_t part_end(const text_marks *m, size_t at, size_t end, bool *client) {
    size_t i = text_marks_find(m, at);
    *client = i < m->n && m->runs[i].start <= at;
    size_t border = i == m->n ? end : *client ? m->runs[i].end : m->runs[i].start;
    return border < end ? border : end;
}

/* Maps the marks of a stretch, text[offset ..], to its normalized text, by normalizing
 * each part. If the results do not add up to the whole, marks all of it. */
static quire_err move_marks(encode_run *r, size_t offset, str text, str normalized, text_marks *out) {
    size_t done = 0, to = 0;
    bool adds_up = true;
    size_t n_lead = normalizer_lead(&r->t->normalizer).n;
    while (done < text.n && adds_up) {
        bool client;
        size_t upto = part_end(r->options.marks, offset + done, offset + text.n, &client) - offset;
        str part = {text.p + done, upto - done};
        r->norm_part.continues = done == 0 && r->norm.continues;
        TRY(normalizer_run(&r->t->normalizer, part, &r->norm_part, &r->regex, &part));
        size_t lead = done > 0 && part.n >= n_lead ? n_lead : 0;
        part = (str){part.p + lead, part.n - lead};
        adds_up =
            to + part.n <= normalized.n && (part.n == 0 || memcmp(normalized.p + to, part.p, part.n) == 0);
        if (adds_up && client) {
            TRY(text_marks_add(out, to, to + part.n));
        }
        to += part.n;
        done = upto;
    }
    if (adds_up && to == normalized.n) {
        return QUIRE_OK;
    }
    out->n = 0;
    return text_marks_add(out, 0, normalized.n);
}

/* Whether a stretch at offset continues the known ids in the middle of a stretch. */
static bool goes_on(const encode_run *r, size_t offset) {
    const token_list *known = r->options.known;
    return known != NULL && known->n > 0 && offset > 0 && offset == r->options.from &&
           added_set_get(&r->t->added, known->ids[known->n - 1]) == NULL;
}

/* Encodes a stretch between tokens found in the raw text, where it starts at offset. */
static quire_err tokenizer_encode_stretch(encode_run *r, str text, size_t offset, token_list *out) {
    const tokenizer *t = r->t;
    text_marks moved = {0};
    added_walk w;
    str normalized;
    r->norm.front = 0;
    r->norm.continues = goes_on(r, offset);
    if (offset == 0 && pretokenizer_asks_front(&t->pretokenizer)) {
        (void)utf8_next(text.p, &r->norm.front);
    }
    TRY(normalizer_run(&t->normalizer, text, &r->norm, &r->regex, &normalized));
    added_walk_begin(&w, &t->added, &t->added.normalized, normalized, r->options.special == ENCODE_PLAIN);
    w.marks = r->options.marks == NULL ? NULL : &moved;
    quire_err e = w.marks != NULL && t->added.finds_control ? move_marks(r, offset, text, normalized, &moved)
                                                            : QUIRE_OK;
    bool more = true;
    while (e == QUIRE_OK && (e = added_walk_next(&w, &more)) == QUIRE_OK && more) {
        if (w.stretch_n > 0) {
            r->pre.continues = r->norm.continues && w.stretch_at == 0;
            size_t front = r->norm.front > w.stretch_at ? r->norm.front - w.stretch_at : 0;
            e = encode_pieces(r, (str){normalized.p + w.stretch_at, w.stretch_n}, front, out);
        }
        if (e == QUIRE_OK && w.id >= 0) {
            e = token_list_add(out, w.id);
        }
    }
    text_marks_deinit(&moved);
    return e;
}

/* Records the seam before the token that w has found, if it begins where the stretch
 * ends. Whether a token begins there depends on the text up to the length of the longest
 * one, and on the character after it. */
static quire_err note_seam(encode_run *r, const added_walk *w, size_t n_ids) {
    size_t at = w->stretch_at + w->stretch_n, needs = w->done + r->t->added.longest + CHARACTER_BYTES;
    str pattern = added_set_get(&r->t->added, w->id)->pattern;
    if (r->options.seams == NULL || at <= r->options.from || needs > w->text.n ||
        memcmp(w->text.p + at, pattern.p, pattern.n) != 0) {
        return QUIRE_OK;
    }
    return encode_seams_add(r->options.seams, (encode_seam){at, needs, n_ids});
}

/* Marks for a text whose bytes have moved: all of it, so no control token counts. */
static mark_run whole_text = {0, SIZE_MAX};
static const text_marks all_a_clients = {.runs = &whole_text, .n = 1};

/* Appends the ids of a text's content, without the post-processor's tokens. */
static quire_err encode_content(encode_run *r, str text, token_list *out) {
    if (!utf8_is_valid(text)) {
        strbuf_clear(&r->clean);
        TRY(utf8_add_lossy(&r->clean, text));
        text = (str){r->clean.p, r->clean.n};
        r->options.seams = NULL; /* its seams would be positions in another text */
        r->options.known = NULL;
        r->options.marks = r->options.marks != NULL ? &all_a_clients : NULL;
    }
    added_walk w;
    added_walk_begin(&w, &r->t->added, &r->t->added.raw, text, r->options.special == ENCODE_PLAIN);
    w.marks = r->options.marks;
    if (r->options.known != NULL) {
        w.done = w.from = r->options.from;
        TRY(token_list_add_all(out, r->options.known->ids, r->options.known->n));
    }
    for (bool more = true;;) {
        TRY(added_walk_next(&w, &more));
        if (!more) {
            return QUIRE_OK;
        }
        if (w.stretch_n > 0) {
            TRY(tokenizer_encode_stretch(r, (str){text.p + w.stretch_at, w.stretch_n}, w.stretch_at, out));
        }
        if (w.id >= 0) {
            TRY(note_seam(r, &w, out->n));
            TRY(token_list_add(out, w.id));
            TRY(tokenizer_check_room(r, out));
        }
    }
}

/* Appends ids with their segment number. */
static quire_err tokenizer_add_all(const int32_t *ids, size_t n, int32_t type, token_list *out,
                                   token_list *types) {
    for (size_t i = 0; i < n; i++) {
        TRY(token_list_add(out, ids[i]));
        if (types != NULL) {
            TRY(token_list_add(types, type));
        }
    }
    return QUIRE_OK;
}

/* Appends the template's ids for texts a and b, without its first n_skip tokens. */
static quire_err add_template(const post_template *p, const token_list *a, const token_list *b, size_t n_skip,
                              token_list *out, token_list *types) {
    if (!p->is_set) {
        TRY(tokenizer_add_all(a->ids, a->n, 0, out, types));
        return tokenizer_add_all(b->ids, b->n, 1, out, types);
    }
    for (size_t i = 0; i < p->n; i++) {
        const post_part *part = &p->parts[i];
        if (part->kind == POST_TOKENS) {
            size_t skip = n_skip < part->n_ids ? n_skip : part->n_ids;
            TRY(tokenizer_add_all(part->ids + skip, part->n_ids - skip, part->type_id, out, types));
            n_skip -= skip;
        } else {
            const token_list *l = part->kind == POST_A ? a : b;
            TRY(tokenizer_add_all(l->ids, l->n, part->type_id, out, types));
            n_skip = 0;
        }
    }
    return QUIRE_OK;
}

/* The number of the template's leading tokens that the content already begins with. */
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

/* The number of tokens in a template before the first text. */
static size_t n_before_text(const post_template *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->n && p->parts[i].kind == POST_TOKENS; i++) {
        n += p->parts[i].n_ids;
    }
    return n;
}

/* Whether a template includes the ids of a text. */
static bool has_text(const post_template *p) {
    bool has = !p->is_set;
    for (size_t i = 0; i < p->n; i++) {
        has = has || p->parts[i].kind == POST_A;
    }
    return has;
}

typedef enum around { AROUND_NOTHING, AROUND_BOS, AROUND_ONCE, AROUND_ALWAYS } around;

/* The template for one text or two. */
static const post_template *template_of(const tokenizer *t, bool is_pair, around how) {
    static const post_template none;
    return how == AROUND_NOTHING ? &none
           : how == AROUND_BOS   ? &t->post.start
           : is_pair             ? &t->post.pair
                                 : &t->post.single;
}

/* Whether the template wrote white space and BOS at the start. */
static bool starts_after_space(const encode_run *r, str text) {
    const added_token *bos = added_set_get(&r->t->added, r->t->start);
    size_t at = 0;
    while (at < text.n && strchr(" \t\r\n", text.p[at]) != NULL && text.p[at] != '\0') {
        at++;
    }
    bool is_bos = bos != NULL && at > 0 && text.n - at >= bos->content.n &&
                  memcmp(text.p + at, bos->content.p, bos->content.n) == 0;
    return is_bos &&
           (r->options.marks == NULL || text_marks_allow(r->options.marks, at, at + bos->content.n));
}

static quire_err encode_texts(encode_run *r, str text, const str *pair, around how, token_list lists[2],
                              token_list *out, token_list *types) {
    TRY(encode_content(r, text, &lists[0]));
    if (pair != NULL) {
        TRY(encode_content(r, *pair, &lists[1]));
    }
    const post_template *p = template_of(r->t, pair != NULL, how);
    size_t n_there = how == AROUND_ONCE || how == AROUND_BOS ? n_already_there(p, &lists[0]) : 0;
    n_there = how == AROUND_BOS && n_there == 0 && starts_after_space(r, text) ? 1 : n_there;
    if (r->options.seams != NULL) {
        r->options.seams->first = n_before_text(p) - n_there;
        /* without the text's ids, there are no seams */
        r->options.seams->n = has_text(p) ? r->options.seams->n : 0;
    }
    return add_template(p, &lists[0], &lists[1], n_there, out, types);
}

static quire_err text_tokenizer_encode(const tokenizer *t, str text, const str *pair, encode_options options,
                                       around how, token_list *out, token_list *types, quire_error *err) {
    const char *refusal = template_of(t, pair != NULL, how)->refusal;
    if (refusal != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "the tokenizer's post-processor cannot wrap %s: %s; send token ids",
                       pair != NULL ? "two texts" : "a text", refusal);
    }
    encode_run r = {.t = t, .options = options};
    r.model.unigram.no_controls = options.marks != NULL;
    r.pre.max_pieces = t->max_bytes > 0 ? options.max_tokens : 0; /* a piece has at least one token */
    token_list lists[2] = {{0}, {0}};
    size_t before = out->n, before_types = types != NULL ? types->n : 0;
    quire_err e = encode_texts(&r, text, pair, how, lists, out, types);
    encode_run_deinit(&r);
    token_list_deinit(&lists[0]);
    token_list_deinit(&lists[1]);
    if (e == QUIRE_OK) {
        return QUIRE_OK;
    }
    out->n = before;
    if (types != NULL) {
        types->n = before_types;
    }
    const char *what = e == QUIRE_NO_MEMORY   ? "out of memory while tokenizing"
                       : e == QUIRE_NO_ROOM   ? "the text has more tokens than allowed"
                       : e == QUIRE_CANCELLED ? "cancelled"
                       : e == QUIRE_BAD_REQUEST
                           ? "the tokenizer's regular expressions take too long on this text"
                           : "the text is too large to tokenize";
    return err_set(err, e, -1, "%s", what);
}

quire_err tokenizer_encode(const tokenizer *t, str text, encode_options options, token_list *out,
                           quire_error *err) {
    around how = options.add_special ? AROUND_ONCE : options.add_bos ? AROUND_BOS : AROUND_NOTHING;
    return text_tokenizer_encode(t, text, NULL, options, how, out, NULL, err);
}

quire_err tokenizer_encode_pair(const tokenizer *t, str text, const str *pair, encode_special special,
                                token_list *out, token_list *types, quire_error *err) {
    return text_tokenizer_encode(t, text, pair, (encode_options){.special = special}, AROUND_ALWAYS, out,
                                 types, err);
}

size_t tokenizer_least_tokens(const tokenizer *t, size_t n_bytes) {
    return t->max_bytes == 0 ? 0 : n_bytes / t->max_bytes + (n_bytes % t->max_bytes != 0);
}

bool tokenizer_decodes(const tokenizer *t, int32_t id, bool skip_special, str *text, piece_class *class) {
    const added_token *a = added_set_get(&t->added, id);
    *text = a != NULL ? a->pattern : piece_table_get(&t->vocab, id);
    *class = t->classes == NULL || text->n == 0 ? PIECE_NORMAL : (piece_class)t->classes[id];
    bool skipped = a != NULL && a->hidden && *class != PIECE_UNKNOWN;
    return text->n > 0 && !(skip_special && skipped);
}

quire_err tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special, strbuf *out) {
    assert(out != NULL);
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
    TRY_DONE(e, decode_finish(&s, out));
done:
    decode_deinit(&s);
    if (e != QUIRE_OK) {
        out->n = before;
    }
    return e;
}

const char *tokenizer_sum_obstacle(const tokenizer *t) {
    return decoder_sum_obstacle(&t->decoder);
}

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

bool tokenizer_is_added(const tokenizer *t, int32_t id) {
    return added_set_get(&t->added, id) != NULL;
}

int32_t tokenizer_start(const tokenizer *t) {
    return t->start;
}

int32_t tokenizer_eos(const tokenizer *t) {
    return t->eos;
}

const fim_marks *tokenizer_fim(const tokenizer *t) {
    return &t->fim;
}

str tokenizer_bos_text(const tokenizer *t) {
    return (str){t->bos_text.n > 0 ? t->bos_text.p : "", t->bos_text.n};
}

str tokenizer_eos_text(const tokenizer *t) {
    return (str){t->eos_text.n > 0 ? t->eos_text.p : "", t->eos_text.n};
}

/* Computes a lower bound on the tokens of a text of a given length, so that a server can
 * refuse a text without tokenizing it. */

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

/* Whether every byte has a token, so that no character is dropped, or merged with others
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

/* The most bytes of normalized text (of raw text, for added tokens) in one token. A
 * character of a byte-level piece is a byte. */
static size_t longest_token(const tokenizer *t, bool byte_level) {
    size_t longest = 1;
    for (int32_t i = 0; i < t->vocab.n; i++) {
        str piece = piece_table_get(&t->vocab, i);
        size_t n = byte_level ? utf8_count(piece) : piece.n;
        longest = n > longest ? n : longest;
    }
    for (size_t i = 0; i < t->added.n; i++) {
        size_t n = t->added.tokens[i].content.n;
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* Whether an id has several texts, as in a malformed file; a merge can then make it stand
 * for any length. */
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
        /* such tokens stand for any number of spaces */
        all = all && !t->added.tokens[i].lstrip && !t->added.tokens[i].rstrip;
    }
    if (all && shrinks > 0 && !pretokenizer_deletes(&t->pretokenizer) && !has_id_of_several(&t->vocab)) {
        *max = shrinks * longest_token(t, byte_level);
    }
    return QUIRE_OK;
}
