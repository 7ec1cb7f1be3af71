#include "text/sp_model.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/model_build.h"
#include "text/tables.h"
#include "json/json.h"

/* Reads SentencePiece's .model files with a small reader of protocol buffers, bounded by
 * the file's bytes. */

#define MAX_PIECES ((size_t)1 << 24)

/* Wire types. */
enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

typedef struct field {
    uint32_t number, wire;
    uint64_t value; /* varint */
    float f;        /* 32 bits */
    str bytes;
} field;

typedef struct cursor {
    str rest;
    const char *start; /* start of the file */
} cursor;

static quire_err read_varint(cursor *c, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (c->rest.n == 0) {
            return QUIRE_BAD_FILE;
        }
        uint8_t byte = (uint8_t)*c->rest.p;
        c->rest = (str){c->rest.p + 1, c->rest.n - 1};
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return QUIRE_OK;
        }
    }
    return QUIRE_BAD_FILE;
}

static quire_err sp_read_take(cursor *c, uint64_t n, str *out) {
    if (n > c->rest.n) {
        return QUIRE_BAD_FILE;
    }
    *out = (str){c->rest.p, (size_t)n};
    c->rest = (str){c->rest.p + n, c->rest.n - (size_t)n};
    return QUIRE_OK;
}

static quire_err read_field(cursor *c, field *f) {
    uint64_t key, n;
    *f = (field){0};
    TRY(read_varint(c, &key));
    f->wire = key & 7;
    f->number = (uint32_t)(key >> 3);
    if (key >> 3 == 0 || key >> 3 > UINT32_MAX) {
        return QUIRE_BAD_FILE;
    }
    switch (f->wire) {
    case WIRE_VARINT:
        return read_varint(c, &f->value);
    case WIRE_64:
        return sp_read_take(c, 8, &f->bytes);
    case WIRE_BYTES:
        TRY(read_varint(c, &n));
        return sp_read_take(c, n, &f->bytes);
    case WIRE_32:
        TRY(sp_read_take(c, 4, &f->bytes));
        memcpy(&f->f, f->bytes.p, 4);
        return QUIRE_OK;
    default: /* groups, which are obsolete */
        return QUIRE_BAD_FILE;
    }
}

typedef quire_err read_field_fn(sp_model *m, const field *f);

/* Reads all fields of a message. On failure *at is the position. */
static quire_err read_message(sp_model *m, str message, const char *start, read_field_fn *read, size_t *at) {
    cursor c = {message, start};
    while (c.rest.n > 0) {
        field f;
        *at = (size_t)(c.rest.p - start);
        TRY(read_field(&c, &f));
        TRY(read(m, &f));
    }
    return QUIRE_OK;
}

static quire_err read_piece_field(sp_model *m, const field *f) {
    sp_piece *p = &m->pieces[m->n - 1];
    if (f->number == 1 && f->wire == WIRE_BYTES) {
        p->text = f->bytes;
    } else if (f->number == 2 && f->wire == WIRE_32) {
        p->score = f->f;
    } else if (f->number == 3 && f->wire == WIRE_VARINT) {
        p->type = (vocab_type)f->value;
        return f->value >= VOCAB_NORMAL && f->value <= VOCAB_BYTE ? QUIRE_OK : QUIRE_BAD_FILE;
    }
    return QUIRE_OK;
}

static quire_err read_trainer_field(sp_model *m, const field *f) {
    static const uint32_t name_fields[4] = {46, 47, 45, 48};
    for (int i = 0; i < 4 && f->wire == WIRE_BYTES; i++) {
        m->names[i] = f->number == name_fields[i] ? f->bytes : m->names[i];
    }
    if (f->number == 44 && f->wire == WIRE_BYTES) {
        m->unk_surface = f->bytes;
    }
    if (f->wire == WIRE_VARINT && f->number == 3) {
        m->kind = (sp_kind)f->value;
        return f->value >= SP_UNIGRAM && f->value <= SP_CHAR ? QUIRE_OK : QUIRE_BAD_FILE;
    }
    bool *flag = f->number == 24 ? &m->suffix : f->number == 35 ? &m->byte_fallback : NULL;
    if (f->wire == WIRE_VARINT && flag != NULL) {
        *flag = f->value != 0;
    }
    return QUIRE_OK;
}

