/* The dialect of embeddings: its fields, how they must agree with the model's rows, and
 * requests made without JSON. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_read.h"

static const struct {
    const char *name;
    pooling_kind kind;
} kinds[] = {{"mean", POOLING_MEAN}, {"cls", POOLING_CLS}, {"last", POOLING_LAST}, {"rank", POOLING_NONE}};

/* "rank" maps to NONE: a model with a head of scores has its own pooling. */

enum { N_KINDS = (int)(sizeof kinds / sizeof *kinds) };

/* The pooling kind of that name; -1: unknown. */
static int32_t read_embeddings_kind_of(str name) {
    for (int i = 0; i < N_KINDS; i++) {
        if (str_is(name, kinds[i].name)) {
            return (int32_t)kinds[i].kind;
        }
    }
    return -1;
}

quire_err request_read_pooling(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    int32_t kind = v != NULL ? read_embeddings_kind_of(json_str(v)) : -1;
    if (v != NULL && kind < 0) {
        return request_type_error(f, -1, v, "\"mean\", \"cls\", \"last\" or \"rank\"", err);
    }
    r->pooling_kind = kind;
    return QUIRE_OK;
}

quire_err request_read_normalize(quire_request *r, const field_desc *f, const json_value *v,
                                 quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->normalize = v == NULL ? -1 : json_truth(v);
    return QUIRE_OK;
}

quire_err request_read_encoding(quire_request *r, const field_desc *f, const json_value *v,
                                quire_error *err) {
    bool is_base64 = v != NULL && str_is(json_str(v), "base64");
    if (v != NULL && !is_base64 && !str_is(json_str(v), "float")) {
        return request_type_error(f, -1, v, "\"float\" or \"base64\"", err);
    }
    r->g.more.rows_base64 = is_base64;
    return QUIRE_OK;
}

quire_err request_read_types(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->token_types = v;
    return QUIRE_OK;
}

/* ---- checks ---- */

static quire_err read_embeddings_check_type(const quire_request *r, int64_t type, quire_error *err) {
    int32_t n = r->context.n_token_types;
    if (type == 0 || (type > 0 && type < n)) {
        return QUIRE_OK;
    }
    return n > 1 ? err_set_param(err, QUIRE_BAD_REQUEST, "token_type_ids",
                                 "token type is %lld; this model has %d types, counted from 0",
                                 (long long)type, (int)n)
                 : err_set_param(err, QUIRE_BAD_REQUEST, "token_type_ids",
                                 "token type is %lld; this model has no token types", (long long)type);
}

/* Reads the token types of one prompt from an array. */
static quire_err read_types(const quire_request *r, const json_value *v, request_prompt *p,
                            quire_error *err) {
    size_t n = json_is(v, JSON_KIND_ARRAY) ? json_length(v) : 0;
    if (p->ids == NULL || n != (size_t)p->n_ids) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "token_type_ids",
                             "token_type_ids has %zu types for an input of %d ids; give one for each id of "
                             "an input that is given as ids",
                             n, (int)p->n_ids);
    }
    int32_t *types = mem_new(n, sizeof *types);
    if (types == NULL) {
        TRY(err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %zu token types", n));
    }
    mem_free(p->types);
    p->types = types;
    for (size_t i = 0; i < n; i++) {
        int64_t type = -1;
        if (!json_whole(json_at(v, i), &type)) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "token_type_ids",
                                 "token_type_ids has an item that is not an integer");
        }
        TRY(read_embeddings_check_type(r, type, err));
        types[i] = (int32_t)type;
    }
    return QUIRE_OK;
}

/* Reads the types: an array for one prompt, or an array of arrays for several. */
static quire_err take_types(quire_request *r, quire_error *err) {
    const json_value *v = r->token_types;
    if (v == NULL) {
        return QUIRE_OK;
    }
    bool many = json_length(v) > 0 && json_is(json_at(v, 0), JSON_KIND_ARRAY);
    if (many ? json_length(v) != (size_t)r->g.n_prompts : r->g.n_prompts != 1) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "token_type_ids",
                             "token_type_ids has %zu items for %d inputs; give an array for each",
                             json_length(v), (int)r->g.n_prompts);
    }
    for (int32_t i = 0; i < r->g.n_prompts; i++) {
        TRY(read_types(r, many ? json_at(v, (size_t)i) : v, &r->g.prompts[i], err));
    }
    return QUIRE_OK;
}

