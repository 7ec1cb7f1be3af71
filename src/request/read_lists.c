/* Fields that are lists of tokens, texts or adapters: stop, stop_token_ids, logit_bias,
 * allowed_token_ids, bad_words, dry_sequence_breakers, lora. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_read.h"

enum {
    MAX_BIASES = 4096,
    MAX_WORDS = 1024,
    MAX_BREAKERS = 64,
    MAX_SPELT_TOKENS = 512, /* total tokens of all breakers */
    MAX_WORD_TOKENS = 16384,
    MAX_TEXT_BYTES = 256 << 10
};

static quire_err read_lists_no_memory(quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
}

/* Allocates r->g.sampling.lists on first use. */
static quire_err need_lists(quire_request *r, quire_error *err) {
    if (r->g.sampling.lists == NULL) {
        r->g.sampling.lists = sampling_lists_new();
    }
    return r->g.sampling.lists != NULL ? QUIRE_OK : read_lists_no_memory(err);
}

/* ---- ids ---- */

/* Reads the first n ids of an array of integers. QUIRE_BAD_REQUEST: not in the
 * vocabulary. */
static quire_err read_lists_ids(const quire_request *r, const field_desc *f, const json_value *v, size_t n,
                                int32_t *ids, quire_error *err) {
    for (size_t i = 0; i < n; i++) {
        int64_t id = -1;
        json_whole(json_at(v, i), &id);
        if (id < 0 || id >= r->context.n_vocab) {
            return request_range_error(f, err, "%s[%zu] is %lld; the vocabulary has %d ids", f->name, i,
                                       (long long)id, (int)r->context.n_vocab);
        }
        ids[i] = (int32_t)id;
    }
    return QUIRE_OK;
}

quire_err request_read_loras(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    want_part loras[ADAPTER_MAX_PARTS];
    int32_t n_loras = 0; /* distinct ids; the last scale of a repeated id wins */
    size_t n = v == NULL ? 0 : json_length(v);
    if (n > ADAPTER_MAX_PARTS) {
        return request_range_error(f, err, "lora has %zu adapters; at most %d are allowed", n,
                                   ADAPTER_MAX_PARTS);
    }
    for (size_t i = 0; i < n; i++) {
        const json_value *one = json_at(v, i), *scale = json_get(one, "scale");
        int64_t id = -1;
        double x = json_numeric(scale) ? json_double(scale) : 0.0;
        if (!json_is(one, JSON_KIND_OBJECT) || !json_whole(json_get(one, "id"), &id) ||
            (scale != NULL && !json_numeric(scale))) {
            return request_range_error(f, err, "lora[%zu] must be an object {\"id\": N, \"scale\": X}", i);
        }
        if (id < 0 || id >= r->context.n_loras) {
            return request_range_error(f, err,
                                       "lora[%zu] has id %lld; this server has %d adapters from --lora", i,
                                       (long long)id, (int)r->context.n_loras);
        }
        if (!isfinite((float)x)) {
            return request_range_error(f, err, "lora[%zu] has a scale that is not finite", i);
        }
        int32_t at = 0;
        while (at < n_loras && loras[at].number != (int32_t)id) {
            at++;
        }
        loras[at] = (want_part){.number = (int32_t)id, .scale = (float)x};
        n_loras += at == n_loras;
    }
    memcpy(r->g.loras, loras, (size_t)n_loras * sizeof *loras);
    r->g.n_loras = n_loras;
    r->g.has_own_adapters = v != NULL || r->g.adapter.n > 0;
    return QUIRE_OK;
}