static quire_err read_normalizer_field(sp_model *m, const field *f) {
    bool *flag = f->number == 3   ? &m->dummy_prefix
                 : f->number == 4 ? &m->remove_extra
                 : f->number == 5 ? &m->escape
                                  : NULL;
    if (f->wire == WIRE_VARINT && flag != NULL) {
        *flag = f->value != 0;
    }
    if (f->wire == WIRE_BYTES && f->number == 2) {
        m->charsmap = f->bytes;
    }
    return QUIRE_OK;
}

static int32_t find_control(const sp_model *m, str name, vocab_type type) {
    for (size_t i = 0; i < m->n; i++) {
        if (m->pieces[i].type == type && str_eq(m->pieces[i].text, name)) {
            return (int32_t)i;
        }
    }
    return -1;
}

static quire_err sp_read_model(sp_model *m, str file, size_t *at) {
    cursor c = {file, file.p};
    while (c.rest.n > 0) {
        field f;
        *at = (size_t)(c.rest.p - file.p);
        TRY(read_field(&c, &f));
        if (f.wire != WIRE_BYTES) {
            continue;
        }
        if (f.number == 1) {
            if (m->n == MAX_PIECES) {
                return QUIRE_TOO_LARGE;
            }
            TRY(mem_grow(&m->pieces, &m->cap, m->n + 1, sizeof *m->pieces));
            m->pieces[m->n++] = (sp_piece){.text = {"", 0}, .type = VOCAB_NORMAL};
        }
        read_field_fn *read = f.number == 1   ? read_piece_field
                              : f.number == 2 ? read_trainer_field
                              : f.number == 3 ? read_normalizer_field
                                              : NULL;
        if (read != NULL) {
            TRY(read_message(m, f.bytes, file.p, read, at));
        }
    }
    return m->n > 0 ? QUIRE_OK : QUIRE_BAD_FILE;
}

void sp_model_init(sp_model *m, const char *file) {
    *m = (sp_model){.kind = SP_UNIGRAM,
                    .dummy_prefix = true,
                    .remove_extra = true,
                    .escape = true,
                    .file = file,
                    .unk_surface = str_of(" \xE2\x81\x87 "),
                    .bos = -1,
                    .eos = -1,
                    .unk = -1,
                    .pad = -1};
    m->names[0] = str_of("<s>");
    m->names[1] = str_of("</s>");
    m->names[2] = str_of("<unk>");
    m->names[3] = str_of("<pad>");
}

void sp_model_deinit(sp_model *m) {
    mem_free(m->pieces);
    m->pieces = NULL;
}

/* Reads a .model file: an untrusted protocol buffer (ModelProto). Finds bos, eos, unk and
 * pad. QUIRE_BAD_FILE, QUIRE_TOO_LARGE. */
static quire_err sp_model_read(sp_model *m, str file, quire_error *err) {
    size_t at = 0;
    quire_err e = sp_read_model(m, file, &at);
    if (e == QUIRE_BAD_FILE || e == QUIRE_TOO_LARGE) {
        return err_set(err, e, (int64_t)at, "%s: %s at byte %zu: not a SentencePiece model, or a damaged one",
                       m->file, e == QUIRE_TOO_LARGE ? "too many pieces" : "malformed", at);
    }
    TRY(e);
    m->bos = find_control(m, m->names[0], VOCAB_CONTROL);
    m->eos = find_control(m, m->names[1], VOCAB_CONTROL);
    m->pad = find_control(m, m->names[3], VOCAB_CONTROL);
    /* finds the first piece of the unknown type; its name does not matter */
    for (size_t i = m->n; i-- > 0;) {
        m->unk = m->pieces[i].type == VOCAB_UNKNOWN ? (int32_t)i : m->unk;
    }
    return QUIRE_OK;
}

/* Builds a tokenizer from a SentencePiece model. */

static bool sp_build_is_findable(vocab_type k) {
    return k == VOCAB_NORMAL || k == VOCAB_USER_DEFINED || k == VOCAB_UNUSED;
}

static quire_err sp_build_check(const sp_model *m, quire_error *err) {
    if (m->n == 0 || m->n > INT32_MAX / 2) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: its vocabulary has %zu pieces; it must have 1 to %d",
                       m->file, m->n, INT32_MAX / 2);
    }
    for (size_t i = 0; i < m->n; i++) {
        if (!isfinite(m->pieces[i].score)) {
            return err_set(err, QUIRE_BAD_FILE, -1, "%s: the score of piece %zu is not a number", m->file, i);
        }
    }
    return QUIRE_OK;
}