static quire_err settle_pooling(quire_request *r, quire_error *err) {
    const pooling_desc *own = &r->context.pooling;
    bool says_nothing = own->kind == POOLING_NONE, scores = own->n_scores > 0;
    bool is_rank = r->pooling_kind == POOLING_NONE;
    if (is_rank && !scores) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "pooling",
                             "pooling is rank, but this model has no scoring head");
    }
    if (r->pooling_kind < 0 && says_nothing) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "pooling",
                             "this model %sdoes not say how to pool its rows into an embedding; set pooling "
                             "(quire run: --pooling) to mean, cls or last",
                             r->context.no_tokens ? "" : "generates text and ");
    }
    if (scores && (r->dimensions > 0 || r->normalize > 0)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, r->dimensions > 0 ? "dimensions" : "normalize",
                             "%s is not supported: this model gives %d scores for an input, not an embedding",
                             r->dimensions > 0 ? "dimensions" : "normalize", (int)own->n_scores);
    }
    if (r->context.n_row > 0 && r->dimensions > r->context.n_row) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "dimensions",
                             "dimensions is %d; this model's rows have %d", (int)r->dimensions,
                             (int)r->context.n_row);
    }
    bool by_default = says_nothing || own->normalise;
    r->g.more.dimensions = r->dimensions > 0 ? r->dimensions : 0;
    r->g.pooling =
        (pooling_params){.kind = r->pooling_kind < 0 || is_rank ? own->kind : (pooling_kind)r->pooling_kind,
                         .dimensions = r->dimensions > 0 ? r->dimensions : 0,
                         .normalise = !scores && (r->normalize < 0 ? by_default : r->normalize > 0)};
    return QUIRE_OK;
}

quire_err request_check_embedding(quire_request *r, quire_error *err) {
    assert(r != NULL);
    if (r->g.n_prompts == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "input", "input is missing; give text or token ids");
    }
    if (r->logits_out != NULL) {
        return err_set(err, QUIRE_INVALID, -1, "an embeddings request has no logits");
    }
    TRY(settle_pooling(r, err));
    return take_types(r, err);
}

quire_err request_long_input(int32_t limit, size_t n, const char *least, quire_error *err) {
    return err_set_param(err, QUIRE_BAD_REQUEST, "input",
                         "the input has %s%zu tokens; at most %d are allowed", least, n, (int)limit);
}

/* ---- requests without JSON ---- */

static int32_t *copy_of(const int32_t *from, size_t n) {
    void *copy = mem_dup(from, n * sizeof *from);
    return copy;
}

static quire_err take_input(quire_request *r, const quire_input *in, char *text, request_prompt *p,
                            quire_error *err) {
    if (in->ids == NULL) {
        if (!r->context.has_vocabulary) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "input",
                                 "this model has no vocabulary; give the input as token ids");
        }
        mem_copy(text, in->text, in->n_text);
        p->text = (str){text, in->n_text};
        return in->n_text > 0 && in->types == NULL
                   ? QUIRE_OK
                   : err_set_param(err, QUIRE_BAD_REQUEST, "input",
                                   "an input is empty, or is a text with token types; token types are only "
                                   "for token ids");
    }
    if (in->n_ids == 0 || in->n_ids > INT32_MAX) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "input",
                             "an input of %zu ids; it must have at least one", in->n_ids);
    }
    p->n_ids = (int32_t)in->n_ids;
    p->ids = copy_of(in->ids, in->n_ids);
    p->types = in->types != NULL ? copy_of(in->types, in->n_ids) : NULL;
    if (p->ids == NULL || (in->types != NULL && p->types == NULL)) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for an input of %zu ids", in->n_ids);
    }
    for (int32_t i = 0; i < p->n_ids; i++) {
        if (p->ids[i] < 0 || p->ids[i] >= r->context.n_vocab) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "input",
                                 "token id %d is out of the vocabulary, which has %d ids", (int)p->ids[i],
                                 (int)r->context.n_vocab);
        }
        if (p->types != NULL) {
            TRY(read_embeddings_check_type(r, p->types[i], err));
        }
    }
    return QUIRE_OK;
}

