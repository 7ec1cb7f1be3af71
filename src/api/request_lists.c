/* The fields that name tokens or texts without a small limit: logit_bias, allowed_token_ids, bad_words, dry_sequence_breakers. */
#include <stdlib.h>
#include <string.h>

#include "api/request_read.h"
#include "base/mem.h"

enum { MAX_BIASES = 4096, MAX_WORDS = 1024, MAX_BREAKERS = 64, MAX_BREAKER_TOKENS = 4096 };

static quire_err no_memory(quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
}

/* r->sampling.lists, made if need be. */
static quire_err need_lists(quire_request *r, quire_error *err) {
    if (r->sampling.lists == NULL) {
        r->sampling.lists = sampling_lists_new();
    }
    return r->sampling.lists != NULL ? QUIRE_OK : no_memory(err);
}

/* ---- ids ---- */

/* One member of logit_bias: "ID": number. Biases lie in [-100, 100]; what is over is cut, as in vLLM. */
static quire_err read_bias(const quire_request *r, const field_desc *f, const char *key, json_object *v, int32_t *id, float *bias,
                           quire_error *err) {
    char *end;
    long long value = strtoll(key, &end, 10);
    if (key[0] == '\0' || *end != '\0') {
        return request_range_error(f, err, "logit_bias has the key \"%.40s\"; keys must be token ids", key);
    }
    if (value < 0 || value >= r->context.n_vocab) {
        return request_range_error(f, err, "logit_bias names the id %lld; the vocabulary has %d ids", value, (int)r->context.n_vocab);
    }
    if (!json_object_is_type(v, json_type_int) && !json_object_is_type(v, json_type_double)) {
        return request_type_error(f, -1, v, "an object of numbers", err);
    }
    double number = json_object_get_double(v);
    if (number != number) {
        return request_type_error(f, -1, v, "an object of finite numbers", err);
    }
    *id = (int32_t)value;
    *bias = (float)(number < -100.0 ? -100.0 : number > 100.0 ? 100.0 : number);
    return QUIRE_OK;
}

quire_err request_read_logit_bias(quire_request *r, const field_desc *f, json_object *v, quire_error *err) {
    int32_t n = v == NULL ? 0 : json_object_object_length(v), i = 0;
    if (n > MAX_BIASES) {
        return request_range_error(f, err, "logit_bias has %d ids; at most %d are allowed", (int)n, MAX_BIASES);
    }
    if (n == 0 && r->sampling.lists == NULL) {
        return QUIRE_OK;
    }
    int32_t *ids = mem_new((size_t)n + 1, sizeof *ids);
    float *bias = mem_new((size_t)n + 1, sizeof *bias);
    quire_err e = ids == NULL || bias == NULL ? no_memory(err) : need_lists(r, err);
    if (e == QUIRE_OK && n > 0) {
        json_object_object_foreach(v, key, number) {
            e = e == QUIRE_OK ? read_bias(r, f, key, number, &ids[i], &bias[i], err) : e;
            i++;
        }
    }
    if (e == QUIRE_OK && sampling_lists_set_bias(r->sampling.lists, ids, bias, n) != QUIRE_OK) {
        e = no_memory(err);
    }
    mem_free(ids);
    mem_free(bias);
    return e;
}

quire_err request_read_allowed(quire_request *r, const field_desc *f, json_object *v, quire_error *err) {
    if (v == NULL) {
        if (r->sampling.lists != NULL) {
            r->sampling.lists->has_allowed = false;
        }
        return QUIRE_OK;
    }
    size_t n = json_object_array_length(v);
    if (n == 0 || n > (size_t)r->context.n_vocab) {
        return request_range_error(f, err, "allowed_token_ids has %zu ids; it must have 1 to %d", n, (int)r->context.n_vocab);
    }
    int32_t *ids = mem_new(n, sizeof *ids);
    quire_err e = ids == NULL ? no_memory(err) : need_lists(r, err);
    for (size_t i = 0; e == QUIRE_OK && i < n; i++) {
        int64_t id = -1;
        json_integer(json_object_array_get_idx(v, i), &id);
        if (id < 0 || id >= r->context.n_vocab) {
            e = request_range_error(f, err, "allowed_token_ids[%zu] is %lld; the vocabulary has %d ids", i, (long long)id,
                                    (int)r->context.n_vocab);
        }
        ids[i] = (int32_t)id;
    }
    if (e == QUIRE_OK && sampling_lists_set_allowed(r->sampling.lists, ids, (int32_t)n) != QUIRE_OK) {
        e = no_memory(err);
    }
    mem_free(ids);
    return e;
}

/* ---- texts ---- */

/* Text i of a string or an array of strings. */
static str text_at(json_object *v, size_t i) {
    json_object *item = json_object_is_type(v, json_type_array) ? json_object_array_get_idx(v, i) : v;
    return (str){json_object_get_string(item), (size_t)json_object_get_string_len(item)};
}

static size_t n_texts(json_object *v) {
    return v == NULL ? 0 : json_object_is_type(v, json_type_array) ? json_object_array_length(v) : 1;
}