static quire_err sp_build_load_pieces(const sp_model *m, str tables, tokenizer *t, quire_error *err) {
    size_t n_bytes = 0;
    if (tables.n > 0) {
        TRY(tables_take(t, tables, err));
        return model_check_tables(t, (int64_t)m->n, err);
    }
    for (size_t i = 0; i < m->n; i++) {
        n_bytes += m->pieces[i].text.n;
    }
    TRY(piece_table_init(&t->vocab, (int32_t)m->n, m->n, n_bytes));
    for (int32_t i = 0; i < (int32_t)m->n; i++) {
        const sp_piece *p = &m->pieces[i];
        bool unusable = !sp_build_is_findable(p->type) || (m->kind == SP_UNIGRAM && p->type == VOCAB_UNUSED);
        TRY(unusable ? piece_table_add_hidden(&t->vocab, i, p->text)
                     : piece_table_add(&t->vocab, i, p->text));
    }
    return QUIRE_OK;
}

/* Adds control tokens and the unknown token as added tokens, which are found if special
 * tokens are parsed. */
static quire_err sp_build_load_added(const sp_model *m, tokenizer *t) {
    for (size_t i = 0; i < m->n; i++) {
        vocab_type k = m->pieces[i].type;
        str text = piece_table_get(&t->vocab, (int32_t)i);
        if ((k == VOCAB_CONTROL || k == VOCAB_UNKNOWN) && utf8_is_valid(text)) {
            TRY(added_set_add(
                &t->added,
                &(added_token){.id = (int32_t)i, .content = text, .pattern = text, .special = true}));
        }
    }
    return added_set_finish(&t->added, t->vocab.n);
}

static quire_err sp_build_load_classes(const sp_model *m, tokenizer *t) {
    t->classes = mem_new(m->n, 1);
    TRY(mem_check(t->classes));
    for (size_t i = 0; i < m->n; i++) {
        vocab_type k = m->pieces[i].type;
        t->classes[i] = k == VOCAB_BYTE      ? PIECE_BYTE
                        : k == VOCAB_CONTROL ? PIECE_CONTROL
                        : k == VOCAB_UNKNOWN ? PIECE_UNKNOWN
                                             : PIECE_NORMAL;
    }
    return QUIRE_OK;
}

/* Loads the user-defined symbols, which are found before anything else. */
static quire_err load_symbols(const sp_model *m, tokenizer *t) {
    trie_piece *symbols = mem_new(m->n, sizeof *symbols);
    size_t n = 0;
    TRY(mem_check(symbols));
    for (size_t i = 0; i < m->n; i++) {
        str text = piece_table_get(&t->vocab, (int32_t)i);
        if (m->pieces[i].type == VOCAB_USER_DEFINED && text.n > 0 && utf8_is_valid(text)) {
            symbols[n++] = (trie_piece){text, (int32_t)i};
        }
    }
    quire_err e = n > 0 ? piece_trie_build(symbols, n, &t->symbols) : QUIRE_OK;
    mem_free(symbols);
    return e;
}

static quire_err add_steps(const sp_model *m, tokenizer *t, quire_error *err) {
    norm_step *step = &t->normalizer.steps[t->normalizer.n++];
    *step = (norm_step){.kind = NORM_SENTENCEPIECE,
                        .rules = {.symbols = t->symbols.units != NULL ? &t->symbols : NULL,
                                  .dummy_prefix = m->dummy_prefix,
                                  .suffix = m->suffix,
                                  .remove_extra = m->remove_extra,
                                  .escape = m->escape}};
    quire_err e = charsmap_open(m->charsmap, &step->rules.map);
    if (e == QUIRE_BAD_FILE) {
        return err_set(err, e, -1, "%s: precompiled_charsmap is damaged", m->file);
    }
    TRY(e);
    decode_step *back = &t->decoder.steps[t->decoder.n++];
    *back = (decode_step){.kind = DECODE_SENTENCEPIECE,
                          .content = mem_dup(SP_MARK, strlen(SP_MARK)),
                          .n_content = strlen(SP_MARK),
                          .strip_first = m->dummy_prefix || m->remove_extra,
                          .strip_all = m->remove_extra,
                          .unknown = mem_dup(m->unk_surface.p, m->unk_surface.n),
                          .n_unknown = m->unk_surface.n};
    return back->content == NULL || back->unknown == NULL ? QUIRE_NO_MEMORY : QUIRE_OK;
}