quire_err request_name_input(const quire_request *r, int32_t i, quire_err e, quire_error *err) {
    assert(r != NULL);
    char name[40];
    if (r->g.n_prompts == 1 && r->g.first_input == 0) {
        return e;
    }
    (void)snprintf(name, sizeof name, "input[%zu]", r->g.first_input + (size_t)i);
    return err_prefix(err, e, name);
}

static quire_err take_inputs(quire_request *r, const quire_input *inputs, size_t n, quire_error *err) {
    size_t n_text = 0;
    if (n == 0 || n > REQUEST_MAX_PROMPTS) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "input",
                             "the request has %zu inputs; it must have from 1 to %d", n, REQUEST_MAX_PROMPTS);
    }
    for (size_t i = 0; i < n; i++) {
        n_text += inputs[i].ids == NULL ? inputs[i].n_text : 0;
    }
    r->g.prompts = mem_new(n, sizeof *r->g.prompts);
    r->texts = mem_new(n_text + 1, 1);
    if (r->g.prompts == NULL || r->texts == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %zu inputs", n);
    }
    r->g.n_prompts = (int32_t)n;
    request_count_choices(r);
    for (size_t i = 0, at = 0; i < n; i++) {
        quire_err e = take_input(r, &inputs[i], r->texts + at, &r->g.prompts[i], err);
        if (e != QUIRE_OK) {
            return request_name_input(r, (int32_t)i, e, err);
        }
        at += r->g.prompts[i].text.n;
    }
    return QUIRE_OK;
}

quire_err request_embed(const request_context *ctx, const quire_input *inputs, size_t first, size_t n,
                        const quire_embed_options *o, quire_request **out, quire_error *err) {
    static const quire_embed_options none = {.normalize = -1};
    quire_request *r;
    *out = NULL;
    o = o != NULL ? o : &none;
    int32_t kind = o->pooling != NULL ? read_embeddings_kind_of(str_of(o->pooling)) : -1;
    if (o->dimensions < 0 || (o->pooling != NULL && kind < 0)) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, o->dimensions < 0 ? "dimensions" : "pooling",
            "dimensions is %d and pooling \"%s\"; they must be at least 0, and mean, cls or last",
            (int)o->dimensions, o->pooling != NULL ? o->pooling : "");
    }
    TRY(request_new(ctx, QUIRE_EMBEDDINGS, &r, err));
    r->pooling_kind = kind;
    r->dimensions = o->dimensions > 0 ? o->dimensions : -1;
    r->normalize = o->normalize;
    r->g.first_input = first;
    quire_err e = take_inputs(r, inputs + first, n, err);
    TRY_DONE(e, request_check(r, err));
done:
    if (e != QUIRE_OK) {
        request_free(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

/* The dialect of scores: relevance of texts to a query. A cross-encoder reads each pair
 * as one input; with an embedding model a score is the cosine of two rows. */

#define SCORES_MAX_BYTES (4 * REQUEST_MAX_BYTES)

/* The text of an item, which is a string or an object with a text. */
static const json_value *scores_text_of(const json_value *item) {
    const json_value *text = json_is(item, JSON_KIND_OBJECT) ? json_get(item, "text") : item;
    return json_is(text, JSON_KIND_TEXT) ? text : NULL;
}

/* Checks that v is a text or a list of at least one. */
static quire_err read_texts(const field_desc *f, const json_value *v, quire_error *err) {
    bool is_list = json_is(v, JSON_KIND_ARRAY);
    size_t n = is_list ? json_length(v) : 1;
    if (n == 0 || n > REQUEST_MAX_PROMPTS) {
        return request_range_error(f, err, "%s has %zu items; it must have from 1 to %d", f->name, n,
                                   REQUEST_MAX_PROMPTS);
    }
    for (size_t i = 0; i < n; i++) {
        const json_value *item = is_list ? json_at(v, i) : v;
        if (scores_text_of(item) == NULL) {
            return request_type_error(
                f, is_list ? (int64_t)i : -1, item,
                is_list ? "a string, or an object with a text" : "a string or an array of strings", err);
        }
    }
    return QUIRE_OK;
}

quire_err request_read_queries(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    if (v != NULL) {
        TRY(read_texts(f, v, err));
    }
    r->queries = v;
    return QUIRE_OK;
}

quire_err request_read_candidates(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    if (v != NULL) {
        TRY(read_texts(f, v, err));
    }
    r->candidates = v;
    return QUIRE_OK;
}

static size_t text_count(const json_value *v) {
    return json_is(v, JSON_KIND_ARRAY) ? json_length(v) : 1;
}

static str text_at_index(const json_value *v, size_t i) {
    return json_str(scores_text_of(json_is(v, JSON_KIND_ARRAY) ? json_at(v, i) : v));
}

static quire_err check_texts(const quire_request *r, quire_error *err) {
    bool is_score = r->g.info.endpoint == QUIRE_SCORE;
    const char *query = is_score ? "text_1" : "query", *documents = dialect_of(&r->g)->prompt;
    if (r->queries == NULL || r->candidates == NULL) {
        return err_set_param(err, QUIRE_BAD_REQUEST, r->queries == NULL ? query : documents,
                             "%s is missing; give a text%s", r->queries == NULL ? query : documents,
                             r->queries == NULL ? "" : " or several");
    }
    size_t n_queries = text_count(r->queries), n_documents = text_count(r->candidates);
    if (n_queries != 1 && (!is_score || n_queries != n_documents)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, query,
                             "%s has %zu texts, and %s has %zu; give one for all of them%s", query, n_queries,
                             documents, n_documents, is_score ? ", or one for each" : "");
    }
    if (!r->context.has_vocabulary) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "this model has no vocabulary, so it cannot score texts; /v1/embeddings takes ids");
    }
    if (r->context.pooling.n_scores > 1) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "this model gives %d scores for an input, not a single one; /pooling returns them all",
                       (int)r->context.pooling.n_scores);
    }
    return QUIRE_OK;
}