quire_err request_read_stop_tokens(quire_request *r, const field_desc *f, const json_value *v,
                                   quire_error *err) {
    size_t n = v == NULL ? 0 : json_length(v);
    if (n > PARAMS_MAX_STOP_TOKENS) {
        return request_range_error(f, err, "stop_token_ids has %zu ids; at most %d are allowed", n,
                                   PARAMS_MAX_STOP_TOKENS);
    }
    int32_t ids[PARAMS_MAX_STOP_TOKENS];
    TRY(read_lists_ids(r, f, v, n, ids, err));
    memcpy(r->g.sampling.stop_tokens, ids, n * sizeof *ids);
    r->g.sampling.n_stop_tokens = (int32_t)n;
    return QUIRE_OK;
}

/* Reads one member of logit_bias, "ID": number. Biases are clamped to [-100, 100], as in
 * vLLM. */
static quire_err read_bias(const quire_request *r, const field_desc *f, const char *key, const json_value *v,
                           int32_t *id, float *bias, quire_error *err) {
    char *end;
    long long value = strtoll(key, &end, 10);
    if (key[0] == '\0' || *end != '\0') {
        return request_range_error(f, err, "logit_bias has the key \"%.40s\"; keys must be token ids", key);
    }
    if (value < 0 || value >= r->context.n_vocab) {
        return request_range_error(f, err, "logit_bias names the id %.40s; the vocabulary has %d ids", key,
                                   (int)r->context.n_vocab);
    }
    if (!json_numeric(v)) {
        return request_type_error(f, -1, v, "an object of numbers", err);
    }
    double number = json_double(v);
    if (number != number) {
        return request_type_error(f, -1, v, "an object of finite numbers", err);
    }
    *id = (int32_t)value;
    *bias = (float)(number < -100.0 ? -100.0 : number > 100.0 ? 100.0 : number);
    return QUIRE_OK;
}

static quire_err read_lists_check_biases(const field_desc *f, size_t n, quire_error *err) {
    return n <= MAX_BIASES
               ? QUIRE_OK
               : request_range_error(f, err, "logit_bias has %zu ids; at most %d are allowed", n, MAX_BIASES);
}

quire_err request_set_biases(quire_request *r, const field_desc *f, const int32_t *ids, const float *bias,
                             size_t n, quire_error *err) {
    TRY(read_lists_check_biases(f, n, err));
    if (n == 0 && r->g.sampling.lists == NULL) {
        return QUIRE_OK;
    }
    TRY(need_lists(r, err));
    return err_set(err, sampling_lists_set_bias(r->g.sampling.lists, ids, bias, (int32_t)n), -1,
                   "out of memory for a request");
}

quire_err request_read_logit_bias(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    size_t n = json_length(v), i = 0;
    TRY(read_lists_check_biases(f, n, err));
    int32_t *ids = mem_new(n + 1, sizeof *ids);
    float *bias = mem_new(n + 1, sizeof *bias);
    quire_err e = ids == NULL || bias == NULL ? read_lists_no_memory(err) : QUIRE_OK;
    for (json_member m = {0}; e == QUIRE_OK && n > 0 && json_next(v, &m); i++) {
        e = read_bias(r, f, m.name, m.value, &ids[i], &bias[i], err);
    }
    TRY_DONE(e, request_set_biases(r, f, ids, bias, n, err));
done:
    mem_free(ids);
    mem_free(bias);
    return e;
}

quire_err request_read_allowed(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    if (v == NULL) {
        if (r->g.sampling.lists != NULL) {
            r->g.sampling.lists->has_allowed = false;
        }
        return QUIRE_OK;
    }
    size_t n = json_length(v);
    if (n == 0 || n > (size_t)r->context.n_vocab) {
        return request_range_error(f, err, "allowed_token_ids has %zu ids; it must have 1 to %d", n,
                                   (int)r->context.n_vocab);
    }
    int32_t *ids = mem_new(n, sizeof *ids);
    quire_err e = ids == NULL ? read_lists_no_memory(err) : need_lists(r, err);
    TRY_DONE(e, read_lists_ids(r, f, v, n, ids, err));
    if (sampling_lists_set_allowed(r->g.sampling.lists, ids, (int32_t)n) != QUIRE_OK) {
        e = read_lists_no_memory(err);
    }
done:
    mem_free(ids);
    return e;
}