static bool sp_build_is_byte(const void *context, int32_t id) {
    const sp_model *m = context;
    return m->pieces[id].type == VOCAB_BYTE;
}

static quire_err sp_build_bpe(const sp_model *m, tokenizer *t, bool has_tables, quire_error *err) {
    bpe *b = &t->model.bpe;
    b->sentencepiece = true;
    b->symbols = t->symbols.units != NULL ? &t->symbols : NULL;
    b->byte_fallback = model_find_bytes(&t->vocab, sp_build_is_byte, m, b->bytes) > 0 && m->byte_fallback;
    TRY(bpe_begin(b, m->n * 2));
    float *scores = m->kind == SP_BPE && !has_tables ? mem_new(m->n, sizeof *scores) : NULL;
    quire_err e = QUIRE_OK;
    if (m->kind == SP_BPE && !has_tables) {
        TRY(mem_check(scores));
        for (size_t i = 0; i < m->n; i++) {
            scores[i] = m->pieces[i].score;
        }
        e = bpe_derive_merges(b, scores);
        mem_free(scores);
    }
    if (e == QUIRE_UNSUPPORTED) {
        return err_set(err, e, -1, "%s: a piece of more than %d bytes", m->file, BPE_MAX_PIECE);
    }
    TRY(e);
    return bpe_finish(b, true);
}

/* The score of a piece. A user-defined symbol scores above any pieces into which it could
 * be split, and more the longer it is. */
static double sp_build_score_of(const sp_piece *p) {
    bool defined = p->type == VOCAB_USER_DEFINED && p->text.n > 0;
    return (double)(defined ? (float)(0.1 * (double)(p->text.n - 1)) : p->score);
}

static quire_err sp_build_unigram(const sp_model *m, tokenizer *t) {
    unigram *u = &t->model.unigram;
    float lowest = 0;
    bool any = false;
    u->sums_float = true;
    u->byte_fallback = model_find_bytes(&t->vocab, sp_build_is_byte, m, u->bytes) > 0 && m->byte_fallback;
    TRY(model_note_controls(t, u));
    if (u->scores != NULL) {
        return QUIRE_OK;
    }
    u->scores = mem_new(m->n, sizeof *u->scores);
    TRY(mem_check(u->scores));
    for (size_t i = 0; i < m->n; i++) {
        float score = m->pieces[i].score;
        if (m->pieces[i].type == VOCAB_NORMAL) {
            lowest = !any || score < lowest ? score : lowest;
            any = true;
        }
    }
    for (size_t i = 0; i < m->n; i++) {
        u->scores[i] = sp_build_score_of(&m->pieces[i]);
    }
    u->unknown_score = (double)(lowest - (float)UNIGRAM_UNKNOWN_PENALTY);
    return model_build_trie(t, &u->trie);
}

static quire_err build_model(const sp_model *m, tokenizer *t, bool has_tables, quire_error *err) {
    switch (m->kind) {
    case SP_UNIGRAM:
        return sp_build_unigram(m, t);
    case SP_WORD:
        if (t->model.unk < 0) {
            return err_set(err, QUIRE_BAD_FILE, -1, "%s: a word model without an unknown piece", m->file);
        }
        t->model.words.byte_fallback =
            model_find_bytes(&t->vocab, sp_build_is_byte, m, t->model.words.bytes) > 0 && m->byte_fallback;
        /* also with suffixes */
        return pretokenizer_add_chars(&t->pretokenizer, CLASS_DELIMITER, 0x2581, SPLIT_MERGED_WITH_NEXT, err);
    default:
        return sp_build_bpe(m, t, has_tables, err);
    }
}

quire_err sp_model_build(const sp_model *m, str tables, tokenizer *t, quire_error *err) {
    assert(m != NULL);
    const piece_model_ops *ops = m->kind == SP_UNIGRAM ? &piece_model_unigram
                                 : m->kind == SP_WORD  ? &piece_model_words
                                                       : &piece_model_bpe;
    TRY(sp_build_check(m, err));
    piece_model_init(&t->model, ops, &t->vocab, m->unk);
    TRY(sp_build_load_pieces(m, tables, t, err));
    TRY(sp_build_load_added(m, t));
    TRY(sp_build_load_classes(m, t));
    TRY(load_symbols(m, t));
    TRY(add_steps(m, t, err));
    return build_model(m, t, tables.n > 0, err);
}