/* For a cross-encoder: makes one input per pair. */
static void make_pairs(quire_request *r, size_t n_queries, size_t n_documents) {
    for (size_t i = 0; i < n_documents; i++) {
        str document = text_at_index(r->candidates, i);
        r->g.prompts[i] = (request_prompt){.text = text_at_index(r->queries, n_queries > 1 ? i : 0),
                                           .pair = document,
                                           .shown = r->g.more.return_documents ? document : (str){0}};
    }
}

/* For an embedding model: makes inputs of the queries, then the documents. */
static void make_texts(quire_request *r, size_t n_queries, size_t n_documents) {
    for (size_t i = 0; i < n_queries; i++) {
        r->g.prompts[i] = (request_prompt){.text = text_at_index(r->queries, i)};
    }
    for (size_t i = 0; i < n_documents; i++) {
        str document = text_at_index(r->candidates, i);
        r->g.prompts[n_queries + i] =
            (request_prompt){.text = document, .shown = r->g.more.return_documents ? document : (str){0}};
    }
}

/* Limits the total text of pairs, since each pair repeats its query. */
static quire_err check_pairs(const quire_request *r, size_t n_queries, size_t n_documents, quire_error *err) {
    size_t n_bytes = 0; /* cannot overflow: a body has at most 1,024 pairs */
    for (size_t i = 0; i < n_documents; i++) {
        n_bytes += text_at_index(r->queries, n_queries > 1 ? i : 0).n + text_at_index(r->candidates, i).n;
    }
    return n_bytes <= SCORES_MAX_BYTES ? QUIRE_OK
                                       : err_set_param(err, QUIRE_BAD_REQUEST, dialect_of(&r->g)->prompt,
                                                       "the pairs have %zu bytes of text, counting the query "
                                                       "once for each; at most %zu are allowed",
                                                       n_bytes, SCORES_MAX_BYTES);
}

quire_err request_check_scores(quire_request *r, quire_error *err) {
    TRY(check_texts(r, err));
    bool is_pair = r->context.pooling.n_scores > 0;
    size_t n_queries = text_count(r->queries), n_documents = text_count(r->candidates),
           n = n_documents + (is_pair ? 0 : n_queries);
    if (is_pair) {
        TRY(check_pairs(r, n_queries, n_documents, err));
    }
    request_prompt *prompts = mem_new(n, sizeof *prompts);
    TRY(mem_check_for(prompts, "texts to score", err));
    request_set_prompts(r, prompts, n); /* at most 2 * REQUEST_MAX_PROMPTS */
    r->g.more.n_queries = is_pair ? 0 : (int32_t)n_queries;
    r->normalize = is_pair ? -1 : 1;
    if (is_pair) {
        make_pairs(r, n_queries, n_documents);
    } else {
        make_texts(r, n_queries, n_documents);
    }
    request_count_choices(r);
    return request_check_embedding(r, err);
}