static quire_err check_texts(const field_desc *f, json_object *v, size_t max, quire_error *err) {
    size_t n = n_texts(v);
    if (n > max) {
        return request_range_error(f, err, "%s has %zu texts; at most %zu are allowed", f->name, n, max);
    }
    for (size_t i = 0; i < n; i++) {
        if (text_at(v, i).n == 0) {
            return request_range_error(f, err, "%s has an empty text; each must have at least one character", f->name);
        }
    }
    return QUIRE_OK;
}

quire_err request_read_bad_words(quire_request *r, const field_desc *f, json_object *v, quire_error *err) {
    TRY(check_texts(f, v, MAX_WORDS, err));
    r->bad_words = n_texts(v) > 0 ? v : NULL;
    return QUIRE_OK;
}

quire_err request_read_breakers(quire_request *r, const field_desc *f, json_object *v, quire_error *err) {
    TRY(check_texts(f, v, MAX_BREAKERS, err));
    r->dry_breakers = v;
    return QUIRE_OK;
}

static quire_err encode(const tokenizer *t, str text, token_list *out, quire_error *err) {
    out->n = 0;
    return tokenizer_encode(t, text, (encode_options){ENCODE_PLAIN, false}, out, err);
}

/* A word is banned as it stands, and, where that is a single other token's beginning, behind a space (vLLM's rule). */
static quire_err add_bad_word(sampling_lists *lists, const tokenizer *t, str word, quire_error *err) {
    token_list plain = {0}, spaced = {0};
    strbuf text = {0};
    while (word.n > 0 && word.p[0] == ' ') {
        word.p++;
        word.n--;
    }
    quire_err e = encode(t, word, &plain, err);
    if (e == QUIRE_OK && (strbuf_add(&text, " ", 1) != QUIRE_OK || strbuf_add(&text, word.p, word.n) != QUIRE_OK)) {
        e = no_memory(err);
    }
    e = e == QUIRE_OK ? encode(t, (str){text.p, text.n}, &spaced, err) : e;
    if (e == QUIRE_OK && plain.n > 0 && token_seqs_add(&lists->bad_words, plain.ids, (int32_t)plain.n) != QUIRE_OK) {
        e = no_memory(err);
    }
    bool another = e == QUIRE_OK && plain.n > 0 && spaced.n == plain.n && spaced.ids[0] != plain.ids[0];
    if (another && token_seqs_add(&lists->bad_words, spaced.ids, (int32_t)spaced.n) != QUIRE_OK) {
        e = no_memory(err);
    }
    token_list_deinit(&plain);
    token_list_deinit(&spaced);
    strbuf_deinit(&text);
    return e;
}

static bool contains(str text, str part) {
    for (size_t i = 0; i + part.n <= text.n; i++) {
        if (memcmp(text.p + i, part.p, part.n) == 0) {
            return true;
        }
    }
    return false;
}

/* A breaker is every token whose text holds it, and the tokens that spell it. */
static quire_err add_breaker(sampling_lists *lists, const tokenizer *t, str breaker, quire_error *err) {
    token_list spelt = {0};
    strbuf piece = {0};
    quire_err e = encode(t, breaker, &spelt, err);
    if (e == QUIRE_OK && spelt.n > 1 && token_seqs_add(&lists->dry_breakers, spelt.ids, (int32_t)spelt.n) != QUIRE_OK) {
        e = no_memory(err);
    }
    for (int32_t id = 0; e == QUIRE_OK && id < tokenizer_n_tokens(t) && lists->dry_breakers.n < MAX_BREAKER_TOKENS; id++) {
        strbuf_clear(&piece);
        e = tokenizer_decode(t, &id, 1, false, &piece) == QUIRE_OK ? QUIRE_OK : no_memory(err);
        if (e == QUIRE_OK && contains((str){piece.p, piece.n}, breaker) && token_seqs_add(&lists->dry_breakers, &id, 1) != QUIRE_OK) {
            e = no_memory(err);
        }
    }
    token_list_deinit(&spelt);
    strbuf_deinit(&piece);
    return e;
}

quire_err request_tokenize_lists(quire_request *r, const tokenizer *t, quire_error *err) {
    static const char *const usual_breakers[] = {"\n", ":", "\"", "*"};
    bool repeats = r->sampling.dry_multiplier != 0.0f;
    if (t == NULL || (r->bad_words == NULL && !repeats)) {
        return r->bad_words == NULL ? QUIRE_OK
                                    : err_set_param(err, QUIRE_BAD_REQUEST, "bad_words", "this model has no vocabulary, so no text can be banned");
    }
    TRY(need_lists(r, err));
    for (size_t i = 0; i < n_texts(r->bad_words); i++) {
        TRY(add_bad_word(r->sampling.lists, t, text_at(r->bad_words, i), err));
    }
    size_t n = !repeats ? 0 : r->dry_breakers == NULL ? sizeof usual_breakers / sizeof *usual_breakers : n_texts(r->dry_breakers);
    for (size_t i = 0; i < n; i++) {
        str breaker = r->dry_breakers == NULL ? str_of(usual_breakers[i]) : text_at(r->dry_breakers, i);
        TRY(add_breaker(r->sampling.lists, t, breaker, err));
    }
    return QUIRE_OK;
}
