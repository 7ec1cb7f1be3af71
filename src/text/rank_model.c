#include "text/rank_model.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "text/model_build.h"
#include "text/tables.h"

void rank_model_deinit(rank_model *m) {
    strbuf_deinit(&m->bytes);
    mem_free(m->tokens);
    mem_free(m->specials);
    *m = (rank_model){0};
}

quire_err rank_model_add(rank_model *m, str base64, int64_t id) {
    size_t at = m->bytes.n;
    TRY(base64_decode(base64, &m->bytes));
    size_t n = m->bytes.n - at;
    if (id < 0 || id >= RANK_MAX_IDS || n == 0 || n > BPE_MAX_PIECE / 2 || m->n == RANK_MAX_IDS) {
        return QUIRE_BAD_FILE;
    }
    TRY(mem_grow(&m->tokens, &m->cap, m->n + 1, sizeof *m->tokens));
    m->tokens[m->n++] = (rank_token){at, (uint32_t)n, (int32_t)id};
    return QUIRE_OK;
}

static str special_text(const rank_model *m, const rank_special *s) {
    return (str){m->bytes.p + s->at, s->n};
}

quire_err rank_model_add_special(rank_model *m, str text, int64_t id, bool is_control) {
    if (id < 0 || id >= RANK_MAX_IDS || text.n > 4096 || !utf8_is_valid(text) ||
        m->n_specials == RANK_MAX_IDS) {
        return QUIRE_BAD_FILE;
    }
    size_t at = m->bytes.n;
    TRY(strbuf_add(&m->bytes, text.p, text.n));
    TRY(mem_grow(&m->specials, &m->cap_specials, m->n_specials + 1, sizeof *m->specials));
    m->specials[m->n_specials++] = (rank_special){at, (uint32_t)text.n, (int32_t)id, is_control};
    return QUIRE_OK;
}

int32_t rank_model_find_special(const rank_model *m, str text) {
    for (size_t i = 0; i < m->n_specials; i++) {
        if (text.n > 0 && str_eq(special_text(m, &m->specials[i]), text)) {
            return m->specials[i].id;
        }
    }
    return -1;
}

static int32_t count_ids(const rank_model *m) {
    int32_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        n = m->tokens[i].id >= n ? m->tokens[i].id + 1 : n;
    }
    for (size_t i = 0; i < m->n_specials; i++) {
        n = m->specials[i].id >= n ? m->specials[i].id + 1 : n;
    }
    return n;
}

/* The tokens spelled in the byte-level alphabet, as for every byte-level vocabulary. */
static quire_err rank_model_add_tokens(const rank_model *m, tokenizer *t) {
    strbuf spelled = {0};
    quire_err e = piece_table_init(&t->vocab, count_ids(m), m->n, 2 * m->bytes.n);
    for (size_t i = 0; i < m->n && e == QUIRE_OK; i++) {
        strbuf_clear(&spelled);
        e = byte_level_add(&spelled, (str){m->bytes.p + m->tokens[i].at, m->tokens[i].n});
        e = e != QUIRE_OK ? e : piece_table_add(&t->vocab, m->tokens[i].id, (str){spelled.p, spelled.n});
    }
    strbuf_deinit(&spelled);
    return e;
}

/* used: [n of ids], false. */
static quire_err add_unused_specials(const rank_model *m, tokenizer *t, bool *used) {
    for (size_t i = 0; i < m->n; i++) {
        used[m->tokens[i].id] = true;
    }
    for (size_t i = 0; i < m->n_specials; i++) {
        const rank_special *s = &m->specials[i];
        str text = special_text(m, s);
        if (text.n == 0 || used[s->id]) { /* the first of two with the same id counts */
            continue;
        }
        used[s->id] = true;
        if (!t->vocab.borrowed) {
            TRY(piece_table_add_hidden(&t->vocab, s->id, text));
        }
        TRY(added_set_add(
            &t->added,
            &(added_token){.id = s->id, .content = text, .pattern = text, .special = s->is_control}));
    }
    return added_set_finish(&t->added, t->vocab.n);
}

static quire_err add_specials(const rank_model *m, tokenizer *t) {
    bool *used = mem_new((size_t)t->vocab.n, sizeof *used);
    TRY(mem_check(used));
    quire_err e = add_unused_specials(m, t, used);
    mem_free(used);
    return e;
}

/* A token is the merge of every two tokens that make it, ranked by its id. */
static quire_err derive_merges(const rank_model *m, tokenizer *t, quire_error *err) {
    float *scores = mem_new((size_t)t->vocab.n, sizeof *scores);
    TRY(mem_check(scores));
    for (int32_t i = 0; i < t->vocab.n; i++) {
        scores[i] = -(float)i; /* exact: ids are below 2^24 */
    }
    quire_err e = bpe_derive_merges(&t->model.bpe, scores);
    mem_free(scores);
    return e == QUIRE_UNSUPPORTED
               ? err_set(err, e, -1, "%s: a token of more than %d bytes", m->file, BPE_MAX_PIECE / 2)
               : e;
}

quire_err rank_model_build(const rank_model *m, str tables, tokenizer *t, quire_error *err) {
    bpe *b = &t->model.bpe;
    piece_model_init(&t->model, &piece_model_bpe, &t->vocab, -1);
    if (m->n == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: no tokens", m->file);
    }
    TRY(tables.n > 0 ? tables_take(t, tables, err) : rank_model_add_tokens(m, t));
    if (tables.n > 0) {
        TRY(model_check_tables(t, count_ids(m), err));
    }
    TRY(add_specials(m, t));
    b->ignore_merges = true; /* a piece that is a token is that token */
    TRY(pretokenizer_add_split_as(&t->pretokenizer, m->pattern, REGEX_RUST, err));
    TRY(pretokenizer_add_byte_level(&t->pretokenizer, false, false, err));
    t->decoder.steps[t->decoder.n++] = (decode_step){.kind = DECODE_BYTE_LEVEL};
    TRY(bpe_begin(b, m->n * 2));
    if (tables.n <= 0) {
        TRY(derive_merges(m, t, err));
    }
    return bpe_finish(b, false);
}