quire_err request_set_scored(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    int32_t ids[PARAMS_MAX_SCORED];
    size_t n = json_length(v);
    if (n > PARAMS_MAX_SCORED) {
        return request_range_error(f, err, "%s has %zu ids; at most %d are allowed", f->name, n,
                                   PARAMS_MAX_SCORED);
    }
    TRY(read_lists_ids(r, f, v, n, ids, err));
    if (n > 0) {
        TRY(need_lists(r, err));
    }
    return r->g.sampling.lists != NULL
               ? err_set(err, sampling_lists_set_scored(r->g.sampling.lists, ids, (int32_t)n), -1,
                         "out of memory for a request")
               : QUIRE_OK;
}

/* ---- texts ---- */

/* Text i of v, which is a string, an array of strings or NULL; then the number of
 * texts. */
static str read_lists_text(const json_value *v, size_t i) {
    const json_value *item = json_is(v, JSON_KIND_ARRAY) ? json_at(v, i) : v;
    return json_str(item);
}

static size_t read_lists_n_texts(const json_value *v) {
    return v == NULL ? 0 : json_is(v, JSON_KIND_ARRAY) ? json_length(v) : 1;
}

quire_err request_read_stop(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    size_t n = read_lists_n_texts(v);
    str stops[PARAMS_MAX_STOP];
    if (n > PARAMS_MAX_STOP) {
        return request_range_error(f, err, "%s has %zu strings; at most %d are allowed", f->name, n,
                                   PARAMS_MAX_STOP);
    }
    for (size_t i = 0; i < n; i++) {
        stops[i] = read_lists_text(v, i);
        if (stops[i].n == 0) {
            return request_range_error(
                f, err, "%s has an empty string; each must have at least one character", f->name);
        }
    }
    memcpy(r->g.stops, stops, n * sizeof *stops);
    r->g.n_stops = r->n_given_stops = (int32_t)n;
    return QUIRE_OK;
}

static quire_err read_lists_check_texts(const field_desc *f, const json_value *v, size_t max,
                                        quire_error *err) {
    size_t n = read_lists_n_texts(v);
    if (n > max) {
        return request_range_error(f, err, "%s has %zu texts; at most %zu are allowed", f->name, n, max);
    }
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (read_lists_text(v, i).n == 0) {
            return request_range_error(f, err, "%s has an empty text; each must have at least one character",
                                       f->name);
        }
        n_bytes += read_lists_text(v, i).n;
    }
    return n_bytes <= MAX_TEXT_BYTES
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, f->name,
                               "%s has texts of %zu bytes in all; at most %d are allowed", f->name, n_bytes,
                               MAX_TEXT_BYTES);
}

quire_err request_read_bad_words(quire_request *r, const field_desc *f, const json_value *v,
                                 quire_error *err) {
    TRY(read_lists_check_texts(f, v, MAX_WORDS, err));
    r->bad_words = read_lists_n_texts(v) > 0 ? v : NULL;
    return QUIRE_OK;
}

quire_err request_read_breakers(quire_request *r, const field_desc *f, const json_value *v,
                                quire_error *err) {
    TRY(read_lists_check_texts(f, v, MAX_BREAKERS, err));
    r->dry_breakers = v;
    return QUIRE_OK;
}

/* Tokenises a text into *out. QUIRE_NO_ROOM: over max_tokens tokens. */
static quire_err read_lists_encode(const tokenizer *t, str text, size_t max_tokens, token_list *out,
                                   quire_error *err) {
    out->n = 0;
    return tokenizer_encode(t, text, (encode_options){.special = ENCODE_PLAIN, .max_tokens = max_tokens}, out,
                            err);
}

/* Adds a sequence, unless it has an id without a row in the model, which can never be
 * sampled. */
