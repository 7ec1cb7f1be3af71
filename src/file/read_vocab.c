/* Reads the vocabulary of a GGUF file: tokenizer.ggml.*. */
#include "base/log.h"
#include "base/mem.h"
#include "file/open_file.h"
#include "file/packed.h"

#define KEY "tokenizer.ggml."

static quire_err read_vocab_bad(const model_file *f, const char *key, const char *what, quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s %s; the file is damaged or wrongly converted", f->path,
                   key, what);
}

/* Reads an optional string; *out stays empty if absent. */
static quire_err read_vocab_read_text(const model_file *f, const char *key, str *out, quire_error *err) {
    if (model_file_str(f, key, out) == QUIRE_BAD_FILE) {
        return read_vocab_bad(f, key, "is not a string", err);
    }
    return QUIRE_OK;
}

/* Reads an optional array of item_type; *out is NULL if absent. */
static quire_err read_vocab_read_array(const model_file *f, const char *key, gguf_type item_type,
                                       const gguf_value **out, quire_error *err) {
    const gguf_value *v = gguf_find(&f->gguf, key);
    *out = v;
    if (v == NULL) {
        return QUIRE_OK;
    }
    bool alike = v->item_type == item_type || (item_type == GGUF_I32 && v->item_type == GGUF_U32);
    if (v->type != GGUF_ARRAY || !alike) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: %s is not an array of %s; the file is damaged or wrongly converted", f->path, key,
                       gguf_type_name(item_type));
    }
    return v->n > INT32_MAX ? read_vocab_bad(f, key, "is impossibly long", err) : QUIRE_OK;
}

/* Reads an optional array with a 4-byte number for each token, and copies it, because a
 * file may be unaligned. *out is NULL if absent. */
static quire_err read_vocab_copy_numbers(const model_file *f, const char *key, gguf_type item_type, int32_t n,
                                         void **out, quire_error *err) {
    const gguf_value *v;
    TRY(read_vocab_read_array(f, key, item_type, &v, err));
    if (v == NULL) {
        return QUIRE_OK;
    }
    if (v->n != (size_t)n) {
        return read_vocab_bad(f, key, "does not have the length of " KEY "tokens", err);
    }
    *out = mem_dup(v->data, v->n * 4);
    return err_set(err, mem_check(*out), -1, "%s: no memory for the vocabulary", f->path);
}

/* Reads a special token's id; -1: missing. An id outside the vocabulary, which some
 * published files have, is logged and counts as missing. */
static quire_err read_vocab_read_id(const model_file *f, const char *key, int32_t *out, quire_error *err) {
    int64_t id = -1;
    if (model_file_i64(f, key, &id) == QUIRE_BAD_FILE) {
        return read_vocab_bad(f, key, "is not an integer", err);
    }
    *out = -1;
    if (id >= 0 && id < f->vocab.n_tokens) {
        *out = (int32_t)id;
    } else if (id != -1 && id != UINT32_MAX) {
        log_line(LOG_WARN, "%s: %s is %lld, outside the vocabulary: ignored", f->path, key, (long long)id);
    }
    return QUIRE_OK;
}

static quire_err read_vocab_read_flag(const model_file *f, const char *key, int32_t *out, quire_error *err) {
    bool flag;
    quire_err e = model_file_bool(f, key, &flag);
    if (e == QUIRE_BAD_FILE) {
        return read_vocab_bad(f, key, "is not a bool", err);
    }
    *out = e == QUIRE_OK ? flag : -1;
    return QUIRE_OK;
}

/* Reads the tokens of a file, or only their number from a packed model. The source stays
 * VOCAB_NONE if there are none. */
static quire_err read_tokens(model_file *f, quire_error *err) {
    vocab *v = &f->vocab;
    const gguf_value *tokens;
    int64_t n = 0;
    TRY(read_vocab_read_array(f, KEY "tokens", GGUF_STRING, &tokens, err));
    if (tokens != NULL) {
        v->tokens = tokens->strings;
        n = (int64_t)tokens->n;
    } else if (v->tables.n > 0 &&
               (model_file_i64(f, PACKED_N_TOKENS, &n) != QUIRE_OK || n < 1 || n > INT32_MAX)) {
        return read_vocab_bad(f, PACKED_N_TOKENS, "is not a valid number of tokens", err);
    }
    v->n_tokens = (int32_t)n;
    v->source = n > 0 ? VOCAB_GGUF : VOCAB_NONE;
    return QUIRE_OK;
}

