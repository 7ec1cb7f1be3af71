#include "text/piece_model.h"

#include <assert.h>

#include "base/mem.h"
#include "base/turn.h"
#include "base/utf8.h"

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
    assert(w != NULL && out != NULL);
    size_t before = out->n, n = 0;
    int32_t node = w->begins;
    bool good = !wordpiece_is_too_long(w, word);
    for (str rest = word; good && rest.n > 0; rest = (str){rest.p + n, rest.n - n}) {
        bool misled = rest.p > word.p && w->mark.n > 0 && rest.n >= w->mark.n &&
                      memcmp(rest.p, w->mark.p, w->mark.n) == 0;
        int32_t id = node < 0 || misled ? -1 : piece_trie_longest(&w->trie, node, rest, &n);
        good = id >= 0;
        TRY(turn_poll(1));
        if (good) {
            TRY(token_list_add(out, id));
        }
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
    assert(m != NULL);
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
        /* false after an added token, which is not a word */
        bool follows = s->after_unknown > 0 && s->after_unknown == out->n;
        if (!follows) {
            TRY(token_list_add(out, m->unk));
        }
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

#define LARGE_SUM 100000.0

void unigram_deinit(unigram *u) {
    piece_trie_deinit(&u->trie);
    mem_free(u->controls);
    if (!u->borrowed) {
        mem_free(u->scores);
    }
    *u = (unigram){0};
}

void unigram_scratch_deinit(unigram_scratch *s) {
    mem_free(s->nodes);
    mem_free(s->ends);
    *s = (unigram_scratch){0};
}

/* The state of one call. Text up to `done` has ids, except for an unknown run from
 * `unknown` on. */
typedef struct run {
    const unigram *u;
    str text;
    unigram_scratch *s;
    token_list *out;
    size_t done, unknown; /* unknown SIZE_MAX: none */
    size_t reach;         /* end of the nodes in use */
} run;

static unigram_node *node_at(const run *r, size_t at) {
    return &r->s->nodes[at - r->done];
}

/* Makes room for nodes up to `upto`; new ones are unreachable so far. */
static quire_err reach_to(run *r, size_t upto) {
    if (upto > r->reach) {
        TRY(mem_grow(&r->s->nodes, &r->s->cap_nodes, upto - r->done + 1, sizeof *r->s->nodes));
        for (size_t i = r->reach + 1; i <= upto; i++) {
            *node_at(r, i) = (unigram_node){.from = SIZE_MAX, .id = -1};
        }
        r->reach = upto;
    }
    return QUIRE_OK;
}

static quire_err offer(run *r, size_t from, size_t to, double score, int32_t id) {
    TRY(reach_to(r, to));
    unigram_node *n = node_at(r, to);
    score += node_at(r, from)->score;
    score = r->u->sums_float ? (double)(float)score : score;
    if (n->from == SIZE_MAX || score > n->score) {
        *n = (unigram_node){score, from, id};
    }
    return QUIRE_OK;
}

/* Writes the unknown run that ends at `end`: as a piece, as bytes, or as the unknown
 * token. */
static quire_err end_unknown(run *r, size_t end) {
    const unigram *u = r->u;
    if (r->unknown == SIZE_MAX) {
        return QUIRE_OK;
    }
    str text = {r->text.p + r->unknown, end - r->unknown};
    r->unknown = SIZE_MAX;
    int32_t id = u->names_runs ? piece_table_find(u->vocab, text) : -1;
    bool spelt = u->byte_fallback && id < 0;
    for (size_t i = 0; i < text.n && spelt; i++) {
        spelt = u->bytes[(uint8_t)text.p[i]] >= 0;
    }
    for (size_t i = 0; i < text.n && spelt; i++) {
        TRY(token_list_add(r->out, u->bytes[(uint8_t)text.p[i]]));
    }
    id = id < 0 ? u->unk : id;
    return spelt || id < 0 ? QUIRE_OK : token_list_add(r->out, id);
}

/* Writes the best way from done to `end`, a position that all ways pass, and continues
 * there. */
static quire_err write_stretch(run *r, size_t end) {
    size_t n = 0;
    double score = node_at(r, end)->score;
    for (size_t at = end; at > r->done; at = node_at(r, at)->from) {
        TRY(turn_poll(1));
        TRY(mem_grow(&r->s->ends, &r->s->cap_ends, n + 1, sizeof *r->s->ends));
        r->s->ends[n++] = at;
    }
    while (n > 0) {
        const unigram_node *node = node_at(r, r->s->ends[--n]);
        if (node->id < 0 || (r->u->names_runs && node->id == r->u->unk)) {
            r->unknown = r->unknown == SIZE_MAX ? node->from : r->unknown;
        } else {
            TRY(end_unknown(r, node->from));
            TRY(token_list_add(r->out, node->id));
        }
    }
    r->done = r->reach = end;
    *node_at(r, end) = (unigram_node){.score = score, .id = -1};
    return QUIRE_OK;
}

/* Subtracts a large sum, as a float has few digits left, from all open ways, like
 * sentencepiece. */
static void begin_sums_anew(run *r, size_t at) {
    double sum = node_at(r, at)->score;
    if (!r->u->sums_float || (sum >= -LARGE_SUM && sum <= LARGE_SUM)) {
        return;
    }
    for (size_t i = at; i <= r->reach; i++) {
        unigram_node *n = node_at(r, i);
        n->score = i == at || n->from != SIZE_MAX ? (double)(float)(n->score - sum) : n->score;
    }
}

/* Considers every piece that begins at `at`, and the character as unknown if it is no
 * piece. Polls its work, as a piece may be as long as its file. */
static quire_err offer_pieces(run *r, size_t at, size_t n_char) {
    const piece_trie *t = &r->u->trie;
    bool single = false;
    int32_t node = PIECE_TRIE_ROOT;
    size_t i = at;
    for (; i < r->text.n; i++) {
        node = piece_trie_step(t, node, (uint8_t)r->text.p[i]);
        if (node < 0) {
            break;
        }
        int32_t id = t->units[node].id;
        if (id >= 0 && !(r->s->no_controls && r->u->controls[id])) {
            TRY(offer(r, at, i + 1, r->u->scores[id], id));
            single = single || i + 1 - at == n_char;
        }
    }
    TRY(turn_poll((uint32_t)((r->reach - at + i - at) / 16 + 1)));
    return single ? QUIRE_OK : offer(r, at, at + n_char, r->u->unknown_score, -1);
}

quire_err unigram_encode(const unigram *u, str text, unigram_scratch *s, token_list *out) {
    run r = {.u = u, .text = text, .s = s, .out = out, .unknown = SIZE_MAX};
    TRY(mem_grow(&s->nodes, &s->cap_nodes, 1, sizeof *s->nodes));
    s->nodes[0] = (unigram_node){.id = -1};
    size_t len;
    for (size_t at = 0; at < text.n; at += len) {
        if (at == r.reach && at > r.done) {
            TRY(write_stretch(&r, at));
        }
        begin_sums_anew(&r, at);
        (void)utf8_next(text.p + at, &len);
        TRY(offer_pieces(&r, at, len));
    }
    if (r.done < text.n) {
        TRY(write_stretch(&r, text.n));
    }
    return end_unknown(&r, text.n);
}