static quire_err add_sequence(const quire_request *r, token_seqs *to, const token_list *l, quire_error *err) {
    for (size_t i = 0; i < l->n; i++) {
        if (l->ids[i] >= r->context.n_vocab) {
            return QUIRE_OK;
        }
    }
    return err_set(err, token_seqs_add(to, l->ids, (int32_t)l->n), -1, "out of memory for a request");
}

/* Tokenises a word with and without a leading space, to at most max_tokens tokens each.
 * The caller frees the lists. */
static quire_err encode_word(const tokenizer *t, str word, size_t max_tokens, token_list *plain,
                             token_list *spaced, strbuf *text, quire_error *err) {
    while (word.n > 0 && word.p[0] == ' ') {
        word.p++;
        word.n--;
    }
    TRY(read_lists_encode(t, word, max_tokens, plain, err));
    if (strbuf_add(text, " ", 1) != QUIRE_OK || strbuf_add(text, word.p, word.n) != QUIRE_OK) {
        return read_lists_no_memory(err);
    }
    return read_lists_encode(t, (str){text->p, text->n}, max_tokens, spaced, err);
}

/* Bans a word as written, and with a leading space if that gives the same number of
 * tokens and a different first one (vLLM's rule). */
static quire_err add_bad_word(quire_request *r, const tokenizer *t, str word, quire_error *err) {
    token_seqs *words = &r->g.sampling.lists->bad_words;
    token_list plain = {0}, spaced = {0};
    strbuf text = {0};
    size_t n_before = words->n > 0 ? (size_t)words->starts[words->n] : 0;
    quire_err e = encode_word(t, word, MAX_WORD_TOKENS - n_before + 1, &plain, &spaced, &text, err);
    bool another = e == QUIRE_OK && plain.n > 0 && spaced.n == plain.n && spaced.ids[0] != plain.ids[0];
    if (e == QUIRE_NO_ROOM ||
        (e == QUIRE_OK && n_before + plain.n + (another ? spaced.n : 0) > MAX_WORD_TOKENS)) {
        e = err_set_param(err, QUIRE_BAD_REQUEST, "bad_words",
                          "bad_words has texts of more than %d tokens in all; give fewer or shorter ones",
                          MAX_WORD_TOKENS);
    }
    if (e == QUIRE_OK && plain.n > 0) {
        e = add_sequence(r, words, &plain, err);
    }
    if (e == QUIRE_OK && another) {
        e = add_sequence(r, words, &spaced, err);
    }
    token_list_deinit(&plain);
    token_list_deinit(&spaced);
    strbuf_deinit(&text);
    return e;
}

static const char *const usual_breakers[] = {"\n", ":", "\"", "*"};

static str breaker_at(const quire_request *r, size_t i) {
    return r->dry_breakers != NULL ? read_lists_text(r->dry_breakers, i) : str_of(usual_breakers[i]);
}

static size_t n_breakers(const quire_request *r) {
    return r->dry_breakers != NULL ? read_lists_n_texts(r->dry_breakers)
                                   : sizeof usual_breakers / sizeof *usual_breakers;
}

void request_write_texts(const json_value *v, json_out *o) {
    json_begin(o, '[');
    for (size_t i = 0; i < read_lists_n_texts(v); i++) {
        str text = read_lists_text(v, i);
        json_text(json_item(o), text.p, text.n);
    }
    json_end(o, ']');
}

void request_write_breakers(const quire_request *r, json_out *o) {
    json_begin(o, '[');
    for (size_t i = 0; i < n_breakers(r); i++) {
        str text = breaker_at(r, i);
        json_text(json_item(o), text.p, text.n);
    }
    json_end(o, ']');
}

static quire_err stopped(const atomic_bool *stop, quire_error *err) {
    return stop != NULL && atomic_load(stop) ? err_set(err, QUIRE_CANCELLED, -1, "cancelled") : QUIRE_OK;
}