static quire_err read_token_arrays(model_file *f, quire_error *err) {
    vocab *v = &f->vocab;
    const gguf_value *merges;
    void *scores = NULL, *types = NULL;
    quire_err e = read_vocab_copy_numbers(f, KEY "scores", GGUF_F32, v->n_tokens, &scores, err);
    v->scores = f->scores = scores;
    TRY(e);
    e = read_vocab_copy_numbers(f, KEY "token_type", GGUF_I32, v->n_tokens, &types, err);
    v->types = f->types = types;
    TRY(e);
    for (int32_t i = 0; f->types != NULL && i < v->n_tokens; i++) {
        if (f->types[i] < VOCAB_UNDEFINED || f->types[i] > VOCAB_BYTE) {
            return read_vocab_bad(f, KEY "token_type", "has a value that GGUF does not define", err);
        }
    }
    TRY(read_vocab_read_array(f, KEY "merges", GGUF_STRING, &merges, err));
    if (merges != NULL) {
        v->merges = merges->strings;
        v->n_merges = (int32_t)merges->n;
    }
    return QUIRE_OK;
}

void vocab_init(vocab *v) {
    *v = (vocab){.source = VOCAB_NONE,
                 .bos = -1,
                 .eos = -1,
                 .unk = -1,
                 .pad = -1,
                 .sep = -1,
                 .fim_pre = -1,
                 .fim_suf = -1,
                 .fim_mid = -1,
                 .add_bos = -1,
                 .add_eos = -1,
                 .add_space_prefix = -1,
                 .remove_extra_whitespaces = -1,
                 .lowercase = -1,
                 .strip_accents = -1};
}

/* Reads the ids of the fill-in-the-middle tokens, each by its key or an older key. */
static quire_err read_vocab_read_fim(const model_file *f, vocab *v, quire_error *err) {
    const struct {
        const char *key, *old;
        int32_t *to;
    } keys[] = {{KEY "fim_pre_token_id", KEY "prefix_token_id", &v->fim_pre},
                {KEY "fim_suf_token_id", KEY "suffix_token_id", &v->fim_suf},
                {KEY "fim_mid_token_id", KEY "middle_token_id", &v->fim_mid}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        TRY(read_vocab_read_id(f, keys[i].key, keys[i].to, err));
        if (*keys[i].to < 0) {
            TRY(read_vocab_read_id(f, keys[i].old, keys[i].to, err));
        }
    }
    return QUIRE_OK;
}

/* Reads the rules of a SentencePiece normalizer, bytes in an array of 1-byte integers. */
static quire_err read_charsmap(model_file *f, quire_error *err) {
    const gguf_value *v = gguf_find(&f->gguf, KEY "precompiled_charsmap");
    if (v == NULL) {
        return QUIRE_OK;
    }
    if (v->type != GGUF_ARRAY || (v->item_type != GGUF_U8 && v->item_type != GGUF_I8)) {
        return read_vocab_bad(f, KEY "precompiled_charsmap", "is not an array of bytes", err);
    }
    f->vocab.charsmap = (str){(const char *)v->data, v->n};
    return QUIRE_OK;
}

quire_err gguf_read_vocab(model_file *f, quire_error *err) {
    vocab *v = &f->vocab;
    vocab_init(v);
    v->tables = packed_section(f, PACKED_TABLES);
    TRY(open_file_overrides(f, err));
    gguf_read_templates(f);
    TRY(read_tokens(f, err));
    if (v->source == VOCAB_NONE) {
        return QUIRE_OK;
    }
    TRY(read_vocab_read_text(f, KEY "model", &v->model, err));
    TRY(read_vocab_read_text(f, KEY "pre", &v->pre, err));
    TRY(read_token_arrays(f, err));
    TRY(read_vocab_read_id(f, KEY "bos_token_id", &v->bos, err));
    TRY(read_vocab_read_id(f, KEY "eos_token_id", &v->eos, err));
    TRY(read_vocab_read_id(f, KEY "unknown_token_id", &v->unk, err));
    TRY(read_vocab_read_id(f, KEY "padding_token_id", &v->pad, err));
    TRY(read_vocab_read_flag(f, KEY "add_bos_token", &v->add_bos, err));
    TRY(read_vocab_read_flag(f, KEY "add_eos_token", &v->add_eos, err));
    TRY(read_vocab_read_id(f, KEY "seperator_token_id", &v->sep, err)); /* GGUF spells it this way */
    TRY(read_vocab_read_fim(f, v, err));
    TRY(read_vocab_read_flag(f, KEY "remove_extra_whitespaces", &v->remove_extra_whitespaces, err));
    TRY(read_vocab_read_flag(f, KEY "normalizer.lowercase", &v->lowercase, err));
    TRY(read_vocab_read_flag(f, KEY "normalizer.strip_accents", &v->strip_accents, err));
    TRY(read_charsmap(f, err));
    return read_vocab_read_flag(f, KEY "add_space_prefix", &v->add_space_prefix, err);
}