/* Loads SentencePiece's .model files, and the tokens that tokenizer_config.json adds. */

#define MAX_ADDED 65536 /* most ids after those of the file */

/* Adds a token after the file's own; ids in between are unused. A symbol of the file that
 * is special here becomes a control token. */
static quire_err load_model_add_token(sp_model *m, size_t n_own, int64_t id, str text, bool special) {
    if (id < (int64_t)n_own && special && m->pieces[id].type == VOCAB_USER_DEFINED &&
        str_eq(m->pieces[id].text, text)) {
        m->pieces[id].type = VOCAB_CONTROL;
    }
    if (id < (int64_t)n_own || text.n == 0) {
        return QUIRE_OK;
    }
    if (id >= (int64_t)(n_own + MAX_ADDED) || !utf8_is_valid(text)) {
        return QUIRE_BAD_FILE;
    }
    while ((int64_t)m->n <= id) {
        TRY(mem_grow(&m->pieces, &m->cap, m->n + 1, sizeof *m->pieces));
        m->pieces[m->n++] = (sp_piece){.text = {"", 0}, .type = VOCAB_UNUSED};
    }
    m->pieces[id] = (sp_piece){.text = text, .type = special ? VOCAB_CONTROL : VOCAB_USER_DEFINED};
    return QUIRE_OK;
}

/* Refuses tokenizer classes that shift ids against the file's, each in its own way. */
static quire_err check_class(json_value *config, quire_error *err) {
    static const char *const shifted[] = {"XLMRoberta",    "Camembert", "BarthezTokenizer", "MBart",
                                          "NllbTokenizer", "XGLM",      "M2M100",           "SpeechT5"};
    str name = json_get_str(config, "tokenizer_class");
    for (size_t i = 0; i < sizeof shifted / sizeof *shifted; i++) {
        if (str_begins(name, shifted[i])) {
            return err_set(err, QUIRE_UNSUPPORTED, -1,
                           "tokenizer.model: %.*s gives its pieces ids that differ from the file's; convert "
                           "it to a tokenizer.json",
                           (int)name.n, name.p);
        }
    }
    return QUIRE_OK;
}

static quire_err load_model_load(tokenizer *t, const vocab *v, json_value *config, sp_model *m,
                                 quire_error *err) {
    TRY(check_class(config, err));
    TRY(sp_model_read(m, v->model_bytes, err));
    size_t n_own = m->n;
    for (json_member o = {0}; json_next(json_get(config, "added_tokens_decoder"), &o);) {
        int64_t id;
        quire_err e = config_token_id(o.name, &id)
                          ? load_model_add_token(m, n_own, id, json_get_str(o.value, "content"),
                                                 json_get_bool(o.value, "special", false))
                          : QUIRE_OK;
        TRY(e == QUIRE_BAD_FILE
                ? err_set(err, e, -1, "tokenizer_config.json: the added token %.20s is malformed", o.name)
                : e);
    }
    TRY(sp_model_build(m, v->tables, t, err));
    str bos = config_special(config, "bos_token"), eos = config_special(config, "eos_token");
    int32_t bos_id = bos.n > 0 ? added_set_find(&t->added, bos) : -1,
            eos_id = eos.n > 0 ? added_set_find(&t->added, eos) : -1;
    bool starts = m->kind == SP_BPE; /* texts of Llama and Gemma begin with bos; those of T5 end with eos */
    return config_surround(t, config, bos_id >= 0 ? bos_id : m->bos, eos_id >= 0 ? eos_id : m->eos, starts,
                           m->kind == SP_UNIGRAM && m->bos < 0);
}

quire_err tokenizer_load_sentencepiece(tokenizer *t, const vocab *v, quire_error *err) {
    assert(v != NULL);
    sp_model m;
    json_value *config = json_model_document(v->tokenizer_config_json);
    sp_model_init(&m, "tokenizer.model");
    quire_err e = load_model_load(t, v, config, &m, err);
    sp_model_deinit(&m);
    json_drop(config);
    return e;
}