/* Adds the token sequence of each breaker that has several tokens. Their total is
 * limited, since the history is searched for them at every token. */
static quire_err add_spelt(const quire_request *r, const tokenizer *t, const atomic_bool *stop,
                           token_list *spelt, quire_error *err) {
    size_t n_tokens = 0;
    for (size_t i = 0; i < n_breakers(r); i++) {
        TRY(stopped(stop, err));
        quire_err e = read_lists_encode(t, breaker_at(r, i), MAX_SPELT_TOKENS - n_tokens + 1, spelt, err);
        n_tokens += spelt->n;
        if (e == QUIRE_NO_ROOM || (e == QUIRE_OK && n_tokens > MAX_SPELT_TOKENS)) {
            return err_set_param(
                err, QUIRE_BAD_REQUEST, "dry_sequence_breakers",
                "dry_sequence_breakers has texts of more than %d tokens in all; give fewer or shorter ones",
                MAX_SPELT_TOKENS);
        }
        TRY(e);
        if (spelt->n > 1) {
            TRY(add_sequence(r, &r->g.sampling.lists->dry_breakers, spelt, err));
        }
    }
    return QUIRE_OK;
}

/* Adds every token whose text contains a breaker. */
static quire_err add_holders(const quire_request *r, const tokenizer *t, const atomic_bool *stop,
                             strbuf *piece, quire_error *err) {
    token_seqs *breakers = &r->g.sampling.lists->dry_breakers;
    size_t n = n_breakers(r);
    for (int32_t id = 0; id < tokenizer_n_tokens(t) && id < r->context.n_vocab; id++) {
        size_t i = 0;
        if (id % 1024 == 0) {
            TRY(stopped(stop, err));
        }
        strbuf_clear(piece);
        if (tokenizer_decode(t, &id, 1, false, piece) != QUIRE_OK) {
            return read_lists_no_memory(err);
        }
        while (i < n && !str_contains((str){piece->p, piece->n}, breaker_at(r, i))) {
            i++;
        }
        if (i < n && token_seqs_add(breakers, &id, 1) != QUIRE_OK) {
            return read_lists_no_memory(err);
        }
    }
    return QUIRE_OK;
}

static quire_err add_breakers(const quire_request *r, const tokenizer *t, const atomic_bool *stop,
                              quire_error *err) {
    token_list spelt = {0};
    strbuf piece = {0};
    quire_err e = add_spelt(r, t, stop, &spelt, err);
    TRY_DONE(e, add_holders(r, t, stop, &piece, err));
done:
    token_list_deinit(&spelt);
    strbuf_deinit(&piece);
    return e;
}

quire_err request_tokenize_lists(quire_request *r, const tokenizer *t, const atomic_bool *stop,
                                 quire_error *err) {
    assert(r != NULL);
    bool repeats = r->g.sampling.dry_multiplier != 0.0f;
    if (t == NULL || (r->bad_words == NULL && !repeats)) {
        return r->bad_words == NULL ? QUIRE_OK
                                    : err_set_param(err, QUIRE_BAD_REQUEST, "bad_words",
                                                    "this model has no vocabulary, so no text can be banned");
    }
    TRY(need_lists(r, err));
    for (size_t i = 0; i < read_lists_n_texts(r->bad_words); i++) {
        TRY(stopped(stop, err));
        TRY(add_bad_word(r, t, read_lists_text(r->bad_words, i), err));
    }
    return repeats ? add_breakers(r, t, stop, err) : QUIRE_OK;
}

/* Beam search: its fields, under vLLM's and transformers' names, and the fields that it
 * excludes. */

int32_t request_beam_width(const quire_request *r) {
    assert(r != NULL);
    if (r->beam_width > 1 || (r->beam_width == 1 && r->use_beam_search)) {
        return r->beam_width;
    }
    if (!r->use_beam_search) {
        return 0;
    }
    return r->best_of > r->n ? r->best_of : r->n;
}

quire_err request_read_early_stopping(quire_request *r, const field_desc *f, const json_value *v,
                                      quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.beams.stopping = json_is(v, JSON_KIND_TEXT) ? BEAM_STOPPING_NEVER
                          : json_truth(v)            ? BEAM_STOPPING_EARLY
                                                     : BEAM_STOPPING_LIKELY;
    return QUIRE_OK;
}

/* The name of a set field that affects sampling, which beam search does not do; NULL:
 * none. A temperature of 0 or 1 has no effect and is allowed. */
static const char *drawing_field(const sampling_params *p) {
    const struct {
        const char *name;
        bool is_set;
    } fields[] = {{"temperature", p->temperature != 0.0f && p->temperature != 1.0f},
                  {"top_p", p->top_p < 1.0f},
                  {"top_k", p->top_k > 0},
                  {"min_p", p->min_p > 0.0f},
                  {"typical_p", p->typical_p < 1.0f},
                  {"top_n_sigma", p->top_n_sigma > 0.0f},
                  {"xtc_probability", p->xtc_probability > 0.0f},
                  {"dynatemp_range", p->dynatemp_range > 0.0f},
                  {"mirostat", p->mirostat != MIROSTAT_OFF}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].is_set) {
            return fields[i].name;
        }
    }
    return NULL;
}

/* Whether the request gave the field a non-null value. */
static bool is_given(const quire_request *r, const char *name) {
    const json_value *v = NULL;
    for (size_t i = 0; i < r->n_values; i++) {
        v = strcmp(r->values[i].field->name, name) == 0 ? r->values[i].value : v;
    }
    return v != NULL;
}

void request_settle_drawing(quire_request *r) {
    static const char *const names[] = {"temperature", "top_k", "top_p", "min_p"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const double *own = request_defaults_find(r->context.defaults, names[i]);
        if (own != NULL && !is_given(r, names[i])) {
            const field_desc *f = request_field(names[i], dialect_of(&r->g)->fields);
            request_store_number(r, f, r->g.info.beam_width > 0 ? f->number : *own);
        }
    }
}

quire_err request_check_beams(const quire_request *r, quire_error *err) {
    assert(r != NULL);
    int32_t width = r->g.info.beam_width;
    if (width == 0) {
        return QUIRE_OK;
    }
    if (width > PARAMS_MAX_BEAMS) {
        return err_set_param(err, QUIRE_BAD_REQUEST, r->best_of > r->n ? "best_of" : "n",
                             "beam search with %d beams; at most %d are allowed", (int)width,
                             PARAMS_MAX_BEAMS);
    }
    if (r->g.more.has_prediction) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "prediction",
                             "prediction cannot be used with beam search; leave it out");
    }
    if (r->n > width) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "n",
                             "n is %d; it must be at most the number of beams, which is %d", (int)r->n,
                             (int)width);
    }
    if (r->best_of >= 0 && r->beam_width > 0 && r->best_of != r->beam_width) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "best_of",
                             "best_of is %d and beam_width is %d; with beam search both mean the number of "
                             "beams, so leave one out",
                             (int)r->best_of, (int)r->beam_width);
    }
    if (width % r->g.beams.n_groups != 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "num_beam_groups",
                             "num_beam_groups is %d; it must divide the number of beams, which is %d",
                             (int)r->g.beams.n_groups, (int)width);
    }
    if (r->g.beams.diversity_penalty > 0.0f && r->g.beams.n_groups == 1) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "diversity_penalty",
                             "diversity_penalty needs groups of beams; set num_beam_groups");
    }
    const char *field = drawing_field(&r->g.sampling);
    if (field != NULL) {
        return err_set_param(err, QUIRE_BAD_REQUEST, field, "beam search draws no tokens: leave %s out%s",
                             field, strcmp(field, "temperature") == 0 ? ", or give 0 or 1" : "");
    }
    return QUIRE_OK;
}
